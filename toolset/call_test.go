package toolset_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// narrow lets two calls at once to the dependency of its tools.
var narrow = toolset.Config{
	Dependencies: map[string]toolset.Dependency{"api": {MaxInFlight: 2}},
	Tools:        map[string]toolset.Tool{"a": {Dependency: "api"}, "b": {Dependency: "api"}},
}

// begin is a call that goes on until its permit ends.
func (r *rig) begin(tool string) *toolset.Permit {
	r.Helper()
	p, err := r.Allow(r.ctx, tool, toolset.Unknown)
	require.NoError(r, err)
	return &p
}

func TestBusyIsRefusedAndNoFailure(t *testing.T) {
	r := newRig(t, narrow, toolset.Options{})
	first, second := r.begin("a"), r.begin("b")
	for range 10 {
		blocked := r.refused("a")
		require.Equal(t, toolcircuit.ReasonBusy, blocked.Reason)
		require.Equal(t, "api", blocked.Dependency)
		require.Zero(t, blocked.RetryAfterMS)
		require.Contains(t, blocked.Message, "until a running call has ended")
	}
	require.Equal(t, 2, r.circuit("api").InFlight)
	require.Len(t, *r.calls, 10)
	require.Equal(t, toolcircuit.KindRejected, (*r.calls)[0].Verdict.Kind)
	require.False(t, (*r.calls)[0].Executed)
	require.Equal(t, "a", (*r.calls)[0].Tool)
	first.Release()
	r.call("a", nil)
	second.Settle(r.ctx, nil, nil)
	require.Zero(t, r.circuit("api").InFlight)
	require.Zero(t, r.circuit("api").Streak)
	require.Equal(t, toolcircuit.StateClosed, r.circuit("api").State)
}

// A circuit that refuses does not end with the running calls, so it comes before a missing slot.
func TestOpenComesBeforeBusy(t *testing.T) {
	c := toolset.Config{
		Dependencies: map[string]toolset.Dependency{"api": {MaxInFlight: 1}},
		Tools:        map[string]toolset.Tool{"a": {Dependency: "api"}, "b": {Dependency: "api"}},
	}
	for _, l := range []*toolset.Limits{nil, {}} { // without and with a session
		r := newRig(t, c, toolset.Options{})
		if l != nil {
			run, err := r.Session("run", *l)
			require.NoError(t, err)
			r.ctx = toolset.WithSession(r.ctx, run)
		}
		r.trip("a")
		r.clock.Add(time.Minute)
		probe := r.begin("a")
		blocked := r.refused("b")
		require.Equal(t, toolcircuit.ReasonDependencyOpen, blocked.Reason)
		require.NotZero(t, blocked.RetryAfterMS)
		require.NoError(t, r.SetOverride("a", toolcircuit.OverrideOpen))
		require.Equal(t, toolcircuit.ReasonManualOpen, r.refused("b").Reason)
		require.NoError(t, r.SetOverride("a", toolcircuit.OverrideNone))

		canceled, cancel := context.WithCancel(r.ctx)
		cancel()
		_, err := r.Allow(canceled, "b", nil)
		require.Equal(t, context.Canceled, err)
		require.Zero(t, r.circuit("api").Busy)

		inside := probe.Context(r.ctx) // a call that the circuit would let through as a part of the probe
		_, err = r.Allow(inside, "b", nil)
		var refusal *toolcircuit.OpenError
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, toolcircuit.ReasonBusy, refusal.Reason)
		require.Equal(t, 1, r.circuit("api").Busy)
		probe.Settle(r.ctx, nil, nil)
		r.call("b", nil)
	}
}

