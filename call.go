package toolcircuit

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

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
		s.window.Add(c.clock, false)
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
	v = Verdict{Effect: EffectCount, Kind: KindPanic} // what stands if a Classifier ends the goroutine
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
		return Verdict{Effect: EffectCount, Kind: KindPanic}
	case late:
		return Verdict{Effect: EffectCount, Kind: KindTimeout}
	}
	v, known := classify(ctx, o, c.classify)
	if d, ok := ctx.Deadline(); ok && v.Kind == KindTimeout && o.Err != nil && c.clock.Until(d) <= 0 {
		v = KindDeadline.verdict() // a socket has the same deadline, and may tell before ctx does
	}
	p := a.by.Policy
	switch {
	case v.Effect == EffectHeal && p.SlowCall > 0 && o.Elapsed > p.SlowCall:
		v = Verdict{Effect: EffectCount, Kind: KindSlow}
	case v.Kind == KindDeadline && (p.CallTimeout > 0 || p.IgnoreDeadline):
		v.Effect = EffectIgnore
	case !known:
		if a.recorded() {
			c.unclassified.Add(1)
		}
		if p.CountUnknown {
			v.Effect = EffectCount
		}
	}
	if a.mode&asMonitor != 0 && v.Kind.ClientError() {
		v.Effect = EffectHeal
	}
	return v
}

// record takes the outcome of a call into the state. It reports whether the circuit had
// moved on since the call was admitted.
func (c *circuit) record(ctx context.Context, a *attempt, v Verdict, err error, elapsed time.Duration) (stale bool) {
	if !a.recorded() {
		if a.mode&asPeek != 0 && v.Effect == EffectHeal {
			c.step(ctx, elapsed, func(s state, _ input) (state, bool) { return s.endCooldown(a.by) })
		}
		return false
	}
	if s := c.state.Load(); s.seq == a.by.seq {
		if s.window != nil && (v.Effect == EffectHeal || v.Effect == EffectCount) {
			s.window.Add(c.clock, v.Effect == EffectCount)
		}
		if s.untouched(v) {
			return false
		}
	}
	c.step(ctx, elapsed, func(s state, in input) (state, bool) {
		stale = s.seq != a.by.seq
		if s.window != nil && v.Effect == EffectCount {
			in.calls, in.failures = s.window.Sum(in.now)
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
