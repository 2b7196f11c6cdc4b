package toolcircuit_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/storetest"
)

// worker is a process of a fleet: a Fleet, a client of the store and one circuit.
type worker struct {
	*testing.T
	*toolcircuit.ToolCircuit
	fleet *toolcircuit.Fleet
	store *storetest.Memory

	mu     sync.Mutex
	events []toolcircuit.Event // of the circuit
	news   []toolcircuit.Event // of the Fleet
	ran    int
}

const key = "search-api"

// fleetPolicy is that of the scenarios: three failures, 2 s doubling to 8 s.
var fleetPolicy = toolcircuit.Policy{FailureThreshold: 3, Cooldown: 2 * time.Second, Multiplier: 2, MaxCooldown: 8 * time.Second, MaxRetryAfter: 30 * time.Second}

// fleetOptions are those of the scenarios.
var fleetOptions = toolcircuit.FleetOptions{Lease: time.Second, Poll: 2 * time.Second, OpTimeout: 50 * time.Millisecond}

// scenario is a test with workers of one store, in bubble time, under fleetPolicy as edit changes it.
type scenario struct {
	name    string
	workers int
	edit    func(*toolcircuit.Policy)
	test    func(t *testing.T, store *storetest.Memory, w []*worker)
}

func (s scenario) run(t *testing.T) {
	t.Helper()
	p := fleetPolicy
	if s.edit != nil {
		s.edit(&p)
	}
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		var all []*worker
		for range s.workers {
			all = append(all, newWorker(t, store.Peer(), p, fleetOptions))
		}
		synctest.Wait()
		s.test(t, store, all)
	})
}

// bubble runs a scenario under the usual policy.
func bubble(t *testing.T, n int, test func(t *testing.T, store *storetest.Memory, w []*worker)) {
	t.Helper()
	scenario{workers: n, test: test}.run(t)
}

func newWorker(t *testing.T, store *storetest.Memory, p toolcircuit.Policy, o toolcircuit.FleetOptions, edit ...func(*toolcircuit.Options)) *worker {
	t.Helper()
	w := &worker{T: t, store: store}
	o.OnEvent = func(_ context.Context, e toolcircuit.Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.news = append(w.news, e)
	}
	var err error
	w.fleet, err = toolcircuit.NewFleet(store, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		store.Set(storetest.Fault{})
		require.NoError(t, w.fleet.Close(context.Background()))
		synctest.Wait()
	})
	co := toolcircuit.Options{Policy: p, OnEvent: func(_ context.Context, e toolcircuit.Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, e)
	}}
	for _, e := range edit {
		e(&co)
	}
	w.ToolCircuit = toolcircuit.MustNew(key, co)
	require.NoError(t, w.fleet.Join(w.ToolCircuit, key))
	return w
}

// call makes a call that returns err if it runs. It returns what the caller got.
func (w *worker) call(err error) error {
	_, got := toolcircuit.Do(context.Background(), w.ToolCircuit, func(context.Context) (int, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ran++
		return 0, err
	})
	return got
}

// runs makes a call that must run. Like the other steps, it returns when all have heard.
func (w *worker) runs(err error) {
	w.Helper()
	before := w.ran
	require.Equal(w, err, w.call(err))
	synctest.Wait()
	require.Equal(w, before+1, w.ran, "the call must run")
}

// refused makes a call that must be refused, and returns the refusal.
func (w *worker) refused() *toolcircuit.OpenError {
	w.Helper()
	before := w.ran
	err := w.call(nil)
	synctest.Wait()
	require.Equal(w, before, w.ran, "a refused call ran")
	var e *toolcircuit.OpenError
	require.ErrorAs(w, err, &e)
	return e
}

// fail makes n calls that fail.
func (w *worker) fail(n int) {
	w.Helper()
	for range n {
		w.runs(errDown)
	}
}

// begin starts a call that must run.
func (w *worker) begin() *toolcircuit.Permit {
	w.Helper()
	p, err := w.Allow(context.Background())
	synctest.Wait()
	require.NoError(w, err)
	return &p
}

// took checks that f takes no longer than d.
func (w *worker) took(d time.Duration, f func()) {
	w.Helper()
	began := time.Now()
	f()
	require.LessOrEqual(w, time.Since(began), d, "a call waits too long")
}

// all checks the state of all workers.
func allAre(t *testing.T, s toolcircuit.State, workers []*worker) {
	t.Helper()
	for i, w := range workers {
		require.Equal(t, s, w.State(), "worker %d", i)
	}
}

func settle(p *toolcircuit.Permit, err error) { p.Settle(context.Background(), nil, err) }

// finish is settle, and returns when all have heard.
func finish(p *toolcircuit.Permit, err error) {
	settle(p, err)
	synctest.Wait()
}

// meet lets 64 callers of the workers call at once, and fail after a while. It returns how many ran.
func meet(w []*worker) (ran int) {
	var wg sync.WaitGroup
	var all atomic.Int32
	for i := range 64 {
		wg.Go(func() {
			toolcircuit.Do(context.Background(), w[i%len(w)].ToolCircuit, func(context.Context) (int, error) {
				all.Add(1)
				time.Sleep(time.Second / 2)
				return 0, errDown
			})
		})
	}
	wg.Wait()
	synctest.Wait()
	return int(all.Load())
}

func TestFleetScenarios(t *testing.T) {
	for _, s := range fleetScenarios {
		t.Run(s.name, s.run)
	}
}

