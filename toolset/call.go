package toolset

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/toolcircuit/toolcircuit"
)

// Unknown stands for arguments that nobody knows. They are equal to none, not even to one
// another.
var Unknown any = unknown{}

type unknown struct{}

// MarshalJSON fails, so that what holds Unknown equals nothing either.
func (unknown) MarshalJSON() ([]byte, error) { return nil, errNotCanonical }

// outcome is what came of a call that a session let through.
type outcome struct {
	executed bool // else nothing ran; err says why, nil if a permit was handed back
	verdict  toolcircuit.Verdict
	value    any
	err      error
}

// passage is one call on its way through the gate.
type passage struct {
	set      *Set
	call     *call                    // nil: no session
	member   *member                  // nil: not guarded
	circuit  *toolcircuit.ToolCircuit // as the tool sees it
	executed bool
}

// enter takes a call as far as its circuit: past the rules of its session, then past the slots of
// its dependency. Each passage that it returns without an error must leave.
func (s *Set) enter(ctx context.Context, tool string, args any) (p passage, err error) {
	if s == nil || ctx == nil {
		panic("toolset: the Set or ctx is nil")
	}
	p.set = s
	if r := s.session(ctx); r != nil {
		if p.call, err = r.begin(ctx, tool, args); err != nil {
			return passage{}, err
		}
	}
	for {
		t, d, m := s.lookup(ctx, tool)
		if m == nil {
			return p, nil
		}
		p.circuit = m.as(t)
		left, busy := m.enter(d.MaxInFlight)
		switch {
		case left:
			s.create(ctx, tool) // which waits until the member is out of the way
		case busy:
			err = s.busy(ctx, tool, p.circuit)
			p.leave(ctx, nil, err)
			return passage{}, err
		default:
			p.member = m
			return p, nil
		}
	}
}

// leave gives back the slot and tells the session what came of the call.
func (p *passage) leave(ctx context.Context, value any, err error) {
	if p.member != nil {
		p.member.leave()
	}
	if p.call == nil || p.call.free {
		return
	}
	o := outcome{executed: p.executed, value: value, err: err}
	if o.executed {
		o.verdict = noReturn // what stands if a Classifier ends the goroutine
	}
	defer func() { p.call.end(ctx, o) }()
	if o.executed {
		o.verdict = p.set.judge(ctx, value, err)
	}
}

// busy returns the refusal of a call for which there is no slot.
func (s *Set) busy(ctx context.Context, tool string, c *toolcircuit.ToolCircuit) error {
	e := &toolcircuit.OpenError{Dependency: c.Dependency(), State: c.State(), Reason: toolcircuit.ReasonBusy}
	s.report(ctx, tool, e)
	return e
}

// report tells OnCall of a refusal that no circuit made.
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
			Verdict:    toolcircuit.Verdict{Kind: toolcircuit.KindRejected},
			RetryAt:    e.RetryAt,
			Err:        e,
		})
	})
}

// safely runs a hook whose panic must not cost the caller its result.
func (s *Set) safely(hook func()) {
	defer func() {
		if recover() != nil {
			s.hookPanics.Add(1)
		}
	}()
	hook()
}

// Permit is the right to make one call, from Allow. It is used as [toolcircuit.Permit] is,
// and must not be copied: it ends with Settle or Release, the first of which wins, from any
// goroutine. That of a tool which is not guarded tells the session, if there is one, and does
// nothing else. A slot of MaxInFlight is lost with a Permit that is dropped with neither.
type Permit struct {
	over atomic.Bool
	p    passage
	of   toolcircuit.Permit
}

// Allow asks for one call of a tool in two steps, where [Do] cannot enclose it:
//
//	permit, err := set.Allow(ctx, tool, args)
//	if err != nil {
//		return err // refused
//	}
//	defer permit.Release()
//	value, err := call(ctx)
//	permit.Settle(ctx, value, err)
//
// Args are the arguments of the call, for a session to compare: any value that JSON can
// hold, or [Unknown]. Allow returns a permit, the refusal (a [*toolcircuit.OpenError]), or the
// error of a ctx that is over already.
func (s *Set) Allow(ctx context.Context, tool string, args any) (p Permit, err error) {
	if p.p, err = s.enter(ctx, tool, args); err != nil || p.p.member == nil {
		return
	}
	if p.of, err = p.p.circuit.Allow(ctx); err != nil {
		p.p.leave(ctx, nil, err)
		p.p = passage{}
	}
	return
}

// Settle judges what came of the call and records it. Pass a nil value where no Classifier
// and no session reads it.
func (p *Permit) Settle(ctx context.Context, value any, err error) {
	if p.p.set == nil || p.over.Swap(true) {
		return
	}
	p.p.executed = true
	defer p.p.leave(ctx, value, err)
	p.of.Settle(ctx, value, err)
}

// Release hands the permit back unused: nothing is recorded, and the slot of a probe is free
// for the next caller.
func (p *Permit) Release() {
	if p.p.set == nil || p.over.Swap(true) {
		return
	}
	defer p.p.leave(context.Background(), nil, nil)
	p.of.Release()
}

// Context returns ctx as the operation of the call should have it, so that [IdempotencyKey]
// knows which call it is in.
func (p *Permit) Context(ctx context.Context) context.Context { return p.p.call.in(ctx) }

// Probe reports whether this call decides if the circuit closes, so that a caller can renew
// its connection first.
func (p *Permit) Probe() bool { return p.of.Probe() }

// errNoReturn stands for the result of a call that ended in a panic or runtime.Goexit.
var errNoReturn = errors.New("toolset: the call did not return")

// Do is [toolcircuit.Do] for a tool of a Set, with args as in [Set.Allow]. If the tool is not
// guarded, op just runs, unless the [Session] of ctx refuses.
func Do[T any](ctx context.Context, s *Set, tool string, args any, op func(context.Context) (T, error)) (value T, err error) {
	if op == nil {
		panic("toolset: Do: op is nil")
	}
	p, err := s.enter(ctx, tool, args)
	if err != nil {
		return value, err
	}
	err = errNoReturn
	defer func() {
		var seen any
		if p.call != nil {
			seen = value
		}
		p.leave(ctx, seen, err)
	}()
	run := func(ctx context.Context) (T, error) {
		p.executed = true
		return op(p.call.in(ctx))
	}
	if p.circuit == nil {
		return run(ctx)
	}
	return toolcircuit.Do(ctx, p.circuit, run)
}

// Wrap is [toolcircuit.Wrap] for a tool of a Set, looked up at each call. What the tool is
// given are the arguments of the call.
func Wrap[C context.Context, In, Out any](s *Set, tool string, fn func(C, In) (Out, error)) func(C, In) (Out, error) {
	if s == nil || fn == nil {
		panic("toolset: Wrap: the Set or the tool is nil")
	}
	return func(ctx C, in In) (Out, error) {
		return Do(ctx, s, tool, in, func(inner context.Context) (Out, error) {
			if inner, same := inner.(C); same {
				return fn(inner, in)
			}
			return fn(ctx, in)
		})
	}
}
