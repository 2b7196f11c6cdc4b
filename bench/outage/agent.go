package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// manner is how an agent takes a hint: a time before which it should not call again.
type manner string

const (
	obeys   manner = "obey"   // the model does something else until then, and comes back on its next turn
	sleeps  manner = "sleep"  // the runtime sleeps until then and repeats a refused call itself
	ignores manner = "ignore" // the model calls again on its next turn
)

// agent is one run of one model, which lasts as long as the trace: it thinks, calls the tool,
// reads what came of it, and thinks again. It calls for as long as it is not told to stay away.
// Any hint counts, whoever gives it: a Retry-After in the text of an error as well as a
// retryAfterMs.
type agent struct {
	*world
	id     int
	rng    *rand.Rand
	policy policy
	manner manner
	away   time.Duration // not before that, since the trace began
	step   int           // what the agent is at: it goes on after a success
}

// reply is what a policy makes of a call.
type reply struct {
	ok   bool
	hint time.Duration // from now
	err  error         // as the model reads it; nil if the policy hides it
}

// bad reports whether all the agent's calls are mistakes.
func (a *agent) bad() bool { return a.id < a.Bad }

// live runs the agent until the trace is over.
func (a *agent) live() {
	slot := a.id * a.Calls
	first := draw(a.rng, span{{}, a.Think[1]})
	for think := first; ; think = draw(a.rng, a.Think) {
		if sleep(context.Background(), slot, think); a.now() >= a.Length.Duration {
			return
		}
		if a.now() < a.away || a.policy.hidden(a) {
			a.lose(a, a.Calls)
			continue
		}
		for a.turn(slot) && a.wait(slot) {
		}
	}
}

// turn makes the calls of one turn. It reports whether the runtime is to repeat them.
func (a *agent) turn(slot int) (again bool) {
	all := a.calls(slot)
	if all.ok {
		a.step++
	}
	if all.hint > 0 && a.manner != ignores {
		a.away = a.now() + all.hint
		if a.manner == sleeps && all.refused && !all.ok {
			return true // the model hears nothing of it
		}
	}
	if all.burned && !all.ok {
		a.mu.Lock()
		a.got.Turns++
		a.mu.Unlock()
	}
	return false
}

// wait is what a runtime does that sleeps. The model would have had a turn now and then. It reports
// whether the trace goes on.
func (a *agent) wait(slot int) bool {
	for left := a.away - a.now(); left > 0; left = a.away - a.now() {
		think := draw(a.rng, a.Think)
		sleep(context.Background(), slot, min(think, left))
		if a.now() >= a.Length.Duration {
			return false
		}
		if think < left {
			a.lose(a, a.Calls)
		}
	}
	return true
}

// outcome is what one call, or all calls of a turn, brought.
type outcome struct {
	ok      bool
	refused bool
	burned  bool // by the dependency or by the policy, not by a mistake or a user who left
	hint    time.Duration
}

// calls makes the calls of one turn at once, and returns what they brought together.
func (a *agent) calls(slot int) (all outcome) {
	if a.Calls == 1 {
		return a.call(slot)
	}
	var wg sync.WaitGroup
	outcomes := make([]outcome, a.Calls)
	for i := range outcomes {
		wg.Go(func() {
			if i > 0 {
				sleep(context.Background(), slot+i, 0) // into a slot of its own
			}
			outcomes[i] = a.call(slot + i)
		})
	}
	wg.Wait()
	for _, o := range outcomes {
		all.ok = all.ok || o.ok
		all.burned = all.burned || o.burned
		all.refused = all.refused || o.refused
		all.hint = max(all.hint, o.hint)
	}
	return all
}

// errLeft is what a user's cancelling looks like.
var errLeft = context.Canceled

// call makes one call under the policy.
func (a *agent) call(slot int) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), a.Timeout.Duration)
	defer cancel()
	if after := a.leaves(); after > 0 {
		stop := time.AfterFunc(after, cancel)
		defer stop.Stop()
	}
	ran, sick := false, error(nil)
	r := a.policy.call(ctx, a, slot, func(ctx context.Context) error {
		ran = true
		if a.policy.probing(ctx) {
			a.mu.Lock()
			a.got.Probes++
			a.mu.Unlock()
		}
		sick = a.serve(ctx, a, slot)
		return sick
	})
	o := outcome{ok: r.ok, refused: !ran, hint: r.hint}
	switch {
	case r.ok:
		return o
	case !ran:
		a.lose(a, 1)
	case r.err != nil:
		o.hint = max(o.hint, retryAfter(r.err))
	}
	var e *statusError
	mistake := errors.As(sick, &e) && e.StatusCode == 400
	o.burned = !a.bad() && !mistake && ctx.Err() != errLeft
	return o
}

// leaves returns after what time the user cancels a call that begins now, 0 if never. It leaves the
// goroutine in its slot.
func (w *world) leaves() time.Duration {
	if w.Cancelled == 0 {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rng.Float64() >= w.Cancelled {
		return 0
	}
	return draw(w.rng, span{{time.Millisecond}, w.Latency[0]}).Truncate(time.Microsecond)
}

// run lives a trace through under one policy. It needs a test, because simulated time does.
func run(t *testing.T, tr *trace, p choice, m manner, seed uint64) (got figures) {
	synctest.Test(t, func(*testing.T) {
		// Some libraries count time from the start of the program, so the simulated time, which
		// begins in 2000, must be later. A seed in it varies what they draw from the time.
		epoch := time.Date(2060, 1, 1, 0, 0, 0, int(seed)*slots, time.UTC)
		time.Sleep(time.Until(epoch))
		w := newWorld(tr.stretched(seed), seed)
		made := p.make(tr, seed)
		var wg sync.WaitGroup
		for id := range tr.Agents {
			a := &agent{world: w, id: id, rng: rand.New(rand.NewPCG(seed, uint64(id))), policy: made, manner: m}
			wg.Go(a.live)
		}
		wg.Wait()
		time.Sleep(time.Minute) // until the goroutines that some libraries own are done
		got = w.figures()
	})
	return got
}
