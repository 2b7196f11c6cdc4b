package mcpgocircuit_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit/mcpgocircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// newReal returns a Set on the real clock, which is the bubble's, that guards and hides all tools.
func newReal(t *testing.T, policy string) *toolset.Set {
	t.Helper()
	c, err := toolset.Load(strings.NewReader(`{"monitored":["*"],"hide":"open","default":` + policy + `}`))
	require.NoError(t, err)
	set, err := toolset.New(c, toolset.Options{})
	require.NoError(t, err)
	return set
}

// aMinute is a policy.
const aMinute = `{"failureThreshold":3,"cooldown":"60s","jitter":0}`

func fail(t *testing.T, set *toolset.Set, tool string, times int) {
	for range times {
		p, err := set.Allow(t.Context(), tool, nil)
		require.NoError(t, err)
		p.Settle(t.Context(), nil, errDown)
	}
}

// session is a client of a server, of which the server knows nothing else.
type session struct{ notifications chan mcp.JSONRPCNotification }

func (s *session) Initialize()                                         {}
func (s *session) Initialized() bool                                   { return true }
func (s *session) NotificationChannel() chan<- mcp.JSONRPCNotification { return s.notifications }
func (s *session) SessionID() string                                   { return "one" }

// N39: clients are told when tools go, and when they are due back, with no call made.
func TestN39ServerAnnounces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := newReal(t, aMinute)
		guard := mcpgocircuit.New(set, mcpgocircuit.Options{})
		defer guard.Close()
		s := server.NewMCPServer("test", "1", server.WithToolCapabilities(true))
		guard.Server(s)
		c := &session{make(chan mcp.JSONRPCNotification, 10)}
		require.NoError(t, s.RegisterSession(t.Context(), c))
		told := func() (n int) {
			synctest.Wait()
			for {
				select {
				case m := <-c.notifications:
					require.Equal(t, "notifications/tools/list_changed", m.Method)
					n++
				default:
					return n
				}
			}
		}
		require.Zero(t, told())
		fail(t, set, "search", 3)
		require.Equal(t, 1, told())
		time.Sleep(59 * time.Second)
		require.Zero(t, told())
		time.Sleep(time.Second)
		require.Equal(t, 1, told(), "due back")
		guard.Close()
		synctest.Wait()
		fail(t, set, "search", 1)
		require.Zero(t, told(), "nothing is announced after Close")
	})
}

// A server keeps the hooks that it has.
func TestServerKeepsItsHooks(t *testing.T) {
	listed := 0
	hooks := &server.Hooks{}
	hooks.AddAfterListTools(func(context.Context, any, *mcp.ListToolsRequest, *mcp.ListToolsResult) { listed++ })
	set := newReal(t, aMinute)
	s := newServer(t, set, tools{"fetch": returns(fine, nil), "search": returns(fine, nil)}, server.WithHooks(hooks))
	fail(t, set, "search", 3)
	require.Equal(t, []string{"fetch"}, list(t, connect(t, s, "")))
	require.Equal(t, 1, listed)
}

// So is the host of a guarded client, also when a session was renewed.
func TestN39ClientAnnounces(t *testing.T) {
	set := newReal(t, aMinute)
	h := newHost(t, newServer(t, nil, tools{"search": returns(fine, nil)}))
	conn, c, _ := h.conn(set, mcp.LATEST_LEGACY_PROTOCOL_VERSION)
	var told atomic.Int64
	c.OnNotification(func(n mcp.JSONRPCNotification) {
		if n.Method == "notifications/tools/list_changed" {
			told.Add(1)
		}
	})
	fail(t, set, "search", 3)
	require.Eventually(t, func() bool { return told.Load() == 1 }, 5*time.Second, time.Millisecond)
	require.NoError(t, set.Reset("search"))
	require.Eventually(t, func() bool { return told.Load() == 2 }, 5*time.Second, time.Millisecond)

	h.kill()
	h.start(newServer(t, nil, tools{"search": returns(fine, nil)}))
	_, err := conn.Guard(c.CallTool)(t.Context(), request("search"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return told.Load() == 3 }, 5*time.Second, time.Millisecond)
}

