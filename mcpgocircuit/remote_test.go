package mcpgocircuit_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
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
	guard *mcpgocircuit.Guard
	set   *toolset.Set
	call  server.ToolHandlerFunc
	down  atomic.Bool // sessions end, and there is no other
	hangs atomic.Bool // dial does not return before never is closed
	never chan struct{}
	loses atomic.Bool // the next session refuses what it is told of subscriptions

	dials, starts, open atomic.Int64 // sessions: asked for, started, not closed

	after func(transport.JSONRPCRequest) // when a session has answered, if not nil
	mu    sync.Mutex
	last  *link
	told  map[*link][]string // what a session was told of the log level and of subscriptions
}

func newRemote(t *testing.T, s *server.MCPServer, version, policy string) *remote {
	t.Helper()
	r := &remote{set: newReal(t, policy), never: make(chan struct{}), told: map[*link][]string{}}
	r.guard = mcpgocircuit.New(r.set, mcpgocircuit.Options{})
	conn := r.guard.HTTP("web", func() (transport.Interface, error) {
		r.dials.Add(1)
		if r.hangs.Load() {
			<-r.never
		}
		if r.down.Load() {
			return nil, errors.New("refused")
		}
		r.open.Add(1)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.last = &link{InProcessTransport: transport.NewInProcessTransport(s), remote: r}
		return r.last, nil
	})
	r.Client = client.NewClient(conn)
	r.call = conn.Guard(r.CallTool)
	t.Cleanup(func() {
		r.guard.Close()
		require.NoError(t, r.Close())
		require.Zero(t, r.open.Load())
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
	*remote
	ended bool
}

func (l *link) Start(ctx context.Context) error {
	l.starts.Add(1)
	return l.InProcessTransport.Start(ctx)
}

func (l *link) Close() error {
	l.open.Add(-1)
	return l.InProcessTransport.Close()
}

func (l *link) SendRequest(ctx context.Context, req transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	if l.down.Load() {
		return nil, transport.ErrTransportClosed
	}
	if l.remote.dead(l) {
		return nil, transport.ErrTransportClosed
	}
	if l.loses.Load() && req.Method == "resources/subscribe" {
		return transport.NewJSONRPCErrorResponse(req.ID, mcp.RESOURCE_NOT_FOUND, "no such resource", nil), nil
	}
	res, err := l.InProcessTransport.SendRequest(ctx, req)
	l.note(l, req)
	if l.after != nil {
		l.after(req)
	}
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
			s := newServer(t, nil, all, server.WithPaginationLimit(2), server.WithCacheHints(3_600_000, mcp.CacheScopePublic))
			r := newRemote(t, s, version, aMinute)
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

// A tool that the same dead server has listed is no alternative.
func TestAlternativesElsewhere(t *testing.T) {
	for _, version := range versions {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, nil, tools{"search": returns(fine, nil), "listed": returns(fine, nil)})
			r := newRemote(t, s, version, aMinute+`,"tools":{"search":{"alternatives":["listed","unseen"]}}`)
			require.Equal(t, []string{"listed", "search"}, list(t, r.Client))
			r.down.Store(true)
			_, err := r.call(t.Context(), request("search"))
			require.Error(t, err)
			res, err := r.call(t.Context(), request("search"))
			require.Equal(t, []string{"unseen"}, requireBlocked(t, res, err).Alternatives)
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
		r := newRemote(t, newServer(t, nil, tools{"a": returns(fine, nil)}, server.WithHooks(hooks)), "", aMinute)
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
			r := newRemote(t, newServer(t, nil, tools{"fine": returns(fine, nil), "hang": func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}}), version, `{"failureThreshold":3,"callTimeout":"1s"}`)
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

// A host that lists whenever it is told to, while its server is gone, is told nothing: its list does
// not change.
func TestListingIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote(t, newServer(t, nil, tools{"search": returns(fine, nil)}), mcp.LATEST_LEGACY_PROTOCOL_VERSION,
			`{"failureThreshold":3,"cooldown":"1s","multiplier":1,"jitter":0}`)
		var told atomic.Int64
		r.OnNotification(func(mcp.JSONRPCNotification) {
			told.Add(1)
			_, _ = r.ListTools(context.Background(), mcp.ListToolsRequest{})
		})
		require.Equal(t, []string{"search"}, list(t, r.Client))
		r.down.Store(true)
		for i := range 60 {
			res, err := r.call(t.Context(), request("search"))
			if i > 0 { // the first is lost with its session
				requireBlocked(t, res, err)
			}
			time.Sleep(time.Second)
		}
		require.Zero(t, told.Load())
		fail(t, r.set, "search", 3)
		synctest.Wait()
		require.EqualValues(t, 1, told.Load())
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, 2, told.Load(), "due back")

		r.down.Store(false)
		time.Sleep(time.Second)
		_, err := r.call(t.Context(), request("search"))
		require.NoError(t, err)
		synctest.Wait()
		require.EqualValues(t, 3, told.Load(), "renewed")
	})
}

