package mcpcircuit

import (
	"context"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	shared "github.com/toolcircuit/toolcircuit/internal/mcp"
)

// Server guards the calls that a server receives. Call it before the server connects. The server
// sends its clients notifications/tools/list_changed when the Set hides tools, and when they are due
// back.
func (g *Guard) Server(s *mcp.Server) {
	g.check("Server", "s", s == nil)
	s.AddReceivingMiddleware(g.Middleware)
	g.announcer.Add(func() {
		// The SDK notifies clients of each version only when a tool is added or removed. Pages
		// leave this one out.
		s.AddTool(&mcp.Tool{Name: bell, InputSchema: map[string]any{"type": "object"}},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, errNoResult })
		s.RemoveTools(bell)
	})
}

// bell is the name of a tool that is there for a moment.
const bell = "toolcircuit.list_changed"

// Client guards the calls that a client sends. Call it before the client connects. The guard calls
// the client's ToolListChangedHandler when the Set hides tools, when they are due back, and when a
// session was renewed. The handler runs in a goroutine of its own, one at a time for each session, and
// gets the session that the host has had from the start.
func (g *Guard) Client(c *mcp.Client) {
	g.check("Client", "c", c == nil)
	r := &receiver{guard: g}
	c.AddReceivingMiddleware(r.middleware)
	c.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler { return g.handler(next, r) })
	g.announcer.Add(func() { g.sessions.each(r, (*session).listChanged) })
}

// receiver is what a client does with notifications.
type receiver struct {
	guard *Guard
	mu    sync.Mutex
	next  mcp.MethodHandler
}

// middleware hands a change of a list on as that of the session that the host knows.
func (r *receiver) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	r.mu.Lock()
	r.next = next
	r.mu.Unlock()
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if changed, ok := req.(*mcp.ToolListChangedRequest); ok && method == shared.ListChanged && changed != nil && changed.Session != nil {
			if host := r.guard.sessions.host(changed.Session); host != nil && host != changed.Session {
				req = &mcp.ToolListChangedRequest{Session: host, Params: changed.Params}
			}
		}
		return next(ctx, method, req)
	}
}

// listChanged tells the host that the list of a session has changed.
func (s *session) listChanged() {
	host := s.own.Value()
	if host == nil || s.receiver == nil || host.InitializeResult() == nil {
		return
	}
	s.receiver.mu.Lock()
	receive := s.receiver.next
	s.receiver.mu.Unlock()
	s.bell.Ring(func() {
		if s.receiver.guard.base.Err() == nil {
			_, _ = receive(context.Background(), shared.ListChanged, &mcp.ToolListChangedRequest{Session: host, Params: &mcp.ToolListChangedParams{}})
		}
	})
}

// host returns the session that the host uses where s has taken its place, nil if nobody knows s.
func (x *sessions) host(s *mcp.ClientSession) *mcp.ClientSession {
	known := x.find(s)
	if known == nil {
		return nil
	}
	return known.own.Value()
}

// each calls f for what is known of each session of a client.
func (x *sessions) each(of *receiver, f func(*session)) {
	x.mu.Lock()
	found := map[*session]bool{}
	for _, known := range x.known {
		if known.receiver == of {
			found[known] = true
		}
	}
	x.mu.Unlock()
	for known := range found {
		f(known)
	}
}

// annotations are those of a server's tools, which it is asked for when a tool is first called.
type annotations struct {
	mu    sync.Mutex
	asked map[string]bool // no more than maxPages
}

// learn asks for the annotations of all tools when one is called that was not known then.
func (a *annotations) learn(ctx context.Context, g *Guard, next mcp.MethodHandler, req mcp.Request, tool string) {
	session, _ := req.GetSession().(*mcp.ServerSession)
	a.mu.Lock()
	known := a.asked[tool] || session == nil || len(a.asked) >= maxPages
	if !known {
		if a.asked == nil {
			a.asked = map[string]bool{}
		}
		a.asked[tool] = true
	}
	a.mu.Unlock()
	if known {
		return
	}
	params := &mcp.ListToolsParams{}
	for range maxPages {
		res, err := next(ctx, shared.ListTools, &mcp.ListToolsRequest{Session: session, Params: params})
		page, ok := pageIn(res, err)
		if !ok {
			return
		}
		g.listed(nil, page, shared.ToolName)
		a.mu.Lock()
		for _, t := range page.Tools {
			if t != nil && len(a.asked) < maxPages {
				a.asked[t.Name] = true
			}
		}
		a.mu.Unlock()
		if page.NextCursor == "" {
			return
		}
		params = &mcp.ListToolsParams{Cursor: page.NextCursor}
	}
}
