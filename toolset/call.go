package toolset

import (
	"cmp"
	"context"
	"sync/atomic"

	"github.com/toolcircuit/toolcircuit"
)

// Permit is the right to make one call of a tool, from [Set.Allow]. Use it as
// [toolcircuit.Permit]: end it with Settle or Release, from any goroutine. The first of them
// decides. Do not copy it. A Permit that ends with neither keeps its slot of MaxInFlight.
//
// A call of a tool that is not guarded has a Permit, too. It is told to the session, if there is
// one, and Options.Classify and the rules judge its outcome, but nothing is recorded.
type Permit struct {
	phase   atomic.Uint32
	given   atomic.Bool // Context was called; only for a tool that is not guarded
	set     *Set
	tool    string
	member  *member            // nil: the tool is not guarded
	session *call              // nil: no session
	of      toolcircuit.Permit // zero until the outcome is judged, if the tool is not guarded
}

// The phases of a Permit.
const (
	running uint32 = iota
	over           // Settle or Release was called
	healed         // then, if the tool is not guarded: settled as ok, and of is zero
	judged         // the same: of knows the verdict
)

// Allow asks for one call of a tool in two steps, for code that [Do] cannot enclose:
//
//	permit, err := set.Allow(ctx, tool, args)
//	if err != nil {
//		return err // refused
//	}
//	defer permit.Release()
//	value, err := call(permit.Context(ctx))
//	verdict, err := permit.Settle(ctx, value, err)
//
// args are the arguments of the call, which a session compares: any value that JSON can hold, or
// [Unknown]. Allow returns a Permit, or a [*toolcircuit.OpenError] if the call is refused, or the
// error of a ctx that has already ended. Exception: a call of a tool that is not guarded may run
// under such a ctx.
func (s *Set) Allow(ctx context.Context, tool string, args any) (p Permit, err error) {
	err = p.begin(ctx, s, tool, args)
	return
}

// begin is Allow. If the call is refused, p has no Set.
func (p *Permit) begin(ctx context.Context, s *Set, tool string, args any) (err error) {
	if s == nil || ctx == nil {
		panic("toolset: the Set or ctx is nil")
	}
	if r := s.session(ctx); r != nil {
		if p.session, err = r.begin(ctx, tool, args); err != nil {
			return err
		}
	}
	defer func() {
		if p.set == nil { // also if code of the user ended the goroutine
			p.leave(ctx, outcome{err: err})
		}
	}()
	if err = p.enter(ctx, s, tool); err == nil {
		p.set, p.tool = s, tool
	}
	return err
}

// enter takes a slot of the tool's dependency and a permit of its circuit, unless the tool is not
// guarded.
func (p *Permit) enter(ctx context.Context, s *Set, tool string) (err error) {
	for {
		t, d, m := s.lookup(ctx, tool)
		if m == nil {
			return nil
		}
		left, busy := m.enter(d.MaxInFlight)
		switch {
		case left:
			s.create(ctx, tool) // waits until eviction has removed or kept the member
		case busy:
			return s.busy(ctx, tool, m, m.as(t))
		default:
			p.member = m
			p.of, err = m.as(t).Allow(ctx)
			return err
		}
	}
}

// leave gives the slot back and tells the session the outcome.
func (p *Permit) leave(ctx context.Context, o outcome) {
	if p.member != nil {
		p.member.leave()
	}
	if p.session != nil && !p.session.free {
		p.session.end(ctx, o)
	}
}

// Settle judges the outcome of the call and records it, as [toolcircuit.Permit.Settle] does, and
// tells the session. Only a Classifier and a session read value, and Settle itself if value is
// [toolcircuit.Judged]; otherwise pass nil.
func (p *Permit) Settle(ctx context.Context, value any, err error) (v toolcircuit.Verdict, forCaller error) {
	if ctx == nil {
		panic("toolset: Permit.Settle: ctx is nil")
	}
	if p.set != nil && p.phase.CompareAndSwap(running, over) {
		return p.settle(ctx, value, err)
	}
	switch phase := p.phase.Load(); {
	case phase == healed:
		return healthy, err
	case phase == over && p.member == nil:
		return v, err
	}
	return p.of.Settle(ctx, value, err) // it knows the verdict, if there is one
}

// settle is Settle for the first who ends the permit.
func (p *Permit) settle(ctx context.Context, value any, err error) (v toolcircuit.Verdict, forCaller error) {
	if p.session == nil {
		if p.member != nil {
			defer p.member.leave() // also if a Classifier ends the goroutine
		}
		return p.judge(ctx, value, err)
	}
	o := outcome{executed: true, verdict: noReturn, value: value, err: err}
	defer func() { p.leave(ctx, o) }()
	v, forCaller = p.judge(ctx, value, err)
	o.verdict, o.err = v, forCaller
	return v, forCaller
}

