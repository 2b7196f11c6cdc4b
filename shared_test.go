package toolcircuit_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// bubble runs a test with workers of one store, in bubble time.
func bubble(t *testing.T, n int, test func(t *testing.T, store *storetest.Memory, w []*worker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		var all []*worker
		for range n {
			all = append(all, newWorker(t, store.Peer(), fleetPolicy, fleetOptions))
		}
		synctest.Wait()
		test(t, store, all)
	})
}

func newWorker(t *testing.T, store *storetest.Memory, p toolcircuit.Policy, o toolcircuit.FleetOptions) *worker {
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
	w.ToolCircuit = toolcircuit.MustNew(key, toolcircuit.Options{Policy: p, OnEvent: func(_ context.Context, e toolcircuit.Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, e)
	}})
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

// runs makes a call that must run.
func (w *worker) runs(err error) {
	w.Helper()
	before := w.ran
	require.Equal(w, err, w.call(err))
	require.Equal(w, before+1, w.ran, "the call must run")
}

// refused makes a call that must be refused, and returns the refusal.
func (w *worker) refused() *toolcircuit.OpenError {
	w.Helper()
	before := w.ran
	err := w.call(nil)
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

// Scenario 1: one worker finds the dependency down, and all stop.
func TestFleetOneOpensAllStop(t *testing.T) {
	bubble(t, 8, func(t *testing.T, store *storetest.Memory, w []*worker) {
		for _, w := range w {
			w.runs(nil)
		}
		w[0].fail(3)
		synctest.Wait()
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
		synctest.Wait()
		require.True(t, probe.Probe())
		allAre(t, halfOpen, w)
		for _, w := range w {
			w.refused()
		}
		settle(probe, nil)
		synctest.Wait()
		allAre(t, closed, w)
		for _, w := range w {
			w.runs(nil)
		}
		require.False(t, store.Record(key).Open)
	})
}

// Scenario 2: 64 callers of 8 workers meet at the end of the cooldown.
func TestFleetOneProbe(t *testing.T) {
	bubble(t, 8, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		for round := range 20 {
			time.Sleep(store.Record(key).Remaining)
			for _, w := range w {
				w.ran = 0
			}
			var wg sync.WaitGroup
			for i := range 64 {
				wg.Go(func() {
					toolcircuit.Do(context.Background(), w[i%8].ToolCircuit, func(context.Context) (int, error) {
						w[i%8].mu.Lock()
						w[i%8].ran++
						w[i%8].mu.Unlock()
						time.Sleep(time.Second / 2)
						return 0, errDown
					})
				})
			}
			wg.Wait()
			ran := 0
			for _, w := range w {
				ran += w.ran
			}
			require.Equal(t, 1, ran, "round %d", round)
			synctest.Wait()
			allAre(t, open, w)
			require.Equal(t, round+2, store.Record(key).Generation)
		}
	})
}

// Scenario 4: a holder stalls past its lease, and its late success is refused.
func TestFleetLateVerdict(t *testing.T) {
	bubble(t, 2, func(t *testing.T, store *storetest.Memory, w []*worker) {
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
	})
}

// Scenario 5: the store is frozen for 5 s.
func TestFleetFrozenStore(t *testing.T) {
	bubble(t, 4, func(t *testing.T, store *storetest.Memory, w []*worker) {
		w[0].fail(3)
		synctest.Wait()
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
	})
}
