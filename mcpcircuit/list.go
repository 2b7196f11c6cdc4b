package mcpcircuit

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcircuit/toolcircuit"
	shared "github.com/toolcircuit/toolcircuit/internal/mcp"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// maxPages is the number of pages that are kept for a session, of all its scopes.
const maxPages = 1000

// pageKey says which page of a session's list one is, and who was shown it.
type pageKey struct{ scope, cursor string }

// list lists the tools of a server. Where that is down the page as it was last stands in, or an
// empty one: an agent needs its other tools.
func (x *exchange) list(ctx context.Context) (mcp.Result, error) {
	if x.Circuit == nil {
		res, err := x.Forward(ctx, nil)
		if page, ok := pageIn(res, err); ok {
			x.listed(x.Exchange.Server, page, x.name)
			return uncached(x.visible(ctx, page, x.name)), nil
		}
		return res, err
	}
	key := pageKey{scope: toolset.Scope(ctx)}
	if p, _ := x.req.GetParams().(*mcp.ListToolsParams); p != nil {
		key.cursor = p.Cursor
	}
	res, down, err := x.Fetch(ctx)
	page, ok := pageIn(res, err)
	if ok {
		if text := x.listed(x.Exchange.Server, page, x.name); text != nil { // the caller may write into the page
			x.session.remember(key, text)
		}
	} else if down {
		page, ok = x.last(key, err)
	}
	if !ok {
		return res, err
	}
	return uncached(x.visible(ctx, page, x.name)), nil
}

// uncached marks a page, which must be a copy, as one that the SDK does not keep.
func uncached(page *mcp.ListToolsResult) *mcp.ListToolsResult {
	page.TTLMs = 0
	return page
}

// pageIn returns the page that listing returned, if it did.
func pageIn(res mcp.Result, err error) (*mcp.ListToolsResult, bool) {
	page, ok := res.(*mcp.ListToolsResult)
	return page, ok && page != nil && err == nil
}

// listed notes what a page of a list says, and returns the page as text, nil if it has none. at is the
// server, nil on the server's own end.
func (g *Guard) listed(at *shared.Server, page *mcp.ListToolsResult, name func(string) string) []byte {
	text, err := json.Marshal(page)
	if err != nil {
		return nil
	}
	g.servers.Listed(g.set, at, text, name)
	return text
}

// last returns the page to stand in where listing failed with err. Without a copy that is the empty
// list. It is none if it would end a list that has begun, or if the server is merely busy. The page
// says that it stands in.
func (x *exchange) last(key pageKey, err error) (*mcp.ListToolsResult, bool) {
	page := &mcp.ListToolsResult{Tools: []*mcp.Tool{}}
	var refusal *toolcircuit.OpenError
	busy := errors.As(err, &refusal) && refusal.Reason == toolcircuit.ReasonBusy
	text := x.session.last(key)
	if text == nil && (key.cursor != "" || busy) || text != nil && json.Unmarshal(text, page) != nil {
		return nil, false
	}
	page.Meta = mcp.Meta{MetaKey: map[string]any{"status": string(toolcircuit.StatusFallback)}}
	return page, true
}

// visible returns a copy of a page without the tools that are hidden now. If the Set hides tools at
// all, the page says that it must not be cached: it holds for a scope and a moment. It is a copy
// because the SDK and its caller keep what they get, and write into it.
func (g *Guard) visible(ctx context.Context, page *mcp.ListToolsResult, rename func(string) string) *mcp.ListToolsResult {
	name := func(t *mcp.Tool) string {
		if t == nil { // the SDK drops it later
			return ""
		}
		return rename(t.Name)
	}
	list := *page
	list.Meta = maps.Clone(page.Meta)
	tools := slices.DeleteFunc(slices.Clone(page.Tools), func(t *mcp.Tool) bool { return t != nil && t.Name == bell })
	list.Tools = toolset.Visible(ctx, g.set, tools, name)
	if shared.Hides(g.set) {
		list.TTLMs, list.CacheScope = 0, "private"
	}
	return &list
}
