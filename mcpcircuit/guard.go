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

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// Options say how a client's sessions and tools are known. The zero value is usable. A server
// needs none. The functions are called from many goroutines at once.
type Options struct {
	// Server names the server of a session. Its circuit is the Set's circuit "mcp:" + name,
	// so it is guarded if the Set lists that name or a pattern for it. With "" the server has
	// no circuit. What is known of a server is kept as long as the guard, so names must be of
	// a bounded number. Nil: the name that the server gave itself.
	Server func(*mcp.ClientSession) string

	// Name returns the name by which the Set, and so the model, knows a server's tool. Nil:
	// the tool's own name, whatever the server.
	Name func(server, tool string) string

	// Reconnect returns a session to take the place of one that may be dead, or dead itself if
	// it is not. It is called before each probe of the server's circuit, with a context that
	// ends with the probe. From then on what is sent on dead goes out on the new session; to
	// close dead is Reconnect's part. Nil: a dead session stays dead, and its server's circuit
	// open, until the host calls on another.
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
// Reconnect. The tool's counts what the answers say. A timeout counts for both, unless another
// call to that server was answered meanwhile. A server's policy is best left without CallTimeout
// and SlowCall, for its tools have their own. See [Transport] for HTTP.
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
			session, ok := req.GetSession().(*mcp.ClientSession)
			if !ok {
				return g.serve(ctx, next, method, req)
			}
			return g.send(ctx, session, next, method, req)
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

// serve handles a request that a server received.
func (g *guard) serve(ctx context.Context, next mcp.MethodHandler, method string, req mcp.Request) (mcp.Result, error) {
	if p, ok := req.GetParams().(*mcp.CallToolParamsRaw); ok && method == callTool {
		permit, err := g.set.Allow(ctx, p.Name, p.Arguments)
		if err != nil {
			return g.blocked(ctx, p.Name, nil, err)
		}
		defer permit.Release()
		inner, cancel := withTimeout(ctx, g.set.Circuit(ctx, p.Name))
		defer cancel()
		res, err := next(inner, method, req)
		value, seen := judged(res, err)
		permit.Settle(ctx, value, seen)
		return res, err
	}
	res, err := next(ctx, method, req)
	if page, ok := pageIn(res, err); ok && method == listTools {
		return g.visible(ctx, page, func(tool string) string { return tool }), nil
	}
	return res, err
}

// send handles a request that a client sends.
func (g *guard) send(ctx context.Context, session *mcp.ClientSession, next mcp.MethodHandler, method string, req mcp.Request) (mcp.Result, error) {
	x := exchange{guard: g, session: session, next: next, method: method, req: req}
	switch method {
	case callTool:
		p, ok := req.GetParams().(*mcp.CallToolParams)
		if !ok {
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

// withTimeout gives a call the CallTimeout of its circuit, if it has one.
func withTimeout(ctx context.Context, c *toolcircuit.ToolCircuit) (context.Context, context.CancelFunc) {
	if c != nil {
		if d := c.Policy().CallTimeout; d > 0 {
			return context.WithTimeout(ctx, d)
		}
	}
	return ctx, func() {}
}
