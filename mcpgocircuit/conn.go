package mcpgocircuit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	shared "github.com/toolcircuit/toolcircuit/internal/mcp"
)

// Conn is the connection of one client with one server, which outlives its sessions. [HTTP] and
// [Stdio] are the two kinds. The client stays the same when a session is renewed: Conn repeats the
// client's handshake, and the server must still speak the same version of the protocol. Conn also
// repeats the log level and the subscriptions to resources of a legacy session, and leaves out what
// the server refuses by now. A stream that Client.Listen opened is lost with its session.
//
// The next request renews a dead session, once for all requests that wait. An error of kind
// unauthorized, such as a 401, is then the error of these requests, and says nothing against the
// server. Conn sends a request once more, on another session, if
//   - the session was known to be gone before the request was sent,
//   - the request's own response was 404, or
//   - the request is a call on a legacy session, its response was 400, and the tool has no side
//     effects: some servers answer so for a session that they do not know.
//
// A server that runs a call and then answers 400 may therefore run it twice, if the tool has no
// annotations, or was called before it was listed. Set SideEffects in the config of a tool for which
// that matters.
//
// The handlers of Client.OnNotification get notifications/tools/list_changed when the Set hides tools,
// when they are due back, and when a session was renewed. They run in a goroutine of their own. The
// host filters what the client lists, by [toolset.Visible].
//
// All methods are safe for concurrent use.
type Conn struct {
	guard  *Guard
	server *shared.Server
	dial   func() (link, error) // not started
	line   *shared.Line[link]
	closed atomic.Bool
	bell   shared.Bell
	ended  chan struct{}  // closed by Close
	live   sync.WaitGroup // the sessions that are not closed yet
	ids    atomic.Int64

	standing shared.Standing[transport.JSONRPCRequest]

	tracked bool // a request's Hint knows when it is sent; over HTTP only Transport would tell it

	mu        sync.Mutex
	forget    func() // ends announcements
	onNotify  func(mcp.JSONRPCNotification)
	onRequest transport.RequestHandler
	version   string                    // that the client has set, over HTTP
	hello     *transport.JSONRPCRequest // that began the session
	said      []string                  // the versions in its answer
	pages     map[page]json.RawMessage  // of the list of tools, as they were last
}

func (g *Guard) newConn(server string, dial func() (link, error)) *Conn {
	return &Conn{guard: g, server: g.servers.Get(server), dial: dial, ended: make(chan struct{}), pages: map[page]json.RawMessage{}}
}

// Guard returns call with two circuits around it. call is the CallTool of this connection's client; a
// nil call panics. Guard does what [Guard.Middleware] does, and it has the server's circuit before
// the tool's: the Set's circuit "mcp:" + the server's name, if the Set lists that.
//   - The server's circuit takes the blame for a call that got no answer, and the tool's circuit
//     ignores that call. Any answer heals it. Its probe is a ping.
//   - The tool's circuit counts what the answers say.
//   - A timeout counts for both. It does not count for the server if the server has answered another
//     call since, or answers a ping after it.
//
// Leave a server's policy without CallTimeout and SlowCall, because its tools have their own. Where the
// default has them, the server's must say "0s". CallTimeout starts when the call is handed to the SDK,
// so it covers the SDK's encoding of the arguments to JSON.
func (c *Conn) Guard(call server.ToolHandlerFunc) server.ToolHandlerFunc {
	if call == nil {
		panic("mcpgocircuit: Conn.Guard: call is nil")
	}
	return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if c.session() == nil {
			return call(ctx, req) // which is the SDK's to refuse
		}
		x := exchange[*mcp.CallToolResult](ctx, c, shared.CallTool, func(ctx context.Context, l link) (*mcp.CallToolResult, error) {
			return call(context.WithValue(ctx, linkKey{}, l), req)
		})
		tool := shared.ToolName(c.guard.Name(c.server.Name, req.Params.Name))
		if !c.guard.set.Guards(tool) {
			return x.Forward(ctx, nil)
		}
		return resultOf(x.Call(ctx, tool, req.Params.Arguments, func(res *mcp.CallToolResult, err error) (any, error) {
			return judged(ctx, res, err, nil)
		}))
	}
}

