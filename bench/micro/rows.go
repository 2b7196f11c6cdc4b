package main

import (
	"context"
	"errors"
	"time"

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
