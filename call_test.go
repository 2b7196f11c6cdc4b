package toolcircuit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

func TestPermit(t *testing.T) {
	play(t, []script{
		{"released after the opening it has no outcome that could be stale", nil, steps{begin("a"), trip, release("a"), stale(0), is(open)}},
		{"a second release frees no other's slot", nil, steps{
			probing, release("probe"), begin("second"), release("probe"), refused(time.Minute), is(halfOpen)}},
		{"it knows whether it is the probe", nil, steps{
			begin("a"), probing, is(halfOpen),
			probe("a", false), probe("probe", true), override(letAllIn), begin("b"), probe("b", false)}}, // b has no vote
	})

	t.Run("the zero one, and that of a refusal, do nothing", func(t *testing.T) {
		r := run(t, policy(nil), trip)
		refused, err := r.Allow(t.Context())
		require.ErrorIs(t, err, toolcircuit.ErrCircuitOpen)
		for _, p := range []*toolcircuit.Permit{new(toolcircuit.Permit), &refused} {
			require.Equal(t, t.Context(), p.Context(t.Context()))
			v, err := p.Settle(t.Context(), nil, errDown)
			require.Zero(t, v)
			require.Equal(t, errDown, err)
			p.Release()
			require.False(t, p.Probe())
			require.Equal(t, t.Context(), p.Context(t.Context()))
		}
		stale(0)(r)
	})
	t.Run("a plain circuit has nothing to record of a healthy call", func(t *testing.T) {
		c := toolcircuit.MustNew("search-api", toolcircuit.Options{})
		r := &rig{T: t, ToolCircuit: c, permits: map[string]*toolcircuit.Permit{}}
		all(begin("a", "b"), end("a", nil), end("a", errDown), streak(0), end("b", errDown), streak(1), begin("c"), end("c", nil), streak(0),
			begin("d", "e"), end("d", errDown), end("e", nil), streak(0))(r)
	})
	t.Run("one of many settles wins, from any goroutine", func(t *testing.T) {
		r := run(t, policy(nil), begin("a"))
		together(32, func(int) { r.permits["a"].Settle(context.Background(), nil, errDown) })
		streak(1)(r)
	})
}

func TestDeadContextOnEntry(t *testing.T) {
	ctx := endedContext()
	dead := func(r *rig) {
		r.Helper()
		_, err := toolcircuit.Do(ctx, r.ToolCircuit, func(context.Context) (int, error) {
			r.Error("it ran")
			return 0, nil
		})
		require.Equal(r, context.Canceled, err)
		_, err = r.Allow(ctx)
		require.Equal(r, context.Canceled, err)
		require.Zero(r, r.Snapshot().HookPanics)
	}
	dead(newQuietRig(t, toolcircuit.Options{})) // the short way
	play(t, []script{
		{"takes no slot", nil, steps{cooled, dead, seq(1), is(halfOpen), call(nil), is(closed)}},
		{"is no refusal", nil, steps{trip, dead, is(open), func(r *rig) { require.Zero(r, r.Snapshot().Refused) }}},
		{"is told before the override", nil, steps{override(shut), dead, is(closed)}},
	})
}

func TestNestedCircuits(t *testing.T) {
	inner := run(t, policy(nil), trip, is(open))
	nested := func(r *rig) {
		r.Helper()
		_, err := toolcircuit.Do(context.Background(), r.ToolCircuit, func(ctx context.Context) (int, error) {
			return toolcircuit.Do(ctx, inner.ToolCircuit, func(context.Context) (int, error) { return 0, nil })
		})
		require.ErrorIs(r, err, toolcircuit.ErrCircuitOpen)
	}
	// meets is one call of which each call inside, through a circuit of its own, ends as told.
	meets := func(inside ...error) func(*rig) {
		return func(r *rig) {
			r.Helper()
			inner := r.Twin("inner")
			_, err := tell(r, func(ctx context.Context) (_ int, errs error) {
				for _, err := range inside {
					_, err = toolcircuit.Do(ctx, inner, op(err))
					errs = errors.Join(errs, err)
				}
				return 0, errs
			})
			require.Error(r, err)
		}
	}
	play(t, []script{
		{"a refusal inside is no failure, and frees the slot", nil, steps{
			nested, nested, nested, nested, streak(0), is(closed), cooled, nested, is(halfOpen), call(nil), is(closed)}},
		{"a caller's mistake inside is nobody's failure, in whatever order", nil, steps{
			meets(errInvalid, errInvalid, errInvalid), meets(nil, errInvalid), meets(errInvalid, nil), streak(0), is(closed)}},
		{"one call is one observation, whatever its calls met", nil, steps{
			meets(errDown, errDown), streak(1), is(closed), meets(errDown, nil, errDown, errDown), streak(2), is(closed)}},
		{"unless the inner circuit opened, and answered", nil, steps{meets(errDown, errDown, errDown, errDown), streak(0), is(closed)}},
	})
}

// All ways to make a call share one gate, whoever tripped it, and count an error and a value that
// means failure alike: once each. The value still reaches the caller.
func TestEveryPathOneGate(t *testing.T) {
	type reply struct{ isError bool }
	o := policy(nil)
	o.Classify = func(_ context.Context, out toolcircuit.Outcome) toolcircuit.Verdict {
		if out.Value == (reply{true}) && out.Err == nil {
			return toolcircuit.Verdict{Effect: toolcircuit.EffectCount}
		}
		return toolcircuit.Verdict{}
	}
	for tripper, trips := range paths {
		for caller, calls := range paths {
			for _, fails := range []struct {
				value any
				err   error
			}{{reply{true}, nil}, {nil, errDown}} {
				r := newRig(t, o)
				ran := 0
				for _, state := range []toolcircuit.State{closed, closed, open} {
					value, _ := trips(r, func(context.Context) (any, error) { ran++; return fails.value, fails.err })
					require.Equal(t, fails.value, value, tripper)
					require.Equal(t, state, r.State(), tripper)
				}
				fine := func(context.Context) (any, error) { ran++; return reply{}, nil }
				calls(r, fine)
				require.Equal(t, 3, ran, "%s after %s", caller, tripper)
				require.Len(t, r.calls, 4)
				add(time.Minute)(r)
				value := must(calls(r, fine))
				require.Equal(t, reply{}, value, "%s after %s", caller, tripper)
				require.Equal(t, closed, r.State(), "%s after %s", caller, tripper)
			}
		}
	}
}

