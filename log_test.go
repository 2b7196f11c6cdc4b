package toolcircuit_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

// logged returns what LogEvents and LogCalls write of an outage, without the time of each line.
func logged(t *testing.T, handler func(io.Writer, *slog.HandlerOptions) slog.Handler) string {
	var out bytes.Buffer
	logger := slog.New(handler(&out, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{}
			}
			return a
		},
	}))
	synctest.Test(t, func(t *testing.T) {
		mock := clock.NewMock()
		c := toolcircuit.MustNew("search-api", toolcircuit.Options{
			Policy:  toolcircuit.Policy{FailureThreshold: 2},
			Clock:   mock,
			OnEvent: toolcircuit.LogEvents(logger),
			OnCall:  toolcircuit.LogCalls(logger),
			Tool:    toolcircuit.Tool{Name: "web_search"},
		})
		ctx := toolcircuit.WithRunID(context.Background(), "run-1")
		call := func(err error) {
			toolcircuit.Do(ctx, c, func(context.Context) (int, error) {
				mock.Add(time.Second / 2)
				return 0, err
			})
		}
		call(nil)
		call(errDown)
		call(errDown)
		for range 5 {
			call(nil)
		}
		time.Sleep(time.Second)
		call(nil)
		mock.Add(10 * time.Second)
		call(nil)
		c.SetOverride(toolcircuit.OverrideOpen)
		call(nil)
		c.SetOverride(toolcircuit.OverrideNone)
	})
	return out.String()
}

func TestLogOfAnOutage(t *testing.T) {
	got := logged(t, func(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(w, o) })
	require.Equal(t, `
level=WARN msg="toolcircuit: opened" dependency=search-api tool=web_search transition="closed -> open" rule=threshold kind=unavailable failures=2 openings=1 retry_at=1970-01-01T00:00:11.500Z run_id=run-1 duration=500ms
level=DEBUG msg="toolcircuit: refused" dependency=search-api tool=web_search state=open kind=rejected executed=false run_id=run-1 reason=dependency_open retry_at=1970-01-01T00:00:11.500Z
level=DEBUG msg="toolcircuit: refused" dependency=search-api tool=web_search state=open kind=rejected executed=false run_id=run-1 reason=dependency_open retry_at=1970-01-01T00:00:11.500Z skipped=4
level=INFO msg="toolcircuit: half_opened" dependency=search-api tool=web_search transition="open -> half_open" run_id=run-1
level=INFO msg="toolcircuit: closed" dependency=search-api tool=web_search transition="half_open -> closed" rule=probe run_id=run-1 duration=500ms
level=WARN msg="toolcircuit: overridden" dependency=search-api tool=web_search transition="closed -> closed" override=open
level=DEBUG msg="toolcircuit: refused" dependency=search-api tool=web_search state=open kind=rejected executed=false run_id=run-1 reason=manual_open
level=INFO msg="toolcircuit: overridden" dependency=search-api tool=web_search transition="closed -> closed" override=none
`, "\n"+got)
	got = logged(t, func(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewJSONHandler(w, o) })
	require.Equal(t, `
{"level":"WARN","msg":"toolcircuit: opened","dependency":"search-api","tool":"web_search","transition":"closed -> open","rule":"threshold","kind":"unavailable","failures":2,"openings":1,"retry_at":"1970-01-01T00:00:11.5Z","run_id":"run-1","duration":500000000}
{"level":"DEBUG","msg":"toolcircuit: refused","dependency":"search-api","tool":"web_search","state":"open","kind":"rejected","executed":false,"run_id":"run-1","reason":"dependency_open","retry_at":"1970-01-01T00:00:11.5Z"}
{"level":"DEBUG","msg":"toolcircuit: refused","dependency":"search-api","tool":"web_search","state":"open","kind":"rejected","executed":false,"run_id":"run-1","reason":"dependency_open","retry_at":"1970-01-01T00:00:11.5Z","skipped":4}
{"level":"INFO","msg":"toolcircuit: half_opened","dependency":"search-api","tool":"web_search","transition":"open -> half_open","run_id":"run-1"}
{"level":"INFO","msg":"toolcircuit: closed","dependency":"search-api","tool":"web_search","transition":"half_open -> closed","rule":"probe","run_id":"run-1","duration":500000000}
{"level":"WARN","msg":"toolcircuit: overridden","dependency":"search-api","tool":"web_search","transition":"closed -> closed","override":"open"}
{"level":"DEBUG","msg":"toolcircuit: refused","dependency":"search-api","tool":"web_search","state":"open","kind":"rejected","executed":false,"run_id":"run-1","reason":"manual_open"}
{"level":"INFO","msg":"toolcircuit: overridden","dependency":"search-api","tool":"web_search","transition":"closed -> closed","override":"none"}
`, "\n"+got)
}

// The rate is kept for each dependency and reason, and by many goroutines at once.
func TestLogCallsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := toolcircuit.LogCalls(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
		refuse := func(dependency string, r toolcircuit.Reason) {
			log(context.Background(), toolcircuit.Call{Dependency: dependency, Reason: r})
		}
		lines := func() int {
			defer out.Reset()
			return strings.Count(out.String(), "\n")
		}
		for range 8 {
			go func() {
				for range 100 {
					refuse("search-api", toolcircuit.ReasonDependencyOpen)
					refuse("search-api", toolcircuit.ReasonBusy)
					refuse("mail", toolcircuit.ReasonDependencyOpen)
				}
			}()
		}
		synctest.Wait()
		require.Equal(t, 3, lines())
		time.Sleep(time.Second - 1)
		refuse("mail", toolcircuit.ReasonDependencyOpen)
		require.Zero(t, lines())
		time.Sleep(time.Nanosecond)
		refuse("mail", toolcircuit.ReasonDependencyOpen)
		require.Contains(t, out.String(), " skipped=800\n")
		require.Equal(t, 1, lines())

		for i := range 2000 { // more names than it remembers
			refuse(fmt.Sprint("invented-", i), toolcircuit.ReasonDependencyOpen)
		}
		require.Equal(t, 2000, lines())
		refuse("invented-1999", toolcircuit.ReasonDependencyOpen)
		require.Zero(t, lines())
	})
}

// What is not refused makes no line, nor does a level that is off.
func TestLogCallsIsQuiet(t *testing.T) {
	var out bytes.Buffer
	log := toolcircuit.LogCalls(slog.New(slog.NewTextHandler(&out, nil)))
	log(context.Background(), toolcircuit.Call{Reason: toolcircuit.ReasonDependencyOpen})
	log = toolcircuit.LogCalls(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	log(context.Background(), toolcircuit.Call{Executed: true, Err: errDown})
	require.Empty(t, out.String())
}