var fleetScenarios = []scenario{
	// Scenario 1: one worker finds the dependency down, and all stop.
	{"one opens, all stop", 8, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		for _, w := range w {
			w.runs(nil)
		}
		w[0].fail(3)
		v := store.Record(key)
		require.True(t, v.Open)
		require.Equal(t, 1, v.Generation)
		require.Equal(t, 2*time.Second, v.Remaining)
		allAre(t, open, w)
		seen := w[0].refused()
		for _, w := range w[1:] {
			e := w.refused()
			require.Equal(t, toolcircuit.RuleFleet, e.Rule)
			require.Equal(t, []any{seen.Cause, seen.Failures, seen.Openings, seen.Since, seen.RetryAt, seen.State}, []any{e.Cause, e.Failures, e.Openings, e.Since, e.RetryAt, e.State})
			require.Len(t, w.events, 1)
			require.Equal(t, toolcircuit.RuleFleet, w.events[0].Rule)
			require.Equal(t, seen.Cause, w.events[0].Kind)
			require.Equal(t, toolcircuit.SharedOK, w.Snapshot().Shared)
		}
		require.Equal(t, toolcircuit.RuleThreshold, seen.Rule)

		time.Sleep(2 * time.Second)
		probe := w[3].begin()
		require.True(t, probe.Probe())
		allAre(t, halfOpen, w)
		for _, w := range w {
			w.refused()
		}
		finish(probe, nil)
		allAre(t, closed, w)
		for _, w := range w {
			w.runs(nil)
		}
		require.False(t, store.Record(key).Open)
	}},
	// Scenario 2: 64 callers of 8 workers meet at the end of the cooldown.
	{"one probe", 8, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		for round := range 20 {
			time.Sleep(store.Record(key).Remaining)
			require.Equal(t, 1, meet(w), "round %d", round)
			allAre(t, open, w)
			require.Equal(t, round+2, store.Record(key).Generation)
		}
	}},
	// Scenario 4: a holder stalls past its lease, and its late success is refused.
	{"late verdict", 2, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		time.Sleep(2 * time.Second)
		stalled := w[0].begin()
		w[0].store.Set(storetest.Fault{Frozen: true}) // so that the lease is not renewed, and nothing heard
		w[0].store.Deafen(true)
		time.Sleep(1100 * time.Millisecond)
		w[1].runs(errDown)
		require.Equal(t, open, w[1].State())
		v := store.Record(key)
		require.Equal(t, 2, v.Generation)

		w[0].store.Set(storetest.Fault{})
		w[0].store.Deafen(false)
		settle(stalled, nil)
		time.Sleep(2 * time.Second)
		allAre(t, open, w)
		require.Equal(t, v.Epoch, store.Record(key).Epoch)
		require.Equal(t, 2, w[0].Snapshot().Openings)
	}},
	// Scenario 5: the store is frozen for 5 s.
	{"frozen store", 4, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		time.Sleep(time.Second)
		for _, w := range w {
			w.store.Set(storetest.Fault{Frozen: true})
			w.ran = 0
		}
		slow := make([]int, len(w))
		for range 5000 {
			for i, w := range w {
				began := time.Now()
				w.call(errDown)
				switch took := time.Since(began); {
				case took > 70*time.Millisecond:
					t.Fatalf("a call took %v", took)
				case took > 0:
					slow[i]++
				}
			}
			time.Sleep(time.Millisecond)
		}
		for i, w := range w {
			require.LessOrEqual(t, slow[i], 1, "worker %d", i)
			require.LessOrEqual(t, w.ran, 2, "worker %d", i)
			require.GreaterOrEqual(t, w.ran, 1, "worker %d", i)
			require.Equal(t, toolcircuit.SharedDegraded, w.Snapshot().Shared)
			w.store.Set(storetest.Fault{})
		}
		time.Sleep(2 * time.Second)
		for _, w := range w {
			require.Equal(t, toolcircuit.SharedOK, w.Snapshot().Shared)
			require.Len(t, w.news, 2, fmt.Sprint(w.news))
		}
		for range 10000 { // all recover
			for _, w := range w {
				w.call(nil)
			}
			time.Sleep(time.Millisecond)
		}
		allAre(t, closed, w)
		require.False(t, store.Record(key).Open)
	}},
	// Scenario 7: the store is killed and comes back empty while a tool is open.
	{"emptied store", 8, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		time.Sleep(2 * time.Second)
		w[1].runs(errDown) // g = 2, 4 s
		for _, w := range w {
			w.store.Set(storetest.Fault{Err: errDown})
		}
		store.Empty()
		time.Sleep(time.Second)
		for _, w := range w {
			w.refused() // no request: nobody knows yet that the store is away
			w.store.Set(storetest.Fault{})
		}
		time.Sleep(time.Second)
		v := store.Record(key)
		require.True(t, v.Open)
		require.Equal(t, 2, v.Generation)
		require.InDelta(t, 2*time.Second, v.Remaining, float64(time.Millisecond))
		require.Equal(t, w[0].Snapshot().Cause, v.Cause)
		time.Sleep(v.Remaining - 1)
		for _, w := range w {
			w.refused()
		}
		time.Sleep(time.Millisecond)
		w[5].runs(nil)
		allAre(t, closed, w)
	}},
	// Scenario 10: connections are reset again and again while a tool opens and recovers.
	{"resets", 8, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		down := true
		for i := range 5000 {
			if i%100 == 0 {
				for _, w := range w {
					w.store.Set(storetest.Fault{Err: errDown}, storetest.Watch)
					w.store.Set(storetest.Fault{LoseAnswer: true}, storetest.Trip, storetest.Acquire, storetest.Settle)
				}
			}
			if i%100 == 3 {
				for _, w := range w {
					w.store.Set(storetest.Fault{})
				}
			}
			if i == 2500 {
				down = false
			}
			for _, w := range w {
				err := w.call(map[bool]error{true: errDown}[down])
				if err != errDown && err != nil {
					require.ErrorIs(t, err, toolcircuit.ErrCircuitOpen)
				}
			}
			time.Sleep(time.Millisecond)
		}
		for _, w := range w {
			w.store.Set(storetest.Fault{})
		}
		for range 1000 {
			for _, w := range w {
				w.call(nil)
			}
			time.Sleep(time.Millisecond)
		}
		allAre(t, closed, w)
		require.False(t, store.Record(key).Open)
	}},
	// Scenario 11, the store's side: a subscription is deaf, and a poll tells.
	{"deaf", 2, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[1].runs(nil)
		w[1].store.Deafen(true)
		w[0].fail(3)
		w[1].runs(nil) // it has not heard
		time.Sleep(2200 * time.Millisecond)
		require.Equal(t, toolcircuit.RuleFleet, w[1].Snapshot().Rule)
	}},
	// Scenario 17: a tool that flaps waits longer each time, until it is healthy for long.
	{"flapping", 2, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		for i, want := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 8 * time.Second, 8 * time.Second} {
			w[i%2].fail(3)
			require.Equal(t, want, store.Record(key).Remaining, "opening %d", i+1)
			for _, w := range w {
				require.Equal(t, want, w.refused().RetryAfter())
			}
			time.Sleep(want)
			w[(i+1)%2].runs(nil)
			allAre(t, closed, w)
		}
		time.Sleep(time.Hour + time.Second)
		require.Zero(t, store.Record(key))
		w[1].fail(3)
		require.Equal(t, 1, store.Record(key).Generation)
	}},
	// A late failure with a Retry-After makes the wait longer for all.
	{"late Retry-After", 3, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		own, other := w[0].begin(), w[1].begin()
		w[0].fail(3)
		finish(other, asked(10*time.Second))
		require.Equal(t, 10*time.Second, store.Record(key).Remaining)
		for _, w := range w {
			require.Equal(t, 10*time.Second, w.refused().RetryAfter())
		}
		time.Sleep(time.Second)
		settle(own, asked(5*time.Second)) // which is sooner
		synctest.Wait()
		require.Equal(t, 9*time.Second, w[2].refused().RetryAfter())
		allAre(t, open, w)
		require.Equal(t, 1, store.Record(key).Generation)
	}},
	// What an earlier failure of the streak asked for is kept, and a pause is no opening in memory.
	{"asked waits", 2, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].runs(asked(20 * time.Second))
		w[0].fail(2)
		require.Equal(t, 20*time.Second, store.Record(key).Remaining)
		require.True(t, store.Record(key).Asked)
		time.Sleep(20 * time.Second)
		w[1].runs(wait(25 * time.Second))
		require.Equal(t, 1, store.Record(key).Generation)
		for _, w := range w {
			require.Equal(t, 25*time.Second, w.refused().RetryAfter())
		}
		time.Sleep(25 * time.Second)
		w[0].runs(wait(time.Hour))
		require.Equal(t, 30*time.Second, w[1].refused().RetryAfter(), "at most MaxRetryAfter")
	}},
	// Both workers close by themselves while the store is away, and tell it when it is back.
	{"closed under open record", 2, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		for _, w := range w {
			w.store.Set(storetest.Fault{Err: errDown})
		}
		time.Sleep(10 * time.Second)
		for _, w := range w {
			w.runs(nil)
			require.Equal(t, closed, w.State())
		}
		require.True(t, store.Record(key).Open)
		for _, w := range w {
			w.store.Set(storetest.Fault{})
		}
		for range 3000 {
			for _, w := range w {
				w.runs(nil)
			}
			time.Sleep(time.Millisecond)
		}
		require.False(t, store.Record(key).Open)
		w[1].fail(3)
		allAre(t, open, w)
	}},
	// A policy that is set while open acts from the next opening on.
	{"SetPolicy while open", 2, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		for _, d := range []time.Duration{2, 4} {
			w[0].call(errDown)
			w[0].call(errDown)
			w[0].call(errDown)
			synctest.Wait()
			time.Sleep(d * time.Second)
		}
		w[0].runs(errDown)
		require.Equal(t, 8*time.Second, store.Record(key).Remaining)
		short := fleetPolicy
		short.Cooldown, short.MaxCooldown = time.Second, time.Second
		for _, w := range w {
			require.NoError(t, w.SetPolicy(short))
			require.Equal(t, 8*time.Second, w.refused().RetryAfter())
		}
		time.Sleep(8*time.Second - 1)
		w[0].refused()
		w[1].refused()
		time.Sleep(time.Nanosecond)
		w[1].runs(errDown)
		require.Equal(t, time.Second, w[0].refused().RetryAfter())
	}},
	// Wait on a circuit that nobody has looked after loads its record first.
	{"Wait", 2, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[1].store.Deafen(true)
		time.Sleep(time.Minute)
		w[0].fail(3)
		require.Equal(t, closed, w[1].State())
		began := time.Now()
		require.NoError(t, w[1].Wait(context.Background()))
		require.Equal(t, 2*time.Second, time.Since(began))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		w[1].runs(errDown)
		require.ErrorIs(t, w[1].Wait(ctx), toolcircuit.ErrCircuitOpen)
	}},
	// All first callers of a circuit wait for one Load.
	{"first callers", 1, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].runs(wait(30 * time.Second)) // no wait ends in the rounds
		for range 30 {                    // the callers meet in all orders
			peer := store.Peer()
			peer.Set(storetest.Fault{Delay: 20 * time.Millisecond}, storetest.Load)
			fresh := newWorker(t, peer, fleetPolicy, fleetOptions)
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() { require.ErrorIs(t, fresh.call(nil), toolcircuit.ErrCircuitOpen) })
			}
			wg.Wait()
			loads, _ := peer.Requests(storetest.Load)
			require.LessOrEqual(t, loads, 3, "one of them, and the Fleet's own")
			require.Zero(t, fresh.ran)
		}
	}},
	// A Monitor that has an answer ends the cooldown for the fleet, except one that was asked for.
	{"Monitor", 2, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		ctx, cancel := context.WithCancel(context.Background())
		var healthy atomic.Bool
		var checks atomic.Int32
		done := make(chan struct{})
		go func() {
			defer close(done)
			w[1].Monitor(ctx, 500*time.Millisecond, func(context.Context) error {
				checks.Add(1)
				if healthy.Load() {
					return nil
				}
				return errDown
			})
		}()
		w[0].fail(3)
		time.Sleep(1100 * time.Millisecond)
		require.EqualValues(t, 2, checks.Load())
		allAre(t, open, w)
		healthy.Store(true)
		time.Sleep(450 * time.Millisecond)
		allAre(t, closed, w)
		require.EqualValues(t, 4, checks.Load(), "one in the cooldown, and the probe")

		w[0].runs(wait(10 * time.Second))
		time.Sleep(9 * time.Second)
		allAre(t, open, w)
		require.EqualValues(t, 4, checks.Load())
		time.Sleep(2 * time.Second)
		allAre(t, closed, w)
		cancel()
		<-done
	}},
	// A probe keeps its lease as long as it runs, up to ProbeTimeout.
	{"renewal", 2, func(p *toolcircuit.Policy) { p.ProbeTimeout = 10 * time.Second }, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		time.Sleep(2 * time.Second)
		slow := w[0].begin()
		for range 99 {
			time.Sleep(100 * time.Millisecond)
			w[1].refused()
			w[0].refused()
			require.NotEmpty(t, store.Record(key).Fence)
		}
		claims, _ := w[0].store.Requests(storetest.Acquire)
		require.LessOrEqual(t, claims, 1+30, "one for each third of the lease")
		time.Sleep(100 * time.Millisecond)
		w[1].runs(nil)
		require.Equal(t, closed, w[0].State())
		finish(slow, errDown)
		require.Equal(t, closed, w[1].State())
		require.EqualValues(t, 1, w[0].Snapshot().Stale)
	}},
	// ProbeSuccesses in a row close the circuit, whoever makes them.
	{"ProbeSuccesses", 2, func(p *toolcircuit.Policy) { p.ProbeSuccesses = 3 }, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		time.Sleep(2 * time.Second)
		for i := range 3 {
			allAre(t, halfOpen, w)
			w[i%2].runs(nil)
		}
		allAre(t, closed, w)
	}},
	// A tool with SideEffects leaves the probe to others of the fleet, too.
	{"SideEffects", 2, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		time.Sleep(2 * time.Second)
		reader := w[0].ToolCircuit
		w[0].ToolCircuit = reader.WithTool(toolcircuit.Tool{Name: "pay", SideEffects: true})
		w[0].refused()
		time.Sleep(2*time.Second - 1)
		w[0].refused()
		time.Sleep(time.Nanosecond)
		w[0].runs(nil)
		allAre(t, closed, w)
	}},
	// An override is local, and what is beneath it follows the fleet.
	{"override", 2, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].SetOverride(toolcircuit.OverrideOpen)
		w[0].refused()
		w[1].runs(nil)
		w[1].fail(3)
		w[0].SetOverride(toolcircuit.OverrideClosed)
		w[0].runs(errDown)
		w[0].SetOverride(toolcircuit.OverrideNone)
		require.Equal(t, toolcircuit.RuleFleet, w[0].refused().Rule)
	}},
	// Workers that leave take their state with them.
	{"Leave", 2, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		w[1].fleet.Leave(w[1].ToolCircuit)
		require.Equal(t, open, w[1].State())
		time.Sleep(2 * time.Second)
		w[1].runs(nil)
		require.Equal(t, closed, w[1].State())
		require.Equal(t, halfOpen, w[0].State())
		w[1].fail(3)
		w[0].runs(nil)
		require.Equal(t, open, w[1].State())
	}},
	// A probe that has outlived ProbeTimeout has no vote here while another call claims the probe.
	{"outlived probe", 1, func(p *toolcircuit.Policy) { p.ProbeTimeout = 2 * time.Second }, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		time.Sleep(2 * time.Second)
		slow := w[0].begin()
		time.Sleep(2 * time.Second) // its lease and its slot are over
		w[0].store.Set(storetest.Fault{Err: errDown})
		w[0].refused() // a claim without an answer
		epoch := store.Record(key).Epoch
		settle(slow, nil)
		require.NotEqual(t, closed, w[0].State(), "the fence decides, in the store")
		require.Equal(t, epoch, store.Record(key).Epoch)
		w[0].store.Set(storetest.Fault{})
		time.Sleep(2 * time.Second)
		require.Equal(t, closed, w[0].State(), "which nobody else has claimed")
		require.False(t, store.Record(key).Open)
	}},
	// A probe that has outlived ProbeTimeout has no vote here either when another call has the probe.
	{"outlived probe replaced", 1, func(p *toolcircuit.Policy) { p.ProbeTimeout = 2 * time.Second }, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		time.Sleep(2 * time.Second)
		slow := w[0].begin()
		time.Sleep(2 * time.Second)
		second := w[0].begin()
		v := store.Record(key)
		finish(slow, nil)
		require.Equal(t, v, store.Record(key), "the fence is the second's")
		require.Equal(t, halfOpen, w[0].State())
		finish(second, errDown)
		require.Equal(t, 2, store.Record(key).Generation)
	}},
	// A grant that the circuit has no use for any more is given back.
	{"grant too late", 2, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		time.Sleep(2 * time.Second)
		w[0].store.Set(storetest.Fault{Delay: 30 * time.Millisecond}, storetest.Acquire)
		time.AfterFunc(10*time.Millisecond, func() { w[0].fleet.Leave(w[0].ToolCircuit) })
		w[0].runs(nil) // its own probe
		require.Equal(t, closed, w[0].State())
		synctest.Wait()
		require.True(t, store.Record(key).Open)
		require.Empty(t, store.Record(key).Fence)
		w[1].runs(nil)
		require.Equal(t, closed, w[1].State())
	}},
	// A record that is lost while it is probed is put back with the verdict, not only by the next poll.
	{"verdict on lost record", 2, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		time.Sleep(2 * time.Second)
		probe := w[0].begin()
		store.Empty()
		finish(probe, errDown)
		require.Equal(t, 2, store.Record(key).Generation)
		require.Equal(t, 4*time.Second, store.Record(key).Remaining)
		allAre(t, open, w)
	}},
	// A worker that could not tell its opening hears of another's. It still tells that the dependency
	// asked for longer.
	{"owes longer wait", 2, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].store.Set(storetest.Fault{Err: errDown}, storetest.Trip)
		w[0].runs(asked(20 * time.Second))
		w[0].fail(2)
		w[1].fail(3)
		require.Equal(t, 2*time.Second, store.Record(key).Remaining)
		require.Equal(t, 20*time.Second, w[0].refused().RetryAfter())
		w[0].store.Set(storetest.Fault{})
		time.Sleep(1100 * time.Millisecond) // the next attempt
		for _, w := range w {
			require.InDelta(t, 18900*time.Millisecond, w.refused().RetryAfter(), float64(time.Millisecond))
		}
	}},
	// A worker that has probed alone and closed does not believe an opening from before that. It tells
	// the fleet of the closing.
	{"closed after opening", 2, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		w[0].store.Set(storetest.Fault{Err: errDown})
		w[0].store.Deafen(true)
		time.Sleep(2 * time.Second)
		w[1].runs(errDown) // 4 s
		for w[0].State() != closed {
			time.Sleep(100 * time.Millisecond)
			w[0].call(nil)
		}
		require.Equal(t, 2, store.Record(key).Generation)
		w[0].store.Set(storetest.Fault{})
		w[0].store.Deafen(false)
		for range 60 {
			time.Sleep(100 * time.Millisecond)
			w[0].runs(nil)
		}
		allAre(t, closed, w)
		require.False(t, store.Record(key).Open)
	}},
	// A Fleet whose circuits nobody uses still finds that its store answers again.
	{"idle recovers", 2, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].runs(nil)
		w[0].store.Set(storetest.Fault{Err: errDown})
		time.Sleep(time.Minute)
		require.Equal(t, toolcircuit.SharedDegraded, w[0].Snapshot().Shared)
		w[0].store.Set(storetest.Fault{})
		time.Sleep(2 * time.Second)
		require.Equal(t, toolcircuit.SharedOK, w[0].Snapshot().Shared)
		require.Len(t, w[0].news, 2)
		w[0].store.Deafen(true)
		w[1].fail(3)
		time.Sleep(3 * fleetOptions.Poll) // nobody looks after it any more
		w[1].runs(errDown)
		w[0].refused() // its first call asks the store again
	}},
	// One request that failed does not put off the probe: the call at the end of the cooldown asks, and
	// only if it gets no answer is the next attempt the Fleet's.
	{"probes after one failure", 2, func(p *toolcircuit.Policy) { p.Cooldown = 200 * time.Millisecond }, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[1].runs(nil)
		w[0].fail(2)
		w[0].store.Set(storetest.Fault{Err: errDown}, storetest.Trip)
		w[0].fail(1)
		w[0].store.Set(storetest.Fault{})
		time.Sleep(200 * time.Millisecond)
		w[0].runs(errDown)
		require.Equal(t, 2, store.Record(key).Generation)
		require.Equal(t, 400*time.Millisecond, store.Record(key).Remaining)
		require.Equal(t, open, w[1].State())
	}},
	// A wait that another's terms have cut is cut for all who know it from the store, by a poll: the
	// record keeps its epoch.
	{"follows cut wait", 2, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].call(toolcircuit.RetryAfter(errDown, 20*time.Second))
		synctest.Wait()
		short := toolcircuit.Terms{Cooldown: time.Second, MaxCooldown: time.Second, Multiplier: 1, MaxRetryAfter: 5 * time.Second, ProbeSuccesses: 1, Lease: time.Second, Retention: time.Hour}
		_, err := store.Acquire(context.Background(), key, toolcircuit.AcquireRequest{Terms: short, Fence: "other"})
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		require.InDelta(t, 2*time.Second, w[1].refused().RetryAfter(), float64(time.Millisecond))
		require.Equal(t, 17*time.Second, w[0].refused().RetryAfter(), "it has heard the dependency itself")
		time.Sleep(2*time.Second + time.Millisecond)
		w[1].runs(nil)
		allAre(t, closed, w)
	}},
	// Scenario 20: a probe whose caller goes, one that panics, and Close with a debt.
	{"probe ends", 2, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		time.Sleep(2 * time.Second)
		ctx, cancel := context.WithCancel(context.Background())
		p, err := w[0].Allow(ctx)
		require.NoError(t, err)
		cancel()
		p.Settle(ctx, nil, context.Canceled)
		synctest.Wait()
		require.Equal(t, 1, store.Record(key).Generation)
		require.Empty(t, store.Record(key).Fence)
		p2 := w[1].begin()
		require.True(t, p2.Probe())
		p2.Release()
		synctest.Wait()
		require.Equal(t, 1, store.Record(key).Generation)

		require.Panics(t, func() {
			toolcircuit.Do(context.Background(), w[0].ToolCircuit, func(context.Context) (int, error) { panic("tool") })
		})
		synctest.Wait()
		require.Equal(t, 2, store.Record(key).Generation)
		require.Equal(t, toolcircuit.KindPanic, store.Record(key).Cause)
		allAre(t, open, w)

		time.Sleep(4 * time.Second)
		probe := w[0].begin()
		w[0].store.Set(storetest.Fault{Frozen: true})
		w[0].took(50*time.Millisecond, func() { settle(probe, nil) })
		w[0].took(50*time.Millisecond, func() { require.NoError(t, w[0].fleet.Close(context.Background())) })
		require.Equal(t, closed, w[0].State())
		require.Equal(t, toolcircuit.SharedNot, w[0].Snapshot().Shared)
	}},
	{"close gives back", 2, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		time.Sleep(2 * time.Second)
		probe := w[0].begin()
		require.NoError(t, w[0].fleet.Close(context.Background()))
		require.Empty(t, store.Record(key).Fence)
		synctest.Wait()
		w[1].runs(nil)
		finish(probe, errDown)
		require.Equal(t, closed, w[1].State())
		require.Equal(t, open, w[0].State(), "it goes on alone")
	}},
	{"close pays", 2, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].store.Set(storetest.Fault{Err: errDown}, storetest.Trip)
		w[0].fail(3)
		w[0].store.Set(storetest.Fault{})
		require.False(t, store.Record(key).Open)
		require.NoError(t, w[0].fleet.Close(context.Background()))
		require.True(t, store.Record(key).Open)
	}},
	// A store that was frozen carries out a claim after its worker has given up.
	{"thaw", 2, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		time.Sleep(2 * time.Second)
		w[0].store.Set(storetest.Fault{Frozen: true})
		w[0].took(50*time.Millisecond, func() { w[0].refused() })
		time.Sleep(time.Second)
		w[0].store.Set(storetest.Fault{})
		require.NotEmpty(t, store.Record(key).Fence)
		time.Sleep(1100 * time.Millisecond) // the next attempt
		require.Empty(t, store.Record(key).Fence)
		w[1].runs(nil)
		allAre(t, closed, w)
	}},
	{"thaw, again and again", 1, nil, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		time.Sleep(2 * time.Second)
		w[0].store.Set(storetest.Fault{Delay: 700 * time.Millisecond}, storetest.Acquire)
		for range 100 {
			w[0].call(errDown)
			time.Sleep(50 * time.Millisecond)
		}
		w[0].store.Set(storetest.Fault{})
		for range 300 {
			w[0].call(nil)
			time.Sleep(50 * time.Millisecond)
		}
		require.Equal(t, closed, w[0].State())
		require.False(t, store.Record(key).Open)
	}},
}

