package mcpgocircuit

import (
	"context"
	"errors"
	"sync"

	"github.com/mark3labs/mcp-go/client/transport"
)

// HTTP is the transport of a client whose server is behind HTTP. Make one with [Guard.HTTP]. All
// methods are safe for concurrent use.
type HTTP struct {
	*Conn
	mu   sync.Mutex
	lost func(error)
}

// HTTP returns the transport of a client of the named server. dial makes the SDK's transport for one
// session, such as a [transport.StreamableHTTP], and does not start it. It is called from one
// goroutine at a time, except that a call which has not returned within ReconnectTimeout has failed:
// others are made beside it, and what it returns at last is closed. A nil dial panics. Give the HTTP
// client of that transport a [Transport].
func (g *Guard) HTTP(server string, dial func() (transport.Interface, error)) *HTTP {
	g.check("HTTP", "dial", dial == nil)
	h := new(HTTP)
	h.Conn = g.newConn(server, func() (link, error) {
		t, err := dial()
		if err != nil {
			return nil, err
		}
		if t == nil {
			return nil, errors.New("mcpgocircuit: dial returned no transport")
		}
		if s, ok := t.(interface{ SetConnectionLostHandler(func(error)) }); ok {
			s.SetConnectionLostHandler(h.connectionLost)
		}
		return &httpLink{Interface: t}, nil
	})
	return h
}

// SetProtocolVersion sets the version that the client has negotiated. The client calls it.
func (h *HTTP) SetProtocolVersion(version string) {
	h.Conn.mu.Lock()
	h.Conn.version = version
	line := h.Conn.line
	h.Conn.mu.Unlock()
	if line != nil {
		l, _, _ := line.Now()
		l.SetProtocolVersion(version)
	}
}

// RequiresLegacyProtocol reports whether the SDK's transport knows legacy versions only.
func (h *HTTP) RequiresLegacyProtocol() bool {
	line := h.session()
	if line == nil {
		return false
	}
	l, _, _ := line.Now()
	t, ok := l.(*httpLink).Interface.(interface{ RequiresLegacyProtocol() bool })
	return ok && t.RequiresLegacyProtocol()
}

// SetConnectionLostHandler sets the handler of Client.OnConnectionLost. The client calls it.
func (h *HTTP) SetConnectionLostHandler(handle func(error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = handle
}

func (h *HTTP) connectionLost(err error) {
	h.mu.Lock()
	handle := h.lost
	h.mu.Unlock()
	if handle != nil {
		handle(err)
	}
}

// httpLink is a session over HTTP.
type httpLink struct {
	transport.Interface
	mu    sync.Mutex
	n     int             // requests under way
	empty []chan struct{} // to be closed when there are none
}

func (l *httpLink) SendRequest(ctx context.Context, req transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	l.mu.Lock()
	l.n++
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.n--; l.n == 0 {
			for _, c := range l.empty {
				close(c)
			}
			l.empty = nil
		}
	}()
	return l.Interface.SendRequest(ctx, req)
}

func (l *httpLink) drained() <-chan struct{} {
	c := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == 0 {
		close(c)
	} else {
		l.empty = append(l.empty, c)
	}
	return c
}

func (l *httpLink) SetProtocolVersion(version string) {
	if t, ok := l.Interface.(transport.HTTPConnection); ok {
		t.SetProtocolVersion(version)
	}
}

func (l *httpLink) SetRequestHandler(handle transport.RequestHandler) {
	if t, ok := l.Interface.(transport.BidirectionalInterface); ok {
		t.SetRequestHandler(handle)
	}
}

func (l *httpLink) onGone(func()) {}
