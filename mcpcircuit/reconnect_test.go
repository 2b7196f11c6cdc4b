package mcpcircuit_test

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/mcpcircuit"
)

// While a server cannot be started its calls are blocked, for no longer than a second at a time. It
// is back within that of being startable, and its tools with it.
func TestServerThatCannotBeStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, _ := newRenewing(t, strings.Replace(everything, "3", "1", 1), legacy, "search")
		session := x.session()
		x.kill()
		synctest.Wait()
		down := true
		x.dial = func(context.Context) error {
			if down {
				return errors.New("exec: no such file")
			}
			return nil
		}
		pass := func(d time.Duration) {
			time.Sleep(d)
			x.clock.Set(x.clock.Now().Add(d))
		}
		start := time.Now()
		for time.Since(start) < 20*time.Second {
			got := blocked(t, session, "search")
			require.Equal(t, "mcp:web", got.Dependency)
			require.False(t, *got.Executed)
			require.LessOrEqual(t, got.RetryAfterMS, int64(1000))
			pass(100 * time.Millisecond)
		}
		require.Less(t, x.dials.Load(), int64(30), "one each second, after a few sooner ones")
		down = false
		start = time.Now()
		for {
			res, err := call(session, "search")
			require.NoError(t, err)
			if !res.IsError {
				break
			}
			pass(50 * time.Millisecond)
		}
		require.LessOrEqual(t, time.Since(start), 1100*time.Millisecond)
	})
}

// A call that was under way on a session that is known to be gone says nothing more when it ends: the
// server is tried again as often as before.
func TestLateLossOnADeadSession(t *testing.T) {
	for name, err := range map[string]error{"broken off": io.ErrUnexpectedEOF, "timeout": os.ErrDeadlineExceeded} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x, _ := newRenewing(t, everything, legacy, "search", "fetch")
				x.client = plainClient()
				end, ended := make(chan struct{}), make(chan struct{})
				x.client.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
					return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
						if p, ok := req.GetParams().(*mcp.CallToolParams); ok && p.Name == "fetch" {
							<-end
							return nil, err
						}
						return next(ctx, method, req)
					}
				})
				x.guard(mcpcircuit.Options{Reconnect: func(context.Context, *mcp.ClientSession) (*mcp.ClientSession, error) {
					return nil, errors.New("connection refused")
				}}).Client(x.client)
				session := x.session()
				healthy(t, session, "search")
				go func() {
					defer close(ended)
					lost(t, session, "fetch")
				}()
				synctest.Wait()
				x.kill()
				synctest.Wait()
				require.LessOrEqual(t, blocked(t, session, "search").RetryAfterMS, int64(1000))
				close(end)
				<-ended
				synctest.Wait()
				require.LessOrEqual(t, blocked(t, session, "search").RetryAfterMS, int64(1000))
			})
		})
	}
}

// A server that asks to be left alone for a time gets no attempt before.
func TestReconnectIsToldToWait(t *testing.T) {
	for _, status := range []int{429, 503} {
		synctest.Test(t, func(t *testing.T) {
			x, _ := newRenewing(t, everything, legacy, "search")
			session := x.session()
			x.kill()
			synctest.Wait()
			x.dial = func(context.Context) error {
				return &toolcircuit.HTTPError{StatusCode: status, RetryAfter: 7 * time.Second}
			}
			for range 6 {
				require.LessOrEqual(t, blocked(t, session, "search").RetryAfterMS, int64(7000))
				require.EqualValues(t, 1, x.dials.Load())
				time.Sleep(time.Second)
				x.clock.Set(x.clock.Now().Add(time.Second))
			}
			x.dial = nil
			time.Sleep(time.Second)
			x.clock.Set(x.clock.Now().Add(time.Second))
			healthy(t, session, "search")
		})
	}
}

