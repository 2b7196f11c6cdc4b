// Package fleet has the parts of a Fleet that know nothing of circuits.
package fleet

import (
	"context"
	"sync"
	"time"
)

// Loops are goroutines that run until Stop. Make them with NewLoops. All methods are safe for
// concurrent use, but Go and Turns come before Stop.
type Loops struct {
	ctx  context.Context
	stop context.CancelFunc
	over sync.WaitGroup
	wake chan struct{}
}

// NewLoops returns Loops of which none runs yet.
func NewLoops() *Loops {
	ctx, stop := context.WithCancel(context.Background())
	return &Loops{ctx: ctx, stop: stop, wake: make(chan struct{}, 1)}
}

// Go runs loop in a goroutine of its own, again and again, also if it panics or ends its goroutine.
// The context of loop ends with Stop.
func (l *Loops) Go(loop func(context.Context)) {
	l.over.Add(1)
	go l.forever(loop)
}

func (l *Loops) forever(loop func(context.Context)) {
	defer func() {
		recover()
		if l.ctx.Err() == nil {
			go l.forever(loop)
		} else {
			l.over.Done()
		}
	}()
	for l.ctx.Err() == nil {
		loop(l.ctx)
	}
}

// Turns is Go for a loop that does what is due and returns how long nothing more is. It runs again
// after that, or after Wake.
func (l *Loops) Turns(turn func(context.Context) time.Duration) {
	l.Go(func(ctx context.Context) {
		timer := time.NewTimer(turn(ctx))
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-timer.C:
		}
	})
}

// Wake makes the next turn come now.
func (l *Loops) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Stop ends the loops. The channel that it returns is closed when all have ended.
func (l *Loops) Stop() <-chan struct{} {
	l.stop()
	done := make(chan struct{})
	go func() { l.over.Wait(); close(done) }()
	return done
}
