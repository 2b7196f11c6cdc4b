package toolset

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/internal/hook"
	"github.com/toolcircuit/toolcircuit/internal/repeat"
)

// Session is one run of an agent. It refuses calls that the run has made before to no avail, keeps
// its budgets, and knows when the run should stop. Make one with [Set.Session], put it into the
// run's context with [WithSession], and Close it at the end. It sees every call of its Set under
// that context, from any adapter, also calls of tools that are not guarded and of helper agents.
//
//	run, err := set.Session(id, toolset.Limits{Calls: 50})
//	...
//	defer run.Close()
//	ctx = toolset.WithSession(ctx, run)
//	for message := range user {
//		run.NextTurn()
//		for model.WantsTools(message) && run.StopReason().Reason == "" {
//			model.CallTools(ctx)
//		}
//		model.Answer() // without tools, and with what it has
//	}
//
// A model may overlook endTurn in a blocked result. This loop ends the turn all the same.
//
// # Refusals
//
// A call is refused for the first of these reasons, with an [*toolcircuit.OpenError]:
//
//   - the run has used up its time or its calls
//   - the circuit of the tool is not ready
//   - the call repeats another call
//   - the dependency is busy
//
// A refused call uses nothing up: no call of the budget, no slot and no probe. It does not move
// the end of any hold.
//
// # The same call
//
// Two calls are the same if they have the same tool, scope ([WithScope]), intention
// ([WithIntention]) and arguments. Arguments are compared as JSON values. The order of keys and
// the way of writing a number mean nothing, a null member is not an absent one, and 2^53+1 is not
// 2^53. Some arguments equal no others: those that are or contain [Unknown], that JSON cannot
// hold, or that contain a struct whose content JSON does not show. Pass a text that a model wrote
// as an [encoding/json.RawMessage].
//
// # When a call is held
//
// A call may be repeated only after something that could change its outcome. Two outcomes are the
// same if they have the same kind and, for an answer, the same result or, for kind unknown, the
// same text. Calls at the same time count once. A held call is refused. What it met decides for
// how long:
//
//   - an answer, once a loop of up to four calls went round Limits.Repeats times, faster than
//     Limits.Poll: for Limits.Pause, and for Limits.Poll each time the answer comes again. A new
//     answer to another call, an effect, one in doubt or a turn ends the hold. A slower loop is a
//     poll and is never held
//   - not_found, conflict, unauthorized: for Limits.Poll after the first failure. News ends the
//     hold while the call has failed fewer than Limits.Repeats times in a row. An effect, one in
//     doubt and a turn always end it
//   - invalid: after the first failure, until an effect
//   - unknown: after Limits.Repeats failures in a row, for Limits.Pause, or Limits.Poll after
//     news. An effect ends the hold
//   - any other failure: the same, but an effect counts as news, because it does not end an outage
//
// A call is also held while Limits.Copies of it are under way, and while the copies under way and
// the known failures together reach Limits.Repeats.
//
// These words have one meaning here:
//
//   - news is an answer that is new to the run, of a call that began after the outcome was known
//   - an effect is the success of a tool with SideEffects. It is in doubt if such a tool failed
//     and nobody knows whether it took effect
//   - a turn is a call of [Session.NextTurn]
//
// If the dependency or its circuit asks for a wait of a second or more, the call is free when that
// is over, and its failures are counted from one again.
//
// Tools in Config.Excluded repeat as they like, and with Config.Disabled nothing is refused. A
// tool that returns the same each time, such as scroll_down, must be excluded or have a Limits.Key
// of Unknown. Its calls bring news but do not end a loop. A result is compared as it is when the
// call ends, so a tool must not change a value that it has returned. Results of more than 16 MiB
// equal no others, and neither do those that would equal none as arguments.
//
// # Retries
//
// Each attempt of a retry around a tool is a call, for budgets and for repeats. If an attempt is
// refused after another has run, return the error of the one that ran. The refusal would tell the
// model that nothing was executed.
//
// A Session owns no goroutine. All methods are safe for concurrent use.
type Session struct {
	set    *Set
	run    string
	limits Limits
	began  time.Time // without monotonic time, because Limits.Time is wall time

	mu      sync.Mutex // never held while code of the user runs
	past    *repeat.Past
	closed  bool
	calls   int       // that have run or are under way
	refused int       // in this turn
	first   time.Time // when the first of these came
	loose   uint64    // refused calls whose context does not say in which call they were made
	stop    Stop
}