func TestSlotComesBackOnEveryExit(t *testing.T) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	value := func(context.Context) (int, error) { return 1, nil }
	for name, exit := range map[string]func(*rig){
		"return": func(r *rig) { toolset.Do(r.ctx, r.Set, "a", nil, value) },
		"error":  func(r *rig) { r.call("a", errDown) },
		"panic": func(r *rig) {
			require.PanicsWithValue(r, "tool", func() {
				toolset.Do(r.ctx, r.Set, "a", nil, func(context.Context) (int, error) { panic("tool") })
			})
		},
		"goexit": func(r *rig) {
			var running sync.WaitGroup
			running.Go(func() {
				toolset.Do(r.ctx, r.Set, "a", nil, func(context.Context) (int, error) { runtime.Goexit(); return 0, nil })
			})
			running.Wait()
		},
		"dead context": func(r *rig) {
			_, err := toolset.Do(canceled, r.Set, "a", nil, value)
			require.ErrorIs(r, err, context.Canceled)
			permit, err := r.Allow(canceled, "a", nil)
			require.ErrorIs(r, err, context.Canceled)
			permit.Release()
		},
		"open": func(r *rig) {
			r.trip("a")
			r.refused("a")
			permit, err := r.Allow(r.ctx, "a", nil)
			require.ErrorIs(r, err, toolcircuit.ErrCircuitOpen)
			permit.Release()
			permit.Settle(r.ctx, nil, nil)
		},
		"settle, then release": func(r *rig) {
			p := r.begin("a")
			p.Settle(r.ctx, nil, nil)
			p.Release()
			p.Settle(r.ctx, nil, errDown)
		},
		"release, then settle": func(r *rig) {
			p := r.begin("a")
			p.Release()
			p.Settle(r.ctx, nil, errDown)
		},
		"busy": func(r *rig) {
			first, second := r.begin("a"), r.begin("a")
			r.refused("a")
			permit, err := r.Allow(r.ctx, "a", nil)
			require.ErrorIs(r, err, toolcircuit.ErrCircuitOpen)
			permit.Release()
			first.Release()
			second.Release()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, narrow, toolset.Options{})
				exit(r)
				require.NoError(t, r.Reset("a"))
				require.Zero(t, r.circuit("api").InFlight)
				r.begin("a")
				r.begin("b")
				require.Equal(t, toolcircuit.ReasonBusy, r.refused("a").Reason)
			})
		})
	}
}

func TestSlotsAreOfOneScope(t *testing.T) {
	c := toolset.Config{
		Dependencies: map[string]toolset.Dependency{"a": {MaxInFlight: 1, Scoped: true}},
		Monitored:    []string{"a"},
	}
	r := newRig(t, c, toolset.Options{})
	one := r.in("one").begin("a")
	require.Equal(t, toolcircuit.ReasonBusy, r.in("one").refused("a").Reason)
	r.in("two").call("a", nil)
	c.Dependencies = map[string]toolset.Dependency{"a": {MaxInFlight: 2, Scoped: true}}
	r.apply(c)
	r.in("one").call("a", nil)
	one.Release()
}

func TestPermitOfAnUnguardedTool(t *testing.T) {
	r := newRig(t, toolset.Config{}, toolset.Options{})
	p := r.begin("free")
	require.False(t, p.Probe())
	p.Settle(r.ctx, nil, errDown)
	p.Release()
	var zero toolset.Permit
	zero.Settle(r.ctx, nil, nil)
	zero.Release()
	require.False(t, zero.Probe())
	require.Empty(t, *r.calls)
}

// A permit is used in one way, whether the tool is guarded or not.
func TestPermitsPanicAlike(t *testing.T) {
	r := newRig(t, narrow, toolset.Options{})
	var none context.Context
	for _, tool := range []string{"a", "free"} {
		p := r.begin(tool)
		require.Panics(t, func() { p.Context(none) }, tool)
		require.Panics(t, func() { p.Settle(none, nil, nil) }, tool)
		p.Context(r.ctx)
		require.Panics(t, func() { p.Context(r.ctx) }, tool)
		p.Release()
		require.Panics(t, func() { p.Context(r.ctx) }, tool)

		p = r.begin(tool)
		p.Settle(r.ctx, nil, nil)
		require.Panics(t, func() { p.Context(r.ctx) }, tool)
		require.Panics(t, func() { p.Settle(none, nil, nil) }, tool)
	}
}

// A later Settle has the first one's verdict, also while others settle, whether the tool is guarded
// or not.
func TestPermitsSettleAlike(t *testing.T) {
	r := newRig(t, toolset.Config{Monitored: []string{"a"}}, toolset.Options{OnCall: func(context.Context, toolcircuit.Call) {}})
	for _, tool := range []string{"a", "free"} {
		for _, err := range []error{nil, errMissing} {
			p := r.begin(tool)
			first, _ := p.Settle(r.ctx, nil, err)
			later, handedOn := p.Settle(r.ctx, nil, errDown)
			require.Equal(t, first, later, "%s, %v", tool, err)
			require.Equal(t, errDown, handedOn)

			p = r.begin(tool)
			p.Release()
			later, _ = p.Settle(r.ctx, nil, err)
			require.Zero(t, later, "%s, %v", tool, err)

			p = r.begin(tool)
			var settling sync.WaitGroup
			for range 4 {
				settling.Go(func() { require.False(t, p.Probe()) })
				settling.Go(func() {
					v, _ := p.Settle(r.ctx, nil, err)
					require.Contains(t, []toolcircuit.Verdict{first, {}}, v, "%s, %v", tool, err)
				})
			}
			settling.Wait()
			later, _ = p.Settle(r.ctx, nil, nil)
			require.Equal(t, first, later, "%s, %v", tool, err)
		}
	}
}

