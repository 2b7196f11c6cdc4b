// Package mcpcircuit puts the circuits of a [toolset.Set] around tools of the Model Context
// Protocol, with the SDK github.com/modelcontextprotocol/go-sdk. One type is for both ends:
//
//	guard := mcpcircuit.New(set, mcpcircuit.Options{})
//	defer guard.Close()
//	guard.Server(server) // or guard.Client(client), before it connects
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
	"cmp"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	shared "github.com/toolcircuit/toolcircuit/internal/mcp"
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
	// not guarded, because these are the names of servers.
	Name func(server, tool string) string

	// Reconnect returns a new session with the server of a session that is gone. The next
	// request on a dead session causes it, once however many wait, in a goroutine of its own
	// whose context has the values of that request and ends after ReconnectTimeout. From then
	// on what is sent on dead goes out on the new session; the guard closes dead. The new one
	// must speak the same version of the protocol. A panic counts as a failure of the server.
	//
	// The log level and the subscriptions to resources that went through the guard are
	// repeated on the new session. Those of version 2026-07-28 are streams that belong to
	// their session, so they are lost with it.
	//
	// Nil: a dead session stays dead, and its server's circuit opens, until the host calls on
	// another.
	Reconnect func(ctx context.Context, dead *mcp.ClientSession) (*mcp.ClientSession, error)

	// ReconnectTimeout bounds one Reconnect, and is how long failed ones are repeated at
	// intervals of up to a second, as calls ask for it, before each counts as a failure of the
	// server. Zero: 30s.
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
	sessions  sessions
	servers   shared.Servers
}

// New returns a guard with the circuits of a Set. A nil set or a negative ReconnectTimeout panics.
func New(set *toolset.Set, o Options) *Guard {
	switch {
	case set == nil:
		panic("mcpcircuit: New: set is nil")
	case o.ReconnectTimeout < 0:
		panic(fmt.Sprintf("mcpcircuit: Options.ReconnectTimeout: got %v, want 0 or more", o.ReconnectTimeout))
	}
	if o.Server == nil {
		o.Server = ownName
	}
	if o.Name == nil {
		o.Name = func(_, tool string) string { return tool }
	}
	o.ReconnectTimeout = cmp.Or(o.ReconnectTimeout, 30*time.Second)
	g := &Guard{Options: o, set: set}
	g.base, g.close = context.WithCancel(context.Background())
	g.announcer = shared.NewAnnouncer(g.base, set)
	g.sessions.newLine = g.newLine
	return g
}

func ownName(s *mcp.ClientSession) string {
	if r := s.InitializeResult(); r != nil && r.ServerInfo != nil {
		return r.ServerInfo.Name
	}
	return ""
}

// Close ends what the guard does by itself: no session is renewed any more, those that Reconnect
// made are closed, and no change of a list is announced. Circuits go on. Close does not wait for a Reconnect under way, whose
// session is closed when it comes.
func (g *Guard) Close() {
	g.close()
	g.sessions.close()
}

// Middleware is for [mcp.Server.AddReceivingMiddleware] and [mcp.Client.AddSendingMiddleware],
// where the order of several matters; otherwise see Server and Client, which also announce changes
// of lists. It guards tools/call and
// filters tools/list by [toolset.Visible]; other methods pass. A tool that the Set does not guard
// is never refused.
//
// A refused call is answered with a [mcp.CallToolResult] that has IsError, the JSON of a
// blocked [toolcircuit.Result] as its text, and the same under [MetaKey]. So is a call on a server
// whose handler returned the refusal of a circuit within. What any other call returned is passed
// on, with the advice of the run's [toolset.Session] as a text at its end, if there is any. The
// context of a handler, and of a client's request, is [toolset.Permit.Context]: it ends
// with the CallTimeout in the tool's policy.
//
// A client has two levels: the tool's circuit and, before it, the one of its server. The
// server's takes the blame for what got no answer, which the tool's then ignores; any answer heals
// it, and its probe is a ping. The tool's counts what the answers say. A timeout counts for both,
// unless the server has answered another call since, or answers a ping after it. A server's policy
// is best left without CallTimeout and SlowCall, because its tools have their own. See [Transport]
// for HTTP and [Stdio] for pipes.
//
// A request goes out on another session once more if it was surely not executed: the session was
// closed before it was sent, or its own response was 404. So does one that was answered 400, if the
// tool has no side effects: some servers say so that they do not know a session.
//
// While a server cannot be reached or its circuit is open, a page of its list is the last one
// that the same session got under the same [toolset.Scope], else the first page is empty; a
// later one is the error, because half a list must not pass for the whole. A page that stands in
// has an object with the status fallback under [MetaKey]. Other errors of listing are passed on.
// The SDK caches pages by their cursor alone, whoever asked and whatever is hidden by then, so a
// page under a client's guard, and on a server one of a Set that hides tools, has a ttlMs of 0.
//
// A tool whose annotations say that it is neither read-only nor idempotent has side effects, where
// the config does not say otherwise: on a server from its first call on, on a client once it is
// listed.
func (g *Guard) Middleware(next mcp.MethodHandler) mcp.MethodHandler { return g.handler(next, nil) }

func (g *Guard) handler(next mcp.MethodHandler, r *receiver) mcp.MethodHandler {
	tools := new(annotations)
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if v := reflect.ValueOf(req); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			return next(ctx, method, req)
		}
		if session, _ := req.GetSession().(*mcp.ClientSession); session != nil {
			return g.send(ctx, session, r, next, method, req)
		}
		return g.serve(ctx, tools, next, method, req)
	}
}

// errNoResult stands for a result that a handler owes. The SDK would panic on it.
var errNoResult = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the tool returned no result"}

// serve handles a request that a server received.
func (g *Guard) serve(ctx context.Context, tools *annotations, next mcp.MethodHandler, method string, req mcp.Request) (mcp.Result, error) {
	if p, _ := req.GetParams().(*mcp.CallToolParamsRaw); p != nil && method == shared.CallTool && shared.ToolName(p.Name) != "" {
		tools.learn(ctx, g, next, req, p.Name)
		return resultOf(shared.Serve(ctx, g.set, p.Name, p.Arguments, func(ctx context.Context) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			if r, ok := res.(*mcp.CallToolResult); err == nil && (res == nil || ok && r == nil) {
				res, err = nil, errNoResult
			}
			return res, err
		}, judged))
	}
	res, err := next(ctx, method, req)
	if page, ok := pageIn(res, err); ok && method == shared.ListTools {
		return g.visible(ctx, page, shared.ToolName), nil
	}
	return res, err
}

// Transport returns base, which if nil is [http.DefaultTransport], for the HTTP client of an
// [mcp.StreamableClientTransport]. The SDK makes a text of the status of a response and drops
// its Retry-After; this RoundTripper keeps both for the guard, so that a circuit judges by code,
// and notes a response that broke off.
//
// A request without a response counts as not having reached the server. If that is not so, as
// where base found no token, let the error be [toolcircuit.Benign].
//
// The SDK gives a session up for good after any failure except 429, 500, 502, 503 and 504, and
// requests under way on it then get an error that is not theirs. So the RoundTripper hands it 503
// in place of other failures of guarded calls, and of 408 and 529 always, except 401 and 403,
// which OAuth needs, and responses with an error of the protocol. The circuits, and errors that
// the guard returns, have the true status.
func Transport(base http.RoundTripper) http.RoundTripper { return shared.Transport(base, true) }
