package toolcircuit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

// said checks the events since it was last asked. Their At must be now.
func said(want ...toolcircuit.Event) func(*rig) {
	return func(r *rig) {
		r.Helper()
		for i := range r.events {
			require.Equal(r, "search-api", r.events[i].Dependency)
			require.Equal(r, r.clock.Now(), r.events[i].At)
			r.events[i].Dependency, r.events[i].At = "", time.Time{}
		}
		require.Equal(r, want, r.events)
		r.events = nil
	}
}

// heard makes a circuit of threshold 1 whose hook does what is given at each event.
func heard(t *testing.T, f func(r *rig, e toolcircuit.Event)) *rig {
	var r *rig
	o := policy(func(p *toolcircuit.Policy) { p.FailureThreshold = 1 })
	o.OnEvent = func(_ context.Context, e toolcircuit.Event) { f(r, e) }
	r = newRig(t, o)
	return r
}

func TestEvents(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	play(t, []script{
		{"an outage", nil, []step{
			{all(begin("a"), calls(2, errDown), func(r *rig) { require.Empty(r, r.events) }, add(time.Second)), closed},
			{all(end("a", errDown), said(toolcircuit.Event{
				Type: toolcircuit.EventOpened, From: closed, To: open, Seq: 1, Openings: 1, RetryAt: at(61),
				Rule: toolcircuit.RuleThreshold, Kind: toolcircuit.KindUnavailable, Failures: 3, Calls: 3, Elapsed: time.Second, Err: errDown,
			})), open},
			{all(add(time.Minute), begin("probe"), said(toolcircuit.Event{
				Type: toolcircuit.EventHalfOpened, From: open, To: halfOpen, Seq: 2, Openings: 1,
			})), halfOpen},
			{all(add(2*time.Second), end("probe", asked(9*time.Second)), said(toolcircuit.Event{
				Type: toolcircuit.EventOpened, From: halfOpen, To: open, Seq: 3, Openings: 2, RetryAt: at(72),
				Rule: toolcircuit.RuleProbe, Kind: toolcircuit.KindUnavailable, Failures: 1, Calls: 1, Elapsed: 2 * time.Second, Err: asked(9 * time.Second),
			})), open},
			{all(add(9*time.Second), call(nil), said(
				toolcircuit.Event{Type: toolcircuit.EventHalfOpened, From: open, To: halfOpen, Seq: 4, Openings: 2},
				toolcircuit.Event{Type: toolcircuit.EventClosed, From: halfOpen, To: closed, Seq: 5, Openings: 2, Rule: toolcircuit.RuleProbe},
			)), closed},
		}},
		{"a pause", nil, []step{
			{all(call(errDown), call(wait(time.Second)), said(toolcircuit.Event{
				Type: toolcircuit.EventOpened, From: closed, To: open, Seq: 1, RetryAt: at(1), Rule: toolcircuit.RulePause,
				Kind: toolcircuit.KindRateLimited, Failures: 2, Calls: 2, Err: wait(time.Second),
			})), open},
		}},
		{"a reset", nil, []step{
			{all(reset, func(r *rig) { require.Empty(r, r.events) }), closed},
			{trip, open},
			{func(r *rig) { r.events = nil }, open},
			{all(reset, said(toolcircuit.Event{Type: toolcircuit.EventClosed, From: open, To: closed, Seq: 3, Rule: toolcircuit.RuleReset})), closed},
		}},
		{"overrides", nil, []step{
			{all(override(toolcircuit.OverrideOpen), said(toolcircuit.Event{
				Type: toolcircuit.EventOverridden, From: closed, To: closed, Override: toolcircuit.OverrideOpen,
			})), closed},
			{all(override(toolcircuit.OverrideNone), said(toolcircuit.Event{
				Type: toolcircuit.EventOverridden, From: closed, To: closed,
			})), closed},
			{trip, open},
			{func(r *rig) { r.events = nil }, open},
			{all(override(toolcircuit.OverrideClosed), said(toolcircuit.Event{
				Type: toolcircuit.EventOverridden, From: open, To: open, Override: toolcircuit.OverrideClosed, Seq: 1, Openings: 1,
			})), open},
		}},
		{"the state changes beneath an override", nil, []step{
			{all(begin("a", "b", "c"), override(toolcircuit.OverrideOpen), func(r *rig) { r.events = nil }), closed},
			{all(end("a", errDown), end("b", errDown), end("c", errDown), said(toolcircuit.Event{
				Type: toolcircuit.EventOpened, From: closed, To: open, Override: toolcircuit.OverrideOpen, Seq: 1, Openings: 1, RetryAt: at(60),
				Rule: toolcircuit.RuleThreshold, Kind: toolcircuit.KindUnavailable, Failures: 3, Calls: 3, Err: errDown,
			})), open},
		}},
	})
}

