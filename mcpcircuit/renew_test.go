package mcpcircuit_test

//lint:file-ignore SA1019 a session that is renewed keeps its log level while the SDK has one

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	shared "github.com/toolcircuit/toolcircuit/internal/mcp"
	"github.com/toolcircuit/toolcircuit/mcpcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// errDown is the error of a server that cannot be reached, on a session that may well live.
var errDown = io.ErrUnexpectedEOF

// Fifty calls at the end of the cooldown: one pings and runs, the others are blocked.
func TestFiftyCallsAtTheEndOfTheCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := newRig(t, everything, nil), new(line)
		s, tools := newServer("web", "search")
		pings, goOn := new(atomic.Int64), make(chan struct{})
		c := plainClient()
		c.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if method == "ping" {
					pings.Add(1)
					<-goOn
				}
				return next(ctx, method, req)
			}
		}, l.middleware)
		r.guard(mcpcircuit.Options{}).Client(c)
		session := connect(t, s, c, legacy)
		l.sever(t, session, errDown)
		l.mend()
		r.add(time.Minute)

		var refused, ran atomic.Int64
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if res, err := call(session, "search"); err == nil && !res.IsError {
					ran.Add(1)
				} else if err == nil && strings.Contains(text(res), `"dependency_open"`) {
					refused.Add(1)
				}
			})
		}
		synctest.Wait()
		require.EqualValues(t, 49, refused.Load())
		close(goOn)
		wg.Wait()
		require.EqualValues(t, 1, ran.Load())
		require.EqualValues(t, 1, pings.Load())
		require.EqualValues(t, 1, tools["search"].calls.Load())
	})
}

// renewing is a client whose sessions are with servers in the process, and die when told to.
type renewing struct {
	*rig
	client  *mcp.Client
	server  *mcp.Server
	version string
	dials   atomic.Int64
	dial    func(context.Context) error // before each Reconnect, if not nil

	mu  sync.Mutex
	far mcp.Transport // of the last session
}

func newRenewing(t *testing.T, config, version string, tools ...string) (*renewing, map[string]*tool) {
	x := &renewing{rig: newRig(t, config, nil), version: version}
	server, handlers := newServer("web", tools...)
	x.server, x.client = server, plainClient()
	x.guard(mcpcircuit.Options{Reconnect: func(ctx context.Context, _ *mcp.ClientSession) (*mcp.ClientSession, error) {
		x.dials.Add(1)
		if x.dial != nil {
			if err := x.dial(ctx); err != nil {
				return nil, err
			}
		}
		return x.connect(ctx)
	}}).Client(x.client)
	return x, handlers
}

func (x *renewing) connect(ctx context.Context) (*mcp.ClientSession, error) {
	near, far := mcp.NewInMemoryTransports()
	if _, err := x.server.Connect(context.WithoutCancel(ctx), far, nil); err != nil {
		return nil, err
	}
	x.mu.Lock()
	x.far = far
	x.mu.Unlock()
	session, err := x.client.Connect(ctx, near, &mcp.ClientSessionOptions{ProtocolVersion: x.version})
	if err == nil {
		x.Cleanup(func() { session.Close() })
	}
	return session, err
}

func (x *renewing) session() *mcp.ClientSession {
	session, err := x.connect(x.Context())
	require.NoError(x, err)
	return session
}

// kill ends the connection, as a server does that dies.
func (x *renewing) kill() {
	x.mu.Lock()
	defer x.mu.Unlock()
	pipe, err := x.far.Connect(context.Background()) // the pipe itself
	require.NoError(x, err)
	pipe.Close()
}

// N34: the call after a server has died goes out on a new session, and none is lost that was idle.
func TestN34NextCallRenews(t *testing.T) {
	for _, version := range []string{"", legacy} {
		synctest.Test(t, func(t *testing.T) {
			x, tools := newRenewing(t, strings.Replace(everything, "3", "1", 1), version, "search")
			session := x.session()
			healthy(t, session, "search")
			for life := range 3 {
				x.kill()
				synctest.Wait()
				for range 3 {
					healthy(t, session, "search")
				}
				require.EqualValues(t, life+1, x.dials.Load())
			}
			require.EqualValues(t, 10, tools["search"].calls.Load())
			require.Equal(t, closed, x.state("mcp:web"))
		})
	}
}

