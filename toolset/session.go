package toolset

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolcircuit/toolcircuit"
)

// Limits are the bounds of one run. The zero value is usable: no budgets, and repeats are
// refused.
type Limits struct {
	// Calls is the number of calls that may run. One that is refused gives back what it held
	// until then. Zero: no bound.
	Calls int
	// Time is how long after [Set.Session] calls may begin. Those under way go on: give them a
	// context that ends. Zero: no bound.
	Time time.Duration
	// Refused is the number of refused calls in one turn from which on blocked results say
	// endTurn. Zero: 5.
	Refused int
	// Repeats is how often the same call may fail in the same way, and how many rounds of up
	// to four calls may have the same results, before such a call is refused. Zero: 3.
	Repeats int
	// Pause is how long Repeats holds against a call since it last ran, so that a run does
	// not outlast an outage, and can poll. Zero: 1m.
	Pause time.Duration
	// Copies is the number of calls under way, all the same, above which the next is refused.
	// Zero: 8.
	Copies int
	// Memory is the number of failed calls that are remembered, the latest. Zero: 1000.
	Memory int
	// Key returns what to compare in place of the arguments of a call: the arguments without
	// free text, or [Unknown] for a tool that may be called the same way again and again. It
	// is called concurrently; if it panics the arguments are Unknown. Nil: the arguments.
	Key func(tool string, args any) any
	// OnStop hears when [Session.StopReason] becomes set, with the context of the call that
	// caused it without its cancellation. It may use the session. A panic in it is counted in
	// Snapshot.HookPanics.
	OnStop func(context.Context, Stop)
}

// withDefaults returns l with its defaults filled in, or an error that names a field.
func (l Limits) withDefaults() (Limits, error) {
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"Calls", int64(l.Calls)}, {"Time", int64(l.Time)}, {"Refused", int64(l.Refused)}, {"Repeats", int64(l.Repeats)},
		{"Pause", int64(l.Pause)}, {"Copies", int64(l.Copies)}, {"Memory", int64(l.Memory)},
	} {
		if f.value < 0 {
			return l, fmt.Errorf("toolset: Session: Limits.%s: got %d, want 0 or more", f.name, f.value)
		}
	}
	l.Calls = cmp.Or(l.Calls, math.MaxInt)
	l.Time = cmp.Or(l.Time, math.MaxInt64)
	l.Refused = cmp.Or(l.Refused, 5)
	l.Repeats = cmp.Or(l.Repeats, 3)
	l.Pause = cmp.Or(l.Pause, time.Minute)
	l.Copies = cmp.Or(l.Copies, 8)
	l.Memory = cmp.Or(l.Memory, 1000)
	return l, nil
}

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
// A call is refused, in this order, when the run's time or calls are used up, when it repeats
// another, when its dependency is busy, when the circuit says so. A refusal uses up nothing:
// no call of the budget, no slot, no probe. All are [*toolcircuit.OpenError].
//
// The same call is the same tool with the same arguments, compared as JSON values: the order of
// keys and the way a number is written mean nothing, a member that is null is not an absent
// one, and 2^53+1 is not 2^53. Arguments that are or hold [Unknown], that JSON cannot hold, or
// that hold a struct of which it shows nothing, are never the same. Pass text that a model wrote
// as a [encoding/json.RawMessage]. A call repeats when
//
//   - it failed for good: invalid, unauthorized, not_found or conflict
//   - it failed Limits.Repeats times in the same way: by kind, and by text where the kind is
//     unknown
//   - Limits.Copies of it are under way
//   - it belongs to a round of up to four calls that were made Limits.Repeats times with the
//     same results
//
// A failure is forgotten once the same call or a tool with SideEffects succeeds, for that may
// have mended it; one for good also when such a tool fails and nobody knows whether it took
// effect, so that the model can check. So [Tool].SideEffects also says which tools change the
// world. What failed for good and was mended outside the run needs a new session. Calls at the
// same time count once.
//
// Tools in Config.Excluded repeat as they like, and with Config.Disabled nothing is refused. A
// tool that returns the same each time, such as scroll_down, needs that or a Limits.Key of
// Unknown. Calls of either kind do not break a round. A result is compared as it is when the
// call ends: a tool must not change a value that it has returned.
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
	began  time.Time

	mu      sync.Mutex // never held while code of the user runs
	past    past
	closed  bool
	calls   int // that ran or are under way
	turn    uint64
	refused int       // in this turn
	first   time.Time // of these
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
	return &Session{set: s, run: runID, limits: l, began: s.clock.Now(), turn: 1, past: newPast(l)}, nil
}

type sessionKey struct{}

// WithSession returns a context whose calls of r's Set belong to the run r. It names the run
// for [toolcircuit.RunID], unless ctx has a run already. A nil r takes the session out.
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

