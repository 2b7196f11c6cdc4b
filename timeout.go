package toolcircuit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// ErrCallTimeout is what every [CallTimeoutError] is, for errors.Is.
var ErrCallTimeout = errors.New("toolcircuit: call timed out")

// CallTimeoutError is the error of a call that came back after Policy.CallTimeout. It is
// [ErrCallTimeout] and [context.DeadlineExceeded].
type CallTimeoutError struct {
	Dependency string
	After      time.Duration // CallTimeout, from the start of the call
	Err        error         // what the tool returned; nil while it runs
}

func (e *CallTimeoutError) Error() string {
	text := fmt.Sprintf("toolcircuit: %s did not answer within %v", e.Dependency, e.After)
	if e.Err != nil {
		text += fmt.Sprintf(": %v", e.Err)
	}
	return text
}

// Is reports whether target is ErrCallTimeout or context.DeadlineExceeded.
func (e *CallTimeoutError) Is(target error) bool {
	return target == ErrCallTimeout || target == context.DeadlineExceeded
}

// Timeout returns true, as net.Error asks of a timeout.
func (e *CallTimeoutError) Timeout() bool { return true }

// Unwrap returns Err.
func (e *CallTimeoutError) Unwrap() error { return e.Err }

// Abandon is for a tool that ignores its context. The function that it returns runs tool in a
// goroutine of its own, and returns ctx.Err() as soon as the context ends. The late result is
// dropped, and the goroutine lives until tool returns. If the context has already ended, tool does
// not run. Put Abandon inside the circuit, so that CallTimeout reaches it: Wrap(c, Abandon(tool)).
//
// While the caller waits, a panic of tool becomes a panic of the caller, with a [*PanicError], and
// runtime.Goexit ends the caller's goroutine. Later ones are dropped, as in http.TimeoutHandler. A
// nil tool panics.
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

// PanicError is a panic that happened where its caller could not recover it: in a goroutine of
// Abandon or in a hook.
type PanicError struct {
	Value any    // the argument of panic
	Stack []byte // from debug.Stack
}

// Error returns the value and the stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("panic: %v\n\n%s", e.Value, e.Stack)
}

// Unwrap returns Value if it is an error, otherwise nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// withDeadline returns the context of one call. It ends after d, with DeadlineExceeded and the
// given cause.
func withDeadline(ctx context.Context, st *settings, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	if !st.injected {
		return context.WithTimeoutCause(ctx, d, cause)
	}
	inner, cancel := context.WithCancelCause(ctx)
	t := &timedContext{Context: inner, cancel: cancel, done: make(chan struct{})}
	if d <= 0 { // a mock clock would end it no sooner than its next move
		t.end(context.DeadlineExceeded, cause)
	}
	timer := st.clock.AfterFunc(d, func() { t.end(context.DeadlineExceeded, cause) })
	stop := context.AfterFunc(inner, func() { t.end(inner.Err(), nil) })
	return t, func() {
		timer.Stop()
		stop()
		t.end(context.Canceled, nil)
	}
}

// timedContext ends by an injected clock. The clock's own contexts do not serve: they race, and
// the network would take their deadline of 1970 for real time. Contexts derived from this one take
// Err from it, because its done channel is its own, and the cause from the context inside.
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