func TestCallThatDoesNotReturn(t *testing.T) {
	boom := errors.New("boom")
	for way, path := range paths {
		for _, plain := range []bool{true, false} { // with no hook there is a shorter way
			leave := func(op func(), want any) func(*rig) {
				return func(r *rig) {
					r.Helper()
					panicked, returned := quits(func() { path(r, func(context.Context) (any, error) { op(); return nil, nil }) })
					require.Equal(r, want, panicked)
					require.False(r, returned)
				}
			}
			panics, exits := leave(func() { panic(boom) }, boom), leave(runtime.Goexit, nil)
			nils, refusing := leave(func() { panic(nil) }, new(runtime.PanicNilError)), leave(func() { panic(toolcircuit.ErrCircuitOpen) }, toolcircuit.ErrCircuitOpen)
			t.Run(way, func(t *testing.T) {
				r := newRig(t, policy(nil))
				if plain {
					r.ToolCircuit = toolcircuit.MustNew("search-api", toolcircuit.Options{Policy: r.Policy(), Clock: r.clock})
				}
				all(panics, exits, streak(2), is(closed), panics, is(open), add(time.Minute), is(halfOpen), exits, is(open),
					refused(2*time.Minute), add(2*time.Minute), is(halfOpen), panics, is(open),
					add(4*time.Minute), nils, add(8*time.Minute), refusing, openings(5), is(open),
					add(10*time.Minute), call(nil), is(closed))(r)
				require.Zero(t, r.Snapshot().HookPanics)
			})
		}
	}

	t.Run("the stack stays whole", func(t *testing.T) {
		var stack []byte
		func() {
			defer func() {
				recover()
				stack = make([]byte, 1<<16)
				stack = stack[:runtime.Stack(stack, false)]
			}()
			c := toolcircuit.MustNew("search-api", toolcircuit.Options{})
			toolcircuit.Do(context.Background(), c, func(context.Context) (int, error) { panicDeepInside(); return 0, nil })
		}()
		require.Contains(t, string(stack), "panicDeepInside")
	})
	t.Run("released by defer it is nothing", func(t *testing.T) {
		r := newRig(t, policy(nil))
		quits(func() {
			p := allow(t, r.ToolCircuit)
			defer p.Release()
			panic(boom)
		})
		streak(0)(r)
	})
}

//go:noinline
func panicDeepInside() { panic("deep") }

func TestClassifierThatDoesNotReturn(t *testing.T) {
	boom := errors.New("boom")
	var inside func()
	o := policy(nil)
	o.Classify = func(context.Context, toolcircuit.Outcome) toolcircuit.Verdict {
		inside()
		return toolcircuit.Verdict{}
	}

	inside = func() { panic(boom) }
	r := run(t, o, call(nil), streak(1), is(closed), // the caller has its result
		call(errInvalid), streak(2), is(closed), begin("a"), end("a", nil), is(open), add(time.Minute), call(nil), is(open))
	require.EqualValues(t, 4, r.Snapshot().HookPanics)
	require.Equal(t, toolcircuit.KindPanic, r.Snapshot().Cause)
	got := lastCall(r)
	require.Equal(t, toolcircuit.KindPanic, got.Verdict.Kind)
	require.ErrorIs(t, got.Err, boom)
	var p *toolcircuit.PanicError
	require.ErrorAs(t, got.Err, &p)
	require.Equal(t, boom, p.Value)
	require.NotEmpty(t, p.Stack)
	require.ErrorIs(t, r.calls[1].Err, errInvalid, "the call's own error stays beside it")

	inside = runtime.Goexit
	ends := func(do ...func(*rig)) func(*rig) {
		return func(r *rig) {
			panicked, returned := quits(func() { all(do...)(r) })
			require.Nil(r, panicked)
			require.False(r, returned)
		}
	}
	r = run(t, o, ends(call(nil)), streak(1), is(closed), ends(begin("a"), end("a", nil)), is(closed), ends(call(errInvalid)), is(open))
	require.Len(t, r.calls, 3)
	require.Equal(t, toolcircuit.KindPanic, lastCall(r).Verdict.Kind)
	require.Zero(t, r.Snapshot().HookPanics)
}

func TestCallTimeout(t *testing.T) {
	timed := policy(func(p *toolcircuit.Policy) { p.CallTimeout = time.Second })
	real := timed
	real.Clock = clock.New() // counts as injected
	for name, tt := range map[string]struct {
		own      bool // no clock in Options
		o        toolcircuit.Options
		deadline bool
	}{
		"mock clock":          {o: timed},
		"real clock":          {own: true, o: timed, deadline: true},
		"real clock injected": {o: real},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, tt.o)
				if tt.own {
					r.ToolCircuit = toolcircuit.MustNew("search-api", toolcircuit.Options{Policy: timed.Policy})
				}
				pass := func(d time.Duration) { time.Sleep(d); add(d)(r); synctest.Wait() }
				until := func(ctx context.Context) error { // in a bubble this ends the sleep at once
					for range 10 {
						if ctx.Err() != nil {
							break
						}
						pass(time.Second / 5)
					}
					return ctx.Err()
				}

				_, err := tell(r, func(ctx context.Context) (int, error) {
					_, shows := ctx.Deadline()
					require.Equal(t, tt.deadline, shows)
					require.NoError(t, ctx.Err())
					derived, cancel := context.WithCancel(ctx)
					defer cancel()
					err := until(ctx)
					require.Equal(t, context.DeadlineExceeded, err)
					require.ErrorIs(t, context.Cause(ctx), toolcircuit.ErrCallTimeout)
					<-derived.Done()
					require.Equal(t, context.DeadlineExceeded, derived.Err())
					require.ErrorIs(t, context.Cause(derived), toolcircuit.ErrCallTimeout)
					return 0, err
				})
				var late *toolcircuit.CallTimeoutError
				require.ErrorAs(t, err, &late)
				require.Equal(t, toolcircuit.CallTimeoutError{Dependency: "search-api", After: time.Second, Err: context.DeadlineExceeded}, *late)
				streak(1)(r)

				// Handing on the cause wraps nothing twice.
				_, err = tell(r, func(ctx context.Context) (int, error) { until(ctx); return 0, context.Cause(ctx) })
				require.Equal(t, &toolcircuit.CallTimeoutError{Dependency: "search-api", After: time.Second}, err)
				streak(2)(r)

				// A late value is a value, and a timeout.
				require.Equal(t, 7, must(tell(r, func(context.Context) (int, error) { pass(time.Second); return 7, nil })))
				require.Equal(t, open, r.State())
				require.Equal(t, toolcircuit.KindTimeout, r.Snapshot().Cause)

				// In time it is what it is, and the context ends with the call.
				pass(time.Minute)
				var kept context.Context
				_, err = tell(r, func(ctx context.Context) (int, error) { kept = ctx; pass(time.Second / 2); return 0, errInvalid })
				require.Equal(t, errInvalid, err)
				require.Equal(t, halfOpen, r.State())
				synctest.Wait()
				require.Equal(t, context.Canceled, kept.Err())
			})
		})
	}
}

