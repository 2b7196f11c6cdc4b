package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"
)

// statusError is the error of a status, as the SDKs of most APIs have one.
type statusError struct {
	StatusCode int
	Header     http.Header
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d", e.StatusCode) }

func status(code int, after time.Duration) error {
	e := &statusError{StatusCode: code, Header: http.Header{}}
	if after > 0 {
		e.Header.Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	}
	return e
}

// asked returns the wait that an error asks for.
func asked(err error) time.Duration {
	var e *statusError
	if !errors.As(err, &e) {
		return 0
	}
	seconds, _ := strconv.Atoi(e.Header.Get("Retry-After"))
	return time.Duration(seconds) * time.Second
}

var down = status(http.StatusServiceUnavailable, 0)

// env is one circuit in one situation.
type env struct {
	makes func(config) *breaker
	quit  chan struct{} // closed when the situation is over
	config
	*breaker
}

// do makes a call and reports whether it ran.
func (e *env) do(ctx context.Context, op func(context.Context) error) (ran bool, err error) {
	err = e.call(ctx, func(ctx context.Context) error {
		ran = true
		return op(ctx)
	})
	return ran, err
}

// ends makes a call that ends with err, and reports whether it ran.
func (e *env) ends(err error) (ran bool) {
	ran, _ = e.do(context.Background(), func(context.Context) error { return err })
	return ran
}

// many is how many calls are made where some libraries go by chance or by a window.
const many = 60

// refuses reports whether one of many calls is refused.
func (e *env) refuses(call func() bool) bool {
	for range many {
		if !call() {
			return true
		}
	}
	return false
}

// trips fails until a call is refused.
func (e *env) trips() bool { return e.refuses(func() bool { return e.ends(down) }) }

// works reports whether many calls all run.
func (e *env) works() bool { return !e.refuses(func() bool { return e.ends(nil) }) }

// pass lets so many cooldowns pass, and a little more.
func (e *env) pass(cooldowns float64) {
	time.Sleep(time.Duration(cooldowns*float64(e.cooldown)) + e.cooldown/50)
}

// begin starts a call and returns once it runs, with a function that ends it and waits for its
// end. If it is refused begin returns nil.
func (e *env) begin() (end func(error)) {
	begun, result, over := make(chan bool), make(chan error), make(chan bool)
	go func() {
		defer close(over)
		ran, _ := e.do(context.Background(), func(context.Context) error {
			begun <- true
			select {
			case err := <-result:
				return err
			case <-e.quit:
				return nil
			}
		})
		if !ran {
			begun <- false
		}
	}()
	if !<-begun {
		return nil
	}
	return func(err error) {
		result <- err
		<-over
	}
}

// inside runs a call in a goroutine of its own, recovers its panic and returns once it is over.
func (e *env) inside(op func(context.Context) error) (ran bool, panicked any, stack string) {
	over := make(chan bool)
	go func() {
		defer close(over)
		defer func() {
			if panicked = recover(); panicked != nil {
				stack = string(debug.Stack())
			}
		}()
		ran, _ = e.do(context.Background(), func(ctx context.Context) error {
			ran = true
			return op(ctx)
		})
	}()
	<-over
	return ran, panicked, stack
}

func boom(context.Context) error { panic("boom") }

func exit(context.Context) error { runtime.Goexit(); return nil }

// cancelled is a call whose user leaves.
func (e *env) cancelled(wrap func(error) error) (ran bool) {
	ctx, cancel := context.WithCancel(context.Background())
	ran, _ = e.do(ctx, func(ctx context.Context) error {
		cancel()
		return wrap(context.Canceled)
	})
	return ran
}

func same(err error) error    { return err }
func wrapped(err error) error { return fmt.Errorf("search: %w", err) }

// pass is env.pass as a condition.
func pass(e *env, cooldowns float64) bool {
	e.pass(cooldowns)
	return true
}

// heard makes the circuit anew with a listener that reads its state, trips it, and returns how often
// the listener heard of a change and read a state that was not closed.
func (e *env) heard() (n int) {
	e.onChange = func() {
		if e.open() {
			n++
		}
	}
	e.breaker = e.makes(e.config)
	e.trips()
	return n
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// reset is what a real client of HTTP/2 returns whose stream the server has reset.
var reset error

// makeReset makes it, outside of simulated time, which a network does not know.
func makeReset() error {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 {
			panic(http.ErrAbortHandler)
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	response, err := s.Client().Get(s.URL)
	if err == nil {
		response.Body.Close()
	}
	return err
}
