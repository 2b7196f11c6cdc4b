package mcpcircuit_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/mcpcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

var hiding = strings.Replace(everything, `{`, `{"hide": "open", `, 1)

// listed are the names of the tools that a session lists.
func listed(t *testing.T, s *mcp.ClientSession) []string {
	t.Helper()
	page, err := s.ListTools(context.Background(), nil)
	require.NoError(t, err)
	return names(page)
}

func names(page *mcp.ListToolsResult) []string {
	names := []string{}
	for _, tool := range page.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// trip opens the circuit of a tool.
func (r *rig) trip(name string) {
	for range 3 {
		p, err := r.set.Allow(context.Background(), name, nil)
		require.NoError(r, err)
		p.Settle(context.Background(), nil, errBackend)
	}
}

// A tool is hidden for as long as its circuit is open, and no longer, at each end and in both
// versions of the protocol; a call of it is still blocked.
func TestHiding(t *testing.T) {
	for _, version := range []string{"", legacy} {
		for _, end := range []string{"server", "client"} {
			t.Run(end+version, func(t *testing.T) {
				r := newRig(t, hiding, nil)
				s, tools := newServer("web", "a", "b", "c", "d")
				session := r.connectGuarded(end, s, version)
				require.Equal(t, []string{"a", "b", "c", "d"}, listed(t, session))
				r.trip("b")
				r.trip("d")
				require.Equal(t, []string{"a", "c"}, listed(t, session))
				require.Equal(t, "b", blocked(t, session, "b").Tool)
				require.Zero(t, tools["b"].calls.Load())

				r.trip("a")
				r.trip("c")
				require.Len(t, listed(t, session), 4, "a page is never emptied")

				r.add(time.Minute)
				require.Len(t, listed(t, session), 4)
				require.Equal(t, halfOpen, r.state("b"), "listing takes no probe")
				healthy(t, session, "b")
			})
		}
	}
}

func TestHidingIsOffByDefault(t *testing.T) {
	r := newRig(t, everything, nil)
	s, _ := newServer("web", "a", "b")
	session := connect(t, r.guardServer(s), r.client(mcpcircuit.Options{}), "")
	r.trip("a")
	require.Equal(t, []string{"a", "b"}, listed(t, session))
}

// N40: the SDK's cache knows neither scopes nor what is hidden, so it gets nothing to keep. Two
// tenants on one session see each their own list.
func TestN40ListsAreNotCached(t *testing.T) {
	for _, end := range []string{"server", "client"} {
		config := strings.Replace(hiding, `{`, `{"dependencies": {"a": {"scoped": true}}, "tools": {"a": {}}, `, 1)
		r := newRig(t, config, nil)
		s := mcp.NewServer(&mcp.Implementation{Name: "web"}, &mcp.ServerOptions{
			SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.TTLMs = 600_000 },
		})
		addTool(s, "a")
		addTool(s, "b")
		session := r.connectGuarded(end, s, "")
		us := toolset.WithScope(t.Context(), "us")
		them := toolset.WithScope(t.Context(), "them")
		for range 3 {
			p, err := r.set.Allow(us, "a", nil)
			require.NoError(t, err)
			p.Settle(us, nil, errBackend)
		}
		for range 2 {
			page, err := session.ListTools(us, nil)
			require.NoError(t, err)
			require.Zero(t, page.TTLMs)
			require.Equal(t, "private", page.CacheScope)
			if end == "client" { // a server in the same process does not get its client's scope
				require.Equal(t, []string{"b"}, names(page))
				page, err = session.ListTools(them, nil)
				require.NoError(t, err)
				require.Equal(t, []string{"a", "b"}, names(page))
			}
		}
		r.add(time.Minute)
		page, err := session.ListTools(us, nil)
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}, names(page))
	}
}

