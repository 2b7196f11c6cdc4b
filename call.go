package toolcircuit

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
)

// One call is one Permit, whichever form made it: Allow admits it, Settle judges and records
// it. Do, Monitor and every adapter go through these two.

// ErrNoReturn stands for the result of a call that panicked or called runtime.Goexit. Start
// with it and overwrite it when the call returns:
//
//	err := toolcircuit.ErrNoReturn
//	defer func() { permit.Settle(ctx, nil, err) }()
//	value, err = call(ctx)
var ErrNoReturn = errors.New("toolcircuit: the call did not return")

// Permit is the right to make one call, from [ToolCircuit.Allow]. It must end with Settle or
// Release, from any goroutine; the first of them wins:
//
//	permit, err := c.Allow(ctx)
//	if err != nil {
//		return err // refused
//	}
//	defer permit.Release()
//	value, err := call(permit.Context(ctx))
//	verdict, err := permit.Settle(ctx, value, err)
//
// The zero Permit does nothing. A Permit must not be copied. A probe's Permit that is dropped
// without either holds the slot until Policy.ProbeTimeout.
type Permit struct {
	// Four words: Allow returns no larger struct in registers alone.
	phase   atomic.Uint32
	c       *ToolCircuit
	by      *state   // that admitted the call; an open one admits nothing but a Monitor's early check
	details *details // nil: nothing to know yet
}

// The phases of a Permit.
const (
	pending  uint32 = iota // Allow was called, nothing else
	prepared               // Context was called
	settling               // the first Settle is judging
	settled                // details has the verdict
	healed                 // settled as ok, without details
	released
)

// details are what only some calls have.
type details struct {
	started time.Duration // since Permit.by began, only if that is timed

	// Made by Context if there is a CallTimeout, nil otherwise.
	ctx     context.Context
	cancel  context.CancelFunc
	timeout *CallTimeoutError // the cause that ctx ends with when CallTimeout is over

	verdict Verdict
}

// more returns p's details, which it makes if need be.
func (p *Permit) more() *details {
	if p.details == nil {
		p.details = new(details)
	}
	return p.details
}

// Allow asks for one call in two steps, where [Do] cannot enclose it: streams, hooks,
// adapters. It returns a permit, the refusal (an [*OpenError]), or the error of a ctx that
// has already ended.
func (c *ToolCircuit) Allow(ctx context.Context) (p Permit, err error) {
	c.mustHave(ctx)
	if s := c.state.Load(); s.plain && ctx.Err() == nil {
		p.c, p.by = c, s
	} else if s, err = c.enter(ctx); err == nil {
		p.c, p.by = c, s
		p.begin()
	}
	return
}

// enter returns the state that admits a call, or the error that Allow returns. It reports a call
// that may not run.
func (c *ToolCircuit) enter(ctx context.Context) (*state, error) {
	if err := ctx.Err(); err != nil {
		if c.onCall != nil {
			c.report(ctx, Call{State: c.State(), Verdict: Verdict{Kind: Classify(ctx, Outcome{Err: err}).Kind}, Err: err})
		}
		return nil, err
	}
	by, refusal := c.admit(ctx)
	if refusal == nil {
		return by, nil
	}
	by.refused.add()
	if c.onCall != nil {
		c.report(ctx, Call{
			State:   refusal.State,
			Reason:  refusal.Reason,
			Verdict: Verdict{Kind: KindRejected},
			RetryAt: refusal.RetryAt,
			Err:     refusal,
		})
	}
	return nil, refusal
}

// begin starts a call of a circuit that may not be plain.
func (p *Permit) begin() {
	if p.Probe() {
		p.announce()
	}
	p.start()
}

// announce delivers the event of a probe's admission. The slot comes back if OnEvent ends the
// goroutine.
func (p *Permit) announce() {
	delivered := false
	defer func() {
		if !delivered {
			p.Release()
		}
	}()
	p.c.deliver()
	delivered = true
}

// start notes when the call begins, if anyone may want to know how long it took.
func (p *Permit) start() {
	if p.by.timed {
		p.more().started = p.c.clock.Since(p.by.since)
	}
}

