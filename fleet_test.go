package toolcircuit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/storetest"
)

func TestNewFleetChecks(t *testing.T) {
	_, err := toolcircuit.NewFleet(nil, toolcircuit.FleetOptions{})
	require.EqualError(t, err, "toolcircuit: NewFleet: the store is nil")
	_, err = toolcircuit.NewFleet((*storetest.Memory)(nil), toolcircuit.FleetOptions{})
	require.EqualError(t, err, "toolcircuit: NewFleet: the store is nil")
	for _, c := range []struct {
		o    toolcircuit.FleetOptions
		text string
	}{
		{toolcircuit.FleetOptions{OpTimeout: -1}, "FleetOptions.OpTimeout: got -1ns"},
		{toolcircuit.FleetOptions{Poll: 5}, "FleetOptions.Poll: got 5ns, want at least 1ms"},
		{toolcircuit.FleetOptions{Lease: -time.Second}, "FleetOptions.Lease: got -1s"},
		{toolcircuit.FleetOptions{Retention: time.Microsecond}, "FleetOptions.Retention: got 1µs"},
		{toolcircuit.FleetOptions{OpTimeout: 87600*time.Hour + 1}, "FleetOptions.OpTimeout: got 87600h0m0.000000001s, want at most 87600h"},
		{toolcircuit.FleetOptions{OpTimeout: time.Second, Lease: time.Second}, "FleetOptions.Lease: got 1s, want more than OpTimeout, 1s"},
	} {
		_, err := toolcircuit.NewFleet(storetest.NewMemory(), c.o)
		require.ErrorContains(t, err, c.text)
	}
}

func TestFleetMisused(t *testing.T) {
	c := toolcircuit.MustNew(key, toolcircuit.Options{})
	for _, f := range []*toolcircuit.Fleet{nil, {}} {
		const text = "toolcircuit: the Fleet is nil; make one with NewFleet"
		require.PanicsWithValue(t, text, func() { f.Join(c, key) })
		require.PanicsWithValue(t, text, func() { f.Leave(c) })
		require.PanicsWithValue(t, text, func() { f.Close(context.Background()) })
	}
	f := newFleet(t, storetest.NewMemory(), toolcircuit.FleetOptions{})
	var none context.Context
	require.PanicsWithValue(t, "toolcircuit: Close: ctx is nil", func() { f.Close(none) })
}

// newFleet returns a Fleet that ends with the test.
func newFleet(t *testing.T, s toolcircuit.Store, o toolcircuit.FleetOptions) *toolcircuit.Fleet {
	t.Helper()
	f, err := toolcircuit.NewFleet(s, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close(context.Background())) })
	return f
}

func TestJoinChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, other := newFleet(t, storetest.NewMemory(), toolcircuit.FleetOptions{}), newFleet(t, storetest.NewMemory(), toolcircuit.FleetOptions{})
		a, b := toolcircuit.MustNew("a", toolcircuit.Options{}), toolcircuit.MustNew("b", toolcircuit.Options{})
		require.EqualError(t, f.Join(a, ""), "toolcircuit: Join: the key is empty")
		require.NoError(t, f.Join(a.WithTool(toolcircuit.Tool{Name: "tool"}), "key"))
		require.EqualError(t, f.Join(b, "key"), `toolcircuit: Join: the key "key" is another circuit's`)
		require.EqualError(t, f.Join(a, "other"), "toolcircuit: Join: the circuit of a is in a Fleet already")
		require.EqualError(t, other.Join(a, "key"), "toolcircuit: Join: the circuit of a is in a Fleet already")
		require.NoError(t, other.Join(b, "key"))
		require.Panics(t, func() { f.Join(nil, "key") })

		other.Leave(a) // which is not in it
		require.Equal(t, toolcircuit.SharedOK, a.Snapshot().Shared)
		f.Leave(a)
		f.Leave(a)
		require.Equal(t, toolcircuit.SharedNot, a.Snapshot().Shared)
		require.NoError(t, f.Join(a, "key"), "it may come again")
		require.NoError(t, f.Close(context.Background()))
		require.NoError(t, f.Close(context.Background()))
		require.Equal(t, toolcircuit.SharedNot, a.Snapshot().Shared)
		require.EqualError(t, f.Join(a, "key"), "toolcircuit: Join: the Fleet is closed")
	})
}

