package toolcircuit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

func TestWait(t *testing.T) {
	for name, tt := range map[string]struct {
		before func(*rig)         // that it waits
		tool   toolcircuit.Tool   // that waits
		during func(*rig)         // while it waits
		then   time.Duration      // for so long it goes on
		reason toolcircuit.Reason // of the refusal that it ends with
	}{
		"closed: at once":                              {before: call(nil)},
		"open: until the cooldown is over":             {before: trip, then: time.Minute},
		"open, with SideEffects: until its own turn":   {before: trip, tool: writes, then: 2 * time.Minute},
		"half-open: until the lease is over":           {before: probing, then: time.Minute},
		"half-open: until the probe has closed it":     {before: probing, during: end("probe", nil)},
		"half-open: until the slot is free":            {before: probing, during: release("probe")},
		"half-open: on through the next cooldown":      {before: probing, during: end("probe", errDown), then: 2 * time.Minute},
		"a reset ends it":                              {before: trip, during: reset},
		"a shorter cooldown shortens it":               {before: trip, during: set(func(p *toolcircuit.Policy) { p.Cooldown = time.Second }), then: time.Second},
		"a longer wait prolongs it":                    {before: all(begin("late"), trip), during: end("late", asked(5*time.Minute)), then: 5 * time.Minute},
		"an override that lets all in ends it":         {before: trip, during: override(letAllIn)},
		"an override that refuses all ends it":         {before: trip, during: override(shut), reason: toolcircuit.ReasonManualOpen},
		"an override that refuses all, from the start": {before: override(shut), reason: toolcircuit.ReasonManualOpen},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, policy(nil))
				tt.before(r)
				s := sleep(t.Context(), r.WithTool(tt.tool).Wait)
				if tt.during != nil {
					require.False(t, s.returned)
					tt.during(r)
					synctest.Wait()
				}
				if tt.then > 0 {
					pass(tt.then - 1)(r)
					require.False(t, s.returned)
					pass(1)(r)
				}
				require.True(t, s.returned)
				if tt.reason == "" {
					require.NoError(t, s.err)
					return
				}
				var e *toolcircuit.OpenError
				require.ErrorAs(t, s.err, &e)
				require.Equal(t, tt.reason, e.Reason)
			})
		})
	}

	bubbles(t, map[string]func(*testing.T){
		"the end of its context ends it": func(t *testing.T) {
			s := sleep(t.Context(), run(t, policy(nil), trip).Wait)
			s.cancel()
			synctest.Wait()
			require.True(t, s.returned)
			require.Equal(t, context.Canceled, s.err)
		},
		"a context that is over already, closed or not": func(t *testing.T) {
			for _, before := range []func(*rig){all(), trip} {
				require.Equal(t, context.Canceled, run(t, policy(nil), before).Wait(endedContext()))
			}
		},
		"a deadline before the end of the cooldown: the refusal at once": func(t *testing.T) {
			real := toolcircuit.MustNew("search-api", once(nil))
			try(real, errDown)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute-1)
			defer cancel()
			start := time.Now()
			require.ErrorIs(t, real.Wait(ctx), toolcircuit.ErrCircuitOpen)
			require.Zero(t, time.Since(start))
			ctx, cancel = context.WithTimeout(t.Context(), time.Minute+1)
			defer cancel()
			require.NoError(t, real.Wait(ctx))
			require.Equal(t, time.Minute, time.Since(start))
		},
		"a deadline before the end of another's lease: it may end sooner": func(t *testing.T) {
			real := toolcircuit.MustNew("search-api", once(nil))
			try(real, errDown)
			time.Sleep(time.Minute)
			probe := allow(t, real)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			s := sleep(ctx, real.Wait)
			require.False(t, s.returned)
			probe.Settle(ctx, nil, nil)
			synctest.Wait()
			require.True(t, s.returned)
			require.NoError(t, s.err)
		},
		"those who wake together compete": func(t *testing.T) {
			c := toolcircuit.MustNew("search-api", once(nil))
			try(c, errDown)
			var ran atomic.Int32
			for range 10 {
				sleep(t.Context(), func(ctx context.Context) error {
					err := c.Wait(ctx)
					if _, refused := c.Allow(ctx); refused == nil {
						ran.Add(1)
					}
					return err
				})
			}
			require.Zero(t, ran.Load())
			time.Sleep(time.Minute)
			synctest.Wait()
			require.EqualValues(t, 1, ran.Load())
		},
		"N14: a deadline is real time, whatever day an injected clock has": func(t *testing.T) {
			for _, day := range []time.Time{time.Unix(0, 0), time.Now().Add(24 * time.Hour)} { // real time is of 2000, by the bubble
				r := newRig(t, policy(nil))
				r.clock.Set(day)
				trip(r)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				require.ErrorIs(t, r.Wait(ctx), toolcircuit.ErrCircuitOpen, "the cooldown lasts as long")
				require.Zero(t, time.Since(start))
				add(2 * time.Second)(r) // a step of the mock takes a millisecond of real time
				s := sleep(ctx, r.Wait)
				require.False(t, s.returned)
				pass(58 * time.Second)(r)
				require.True(t, s.returned)
				require.NoError(t, s.err)
			}
		},
	})
}