// admit returns the state that lets the call run or, with the refusal, the one that does not. A
// refusal costs one reading of the clock. The event of a probe's admission is still to be
// delivered.
func (c *ToolCircuit) admit(ctx context.Context) (by *state, refusal *OpenError) {
	touched, asked := false, false // each once: a call waits no longer for a Fleet's store
	for {
		s := c.state.Load()
		if s.override == OverrideClosed || s.override == OverrideNone && s.State == StateClosed {
			if touched || s.use.plain() {
				return s, nil
			}
			touched = true
			c.touch(ctx)
			continue
		}
		if _, refusal := c.look(s); refusal != nil {
			if c.rides(ctx, s) {
				ride := *s
				ride.rides = true
				return &ride, nil
			}
			return s, refusal
		}
		if s.use != useAlone {
			if asked {
				return s, c.refusal(s)
			}
			if by, asked = c.ask(ctx, s); by != nil {
				return by, nil
			}
			continue
		}
		probe, taken := c.advance(ctx, time.Time{}, func(now state, in input) (state, bool) {
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
	hold, refusal := s.gate.hold, c.refusal(s)
	if c.tool.SideEffects {
		hold = s.gate.holdWrites
	}
	if s.override == OverrideOpen {
		return 0, refusal
	}
	if remaining = s.gate.remaining(hold, c.clock.Since(s.gate.from)); remaining == 0 {
		return 0, nil
	}
	return remaining, refusal
}

// refusal returns the error of this tool's calls that the gate of s holds back.
func (c *ToolCircuit) refusal(s *state) *OpenError {
	if c.tool.SideEffects {
		return s.gate.refusalWrites
	}
	return s.gate.refusal
}

// rides reports whether a call that s refuses rides on the probe: ctx is that of the operation
// which holds the slot of s.
func (c *circuit) rides(ctx context.Context, s *state) bool {
	if s.State != StateHalfOpen || s.override != OverrideNone {
		return false
	}
	return ctx.Value(slotKey{c}) == any(s.slot()) &&
		s.gate.remaining(s.gate.hold, c.clock.Since(s.gate.from)) > 0
}

// Context returns ctx as the operation of the call should have it. Under Policy.CallTimeout it
// ends when that has passed since Allow, and with Settle or Release, so a stream must be settled
// at its end. Without Context, the time from Allow to Settle tells whether CallTimeout was kept.
// If the call is the probe, [IsProbe] can tell, and calls of the same circuit with this context
// ride on it, as [Do] says.
//
// Call Context once, before Settle. A call after Settle or Release panics, and so does a second
// one where the context is not simply ctx. A nil ctx panics.
func (p *Permit) Context(ctx context.Context) context.Context {
	switch {
	case ctx == nil:
		panic("toolcircuit: Permit.Context: ctx is nil")
	case p.c == nil:
		return ctx
	case p.by.plain && p.phase.Load() == pending: // a plain call's context is the caller's
		return ctx
	case !p.phase.CompareAndSwap(pending, prepared):
		panic("toolcircuit: Permit.Context: called twice, or after Settle or Release")
	}
	if d := p.by.CallTimeout; d > 0 {
		more := p.more()
		more.timeout = &CallTimeoutError{Dependency: p.c.dependency, After: d}
		more.ctx, more.cancel = withDeadline(ctx, p.c.settings, d-min(p.elapsed(), d), more.timeout)
		ctx = more.ctx
	}
	if p.Probe() {
		ctx = context.WithValue(context.WithValue(ctx, probeKey{}, true), slotKey{p.c.circuit}, p.by.slot())
	}
	return ctx
}

type probeKey struct{}

// slotKey is the key for the slot that a probe of a circuit took.
type slotKey struct{ *circuit }

// IsProbe reports whether ctx is that of an operation which is a probe, or is derived from
// one: then its outcome decides if a circuit closes.
func IsProbe(ctx context.Context) bool {
	if ctx == nil {
		panic("toolcircuit: IsProbe: ctx is nil")
	}
	_, ok := ctx.Value(probeKey{}).(bool)
	return ok
}

// Probe reports whether this call decides if the circuit closes. A caller can renew its
// connection first.
func (p *Permit) Probe() bool { return p.by != nil && p.by.State == StateHalfOpen && p.recorded() }

// early reports whether the call is a Monitor's check during the cooldown, which is no call of
// the circuit.
func (p *Permit) early() bool { return p.by.State == StateOpen && p.by.override == OverrideNone }

// recorded reports whether the circuit takes the outcome in.
func (p *Permit) recorded() bool {
	return p.by.override != OverrideClosed && !p.by.rides && !p.early()
}

// Settle judges what came of the call and records it. It returns the verdict, and the error to
// hand on: err, or err inside a [*CallTimeoutError] if it came after CallTimeout. ctx is the
// caller's, not the operation's; a nil ctx panics. Pass a nil value where no Classifier reads
// it. Settle with [ErrNoReturn] counts as a failure of kind panic.
//
// A later Settle changes nothing. It returns the verdict of the first, or the zero Verdict if
// the first still judges or Release came before, and its own err.
func (p *Permit) Settle(ctx context.Context, value any, err error) (Verdict, error) {
	if ctx == nil {
		panic("toolcircuit: Settle: ctx is nil")
	}
	if p.c == nil {
		return Verdict{}, err
	}
	to := settling
	if err == nil && p.by.plain && p.c.state.Load() == p.by {
		if _, ok := value.(Judged); !ok {
			to = healed
		}
	}
	switch {
	case !p.end(to):
		return p.settledAs(), err
	case to == healed:
		p.by.count(p.c.clock)
		return Verdict{Effect: EffectHeal, Kind: KindOK}, nil
	}
	return p.settle(ctx, value, err)
}

// end reports whether the caller is the first to end the permit, and moves it to that phase.
func (p *Permit) end(to uint32) bool {
	now := p.phase.Load() // because a swap that fails costs as much as one that does not
	return now <= prepared && (p.phase.CompareAndSwap(now, to) || p.phase.CompareAndSwap(prepared, to))
}

// settledAs returns the verdict of a permit that is over.
func (p *Permit) settledAs() Verdict {
	switch p.phase.Load() {
	case settled:
		return p.details.verdict
	case healed:
		return Verdict{Effect: EffectHeal, Kind: KindOK}
	}
	return Verdict{}
}

// elapsed returns the time since Allow, 0 if nobody wants to know it of a call that changes
// nothing.
func (p *Permit) elapsed() time.Duration {
	if !p.by.watched {
		return 0
	}
	return max(p.c.clock.Since(p.by.since)-p.details.started, 0)
}

// began returns when the call began, the zero time if it has not or nobody may want to know.
func (p *Permit) began() time.Time {
	if !p.by.timed || p.details == nil {
		return time.Time{}
	}
	return p.by.since.Add(p.details.started)
}

// count takes a healthy call into the window, if s has one.
func (s *state) count(c clock.Clock) {
	if s.window != nil {
		s.window.Add(c, false)
	}
}

// settle judges, records and reports a call, and ends its context.
func (p *Permit) settle(ctx context.Context, value any, err error) (v Verdict, handOn error) {
	c, more := p.c, p.more()
	o := Outcome{Dependency: c.dependency, Value: value, Err: err, Elapsed: p.elapsed()}
	late := p.late(o.Elapsed)
	if late && err != nil && err != ErrNoReturn && (more.timeout == nil || err != error(more.timeout)) {
		o.Err = &CallTimeoutError{Dependency: c.dependency, After: p.by.CallTimeout, Err: err}
	}
	handOn = o.Err
	v = KindPanic.verdict() // what stands if a Classifier ends the goroutine
	call := Call{State: p.by.State, Executed: true, Probe: p.Probe(), Early: p.early(), Elapsed: o.Elapsed, Err: handOn}
	defer func() {
		if call.Verdict = v; c.onCall != nil {
			c.report(ctx, call)
		}
	}()
	defer func() {
		if call.Stale = p.record(ctx, v, call.Err); call.Stale {
			c.stale.Add(1)
		}
		more.verdict = v
		p.phase.Store(settled)
		p.endContext()
	}()
	if panicked := c.safely(func() { v = p.judge(ctx, o, late) }); panicked != nil {
		call.Err = errors.Join(handOn, panicked)
	}
	return v, handOn
}

// endContext ends the context of the operation, if it has one of its own.
func (p *Permit) endContext() {
	if p.details != nil && p.details.cancel != nil {
		p.c.safely(p.details.cancel) // because the context around it may be a user's
	}
}

// Release hands the permit back unused: nothing is recorded, and the slot of a probe is free
// for the next caller. After Settle it does nothing.
func (p *Permit) Release() {
	// Most permits are released after they are settled, so look before writing.
	if p.phase.Load() <= prepared {
		p.release()
	}
}

// release is the part of Release that is not inlined.
func (p *Permit) release() {
	if p.c != nil && p.end(released) {
		defer p.endContext()
		p.record(context.Background(), Verdict{}, nil)
	}
}

// late reports whether the circuit's own deadline ended the call. The context of the operation
// tells who ended it. If that has not ended, or there is none, elapsed time tells.
func (p *Permit) late(elapsed time.Duration) bool {
	d := p.by.CallTimeout
	if more := p.details; d > 0 && more.ctx != nil && more.ctx.Err() != nil {
		return context.Cause(more.ctx) == error(more.timeout)
	}
	return d > 0 && elapsed >= d
}

// judge is the one judgement of a call.
func (p *Permit) judge(ctx context.Context, o Outcome, late bool) Verdict {
	switch {
	case o.Err == ErrNoReturn:
		return KindPanic.verdict()
	case late:
		return KindTimeout.verdict()
	}
	v, known := classify(ctx, o, p.c.classify)
	if v.Kind == KindTimeout && o.Err != nil && passed(ctx) {
		v = KindDeadline.verdict() // a socket has the same deadline, and may tell before ctx does
	}
	policy := &p.by.Policy
	switch {
	case v.Effect == EffectHeal && policy.SlowCall > 0 && o.Elapsed > policy.SlowCall:
		v = KindSlow.verdict()
	case v.Kind == KindDeadline && (policy.CallTimeout > 0 || policy.IgnoreDeadline):
		v.Effect = EffectIgnore
	case !known:
		if p.recorded() {
			p.c.unclassified.Add(1)
		}
		if policy.CountUnknown {
			v.Effect = EffectCount
		}
	}
	if p.c.tool.monitor && v.Kind.ClientError() {
		if o.Err == nil || judge(o.Err).fate != unsent { // what reached nobody proves no health
			v.Effect = EffectHeal
		}
	}
	return v
}

// passed reports whether ctx's deadline has passed. A deadline is real time, whatever clock the
// circuit has.
func passed(ctx context.Context) bool {
	d, ok := ctx.Deadline()
	return ok && time.Until(d) <= 0
}

// record takes the outcome of a call into the state. It reports whether the circuit had
// moved on since the call was admitted.
func (p *Permit) record(ctx context.Context, v Verdict, err error) (stale bool) {
	c, by := p.c, p.by
	switch {
	case p.early() && v.Effect == EffectHeal:
		c.step(ctx, p.began(), func(s state, _ input) (state, bool) { return s.endCooldown(by) })
		return false
	case !p.recorded():
		return false
	}
	if s := c.state.Load(); s.seq == by.seq {
		if s.window != nil && (v.Effect == EffectHeal || v.Effect == EffectCount) {
			s.window.Add(c.clock, v.Effect == EffectCount)
		}
		if s.untouched(v) {
			return false
		}
	}
	c.step(ctx, p.began(), func(s state, in input) (state, bool) {
		stale = s.seq != by.seq
		if s.window != nil && v.Effect == EffectCount {
			in.calls, in.failures = s.window.Sum(in.now)
		}
		return s.settleShared(in, by, v, err)
	})
	return stale
}

// report tells OnCall, which must not be nil, what a call met.
func (c *ToolCircuit) report(ctx context.Context, call Call) {
	call.Dependency, call.Tool = c.dependency, c.tool.Name
	c.safely(func() { call.RunID = RunID(ctx) }) // because the context may be a user's
	c.safely(func() { c.onCall(ctx, call) })
}

// step is advance, tells a Fleet's store what it should know, and delivers the event.
func (c *ToolCircuit) step(ctx context.Context, began time.Time, f func(state, input) (state, bool)) {
	after, changed := c.advance(ctx, began, f)
	if after.debt() != nil && changed {
		defer c.deliver()
		c.tell(ctx, after)
	} else if changed {
		c.deliver()
	}
}

// advance runs one step of the machine and, if it changed anything, publishes its result and
// posts the event. It returns the state then published, and whether there is a change. began is
// when the call began that causes the step, zero if none has. The clock, which may be a user's,
// is read before the lock.
func (c *ToolCircuit) advance(ctx context.Context, began time.Time, f func(state, input) (state, bool)) (*state, bool) {
	now := c.made().clock.Now()
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
	e := Event{At: now, Tool: c.tool.Name}
	if !began.IsZero() {
		e.Elapsed = max(now.Sub(began), 0)
	}
	c.post(ctx, before, after, e)
	if m := c.member.Load(); m != nil {
		m.attend(after)
	}
	return after, true
}