// NextTurn begins another turn of the run: refused calls are counted from zero, and a
// StopReason that was that of the turn is gone. What failed is still known.
func (r *Session) NextTurn() {
	r.mustBe()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn++
	r.refused = 0
	r.past.advice = nil
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

// Close ends the run and forgets its calls. Later calls are refused as budget_exhausted and
// count for nothing; those under way end as ever.
func (r *Session) Close() {
	r.mustBe()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.past = past{}
}

func (r *Session) mustBe() {
	if r == nil {
		panic("toolset: the Session is nil; make one with Set.Session")
	}
}

// call is one call that a session has let through.
type call struct {
	session *Session
	outer   *call  // inside whose operation it is made; nil: none
	tool    string // as the model named it
	id      digest
	known   bool // id is that of its arguments
	free    bool // the session is switched off
	guarded bool // against repeats
	writes  bool // the tool has side effects
	mark    int  // outcomes of the same call when it began
	world   world
	told    atomic.Bool
}

// digest is a hash for which no two inputs are known. The zero digest equals nothing.
type digest [16]byte

func digestOf(text []byte) digest {
	sum := sha256.Sum256(text)
	return digest(sum[:])
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
	c := &call{session: r, outer: callIn(ctx), tool: tool, free: p.config.Disabled}
	c.id, c.known = r.identify(ctx, tool, args)
	if c.free {
		return c, nil
	}
	c.guarded = c.known && ctx.Err() == nil && !p.excluded.match(tool) // a ctx that is over is the circuit's to tell
	c.writes = p.sideEffects(tool)
	now := r.set.clock.Now()
	refusal := r.admit(c, now)
	if refusal == nil {
		return c, nil
	}
	refusal.Dependency = r.set.dependencyName(tool)
	r.set.report(ctx, tool, refusal)
	r.block(ctx, c, refusal.Reason, refusal.Cause, now)
	return nil, refusal
}

// identify returns what a call has in common with those that are the same.
func (r *Session) identify(ctx context.Context, tool string, args any) (id digest, known bool) {
	if r.limits.Key != nil {
		args = r.key(tool, args)
	}
	var text []byte
	for _, name := range []string{r.run, Scope(ctx), tool} {
		text = strconv.AppendQuote(text, name)
	}
	text, err := appendCanonical(text, args)
	if err != nil {
		return digest{}, false
	}
	return digestOf(text), true
}

func (r *Session) key(tool string, args any) (key any) {
	key = Unknown
	defer func() { recover() }()
	return r.limits.Key(tool, args)
}

// admit takes a call into the books, or returns the refusal without its dependency.
func (r *Session) admit(c *call, now time.Time) *toolcircuit.OpenError {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return &toolcircuit.OpenError{Reason: toolcircuit.ReasonBudgetExhausted}
	case now.Sub(r.began) >= r.limits.Time:
		return &toolcircuit.OpenError{Reason: toolcircuit.ReasonBudgetExhausted, Cause: toolcircuit.KindDeadline}
	case r.calls >= r.limits.Calls:
		return &toolcircuit.OpenError{Reason: toolcircuit.ReasonBudgetExhausted}
	}
	if c.guarded {
		if refusal := r.past.begin(c, now); refusal != nil {
			return refusal
		}
	}
	r.calls++
	return nil
}

// end takes in what came of a call.
func (c *call) end(ctx context.Context, o outcome) {
	var way digest
	defer func() { // also if code of the user ends the goroutine
		c.session.settle(ctx, c, o, way)
	}()
	if c.guarded {
		way = o.way()
	}
}

// settle is end where it is known which way the call went.
func (r *Session) settle(ctx context.Context, c *call, o outcome, way digest) {
	now := r.set.clock.Now()
	r.mu.Lock()
	if !r.closed {
		if !o.executed {
			r.calls--
			if r.stop.Reason == StopBudgetExhausted { // no longer
				r.stop = Stop{}
			}
		}
		r.past.end(c, o, way, now, r.turn)
	}
	r.mu.Unlock()
	refusal, refused := o.err.(*toolcircuit.OpenError)
	switch {
	case !o.executed && refused:
		r.block(ctx, c, refusal.Reason, refusal.Cause, now)
	case o.executed && o.verdict.Kind == toolcircuit.KindRejected && !c.told.Load():
		r.block(ctx, c, "", o.verdict.Kind, now)
	}
}

// block counts a refused call, and tells the host if it is one too many.
func (r *Session) block(ctx context.Context, c *call, reason toolcircuit.Reason, kind toolcircuit.Kind, now time.Time) {
	if c.outer != nil {
		c.outer.told.Store(true)
	}
	stop, set := r.count(c.tool, reason, kind, now)
	if set && r.limits.OnStop != nil {
		r.set.safely(func() { r.limits.OnStop(context.WithoutCancel(ctx), stop) })
	}
}

// count counts a refused call. It returns why the run should stop, and whether it is this call
// that says so.
func (r *Session) count(tool string, reason toolcircuit.Reason, kind toolcircuit.Kind, now time.Time) (stop Stop, set bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return Stop{}, false
	}
	if r.refused++; r.refused == 1 {
		r.first = now
	}
	if r.stop.Reason != "" {
		r.stop.Count++
		r.stop.Last = now
		return r.stop, false
	}
	stop = Stop{Tool: tool, Kind: kind, Count: r.refused, First: r.first, Last: now}
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

// note adds to a result of a tool what the session in ctx, if any, has to say.
func note[T any](ctx context.Context, s *Set, tool string, result *toolcircuit.Result[T]) {
	r := s.session(ctx)
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch result.Status {
	case toolcircuit.StatusBlocked:
		result.BlockedCalls = r.refused
		result.EndTurn = r.closed || r.refused >= r.limits.Refused
	case toolcircuit.StatusOK, toolcircuit.StatusFailed:
		result.Advice = r.past.advise(tool)
	}
}
