package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/redisstore"
)

// policy is the usual one of these tests.
func policy() toolcircuit.Policy {
	return toolcircuit.Policy{
		FailureThreshold: 3,
		Cooldown:         2 * time.Second,
		Multiplier:       2,
		MaxCooldown:      8 * time.Second,
	}
}

const opTimeout = 50 * time.Millisecond

// A call waits for the store and takes a little more: fair on a machine that has the time, slack at
// most on a busy one. How many calls took more than what is fair is logged.
const (
	fair  = 20 * time.Millisecond
	slack = 200 * time.Millisecond
)

// worker is what one process of a fleet has: a client, a Fleet, and circuits.
type worker struct {
	t     testing.TB
	store *redisstore.Store
	fleet *toolcircuit.Fleet
	tools map[string]*toolcircuit.ToolCircuit

	mu     sync.Mutex
	events []toolcircuit.EventType
}

// world is the dependencies: which are down, and what reached them.
type world struct {
	mu      sync.Mutex
	down    map[string]bool
	reached map[string]int
}

var errDown = toolcircuit.Fault(errors.New("the dependency is down"))

func newWorld() *world { return &world{down: map[string]bool{}, reached: map[string]int{}} }

func (w *world) set(tool string, down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down[tool] = down
}

func (w *world) calls(tool string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reached[tool]
}

func (w *world) call(tool string) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reached[tool]++
	if w.down[tool] {
		return 0, errDown
	}
	return 1, nil
}

// newWorker returns a worker on the server at an address. Its tools share their states.
func newWorker(t testing.TB, addr string, o toolcircuit.FleetOptions, p toolcircuit.Policy, tools ...string) *worker {
	t.Helper()
	store := open(t, redis.Options{Addr: addr}, redisstore.Options{Ping: 300 * time.Millisecond})
	return newWorkerOn(t, store, o, toolcircuit.Options{Policy: p}, tools...)
}

func newWorkerOn(t testing.TB, store *redisstore.Store, o toolcircuit.FleetOptions, each toolcircuit.Options, tools ...string) *worker {
	t.Helper()
	w := &worker{t: t, store: store, tools: map[string]*toolcircuit.ToolCircuit{}}
	if o.Poll == 0 {
		o.Poll = 2 * time.Second
	}
	if o.Lease == 0 {
		o.Lease = time.Second
	}
	o.OpTimeout = opTimeout
	o.OnEvent = func(_ context.Context, e toolcircuit.Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, e.Type)
	}
	fleet, err := toolcircuit.NewFleet(store, o)
	require.NoError(t, err)
	w.fleet = fleet
	t.Cleanup(func() { fleet.Close(context.Background()) })
	for _, tool := range tools {
		c := toolcircuit.MustNew(tool, each)
		require.NoError(t, fleet.Join(c, tool))
		w.tools[tool] = c
	}
	return w
}

func newWorkers(t testing.TB, n int, addr string, tools ...string) []*worker {
	t.Helper()
	all := make([]*worker, n)
	for i := range all {
		all[i] = newWorker(t, addr, toolcircuit.FleetOptions{}, policy(), tools...)
	}
	for _, w := range all { // all have heard of each other's store
		for _, tool := range tools {
			w.settled(tool)
		}
	}
	time.Sleep(50 * time.Millisecond) // the subscriptions stand
	return all
}

// settled makes a call that loads the record.
func (w *worker) settled(tool string) {
	_, err := toolcircuit.Do(context.Background(), w.tools[tool], func(context.Context) (int, error) { return 1, nil })
	if err != nil && !errors.Is(err, toolcircuit.ErrCircuitOpen) {
		w.t.Fatal(err)
	}
}

// call makes one call of a tool. It returns whether it ran, and how long the library took besides
// the tool.
func (w *worker) call(world *world, tool string) (ran bool, took time.Duration) {
	began := time.Now()
	var inside time.Duration
	_, err := toolcircuit.Do(context.Background(), w.tools[tool], func(context.Context) (int, error) {
		entered := time.Now()
		defer func() { inside = time.Since(entered) }()
		ran = true
		return world.call(tool)
	})
	took = time.Since(began) - inside
	if err != nil && !errors.Is(err, toolcircuit.ErrCircuitOpen) && !errors.Is(err, errDown) {
		w.t.Errorf("%s: an error that is not the tool's reached the caller: %v", tool, err)
	}
	return ran, took
}

// fail makes failing calls until the circuit of a tool is open.
func (w *worker) fail(world *world, tool string) {
	world.set(tool, true)
	for range 3 {
		w.call(world, tool)
	}
	require.Equal(w.t, toolcircuit.StateOpen, w.tools[tool].State())
}

func (w *worker) heard() []toolcircuit.EventType {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]toolcircuit.EventType(nil), w.events...)
}

// agree waits until all workers have the same state, and the store has it.
func agree(t testing.TB, within time.Duration, all []*worker, tool string, want ...toolcircuit.State) {
	t.Helper()
	began := time.Now()
	states := func() string {
		s := ""
		for _, w := range all {
			s += fmt.Sprint(w.tools[tool].State(), w.tools[tool].Snapshot().Openings, " ")
		}
		return s
	}
	for {
		same := true
		for _, w := range all {
			is := false
			for _, s := range want {
				is = is || w.tools[tool].State() == s
			}
			same = same && is
		}
		if same {
			t.Logf("all agree on %s after %v", tool, time.Since(began).Round(time.Millisecond))
			return
		}
		if time.Since(began) > within {
			t.Fatalf("%s: not all are %v within %v: %s", tool, want, within, states())
		}
		time.Sleep(time.Millisecond)
	}
}

// traffic makes every worker call every tool again and again, and measures.
type traffic struct {
	stop chan struct{}
	over sync.WaitGroup
	mu   sync.Mutex
	took map[string][]time.Duration
	ran  map[string]*atomic.Int64
}

func drive(world *world, all []*worker, every time.Duration, tools ...string) *traffic {
	d := &traffic{stop: make(chan struct{}), took: map[string][]time.Duration{}, ran: map[string]*atomic.Int64{}}
	for _, tool := range tools {
		d.ran[tool] = new(atomic.Int64)
		for _, w := range all {
			d.over.Add(1)
			go func() {
				defer d.over.Done()
				var took []time.Duration
				for {
					select {
					case <-d.stop:
						d.mu.Lock()
						d.took[tool] = append(d.took[tool], took...)
						d.mu.Unlock()
						return
					case <-time.After(every):
					}
					ran, t := w.call(world, tool)
					took = append(took, t)
					if ran {
						d.ran[tool].Add(1)
					}
				}
			}()
		}
	}
	return d
}

// end stops the traffic and logs what was measured.
func (d *traffic) end(t testing.TB) {
	t.Helper()
	close(d.stop)
	d.over.Wait()
	for tool, took := range d.took {
		late := 0
		for _, t := range took {
			if t > opTimeout+fair {
				late++
			}
		}
		t.Logf("%s: %d calls, %d reached it; library p50 %v p99 %v max %v, %d above %v", tool, len(took), d.ran[tool].Load(),
			percentile(took, 0.5), percentile(took, 0.99), percentile(took, 1), late, opTimeout+fair)
	}
}

var pings = redisstore.Options{Ping: 300 * time.Millisecond}

func optionsOf(s *server) redis.Options {
	return redis.Options{Addr: s.addr(), Username: "circuits", Password: "secret"}
}
