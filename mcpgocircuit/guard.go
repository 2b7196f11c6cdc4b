// Package mcpgocircuit puts the circuits of a [toolset.Set] around tools of the Model Context
// Protocol, with the SDK github.com/mark3labs/mcp-go. One type is for both ends:
//
//	guard := mcpgocircuit.New(set, mcpgocircuit.Options{})
//	defer guard.Close()
//
//	server.NewMCPServer(name, version, server.WithToolHandlerMiddleware(guard.Middleware))
//
//	conn := guard.HTTP("weather", dial) // or guard.Stdio
//	c := client.NewClient(conn)
//	call := conn.Guard(c.CallTool)
//
// With the defaults a client does not trip on a live server whose backend is dead: all that
// such a server sends is a result with isError or an internal error, which may as well tell the
// model of a mistake in its arguments. Set countUnknown in the policy of the tools for which it
// means a failure, give the Set a Classifier for [*ToolError], or guard the server, which sees
// the error that its handler returned.
//
// In a process that is both, a server that hands calls on to another, guard one end, or give
// the two ends different names: a call that asks one circuit twice is in its own way.
package mcpgocircuit

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/toolcircuit/toolcircuit"
	shared "github.com/toolcircuit/toolcircuit/internal/mcp"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// MetaKey is the key in _meta of a blocked result's machine-readable copy, an object with the
// keys of a [toolcircuit.Result].
const MetaKey = shared.MetaKey

// Options are for clients. The zero value is usable.
type Options struct {
	// Name returns the name by which the Set, and so the model, knows a server's tool. Nil: the
	// tool's own name, whatever the server. It is called from many goroutines at once. A tool
	// whose name begins with "mcp:" here is not guarded, because these are the names of servers.
	Name func(server, tool string) string

	// ReconnectTimeout bounds one attempt to renew a dead session, and is how long failed ones
	// are repeated at intervals of up to a second, as calls ask for it, before each counts as a
	// failure of the server. Zero: 30s.
	ReconnectTimeout time.Duration
}

// Guard is the middleware of servers and clients. Make one with New; one may serve several of
// either. All methods are safe for concurrent use.
type Guard struct {
	Options
	set       *toolset.Set
	base      context.Context // ends with Close
	close     context.CancelFunc
	announcer *shared.Announcer
	servers   shared.Servers
	asked     sync.Map // tools of a server whose annotations are known
}

// New returns a guard with the circuits of a Set. A nil set or a negative ReconnectTimeout panics.
func New(set *toolset.Set, o Options) *Guard {
	switch {
	case set == nil:
		panic("mcpgocircuit: New: set is nil")
	case o.ReconnectTimeout < 0:
		panic(fmt.Sprintf("mcpgocircuit: Options.ReconnectTimeout: got %v, want 0 or more", o.ReconnectTimeout))
	}
	if o.Name == nil {
		o.Name = func(_, tool string) string { return tool }
	}
	o.ReconnectTimeout = cmp.Or(o.ReconnectTimeout, 30*time.Second)
	g := &Guard{Options: o, set: set}
	g.base, g.close = context.WithCancel(context.Background())
	g.announcer = shared.NewAnnouncer(g.base, set)
	return g
}

// Server announces to a server's clients when the Set hides tools, and when they are due back, by
// notifications/tools/list_changed. The server needs [server.WithToolCapabilities](true), [Guard.Hide]
// and [Guard.Middleware].
func (g *Guard) Server(s *server.MCPServer) {
	g.announcer.Add(func() { s.SendNotificationToAllClients(shared.ListChanged, nil) })
}

// Close ends what the guard does by itself: no change of a list is announced any more. Circuits and connections go on; a connection ends with
// its client's Close.
func (g *Guard) Close() { g.close() }

