// Package toolcircuit puts a circuit breaker around each tool of an AI agent. When the
// dependency behind a tool is down, the next call is refused before it has any effect, and
// the model reads a small value that says so, until when, and what to do instead.
//
//	search := toolcircuit.MustNew("search-api", toolcircuit.Options{})
//	tool := toolcircuit.WrapResult(search, webSearch) // func(ctx, Query) (Result[Hits], error)
//
// errors.New("x") opens nothing by default: code and type decide what counts, never the text
// of a message, and an error that no rule knows may be the caller's mistake. Return what the
// client library returned, wrapped as you like. Known are the errors of net/http (HTTP/2 too),
// net, crypto/tls, syscall, context and database/sql/driver, and those of SDKs by their shape:
// an HTTP status with its headers, a gRPC code, an SQLSTATE, AWS's throttling codes, mongo's
// labels. [Transport] makes the errors of net/http known that have no type. Otherwise say what
// you mean with [Fault] or [Invalid], give Options a [Classifier], or set Policy.CountUnknown.
// [Classify] has the rules; Snapshot.Unclassified counts the errors that none of them knew.
//
// A circuit never runs a call twice. Retry asks "once more?", a circuit asks "should this
// dependency get any call now?"; put a retry around the circuit and let [Retryable] end it.
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

	"github.com/toolcircuit/toolcircuit/internal/hook"
)

// Options make a circuit. The zero value is usable; New copies it.
type Options struct {
	// Policy says when the circuit opens and closes. Zero: the default of each field.
	Policy Policy
	// Classify is asked about each outcome before the default rules, which decide what it
	// has no opinion on. It is not asked where the call says for itself what became of it: by
	// [Invalid], [Fault], [Benign], [Duplicate] or [RetryAfter] above any branching of the error, by a
	// refusal or by [ErrNoReturn]. Nil: the rules alone. A panic in it counts as a failure of kind
	// panic; runtime.Goexit in it does, too, and ends the caller's goroutine.
	Classify Classifier
	// Clock tells the time. Nil: the real clock.
	Clock clock.Clock
	// Seed varies Policy.Jitter. Zero: one drawn for this circuit.
	Seed uint64
	// OnEvent hears what the circuit did: in order, one at a time, after the new state can
	// be seen, with no lock held. The context is that of the call that caused the event,
	// without its cancellation. OnEvent may use the circuit; while it blocks, later events
	// wait and calls do not, but for the one that delivers. A panic in it is counted in
	// Snapshot.HookPanics.
	OnEvent func(context.Context, Event)
	// OnCall hears what each call met, once, refused ones too. It runs in the call's own
	// goroutine, so in no order and concurrently. Its context is the caller's, with the span
	// of the call if there is one. A permit that is released was no call. OnCall may use the
	// circuit. A panic in it is counted in Snapshot.HookPanics.
	OnCall func(context.Context, Call)
	// Tool is how the circuit presents itself to a model until WithTool gives another view.
	Tool Tool
}

// ToolCircuit is one tool's view of the circuit of its dependency. Make one with New; WithTool
// gives further views, which share the state. A ToolCircuit owns no goroutine and no timer
// and may be dropped at any time. All methods are safe for concurrent use.
type ToolCircuit struct {
	*circuit
	tool *Tool // never nil, never changed
}

// circuit is what all views share.
type circuit struct {
	*settings
	dependency string
	view       ToolCircuit           // the first one, here to save an allocation
	state      atomic.Pointer[state] // never nil

	mu      sync.Mutex             // held for one step at a time, never while user code runs
	out     *outbox                // made for the first event
	changed chan struct{}          // made by the first sleeper, closed by the next change
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
	hook.Timed = func(e, c any) { e.(*OpenError).clock = c.(*ToolCircuit).clock }
}

// New returns a closed circuit for a dependency, whose name must not be empty. Options are
// copied and checked; an error names the field, what it got and what it wants.
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
	case isNil(st.clock):
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
	if w := first.newWindow(first.since); w != nil { // never shared
		own := *first
		own.window = w
		first = own.publish(0, "", nil)
	}
	c.state.Store(first)
	c.view = ToolCircuit{c, t}
	return &c.view
}

