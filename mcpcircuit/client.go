package mcpcircuit

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	shared "github.com/toolcircuit/toolcircuit/internal/mcp"
)

// exchange is one request of a client.
type exchange struct {
	*Guard
	shared.Exchange[*mcp.ClientSession, mcp.Result]
	session *session // that the host called on
	req     mcp.Request
}

// send handles a request that a client sends.
func (g *Guard) send(ctx context.Context, host *mcp.ClientSession, r *receiver, next mcp.MethodHandler, method string, req mcp.Request) (mcp.Result, error) {
	server := g.servers.Get(g.Options.Server(host))
	x := exchange{Guard: g, session: g.sessions.of(host, r), req: req}
	on := func(s *mcp.ClientSession) *mcp.ClientSession {
		if s == nil {
			return host
		}
		return s
	}
	x.Exchange = shared.Exchange[*mcp.ClientSession, mcp.Result]{
		Set:     g.set,
		Servers: &g.servers,
		Server:  server,
		Line:    x.session.line,
		Missing: mcp.ErrSessionMissing,
		Base:    g.base,
		Send: func(ctx context.Context, s *mcp.ClientSession) (mcp.Result, error) {
			if on(s) != host {
				return next(ctx, method, &mcp.ClientRequest[mcp.Params]{Session: s, Params: req.GetParams()})
			}
			return next(ctx, method, req)
		},
		Ping: func(ctx context.Context, s *mcp.ClientSession) error {
			_, err := next(ctx, shared.Ping, &mcp.ClientRequest[mcp.Params]{Session: on(s)})
			return err
		},
		Signs: func(err error) shared.Signs {
			s := signs(err)
			s.Ended = s.Ended && !x.session.unpinged.Load()
			return s
		},
	}
	if method == shared.CallTool || method == shared.ListTools {
		x.Shield = shared.ShieldCall
	}
	if p, _ := req.GetParams().(*mcp.CallToolParams); p != nil && method == shared.CallTool {
		if tool := x.name(p.Name); g.set.Guards(tool) {
			x.Circuit = server.Circuit(ctx, g.set)
			return resultOf(x.Call(ctx, tool, p.Arguments, judged))
		}
	}
	switch {
	case method == shared.ListTools:
		x.Circuit = server.Circuit(ctx, g.set)
		return x.list(ctx)
	case method == shared.Ping:
		res, err := x.once(ctx)
		x.session.unpinged.Store(err != nil)
		return res, err
	case host.InitializeResult() == nil, strings.HasPrefix(method, "notifications/"):
		return x.once(ctx)
	}
	return x.Forward(ctx, func(_ mcp.Result, gen int) bool {
		return x.session.standing.Note(gen, method, uriIn(req.GetParams()), req.GetParams())
	})
}

// once sends a request that belongs to its session, dead or not, as it is.
func (x *exchange) once(ctx context.Context) (mcp.Result, error) {
	h := new(shared.Hint)
	s, gen, _ := x.Line.Now()
	res, err := x.Send(shared.WithHint(ctx, h), s)
	x.Line.Note(gen, h)
	if err != nil {
		err = h.Read(ctx, err, signs(err)).Err
	}
	return res, err
}

// name returns the Set's name of a tool of the server, "" if the tool cannot be guarded.
func (x *exchange) name(tool string) string {
	return shared.ToolName(x.Name(x.Exchange.Server.Name, tool))
}

// codeRejected is the code of the SDK's own error for a request that its transport could not
// deliver.
const codeRejected = -32005

// gone are the errors of a connection that has ended, also where they wrap others.
var gone = []error{mcp.ErrConnectionClosed, mcp.ErrSessionMissing, io.EOF, io.ErrClosedPipe, fs.ErrClosed, syscall.EPIPE}

// signs returns what an error of the SDK says by itself.
func signs(err error) (s shared.Signs) {
	var answer *jsonrpc.Error
	if errors.As(err, &answer) {
		s.Rejected = answer.Code == codeRejected
		s.Answer = !s.Rejected
	}
	s.Unsent = errors.Is(err, mcp.ErrConnectionClosed)                          // which the SDK finds before it writes
	s.Ended = s.Unsent && strings.HasSuffix(err.Error(), ": client is closing") // a cause would follow
	for _, target := range gone {
		s.Closed = s.Closed || errors.Is(err, target)
	}
	return s
}
