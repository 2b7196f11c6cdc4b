package mcpgocircuit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	shared "github.com/toolcircuit/toolcircuit/internal/mcp"
)

// Stdio is the transport of a client whose server is a process that the transport starts. Make one
// with [Guard.Stdio]. All methods are safe for concurrent use.
type Stdio struct{ *Conn }

// Stdio returns the transport of a client of the named server. command returns the command that
// starts the server, with neither Stdin nor Stdout set. What the server writes to stderr is dropped,
// except if the command has a Stderr. command is called again when the next request finds that the
// server has ended, from one goroutine at a time, except that a call which has not returned within
// ReconnectTimeout has failed: others are made beside it, and what it returns at last is not used. A
// nil command panics.
//
// A request ends with its context, also when the server has stopped reading and its pipe is full. A
// message that still waited for its turn was not sent. A message that was begun may be delivered
// later, when the server reads on.
//
// Close ends the process by the end of its input, two seconds later by SIGTERM, and two seconds after
// that by SIGKILL.
func (g *Guard) Stdio(server string, command func() (*exec.Cmd, error)) *Stdio {
	g.check("Stdio", "command", command == nil)
	c := g.newConn(server, func() (link, error) {
		cmd, err := command()
		if err != nil {
			return nil, err
		}
		if cmd == nil {
			return nil, errors.New("mcpgocircuit: command returned no command")
		}
		return newProcess(cmd), nil
	})
	c.tracked = true
	return &Stdio{c}
}

// process is a session with a process.
type process struct {
	*transport.Stdio
	cmd    *exec.Cmd
	stdin  io.WriteCloser // from Start on
	stdout io.ReadCloser
	writer *shared.Writer
	eof    chan struct{} // closed when the process writes no more
	leave  chan struct{} // closed by Close
	ended  chan struct{} // closed when it has ended after either
	once   sync.Once

	mu      sync.Mutex
	written func() // ends the turn of the message that is being written
	gone    func() // nil once it was called
}

func newProcess(cmd *exec.Cmd) *process {
	p := &process{cmd: cmd, writer: shared.NewWriter(), eof: make(chan struct{}), leave: make(chan struct{}), ended: make(chan struct{})}
	p.Stdio = transport.NewIO(output{p}, input{p}, nil)
	return p
}

// input is what the process reads, output what it writes.
type (
	input  struct{ p *process }
	output struct{ p *process }
)

func (w input) Close() error { return w.p.stdin.Close() }

// Write writes a message. Its end is that of the turn.
func (w input) Write(b []byte) (int, error) {
	n, err := w.p.stdin.Write(b)
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
	n, err := r.p.stdout.Read(b)
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
func (p *process) Start(ctx context.Context) (err error) {
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if p.stdout, err = p.cmd.StdoutPipe(); err != nil {
		return err
	}
	p.cmd.WaitDelay = cmp.Or(p.cmd.WaitDelay, patience) // a child of the process may keep its stderr open
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(p.ended)
		select { // for Wait closes the pipe
		case <-p.eof:
		case <-p.leave:
		}
		p.cmd.Wait()
	}()
	return p.Stdio.Start(ctx)
}

// errEnded is the error of a request that came when the process was known to have ended.
var errEnded = fmt.Errorf("mcpgocircuit: the server has ended: %w", transport.ErrTransportClosed)

// SendRequest sends a request in its turn and waits for the answer, no longer than ctx.
func (p *process) SendRequest(ctx context.Context, req transport.JSONRPCRequest) (*transport.JSONRPCResponse, error) {
	select {
	case <-p.eof:
		return nil, errEnded
	default:
	}
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

// patience is how long a process has for each step of its end.
const patience = 2 * time.Second

// Close ends the process: by the end of its input, then by SIGTERM, then by SIGKILL.
func (p *process) Close() (err error) {
	p.once.Do(func() {
		p.writer.Close()
		if p.cmd.Process == nil { // it was not started
			return
		}
		if err = p.Stdio.Close(); errors.Is(err, fs.ErrClosed) { // it has ended by itself
			err = nil
		}
		close(p.leave)
		go io.Copy(io.Discard, output{p}) // so that the process can write to its end
		for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGKILL, nil} {
			select {
			case <-p.ended:
				return
			case <-time.After(patience):
			}
			if signal != nil {
				_ = p.cmd.Process.Signal(signal)
			}
		}
	})
	return err
}