// judge settles the call with its circuit. For a tool that is not guarded it uses a circuit that
// nobody else sees, if there is anything to judge.
func (p *Permit) judge(ctx context.Context, value any, err error) (toolcircuit.Verdict, error) {
	if p.member == nil {
		if _, ok := value.(toolcircuit.Judged); !ok && err == nil && !p.set.classifies {
			p.phase.Store(healed)
			return healthy, nil
		}
		p.of, _ = p.set.unguarded.Twin(cmp.Or(p.tool, p.set.unguarded.Dependency())).Allow(context.Background())
		p.phase.Store(judged)
	}
	return p.of.Settle(ctx, value, err)
}

var (
	healthy  = toolcircuit.Verdict{Effect: toolcircuit.EffectHeal, Kind: toolcircuit.KindOK}
	noReturn = toolcircuit.Verdict{Effect: toolcircuit.EffectCount, Kind: toolcircuit.KindPanic} // of a call that did not return
)

// Release gives the permit back unused. Nothing is recorded, and the next caller can take the slot
// of a probe. After Settle it does nothing.
func (p *Permit) Release() {
	if p.set == nil || p.phase.Load() != running || !p.phase.CompareAndSwap(running, over) {
		return
	}
	defer p.leave(context.Background(), outcome{})
	p.of.Release()
}

// Context returns the context for the operation of the call, as [toolcircuit.Permit.Context] does.
// With it [IdempotencyKey] knows the call.
func (p *Permit) Context(ctx context.Context) context.Context {
	if p.set != nil && p.member == nil && ctx != nil && (p.phase.Load() != running || p.given.Swap(true)) {
		panic("toolset: Permit.Context: called twice, or after Settle or Release")
	}
	return p.session.in(p.of.Context(ctx)) // checks the rest
}

// Probe reports whether the outcome of this call decides whether the circuit closes. A caller can
// renew its connection first.
func (p *Permit) Probe() bool { return p.member != nil && p.of.Probe() }

// Do is [toolcircuit.Do] for a tool of a Set, with args as in [Set.Allow]. If the tool is not
// guarded, op runs unless the [Session] of ctx refuses.
func Do[T any](ctx context.Context, s *Set, tool string, args any, op func(context.Context) (T, error)) (T, error) {
	value, _, _, err := do(ctx, s, tool, args, op)
	return value, err
}

// do is Do with the verdict, which is zero if op did not run, and with the call of the session, if
// any.
func do[T any](ctx context.Context, s *Set, tool string, args any, op func(context.Context) (T, error)) (value T, v toolcircuit.Verdict, c *call, err error) {
	if op == nil {
		panic("toolset: Do: op is nil")
	}
	var p Permit // declared here, because a function returns one this large slowly
	if err = p.begin(ctx, s, tool, args); err != nil {
		return value, v, nil, err
	}
	c = p.session
	began := false
	defer func() {
		if !began { // the caller's context ended the goroutine
			p.Release()
			return
		}
		var seen any
		if _, ok := any(value).(toolcircuit.Judged); ok || p.session != nil || s.classifies {
			seen = value
		}
		v, err = p.settle(ctx, seen, err) // not Settle: nobody else has p
	}()
	inner := p.Context(ctx)
	began, err = true, toolcircuit.ErrNoReturn
	value, err = op(inner)
	return
}

// Wrap is [toolcircuit.Wrap] for a tool of a Set. The tool is looked up at each call. Its input is
// the arguments of the call.
func Wrap[In, Out any](s *Set, tool string, fn func(context.Context, In) (Out, error)) func(context.Context, In) (Out, error) {
	if s == nil || fn == nil {
		panic("toolset: Wrap: the Set or the tool is nil")
	}
	return func(ctx context.Context, in In) (Out, error) {
		return Do(ctx, s, tool, in, func(ctx context.Context) (Out, error) { return fn(ctx, in) })
	}
}

// busy returns the refusal of a call for which there is no slot. If ctx has ended or the circuit
// refuses, too, that comes first: it does not end with the running calls.
func (s *Set) busy(ctx context.Context, tool string, m *member, c *toolcircuit.ToolCircuit) error {
	if ctx.Err() != nil || !c.Ready() {
		p, err := c.Allow(ctx)
		if err != nil {
			return err
		}
		p.Release()
	}
	m.countBusy()
	e := &toolcircuit.OpenError{Dependency: c.Dependency(), State: c.State(), Reason: toolcircuit.ReasonBusy}
	s.report(ctx, tool, e)
	return e
}

// report tells OnCall about a refusal that no circuit made.
func (s *Set) report(ctx context.Context, tool string, e *toolcircuit.OpenError) {
	if s.onCall == nil {
		return
	}
	s.safely(func() {
		s.onCall(ctx, toolcircuit.Call{
			Dependency: e.Dependency,
			Tool:       tool,
			RunID:      toolcircuit.RunID(ctx),
			State:      e.State,
			Reason:     e.Reason,
			Verdict:    toolcircuit.Verdict{Kind: toolcircuit.KindRejected},
			RetryAt:    e.RetryAt,
			Err:        e,
		})
	})
}

// safely runs a hook, whose panic must not cost the caller its result.
func (s *Set) safely(hook func()) {
	defer func() {
		if recover() != nil {
			s.hookPanics.Add(1)
		}
	}()
	hook()
}
