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

// Stop is why a run should go no further, for the record of its host. The zero Stop: nothing.
type Stop struct {
	Reason StopReason       `json:"reason"`
	Tool   string           `json:"tool"`           // of the refused call that set it
	Kind   toolcircuit.Kind `json:"kind,omitempty"` // of the failure behind that refusal
	Count  int              `json:"count"`          // refused calls since the turn began
	First  time.Time        `json:"first"`          // of these
	Last   time.Time        `json:"last"`
}

// StopReason is the reason of a [Stop]. The set is closed.
type StopReason string

// The reasons. The latter two last until the next turn.
const (
	StopBudgetExhausted StopReason = "budget_exhausted"  // Limits.Calls have run
	StopDeadline        StopReason = "deadline"          // Limits.Time is over
	StopRepeatedCall    StopReason = "repeated_call"     // Limits.Refused is reached, by a repeated call
	StopBlockedTooOften StopReason = "blocked_too_often" // Limits.Refused is reached, by another
)

// Session is one run of an agent: it refuses calls that the run has made before to no avail,
// keeps its budgets, and knows when it should stop. Make one with [Set.Session], put it into
// the context of the run with [WithSession], and Close it at the end. It sees every call of
// its Set under that context, by whatever adapter, of unknown tools and of helper agents too.
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
// So a blocked result with endTurn, which a model may overlook, ends the turn all the same.
//
// A call is refused, in this order, when the run's time or calls are used up, when its circuit is
// not ready, when it repeats another, when its dependency is busy. A refusal uses up nothing: no
// call of the budget, no slot, no probe, and it moves no end. All are [*toolcircuit.OpenError].
//
// The same call is the same tool under the same scope and intention ([WithScope], [WithIntention])
// with the same arguments, compared as JSON values: the order of
// keys and the way a number is written mean nothing, a member that is null is not an absent
// one, and 2^53+1 is not 2^53. Arguments that are or hold [Unknown], that JSON cannot hold, or
// that hold a struct of which it shows nothing, are never the same. Pass text that a model wrote
// as a [encoding/json.RawMessage].
//
// A call may be repeated only while something happened that could change its answer. Outcomes are
// the same by kind, by text too where the kind is unknown, and by result where the call answered.
// Calls at the same time count once. A call is held
//
//   - after an answer, once a loop of up to four calls went round Limits.Repeats times, faster
//     than Limits.Poll: for Limits.Pause, and for Limits.Poll each time the answer comes again.
//     A new answer to another call, an effect and a turn end that. A slower loop is a poll and is
//     never held
//   - as not_found, conflict or unauthorized, after the first failure: for Limits.Poll. News ends
//     that up to Limits.Repeats times, an effect or one in doubt and a turn end it each time
//   - as invalid, after the first failure: until an effect
//   - as unknown, after Limits.Repeats failures in a row: for Limits.Pause, after news for
//     Limits.Poll. An effect ends that
//   - as any other failure, the same, but an effect is only news: it mends no outage
//   - while Limits.Copies of it are under way, and beside others while those and the failures
//     known reach Limits.Repeats
//
// News is an answer, new to the run, of a call that began after the outcome was known. An effect
// is the success of a tool with SideEffects; it is in doubt where such a tool failed and nobody
// knows whether it took effect. So [Tool].SideEffects also says which tools change the world. A
// turn is [Session.NextTurn]. A wait of a second or more that the dependency or its circuit asks
// for frees the call when it is over, and what comes of that call counts from one.
//
// Tools in Config.Excluded repeat as they like, and with Config.Disabled nothing is refused. A
// tool that returns the same each time, such as scroll_down, needs that or a Limits.Key of
// Unknown. Calls of either kind bring news but do not break a loop. A result is compared as it is
// when the call ends: a tool must not change a value that it has returned. Results of more than
// 16 MiB, and those that would equal nothing as arguments, are never the same.
//
// The attempts of a retry around a tool are calls like others, for budgets and for repeats. If
// one is refused after another has run, return the error of the one that ran: the refusal would
// tell the model that nothing was executed.
//
// A Session owns no goroutine. All methods are safe for concurrent use.
type Session struct {
	set    *Set
	run    string
	limits Limits
	began  time.Time // without monotonic time, so that what is left of Limits.Time is wall time

	mu      sync.Mutex // never held while code of the user runs
	past    *repeat.Past
	closed  bool
	calls   int       // that ran or are under way
	refused int       // in this turn
	first   time.Time // of these
	loose   uint64    // refused calls of which no context says that they were made inside another
	stop    Stop
}