// monitored is a rig with a monitor whose check is at hand.
type monitored struct {
	*rig
	*sleeper
	check func(context.Context) error
}

func monitor(t *testing.T, every time.Duration, edit func(*toolcircuit.Policy), answer error) *monitored {
	m := &monitored{rig: newRig(t, policy(edit)), check: func(context.Context) error { return answer }}
	m.sleeper = sleep(t.Context(), func(ctx context.Context) error {
		return m.Monitor(ctx, every, func(ctx context.Context) error {
			m.checks++
			return m.check(ctx)
		})
	})
	return m
}

func (m *monitored) do(actions ...func(*rig)) {
	m.rig.Helper()
	for _, a := range actions {
		a(m.rig)
		synctest.Wait()
	}
}

func TestMonitor(t *testing.T) {
	const cooling = 10 * time.Second // between checks in the cooldown
	checked := func(n int) func(*rig) { return func(r *rig) { r.Helper(); require.Equal(r, n, r.checks) } }
	for name, tt := range map[string]struct {
		every  time.Duration
		edit   func(*toolcircuit.Policy)
		answer error
		steps
	}{
		"sleeps while closed": {time.Second, nil, nil, steps{pass(time.Hour), checked(0)}},
		"sleeps while overridden, both ways": {time.Second, nil, nil, steps{
			override(shut), pass(time.Hour), override(lifted), trip, override(letAllIn), pass(time.Hour), checked(0),
			override(lifted), checked(1), is(closed)}},
		"probes when one is due": {0, nil, nil, steps{
			trip, pass(time.Minute - 1), checked(0), pass(1), checked(1), is(closed),
			func(r *rig) { require.True(r, lastCall(r).Probe); require.True(r, lastCall(r).Executed) }}},
		"probes as often as it takes": {0, func(p *toolcircuit.Policy) { p.ProbeSuccesses = 3 }, nil, steps{
			trip, pass(time.Minute), checked(3), is(closed)}},
		"a probe that fails reopens": {0, nil, errDown, steps{
			trip, pass(time.Minute), checked(1), refused(2 * time.Minute), pass(2 * time.Minute), checked(2), refused(4 * time.Minute)}},
		"a mistake in the check is no answer": {cooling, nil, fmt.Errorf("check: %w", toolcircuit.Invalid(errInvalid)), steps{
			trip, pass(time.Minute), is(halfOpen),
			func(r *rig) { require.Equal(r, toolcircuit.EffectIgnore, lastCall(r).Verdict.Effect) }}},
		"a check that says nothing: one Cooldown later": {0, nil, errors.New("?"), steps{
			trip, pass(time.Minute), checked(1), is(halfOpen), pass(time.Minute - 1), checked(1), pass(1), checked(2)}},
		"in the cooldown: an answer ends it": {cooling, nil, nil, steps{
			trip, pass(cooling - 1), checked(0), is(open), pass(1), checked(2), is(closed), // one in the cooldown and one as the probe
			func(r *rig) { require.False(r, r.calls[len(r.calls)-2].Probe); require.True(r, lastCall(r).Probe) }}},
		"in the cooldown: what the dependency asked for stands": {cooling, nil, nil, steps{
			call(wait(time.Minute)), pass(50 * time.Second), checked(0), refused(10 * time.Second), pass(10 * time.Second), is(closed)}},
		"in the cooldown: what an earlier failure asked for stands, the curve does not": {cooling, nil, nil, steps{
			call(asked(30 * time.Second)), calls(2, errDown), refused(time.Minute), pass(cooling),
			refused(20 * time.Second), pass(20 * time.Second), is(closed)}},
		"in the cooldown: no check where a probe comes first": {time.Minute, nil, nil, steps{
			trip, pass(time.Minute), checked(1), is(closed)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { monitor(t, tt.every, tt.edit, tt.answer).do(tt.steps...) })
		})
	}
	bubbles(t, map[string]func(*testing.T){
		"tells its check that it is a probe": func(t *testing.T) {
			m := monitor(t, 0, nil, nil)
			m.check = func(ctx context.Context) error {
				require.True(m.rig, toolcircuit.IsProbe(ctx))
				return nil
			}
			m.do(trip, pass(time.Minute), is(closed))
		},
		"goes before tools with SideEffects, as one of them": func(t *testing.T) {
			m := &monitored{rig: newRig(t, policy(nil))}
			m.sleeper = sleep(t.Context(), func(ctx context.Context) error {
				return m.WithTool(writes).Monitor(ctx, 0, func(context.Context) error { return nil })
			})
			m.do(trip, pass(time.Minute), is(closed))
			require.Equal(t, writes.Name, lastCall(m.rig).Tool)
		},
		"leaves another's probe alone": func(t *testing.T) {
			m := monitor(t, 0, nil, nil)
			m.do(trip, add(time.Minute), is(closed), checked(1))
			m.check = func(context.Context) error { // while it runs, nobody else's does
				refused(time.Minute)(m.rig)
				return nil
			}
			m.do(trip, pass(2*time.Minute), checked(2))
		},
		"an answer is an answer": func(t *testing.T) {
			for _, status := range []int{400, 401, 404, 409} {
				m := monitor(t, 0, nil, &toolcircuit.HTTPError{StatusCode: status})
				m.do(trip, pass(time.Minute), is(closed))
				require.Equal(t, toolcircuit.EffectHeal, lastCall(m.rig).Verdict.Effect, "status %d", status)
				m.cancel()
			}
		},
		"a check that reached nobody is none, however the error is called": func(t *testing.T) {
			for name, err := range map[string]error{
				"no such host": dial(&net.DNSError{Err: "no such host", Name: "dep", IsNotFound: true}),
				"bad address":  dial(&net.AddrError{Err: "invalid port", Addr: "dep:99999"}),
				"bad network":  &net.OpError{Op: "dial", Net: "foo", Err: net.UnknownNetworkError("foo")},
				"marked":       toolcircuit.Invalid(errors.New("no address")),
			} {
				m := monitor(t, cooling, nil, err)
				m.do(trip, pass(time.Hour))
				require.NotEqual(t, closed, m.State(), name)
				m.cancel()
			}
		},
		"in the cooldown: an answer ends it for all": func(t *testing.T) {
			m := monitor(t, cooling, nil, nil)
			m.check = func(ctx context.Context) error {
				if toolcircuit.IsProbe(ctx) {
					return errInvalid // which is healthy, too
				}
				return nil
			}
			m.do(trip, pass(cooling), is(closed))
		},
		"in the cooldown: anything else changes nothing": func(t *testing.T) {
			for _, answer := range []error{errDown, errors.New("?"), wait(time.Hour), asked(time.Hour), context.Canceled} {
				m := monitor(t, cooling, nil, answer)
				m.do(trip, pass(50*time.Second), checked(5), refused(10*time.Second), openings(1), seq(1), stale(0))
				require.Zero(t, m.Snapshot().Unclassified)
				m.cancel()
			}
		},
		"in the cooldown: a late answer to an earlier opening changes nothing": func(t *testing.T) {
			m := monitor(t, cooling, nil, nil)
			m.check = func(context.Context) error {
				m.check = func(context.Context) error { return errDown }
				all(reset, trip)(m.rig)
				return nil
			}
			m.do(trip, pass(cooling), refused(time.Minute))
		},
		"is under CallTimeout, too": func(t *testing.T) {
			m := monitor(t, 0, func(p *toolcircuit.Policy) { p.CallTimeout = time.Second }, nil)
			m.check = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			m.do(trip, pass(time.Minute), is(halfOpen), pass(time.Second), is(open))
		},
		"ends with its context": func(t *testing.T) {
			m := monitor(t, time.Second, nil, errDown)
			for _, state := range []func(*rig){func(*rig) {}, trip, pass(30 * time.Second)} {
				m.do(state)
				require.False(t, m.returned)
			}
			m.cancel()
			synctest.Wait()
			require.True(t, m.returned)
			require.Equal(t, context.Canceled, m.err)
			require.Equal(t, context.Canceled, m.Monitor(endedContext(), 0, m.check))
		},
		"ends with the panic of its check": func(t *testing.T) {
			r := run(t, policy(nil), cooled)
			panicked, _ := quits(func() {
				r.Monitor(t.Context(), 0, func(context.Context) error { panic("boom") })
			})
			require.Equal(t, "boom", panicked)
			all(openings(2), is(open))(r)
		},
	})
}

