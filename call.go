package toolcircuit

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
)

// Who calls whom, from a call to its event. One call is one [Permit], whichever verb made it.
//
//   - Do, DoResult, Wrap and WrapResult call do. On a plain state do runs the operation at once,
//     and calls Settle unless the call is healthy. Otherwise do calls enter, then run:
//     Permit.Context, the operation, Permit.Settle.
//   - Allow calls enter, unless the state is plain. Its caller does what run does.
//   - enter calls admit, the one place that lets a call run or refuses it. admit asks look whether
//     the state refuses, and rides whether the call is a part of the probe. To make the call the
//     probe, admit calls advance with the machine's admit. In a Fleet admit first calls touch, and
//     it calls ask instead of advance (shared.go).
//   - Settle only counts a healthy call of a plain state. Any other call goes to settle.
//   - settle calls judge, the one place that judges a call. classify asks the Classifier, and
//     examine walks the error (classify.go), which branch.pass reads (status.go).
//   - settle then calls record, which counts in the window and calls step, and at last report,
//     which calls OnCall. Release calls record alone, with the zero Verdict.
//   - step calls advance, the one place that replaces the state. Under the lock advance runs
//     settleShared, or a function of SetPolicy, SetOverride or Reset. settleShared calls the
//     machine's settle, which is settleClosed, settleProbe or settleLate. advance completes the
//     new state with publish, stores it and queues the event with post. Without the lock step
//     calls tell, for a Fleet's store, and deliver, which calls OnEvent.

// ErrNoReturn stands for the result of a call that panicked or called runtime.Goexit. Start with
// it and overwrite it when the call returns:
//
//	err := toolcircuit.ErrNoReturn
//	defer func() { permit.Settle(ctx, nil, err) }()
//	value, err = call(ctx)
var ErrNoReturn = errors.New("toolcircuit: the call did not return")

