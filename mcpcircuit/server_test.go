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
	"github.com/toolcircuit/toolcircuit/toolset"
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
	r.guard(o).Client(c)
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

// hangs lets what a server is asked hang while it is true.
func hangs(s *mcp.Server) *atomic.Bool {
	var hang atomic.Bool
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if hang.Load() && !strings.HasPrefix(method, "notifications/") {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return next(ctx, method, req)
		}
	})
	return &hang
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
	require.Equal(t, []toolcircuit.Kind{"unavailable", "unavailable"}, r.kinds("read"))
	require.Zero(t, r.snapshot("read").Streak, "it is not the tool that is down")
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
			r.add(5 * time.Second)
			wg.Wait()
		}
		require.Equal(t, []toolcircuit.Kind{"timeout", "timeout"}, r.kinds("search"))
		require.Equal(t, []toolcircuit.Kind{"ok", "ok"}, r.kinds("mcp:web"))
		require.Equal(t, toolcircuit.KindTimeout, blocked(t, session, "search").Cause)
		healthy(t, session, "fetch")
	})
}

// Nor does it lock its siblings out where an agent makes one call after the other.
func TestHangingToolAlone(t *testing.T) {
	for _, version := range []string{"", legacy} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, hanging, nil)
			s, tools := newServer("web", "search", "fetch")
			session := connect(t, s, r.client(mcpcircuit.Options{}), version)
			tools["search"].set(func(ctx context.Context) (*mcp.CallToolResult, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
			for range 2 {
				r.after(5*time.Second, func() { lost(t, session, "search") })
			}
			require.Equal(t, "search", blocked(t, session, "search").Dependency)
			require.Zero(t, r.snapshot("mcp:web").Streak)
			healthy(t, session, "fetch")
		})
	}
}

// If not even a ping is answered it is the server that hangs. The ping is waited for as long as the
// answer was, but not by the caller.
func TestHangingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, hanging, nil)
		s, tools := newServer("web", "search", "fetch")
		hang := hangs(s)
		session := connect(t, s, r.client(mcpcircuit.Options{}), legacy)
		hang.Store(true)
		start := time.Now()
		for range 2 {
			r.after(5*time.Second, func() { lost(t, session, "search") })
		}
		require.Less(t, time.Since(start), time.Second)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		require.Equal(t, []toolcircuit.Kind{"timeout", "timeout"}, r.kinds("search"))
		require.Equal(t, []toolcircuit.Kind{"timeout", "timeout"}, r.kinds("mcp:web"))
		require.Equal(t, "mcp:web", blocked(t, session, "fetch").Dependency)
		hang.Store(false)
		r.add(time.Minute)
		healthy(t, session, "fetch")
		require.Zero(t, tools["search"].calls.Load())
	})
}

// A probe holds a call up no longer than the call itself may take, whether it is the ping that
// hangs or the new session.
func TestProbeIsBoundedByTheCall(t *testing.T) {
	for _, server := range []string{"{}", `{"callTimeout": "30s"}`, `{"probeTimeout": "10s"}`} {
		synctest.Test(t, func(t *testing.T) {
			config := strings.Replace(hanging, `"search"`, `"mcp:web": {"policy": `+server+`}, "search"`, 1)
			r, l := newRig(t, config, nil), new(line)
			s, _ := newServer("web", "search")
			hang := hangs(s)
			session := connect(t, s, l.client(r, mcpcircuit.Options{}), legacy)
			l.cut(mcp.ErrConnectionClosed)
			for range 2 {
				lost(t, session, "search")
			}
			l.mend()
			hang.Store(true)
			r.add(time.Minute)
			start := time.Now()
			require.Equal(t, "mcp:web", blocked(t, session, "search").Dependency)
			require.Equal(t, 5*time.Second, time.Since(start))
			require.Equal(t, open, r.state("mcp:web"))
		})
	}
}

// A server without a circuit is not pinged either.
func TestHangingToolOfAServerWithoutCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, strings.Replace(hanging, `"*"`, `"search"`, 1), nil)
		s, _ := newServer("web", "search")
		hang, pings := hangs(s), counted(s) // counted first
		session := connect(t, s, r.client(mcpcircuit.Options{}), legacy)
		hang.Store(true)
		for range 2 {
			r.after(5*time.Second, func() { lost(t, session, "search") })
		}
		require.Equal(t, "search", blocked(t, session, "search").Dependency)
		require.Zero(t, pings.Load())
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
		var wg sync.WaitGroup
		wg.Go(func() {
			res, err := call(session, "search")
			require.NoError(t, err)
			require.Equal(t, "given up", text(res))
		})
		synctest.Wait()
		r.add(5 * time.Second)
		wg.Wait()
		require.Equal(t, []toolcircuit.Kind{"timeout"}, r.kinds("search"))
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
		synctest.Wait()
		require.Empty(t, r.kinds("mcp:web"), "which answers a ping")
	})
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

