package health_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit/internal/health"
)

func TestAsk(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		send func(context.Context) (int, error)
		err  string
		took time.Duration
	}{
		"answered": {send: func(context.Context) (int, error) { return 7, nil }},
		"slow":     {send: func(context.Context) (int, error) { time.Sleep(timeout - 1); return 7, nil }, took: timeout - 1},
		"in grace": {send: func(context.Context) (int, error) { time.Sleep(timeout + time.Millisecond); return 7, nil }, took: timeout + time.Millisecond},
		"fails":    {send: func(context.Context) (int, error) { return 0, errDown }, err: "down"},
		"hangs":    {send: func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }, err: "context deadline exceeded", took: timeout},
		"panics":   {send: func(context.Context) (int, error) { panic("lost") }, err: "panicked: lost"},
		"ends":     {send: func(context.Context) (int, error) { runtime.Goexit(); return 0, nil }, err: health.ErrNoAnswer.Error()},
		"too late": {ctx: ended, send: func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }, err: "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				if c.ctx == nil {
					c.ctx = context.Background()
				}
				began := time.Now()
				answer, err := health.Ask(c.ctx, r.Health, health.Load, c.send)
				require.Equal(t, c.took, time.Since(began))
				if c.err != "" {
					require.EqualError(t, err, c.err)
				} else {
					require.NoError(t, err)
					require.Equal(t, 7, answer)
				}
				require.Equal(t, c.err != "", r.Sick(), "it is noted")
			})
		})
	}
}

// A store that ignores its context holds up neither the caller nor other classes of requests.
func TestStuck(t *testing.T) {
	run(t, func(r *rig) {
		thawed, sent := make(chan struct{}), new(atomic.Int32)
		ask := func(class health.Class) error {
			_, err := health.Ask(context.Background(), r.Health, class, func(context.Context) (int, error) { sent.Add(1); <-thawed; return 0, nil })
			return err
		}
		for range 5 {
			began := time.Now()
			require.ErrorIs(t, ask(health.Trip), health.ErrNoAnswer)
			require.LessOrEqual(t, time.Since(began), timeout+5*time.Millisecond)
			require.True(t, r.Sick())
		}
		require.EqualValues(t, 1, sent.Load())
		require.ErrorIs(t, ask(health.Settle), health.ErrNoAnswer)
		require.EqualValues(t, 2, sent.Load())
		close(thawed)
		synctest.Wait()
		require.NoError(t, ask(health.Trip))
		require.NoError(t, ask(health.Settle))
	})
}

// Chunk follows how fast the store is.
func TestChunk(t *testing.T) {
	h := health.New(timeout, panicked, nil)
	require.Equal(t, 8, h.Chunk())
	for _, step := range []struct {
		keys     int
		took     time.Duration
		answered bool
		chunk    int
	}{
		{8, time.Millisecond, true, 16},
		{3, time.Millisecond, true, 16}, // says nothing of a full one
		{16, timeout / 4, true, 16},     // is not quick
		{16, timeout, false, 8},
		{3, timeout, false, 1},
		{1, timeout, false, 1},
		{1, 0, true, 2},
	} {
		h.Loaded(step.keys, step.took, step.answered)
		require.Equal(t, step.chunk, h.Chunk(), "%+v", step)
	}
	for range 20 {
		h.Loaded(h.Chunk(), 0, true)
	}
	require.Equal(t, 256, h.Chunk())
}