func TestCallTimeoutAmongOthers(t *testing.T) {
	// until waits in the bubble's time, which the circuits here live in, for its own clock.
	until := func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }
	circuit := func(dependency string, d time.Duration, c clock.Clock) *toolcircuit.ToolCircuit {
		o := policy(func(p *toolcircuit.Policy) { p.CallTimeout = d })
		o.Clock = c
		return toolcircuit.MustNew(dependency, o)
	}
	cause := func(c *toolcircuit.ToolCircuit) toolcircuit.Kind { return c.Snapshot().Cause }

	bubbles(t, map[string]func(t *testing.T){
		"the caller's deadline comes first": func(t *testing.T) {
			c := circuit("search-api", time.Second, nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
			defer cancel()
			_, err := toolcircuit.Do(ctx, c, func(ctx context.Context) (int, error) {
				_, err := until(ctx)
				time.Sleep(time.Second) // past CallTimeout, which had no part in it
				return 0, err
			})
			require.Equal(t, context.DeadlineExceeded, err)
			require.Zero(t, c.Snapshot().Streak)
		},
		"the caller walks away first": func(t *testing.T) {
			c := circuit("search-api", time.Second, nil)
			ctx, cancel := context.WithCancelCause(t.Context())
			walk := errors.New("walked away")
			time.AfterFunc(time.Second/2, func() { cancel(walk) })
			_, err := toolcircuit.Do(ctx, c, func(ctx context.Context) (int, error) {
				until(ctx)
				return 0, context.Cause(ctx)
			})
			require.Equal(t, walk, err)
			require.Zero(t, c.Snapshot().Streak)
		},
		"the deadline of the outer circuit is not that of the inner one, nor the other way round": func(t *testing.T) {
			for late, after := range map[string][]time.Duration{"outer": {time.Second, time.Minute}, "inner": {time.Minute, time.Second}} {
				outer, inner := circuit("outer", after[0], nil), circuit("inner", after[1], nil)
				_, err := toolcircuit.Do(t.Context(), outer, func(ctx context.Context) (int, error) {
					_, err := toolcircuit.Do(ctx, inner, until)
					require.Equal(t, late == "outer", ctx.Err() != nil)
					return 0, err
				})
				var timeout *toolcircuit.CallTimeoutError
				require.ErrorAs(t, err, &timeout)
				require.Equal(t, late, timeout.Dependency)
				require.Equal(t, toolcircuit.KindTimeout, cause(outer), "that of the inner one is a timeout, too")
				require.Equal(t, late == "inner", cause(inner) == toolcircuit.KindTimeout)
			}
		},
		"a panic after the deadline is a panic": func(t *testing.T) {
			c := circuit("search-api", time.Second, nil)
			panicked, _ := quits(func() {
				toolcircuit.Do(t.Context(), c, func(ctx context.Context) (int, error) { until(ctx); panic("boom") })
			})
			require.Equal(t, "boom", panicked)
			require.Equal(t, toolcircuit.KindPanic, cause(c))
		},
		"no timer stays behind": func(t *testing.T) {
			m := clock.NewMock()
			var kept context.Context
			c := circuit("search-api", time.Second, m)
			toolcircuit.Do(t.Context(), c, func(ctx context.Context) (int, error) { kept = ctx; return 0, nil })
			m.Add(time.Minute)
			synctest.Wait()
			require.Equal(t, context.Canceled, kept.Err(), "the deadline that was called off did not end it")
		},
		"a mock's deadline does not hide the caller's": func(t *testing.T) {
			c := circuit("search-api", time.Second, clock.NewMock())
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			want, _ := ctx.Deadline()
			_, err := toolcircuit.Do(ctx, c, func(ctx context.Context) (int, error) {
				got, shows := ctx.Deadline()
				require.True(t, shows)
				require.Equal(t, want, got)
				return until(ctx)
			})
			require.Equal(t, context.DeadlineExceeded, err)
			require.Zero(t, c.Snapshot().Streak)
		},
	})
}

// Without Permit.Context, CallTimeout is told by the time that passed.
func TestCallTimeoutOfPermit(t *testing.T) {
	run(t, policy(func(p *toolcircuit.Policy) { p.CallTimeout = time.Second }),
		begin("a"), add(time.Second-1), end("a", nil), streak(0),
		begin("a"), add(time.Second), end("a", nil), streak(1),
		begin("a"), add(time.Second), end("a", errInvalid), streak(2), is(closed))
}

// runtimeContext is what a runtime hands its tools instead of a plain context.
type runtimeContext struct {
	context.Context
	user string
}

// A runtime with a context type of its own needs one closure, and CallTimeout ends a hang in it.
func TestOwnTypeOfContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := toolcircuit.MustNew("search-api", toolcircuit.Options{Policy: toolcircuit.Policy{CallTimeout: time.Second, FailureThreshold: 1}})
		tool := func(rc *runtimeContext, hang bool) (toolcircuit.Result[string], error) {
			return toolcircuit.DoResult(rc, c, func(ctx context.Context) (string, error) {
				if hang {
					<-ctx.Done()
				}
				return "Hello, " + rc.user, ctx.Err()
			})
		}
		mine := &runtimeContext{t.Context(), "Ada"}
		r := must(tool(mine, false))
		require.Equal(t, "Hello, Ada", *r.Value)
		r = must(tool(mine, true))
		require.Equal(t, toolcircuit.StatusFailed, r.Status)
		require.Equal(t, toolcircuit.KindTimeout, r.Cause)
		require.Equal(t, open, c.State())
	})
}

