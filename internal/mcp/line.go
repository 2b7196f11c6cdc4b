package mcp

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/toolcircuit/toolcircuit"
)

// Line is the connection that a host uses, which outlives its sessions, of type S. It is made with
// its first session. The next call that needs a session renews a dead one. All methods are safe for
// concurrent use.
type Line[S comparable] struct {
	// Renew returns a session in the place of dead, whose generation is gen. Its context ends
	// after Timeout, not with any call. It may panic. If it has not returned by then, the attempt
	// has failed, and Renew may be called again beside it. Nil: a dead session stays dead.
	Renew func(ctx context.Context, dead S, gen int) (S, error)
	// Retire closes a session that another has replaced, or that came too late. It runs in a
	// goroutine of its own.
	Retire  func(S)
	Timeout time.Duration

	mu       sync.Mutex
	session  S
	gen      int  // 0: the first session
	dead     bool // the session is known to be gone
	closed   bool
	answered bool      // it has answered a call
	http     bool      // it sends by Transport
	doubted  time.Time // when a 400 last ended a session, if nothing was answered since
	failing  time.Time // since when Renew has failed, if failures > 0
	failures int       // of Renew in a row
	pause    time.Time // until when Renew is not called again
	failed   *failure  // of the last Renew
	attempt  *attempt
}

// attempt is one call of Renew under way.
type attempt struct {
	began  time.Time
	cancel context.CancelFunc
	done   chan struct{} // closed when Renew has returned, or its context has ended
	err    error         // once done is closed
}

// failure is the error of one attempt, for all who waited for it.
type failure struct {
	error
	known sync.Map // the circuits that know of it
}

func (f *failure) Unwrap() error { return f.error }

// news reports whether a circuit does not know of the failure yet, once for each circuit.
func (f *failure) news(c *toolcircuit.ToolCircuit) bool {
	_, known := f.known.LoadOrStore(c, true)
	return !known
}

// NewLine returns a line whose first session is s.
func NewLine[S comparable](s S) *Line[S] { return &Line[S]{session: s} }

// Now returns the session to use and its generation, and whether it is known to be gone.
func (l *Line[S]) Now() (s S, gen int, dead bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session, l.gen, l.dead
}

// Gone notes that the session of a generation has ended. It reports whether that was not known and
// the session has never answered, which speaks against the server. It ignores a session that has been
// replaced.
func (l *Line[S]) Gone(gen int) (neverAnswered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone(gen) && !l.answered
}

func (l *Line[S]) gone(gen int) (news bool) {
	if gen != l.gen || l.dead {
		return false
	}
	l.dead, l.failures, l.pause = true, 0, time.Time{}
	return true
}

// Doubt notes that the session of a generation answered 400, and reports whether the session is to
// blame. The 400 is the call's own if the session took the place of one that answered 400 and has
// answered nothing since, for as long as Timeout: after that it may have been lost, too.
func (l *Line[S]) Doubt(gen int) (gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if gen != l.gen || l.dead {
		return true
	}
	if !l.doubted.IsZero() && time.Since(l.doubted) < l.Timeout {
		return false
	}
	l.gone(gen)
	l.doubted = time.Now()
	return true
}

// Answered notes that the session of a generation has answered a call.
func (l *Line[S]) Answered(gen int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if gen == l.gen && !l.dead {
		l.answered, l.doubted = true, time.Time{}
	}
}

// Note notes whether the session of a generation sends by [Transport], once a request has been sent.
func (l *Line[S]) Note(gen int, h *Hint) {
	if !h.byHTTP() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.http = l.http || gen == l.gen
}

func (l *Line[S]) byHTTP(gen int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.http && gen == l.gen
}

// Pause returns how long to wait until the next attempt to renew the session, and whether attempts
// have failed for less than Timeout.
func (l *Line[S]) Pause() (wait time.Duration, early bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(time.Until(l.pause), time.Millisecond), l.failures == 0 || time.Since(l.failing) < l.Timeout
}

// ErrClosed is the error of a line that was closed.
var ErrClosed = errors.New("toolcircuit: the MCP guard is closed")

// Await returns the session to use and its generation. It renews a dead session, in one goroutine for
// all callers. A caller waits no longer than ctx. After a failed attempt there is a pause of up to a
// second, in which Await returns that attempt's error, except if now is true.
func (l *Line[S]) Await(ctx context.Context, now bool) (s S, gen int, err error) {
	for {
		l.mu.Lock()
		if !l.dead {
			defer l.mu.Unlock()
			return l.session, l.gen, nil
		}
		a := l.attempt
		switch {
		case l.closed:
			err = ErrClosed
		case a == nil && !now && time.Now().Before(l.pause):
			err = l.failed
		case a == nil:
			a = l.begin(ctx)
		}
		l.mu.Unlock()
		if err != nil {
			return s, 0, err
		}
		select {
		case <-a.done:
		case <-ctx.Done():
			return s, 0, ctx.Err()
		}
		if a.err != nil {
			return s, 0, a.err
		}
	}
}

// begin starts an attempt. The caller holds l.mu.
func (l *Line[S]) begin(ctx context.Context) *attempt {
	ctx, cancel := context.WithTimeout(WithHint(context.WithoutCancel(ctx), nil), l.Timeout)
	a := &attempt{began: time.Now(), cancel: cancel, done: make(chan struct{})}
	l.attempt = a
	dead, gen := l.session, l.gen
	context.AfterFunc(ctx, func() {
		var none S
		l.end(a, none, ctx.Err())
	})
	go func() {
		defer cancel()
		var heir S
		err := error(errNoReturn)
		defer func() { l.end(a, heir, err) }()
		defer func() {
			if v := recover(); v != nil {
				err = &PanicError{Value: v, Stack: debug.Stack()}
			}
		}()
		heir, err = l.Renew(ctx, dead, gen)
	}()
	return a
}

var errNoReturn = &PanicError{Value: "runtime.Goexit"}

// PanicError is the error of a Renew that did not return.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("mcp: Reconnect did not return: %v\n%s", e.Value, e.Stack)
}

// end takes in what an attempt has come to, the first time that it is called for it. What comes later
// is closed.
func (l *Line[S]) end(a *attempt, heir S, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.attempt != a {
		if err == nil {
			go l.Retire(heir)
		}
		return
	}
	defer close(a.done)
	l.attempt = nil
	switch {
	case l.closed: // Close has ended the attempt, which says nothing about the server
		a.err = ErrClosed
		if err == nil {
			go l.Retire(heir)
		}
	case err != nil:
		l.failed = &failure{error: err}
		a.err = l.failed
		if l.failures == 0 {
			l.failing = a.began
		}
		l.pause = time.Now().Add(min(50*time.Millisecond<<min(l.failures, 10), time.Second))
		l.failures++
	default:
		old := l.session
		l.session, l.gen = heir, l.gen+1
		l.dead, l.answered, l.http = false, false, false
		if old != heir {
			go l.Retire(old)
		}
	}
}

// Close ends the line: nothing renews it any more. It returns the current session, and whether that
// is one that Renew made.
func (l *Line[S]) Close() (heir S, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.attempt != nil {
		l.attempt.cancel()
	}
	return l.session, l.gen > 0
}