// Scenario 8: the store is emptied, and nobody looks before the cooldown is over.
func TestFleetEmptiedUnseen(t *testing.T) {
	idle := fleetOptions
	idle.Poll = 10 * time.Hour
	lost := func(t *testing.T, wait time.Duration) (ran int, fresh *worker, w []*worker) {
		store := storetest.NewMemory()
		for range 8 {
			w = append(w, newWorker(t, store.Peer(), fleetPolicy, idle))
		}
		synctest.Wait()
		w[0].fail(3)
		store.Empty()
		time.Sleep(wait)
		fresh = newWorker(t, store.Peer(), fleetPolicy, idle)
		return meet(w), fresh, w
	}
	t.Run("soon", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ran, fresh, w := lost(t, 2*time.Second)
			require.Equal(t, 1, ran, "the first to ask makes the record anew and probes")
			allAre(t, open, append(w, fresh))
			require.Equal(t, 2, fresh.Snapshot().Openings)
		})
	})
	t.Run("after the retention", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ran, _, _ := lost(t, 2*time.Second+time.Hour)
			require.Equal(t, 8, ran, "each worker that knew probes by itself")
		})
		synctest.Test(t, func(t *testing.T) {
			store := storetest.NewMemory()
			knew := newWorker(t, store.Peer(), fleetPolicy, idle)
			synctest.Wait()
			knew.fail(3)
			store.Empty()
			time.Sleep(time.Hour)
			fresh := newWorker(t, store.Peer(), fleetPolicy, idle)
			fresh.runs(nil)
			probe := knew.begin()
			require.True(t, probe.Probe())
			fresh.runs(nil)
			settle(probe, nil)
		})
	})
}

