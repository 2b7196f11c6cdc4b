package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/afex/hystrix-go/hystrix"
	"github.com/benbjohnson/clock"
	"github.com/cenk/backoff"
	resiliency "github.com/eapache/go-resiliency/breaker"
	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/timeout"
	rubyist "github.com/rubyist/circuitbreaker"
	"github.com/sony/gobreaker/v2"
	gozero "github.com/zeromicro/go-zero/core/breaker"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/core/stat"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// aspect is something that a circuit can be told by an option of its own.
type aspect string

const (
	byDefault  aspect = ""           // nothing but a threshold of three and a cooldown
	errorKinds aspect = "errors"     // which errors are the caller's
	unknown    aspect = "unknown"    // that errors of unknown types count
	retryAfter aspect = "retryAfter" // that a Retry-After is the wait
	slowness   aspect = "slow"       // from half a cooldown on a call is slow
	failRate   aspect = "rate"       // half of the calls failing is too much
)

// config is what a circuit is made with.
type config struct {
	cooldown time.Duration
	told     aspect
	onChange func()      // nil: nobody listens
	clock    *clock.Mock // nil: time itself
}

// breaker is one circuit of one library. Functions that the library has no counterpart for are nil.
type breaker struct {
	call  func(ctx context.Context, op func(context.Context) error) error
	open  func() bool               // not closed
	retry func(error) time.Duration // what a refusal says of the wait; 0: nothing
	hold  func(open bool)           // an operator keeps it open, or lets go
	names func(name string)         // calls once under a name that a model made up
}

// library makes circuits, nil where it has no option for what it is to be told.
type library struct {
	name     string
	make     func(config) *breaker
	cooldown time.Duration // zero: ten seconds, simulated
	listens  bool          // it tells somebody of its changes
	clock    bool          // it takes a clock
}

// mistake returns a function that reports whether an error says nothing of the dependency: it is the
// caller's or a refusal of the library's own.
func mistake(refusals ...error) func(error) bool {
	return func(err error) bool {
		for _, refusal := range refusals {
			if errors.Is(err, refusal) {
				return true
			}
		}
		var e *statusError
		return errors.Is(err, context.Canceled) ||
			errors.As(err, &e) && e.StatusCode < 500 && e.StatusCode != 429
	}
}

var libraries = []library{
	{name: "toolcircuit", make: ours, listens: true, clock: true},
	{name: "gobreaker", make: sony, listens: true},
	{name: "failsafe-go", make: failsafely, listens: true},
	{name: "eapache", make: eapache},
	{name: "rubyist", make: rubyists},
	{name: "go-zero", make: gozeros},
	// Its goroutines never end, so it cannot live in simulated time.
	{name: "hystrix-go", make: hystrixes, cooldown: 100 * time.Millisecond},
}

func ours(c config) *breaker {
	o := toolcircuit.Options{Policy: toolcircuit.Policy{FailureThreshold: 3, Cooldown: c.cooldown}}
	switch c.told {
	case unknown:
		o.Policy.CountUnknown = true
	case slowness:
		o.Policy.SlowCall = c.cooldown / 2
	case failRate:
		o.Policy.FailureRate = 0.5
	}
	if c.clock != nil {
		o.Clock = c.clock
	}
	if c.onChange != nil {
		o.OnEvent = func(context.Context, toolcircuit.Event) { c.onChange() }
	}
	circuit := toolcircuit.MustNew("search", o)
	set, err := toolset.New(toolset.Config{Monitored: []string{"*"}}, toolset.Options{})
	if err != nil {
		panic(err)
	}
	do := func(ctx context.Context, op func(context.Context) error) error {
		_, err := toolcircuit.Do(ctx, circuit, func(ctx context.Context) (struct{}, error) { return struct{}{}, op(ctx) })
		return err
	}
	return &breaker{
		call: do,
		open: func() bool { return circuit.State() != toolcircuit.StateClosed },
		retry: func(err error) time.Duration {
			var refusal *toolcircuit.OpenError
			if !errors.As(err, &refusal) {
				return 0
			}
			return refusal.RetryAfter()
		},
		hold: func(open bool) {
			circuit.SetOverride(map[bool]toolcircuit.Override{true: toolcircuit.OverrideOpen}[open])
		},
		names: func(name string) {
			toolset.Do(context.Background(), set, name, nil, func(context.Context) (int, error) { return 0, nil })
		},
	}
}

func sony(c config) *breaker {
	s := gobreaker.Settings{
		Timeout:     c.cooldown,
		ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= 3 },
	}
	switch c.told {
	case byDefault:
	case errorKinds:
		s.IsExcluded = mistake(gobreaker.ErrOpenState, gobreaker.ErrTooManyRequests)
	case failRate:
		s.Interval, s.BucketPeriod = 6*c.cooldown, c.cooldown
		s.ReadyToTrip = func(n gobreaker.Counts) bool {
			return n.Requests >= 20 && float64(n.TotalFailures)/float64(n.Requests) >= 0.5
		}
	default:
		return nil
	}
	if c.onChange != nil {
		s.OnStateChange = func(string, gobreaker.State, gobreaker.State) { c.onChange() }
	}
	cb := gobreaker.NewCircuitBreaker[struct{}](s)
	kept := map[string]*gobreaker.CircuitBreaker[struct{}]{}
	return &breaker{
		call: func(ctx context.Context, op func(context.Context) error) error {
			_, err := cb.Execute(func() (struct{}, error) { return struct{}{}, op(ctx) })
			return err
		},
		open: func() bool { return cb.State() != gobreaker.StateClosed },
		names: func(name string) {
			kept[name] = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{Name: name})
			kept[name].Execute(func() (struct{}, error) { return struct{}{}, nil })
		},
	}
}

