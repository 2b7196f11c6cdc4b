package toolcircuit_test

import (
	"bytes"
	"context"
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
	o := once(nil)
	o.OnEvent = func(_ context.Context, e toolcircuit.Event) { f(r, e) }
	r = newRig(t, o)
	return r
}

func TestEvents(t *testing.T) {
	type event = toolcircuit.Event
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	forget := func(r *rig) { r.events = nil }
	play(t, []script{
		{"an outage", nil, steps{
			begin("a"), calls(2, errDown), heardOf(0), add(time.Second), end("a", errDown), is(open),
			said(event{Type: opened, From: closed, To: open, Seq: 1, Openings: 1, RetryAt: at(61), Rule: toolcircuit.RuleThreshold,
				Kind: toolcircuit.KindUnavailable, Failures: 3, Calls: 3, Elapsed: time.Second, Err: errDown}),
			add(time.Minute), begin("probe"),
			said(event{Type: halfOpened, From: open, To: halfOpen, Seq: 2, Openings: 1}),
			add(2 * time.Second), end("probe", asked(9*time.Second)), is(open),
			said(event{Type: opened, From: halfOpen, To: open, Seq: 3, Openings: 2, RetryAt: at(72), Rule: toolcircuit.RuleProbe,
				Kind: toolcircuit.KindUnavailable, Failures: 1, Calls: 1, Elapsed: 2 * time.Second, Err: asked(9 * time.Second)}),
			add(9 * time.Second), call(nil), is(closed),
			said(event{Type: halfOpened, From: open, To: halfOpen, Seq: 4, Openings: 2},
				event{Type: reclosed, From: halfOpen, To: closed, Seq: 5, Openings: 2, Rule: toolcircuit.RuleProbe})}},
		{"a pause", nil, steps{
			call(errDown), call(wait(time.Second)), is(open),
			said(event{Type: opened, From: closed, To: open, Seq: 1, RetryAt: at(1), Rule: toolcircuit.RulePause,
				Kind: toolcircuit.KindRateLimited, Failures: 2, Calls: 2, Err: wait(time.Second)})}},
		{"a reset", nil, steps{
			reset, heardOf(0), trip, forget, reset,
			said(event{Type: reclosed, From: open, To: closed, Seq: 3, Rule: toolcircuit.RuleReset})}},
		{"overrides", nil, steps{
			override(shut), said(event{Type: toolcircuit.EventOverridden, From: closed, To: closed, Override: shut}),
			override(lifted), said(event{Type: toolcircuit.EventOverridden, From: closed, To: closed}), trip, forget,
			override(letAllIn),
			said(event{Type: toolcircuit.EventOverridden, From: open, To: open, Override: letAllIn, Seq: 1, Openings: 1})}},
		{"the state changes beneath an override", nil, steps{
			begin("a", "b", "c"), override(shut), forget, end("a", errDown), end("b", errDown), end("c", errDown),
			said(event{Type: opened, From: closed, To: open, Override: shut, Seq: 1, Openings: 1, RetryAt: at(60),
				Rule: toolcircuit.RuleThreshold, Kind: toolcircuit.KindUnavailable, Failures: 3, Calls: 3, Err: errDown})}},
	})
}

// Capped marks the opening that lifts the curve to MaxCooldown, whatever the dependency asked
// for.
func TestEventCappedOncePerStay(t *testing.T) {
	capped := func(want bool) func(*rig) {
		return func(r *rig) {
			r.Helper()
			e := last(r)
			require.Equal(r, toolcircuit.EventOpened, e.Type)
			require.Equal(r, want, e.Capped)
		}
	}
	again := func(err error) func(*rig) { return all(untilDue, call(err)) }
	atOnce := func(p *toolcircuit.Policy) { p.FailureThreshold = 1; p.MaxCooldown = time.Minute }
	play(t, []script{
		{"when the curve gets there", func(p *toolcircuit.Policy) { p.MaxCooldown = 4 * time.Minute }, steps{
			trip, capped(false), is(open), add(time.Minute), call(errDown), capped(false), is(open),
			add(2 * time.Minute), call(errDown), capped(true), is(open),
			add(4 * time.Minute), call(errDown), capped(false), is(open)}},
		{"a recovery is part of the stay", atOnce, steps{
			call(errDown), capped(true), add(time.Minute), call(nil), call(errDown), capped(false), is(open)}},
		{"forgotten openings end it", atOnce, steps{
			call(errDown), capped(true), add(time.Minute), call(nil), add(time.Minute), call(errDown), capped(true), is(open)}},
		{"a reset ends it", atOnce, steps{call(errDown), capped(true), reset, call(errDown), capped(true), is(open)}},
		{"openings forgotten at the cap do not", func(p *toolcircuit.Policy) { atOnce(p); p.MaxCooldown = 2 * time.Minute }, steps{
			call(errDown), again(errDown), capped(true), again(errDown), again(nil), is(closed), // 1, 2, 2 minutes
			add(2 * time.Minute), openings(2), call(errDown), capped(false), is(open),
			again(nil), add(4 * time.Minute), openings(1), call(errDown), capped(true), is(open),
		}},
		{"by a wait that was asked for, too", atOnce, steps{
			call(asked(time.Second)), capped(true), again(errDown), capped(false), again(asked(time.Hour)), capped(false), is(open)}},
		{"N18: alternately with and without a wait", func(p *toolcircuit.Policy) { p.MaxCooldown = 8 * time.Minute }, steps{
			trip, again(errDown), again(asked(time.Second)), is(open), // 1, 2, 4 minutes
			again(errDown), capped(true), is(open),
			func(r *rig) {
				for range 10 {
					all(again(asked(time.Second)), capped(false), again(errDown), capped(false))(r)
				}
			}, is(open),
		}},
		{"not by a pause, which lifts nothing", atOnce, steps{
			call(wait(time.Second)), capped(false), again(errDown), capped(true), again(wait(time.Second)), capped(false), is(open)}},
		{"not by an opening above a cap that SetPolicy has lowered", func(p *toolcircuit.Policy) { p.MaxCooldown = 8 * time.Minute }, steps{
			trip, again(errDown), capped(false), set(func(p *toolcircuit.Policy) { p.MaxCooldown = time.Minute }), is(open),
			again(errDown), capped(false), is(open)}},
	})
}

