// Package mcpcircuit puts the circuits of a [toolset.Set] around tools of the Model Context
// Protocol, with the SDK github.com/modelcontextprotocol/go-sdk. One type is for both ends:
//
//	guard := mcpcircuit.New(set, mcpcircuit.Options{})
//	defer guard.Close()
//	guard.Server(server) // or guard.Client(client), before it connects
//
// With the defaults a client does not trip on a live server whose backend is dead. Such a server
// sends only a result with isError, and that can also mean that the model's arguments are wrong.
// There are three ways to count it:
//   - set countUnknown in the policy of the tools where isError means a failure,
//   - give the Set a Classifier for [*ToolError],
//   - guard the server, which sees the error itself.
//
// A process may be both, a server that hands calls on to another server. Guard one end only, or give
// the tools different names on the two ends: a call must not ask one circuit twice.
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

// Options name a client's servers and tools and renew its sessions. The zero value is usable. A
// server needs no Options. The functions are called from many goroutines at once.
type Options struct {
	// Server names the server of a session. The server's circuit is the Set's circuit
	// "mcp:" + name; the Set must list that name or a pattern for it. With "" the server has no
	// circuit. Servers of the same name share one. The guard never forgets a name, so return a
	// bounded number of them. Nil: the name that the server gives itself. A server that you do
	// not trust can give itself the name of another.
	Server func(*mcp.ClientSession) string

	// Name returns the name by which the Set and the model know a server's tool. Nil: the tool's
	// own name, on every server. A tool whose name here begins with "mcp:" is not guarded,
	// because these are the names of servers.
	Name func(server, tool string) string

	// Reconnect returns a new session with the server of a dead session. The next request on the
	// dead session calls it, once for all requests that wait. It runs in a goroutine of its own.
	// Its context has the values of that request and ends after ReconnectTimeout. From then on
	// the guard sends on the new session what the host sends on dead, and it closes dead. The new
	// session must speak the same version of the protocol: ask for it by
	// [mcp.ClientSessionOptions.ProtocolVersion] if the server may be upgraded. A panic counts as
	// a failure of the server, and so does an attempt that has not returned in time. Others are
	// made beside it, so a Reconnect that hangs costs a goroutine for each attempt. A session that
	// comes late is closed.
	//
	// An error of kind unauthorized, such as a 401, is the error of the requests that wait. It says
	// nothing against the server.
	//
	// A session that answered 400 is renewed, and a call whose tool has no side effects is sent
	// again. Where a server runs a call and then answers 400, the call so runs twice. A tool without
	// annotations, or called before the first list, is taken to have none: set "sideEffects": true.
	//
	// A session that the host has closed is not renewed. Once a session has been renewed, or seen to
	// be gone, the guard does not notice that the host closes it: the new one lives until Close.
	//
	// The guard repeats the log level and the subscriptions to resources on the new session, and
	// leaves out what the server refuses by now. The subscriptions of version 2026-07-28 are
	// streams of their session and are lost with it.
	//
	// Nil: a dead session stays dead, and its server's circuit opens.
	Reconnect func(ctx context.Context, dead *mcp.ClientSession) (*mcp.ClientSession, error)

	// ReconnectTimeout bounds one Reconnect. It is also how long failed attempts are repeated as
	// calls ask for them, at intervals of up to a second, before each failed attempt counts as a
	// failure of the server. Zero: 30s.
	ReconnectTimeout time.Duration
}

// Guard is the middleware of servers and clients. Make one with New; one may serve several of
// either. All methods are safe for concurrent use. They panic on a Guard that New did not make, and on
// a nil argument.
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

// check panics on a Guard that New did not make, and if an argument is nil.
func (g *Guard) check(method, argument string, isNil bool) {
	if g == nil || g.set == nil {
		panic("mcpcircuit: Guard." + method + ": the Guard was not made by New")
	}
	if isNil {
		panic("mcpcircuit: Guard." + method + ": " + argument + " is nil")
	}
}

func ownName(s *mcp.ClientSession) string {
	if r := s.InitializeResult(); r != nil && r.ServerInfo != nil {
		return r.ServerInfo.Name
	}
	return ""
}