// A server that hides nothing leaves what its pages say of caching alone.
func TestCachingOfAServerThatHidesNothing(t *testing.T) {
	r := newRig(t, everything, nil)
	s := mcp.NewServer(&mcp.Implementation{Name: "web"}, &mcp.ServerOptions{
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.TTLMs = 600_000 },
	})
	addTool(s, "a")
	session := r.connectGuarded("server", s, "")
	page, err := session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, 600_000, page.TTLMs)
	require.Equal(t, "public", page.CacheScope)
}

// While the server is down listing gives what it gave last, page by page, without an error and
// without asking; before it ever gave anything, an empty list.
func TestListingWhileTheServerIsDown(t *testing.T) {
	r, l := newRig(t, hiding, nil), new(line)
	s := mcp.NewServer(&mcp.Implementation{Name: "web"}, &mcp.ServerOptions{PageSize: 2})
	for _, name := range []string{"a", "b", "c"} {
		addTool(s, name)
	}
	session := connect(t, s, l.client(r, mcpcircuit.Options{}), legacy)
	all := func() (names []string) {
		for tool, err := range session.Tools(context.Background(), nil) {
			require.NoError(t, err)
			names = append(names, tool.Name)
		}
		return names
	}
	l.cut(mcp.ErrConnectionClosed)
	require.Empty(t, all())
	l.mend()
	require.Equal(t, []string{"a", "b", "c"}, all())

	l.cut(mcp.ErrConnectionClosed)
	for range 3 {
		require.Equal(t, []string{"a", "b", "c"}, all(), "listing fails")
	}
	require.Equal(t, open, r.state("mcp:web"))
	l.mend()
	_, err := session.ListTools(context.Background(), nil)
	require.NoError(t, err)
	require.Contains(t, r.kinds("mcp:web"), toolcircuit.KindRejected, "an open circuit asks nobody")
	require.Equal(t, []string{"a", "b", "c"}, all())
	r.trip("b")
	require.Equal(t, []string{"a", "c"}, all(), "what is remembered is filtered, too")

	addTool(s, "d")
	r.add(time.Minute)
	require.Equal(t, []string{"a", "b", "c", "d"}, all(), "listing heals, after a ping")
	require.Equal(t, closed, r.state("mcp:web"))
}

// lister is what the guard calls to list tools, in place of a server. It answers with two pages.
type lister struct {
	mcp.MethodHandler
	session *mcp.ClientSession
	err     error // in place of an answer
}

func (r *rig) lister() *lister {
	l := &lister{session: new(mcp.ClientSession)}
	l.MethodHandler = mcpcircuit.New(r.set, mcpcircuit.Options{
		Server: func(*mcp.ClientSession) string { return "web" },
	}).Middleware(func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if l.err != nil || method == "ping" {
			return nil, l.err
		}
		page := &mcp.ListToolsResult{
			Tools:      []*mcp.Tool{{Name: "first" + toolset.Scope(ctx), InputSchema: map[string]any{"type": "object"}}},
			NextCursor: "2",
			Cacheable:  mcp.Cacheable{TTLMs: 600_000},
		}
		if req.GetParams().(*mcp.ListToolsParams).Cursor == "2" {
			page = &mcp.ListToolsResult{Tools: []*mcp.Tool{{Name: "second" + toolset.Scope(ctx)}}}
		}
		return page, nil
	})
	return l
}

func (l *lister) page(ctx context.Context, cursor string) (*mcp.ListToolsResult, error) {
	req := &mcp.ClientRequest[mcp.Params]{Session: l.session, Params: &mcp.ListToolsParams{Cursor: cursor}}
	res, err := l.MethodHandler(ctx, "tools/list", req)
	page, _ := res.(*mcp.ListToolsResult)
	return page, err
}

func (l *lister) mustPage(t *testing.T, ctx context.Context, cursor string) *mcp.ListToolsResult {
	t.Helper()
	page, err := l.page(ctx, cursor)
	require.NoError(t, err)
	return page
}