func TestNilArgumentsPanic(t *testing.T) {
	r := newRig(t, toolset.Config{}, toolset.Options{})
	op := func(context.Context) (int, error) { return 0, nil }
	var none context.Context
	require.Panics(t, func() { toolset.Do(none, r.Set, "a", nil, op) })
	require.Panics(t, func() { toolset.Do(r.ctx, nil, "a", nil, op) })
	require.Panics(t, func() { toolset.Do[int](r.ctx, r.Set, "a", nil, nil) })
	require.Panics(t, func() { toolset.Wrap[int, int](r.Set, "a", nil) })
	require.Panics(t, func() { toolset.Wrap(nil, "a", func(context.Context, int) (int, error) { return 0, nil }) })
	require.Panics(t, func() { toolset.WrapResult(nil, "a", func(context.Context, int) (int, error) { return 0, nil }) })
	require.Panics(t, func() { toolset.WrapResult[int, int](r.Set, "a", nil) })
	require.Panics(t, func() { r.Allow(none, "a", nil) })
	resultOf := func(ctx context.Context, s *toolset.Set) func() {
		return func() { toolset.ResultOf(ctx, s, "a", 0, toolcircuit.Verdict{}, nil) }
	}
	require.PanicsWithValue(t, "toolset: ResultOf: the Set or ctx is nil", resultOf(none, r.Set))
	require.PanicsWithValue(t, "toolset: ResultOf: the Set or ctx is nil", resultOf(r.ctx, nil))
	require.PanicsWithValue(t, "toolset: Scope: ctx is nil", func() { toolset.Scope(none) })
	require.PanicsWithValue(t, "toolset: IdempotencyKey: ctx is nil", func() { toolset.IdempotencyKey(none) })
}

func TestContextOfTheOperation(t *testing.T) {
	r := newRig(t, narrow, toolset.Options{})
	r.trip("a")
	r.clock.Add(time.Minute)
	probe := toolset.Wrap(r.Set, "a", func(ctx context.Context, _ int) (bool, error) { return toolcircuit.IsProbe(ctx), nil })
	got, err := probe(r.ctx, 0)
	require.NoError(t, err)
	require.True(t, got)
}

func TestA058WritesDoNotProbe(t *testing.T) {
	r := newRig(t, toolset.Config{Tools: map[string]toolset.Tool{
		"refund": {Dependency: "bank", SideEffects: &yes},
		"read":   {Dependency: "bank"},
	}}, toolset.Options{})
	r.trip("refund")
	r.clock.Add(time.Minute)
	r.refused("refund")
	r.call("read", nil)
	r.call("refund", nil)
}

func TestA085NoScopeInEventsAndCalls(t *testing.T) {
	r := newRig(t, toolset.Config{
		Dependencies: map[string]toolset.Dependency{"api": {Scoped: true}},
		Monitored:    []string{"api"},
	}, toolset.Options{})
	r.in("tenant").trip("api")
	r.in("tenant").refused("api")
	require.Len(t, *r.events, 1)
	e := (*r.events)[0]
	require.Equal(t, "api", e.Dependency)
	require.Equal(t, toolcircuit.RuleThreshold, e.Rule)
	for _, c := range *r.calls {
		require.Equal(t, "api", c.Dependency)
		require.Equal(t, "api", c.Tool)
	}
	require.NotContains(t, fmt.Sprint(e.LogValue(), (*r.calls)[0].LogValue()), "tenant")
	require.Equal(t, "tenant", toolset.Scope(r.in("tenant").ctx))
}

func TestA103EveryPathOneGate(t *testing.T) {
	fail := func(context.Context, int) (int, error) { return 0, errDown }
	paths := map[string]func(r *rig, tool string){
		"Do": func(r *rig, tool string) {
			toolset.Do(r.ctx, r.Set, tool, 0, func(ctx context.Context) (int, error) { return fail(ctx, 0) })
		},
		"Wrap":       func(r *rig, tool string) { toolset.Wrap(r.Set, tool, fail)(r.ctx, 0) },
		"WrapResult": func(r *rig, tool string) { toolset.WrapResult(r.Set, tool, fail)(r.ctx, 0) },
		"DoResult": func(r *rig, tool string) {
			toolset.DoResult(r.ctx, r.Set, tool, 0, func(ctx context.Context) (int, error) { return fail(ctx, 0) })
		},
		"Allow": func(r *rig, tool string) {
			if p, err := r.Allow(r.ctx, tool, 0); err == nil {
				p.Settle(r.ctx, nil, errDown)
			}
		},
	}
	for trips, trip := range paths {
		for calls, call := range paths {
			r := newRig(t, narrow, toolset.Options{})
			for range 3 {
				trip(r, "a")
			}
			require.Equal(t, toolcircuit.StateOpen, r.circuit("api").State, trips)
			call(r, "b")
			last := (*r.calls)[3]
			require.False(t, last.Executed, "%s after %s", calls, trips)
			require.Equal(t, "b", last.Tool)
		}
	}
}

