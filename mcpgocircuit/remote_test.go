package mcpgocircuit_test

import (
	"context"
	"errors"
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

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/mcpgocircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// remote is the guarded client of a server in the same bubble, on the bubble's clock.
type remote struct {
	*client.Client
	set  *toolset.Set
	call server.ToolHandlerFunc
	down atomic.Bool // sessions end, and there is no other
}

// newRemote returns a client of a server. More is JSON for the default policy.
func newRemote(t *testing.T, s *server.MCPServer, version, more string) *remote {
	t.Helper()
	c, err := toolset.Load(strings.NewReader(`{"monitored":["*"],"hide":"open","default":{"failureThreshold":3,"cooldown":"60s","jitter":0` + more + `}}`))
	require.NoError(t, err)
	r := new(remote)
	r.set, err = toolset.New(c, toolset.Options{})
	require.NoError(t, err)
	guard := mcpgocircuit.New(r.set, mcpgocircuit.Options{})
	conn := guard.HTTP("web", func() (transport.Interface, error) {
		if r.down.Load() {
			return nil, errors.New("refused")
		}
		return &link{transport.NewInProcessTransport(s), &r.down}, nil
	})
	r.Client = client.NewClient(conn)
	r.call = conn.Guard(r.CallTool)
	t.Cleanup(func() {
		guard.Close()
		require.NoError(t, r.Close())
	})
	require.NoError(t, start(t.Context(), r.Client, version))
	return r
}

func (r *remote) state(tool string) toolcircuit.State {
	return r.set.Circuit(context.Background(), tool).State()
}

// link is a session that ends with the server. A request ends with its context, as over a network.
type link struct {
	*transport.InProcessTransport
	down *atomic.Bool
}

func (l *link) SendRequest(ctx context.Context, req transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	if l.down.Load() {
		return nil, transport.ErrTransportClosed
	}
	res, err := l.InProcessTransport.SendRequest(ctx, req)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return res, err
}

// While the server is down a client is shown the list as it was, page by page. A list of which it
// knows the beginning only is an error, and one that it never saw is empty.
func TestListWhileTheServerIsDown(t *testing.T) {
	for _, version := range versions {
		synctest.Test(t, func(t *testing.T) {
			all := tools{"a": returns(fine, nil), "b": returns(fine, nil), "c": returns(fine, nil)}
			s := newServer(nil, all, server.WithPaginationLimit(2), server.WithCacheHints(3_600_000, mcp.CacheScopePublic))
			r := newRemote(t, s, version, "")
			us, them, half := toolset.WithScope(t.Context(), "us"), toolset.WithScope(t.Context(), "them"), toolset.WithScope(t.Context(), "half")
			require.Equal(t, []string{"a", "b", "c"}, listAs(us, t, r.Client))
			_, err := r.ListToolsByPage(half, mcp.ListToolsRequest{})
			require.NoError(t, err)
			for range 2 {
				r.down.Store(true)
				for range 100 { // while it is asked again, and later by the cooldown
					page, err := r.ListTools(us, mcp.ListToolsRequest{})
					require.NoError(t, err)
					require.Equal(t, map[string]any{"status": "fallback"}, page.Meta.AdditionalFields[mcpgocircuit.MetaKey])
					ttl, _ := page.TTL()
					require.Zero(t, ttl)
					require.Equal(t, []string{"a", "b", "c"}, listAs(us, t, r.Client))
					require.Empty(t, listAs(them, t, r.Client), "a list of another scope")
					_, err = r.ListTools(half, mcp.ListToolsRequest{})
					require.ErrorIs(t, err, toolcircuit.ErrCircuitOpen)
					time.Sleep(time.Second)
				}
				require.Equal(t, open, r.state("mcp:web"))
				r.down.Store(false)
				time.Sleep(5 * time.Minute)
				page, err := r.ListTools(us, mcp.ListToolsRequest{})
				require.NoError(t, err)
				require.Len(t, page.Tools, 3)
				if page.Meta != nil {
					require.NotContains(t, page.Meta.AdditionalFields, mcpgocircuit.MetaKey)
				}
				require.Equal(t, closed, r.state("mcp:web"))
			}
		})
	}
}

// A listing that its caller leaves is the caller's error, though a list is at hand.
func TestCallerLeavesAListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hang atomic.Bool
		hooks := &server.Hooks{}
		hooks.AddBeforeListTools(func(ctx context.Context, _ any, _ *mcp.ListToolsRequest) {
			if hang.Load() {
				<-ctx.Done()
			}
		})
		r := newRemote(t, newServer(nil, tools{"a": returns(fine, nil)}, server.WithHooks(hooks)), "", "")
		require.Equal(t, []string{"a"}, list(t, r.Client))
		hang.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.ListTools(ctx, mcp.ListToolsRequest{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait() // for the ping
		require.Equal(t, closed, r.state("mcp:web"))
	})
}

// A timeout counts, also where nothing but the SDK knows that the call was sent.
func TestTimeoutWithoutTransport(t *testing.T) {
	for _, version := range versions {
		synctest.Test(t, func(t *testing.T) {
			r := newRemote(t, newServer(nil, tools{"fine": returns(fine, nil), "hang": func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}}), version, `,"callTimeout":"1s"`)
			run, err := r.set.Session("run", toolset.Limits{Calls: 3})
			require.NoError(t, err)
			for range 3 {
				_, err := r.call(toolset.WithSession(t.Context(), run), request("hang"))
				require.ErrorIs(t, err, toolcircuit.ErrCallTimeout)
				synctest.Wait() // for the ping
			}
			require.Equal(t, open, r.state("hang"))
			require.Equal(t, closed, r.state("mcp:web"))
			res, err := r.call(toolset.WithSession(t.Context(), run), request("fine"))
			requireBlocked(t, res, err)
			require.EqualValues(t, toolcircuit.ReasonBudgetExhausted, run.StopReason().Reason, "each was a call of the run")
		})
	}
}