// Who gets a list may change it: what is remembered does not follow. Nor may a list that only
// stands in be cached, or pass for a fresh one.
func TestListsAreCopies(t *testing.T) {
	r := newRig(t, everything, nil)
	l, ctx := r.lister(), context.Background()
	spoil := func(page *mcp.ListToolsResult) {
		page.Tools[0].Name = "spoilt"
		page.Tools[0].InputSchema.(map[string]any)["type"] = "spoilt"
		page.Tools[0] = nil
	}
	fresh := l.mustPage(t, ctx, "")
	require.NotContains(t, fresh.Meta, mcpcircuit.MetaKey)
	spoil(fresh)
	l.err = mcp.ErrConnectionClosed
	for range 5 { // failing, then refused
		page := l.mustPage(t, ctx, "")
		require.Equal(t, []string{"first"}, names(page))
		require.Equal(t, map[string]any{"type": "object"}, page.Tools[0].InputSchema)
		require.Equal(t, mcp.Meta{mcpcircuit.MetaKey: map[string]any{"status": "fallback"}}, page.Meta)
		require.Zero(t, page.TTLMs)
		spoil(page)
	}
	require.Equal(t, open, r.state("mcp:web"))
}

// Nobody is shown what another session was, be it with a server of the same name.
func TestListsOfSessionsOfOneName(t *testing.T) {
	r, l := newRig(t, everything, nil), new(line)
	client := l.client(r, mcpcircuit.Options{})
	alpha, _ := newServer("web", "alpha")
	beta, _ := newServer("web", "beta")
	a, b, c := connect(t, alpha, client, ""), connect(t, beta, client, ""), connect(t, beta, client, "")
	listed(t, a)
	listed(t, b)
	l.cut(mcp.ErrConnectionClosed)
	for range 4 {
		require.Equal(t, []string{"alpha"}, listed(t, a))
		require.Equal(t, []string{"beta"}, listed(t, b))
		require.Empty(t, listed(t, c))
	}
}

// Nor what another tenant was, whether or not the circuit is scoped.
func TestListsOfScopes(t *testing.T) {
	for _, config := range []string{everything, strings.Replace(everything, `{`, `{"dependencies": {"mcp:web": {"scoped": true}}, `, 1)} {
		l := newRig(t, config, nil).lister()
		us := toolset.WithScope(context.Background(), "us")
		them := toolset.WithScope(context.Background(), "them")
		l.mustPage(t, us, "")
		l.err = mcp.ErrConnectionClosed
		require.Equal(t, []string{"firstus"}, names(l.mustPage(t, us, "")))
		require.Empty(t, names(l.mustPage(t, them, "")))
	}
}

// What is kept of sessions has an end, for each and with each.
func TestKeptListsAreBounded(t *testing.T) {
	l := newRig(t, everything, nil).lister()
	scope := func(i int) context.Context { return toolset.WithScope(context.Background(), fmt.Sprint(i)) }
	for i := range 1100 {
		l.mustPage(t, scope(i), "")
	}
	l.err = mcp.ErrConnectionClosed
	kept := 0
	for i := range 1100 {
		kept += len(l.mustPage(t, scope(i), "").Tools)
	}
	require.Equal(t, 1000, kept)
	require.Equal(t, []string{"first1099"}, names(l.mustPage(t, scope(1099), "")))

	session := weak.Make(l.session)
	l.session = new(mcp.ClientSession)
	runtime.GC()
	require.Nil(t, session.Value())
	runtime.KeepAlive(l)
}

// A list that has begun ends with its last page, or with that as it was, or with an error: half
// of it must not pass for the whole.
func TestHalfAList(t *testing.T) {
	l, ctx := newRig(t, everything, nil).lister(), context.Background()
	l.mustPage(t, ctx, "")
	l.err = mcp.ErrConnectionClosed
	for range 3 {
		_, err := l.page(ctx, "2")
		require.ErrorIs(t, err, mcp.ErrConnectionClosed)
	}
	_, err := l.page(ctx, "2")
	require.ErrorIs(t, err, toolcircuit.ErrCircuitOpen)
	require.Equal(t, []string{"first"}, names(l.mustPage(t, ctx, "")))

	l, l.err = newRig(t, everything, nil).lister(), nil
	l.mustPage(t, ctx, "")
	l.mustPage(t, ctx, "2")
	l.mustPage(t, ctx, "") // another listing, broken off
	l.err = mcp.ErrConnectionClosed
	require.Equal(t, []string{"second"}, names(l.mustPage(t, ctx, "2")))
}