func TestA107OneRebuildFor400(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, toolset.Config{Monitored: []string{"api"}}, toolset.Options{OnCall: func(context.Context, toolcircuit.Call) {}})
		r.trip("api")
		r.clock.Add(time.Minute)
		var running sync.WaitGroup
		var ran, blocked atomic.Int32
		rebuilt := make(chan struct{})
		for range 400 {
			running.Go(func() {
				_, err := toolset.Do(r.ctx, r.Set, "api", nil, func(context.Context) (int, error) {
					ran.Add(1)
					<-rebuilt
					return 0, nil
				})
				var e *toolcircuit.OpenError
				if errors.As(err, &e) && e.RetryAfter() > 0 {
					blocked.Add(1)
				}
			})
		}
		synctest.Wait()
		close(rebuilt)
		running.Wait()
		require.EqualValues(t, 1, ran.Load())
		require.EqualValues(t, 399, blocked.Load())
	})
}

func TestA112PanicInAHook(t *testing.T) {
	r := newRig(t, narrow, toolset.Options{
		Classify: func(_ context.Context, o toolcircuit.Outcome) toolcircuit.Verdict { panic("classify") },
		OnCall:   func(context.Context, toolcircuit.Call) { panic("hook") },
		Message:  func(toolcircuit.Blocked) string { panic("message") },
	})
	first, second := r.begin("a"), r.begin("a")
	require.NotEmpty(t, r.refused("a").Message)
	require.EqualValues(t, 1, r.Snapshot().HookPanics)
	first.Release()
	second.Settle(r.ctx, nil, nil)
	require.Zero(t, r.circuit("api").InFlight)
	require.Equal(t, 1, r.circuit("api").Streak)
}

func TestHooksMayUseTheSet(t *testing.T) {
	var r *rig
	use := func() {
		r.Snapshot()
		require.NoError(t, r.SetOverride("b", toolcircuit.OverrideNone))
		require.NoError(t, r.Apply(r.Config()))
		r.Circuit(r.ctx, "b")
	}
	c := narrow
	c.Default = steady
	s, err := toolset.New(c, toolset.Options{
		OnEvent: func(context.Context, toolcircuit.Event) { use() },
		OnCall:  func(context.Context, toolcircuit.Call) { use() },
	})
	require.NoError(t, err)
	r = &rig{T: t, Set: s, ctx: context.Background()}
	r.trip("a")
	r.refused("b")
	require.NoError(t, r.SetOverride("a", toolcircuit.OverrideOpen))
	require.NoError(t, r.Reset("a"))
	require.Zero(t, r.circuit("api").HookPanics)
}

func TestR26ShortWaitsAreWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := toolset.New(toolset.Config{Default: steady, Monitored: []string{"api"}}, toolset.Options{})
		require.NoError(t, err)
		r := &rig{T: t, Set: s, ctx: context.Background()}
		r.trip("api")
		short, cancel := context.WithTimeout(r.ctx, 59*time.Second)
		defer cancel()
		require.ErrorIs(t, s.Circuit(short, "api").Wait(short), toolcircuit.ErrCircuitOpen)
		long, cancel := context.WithTimeout(r.ctx, 61*time.Second)
		defer cancel()
		require.NoError(t, s.Circuit(long, "api").Wait(long))
		r.call("api", nil)
	})
}

func TestR32FanOutIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := toolset.Config{
			Dependencies: map[string]toolset.Dependency{"api": {MaxInFlight: 5}},
			Monitored:    []string{"api"},
		}
		r := newRig(t, c, toolset.Options{OnCall: func(context.Context, toolcircuit.Call) {}})
		var running sync.WaitGroup
		var ran atomic.Int32
		failed := make(chan struct{})
		for range 1000 {
			running.Go(func() {
				toolset.Do(r.ctx, r.Set, "api", nil, func(context.Context) (int, error) {
					ran.Add(1)
					<-failed
					return 0, errDown
				})
			})
		}
		synctest.Wait()
		require.Equal(t, 5, r.circuit("api").InFlight)
		close(failed)
		running.Wait()
		require.EqualValues(t, 5, ran.Load())
		r.refused("api")
	})
}