// A key is free again when its circuit is lost.
func TestJoinAfterLoss(t *testing.T) {
	f := newFleet(t, storetest.NewMemory(), toolcircuit.FleetOptions{})
	for i := range 3 {
		require.NoError(t, f.Join(toolcircuit.MustNew("a", toolcircuit.Options{}), "key"), "%d", i)
		for range 3 {
			runtime.GC()
		}
	}
}

// A circuit may leave while its calls ask for the probe.
func TestLeaveWhileAsking(t *testing.T) {
	f := newFleet(t, storetest.NewMemory(), toolcircuit.FleetOptions{})
	short := toolcircuit.Policy{FailureThreshold: 1, Cooldown: time.Millisecond, MaxCooldown: time.Millisecond}
	c := toolcircuit.MustNew(key, toolcircuit.Options{Policy: short})
	var over atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !over.Load() {
				toolcircuit.Do(context.Background(), c, func(context.Context) (int, error) { return 0, errDown })
			}
		})
	}
	for range 5000 {
		require.NoError(t, f.Join(c, key))
		f.Leave(c)
	}
	over.Store(true)
	wg.Wait()
	require.Equal(t, toolcircuit.SharedNot, c.Snapshot().Shared)
}

// A Fleet has two goroutines, however many circuits join it.
func TestFleetGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := toolcircuit.NewFleet(storetest.NewMemory(), toolcircuit.FleetOptions{})
		require.NoError(t, err)
		circuits := make([]*toolcircuit.ToolCircuit, 10)
		for i := range circuits {
			circuits[i] = toolcircuit.MustNew("a", toolcircuit.Options{})
			require.NoError(t, f.Join(circuits[i], fmt.Sprint(i)))
		}
		synctest.Wait()
		require.Equal(t, 2, goroutines())
		require.NoError(t, f.Close(context.Background()))
		synctest.Wait()
		require.Zero(t, goroutines())
		runtime.KeepAlive(circuits)
	})
}

// goroutines counts those that the package has started in the bubble of the caller.
func goroutines() (n int) {
	text := make([]byte, 1<<20)
	text = text[:runtime.Stack(text, true)]
	ours := regexp.MustCompile(`created by github\.com/toolcircuit/toolcircuit(/internal/\w+)?\.`)
	bubble := regexp.MustCompile(`synctest bubble \d+]`).Find(text) // the caller comes first
	for _, stack := range bytes.Split(text, []byte("\n\n")) {
		if bytes.Contains(stack, bubble) && ours.Match(stack) {
			n++
		}
	}
	return n
}

// A blocked OnEvent of a circuit, or of the Fleet, holds up neither the Fleet nor its other circuits.
func TestFleetBlockedHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		a := newWorker(t, store.Peer(), fleetPolicy, fleetOptions)
		release := make(chan struct{})
		peer := store.Peer()
		f, err := toolcircuit.NewFleet(peer, toolcircuit.FleetOptions{Poll: 2 * time.Second, Lease: time.Second, OnEvent: func(context.Context, toolcircuit.Event) {
			<-release
			panic("dropped")
		}})
		require.NoError(t, err)
		circuits := map[string]*toolcircuit.ToolCircuit{}
		for _, k := range []string{key, "other"} {
			o := toolcircuit.Options{Policy: fleetPolicy}
			if k == key {
				o.OnEvent = func(context.Context, toolcircuit.Event) { <-release }
			}
			circuits[k] = toolcircuit.MustNew(k, o)
			require.NoError(t, f.Join(circuits[k], k))
		}
		synctest.Wait()
		before := goroutines()
		a.fail(3)
		synctest.Wait()
		require.Equal(t, open, circuits[key].State())
		require.Equal(t, before+1, goroutines(), "one goroutine for the circuit whose OnEvent runs")
		peer.Set(storetest.Fault{Err: errDown})
		time.Sleep(10 * time.Second)
		require.Equal(t, toolcircuit.SharedDegraded, circuits["other"].Snapshot().Shared)
		peer.Set(storetest.Fault{})
		time.Sleep(10 * time.Second)
		require.Equal(t, toolcircuit.SharedOK, circuits["other"].Snapshot().Shared)
		a.runs(errDown)
		synctest.Wait()
		require.Equal(t, open, circuits[key].State())
		close(release)
		require.NoError(t, f.Close(context.Background()))
	})
}

