// Package toolcircuit puts a circuit breaker around each tool of an AI agent. When the
// dependency behind a tool is down, the next call is refused before it has any effect, and
// the model reads a small value that says so, until when, and what to do instead.
//
//	search := toolcircuit.MustNew("search-api", toolcircuit.Options{})
//	tool := toolcircuit.WrapResult(search, webSearch) // func(ctx, Query) (Result[Hits], error)
//
// errors.New("x") opens nothing by default: what counts is decided by code and type, never
// by the text of a message, and an error that no rule knows may as well be the caller's
// mistake. Return what the client library returned, wrapped as you like, or say what you
// mean with [Fault], give Options a [Classifier], or set Policy.CountUnknown. [Classify] has
// the rules; Snapshot.Unclassified counts the errors that none of them knew.
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
	"time"

	"github.com/benbjohnson/clock"
)

// Options make a circuit. The zero value is usable; New copies it.
type Options struct {
	// Policy says when the circuit opens and closes. Zero: the default of each field.
	Policy Policy
	// Classify is asked about each outcome before the default rules, which decide what it
	// has no opinion on. Nil: the rules alone. A panic in it counts as a failure of kind
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
	// OnCall hears what each call met, once, refused ones too: from the call's own
	// goroutine, so in no order and concurrently. A permit that is
	// released was no call. OnCall may use the circuit. A panic in it is counted in
	// Snapshot.HookPanics.
	OnCall func(context.Context, Call)
	// Tool is how the circuit presents itself to a model until For gives another view.
	Tool Tool
}

// ToolCircuit is one tool's view of the circuit of its dependency. Make one with New; For
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

	mu      sync.Mutex    // held for one step at a time, never while user code runs
	out     *outbox       // made for the first event
	changed chan struct{} // made by the first sleeper, closed by the next change

	refused, unclassified, stale, hookPanics atomic.Uint64
}