// What a tool's annotations say raises its side effects, where the config says nothing. What the SDK
// gives to every tool says nothing on the server.
func TestAnnotations(t *testing.T) {
	r := newRig(t, `{"tools":{"declared":{"sideEffects":false}}}`, toolset.Options{})
	s := newServer(t, r.Set, nil)
	for name, o := range map[string][]mcp.ToolOption{
		"pay":      {mcp.WithReadOnlyHintAnnotation(false), mcp.WithIdempotentHintAnnotation(false), mcp.WithOpenWorldHintAnnotation(false)},
		"declared": {mcp.WithOpenWorldHintAnnotation(false)},
		"read":     {mcp.WithReadOnlyHintAnnotation(true)},
		"plain":    nil,
	} {
		s.AddTool(mcp.NewTool(name, o...), returns(fine, nil))
	}
	c := connect(t, s, "")
	for name, want := range map[string]time.Duration{"pay": 2 * time.Minute, "declared": time.Minute, "read": time.Minute, "plain": time.Minute} {
		_, err := c.CallTool(t.Context(), request(name))
		require.NoError(t, err)
		r.trip(name)
		res, err := c.CallTool(t.Context(), request(name))
		require.Equal(t, want.Milliseconds(), requireBlocked(t, res, err).RetryAfterMS, name)
	}

	// A client hears of them in a list.
	sent := newRig(t, "", toolset.Options{})
	guard := mcpgocircuit.New(sent.Set, mcpgocircuit.Options{})
	defer guard.Close()
	conn := guard.HTTP("bank", func() (transport.Interface, error) { return transport.NewInProcessTransport(s), nil })
	remote := client.NewClient(conn)
	defer remote.Close()
	require.NoError(t, start(t.Context(), remote, ""))
	_, err := remote.ListTools(t.Context(), mcp.ListToolsRequest{})
	require.NoError(t, err)
	for name, want := range map[string]time.Duration{"pay": 2 * time.Minute, "read": time.Minute} {
		sent.trip(name)
		res, err := conn.Guard(remote.CallTool)(t.Context(), request(name))
		require.Equal(t, want.Milliseconds(), requireBlocked(t, res, err).RetryAfterMS, name)
	}
}

// A run's advice reaches the model as a text at the end of a result, and endTurn in a refusal.
func TestAdviceAndEndTurn(t *testing.T) {
	r := newRig(t, "", toolset.Options{})
	run, err := r.Session("run", toolset.Limits{Refused: 1})
	require.NoError(t, err)
	kept := mcp.NewToolResultError("no such page")
	call := guarded(r.Set, returns(kept, nil))
	ctx := toolset.WithSession(context.Background(), run)
	advised := false
	for range 20 {
		res, err := call(ctx, request("search"))
		require.NoError(t, err)
		first, _ := mcp.AsTextContent(res.Content[0])
		if len(res.Content) == 2 {
			advised = true
			require.Equal(t, "no such page", first.Text)
		}
		if strings.Contains(first.Text, `"endTurn":true`) {
			require.True(t, advised)
			require.Len(t, kept.Content, 1, "the tool's own result is not touched")
			return
		}
	}
	t.Fatal("never refused")
}

// The advice about a call whose error carried none is not that of another call, which ran well.
func TestAdviceIsOfTheOutcome(t *testing.T) {
	r := newRig(t, "", toolset.Options{})
	run, err := r.Session("run", toolset.Limits{})
	require.NoError(t, err)
	ctx := toolset.WithSession(t.Context(), run)
	call := guarded(r.Set, func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if req.GetString("q", "") == "bad" {
			return nil, mcp.ErrInvalidParams
		}
		return mcp.NewToolResultText("fine"), nil
	})
	search := func(what string) (*mcp.CallToolResult, error) {
		req := request("search")
		req.Params.Arguments = map[string]any{"q": what}
		return call(ctx, req)
	}
	_, err = search("bad")
	require.ErrorIs(t, err, mcp.ErrInvalidParams)
	res, err := search("good")
	require.NoError(t, err)
	require.Len(t, res.Content, 1)
}
