package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
)

// situation is one thing that goes wrong around a tool, and what a circuit should do about it.
type situation struct {
	text string
	told aspect // what a library may be told if it does not hold by default
	// listens and clock: only libraries that have this can be tried.
	listens, clock bool
	needs          func(*breaker) bool // nil: any circuit can be tried
	holds          func(*env) bool
}

func opens(b *breaker) bool { return b.open != nil }

var situations = []situation{
	// The basics.
	{text: "opens when every call fails", holds: func(e *env) bool { return e.trips() }},
	{text: "closes by itself: after the cooldown one success is enough", holds: func(e *env) bool {
		return e.trips() && pass(e, 1) && e.ends(nil) && e.works()
	}},
	{text: "opens again if the first call after the cooldown fails", holds: func(e *env) bool {
		return e.trips() && pass(e, 1) && e.ends(down) && !e.ends(down)
	}},
	{text: "one failure in ten opens nothing", holds: func(e *env) bool {
		n := 0
		return !e.refuses(func() bool {
			if n++; n%10 == 0 {
				return e.ends(down)
			}
			return e.ends(nil)
		})
	}},
	{text: "half of the calls failing opens it", told: failRate, holds: func(e *env) bool {
		n := 0
		return e.refuses(func() bool {
			if n++; n%2 == 0 {
				return e.ends(down)
			}
			return e.ends(nil)
		})
	}},
	{text: "slow successes open it, and their values arrive", told: slowness, holds: func(e *env) bool {
		arrived := true
		return e.refuses(func() bool {
			ran, err := e.do(context.Background(), func(context.Context) error { e.pass(0.6); return nil })
			arrived = arrived && (!ran || err == nil)
			return ran
		}) && arrived
	}},
	{text: "waits longer each time while it stays down", holds: func(e *env) bool {
		probes := 0
		if !e.trips() {
			return false
		}
		for range 200 {
			e.pass(0.2)
			if e.ends(down) {
				probes++
			}
		}
		return probes > 0 && probes < 25 // a fixed cooldown makes 40
	}},

	// How calls end.
	{text: "panics count", holds: func(e *env) bool {
		return e.refuses(func() bool { ran, _, _ := e.inside(boom); return ran })
	}},
	{text: "a panic arrives with its value and its stack", holds: func(e *env) bool {
		_, panicked, stack := e.inside(boom)
		return panicked == "boom" && strings.Contains(stack, ".boom(")
	}},
	{text: "a probe that panics does not block what comes after", holds: func(e *env) bool {
		if !e.trips() || !pass(e, 1) {
			return false
		}
		e.inside(boom)
		return pass(e, 2) && e.ends(nil) && e.works()
	}},
	{text: "calls that end by Goexit count", holds: func(e *env) bool {
		return e.refuses(func() bool { ran, _, _ := e.inside(exit); return ran })
	}},
	{text: "a probe that ends by Goexit does not block what comes after", holds: func(e *env) bool {
		if !e.trips() || !pass(e, 1) {
			return false
		}
		e.inside(exit)
		return pass(e, 2) && e.ends(nil) && e.works()
	}},
	{text: "a probe that hangs does not block for ever", holds: func(e *env) bool {
		if !e.trips() || !pass(e, 1) {
			return false
		}
		end := e.begin()
		if end == nil {
			return false
		}
		defer end(nil)
		for range 60 {
			e.pass(0.5)
			if e.ends(nil) {
				return true
			}
		}
		return false
	}},

	// Who comes when.
	{text: "a hundred callers after the cooldown: one runs", holds: func(e *env) bool {
		if !e.trips() || !pass(e, 1) {
			return false
		}
		var ran atomic.Int32
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				e.do(context.Background(), func(context.Context) error {
					ran.Add(1)
					e.pass(0.3)
					return nil
				})
			})
		}
		all.Wait()
		return ran.Load() == 1
	}},
	{text: "a success that began before it opened does not close it", holds: func(e *env) bool {
		end := e.begin()
		if !e.trips() {
			return false
		}
		end(nil)
		return !e.ends(nil)
	}},
	{text: "nor while a probe is out", holds: func(e *env) bool {
		end := e.begin()
		if !e.trips() || !pass(e, 1) {
			return false
		}
		probe := e.begin()
		if probe == nil {
			return false
		}
		defer probe(nil)
		end(nil)
		return !e.ends(nil)
	}},
	{text: "a failure that began before it opened does not end a probe", holds: func(e *env) bool {
		end := e.begin()
		if !e.trips() || !pass(e, 1) {
			return false
		}
		probe := e.begin()
		if probe == nil {
			return false
		}
		end(down)
		probe(nil)
		return e.works()
	}},
	{text: "failures that began before it opened do not count once it closed again", holds: func(e *env) bool {
		var ends []func(error)
		for range 20 {
			ends = append(ends, e.begin())
		}
		if !e.trips() || !pass(e, 1) || !e.ends(nil) {
			return false
		}
		for _, end := range ends {
			end(down)
		}
		return e.works()
	}},
	{text: "a context that has ended runs nothing and takes no slot", holds: func(e *env) bool {
		if !e.trips() || !pass(e, 1) {
			return false
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		ran, _ := e.do(ctx, func(context.Context) error { return ctx.Err() })
		return !ran && e.ends(nil) && e.works()
	}},
	{text: "a tool that calls its own dependency can be the probe", holds: func(e *env) bool {
		if !e.trips() || !pass(e, 1) {
			return false
		}
		inner := false
		e.do(context.Background(), func(ctx context.Context) (err error) {
			inner, err = e.do(ctx, func(context.Context) error { return nil })
			return err
		})
		return inner && e.works()
	}},
	{text: "the refusal of an inner circuit is no failure of the outer", told: errorKinds, holds: func(e *env) bool {
		inner := &env{e.makes, e.quit, e.config, e.makes(config{cooldown: e.cooldown})}
		if !inner.trips() {
			return false
		}
		return !e.refuses(func() bool {
			ran, _ := e.do(context.Background(), func(ctx context.Context) error {
				return inner.call(ctx, func(context.Context) error { return nil })
			})
			return ran
		})
	}},

	// What an error says.
	{text: "cancelled users count for nothing", told: errorKinds, holds: func(e *env) bool {
		return !e.refuses(func() bool { return e.cancelled(same) })
	}},
	{text: "also inside an error of their own", told: errorKinds, holds: func(e *env) bool {
		return !e.refuses(func() bool { return e.cancelled(wrapped) })
	}},
	{text: "a cancelled probe makes way for the next", told: errorKinds, holds: func(e *env) bool {
		return e.trips() && pass(e, 1) && e.cancelled(same) && e.ends(nil) && e.works()
	}},
	{text: "the caller's mistakes count for nothing", told: errorKinds, holds: func(e *env) bool {
		return !e.refuses(func() bool { return e.ends(wrapped(status(http.StatusBadRequest, 0))) })
	}},
	{text: "and heal nothing between failures", told: errorKinds, holds: func(e *env) bool {
		n := 0
		return e.refuses(func() bool {
			if n++; n%3 == 0 {
				return e.ends(status(http.StatusNotFound, 0))
			}
			return e.ends(down)
		})
	}},
	{text: "a mistake as the probe neither closes nor blocks", told: errorKinds, holds: func(e *env) bool {
		return e.trips() && pass(e, 1) && e.ends(status(http.StatusBadRequest, 0)) &&
			e.ends(down) && !e.ends(down)
	}},
	{text: "a 503 counts, deep inside of wrapped errors", holds: func(e *env) bool {
		return e.refuses(func() bool { return e.ends(wrapped(errors.Join(wrapped(down)))) })
	}},
	{text: "a reset of HTTP/2 counts", holds: func(e *env) bool {
		return e.refuses(func() bool { return e.ends(reset) })
	}},
	{text: "an error of a type that nobody knows counts", told: unknown, holds: func(e *env) bool {
		return e.refuses(func() bool { return e.ends(errors.New("sick")) })
	}},
	{text: "a 429 with Retry-After is left alone until then", told: retryAfter, holds: func(e *env) bool {
		limited := func() bool { return e.ends(status(http.StatusTooManyRequests, 5*e.cooldown)) }
		if !e.refuses(limited) {
			return false
		}
		for range 9 {
			if e.pass(0.5); e.ends(nil) {
				return false
			}
		}
		return pass(e, 1) && e.ends(nil)
	}},
	{text: "from the first one on", told: retryAfter, holds: func(e *env) bool {
		return e.ends(status(http.StatusTooManyRequests, 5*e.cooldown)) && !e.ends(nil)
	}},

	// Who hears of it.
	{text: "a refusal says how long to wait", holds: func(e *env) bool {
		if e.retry == nil || !e.trips() {
			return false
		}
		_, err := e.do(context.Background(), func(context.Context) error { return nil })
		wait := e.retry(err)
		return wait > 0 && wait <= e.cooldown
	}},
	{text: "a listener may read the state", listens: true, needs: opens, holds: func(e *env) bool {
		return e.trips() && e.heard() == 1
	}},
	{text: "a panic of a listener harms nobody", listens: true, holds: func(e *env) bool {
		e.onChange = func() { panic("listener") }
		e.breaker = e.makes(e.config)
		ran, panicked, _ := true, any(nil), ""
		for i := 0; i < many && ran && panicked == nil; i++ {
			ran, panicked, _ = e.inside(func(context.Context) error { return down })
		}
		return panicked == nil && !ran
	}},
	{text: "an operator keeps it open for as long as he likes", holds: func(e *env) bool {
		if e.hold == nil {
			return false
		}
		e.hold(true)
		e.pass(20)
		if e.ends(nil) {
			return false
		}
		e.hold(false)
		return e.works()
	}},

	// What it costs.
	{text: "an open circuit owns no goroutine", holds: func(e *env) bool {
		before := runtime.NumGoroutine()
		if !e.trips() {
			return false
		}
		e.pass(0.1)
		return runtime.NumGoroutine() <= before
	}},
	{text: "a hundred thousand invented names leave less than 16 MB", needs: func(b *breaker) bool { return b.names != nil },
		holds: func(e *env) bool {
			const n = 100_000
			before := heap()
			for i := range n {
				if e.names(fmt.Sprint("invented-", i)); i%1000 == 0 && heap() > before+64<<20 {
					return false
				}
			}
			held := heap() - before
			runtime.KeepAlive(e)
			return held < 16<<20
		}},
	{text: "a clock set back makes the wait no longer", clock: true, holds: func(e *env) bool {
		e.config.clock = clock.NewMock()
		e.config.clock.Set(time.Now())
		e.breaker = e.makes(e.config)
		if !e.trips() {
			return false
		}
		e.config.clock.Set(time.Now().Add(-time.Hour))
		_, err := e.do(context.Background(), func(context.Context) error { return nil })
		wait := e.retry(err)
		return wait > 0 && wait <= e.cooldown
	}},
}