// settings are what a circuit and its twins share.
type settings struct {
	classify Classifier
	clock    clock.Clock
	injected bool // clock came from Options
	seed     uint64
	onEvent  func(context.Context, Event)
	onCall   func(context.Context, Call)
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

// For returns the same circuit as another tool sees it. An alternative that is empty or the
// tool itself, or an action that is none of the known, panics.
func (c *ToolCircuit) For(t Tool) *ToolCircuit {
	if err := t.validate(); err != nil {
		panic("toolcircuit: For: " + err.Error())
	}
	return &ToolCircuit{c.made(), t.clone()}
}

// Do runs op unless the circuit refuses, and records what came of it. It returns what op
// returned; an error is then op's own, but for one returned after CallTimeout, which comes
// inside a [*CallTimeoutError].
//
// A refusal is an [*OpenError], which Is [ErrCircuitOpen]; op has not run and will not. If
// ctx is over already, its error is returned and nothing runs. op runs at most once, in the
// caller's goroutine, with no lock held; if it panics or calls runtime.Goexit, that counts
// as a failure of kind panic and goes on its way. A nil argument panics.
//
// A tool that calls another tool of the same dependency needs the circuit around one of the
// two: when it is the probe, a call of the same circuit inside it is refused.
func Do[T any](ctx context.Context, c *ToolCircuit, op func(context.Context) (T, error)) (T, error) {
	return do(ctx, c, op, nil)
}

// Wrap returns tool with Do around each call. C may be a runtime's own type of context;
// tool then gets the very context it was called with, so that CallTimeout is told by the
// time that the call took, and IsProbe is not told. A nil argument panics.
func Wrap[C context.Context, In, Out any](c *ToolCircuit, tool func(C, In) (Out, error)) func(C, In) (Out, error) {
	c.mustHaveTool("Wrap", tool == nil)
	return func(ctx C, in In) (Out, error) { return call(c, tool, ctx, in, nil) }
}

// call is one call of a wrapped tool.
func call[C context.Context, In, Out any](c *ToolCircuit, tool func(C, In) (Out, error), ctx C, in In, out *Verdict) (Out, error) {
	return do(ctx, c, func(inner context.Context) (Out, error) {
		if inner, same := inner.(C); same {
			return tool(inner, in)
		}
		return tool(ctx, in)
	}, out)
}

// errNoReturn stands for the result of a call until it returns. If it never does, because of
// a panic or runtime.Goexit, this is what the deferred functions find.
var errNoReturn = errors.New("toolcircuit: the call did not return")

// do is Do, which also writes to out, if there is one, how a call was judged that was not
// refused and not simply healthy. A healthy call of a plain circuit needs no more than this
// function: no lock and, without a rate window, no clock and no write.
func do[T any](ctx context.Context, c *ToolCircuit, op func(context.Context) (T, error), out *Verdict) (value T, err error) {
	c.mustHave(ctx)
	if op == nil {
		panic("toolcircuit: Do: op is nil")
	}
	s := c.state.Load()
	if !s.plain || ctx.Err() != nil {
		return doInFull(ctx, c, op, out, 0)
	}
	err = errNoReturn
	defer func() {
		if _, ok := any(value).(judged); !ok && err == nil && c.healthy(s) {
			return
		}
		var v Verdict
		v, err = c.finish(ctx, &attempt{by: s}, value, err)
		if out != nil {
			*out = v
		}
	}()
	return op(ctx)
}

// healthy takes in a healthy call that the plain state s admitted, if that is still the
// published one.
func (c *circuit) healthy(s *state) bool {
	if c.state.Load() != s {
		return false
	}
	if s.window != nil {
		s.window.add(c.clock, false)
	}
	return true
}

// doInFull is do for all that a plain circuit and a healthy call do not need.
func doInFull[T any](ctx context.Context, c *ToolCircuit, op func(context.Context) (T, error), out *Verdict, m mode) (value T, err error) {
	a := attempt{mode: m}
	if err = c.begin(ctx, &a); err != nil {
		return value, err
	}
	if a.cancel != nil {
		defer a.cancel() // settled before cancelled
	}
	err = errNoReturn
	defer func() {
		var seen any
		if _, ok := any(value).(judged); ok || c.classify != nil {
			seen = value
		}
		var v Verdict
		v, err = c.finish(ctx, &a, seen, err)
		if out != nil {
			*out = v
		}
	}()
	return op(a.ctx)
}

// Permit is the right to make one call, from Allow. It must end with Settle or Release, the
// first of which wins, from any goroutine:
//
//	permit, err := c.Allow(ctx)
//	if err != nil {
//		return err // refused
//	}
//	defer permit.Release()
//	value, err := call(ctx)
//	permit.Settle(ctx, value, err)
//
// The zero Permit does nothing. A Permit must not be copied. One that is dropped with
// neither holds a probe's slot until Policy.ProbeTimeout.
type Permit struct {
	over    atomic.Bool
	c       *ToolCircuit
	by      *state
	started time.Duration
}

// Allow asks for one call in two steps, where Do cannot enclose it: streams, hooks,
// adapters. It returns a permit, the refusal (an [*OpenError]), or the error of a ctx that
// is over already. CallTimeout is told by the time from Allow to Settle alone, so a stream
// that lasts longer counts, even if all is well.
func (c *ToolCircuit) Allow(ctx context.Context) (p Permit, err error) {
	c.mustHave(ctx)
	if s := c.state.Load(); s.plain && ctx.Err() == nil {
		p.c, p.by = c, s
	} else {
		err = p.begin(ctx, c)
	}
	return
}

// begin is Allow for all that a plain circuit does not need.
func (p *Permit) begin(ctx context.Context, c *ToolCircuit) error {
	a := attempt{mode: twoStep}
	if err := c.begin(ctx, &a); err != nil {
		return err
	}
	p.c, p.by, p.started = c, a.by, a.started
	return nil
}

// Settle judges what came of the call and records it. Pass a nil value where no Classifier
// reads it.
func (p *Permit) Settle(ctx context.Context, value any, err error) {
	if ctx == nil {
		panic("toolcircuit: Settle: ctx is nil")
	}
	if !p.end() {
		return
	}
	if _, ok := value.(judged); !ok && err == nil && p.by.plain && p.c.healthy(p.by) {
		return
	}
	p.finish(ctx, value, err)
}

// finish is Settle for all that a plain circuit and a healthy call do not need.
func (p *Permit) finish(ctx context.Context, value any, err error) {
	a := p.attempt()
	p.c.finish(ctx, &a, value, err)
}

// Release hands the permit back unused: nothing is recorded, and the slot of a probe is
// free for the next caller.
func (p *Permit) Release() {
	if p.end() {
		a := p.attempt()
		p.c.record(context.Background(), &a, Verdict{}, nil, 0)
	}
}

// end reports whether the caller is the first to end the permit. It looks before it writes,
// since most permits are released after they are settled.
func (p *Permit) end() bool { return p.c != nil && !p.over.Load() && !p.over.Swap(true) }

// Probe reports whether this call decides if the circuit closes, so that a caller can
// renew its connection first.
func (p *Permit) Probe() bool {
	a := p.attempt()
	return a.probe()
}

func (p *Permit) attempt() attempt { return attempt{by: p.by, mode: twoStep, started: p.started} }

type probeKey struct{}

// IsProbe reports whether ctx is that of an operation which is a probe, or runs inside one
// that is: then its outcome decides if a circuit closes. Operations of Do, Monitor and of
// Wrap with a plain context.Context can tell.
func IsProbe(ctx context.Context) bool {
	_, ok := ctx.Value(probeKey{}).(bool)
	return ok
}

// attempt is one call from its admission to its end.
type attempt struct {
	by      *state // that admitted it
	mode    mode
	started time.Duration // since by began, only if by.watched
	ctx     context.Context
	cancel  context.CancelFunc
	timeout *CallTimeoutError // the cause that ctx ends with when CallTimeout is over
}

// mode says what is special about an attempt.
type mode uint8

const (
	twoStep   mode = 1 << iota // its operation cannot be given a context
	asMonitor                  // any answer is healthy
	asPeek                     // during a cooldown, and not a call of the circuit
)

// probe reports whether the call has the vote of a probe.
func (a *attempt) probe() bool {
	return a.by != nil && a.by.State == StateHalfOpen && a.recorded()
}

// recorded reports whether the outcome is the circuit's business.
func (a *attempt) recorded() bool { return a.by.override != OverrideClosed && a.mode&asPeek == 0 }

// begin admits the call and prepares what it needs, or returns why it must not run.
func (c *ToolCircuit) begin(ctx context.Context, a *attempt) error {
	if err := ctx.Err(); err != nil {
		if c.onCall != nil {
			c.report(ctx, Call{State: c.State(), Verdict: Verdict{Kind: Classify(ctx, Outcome{Err: err}).Kind}, Err: err})
		}
		return err
	}
	if a.mode&asPeek != 0 {
		a.by = c.state.Load()
	} else if by, refusal := c.admit(ctx); refusal != nil {
		c.refused.Add(1)
		if c.onCall != nil {
			c.report(ctx, Call{State: refusal.State, Verdict: Verdict{Kind: KindRejected}, RetryAt: refusal.RetryAt, Err: refusal})
		}
		return refusal
	} else {
		a.by = by
	}
	if a.probe() {
		c.prepareProbe(ctx, a)
	} else {
		c.prepare(ctx, a)
	}
	return nil
}

// prepareProbe is prepare for a probe, whose slot comes back if OnEvent or a context of the
// user's ends the goroutine.
func (c *ToolCircuit) prepareProbe(ctx context.Context, a *attempt) {
	ready := false
	defer func() {
		if !ready {
			c.record(context.Background(), a, Verdict{}, nil, 0)
		}
	}()
	c.deliver()
	c.prepare(ctx, a)
	ready = true
}

// prepare gives an admitted call its context and its time.
func (c *ToolCircuit) prepare(ctx context.Context, a *attempt) {
	if a.by.watched {
		a.started = c.clock.Since(a.by.since)
	}
	if a.mode&twoStep != 0 {
		return
	}
	a.ctx = ctx
	if d := a.by.CallTimeout; d > 0 {
		a.timeout = &CallTimeoutError{Dependency: c.dependency, After: d}
		a.ctx, a.cancel = withDeadline(ctx, c.settings, d, a.timeout)
	}
	if a.probe() {
		a.ctx = context.WithValue(a.ctx, probeKey{}, true)
	}
}

// admit returns the state that lets the call run, or the refusal. A refusal costs one
// reading of the clock. The event of a probe's admission is still to be delivered.
func (c *ToolCircuit) admit(ctx context.Context) (by *state, refusal *OpenError) {
	for {
		s := c.state.Load()
		if s.override == OverrideClosed || s.override == OverrideNone && s.State == StateClosed {
			return s, nil
		}
		if _, refusal := c.look(s); refusal != nil {
			return nil, refusal
		}
		probe, taken := c.advance(ctx, 0, func(now state, in input) (state, bool) {
			if c.state.Load() != s { // look again
				return now, false
			}
			return now.admit(in), true
		})
		if taken {
			return probe, nil
		}
	}
}

// look returns how long this tool's calls are still refused in s, and with which error; nil
// if they are not. An override has no time that ends it.
func (c *ToolCircuit) look(s *state) (remaining time.Duration, refusal *OpenError) {
	if s.gate == nil || s.override == OverrideClosed {
		return 0, nil
	}
	hold, refusal := s.gate.hold, s.gate.refusal
	if c.tool.SideEffects {
		hold, refusal = s.gate.holdWrites, s.gate.refusalWrites
	}
	if s.override == OverrideOpen {
		return 0, refusal
	}
	if remaining = s.gate.remaining(hold, c.clock.Since(s.gate.from)); remaining == 0 {
		return 0, nil
	}
	return remaining, refusal
}

// finish judges a call that has ended, records and reports it. It returns the judgement and
// the error to hand on.
func (c *ToolCircuit) finish(ctx context.Context, a *attempt, value any, err error) (v Verdict, handOn error) {
	o := Outcome{Dependency: c.dependency, Value: value, Err: err}
	if a.by.watched {
		o.Elapsed = max(c.clock.Since(a.by.since)-a.started, 0)
	}
	late := a.late(o.Elapsed)
	if handOn = err; late && err != nil && err != errNoReturn && err != error(a.timeout) {
		handOn = &CallTimeoutError{Dependency: c.dependency, After: a.by.CallTimeout, Err: err}
	}
	seen := handOn
	v = Verdict{Effect: Count, Kind: KindPanic} // what stands if a Classifier ends the goroutine
	stale := false
	defer func() {
		if c.onCall != nil {
			c.report(ctx, Call{
				State:    a.by.State,
				Executed: true,
				Probe:    a.probe(),
				Stale:    stale,
				Verdict:  v,
				Elapsed:  o.Elapsed,
				Err:      seen,
			})
		}
	}()
	defer func() {
		if stale = c.record(ctx, a, v, seen, o.Elapsed); stale {
			c.stale.Add(1)
		}
	}()
	if p := c.safely(func() { v = c.judge(ctx, a, o, late) }); p != nil {
		seen = errors.Join(handOn, p)
	}
	return v, handOn
}

// late reports whether the circuit's own deadline ended the call. The context of the operation
// tells who ended it; where it has not ended or there is none, elapsed time does.
func (a *attempt) late(elapsed time.Duration) bool {
	d := a.by.CallTimeout
	if d > 0 && a.ctx != nil && a.ctx.Err() != nil {
		return context.Cause(a.ctx) == error(a.timeout)
	}
	return d > 0 && elapsed >= d
}

// judge is the one judgement of a call.
func (c *ToolCircuit) judge(ctx context.Context, a *attempt, o Outcome, late bool) Verdict {
	switch {
	case o.Err == errNoReturn:
		return Verdict{Effect: Count, Kind: KindPanic}
	case late:
		return Verdict{Effect: Count, Kind: KindTimeout}
	}
	v, known := classify(ctx, o, c.classify)
	if d, ok := ctx.Deadline(); ok && v.Kind == KindTimeout && o.Err != nil && c.clock.Until(d) <= 0 {
		v = KindDeadline.verdict() // a socket has the same deadline, and may tell before ctx does
	}
	p := a.by.Policy
	switch {
	case v.Effect == Heal && p.SlowCall > 0 && o.Elapsed > p.SlowCall:
		v = Verdict{Effect: Count, Kind: KindSlow}
	case v.Kind == KindDeadline && (p.CallTimeout > 0 || p.IgnoreDeadline):
		v.Effect = Ignore
	case !known:
		if a.recorded() {
			c.unclassified.Add(1)
		}
		if p.CountUnknown {
			v.Effect = Count
		}
	}
	if a.mode&asMonitor != 0 {
		switch v.Kind {
		case KindInvalid, KindUnauthorized, KindNotFound, KindConflict:
			v.Effect = Heal
		}
	}
	return v
}

// record takes the outcome of a call into the state. It reports whether the circuit had
// moved on since the call was admitted.
func (c *circuit) record(ctx context.Context, a *attempt, v Verdict, err error, elapsed time.Duration) (stale bool) {
	if !a.recorded() {
		if a.mode&asPeek != 0 && v.Effect == Heal {
			c.step(ctx, elapsed, func(s state, _ input) (state, bool) { return s.endCooldown(a.by) })
		}
		return false
	}
	if s := c.state.Load(); s.seq == a.by.seq {
		if s.window != nil && (v.Effect == Heal || v.Effect == Count) {
			s.window.add(c.clock, v.Effect == Count)
		}
		if s.untouched(v) {
			return false
		}
	}
	c.step(ctx, elapsed, func(s state, in input) (state, bool) {
		stale = s.seq != a.by.seq
		if s.window != nil && v.Effect == Count {
			in.calls, in.failures = s.window.sum(in.now)
		}
		return s.settle(in, a.by, v, err)
	})
	return stale
}

// report tells OnCall, which must not be nil, what a call met.
func (c *ToolCircuit) report(ctx context.Context, call Call) {
	call.Dependency, call.Tool = c.dependency, c.tool.Name
	c.safely(func() {
		call.RunID = RunID(ctx) // here, for the context may be a user's
		c.onCall(ctx, call)
	})
}

// step is advance, and delivers the event.
func (c *circuit) step(ctx context.Context, elapsed time.Duration, f func(state, input) (state, bool)) {
	if _, changed := c.advance(ctx, elapsed, f); changed {
		c.deliver()
	}
}

// advance runs one step of the machine and, if it changed anything, publishes its result and
// posts the event. It returns the state then published, and whether there is a change. The
// clock, which may be a user's, is read before the lock.
func (c *circuit) advance(ctx context.Context, elapsed time.Duration, f func(state, input) (state, bool)) (*state, bool) {
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.state.Load()
	next, changed := f(*before, input{now: now})
	if !changed {
		return before, false
	}
	after := next.publish(c.salt(), c.dependency, c.clock)
	c.state.Store(after)
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
	c.post(ctx, before, after, Event{At: now, Elapsed: elapsed})
	return after, true
}

// salt makes this circuit's jitter differ from that of its twins.
func (c *circuit) salt() uint64 {
	h := fnv.New64a()
	h.Write([]byte(c.dependency))
	return h.Sum64() ^ c.seed
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

// State returns the state as of now: an open circuit whose cooldown is over reads half_open.
// It takes nothing and leaves the override out of account.
func (c *ToolCircuit) State() State {
	s := c.made().state.Load()
	if s.State != StateOpen {
		return s.State
	}
	return s.at(c.clock.Now())
}

// Ready reports whether this tool's call would be let through now. It takes nothing.
func (c *ToolCircuit) Ready() bool {
	_, refusal := c.look(c.made().state.Load())
	return refusal == nil
}
