package health_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit/internal/health"
)

var errDown = errors.New("down")

const timeout = 50 * time.Millisecond

func panicked(value any) error { return fmt.Errorf("panicked: %v", value) }

// rig is a Health and what it told.
type rig struct {
	*testing.T
	*health.Health
	told []health.News
}

func run(t *testing.T, test func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t}
		r.Health = health.New(timeout, panicked, func(n health.News) { r.told = append(r.told, n) })
		test(r)
	})
}

// fails notes n failures, each when the next attempt is due.
func (r *rig) fails(n int, class health.Class) {
	for range n {
		time.Sleep(time.Until(r.RetryAt()))
		r.Note(class, errDown)
	}
}

// is checks what calls and a reader see.
func (r *rig) is(reachable, degraded bool, told int) {
	r.Helper()
	synctest.Wait()
	_, ok := r.Reachable()
	require.Equal(r, reachable, ok, "reachable")
	require.Equal(r, degraded, r.Degraded(), "degraded")
	require.Len(r, r.told, told)
}

// A store that is away is given up on after three attempts, and is back with the first answer.
func TestGivenUpOn(t *testing.T) {
	run(t, func(r *rig) {
		r.is(true, false, 0)
		r.Note(health.Load, errDown)
		r.is(false, false, 0)
		wait, _ := r.Reachable()
		require.Equal(r, time.Until(r.RetryAt())+timeout, wait, "the next attempt has ended by then")
		require.GreaterOrEqual(r, time.Until(r.RetryAt()), 500*time.Millisecond)
		require.Less(r, time.Until(r.RetryAt()), time.Second)
		time.Sleep(time.Until(r.RetryAt()) + timeout + time.Second)
		wait, _ = r.Reachable()
		require.Equal(r, time.Millisecond, wait, "an attempt is overdue")
		r.fails(1, health.Load)
		r.is(false, false, 0)
		r.fails(1, health.Load)
		r.is(false, true, 1)
		wait, _ = r.Reachable()
		require.Zero(r, wait)
		require.Equal(r, health.News{Degraded: true, At: time.Now(), Err: errDown}, r.told[0])
		r.Note(health.Load, nil)
		require.False(r, r.Sick())
		r.is(true, false, 2)
		require.Equal(r, health.News{At: time.Now()}, r.told[1])
	})
}

// What fails together counts once.
func TestTogether(t *testing.T) {
	run(t, func(r *rig) {
		for range 100 {
			r.Note(health.Claim, errDown)
		}
		require.True(r, r.Sick())
		r.is(false, false, 0)
		r.Note(health.Settle, nil)
		r.fails(2, health.Load)
		r.is(false, false, 0)
	})
}

// A store that answers all but one class of requests is degraded, and still asked.
func TestOneClass(t *testing.T) {
	run(t, func(r *rig) {
		for range 3 {
			require.False(r, r.Refuses(health.Claim))
			r.fails(1, health.Claim)
			r.Note(health.Load, nil)
		}
		require.True(r, r.Refuses(health.Claim))
		require.False(r, r.Refuses(health.Settle))
		r.is(true, true, 1)
		r.Settled()
		require.False(r, r.Refuses(health.Claim), "there is nothing left to claim")
		r.is(true, false, 2)
	})
	run(t, func(r *rig) { // no opening is left to tell
		r.fails(3, health.Trip)
		r.Note(health.Load, nil)
		r.Moot(health.Trip)
		r.is(true, true, 1)
		r.Note(health.Settle, nil)
		r.is(true, true, 1)
		r.Moot(health.Trip)
		r.is(true, false, 2)
	})
	run(t, func(r *rig) { // it was away, so its refusals are old
		r.fails(2, health.Settle)
		r.fails(1, health.Load)
		r.is(false, true, 1)
		r.Note(health.Load, nil)
		r.is(true, false, 2)
		r.fails(1, health.Settle)
		r.is(false, false, 2)
	})
}

// A subscription that cannot be made does not keep calls from asking.
func TestWatch(t *testing.T) {
	run(t, func(r *rig) {
		for range 3 {
			r.Note(health.Watch, errDown)
		}
		r.is(true, true, 1)
		r.Note(health.Watch, nil)
		r.is(true, false, 2)
	})
}

func TestUnusedAndClose(t *testing.T) {
	run(t, func(r *rig) {
		r.fails(1, health.Load)
		r.Unused()
		r.is(true, false, 0)
		r.Close()
		r.is(false, false, 0)
		wait, _ := r.Reachable()
		require.Zero(r, wait)
	})
}

// A hook that panics, ends its goroutine or blocks delays the news behind it, and nothing else.
func TestHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, told := make(chan struct{}), []bool{}
		h := health.New(timeout, panicked, func(n health.News) {
			<-release
			told = append(told, n.Degraded)
			if n.Degraded {
				panic("dropped")
			}
			runtime.Goexit()
		})
		for range 2 {
			for range 3 {
				h.Note(health.Watch, errDown)
			}
			h.Note(health.Watch, nil)
		}
		require.False(t, h.Degraded())
		close(release)
		synctest.Wait()
		require.Equal(t, []bool{true, false, true, false}, told)
		health.New(timeout, panicked, nil).Note(health.Load, errDown)
	})
}