// A Store may end the goroutine that asks it, or never return; a call and the Fleet survive.
func TestFleetStoreEndsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &wild{Memory: storetest.NewMemory()}
		f := newFleet(t, s, fleetOptions)
		c := toolcircuit.MustNew(key, toolcircuit.Options{Policy: fleetPolicy})
		require.NoError(t, f.Join(c, key))
		synctest.Wait()
		s.set(runtime.Goexit)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				toolcircuit.Do(context.Background(), c, func(context.Context) (int, error) { return 0, errDown })
			})
		}
		wg.Wait()
		require.Equal(t, open, c.State())
		time.Sleep(10 * time.Second)
		wg.Go(func() { toolcircuit.Do(context.Background(), c, func(context.Context) (int, error) { return 0, nil }) })
		wg.Wait()
		time.Sleep(10 * time.Second)
		wg.Go(func() { toolcircuit.Do(context.Background(), c, func(context.Context) (int, error) { return 0, nil }) })
		wg.Wait()
		require.Equal(t, closed, c.State())
		s.set(nil)
		time.Sleep(10 * time.Second)
		require.Equal(t, toolcircuit.SharedOK, c.Snapshot().Shared)
	})
}

// A Store that ignores its context holds no call for longer than OpTimeout, is given up on, and has
// one request of each kind.
func TestFleetStuckStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &wild{Memory: storetest.NewMemory()}
		c := toolcircuit.MustNew(key, toolcircuit.Options{Policy: fleetPolicy})
		require.NoError(t, newFleet(t, s, fleetOptions).Join(c, key))
		synctest.Wait()
		thawed, stuck := make(chan struct{}), new(atomic.Int32)
		s.set(func() { stuck.Add(1); <-thawed })
		for range 1000 {
			began := time.Now()
			toolcircuit.Do(context.Background(), c, func(context.Context) (int, error) { return 0, errDown })
			require.LessOrEqual(t, time.Since(began), 2*(fleetOptions.OpTimeout+5*time.Millisecond))
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, toolcircuit.SharedDegraded, c.Snapshot().Shared)
		require.LessOrEqual(t, stuck.Load(), int32(3))
		s.set(nil)
		close(thawed)
		time.Sleep(10 * time.Second)
		require.Equal(t, toolcircuit.SharedOK, c.Snapshot().Shared)
		_, err := toolcircuit.Do(context.Background(), c, func(context.Context) (int, error) { return 0, nil })
		require.NoError(t, err)
		synctest.Wait()
		require.False(t, s.Record(key).Open)
	})
}