// N32: a call that was lost is one of the run's budget, counts as done once, and lets the model
// check what it came to.
func TestN32LostCallIsACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := strings.Replace(everything, `{`, `{"tools": {"pay": {"sideEffects": true}}, `, 1)
		x, tools := newRenewing(t, config, legacy, "pay", "check")
		session := x.session()
		healthy(t, session, "check")
		run, err := x.set.Session("run", toolset.Limits{Calls: 4})
		require.NoError(t, err)
		ctx := toolset.WithSession(t.Context(), run)
		send := func(name, what string) (*mcp.CallToolResult, error) {
			return session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: in{what}})
		}
		tools["check"].fail(&toolcircuit.HTTPError{StatusCode: 404})
		_, err = send("check", "payment of 100 to bob")
		require.NoError(t, err)
		tools["pay"].set(func(ctx context.Context) (*mcp.CallToolResult, error) {
			x.kill()
			<-ctx.Done()
			return nil, ctx.Err()
		})
		for range 2 {
			_, err = send("pay", "100 to bob")
			require.ErrorIs(t, err, io.EOF)
			synctest.Wait()
		}
		tools["check"].answer(nil)
		res, err := send("check", "payment of 100 to bob")
		require.NoError(t, err)
		require.False(t, res.IsError, text(res))
		res, err = send("pay", "100 to bob")
		require.NoError(t, err)
		require.Contains(t, text(res), "budget_exhausted")
		require.EqualValues(t, 2, tools["pay"].calls.Load())
		require.Equal(t, []toolcircuit.Kind{"unavailable", "unavailable"}, x.kinds("pay")[:2])
		require.Zero(t, x.snapshot("pay").Streak)
	})
}

// A server that dies under calls is one that starts again, however many it had: its circuit counts
// none of them, unless it has never answered any.
func TestDiedUnderCalls(t *testing.T) {
	for answered, want := range map[bool]toolcircuit.State{true: closed, false: open} {
		synctest.Test(t, func(t *testing.T) {
			x, tools := newRenewing(t, strings.Replace(everything, "3", "1", 1), legacy, "search", "fetch")
			session := x.session()
			if answered {
				healthy(t, session, "search")
			}
			tools["fetch"].set(func(ctx context.Context) (*mcp.CallToolResult, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() { lost(t, session, "fetch") })
			}
			synctest.Wait()
			x.kill()
			wg.Wait()
			require.Equal(t, want, x.state("mcp:web"))
			require.Zero(t, x.snapshot("fetch").Streak)
			if answered {
				healthy(t, session, "search")
			}
		})
	}
}

// A session that took another's place and died in turn is forgotten, and the host's is not.
func TestSessionsInBetweenAreForgotten(t *testing.T) {
	r := newRig(t, everything, nil)
	s, _ := newServer("web", "search")
	c := plainClient()
	var far mcp.Transport
	var dials atomic.Int64
	connect := func(ctx context.Context) (*mcp.ClientSession, error) {
		near, other := mcp.NewInMemoryTransports()
		far = other
		if _, err := s.Connect(context.WithoutCancel(ctx), far, nil); err != nil {
			return nil, err
		}
		return c.Connect(ctx, near, nil)
	}
	r.guard(mcpcircuit.Options{Reconnect: func(ctx context.Context, _ *mcp.ClientSession) (*mcp.ClientSession, error) {
		dials.Add(1)
		return connect(ctx)
	}}).Client(c)
	session, err := connect(t.Context())
	require.NoError(t, err)
	defer session.Close()
	for life := range 3 {
		pipe, err := far.Connect(t.Context())
		require.NoError(t, err)
		pipe.Close()
		eventually(t, func() bool { // which may lose a call, since nobody waits here until the end is seen
			_, err := call(session, "search")
			return err == nil
		})
		for range 3 {
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
		healthy(t, session, "search")
		require.EqualValues(t, life+1, dials.Load())
	}
}

// N35: a server may take longer to start than a tool may take to answer.
func TestN35SlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := strings.Replace(everything, `"1m"`, `"1m", "callTimeout": "1s"`, 1)
		x, _ := newRenewing(t, config, legacy, "search")
		x.dial = func(context.Context) error { time.Sleep(20 * time.Second); return nil }
		session := x.session()
		healthy(t, session, "search")
		x.kill()
		synctest.Wait()

		impatient, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		_, err := session.CallTool(impatient, &mcp.CallToolParams{Name: "search", Arguments: in{}})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 5*time.Second, time.Since(start))
		require.Equal(t, []toolcircuit.Kind{"ok"}, x.kinds("search"), "nothing was sent")

		healthy(t, session, "search")
		require.Equal(t, 20*time.Second, time.Since(start), "the first caller's attempt went on")
		require.EqualValues(t, 1, x.dials.Load())
		require.Equal(t, closed, x.state("mcp:web"))
	})
}