// N22: one call is judged once, with the true dependency and the time that it took, whatever
// listens, whether the tool is guarded or not.
func TestOneCallIsJudgedOnce(t *testing.T) {
	for _, tool := range []string{"a", "free"} {
		for form, call := range map[string]func(ctx context.Context, s *toolset.Set, op func(context.Context) (int, error)){
			"Do": func(ctx context.Context, s *toolset.Set, op func(context.Context) (int, error)) {
				toolset.Do(ctx, s, tool, 1, op)
			},
			"DoResult": func(ctx context.Context, s *toolset.Set, op func(context.Context) (int, error)) {
				toolset.DoResult(ctx, s, tool, 1, op)
			},
			"Allow": func(ctx context.Context, s *toolset.Set, op func(context.Context) (int, error)) {
				p, err := s.Allow(ctx, tool, 1)
				require.NoError(t, err)
				defer p.Release()
				value, err := op(p.Context(ctx))
				v, err := p.Settle(ctx, value, err)
				again, _ := p.Settle(ctx, value, err)
				require.Equal(t, v, again)
				toolset.ResultOf(ctx, s, tool, value, v, err)
			},
		} {
			t.Run(tool+"/"+form, func(t *testing.T) {
				var asked []toolcircuit.Outcome
				r := newRig(t, narrow, toolset.Options{Classify: func(_ context.Context, o toolcircuit.Outcome) toolcircuit.Verdict {
					asked = append(asked, o)
					if o.Dependency == "api" || o.Dependency == "free" {
						return toolcircuit.Verdict{Kind: toolcircuit.KindNotFound}
					}
					return toolcircuit.Verdict{}
				}})
				run, err := r.Session("run", toolset.Limits{})
				require.NoError(t, err)
				ctx := toolset.WithSession(r.ctx, run)
				call(ctx, r.Set, func(context.Context) (int, error) {
					r.clock.Add(time.Second)
					return 7, errors.New("no such thing")
				})
				require.Len(t, asked, 1)
				require.Equal(t, map[string]string{"a": "api", "free": "free"}[tool], asked[0].Dependency)
				if tool == "a" {
					require.Equal(t, time.Second, asked[0].Elapsed)
				}
				result, err := toolset.DoResult(ctx, r.Set, tool, 1, func(context.Context) (int, error) { return 0, nil })
				require.NoError(t, err)
				require.Equal(t, toolcircuit.ReasonRepeatedCall, result.Reason, "the session goes by that verdict")
				require.Equal(t, toolcircuit.KindNotFound, result.Cause)
				require.Len(t, asked, 1)
			})
		}
	}
}

// N23: a result tells the wait of the circuit that the call went through.
func TestResultTellsTheTrueWait(t *testing.T) {
	c := narrow
	c.Dependencies = map[string]toolset.Dependency{"api": {Scoped: true}}
	r := newRig(t, c, toolset.Options{}).in("tenant")
	result, err := toolset.DoResult(r.ctx, r.Set, "a", nil, func(context.Context) (int, error) { return 0, errDown })
	require.NoError(t, err)
	for result.RetryAfterMS == 0 && r.circuit("api").State == toolcircuit.StateClosed {
		result, err = toolset.DoResult(r.ctx, r.Set, "a", nil, func(context.Context) (int, error) { return 0, errDown })
		require.NoError(t, err)
	}
	require.Equal(t, toolcircuit.StatusFailed, result.Status)
	require.EqualValues(t, 60_000, result.RetryAfterMS)
	require.NotContains(t, result.Message, "once more")
}

// A permit's context has what the core's has, and IdempotencyKey.
func TestPermitContextHasCallTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := toolset.New(toolset.Config{Monitored: []string{"*"}}, toolset.Options{})
		require.NoError(t, err)
		require.NoError(t, s.Circuit(t.Context(), "pay").SetPolicy(toolcircuit.Policy{CallTimeout: time.Second}))
		run, err := s.Session("run", toolset.Limits{})
		require.NoError(t, err)
		ctx := toolset.WithSession(t.Context(), run)
		p, err := s.Allow(ctx, "pay", 10)
		require.NoError(t, err)
		inner := p.Context(ctx)
		require.NotEmpty(t, toolset.IdempotencyKey(inner))
		<-inner.Done()
		v, err := p.Settle(ctx, nil, inner.Err())
		require.Equal(t, toolcircuit.KindTimeout, v.Kind)
		require.ErrorIs(t, err, toolcircuit.ErrCallTimeout)
	})
}
