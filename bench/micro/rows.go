package main

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/afex/hystrix-go/hystrix"
	resiliency "github.com/eapache/go-resiliency/breaker"
	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	rubyist "github.com/rubyist/circuitbreaker"
	"github.com/sony/gobreaker/v2"
	gozero "github.com/zeromicro/go-zero/core/breaker"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/core/stat"

	"github.com/toolcircuit/toolcircuit"
)

// A call is what a benchmark measures: one call of a tool through one library.
type call func(ctx context.Context)

// A column is one situation in which a call is measured.
type column string

const (
	closed   column = "closed"    // the call succeeds
	mixed    column = "1% fail"   // one call in a hundred fails, and the failure counts
	refused  column = "refused"   // the circuit is open
	halfOpen column = "half-open" // a probe is out
)

// A row is one form of one library. Each of its functions prepares a circuit and returns the call
// to measure; nil where the library has no such situation.
type row struct {
	name   string
	floor  bool
	closed func() call
	mixed  func() call
	refuse func() call
	half   func() call
}

func (r row) maker(c column) func() call {
	return map[column]func() call{closed: r.closed, mixed: r.mixed, refused: r.refuse, halfOpen: r.half}[c]
}

// in is what the closures capture, so that the compiler knows nothing about it.
var in = &[4]int{3, 1, 4, 1}

var (
	errSick  = errors.New("sick")
	sick     = toolcircuit.Fault(errSick)
	finished = make(chan struct{}) // never closed: what waits for it is out until the program ends
)

// every returns a function that returns err at each hundredth call.
func every(err error) func() error {
	n := 0
	return func() error {
		if n++; n%100 == 0 {
			return err
		}
		return nil
	}
}

// held runs a call that never ends, and returns once it has begun.
func held(run func(op func())) {
	begun := make(chan struct{})
	go run(func() {
		close(begun)
		<-finished
	})
	<-begun
}

const (
	long  = time.Hour
	short = time.Millisecond
)

func past(d time.Duration) { time.Sleep(5 * d) }

// rows are all forms that are measured. Each maker is a function of its own that is not inlined:
// in a closure whose maker is inlined into a variable's initializer nothing is inlined.
var rows = []row{
	{name: "closure", floor: true, closed: floorClosure},
	{name: "function + defer + closure", floor: true, closed: floorDefer},
	{name: "atomic add + closure", floor: true, closed: floorAdd},
	{name: "time.Now", floor: true, closed: floorNow},

	{name: "toolcircuit", closed: oursClosed, mixed: oursMixed, refuse: oursRefused, half: oursHalf},
	{name: "toolcircuit two-step", closed: oursTwoStep, mixed: oursTwoStepMixed, refuse: oursTwoStepRefused, half: oursTwoStepHalf},
	{name: "toolcircuit rate", closed: oursRate, mixed: oursRateMixed, refuse: oursRateRefused},

	{name: "gobreaker", closed: sonyClosed, mixed: sonyMixed, refuse: sonyRefused, half: sonyHalf},
	{name: "gobreaker two-step", closed: sonyTwoStep, refuse: sonyTwoStepRefused},
	{name: "gobreaker window", closed: sonyWindow, mixed: sonyWindowMixed, refuse: sonyWindowRefused},
	{name: "gobreaker distributed", closed: sonyDistributed, mixed: sonyDistributedMixed, refuse: sonyDistributedRefused},

	{name: "failsafe-go executor", closed: failsafeClosed, mixed: failsafeMixed, refuse: failsafeRefused, half: failsafeHalf},
	{name: "failsafe-go permit", closed: permitClosed, mixed: permitMixed, refuse: permitRefused, half: permitHalf},
	{name: "failsafe-go rate", closed: failsafeRate, mixed: failsafeRateMixed, refuse: failsafeRateRefused},

	{name: "eapache", closed: eapacheClosed, mixed: eapacheMixed, refuse: eapacheRefused, half: eapacheHalf},
	{name: "rubyist", closed: rubyistClosed, mixed: rubyistMixed, refuse: rubyistRefused},
	{name: "go-zero", closed: gozeroClosed, mixed: gozeroMixed, refuse: gozeroRefused},
	{name: "hystrix-go", closed: hystrixClosed, mixed: hystrixMixed, refuse: hystrixRefused},
}

// The floors.

//go:noinline
func floorClosure() call {
	return func(ctx context.Context) {
		n := in[2]
		bare(ctx, func(context.Context) (int, error) { return in[0] + n, nil })
	}
}

