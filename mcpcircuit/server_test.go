package mcpcircuit_test

import (
	"context"
	"errors"
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

const (
	closed   = toolcircuit.StateClosed
	open     = toolcircuit.StateOpen
	halfOpen = toolcircuit.StateHalfOpen
)

// line is a connection that can go down, between the guard and a client's transport.
type line struct{ down atomic.Pointer[error] }

func (l *line) cut(err error) { l.down.Store(&err) }
func (l *line) mend()         { l.down.Store(nil) }

func (l *line) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if err := l.down.Load(); err != nil {
			return nil, *err
		}
		return next(ctx, method, req)
	}
}

// client returns a guarded client with a line.
func (l *line) client(r *rig, o mcpcircuit.Options) *mcp.Client {
	c := plainClient()
	c.AddSendingMiddleware(l.middleware)
	c.AddSendingMiddleware(mcpcircuit.Guard(r.set, o))
	return c
}

// lost requires a call to run and to fail without an answer.
func lost(t *testing.T, s *mcp.ClientSession, name string) {
	t.Helper()
	_, err := call(s, name)
	require.Error(t, err)
}

// sever cuts the line for three calls, which open the server's circuit.
func (l *line) sever(t *testing.T, s *mcp.ClientSession, err error) {
	t.Helper()
	l.cut(err)
	for range 3 {
		lost(t, s, "search")
	}
}

// counted counts the pings of a server.
func counted(s *mcp.Server) *atomic.Int64 {
	var pings atomic.Int64
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "ping" {
				pings.Add(1)
			}
			return next(ctx, method, req)
		}
	})
	return &pings
}

// What a connection without HTTP says when it is gone.
func TestConnectionLost(t *testing.T) {
	r := newRig(t, everything, nil)
	s, tools := newServer("files", "read")
	near, far := mcp.NewInMemoryTransports()
	serving, err := s.Connect(context.Background(), far, nil)
	require.NoError(t, err)
	session, err := r.client(mcpcircuit.Options{}).Connect(context.Background(), near, nil)
	require.NoError(t, err)
	defer session.Close()
	tools["read"].set(func(ctx context.Context) (*mcp.CallToolResult, error) {
		conn, err := far.Connect(context.Background()) // the pipe itself
		require.NoError(t, err)
		conn.Close()
		<-ctx.Done()
		return nil, ctx.Err()
	})
	lost(t, session, "read")
	serving.Wait()
	_, err = call(session, "read")
	require.ErrorIs(t, err, mcp.ErrConnectionClosed)
	require.Equal(t, []toolcircuit.Kind{"unavailable", "unavailable"}, r.kinds("mcp:files"))
	require.Empty(t, r.kinds("read"))
}

const hanging = `{"default": {"failureThreshold": 2, "cooldown": "1m", "jitter": 0},
	"dependencies": {"search": {"policy": {"callTimeout": "5s"}}}, "monitored": ["*"]}`

// One tool that hangs counts for itself alone while the server answers others.
func TestHangingToolBesideHealthySiblings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, hanging, nil)
		s, tools := newServer("web", "search", "fetch")
		session := connect(t, s, r.client(mcpcircuit.Options{}), "")
		tools["search"].set(func(ctx context.Context) (*mcp.CallToolResult, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		for range 2 {
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := call(session, "search")
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
			synctest.Wait()
			healthy(t, session, "fetch")
			wg.Wait()
		}
		require.Equal(t, []toolcircuit.Kind{"timeout", "timeout"}, r.kinds("search"))
		require.Equal(t, []toolcircuit.Kind{"ok", "ok"}, r.kinds("mcp:web"))
		require.Equal(t, toolcircuit.KindTimeout, blocked(t, session, "search").Cause)
		healthy(t, session, "fetch")
	})
}

// If nobody is answered, it may as well be the server that hangs.
func TestHangingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, hanging, nil)
		s, tools := newServer("web", "search", "fetch")
		session := connect(t, s, r.client(mcpcircuit.Options{}), "")
		tools["search"].set(func(ctx context.Context) (*mcp.CallToolResult, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		for range 2 {
			lost(t, session, "search")
		}
		require.Equal(t, []toolcircuit.Kind{"timeout", "timeout"}, r.kinds("search"))
		require.Equal(t, []toolcircuit.Kind{"timeout", "timeout"}, r.kinds("mcp:web"))
		require.Equal(t, "mcp:web", blocked(t, session, "fetch").Dependency)
		r.add(time.Minute)
		healthy(t, session, "fetch")
		require.EqualValues(t, 2, tools["search"].calls.Load())
	})
}