// endsAtLast ends when somebody waits for it and all other goroutines rest.
type endsAtLast struct {
	context.Context
	end context.CancelFunc
}

func (c endsAtLast) Done() <-chan struct{} {
	synctest.Wait()
	c.end()
	return c.Context.Done()
}

func TestAbandon(t *testing.T) {
	boom := errors.New("boom")
	// abandoned is a call of what Abandon makes of f.
	abandoned := func(ctx context.Context, f func() (int, error)) (int, error) {
		return toolcircuit.Abandon(func(context.Context, int) (int, error) { return f() })(ctx, 1)
	}
	bubbles(t, map[string]func(*testing.T){
		"what returns in time is passed on": func(t *testing.T) {
			double := toolcircuit.Abandon(func(_ context.Context, n int) (int, error) { return 2 * n, errInvalid })
			got, err := double(t.Context(), 4)
			require.Equal(t, 8, got)
			require.Equal(t, errInvalid, err)
		},
		"the caller leaves when its context ends": func(t *testing.T) {
			var finished atomic.Bool
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			got, err := abandoned(ctx, func() (int, error) {
				time.Sleep(time.Hour)
				finished.Store(true)
				return 7, nil
			})
			require.Equal(t, time.Second, time.Since(start))
			require.Zero(t, got)
			require.Equal(t, context.DeadlineExceeded, err)
			require.False(t, finished.Load())
			time.Sleep(time.Hour)
			synctest.Wait()
			require.True(t, finished.Load(), "its goroutine lives until it is done")
		},
		"what is there when the context ends is not thrown away": func(t *testing.T) {
			for range 100 { // a select with two open ways takes either
				ctx, cancel := context.WithCancel(t.Context())
				require.Equal(t, 7, must(abandoned(endsAtLast{ctx, cancel}, func() (int, error) { return 7, nil })))
			}
		},
		"a context that is over already starts nothing": func(t *testing.T) {
			_, err := abandoned(endedContext(), func() (int, error) { panic("ran") })
			require.ErrorIs(t, err, context.Canceled)
		},
		"its panic happens in the caller": func(t *testing.T) {
			panicked, _ := quits(func() { abandoned(t.Context(), func() (int, error) { panic(boom) }) })
			p := panicked.(*toolcircuit.PanicError)
			require.Equal(t, boom, p.Value)
			require.Contains(t, string(p.Stack), "TestAbandon")
			require.ErrorIs(t, p, boom)
			require.ErrorContains(t, p, "panic: boom\n\ngoroutine ")
			require.NoError(t, (&toolcircuit.PanicError{Value: "boom"}).Unwrap())
		},
		"its Goexit happens in the caller": func(t *testing.T) {
			panicked, returned := quits(func() { abandoned(t.Context(), func() (int, error) { runtime.Goexit(); return 0, nil }) })
			require.Nil(t, panicked)
			require.False(t, returned)
		},
		"a later panic or Goexit is dropped": func(t *testing.T) {
			for _, leave := range []func(){func() { panic("boom") }, runtime.Goexit} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := abandoned(ctx, func() (int, error) { time.Sleep(time.Hour); leave(); return 0, nil })
				require.Equal(t, context.DeadlineExceeded, err)
				time.Sleep(time.Hour)
			}
		},
		"inside a circuit CallTimeout reaches it": func(t *testing.T) {
			c := toolcircuit.MustNew("search-api", once(func(p *toolcircuit.Policy) { p.CallTimeout = time.Second }))
			stubborn := toolcircuit.Wrap(c, toolcircuit.Abandon(func(context.Context, int) (int, error) { time.Sleep(time.Hour); return 7, nil }))
			_, err := stubborn(t.Context(), 1)
			require.ErrorIs(t, err, toolcircuit.ErrCallTimeout)
			require.Equal(t, open, c.State())
			time.Sleep(time.Hour)
			require.Equal(t, toolcircuit.KindTimeout, c.Snapshot().Cause)
			require.Zero(t, c.Snapshot().Stale, "the late result is dropped")
		},
		"its panic counts in the circuit around it": func(t *testing.T) {
			r := newRig(t, policy(nil))
			explode := toolcircuit.Wrap(r.ToolCircuit, toolcircuit.Abandon(func(context.Context, int) (int, error) { panic("boom") }))
			quits(func() { explode(t.Context(), 1) })
			all(judged(toolcircuit.KindPanic), streak(1))(r)
		},
	})
}

