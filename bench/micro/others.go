package main

import (
	"context"
	"math"
	"time"

	"github.com/afex/hystrix-go/hystrix"
	resiliency "github.com/eapache/go-resiliency/breaker"
	rubyist "github.com/rubyist/circuitbreaker"
	gozero "github.com/zeromicro/go-zero/core/breaker"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/core/stat"
)

// eapache/go-resiliency. Its errors add up as long as one comes within the timeout of the last,
// so one call in a hundred opens it in microseconds: that column has a threshold out of reach.

//go:noinline
func eapacheDo(b *resiliency.Breaker) call {
	return func(context.Context) {
		n := in[2]
		var got int
		b.Run(func() error { got = in[0] + n; return nil })
		in[3] = got
	}
}

//go:noinline
func eapacheMixed() call {
	b, fail := resiliency.New(math.MaxInt, 1, long), every(errSick)
	return func(context.Context) {
		n := in[2]
		var got int
		b.Run(func() error { got = in[0] + n; return fail() })
		in[3] = got
	}
}

func eapacheTripped(timeout time.Duration) *resiliency.Breaker {
	b := resiliency.New(1, 1, timeout)
	b.Run(func() error { return errSick })
	return b
}

func eapacheClosed() call  { return eapacheDo(resiliency.New(5, 1, long)) }
func eapacheRefused() call { return eapacheDo(eapacheTripped(long)) }
func eapacheHalf() call {
	b := resiliency.New(1, math.MaxInt, short) // stays half-open: it lets every call through
	b.Run(func() error { return errSick })
	past(short)
	return eapacheDo(b)
}

// rubyist/circuitbreaker.

type constant time.Duration

func (c constant) NextBackOff() time.Duration { return time.Duration(c) }
func (c constant) Reset()                     {}

func rubyistBreaker() *rubyist.Breaker {
	return rubyist.NewBreakerWithOptions(&rubyist.Options{BackOff: constant(long), ShouldTrip: rubyist.ConsecutiveTripFunc(5)})
}

//go:noinline
func rubyistDo(b *rubyist.Breaker) call {
	return func(ctx context.Context) {
		n := in[2]
		var got int
		b.CallContext(ctx, func() error { got = in[0] + n; return nil }, 0)
		in[3] = got
	}
}

//go:noinline
func rubyistMixed() call {
	b, fail := rubyistBreaker(), every(errSick)
	return func(ctx context.Context) {
		n := in[2]
		var got int
		b.CallContext(ctx, func() error { got = in[0] + n; return fail() }, 0)
		in[3] = got
	}
}

func rubyistClosed() call { return rubyistDo(rubyistBreaker()) }
func rubyistRefused() call {
	b := rubyistBreaker()
	b.Trip()
	return rubyistDo(b)
}

// go-zero. It drops by chance what a window of failures makes likely, so its refused column is a
// tool that always fails, and a few of these calls run.

func init() { // its logs
	stat.SetReporter(nil)
	logx.Disable()
}

//go:noinline
func gozeroClosed() call {
	b := gozero.NewBreaker()
	return func(ctx context.Context) {
		n := in[2]
		var got int
		b.DoCtx(ctx, func() error { got = in[0] + n; return nil })
		in[3] = got
	}
}

//go:noinline
func gozeroMixed() call {
	b, fail := gozero.NewBreaker(), every(errSick)
	return func(ctx context.Context) {
		n := in[2]
		var got int
		b.DoCtx(ctx, func() error { got = in[0] + n; return fail() })
		in[3] = got
	}
}

//go:noinline
func gozeroRefused() call {
	b := gozero.NewBreaker()
	c := func(ctx context.Context) {
		n := in[2]
		var got int
		b.DoCtx(ctx, func() error { got = in[0] + n; return errSick })
		in[3] = got
	}
	for range 1000 {
		c(context.Background())
	}
	return c
}

// hystrix-go.

//go:noinline
func hystrixDo(name string) call {
	return func(ctx context.Context) {
		n := in[2]
		var got int
		hystrix.DoC(ctx, name, func(context.Context) error { got = in[0] + n; return nil }, nil)
		in[3] = got
	}
}

//go:noinline
func hystrixFailing(name string) call {
	fail := every(errSick)
	return func(ctx context.Context) {
		n := in[2]
		var got int
		hystrix.DoC(ctx, name, func(context.Context) error { got = in[0] + n; return fail() }, nil)
		in[3] = got
	}
}

func hystrixCommand(name string) string {
	hystrix.ConfigureCommand(name, hystrix.CommandConfig{
		Timeout:               int(long / time.Millisecond),
		MaxConcurrentRequests: 100,
		SleepWindow:           int(long / time.Millisecond),
	})
	return name
}

func hystrixClosed() call { return hystrixDo(hystrixCommand("closed")) }
func hystrixMixed() call  { return hystrixFailing(hystrixCommand("mixed")) }
func hystrixRefused() call {
	name := hystrixCommand("refused")
	for range 40 {
		hystrix.Do(name, func() error { return errSick }, nil)
	}
	time.Sleep(100 * time.Millisecond) // its counters are filled by a goroutine
	return hystrixDo(name)
}
