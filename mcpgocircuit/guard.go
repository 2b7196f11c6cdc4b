// Package mcpgocircuit puts the circuits of a [toolset.Set] around tools of the Model Context
// Protocol, with the SDK github.com/mark3labs/mcp-go. One type is for both ends:
//
//	guard := mcpgocircuit.New(set, mcpgocircuit.Options{})
//	defer guard.Close()
//
//	guard.Server(server) // before it serves
//
//	conn := guard.HTTP("weather", dial) // or guard.Stdio
//	c := client.NewClient(conn)
//	call := conn.Guard(c.CallTool)
//
// With the defaults a client does not trip on a live server whose backend is dead. Such a server
// sends only a result with isError or an internal error, and that can also mean that the model's
// arguments are wrong. There are three ways to count it:
//   - set countUnknown in the policy of the tools where it means a failure,
//   - give the Set a Classifier for [*ToolError],
//   - guard the server, which sees the error that its handler returned.
//
// A process may be both, a server that hands calls on to another server. Guard one end only, or give
// the tools different names on the two ends: a call must not ask one circuit twice.
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

// MetaKey is the key in _meta under which a blocked result has a copy as an object, with the keys of
// a [toolcircuit.Result].
const MetaKey = shared.MetaKey

// Options are for clients. The zero value is usable.
type Options struct {
	// Name returns the name by which the Set and the model know a server's tool. Nil: the tool's
	// own name, on every server. A tool whose name here begins with "mcp:" is not guarded,
	// because these are the names of servers. Name is called from many goroutines at once.
	Name func(server, tool string) string

	// ReconnectTimeout bounds one attempt to renew a dead session. It is also how long failed
	// attempts are repeated as calls ask for them, at intervals of up to a second, before each
	// failed attempt counts as a failure of the server. Zero: 30s.
	ReconnectTimeout time.Duration
}

// Guard is the middleware of servers and clients. Make one with New; one may serve several of
// either. All methods are safe for concurrent use. They panic on a Guard that New did not make.
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

// check panics on a Guard that New did not make, and if an argument is nil.
func (g *Guard) check(method, argument string, isNil bool) {
	if g == nil || g.set == nil {
		panic("mcpgocircuit: Guard." + method + ": the Guard was not made by New")
	}
	if isNil {
		panic("mcpgocircuit: Guard." + method + ": " + argument + " is nil")
	}
}

// Server guards the calls that a server receives, inside the middleware that the server already has. Call
// it before the server serves. Its tools/list leaves out the tools that the Set hides, see
// [toolset.Visible]. A page that would become empty stays whole, and a call of a hidden tool is answered
// with a blocked result. The server sends its clients notifications/tools/list_changed when the Set
// hides tools, and when they are due back. A nil server panics.
func (g *Guard) Server(s *server.MCPServer) {
	g.check("Server", "the server", s == nil)
	s.Use(g.Middleware)
	if s.GetHooks() == nil {
		server.WithHooks(new(server.Hooks))(s)
	}
	s.GetHooks().AddAfterListTools(g.hide)
	g.announcer.Add(func() { s.SendNotificationToAllClients(shared.ListChanged, nil) })
}

// Close ends what the guard does by itself: it announces no more changes of lists. Circuits and
// connections go on. A connection ends with its client's Close.
func (g *Guard) Close() {
	g.check("Close", "", false)
	g.close()
}

// Middleware is for the CallTool of a client whose transport is not a [Conn]. It is also for
// [server.WithToolHandlerMiddleware], where the order of several middlewares matters. Otherwise use
// Server, and not both: a call must not ask one circuit twice. A nil handler panics.
//
// A refused call is answered with a [mcp.CallToolResult] that has IsError. Its text is the JSON of a
// blocked [toolcircuit.Result], and the same object is under [MetaKey]. A call whose handler returned
// the refusal of an inner circuit is answered in the same way. Any other result or panic is passed
// on. If the run's [toolset.Session] has advice, it is the last text of a copy of the result. A tool
// that the Set does not guard is never refused. The context of the handler is
// [toolset.Permit.Context], which ends with the CallTimeout in the tool's policy.
//
// A circuit judges by codes and types, in the same way on both ends.
//   - An error has the kind that [toolcircuit.Classify] gives it. In addition, a session or a
//     connection that is gone is unavailable, and the SDK's errors for bad requests are invalid.
//   - A result with isError stands for the error that [Report] was told, otherwise for a
//     [*ToolError], which no rule knows.
//   - A result that asks for input counts for nothing. If it names no input the server sheds load,
//     and the result is rate_limited.
//
// See [Transport] for HTTP.
//
// A tool has side effects if its annotations say that it is neither read-only nor idempotent and the
// config does not say otherwise. A server's guard knows that from the tool's first call on. It
// ignores the four hints that [mcp.NewTool] gives to every tool. A client's [Conn] knows it once the
// tool is listed.
func (g *Guard) Middleware(next server.ToolHandlerFunc) server.ToolHandlerFunc {
	g.check("Middleware", "the handler", next == nil)
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

// hide removes the hidden tools from a page. The SDK's own filters would make a call of one "not found".
func (g *Guard) hide(ctx context.Context, _ any, _ *mcp.ListToolsRequest, result *mcp.ListToolsResult) {
	all := len(result.Tools)
	result.Tools = toolset.Visible(ctx, g.set, result.Tools, mcp.Tool.GetName)
	if len(result.Tools) < all && mcp.IsModernProtocol(server.RequestProtocolVersion(ctx)) {
		result.SetCacheHints(0, mcp.CacheScopePrivate) // it holds for a scope and a moment
	}
}

// Transport returns a RoundTripper for the HTTP client of a client's transport. It sends by base; a
// nil base is [http.DefaultTransport].
//
//	hc := &http.Client{Transport: mcpgocircuit.Transport(nil)}
//	t, err := transport.NewStreamableHTTP(url, transport.WithHTTPBasicClient(hc))
//
// The SDK turns the status of a response into a text and drops its Retry-After. The RoundTripper
// keeps both for the guard, so that a circuit judges by code. It also notes a response that broke
// off. It changes no request and no response.
func Transport(base http.RoundTripper) http.RoundTripper { return shared.Transport(base, false) }
