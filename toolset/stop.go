package toolset

import (
	"context"
	"time"

	"github.com/toolcircuit/toolcircuit"
)

// Stop says why a run should end, for the log of its host. The zero Stop: it may go on.
type Stop struct {
	Reason StopReason       `json:"reason"`
	Tool   string           `json:"tool"`           // of the refused call that set it
	Kind   toolcircuit.Kind `json:"kind,omitempty"` // of the failure behind that refusal
	Count  int              `json:"count"`          // refused calls, in the turn of the latest one
	First  time.Time        `json:"first"`          // when the first of these came
	Last   time.Time        `json:"last"`           // when the latest of these came
}

// StopReason is the reason of a [Stop]. The set is closed.
type StopReason string

// The reasons. The last two end with the next turn.
const (
	StopBudgetExhausted StopReason = "budget_exhausted"  // Limits.Calls have run
	StopDeadline        StopReason = "deadline"          // Limits.Time is over
	StopRepeatedCall    StopReason = "repeated_call"     // Limits.Refused is reached, by a repeated call
	StopBlockedTooOften StopReason = "blocked_too_often" // Limits.Refused is reached, by any other refused call
)

// StopReason returns why the run should end, or the zero Stop if it may go on. A refused call that
// gives its place in the budget back clears [StopBudgetExhausted]. StopReason still works after
// Close.
func (r *Session) StopReason() Stop {
	r.mustBe()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stop
}

// spent returns the refusal of all calls of a run that is over or has used up a budget, otherwise
// nil. The caller holds mu.
func (r *Session) spent(now time.Time) *toolcircuit.OpenError {
	var why toolcircuit.Kind
	switch {
	case r.closed:
		why = toolcircuit.KindCanceled
	case now.Sub(r.began) >= r.limits.Time:
		why = toolcircuit.KindDeadline
	case r.calls < r.limits.Calls:
		return nil
	}
	return &toolcircuit.OpenError{Reason: toolcircuit.ReasonBudgetExhausted, Cause: why}
}

// over reports whether r may make no more calls. It is false for a nil r.
func (r *Session) over() bool {
	if r == nil {
		return false
	}
	now := r.set.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spent(now) != nil
}

// block counts a refused call, and calls OnStop if that sets the StopReason.
func (r *Session) block(ctx context.Context, c *call, reason toolcircuit.Reason, kind toolcircuit.Kind, now time.Time) {
	if outer := c.around(); outer != nil {
		outer.told.Store(true)
	}
	stop, set := r.count(c, reason, kind, now)
	if set && r.limits.OnStop != nil {
		r.set.safely(func() { r.limits.OnStop(context.WithoutCancel(ctx), stop) })
	}
}

// count counts a refused call. It returns why the run should stop, and whether this call has set
// it.
func (r *Session) count(c *call, reason toolcircuit.Reason, kind toolcircuit.Kind, now time.Time) (stop Stop, set bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return Stop{}, false
	}
	if c.around() == nil {
		r.loose++
	}
	if r.refused++; r.refused == 1 {
		r.first = now
	}
	if r.stop.Reason != "" {
		r.stop.Count, r.stop.First, r.stop.Last = r.refused, r.first, now
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