// Twin returns a new closed circuit for another dependency, with c's view, hooks, clock and
// the policy that c has now. The two share these in memory, which makes a twin small; a
// later SetPolicy on one leaves the other. An empty dependency panics.
func (c *ToolCircuit) Twin(dependency string) *ToolCircuit {
	if dependency == "" {
		panic("toolcircuit: Twin: dependency is empty")
	}
	return c.made().newCircuit(dependency, c.state.Load().rules, c.tool)
}

// WithTool returns the same circuit as another tool sees it. An alternative that is empty or the
// tool itself, or an action that is none of the known, panics.
func (c *ToolCircuit) WithTool(t Tool) *ToolCircuit {
	if err := t.validate(); err != nil {
		panic("toolcircuit: WithTool: " + err.Error())
	}
	return &ToolCircuit{c.made(), t.clone()}
}

// Do runs op unless the circuit refuses, and records what came of it. It returns what op
// returned. An error that came after CallTimeout comes inside a [*CallTimeoutError].
//
// A refusal is an [*OpenError], which Is [ErrCircuitOpen]; op has not run and will not. If
// ctx has already ended, its error is returned and nothing runs. op runs at most once, in the
// caller's goroutine, with no lock held. If it panics or calls runtime.Goexit, that counts
// as a failure of kind panic and goes on its way. A nil argument panics.
//
// A tool may call another tool of its own dependency: while it is the probe, a call of the same
// circuit with its context rides on it. That call runs, also if its tool has SideEffects. It is
// judged and told to OnCall, and it is never recorded: the probe alone decides. As soon as the
// probe has lost the slot, its context lets nobody through.
func Do[T any](ctx context.Context, c *ToolCircuit, op func(context.Context) (T, error)) (T, error) {
	value, _, err := do(ctx, c, op)
	return value, err
}

// DoResult is [Do] for a caller that is a model: a refusal becomes a blocked [Result], a
// failure a failed one. Kinds canceled, deadline and interrupt stay errors, because they belong
// to the runtime. The error of a ctx that had ended before stays one, too. Panics pass.
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

// do is Do with the verdict, which is zero if nothing ran. A healthy call of a plain circuit
// needs no more than this function: no lock, no clock and no write.
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

// runPlain runs op as a call that the plain state s admitted, and settles it if op does not return.
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
	p := Permit{c: c, by: by, details: new(details)} // here, so that it stays on the stack
	return p.Settle(ctx, value, err)
}

// doInFull is do for all that a plain circuit and a healthy call do not need.
func doInFull[T any](ctx context.Context, c *ToolCircuit, op func(context.Context) (T, error)) (value T, v Verdict, err error) {
	if op == nil {
		panic("toolcircuit: Do: op is nil")
	}
	by, err := c.enter(ctx)
	if err != nil {
		return value, v, err
	}
	p := Permit{c: c, by: by, details: new(details)} // here, so that it stays on the stack
	p.begin()
	return run(ctx, &p, op)
}

// run runs op under a permit.
func run[T any](ctx context.Context, p *Permit, op func(context.Context) (T, error)) (value T, v Verdict, err error) {
	defer p.Release() // if a context of the user's ends the goroutine before op begins
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

// salt makes this circuit's jitter differ from that of its twins and of other workers.
func (c *circuit) salt() uint64 {
	h := fnv.New64a()
	h.Write([]byte(c.dependency))
	salt := h.Sum64() ^ c.seed
	if m := c.member.Load(); m != nil {
		salt ^= m.fleet.id
	}
	return salt
}

// made returns the circuit, and panics if there is none.
func (c *ToolCircuit) made() *circuit {
	if c == nil || c.circuit == nil {
		panic("toolcircuit: the circuit is nil; make one with New")
	}
	return c.circuit
}

// mustHave panics unless there are a circuit and a context.
func (c *ToolCircuit) mustHave(ctx context.Context) {
	c.made()
	if ctx == nil {
		panic("toolcircuit: ctx is nil")
	}
}

// mustHaveTool panics unless there are a circuit and a tool.
func (c *ToolCircuit) mustHaveTool(caller string, isNil bool) {
	c.made()
	if isNil {
		panic("toolcircuit: " + caller + ": tool is nil")
	}
}

// Dependency returns the name that the circuit was made with.
func (c *ToolCircuit) Dependency() string { return c.made().dependency }
