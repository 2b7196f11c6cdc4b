package main

import (
	"context"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
)

func failsafeBreaker() circuitbreaker.Builder[int] {
	return circuitbreaker.NewBuilder[int]().WithFailureThreshold(5).WithSuccessThreshold(1)
}

func failsafeTripped(b circuitbreaker.Builder[int], delay time.Duration) circuitbreaker.CircuitBreaker[int] {
	cb := b.WithDelay(delay).Build()
	cb.Open()
	return cb
}

//go:noinline
func failsafeDo(cb circuitbreaker.CircuitBreaker[int]) call {
	e := failsafe.With[int](cb)
	return func(context.Context) {
		n := in[2]
		e.Get(func() (int, error) { return in[0] + n, nil })
	}
}

//go:noinline
func failsafeFailing(cb circuitbreaker.CircuitBreaker[int]) call {
	e, fail := failsafe.With[int](cb), every(errSick)
	return func(context.Context) {
		n := in[2]
		e.Get(func() (int, error) { return in[0] + n, fail() })
	}
}

//go:noinline
func permitDo(cb circuitbreaker.CircuitBreaker[int]) call {
	return func(ctx context.Context) {
		if !cb.TryAcquirePermit() {
			return
		}
		n := in[2]
		if _, err := bare(ctx, func(context.Context) (int, error) { return in[0] + n, nil }); err != nil {
			cb.RecordError(err)
		} else {
			cb.RecordSuccess()
		}
	}
}

//go:noinline
func permitFailing(cb circuitbreaker.CircuitBreaker[int]) call {
	fail := every(errSick)
	return func(ctx context.Context) {
		if !cb.TryAcquirePermit() {
			return
		}
		n := in[2]
		if _, err := bare(ctx, func(context.Context) (int, error) { return in[0] + n, fail() }); err != nil {
			cb.RecordError(err)
		} else {
			cb.RecordSuccess()
		}
	}
}

func failsafeRated() circuitbreaker.Builder[int] {
	return circuitbreaker.NewBuilder[int]().WithFailureRateThreshold(0.5, 20, time.Minute)
}

func failsafeClosed() call  { return failsafeDo(failsafeBreaker().Build()) }
func failsafeMixed() call   { return failsafeFailing(failsafeBreaker().Build()) }
func failsafeRefused() call { return failsafeDo(failsafeTripped(failsafeBreaker(), long)) }
func failsafeHalf() call {
	cb := failsafeTripped(failsafeBreaker(), long)
	cb.HalfOpen()
	held(func(op func()) {
		failsafe.With[int](cb).Get(func() (int, error) { op(); return 0, nil })
	})
	return failsafeDo(cb)
}
func permitClosed() call  { return permitDo(failsafeBreaker().Build()) }
func permitMixed() call   { return permitFailing(failsafeBreaker().Build()) }
func permitRefused() call { return permitDo(failsafeTripped(failsafeBreaker(), long)) }
func permitHalf() call {
	cb := failsafeTripped(failsafeBreaker(), long)
	cb.HalfOpen()
	cb.TryAcquirePermit()
	return permitDo(cb)
}
func failsafeRate() call        { return failsafeDo(failsafeRated().Build()) }
func failsafeRateMixed() call   { return failsafeFailing(failsafeRated().Build()) }
func failsafeRateRefused() call { return failsafeDo(failsafeTripped(failsafeRated(), long)) }