// Session returns the session of a run that begins now. The id of the run must not be empty,
// and no two runs may share it, for it is part of each [IdempotencyKey]. Limits are copied and
// checked; an error names the field.
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

// WithSession returns a context whose calls of r's Set belong to the run r. It names the run
// for [toolcircuit.RunID], unless ctx has a run already. A nil r takes the session out. A context
// holds one session: r takes the place of another, also of another Set's.
func WithSession(ctx context.Context, r *Session) context.Context {
	if r != nil && toolcircuit.RunID(ctx) == "" {
		ctx = toolcircuit.WithRunID(ctx, r.run)
	}
	return context.WithValue(ctx, sessionKey{}, r)
}

// session returns the session of a run that calls tools of s, or nil.
func (s *Set) session(ctx context.Context) *Session {
	if r, _ := ctx.Value(sessionKey{}).(*Session); r != nil && r.set == s {
		return r
	}
	return nil
}

// NextTurn begins another turn of the run. Call it when the run gets new input from outside, such
// as a message of the user, and not for each step of the model: loops that went on before, and
// failures not_found, conflict and unauthorized, may be mended by now, so they are forgotten.
// Refused calls are counted from zero, and a StopReason that was that of the turn is gone. Other
// failures are still known.
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

// StopReason returns why the run should go no further: the zero Stop if it may, also once a call
// has given back the last of the budget. It stays readable after Close.
func (r *Session) StopReason() Stop {
	r.mustBe()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stop
}

// Close ends the run and forgets its calls. Later calls are refused as budget_exhausted, with the
// cause canceled, and count for nothing. Those under way end as in any other run.
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
	outer   *call // inside whose operation it is made; nil: none is known
	repeat.Call
	free  bool   // the session is switched off
	loose uint64 // of the session when the call began
	told  atomic.Bool
}

// outcome is what came of a call that a session let through.
type outcome struct {
	executed bool // else nothing ran; err says why, nil if a permit was handed back
	verdict  toolcircuit.Verdict
	value    any
	err      error
}