// shifted is the real clock, that far off.
type shifted struct {
	clock.Clock
	by time.Duration
}

func (s shifted) Now() time.Time                  { return s.Clock.Now().Add(s.by) }
func (s shifted) Since(t time.Time) time.Duration { return s.Now().Sub(t) }
func (s shifted) Until(t time.Time) time.Duration { return t.Sub(s.Now()) }

// Scenario 13: the workers' clocks and the store's differ.
func TestFleetClocksDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		store.Step(300 * time.Second)
		var w []*worker
		for _, by := range []time.Duration{-time.Hour, 0, time.Hour} {
			w = append(w, newWorker(t, store.Peer(), fleetPolicy, fleetOptions, func(o *toolcircuit.Options) { o.Clock = shifted{clock.New(), by} }))
		}
		synctest.Wait()
		w[0].fail(3)
		opened := time.Now()
		for time.Since(opened) < 3*time.Second {
			ran := 0
			for _, w := range w {
				w.ran = 0
				w.call(errDown)
				ran += w.ran
			}
			if ran > 0 {
				require.Equal(t, 1, ran)
				require.GreaterOrEqual(t, time.Since(opened), 2*time.Second)
				require.LessOrEqual(t, time.Since(opened), 2050*time.Millisecond)
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Fatal("no probe")
	})
}