func TestPermitContext(t *testing.T) {
	type key struct{}
	timed := toolcircuit.Options{Policy: toolcircuit.Policy{CallTimeout: time.Second, FailureThreshold: 1}}
	ends := []func(*toolcircuit.Permit){
		func(p *toolcircuit.Permit) { p.Settle(t.Context(), nil, nil) },
		func(p *toolcircuit.Permit) { p.Settle(t.Context(), nil, errDown) },
		(*toolcircuit.Permit).Release,
	}
	bubbles(t, map[string]func(t *testing.T){
		"has the deadline that runs from the admission": func(t *testing.T) {
			c := toolcircuit.MustNew("search-api", timed)
			p := allow(t, c)
			time.Sleep(400 * time.Millisecond)
			began := time.Now()
			ctx := p.Context(context.WithValue(t.Context(), key{}, 1))
			require.Equal(t, 1, ctx.Value(key{}))
			<-ctx.Done()
			require.Equal(t, 600*time.Millisecond, time.Since(began))
			require.Equal(t, context.DeadlineExceeded, ctx.Err())
			v, err := p.Settle(t.Context(), nil, ctx.Err())
			require.Equal(t, timeout, v)
			require.ErrorIs(t, err, toolcircuit.ErrCallTimeout)
			require.Equal(t, open, c.State())
		},
		"ends with the call": func(t *testing.T) {
			for _, end := range ends {
				p := allow(t, toolcircuit.MustNew("search-api", timed))
				ctx := p.Context(t.Context())
				require.NoError(t, ctx.Err())
				end(p)
				require.Equal(t, context.Canceled, ctx.Err())
			}
		},
		"lets a stream be cut by nothing while there is no CallTimeout": func(t *testing.T) {
			p := allow(t, toolcircuit.MustNew("search-api", toolcircuit.Options{}))
			require.Equal(t, t.Context(), p.Context(t.Context()))
		},
		"is asked for once, before the end": func(t *testing.T) {
			for i, before := range append(ends, func(p *toolcircuit.Permit) { p.Context(t.Context()) }) {
				p := allow(t, toolcircuit.MustNew("search-api", timed))
				before(p)
				panicked, _ := quits(func() { p.Context(t.Context()) })
				require.Contains(t, panicked, "Permit.Context", i)
			}
		},
		"tells a probe": func(t *testing.T) {
			c := toolcircuit.MustNew("search-api", timed)
			try(c, errDown)
			time.Sleep(time.Hour)
			p := allow(t, c)
			require.True(t, p.Probe())
			require.True(t, toolcircuit.IsProbe(p.Context(t.Context())))
		},
	})
}

func TestSettleTwice(t *testing.T) {
	for name, tt := range map[string]struct {
		first func(p *toolcircuit.Permit)
		want  toolcircuit.Verdict
	}{
		"healthy":   {func(p *toolcircuit.Permit) { p.Settle(t.Context(), nil, nil) }, healed(toolcircuit.KindOK)},
		"failed":    {func(p *toolcircuit.Permit) { p.Settle(t.Context(), nil, errDown) }, counted(toolcircuit.KindUnavailable)},
		"no return": {func(p *toolcircuit.Permit) { p.Settle(t.Context(), nil, toolcircuit.ErrNoReturn) }, counted(toolcircuit.KindPanic)},
		"released":  {(*toolcircuit.Permit).Release, toolcircuit.Verdict{}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, policy(nil))
			p := allow(t, r.ToolCircuit)
			tt.first(p)
			before := r.Snapshot()
			for _, second := range []error{nil, errInvalid} {
				v, err := p.Settle(t.Context(), nil, second)
				require.Equal(t, tt.want, v)
				require.Equal(t, second, err)
			}
			p.Release()
			require.Equal(t, before, r.Snapshot())
		})
	}
}

// A Settle from within the Classifier finds that the first still judges.
func TestSettleInsideClassifier(t *testing.T) {
	var p *toolcircuit.Permit
	c := toolcircuit.MustNew("search-api", toolcircuit.Options{Classify: func(ctx context.Context, o toolcircuit.Outcome) toolcircuit.Verdict {
		v, err := p.Settle(ctx, nil, errInvalid)
		require.Zero(t, v)
		require.Equal(t, errInvalid, err)
		p.Release()
		return toolcircuit.Verdict{}
	}})
	p = allow(t, c)
	v, err := p.Settle(t.Context(), nil, errDown)
	require.Equal(t, counted(toolcircuit.KindUnavailable), v)
	require.Equal(t, errDown, err)
	require.Equal(t, 1, c.Snapshot().Streak)
}

func TestIsProbe(t *testing.T) {
	ask := func(want bool) func(*rig) {
		return func(r *rig) {
			r.Helper()
			require.Equal(r, want, must(tell(r, func(ctx context.Context) (bool, error) {
				inside, cancel := context.WithCancel(ctx)
				defer cancel()
				return toolcircuit.IsProbe(inside), nil
			})))
		}
	}
	require.False(t, toolcircuit.IsProbe(context.Background()))
	run(t, policy(nil), ask(false), probing, override(letAllIn), ask(false), // it decides nothing
		override(lifted), release("probe"), ask(true), ask(false))
}