//go:noinline
func bare(ctx context.Context, op func(context.Context) (int, error)) (int, error) { return op(ctx) }

//go:noinline
func floorDefer() call {
	return func(ctx context.Context) {
		n := in[2]
		deferred(ctx, func(context.Context) (int, error) { return in[0] + n, nil })
	}
}

//go:noinline
func deferred(ctx context.Context, op func(context.Context) (int, error)) (n int, err error) {
	err = errSick
	defer func() {
		if err == errSick {
			in[3]++
		}
	}()
	return op(ctx)
}

//go:noinline
func floorAdd() call {
	var total atomic.Int64
	return func(ctx context.Context) {
		n := in[2]
		total.Add(1)
		bare(ctx, func(context.Context) (int, error) { return in[0] + n, nil })
	}
}

//go:noinline
func floorNow() call { return func(context.Context) { keep(time.Now()) } }

//go:noinline
func keep(time.Time) {}

// This library.

func ours(p toolcircuit.Policy) *toolcircuit.ToolCircuit {
	return toolcircuit.MustNew("search", toolcircuit.Options{Policy: p})
}

// tripped is one whose first failure, already past, opened it for that long.
func tripped(cooldown time.Duration, p toolcircuit.Policy) *toolcircuit.ToolCircuit {
	p.FailureThreshold, p.Cooldown, p.ProbeTimeout = 1, cooldown, long
	c := ours(p)
	toolcircuit.Do(context.Background(), c, func(context.Context) (int, error) { return 0, sick })
	return c
}

func probing() *toolcircuit.ToolCircuit {
	c := tripped(short, toolcircuit.Policy{})
	past(short)
	held(func(op func()) {
		toolcircuit.Do(context.Background(), c, func(context.Context) (int, error) { op(); return 0, nil })
	})
	return c
}

var rate = toolcircuit.Policy{FailureRate: 0.5}

//go:noinline
func do(c *toolcircuit.ToolCircuit) call {
	return func(ctx context.Context) {
		n := in[2]
		toolcircuit.Do(ctx, c, func(context.Context) (int, error) { return in[0] + n, nil })
	}
}

//go:noinline
func doFailing(c *toolcircuit.ToolCircuit) call {
	fail := every(sick)
	return func(ctx context.Context) {
		n := in[2]
		toolcircuit.Do(ctx, c, func(context.Context) (int, error) { return in[0] + n, fail() })
	}
}

//go:noinline
func twoStep(c *toolcircuit.ToolCircuit) call {
	return func(ctx context.Context) {
		p, err := c.Allow(ctx)
		if err != nil {
			return
		}
		defer p.Release()
		n := in[2]
		_, err = bare(ctx, func(context.Context) (int, error) { return in[0] + n, nil })
		p.Settle(ctx, nil, err)
	}
}

//go:noinline
func twoStepFailing(c *toolcircuit.ToolCircuit) call {
	fail := every(sick)
	return func(ctx context.Context) {
		p, err := c.Allow(ctx)
		if err != nil {
			return
		}
		defer p.Release()
		n := in[2]
		_, err = bare(ctx, func(context.Context) (int, error) { return in[0] + n, fail() })
		p.Settle(ctx, nil, err)
	}
}

func oursClosed() call         { return do(ours(toolcircuit.Policy{})) }
func oursMixed() call          { return doFailing(ours(toolcircuit.Policy{})) }
func oursRefused() call        { return do(tripped(long, toolcircuit.Policy{})) }
func oursHalf() call           { return do(probing()) }
func oursTwoStep() call        { return twoStep(ours(toolcircuit.Policy{})) }
func oursTwoStepMixed() call   { return twoStepFailing(ours(toolcircuit.Policy{})) }
func oursTwoStepRefused() call { return twoStep(tripped(long, toolcircuit.Policy{})) }
func oursTwoStepHalf() call    { return twoStep(probing()) }
func oursRate() call           { return do(ours(rate)) }
func oursRateMixed() call      { return doFailing(ours(rate)) }
func oursRateRefused() call    { return do(tripped(long, rate)) }

// sony/gobreaker.

// trips opens at the first failure.
func trips(gobreaker.Counts) bool { return true }

var sonyRate = gobreaker.Settings{
	Interval:     time.Minute,
	BucketPeriod: time.Minute / 15,
	ReadyToTrip: func(c gobreaker.Counts) bool {
		return c.Requests >= 20 && float64(c.TotalFailures)/float64(c.Requests) >= 0.5
	},
}

