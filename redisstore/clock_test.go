package redisstore_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/benbjohnson/clock"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

// wrong is a clock that is wrong by a constant.
type wrong struct {
	clock.Clock
	by time.Duration
}

func (w wrong) Now() time.Time                  { return w.Clock.Now().Add(w.by) }
func (w wrong) Since(t time.Time) time.Duration { return w.Now().Sub(t) }
func (w wrong) Until(t time.Time) time.Duration { return t.Sub(w.Now()) }

// stepped returns a server whose clock is ahead, and what moves that clock further.
func stepped(t *testing.T, by time.Duration) (m *miniredis.Miniredis, step func(time.Duration)) {
	m = miniredis.RunT(t)
	var ahead atomic.Int64
	ahead.Store(int64(by))
	done, over := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(done); <-over })
	go func() {
		defer close(over)
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for {
			m.SetTime(time.Now().Add(time.Duration(ahead.Load())))
			select {
			case <-ticker.C:
			case <-done:
				return
			}
		}
	}()
	return m, func(by time.Duration) { ahead.Add(int64(by)); time.Sleep(10 * time.Millisecond) }
}

// Nobody's clock agrees with another's: the probe still comes when the cooldown is over, and once.
func TestClocks(t *testing.T) {
	m, _ := stepped(t, 300*time.Second)
	world := newWorld()
	var all []*worker
	for _, by := range []time.Duration{-time.Hour, 0, time.Hour} {
		w := newWorkerOn(t, open(t, redis.Options{Addr: m.Addr()}, pings), toolcircuit.FleetOptions{},
			toolcircuit.Options{Policy: policy(), Clock: wrong{clock.New(), by}}, tool)
		w.settled(tool)
		all = append(all, w)
	}
	time.Sleep(100 * time.Millisecond)
	opened := time.Now()
	all[0].fail(world, tool)
	agree(t, time.Second, all, tool, toolcircuit.StateOpen)
	before := world.calls(tool)
	var probed time.Time
	for probed.IsZero() {
		for _, w := range all {
			if ran, _ := w.call(world, tool); ran {
				probed = time.Now()
			}
		}
		time.Sleep(time.Millisecond)
		require.Less(t, time.Since(opened), 10*time.Second, "no probe comes")
	}
	require.Equal(t, before+1, world.calls(tool), "probes")
	late := probed.Sub(opened) - policy().Cooldown
	t.Logf("the probe came %v after the cooldown", late)
	require.GreaterOrEqual(t, late, -2*time.Millisecond)
	require.Less(t, late, 50*time.Millisecond+slack)
}

// The server's clock steps an hour on and an hour back during a wait. Workers that know the wait
// keep it, and nobody waits for more than the longest wait besides what was left.
func TestClockSteps(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			m, step := stepped(t, 0)
			world := newWorld()
			newOne := func() *worker {
				w := newWorkerOn(t, open(t, redis.Options{Addr: m.Addr()}, pings), toolcircuit.FleetOptions{Poll: 500 * time.Millisecond}, toolcircuit.Options{Policy: policy()}, tool)
				w.settled(tool)
				return w
			}
			w := newOne()
			time.Sleep(50 * time.Millisecond)
			opened := time.Now()
			w.fail(world, tool)
			world.set(tool, false)
			step(by)
			for ran := false; !ran; time.Sleep(time.Millisecond) {
				ran, _ = w.call(world, tool)
				require.Less(t, time.Since(opened), policy().Cooldown+policy().MaxCooldown+slack)
			}
			require.GreaterOrEqual(t, time.Since(opened), policy().Cooldown-2*time.Millisecond)
			t.Logf("the probe came after %v", time.Since(opened).Round(time.Millisecond))
			eventually(t, 2*time.Second, "a fresh worker agrees", func() bool { return newOne().tools[tool].State() == toolcircuit.StateClosed })
		})
	}
}
