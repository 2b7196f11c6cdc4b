package toolset

import (
	"cmp"
	"context"

	"github.com/toolcircuit/toolcircuit"
)

// ResultOf is [toolcircuit.ResultOf] for what a call of a tool of a Set returned. It offers
// only those alternatives that are neither excluded nor blocked now. Under a [Session] a
// blocked result has BlockedCalls and EndTurn, and one of a call that ran may have Advice.
func ResultOf[T any](ctx context.Context, s *Set, tool string, value T, err error) (r toolcircuit.Result[T], _ error) {
	if err == nil {
		r, err = toolcircuit.ResultOf(s.hookless, value, nil)
	} else {
		r, err = toolcircuit.ResultOf(s.face(ctx, tool), value, err)
	}
	note(ctx, s, tool, &r)
	return r, err
}

// SoftResultOf is ResultOf for a runtime in which the error of a tool ends the run: failures
// become failed results, as in [toolcircuit.WrapSoft].
func SoftResultOf[T any](ctx context.Context, s *Set, tool string, value T, err error) (toolcircuit.Result[T], error) {
	r, failure := ResultOf(ctx, s, tool, value, err)
	if failure == nil || ctx.Err() != nil { // after the end only a refusal is a result
		return r, failure
	}
	r, err = toolcircuit.WrapSoft(s.face(ctx, tool), func(context.Context, struct{}) (T, error) {
		return value, err
	})(ctx, struct{}{})
	note(ctx, s, tool, &r)
	return r, err
}

// WrapResult is [Wrap] for a tool whose caller is a model: what it returns goes through
// [ResultOf].
func WrapResult[C context.Context, In, Out any](s *Set, tool string, fn func(C, In) (Out, error)) func(C, In) (toolcircuit.Result[Out], error) {
	wrapped := Wrap(s, tool, fn)
	return func(ctx C, in In) (toolcircuit.Result[Out], error) {
		out, err := wrapped(ctx, in)
		return ResultOf(ctx, s, tool, out, err)
	}
}

// WrapSoft is [Wrap] for a tool in a runtime that ends a run with the error of a tool: what it
// returns goes through [SoftResultOf].
func WrapSoft[C context.Context, In, Out any](s *Set, tool string, fn func(C, In) (Out, error)) func(C, In) (toolcircuit.Result[Out], error) {
	wrapped := Wrap(s, tool, fn)
	return func(ctx C, in In) (toolcircuit.Result[Out], error) {
		out, err := wrapped(ctx, in)
		return SoftResultOf(ctx, s, tool, out, err)
	}
}

// face returns a circuit that looks to a model as the tool's own does now, without hooks, on
// which nothing else counts.
func (s *Set) face(ctx context.Context, tool string) *toolcircuit.ToolCircuit {
	p := s.plan.Load()
	t, d := p.resolve(tool)
	if d == nil {
		return s.hookless.Twin(cmp.Or(tool, s.hookless.Dependency())).WithTool(toolcircuit.Tool{Name: tool, Message: s.message})
	}
	shown := toolcircuit.Tool{Name: tool, Message: s.message}
	if t != nil {
		shown = *t
		shown.Alternatives = nil
		for _, name := range t.Alternatives {
			if s.offers(ctx, p, name) {
				shown.Alternatives = append(shown.Alternatives, name)
			}
		}
	}
	return s.hookless.Twin(cmp.Or(d.name, tool)).WithTool(shown)
}

// offers reports whether a model may be sent to a tool now.
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

type verdictKey struct{}

// noReturn is the verdict on a call that did not return.
var noReturn = toolcircuit.Verdict{Effect: toolcircuit.EffectCount, Kind: toolcircuit.KindPanic}

// judge returns the verdict of a circuit of this Set on a call.
func (s *Set) judge(ctx context.Context, value any, err error) (v toolcircuit.Verdict) {
	if err == errNoReturn {
		return noReturn
	}
	if err == nil {
		ctx = context.WithoutCancel(ctx) // it was in time
	}
	ctx = context.WithValue(ctx, verdictKey{}, &v)
	toolcircuit.Do(ctx, s.hookless.Twin(s.hookless.Dependency()), func(context.Context) (any, error) { return value, err })
	return v
}

// capture is the OnCall of the circuit that only judges.
func capture(ctx context.Context, c toolcircuit.Call) {
	if v, ok := ctx.Value(verdictKey{}).(*toolcircuit.Verdict); ok {
		*v = c.Verdict
	}
}