// Fifty calls on a session that is gone wait for one new one, and all run.
func TestOneRenewalForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, tools := newRenewing(t, everything, legacy, "search")
		x.dial = func(context.Context) error { time.Sleep(time.Second); return nil }
		session := x.session()
		x.kill()
		synctest.Wait()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { healthy(t, session, "search") })
		}
		wg.Wait()
		require.EqualValues(t, 1, x.dials.Load())
		require.EqualValues(t, 50, tools["search"].calls.Load())
	})
}

// A call whose tool is refused anyway does not wait for a session.
func TestRefusedCallsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, tools := newRenewing(t, everything, legacy, "search", "fetch")
		session := x.session()
		x.trip("search")
		tools["fetch"].set(func(ctx context.Context) (*mcp.CallToolResult, error) {
			x.kill()
			<-ctx.Done()
			return nil, ctx.Err()
		})
		lost(t, session, "fetch")
		require.Equal(t, "search", blocked(t, session, "search").Dependency)
		require.Zero(t, x.dials.Load())
	})
}

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

// told is what each session of a server was told, in order.
type told struct {
	mu   sync.Mutex
	by   map[mcp.Session][]string
	last mcp.Session // that was told anything
}

// server returns a server that notes what it is told of the log level and of subscriptions.
func (x *told) server(tools ...string) *mcp.Server {
	x.by = map[mcp.Session][]string{}
	s := mcp.NewServer(&mcp.Implementation{Name: "web"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	for _, name := range tools {
		addTool(s, name)
	}
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			what := ""
			switch p := req.GetParams().(type) {
			case *mcp.SetLoggingLevelParams:
				what = string(p.Level)
			case *mcp.SubscribeParams:
				what = "+" + p.URI
			case *mcp.UnsubscribeParams:
				what = "-" + p.URI
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			if x.last = req.GetSession(); what != "" {
				x.by[x.last] = append(x.by[x.last], what)
			}
			return next(ctx, method, req)
		}
	})
	return s
}

// now returns what the last session was told.
func (x *told) now() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.by[x.last])
}

// What a session was told the next one is told, too.
func TestLevelAndSubscriptionsAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, _ := newRenewing(t, everything, legacy)
		all := new(told)
		x.server = all.server("search")
		session, ctx := x.session(), t.Context()
		require.NoError(t, session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "debug"}))
		for _, uri := range []string{"file:///a", "file:///b"} {
			require.NoError(t, session.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}))
		}
		require.NoError(t, session.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: "file:///b"}))
		for range 2 {
			x.kill()
			synctest.Wait()
			healthy(t, session, "search")
			require.Equal(t, []string{"debug", "+file:///a"}, all.now())
		}
	})
}

// What a session answered while the next one was already being told is not lost.
func TestToldDuringARenewal(t *testing.T) {
	for _, method := range []string{shared.SetLevel, shared.Subscribe, shared.Unsubscribe} {
		synctest.Test(t, func(t *testing.T) {
			x, _ := newRenewing(t, everything, legacy)
			all := new(told)
			x.server = all.server("search")
			var session *mcp.ClientSession
			var during atomic.Bool
			x.client = plainClient()
			x.client.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
				return func(ctx context.Context, is string, req mcp.Request) (mcp.Result, error) {
					res, err := next(ctx, is, req)
					if is == method && during.CompareAndSwap(true, false) { // answered, and not noted yet
						x.kill()
						synctest.Wait()
						healthy(t, session, "search")
					}
					return res, err
				}
			})
			x.guard(mcpcircuit.Options{Reconnect: func(ctx context.Context, _ *mcp.ClientSession) (*mcp.ClientSession, error) {
				return x.connect(ctx)
			}}).Client(x.client)
			session = x.session()
			ctx := t.Context()
			require.NoError(t, session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "info"}))
			require.NoError(t, session.Subscribe(ctx, &mcp.SubscribeParams{URI: "file:///a"}))
			during.Store(true)
			want := []string{"info", "+file:///a"}
			switch method {
			case shared.SetLevel:
				require.NoError(t, session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "debug"}))
				want = append(want, "debug")
			case shared.Subscribe:
				require.NoError(t, session.Subscribe(ctx, &mcp.SubscribeParams{URI: "file:///b"}))
				want = append(want, "+file:///b")
			case shared.Unsubscribe:
				require.NoError(t, session.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: "file:///a"}))
				want = append(want, "-file:///a")
			}
			require.False(t, during.Load())
			require.Equal(t, want, all.now())
		})
	}
}

