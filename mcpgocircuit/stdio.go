package mcpgocircuit

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	shared "github.com/toolcircuit/toolcircuit/internal/mcp"
)

// Stdio is the transport of a client whose server is a process that it starts. Make one with
// [Guard.Stdio].
type Stdio struct{ *Conn }

// Stdio returns the transport of a client with a server, which it knows by name and starts as
// command says. command returns a command that has not been started, without Stdin and Stdout; what
// the server writes to stderr is dropped unless the command has a Stderr. It is called from one
// goroutine at a time.
//
// A server that dies is started again by the next request. A request ends with its context also
// when the server has stopped reading and its pipe is full: a message that waited for others was
// not sent, and one that was begun may still be delivered when the server reads on.
func (g *Guard) Stdio(server string, command func() (*exec.Cmd, error)) *Stdio {
	if command == nil {
		panic("mcpgocircuit: Guard.Stdio: command is nil")
	}
	return &Stdio{g.newConn(server, func() (link, error) {
		cmd, err := command()
		if err != nil {
			return nil, err
		}
		if cmd == nil {
			return nil, errors.New("mcpgocircuit: command returned no command")
		}
		return newProcess(cmd)
	})}
}

// process is a session with a process.
type process struct {
	*transport.Stdio
	cmd    *exec.Cmd
	stdout io.Closer
	writer *shared.Writer
	eof    chan struct{} // closed when the process writes no more
	ended  chan struct{} // closed when it has ended after that
	once   sync.Once

	mu      sync.Mutex
	written func() // ends the turn of the message that is being written
	gone    func() // nil once it was called
}

func newProcess(cmd *exec.Cmd) (*process, error) {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, stdout: stdout, writer: shared.NewWriter(), eof: make(chan struct{}), ended: make(chan struct{})}
	p.Stdio = transport.NewIO(output{stdout, p}, input{stdin, p}, nil)
	return p, nil
}

// input is the process's, output what it writes.
type (
	input struct {
		io.WriteCloser
		p *process
	}
	output struct {
		io.Reader
		p *process
	}
)

// Write writes a message. Its end is that of the turn.
func (w input) Write(b []byte) (int, error) {
	n, err := w.WriteCloser.Write(b)
	w.p.mu.Lock()
	written := w.p.written
	w.p.written = nil
	w.p.mu.Unlock()
	if err == nil && written != nil {
		written()
	}
	return n, err
}

// Read tells when there is no more to come.
func (r output) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if err != nil {
		r.p.mu.Lock()
		gone := r.p.gone
		r.p.gone = nil
		r.p.mu.Unlock()
		if gone != nil {
			gone()
			close(r.p.eof)
		}
	}
	return n, err
}

func (p *process) onGone(gone func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = gone
}

func (p *process) drained() <-chan struct{} { return nil }

// SetProtocolVersion does nothing: only HTTP has a header for it.
func (p *process) SetProtocolVersion(string) {}

// Start starts the process.
func (p *process) Start(ctx context.Context) error {
	if err := p.cmd.Start(); err != nil {
		close(p.ended)
		return err
	}
	go func() {
		defer close(p.ended)
		<-p.eof
		p.cmd.Wait()
	}()
	return p.Stdio.Start(ctx)
}

// SendRequest sends a request in its turn and waits for the answer, no longer than ctx.
func (p *process) SendRequest(ctx context.Context, req transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	res := new(*transport.JSONRPCResponse) // which may be written when the caller has left
	err := p.inTurn(ctx, func() (err error) {
		*res, err = p.Stdio.SendRequest(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return *res, nil
}

// SendNotification sends a notification in its turn.
func (p *process) SendNotification(ctx context.Context, n mcp.JSONRPCNotification) error {
	return p.inTurn(ctx, func() error { return p.Stdio.SendNotification(ctx, n) })
}

func (p *process) inTurn(ctx context.Context, send func() error) error {
	return p.writer.Do(ctx, transport.ErrTransportClosed, func(written func()) error {
		p.mu.Lock()
		p.written = written
		p.mu.Unlock()
		return send()
	})
}

// Close ends the process: by the end of its input, then by SIGTERM, then by SIGKILL.
func (p *process) Close() (err error) {
	p.once.Do(func() {
		p.writer.Close()
		err = p.Stdio.Close()
		for _, end := range []func() error{
			func() error { return p.cmd.Process.Signal(syscall.SIGTERM) },
			p.cmd.Process.Kill,
			p.stdout.Close, // which a child of the process may have kept open
		} {
			select {
			case <-p.ended:
				return
			case <-time.After(2 * time.Second):
			}
			_ = end()
		}
	})
	return err
}