// Permit is the right to make one call, from [ToolCircuit.Allow]. End it with Settle or Release,
// from any goroutine. The first of them decides:
//
//	permit, err := c.Allow(ctx)
//	if err != nil {
//		return err // refused
//	}
//	defer permit.Release()
//	value, err := call(permit.Context(ctx))
//	verdict, err := permit.Settle(ctx, value, err)
//
// The zero Permit does nothing. Do not copy a Permit. A probe's Permit that ends with neither
// keeps its slot until Policy.ProbeTimeout is over.
type Permit struct {
	// Four words, because Allow returns no larger struct in registers.
	phase   atomic.Uint32
	c       *ToolCircuit
	by      *state   // the state that admitted the call; open only for a Monitor's early check
	details *details // nil until one of its fields is needed
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

// details holds what only some calls need.
type details struct {
	started time.Duration // since Permit.by.since; set only if that state is timed

	// Context sets these under a CallTimeout. Otherwise they are nil.
	ctx     context.Context
	cancel  context.CancelFunc
	timeout *CallTimeoutError // the cause of ctx when CallTimeout ends it

	verdict Verdict
}

// more returns p's details and makes them if there are none.
func (p *Permit) more() *details {
	if p.details == nil {
		p.details = new(details)
	}
	return p.details
}

// Allow asks for one call in two steps, for code that [Do] cannot enclose: streams, hooks,
// adapters. It returns a Permit, or an [*OpenError] if the circuit refuses, or the error of a ctx
// that has already ended, or ends while a Fleet asks its store. A nil ctx panics.
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

// enter returns the state that admits a call, or the error that Allow returns. It reports to
// OnCall a call that may not run.
func (c *ToolCircuit) enter(ctx context.Context) (*state, error) {
	if err := ctx.Err(); err != nil {
		return nil, c.ended(ctx, err)
	}
	by, refusal, waited := c.admit(ctx)
	if waited {
		if err := ctx.Err(); err != nil { // it ended meanwhile
			if refusal == nil {
				p := Permit{c: c, by: by}
				p.begin()
				p.Release()
			}
			return nil, c.ended(ctx, err)
		}
	}
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

// ended reports to OnCall a call whose ctx has ended with err, and returns err.
func (c *ToolCircuit) ended(ctx context.Context, err error) error {
	if c.onCall != nil {
		c.report(ctx, Call{State: c.State(), Verdict: Verdict{Kind: Classify(ctx, Outcome{Err: err}).Kind}, Err: err})
	}
	return err
}

// begin starts a call of a state that may not be plain.
func (p *Permit) begin() {
	if p.Probe() {
		p.announce()
	}
	p.start()
}

// announce delivers the event of a probe's admission. If OnEvent ends the goroutine, announce
// frees the slot.
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

// start notes when the call begins, if its duration is needed.
func (p *Permit) start() {
	if p.by.timed {
		p.more().started = p.c.clock.Since(p.by.since)
	}
}

// admit returns the state that lets the call run. If the circuit refuses, it returns the state
// that refuses and the refusal. A refusal reads the clock at most once. waited reports whether the
// call may have waited for a Fleet's store. The caller delivers the event of a probe's admission.
func (c *ToolCircuit) admit(ctx context.Context) (by *state, refusal *OpenError, waited bool) {
	touched, asked := false, false // each at most once, so that a call does not wait again
	for {
		s := c.state.Load()
		if s.override == OverrideClosed || s.override == OverrideNone && s.State == StateClosed {
			if touched || s.use.plain() {
				return s, nil, touched
			}
			touched = true
			c.touch(ctx)
			continue
		}
		if _, refusal := c.look(s); refusal != nil {
			if c.rides(ctx, s) {
				ride := *s
				ride.rides = true
				return &ride, nil, touched || asked
			}
			return s, refusal, touched || asked
		}
		if s.use != useAlone {
			if asked {
				return s, c.refusal(s), true
			}
			if by, asked = c.ask(ctx, s); by != nil {
				return by, nil, true
			}
			continue
		}
		probe, taken := c.advance(ctx, time.Time{}, func(now state, in input) (state, bool) {
			if c.state.Load() != s { // another step came first: look again
				return now, false
			}
			return now.admit(in), true
		})
		if taken {
			return probe, nil, false
		}
	}
}

// look returns the refusal that a call of this tool meets in s, and how long it still lasts. The
// refusal is nil if s lets the call run. remaining is 0 under OverrideOpen, which no time ends.
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

// refusal returns the error with which s refuses calls of this tool. s has a gate.
func (c *ToolCircuit) refusal(s *state) *OpenError {
	if c.tool.SideEffects {
		return s.gate.refusalWrites
	}
	return s.gate.refusal
}

// rides reports whether a call that s refuses runs all the same, as a part of the probe: ctx comes
// from the operation that holds the slot of s.
func (c *circuit) rides(ctx context.Context, s *state) bool {
	if s.State != StateHalfOpen || s.override != OverrideNone {
		return false
	}
	return ctx.Value(slotKey{c}) == any(s.slot()) &&
		s.gate.remaining(s.gate.hold, c.clock.Since(s.gate.from)) > 0
}

// Context returns the context for the operation of the call.
//
//   - Under Policy.CallTimeout it ends when that time has passed since Allow, and at Settle or
//     Release. So settle a stream at its end.
//   - If the call is the probe, [IsProbe] reports true for it, and calls of the same circuit with
//     it run as a part of the probe, as [Do] says.
//   - Otherwise it is ctx.
//
// Without Context, CallTimeout is checked at Settle only.
//
// Call Context once, before Settle. A call after Settle or Release panics, and a second call may
// panic. A nil ctx panics.
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

// slotKey is the context key for the slot that a circuit's probe took.
type slotKey struct{ *circuit }

// IsProbe reports whether ctx belongs to an operation that is a probe, or is derived from such a
// context. The outcome of that operation decides whether a circuit closes. A nil ctx panics.
func IsProbe(ctx context.Context) bool {
	if ctx == nil {
		panic("toolcircuit: IsProbe: ctx is nil")
	}
	_, ok := ctx.Value(probeKey{}).(bool)
	return ok
}

// Probe reports whether the outcome of this call decides whether the circuit closes. A caller can
// renew its connection first.
func (p *Permit) Probe() bool { return p.by != nil && p.by.State == StateHalfOpen && p.recorded() }

// early reports whether the call is a Monitor's check during the cooldown. Such a check is no call
// of the circuit.
func (p *Permit) early() bool { return p.by.State == StateOpen && p.by.override == OverrideNone }

// recorded reports whether the outcome counts. It does not for a call under OverrideClosed, for
// one inside a probe and for an early check.
func (p *Permit) recorded() bool {
	return p.by.override != OverrideClosed && !p.by.rides && !p.early()
}

// Settle judges the outcome of the call and records it. It returns the verdict, and the error that
// belongs to the caller of the tool: err itself, or a [*CallTimeoutError] around err if that came
// after CallTimeout.
//
// ctx is the caller's, not the operation's. A nil ctx panics. Only a Classifier reads value, and
// Settle itself if value is [Judged]; otherwise pass nil. An err of [ErrNoReturn] counts as a
// failure of kind panic.
//
// A later Settle changes nothing and returns its own err. Its verdict is that of the first Settle.
// It is zero while the first still judges, and after Release.
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

// end moves the permit to the phase to. It reports false if another caller has ended the permit.
func (p *Permit) end(to uint32) bool {
	now := p.phase.Load() // a swap that fails costs as much as one that does not
	return now <= prepared && (p.phase.CompareAndSwap(now, to) || p.phase.CompareAndSwap(prepared, to))
}

// settledAs returns the verdict of a permit that has ended, zero while Settle still judges.
func (p *Permit) settledAs() Verdict {
	switch p.phase.Load() {
	case settled:
		return p.details.verdict
	case healed:
		return Verdict{Effect: EffectHeal, Kind: KindOK}
	}
	return Verdict{}
}

// elapsed returns the time since Allow. It is 0 if neither the policy, a Classifier nor OnCall
// needs it.
func (p *Permit) elapsed() time.Duration {
	if !p.by.watched {
		return 0
	}
	return max(p.c.clock.Since(p.by.since)-p.details.started, 0)
}

// began returns when the call began, or the zero time if it is not timed.
func (p *Permit) began() time.Time {
	if !p.by.timed || p.details == nil {
		return time.Time{}
	}
	return p.by.since.Add(p.details.started)
}

// count counts a healthy call in the window, if s has one.
func (s *state) count(c clock.Clock) {
	if s.window != nil {
		s.window.Add(c, false)
	}
}

// settle judges, records and reports a call, and ends its context.
func (p *Permit) settle(ctx context.Context, value any, err error) (v Verdict, forCaller error) {
	c, more := p.c, p.more()
	o := Outcome{Dependency: c.dependency, Value: value, Err: err, Elapsed: p.elapsed()}
	late := p.late(o.Elapsed)
	if late && err != nil && err != ErrNoReturn && (more.timeout == nil || err != error(more.timeout)) {
		o.Err = &CallTimeoutError{Dependency: c.dependency, After: p.by.CallTimeout, Err: err}
	}
	forCaller = o.Err
	v = KindPanic.verdict() // stays if a Classifier ends the goroutine
	call := Call{State: p.by.State, Executed: true, Probe: p.Probe(), Early: p.early(), Elapsed: o.Elapsed, Err: forCaller}
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
		call.Err = errors.Join(forCaller, panicked)
	}
	return v, forCaller
}

// endContext ends the context of the operation, if it has one of its own.
func (p *Permit) endContext() {
	if p.details != nil && p.details.cancel != nil {
		p.c.safely(p.details.cancel) // the parent context may be a user's
	}
}

// Release gives the permit back unused. Nothing is recorded, and the next caller can take the slot
// of a probe. After Settle it does nothing.
func (p *Permit) Release() {
	// Most permits are settled before, so read before writing.
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

// late reports whether the call ran into CallTimeout. If the operation's context has ended, its
// cause decides. Otherwise elapsed decides.
func (p *Permit) late(elapsed time.Duration) bool {
	d := p.by.CallTimeout
	if more := p.details; d > 0 && more.ctx != nil && more.ctx.Err() != nil {
		return context.Cause(more.ctx) == error(more.timeout)
	}
	return d > 0 && elapsed >= d
}

// judge returns the verdict on the call. ErrNoReturn comes first, then CallTimeout, then classify,
// whose verdict the policy and a Monitor may change.
func (p *Permit) judge(ctx context.Context, o Outcome, late bool) Verdict {
	switch {
	case o.Err == ErrNoReturn:
		return KindPanic.verdict()
	case late:
		return KindTimeout.verdict()
	}
	v, known := classify(ctx, o, p.c.classify)
	if v.Kind == KindTimeout && o.Err != nil && passed(ctx) {
		v = KindDeadline.verdict() // a socket has the same deadline and may report it before ctx does
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
		} else {
			v.RetryAfter = 0
		}
	}
	if p.c.tool.monitor && v.Effect == EffectIgnore && v.Kind.ClientError() {
		if o.Err == nil || examine(o.Err).fate != unsent { // what was never sent proves no health
			v.Effect = EffectHeal
		}
	}
	return v
}

// passed reports whether ctx's deadline is over. It compares with real time, because every
// context's deadline is real time.
func passed(ctx context.Context) bool {
	d, ok := ctx.Deadline()
	return ok && time.Until(d) <= 0
}

// record counts the outcome in the window and takes a step with it. It reports whether the outcome
// is stale: the circuit has begun another epoch since it admitted the call.
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

// report calls OnCall, which must not be nil.
func (c *ToolCircuit) report(ctx context.Context, call Call) {
	call.Dependency, call.Tool = c.dependency, c.tool.Name
	c.safely(func() { call.RunID = RunID(ctx) }) // the context may be a user's
	c.safely(func() { c.onCall(ctx, call) })
}

// step calls advance. If f changed the state, it then tells a Fleet's store what is owed and
// delivers the event. The caller holds no lock.
func (c *ToolCircuit) step(ctx context.Context, began time.Time, f func(state, input) (state, bool)) {
	after, changed := c.advance(ctx, began, f)
	if after.debt() != nil && changed {
		defer c.deliver()
		c.tell(ctx, after)
	} else if changed {
		c.deliver()
	}
}

// advance runs one function f of the machine, under the lock. If f changes the state, advance
// publishes the result, wakes those who wait for a change, and queues the event. It returns the
// state that is published then, and whether f changed it. began is when the call began that causes
// the step, or zero. advance reads the clock before it locks, because the clock may be a user's.
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