// Middleware is for [server.WithToolHandlerMiddleware], and for the CallTool of a client whose
// transport is not the guard's, see [Conn]. A nil handler panics.
//
// A refused call is answered with a [mcp.CallToolResult] that has IsError, the JSON of a
// blocked [toolcircuit.Result] as its text, and the same under [MetaKey]. So is a call whose
// handler returned the refusal of a circuit within. What any other call returned is passed on
// as it is, panics too, with the advice of the run's [toolset.Session] as a text at its end, if there
// is any. A tool that the Set does not guard is never refused. The context of the
// handler is [toolset.Permit.Context]: it ends with the CallTimeout in the tool's policy.
//
// A circuit judges by codes and types, the same on both ends. An error is what it is to
// [toolcircuit.Classify]; beyond that, a session or a connection that is gone is unavailable,
// and the SDK's errors for requests that are at fault are invalid. A result with isError is
// the error that [Report] was told, or a [*ToolError], which no rule knows. A result that asks for
// input counts for nothing, and is load shedding, so rate_limited, if it names no input. See
// [Transport] for what HTTP says.
//
// A tool whose annotations say that it is neither read-only nor idempotent has side effects, where
// the config does not say otherwise: on a server from its first call on, except that the four hints
// which [mcp.NewTool] gives to every tool say nothing; on a client's [Conn] once it is listed.
func (g *Guard) Middleware(next server.ToolHandlerFunc) server.ToolHandlerFunc {
	if next == nil {
		panic("mcpgocircuit: Guard.Middleware: the handler is nil")
	}
	return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if req.Params.Task != nil && server.ServerFromContext(ctx) != nil {
			ctx = context.WithoutCancel(ctx) // which the SDK ends with the request that began the task
		}
		g.learn(ctx, req.Params.Name)
		n, h, inner := new(note), new(shared.Hint), ctx
		return resultOf(shared.Serve(ctx, g.set, req.Params.Name, req.Params.Arguments,
			func(ctx context.Context) (*mcp.CallToolResult, error) {
				inner = ctx
				return next(shared.WithHint(context.WithValue(ctx, noteKey{}, n), h), req)
			},
			func(res *mcp.CallToolResult, err error) (any, error) {
				if err != nil {
					err = h.Read(inner, err, signs(err)).Err
				}
				return judged(ctx, res, err, n)
			}))
	}
}

// learn reads the annotations of a server's tool when it is first called. Those that the SDK gives
// to a tool with none say nothing.
func (g *Guard) learn(ctx context.Context, tool string) {
	s := server.ServerFromContext(ctx)
	if s == nil {
		return
	}
	if _, known := g.asked.Load(tool); known {
		return
	}
	t := s.GetTool(tool)
	if t == nil {
		return
	}
	g.asked.Store(tool, true)
	is := func(hint *bool, value bool) bool { return hint != nil && *hint == value }
	a := t.Tool.Annotations
	given := !(is(a.ReadOnlyHint, false) && is(a.DestructiveHint, true) && is(a.IdempotentHint, false) && is(a.OpenWorldHint, true))
	if given && is(a.ReadOnlyHint, false) && is(a.IdempotentHint, false) {
		g.servers.Raise(g.set, shared.ToolName(tool))
	}
}

// resultOf returns what a call of a tool returned, with what the guard has to say to the model. A
// blocked result has no StructuredContent, because the tool may have an output schema, which it
// would break.
func resultOf(res *mcp.CallToolResult, told *toolcircuit.Result[any], err error) (*mcp.CallToolResult, error) {
	if err != nil || told == nil {
		return res, err
	}
	if told.Status != toolcircuit.StatusBlocked {
		if res == nil || res.NeedsInput() {
			return res, nil
		}
		own := *res // the tool's may be that of other calls, too
		own.Content = append(slices.Clip(res.Content), mcp.NewTextContent(told.Advice))
		return &own, nil
	}
	text, meta, err := shared.Blocked(*told)
	if err != nil {
		return nil, err
	}
	res = mcp.NewToolResultError(text)
	res.Meta = mcp.NewMetaFromMap(map[string]any{MetaKey: meta})
	return res, nil
}

// Hide is the hook for [server.Hooks.AddAfterListTools] that leaves out the tools which
// [toolset.Visible] leaves out. The SDK's own filters will not do: a tool that they hide is not
// found when it is called all the same, where this one is answered with a blocked result.
//
// With pages, one of which all tools would be hidden stays whole.
func (g *Guard) Hide(ctx context.Context, _ any, _ *mcp.ListToolsRequest, result *mcp.ListToolsResult) {
	all := len(result.Tools)
	result.Tools = toolset.Visible(ctx, g.set, result.Tools, mcp.Tool.GetName)
	if len(result.Tools) < all && mcp.IsModernProtocol(server.RequestProtocolVersion(ctx)) {
		result.SetCacheHints(0, mcp.CacheScopePrivate) // it holds for a scope and a moment
	}
}

// Transport returns base, which if nil is [http.DefaultTransport], for the HTTP client of a
// client's transport:
//
//	hc := &http.Client{Transport: mcpgocircuit.Transport(nil)}
//	t, err := transport.NewStreamableHTTP(url, transport.WithHTTPBasicClient(hc))
//
// The SDK makes a text of the status of a response and drops its Retry-After; this RoundTripper
// keeps both for the guard, so that a circuit judges by code, and notes a response that broke
// off. It changes no request and no response.
func Transport(base http.RoundTripper) http.RoundTripper { return shared.Transport(base, false) }
