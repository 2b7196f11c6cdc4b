package mcptest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// faults is how many kills, restarts and stops TestChaos makes in all. MCPTEST_FAULTS sets it.
func faults(t *testing.T) int {
	n := 160
	if text := os.Getenv("MCPTEST_FAULTS"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err, "MCPTEST_FAULTS")
	}
	return n
}

const chaotic = `{"default": {"failureThreshold": 5, "cooldown": "20ms", "multiplier": 1, "jitter": 0, "callTimeout": "2s"}, "monitored": ["*"],
	"tools": {"work": {"sideEffects": true}}}`

// Under load and random faults no call is executed twice, each is answered once, what the model
// reads as not executed was not, each that was sent is settled, and nothing is left after Close. An
// eighth of the faults hit processes, which take a while to start, the others servers behind HTTP.
func TestChaos(t *testing.T) {
	n := faults(t)
	runtime.GC()
	goroutines := runtime.NumGoroutine() + 2 // those of the subtests
	each(t, func(t *testing.T, adapter, version string) {
		t.Run("stdio", func(t *testing.T) {
			p, log := newFake(t)
			defer settled(t, goroutines)
			chaos(t, adapter, version, server{command: p.command}, max(n/32, 1), func() {
				switch rand.IntN(3) {
				case 0, 1:
					p.signal(syscall.SIGKILL)
				default:
					p.signal(syscall.SIGSTOP)
					time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
					p.signal(syscall.SIGCONT)
				}
			}, func() map[string]int { return executed(t, log) })
		})
		t.Run("http", func(t *testing.T) {
			s := newSite(t)
			var mu sync.Mutex
			times := map[string]int{}
			s.work = func(_ context.Context, id string) error {
				mu.Lock()
				times[id]++
				mu.Unlock()
				time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
				return nil
			}
			defer settled(t, goroutines)
			defer s.kill()
			chaos(t, adapter, version, server{url: s.url()}, max(n*7/32, 1), func() {
				if rand.IntN(2) == 0 {
					s.restart()
					return
				}
				s.kill()
				time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
				s.start()
			}, func() map[string]int {
				mu.Lock()
				defer mu.Unlock()
				done := map[string]int{}
				for id, n := range times {
					done[id] = n
				}
				return done
			})
		})
	})
}

func chaos(t *testing.T, adapter, version string, s server, faults int, fault func(), executed func() map[string]int) {
	set, seen := newSet(t, chaotic)
	h, err := adapters[adapter](t.Context(), set, s, version)
	require.NoError(t, err)

	const (
		ok      = "ok"
		refused = "refused"
		failed  = "failed"
	)
	var made, answers, worked atomic.Int64
	var mu sync.Mutex
	fate := map[string]string{}
	stop := make(chan struct{})
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprint(made.Add(1))
				r, err := h.Call(t.Context(), "work", map[string]any{"id": id, "ms": rand.IntN(3)})
				answers.Add(1)
				came := failed
				if b, isBlocked := r.blocked(); err == nil && isBlocked {
					came = refused
					if b.Executed == nil || *b.Executed {
						t.Errorf("call %s: refused, and executed", id)
					}
					time.Sleep(time.Millisecond)
				} else if err == nil {
					came = ok
					worked.Add(1)
					if r.text != id {
						t.Errorf("call %s: answered with that of %s", id, r.text)
					}
				}
				mu.Lock()
				fate[id] = came
				mu.Unlock()
			}
		})
	}
	for range faults {
		time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
		// A fault hits what works, so that each has a renewal of its own.
		before := worked.Load()
		if !eventually(20*time.Second, func() bool { return worked.Load() > before }) {
			t.Error("it never worked again")
			break
		}
		fault()
	}
	back := time.Now()
	require.True(t, eventually(10*time.Second, func() bool {
		r, err := h.Call(t.Context(), "work", map[string]any{"id": "last", "ms": 0})
		return err == nil && r.text == "last"
	}), "it never worked again")
	took := time.Since(back)
	close(stop)
	load.Wait()

	done, counts := executed(), map[string]int{}
	for id, came := range fate {
		counts[came]++
		switch times := done[id]; {
		case times > 1:
			t.Errorf("call %s (%s) was executed %d times", id, came, times)
		case came == ok && times != 1:
			t.Errorf("call %s was answered and executed %d times", id, times)
		case came == refused && times != 0:
			t.Errorf("call %s was refused and executed", id)
		}
	}
	require.Equal(t, made.Load(), answers.Load())
	settled1, _ := seen.of("work")
	require.GreaterOrEqual(t, settled1, len(done), "each that was executed is settled")
	for _, c := range set.Snapshot().Circuits {
		require.Zero(t, c.InFlight, c.Dependency)
	}
	t.Logf("%d faults: %v, %d executed, %d settled, back after %v", faults, counts, len(done), settled1, took.Round(time.Millisecond))
	h.Close()
}