// Capped marks the opening that lifts the curve to MaxCooldown, whatever the dependency asked
// for.
func TestEventCappedOncePerStay(t *testing.T) {
	capped := func(want bool) func(*rig) {
		return func(r *rig) {
			r.Helper()
			e := r.events[len(r.events)-1]
			require.Equal(r, toolcircuit.EventOpened, e.Type)
			require.Equal(r, want, e.Capped)
		}
	}
	again := func(err error) func(*rig) { return all(untilDue, call(err)) }
	atOnce := func(p *toolcircuit.Policy) { p.FailureThreshold = 1; p.MaxCooldown = time.Minute }
	play(t, []script{
		{"when the curve gets there", func(p *toolcircuit.Policy) { p.MaxCooldown = 4 * time.Minute }, []step{
			{all(trip, capped(false)), open},
			{all(add(time.Minute), call(errDown), capped(false)), open},
			{all(add(2*time.Minute), call(errDown), capped(true)), open},
			{all(add(4*time.Minute), call(errDown), capped(false)), open},
		}},
		{"a recovery is part of the stay", atOnce, []step{
			{all(call(errDown), capped(true), add(time.Minute), call(nil), call(errDown), capped(false)), open},
		}},
		{"forgotten openings end it", atOnce, []step{
			{all(call(errDown), capped(true), add(time.Minute), call(nil), add(time.Minute), call(errDown), capped(true)), open},
		}},
		{"a reset ends it", atOnce, []step{
			{all(call(errDown), capped(true), reset, call(errDown), capped(true)), open},
		}},
		{"openings forgotten at the cap do not", func(p *toolcircuit.Policy) { atOnce(p); p.MaxCooldown = 2 * time.Minute }, []step{
			{all(call(errDown), again(errDown), capped(true), again(errDown), again(nil)), closed}, // 1, 2, 2 minutes
			{all(add(2*time.Minute), openings(2), call(errDown), capped(false)), open},
			{all(again(nil), add(4*time.Minute), openings(1), call(errDown), capped(true)), open},
		}},
		{"by a wait that was asked for, too", atOnce, []step{
			{all(call(asked(time.Second)), capped(true), again(errDown), capped(false), again(asked(time.Hour)), capped(false)), open},
		}},
		{"N18: alternately with and without a wait", func(p *toolcircuit.Policy) { p.MaxCooldown = 8 * time.Minute }, []step{
			{all(trip, again(errDown), again(asked(time.Second))), open}, // 1, 2, 4 minutes
			{all(again(errDown), capped(true)), open},
			{func(r *rig) {
				for range 10 {
					all(again(asked(time.Second)), capped(false), again(errDown), capped(false))(r)
				}
			}, open},
		}},
		{"not by a pause, which lifts nothing", atOnce, []step{
			{all(call(wait(time.Second)), capped(false), again(errDown), capped(true), again(wait(time.Second)), capped(false)), open},
		}},
		{"not by an opening above a cap that SetPolicy has lowered", func(p *toolcircuit.Policy) { p.MaxCooldown = 8 * time.Minute }, []step{
			{all(trip, again(errDown), capped(false), set(func(p *toolcircuit.Policy) { p.MaxCooldown = time.Minute })), open},
			{all(again(errDown), capped(false)), open},
		}},
	})
}

