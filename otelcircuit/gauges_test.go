package otelcircuit_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// Collecting at the end of a cooldown moves no circuit and takes no probe.
func TestGaugeTakesNothing(t *testing.T) {
	r := newRig(t)
	c := r.circuit(toolcircuit.Options{})
	for range 2 {
		toolcircuit.Do(context.Background(), c, r.takes(0, errDown))
	}
	state := func(want string) {
		t.Helper()
		require.Contains(t, r.collect("toolcircuit.circuit.state"), "toolcircuit.circuit.state toolcircuit.dependency=search-api toolcircuit.state="+want+": 1 {circuit}")
	}
	r.clock.Add(10*time.Second - 1)
	state("open")
	r.clock.Add(1)
	before := c.Snapshot()
	for range 1000 {
		state("half_open")
	}
	require.Equal(t, before, c.Snapshot())
	permit, err := c.Allow(context.Background())
	require.NoError(t, err)
	require.True(t, permit.Probe())
	permit.Release()
}

// What the meter holds does not keep a circuit or a Set alive, and their series end.
func TestSeriesEndWithTheirOwner(t *testing.T) {
	r := newRig(t)
	c := r.circuit(toolcircuit.Options{})
	s := r.set(toolset.Config{Tools: map[string]toolset.Tool{"web_search": {}}}, toolset.Options{})
	view := c.WithTool(toolcircuit.Tool{Name: "news"})
	runtime.GC()
	require.Len(t, r.collect("toolcircuit.circuit.state"), 6)
	runtime.KeepAlive(s)
	runtime.KeepAlive(c)
	runtime.GC()
	require.Len(t, r.collect("toolcircuit.circuit.state"), 3, "a view keeps its circuit")
	runtime.KeepAlive(view)
	runtime.GC()
	require.Empty(t, r.collect("toolcircuit.circuit.state"))
}

// Under one provider circuits of one dependency share its state, in whatever Sets they are, until
// the last of them goes.
func TestSeveralUnderOneProvider(t *testing.T) {
	for name, comparable := range map[string]bool{"": true, " that cannot be compared": false} {
		t.Run("a provider"+name, func(t *testing.T) {
			r := newRig(t)
			if !comparable {
				r.options.MeterProvider = struct {
					metric.MeterProvider
					_ []int
				}{MeterProvider: r.options.MeterProvider}
			}
			listed := toolset.Config{Tools: map[string]toolset.Tool{"web_search": {Dependency: "search-api"}}}
			first, second := r.set(listed, toolset.Options{}), r.set(listed, toolset.Options{})
			third, fourth := r.circuit(toolcircuit.Options{}), r.circuit(toolcircuit.Options{})
			state := func() (in []string) {
				for _, line := range r.collect("toolcircuit.circuit.state", "toolcircuit.circuit.override") {
					if line, found := strings.CutSuffix(line, ": 1 {circuit}"); found {
						in = append(in, line[strings.LastIndexByte(line, ' ')+1:])
					}
				}
				return in
			}
			toolset.Do(context.Background(), first, "web_search", nil, r.takes(0, errDown))
			toolset.Do(context.Background(), second, "web_search", nil, r.takes(0, nil))
			third.SetOverride(toolcircuit.OverrideOpen)
			if comparable {
				require.Equal(t, []string{"toolcircuit.override=open", "toolcircuit.state=closed", "toolcircuit.state=open"}, state())
			} else {
				require.Contains(t, state(), "toolcircuit.state=closed", "whatever the last callback says")
			}
			runtime.KeepAlive(first)
			runtime.KeepAlive(third)
			runtime.GC()
			require.Equal(t, []string{"toolcircuit.state=closed"}, state())
			runtime.KeepAlive(second)
			runtime.KeepAlive(fourth)
			runtime.GC()
			require.Empty(t, state())

			again := r.circuit(toolcircuit.Options{})
			require.Equal(t, []string{"toolcircuit.state=closed"}, state())
			runtime.KeepAlive(again)
		})
	}
}

// Two providers have nothing to do with each other.
func TestTwoProviders(t *testing.T) {
	one, two := newRig(t), newRig(t)
	c, d := one.circuit(toolcircuit.Options{}), two.circuit(toolcircuit.Options{})
	c.SetOverride(toolcircuit.OverrideOpen)
	require.Len(t, one.collect("toolcircuit.circuit.override"), 1)
	require.Empty(t, two.collect("toolcircuit.circuit.override"))
	runtime.KeepAlive(c)
	runtime.KeepAlive(d)
}

// Collecting while circuits come and go ends, and so does their coming and going.
func TestCollectMeanwhile(t *testing.T) {
	r := newRig(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 100 {
			r.collect()
		}
	}()
	for range 100 {
		r.circuit(toolcircuit.Options{})
		runtime.GC()
	}
	<-done
}

// A Twin is counted, and has no state.
func TestTwin(t *testing.T) {
	r := newRig(t)
	c := r.circuit(toolcircuit.Options{})
	toolcircuit.Do(context.Background(), c.Twin("mail"), r.takes(0, nil))
	require.Equal(t, []string{"toolcircuit.calls toolcircuit.dependency=mail toolcircuit.kind=ok: 1 {call}"}, r.collect("toolcircuit.calls"))
	require.Len(t, r.collect("toolcircuit.circuit.state"), 3)
	runtime.KeepAlive(c)
}
