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
)

const guarded = `{"default": {"failureThreshold": 3, "cooldown": "30s", "jitter": 0}, "monitored": ["*"]}`

func echo(ctx context.Context, h host, text string) (reply, error) {
	return h.Call(ctx, "echo", map[string]any{"message": text})
}

// N34: a server that is killed while nobody calls it costs no call.
func TestKilledWhileIdle(t *testing.T) {
	each(t, func(t *testing.T, adapter, version string) {
		set, seen := newSet(t, guarded)
		p, _ := newFake(t)
		h := open(t, adapter, set, server{command: p.command}, version)
		_, err := echo(t.Context(), h, "a")
		require.NoError(t, err)
		for life := range 3 {
			p.signal(syscall.SIGKILL)
			time.Sleep(500 * time.Millisecond) // for the host to see the end of the pipe, on a busy machine too
			start := time.Now()
			r, err := echo(t.Context(), h, "b")
			require.NoError(t, err)
			require.Equal(t, "b", r.text)
			t.Logf("killed while idle: no call lost, back after %v", time.Since(start).Round(time.Millisecond))
			require.Less(t, time.Since(start), 2*time.Second)
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
		h := open(t, adapter, set, server{command: p.command}, version)
		_, err := echo(t.Context(), h, "a")
		require.NoError(t, err)
		var wg sync.WaitGroup
		for _, id := range []string{"1", "2", "3", "4", "5"} {
			wg.Go(func() {
				_, err := h.Call(t.Context(), "work", map[string]any{"id": id, "ms": 60_000})
				require.Error(t, err)
			})
		}
		require.True(t, eventually(10*time.Second, func() bool { return len(executed(t, log)) == 5 }))
		p.signal(syscall.SIGKILL)
		wg.Wait()
		start := time.Now()
		r, err := echo(t.Context(), h, "b")
		require.NoError(t, err)
		require.Equal(t, "b", r.text)
		require.Less(t, time.Since(start), 2*time.Second)
		n, kinds := seen.of("work")
		t.Logf("killed in mid-call: 5 lost, settled as %v, back after %v", kinds, time.Since(start).Round(time.Millisecond))
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
		h := open(t, adapter, set, server{command: p.command}, version)
		_, err := echo(t.Context(), h, "a")
		require.NoError(t, err)
		startable := time.Now().Add(3 * time.Second)
		p.mu.Lock()
		p.fail = func() bool { return time.Now().Before(startable) }
		p.mu.Unlock()
		p.signal(syscall.SIGKILL)
		blocked := 0
		require.True(t, eventually(20*time.Second, func() bool {
			r, err := echo(t.Context(), h, "b")
			if b, ok := r.blocked(); err == nil && ok {
				require.False(t, *b.Executed)
				require.Equal(t, "mcp:fake", b.Dependency)
				blocked++
			}
			return err == nil && r.text == "b"
		}))
		t.Logf("not startable for 3s: %d calls blocked, %d starts, back %v after it was startable",
			blocked, p.started()-1, time.Since(startable).Round(time.Millisecond))
		require.Less(t, time.Since(startable), 2*time.Second)
		require.Less(t, p.started(), 15)
	})
}

// N37: a stopped server whose pipe is full holds a call up no longer than its CallTimeout, and its
// siblings neither.
func TestStoppedWithAFullPipe(t *testing.T) {
	each(t, func(t *testing.T, adapter, version string) {
		timeout, size := time.Second, 4<<20
		if adapter == "mcp-go" { // it encodes a message several times over, which no context ends
			size = 1 << 20
		}
		set, seen := newSet(t, strings.Replace(guarded, `"30s"`, fmt.Sprintf(`"30s", "callTimeout": %q`, timeout), 1))
		p, log := newFake(t)
		h := open(t, adapter, set, server{command: p.command}, version)
		_, err := echo(t.Context(), h, "a")
		require.NoError(t, err)
		p.signal(syscall.SIGSTOP)
		big := strings.Repeat("x", size)
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
		require.Less(t, took, timeout+4*time.Second) // on a busy machine
		r, err := echo(t.Context(), h, "b")
		require.NoError(t, err)
		b, ok := r.blocked()
		require.True(t, ok, r.text)
		require.Equal(t, "mcp:fake", b.Dependency)
		p.signal(syscall.SIGCONT)
		_, kinds := seen.of("echo")
		t.Logf("stopped with a full pipe: 4 calls left after %v; echo settled as %v; then blocked: %s", took.Round(time.Millisecond), kinds, b.Message)
		time.Sleep(300 * time.Millisecond)
		sent, _ := seen.of("work")
		require.LessOrEqual(t, len(executed(t, log)), sent, "what waited for its turn was not sent")
	})
}

// A server that answers late and is there otherwise costs its tool alone.
func TestSlowAnswers(t *testing.T) {
	each(t, func(t *testing.T, adapter, version string) {
		set, seen := newSet(t, strings.Replace(guarded, `"30s"`, `"30s", "callTimeout": "500ms"`, 1))
		p, _ := newFake(t)
		h := open(t, adapter, set, server{command: p.command}, version)
		for range 3 {
			start := time.Now()
			_, err := h.Call(t.Context(), "work", map[string]any{"id": "slow", "ms": 60_000})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(start), time.Second)
		}
		r, err := h.Call(t.Context(), "work", map[string]any{"id": "slow", "ms": 0})
		require.NoError(t, err)
		b, ok := r.blocked()
		require.True(t, ok)
		require.Equal(t, "work", b.Dependency)
		r, err = echo(t.Context(), h, "b")
		require.NoError(t, err)
		require.Equal(t, "b", r.text)
		_, kinds := seen.of("mcp:fake")
		require.NotContains(t, kinds, "timeout")
		t.Logf("slow answers: 3 calls sent, then blocked (%s), siblings fine", b.Cause)
	})
}