// begin lets a call through, which must then end, or returns the refusal.
func (r *Session) begin(ctx context.Context, tool string, args any) (*call, error) {
	p := r.set.plan.Load()
	c := &call{session: r, outer: callIn(ctx), free: p.config.Disabled}
	c.ID, c.Tool = r.identify(ctx, tool, args), tool
	if c.free {
		return c, nil
	}
	// A ctx that is over and a circuit that is not ready are the circuit's to tell.
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

// identify returns what a call has in common with those that are the same.
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

// keyed returns what key makes of v, which is Unknown if key panics. A nil key makes v of it.
func keyed(key func(string, any) any, tool string, v any) (k any) {
	if key == nil {
		return v
	}
	k = Unknown
	defer func() { recover() }()
	return key(tool, v)
}

// ready reports whether the circuit of a tool, if it has one, would let a call through now.
func (r *Session) ready(ctx context.Context, p *plan, tool string) bool {
	dependency, m := r.set.existing(ctx, p, tool)
	if m == nil {
		return p.overrides[dependency] != toolcircuit.OverrideOpen
	}
	t, _ := p.resolve(tool)
	return m.as(t).Ready()
}

// admit takes a call into the books, or returns the refusal without its dependency.
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

// spent returns the refusal of all calls of a run that is over or has used up a budget, nil for any
// other run. The caller holds mu.
func (r *Session) spent(now time.Time) *toolcircuit.OpenError {
	refusal := &toolcircuit.OpenError{Reason: toolcircuit.ReasonBudgetExhausted}
	switch {
	case r.closed:
		refusal.Cause = toolcircuit.KindCanceled
	case now.Sub(r.began) >= r.limits.Time:
		refusal.Cause = toolcircuit.KindDeadline
	case r.calls < r.limits.Calls:
		return nil
	}
	return refusal
}

// over reports whether r may make no more calls. A nil r may.
func (r *Session) over() bool {
	if r == nil {
		return false
	}
	now := r.set.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spent(now) != nil
}

// end takes in what came of a call.
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

// asked returns until when the model is asked to leave the call alone, zero if it is not.
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

// print returns the fingerprint of what came of a call, as far as its kind does not say it all.
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
	case o.value == nil: // nobody handed it over
		return repeat.Digest{}
	}
	return repeat.Result(keyed(c.session.limits.ResultKey, c.Tool, o.value))
}

// settle is end where all that code of the user says is known.
func (r *Session) settle(ctx context.Context, c *call, o outcome, came repeat.Outcome) {
	now := r.set.clock.Now()
	r.mu.Lock()
	if !r.closed {
		if !o.executed {
			r.calls--
			if r.stop.Reason == StopBudgetExhausted { // no longer
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
		if counted && c.outer != nil {
			c.outer.told.Store(true)
		}
		if !counted {
			r.block(ctx, c, "", o.verdict.Kind, now)
		}
	}
}

// block counts a refused call, and tells the host if it is one too many.
func (r *Session) block(ctx context.Context, c *call, reason toolcircuit.Reason, kind toolcircuit.Kind, now time.Time) {
	if c.outer != nil {
		c.outer.told.Store(true)
	}
	stop, set := r.count(c, reason, kind, now)
	if set && r.limits.OnStop != nil {
		r.set.safely(func() { r.limits.OnStop(context.WithoutCancel(ctx), stop) })
	}
}

// count counts a refused call. It returns why the run should stop, and whether it is this call
// that says so.
func (r *Session) count(c *call, reason toolcircuit.Reason, kind toolcircuit.Kind, now time.Time) (stop Stop, set bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return Stop{}, false
	}
	if c.outer == nil {
		r.loose++
	}
	if r.refused++; r.refused == 1 {
		r.first = now
	}
	if r.stop.Reason != "" {
		r.stop.Count++
		r.stop.Last = now
		return r.stop, false
	}
	stop = Stop{Tool: c.Tool, Kind: kind, Count: r.refused, First: r.first, Last: now}
	switch {
	case reason == toolcircuit.ReasonBudgetExhausted && kind == toolcircuit.KindDeadline:
		stop.Reason = StopDeadline
	case reason == toolcircuit.ReasonBudgetExhausted:
		stop.Reason = StopBudgetExhausted
	case r.refused < r.limits.Refused:
		return Stop{}, false
	case reason == toolcircuit.ReasonRepeatedCall:
		stop.Reason = StopRepeatedCall
	default:
		stop.Reason = StopBlockedTooOften
	}
	r.stop = stop
	return stop, true
}

// note adds to a result of a tool what the session in ctx, if any, has to say. A nil c: nobody knows
// which call of the tool it was.
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
		result.EndTurn = r.closed || r.stop.Reason != "" || r.refused >= r.limits.Refused
	case toolcircuit.StatusOK, toolcircuit.StatusFailed:
		if c != nil {
			result.Advice = r.past.Advise(c.ID, s.clock.Now())
		} else {
			result.Advice = r.past.AdviseTool(tool, string(v.Kind), s.clock.Now())
		}
	}
}