// TestCircuitsLeaveNothingBehind makes 10,000 circuits, trips half of them, and waits for some.
func TestCircuitsLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		m := clock.NewMock()
		circuits := make([]*toolcircuit.ToolCircuit, 10_000)
		for i := range circuits {
			circuits[i] = toolcircuit.MustNew(fmt.Sprint("dependency-", i), toolcircuit.Options{
				Clock:  m,
				Policy: toolcircuit.Policy{FailureThreshold: 1, CallTimeout: time.Second, FailureRate: 0.5},
			})
			var err error
			if i%2 == 0 {
				err = errDown
			}
			toolcircuit.Do(t.Context(), circuits[i], func(context.Context) (int, error) { return 0, err })
			if i%100 == 0 {
				require.Equal(t, open, circuits[i].State())
				sleep(t.Context(), circuits[i].Wait).cancel()
			}
		}
		synctest.Wait()
		require.LessOrEqual(t, runtime.NumGoroutine(), before) // those of other tests may end meanwhile
		runtime.KeepAlive(circuits)
	})
}

// A tool with SideEffects waits for the circuit, which another may close before its own turn.
func TestWaitOfAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := toolcircuit.MustNew("search-api", once(nil))
		try(c, errDown)
		go c.Monitor(t.Context(), 0, func(context.Context) error { return nil })
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second) // cooldown ends after 60, the write's turn is at 120
		defer cancel()
		start := time.Now()
		require.NoError(t, c.WithTool(writes).Wait(ctx), "the cooldown does not last beyond the deadline")
		require.Equal(t, time.Minute, time.Since(start))
	})
}