// Under load, with a server that is killed again and again, each session is told each thing once, and
// the last knows all.
func TestToldUnderLoad(t *testing.T) {
	x, _ := newRenewing(t, everything, legacy)
	all := new(told)
	x.server = all.server("search")
	session, ctx := x.session(), t.Context()
	var load sync.WaitGroup
	renewed := func() {
		x.kill()
		eventually(t, func() bool {
			x.add(time.Second) // what was opened meanwhile closes
			res, err := call(session, "search")
			return err == nil && !res.IsError
		})
	}
	until := func(do func() error) {
		for do() != nil {
			runtime.Gosched()
		}
	}
	want := []string{"debug"}
	for i := range 40 {
		uri := fmt.Sprint(i)
		if i%4 != 0 {
			want = append(want, "+"+uri)
		}
		load.Go(func() {
			until(func() error { return session.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}) })
			if i%4 == 0 {
				until(func() error { return session.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: uri}) })
			}
			until(func() error { return session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "debug"}) })
		})
	}
	for range 10 {
		renewed()
	}
	load.Wait()
	before := len(all.by)
	renewed()
	require.Equal(t, before+1, len(all.by))
	require.ElementsMatch(t, want, all.now())
	for _, told := range all.by {
		told = slices.DeleteFunc(slices.Clone(told), func(what string) bool { return what == "debug" })
		slices.Sort(told)
		require.Equal(t, len(told), len(slices.Compact(told)), told)
	}
}

// After Close nothing is renewed, and the sessions that Reconnect made are closed.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, _ := newRenewing(t, everything, legacy, "search")
		x.client = plainClient()
		var heirs []*mcp.ClientSession
		guard := x.guard(mcpcircuit.Options{Reconnect: func(ctx context.Context, _ *mcp.ClientSession) (*mcp.ClientSession, error) {
			heir, err := x.connect(ctx)
			heirs = append(heirs, heir)
			return heir, err
		}})
		guard.Client(x.client)
		session := x.session()
		x.kill()
		synctest.Wait()
		healthy(t, session, "search")
		require.Len(t, heirs, 1)
		guard.Close()
		heirs[0].Wait() // ends, whichever end of the pipe was closed first
		synctest.Wait()
		lost(t, session, "search")
		require.Len(t, heirs, 1)
	})
}

// A session that the host has closed is not renewed, with a Reconnect or without, and that is nobody's
// failure. One that the SDK's keepalive has closed is.
func TestHostCloses(t *testing.T) {
	for _, version := range []string{"", legacy} {
		synctest.Test(t, func(t *testing.T) {
			x, _ := newRenewing(t, everything, version, "search")
			session := x.session()
			healthy(t, session, "search")
			session.Close()
			for range 5 {
				_, err := call(session, "search")
				require.ErrorIs(t, err, mcp.ErrConnectionClosed)
				_, err = session.ListTools(t.Context(), nil)
				require.ErrorIs(t, err, mcp.ErrConnectionClosed)
				_, err = session.ListPrompts(t.Context(), nil)
				require.ErrorIs(t, err, mcp.ErrConnectionClosed)
			}
			require.Zero(t, x.dials.Load())
			require.Equal(t, closed, x.state("mcp:web"))
			require.Equal(t, []toolcircuit.Kind{"ok"}, x.kinds("search"))
		})
	}
	synctest.Test(t, func(t *testing.T) {
		x, _ := newRenewing(t, everything, legacy, "search")
		var stuck atomic.Bool
		x.client = mcp.NewClient(&mcp.Implementation{Name: "agent"}, &mcp.ClientOptions{KeepAlive: time.Minute})
		x.client.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if method == "ping" && stuck.Load() {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return next(ctx, method, req)
			}
		})
		x.guard(mcpcircuit.Options{Reconnect: func(ctx context.Context, _ *mcp.ClientSession) (*mcp.ClientSession, error) {
			x.dials.Add(1)
			return x.connect(ctx)
		}}).Client(x.client)
		session := x.session()
		stuck.Store(true)
		time.Sleep(2 * time.Minute)
		stuck.Store(false)
		healthy(t, session, "search")
		require.EqualValues(t, 1, x.dials.Load())
	})
}