func TestRiding(t *testing.T) {
	unchanged := func(actions ...func(*rig)) func(*rig) {
		return func(r *rig) {
			r.Helper()
			before, events := r.Snapshot(), len(r.events)
			all(actions...)(r)
			require.Equal(r, before, r.Snapshot())
			require.Len(r, r.events, events)
		}
	}
	outcomes := all(call(nil), call(errDown), call(errInvalid), call(errors.New("?")), call(wait(time.Hour)), call(asked(time.Hour)))
	play(t, []script{
		{"a call inside the probe runs, and only the probe decides", nil, steps{
			probing, inside("probe", unchanged(outcomes)), is(halfOpen), end("probe", nil), is(closed)}},
		{"so a probe can fail around a call that is healthy", nil, steps{
			probing, inside("probe", call(nil)), end("probe", errDown), is(open)}},
		{"others are refused meanwhile", nil, steps{
			probing, inside("probe", begin("rides"), call(nil)), refused(time.Minute), is(halfOpen),
			unchanged(end("rides", errDown)), refused(time.Minute), is(halfOpen)}},
		{"it is no probe, but knows that it is inside one", nil, steps{
			probing, inside("probe", begin("rides"), inside("rides", func(r *rig) {
				require.False(r, r.permits["rides"].Probe())
				require.True(r, toolcircuit.IsProbe(r.ctx))
			})), is(halfOpen),
		}},
		{"it is judged and told to OnCall", nil, steps{
			probing, inside("probe", as(toolcircuit.Tool{Name: "read"}, call(errDown))), is(halfOpen),
			func(r *rig) {
				require.Equal(r, toolcircuit.Call{
					Dependency: "search-api", Tool: "read", State: halfOpen, Executed: true, Err: errDown,
					Verdict: toolcircuit.Verdict{Effect: toolcircuit.EffectCount, Kind: toolcircuit.KindUnavailable},
				}, lastCall(r))
			}, is(halfOpen),
		}},
		{"by the policy that it meets", func(p *toolcircuit.Policy) { p.CallTimeout = 2 * time.Second }, steps{
			probing, inside("probe", begin("rides")), add(time.Second), end("rides", nil), is(halfOpen),
			judged(toolcircuit.KindOK), inside("probe", begin("rides")), add(2 * time.Second), end("rides", nil), is(halfOpen),
			judged(toolcircuit.KindTimeout)}},
		{"a write rides", nil, steps{
			probing, inside("probe", as(writes, unchanged(outcomes))), as(writes, refused(time.Minute)), is(halfOpen)}},
		{"a write that is the probe carries a read", nil, steps{
			trip, add(2 * time.Minute), as(writes, begin("probe")), inside("probe", call(nil)), is(halfOpen)}},
		{"a rider carries others", nil, steps{
			probing, inside("probe", begin("rides"), inside("rides", call(nil))), end("rides", nil), inside("rides", call(nil)),
			is(halfOpen)}},
		{"a released rider leaves the slot alone", nil, steps{
			probing, inside("probe", begin("rides")), unchanged(release("rides")), refused(time.Minute), is(halfOpen)}},
		{"a rider that outlives its probe is not recorded, either", nil, steps{
			probing, inside("probe", begin("rides")), end("probe", nil), unchanged(end("rides", errDown)), is(closed)}},

		{"a context that outlives the probe: another's turn", func(p *toolcircuit.Policy) { p.ProbeSuccesses = 2 }, steps{
			probing, inside("probe", call(nil)), end("probe", nil), begin("second"), inside("probe", refused(time.Minute)),
			is(halfOpen), inside("second", call(nil)), is(halfOpen)}},
		{"a context that outlives the probe: the next outage", nil, steps{
			probing, inside("probe"), end("probe", nil), trip, inside("probe", refused(2*time.Minute)), is(open),
			add(2 * time.Minute), begin("second"), inside("probe", refused(time.Minute)), is(halfOpen)}},
		{"a context that outlives the probe: its lease", nil, steps{
			probing, inside("probe"), add(time.Minute), begin("second"), inside("probe", refused(time.Minute)), is(halfOpen),
			inside("second", call(nil)), end("probe", nil), is(closed)}},
		{"a context that outlives the probe: a write's turn", func(p *toolcircuit.Policy) { p.ProbeTimeout = time.Second }, steps{
			probing, inside("probe", as(writes, call(nil)), add(time.Second), as(writes, refused(59*time.Second))), is(halfOpen),
			begin("second"), inside("second"), release("second"), inside("second", as(writes, refused(59*time.Second))),
			is(halfOpen)}},
		{"a probe whose lease is over begins anew inside itself", nil, steps{
			probing, inside("probe", add(time.Minute), begin("second")), is(halfOpen), probe("second", true)}},

		{"nobody rides in the cooldown", nil, steps{
			probing, inside("probe", call(nil)), end("probe", errDown), inside("probe", refused(2*time.Minute)), is(open)}},
		{"the kill switch holds for riders", nil, steps{
			probing, inside("probe", override(shut), manual, as(writes, manual)), is(halfOpen),
			override(lifted), inside("probe", call(nil)), is(halfOpen)}},
		{"who was let in by an override carries nobody", nil, steps{
			cooled, override(letAllIn), begin("ghost"), override(lifted), begin("probe"), is(halfOpen),
			inside("ghost", refused(time.Minute)), is(halfOpen)}},
		{"after a reset the call is one like any other", nil, steps{
			probing, inside("probe", reset, calls(2, errDown), streak(2)), is(closed)}},
		{"nobody rides on another circuit's probe", nil, steps{
			probing, inside("probe", func(r *rig) {
				twin := *r
				twin.ToolCircuit = r.Twin("mail-api")
				all(cooled, begin("other"), refused(time.Minute))(&twin)
			}), is(halfOpen),
		}},
		{"calls that wait: at once", nil, steps{
			probing, inside("probe", func(r *rig) { require.NoError(r, r.Wait(r.ctx)) }), is(halfOpen)}},
	})
}

// N17: two tools of one dependency, of which one calls the other. Only the outer one is ever
// called.
func TestToolThatCallsItsOwnDependencyRecovers(t *testing.T) {
	r := newRig(t, policy(nil))
	down := true
	read := toolcircuit.WrapResult(r.WithTool(toolcircuit.Tool{Name: "read"}), func(context.Context, int) (int, error) {
		if down {
			return 0, errDown
		}
		return 7, nil
	})
	report := toolcircuit.Wrap(r.WithTool(toolcircuit.Tool{Name: "report"}), func(ctx context.Context, n int) (toolcircuit.Result[int], error) {
		return read(ctx, n)
	})
	for r.State() == closed {
		must(report(t.Context(), 1))
	}
	for range 3 {
		untilDue(r)
		must(report(t.Context(), 1))
		require.Equal(t, open, r.State())
	}
	down = false
	untilDue(r)
	got := must(report(t.Context(), 1))
	require.Equal(t, 7, *got.Value)
	require.Equal(t, closed, r.State())
}