// linkKey is the key of the session that a request has been given.
type linkKey struct{}

// exchange returns a request that send makes.
func exchange[R any](ctx context.Context, c *Conn, method string, send func(context.Context, link) (R, error)) *shared.Exchange[link, R] {
	x := &shared.Exchange[link, R]{
		Set:     c.guard.set,
		Servers: &c.guard.servers,
		Server:  c.server,
		Line:    c.session(),
		Missing: transport.ErrSessionTerminated,
		Base:    c.guard.base,
		Send:    send,
		Ping:    c.ping,
		Signs:   c.signs,
	}
	if method == shared.CallTool || method == shared.ListTools {
		x.Circuit = c.server.Circuit(ctx, c.guard.set)
	}
	return x
}

// signs returns what an error says by itself that a request on this connection came to.
func (c *Conn) signs(err error) shared.Signs {
	s := signs(err)
	if errors.Is(err, errEnded) {
		s.Closed, s.Unsent = true, true
	}
	for _, target := range []error{io.ErrClosedPipe, fs.ErrClosed, syscall.EPIPE} {
		s.Closed = s.Closed || errors.Is(err, target)
	}
	s.Answer, s.Tracked = false, c.tracked // what is answered is noted when it comes
	return s
}

func (c *Conn) ping(ctx context.Context, l link) error {
	_, err := c.send(ctx, l, transport.JSONRPCRequest{JSONRPC: mcp.JSONRPC_VERSION, ID: c.id(), Method: shared.Ping})
	return err
}

// id returns the id of a request that is not the client's, whose ids are numbers.
func (c *Conn) id() mcp.RequestId {
	return mcp.NewRequestId(fmt.Sprintf("toolcircuit-%d", c.ids.Add(1)))
}

// send sends a request on a session.
func (c *Conn) send(ctx context.Context, l link, req transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	res, err := l.SendRequest(ctx, req)
	if err == nil {
		shared.HintOf(ctx).Answered()
	}
	return res, err
}

// session returns the line of the connection, nil before Start.
func (c *Conn) session() *shared.Line[link] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.line
}

// Start begins the first session. The client calls it. ctx gives values only: the session goes on
// when ctx ends.
func (c *Conn) Start(ctx context.Context) error {
	if c.session() != nil {
		return nil
	}
	l, err := c.begin(ctx)
	if err != nil {
		return err
	}
	line := shared.NewLine(l)
	line.Timeout = c.guard.ReconnectTimeout
	line.Renew = func(ctx context.Context, _ link, gen int) (link, error) {
		h := new(shared.Hint)
		l, err := c.renew(shared.WithHint(ctx, h), gen+1)
		if err != nil {
			err = withMeaning(h.Read(ctx, err, c.signs(err)).Err)
		}
		return l, err
	}
	line.Retire = func(l link) {
		if drained := l.drained(); drained != nil { // the SDK would end what others still wait for
			select {
			case <-drained:
			case <-c.ended:
			case <-c.guard.base.Done():
			}
		}
		c.end(l)
	}
	c.mu.Lock()
	closed := c.closed.Load()
	if !closed {
		c.line, c.forget = line, c.guard.announcer.Add(c.listChanged)
	}
	c.mu.Unlock()
	if closed {
		c.end(l)
		return transport.ErrTransportClosed
	}
	return nil
}