// A server is killed and started again over HTTP: its circuit opens after three calls of whatever
// tools and blocks them all. The first call after the cooldown pings and finds that its session is
// gone; it goes through on a new one.
func TestServerKilledAndRestarted(t *testing.T) {
	for name, tt := range map[string]struct {
		version string
		o       *mcp.StreamableHTTPOptions
		renewed int
	}{
		"stateless": {"", &mcp.StreamableHTTPOptions{Stateless: true}, 0},
		"sessions":  {legacy, nil, 1},
		"JSON":      {legacy, &mcp.StreamableHTTPOptions{JSONResponse: true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, h := newRig(t, everything, nil), newHost(t)
			s, _ := newServer("web", "search", "fetch")
			h.start(s, tt.o)
			var client *mcp.Client
			var dead []*mcp.ClientSession
			client = r.client(mcpcircuit.Options{
				Reconnect: func(ctx context.Context, session *mcp.ClientSession) (*mcp.ClientSession, error) {
					dead = append(dead, session)
					return h.dial(ctx, client, tt.version)
				},
			})
			session := h.connect(client, tt.version)
			healthy(t, session, "search")

			for life := range 2 {
				h.kill()
				lost(t, session, "search")
				lost(t, session, "fetch")
				lost(t, session, "search")
				got := blocked(t, session, "fetch")
				require.Equal(t, "mcp:web", got.Dependency)
				require.Equal(t, "fetch", got.Tool)
				require.Equal(t, toolcircuit.KindUnavailable, got.Cause)
				require.False(t, *got.Executed)
				require.Empty(t, got.Outcome)
				require.Zero(t, r.snapshot("search").Streak, "it is not the tool that is down")

				r.add(10 * time.Minute)
				require.Equal(t, halfOpen, r.state("mcp:web"))
				got = blocked(t, session, "fetch")
				require.Equal(t, toolcircuit.RuleProbe, got.Rule, "the probe found it still down")
				require.Len(t, dead, life*tt.renewed)

				s, tools := newServer("web", "search", "fetch")
				h.start(s, tt.o)
				r.add(10 * time.Minute)
				healthy(t, session, "fetch")
				require.Len(t, dead, (life+1)*tt.renewed)
				require.EqualValues(t, 1, tools["fetch"].calls.Load(), "a tool call is never the probe")
				require.Equal(t, closed, r.state("mcp:web"))

				healthy(t, session, "search")
				_, err := session.ListTools(context.Background(), nil)
				require.NoError(t, err, "other methods go out on the new session, too")
			}
			if tt.renewed > 0 {
				require.Same(t, session, dead[0])
				require.NotSame(t, session, dead[1], "what died last")
			}
		})
	}
}

// forgetting are the ways of a server to say that it does not know a session.
var forgetting = map[string]struct {
	status int
	body   string
}{
	"404":            {404, "session not found"},
	"404, JSON-RPC":  {404, `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Session not found"}}`},
	"400":            {400, "Invalid or missing session ID"},
	"400, JSON-RPC":  {400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}`},
	"400, no method": {400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Bad Request: Server not initialized"}}`},
}

