package mcpcircuit

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// server is what the guard of a client remembers of a server.
type server struct {
	name    string
	answers atomic.Uint64 // so far

	mu    sync.Mutex
	pages map[string]*mcp.ListToolsResult // of the last listing, by cursor
}

// servers are known by name, those without one as if they were one server.
type servers struct{ sync.Map }

func (s *servers) get(name string) *server {
	if known, ok := s.Load(name); ok {
		return known.(*server)
	}
	known, _ := s.LoadOrStore(name, &server{name: name})
	return known.(*server)
}

// circuit returns the server's circuit, nil if the Set does not guard it.
func (s *server) circuit(ctx context.Context, set *toolset.Set) *toolcircuit.ToolCircuit {
	if s.name == "" {
		return nil
	}
	return set.Circuit(ctx, "mcp:"+s.name)
}

// exchange is one request of a client and what became of it.
type exchange struct {
	*guard
	session *mcp.ClientSession // that the host called on
	server  *server
	circuit *toolcircuit.ToolCircuit // the server's, nil if it is not guarded
	next    mcp.MethodHandler
	method  string
	req     mcp.Request
}

// name returns the Set's name of a tool of the server.
func (x *exchange) name(tool string) string { return x.Name(x.server.name, tool) }

// forward sends the request, on the session that lives. lost is how it fared as far as the
// server is concerned: nil if that answered, be it with an error.
func (x *exchange) forward(ctx context.Context) (res mcp.Result, lost, err error) {
	req := x.req
	if live := x.sessions.live(x.session); live != x.session {
		req = &mcp.ClientRequest[mcp.Params]{Session: live, Params: req.GetParams()}
	}
	return dispatch(ctx, x.next, x.method, req)
}

func dispatch(ctx context.Context, next mcp.MethodHandler, method string, req mcp.Request) (res mcp.Result, lost, err error) {
	h := new(hint)
	res, err = next(withHint(ctx, h), method, req)
	if err != nil {
		if lost = h.lost(err); lost != nil {
			err = lost
		}
	}
	return res, lost, err
}

// call makes a guarded call of a tool.
func (x *exchange) call(ctx context.Context, tool string, args any) (mcp.Result, error) {
	circuit := x.set.Circuit(ctx, tool)
	if circuit != nil && x.circuit != nil && circuit.Dependency() == x.circuit.Dependency() {
		x.circuit = nil // the two levels are one: asked twice, it would never let its probe through
	}
	permit, err := x.set.Allow(ctx, tool, args)
	if err != nil {
		return x.blocked(ctx, tool, nil, err)
	}
	defer permit.Release()
	entry, err := x.enter(ctx)
	if err != nil {
		return x.blocked(ctx, tool, x.circuit, err)
	}
	defer entry.Release()

	inner, cancel := withTimeout(ctx, circuit)
	defer cancel()
	before := x.server.answers.Load()
	res, lost, err := x.forward(inner)
	kind := x.settle(ctx, &entry, before, lost)
	switch {
	case lost == nil:
		value, seen := judged(res, err)
		permit.Settle(ctx, value, seen)
	case x.circuit == nil, kind == toolcircuit.KindTimeout, kind == toolcircuit.KindDeadline, kind == toolcircuit.KindUnknown:
		permit.Settle(ctx, nil, lost)
	}
	return res, err
}

// settle records at the server's level how a request fared that was sent after so many
// answers. A timeout says nothing if the server has answered others since: one tool that hangs
// must not lock its siblings out.
func (x *exchange) settle(ctx context.Context, entry *toolcircuit.Permit, before uint64, lost error) toolcircuit.Kind {
	if lost == nil {
		x.server.answers.Add(1)
	}
	kind := toolcircuit.Classify(ctx, toolcircuit.Outcome{Err: lost}).Kind
	timeout := kind == toolcircuit.KindTimeout || kind == toolcircuit.KindDeadline
	if timeout && x.server.answers.Load() != before {
		entry.Release()
	} else {
		entry.Settle(ctx, nil, lost)
	}
	return kind
}

// enter asks the server's circuit for a permit to call that is no probe. Where a probe is due,
// it makes one, and asks again.
func (x *exchange) enter(ctx context.Context) (entry toolcircuit.Permit, err error) {
	if x.circuit == nil {
		return
	}
	for {
		entry, err = x.circuit.Allow(ctx)
		if err != nil || !entry.Probe() {
			return
		}
		err = x.probe(ctx, &entry)
		if errors.Is(err, toolcircuit.ErrCircuitOpen) { // of a circuit around Reconnect
			return
		}
	}
}

// probe finds out whether the server is back.
func (x *exchange) probe(ctx context.Context, permit *toolcircuit.Permit) error {
	defer permit.Release()
	p := x.circuit.Policy()
	inner, cancel := context.WithTimeout(ctx, cmp.Or(p.CallTimeout, p.ProbeTimeout))
	defer cancel()
	err := toolcircuit.Fault(x.ping(inner))
	permit.Settle(ctx, nil, err)
	return err
}

func (x *exchange) ping(ctx context.Context) error {
	session := x.sessions.live(x.session)
	if x.Reconnect != nil {
		heir, err := x.Reconnect(withHint(ctx, nil), session)
		if err != nil {
			return err
		}
		if heir != nil && heir != session {
			x.sessions.replace(session, heir)
			session = heir
		}
	}
	_, lost, _ := dispatch(ctx, x.next, ping, &mcp.ClientRequest[mcp.Params]{Session: session})
	return lost
}
