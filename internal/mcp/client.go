package mcp

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// Exchange is one request of a client, with results of type R over sessions of type S.
//
// A client has two levels, the server's circuit and the tool's. The server's circuit takes the blame
// for a request that got no answer; the tool's circuit judges the answers. A call takes these steps:
//
//  1. the server's circuit, and its probe if one is due,
//  2. a session, which is renewed if it is gone,
//  3. the tool's permit,
//  4. the request.
//
// So a call waits for a session under its own context, and CallTimeout starts at sending. A caller
// that leaves earlier holds no permit.
type Exchange[S comparable, R any] struct {
	Set     *toolset.Set
	Servers *Servers
	Server  *Server
	Circuit *toolcircuit.ToolCircuit // the server's, nil if it has none
	Line    *Line[S]
	Missing error           // the SDK's error of a session that the server does not know
	Base    context.Context // ends with the guard
	Shield  Shield          // of the request

	Send  func(context.Context, S) (R, error) // the request
	Ping  func(context.Context, S) error
	Signs func(error) Signs
}

// Call makes a guarded call of a tool. judge returns the value and the error by which the tool's
// circuit judges an answer. told is as in [Serve].
//
// Call sends a request once more, on another session, if it was surely not executed, or if the answer
// was 400 and the tool has no side effects.
func (x *Exchange[S, R]) Call(ctx context.Context, tool string, args any, judge func(R, error) (any, error)) (res R, told *toolcircuit.Result[any], err error) {
	if c := x.Set.Circuit(ctx, tool); c != nil {
		if x.Circuit != nil && c.Dependency() == x.Circuit.Dependency() {
			x.Circuit = nil // the two levels are one: asked twice, it would never let its probe through
		}
		if !c.Ready() { // it need not wait for a session
			permit, err := x.Set.Allow(ctx, tool, args)
			if err != nil {
				told, err = x.refusal(ctx, tool, err)
				return res, told, err
			}
			permit.Release()
		}
	}
	x.Servers.Saw(tool, x.Server)
	for again := false; ; again = true {
		res, told, retry, err := x.once(ctx, tool, args, judge, again)
		if !retry {
			return res, told, err
		}
	}
}

func (x *Exchange[S, R]) once(ctx context.Context, tool string, args any, judge func(R, error) (any, error), again bool) (res R, told *toolcircuit.Result[any], retry bool, err error) {
	v, err := x.enter(ctx, x.callTimeout(ctx, tool), true)
	var unmade *unrenewed
	if err != nil && !(errors.As(err, &unmade) && unmade.own) {
		told, err = x.refusal(ctx, tool, err)
		return res, told, false, err
	}
	if err == nil {
		defer v.leave()
	}
	permit, refused := x.Set.Allow(ctx, tool, args)
	if refused != nil {
		told, err = x.refusal(ctx, tool, refused)
		return res, told, false, err
	}
	if err != nil { // there is no session, and no circuit says more
		_, err = permit.Settle(ctx, nil, Unanswered(err))
		return res, nil, false, err
	}
	returned := false
	defer func() {
		if !returned {
			permit.Settle(ctx, nil, toolcircuit.ErrNoReturn)
		}
	}()
	inner := permit.Context(ctx)
	before := x.Server.answers.Load()
	res, r := x.send(inner, v)
	returned = true
	r, neverAnswered := x.gone(v, r, again, tool)
	if r.Gone && r.Unsent && !again && x.renews() {
		permit.Release()
		return res, nil, true, nil
	}
	kind := x.settle(ctx, v, r, x.callTimeout(ctx, tool), before, neverAnswered)
	switch {
	case r.Barred && (r.Answered || x.Circuit != nil), r.Unsent && !r.Gone && !r.Answered:
		permit.Release()
		var late, outer *toolcircuit.CallTimeoutError
		errors.As(context.Cause(ctx), &outer)
		if errors.As(context.Cause(inner), &late) && late != outer { // its own CallTimeout, not that of a call around it
			r.Err = &toolcircuit.CallTimeoutError{Dependency: late.Dependency, After: late.After, Err: r.Err}
		}
		return res, nil, false, r.Err
	case r.Answered:
		value, seen := judge(res, r.Err)
		verdict, _ := permit.Settle(ctx, value, seen)
		if r.Err == nil {
			told = advised(ctx, x.Set, tool, verdict)
		}
		return res, told, false, r.Err
	case x.Circuit == nil, kind == toolcircuit.KindTimeout, kind == toolcircuit.KindDeadline, kind == toolcircuit.KindUnknown:
		_, err = permit.Settle(ctx, nil, r.Err)
	default:
		permit.Settle(ctx, nil, Blameless(r.Err))
		err = r.Err
	}
	return res, nil, false, err
}

