package mcpcircuit_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/mcpcircuit"
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
// versions of the protocol; called all the same, it is blocked as ever.
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

// A filtered list may be kept until the first hidden tool may be back, and by nobody else; a
// list that is whole, as long as the server says.
func TestTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, hiding, nil)
		r.clock.Set(time.Now())
		s := mcp.NewServer(&mcp.Implementation{Name: "web"}, &mcp.ServerOptions{
			SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.TTLMs = 600_000 },
		})
		addTool(s, "a")
		addTool(s, "b")
		session := connect(t, s, r.client(mcpcircuit.Options{}), "")
		pass := func(d time.Duration) {
			time.Sleep(d)
			r.add(d)
		}

		r.trip("a")
		pass(20 * time.Second)
		page, err := session.ListTools(context.Background(), nil)
		require.NoError(t, err)
		require.Equal(t, []string{"b"}, names(page))
		require.InDelta(t, 40_000, page.TTLMs, 10)
		require.Equal(t, "private", page.CacheScope)

		pass(40 * time.Second) // the client's cache lets go of it when the tool may be back
		page, err = session.ListTools(context.Background(), nil)
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}, names(page))
		require.Equal(t, 600_000, page.TTLMs)
		require.Equal(t, "public", page.CacheScope)

		// The list that is kept now outlives the next outage. The gate does not care.
		r.trip("b")
		require.Equal(t, []string{"a", "b"}, listed(t, session))
		blocked(t, session, "b")
	})
}

// Nobody knows when an operator's override ends.
func TestTTLOfAnOverride(t *testing.T) {
	r := newRig(t, hiding, nil)
	s := mcp.NewServer(&mcp.Implementation{Name: "web"}, &mcp.ServerOptions{
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.TTLMs = 600_000 },
	})
	addTool(s, "a")
	addTool(s, "b")
	session := connect(t, r.guardServer(s), plainClient(), "")
	healthy(t, session, "a")
	require.NoError(t, r.set.SetOverride("a", toolcircuit.OverrideOpen))
	page, err := session.ListTools(context.Background(), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, names(page))
	require.Zero(t, page.TTLMs)
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

// Who gets a list may change it: what is remembered does not follow. Nor may a list that only
// stands in be cached.
func TestListsAreCopies(t *testing.T) {
	r, l := newRig(t, everything, nil), new(line)
	s := mcp.NewServer(&mcp.Implementation{Name: "web"}, &mcp.ServerOptions{
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.TTLMs = 600_000 },
	})
	addTool(s, "a")
	addTool(s, "b")
	client := l.client(r, mcpcircuit.Options{})
	first, second := connect(t, s, client, ""), connect(t, s, client, "")
	_, err := first.ListTools(context.Background(), nil)
	require.NoError(t, err)
	l.cut(mcp.ErrConnectionClosed)
	for range 2 {
		page, err := second.ListTools(context.Background(), nil)
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}, names(page))
		require.NotContains(t, page.Meta, "x")
		require.Zero(t, page.TTLMs)
		slices.Reverse(page.Tools)
		page.Tools = page.Tools[:1]
		page.Meta["x"] = 1
	}
}

// Of a listing that has grown shorter no page is left over.
func TestRememberedListShrinks(t *testing.T) {
	r, l := newRig(t, everything, nil), new(line)
	s := mcp.NewServer(&mcp.Implementation{Name: "web"}, &mcp.ServerOptions{PageSize: 1})
	addTool(s, "a")
	addTool(s, "b")
	session := connect(t, s, l.client(r, mcpcircuit.Options{}), legacy)
	page, err := session.ListTools(context.Background(), nil)
	require.NoError(t, err)
	rest := &mcp.ListToolsParams{Cursor: page.NextCursor}
	page, err = session.ListTools(context.Background(), rest)
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, names(page))
	s.RemoveTools("b")
	listed(t, session)
	l.cut(mcp.ErrConnectionClosed)
	page, err = session.ListTools(context.Background(), rest)
	require.NoError(t, err)
	require.Empty(t, names(page))
}

// A server that hangs holds a listing up for its CallTimeout, and no longer.
func TestListingHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, strings.Replace(everything, `"1m"`, `"1m", "callTimeout": "5s"`, 1), nil)
		s, _ := newServer("web", "a")
		hang := false
		s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if method == "tools/list" && hang {
					<-ctx.Done()
				}
				return next(ctx, method, req)
			}
		})
		session := connect(t, s, r.client(mcpcircuit.Options{}), legacy)
		require.Equal(t, []string{"a"}, listed(t, session))
		hang = true
		start := time.Now()
		require.Equal(t, []string{"a"}, listed(t, session))
		require.Equal(t, 5*time.Second, time.Since(start))
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
	c.AddSendingMiddleware(mcpcircuit.Guard(r.set, mcpcircuit.Options{}))
	require.Equal(t, []string{"a"}, listed(t, connect(t, s, c, "")))
}
