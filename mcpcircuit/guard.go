// Package mcpcircuit puts the circuits of a [toolset.Set] around tools of the Model Context
// Protocol, with the SDK github.com/modelcontextprotocol/go-sdk. One middleware is for both
// ends:
//
//	server.AddReceivingMiddleware(mcpcircuit.Guard(set, mcpcircuit.Options{}))
//	client.AddSendingMiddleware(mcpcircuit.Guard(set, mcpcircuit.Options{}))
//
// With the defaults a client does not trip on a live server whose backend is dead: all that
// such a server sends is a result with isError, which may as well tell the model of a mistake
// in its arguments. Set countUnknown in the policy of the tools for which it means a failure,
// give the Set a Classifier for [*ToolError], or guard the server, which sees the error itself.
//
// In a process that is both, a server that hands calls on to another, guard one end, or give
// the two ends different names: a call that asks one circuit twice is in its own way.
package mcpcircuit

import (
	"context"
	"reflect"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// Options say how a client's sessions and tools are known. The zero value is usable. A server
// needs none. The functions are called from many goroutines at once.
type Options struct {
	// Server names the server of a session. Its circuit is the Set's circuit "mcp:" + name,
	// so it is guarded if the Set lists that name or a pattern for it. With "" the server has
	// no circuit, and servers of the same name share one. What is known of a server is kept as
	// long as the guard, so names must be of a bounded number. Nil: the name that the server
	// gave itself, which a server that nobody trusts may have from another.
	Server func(*mcp.ClientSession) string

	// Name returns the name by which the Set, and so the model, knows a server's tool. Nil:
	// the tool's own name, whatever the server. A tool whose name begins with "mcp:" here is
	// not guarded, for these are the names of servers.
	Name func(server, tool string) string

	// Reconnect returns a session to take the place of one that may be dead, or dead itself if
	// it is not. It is called before each probe of the server's circuit, with a context that
	// ends with the probe, which may take as long as the call that sends it. From then on what
	// is sent on dead goes out on the new session; to close dead is Reconnect's part. A panic
	// counts as a failed probe and passes on. Nil: a dead session stays dead, and its server's
	// circuit open, until the host calls on another.
	Reconnect func(ctx context.Context, dead *mcp.ClientSession) (*mcp.ClientSession, error)
}

// Guard returns the middleware for [mcp.Server.AddReceivingMiddleware] and
// [mcp.Client.AddSendingMiddleware]; one value may serve several of either. It guards
// tools/call and filters tools/list by [toolset.Visible]; other methods pass. A tool that the
// Set does not guard is never refused. A nil set panics.
//
// A refused call is answered with a [mcp.CallToolResult] that has IsError, the JSON of a
// blocked [toolcircuit.Result] as its text, and the same under [MetaKey]. What a call that ran
// returned is passed on. With a CallTimeout in the tool's policy, the context of the call ends
// then.
//
// A client has two levels: the tool's circuit and, within it, the one of its server. The
// server's counts what got no answer; any answer heals it, and its probe is a ping, after
// Reconnect. The tool's counts what the answers say. A timeout counts for both, unless the
// server has answered another call since, or answers a ping now. A server's policy is best left
// without CallTimeout and SlowCall, for its tools have their own. See [Transport] for HTTP.
//
// While a server cannot be reached or its circuit is open, a page of its list is the last one
// that the same session got under the same [toolset.Scope], else the first page is empty; a
// later one is the error, for half a list must not pass for the whole. A page that stands in
// has an object with the status fallback under [MetaKey]. Other errors of listing are passed on.
func Guard(set *toolset.Set, o Options) mcp.Middleware {
	if set == nil {
		panic("mcpcircuit: Guard: set is nil")
	}
	if o.Server == nil {
		o.Server = ownName
	}
	if o.Name == nil {
		o.Name = func(_, tool string) string { return tool }
	}
	g := &guard{Options: o, set: set}
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if v := reflect.ValueOf(req); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
				return next(ctx, method, req)
			}
			if session, _ := req.GetSession().(*mcp.ClientSession); session != nil {
				return g.send(ctx, session, next, method, req)
			}
			return g.serve(ctx, next, method, req)
		}
	}
}

func ownName(s *mcp.ClientSession) string {
	if r := s.InitializeResult(); r != nil && r.ServerInfo != nil {
		return r.ServerInfo.Name
	}
	return ""
}

type guard struct {
	Options
	set      *toolset.Set
	sessions sessions
	servers  servers
}

// The methods that the guard knows.
const (
	callTool  = "tools/call"
	listTools = "tools/list"
	ping      = "ping"
)

// prefix begins the name of a server's circuit.
const prefix = "mcp:"

// toolName returns name, or "", which is never guarded, if it would be a server's.
func toolName(name string) string {
	if strings.HasPrefix(name, prefix) {
		return ""
	}
	return name
}

// errNoResult stands for a result that a handler owes. The SDK would panic on it.
var errNoResult = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the tool returned no result"}

// serve handles a request that a server received.
func (g *guard) serve(ctx context.Context, next mcp.MethodHandler, method string, req mcp.Request) (mcp.Result, error) {
	if p, _ := req.GetParams().(*mcp.CallToolParamsRaw); p != nil && method == callTool && toolName(p.Name) != "" {
		permit, err := g.set.Allow(ctx, p.Name, p.Arguments)
		if err != nil {
			return blocked(toolset.ResultOf[any](ctx, g.set, p.Name, nil, toolcircuit.Verdict{}, err))
		}
		defer permit.Release()
		res, err := next(permit.Context(ctx), method, req)
		if r, ok := res.(*mcp.CallToolResult); err == nil && (res == nil || ok && r == nil) {
			res, err = nil, errNoResult
		}
		value, seen := judged(res, err)
		permit.Settle(ctx, value, seen)
		return res, err
	}
	res, err := next(ctx, method, req)
	if page, ok := pageIn(res, err); ok && method == listTools {
		return g.visible(ctx, page, toolName), nil
	}
	return res, err
}

// send handles a request that a client sends.
func (g *guard) send(ctx context.Context, session *mcp.ClientSession, next mcp.MethodHandler, method string, req mcp.Request) (mcp.Result, error) {
	x := exchange{guard: g, session: session, next: next, method: method, req: req}
	switch method {
	case callTool:
		p, _ := req.GetParams().(*mcp.CallToolParams)
		if p == nil {
			break
		}
		x.server = g.servers.get(g.Server(session))
		if tool := x.name(p.Name); g.set.Guards(tool) {
			x.circuit = x.server.circuit(ctx, g.set)
			return x.call(ctx, tool, p.Arguments)
		}
	case listTools:
		x.server = g.servers.get(g.Server(session))
		x.circuit = x.server.circuit(ctx, g.set)
		return x.list(ctx)
	}
	res, _, err := x.forward(ctx)
	return res, err
}

// callTimeout returns the CallTimeout of a circuit, 0 if there is none.
func callTimeout(c *toolcircuit.ToolCircuit) time.Duration {
	if c == nil {
		return 0
	}
	return c.Policy().CallTimeout
}

// withTimeout bounds a call, unless d is 0.
func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d)
}