// listChanged tells the client's handlers that its list of tools has changed.
func (c *Conn) listChanged() {
	c.bell.Ring(func() {
		c.mu.Lock()
		handle := c.onNotify
		c.mu.Unlock()
		if handle != nil && !c.closed.Load() && c.guard.base.Err() == nil {
			handle(mcp.JSONRPCNotification{JSONRPC: mcp.JSONRPC_VERSION, Notification: mcp.Notification{Method: shared.ListChanged}})
		}
	})
}

// SendRequest sends a request of the client. It renews a dead session first, except for a ping and a
// handshake.
//
// A list of tools goes through the server's circuit, if the Set lists that. While the server cannot be
// reached, or its circuit is open, a page of the list is the last one that the client got under the
// same [toolset.Scope]. Without such a page the first page is empty, and a later page is an error,
// because half a list must not pass for the whole. A page that stands in has an object with the status
// fallback under [MetaKey]. Other errors of listing are passed on.
func (c *Conn) SendRequest(ctx context.Context, req transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	line := c.session()
	if line == nil || c.closed.Load() {
		return nil, transport.ErrTransportClosed
	}
	if l, _ := ctx.Value(linkKey{}).(link); l != nil {
		return c.send(ctx, l, req)
	}
	switch req.Method {
	case string(mcp.MethodInitialize), string(mcp.MethodServerDiscover):
		l, _, _ := line.Now()
		res, err := l.SendRequest(ctx, req)
		if err == nil && res.Error == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.hello, c.said = &req, versionsIn(res.Result)
		}
		return res, err
	case shared.Ping:
		l, _, _ := line.Now()
		return l.SendRequest(ctx, req)
	}
	x := exchange[*transport.JSONRPCResponse](ctx, c, req.Method, func(ctx context.Context, l link) (*transport.JSONRPCResponse, error) {
		return c.send(ctx, l, req)
	})
	if req.Method != shared.ListTools {
		return x.Forward(ctx, func(res *transport.JSONRPCResponse, gen int) bool {
			return res.Error != nil || c.standing.Note(gen, req.Method, paramsOf(req).URI, req)
		})
	}
	var res *transport.JSONRPCResponse
	var err error
	if x.Circuit != nil {
		res, err = c.list(ctx, x, req)
	} else {
		res, err = x.Forward(ctx, nil)
	}
	if err == nil && res.Error == nil {
		c.guard.servers.Listed(c.guard.set, c.server, res.Result, func(tool string) string { return c.guard.Name(c.server.Name, tool) })
	}
	return res, err
}

// SendNotification sends a notification of the client on the current session, which it does not
// renew.
func (c *Conn) SendNotification(ctx context.Context, n mcp.JSONRPCNotification) error {
	line := c.session()
	if line == nil || c.closed.Load() {
		return transport.ErrTransportClosed
	}
	l, _, _ := line.Now()
	return l.SendNotification(ctx, n)
}

// SetNotificationHandler sets the client's handler, for this session and later ones.
func (c *Conn) SetNotificationHandler(handle func(mcp.JSONRPCNotification)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onNotify = handle
}

// SetRequestHandler sets the client's handler, for this session and later ones.
func (c *Conn) SetRequestHandler(handle transport.RequestHandler) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onRequest = handle
}

// GetSessionId returns the id of the current session, "" if it has none.
func (c *Conn) GetSessionId() string {
	line := c.session()
	if line == nil {
		return ""
	}
	l, _, _ := line.Now()
	return l.GetSessionId()
}

// Close ends the connection. It waits until all its sessions are closed, and their processes have
// ended: the current one, those that were replaced, and one that is being made. For all except the
// current one it waits no longer than 10 seconds.
func (c *Conn) Close() error {
	c.mu.Lock()
	closed := c.closed.Swap(true)
	line, forget := c.line, c.forget
	c.mu.Unlock()
	if closed {
		return nil
	}
	close(c.ended)
	var err error
	if line != nil {
		forget()
		l, _ := line.Close()
		err = c.end(l)
	}
	done := make(chan struct{})
	go func() {
		c.live.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
	}
	return err
}