// A Store that never returns from one method still hears all that the others tell it.
func TestFleetStuckMethod(t *testing.T) {
	for stuck, name := range map[storetest.Method]string{storetest.Trip: "Trip", storetest.Settle: "Settle", storetest.Reset: "Reset"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, thawed := &wild{Memory: storetest.NewMemory()}, make(chan struct{})
				defer close(thawed)
				f := newFleet(t, s, fleetOptions)
				fail := func(context.Context) (int, error) { return 0, errDown }
				once := fleetPolicy
				once.FailureThreshold = 1
				join := func(key string, opens bool) *toolcircuit.ToolCircuit {
					c := toolcircuit.MustNew(key, toolcircuit.Options{Policy: once})
					require.NoError(t, f.Join(c, key))
					if opens {
						toolcircuit.Do(t.Context(), c, fail)
					}
					return c
				}
				const each = 8
				var trips, settles, resets []*toolcircuit.ToolCircuit
				for i := range each {
					trips = append(trips, join(fmt.Sprint("trip ", i), false))
					settles = append(settles, join(fmt.Sprint("settle ", i), true))
					resets = append(resets, join(fmt.Sprint("reset ", i), true))
				}
				stray := join("stray", true)
				time.Sleep(once.Cooldown)
				var probes []*toolcircuit.Permit
				for _, c := range settles {
					p, err := c.Allow(t.Context())
					require.NoError(t, err)
					probes = append(probes, &p)
				}
				s.set(func() { <-thawed }, stuck)
				for i := range each {
					toolcircuit.Do(t.Context(), trips[i], fail)
					settle(probes[i], nil)
					resets[i].Reset()
				}
				s.Set(storetest.Fault{LoseAnswer: true}, storetest.Acquire)
				_, err := stray.Allow(t.Context())
				require.Error(t, err)
				s.Set(storetest.Fault{})
				time.Sleep(5 * time.Second)
				for i := range each {
					require.Equal(t, stuck != storetest.Trip, s.Record(fmt.Sprint("trip ", i)).Open, "trip %d", i)
					require.Equal(t, stuck == storetest.Settle, s.Record(fmt.Sprint("settle ", i)).Open, "settle %d", i)
					require.Equal(t, stuck == storetest.Reset, s.Record(fmt.Sprint("reset ", i)).Open, "reset %d", i)
				}
				runtime.KeepAlive([][]*toolcircuit.ToolCircuit{trips, settles, resets})
			})
		})
	}
}

// The text of a store's panic is one line. A Watch that ends without an error is told as that.
func TestFleetStoreErrorTexts(t *testing.T) {
	for text, fault := range map[string]*wild{
		"toolcircuit: the store panicked: lost":                    {do: func() { panic("lost") }},
		"toolcircuit: Watch returned nil before its context ended": {quits: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			fault.Memory = storetest.NewMemory()
			var told []error
			o := fleetOptions
			o.OnEvent = func(_ context.Context, e toolcircuit.Event) { told = append(told, e.Err) }
			require.NoError(t, newFleet(t, fault, o).Join(toolcircuit.MustNew(key, toolcircuit.Options{}), key))
			time.Sleep(10 * time.Second)
			synctest.Wait()
			require.Len(t, told, 1)
			require.EqualError(t, told[0], text)
			var p *toolcircuit.PanicError
			require.Equal(t, fault.do != nil, errors.As(told[0], &p))
		})
	}
}

// wild is a Store that does something in each request, or in those of some methods.
type wild struct {
	*storetest.Memory
	mu    sync.Mutex
	do    func()
	in    []storetest.Method // none: all but Watch
	quits bool               // Watch returns nil at once
}

func (w *wild) set(do func(), in ...storetest.Method) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.do, w.in = do, in
}

func (w *wild) act(m storetest.Method) {
	w.mu.Lock()
	do, in := w.do, w.in
	w.mu.Unlock()
	if do != nil && (len(in) == 0 || slices.Contains(in, m)) {
		do()
	}
}

func (w *wild) Watch(ctx context.Context, changed func(string, toolcircuit.View), resync func()) error {
	if w.quits {
		return nil
	}
	return w.Memory.Watch(ctx, changed, resync)
}

func (w *wild) Load(ctx context.Context, keys []string) ([]toolcircuit.View, error) {
	w.act(storetest.Load)
	return w.Memory.Load(ctx, keys)
}

func (w *wild) Trip(ctx context.Context, key string, t toolcircuit.TripRequest) (toolcircuit.View, error) {
	w.act(storetest.Trip)
	return w.Memory.Trip(ctx, key, t)
}

func (w *wild) Acquire(ctx context.Context, key string, a toolcircuit.AcquireRequest) (toolcircuit.View, error) {
	w.act(storetest.Acquire)
	return w.Memory.Acquire(ctx, key, a)
}

func (w *wild) Settle(ctx context.Context, key string, f toolcircuit.Fence, o toolcircuit.Settlement) (toolcircuit.View, error) {
	w.act(storetest.Settle)
	return w.Memory.Settle(ctx, key, f, o)
}

func (w *wild) Reset(ctx context.Context, key string, r toolcircuit.ResetRequest) (toolcircuit.View, error) {
	w.act(storetest.Reset)
	return w.Memory.Reset(ctx, key, r)
}