// A server that cannot be started for longer than ReconnectTimeout is down like any other.
func TestServerThatStaysDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, _ := newRenewing(t, everything, legacy, "search")
		session := x.session()
		x.kill()
		synctest.Wait()
		x.dial = func(context.Context) error { return errors.New("exec: no such file") }
		blocked(t, session, "search")
		time.Sleep(31 * time.Second)
		x.clock.Set(x.clock.Now().Add(31 * time.Second))
		got := blocked(t, session, "search")
		require.Equal(t, toolcircuit.RuleProbe, got.Rule)
		require.EqualValues(t, 60_000, got.RetryAfterMS)
		require.EqualValues(t, 2, x.dials.Load())
	})
}

// A Reconnect that ignores its context fails after ReconnectTimeout. Threshold and cooldown apply,
// others are tried beside it, and a session that comes after all is closed.
func TestReconnectThatNeverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, _ := newRenewing(t, everything, legacy, "search")
		session := x.session()
		x.kill()
		synctest.Wait()
		never := make(chan struct{})
		var hangs atomic.Bool
		hangs.Store(true)
		x.dial = func(context.Context) error {
			if hangs.Load() {
				<-never
			}
			return nil
		}
		for i := range 3 {
			start := time.Now()
			got := blocked(t, session, "search")
			require.Equal(t, 30*time.Second, time.Since(start))
			require.Equal(t, "mcp:web", got.Dependency)
			require.Equal(t, toolcircuit.KindTimeout, got.Cause)
			if i < 2 {
				require.Equal(t, toolcircuit.RulePause, got.Rule)
				require.EqualValues(t, 50<<i, got.RetryAfterMS)
			}
			require.EqualValues(t, i+1, x.dials.Load())
			time.Sleep(time.Second)
		}
		got := blocked(t, session, "search")
		require.Equal(t, toolcircuit.RuleThreshold, got.Rule)
		require.Equal(t, toolcircuit.KindTimeout, got.Cause)
		require.EqualValues(t, 60_000, got.RetryAfterMS)
		require.EqualValues(t, 3, x.dials.Load())

		hangs.Store(false)
		x.add(time.Minute)
		healthy(t, session, "search")
		require.EqualValues(t, 4, x.dials.Load())
		close(never)
		synctest.Wait()
		healthy(t, session, "search")
		require.Equal(t, 1, sessions(x.server), "of five")
	})
}

// However many calls and lists wait for a renewal that fails, it is one failure of the server, also
// when the first of them has left.
func TestFailedRenewalIsOneFailure(t *testing.T) {
	for name, tt := range map[string]struct {
		dial  func(context.Context) error
		kind  toolcircuit.Kind
		takes time.Duration
		state toolcircuit.State
	}{
		"fails": {func(context.Context) error { time.Sleep(20 * time.Second); return errors.New("down") }, "unavailable", 20 * time.Second, open},
		"hangs": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "timeout", 30 * time.Second, closed},
		"401": {func(context.Context) error {
			time.Sleep(20 * time.Second)
			return &toolcircuit.HTTPError{StatusCode: 401}
		}, "ok", 20 * time.Second, closed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x, tools := newRenewing(t, everything, legacy, "search")
				session := x.session()
				x.kill()
				synctest.Wait()
				x.dial = tt.dial
				ask := func(ctx context.Context) {
					res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "search", Arguments: in{}})
					if ctx.Err() != nil || tt.kind == "ok" {
						require.Error(t, err)
						return
					}
					require.NoError(t, err)
					require.Contains(t, text(res), `"dependency":"mcp:web"`)
				}
				for attempt := 0; attempt < 2 && x.state("mcp:web") == closed; attempt++ {
					start := time.Now()
					var wg sync.WaitGroup
					impatient, cancel := context.WithTimeout(t.Context(), time.Second)
					wg.Go(func() { ask(impatient) })
					synctest.Wait()
					for range 10 {
						wg.Go(func() { ask(t.Context()) })
						wg.Go(func() { _, _ = session.ListTools(t.Context(), nil) })
					}
					wg.Wait()
					cancel()
					require.Equal(t, tt.takes, time.Since(start))
					require.EqualValues(t, attempt+1, x.dials.Load())
					counted := slices.DeleteFunc(x.kinds("mcp:web"), func(k toolcircuit.Kind) bool { return k == "rejected" })
					require.Equal(t, slices.Repeat([]toolcircuit.Kind{tt.kind}, attempt+1), counted)
					require.Equal(t, tt.state, x.state("mcp:web"))
					time.Sleep(time.Second)
					x.add(time.Second)
				}
				require.Zero(t, tools["search"].calls.Load())
			})
		})
	}
}