func TestEventContext(t *testing.T) {
	type key struct{}
	var got context.Context
	o := policy(func(p *toolcircuit.Policy) { p.FailureThreshold = 1 })
	o.OnEvent = func(ctx context.Context, _ toolcircuit.Event) { got = ctx }
	r := newRig(t, o)
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "value"))
	ctx = toolcircuit.WithRunID(ctx, "run-1")
	toolcircuit.Do(ctx, r.ToolCircuit, func(context.Context) (int, error) { return 0, errDown })
	cancel()
	require.Equal(t, "value", got.Value(key{}))
	require.NoError(t, got.Err())
	require.Nil(t, got.Done())
	require.Equal(t, "run-1", r.events[0].RunID)
	reset(r)
	require.Empty(t, r.events[1].RunID, "nobody's run")
}

func TestRunID(t *testing.T) {
	require.Empty(t, toolcircuit.RunID(context.Background()))
	ctx := toolcircuit.WithRunID(context.Background(), "run-1")
	require.Equal(t, "run-1", toolcircuit.RunID(ctx))
	require.Equal(t, "run-2", toolcircuit.RunID(toolcircuit.WithRunID(ctx, "run-2")))
}

func TestOnCall(t *testing.T) {
	dead, cancel := context.WithCancel(context.Background())
	cancel()
	verdict := func(e toolcircuit.Effect, k toolcircuit.Kind) toolcircuit.Verdict {
		return toolcircuit.Verdict{Effect: e, Kind: k}
	}
	var (
		healthy = verdict(toolcircuit.EffectHeal, toolcircuit.KindOK)
		down    = verdict(toolcircuit.EffectCount, toolcircuit.KindUnavailable)
	)
	for _, tt := range []struct {
		name string
		do   func(*rig) // the call is the last thing in it
		want toolcircuit.Call
	}{
		{"healthy", call(nil), toolcircuit.Call{State: closed, Executed: true, Verdict: healthy}},
		{"failed", call(errDown), toolcircuit.Call{State: closed, Executed: true, Verdict: down, Err: errDown}},
		{"failed with a wait", call(asked(time.Second)), toolcircuit.Call{
			State: closed, Executed: true, Err: asked(time.Second),
			Verdict: toolcircuit.Verdict{Effect: toolcircuit.EffectCount, Kind: toolcircuit.KindUnavailable, RetryAfter: time.Second},
		}},
		{"ignored", call(errInvalid), toolcircuit.Call{
			State: closed, Executed: true, Verdict: verdict(toolcircuit.EffectIgnore, toolcircuit.KindInvalid), Err: errInvalid,
		}},
		{"slow", all(begin("a"), add(6*time.Second), end("a", nil)), toolcircuit.Call{
			State: closed, Executed: true, Verdict: verdict(toolcircuit.EffectCount, toolcircuit.KindSlow), Elapsed: 6 * time.Second,
		}},
		{"late", all(begin("a"), add(9*time.Second), end("a", errDown)), toolcircuit.Call{
			State: closed, Executed: true, Verdict: verdict(toolcircuit.EffectCount, toolcircuit.KindTimeout), Elapsed: 9 * time.Second,
			Err: &toolcircuit.CallTimeoutError{Dependency: "search-api", After: 8 * time.Second, Err: errDown},
		}},
		{"probe", all(cooled, call(nil)), toolcircuit.Call{State: halfOpen, Executed: true, Probe: true, Verdict: healthy}},
		{"stale", all(begin("a"), trip, end("a", nil)), toolcircuit.Call{State: closed, Executed: true, Stale: true, Verdict: healthy}},
		{"let in by an override", all(trip, override(toolcircuit.OverrideClosed), call(errDown)), toolcircuit.Call{
			State: open, Executed: true, Verdict: down, Err: errDown,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, policy(func(p *toolcircuit.Policy) { p.SlowCall = 5 * time.Second; p.CallTimeout = 8 * time.Second }))
			as(toolcircuit.Tool{Name: "web_search"}, tt.do)(r)
			tt.want.Dependency, tt.want.Tool = "search-api", "web_search"
			require.Len(t, r.calls, r.ran, "one for each")
			require.Equal(t, tt.want, r.calls[len(r.calls)-1])
		})
	}

	t.Run("refused", func(t *testing.T) {
		r := run(t, policy(nil), []step{{all(trip, refused(time.Minute)), open}})
		require.Len(t, r.calls, 4)
		got := r.calls[3]
		require.ErrorIs(t, got.Err, toolcircuit.ErrCircuitOpen)
		got.Err = nil
		require.Equal(t, toolcircuit.Call{
			Dependency: "search-api", State: open, Reason: toolcircuit.ReasonDependencyOpen, Verdict: verdict(toolcircuit.EffectIgnore, toolcircuit.KindRejected), RetryAt: time.Unix(60, 0),
		}, got)
	})
	t.Run("dead on entry", func(t *testing.T) {
		r := run(t, policy(nil), []step{{cooled, halfOpen}})
		toolcircuit.Do(toolcircuit.WithRunID(dead, "run-1"), r.ToolCircuit, func(context.Context) (int, error) { return 0, nil })
		require.Len(t, r.calls, 4)
		require.Equal(t, toolcircuit.Call{
			Dependency: "search-api", RunID: "run-1", State: halfOpen,
			Verdict: verdict(toolcircuit.EffectIgnore, toolcircuit.KindCanceled), Err: context.Canceled,
		}, r.calls[3])
	})
	t.Run("did not return", func(t *testing.T) {
		r := newRig(t, policy(nil))
		quits(func() { tell(r, func(context.Context) (int, error) { panic("boom") }) })
		quits(func() { tell(r, func(context.Context) (int, error) { runtime.Goexit(); return 0, nil }) })
		require.Len(t, r.calls, 2)
		for _, got := range r.calls {
			require.Error(t, got.Err)
			got.Err = nil
			require.Equal(t, toolcircuit.Call{
				Dependency: "search-api", State: closed, Executed: true, Verdict: verdict(toolcircuit.EffectCount, toolcircuit.KindPanic),
			}, got)
		}
	})
	t.Run("handed back unused is no call", func(t *testing.T) {
		r := run(t, policy(nil), []step{{all(begin("a"), release("a")), closed}})
		require.Empty(t, r.calls)
	})
}