// Fetch makes a request that has no tool, such as one for a list, through the server's circuit,
// which it must have. It reports whether the request failed for a reason that is the server's.
func (x *Exchange[S, R]) Fetch(ctx context.Context) (res R, down bool, err error) {
	for again := false; ; again = true {
		res, down, retry, err := x.fetch(ctx, again)
		if !retry {
			return res, down, err
		}
	}
}

func (x *Exchange[S, R]) fetch(ctx context.Context, again bool) (res R, down, retry bool, err error) {
	timeout := x.Circuit.Policy().CallTimeout
	v, err := x.enter(ctx, timeout, false)
	if err != nil {
		var unmade *unrenewed
		down = errors.Is(err, toolcircuit.ErrCircuitOpen) || errors.As(err, &unmade) && !unmade.own
		return res, down, false, err
	}
	defer v.leave()
	before := x.Server.answers.Load()
	res, r := x.send(v.entry.Context(ctx), v)
	r, neverAnswered := x.gone(v, r, again, "")
	if r.Gone && r.Unsent && !again && x.renews() {
		return res, false, true, nil
	}
	verdict := toolcircuit.Classify(ctx, toolcircuit.Outcome{Err: r.Err})
	x.settle(ctx, v, r, timeout, before, neverAnswered)
	down = verdict.Effect == toolcircuit.EffectCount || verdict.Effect == toolcircuit.EffectPause || r.Gone ||
		verdict.Kind == toolcircuit.KindUnknown && x.Circuit.Policy().CountUnknown && !r.Unsent
	return res, down && !r.Answered && ctx.Err() == nil, false, r.Err
}

// Forward sends a request that no circuit guards, on the session that lives. If noted is not nil it
// learns the generation of the session that answered. If it returns false, the request is sent again.
func (x *Exchange[S, R]) Forward(ctx context.Context, noted func(res R, gen int) bool) (res R, err error) {
	for again := false; ; again = true {
		session, gen, dead := x.Line.Now()
		if dead && x.renews() {
			if session, gen, err = x.Line.Await(ctx, false); err != nil {
				return res, err
			}
		}
		v := &visit[S]{session: session, gen: gen}
		res, r := x.send(ctx, v)
		r, _ = x.gone(v, r, again, "")
		switch {
		case !again && r.Gone && r.Unsent && x.renews():
		case r.Err == nil && noted != nil && !noted(res, gen):
		default:
			return res, r.Err
		}
	}
}

// send sends the request once. It notes an answer, and nothing that speaks against the session.
func (x *Exchange[S, R]) send(ctx context.Context, v *visit[S]) (res R, r Reading) {
	h := &Hint{Shield: x.Shield}
	res, err := x.Send(WithHint(ctx, h), v.session)
	x.Line.Note(v.gen, h)
	if err == nil {
		r.Answered = true
	} else {
		signs := x.Signs(err)
		if _, gen, _ := x.Line.Now(); gen != v.gen { // it was replaced, and closed for that
			signs.Ended = false
		}
		signs.HTTP = x.Line.byHTTP(v.gen)
		r = h.Read(ctx, err, signs)
	}
	if r.Missing && x.Missing != nil {
		r.Err = Lost(&With{Err: r.Err, Known: x.Missing})
	}
	if r.Answered && !r.Doubtful {
		x.Server.answers.Add(1)
		x.Line.Answered(v.gen)
	}
	return res, r
}

// gone notes a session that is gone. A 400 that comes again on another session is the call's own.
// Otherwise the session was to blame, and the call was not executed; that is sure enough only for a
// tool without side effects.
func (x *Exchange[S, R]) gone(v *visit[S], r Reading, again bool, tool string) (_ Reading, neverAnswered bool) {
	if r.Doubtful && !again && x.Line.Doubt(v.gen) {
		r = Reading{Err: Lost(r.Err), Gone: true, Unsent: !x.writes(tool)}
	}
	return r, r.Gone && x.Line.Gone(v.gen)
}

