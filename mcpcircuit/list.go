package mcpcircuit

import (
	"context"
	"maps"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcircuit/toolcircuit/toolset"
)

// list lists the tools of a server. While the server's circuit is open, and when listing
// fails, it returns the page as it was last, or an empty one: an agent needs its other tools.
func (x *exchange) list(ctx context.Context) (mcp.Result, error) {
	if x.circuit == nil {
		res, _, err := x.forward(ctx)
		if page, ok := pageIn(res, err); ok {
			return x.visible(ctx, page, x.name), nil
		}
		return res, err
	}
	cursor := ""
	if p, _ := x.req.GetParams().(*mcp.ListToolsParams); p != nil {
		cursor = p.Cursor
	}
	page, ok := x.fetch(ctx)
	if ok {
		x.server.remember(cursor, page)
	} else {
		page = x.server.last(cursor)
	}
	return x.visible(ctx, page, x.name), nil
}

// pageIn returns the page that listing returned, if it did.
func pageIn(res mcp.Result, err error) (*mcp.ListToolsResult, bool) {
	page, ok := res.(*mcp.ListToolsResult)
	return page, ok && page != nil && err == nil
}

// fetch gets the page from the server, through its circuit.
func (x *exchange) fetch(ctx context.Context) (*mcp.ListToolsResult, bool) {
	entry, err := x.enter(ctx)
	if err != nil {
		return nil, false
	}
	defer entry.Release()
	inner, cancel := withTimeout(ctx, x.circuit)
	defer cancel()
	before := x.server.answers.Load()
	res, lost, err := x.forward(inner)
	x.settle(ctx, &entry, before, lost)
	return pageIn(res, err)
}

// remember keeps a page. The first page of a listing takes the place of the listing before.
func (s *server) remember(cursor string, page *mcp.ListToolsResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cursor == "" || s.pages == nil {
		s.pages = make(map[string]*mcp.ListToolsResult)
	}
	s.pages[cursor] = page
}

// last returns the page as it was last. It says that nobody should keep it.
func (s *server) last(cursor string) *mcp.ListToolsResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.pages[cursor]
	if known == nil {
		return &mcp.ListToolsResult{Tools: []*mcp.Tool{}}
	}
	page := *known
	page.TTLMs = 0
	return &page
}

// visible returns a copy of a page without the tools that are hidden now. If any is, the copy
// must not be kept longer than that lasts, nor be shown to others, whose circuits may differ.
// It is a copy since the SDK and its caller keep what they get, and write into it.
func (g *guard) visible(ctx context.Context, page *mcp.ListToolsResult, rename func(string) string) *mcp.ListToolsResult {
	name := func(t *mcp.Tool) string {
		if t == nil { // the SDK drops it later
			return ""
		}
		return rename(t.Name)
	}
	list := *page
	list.Meta = maps.Clone(page.Meta)
	list.Tools = toolset.Visible(ctx, g.set, page.Tools, name)
	shown := list.Tools
	for _, t := range page.Tools {
		if len(shown) > 0 && shown[0] == t {
			shown = shown[1:]
			continue
		}
		list.CacheScope = "private"
		list.TTLMs = int(min(int64(list.TTLMs), g.hiddenFor(ctx, name(t)).Milliseconds()))
	}
	return &list
}

// hiddenFor returns for how long a tool stays hidden, 0 if nobody knows. It is told in real
// time, as the SDK's caches are.
func (g *guard) hiddenFor(ctx context.Context, tool string) time.Duration {
	c := g.set.Circuit(ctx, tool)
	if c == nil {
		return 0
	}
	return max(time.Until(c.Snapshot().RetryAt), 0)
}
