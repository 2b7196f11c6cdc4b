// Package promtest tests what otelcircuit exports, as Prometheus reads it. It is a module of its
// own, which nobody imports, because of what the exporter requires.
package promtest

import (
	"context"
	"errors"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	promclient "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/otelcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

var update = flag.Bool("update", false, "write testdata/metrics.txt anew")

// export returns a Set under the exporter's meter, and what Prometheus collects.
func export(t *testing.T) (*toolset.Set, *clock.Mock, *promclient.Registry) {
	registry := promclient.NewRegistry()
	exporter, err := prometheus.New(prometheus.WithRegisterer(registry), prometheus.WithoutScopeInfo(), prometheus.WithoutTargetInfo())
	require.NoError(t, err)
	mock := clock.NewMock()
	set, err := otelcircuit.NewSet(toolset.Config{
		Default:      &toolcircuit.Policy{FailureThreshold: 2},
		Dependencies: map[string]toolset.Dependency{"search-api": {MaxInFlight: 1}},
		Tools:        map[string]toolset.Tool{"web_search": {Dependency: "search-api"}, "weather": {}},
	}, toolset.Options{Clock: mock}, otelcircuit.Options{
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)),
		Durations:     true,
	})
	require.NoError(t, err)
	t.Cleanup(func() { runtime.KeepAlive(set) }) // the gauges of a Set that nobody has are gone
	return set, mock, registry
}

// live makes every metric appear, with every attribute that it can have.
func live(set *toolset.Set, mock *clock.Mock) {
	call := func(tool string, took time.Duration, err error) {
		toolset.Do(context.Background(), set, tool, nil, func(context.Context) (int, error) {
			mock.Add(took)
			return 0, err
		})
	}
	down := toolcircuit.Fault(errors.New("down"))
	call("web_search", time.Second/4, nil)
	call("web_search", 20*time.Second, down)
	call("web_search", 20*time.Second, down)
	call("web_search", 0, nil)
	mock.Add(10 * time.Second)
	call("web_search", time.Second, nil)
	set.SetOverride("weather", toolcircuit.OverrideOpen)
	call("weather", 0, nil)
}

// text returns what Prometheus scrapes.
func text(t *testing.T, registry *promclient.Registry) string {
	response := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, response.Code)
	return response.Body.String()
}

func TestText(t *testing.T) {
	set, mock, registry := export(t)
	live(set, mock)
	got := text(t, registry)
	if *update {
		require.NoError(t, os.WriteFile("testdata/metrics.txt", []byte(got), 0o644))
	}
	want, err := os.ReadFile("testdata/metrics.txt")
	require.NoError(t, err)
	require.Equal(t, string(want), got, "run go test -update if this is meant")

	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	require.Empty(t, problems)
}

// A name that is not UTF-8 does not cost Prometheus the other metrics.
func TestNamesAreUTF8(t *testing.T) {
	set, mock, registry := export(t)
	require.NoError(t, set.Apply(toolset.Config{Monitored: []string{"*"}}))
	live(set, mock)
	toolset.Do(context.Background(), set, "bad\xff", nil, func(context.Context) (int, error) { return 0, nil })
	require.Contains(t, text(t, registry), "toolcircuit_calls_total{gen_ai_tool_name=\"bad\uFFFD\",")
}

// Everything that the dashboard queries is exported, and everything exported is on it.
func TestDashboard(t *testing.T) {
	set, mock, registry := export(t)
	live(set, mock)
	exported, labels := names(text(t, registry))
	board := readDashboard(t)

	queried := map[string]bool{}
	for _, q := range board.queries() {
		for _, word := range words(q) {
			if !exported[word] && !labels[word] {
				t.Errorf("the dashboard has %q in %q, which is no metric and no label", word, q)
			}
			queried[base(word)] = true
		}
	}
	for metric := range exported {
		if !queried[base(metric)] {
			t.Errorf("the dashboard has nothing about %s", metric)
		}
	}
}

// base returns the name of a metric, without the ending that a histogram gives to its series.
func base(metric string) string {
	return regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(metric, "")
}

// names returns the metrics and the labels of a text.
func names(text string) (metrics, labels map[string]bool) {
	metrics, labels = map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(text) {
		if m := regexp.MustCompile(`^(\w+)\{(.*)\}`).FindStringSubmatch(line); m != nil {
			metrics[m[1]] = true
			for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[2], -1) {
				labels[label[1]] = true
			}
		}
	}
	return metrics, labels
}
