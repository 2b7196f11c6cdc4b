// Package toolcircuit puts a circuit breaker around each tool of an AI agent. When the dependency
// behind a tool is down, the next call is refused before it has any effect. The model reads a
// small value that says so, until when, and what to do instead.
//
//	search := toolcircuit.MustNew("search-api", toolcircuit.Options{})
//	tool := toolcircuit.WrapResult(search, webSearch) // func(ctx, Query) (Result[Hits], error)
//
// By default errors.New("x") opens nothing. The type and the code of an error decide what counts,
// never its text, and an error that no rule knows may be the caller's mistake. So return the error
// of the client library, wrapped as you like. The rules know
//
//   - the errors of net/http (HTTP/2 too), net, crypto/tls, syscall, context and
//     database/sql/driver
//   - those errors of net/http that have no type, if the client uses [Transport]
//   - the errors of SDKs by their shape: an HTTP status with its headers, a gRPC code, an
//     SQLSTATE, AWS's throttling codes, mongo's labels
//
// For other errors mark what you return with [Fault] or [Invalid], give Options a [Classifier], or
// set Policy.CountUnknown. [Classify] lists the rules. Snapshot.Unclassified counts the errors
// that none of them knew.
//
// A circuit never runs a call twice. To retry, put the retry loop around the circuit and end it
// when [Retryable] reports false.
package toolcircuit

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/benbjohnson/clock"

	"github.com/toolcircuit/toolcircuit/internal/errtree"
	"github.com/toolcircuit/toolcircuit/internal/hook"
)

// Options are the options of a circuit. The zero value is usable. New copies it.
type Options struct {
	// Policy says when the circuit opens and closes. Zero: the default of each field.
	Policy Policy
	// Classify judges each outcome before the default rules do. Nil: the rules alone. The rules
	// decide what it has no opinion on. It is not asked
	//
	//   - about a call that did not return or came back after CallTimeout
	//   - about an error after the caller's context has ended
	//   - about the refusal of a circuit
	//   - about an error marked with [Invalid], [Fault], [Benign], [Duplicate] or [RetryAfter]
	//     above any branching
	//   - about a blocked, failed or fallback [Result]
	//
	// A panic or runtime.Goexit in it makes the call a failure of kind panic. Goexit also ends the
	// caller's goroutine.
	Classify Classifier
	// Clock tells the time. Nil: the real clock.
	Clock clock.Clock
	// Seed varies Policy.Jitter. Zero: a random number for this circuit.
	Seed uint64
	// OnEvent is called with each event of the circuit: in order, one at a time, after the new
	// state is visible, with no lock held. Its context has the values of the call that caused the
	// event, and never ends. OnEvent may use the circuit. A blocked OnEvent delays later events
	// and the delivering call, no other call. A panic in it is counted in Snapshot.HookPanics.
	OnEvent func(context.Context, Event)
	// OnCall is called once for each call, refused ones too, in the call's own goroutine: in no
	// order and concurrently. Its context is the one that the call was made or settled with. A
	// released permit is not reported. OnCall may use the circuit. A panic in it is counted in
	// Snapshot.HookPanics.
	OnCall func(context.Context, Call)
	// Tool is what a model reads about the circuit. WithTool returns a view with another.
	Tool Tool
}

// ToolCircuit is one tool's view of the circuit of its dependency. Make one with New. WithTool
// gives further views, which share the state. A ToolCircuit owns no goroutine and no timer, so it
// needs no Close. All methods are safe for concurrent use.
type ToolCircuit struct {
	*circuit
	tool *Tool // never nil, never changed
}

// circuit is what all views share.
type circuit struct {
	*settings
	dependency string
	view       ToolCircuit           // the first view, here to save an allocation
	state      atomic.Pointer[state] // never nil

	mu      sync.Mutex             // held for one step at a time, never while user code runs
	out     *outbox                // made for the first event
	changed chan struct{}          // made by the first who waits, closed by the next change
	member  atomic.Pointer[member] // nil: in no Fleet

	unclassified, stale, hookPanics, hints atomic.Uint64
}

// settings are what a circuit and its twins share.
type settings struct {
	classify Classifier
	clock    clock.Clock
	injected bool // clock came from Options
	seed     uint64
	onEvent  func(context.Context, Event)
	untimed  bool // onEvent does not read Elapsed
	onCall   func(context.Context, Call)
}

func init() {
	hook.Untimed = func(c any) { c.(*ToolCircuit).untimed = true }
	hook.Closed = func(f any) bool { return f.(*Fleet).isClosed() }
	hook.Timed = func(e, c any) { e.(*OpenError).clock = c.(*ToolCircuit).clock }
}

