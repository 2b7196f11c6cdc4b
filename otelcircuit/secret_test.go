package otelcircuit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/debugpage"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// sdkError is as many SDKs make them: a text, and the response.
type sdkError struct {
	Text     string
	Response *http.Response
}

func (e *sdkError) Error() string { return e.Text }

type contextKey struct{}

// A secret in an error, an argument, a result, a header, a panic, a value of the context or a
// scope's label turns up in no log, event, metric, span, page, JSON or text for a model.
func TestSecrets(t *testing.T) {
	const secret = "s3cr3t"
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.options.Durations = true
		shown := map[string]*bytes.Buffer{}
		show := func(where string, what ...any) {
			if shown[where] == nil {
				shown[where] = new(bytes.Buffer)
			}
			fmt.Fprintln(shown[where], what...)
		}

		var text, records bytes.Buffer
		debug := &slog.HandlerOptions{Level: slog.LevelDebug}
		loggers := []*slog.Logger{slog.New(slog.NewTextHandler(&text, debug)), slog.New(slog.NewJSONHandler(&records, debug))}
		var history debugpage.History
		set := r.set(toolset.Config{
			Dependencies: map[string]toolset.Dependency{"search-api": {Scoped: true, MaxInFlight: 1}},
			Tools:        map[string]toolset.Tool{"web_search": {Dependency: "search-api"}},
			Hide:         toolset.HideOpen,
		}, toolset.Options{
			Classify: func(_ context.Context, o toolcircuit.Outcome) toolcircuit.Verdict {
				if errors.Is(o.Err, errors.ErrUnsupported) {
					panic(secret)
				}
				return toolcircuit.Verdict{}
			},
			OnEvent: func(ctx context.Context, e toolcircuit.Event) {
				history.OnEvent(ctx, e)
				for _, l := range loggers {
					toolcircuit.LogEvents(l)(ctx, e)
					l.Info("event", "event", e)
				}
			},
			OnCall: func(ctx context.Context, c toolcircuit.Call) {
				for _, l := range loggers {
					toolcircuit.LogCalls(l)(ctx, c)
					l.Info("call", "call", c)
				}
			},
		})
		page := debugpage.Handler(set, debugpage.Options{History: &history, Now: r.clock.Now, Authorize: func(*http.Request) bool { return true }})
		start, events := spans()
		session, err := set.Session("run-1", toolset.Limits{Calls: 100})
		require.NoError(t, err)

		header := http.Header{"X-Api-Key": {secret}, "Retry-After": {secret}, "Set-Cookie": {"session=" + secret}}
		failures := []error{
			&sdkError{secret, &http.Response{StatusCode: 503, Status: "503 " + secret, Header: header, Request: &http.Request{URL: &url.URL{Host: secret}, Header: header}}},
			fmt.Errorf("%s: %w", secret, toolcircuit.CheckResponse(&http.Response{StatusCode: 429, Header: header})),
			toolcircuit.RetryAfter(errors.New(secret), 9*time.Second),
			toolcircuit.Fault(errors.New(secret)),
			toolcircuit.Benign(errors.New(secret)),
			&url.Error{Op: "Get", URL: "https://user:" + secret + "@host/?key=" + secret, Err: context.DeadlineExceeded},
			errors.Join(errors.New(secret), errors.ErrUnsupported),
			errors.New(secret),
		}
		call := func(i int, tool, scope string, op func(context.Context) (string, error)) {
			ctx, end := start(tool)
			defer end()
			defer func() { _ = recover() }()
			ctx = toolset.WithScope(context.WithValue(ctx, contextKey{}, secret), scope)
			ctx = toolset.WithSession(ctx, session)
			args := map[string]any{"query": secret, secret: i}
			result, err := toolset.DoResult(ctx, set, tool, args, op)
			if result.Status != toolcircuit.StatusOK { // whose value is the tool's own
				answer, _ := json.Marshal(result)
				show("model", string(answer))
			}
			if errors.Is(err, toolcircuit.ErrCircuitOpen) {
				show("refusal", err)
			}
			for _, c := range set.Snapshot().Circuits {
				if c.Dependency == tool {
					refused, _ := json.Marshal(c.Snapshot)
					show("snapshot", string(refused))
				}
			}
		}
		for i, failure := range failures {
			for _, tool := range []string{"web_search", "weather"} {
				scope := fmt.Sprint(secret, "-", i)
				call(i, tool, scope, func(context.Context) (string, error) { return secret, nil })
				call(i, tool, scope, func(ctx context.Context) (string, error) {
					call(i, tool, scope, func(context.Context) (string, error) { return secret, nil }) // busy
					return secret, failure
				})
				call(i, tool, scope, func(context.Context) (string, error) { return secret, nil })
				r.clock.Add(time.Minute)
				call(i, tool, scope, func(context.Context) (string, error) { panic(secret) })
				for range 5 {
					call(0, tool, scope, func(context.Context) (string, error) {
						return secret, toolcircuit.Invalid(errors.New("the city is missing"))
					})
				}
				r.clock.Add(time.Hour)
			}
		}

		get := func(path string, ctx context.Context) {
			w := httptest.NewRecorder()
			page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil).WithContext(ctx))
			show("page "+path, w.Header(), w.Body.String())
		}
		get("/", context.Background())
		get("/circuits", context.Background())
		watching, leave := context.WithTimeout(context.Background(), 3*time.Second)
		defer leave()
		get("/events", watching)
		show("metrics", strings.Join(r.collect(), "\n"))
		show("spans", strings.Join(events(), "\n"))
		show("log as text", text.String())
		show("log as JSON", records.String())

		for where, want := range map[string]string{
			"model": "busy", "page /": "Circuits", "page /circuits": "search-api", "page /events": "search-api",
			"snapshot": "weather", "metrics": "toolcircuit.kind=panic", "spans": "toolcircuit.opened",
			"log as text": "toolcircuit: refused", "log as JSON": "toolcircuit: opened",
		} {
			require.NotNil(t, shown[where], where)
			require.Contains(t, shown[where].String(), want, where)
		}
		for where, all := range shown {
			for line := range strings.Lines(all.String()) {
				require.NotContains(t, line, secret, where)
			}
		}
	})
}