func TestEventContext(t *testing.T) {
	type key struct{}
	var got context.Context
	o := once(nil)
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
	type outcome = toolcircuit.Call
	panics := func(r *rig) { quits(func() { tell(r, func(context.Context) (int, error) { panic("boom") }) }) }
	exits := func(r *rig) {
		quits(func() { tell(r, func(context.Context) (int, error) { runtime.Goexit(); return 0, nil }) })
	}
	late := &toolcircuit.CallTimeoutError{Dependency: "search-api", After: 8 * time.Second, Err: errDown}
	for _, tt := range []struct {
		name  string
		calls int        // that OnCall hears of
		do    func(*rig) // the last call is the one
		want  outcome
	}{
		{"healthy", 1, call(nil), outcome{State: closed, Executed: true, Verdict: healthy}},
		{"failed", 1, call(errDown), outcome{State: closed, Executed: true, Verdict: unavailable, Err: errDown}},
		{"failed with a wait", 1, call(asked(time.Second)),
			outcome{State: closed, Executed: true, Verdict: after(unavailable, time.Second), Err: asked(time.Second)}},
		{"ignored", 1, call(errInvalid), outcome{State: closed, Executed: true, Verdict: invalid, Err: errInvalid}},
		{"slow", 1, all(begin("a"), add(6*time.Second), end("a", nil)),
			outcome{State: closed, Executed: true, Verdict: counted(toolcircuit.KindSlow), Elapsed: 6 * time.Second}},
		{"late", 1, all(begin("a"), add(9*time.Second), end("a", errDown)),
			outcome{State: closed, Executed: true, Verdict: timeout, Elapsed: 9 * time.Second, Err: late}},
		{"probe", 4, all(cooled, call(nil)), outcome{State: halfOpen, Executed: true, Probe: true, Verdict: healthy}},
		{"stale", 4, all(begin("a"), trip, end("a", nil)), outcome{State: closed, Executed: true, Stale: true, Verdict: healthy}},
		{"let in by an override", 4, all(trip, override(letAllIn), call(errDown)),
			outcome{State: open, Executed: true, Verdict: unavailable, Err: errDown}},
		{"handed back unused is no call", 1, all(call(nil), begin("a"), release("a")),
			outcome{State: closed, Executed: true, Verdict: healthy}},
		{"refused", 4, all(trip, refused(time.Minute)), outcome{
			State: open, Reason: toolcircuit.ReasonDependencyOpen, Verdict: rejected, RetryAt: time.Unix(60, 0), Err: toolcircuit.ErrCircuitOpen}},
		{"dead on entry", 4, all(cooled, func(r *rig) {
			toolcircuit.Do(toolcircuit.WithRunID(endedContext(), "run-1"), r.ToolCircuit, op(nil))
		}), outcome{RunID: "run-1", State: halfOpen, Verdict: canceled, Err: context.Canceled}},
		{"panicked", 1, panics,
			outcome{State: closed, Executed: true, Verdict: counted(toolcircuit.KindPanic), Err: toolcircuit.ErrNoReturn}},
		{"ended its goroutine", 1, exits,
			outcome{State: closed, Executed: true, Verdict: counted(toolcircuit.KindPanic), Err: toolcircuit.ErrNoReturn}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, policy(func(p *toolcircuit.Policy) { p.SlowCall = 5 * time.Second; p.CallTimeout = 8 * time.Second }))
			as(toolcircuit.Tool{Name: "web_search"}, tt.do)(r)
			tt.want.Dependency, tt.want.Tool = "search-api", "web_search"
			require.Len(t, r.calls, tt.calls)
			got := lastCall(r)
			if e := new(toolcircuit.OpenError); errors.As(got.Err, &e) {
				got.Err = toolcircuit.ErrCircuitOpen
			}
			require.Equal(t, tt.want, got)
		})
	}
}