// New returns a closed circuit for a dependency. The name must not be empty. New copies and checks
// Options. Its error names the field, its value and what it should be.
func New(dependency string, o Options) (*ToolCircuit, error) {
	if dependency == "" {
		return nil, errors.New("toolcircuit: New: dependency is empty")
	}
	if err := o.Policy.Validate(); err != nil {
		return nil, err
	}
	if err := o.Tool.validate(); err != nil {
		return nil, fmt.Errorf("toolcircuit: Options.%w", err)
	}
	st := &settings{
		classify: o.Classify,
		clock:    o.Clock,
		injected: o.Clock != nil,
		seed:     o.Seed,
		onEvent:  o.OnEvent,
		onCall:   o.OnCall,
	}
	switch {
	case !st.injected:
		st.clock = clock.New()
	case errtree.IsNil(st.clock):
		return nil, fmt.Errorf("toolcircuit: Options.Clock: got a nil %T, want a clock, or no value for the real one", o.Clock)
	}
	for st.seed == 0 {
		st.seed = rand.Uint64()
	}
	return st.newCircuit(dependency, st.newRules(o.Policy), o.Tool.clone()), nil
}

// MustNew is New for package variables: it panics with New's error.
func MustNew(dependency string, o Options) *ToolCircuit {
	c, err := New(dependency, o)
	if err != nil {
		panic(err)
	}
	return c
}

func (st *settings) newCircuit(dependency string, r *rules, t *Tool) *ToolCircuit {
	c := &circuit{settings: st, dependency: dependency}
	first := r.first
	if w := first.newWindow(first.since); w != nil { // circuits never share a window
		own := *first
		own.window = w
		first = own.publish(0, "", nil)
	}
	c.state.Store(first)
	c.view = ToolCircuit{c, t}
	return &c.view
}

// Twin returns a new closed circuit for another dependency, with c's Tool, hooks, clock and
// current policy. The two share these in memory, so a twin is small. A later SetPolicy on one does
// not change the other. An empty dependency panics.
func (c *ToolCircuit) Twin(dependency string) *ToolCircuit {
	if dependency == "" {
		panic("toolcircuit: Twin: dependency is empty")
	}
	return c.made().newCircuit(dependency, c.state.Load().rules, c.tool)
}

// WithTool returns the same circuit as another tool sees it. It panics if an alternative is empty
// or t's own name, and if an action is unknown.
func (c *ToolCircuit) WithTool(t Tool) *ToolCircuit {
	if err := t.validate(); err != nil {
		panic("toolcircuit: WithTool: " + err.Error())
	}
	return &ToolCircuit{c.made(), t.clone()}
}

// Do runs op unless the circuit refuses, records the outcome, and returns what op returned. An
// error that comes after CallTimeout is returned inside a [*CallTimeoutError].
//
// A refusal is an [*OpenError], which Is [ErrCircuitOpen]: op has not run and will not. If ctx has
// already ended, Do returns its error and op does not run. op runs at most once, in the caller's
// goroutine, with no lock held. A panic or runtime.Goexit of op passes through to the caller and
// counts as a failure of kind panic. A nil argument panics.
//
// A tool may call another tool of its own dependency. While op is the probe, a call of the same
// circuit with op's context runs as a part of the probe, also if its tool has SideEffects. It is
// judged and reported to OnCall, but never recorded: the probe alone decides. This ends when the
// probe loses its slot.
func Do[T any](ctx context.Context, c *ToolCircuit, op func(context.Context) (T, error)) (T, error) {
	value, _, err := do(ctx, c, op)
	return value, err
}

// DoResult is [Do] for a caller that is a model. A refusal becomes a blocked [Result], a failure a
// failed one. These stay errors, because they belong to the runtime: the kinds canceled, deadline
// and interrupt, and the error of a ctx that had ended before. Panics pass through.
func DoResult[T any](ctx context.Context, c *ToolCircuit, op func(context.Context) (T, error)) (Result[T], error) {
	value, v, err := do(ctx, c, op)
	return ResultOf(c, value, v, err)
}

// Wrap returns tool with [Do] around each call. A nil argument panics.
func Wrap[In, Out any](c *ToolCircuit, tool func(context.Context, In) (Out, error)) func(context.Context, In) (Out, error) {
	c.mustHaveTool("Wrap", tool == nil)
	return func(ctx context.Context, in In) (Out, error) {
		return Do(ctx, c, func(ctx context.Context) (Out, error) { return tool(ctx, in) })
	}
}