// executor is what the two closure forms have in common.
type executor interface {
	Execute(func() (int, error)) (int, error)
}

//go:noinline
func execute(cb executor) call {
	return func(context.Context) {
		n := in[2]
		cb.Execute(func() (int, error) { return in[0] + n, nil })
	}
}

//go:noinline
func sonyDo(cb *gobreaker.CircuitBreaker[int]) call {
	return func(context.Context) {
		n := in[2]
		cb.Execute(func() (int, error) { return in[0] + n, nil })
	}
}

//go:noinline
func sonyFailing(cb *gobreaker.CircuitBreaker[int]) call {
	fail := every(errSick)
	return func(context.Context) {
		n := in[2]
		cb.Execute(func() (int, error) { return in[0] + n, fail() })
	}
}

func sonyTripped(s gobreaker.Settings, timeout time.Duration) *gobreaker.CircuitBreaker[int] {
	s.ReadyToTrip, s.Timeout = trips, timeout
	cb := gobreaker.NewCircuitBreaker[int](s)
	cb.Execute(func() (int, error) { return 0, errSick })
	return cb
}

//go:noinline
func sonyTwoStepDo(cb *gobreaker.TwoStepCircuitBreaker[int]) call {
	return func(ctx context.Context) {
		done, err := cb.Allow()
		if err != nil {
			return
		}
		n := in[2]
		_, err = bare(ctx, func(context.Context) (int, error) { return in[0] + n, nil })
		done(err)
	}
}

func sonyClosed() call { return sonyDo(gobreaker.NewCircuitBreaker[int](gobreaker.Settings{})) }
func sonyMixed() call  { return sonyFailing(gobreaker.NewCircuitBreaker[int](gobreaker.Settings{})) }
func sonyRefused() call {
	return sonyDo(sonyTripped(gobreaker.Settings{}, long))
}
func sonyHalf() call {
	cb := sonyTripped(gobreaker.Settings{}, short)
	past(short)
	held(func(op func()) { cb.Execute(func() (int, error) { op(); return 0, nil }) })
	return sonyDo(cb)
}
func sonyTwoStep() call {
	return sonyTwoStepDo(gobreaker.NewTwoStepCircuitBreaker[int](gobreaker.Settings{}))
}
func sonyTwoStepRefused() call {
	cb := gobreaker.NewTwoStepCircuitBreaker[int](gobreaker.Settings{ReadyToTrip: trips, Timeout: long})
	done, _ := cb.Allow()
	done(errSick)
	return sonyTwoStepDo(cb)
}
func sonyWindow() call        { return sonyDo(gobreaker.NewCircuitBreaker[int](sonyRate)) }
func sonyWindowMixed() call   { return sonyFailing(gobreaker.NewCircuitBreaker[int](sonyRate)) }
func sonyWindowRefused() call { return sonyDo(sonyTripped(sonyRate, long)) }

// memoryStore is the cheapest store that the distributed form can have: one in this process.
type memoryStore struct {
	lock sync.Mutex
	data sync.Map
}

func (s *memoryStore) Lock(string) error   { s.lock.Lock(); return nil }
func (s *memoryStore) Unlock(string) error { s.lock.Unlock(); return nil }
func (s *memoryStore) GetData(name string) ([]byte, error) {
	data, _ := s.data.Load(name)
	bytes, _ := data.([]byte)
	return bytes, nil
}
func (s *memoryStore) SetData(name string, data []byte) error {
	s.data.Store(name, data)
	return nil
}

func distributed(s gobreaker.Settings) *gobreaker.DistributedCircuitBreaker[int] {
	cb, err := gobreaker.NewDistributedCircuitBreaker[int](new(memoryStore), s)
	if err != nil {
		panic(err)
	}
	return cb
}

func sonyDistributed() call { return execute(distributed(gobreaker.Settings{})) }

//go:noinline
func sonyDistributedMixed() call {
	cb, fail := distributed(gobreaker.Settings{}), every(errSick)
	return func(context.Context) {
		n := in[2]
		cb.Execute(func() (int, error) { return in[0] + n, fail() })
	}
}
func sonyDistributedRefused() call {
	cb := distributed(gobreaker.Settings{ReadyToTrip: trips, Timeout: long})
	cb.Execute(func() (int, error) { return 0, errSick })
	return execute(cb)
}

// failsafe-go.

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
