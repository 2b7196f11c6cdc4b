package mcpcircuit

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// server is what the guard of a client remembers of a server.
type server struct {
	name    string
	answers atomic.Uint64 // so far
}

// servers are known by name, those without one as if they were one server.
type servers struct {
	named sync.Map // of *server

	mu    sync.RWMutex
	homes map[string]*server // where a tool was called or listed last, no more than maxHomes
}

const maxHomes = 10_000

func (s *servers) get(name string) *server {
	if known, ok := s.named.Load(name); ok {
		return known.(*server)
	}
	known, _ := s.named.LoadOrStore(name, &server{name: name})
	return known.(*server)
}

// home returns the server that a tool was last seen at, nil if nobody saw it.
func (s *servers) home(tool string) *server {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.homes[tool]
}

// saw takes in that a server was seen with a tool.
func (s *servers) saw(tool string, at *server) {
	if s.home(tool) == at {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.homes == nil {
		s.homes = make(map[string]*server)
	}
	put(s.homes, tool, at, maxHomes)
}

// put puts a value into a map, if that is full in the place of another.
func put[K comparable, V any](m map[K]V, key K, value V, limit int) {
	if _, ok := m[key]; !ok && len(m) >= limit {
		for other := range m {
			delete(m, other)
			break
		}
	}
	m[key] = value
}

// circuit returns the server's circuit, nil if the Set does not guard it.
func (s *server) circuit(ctx context.Context, set *toolset.Set) *toolcircuit.ToolCircuit {
	if s.name == "" {
		return nil
	}
	return set.Circuit(ctx, prefix+s.name)
}

// exchange is one request of a client and what became of it.
type exchange struct {
	*guard
	session *mcp.ClientSession // that the host called on
	server  *server
	circuit *toolcircuit.ToolCircuit // the server's, nil if it is not guarded
	timeout time.Duration            // of the request, 0 if it has none
	next    mcp.MethodHandler
	method  string
	req     mcp.Request
}

// name returns the Set's name of a tool of the server, "" if the tool cannot be guarded.
func (x *exchange) name(tool string) string { return toolName(x.Name(x.server.name, tool)) }

// elsewhere returns those of tools that are not known to be at this server, nor at another one
// that is down.
func (x *exchange) elsewhere(ctx context.Context, tools []string) []string {
	return slices.DeleteFunc(slices.Clone(tools), func(tool string) bool {
		switch home := x.servers.home(tool); home {
		case nil:
			return false
		case x.server:
			return true
		default:
			c := home.circuit(ctx, x.set)
			return c != nil && !c.Ready()
		}
	})
}

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
	x.servers.saw(tool, x.server)
	permit, err := x.set.Allow(ctx, tool, args)
	if err != nil {
		return blocked(toolset.ResultOf[any](ctx, x.set, tool, nil, toolcircuit.Verdict{}, err))
	}
	defer permit.Release()
	x.timeout = callTimeout(circuit)
	entry, err := x.enter(ctx)
	if err != nil {
		return blocked(x.refused(ctx, tool, err))
	}
	defer entry.Release()

	inner, cancel := withTimeout(ctx, x.timeout)
	defer cancel()
	before := x.server.answers.Load()
	res, lost, err := x.forward(inner)
	kind := x.settle(ctx, &entry, before, lost).Kind
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
// answers, and returns what the rules say of it.
func (x *exchange) settle(ctx context.Context, entry *toolset.Permit, before uint64, lost error) toolcircuit.Verdict {
	if lost == nil {
		x.server.answers.Add(1)
	}
	v := toolcircuit.Classify(ctx, toolcircuit.Outcome{Err: lost})
	timeout := v.Kind == toolcircuit.KindTimeout || v.Kind == toolcircuit.KindDeadline
	switch {
	case timeout && x.alive(ctx, before):
		entry.Release()
	case errors.Is(lost, mcp.ErrSessionMissing) && x.Reconnect != nil:
		// No other call on that session can do better: the next one is to reconnect.
		lost = &transportError{lost, io.ErrUnexpectedEOF} // which is unavailable
		entry.Settle(ctx, nil, toolcircuit.RetryAfter(lost, time.Millisecond))
	default:
		entry.Settle(ctx, nil, lost)
	}
	return v
}

// alive reports whether the server has answered others since, or answers a ping. Then a timeout
// says nothing of it: one tool that hangs must not lock its siblings out.
func (x *exchange) alive(ctx context.Context, before uint64) bool {
	if x.circuit != nil && x.server.answers.Load() == before {
		inner, cancel := x.pingTimeout(ctx)
		defer cancel()
		if x.ping(inner) == nil {
			x.server.answers.Add(1)
		}
	}
	return x.server.answers.Load() != before
}

// enter asks the server's circuit for a permit to call that is no probe. Where a probe is due,
// it makes one, and asks again.
func (x *exchange) enter(ctx context.Context) (entry toolset.Permit, err error) {
	if x.circuit == nil {
		return
	}
	outside := toolset.WithSession(ctx, nil) // which counts the call already
	for {
		entry, err = x.set.Allow(outside, prefix+x.server.name, toolset.Unknown)
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
func (x *exchange) probe(ctx context.Context, permit *toolset.Permit) (err error) {
	err = toolcircuit.ErrNoReturn
	defer func() { permit.Settle(ctx, nil, err) }()
	inner, cancel := x.pingTimeout(ctx)
	defer cancel()
	if err = x.reconnect(inner); err == nil {
		err = x.ping(inner)
	}
	err = toolcircuit.Fault(err)
	return err
}

// pingTimeout bounds a ping: its caller waits for it no longer than for an answer.
func (x *exchange) pingTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	p := x.circuit.Snapshot().Policy
	d := cmp.Or(p.CallTimeout, p.ProbeTimeout)
	return context.WithTimeout(ctx, min(d, cmp.Or(x.timeout, d)))
}

// reconnect lets the host put a new session in the place of a dead one.
func (x *exchange) reconnect(ctx context.Context) error {
	if x.Reconnect == nil {
		return nil
	}
	session := x.sessions.live(x.session)
	heir, err := x.Reconnect(withHint(ctx, nil), session)
	if err == nil && heir != nil && heir != session {
		x.sessions.replace(session, heir)
	}
	return err
}

// ping returns nil if the server answers, be it with an error.
func (x *exchange) ping(ctx context.Context) error {
	req := &mcp.ClientRequest[mcp.Params]{Session: x.sessions.live(x.session)}
	_, lost, _ := dispatch(ctx, x.next, ping, req)
	return lost
}
