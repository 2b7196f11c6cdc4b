package mcp

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// newTestLine returns a line whose sessions are numbers, and what was retired.
func newTestLine(renew func(ctx context.Context, dead int) (int, error)) (*Line[int], *sync.Map) {
	retired := new(sync.Map)
	l := NewLine(1)
	l.Timeout = 30 * time.Second
	l.Renew = func(ctx context.Context, dead, _ int) (int, error) { return renew(ctx, dead) }
	l.Retire = func(s int) { retired.Store(s, true) }
	return l, retired
}

func TestLineRenewsOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		l, retired := newTestLine(func(_ context.Context, dead int) (int, error) {
			n.Add(1)
			time.Sleep(time.Second)
			return dead + 1, nil
		})
		require.True(t, l.Gone(0), "it has answered nothing")
		require.False(t, l.Gone(0), "no news")
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				s, gen, err := l.Await(t.Context(), false)
				require.NoError(t, err)
				require.Equal(t, 2, s)
				require.Equal(t, 1, gen)
			})
		}
		wg.Wait()
		synctest.Wait()
		require.EqualValues(t, 1, n.Load())
		_, ok := retired.Load(1)
		require.True(t, ok)

		l.Gone(0) // late news of the old session
		_, _, dead := l.Now()
		require.False(t, dead)
		l.Answered(1)
		require.False(t, l.Gone(1), "it has answered")
	})
}

func TestLineOutlivesItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newTestLine(func(ctx context.Context, dead int) (int, error) {
			time.Sleep(10 * time.Second)
			return dead + 1, ctx.Err()
		})
		l.Gone(0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := l.Await(ctx, false)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		start := time.Now()
		s, _, err := l.Await(t.Context(), false)
		require.NoError(t, err)
		require.Equal(t, 2, s)
		require.Equal(t, 9*time.Second, time.Since(start))
	})
}

func TestLineThatCannotBeRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		down := errors.New("down")
		l, _ := newTestLine(func(context.Context, int) (int, error) { n.Add(1); return 0, down })
		l.Gone(0)
		for _, step := range []struct {
			pass     time.Duration
			now      bool
			attempts int64
		}{
			{0, false, 1},
			{49 * time.Millisecond, false, 1},
			{0, true, 2}, // a probe does not wait
			{99 * time.Millisecond, false, 2},
			{time.Millisecond, false, 3},
			{time.Second, false, 4},
			{time.Second, false, 5},
			{time.Second, false, 6},
			{time.Second, false, 7},
		} {
			time.Sleep(step.pass)
			_, _, err := l.Await(t.Context(), step.now)
			require.ErrorIs(t, err, down)
			require.Equal(t, step.attempts, n.Load())
		}
		wait, early := l.Pause()
		require.Equal(t, time.Second, wait)
		require.True(t, early)
		time.Sleep(30 * time.Second)
		_, early = l.Pause()
		require.False(t, early)
	})
}

func TestRenewThatDoesNotReturn(t *testing.T) {
	for name, end := range map[string]func(context.Context){
		"panics":  func(context.Context) { panic("x") },
		"Goexits": func(context.Context) { runtime.Goexit() },
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := newTestLine(func(ctx context.Context, _ int) (int, error) { end(ctx); return 0, nil })
			l.Gone(0)
			_, _, err := l.Await(t.Context(), false)
			var panicked *PanicError
			require.ErrorAs(t, err, &panicked)
		})
	}
}

// A Renew that ignores its context is a failure once Timeout is over, and does not keep others from
// being tried.
func TestRenewThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		never := make(chan struct{})
		l, retired := newTestLine(func(context.Context, int) (int, error) {
			i := n.Add(1)
			if i < 3 {
				<-never
			}
			return 10 + int(i), nil
		})
		l.Gone(0)
		for i := range 2 {
			start := time.Now()
			_, _, err := l.Await(t.Context(), false)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, l.Timeout, time.Since(start))
			require.EqualValues(t, i+1, n.Load())
			wait, early := l.Pause()
			require.False(t, early)
			time.Sleep(wait)
		}
		s, _, err := l.Await(t.Context(), false)
		require.NoError(t, err)
		require.Equal(t, 13, s)
		close(never)
		synctest.Wait()
		for _, late := range []int{11, 12} {
			_, ok := retired.Load(late)
			require.True(t, ok, "what comes late is closed")
		}
		s, _, _ = l.Now()
		require.Equal(t, 13, s)
	})
}

func TestLineCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, retired := newTestLine(func(ctx context.Context, dead int) (int, error) {
			<-ctx.Done()
			return dead + 1, nil
		})
		l.Gone(0)
		done := make(chan error)
		go func() {
			_, _, err := l.Await(t.Context(), false)
			done <- err
		}()
		synctest.Wait()
		_, heir := l.Close()
		require.False(t, heir)
		require.ErrorIs(t, <-done, ErrClosed, "no failure of the server's")
		synctest.Wait()
		_, ok := retired.Load(2)
		require.True(t, ok, "what comes late is closed")
		_, _, err := l.Await(t.Context(), false)
		require.ErrorIs(t, err, ErrClosed)
	})
}

// A 400 is the session's fault, unless the next session has the same and has answered nothing.
func TestDoubt(t *testing.T) { synctest.Test(t, testDoubt) }

func testDoubt(t *testing.T) {
	l, _ := newTestLine(func(_ context.Context, dead int) (int, error) { return dead + 1, nil })
	renewed := func() int {
		_, gen, err := l.Await(t.Context(), false)
		require.NoError(t, err)
		return gen
	}
	require.True(t, l.Doubt(0))
	gen := renewed()
	require.True(t, l.Doubt(0), "of a session that has been replaced")
	for range 3 {
		require.False(t, l.Doubt(gen), "the call's own")
	}
	time.Sleep(l.Timeout)
	require.True(t, l.Doubt(gen), "not for ever: it may be restarted twice")
	gen = renewed()
	l.Answered(gen)
	require.True(t, l.Doubt(gen))
}