// Nobody polls what is not used, and new circuits are loaded once.
func TestFleetPollsWhatIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		f := newFleet(t, store, toolcircuit.FleetOptions{})
		const n = 1000
		circuits := make([]*toolcircuit.ToolCircuit, n)
		for i := range n {
			circuits[i] = toolcircuit.MustNew("a", toolcircuit.Options{Policy: fleetPolicy})
			require.NoError(t, f.Join(circuits[i], fmt.Sprint(i)))
		}
		loads := func() int {
			_, keys := store.Requests(storetest.Load)
			return keys
		}
		ok := func(context.Context) (int, error) { return 0, nil }
		time.Sleep(time.Minute)
		require.GreaterOrEqual(t, loads(), n)
		require.LessOrEqual(t, loads(), 2*n)
		before := loads()
		time.Sleep(time.Hour)
		require.Equal(t, before, loads(), "idle circuits are not polled")

		toolcircuit.Do(context.Background(), circuits[0], ok)
		require.Equal(t, before+1, loads(), "the first call loads")
		toolcircuit.Do(context.Background(), circuits[0], ok)
		require.Equal(t, before+1, loads())
		time.Sleep(time.Minute)
		require.Equal(t, before+2, loads(), "one poll after the last use")
		for range 600 {
			toolcircuit.Do(context.Background(), circuits[0], ok)
			time.Sleep(100 * time.Millisecond)
		}
		require.InDelta(t, before+3+12, loads(), 3, "a poll each 5 s while it is used")
		runtime.KeepAlive(circuits)
	})
}

// A Load of many keys comes in chunks that the store can answer in time.
func TestFleetLoadsInChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{Memory: storetest.NewMemory()}
		f := newFleet(t, store, toolcircuit.FleetOptions{})
		const n = 3000
		circuits := make([]*toolcircuit.ToolCircuit, n)
		for i := range n {
			circuits[i] = toolcircuit.MustNew("a", toolcircuit.Options{})
			require.NoError(t, f.Join(circuits[i], fmt.Sprint(i)))
		}
		time.Sleep(time.Minute)
		require.Equal(t, toolcircuit.SharedOK, circuits[0].Snapshot().Shared)
		require.GreaterOrEqual(t, store.loaded, n)
		runtime.KeepAlive(circuits)
	})
}

// slow is a Store that takes a millisecond for each key that it loads.
type slow struct {
	*storetest.Memory
	loaded int
}

func (s *slow) Load(ctx context.Context, keys []string) ([]toolcircuit.View, error) {
	select {
	case <-time.After(time.Duration(len(keys)) * time.Millisecond):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.loaded += len(keys)
	return s.Memory.Load(ctx, keys)
}

// A store that says nonsense costs no more than one that is away.
func TestF74LyingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lies := []toolcircuit.View{
			{}, {Open: true}, {Epoch: math.MaxUint64},
			{Open: true, Epoch: 7, Remaining: math.MaxInt64, LeaseRemaining: math.MaxInt64, Age: math.MinInt64, Generation: math.MinInt, Failures: -1, Cause: "<script>"},
			{Open: true, Epoch: 8, Remaining: -5, LeaseRemaining: -5, Age: math.MaxInt64, Generation: math.MaxInt, Fence: "x"},
			{Open: true, Epoch: 9, Remaining: time.Hour, Asked: true, Age: -time.Hour},
			{Epoch: 10, Generation: math.MaxInt, Age: -time.Hour, Remaining: time.Hour, LeaseRemaining: time.Hour},
		}
		for i, lie := range lies {
			f := newFleet(t, liar{lie}, fleetOptions)
			c := toolcircuit.MustNew(key, toolcircuit.Options{Policy: fleetPolicy})
			require.NoError(t, f.Join(c, key))
			ran := 0
			for range 30000 {
				began := time.Now()
				_, err := toolcircuit.Do(context.Background(), c, func(context.Context) (int, error) { ran++; return 0, nil })
				require.LessOrEqual(t, time.Since(began), 100*time.Millisecond)
				if err != nil {
					require.ErrorIs(t, err, toolcircuit.ErrCircuitOpen)
				}
				r, err := toolcircuit.ResultOf(c, 0, toolcircuit.Verdict{}, err)
				require.NoError(t, err)
				require.NotContains(t, r.Message, "script")
				time.Sleep(20 * time.Millisecond)
			}
			require.Positive(t, ran, "lie %d: never stuck", i)
		}
	})
}