// Close ends what the guard does by itself. It closes the sessions that Reconnect made, renews no
// other, and announces no more changes of lists. Circuits go on. Close does not wait for a Reconnect
// under way; its session is closed when it comes.
func (g *Guard) Close() {
	g.check("Close", "", false)
	g.close()
	g.sessions.close()
}

// Middleware is for [mcp.Server.AddReceivingMiddleware] and [mcp.Client.AddSendingMiddleware], where
// the order of several middlewares matters. Otherwise use Server and Client, which also announce
// changes of lists. Middleware guards tools/call and filters tools/list by [toolset.Visible]. Other
// methods pass. A tool that the Set does not guard is never refused.
//
// A refused call is answered with a [mcp.CallToolResult] that has IsError. Its text is the JSON of a
// blocked [toolcircuit.Result], and the same object is under [MetaKey]. A call on a server whose
// handler returned the refusal of an inner circuit is answered in the same way. Any other result is
// passed on. If the run's [toolset.Session] has advice, it is the last text of a copy of the result.
// The context of a handler, and of a client's request, is [toolset.Permit.Context], which ends with
// the CallTimeout in the tool's policy.
//
// A client has two levels: the server's circuit, and after it the tool's.
//   - The server's circuit takes the blame for a call that got no answer, and the tool's circuit
//     ignores that call. Any answer heals it. Its probe is a ping.
//   - The tool's circuit counts what the answers say.
//   - A timeout counts for both. It does not count for the server if the server has answered another
//     call since, or answers a ping after it.
//
// Leave a server's policy without CallTimeout and SlowCall, because its tools have their own. Where
// the default has them, the server's must say "0s". See [Transport] for HTTP and [Stdio] for pipes.
//
// The guard sends a request once more, on another session, if
//   - the session was closed before the request was sent,
//   - the request's own response was 404, or
//   - its response was 400 and the tool has no side effects: some servers answer so for a session
//     that they do not know. See [Options] for a call that may so run twice.
//
// While a server cannot be reached, or its circuit is open, a page of its list is the last one that
// the same session got under the same [toolset.Scope]. Without such a page the first page is empty,
// and a later page is an error, because half a list must not pass for the whole. A page that stands
// in has an object with the status fallback under [MetaKey]. Other errors of listing are passed on.
// The SDK caches a page by its cursor alone, for every scope. So a page under a client's guard has a
// ttlMs of 0, and so has a page of a server whose Set hides tools.
//
// A tool has side effects if its annotations say that it is neither read-only nor idempotent and the
// config does not say otherwise. A server's guard knows that from the tool's first call on, a
// client's guard once the tool is listed.
func (g *Guard) Middleware(next mcp.MethodHandler) mcp.MethodHandler {
	g.check("Middleware", "next", next == nil)
	return g.handler(next, nil)
}

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

// Transport returns a RoundTripper for the HTTP client of an [mcp.StreamableClientTransport]. It
// sends by base; a nil base is [http.DefaultTransport].
//
// The SDK turns the status of a response into a text and drops its Retry-After. The RoundTripper
// keeps both for the guard, so that a circuit judges by code. It also notes a response that broke
// off.
//
// A request without a response counts as a failure to reach the server. So does a request for which
// there is no token, whether the SDK's OAuthHandler fails or base does. If base does not read the body
// of a request, the request was not sent: the call is none of the run's, and says nothing against the
// tool. To say nothing against the server either, base returns the error as [toolcircuit.Benign].
//
// The SDK asks the token source of an OAuthHandler without the call's context and under a lock. A token
// endpoint that hangs so holds up all calls. Give the HTTP client of the handler a Timeout.
//
// The SDK gives a session up for good after any failure except 429, 500, 502, 503 and 504. Other
// requests under way on the session then get an error that is not theirs. So the RoundTripper hands
// the SDK 503 in place of any other failure of a guarded call, with two exceptions: 401 and 403, which
// OAuth needs, and a response with an error of the protocol. In place of 408 and 529 it always does.
// The circuits, and the errors that the guard returns, have the true status. A server that answers 401
// or 403 to calls alone costs a new session for each of them.
func Transport(base http.RoundTripper) http.RoundTripper { return shared.Transport(base, true) }