func TestLogValues(t *testing.T) {
	secret := errors.New("password=hunter2")
	for want, v := range map[string]any{
		`{"dependency":"search-api","transition":"closed -> open","rule":"threshold","kind":"timeout","failures":3,"openings":2,` +
			`"retry_at":"1970-01-01T00:01:00Z","run_id":"run-1","duration":1}`: toolcircuit.Event{
			Type: opened, Dependency: "search-api", From: closed, To: open, Openings: 2, RetryAt: time.Unix(60, 0).UTC(),
			Rule: toolcircuit.RuleThreshold, Kind: toolcircuit.KindTimeout, Failures: 3, Elapsed: 1, RunID: "run-1", Err: secret,
		},
		`{"dependency":"search-api","transition":"half_open -> closed","rule":"probe"}`: toolcircuit.Event{
			Type: reclosed, Dependency: "search-api", From: halfOpen, To: closed, Rule: toolcircuit.RuleProbe},
		`{"dependency":"search-api","transition":"open -> open","override":"closed"}`: toolcircuit.Event{
			Type: toolcircuit.EventOverridden, Dependency: "search-api", From: open, To: open, Override: letAllIn},
		`{"dependency":"search-api","tool":"web_search","state":"closed","kind":"timeout","executed":true,"run_id":"run-1",` +
			`"duration":1000000000}`: toolcircuit.Call{
			Dependency: "search-api", Tool: "web_search", RunID: "run-1", State: closed, Executed: true,
			Verdict: ignored(toolcircuit.KindTimeout), Elapsed: time.Second, Err: secret,
		},
		`{"dependency":"search-api","state":"","kind":"","executed":false}`: toolcircuit.Call{Dependency: "search-api"},
	} {
		var out bytes.Buffer
		slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "v", v)
		require.Contains(t, out.String(), `"msg":"m","v":`+want+"}\n")
	}
}

func TestHookMayUseTheCircuit(t *testing.T) {
	var seen []toolcircuit.State
	r := heard(t, func(r *rig, e toolcircuit.Event) {
		seen = append(seen, r.State())
		require.Equal(r, e.Seq, r.Snapshot().Seq, "what it tells of is visible")
		if e.To == open {
			require.False(r, r.Ready())
			all(refused(time.Minute), reset)(r)
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
			all(override(shut), override(lifted), reset)(r)
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
			all(refused(time.Minute), add(time.Minute), begin("probe"), refused(time.Minute), end("probe", nil), is(closed))(r)
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
	all(call(errDown), add(time.Minute), call(nil), is(closed))(r)
	require.Len(t, r.events, 3, "the next events come")
	require.EqualValues(t, 3, r.Snapshot().HookPanics)

	o := policy(nil)
	o.OnCall = func(context.Context, toolcircuit.Call) { boom() }
	r = newRig(t, o)
	all(call(nil), trip, refused(time.Minute), add(time.Minute), begin("a"), end("a", nil), is(closed))(r)
	require.EqualValues(t, 6, r.Snapshot().HookPanics)
}

func TestHookThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exits := 0
		r := heard(t, func(r *rig, e toolcircuit.Event) {
			if e.Seq == 1 {
				all(reset, override(shut), override(lifted))(r)
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
	all(is(open), add(time.Minute))(r)
	quits(func() { call(nil)(r) })
	require.Equal(t, closed, r.State())

	r = heard(t, func(*rig, toolcircuit.Event) { runtime.Goexit() })
	quits(func() { call(errDown)(r) })
	require.Len(t, r.calls, 1, "OnCall hears of it also if OnEvent, which hears of it first, ends the goroutine")
}

func TestFailuresAtOnceOpenOnce(t *testing.T) {
	for range 200 {
		var events []toolcircuit.Event
		o := policy(func(p *toolcircuit.Policy) { p.FailureThreshold = 10 })
		o.OnEvent = func(_ context.Context, e toolcircuit.Event) { events = append(events, e) }
		r := newQuietRig(t, o)
		endTogether(r, 64, func(int) error { return errDown })
		require.Len(t, events, 1)
		require.Equal(t, opened, events[0].Type)
		require.Equal(t, 10, events[0].Failures)
		all(seq(1), openings(1), stale(54))(r)
	}
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