// Scenario 14: the store's clock steps during a cooldown.
func TestFleetStoreClockSteps(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		bubble(t, 2, func(t *testing.T, store *storetest.Memory, w []*worker) {
			w[0].fail(3)
			time.Sleep(time.Second)
			store.Step(step)
			time.Sleep(time.Second - 1)
			for _, w := range w {
				w.refused()
			}
			fresh := newWorker(t, store.Peer(), fleetPolicy, fleetOptions)
			all := append(w, fresh)
			began := time.Now()
			for probed := false; !probed; {
				time.Sleep(10 * time.Millisecond)
				require.Less(t, time.Since(began), 2*8*time.Second+50*time.Millisecond)
				for _, w := range all {
					probed = probed || w.call(nil) == nil
				}
			}
			synctest.Wait()
			allAre(t, closed, all)
		})
	}
}

// Scenario 16: calls admitted before the opening fail after the closing.
func TestFleetOldFailures(t *testing.T) {
	bubble(t, 2, func(t *testing.T, store *storetest.Memory, w []*worker) {
		var late []*toolcircuit.Permit
		for range 20 {
			late = append(late, w[1].begin())
		}
		w[0].fail(3)
		time.Sleep(2 * time.Second)
		w[0].runs(nil)
		for _, p := range late {
			settle(p, errDown)
		}
		synctest.Wait()
		allAre(t, closed, w)
		require.Equal(t, 0, w[1].Snapshot().Streak)
		w[1].fail(3)
		allAre(t, open, w)
		require.Equal(t, 2, store.Record(key).Generation)
	})
	t.Run("unheard", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store, rarely := storetest.NewMemory(), fleetOptions
			rarely.Poll = time.Hour
			a, b := newWorker(t, store.Peer(), fleetPolicy, rarely), newWorker(t, store.Peer(), fleetPolicy, rarely)
			synctest.Wait()
			b.store.Deafen(true)
			b.fail(2)
			a.fail(3)
			time.Sleep(2 * time.Second)
			a.runs(nil)
			b.runs(errDown)
			require.Equal(t, closed, b.State(), "the failures are from before the closing")
			b.fail(2)
			require.Equal(t, closed, b.State())
			b.fail(1)
			require.Equal(t, open, b.State())
			require.Equal(t, 2, store.Record(key).Generation)
		})
	})
}

