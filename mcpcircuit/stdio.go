package mcpcircuit

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	shared "github.com/toolcircuit/toolcircuit/internal/mcp"
)

// Stdio returns t for a client whose server reads from a pipe, such as an [mcp.CommandTransport].
// The SDK writes to the pipe under a lock and without a deadline. A server that stops reading would
// hold up every call after the pipe is full. With Stdio each call ends with its context. A message
// that still waited for its turn was not sent. A message that was begun may be delivered later, when
// the server reads on. A nil t panics.
func Stdio(t mcp.Transport) mcp.Transport {
	if t == nil {
		panic("mcpcircuit: Stdio: t is nil")
	}
	return stdio{t}
}

type stdio struct{ mcp.Transport }

func (t stdio) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &pipe{conn, shared.NewWriter()}, nil
}

type pipe struct {
	mcp.Connection
	writer *shared.Writer
}

func (p *pipe) Write(ctx context.Context, msg jsonrpc.Message) error {
	return p.writer.Do(ctx, mcp.ErrConnectionClosed, func(func()) error {
		return p.Connection.Write(context.WithoutCancel(ctx), msg)
	})
}

func (p *pipe) Close() error {
	p.writer.Close()
	return p.Connection.Close()
}
