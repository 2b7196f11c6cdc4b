package toolset

import (
	"cmp"
	"context"

	"github.com/toolcircuit/toolcircuit"
)

// ResultOf is [toolcircuit.ResultOf] for a call of a tool of a Set. It offers only alternatives
// that are neither excluded nor blocked now. Under a [Session] a blocked result has BlockedCalls
// and EndTurn, and the result of a call that ran may have Advice.
//
// ResultOf does not see the arguments. So its Advice may be about another call of the tool whose
// outcome has the same kind, or any kind if v is zero. The Advice of [DoResult] is about the very
// call.
func ResultOf[T any](ctx context.Context, s *Set, tool string, value T, v toolcircuit.Verdict, err error) (toolcircuit.Result[T], error) {
	if s == nil || ctx == nil {
		panic("toolset: ResultOf: the Set or ctx is nil")
	}
	return resultOf(ctx, s, tool, nil, value, v, err)
}

// resultOf is ResultOf with the call that a session let through, nil if unknown.
func resultOf[T any](ctx context.Context, s *Set, tool string, call *call, value T, v toolcircuit.Verdict, err error) (toolcircuit.Result[T], error) {
	c := s.root
	if err != nil {
		c = s.view(ctx, tool)
	}
	r, err := toolcircuit.ResultOf(c, value, v, err)
	note(ctx, s, tool, call, v, &r)
	return r, err
}

// DoResult is [Do] for a caller that is a model. What the call returns goes through [ResultOf].
func DoResult[T any](ctx context.Context, s *Set, tool string, args any, op func(context.Context) (T, error)) (toolcircuit.Result[T], error) {
	value, v, call, err := do(ctx, s, tool, args, op)
	return resultOf(ctx, s, tool, call, value, v, err)
}

// WrapResult is [Wrap] for a caller that is a model. What the tool returns goes through
// [ResultOf].
func WrapResult[In, Out any](s *Set, tool string, fn func(context.Context, In) (Out, error)) func(context.Context, In) (toolcircuit.Result[Out], error) {
	if s == nil || fn == nil {
		panic("toolset: WrapResult: the Set or the tool is nil")
	}
	return func(ctx context.Context, in In) (toolcircuit.Result[Out], error) {
		return DoResult(ctx, s, tool, in, func(ctx context.Context) (Out, error) { return fn(ctx, in) })
	}
}

// view returns the circuit of a tool as a model should read about it now: with the alternatives
// that can be called. For a tool that is not guarded it returns a new circuit.
func (s *Set) view(ctx context.Context, tool string) *toolcircuit.ToolCircuit {
	t, _, m := s.lookup(ctx, tool)
	p := s.plan.Load()
	shown := toolcircuit.Tool{Name: tool, SideEffects: p.sideEffects(tool), Message: s.message}
	if m == nil {
		return s.unguarded.Twin(cmp.Or(tool, s.unguarded.Dependency())).WithTool(shown)
	}
	if t != nil {
		shown = *t
		shown.Alternatives = nil
		over := s.session(ctx).over()
		for _, name := range t.Alternatives {
			if !over && s.offers(ctx, p, name) {
				shown.Alternatives = append(shown.Alternatives, name)
			}
		}
	}
	return m.circuit.WithTool(shown)
}

// offers reports whether a model may be told to use a tool now.
func (s *Set) offers(ctx context.Context, p *plan, tool string) bool {
	if p.excluded.match(tool) {
		return false
	}
	t, d := p.resolve(tool)
	dependency, m := s.existing(ctx, p, tool)
	if m == nil {
		return p.overrides[dependency] != toolcircuit.OverrideOpen
	}
	return m.as(t).Ready() && !m.busy(d.MaxInFlight)
}
