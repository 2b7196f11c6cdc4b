package mcptest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

const guarded = `{"default": {"failureThreshold": 3, "cooldown": "30s", "jitter": 0}, "monitored": ["*"]}`

func echo(ctx context.Context, h host, text string) (reply, error) {
	return h.Call(ctx, "echo", map[string]any{"message": text})
}

// opened connects a host to a server that is there, and returns how long that takes at most, by the
// look of it: the machine may be busy.
func opened(t *testing.T, adapter string, set *toolset.Set, p *processes, version string) (h host, usual time.Duration) {
	t.Helper()
	start := time.Now()
	h = open(t, adapter, set, server{command: p.command}, version)
	_, err := echo(t.Context(), h, "a")
	require.NoError(t, err)
	return h, 3 * time.Since(start)
}

// N34: a server that is killed while nobody calls it costs no call.
func TestKilledWhileIdle(t *testing.T) {
	each(t, func(t *testing.T, adapter, version string) {
		set, seen := newSet(t, guarded)
		p, _ := newFake(t)
		h, usual := opened(t, adapter, set, p, version)
		for life := range 3 {
			p.kill(h)
			start := time.Now()
			r, err := echo(t.Context(), h, "b")
			back := time.Since(start)
			require.NoError(t, err)
			require.Equal(t, "b", r.text)
			t.Logf("killed while idle: no call lost, back after %v", back.Round(time.Millisecond))
			require.Less(t, back, 2*time.Second+usual)
			require.Equal(t, life+2, p.started())
		}
		names, err := h.List(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"echo", "work"}, names)
		n, _ := seen.of("echo")
		require.Equal(t, 4, n)
	})
}

// N32, N34: killed in mid-call the server costs the calls that were under way, each of them once.
func TestKilledInMidCall(t *testing.T) {
	each(t, func(t *testing.T, adapter, version string) {
		set, seen := newSet(t, guarded)
		p, log := newFake(t)
		h, usual := opened(t, adapter, set, p, version)
		var wg sync.WaitGroup
		for _, id := range []string{"1", "2", "3", "4", "5"} {
			wg.Go(func() {
				_, err := h.Call(t.Context(), "work", map[string]any{"id": id, "ms": 60_000})
				require.Error(t, err)
			})
		}
		require.True(t, eventually(time.Minute, func() bool { return len(executed(t, log)) == 5 }))
		p.kill(h)
		wg.Wait()
		start := time.Now()
		r, err := echo(t.Context(), h, "b")
		back := time.Since(start)
		require.NoError(t, err)
		require.Equal(t, "b", r.text)
		require.Less(t, back, 2*time.Second+usual)
		n, kinds := seen.of("work")
		t.Logf("killed in mid-call: 5 calls reached the server and were lost, settled as %v; back after %v", kinds, back.Round(time.Millisecond))
		require.Equal(t, 5, n)
		for id, times := range executed(t, log) {
			require.Equal(t, 1, times, id)
		}
	})
}

// A server that cannot be started for a while is back within two seconds of being startable.
func TestNotStartable(t *testing.T) {
	each(t, func(t *testing.T, adapter, version string) {
		set, _ := newSet(t, guarded)
		p, _ := newFake(t)
		h, usual := opened(t, adapter, set, p, version)
		startable := time.Now().Add(3 * time.Second)
		p.mu.Lock()
		p.fail = func() bool { return time.Now().Before(startable) }
		p.mu.Unlock()
		p.kill(h)
		blocked := 0
		require.True(t, eventually(time.Minute, func() bool {
			r, err := echo(t.Context(), h, "b")
			if b, ok := r.blocked(); err == nil && ok {
				require.False(t, *b.Executed)
				require.Equal(t, "mcp:fake", b.Dependency)
				blocked++
			}
			return err == nil && r.text == "b"
		}))
		back := time.Since(startable)
		t.Logf("not startable for 3s: %d calls blocked, %d starts, back %v after it was startable",
			blocked, p.started()-1, back.Round(time.Millisecond))
		require.Less(t, back, 2*time.Second+usual)
		require.Less(t, p.started(), 15)
	})
}

// N37: a stopped server whose pipe is full holds a call up no longer than its CallTimeout, and its
// siblings neither.
func TestStoppedWithAFullPipe(t *testing.T) {
	each(t, func(t *testing.T, adapter, version string) {
		const timeout = time.Second
		set, seen := newSet(t, strings.Replace(guarded, `"30s"`, `"2s", "callTimeout": "1s"`, 1))
		p, log := newFake(t)
		h, _ := opened(t, adapter, set, p, version)
		big := strings.Repeat("x", 4<<20)
		p.signal(syscall.SIGSTOP)
		start := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := echo(t.Context(), h, big)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		wg.Go(func() {
			time.Sleep(timeout / 2)
			_, err := h.Call(t.Context(), "work", map[string]any{"id": "never", "ms": 0})
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
		wg.Wait()
		took := time.Since(start)
		require.Less(t, took, timeout+2*time.Minute) // to encode takes its time, and no context ends it
		var read string
		require.True(t, eventually(time.Minute, func() bool {
			r, err := echo(t.Context(), h, "b")
			b, ok := r.blocked()
			read = b.Message
			return err == nil && ok
		}))
		require.True(t, eventually(time.Minute, func() bool { // where a message was not even begun a ping tells
			return set.Circuit(t.Context(), "mcp:fake").State() != toolcircuit.StateClosed
		}))
		_, kinds := seen.of("echo")
		p.signal(syscall.SIGCONT)
		start = time.Now()
		require.True(t, eventually(time.Minute, func() bool {
			r, err := echo(t.Context(), h, "c")
			return err == nil && r.text == "c"
		}))
		t.Logf("stopped with a full pipe: 4 calls left after %v, settled as %v; read: %s; back %v after it went on (cooldown 2s)",
			took.Round(time.Millisecond), kinds, read, time.Since(start).Round(time.Millisecond))
		sent, _ := seen.of("work")
		require.LessOrEqual(t, len(executed(t, log)), sent, "what waited for its turn was not sent")
	})
}

// A server that answers late and is there otherwise costs its tool alone.
func TestSlowAnswers(t *testing.T) {
	each(t, func(t *testing.T, adapter, version string) {
		set, seen := newSet(t, strings.Replace(guarded, `"30s"`, `"30s", "callTimeout": "1s"`, 1))
		p, log := newFake(t)
		h, _ := opened(t, adapter, set, p, version)
		for i := range 3 {
			start := time.Now()
			_, err := h.Call(t.Context(), "work", map[string]any{"id": fmt.Sprint(i), "ms": 60_000})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(start), 5*time.Second)
		}
		r, err := h.Call(t.Context(), "work", map[string]any{"id": "more", "ms": 0})
		require.NoError(t, err)
		b, ok := r.blocked()
		require.True(t, ok)
		require.Equal(t, "work", b.Dependency)
		r, err = echo(t.Context(), h, "b")
		require.NoError(t, err)
		require.Equal(t, "b", r.text)
		_, kinds := seen.of("mcp:fake")
		require.NotContains(t, kinds, "timeout")
		require.Len(t, executed(t, log), 3)
		t.Logf("slow answers: 3 of 4 calls reached the server; siblings fine; read: %s", b.Message)
	})
}
