package mcptest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
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

// fault is something that happens to a server, which is there again when do returns.
type fault struct {
	name string
	do   func()
}

// Under load and random faults no call is executed twice, each is answered once, what the model
// reads as not executed was not, each that was sent is settled, and nothing is left after Close. An
// eighth of the faults hit processes, which take a while to start, the others servers behind HTTP.
// The processes and sockets are real and know no fake clock, so the short random sleeps are real:
// they decide how long a fault or a call lasts, and nothing is expected of their length.
func TestChaos(t *testing.T) {
	n := faults(t)
	runtime.GC()
	goroutines := runtime.NumGoroutine() + 2 // those of the subtests
	var table bytes.Buffer
	columns := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "host\tfault\ttimes\tcalls\treached\tlost\tblocked\tback: median\t95%\tmost")
	each(t, func(t *testing.T, adapter, version string) {
		t.Run("stdio", func(t *testing.T) {
			p, log := newFake(t)
			defer settled(t, goroutines)
			defer p.ended()
			chaos(t, columns, adapter, version, server{command: p.command}, max(n/32, 1), []fault{
				{"killed", func() { p.signal(syscall.SIGKILL) }},
				{"killed", func() { p.signal(syscall.SIGKILL) }},
				{"stopped", func() {
					p.signal(syscall.SIGSTOP)
					time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
					p.signal(syscall.SIGCONT)
				}},
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
			chaos(t, columns, adapter, version, server{url: s.url()}, max(n*7/32, 1), []fault{
				{"restarted", s.restart},
				{"down", func() {
					s.kill()
					time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
					s.start()
				}},
			}, func() map[string]int {
				mu.Lock()
				defer mu.Unlock()
				return maps.Clone(times)
			})
		})
	})
	columns.Flush()
	t.Logf("a fault costs, of the calls under way until one that began after it is answered (back), on average:\n%s", &table)
}

// What a call came to.
const (
	ok      = "ok"
	refused = "blocked"
	failed  = "lost"
)

// chaos makes faults under load, checks what came of each call, and adds to the table what the
// faults cost.
func chaos(t *testing.T, table io.Writer, adapter, version string, s server, n int, faults []fault, executed func() map[string]int) {
	set, seen := newSet(t, chaotic)
	h, err := adapters[adapter](t.Context(), set, s, version)
	require.NoError(t, err)

	type fate struct {
		came   string
		during int64 // the fault that it fell into, 0: none
	}
	var made, answers atomic.Int64
	var during, over atomic.Int64 // the fault whose effects last, and the last that is over, from 1 on
	works := make(chan int64, 1)  // which faults were over when a call began that was answered
	var mu sync.Mutex
	fates := map[string]fate{}
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
				id, began, f := fmt.Sprint(made.Add(1)), over.Load(), fate{failed, during.Load()}
				r, err := h.Call(t.Context(), "work", map[string]any{"id": id, "ms": rand.IntN(3)})
				answers.Add(1)
				if now := during.Load(); now > 0 {
					f.during = now
				}
				if b, isBlocked := r.blocked(); err == nil && isBlocked {
					f.came = refused
					if b.Executed == nil || *b.Executed {
						t.Errorf("call %s: refused, and executed", id)
					}
					time.Sleep(time.Millisecond)
				} else if err == nil {
					f.came = ok
					if r.text != id {
						t.Errorf("call %s: answered with that of %s", id, r.text)
					}
					select {
					case works <- began:
					default:
					}
				}
				mu.Lock()
				fates[id] = f
				mu.Unlock()
			}
		})
	}
	back := map[string][]time.Duration{}
	of := map[int64]string{}
	for i := int64(1); i <= int64(n); i++ {
		time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
		f := faults[rand.IntN(len(faults))]
		of[i] = f.name
		during.Store(i)
		f.do()
		over.Store(i)
		start := time.Now()
		giveUp := time.After(time.Minute)
		for began := int64(0); began < i && !t.Failed(); {
			select {
			case began = <-works:
			case <-giveUp:
				t.Error("it never worked again")
			}
		}
		during.Store(0)
		back[f.name] = append(back[f.name], time.Since(start))
		if t.Failed() {
			break
		}
	}
	close(stop)
	load.Wait()

	done, counts, cost := executed(), map[string]int{}, map[[2]string]int{}
	for id, f := range fates {
		counts[f.came]++
		kind := of[f.during]
		cost[[2]string{kind, f.came}]++
		cost[[2]string{kind, "calls"}]++
		cost[[2]string{kind, "reached"}] += min(done[id], 1)
		switch times := done[id]; {
		case times > 1:
			t.Errorf("call %s (%s) was executed %d times", id, f.came, times)
		case f.came == ok && times != 1:
			t.Errorf("call %s was answered and executed %d times", id, times)
		case f.came == refused && times != 0:
			t.Errorf("call %s was refused and executed", id)
		}
	}
	require.Equal(t, made.Load(), answers.Load())
	sent, _ := seen.of("work")
	require.GreaterOrEqual(t, sent, len(done), "each that was executed is settled")
	for _, c := range set.Snapshot().Circuits {
		require.Zero(t, c.InFlight, c.Dependency)
	}
	t.Logf("%d faults: %v, %d executed, %d settled", n, counts, len(done), sent)
	for kind, times := range back {
		slices.Sort(times)
		fmt.Fprintf(table, "%s %s\t%s\t%d", adapter, version, kind, len(times))
		for _, what := range []string{"calls", "reached", failed, refused} {
			fmt.Fprintf(table, "\t%.2f", float64(cost[[2]string{kind, what}])/float64(len(times)))
		}
		for _, at := range []int{len(times) / 2, len(times) * 95 / 100, len(times) - 1} {
			fmt.Fprintf(table, "\t%v", times[at].Round(100*time.Microsecond))
		}
		fmt.Fprintln(table)
	}
	h.Close()
}