// sessions returns how many clients a server has.
func sessions(s *mcp.Server) (n int) {
	for range s.Sessions() {
		n++
	}
	return n
}

// However Reconnect fails, the call ends, with what a model can read.
func TestReconnectFails(t *testing.T) {
	dial := toolcircuit.MustNew("web-dial", toolcircuit.Options{})
	dial.SetOverride(toolcircuit.OverrideOpen)
	for name, tt := range map[string]struct {
		reconnect func(context.Context, *mcp.ClientSession) (*mcp.ClientSession, error)
		want      string
		cause     toolcircuit.Kind
		takes     time.Duration
	}{
		"unknown error": {func(context.Context, *mcp.ClientSession) (*mcp.ClientSession, error) {
			return nil, errors.New("no")
		}, "mcp:web", "unavailable", 0},
		"refused by a circuit of its own": {func(ctx context.Context, _ *mcp.ClientSession) (*mcp.ClientSession, error) {
			return toolcircuit.Do(ctx, dial, func(context.Context) (*mcp.ClientSession, error) { return nil, nil })
		}, "web-dial", "", 0},
		"no session": {func(context.Context, *mcp.ClientSession) (*mcp.ClientSession, error) {
			return nil, nil
		}, "mcp:web", "unavailable", 0},
		"the dead session": {func(_ context.Context, dead *mcp.ClientSession) (*mcp.ClientSession, error) {
			return dead, nil
		}, "mcp:web", "unavailable", 0},
		"hangs": {func(ctx context.Context, _ *mcp.ClientSession) (*mcp.ClientSession, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, "mcp:web", "timeout", 30 * time.Second},
		"panics": {func(context.Context, *mcp.ClientSession) (*mcp.ClientSession, error) { panic("x") }, "mcp:web", "unavailable", 0},
		"Goexits": {func(context.Context, *mcp.ClientSession) (*mcp.ClientSession, error) {
			runtime.Goexit()
			return nil, nil
		}, "mcp:web", "unavailable", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, l := newRig(t, everything, nil), new(line)
				s, _ := newServer("web", "search")
				session := connect(t, s, l.client(r, mcpcircuit.Options{Reconnect: tt.reconnect}), "")
				l.cut(mcp.ErrConnectionClosed)
				start := time.Now()
				got := blocked(t, session, "search")
				require.Equal(t, tt.want, got.Dependency)
				require.Equal(t, tt.cause, got.Cause)
				require.Equal(t, tt.takes, time.Since(start))
				require.Equal(t, open, got.State)
				if tt.want == "mcp:web" {
					require.Equal(t, toolcircuit.RulePause, got.Rule)
					require.EqualValues(t, 50, got.RetryAfterMS)
				}
			})
		})
	}
}

// A new session that speaks another version of the protocol would not understand what the host's
// sends.
func TestHeirOfAnotherVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, _ := newRenewing(t, everything, "", "search")
		session := x.session()
		x.kill()
		x.version = legacy
		synctest.Wait()
		require.Equal(t, "mcp:web", blocked(t, session, "search").Dependency)
		require.ErrorContains(t, x.snapshot("mcp:web").Err, "want 2026-07-28")
	})
}