func TestLogValues(t *testing.T) {
	secret := errors.New("password=hunter2")
	log := func(v any) (line map[string]any) {
		var out bytes.Buffer
		slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "v", v)
		require.NotContains(t, out.String(), "hunter2")
		require.NoError(t, json.Unmarshal(out.Bytes(), &line))
		return line["v"].(map[string]any)
	}
	opened := toolcircuit.Event{
		Type: toolcircuit.EventOpened, Dependency: "search-api", From: closed, To: open, Openings: 2, RetryAt: time.Unix(60, 0).UTC(),
		Rule: toolcircuit.RuleThreshold, Kind: toolcircuit.KindTimeout, Failures: 3, Elapsed: 1, RunID: "run-1", Err: secret,
	}
	require.Equal(t, map[string]any{
		"dependency": "search-api", "transition": "closed -> open", "rule": "threshold", "kind": "timeout", "failures": 3.0,
		"openings": 2.0, "retry_at": "1970-01-01T00:01:00Z", "run_id": "run-1", "duration": 1.0,
	}, log(opened))
	require.Equal(t, map[string]any{
		"dependency": "search-api", "transition": "half_open -> closed", "rule": "probe",
	}, log(toolcircuit.Event{Type: toolcircuit.EventClosed, Dependency: "search-api", From: halfOpen, To: closed, Rule: toolcircuit.RuleProbe}))
	require.Equal(t, map[string]any{
		"dependency": "search-api", "transition": "open -> open", "override": "closed",
	}, log(toolcircuit.Event{Type: toolcircuit.EventOverridden, Dependency: "search-api", From: open, To: open, Override: toolcircuit.OverrideClosed}))
	require.Equal(t, map[string]any{
		"dependency": "search-api", "tool": "web_search", "state": "closed", "kind": "timeout", "executed": true, "run_id": "run-1", "duration": 1e9,
	}, log(toolcircuit.Call{
		Dependency: "search-api", Tool: "web_search", RunID: "run-1", State: closed, Executed: true,
		Verdict: toolcircuit.Verdict{Kind: toolcircuit.KindTimeout}, Elapsed: time.Second, Err: secret,
	}))
	require.NotContains(t, log(toolcircuit.Call{Dependency: "search-api"}), "tool", "there is none")
}

