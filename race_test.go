package toolcircuit_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

// Many goroutines at once. Run with -race.

// Of 64 callers that meet the end of the cooldown together one runs, and knows that it is the
// probe. The others are refused at once and told to come back soon.
func TestHerdSendsOneProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQuietRig(t, once(func(p *toolcircuit.Policy) { p.ProbeSuccesses, p.Multiplier = 2, 1 }))
		call(errDown)(r)
		for range 500 {
			add(time.Minute)(r)
			for _, herd := range []struct {
				err  error
				then toolcircuit.State
			}{{nil, halfOpen}, {errDown, open}} {
				var ran, probes, refused atomic.Int32
				start, finish := make(chan struct{}), make(chan struct{})
				for _, path := range []string{"Do", "Allow"} {
					for range 32 {
						go func() {
							<-start
							_, err := paths[path](r, func(ctx context.Context) (any, error) {
								ran.Add(1)
								if toolcircuit.IsProbe(ctx) {
									probes.Add(1)
								}
								<-finish
								return nil, herd.err
							})
							if e := new(toolcircuit.OpenError); errors.As(err, &e) && e.State == halfOpen && e.RetryAfter() == time.Second {
								refused.Add(1)
							}
						}()
					}
				}
				synctest.Wait()
				close(start)
				synctest.Wait()
				require.Equal(t, []int32{1, 1, 63}, []int32{ran.Load(), probes.Load(), refused.Load()})
				close(finish)
				synctest.Wait()
				require.Equal(t, herd.then, r.State())
			}
		}
		require.EqualValues(t, 1+2*500, r.Snapshot().Seq)
	})
}

// With a threshold of 3 and ten calls under way the dependency sees 3+10-1 calls and no more.
func TestNoAdmissionAfterTheThreshold(t *testing.T) {
	r := run(t, policy(nil), calls(2, errDown))
	names := strings.Split("abcdefghij", "")
	begin(names...)(r)
	for _, name := range names {
		all(end(name, errDown), refused(time.Minute))(r)
	}
	require.Equal(t, 3+10-1, r.ran)
}

// endTogether makes n calls that end at once.
func endTogether(r *rig, n int, err func(i int) error) {
	var begin sync.WaitGroup
	begin.Add(n)
	together(n, func(i int) {
		tell(r, func(context.Context) (int, error) {
			begin.Done()
			begin.Wait()
			return 0, err(i)
		})
	})
}

// Of the waits that failures ask for at once, the longest stands.
func TestLongestOfConcurrentWaits(t *testing.T) {
	r := newQuietRig(t, policy(nil))
	endTogether(r, 50, func(i int) error { return wait(time.Duration(i+1) * time.Second) })
	refused(50 * time.Second)(r)
}

// No one sees the state before its deadline, and so skips the cooldown.
func TestStateAndDeadlineBecomeVisibleTogether(t *testing.T) {
	r := newQuietRig(t, once(nil))
	var over atomic.Bool
	together(2, func(i int) {
		if i == 0 {
			defer over.Store(true)
			for range 100_000 {
				try(r.ToolCircuit, errDown)
				r.Reset()
			}
			return
		}
		for !over.Load() {
			before := r.Snapshot()
			p, err := r.Allow(context.Background())
			if before.State == open && before.RetryAt != before.Since.Add(time.Minute) {
				t.Error("open, with no deadline")
			}
			if err == nil && p.Probe() {
				t.Error("a probe, though no time has passed")
			}
			p.Release()
		}
	})
}

// No lock is held during a call.
func TestCallsRunConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, slow := range []time.Duration{0, time.Hour} { // the short and the long way
			r := newQuietRig(t, policy(func(p *toolcircuit.Policy) { p.SlowCall = slow }))
			var running atomic.Int32
			block := make(chan struct{})
			for range 8 {
				go toolcircuit.Do(context.Background(), r.ToolCircuit, func(context.Context) (int, error) {
					running.Add(1)
					<-block
					return 0, context.Canceled
				})
			}
			synctest.Wait()
			require.EqualValues(t, 8, running.Load())
			all(call(errDown), streak(1))(r)
			close(block)
			synctest.Wait()
		}
	})
}

// Whatever is read while others call, reconfigure and override is sound.
func TestReadsUnderLoad(t *testing.T) {
	o := once(func(p *toolcircuit.Policy) { p.FailureRate, p.Cooldown = 0.5, time.Millisecond })
	o.OnEvent = func(context.Context, toolcircuit.Event) {}
	o.OnCall = func(context.Context, toolcircuit.Call) {}
	c := toolcircuit.MustNew("search-api", o)
	other := policy(byRate).Policy
	uses := []func(){
		func() { try(c, nil) },
		func() { try(c, errDown) },
		func() { try(c.WithTool(toolcircuit.Tool{SideEffects: true}), wait(time.Millisecond)) },
		func() { c.SetPolicy(o.Policy); c.SetPolicy(other) },
		func() { c.SetOverride(toolcircuit.OverrideClosed); c.SetOverride(toolcircuit.OverrideNone) },
		func() { c.Reset() },
		func() { _, _, _, _ = c.State(), c.Ready(), c.Policy(), c.Dependency() },
		func() { try(c.Twin("other-api"), errDown) },
		func() {
			p, err := c.Allow(context.Background())
			toolcircuit.ResultOf(c, "", toolcircuit.Verdict{}, err)
			p.Release()
		},
		func() {
			s := c.Snapshot()
			if w := s.Window; w.Failures < 0 || w.Failures > w.Calls || s.Streak < 0 {
				t.Errorf("no numbers: %+v", s)
			}
			if s.State == open && s.RetryAt.IsZero() || s.State == closed && !s.RetryAt.IsZero() {
				t.Errorf("torn: %+v", s)
			}
			if _, err := json.Marshal(s); err != nil {
				t.Error(err)
			}
		},
	}
	together(len(uses), func(i int) {
		for range 500 {
			uses[i]()
			runtime.Gosched()
		}
	})
	require.NoError(t, c.SetPolicy(o.Policy))
	c.Reset()
	require.NoError(t, try(c, nil), "nothing is wedged")
}
