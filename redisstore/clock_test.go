package redisstore_test

import (
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

// Nobody's clock agrees with another's: the probe still comes when the cooldown is over, and once.
func TestClocks(t *testing.T) {
	m := miniredis.RunT(t)
	done := make(chan struct{})
	defer close(done)
	go func() { // its clock is ahead
		for ticker := time.NewTicker(time.Millisecond); ; {
			m.SetTime(time.Now().Add(300 * time.Second))
			select {
			case <-ticker.C:
			case <-done:
				ticker.Stop()
				return
			}
		}
	}()
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