// A handler that is slow is told nothing any more once Close has returned.
func TestNothingIsToldAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRemote(t, newServer(t, nil, nil), mcp.LATEST_LEGACY_PROTOCOL_VERSION, aMinute)
		var told atomic.Int64
		r.OnNotification(func(mcp.JSONRPCNotification) {
			told.Add(1)
			time.Sleep(time.Minute)
		})
		for _, tool := range []string{"search", "fetch"} {
			fail(t, r.set, tool, 3)
			synctest.Wait()
		}
		require.EqualValues(t, 1, told.Load(), "the other waits")
		r.guard.Close()
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, told.Load())
	})
}

// A dial that does not return fails after ReconnectTimeout. Threshold and cooldown apply, others are
// tried beside it, and a session that comes after all is closed.
func TestDialThatNeverReturns(t *testing.T) {
	for _, version := range versions {
		synctest.Test(t, func(t *testing.T) {
			r := newRemote(t, newServer(t, nil, tools{"search": returns(fine, nil)}), version, aMinute)
			_, err := r.call(t.Context(), request("search"))
			require.NoError(t, err)
			r.down.Store(true)
			_, err = r.call(t.Context(), request("search"))
			require.ErrorIs(t, err, transport.ErrTransportClosed)
			r.down.Store(false)
			r.hangs.Store(true)
			for i := range 3 {
				start := time.Now()
				res, err := r.call(t.Context(), request("search"))
				require.Equal(t, "mcp:web", requireBlocked(t, res, err).Dependency)
				require.Equal(t, 30*time.Second, time.Since(start))
				require.EqualValues(t, i+2, r.dials.Load())
				time.Sleep(time.Second)
			}
			res, err := r.call(t.Context(), request("search"))
			got := requireBlocked(t, res, err)
			require.Equal(t, toolcircuit.RuleThreshold, got.Rule)
			require.Equal(t, toolcircuit.KindTimeout, got.Cause)

			r.hangs.Store(false)
			time.Sleep(time.Minute)
			works := func() {
				res, err := r.call(t.Context(), request("search"))
				require.NoError(t, err)
				require.Equal(t, "fine", text(t, res))
			}
			works()
			close(r.never)
			synctest.Wait()
			works()
			require.EqualValues(t, 5, r.dials.Load())
			require.EqualValues(t, 2, r.starts.Load())
			require.EqualValues(t, 1, r.open.Load())
		})
	}
}

// speaking is a session of a server that says which versions it has.
type speaking struct {
	*transport.InProcessTransport
	versions string
	ended    *atomic.Bool
}

func (s *speaking) SendRequest(ctx context.Context, req transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	if s.ended.Load() {
		return nil, transport.ErrSessionTerminated
	}
	res, err := s.InProcessTransport.SendRequest(ctx, req)
	if err == nil && req.Method == string(mcp.MethodServerDiscover) {
		var result map[string]json.RawMessage
		if err := json.Unmarshal(res.Result, &result); err != nil {
			return nil, err
		}
		result["supportedVersions"] = json.RawMessage(s.versions)
		res.Result, err = json.Marshal(result)
	}
	return res, err
}

// A server that comes back with more versions of the protocol, or with the same in another order, goes
// on. One without the version of the session does not.
func TestVersionsOfTheNextSession(t *testing.T) {
	for next, goesOn := range map[string]bool{
		`["2026-07-28","2025-11-25"]`:              true,
		`["2025-11-25","2026-07-28"]`:              true,
		`["2027-01-01","2026-07-28","2025-11-25"]`: true,
		`["2027-01-01","2025-11-25"]`:              false,
	} {
		t.Run(next, func(t *testing.T) {
			s := newServer(t, nil, tools{"search": returns(fine, nil)})
			versions, ended := `["2026-07-28","2025-11-25"]`, new(atomic.Bool)
			guard := mcpgocircuit.New(newReal(t, aMinute), mcpgocircuit.Options{})
			defer guard.Close()
			conn := guard.HTTP("web", func() (transport.Interface, error) {
				return &speaking{transport.NewInProcessTransport(s), versions, ended}, nil
			})
			c := client.NewClient(conn)
			defer c.Close()
			require.NoError(t, start(t.Context(), c, mcp.LATEST_PROTOCOL_VERSION))
			ended.Store(true)
			versions, ended = next, new(atomic.Bool)
			res, err := conn.Guard(c.CallTool)(t.Context(), request("search"))
			require.NoError(t, err)
			require.Equal(t, goesOn, !res.IsError)
		})
	}
}