// An error that does not say that the server is down is the caller's, though a list is at hand.
func TestErrorsOfListing(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	expired, cancel := context.WithDeadline(context.Background(), time.Now())
	defer cancel()
	for name, tt := range map[string]struct {
		ctx    context.Context
		err    error
		config string
		passes bool
	}{
		"caller has gone":  {cancelled, nil, everything, true},
		"caller's time":    {expired, nil, everything, true},
		"answered":         {nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "no such cursor"}, everything, true},
		"signed out":       {nil, &toolcircuit.HTTPError{StatusCode: 401}, everything, true},
		"bad request":      {nil, &toolcircuit.HTTPError{StatusCode: 400}, everything, true},
		"benign":           {nil, toolcircuit.Benign(mcp.ErrSessionMissing), everything, false}, // it is sure
		"unknown":          {nil, fmt.Errorf("hook failed"), everything, true},
		"unknown, counted": {nil, fmt.Errorf("hook failed"), strict, false},
		"server's trouble": {nil, &toolcircuit.HTTPError{StatusCode: 503}, everything, false},
		"told to wait":     {nil, &toolcircuit.HTTPError{StatusCode: 429, RetryAfter: time.Second}, everything, false},
		"hangs":            {nil, context.DeadlineExceeded, everything, false},
	} {
		t.Run(name, func(t *testing.T) {
			l, ctx := newRig(t, tt.config, nil).lister(), context.Background()
			l.mustPage(t, ctx, "")
			if l.err = tt.err; tt.ctx != nil {
				ctx = tt.ctx
			}
			page, err := l.page(ctx, "")
			if !tt.passes {
				require.NoError(t, err)
				require.Equal(t, []string{"first"}, names(page))
				return
			}
			require.Nil(t, page)
			if tt.err == nil {
				tt.err = ctx.Err()
			}
			require.ErrorIs(t, err, tt.err)
		})
	}
}

// A caller that leaves while the server hangs gets its own error.
func TestCallerLeavesAListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, everything, nil)
		s, _ := newServer("web", "a")
		hang := hangs(s)
		session := connect(t, s, r.client(mcpcircuit.Options{}), legacy)
		listed(t, session)
		hang.Store(true)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := session.ListTools(ctx, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// A server that hangs holds a listing up for its CallTimeout. Nobody waits for the ping that follows.
func TestListingHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, strings.Replace(everything, `"1m"`, `"1m", "callTimeout": "5s"`, 1), nil)
		s, _ := newServer("web", "a")
		hang := hangs(s)
		session := connect(t, s, r.client(mcpcircuit.Options{}), legacy)
		require.Equal(t, []string{"a"}, listed(t, session))
		hang.Store(true)
		start := time.Now()
		r.after(5*time.Second, func() { require.Equal(t, []string{"a"}, listed(t, session)) })
		require.Less(t, time.Since(start), time.Second)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Equal(t, []toolcircuit.Kind{"ok", "timeout"}, r.kinds("mcp:web"))
	})
}

// A malformed list with a null in it is for the SDK to mend.
func TestNullInAList(t *testing.T) {
	r := newRig(t, hiding, nil)
	s, _ := newServer("web")
	c := plainClient()
	c.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "tools/list" {
				return &mcp.ListToolsResult{Tools: []*mcp.Tool{nil, {Name: "a"}}}, nil
			}
			return next(ctx, method, req)
		}
	})
	r.guard(mcpcircuit.Options{}).Client(c)
	require.Equal(t, []string{"a"}, listed(t, connect(t, s, c, "")))
}