// liar is a Store that always says the same.
type liar struct{ toolcircuit.View }

func (l liar) Load(_ context.Context, keys []string) ([]toolcircuit.View, error) {
	views := make([]toolcircuit.View, len(keys))
	for i := range views {
		views[i] = l.View
	}
	return views, nil
}

func (l liar) Trip(context.Context, string, toolcircuit.TripRequest) (toolcircuit.View, error) {
	return l.View, nil
}

func (l liar) Acquire(context.Context, string, toolcircuit.AcquireRequest) (toolcircuit.View, error) {
	return l.View, nil
}

func (l liar) Settle(context.Context, string, toolcircuit.Fence, toolcircuit.Settlement) (toolcircuit.View, error) {
	return l.View, nil
}

func (l liar) Watch(ctx context.Context, changed func(string, toolcircuit.View), resync func()) error {
	resync()
	for i := range 100 {
		v := l.View
		v.Epoch += uint64(i)
		changed(key, v)
	}
	<-ctx.Done()
	return errors.New("over")
}

// An epoch from the far future makes a worker deaf to nothing that follows.
func TestFleetFarEpoch(t *testing.T) {
	bubble(t, 1, func(t *testing.T, store *storetest.Memory, w []*worker) {
		for _, epoch := range []uint64{1 << 53, math.MaxUint64} {
			far := &far{Memory: store.Peer(), epoch: epoch}
			f := newFleet(t, far, fleetOptions)
			c := toolcircuit.MustNew(key, toolcircuit.Options{Policy: fleetPolicy})
			require.NoError(t, f.Join(c, key))
			synctest.Wait()
			for range 2 { // the first time after a Load, then after a claim
				w[0].fail(3)
				require.Equal(t, toolcircuit.StateOpen, c.State())
				time.Sleep(8 * time.Second)
				_, err := toolcircuit.Do(context.Background(), c, func(context.Context) (int, error) { return 0, nil })
				require.NoError(t, err)
				synctest.Wait()
				w[0].runs(nil)
			}
			require.NoError(t, f.Close(context.Background()))
		}
	})
}

// far is a Store in memory that answers each Load and Acquire with that epoch.
type far struct {
	*storetest.Memory
	epoch uint64
}

func (f *far) Load(ctx context.Context, keys []string) ([]toolcircuit.View, error) {
	views, err := f.Memory.Load(ctx, keys)
	for i := range views {
		views[i].Epoch = f.epoch
	}
	return views, err
}

func (f *far) Acquire(ctx context.Context, key string, a toolcircuit.AcquireRequest) (toolcircuit.View, error) {
	v, err := f.Memory.Acquire(ctx, key, a)
	v.Epoch = f.epoch
	return v, err
}

// TestFleetRounds lets 64 contenders of 8 workers ask for each probe, on purpose too early, until
// they see the circuit closed. Seven rounds of ten: the probe succeeds. Two: the first fails. One:
// the first holder dies and its late success comes after the second has failed. In one more the
// answers to the first claims are lost. TOOLCIRCUIT_ROUNDS is the number of rounds.
func TestFleetRounds(t *testing.T) {
	rounds := 1000
	if n, err := strconv.Atoi(os.Getenv("TOOLCIRCUIT_ROUNDS")); err == nil {
		rounds = n
	}
	p := toolcircuit.Policy{FailureThreshold: 1, Cooldown: 200 * time.Millisecond, Multiplier: 1}
	o := toolcircuit.FleetOptions{Lease: time.Second, OpTimeout: 50 * time.Millisecond}
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		var w []*worker
		for range 8 {
			w = append(w, newWorker(t, store.Peer(), p, o))
		}
		synctest.Wait()
		asks, grants, refused := 0, map[string]int{}, 0
		for round := range rounds {
			kind := []string{"ok", "ok", "ok", "ok", "ok", "ok", "ok", "fails", "fails", "dies", "lost"}[round%11]
			r := contest(t, store, w, kind)
			asks += r.asks
			refused += r.refused
			grants[fmt.Sprint(kind, " ", r.grants)]++
			want := map[string]int{"ok": 1, "fails": 2, "dies": 3, "lost": 1}[kind]
			require.Equal(t, want, r.grants, "round %d: the grants when the probe %s", round, kind)
			require.LessOrEqual(t, r.most, 1, "round %d: probes at once", round)
		}
		t.Logf("%d rounds, %d asks, grants per round %v, late verdicts refused %d", rounds, asks, grants, refused)
	})
}