func (h *host) forget(id string, status int, body string) (asked *atomic.Int64) {
	asked = new(atomic.Int64)
	h.intercept(func(w http.ResponseWriter, req *http.Request) bool {
		if req.Header.Get("Mcp-Session-Id") != id || req.Method != http.MethodPost {
			return false
		}
		asked.Add(1)
		if strings.HasPrefix(body, "{") {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
		return true
	})
	return asked
}

func (r *rig) httpClient(h *host) *mcp.Client {
	var client *mcp.Client
	client = r.client(mcpcircuit.Options{
		Reconnect: func(ctx context.Context, _ *mcp.ClientSession) (*mcp.ClientSession, error) {
			return h.dial(ctx, client, legacy)
		},
	})
	return client
}

// N33: a session that the server has forgotten costs no call: what was not executed is sent again
// on a new one.
func TestN33SessionForgotten(t *testing.T) {
	for name, tt := range forgetting {
		t.Run(name, func(t *testing.T) {
			r, h := newRig(t, strings.Replace(everything, "3", "1", 1), nil), newHost(t)
			s, tools := newServer("web", "search")
			h.start(s, nil)
			session := h.connect(r.httpClient(h), legacy)
			asked := h.forget(session.ID(), tt.status, tt.body)
			healthy(t, session, "search")
			healthy(t, session, "search")
			require.EqualValues(t, 2, tools["search"].calls.Load())
			require.EqualValues(t, 1, asked.Load())
			require.Equal(t, closed, r.state("mcp:web"))
			require.Equal(t, []toolcircuit.Kind{"ok", "ok"}, r.kinds("search"))
		})
	}
}

// A write that was answered 400 may have been executed: it is not sent again. The next call is.
func TestN33WriteIsNotSentAgain(t *testing.T) {
	config := strings.Replace(everything, `{`, `{"tools": {"pay": {"sideEffects": true}}, `, 1)
	r, h := newRig(t, config, nil), newHost(t)
	s, tools := newServer("web", "pay")
	h.start(s, nil)
	session := h.connect(r.httpClient(h), legacy)
	h.forget(session.ID(), 400, "no session")
	lost(t, session, "pay")
	require.Zero(t, tools["pay"].calls.Load())
	require.Equal(t, []toolcircuit.Kind{"unavailable"}, r.kinds("pay"), "the arguments are not to blame")
	healthy(t, session, "pay")
	require.EqualValues(t, 1, tools["pay"].calls.Load())
}

// If the new session is answered 400 like the old one, that is about the call.
func TestN33BadRequestIsTheCallsOwn(t *testing.T) {
	r, h := newRig(t, everything, nil), newHost(t)
	s, _ := newServer("web", "search")
	h.start(s, nil)
	session := h.connect(r.httpClient(h), legacy)
	var posts atomic.Int64
	h.intercept(func(w http.ResponseWriter, req *http.Request) bool {
		body, _ := io.ReadAll(req.Body)
		req.Body = io.NopCloser(strings.NewReader(string(body)))
		if !strings.Contains(string(body), "tools/call") {
			return false
		}
		posts.Add(1)
		http.Error(w, "no such tool", 400)
		return true
	})
	for range 5 {
		lost(t, session, "search")
	}
	require.EqualValues(t, 6, posts.Load(), "the first call once more, and no further")
	_, err := call(session, "search")
	require.EqualError(t, err, `calling "tools/call": rejected by transport: sending "tools/call": HTTP status 400 Bad Request`)
	var status *toolcircuit.HTTPError
	require.ErrorAs(t, err, &status)
	require.Equal(t, toolcircuit.KindInvalid, r.kinds("search")[4])
	require.Equal(t, closed, r.state("mcp:web"))
	h.intercept(nil)
	healthy(t, session, "search")
}

// A token that has expired is for the host to renew: every call and list says so, the server's circuit
// stays closed, and with a new token the next attempt succeeds.
func TestUnauthorizedRenewal(t *testing.T) {
	for _, status := range []int{401, 403} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			r, h := newRig(t, everything, nil), newHost(t)
			s, _ := newServer("web", "search")
			h.start(s, nil)
			session := h.connect(r.httpClient(h), legacy)
			_, err := session.ListTools(t.Context(), nil)
			require.NoError(t, err)
			h.answering(status)
			for range 5 {
				var got *toolcircuit.HTTPError
				_, err := call(session, "search")
				require.ErrorAs(t, err, &got)
				require.Equal(t, status, got.StatusCode)
				_, err = session.ListTools(t.Context(), nil)
				require.ErrorAs(t, err, &got)
				require.Equal(t, status, got.StatusCode)
			}
			require.Equal(t, closed, r.state("mcp:web"))
			require.Equal(t, closed, r.state("search"))
			h.intercept(nil)
			eventually(t, func() bool {
				res, err := call(session, "search")
				return err == nil && !res.IsError
			})
		})
	}
}