func TestHookMayUseTheCircuit(t *testing.T) {
	var seen []toolcircuit.State
	r := heard(t, func(r *rig, e toolcircuit.Event) {
		seen = append(seen, r.State())
		require.Equal(r, e.Seq, r.Snapshot().Seq, "what it tells of is visible")
		if e.To == open {
			require.False(r, r.Ready())
			refused(time.Minute)(r)
			reset(r)
			require.Len(r, seen, 1, "the event of that comes when this one is over")
		}
	})
	call(errDown)(r)
	require.Equal(t, []toolcircuit.State{open, closed}, seen)

	synctest.Test(t, func(t *testing.T) { // every hook, in every way
		var r *rig
		depth := 0
		use := func() {
			if depth++; depth > 3 {
				return
			}
			r.State()
			r.Snapshot()
			r.Twin("other-api")
			require.NoError(t, r.SetPolicy(r.Policy()))
			try(r.ToolCircuit, errDown)
			if p, err := r.Allow(context.Background()); err == nil {
				p.Release()
			}
			all(override(toolcircuit.OverrideOpen), override(toolcircuit.OverrideNone), reset)(r)
		}
		o := once(nil)
		o.OnEvent = func(context.Context, toolcircuit.Event) { use() }
		o.OnCall = func(context.Context, toolcircuit.Call) { use() }
		o.Classify = func(context.Context, toolcircuit.Outcome) toolcircuit.Verdict { use(); return toolcircuit.Verdict{} }
		r = newRig(t, o)
		for _, err := range []error{errDown, nil, errDown, nil} {
			depth = 0
			try(r.ToolCircuit, err)
			add(time.Minute)(r)
		}
		from := closed
		for _, e := range r.events {
			require.Equal(t, from, e.From)
			from = e.To
		}
		require.Zero(t, r.Snapshot().HookPanics)
	})
}

// A hook that blocks delays later events and the call that delivers, no other call.
func TestHookThatBlocks(t *testing.T) {
	for _, stuck := range []toolcircuit.EventType{opened, halfOpened} {
		synctest.Test(t, func(t *testing.T) {
			unblock := make(chan struct{})
			r := heard(t, func(_ *rig, e toolcircuit.Event) {
				if e.Type == stuck {
					<-unblock
				}
			})
			if stuck == halfOpened {
				all(call(errDown), add(time.Minute))(r)
			}
			go try(r.ToolCircuit, errDown)
			synctest.Wait()
			before := len(r.events)
			all(refused(time.Minute), add(time.Minute), begin("probe"), refused(time.Minute), end("probe", nil))(r)
			require.Equal(t, closed, r.State())
			require.Len(t, r.events, before)
			close(unblock)
			synctest.Wait()
			require.Equal(t, []toolcircuit.EventType{opened, halfOpened, reclosed}, happened(r))
		})
	}
}

func TestHookThatPanics(t *testing.T) {
	boom := func() { panic("boom") }
	r := heard(t, func(*rig, toolcircuit.Event) { boom() })
	call(errDown)(r)
	all(add(time.Minute), call(nil))(r)
	require.Equal(t, closed, r.State())
	require.Len(t, r.events, 3, "the next events come")
	require.EqualValues(t, 3, r.Snapshot().HookPanics)

	o := policy(nil)
	o.OnCall = func(context.Context, toolcircuit.Call) { boom() }
	r = newRig(t, o)
	all(call(nil), trip, refused(time.Minute), add(time.Minute), begin("a"), end("a", nil))(r)
	require.Equal(t, closed, r.State())
	require.EqualValues(t, 6, r.Snapshot().HookPanics)
}

func TestHookThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exits := 0
		r := heard(t, func(r *rig, e toolcircuit.Event) {
			if e.Seq == 1 {
				all(reset, override(toolcircuit.OverrideOpen), override(toolcircuit.OverrideNone))(r)
			}
			if exits--; exits >= 0 {
				runtime.Goexit()
			}
		})
		exits = 2
		_, returned := quits(func() { call(errDown)(r) })
		require.False(t, returned)
		require.Len(t, r.events, 4, "the events behind it come")
		require.Equal(t, closed, r.State())
		require.Zero(t, r.Snapshot().HookPanics)
		call(errDown)(r) // and all goes on
		require.Len(t, r.events, 5)
	})

	o := policy(nil)
	o.OnCall = func(context.Context, toolcircuit.Call) { runtime.Goexit() }
	r := newRig(t, o)
	for range 3 {
		quits(func() { call(errDown)(r) })
	}
	require.Equal(t, open, r.State())
	add(time.Minute)(r)
	quits(func() { call(nil)(r) })
	require.Equal(t, closed, r.State())

	r = heard(t, func(*rig, toolcircuit.Event) { runtime.Goexit() })
	quits(func() { call(errDown)(r) })
	require.Len(t, r.calls, 1, "OnCall hears of it also if OnEvent, which hears of it first, ends the goroutine")
}

func TestFailuresAtOnceOpenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 200 {
			var events []toolcircuit.Event
			c := toolcircuit.MustNew("search-api", toolcircuit.Options{
				Policy:  toolcircuit.Policy{FailureThreshold: 10},
				OnEvent: func(_ context.Context, e toolcircuit.Event) { events = append(events, e) },
			})
			fail := make(chan struct{})
			for range 64 {
				go toolcircuit.Do(context.Background(), c, func(context.Context) (int, error) { <-fail; return 0, errDown })
			}
			synctest.Wait()
			close(fail)
			synctest.Wait()
			require.Len(t, events, 1)
			require.Equal(t, toolcircuit.EventOpened, events[0].Type)
			require.Equal(t, 10, events[0].Failures)
			require.EqualValues(t, 1, c.Snapshot().Seq)
			require.Equal(t, 1, c.Snapshot().Openings)
			require.EqualValues(t, 54, c.Snapshot().Stale)
		}
	})
}

// TestEventsComeInOrder has 32 goroutines flip one circuit in all ways.
func TestEventsComeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []toolcircuit.Event // no lock: they come one at a time
		var inside, crowded atomic.Int32
		c := toolcircuit.MustNew("search-api", toolcircuit.Options{
			Policy: toolcircuit.Policy{FailureThreshold: 2, Cooldown: time.Millisecond, MaxCooldown: time.Millisecond},
			OnEvent: func(_ context.Context, e toolcircuit.Event) {
				if inside.Add(1) > 1 {
					crowded.Add(1)
				}
				runtime.Gosched()
				events = append(events, e)
				inside.Add(-1)
			},
		})
		var all sync.WaitGroup
		for i := range 32 {
			all.Go(func() {
				for n := range 300 {
					var err error
					if (i+n)%3 > 0 {
						err = errDown
					}
					toolcircuit.Do(context.Background(), c, func(context.Context) (int, error) {
						time.Sleep(time.Duration(i%5) * time.Millisecond)
						return 0, err
					})
					switch {
					case n%50 == 0:
						c.Reset()
					case n%70 == 0:
						c.SetOverride(toolcircuit.OverrideOpen)
					default:
						c.SetOverride(toolcircuit.OverrideNone)
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		all.Wait()
		require.Zero(t, crowded.Load())
		require.Greater(t, len(events), 500)
		last := toolcircuit.Event{To: closed}
		for _, e := range events {
			require.Equal(t, last.To, e.From)
			require.GreaterOrEqual(t, e.Seq, last.Seq)
			if e.Type == toolcircuit.EventOverridden {
				require.Equal(t, e.From, e.To)
				require.NotEqual(t, last.Override, e.Override)
			} else {
				require.NotEqual(t, e.From, e.To)
				require.Greater(t, e.Seq, last.Seq)
			}
			last = e
		}
		require.Equal(t, c.Snapshot().Seq, last.Seq)
		require.Equal(t, c.Snapshot().Override, last.Override)
	})
}
