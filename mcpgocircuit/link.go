package mcpgocircuit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// link is one session.
type link interface {
	transport.BidirectionalInterface
	SetProtocolVersion(string)
	onGone(func())            // hears once that the session is gone, where that can be known without a call
	drained() <-chan struct{} // closed when no request is under way; nil: none can be
}

// begin starts a session, which must be ended by end.
func (c *Conn) begin(ctx context.Context) (link, error) {
	l, err := c.dial()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	if c.closed.Load() {
		err = transport.ErrTransportClosed
	} else if err = ctx.Err(); err == nil { // otherwise it comes too late
		c.live.Add(1)
	}
	c.mu.Unlock()
	if err != nil {
		l.Close()
		return nil, err
	}
	l.SetNotificationHandler(func(n mcp.JSONRPCNotification) {
		c.mu.Lock()
		handle := c.onNotify
		c.mu.Unlock()
		if handle != nil {
			handle(n)
		}
	})
	l.SetRequestHandler(func(ctx context.Context, req transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
		c.mu.Lock()
		handle := c.onRequest
		c.mu.Unlock()
		if handle == nil {
			return transport.NewJSONRPCErrorResponse(req.ID, mcp.METHOD_NOT_FOUND, "no request handler configured", nil), nil
		}
		return handle(ctx, req)
	})
	l.onGone(func() {
		if line := c.session(); line != nil {
			if now, gen, _ := line.Now(); now == l {
				line.Gone(gen)
			}
		}
	})
	if err := l.Start(context.WithoutCancel(ctx)); err != nil {
		go c.end(l)
		return nil, err
	}
	return l, nil
}

// end closes a session that begin has started.
func (c *Conn) end(l link) error {
	defer c.live.Done()
	return l.Close()
}

// renew returns another session, to which the client has been introduced. gen is its generation.
func (c *Conn) renew(ctx context.Context, gen int) (_ link, err error) {
	c.mu.Lock()
	hello, said, version := c.hello, c.said, c.version
	c.mu.Unlock()
	l, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			go c.end(l)
		}
	}()
	if hello == nil { // the client has not been introduced itself
		return l, nil
	}
	if hello.Method != string(mcp.MethodInitialize) {
		l.SetProtocolVersion(version)
	}
	answer, err := c.ask(ctx, l, *hello)
	if err != nil {
		return nil, err
	}
	versions := versionsIn(answer)
	for _, v := range said { // the server may have learned others
		if !slices.Contains(versions, v) {
			return nil, fmt.Errorf("mcpgocircuit: the new session has protocol versions %q, want %q", versions, said)
		}
	}
	l.SetProtocolVersion(version)
	if hello.Method == string(mcp.MethodInitialize) {
		ready := mcp.JSONRPCNotification{JSONRPC: mcp.JSONRPC_VERSION, Notification: mcp.Notification{Method: string(mcp.MethodNotificationInitialized)}}
		if err := l.SendNotification(ctx, ready); err != nil {
			return nil, err
		}
	}
	for _, req := range c.standing.All(gen) {
		req.ID = c.id()
		if _, err := l.SendRequest(ctx, req); err != nil { // what the server refuses by now is left out
			return nil, err
		}
	}
	c.listChanged() // which may be another by now
	return l, nil
}

// ask sends a request of the client's again and returns the result.
func (c *Conn) ask(ctx context.Context, l link, req transport.JSONRPCRequest) (json.RawMessage, error) {
	req.ID = c.id()
	res, err := l.SendRequest(ctx, req)
	switch {
	case err != nil:
		return nil, err
	case res.Error != nil:
		return nil, res.Error.AsError()
	}
	return res.Result, nil
}

// versionsIn returns what the answer to a handshake says of versions: the one that the session has,
// or all that the server has.
func versionsIn(result json.RawMessage) []string {
	var answer struct {
		Version  string   `json:"protocolVersion"`
		Versions []string `json:"supportedVersions"`
	}
	_ = json.Unmarshal(result, &answer)
	return append(answer.Versions, answer.Version)
}