// On a server the handler's context ends with the CallTimeout.
func TestServersCallTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, hanging, nil)
		s, tools := newServer("web", "search")
		session := connect(t, r.guardServer(s), plainClient(), "")
		tools["search"].set(func(ctx context.Context) (*mcp.CallToolResult, error) {
			<-ctx.Done()
			return nil, errors.New("given up")
		})
		start := time.Now()
		res, err := call(session, "search")
		require.NoError(t, err)
		require.Equal(t, "given up", text(res))
		require.Equal(t, 5*time.Second, time.Since(start))
	})
}

// The caller's own deadline is the only timeout there is without a CallTimeout.
func TestCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, everything, nil)
		s, tools := newServer("web", "search")
		session := connect(t, s, r.client(mcpcircuit.Options{}), "")
		tools["search"].set(func(ctx context.Context) (*mcp.CallToolResult, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "search", Arguments: in{}})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []toolcircuit.Kind{"deadline"}, r.kinds("search"))
		require.Equal(t, []toolcircuit.Kind{"deadline"}, r.kinds("mcp:web"))
	})
}

// Fifty calls at the end of the cooldown: one reconnects, pings and runs, the others are blocked.
func TestFiftyCallsAtTheEndOfTheCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := newRig(t, everything, nil), new(line)
		s, tools := newServer("web", "search")
		pings, connected, goOn := counted(s), 0, make(chan struct{})
		session := connect(t, s, l.client(r, mcpcircuit.Options{
			Reconnect: func(_ context.Context, dead *mcp.ClientSession) (*mcp.ClientSession, error) {
				connected++
				<-goOn
				return dead, nil
			},
		}), legacy)
		l.sever(t, session, mcp.ErrConnectionClosed)
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
		require.Equal(t, 1, connected)
		require.EqualValues(t, 1, pings.Load())
		require.EqualValues(t, 1, tools["search"].calls.Load())
	})
}

// However Reconnect fails, the call ends, with what a model can read.
func TestReconnectFails(t *testing.T) {
	dial := toolcircuit.MustNew("web-dial", toolcircuit.Options{})
	dial.SetOverride(toolcircuit.OverrideOpen)
	for name, tt := range map[string]struct {
		reconnect func(context.Context, *mcp.ClientSession) (*mcp.ClientSession, error)
		want      string
		after     toolcircuit.State
		takes     time.Duration
	}{
		"unknown error": {func(context.Context, *mcp.ClientSession) (*mcp.ClientSession, error) {
			return nil, errors.New("no")
		}, "mcp:web", open, 0},
		"refused by a circuit of its own": {func(ctx context.Context, _ *mcp.ClientSession) (*mcp.ClientSession, error) {
			return toolcircuit.Do(ctx, dial, func(context.Context) (*mcp.ClientSession, error) { return nil, nil })
		}, "web-dial", halfOpen, 0},
		"no session": {func(context.Context, *mcp.ClientSession) (*mcp.ClientSession, error) {
			return nil, nil
		}, "mcp:web", open, 0},
		"hangs": {func(ctx context.Context, _ *mcp.ClientSession) (*mcp.ClientSession, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, "mcp:web", open, time.Minute}, // ProbeTimeout
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, l := newRig(t, everything, nil), new(line)
				s, _ := newServer("web", "search")
				session := connect(t, s, l.client(r, mcpcircuit.Options{Reconnect: tt.reconnect}), "")
				l.sever(t, session, mcp.ErrSessionMissing)
				r.add(time.Minute)
				start := time.Now()
				require.Equal(t, tt.want, blocked(t, session, "search").Dependency)
				require.Equal(t, tt.takes, time.Since(start))
				require.Equal(t, tt.after, r.state("mcp:web"))
			})
		})
	}
}