// contested is what a round came to.
type contested struct{ asks, grants, most, refused int }

// contest is one round.
func contest(t *testing.T, store *storetest.Memory, w []*worker, kind string) (r contested) {
	w[0].runs(errDown)
	synctest.Wait()
	allAre(t, open, w)
	due := time.Now().Add(store.Record(key).Remaining)
	if kind == "lost" {
		for _, w := range w {
			w.store.Set(storetest.Fault{LoseAnswer: true}, storetest.Acquire)
		}
		time.AfterFunc(time.Until(due)+100*time.Millisecond, func() {
			for _, w := range w {
				w.store.Set(storetest.Fault{})
			}
		})
	}
	time.Sleep(time.Until(due) - 25*time.Millisecond)
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := 0
	enter := func(by int) (nth int) {
		mu.Lock()
		defer mu.Unlock()
		r.grants++
		if out++; out > r.most {
			r.most = out
		}
		return r.grants
	}
	leave := func() {
		mu.Lock()
		defer mu.Unlock()
		out--
	}
	for i := range 64 {
		wg.Go(func() {
			w := w[i%8]
			for w.State() != closed {
				mu.Lock()
				r.asks++
				mu.Unlock()
				p, err := w.Allow(context.Background())
				if err != nil || !p.Probe() {
					p.Release()
					time.Sleep(10 * time.Millisecond)
					continue
				}
				require.False(t, time.Now().Before(due), "a probe before the cooldown is over")
				nth := enter(i)
				switch {
				case kind == "dies" && nth == 1:
					w.store.Set(storetest.Fault{Err: errDown})
					lease := time.Now().Add(time.Second - time.Millisecond)
					time.Sleep(time.Until(lease))
					leave()
					time.Sleep(100 * time.Millisecond) // the second has failed by then
					epoch := store.Record(key).Epoch
					w.store.Set(storetest.Fault{})
					settle(&p, nil)
					synctest.Wait()
					mu.Lock()
					if store.Record(key).Epoch == epoch {
						r.refused++
					}
					mu.Unlock()
					require.NotEqual(t, closed, w.State(), "a late verdict was taken")
					continue
				case kind != "ok" && kind != "lost" && (nth == 1 || kind == "dies" && nth == 2):
					time.Sleep(5 * time.Millisecond)
					leave()
					settle(&p, errDown)
				default:
					time.Sleep(5 * time.Millisecond)
					leave()
					settle(&p, nil)
				}
			}
		})
	}
	wg.Wait()
	time.Sleep(3 * time.Second) // who was cut off is back
	allAre(t, closed, w)
	return r
}

// A worker finds a dependency down and ends. The one that takes its place knows.
func ExampleFleet() {
	store := storetest.NewMemory() // a Store of yours
	worker := func() (*toolcircuit.Fleet, *toolcircuit.ToolCircuit) {
		fleet, err := toolcircuit.NewFleet(store, toolcircuit.FleetOptions{})
		if err != nil {
			panic(err)
		}
		circuit := toolcircuit.MustNew("search-api", toolcircuit.Options{Policy: toolcircuit.Policy{FailureThreshold: 1}})
		err = fleet.Join(circuit, "search-api")
		if err != nil {
			panic(err)
		}
		return fleet, circuit
	}
	ctx := context.Background()
	fleet, circuit := worker()
	toolcircuit.Do(ctx, circuit, func(context.Context) (string, error) { return "", &toolcircuit.HTTPError{StatusCode: 503} })
	fleet.Close(ctx)

	fleet, circuit = worker() // restarted
	defer fleet.Close(ctx)
	_, err := toolcircuit.Do(ctx, circuit, func(context.Context) (string, error) { return "not called", nil })
	fmt.Println(err)
	// Output: toolcircuit: search-api: dependency_open
}

