package window_test

import (
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit/internal/window"
)

const length = 16 * time.Second // one second a slot

func TestWindowSlides(t *testing.T) {
	c := clock.NewMock()
	w := window.New(c.Now(), length)
	for _, step := range []struct {
		name            string
		pass            time.Duration
		failed, healthy int // calls now
		calls, failures int // in the window then
	}{
		{"empty", 0, 0, 0, 0, 0},
		{"one slot", 0, 1, 2, 3, 1},
		{"the next slot", time.Second, 2, 0, 5, 3},
		{"the last slot before the first goes", 14 * time.Second, 0, 1, 6, 3},
		{"the first slot is gone", time.Second, 0, 0, 3, 2},
		{"a slot of another lap starts at zero", 0, 1, 0, 4, 3},
		{"all gone", 17 * time.Second, 0, 0, 0, 0},
		{"the clock stepped back before the start", -4 * length, 1, 1, 2, 1},
	} {
		c.Set(c.Now().Add(step.pass))
		for range step.failed {
			w.Add(c, true)
		}
		for range step.healthy {
			w.Add(c, false)
		}
		calls, failures := w.Sum(c.Now())
		require.Equal(t, []int{step.calls, step.failures}, []int{calls, failures}, step.name)
	}
}

// A full slot forgets half of its calls and half of its failures, so the rate stays.
func TestFullSlotKeepsTheRate(t *testing.T) {
	c := clock.NewMock()
	w := window.New(c.Now(), length)
	const full = 2*window.MaxMinCalls - 1
	for i := range full {
		w.Add(c, i%4 == 0)
	}
	calls, failures := w.Sum(c.Now())
	require.Equal(t, full, calls)
	require.Equal(t, (full+3)/4, failures)
	w.Add(c, false)
	calls, failures = w.Sum(c.Now())
	require.Equal(t, window.MaxMinCalls, calls, "never below what a policy may ask for")
	require.Equal(t, window.MaxMinCalls/4, failures)
}

// stopped is a clock without a lock, so that calls do meet.
type stopped struct{ clock.Clock }

func (stopped) Since(time.Time) time.Duration { return 0 }

// No call is lost among concurrent ones.
func TestConcurrentCallsAllCount(t *testing.T) {
	c := stopped{}
	w := window.New(time.Unix(0, 0), length)
	const goroutines, each = 8, 100_000
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for range each {
				w.Add(c, g%2 == 0)
			}
		})
	}
	wg.Wait()
	calls, failures := w.Sum(time.Unix(0, 0))
	require.Equal(t, goroutines*each, calls)
	require.Equal(t, goroutines*each/2, failures)
}