// A panic of Reconnect, or a caller that leaves, gives the probe's slot back.
func TestProbeGivesTheSlotBack(t *testing.T) {
	r, l := newRig(t, everything, nil), new(line)
	s, _ := newServer("web", "search")
	var reconnect func() error
	session := connect(t, s, l.client(r, mcpcircuit.Options{
		Reconnect: func(context.Context, *mcp.ClientSession) (*mcp.ClientSession, error) { return nil, reconnect() },
	}), "")
	l.sever(t, session, mcp.ErrSessionMissing)
	l.mend()
	r.add(time.Minute)

	reconnect = func() error { panic("x") }
	require.PanicsWithValue(t, "x", func() { call(session, "search") })

	ctx, cancel := context.WithCancel(context.Background())
	reconnect = func() error { cancel(); return ctx.Err() }
	_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "search", Arguments: in{}})
	require.ErrorIs(t, err, context.Canceled)

	reconnect = func() error { return nil }
	healthy(t, session, "search")
	require.Equal(t, closed, r.state("mcp:web"))
}

// The probe of a tool that did not reach its server, or was not let through to it, has decided
// nothing: the next call is the probe.
func TestToolsProbeAndServersTrouble(t *testing.T) {
	r, l := newRig(t, everything, nil), new(line)
	s, _ := newServer("web", "search", "fetch")
	session := connect(t, s, l.client(r, mcpcircuit.Options{}), "")
	r.trip("search")
	r.add(time.Minute)
	l.cut(mcp.ErrConnectionClosed)
	lost(t, session, "search")
	require.Equal(t, halfOpen, r.state("search"))
	for range 2 {
		lost(t, session, "fetch")
	}
	require.Equal(t, "mcp:web", blocked(t, session, "search").Dependency)
	l.mend()
	r.add(time.Minute)
	healthy(t, session, "search")
	require.Equal(t, closed, r.state("search"))
}

// ProbeSuccesses pings in a row close the circuit; the call that sends them goes through.
func TestSeveralPings(t *testing.T) {
	r, l := newRig(t, strings.Replace(everything, `"1m"`, `"1m", "probeSuccesses": 3`, 1), nil), new(line)
	s, tools := newServer("web", "search")
	pings := counted(s)
	session := connect(t, s, l.client(r, mcpcircuit.Options{}), legacy)
	l.sever(t, session, mcp.ErrConnectionClosed)
	l.mend()
	r.add(time.Minute)
	healthy(t, session, "search")
	require.EqualValues(t, 3, pings.Load())
	require.EqualValues(t, 1, tools["search"].calls.Load())
}

// Several servers behind one client, with tools of the same name.
func TestSeveralServers(t *testing.T) {
	r, l := newRig(t, everything, nil), new(line)
	names := map[*mcp.ClientSession]string{}
	client := l.client(r, mcpcircuit.Options{
		Server: func(s *mcp.ClientSession) string { return names[s] },
		Name:   func(server, tool string) string { return server + "." + tool },
	})
	s, tools := newServer("same", "search")
	east, west := connect(t, s, client, ""), connect(t, s, client, "")
	names[east], names[west] = "east", "west"
	l.sever(t, east, mcp.ErrConnectionClosed)
	l.mend()
	got := blocked(t, east, "search")
	require.Equal(t, "mcp:east", got.Dependency)
	require.Equal(t, "east.search", got.Tool)
	healthy(t, west, "search")
	require.EqualValues(t, 1, tools["search"].calls.Load())
}

// A server without a circuit of its own: what got no answer is then the tool's, and an error of
// listing is passed on.
func TestServerWithoutCircuit(t *testing.T) {
	for name, tt := range map[string]struct {
		config string
		o      mcpcircuit.Options
		want   string
		lists  bool
	}{
		"not listed": {strings.Replace(everything, `"*"`, `"search"`, 1), mcpcircuit.Options{}, "search", false},
		"no name":    {everything, mcpcircuit.Options{Server: func(*mcp.ClientSession) string { return "" }}, "search", false},
		"shared with the tool": {
			strings.Replace(everything, `{`, `{"tools": {"search": {"dependency": "mcp:web"}}, `, 1),
			mcpcircuit.Options{}, "mcp:web", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, l := newRig(t, tt.config, nil), new(line)
			s, _ := newServer("web", "search")
			session := connect(t, s, l.client(r, tt.o), "")
			l.sever(t, session, mcp.ErrConnectionClosed)
			require.Equal(t, tt.want, blocked(t, session, "search").Dependency)
			_, err := session.ListTools(context.Background(), nil)
			require.Equal(t, tt.lists, err == nil)
			l.mend()
			r.add(time.Minute)
			healthy(t, session, "search")
			require.Equal(t, closed, r.state("search"))
		})
	}
}