// Scenario 19: the store answers with errors, to all requests or to some.
func TestFleetStoreErrors(t *testing.T) {
	some := map[string][]storetest.Method{
		"all":     {storetest.Load, storetest.Trip, storetest.Acquire, storetest.Settle, storetest.Reset, storetest.Watch},
		"reads":   {storetest.Load},
		"writes":  {storetest.Trip, storetest.Acquire, storetest.Settle, storetest.Reset},
		"trip":    {storetest.Trip},
		"acquire": {storetest.Acquire},
		"settle":  {storetest.Settle},
		"watch":   {storetest.Watch},
	}
	for name, methods := range some {
		for kind, fault := range map[string]storetest.Fault{"errors": {Err: errDown}, "panics": {Panic: "store"}, "hangs": {Frozen: true}} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				bubble(t, 1, func(t *testing.T, store *storetest.Memory, w []*worker) {
					w0, before := w[0], goroutines()
					w0.store.Set(fault, methods...)
					began := time.Now()
					ran, down := 0, true
					for time.Since(began) < 60*time.Second {
						if down = time.Since(began) < 20*time.Second; !down && ran == 0 {
							ran = w0.ran
						}
						w0.took(100*time.Millisecond, func() {
							if err := w0.call(map[bool]error{true: errDown}[down]); err != nil && err != errDown {
								require.ErrorIs(t, err, toolcircuit.ErrCircuitOpen)
							}
						})
						time.Sleep(10 * time.Millisecond)
					}
					require.Equal(t, closed, w0.State())
					require.LessOrEqual(t, ran, 3+5, "3 to open, then a probe per cooldown of 2, 4, 8 s")
					require.LessOrEqual(t, goroutines(), before+1)
					w0.store.Set(storetest.Fault{})
					for i := range 2000 {
						// A store that was frozen carries out what was asked long ago.
						if err := w0.call(nil); err != nil {
							require.True(t, kind == "hangs" && i < 300, "%v after %d calls", err, i)
						}
						time.Sleep(10 * time.Millisecond)
					}
					require.Equal(t, closed, w0.State())
					require.False(t, store.Record(key).Open)
					require.Equal(t, toolcircuit.SharedOK, w0.Snapshot().Shared)
					var types []toolcircuit.EventType
					for _, e := range w0.news {
						types = append(types, e.Type)
					}
					switch {
					case kind == "hangs" && name == "watch": // nobody can tell
					case name == "trip" && len(types) == 0: // the first probe found another way before the third attempt
					default:
						require.Equal(t, []toolcircuit.EventType{toolcircuit.EventStoreError, toolcircuit.EventRecovered}, types)
						require.Error(t, w0.news[0].Err)
					}
				})
			})
		}
	}
}

func TestA055OneClaim(t *testing.T) {
	bubble(t, 2, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		time.Sleep(2 * time.Second)
		require.True(t, w[0].Ready())
		require.True(t, w[1].Ready())
		probe := w[0].begin()
		require.False(t, w[1].Ready(), "the loser leaves the tool out")
		w[1].refused()
		require.True(t, probe.Probe())
		settle(probe, nil)
	})
}

// 403 opens nothing, so a new key needs no reset; what is open is closed for all by Reset.
func TestA020FixedKey(t *testing.T) {
	bubble(t, 1, func(t *testing.T, store *storetest.Memory, w []*worker) {
		for range 10 {
			w[0].runs(&toolcircuit.HTTPError{StatusCode: 403})
		}
		require.Zero(t, store.Record(key))
		w[0].fail(3)
		fresh := newWorker(t, store.Peer(), fleetPolicy, fleetOptions)
		fresh.refused()
		fresh.Reset()
		synctest.Wait()
		allAre(t, closed, append(w, fresh))
		newWorker(t, store.Peer(), fleetPolicy, fleetOptions).runs(nil)
		w[0].runs(nil)
		w[0].fail(3)
		require.Equal(t, 1, store.Record(key).Generation, "openings are forgotten")
	})
}

