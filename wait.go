package toolcircuit

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// Wait returns nil once this tool's call would be let through. It takes nothing: callers
// that wake together compete for the probe like any others.
//
// It returns the refusal, an [*OpenError], at once where waiting cannot help: the cooldown
// lasts beyond ctx's deadline, or a manual override keeps the circuit open. When ctx ends
// it returns ctx.Err(). The wait for another's probe may end sooner than its lease, so it is
// never given up in advance. Safe for concurrent use.
func (c *ToolCircuit) Wait(ctx context.Context) error {
	c.mustHave(ctx)
	for ctx.Err() == nil {
		changed := c.changes() // before the look, so that no change is missed
		s := c.state.Load()
		wait, refusal := c.look(s)
		switch {
		case refusal == nil:
			return nil
		case refusal.Reason == ReasonManualOpen:
			return refusal
		}
		if deadline, ok := ctx.Deadline(); ok && s.State == StateOpen && !deadline.After(s.gate.from.Add(s.gate.hold)) {
			return refusal
		}
		c.sleep(ctx, wait, changed)
	}
	return ctx.Err()
}

// Monitor probes the dependency from the caller's goroutine until ctx ends, whose error it
// returns. Whenever a probe is due it runs check as that probe; if that says nothing, it
// sleeps for one Policy.Cooldown. With every > 0 it also runs check each every during a
// cooldown that the dependency did not ask for: an answer ends what is left of it, and
// anything else changes nothing.
//
// The outcomes of check are judged like a call's, except that kinds that prove an answer
// (invalid, unauthorized, not_found, conflict) are healthy. While the circuit is closed or
// overridden Monitor sleeps. A check that always fails keeps the circuit open, also for
// tools with SideEffects. A negative every is an error; a nil ctx or check panics. A panic of
// a probe counts; any panic of check passes through and so ends Monitor.
func (c *ToolCircuit) Monitor(ctx context.Context, every time.Duration, check func(context.Context) error) error {
	c.mustHave(ctx)
	if check == nil {
		panic("toolcircuit: Monitor: check is nil")
	}
	if every < 0 {
		return fmt.Errorf("toolcircuit: Monitor: every: got %v, want 0 or more", every)
	}
	m := c.For(Tool{Name: c.tool.Name}) // without SideEffects
	op := func(ctx context.Context) (struct{}, error) { return struct{}{}, check(ctx) }
	for ctx.Err() == nil {
		changed := m.changes()
		s := m.state.Load()
		cooling, refusal := m.look(s)
		var v Verdict
		switch {
		case s.override != OverrideNone || s.State == StateClosed:
			m.sleep(ctx, 0, changed)
		case refusal == nil: // a probe is due
			doInFull(ctx, m, op, &v, asMonitor)
			if v.Kind != "" && v.Effect == Ignore {
				m.sleep(ctx, s.Cooldown, nil)
			}
		case s.State == StateHalfOpen || every == 0 || cooling <= every || !s.gate.byCurve:
			m.sleep(ctx, cooling, changed)
		case m.sleep(ctx, every, changed):
			doInFull(ctx, m, op, &v, asMonitor|asPeek)
		}
	}
	return ctx.Err()
}

// changes returns a channel that the next published change of the circuit closes.
func (c *circuit) changes() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// sleep returns when ctx ends, something changes or, with d > 0, d is over: only then it
// reports true.
func (c *circuit) sleep(ctx context.Context, d time.Duration, changed <-chan struct{}) bool {
	var over <-chan time.Time
	if d > 0 {
		timer := c.clock.Timer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
		return true
	case <-ctx.Done():
	case <-changed:
	}
	return false
}

// Abandon is for a tool that ignores its context. What it returns runs tool in a goroutine
// of its own, and leaves with ctx.Err() when the context ends; the late result is dropped,
// the goroutine lives until tool returns. If the context is over already, tool does not run.
// Wrap it inside the circuit, so that a CallTimeout
// reaches it: Wrap(c, Abandon(tool)).
//
// A panic of tool while the caller waits happens in the caller, as a [*PanicError], and so
// does runtime.Goexit; later ones are dropped, as in http.TimeoutHandler. A nil tool panics.
func Abandon[In, Out any](tool func(context.Context, In) (Out, error)) func(context.Context, In) (Out, error) {
	if tool == nil {
		panic("toolcircuit: Abandon: tool is nil")
	}
	return func(ctx context.Context, in In) (Out, error) {
		if ctx == nil {
			panic("toolcircuit: Abandon: ctx is nil")
		}
		if err := ctx.Err(); err != nil {
			return *new(Out), err
		}
		type result struct {
			out      Out
			err      error
			returned bool
			panicked *PanicError
		}
		done := make(chan result, 1)
		go func() {
			var r result
			defer func() {
				if !r.returned {
					if v := recover(); v != nil {
						r.panicked = &PanicError{Value: v, Stack: debug.Stack()}
					}
				}
				done <- r
			}()
			r.out, r.err = tool(ctx, in)
			r.returned = true
		}()
		var r result
		select {
		case r = <-done:
		case <-ctx.Done():
			select {
			case r = <-done: // it was in time after all
			default:
				return r.out, ctx.Err()
			}
		}
		switch {
		case r.panicked != nil:
			panic(r.panicked)
		case !r.returned:
			runtime.Goexit()
		}
		return r.out, r.err
	}
}

// PanicError is a panic that happened where nobody could recover it: in a goroutine of
// Abandon, or in a hook.
type PanicError struct {
	Value any    // what panic was called with
	Stack []byte // as debug.Stack gives it
}

// Error has the value and the stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("panic: %v\n\n%s", e.Value, e.Stack)
}

// Unwrap returns the value if it is an error, else nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// withDeadline returns the context of one call, which ends after d with DeadlineExceeded and
// with cause as its cause.
func withDeadline(ctx context.Context, st *settings, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	if !st.injected {
		return context.WithTimeoutCause(ctx, d, cause)
	}
	inner, cancel := context.WithCancelCause(ctx)
	t := &timedContext{Context: inner, cancel: cancel, done: make(chan struct{})}
	timer := st.clock.AfterFunc(d, func() { t.end(context.DeadlineExceeded, cause) })
	stop := context.AfterFunc(inner, func() { t.end(inner.Err(), nil) })
	return t, func() {
		timer.Stop()
		stop()
		t.end(context.Canceled, nil)
	}
}

// timedContext ends by an injected clock. The clock's own contexts will not do: they race,
// and their deadline of 1970 would be believed by the network. The done channel is not that
// of the context inside, so that contexts derived from this one take its Err, and the cause
// from inside.
type timedContext struct {
	context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}
	once   sync.Once
	err    error // set before done is closed
}

func (t *timedContext) end(err, cause error) {
	t.once.Do(func() {
		t.err = err
		t.cancel(cause)
		close(t.done)
	})
}

func (t *timedContext) Done() <-chan struct{} { return t.done }

func (t *timedContext) Err() error {
	select {
	case <-t.done:
		return t.err
	default:
		return nil
	}
}