// A circuit that has joined is small, and there may be very many.
func TestFleetMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20_000
		f := newFleet(t, storetest.NewMemory(), toolcircuit.FleetOptions{})
		first := toolcircuit.MustNew("first", toolcircuit.Options{})
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprint("dependency-", i)
		}
		circuits := make([]*toolcircuit.ToolCircuit, n)
		before := heap()
		for i, name := range names {
			circuits[i] = first.Twin(name)
			require.NoError(t, f.Join(circuits[i], name))
		}
		time.Sleep(time.Minute) // all are loaded, and idle
		joined := float64(heap()-before) / n
		for _, c := range circuits {
			toolcircuit.Do(context.Background(), c, func(context.Context) (int, error) { return 0, nil })
		}
		time.Sleep(time.Minute)
		used := float64(heap()-before) / n
		t.Logf("%.0f bytes per joined circuit, %.0f after a call", joined, used)
		require.LessOrEqual(t, joined, 448.0)
		require.LessOrEqual(t, used, 448.0)
		runtime.KeepAlive(circuits)
		runtime.KeepAlive(names)
	})
}

// BenchmarkFleet has batches of calls by turns: of a circuit that is in no Fleet, and of one that
// shares its state. It reports the medians of the batches and their ratio.
func BenchmarkFleet(b *testing.B) {
	const batch = 1000
	for _, c := range []struct {
		name   string
		policy toolcircuit.Policy
		fail   error
	}{
		{"closed", toolcircuit.Policy{}, nil},
		{"refused", toolcircuit.Policy{FailureThreshold: 1, Cooldown: time.Hour}, toolcircuit.Fault(errBench)},
	} {
		for name, fault := range map[string]storetest.Fault{"healthy": {}, "frozen": {Frozen: true}, "failing": {Err: errBench}} {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				store := storetest.NewMemory()
				f, err := toolcircuit.NewFleet(store, toolcircuit.FleetOptions{})
				if err != nil {
					b.Fatal(err)
				}
				defer f.Close(context.Background())
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				var calls [2]func(context.Context)
				for i := range calls {
					circuit := newBench(toolcircuit.Options{Policy: c.policy})
					if i == 1 {
						if err := f.Join(circuit, "search-api"); err != nil {
							b.Fatal(err)
						}
						store.Set(fault)
					}
					calls[i] = benchDo(circuit, c.fail)
					calls[i](ctx) // opens it, or is its first use
				}
				var took [2][]time.Duration
				b.ReportAllocs()
				for b.Loop() {
					for i, call := range calls {
						began := time.Now()
						for range batch {
							call(ctx)
						}
						took[i] = append(took[i], time.Since(began))
					}
				}
				var median [2]float64
				for i, all := range took {
					slices.Sort(all)
					median[i] = float64(all[len(all)/2]) / batch
				}
				b.ReportMetric(median[0], "ns/unshared")
				b.ReportMetric(median[1], "ns/shared")
				b.ReportMetric(median[1]/median[0], "shared/unshared")
			})
		}
	}
}

// Workers with the same Seed wait differently while the store is gone, so that they do not come
// back at one moment.
func TestFleetWorkersSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []time.Duration
		for range 2 {
			store := storetest.NewMemory()
			store.Set(storetest.Fault{Err: errDown})
			c := toolcircuit.MustNew("search-api", toolcircuit.Options{
				Policy: toolcircuit.Policy{FailureThreshold: 1, Jitter: 0.5},
				Seed:   1,
			})
			require.NoError(t, newFleet(t, store, toolcircuit.FleetOptions{}).Join(c, "search-api"))
			toolcircuit.Do(t.Context(), c, func(context.Context) (int, error) { return 0, toolcircuit.Fault(errDown) })
			waits = append(waits, time.Until(c.Snapshot().RetryAt))
		}
		require.NotEqual(t, waits[0], waits[1])
	})
}