// WrapResult returns tool with [DoResult] around each call. A nil argument panics.
func WrapResult[In, Out any](c *ToolCircuit, tool func(context.Context, In) (Out, error)) func(context.Context, In) (Result[Out], error) {
	c.mustHaveTool("WrapResult", tool == nil)
	return func(ctx context.Context, in In) (Result[Out], error) {
		return DoResult(ctx, c, func(ctx context.Context) (Out, error) { return tool(ctx, in) })
	}
}

// do is Do with the verdict, which is zero if op did not run. For a healthy call of a plain state
// without a window this function is all: no lock, no clock and no write.
func do[T any](ctx context.Context, c *ToolCircuit, op func(context.Context) (T, error)) (T, Verdict, error) {
	c.mustHave(ctx)
	s := c.state.Load()
	if !s.plain || op == nil || ctx.Err() != nil {
		return doInFull(ctx, c, op)
	}
	value, err := runPlain(ctx, c, s, op)
	if err == nil && c.state.Load() == s && s.window == nil {
		if _, ok := any(value).(Judged); !ok {
			return value, Verdict{Effect: EffectHeal, Kind: KindOK}, nil
		}
	}
	v, err := settlePlain(ctx, c, s, value, err)
	return value, v, err
}

// runPlain runs op as a call that the plain state s admitted. If op does not return, runPlain
// settles the call.
func runPlain[T any](ctx context.Context, c *ToolCircuit, s *state, op func(context.Context) (T, error)) (T, error) {
	returned := false
	defer func() {
		if !returned {
			settlePlain(ctx, c, s, any(nil), ErrNoReturn)
		}
	}()
	value, err := op(ctx)
	returned = true
	return value, err
}

// settlePlain settles a call that the plain state by admitted.
func settlePlain[T any](ctx context.Context, c *ToolCircuit, by *state, value T, err error) (Verdict, error) {
	if _, ok := any(value).(Judged); !ok && err == nil && c.state.Load() == by {
		by.count(c.clock)
		return Verdict{Effect: EffectHeal, Kind: KindOK}, nil
	}
	p := Permit{c: c, by: by, details: new(details)} // here, so that they stay on the stack
	return p.Settle(ctx, value, err)
}

// doInFull is do for a state that is not plain, a nil op and a ctx that has ended.
func doInFull[T any](ctx context.Context, c *ToolCircuit, op func(context.Context) (T, error)) (value T, v Verdict, err error) {
	if op == nil {
		panic("toolcircuit: Do: op is nil")
	}
	by, err := c.enter(ctx)
	if err != nil {
		return value, v, err
	}
	p := Permit{c: c, by: by, details: new(details)} // here, so that they stay on the stack
	p.begin()
	return run(ctx, &p, op)
}

// run runs op under a permit.
func run[T any](ctx context.Context, p *Permit, op func(context.Context) (T, error)) (value T, v Verdict, err error) {
	defer p.Release() // in case the caller's context ends the goroutine before op begins
	inner := p.Context(ctx)
	err = ErrNoReturn
	defer func() {
		var seen any
		if _, ok := any(value).(Judged); ok || p.c.classify != nil {
			seen = value
		}
		v, err = p.Settle(ctx, seen, err)
	}()
	value, err = op(inner)
	return
}

// salt returns a number for the jitter of this circuit. It differs between twins and between the
// workers of a Fleet.
func (c *circuit) salt() uint64 {
	h := fnv.New64a()
	h.Write([]byte(c.dependency))
	salt := h.Sum64() ^ c.seed
	if m := c.member.Load(); m != nil {
		salt ^= m.fleet.id
	}
	return salt
}

// made returns the circuit. It panics if there is none.
func (c *ToolCircuit) made() *circuit {
	if c == nil || c.circuit == nil {
		panic("toolcircuit: the circuit is nil; make one with New")
	}
	return c.circuit
}

// mustHave panics if the circuit or ctx is nil.
func (c *ToolCircuit) mustHave(ctx context.Context) {
	c.made()
	if ctx == nil {
		panic("toolcircuit: ctx is nil")
	}
}

// mustHaveTool panics if the circuit or the tool is nil.
func (c *ToolCircuit) mustHaveTool(caller string, isNil bool) {
	c.made()
	if isNil {
		panic("toolcircuit: " + caller + ": tool is nil")
	}
}

// Dependency returns the name that the circuit was made with.
func (c *ToolCircuit) Dependency() string { return c.made().dependency }