// Session returns the session of a run that begins now. runID must not be empty, and no two runs
// may share it, because it is a part of each [IdempotencyKey]. Session copies and checks Limits.
// Its error names the field.
func (s *Set) Session(runID string, l Limits) (*Session, error) {
	s.inForce()
	if runID == "" {
		return nil, errors.New("toolset: Session: runID is empty")
	}
	l, err := l.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Session{set: s, run: runID, limits: l, began: s.clock.Now().Round(0), past: repeat.New(repeat.Limits{
		Repeats: l.Repeats, Pause: l.Pause, Poll: l.Poll, Copies: l.Copies, Memory: l.Memory,
	})}, nil
}

type sessionKey struct{}

// WithSession returns a context whose calls of r's Set belong to the run r. It names the run for
// [toolcircuit.RunID], unless ctx names one already. A nil r removes the session. A context has
// one session: r replaces another one, also one of another Set.
func WithSession(ctx context.Context, r *Session) context.Context {
	if r != nil && toolcircuit.RunID(ctx) == "" {
		ctx = toolcircuit.WithRunID(ctx, r.run)
	}
	return context.WithValue(ctx, sessionKey{}, r)
}

// session returns the session in ctx if it is one of s, otherwise nil.
func (s *Set) session(ctx context.Context) *Session {
	if r, _ := ctx.Value(sessionKey{}).(*Session); r != nil && r.set == s {
		return r
	}
	return nil
}

// NextTurn begins the next turn of the run. Call it when the run gets new input from outside, such
// as a message of the user, but not for each step of the model. It
//
//   - forgets loops and the failures not_found, conflict and unauthorized, because they may be
//     over
//   - counts refused calls from zero
//   - clears a StopReason that is only for the turn
//
// Other failures stay known.
func (r *Session) NextTurn() {
	r.mustBe()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = 0
	r.past.NextTurn()
	switch r.stop.Reason {
	case StopRepeatedCall, StopBlockedTooOften:
		r.stop = Stop{}
	}
}

// Close ends the run and forgets its calls. Later calls are refused as budget_exhausted with the
// cause canceled, and count for nothing. Calls under way end as usual.
func (r *Session) Close() {
	r.mustBe()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.past = repeat.New(repeat.Limits{})
}

func (r *Session) mustBe() {
	if r == nil {
		panic("toolset: the Session is nil; make one with Set.Session")
	}
}

// call is one call that a session has let through.
type call struct {
	session *Session
	outer   *call // the call in whose operation this one is made, perhaps another session's; nil if unknown
	repeat.Call
	free  bool        // Config.Disabled: nothing is refused and nothing counted
	loose uint64      // Session.loose when the call began
	told  atomic.Bool // a refusal inside its operation was counted
}

// around returns the call of the same session in whose operation c is made, nil if unknown.
func (c *call) around() *call {
	o := c.outer
	for o != nil && o.session != c.session {
		o = o.outer
	}
	return o
}

// outcome is the end of a call that a session let through.
type outcome struct {
	executed bool // false: nothing ran; err says why, nil if the permit was released
	verdict  toolcircuit.Verdict
	value    any
	err      error
}

// begin lets a call through or returns the refusal. A call that it lets through must end.
func (r *Session) begin(ctx context.Context, tool string, args any) (*call, error) {
	p := r.set.plan.Load()
	c := &call{session: r, outer: callIn(ctx), free: p.config.Disabled}
	c.ID, c.Tool = r.identify(ctx, tool, args), tool
	if c.free {
		return c, nil
	}
	// If ctx has ended or the circuit is not ready, let the circuit say so.
	c.Guarded = ctx.Err() == nil && !p.excluded.match(tool) && r.ready(ctx, p, tool)
	c.Writes = p.sideEffects(tool)
	now := r.set.clock.Now()
	refusal := r.admit(c, now)
	if refusal == nil {
		return c, nil
	}
	refusal.Dependency = r.set.dependencyName(tool)
	hook.Timed(refusal, r.set.root)
	r.set.report(ctx, tool, refusal)
	r.block(ctx, c, refusal.Reason, refusal.Cause, now)
	return nil, refusal
}

// identify returns the fingerprint that is the same for calls that are the same.
func (r *Session) identify(ctx context.Context, tool string, args any) repeat.Digest {
	if args = keyed(r.limits.Key, tool, args); args == Unknown {
		return repeat.Digest{}
	}
	names := [4]string{r.run, Scope(ctx), tool, intention(ctx)}
	if names[3] == "" {
		return repeat.Arguments(args, names[:3]...)
	}
	return repeat.Arguments(args, names[:]...)
}

// keyed returns key's result for v, or Unknown if key panics. If key is nil it returns v.
func keyed(key func(string, any) any, tool string, v any) (k any) {
	if key == nil {
		return v
	}
	k = Unknown
	defer func() { recover() }()
	return key(tool, v)
}