// settle records for the server's circuit how a request fared, and returns the kind that the rules
// give it. before is the number of the server's answers when the request was sent.
//
// After a timeout the server is there if it has answered another request since, or if it answers a
// ping. The caller does not wait for the ping.
func (x *Exchange[S, R]) settle(ctx context.Context, v *visit[S], r Reading, timeout time.Duration, before uint64, neverAnswered bool) toolcircuit.Kind {
	kind := toolcircuit.Classify(ctx, toolcircuit.Outcome{Err: r.Err}).Kind
	_, gen, dead := x.Line.Now()
	switch late := kind == toolcircuit.KindTimeout || kind == toolcircuit.KindDeadline; {
	case x.Circuit == nil:
	case r.Answered:
		v.entry.Settle(ctx, nil, nil)
	case r.Unsent && !r.Gone && !r.Stuck:
	case (dead || gen != v.gen) && !neverAnswered && x.renews(): // known to be gone, the next call renews it
		v.entry.Settle(ctx, nil, Blameless(r.Err))
	case late && !r.Stuck:
		if x.Server.answers.Load() != before {
			break
		}
		if ctx.Err() == nil {
			ctx = context.WithoutCancel(ctx) // which may end when the caller goes on
		}
		v.late = true
		go x.settleLate(ctx, v, r.Err, timeout, before)
	default:
		v.entry.Settle(ctx, nil, r.Err)
	}
	return kind
}

func (x *Exchange[S, R]) settleLate(ctx context.Context, v *visit[S], err error, timeout time.Duration, before uint64) {
	defer v.entry.Release()
	ping, cancel := x.pingTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	if x.ping(ping, v) == nil {
		x.Server.answers.Add(1)
	}
	if x.Server.answers.Load() == before && x.Base.Err() == nil {
		v.entry.Settle(ctx, nil, err)
	}
}

func (x *Exchange[S, R]) renews() bool { return x.Line.Renew != nil }

// callTimeout returns the CallTimeout of a tool, 0 if it has none.
func (x *Exchange[S, R]) callTimeout(ctx context.Context, tool string) time.Duration {
	if c := x.Set.Circuit(ctx, tool); c != nil {
		return c.Policy().CallTimeout
	}
	return 0
}

// writes reports whether a tool is known to have side effects.
func (x *Exchange[S, R]) writes(tool string) bool {
	if given := x.Set.Config().Tools[tool].SideEffects; given != nil {
		return *given
	}
	return x.Servers.writes(tool)
}

// refusal returns what the model reads about a call of tool that was refused, or for which there
// was no session.
func (x *Exchange[S, R]) refusal(ctx context.Context, tool string, err error) (*toolcircuit.Result[any], error) {
	var missing *unrenewed
	if errors.As(err, &missing) {
		wait, _ := x.Line.Pause()
		err = paused(x.Circuit.Dependency(), missing.error, wait)
	}
	var open *toolcircuit.OpenError
	if x.Circuit == nil || !errors.As(err, &open) || open.Dependency != x.Circuit.Dependency() {
		return result(toolset.ResultOf[any](ctx, x.Set, tool, nil, toolcircuit.Verdict{}, err))
	}
	// The tool knows what to do instead. That nothing was executed the server's circuit knows.
	r, err := toolset.ResultOf[any](ctx, x.Set, tool, nil, toolcircuit.Verdict{}, open)
	if err != nil {
		return nil, err
	}
	view := toolcircuit.Tool{Name: tool, Alternatives: x.Servers.elsewhere(ctx, x.Set, x.Server, r.Alternatives), NextActions: r.NextActions}
	if len(r.Alternatives) > 0 && len(view.Alternatives) == 0 {
		view.NextActions = slices.DeleteFunc(view.NextActions, func(a toolcircuit.Action) bool { return a == toolcircuit.ActionUseAlternative })
	}
	told, err := toolcircuit.ResultOf[any](x.Circuit.WithTool(view), nil, toolcircuit.Verdict{}, open)
	told.BlockedCalls, told.EndTurn = r.BlockedCalls, r.EndTurn
	return result(told, err)
}