// A circuit, another, and the first again.
func TestRidingThroughAnotherCircuit(t *testing.T) {
	for _, between := range []func(*rig){all(), cooled} { // the other is closed, or probing itself
		a, b := run(t, policy(nil), cooled), run(t, policy(nil), between)
		must(tell(a, func(ctx context.Context) (string, error) {
			return toolcircuit.Do(ctx, b.ToolCircuit, func(ctx context.Context) (string, error) {
				must(toolcircuit.Do(ctx, b.ToolCircuit, op(nil)))
				return toolcircuit.Do(ctx, a.ToolCircuit, op(nil))
			})
		}))
		is(closed)(a)
		is(closed)(b)
	}
}

// A probe may send its work out to goroutines, one of which outlives it.
func TestRidingFromGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQuietRig(t, once(func(p *toolcircuit.Policy) { p.ProbeSuccesses = 2 }))
		all(call(errDown), add(time.Minute))(r)
		var ran atomic.Int32
		op := func(context.Context) (int, error) { ran.Add(1); return 0, nil }
		late := make(chan error, 1)
		must(tell(r, func(ctx context.Context) (int, error) {
			var group sync.WaitGroup
			for range 8 {
				group.Go(func() {
					_, err := toolcircuit.Do(ctx, r.ToolCircuit, op)
					if err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			go func() {
				time.Sleep(time.Second)
				_, err := toolcircuit.Do(ctx, r.ToolCircuit, op)
				late <- err
			}()
			return 0, nil
		}))
		begin("second")(r)
		require.ErrorIs(t, <-late, toolcircuit.ErrCircuitOpen)
		require.EqualValues(t, 8, ran.Load())
	})
}

// A Monitor's probe carries calls like any other; its check during the cooldown carries none.
func TestRidingOnAMonitor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQuietRig(t, policy(nil))
		var errs []error
		ctx, cancel := context.WithCancel(t.Context())
		trip(r)
		go r.Monitor(ctx, 40*time.Second, func(ctx context.Context) error {
			_, err := toolcircuit.Do(ctx, r.ToolCircuit, op(nil))
			errs = append(errs, err)
			if err == nil {
				cancel()
			}
			return err
		})
		synctest.Wait()
		pass(time.Minute)(r)
		require.Len(t, errs, 2)
		require.ErrorIs(t, errs[0], toolcircuit.ErrCircuitOpen)
		require.NoError(t, errs[1])
		require.Equal(t, closed, r.State())
	})
}

func TestRefusalAllocatesNothing(t *testing.T) {
	c := toolcircuit.MustNew("search-api", toolcircuit.Options{})
	ctx := context.Background()
	op := func(context.Context) (int, error) { return 0, errDown }
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, err := toolcircuit.Do(ctx, c, func(context.Context) (int, error) { return 7, nil }); err != nil {
			panic(err)
		}
	}), "nor does a healthy call")
	for range 5 {
		toolcircuit.Do(ctx, c, op)
	}
	_, first := toolcircuit.Do(ctx, c, op)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, err := toolcircuit.Do(ctx, c, op); err != first {
			panic(err)
		}
	}))
}

func TestNilArguments(t *testing.T) {
	c := toolcircuit.MustNew("search-api", toolcircuit.Options{})
	ctx := context.Background()
	op := func(context.Context) (int, error) { return 0, nil }
	tool := func(context.Context, int) (int, error) { return 0, nil }
	check := func(context.Context) error { return nil }
	var none *toolcircuit.ToolCircuit
	var noContext context.Context
	for want, calls := range map[string][]func(){
		"the circuit is nil; make one with New": {
			func() { toolcircuit.Do(ctx, none, op) }, func() { toolcircuit.Do(ctx, new(toolcircuit.ToolCircuit), op) },
			func() { toolcircuit.Wrap(none, tool) }, func() { toolcircuit.WrapResult(none, tool) },
			func() { toolcircuit.ResultOf(none, 0, toolcircuit.Verdict{}, nil) },
			func() { none.Allow(ctx) }, func() { none.Wait(ctx) }, func() { none.Monitor(ctx, 0, check) },
			func() { none.Dependency() }, func() { none.State() }, func() { none.Ready() }, func() { none.Snapshot() },
			func() { none.Policy() }, func() { none.SetPolicy(toolcircuit.Policy{}) },
			func() { none.SetOverride(toolcircuit.OverrideOpen) }, func() { none.Reset() },
			func() { none.WithTool(toolcircuit.Tool{}) }, func() { none.Twin("x") }, func() { new(toolcircuit.ToolCircuit).State() },
		},
		"ctx is nil": {
			func() { toolcircuit.Do(noContext, c, op) }, func() { toolcircuit.Wrap(c, tool)(noContext, 1) },
			func() { c.Allow(noContext) }, func() { c.Wait(noContext) }, func() { c.Monitor(noContext, 0, check) },
		},
		"Do: op is nil":                {func() { toolcircuit.Do[int](ctx, c, nil) }, func() { toolcircuit.DoResult[int](ctx, c, nil) }},
		"Wrap: tool is nil":            {func() { toolcircuit.Wrap[int, int](c, nil) }},
		"WrapResult: tool is nil":      {func() { toolcircuit.WrapResult[int, int](c, nil) }},
		"Settle: ctx is nil":           {func() { allow(t, c).Settle(noContext, nil, nil) }},
		"Monitor: check is nil":        {func() { c.Monitor(ctx, 0, nil) }},
		"Abandon: tool is nil":         {func() { toolcircuit.Abandon[int, int](nil) }},
		"Abandon: ctx is nil":          {func() { toolcircuit.Abandon(tool)(noContext, 1) }},
		"Classify: ctx is nil":         {func() { toolcircuit.Classify(noContext, toolcircuit.Outcome{}) }},
		"ForError: rule is nil":        {func() { toolcircuit.ForError[error](nil) }},
		"CheckResponse: resp is nil":   {func() { _ = toolcircuit.CheckResponse(nil) }},
		"LogEvents: the logger is nil": {func() { toolcircuit.LogEvents(nil) }},
		"LogCalls: the logger is nil":  {func() { toolcircuit.LogCalls(nil) }},
	} {
		for i, call := range calls {
			require.PanicsWithValue(t, "toolcircuit: "+want, call, "%d", i)
		}
	}
}