// N16: a monitor heard that the dependency is back, so a straggler does not bring back the
// curve, also where an earlier failure of the streak had asked for a wait that is over. What a
// straggler itself asks for stands.
func TestStragglerAfterMonitor(t *testing.T) {
	for name, fails := range map[string]func(*rig){
		"nothing was asked for":      trip,
		"a wait was asked for":       all(call(asked(time.Second)), calls(2, errDown)),
		"the curve had been brought": all(begin("other"), calls(2, errDown), call(asked(time.Second)), end("other", errDown)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := run(t, policy(nil), begin("late", "asks"), fails, refused(time.Minute))
				ctx, cancel := context.WithCancel(t.Context())
				go r.Monitor(ctx, 10*time.Second, func(context.Context) error { cancel(); return nil })
				synctest.Wait()
				all(pass(10*time.Second), is(halfOpen), end("late", errDown))(r)
				require.Equal(t, halfOpen, r.State(), "ordinary stragglers move nothing")
				all(end("asks", asked(5*time.Second)), refused(5*time.Second))(r)
			})
		})
	}
}

// A Monitor does not check during a wait that the dependency asked for, also where an earlier
// failure of the streak had asked for it.
func TestMonitorKeepsAnAskedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := monitor(t, 10*time.Second, nil, errDown)
		m.do(call(asked(5*time.Minute)), calls(2, errDown), pass(5*time.Minute-time.Second))
		require.Equal(t, open, m.State())
		require.Zero(t, m.checks)
		m.do(pass(time.Second))
		require.Equal(t, 1, m.checks, "the probe")
	})
}

// An answer that the check marks as a failure is no proof of health.
func TestMonitorHearsTheMark(t *testing.T) {
	for name, err := range map[string]error{
		"counts": toolcircuit.Fault(notFoundErr),
		"pauses": toolcircuit.RetryAfter(notFoundErr, time.Hour),
	} {
		for _, every := range []time.Duration{0, 10 * time.Second} {
			t.Run(fmt.Sprint(name, every), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := monitor(t, every, nil, err)
					m.do(trip, pass(time.Minute))
					require.Equal(t, open, m.State())
				})
			})
		}
	}
}