// The server's MaxInFlight is a bound on the calls of all its tools. It leaves the probe room.
func TestServerBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := newRig(t, strings.Replace(everything, `{`, `{"dependencies": {"mcp:web": {"maxInFlight": 1}}, `, 1), nil), new(line)
		s, tools := newServer("web", "search", "fetch")
		session := connect(t, s, l.client(r, mcpcircuit.Options{}), legacy)
		again := make(chan struct{})
		tools["search"].set(func(context.Context) (*mcp.CallToolResult, error) {
			<-again
			return nil, nil
		})
		hold := func(whileHeld func()) {
			var wg sync.WaitGroup
			wg.Go(func() { healthy(t, session, "search") })
			synctest.Wait()
			whileHeld()
			again <- struct{}{}
			wg.Wait()
		}
		hold(func() {
			got := blocked(t, session, "fetch")
			require.Equal(t, toolcircuit.ReasonBusy, got.Reason)
			require.Equal(t, "mcp:web", got.Dependency)
			_, err := session.ListTools(context.Background(), nil)
			require.ErrorIs(t, err, toolcircuit.ErrCircuitOpen, "a server that is busy has tools")
		})
		require.Equal(t, []string{"fetch", "search"}, listed(t, session))
		hold(func() { require.Equal(t, []string{"fetch", "search"}, listed(t, session)) })
		healthy(t, session, "fetch")

		l.cut(mcp.ErrConnectionClosed)
		for range 3 {
			lost(t, session, "fetch")
		}
		l.mend()
		r.add(time.Minute)
		healthy(t, session, "fetch")
	})
}

// A run's session counts a call once, whatever the server's circuit is asked.
func TestRunCountsACallOnce(t *testing.T) {
	r := newRig(t, everything, nil)
	s, _ := newServer("web", "search")
	session := connect(t, s, r.client(mcpcircuit.Options{}), "")
	run, err := r.set.Session("run", toolset.Limits{Calls: 2})
	require.NoError(t, err)
	ctx := toolset.WithSession(context.Background(), run)
	for i := range 3 {
		_, err := session.ListTools(ctx, nil)
		require.NoError(t, err)
		res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "search", Arguments: map[string]any{"query": strings.Repeat("x", i)}})
		require.NoError(t, err)
		require.Equal(t, i == 2, res.IsError, text(res))
	}
}

// What a run's session has to say it says in a refusal of the server's, too.
func TestRefusalOfTheServerInARun(t *testing.T) {
	r, l := newRig(t, everything, nil), new(line)
	s, _ := newServer("web", "search", "fetch")
	session := connect(t, s, l.client(r, mcpcircuit.Options{}), "")
	run, err := r.set.Session("run", toolset.Limits{Refused: 1})
	require.NoError(t, err)
	r.trip("fetch")
	l.sever(t, session, mcp.ErrConnectionClosed)
	for _, name := range []string{"fetch", "search"} {
		res, err := session.CallTool(toolset.WithSession(context.Background(), run), &mcp.CallToolParams{Name: name, Arguments: in{}})
		require.NoError(t, err)
		require.Contains(t, text(res), `"endTurn":true`)
	}
}

// A session that nobody replaces is as lost as a connection.
func TestSessionLostWithoutReconnect(t *testing.T) {
	r, l := newRig(t, everything, nil), new(line)
	s, _ := newServer("web", "search")
	session := connect(t, s, l.client(r, mcpcircuit.Options{}), "")
	l.sever(t, session, mcp.ErrSessionMissing)
	require.Equal(t, toolcircuit.RuleThreshold, blocked(t, session, "search").Rule)
}

// A tool that the same dead server offers is no alternative, nor is one of another dead server.
func TestAlternativesElsewhere(t *testing.T) {
	config := `{"default": {"failureThreshold": 3, "cooldown": "1m", "jitter": 0}, "monitored": ["*"], "tools": {
		"search": {"alternatives": ["called", "listed", "far", "farther", "unseen"]},
		"only": {"alternatives": ["called"]}}}`
	r, l := newRig(t, config, nil), new(line)
	client := l.client(r, mcpcircuit.Options{})
	s, _ := newServer("web", "search", "called", "listed", "only")
	near := connect(t, s, client, "")
	s, _ = newServer("far", "far")
	far := connect(t, s, client, "")
	s, _ = newServer("farther", "farther")
	farther := connect(t, s, client, "")
	healthy(t, far, "far")
	healthy(t, farther, "farther")

	l.cut(mcp.ErrConnectionClosed)
	for range 3 {
		lost(t, near, "called")
		lost(t, far, "far")
	}
	require.Equal(t, []string{"listed", "farther", "unseen"}, blocked(t, near, "search").Alternatives, "nobody saw where listed is")
	l.mend()
	r.add(time.Minute)
	listed(t, near)
	l.cut(mcp.ErrConnectionClosed)
	for range 3 {
		lost(t, near, "called")
	}
	got := blocked(t, near, "search")
	require.Equal(t, []string{"farther", "unseen"}, got.Alternatives[len(got.Alternatives)-2:])
	require.NotContains(t, got.Message, "listed")
	require.NotContains(t, got.Alternatives, "listed")
	require.Contains(t, got.NextActions, toolcircuit.ActionUseAlternative)

	got = blocked(t, near, "only")
	require.Empty(t, got.Alternatives)
	require.Equal(t, []toolcircuit.Action{toolcircuit.ActionAnswerWithout}, got.NextActions)
}