// A socket has the deadline of the context and may tell before it does, at that very moment.
func TestSocketBeforeContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := toolcircuit.MustNew("x", toolcircuit.Options{Policy: toolcircuit.Policy{FailureThreshold: 1, IgnoreDeadline: true}})
		toolcircuit.Do(passed{t.Context()}, c, func(context.Context) (int, error) { return 0, os.ErrDeadlineExceeded })
		require.Equal(t, closed, c.State())
	})
}

// A context whose methods panic once the call has begun costs no healthy outcome.
func TestContextThatPanics(t *testing.T) {
	for name, o := range map[string]toolcircuit.Options{
		"plain":       policy(nil),
		"CallTimeout": policy(func(p *toolcircuit.Policy) { p.CallTimeout = time.Hour }),
		"SlowCall":    policy(func(p *toolcircuit.Policy) { p.SlowCall = time.Hour }),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, o)
			r.calls = nil
			call(errDown)(r)
			ctx := &badContext{Context: t.Context()}
			panicked, _ := quits(func() {
				v := must(toolcircuit.Do(ctx, r.ToolCircuit, func(context.Context) (int, error) {
					ctx.bad.Store(true)
					return 7, nil
				}))
				require.Equal(t, 7, v)
			})
			require.Nil(t, panicked)
			require.Zero(t, r.Snapshot().Streak, "the dependency is healthy")
			require.Equal(t, healed(toolcircuit.KindOK), lastCall(r).Verdict)
		})
	}
}

// N15: a struct that embeds a nil *Result is a value like any other.
func TestEmbeddedNilResult(t *testing.T) {
	type reply struct{ *toolcircuit.Result[string] }
	r := run(t, policy(nil), call(errDown))
	gives(reply{})(r)
	require.Zero(t, r.Snapshot().Streak)
	require.Zero(t, r.Snapshot().HookPanics)
	gives(reply{&toolcircuit.Result[string]{Status: toolcircuit.StatusBlocked}})(r)
	require.Equal(t, toolcircuit.KindRejected, lastCall(r).Verdict.Kind)
}

// N14: a context's deadline is real time, whatever the circuit's clock says.
func TestDeadlineIsRealTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mock := clock.NewMock()
		mock.Set(time.Now().Add(24 * time.Hour))
		c := toolcircuit.MustNew("search-api", toolcircuit.Options{Clock: mock, Policy: toolcircuit.Policy{FailureThreshold: 1, Cooldown: time.Minute}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		toolcircuit.Do(ctx, c, func(context.Context) (int, error) { return 0, context.DeadlineExceeded })
		require.Equal(t, open, c.State(), "the caller has an hour left")
	})
}

// A tool that calls its own circuit inside had begun when that was refused.
func TestNestedInItselfHadBegun(t *testing.T) {
	r := newRig(t, policy(nil))
	inner := toolcircuit.Wrap(r.ToolCircuit, func(context.Context, int) (int, error) { return 1, nil })
	outer := toolcircuit.WrapResult(r.ToolCircuit, func(ctx context.Context, n int) (int, error) {
		r.SetOverride(toolcircuit.OverrideOpen)
		return inner(ctx, n)
	})
	res := must(outer(t.Context(), 1))
	require.Equal(t, toolcircuit.StatusBlocked, res.Status)
	require.Nil(t, res.Executed, "the tool had begun: %s", res.Message)
}

// passed is a context whose deadline has passed and which does not know yet.
type passed struct{ context.Context }

func (passed) Deadline() (time.Time, bool) { return time.Now(), true }

// badContext is a context whose methods panic once it is bad. Done has been asked for by then.
type badContext struct {
	context.Context
	bad atomic.Bool
}

func (c *badContext) check(method string) {
	if c.bad.Load() {
		panic(method)
	}
}

func (c *badContext) Value(key any) any           { c.check("Value"); return c.Context.Value(key) }
func (c *badContext) Err() error                  { c.check("Err"); return c.Context.Err() }
func (c *badContext) Deadline() (time.Time, bool) { c.check("Deadline"); return c.Context.Deadline() }

// Each hook alone is told how long the call took; a circuit without any reads no clock for it.
func TestElapsedForEachHookAlone(t *testing.T) {
	var told time.Duration
	for name, o := range map[string]toolcircuit.Options{
		"OnEvent": {OnEvent: func(_ context.Context, e toolcircuit.Event) { told = e.Elapsed }},
		"OnCall":  {OnCall: func(_ context.Context, c toolcircuit.Call) { told = c.Elapsed }},
		"Classify": {Classify: func(_ context.Context, c toolcircuit.Outcome) toolcircuit.Verdict {
			told = c.Elapsed
			return toolcircuit.Verdict{}
		}},
	} {
		mock := clock.NewMock()
		told, o.Clock, o.Policy = 0, mock, toolcircuit.Policy{FailureThreshold: 1, CountUnknown: true}
		toolcircuit.Do(t.Context(), toolcircuit.MustNew("search-api", o), func(context.Context) (int, error) {
			mock.Add(3 * time.Second)
			return 0, errors.New("unknown")
		})
		require.Equal(t, 3*time.Second, told, name)
	}
}

func ExampleDo() {
	c := toolcircuit.MustNew("search-api", toolcircuit.Options{Policy: toolcircuit.Policy{FailureThreshold: 1}})
	for range 2 {
		_, err := toolcircuit.Do(context.Background(), c, func(context.Context) (string, error) {
			fmt.Println("called")
			return "", toolcircuit.Fault(errors.New("no answer"))
		})
		fmt.Println(err)
	}
	// Output:
	// called
	// no answer
	// toolcircuit: search-api: dependency_open
}