// A -32001 in an answer is whatever the server means by it.
func TestCodeOfALostSessionInAnAnswer(t *testing.T) {
	r, h := newRig(t, everything, nil), newHost(t)
	s, _ := newServer("web", "search")
	h.start(s, nil)
	session := h.connect(r.httpClient(h), legacy)
	asked := h.forget(session.ID(), 200, `{"jsonrpc":"2.0","id":2,"error":{"code":-32001,"message":"Session not found"}}`)
	_, err := call(session, "search")
	require.ErrorContains(t, err, "Session not found")
	require.EqualValues(t, 1, asked.Load())
	require.Equal(t, []toolcircuit.Kind{"ok"}, r.kinds("mcp:web"))
}

// The status is judged by its code, and a session survives what can pass: without Reconnect, the
// call after the trouble is answered.
func TestStatuses(t *testing.T) {
	for status, want := range map[int]struct {
		server, tool toolcircuit.Kind
		lives        bool
	}{
		http.StatusRequestTimeout:      {"timeout", "timeout", true},
		http.StatusTooManyRequests:     {"rate_limited", "rate_limited", true},
		http.StatusInternalServerError: {"unavailable", "unavailable", true},
		http.StatusNotImplemented:      {"ok", "invalid", true},
		http.StatusBadGateway:          {"unavailable", "unavailable", true},
		http.StatusServiceUnavailable:  {"unavailable", "unavailable", true},
		http.StatusGatewayTimeout:      {"timeout", "timeout", true},
		529:                            {"unavailable", "unavailable", true},
		http.StatusBadRequest:          {"unavailable", "unavailable", true}, // as if the session were gone
		http.StatusNotFound:            {"unavailable", "unavailable", true},
		http.StatusMethodNotAllowed:    {"ok", "invalid", true},
		http.StatusGone:                {"ok", "not_found", true},
		http.StatusUnauthorized:        {"ok", "unauthorized", false},
		http.StatusForbidden:           {"ok", "unauthorized", false},
		http.StatusLocked:              {"ok", "unavailable", true},
		http.StatusInsufficientStorage: {"unavailable", "unavailable", true},
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			r, h := newRig(t, everything, nil), newHost(t)
			s, _ := newServer("web", "search")
			h.start(s, nil)
			session := h.connect(r.client(mcpcircuit.Options{}), legacy)
			h.answering(status)
			lost(t, session, "search")
			require.Equal(t, []toolcircuit.Kind{want.tool}, r.kinds("search"))
			eventually(t, func() bool { return len(r.kinds("mcp:web")) == 1 })
			h.intercept(nil)
			if want.lives {
				healthy(t, session, "search")
				require.Equal(t, []toolcircuit.Kind{want.server, "ok"}, r.kinds("mcp:web"))
			} else {
				_, err := call(session, "search")
				require.ErrorIs(t, err, mcp.ErrConnectionClosed)
				require.Equal(t, []toolcircuit.Kind{want.server, "unavailable"}, r.kinds("mcp:web"))
			}
		})
	}
}

// eventually waits for what a goroutine does where there are sockets.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	require.Eventually(t, done, 5*time.Second, time.Millisecond)
}

// N36: a gateway that refuses a ping and lets calls through is there.
func TestN36PingRefused(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 405, 410, 501} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			r, h := newRig(t, everything, nil), newHost(t)
			s, tools := newServer("web", "search")
			h.start(s, nil)
			session := h.connect(r.client(mcpcircuit.Options{}), legacy)
			h.answering(502)
			for range 3 {
				lost(t, session, "search")
			}
			blocked(t, session, "search")
			h.intercept(func(w http.ResponseWriter, req *http.Request) bool {
				body, _ := io.ReadAll(req.Body)
				req.Body = io.NopCloser(strings.NewReader(string(body)))
				if !strings.Contains(string(body), `"ping"`) {
					return false
				}
				http.Error(w, "no", status)
				return true
			})
			r.add(time.Minute)
			healthy(t, session, "search")
			healthy(t, session, "search")
			require.EqualValues(t, 2, tools["search"].calls.Load())
			require.Equal(t, closed, r.state("mcp:web"))
		})
	}
}
