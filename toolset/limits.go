package toolset

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"
)

// Limits are the limits of one run. The zero value is usable: it has no budgets, and repeats are
// refused.
type Limits struct {
	// Calls is the number of calls that may run. A call that its circuit refuses counts only until
	// then. Zero: no limit.
	Calls int
	// Time is how long after [Set.Session] calls may begin, in wall time of the Set's clock: the
	// time in which the host sleeps counts. Calls under way go on, so give them a context that
	// ends. Zero: no limit. At least 1ms.
	Time time.Duration
	// Refused is the number of refused calls in one turn from which on blocked results say
	// endTurn. If the run has used up its time or calls, a blocked result says so at once. Zero:
	// 5.
	Refused int
	// Repeats is how many times in a row a call may fail the same way, or a loop of up to four
	// calls give the same answers, before the next is refused. Above 1000 no loop is found. Zero:
	// 3.
	Repeats int
	// Pause is how long a call is held because of Repeats, from its latest outcome. It ends,
	// because a run may outlast an outage. Zero: 1m. At least 1ms.
	Pause time.Duration
	// Poll is the least time, from start to start, after which a call may get the same answer
	// again, or look again for what was not there. Zero: 10s. At least 1ms.
	Poll time.Duration
	// Copies caps the equal calls under way. The next one is refused. Zero: 8.
	Copies int
	// Memory caps each of two lists: the latest calls that failed or looped, and the answers that
	// are not news any more. Zero: 1000.
	Memory int
	// Key returns what a session compares in place of the arguments of a call: the arguments
	// without free text, or [Unknown] for a tool that may be called the same way again and again.
	// It is called concurrently. If it panics the arguments are Unknown. Nil: the arguments.
	Key func(tool string, args any) any
	// ResultKey returns what a session compares in place of a result: the result without a process
	// id or a duration (openclaw/openclaw#34687), or [Unknown] for one that is never the same. It
	// is called as Key is, before the outcome counts. It does not see errors. Errors of kind
	// unknown are compared by their whole text, so one with a request id is never the same. Nil:
	// the result.
	ResultKey func(tool string, result any) any
	// OnStop is called when [Session.StopReason] is set, with the values of the context of the
	// call that set it. That context never ends. OnStop may use the session. A panic in it is
	// counted in Snapshot.HookPanics.
	OnStop func(context.Context, Stop)
}

// withDefaults returns l with its defaults filled in, or an error that names a field.
func (l Limits) withDefaults() (Limits, error) {
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"Calls", int64(l.Calls)}, {"Time", int64(l.Time)}, {"Refused", int64(l.Refused)}, {"Repeats", int64(l.Repeats)},
		{"Pause", int64(l.Pause)}, {"Poll", int64(l.Poll)}, {"Copies", int64(l.Copies)}, {"Memory", int64(l.Memory)},
	} {
		if f.value < 0 {
			return l, fmt.Errorf("toolset: Session: Limits.%s: got %d, want 0 or more", f.name, f.value)
		}
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"Time", l.Time}, {"Pause", l.Pause}, {"Poll", l.Poll}} {
		if noUnit(f.value) {
			return l, fmt.Errorf("toolset: Session: Limits.%s: got %v, want 0 or at least 1ms", f.name, f.value)
		}
	}
	l.Calls = cmp.Or(l.Calls, math.MaxInt)
	l.Time = cmp.Or(l.Time, math.MaxInt64)
	l.Refused = cmp.Or(l.Refused, 5)
	l.Repeats = cmp.Or(l.Repeats, 3)
	l.Pause = cmp.Or(l.Pause, time.Minute)
	l.Poll = cmp.Or(l.Poll, 10*time.Second)
	l.Copies = cmp.Or(l.Copies, 8)
	l.Memory = cmp.Or(l.Memory, 1000)
	return l, nil
}