// A Classifier that misbehaves does not keep the probe's slot. Its panic does not reach the caller:
// the call has happened, and its result must not be lost.
func TestClassifierMisbehaves(t *testing.T) {
	odd := errors.New("odd") // what it misbehaves on
	for name, test := range map[string]struct {
		does func(*rig)
		says toolcircuit.Verdict
		kind toolcircuit.Kind
		want toolcircuit.State
	}{
		"calls the circuit":   {refused(time.Minute), toolcircuit.Verdict{}, toolcircuit.KindUnknown, halfOpen},
		"resets the circuit":  {reset, toolcircuit.Verdict{}, toolcircuit.KindUnknown, closed},
		"effect out of range": {all(), toolcircuit.Verdict{Effect: 200, RetryAfter: math.MinInt64}, toolcircuit.KindUnavailable, open},
		"no kind, no end":     {all(), paused("nonsense", -1), toolcircuit.KindUnknown, halfOpen},
	} {
		t.Run(name, func(t *testing.T) {
			var r *rig
			o := once(nil)
			o.Classify = func(_ context.Context, out toolcircuit.Outcome) toolcircuit.Verdict {
				if out.Err != odd {
					return toolcircuit.Verdict{}
				}
				test.does(r)
				return test.says
			}
			r = newRig(t, o)
			all(call(errDown), add(time.Minute), call(odd), is(test.want), judged(test.kind))(r)
			if test.want == halfOpen {
				all(begin("next"), refused(time.Minute))(r)
			}
		})
	}
}

// A Classifier is asked once about each outcome, so that it may answer differently each time.
func TestClassifierIsAskedOnce(t *testing.T) {
	asked := 0
	o := policy(func(p *toolcircuit.Policy) { p.SlowCall, p.FailureRate = time.Hour, 1 })
	o.Classify = func(context.Context, toolcircuit.Outcome) toolcircuit.Verdict {
		if asked++; asked%2 == 0 {
			return toolcircuit.Verdict{Effect: toolcircuit.EffectHeal}
		}
		return toolcircuit.Verdict{Effect: toolcircuit.EffectCount}
	}
	r := newRig(t, o)
	fail := func(context.Context, int) (int, error) { return 0, errInvalid }
	for i, call := range []func(){
		func() { try(r.ToolCircuit, errInvalid) },
		func() { toolcircuit.Wrap(r.ToolCircuit, fail)(context.Background(), 0) },
		func() { toolcircuit.WrapResult(r.ToolCircuit, fail)(context.Background(), 0) },
		func() { all(begin("1"), end("1", errInvalid), release("1"), end("1", nil))(r) },
		func() { try(r.ToolCircuit, nil) },
	} {
		call()
		require.Equal(t, i+1, asked)
		require.Equal(t, (i+1)%2, r.Snapshot().Streak)
	}
}

// oddContext is a runtime's own context, whose end is an error of its own.
type oddContext struct {
	context.Context
	err error
}

func (c *oddContext) Err() error { return c.err }

// The caller's end is known by its context, whatever error that has.
func TestContextWithItsOwnError(t *testing.T) {
	errGone := errors.New("gone")
	r := newRig(t, once(nil))
	ctx := &oddContext{Context: context.Background()}
	tool := func() (int, error) {
		return toolcircuit.Do(ctx, r.ToolCircuit, func(context.Context) (int, error) {
			ctx.err = errGone
			return 0, errDown
		})
	}
	_, err := tool()
	require.Equal(t, errDown, err)
	_, err = tool()
	require.Equal(t, errGone, err)
	require.Equal(t, closed, r.State())
	require.Equal(t, []bool{true, false}, []bool{r.calls[0].Executed, r.calls[1].Executed})
	require.Equal(t, toolcircuit.KindCanceled, r.calls[0].Verdict.Kind)
}

// A clock set back in the middle of a call hides neither its timeout nor its error.
func TestClockSetBackInsideACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, once(func(p *toolcircuit.Policy) { p.CallTimeout = time.Minute }))
		_, err := toolcircuit.Do(context.Background(), r.ToolCircuit, func(ctx context.Context) (int, error) {
			add(time.Minute)(r)
			<-ctx.Done()
			add(-time.Hour)(r)
			return 0, errInvalid
		})
		require.ErrorIs(t, err, toolcircuit.ErrCallTimeout)
		require.Equal(t, toolcircuit.KindTimeout, last(r).Kind)
	})
}

// A hook that ends the goroutine of the probe before its call, or a context whose methods do,
// leaves the slot free.
func TestProbeEndedBeforeItsCall(t *testing.T) {
	never := func(context.Context) (int, error) { t.Error("the call ran"); return 0, nil }
	o := once(nil)
	o.OnEvent = func(_ context.Context, e toolcircuit.Event) {
		if e.Type == halfOpened {
			runtime.Goexit()
		}
	}
	for name, enter := range map[string]func(r *rig){
		"Do":    func(r *rig) { toolcircuit.Do(context.Background(), r.ToolCircuit, never) },
		"Allow": func(r *rig) { r.Allow(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, o, call(errDown), add(time.Minute))
			quits(func() { enter(r) })
			all(ready, call(nil), is(closed))(r)
		})
	}
	t.Run("context", func(t *testing.T) {
		r := run(t, once(func(p *toolcircuit.Policy) { p.CallTimeout = time.Minute }), call(errDown), add(time.Minute))
		require.Panics(t, func() { toolcircuit.Do(brokenContext{context.Background()}, r.ToolCircuit, never) })
		require.True(t, r.Ready())
	})
}

// brokenContext panics when asked for its end.
type brokenContext struct{ context.Context }

func (brokenContext) Done() <-chan struct{} { panic("Done") }

// The context of a call that CallTimeout has ended already has ended, also by an injected clock.
func TestContextAfterCallTimeout(t *testing.T) {
	r := newRig(t, policy(func(p *toolcircuit.Policy) { p.CallTimeout = time.Second }))
	all(begin("late"), add(time.Second))(r)
	ctx := r.permits["late"].Context(context.Background())
	require.Equal(t, context.DeadlineExceeded, ctx.Err())
	require.ErrorIs(t, context.Cause(ctx), toolcircuit.ErrCallTimeout)
	all(end("late", ctx.Err()), streak(1))(r)
}

// CountUnknown counts an unknown error with the wait that a Classifier read from it.
func TestWaitOfAnUnknownError(t *testing.T) {
	for _, count := range []bool{true, false} {
		o := policy(func(p *toolcircuit.Policy) { p.CountUnknown = count; p.FailureThreshold = 1 })
		o.Classify = func(context.Context, toolcircuit.Outcome) toolcircuit.Verdict {
			return toolcircuit.Verdict{RetryAfter: 7 * time.Minute}
		}
		r := newRig(t, o)
		call(errOpaque)(r)
		if count {
			refused(7 * time.Minute)(r)
		} else {
			require.Equal(t, unknown, r.calls[0].Verdict)
		}
	}
}