// ready reports whether the circuit of a tool, if there is one, would let a call run now.
func (r *Session) ready(ctx context.Context, p *plan, tool string) bool {
	dependency, m := r.set.existing(ctx, p, tool)
	if m == nil {
		return p.overrides[dependency] != toolcircuit.OverrideOpen
	}
	t, _ := p.resolve(tool)
	return m.as(t).Ready()
}

// admit counts a call, or returns the refusal, without its Dependency.
func (r *Session) admit(c *call, now time.Time) *toolcircuit.OpenError {
	r.mu.Lock()
	defer r.mu.Unlock()
	if refusal := r.spent(now); refusal != nil {
		return refusal
	}
	if refusal := r.past.Begin(&c.Call, now); refusal != nil {
		return &toolcircuit.OpenError{Reason: toolcircuit.ReasonRepeatedCall, Cause: toolcircuit.Kind(refusal.Kind), RetryAt: refusal.RetryAt}
	}
	c.loose = r.loose
	r.calls++
	return nil
}

// end notes the outcome of a call.
func (c *call) end(ctx context.Context, o outcome) {
	var came repeat.Outcome
	if o.executed {
		came.Kind = string(o.verdict.Kind)
	}
	defer func() { // also if code of the user ends the goroutine
		c.session.settle(ctx, c, o, came)
	}()
	came.Wait = c.asked(ctx, o)
	came.Print = c.print(o)
}

// asked returns until when the model is asked not to make the call, or the zero time.
func (c *call) asked(ctx context.Context, o outcome) (until time.Time) {
	s := c.session.set
	refusal, refused := o.err.(*toolcircuit.OpenError)
	switch {
	case o.executed && o.verdict.Effect != toolcircuit.EffectHeal:
		circuit := s.unguarded
		if _, m := s.existing(ctx, s.plan.Load(), c.Tool); m != nil {
			circuit = m.circuit
		}
		snap := circuit.Snapshot()
		if wait := min(o.verdict.RetryAfter, snap.Policy.MaxRetryAfter); wait > 0 { // as a Result tells it
			until = s.clock.Now().Add(wait)
		}
		if snap.RetryAt.After(until) && !circuit.Ready() {
			until = snap.RetryAt
		}
	case refused && refusal.RetryAfter() > 0:
		until = s.clock.Now().Add(refusal.RetryAfter())
	}
	return until
}

// print returns the fingerprint of the outcome, or zero if its kind says everything or nothing is
// known.
func (c *call) print(o outcome) repeat.Digest {
	switch o.verdict.Kind {
	case toolcircuit.KindOK, toolcircuit.KindSlow, toolcircuit.KindUnknown:
	default:
		return repeat.Digest{}
	}
	switch {
	case c.ID == repeat.Digest{}:
		return repeat.Digest{}
	case o.err != nil:
		return repeat.Text(o.err)
	case o.value == nil: // it was not passed on
		return repeat.Digest{}
	}
	return repeat.Result(keyed(c.session.limits.ResultKey, c.Tool, o.value))
}

// settle is the part of end after all code of the user.
func (r *Session) settle(ctx context.Context, c *call, o outcome, came repeat.Outcome) {
	now := r.set.clock.Now()
	r.mu.Lock()
	if !r.closed {
		if !o.executed {
			r.calls--
			if r.stop.Reason == StopBudgetExhausted { // a call is left again
				r.stop = Stop{}
			}
			if !came.Wait.IsZero() {
				r.past.Wait(c.ID, came.Wait)
			}
		}
		r.past.End(&c.Call, came, now)
	}
	counted := c.told.Load() || r.loose > c.loose
	r.mu.Unlock()
	refusal, refused := o.err.(*toolcircuit.OpenError)
	switch {
	case !o.executed && refused:
		r.block(ctx, c, refusal.Reason, refusal.Cause, now)
	case o.executed && o.verdict.Kind == toolcircuit.KindRejected:
		if outer := c.around(); counted && outer != nil {
			outer.told.Store(true)
		}
		if !counted {
			r.block(ctx, c, "", o.verdict.Kind, now)
		}
	}
}

// note adds to a result of a tool what the session in ctx knows. c is the call, nil if unknown.
func note[T any](ctx context.Context, s *Set, tool string, c *call, v toolcircuit.Verdict, result *toolcircuit.Result[T]) {
	r := s.session(ctx)
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch result.Status {
	case toolcircuit.StatusBlocked:
		result.BlockedCalls = r.refused
		result.EndTurn = r.closed || r.stop.Reason != ""
	case toolcircuit.StatusOK, toolcircuit.StatusFailed:
		if c != nil {
			result.Advice = r.past.Advise(c.ID, s.clock.Now())
		} else {
			result.Advice = r.past.AdviseTool(tool, string(v.Kind), s.clock.Now())
		}
	}
}