// Counts are not shared (openings are), so none can be lost: the opening is decided once.
func TestF73OneOpening(t *testing.T) {
	bubble(t, 8, func(t *testing.T, store *storetest.Memory, w []*worker) {
		var wg sync.WaitGroup
		for _, w := range w {
			for range 10 {
				wg.Go(func() { w.call(errDown) })
			}
		}
		wg.Wait()
		synctest.Wait()
		allAre(t, open, w)
		require.Equal(t, 1, store.Record(key).Generation)
		time.Sleep(2 * time.Second)
		probes := 0
		for _, w := range w {
			if p, err := w.Allow(context.Background()); err == nil {
				probes++
				defer p.Release()
			}
		}
		require.Equal(t, 1, probes)
	})
}

func TestA065SharedProbes(t *testing.T) {
	outage := func(workers int) (probes int, events []toolcircuit.Event) {
		bubble(t, workers, func(t *testing.T, store *storetest.Memory, w []*worker) {
			for began := time.Now(); time.Since(began) < 3*time.Hour; time.Sleep(time.Second) {
				for _, w := range w {
					w.call(errDown)
				}
				synctest.Wait()
			}
			for _, w := range w {
				probes += w.ran
				events = append(events, w.events...)
			}
		})
		return
	}
	alone, _ := outage(1)
	shared, events := outage(2)
	require.InDelta(t, alone, shared, 4)
	changes := map[string]bool{}
	for _, e := range events {
		require.NotEqual(t, e.From, e.To, "events only on a change")
		changes[fmt.Sprint(e.To, e.Openings)] = true
	}
}

// Without a store the state is local, and the snapshot says so. With one all agree.
func TestA098Agreement(t *testing.T) {
	alone := newRig(t, policy(nil))
	require.Equal(t, toolcircuit.SharedNot, alone.Snapshot().Shared)
	bubble(t, 2, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[1].runs(nil)
		w[1].store.Deafen(true)
		w[0].fail(3)
		time.Sleep(2200 * time.Millisecond) // a poll, and its jitter
		a, b := w[0].Snapshot(), w[1].Snapshot()
		require.Equal(t, []any{a.State, a.Openings, a.Cause, a.Since}, []any{b.State, b.Openings, b.Cause, b.Since})
		require.Equal(t, toolcircuit.SharedOK, b.Shared)
	})
}

// A worker that joins late neither restarts nor skips the cooldown.
func TestA100JoinLate(t *testing.T) {
	minute := fleetPolicy
	minute.Cooldown, minute.MaxCooldown = time.Minute, 10*time.Minute
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		newWorker(t, store.Peer(), minute, fleetOptions).fail(3)
		time.Sleep(59 * time.Second)
		late := newWorker(t, store.Peer(), minute, fleetOptions)
		require.Equal(t, time.Second, late.refused().RetryAfter())
		time.Sleep(time.Second - 1)
		late.refused()
		time.Sleep(time.Second + 1)
		late.runs(nil)
		require.Equal(t, closed, late.State())
	})
}

func TestF76PanicReachesStore(t *testing.T) {
	once := fleetPolicy
	once.FailureThreshold = 1
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		a, b := newWorker(t, store.Peer(), once, fleetOptions), newWorker(t, store.Peer(), once, fleetOptions)
		require.Panics(t, func() {
			toolcircuit.Do(context.Background(), a.ToolCircuit, func(context.Context) (int, error) { panic("tool") })
		})
		synctest.Wait()
		require.Equal(t, toolcircuit.KindPanic, b.refused().Cause)
		done := make(chan struct{})
		time.Sleep(2 * time.Second)
		go func() {
			defer close(done)
			toolcircuit.Do(context.Background(), b.ToolCircuit, func(context.Context) (int, error) { runtime.Goexit(); return 0, nil })
		}()
		<-done
		synctest.Wait()
		require.Equal(t, 2, store.Record(key).Generation)
		a.refused()
	})
}

// After three claims without an answer a worker probes alone.
func TestFleetUnansweredClaims(t *testing.T) {
	for name, fault := range map[string]storetest.Fault{"errors": {Err: errDown}, "hangs": {Frozen: true}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, store *storetest.Memory, w []*worker) {
				w[0].fail(3)
				w[0].store.Set(fault, storetest.Acquire)
				time.Sleep(2 * time.Second)
				began, slow := time.Now(), 0
				for w[0].ran == 3 {
					before := time.Now()
					w[0].call(nil)
					if time.Since(before) > 0 {
						slow++
					}
					time.Sleep(10 * time.Millisecond)
				}
				require.LessOrEqual(t, time.Since(began), 3*time.Second)
				require.LessOrEqual(t, slow, 3)
				claims, _ := w[0].store.Requests(storetest.Acquire)
				require.Equal(t, 3, claims)
				require.Equal(t, closed, w[0].State())
				w[0].runs(nil)
			})
		})
	}
}

// A store that carries out no claims of one key, and those of others, is there. The worker still
// probes that circuit alone.
func TestFleetUnansweredClaimsOfOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, &poisoned{storetest.NewMemory()}, fleetOptions)
		quick := toolcircuit.Policy{FailureThreshold: 1, Cooldown: 10 * time.Millisecond, MaxCooldown: 10 * time.Millisecond}
		c, other := toolcircuit.MustNew(key, toolcircuit.Options{Policy: fleetPolicy}), toolcircuit.MustNew("other", toolcircuit.Options{Policy: quick})
		require.NoError(t, f.Join(c, key))
		require.NoError(t, f.Join(other, "other"))
		fails := func(context.Context) (int, error) { return 0, errDown }
		for range 3 {
			toolcircuit.Do(t.Context(), c, fails)
		}
		for began := time.Now(); c.State() != closed; time.Sleep(10 * time.Millisecond) {
			require.Less(t, time.Since(began), 5*time.Second, "no probe")
			toolcircuit.Do(t.Context(), other, fails)
			toolcircuit.Do(t.Context(), c, func(context.Context) (int, error) { return 0, nil })
		}
	})
}

// poisoned is a Store in which the record of key cannot be claimed.
type poisoned struct{ *storetest.Memory }

func (s *poisoned) Acquire(ctx context.Context, k string, a toolcircuit.AcquireRequest) (toolcircuit.View, error) {
	if k == key {
		return toolcircuit.View{}, errDown
	}
	return s.Memory.Acquire(ctx, k, a)
}

// noReset is a Store that is no Resetter.
type noReset struct{ toolcircuit.Store }

