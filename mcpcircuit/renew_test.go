package mcpcircuit_test

import (
	"context"
	"io"
	"runtime"
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

// A Close during a renewal is no failure of the server's: other guards of the Set go on.
func TestCloseInARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, _ := newRenewing(t, everything, legacy, "search")
		x.client = plainClient()
		guard := x.guard(mcpcircuit.Options{Reconnect: func(ctx context.Context, _ *mcp.ClientSession) (*mcp.ClientSession, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		guard.Client(x.client)
		session := x.session()
		x.kill()
		synctest.Wait()
		done := make(chan error)
		go func() {
			_, err := call(session, "search")
			done <- err
		}()
		synctest.Wait()
		guard.Close()
		require.ErrorContains(t, <-done, "closed")
		require.Equal(t, closed, x.state("mcp:web"))
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