func failsafely(c config) *breaker {
	b := circuitbreaker.NewBuilder[any]().WithFailureThreshold(3).WithSuccessThreshold(1).WithDelay(c.cooldown)
	inner := []failsafe.Policy[any]{}
	switch c.told {
	case byDefault:
	case errorKinds:
		ignored := mistake(circuitbreaker.ErrOpen)
		b.HandleIf(func(_ any, err error) bool { return err != nil && !ignored(err) })
	case retryAfter:
		b.WithDelayFunc(func(e failsafe.ExecutionAttempt[any]) time.Duration {
			if after := asked(e.LastError()); after > 0 {
				return after
			}
			return -1
		})
	case slowness:
		inner = append(inner, timeout.New[any](c.cooldown/2))
	case failRate:
		b = circuitbreaker.NewBuilder[any]().WithFailureRateThreshold(0.5, 20, 6*c.cooldown)
	default:
		return nil
	}
	if c.onChange != nil {
		b.OnStateChanged(func(circuitbreaker.StateChangedEvent) { c.onChange() })
	}
	cb := b.Build()
	e := failsafe.With(append([]failsafe.Policy[any]{cb}, inner...)...)
	kept := map[string]circuitbreaker.CircuitBreaker[any]{}
	return &breaker{
		call: func(ctx context.Context, op func(context.Context) error) error {
			return e.WithContext(ctx).RunWithExecution(func(x failsafe.Execution[any]) error { return op(x.Context()) })
		},
		open: func() bool { return !cb.IsClosed() },
		retry: func(err error) time.Duration {
			if errors.Is(err, circuitbreaker.ErrOpen) {
				return cb.RemainingDelay()
			}
			return 0
		},
		hold: func(open bool) {
			if open {
				cb.Open()
			} else {
				cb.Close()
			}
		},
		names: func(name string) {
			kept[name] = circuitbreaker.NewWithDefaults[any]()
			failsafe.With[any](kept[name]).Run(func() error { return nil })
		},
	}
}

func eapache(c config) *breaker {
	if c.told != byDefault {
		return nil
	}
	b := resiliency.New(3, 1, c.cooldown)
	kept := map[string]*resiliency.Breaker{}
	return &breaker{
		call: func(ctx context.Context, op func(context.Context) error) error {
			return b.Run(func() error { return op(ctx) })
		},
		open: func() bool { return b.GetState() != resiliency.Closed },
		names: func(name string) {
			kept[name] = resiliency.New(3, 1, c.cooldown)
			kept[name].Run(func() error { return nil })
		},
	}
}

func rubyists(c config) *breaker {
	curve := backoff.NewExponentialBackOff()
	curve.InitialInterval, curve.RandomizationFactor, curve.MaxElapsedTime = c.cooldown, 0, 0
	o := &rubyist.Options{BackOff: curve, ShouldTrip: rubyist.ConsecutiveTripFunc(3)}
	var limit time.Duration
	switch c.told {
	case byDefault:
	case slowness:
		limit = c.cooldown / 2
	case failRate:
		o.ShouldTrip, o.WindowTime = rubyist.RateTripFunc(0.5, 20), 6*c.cooldown
	default:
		return nil
	}
	b := rubyist.NewBreakerWithOptions(o)
	kept := map[string]*rubyist.Breaker{}
	return &breaker{
		call: func(ctx context.Context, op func(context.Context) error) error {
			return b.CallContext(ctx, func() error { return op(ctx) }, limit)
		},
		open: b.Tripped,
		hold: func(open bool) {
			if open {
				b.Break()
			} else {
				b.Reset()
			}
		},
		names: func(name string) {
			kept[name] = rubyist.NewConsecutiveBreaker(3)
			kept[name].Call(func() error { return nil }, 0)
		},
	}
}

func init() { // go-zero's logs
	stat.SetReporter(nil)
	logx.Disable()
}

func gozeros(c config) *breaker {
	acceptable := func(err error) bool { return err == nil }
	switch c.told {
	case byDefault:
	case errorKinds:
		ignored := mistake(gozero.ErrServiceUnavailable)
		acceptable = func(err error) bool { return err == nil || ignored(err) }
	default:
		return nil
	}
	b := gozero.NewBreaker(gozero.WithName("search"))
	return &breaker{
		call: func(ctx context.Context, op func(context.Context) error) error {
			return b.DoWithAcceptableCtx(ctx, func() error { return op(ctx) }, acceptable)
		},
		names: func(name string) { gozero.Do(name, func() error { return nil }) },
	}
}

var commands int

func hystrixes(c config) *breaker {
	s := hystrix.CommandConfig{
		MaxConcurrentRequests:  1000,
		RequestVolumeThreshold: 3,
		SleepWindow:            int(c.cooldown / time.Millisecond),
	}
	switch c.told {
	case byDefault:
	case slowness:
		s.Timeout = int(c.cooldown / 2 / time.Millisecond)
	case failRate:
		s.RequestVolumeThreshold = 20
	default:
		return nil
	}
	commands++
	name := fmt.Sprint("search-", commands)
	hystrix.ConfigureCommand(name, s)
	return &breaker{
		call: func(ctx context.Context, op func(context.Context) error) error {
			defer time.Sleep(2 * time.Millisecond) // its counters are filled by a goroutine
			return hystrix.DoC(ctx, name, op, nil)
		},
		open: func() bool {
			circuit, _, _ := hystrix.GetCircuit(name)
			return circuit.IsOpen()
		},
		names: func(name string) { hystrix.Do(name, func() error { return nil }, nil) },
	}
}