// Where the store cannot reset, a Reset is local until the next change in the fleet.
func TestFleetLocalReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		f := newFleet(t, noReset{store}, fleetOptions)
		c := toolcircuit.MustNew(key, toolcircuit.Options{Policy: fleetPolicy})
		require.NoError(t, f.Join(c, key))
		w := newWorker(t, store.Peer(), fleetPolicy, fleetOptions)
		synctest.Wait()
		w.fail(3)
		require.Equal(t, open, c.State())
		c.Reset()
		synctest.Wait()
		require.Equal(t, closed, c.State())
		require.Equal(t, open, w.State())
		time.Sleep(2 * time.Second)
		w.runs(errDown)
		require.Equal(t, open, c.State())
	})
}

// A worker hears of its own claim before the answer is lost. It still has no answer, so that in the
// end it probes by itself.
func TestFleetHearsOfOwnClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowAnswer{storetest.NewMemory()}
		f := newFleet(t, store, fleetOptions)
		c := toolcircuit.MustNew(key, toolcircuit.Options{Policy: fleetPolicy})
		require.NoError(t, f.Join(c, key))
		synctest.Wait()
		for range 3 {
			toolcircuit.Do(context.Background(), c, func(context.Context) (int, error) { return 0, errDown })
		}
		time.Sleep(2 * time.Second)
		store.Set(storetest.Fault{LoseAnswer: true}, storetest.Acquire)
		asks := 0
		for c.State() != closed {
			toolcircuit.Do(context.Background(), c, func(context.Context) (int, error) { return 0, nil })
			time.Sleep(10 * time.Millisecond)
			if asks++; asks > 500 {
				t.Fatal("no probe in 5 s")
			}
		}
	})
}

// slowAnswer is a Store whose answers to a claim come after the news of it.
type slowAnswer struct{ *storetest.Memory }

func (s *slowAnswer) Acquire(ctx context.Context, key string, a toolcircuit.AcquireRequest) (toolcircuit.View, error) {
	v, err := s.Memory.Acquire(ctx, key, a)
	time.Sleep(10 * time.Millisecond)
	return v, err
}

// A slow store takes all the time that the callers have. That says nothing of the dependency.
func TestFleetWaitTakesAllTime(t *testing.T) {
	const patience = 10 * time.Millisecond
	ways := map[string]func(w *worker, ctx context.Context) error{
		"Do": func(w *worker, ctx context.Context) error {
			_, err := toolcircuit.Do(ctx, w.ToolCircuit, func(ctx context.Context) (int, error) { w.ran++; return 0, ctx.Err() })
			return err
		},
		"Allow": func(w *worker, ctx context.Context) error {
			_, err := w.Allow(ctx)
			return err
		},
	}
	for way, call := range ways {
		late := func(t *testing.T, w *worker) {
			t.Helper()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			before := w.ran
			require.Equal(t, context.DeadlineExceeded, call(w, ctx))
			require.Equal(t, before, w.ran, "a call ran under an ended context")
		}
		t.Run(way+" at first use", func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, store *storetest.Memory, all []*worker) {
				w := all[0]
				for range fleetPolicy.FailureThreshold {
					time.Sleep(3 * fleetOptions.Poll) // idle
					w.store.Set(storetest.Fault{Delay: 4 * patience}, storetest.Load)
					var waiting sync.WaitGroup
					waiting.Go(func() { late(t, w) })
					synctest.Wait()
					late(t, w) // for the other's Load
					waiting.Wait()
					w.store.Set(storetest.Fault{})
				}
				require.Equal(t, closed, w.State())
				require.Zero(t, w.Snapshot().Streak)
			})
		})
		t.Run(way+" at a claim", func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, store *storetest.Memory, w []*worker) {
				w[1].runs(nil)
				w[0].fail(3)
				time.Sleep(2 * time.Second)
				w[0].store.Set(storetest.Fault{Delay: 4 * patience}, storetest.Acquire)
				late(t, w[0])
				synctest.Wait()
				require.Empty(t, store.Record(key).Fence, "the probe is not given back")
				require.Equal(t, 1, store.Record(key).Generation)
				w[1].runs(nil)
				allAre(t, closed, w)
			})
		})
		t.Run(way+" at a claim that is another's", func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, store *storetest.Memory, w []*worker) {
				w[0].fail(3)
				time.Sleep(2 * time.Second)
				w[0].store.Deafen(true)
				w[1].begin()
				w[0].store.Set(storetest.Fault{Delay: 4 * patience}, storetest.Acquire)
				late(t, w[0])
				require.Equal(t, halfOpen, w[0].State())
			})
		})
	}
}

// A refused call of a circuit that shares its state looks at its context as often as any other.
func TestFleetRefusedLooksOnce(t *testing.T) {
	looks := func(c *toolcircuit.ToolCircuit) int {
		ctx := &lookedAt{Context: context.Background()}
		_, err := c.Allow(ctx)
		require.ErrorIs(t, err, toolcircuit.ErrCircuitOpen)
		return ctx.looks
	}
	bubble(t, 1, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		shared := looks(w[0].ToolCircuit)
		w[0].fleet.Leave(w[0].ToolCircuit)
		require.Equal(t, looks(w[0].ToolCircuit), shared)
	})
}

// lookedAt counts how often somebody looks at whether it has ended.
type lookedAt struct {
	context.Context
	looks int
}

func (c *lookedAt) Err() error { c.looks++; return c.Context.Err() }

// An opening that is told when its wait is over does not begin a new one.
func TestFleetToldWhenOver(t *testing.T) {
	quick := fleetPolicy
	quick.Cooldown = 200 * time.Millisecond
	over := 0
	for heals := 50 * time.Millisecond; heals < 2*time.Second; heals += 50 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			store := &tripLog{Memory: storetest.NewMemory()}
			c := toolcircuit.MustNew(key, toolcircuit.Options{Policy: quick})
			require.NoError(t, newFleet(t, store, fleetOptions).Join(c, key))
			op := func(context.Context) (int, error) { return 0, errDown }
			toolcircuit.Do(context.Background(), c, op)
			store.Set(storetest.Fault{Err: errDown})
			time.AfterFunc(heals, func() { store.Set(storetest.Fault{}) })
			for range 300 {
				toolcircuit.Do(context.Background(), c, op)
				time.Sleep(10 * time.Millisecond)
			}
			for _, q := range store.requests {
				require.GreaterOrEqual(t, q.Wait, time.Duration(0))
				if q.Wait == time.Millisecond {
					over++
				}
			}
		})
	}
	require.Positive(t, over, "none was told when its wait was over")
}

// tripLog is a Memory that remembers its Trips.
type tripLog struct {
	*storetest.Memory
	mu       sync.Mutex
	requests []toolcircuit.TripRequest
}

func (s *tripLog) Trip(ctx context.Context, key string, t toolcircuit.TripRequest) (toolcircuit.View, error) {
	s.mu.Lock()
	s.requests = append(s.requests, t)
	s.mu.Unlock()
	return s.Memory.Trip(ctx, key, t)
}
