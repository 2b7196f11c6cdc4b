package toolcircuit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
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

// Faults that were reported against other circuit breakers, as cases to pass. Numbers that
// are missing belong to no case.
//
//	case      tested in
//	F01-F34   here
//	F35       here, and classify_test.go for the verdict
//	F37, F38  classify_test.go: wrapped errors, and nil inside them
//	F40, F41  here
//	F43       result_test.go: Result.Or stands in for what has no value
//	F44       here
//	F46, F47  result_test.go: what a refusal says, and a retry loop that hears it
//	F49-F65   here
//	F67, F68  package toolset: a circuit knows no keys and evicts nothing
//	F70, F71  here
//	F73, F74  shared state, with its Store
//	F76       shared state, with its Store
//
// Declined on purpose: several probes at once (F10), a count of the calls under way (F25) and
// the panic of a hook in the caller (F31); the reason stands at the test.

const (
	opened     = toolcircuit.EventOpened
	halfOpened = toolcircuit.EventHalfOpened
	reclosed   = toolcircuit.EventClosed
)

// once is a policy that opens at the first failure, changed by edit.
func once(edit func(*toolcircuit.Policy)) toolcircuit.Options {
	return policy(func(p *toolcircuit.Policy) {
		p.FailureThreshold = 1
		if edit != nil {
			edit(p)
		}
	})
}

// rate is a policy that opens by rate alone, over a window of ten seconds.
func rate(rate float64, minCalls int) toolcircuit.Options {
	return policy(func(p *toolcircuit.Policy) {
		p.FailureThreshold, p.FailureRate, p.MinCalls, p.Window = math.MaxInt, rate, minCalls, 10*time.Second
	})
}

// together runs f in n goroutines that start as one, and returns when all have ended.
func together(n int, f func(i int)) {
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		group.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	group.Wait()
}

// apart runs f, which may end its goroutine, in one of its own, and returns when it has ended.
func apart(f func()) { together(1, func(int) { f() }) }

// op is an operation that ends with err.
func op(err error) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return "value", err }
}

// try is one call that may be refused.
func try(c *toolcircuit.ToolCircuit, err error) error {
	_, err = toolcircuit.Do(context.Background(), c, op(err))
	return err
}

func last(r *rig) toolcircuit.Event { return r.events[len(r.events)-1] }

// A. The half-open gate.

// resilience4j/resilience4j#343: every waiting caller runs when the cooldown is over.
func TestF01HerdAtHalfOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQuietRig(t, once(nil))
		all(call(errDown), add(time.Minute))(r)
		ran, refusals := stampede(r.ToolCircuit, 100, nil)
		require.Equal(t, 1, ran)
		require.Len(t, refusals, 99, "refusals must not wait for the probe")
		require.Equal(t, closed, r.State())
	})
}

// resilience4j/resilience4j#1432: two callers win the switch from open to half-open.
func TestF02OneAdmissionAtTheSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQuietRig(t, once(nil))
		for range 1000 {
			all(call(errDown), add(time.Minute))(r)
			var admitted atomic.Int32
			together(64, func(int) {
				if _, err := r.Allow(context.Background()); err == nil {
					admitted.Add(1)
				}
			})
			require.EqualValues(t, 1, admitted.Load())
			r.Reset()
		}
	})
}

// resilience4j/resilience4j#935: a probe that never returns keeps the circuit shut for ever.
func TestF04ProbeThatNeverReturns(t *testing.T) {
	const lease = 20 * time.Second
	run(t, once(func(p *toolcircuit.Policy) { p.ProbeTimeout = lease }), []step{
		{call(errDown), open},
		{all(add(time.Minute), begin("hangs"), refused(lease)), halfOpen},
		{all(add(lease-1), refused(1)), halfOpen},
		{all(add(1), begin("next"), refused(lease)), halfOpen},
		{end("next", nil), closed},
	})
}

// resilience4j/resilience4j#544: a probe whose outcome says nothing keeps the slot.
func TestF05NeutralProbe(t *testing.T) {
	r := run(t, once(nil), []step{
		{call(errDown), open},
		{all(add(time.Minute), call(errInvalid)), halfOpen},
		{call(errInvalid), halfOpen},
		{begin("probe"), halfOpen},
		{end("probe", nil), closed},
	})
	require.Equal(t, []toolcircuit.EventType{opened, halfOpened, reclosed}, happened(r))
}

// App-vNext/Polly#717: a caller that cancels the probe closes or reopens the circuit.
func TestF07CallerCancelsTheProbe(t *testing.T) {
	run(t, once(nil), []step{
		{call(errDown), open},
		{all(add(time.Minute), walksAway(context.Canceled)), halfOpen},
		{begin("probe"), halfOpen},
		{end("probe", nil), closed},
	})
}

// afreidah/s3-orchestrator#424: a panic in the probe leaks its slot.
func TestF08PanicInTheProbe(t *testing.T) {
	panics := func(r *rig) {
		require.PanicsWithValue(r, "mine", func() {
			toolcircuit.Do(context.Background(), r.ToolCircuit, func(context.Context) (int, error) { panic("mine") })
		})
	}
	r := run(t, once(nil), []step{
		{call(errDown), open},
		{all(add(time.Minute), panics, refused(2*time.Minute)), open},
		{all(add(2*time.Minute), call(nil)), closed},
	})
	require.Equal(t, []toolcircuit.EventType{opened, halfOpened, opened, halfOpened, reclosed}, happened(r))
}

// sony/gobreaker#53: of N probes one fails while others run. There is one probe at a time, by
// design, and ProbeSuccesses of them in a row close; only a probe that outlived its lease
// runs beside another.
func TestF10OneFailureAmongProbes(t *testing.T) {
	r := run(t, once(func(p *toolcircuit.Policy) { p.ProbeSuccesses = 3 }), []step{
		{call(errDown), open},
		{all(add(time.Minute), begin("fourth")), halfOpen},
		{all(add(time.Minute), begin("fifth")), halfOpen},
		{all(add(time.Minute), call(nil)), halfOpen},
		{call(nil), halfOpen},
		{call(errDown), open},
		{end("fourth", nil), open},
		{all(end("fifth", nil), refused(2*time.Minute)), open},
	})
	require.Equal(t, []toolcircuit.EventType{opened, halfOpened, opened}, happened(r))
	require.EqualValues(t, 2, r.Snapshot().Stale)
}

// rubyist/circuitbreaker#63: one lucky success closes.
func TestF11ThreeSuccessesInARow(t *testing.T) {
	run(t, once(func(p *toolcircuit.Policy) { p.ProbeSuccesses, p.Multiplier = 3, 1 }), []step{
		{call(errDown), open},
		{all(add(time.Minute), calls(2, nil)), halfOpen},
		{call(errDown), open},
		{all(add(time.Minute), calls(2, nil)), halfOpen},
		{call(nil), closed},
	})
}

// nodeshift/opossum#276: the minimum of calls keeps a failed probe from reopening.
func TestF13MinCallsIsForClosedOnly(t *testing.T) {
	r := run(t, rate(0.5, 20), []step{
		{all(calls(10, nil), calls(9, errDown)), closed},
		{call(errDown), open},
		{all(add(time.Hour), call(errDown)), open},
	})
	require.Equal(t, toolcircuit.RuleProbe, last(r).Rule)
}

// nodeshift/opossum#385: failures that land together cancel the recovery of the first.
func TestF14FailuresThatLandTogether(t *testing.T) {
	o := policy(func(p *toolcircuit.Policy) { p.FailureThreshold = 5 })
	r := run(t, o, []step{
		{begin("1", "2", "3", "4", "5", "6"), closed},
		{all(end("1", errDown), end("2", errDown), end("3", errDown), end("4", errDown)), closed},
		{end("5", errDown), open},
		{all(end("6", errDown), refused(time.Minute)), open},
		{all(add(time.Minute-1), refused(1)), open},
		{add(1), halfOpen},
		{call(nil), closed},
	})
	require.Equal(t, []toolcircuit.EventType{opened, halfOpened, reclosed}, happened(r))
}

// alibaba/sentinel-golang#408: the state is seen before its deadline, and the cooldown skipped.
func TestF16StateAndDeadlineBecomeVisibleTogether(t *testing.T) {
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

// resilience4j/resilience4j#2038: admission recurses while another goroutine is in the middle
// of the transition.
func TestF17TransitionHeldUp(t *testing.T) {
	for _, stuck := range []toolcircuit.EventType{opened, halfOpened} {
		synctest.Test(t, func(t *testing.T) {
			block := make(chan struct{})
			var heard []toolcircuit.EventType
			o := once(nil)
			o.OnEvent = func(_ context.Context, e toolcircuit.Event) {
				if e.Type == stuck {
					<-block
				}
				heard = append(heard, e.Type)
			}
			r := newQuietRig(t, o)
			if stuck == halfOpened {
				all(call(errDown), add(time.Minute))(r)
			}
			go try(r.ToolCircuit, errDown)
			synctest.Wait()
			all(refused(time.Minute), add(time.Minute), begin("probe"), refused(time.Minute))(r)
			end("probe", nil)(r)
			require.Equal(t, closed, r.State())
			close(block)
			synctest.Wait()
			require.Equal(t, []toolcircuit.EventType{opened, halfOpened, reclosed}, heard)
		})
	}
}

// B. Results from another epoch.

// App-vNext/Polly#217: the success of an old call closes the half-open circuit.
func TestF19OldSuccessWhileHalfOpen(t *testing.T) {
	run(t, once(nil), []step{
		{begin("old"), closed},
		{call(errDown), open},
		{all(add(time.Minute), begin("probe")), halfOpen},
		{all(end("old", nil), refused(time.Minute)), halfOpen},
		{end("probe", nil), closed},
	})
}

// cep21/circuit#159: the success of an old call ends the cooldown.
func TestF20OldSuccessWhileOpen(t *testing.T) {
	run(t, once(nil), []step{
		{begin("old"), closed},
		{call(errDown), open},
		{all(add(1), end("old", nil), refused(time.Minute-1)), open},
		{all(add(time.Minute-2), refused(1)), open},
	})
}

// App-vNext/Polly#218: a failure from before the outage trips the recovered circuit.
func TestF22OldFailureAfterRecovery(t *testing.T) {
	r := run(t, once(nil), []step{
		{begin("old"), closed},
		{call(errDown), open},
		{all(add(time.Minute), call(nil)), closed},
		{end("old", errDown), closed},
	})
	require.Zero(t, r.Snapshot().Streak)
}

// App-vNext/Polly#219: late failures prolong the cooldown.
func TestF23LateFailuresWhileOpen(t *testing.T) {
	r := newRig(t, policy(nil))
	names := []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}
	begin(names...)(r)
	for i, name := range names {
		all(end(name, errDown), add(3*time.Second))(r)
		if late := i - 1; late > 0 { // the third failure opens
			refused(time.Minute - time.Duration(late)*3*time.Second)(r)
		}
	}
	require.Equal(t, []toolcircuit.EventType{opened}, happened(r))
}

// sony/gobreaker#91: calls are admitted after the last failure that was needed. No trip rule
// reads the number of calls under way, by design: a closed circuit writes nothing when a
// call begins, and a limit on concurrent calls is a matter of package toolset.
func TestF25NoAdmissionAfterTheThreshold(t *testing.T) {
	r := newRig(t, policy(func(p *toolcircuit.Policy) { p.FailureThreshold = 5 }))
	for i := range 100 {
		begin(fmt.Sprint(i))(r)
	}
	for i := range 100 {
		end(fmt.Sprint(i), errDown)(r)
		if i < 4 {
			begin("not yet")(r)
		} else {
			refused(time.Minute)(r)
		}
	}
}

// A tool calls itself through its own circuit while it is the probe. The catalogue wants the inner
// call refused; then a tool that calls another one of its own dependency never recovers (N17), so
// the inner call rides on the probe. TestRiding has the rest.
func TestF26CallNestedInItself(t *testing.T) {
	nested := func(inner error) func(*rig) {
		return func(r *rig) {
			_, err := toolcircuit.Do(context.Background(), r.ToolCircuit, func(ctx context.Context) (string, error) {
				return toolcircuit.Do(ctx, r.ToolCircuit, op(inner))
			})
			require.Equal(r, inner, err)
		}
	}
	run(t, once(nil), []step{
		{call(errDown), open},
		{all(add(time.Minute), nested(errDown)), open},
		{all(add(2*time.Minute), nested(nil)), closed},
	})
}

// C. Callbacks and user functions.

// gastownhall/gascity#4839: callbacks outside the lock arrive out of order.
func TestF28EventsKeepTheirOrder(t *testing.T) {
	var inside atomic.Bool
	var events []toolcircuit.Event
	o := once(nil)
	o.OnEvent = func(_ context.Context, e toolcircuit.Event) {
		if inside.Swap(true) {
			t.Error("two events at once")
		}
		events = append(events, e)
		inside.Store(false)
	}
	r := newQuietRig(t, o)
	together(32, func(int) {
		for range 20_000 / 32 {
			try(r.ToolCircuit, errDown)
			r.Reset()
		}
	})
	require.NotEmpty(t, events)
	from := closed
	for i, e := range events {
		require.Equal(t, from, e.From, "event %d", i)
		from = e.To
	}
	require.Equal(t, r.State(), from)
}

// cep21/circuit#159: a panic in a callback leaves a lock held or the state half changed.
func TestF29CallbackPanics(t *testing.T) {
	o := once(nil)
	o.OnEvent = func(_ context.Context, e toolcircuit.Event) {
		if e.Type == opened {
			panic("callback")
		}
	}
	o.OnCall = func(context.Context, toolcircuit.Call) { panic("callback") }
	r := run(t, o, []step{
		{all(call(errDown), refused(time.Minute)), open},
		{all(add(time.Minute), call(nil)), closed},
	})
	require.Equal(t, []toolcircuit.EventType{opened, halfOpened, reclosed}, happened(r))
	require.EqualValues(t, 4, r.Snapshot().HookPanics)
}

// resilience4j/resilience4j#2209: a classifier that misbehaves keeps the probe's slot. That
// its panic does not reach the caller is by design: the call has happened, and its result
// must not be lost.
func TestF31ClassifierMisbehaves(t *testing.T) {
	var r *rig
	for name, test := range map[string]struct {
		classify toolcircuit.Classifier
		kind     toolcircuit.Kind
		want     toolcircuit.State
	}{
		"panics": {func(context.Context, toolcircuit.Outcome) toolcircuit.Verdict {
			panic("classifier")
		}, toolcircuit.KindPanic, open},
		"calls the circuit": {func(context.Context, toolcircuit.Outcome) toolcircuit.Verdict {
			refused(time.Minute)(r)
			return toolcircuit.Verdict{}
		}, toolcircuit.KindUnknown, halfOpen},
		"resets the circuit": {func(context.Context, toolcircuit.Outcome) toolcircuit.Verdict {
			r.Reset()
			return toolcircuit.Verdict{}
		}, toolcircuit.KindUnknown, closed},
		"effect out of range": {func(context.Context, toolcircuit.Outcome) toolcircuit.Verdict {
			return toolcircuit.Verdict{Effect: 200, RetryAfter: math.MinInt64}
		}, toolcircuit.KindUnavailable, open},
		"kind out of range, a pause without an end": {func(context.Context, toolcircuit.Outcome) toolcircuit.Verdict {
			return toolcircuit.Verdict{Effect: toolcircuit.EffectPause, Kind: "nonsense", RetryAfter: -1}
		}, toolcircuit.KindUnknown, halfOpen},
	} {
		t.Run(name, func(t *testing.T) {
			var active bool
			o := once(nil)
			o.Classify = func(ctx context.Context, out toolcircuit.Outcome) toolcircuit.Verdict {
				if !active {
					return toolcircuit.Verdict{}
				}
				active = false
				return test.classify(ctx, out)
			}
			r = newRig(t, o)
			all(call(errDown), add(time.Minute))(r)
			active = true
			call(errors.New("odd"))(r)
			require.Equal(t, test.want, r.State())
			require.Equal(t, test.kind, r.calls[len(r.calls)-1].Verdict.Kind)
			if test.want == halfOpen {
				all(begin("next"), refused(time.Minute))(r)
			}
		})
	}
}

// sony/gobreaker#72: the counts are cleared before the callback sees them.
func TestF32EventCarriesTheCounts(t *testing.T) {
	o := policy(func(p *toolcircuit.Policy) { p.FailureThreshold, p.FailureRate = 5, 1 })
	r := run(t, o, []step{
		{all(calls(2, nil), calls(4, errDown)), closed},
		{call(errDown), open},
	})
	e := last(r)
	require.Equal(t, []any{7, 5, toolcircuit.KindUnavailable, errDown}, []any{e.Calls, e.Failures, e.Kind, e.Err})
	require.Equal(t, r.clock.Now().Add(time.Minute), e.RetryAt)
}

// resilience4j/resilience4j#1437: two rules cross on one result, and two events are sent.
func TestF34TwoRulesOneEvent(t *testing.T) {
	o := rate(1, 3)
	o.Policy.FailureThreshold, o.Policy.SlowCall = 3, time.Second
	slow := func(r *rig) {
		toolcircuit.Do(context.Background(), r.ToolCircuit, func(context.Context) (int, error) {
			add(2 * time.Second)(r)
			return 0, nil
		})
	}
	r := run(t, o, []step{
		{all(slow, slow), closed},
		{slow, open},
	})
	require.Len(t, r.events, 1)
	require.Equal(t, toolcircuit.RuleThresholdRate, last(r).Rule)
	require.Equal(t, toolcircuit.KindSlow, last(r).Kind)
}

// D. What counts.

// sony/gobreaker#105: a caller that walks away counts against the dependency, or for it.
func TestF35CallersMoveNoStreak(t *testing.T) {
	r := newRig(t, policy(func(p *toolcircuit.Policy) { p.FailureRate = 1 }))
	calls(2, errDown)(r)
	for range 10 {
		walksAway(fmt.Errorf("search: %w", context.Canceled))(r)
	}
	require.Equal(t, 2, r.Snapshot().Streak)
	require.Equal(t, toolcircuit.Window{Calls: 2, Failures: 2}, r.Snapshot().Window)
	call(errDown)(r)
	require.Equal(t, open, r.State())
}

// nodeshift/opossum#388: an ignored result ends the streak, as if it were a success.
func TestF40IgnoredIsNoSuccess(t *testing.T) {
	for _, rig := range []func(*testing.T, toolcircuit.Options) *rig{newRig, newQuietRig} {
		r := rig(t, policy(func(p *toolcircuit.Policy) { p.FailureRate, p.MinCalls = 1, 4 }))
		all(calls(2, errDown), calls(5, errInvalid))(r)
		require.Equal(t, toolcircuit.Window{Calls: 2, Failures: 2}, r.Snapshot().Window)
		require.Equal(t, closed, r.State())
		call(errDown)(r)
		require.Equal(t, open, r.State())
		require.Equal(t, toolcircuit.RuleThreshold, r.Snapshot().Rule)
	}
}

// go-kratos/kratos#2777: the breaker counts its own rejections and never recovers.
func TestF41RefusalsDoNotFeedTheCircuit(t *testing.T) {
	r := newQuietRig(t, rate(0.5, 5))
	calls(5, errDown)(r)
	for range 10_000 {
		refused(time.Minute)(r)
	}
	require.EqualValues(t, 10_000, r.Snapshot().Refused)
	all(add(time.Minute), call(nil))(r)
	require.Equal(t, closed, r.State())
	require.Zero(t, r.Snapshot().Window)
}

// toolReply is a result that can mean failure beside a nil error.
type toolReply struct{ isError bool }

// resilience4j/resilience4j#384: a result that means failure trips some entry points only.
func TestF44ResultThatMeansFailure(t *testing.T) {
	type entry func(*testing.T, *toolcircuit.ToolCircuit)
	tool := func(context.Context, int) (toolReply, error) { return toolReply{true}, nil }
	for name, call := range map[string]entry{
		"Do": func(t *testing.T, c *toolcircuit.ToolCircuit) {
			reply, err := toolcircuit.Do(context.Background(), c, func(ctx context.Context) (toolReply, error) { return tool(ctx, 0) })
			require.NoError(t, err)
			require.True(t, reply.isError)
		},
		"Wrap": func(t *testing.T, c *toolcircuit.ToolCircuit) {
			reply, err := toolcircuit.Wrap(c, tool)(context.Background(), 0)
			require.NoError(t, err)
			require.True(t, reply.isError)
		},
		"WrapResult": func(t *testing.T, c *toolcircuit.ToolCircuit) {
			result, err := toolcircuit.WrapResult(c, tool)(context.Background(), 0)
			require.NoError(t, err)
			require.True(t, result.Value.isError)
		},
		"DoResult": func(t *testing.T, c *toolcircuit.ToolCircuit) {
			result, err := toolcircuit.DoResult(context.Background(), c, func(ctx context.Context) (toolReply, error) { return tool(ctx, 0) })
			require.NoError(t, err)
			require.True(t, result.Value.isError)
		},
		"Allow": func(t *testing.T, c *toolcircuit.ToolCircuit) {
			p, err := c.Allow(context.Background())
			require.NoError(t, err)
			p.Settle(context.Background(), toolReply{true}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := policy(nil)
			o.Classify = func(_ context.Context, out toolcircuit.Outcome) toolcircuit.Verdict {
				if reply, ok := out.Value.(toolReply); ok && reply.isError {
					return toolcircuit.Verdict{Effect: toolcircuit.EffectCount}
				}
				return toolcircuit.Verdict{}
			}
			r := newRig(t, o)
			for _, state := range []toolcircuit.State{closed, closed, open} {
				call(t, r.ToolCircuit)
				require.Equal(t, state, r.State())
			}
		})
	}
}

// E. Windows, numbers, options.

// SolaceProducts/solace-broker-mcp PR#296: failures that come slower than the window never
// trip a count in a row.
func TestF49SlowDrip(t *testing.T) {
	r := newRig(t, policy(func(p *toolcircuit.Policy) {
		p.FailureThreshold, p.FailureRate, p.Window = 5, 1, 100*time.Second
	}))
	for range 4 {
		all(call(errDown), add(time.Minute))(r)
	}
	require.Equal(t, closed, r.State())
	call(errDown)(r)
	require.Equal(t, open, r.State())
}

// sony/gobreaker#21: the window starts over at its edge, and a short burst is all it knows.
func TestF50WindowSlides(t *testing.T) {
	r := newRig(t, rate(0.15, 20))
	for range 100 {
		all(calls(10, nil), add(100*time.Millisecond))(r)
	}
	for range 10 {
		all(calls(9, errDown), add(100*time.Millisecond))(r)
	}
	w := r.Snapshot().Window
	require.Equal(t, 90, w.Failures)
	require.GreaterOrEqual(t, w.Calls, 900)
	require.Equal(t, closed, r.State())
}

// resilience4j/resilience4j#6: a rate that is reached exactly does not trip.
func TestF52ExactlyAtTheThreshold(t *testing.T) {
	for _, test := range []struct {
		rate         float64
		healthy, bad int
		want         toolcircuit.State
	}{
		{0.57, 43, 57, open},
		{0.57, 44, 56, closed},
		{0.5, 1, 1, open},
		{0.29, 71, 29, open},
		{1, 0, 20, open},
		{1, 1, 20, closed},
	} {
		r := newRig(t, rate(test.rate, test.healthy+test.bad))
		all(calls(test.healthy, nil), calls(test.bad-1, errDown))(r)
		require.Equal(t, closed, r.State(), "%+v", test)
		call(errDown)(r)
		require.Equal(t, test.want, r.State(), "%+v", test)
	}
}

// rubyist/circuitbreaker PR#1: concurrent failures jump over a threshold compared by equality.
func TestF53ThresholdJumpedOver(t *testing.T) {
	r := newQuietRig(t, policy(func(p *toolcircuit.Policy) { p.FailureThreshold = 10 }))
	for range 1000 {
		var permits [64]toolcircuit.Permit
		for i := range permits {
			permits[i], _ = r.Allow(context.Background())
		}
		together(64, func(i int) { permits[i].Settle(context.Background(), nil, errDown) })
		require.Equal(t, open, r.State())
		r.Reset()
	}
}

// resilience4j/resilience4j#1017: numbers read under load are negative or not a number.
func TestF55NumbersAreSound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQuietRig(t, rate(1, 20))
		require.Equal(t, toolcircuit.Window{}, r.Snapshot().Window, "no data")
		together(4, func(i int) {
			for n := range 1000 {
				switch i {
				case 0:
					r.clock.Add(100 * time.Millisecond)
				case 1:
					try(r.ToolCircuit, errDown)
				case 2:
					try(r.ToolCircuit, nil)
				default:
					s := r.Snapshot()
					if s.Window.Failures < 0 || s.Window.Failures > s.Window.Calls || s.Streak < 0 {
						t.Errorf("read %d: %+v", n, s.Window)
					}
					if _, err := json.Marshal(s); err != nil {
						t.Error(err)
					}
				}
			}
		})
	})
}

// cep21/circuit#159: counts stay as they were until the next call.
func TestF56NumbersRollWhileIdle(t *testing.T) {
	r := newRig(t, rate(1, 20))
	calls(2, errDown)(r)
	require.Equal(t, toolcircuit.Window{Calls: 2, Failures: 2}, r.Snapshot().Window)
	add(30 * time.Second)(r)
	require.Zero(t, r.Snapshot().Window)
	text, err := json.Marshal(r.Snapshot())
	require.NoError(t, err)
	require.Contains(t, string(text), `"window":{"calls":0,"failures":0}`)
}

// nodeshift/opossum#824: options that make no sense are taken, and a given 0 is taken for unset.
func TestF58OptionsThatMakeNoSense(t *testing.T) {
	type P = toolcircuit.Policy
	for field, policies := range map[string][]P{
		"FailureThreshold": {{FailureThreshold: -1}},
		"FailureRate":      {{FailureRate: 1.5}, {FailureRate: -0.1}, {FailureRate: math.NaN()}, {FailureRate: math.Inf(1)}},
		"Window":           {{Window: 5}, {Window: -1}},
		"MinCalls":         {{MinCalls: -1}, {MinCalls: 1e9}},
		"SlowCall":         {{SlowCall: -1}, {SlowCall: 60}, {SlowCall: 2 * time.Second, CallTimeout: time.Second}},
		"CallTimeout":      {{CallTimeout: -1}, {CallTimeout: 60}},
		"Cooldown":         {{Cooldown: -1}, {Cooldown: 1}},
		"Multiplier":       {{Multiplier: 0.5}, {Multiplier: math.NaN()}, {Multiplier: math.Inf(1)}},
		"MaxCooldown":      {{MaxCooldown: -1}, {Cooldown: 2 * time.Second, MaxCooldown: time.Second}},
		"Jitter":           {{Jitter: 3}, {Jitter: math.NaN()}},
		"MaxRetryAfter":    {{MaxRetryAfter: -1}, {MaxRetryAfter: 1}},
		"ProbeSuccesses":   {{ProbeSuccesses: -1}},
		"ProbeTimeout":     {{ProbeTimeout: -1}, {ProbeTimeout: 60}, {CallTimeout: 2 * time.Hour, ProbeTimeout: time.Hour}},
	} {
		for _, p := range policies {
			_, err := toolcircuit.New("search-api", toolcircuit.Options{Policy: p})
			require.ErrorContains(t, err, "Policy."+field+":", "%+v", p)
		}
	}
	for _, text := range []string{
		`{"failureThreshold":0}`, `{"window":"0s"}`, `{"cooldown":"0s"}`, `{"multiplier":-0}`, `{"probeSuccesses":0}`,
	} {
		require.ErrorContains(t, new(P).UnmarshalJSON([]byte(text)), "got 0", text)
	}
	_, err := toolcircuit.New("", toolcircuit.Options{})
	require.ErrorContains(t, err, "dependency is empty")
	_, err = toolcircuit.New("search-api", toolcircuit.Options{Clock: (*clock.Mock)(nil)})
	require.ErrorContains(t, err, "Options.Clock")

	r := newQuietRig(t, toolcircuit.Options{})
	require.Panics(t, func() { toolcircuit.Do[int](context.Background(), r.ToolCircuit, nil) })
	calls(100, nil)(r)
	require.Equal(t, closed, r.State())
	calls(4, errDown)(r)
	require.Equal(t, closed, r.State())
	call(errDown)(r)
	require.Equal(t, open, r.State())
}

// failsafe-lib/failsafe#115: jitter larger than the delay makes it negative, and a fleet that
// tripped as one wakes as one.
func TestF59JitterSpreadsWithinBounds(t *testing.T) {
	const n, floor, limit = 1000, time.Second, 1200 * time.Millisecond
	wait := func(seed uint64, cooldown time.Duration) time.Duration {
		o := once(func(p *toolcircuit.Policy) { p.Cooldown, p.MaxCooldown, p.Jitter = cooldown, limit, 0.2 })
		o.Seed = seed
		r := newQuietRig(t, o)
		call(errDown)(r)
		return r.Snapshot().RetryAt.Sub(r.clock.Now())
	}
	waits := make(map[time.Duration]bool)
	var low, high int
	for seed := range uint64(n) {
		w := wait(seed+1, floor)
		require.GreaterOrEqual(t, w, floor)
		require.LessOrEqual(t, w, limit)
		waits[w] = true
		if w < floor+(limit-floor)/4 {
			low++
		} else if w > limit-(limit-floor)/4 {
			high++
		}
	}
	require.Greater(t, len(waits), n*9/10)
	require.Greater(t, low, n/8)
	require.Greater(t, high, n/8)
	require.Equal(t, wait(7, floor), wait(7, floor))
	require.LessOrEqual(t, wait(7, limit), limit)
}

// failsafe-go 0.9.7: the wall clock steps, and a circuit stays open for an hour. Real time is
// read with its monotonic part, which no step of the wall clock moves.
func TestF61WallClockSteps(t *testing.T) {
	for _, rules := range []func(*toolcircuit.Policy){
		nil,
		func(p *toolcircuit.Policy) { p.FailureRate = 1 },
	} {
		run(t, once(rules), []step{
			{all(add(2*time.Hour), call(nil), add(-time.Hour), call(nil), call(errDown)), open},
			{all(add(-time.Hour), refused(time.Minute)), open},
			{all(add(time.Hour+time.Second), refused(time.Minute-time.Second)), open},
			{all(add(time.Hour), begin("probe"), add(-time.Hour), refused(time.Minute)), halfOpen},
			{end("probe", nil), closed},
		})
	}

	c := toolcircuit.MustNew("search-api", once(nil))
	require.Contains(t, c.Snapshot().Since.String(), " m=")
	try(c, errDown)
	var e *toolcircuit.OpenError
	require.ErrorAs(t, try(c, nil), &e)
	require.Contains(t, e.RetryAt.String(), " m=")
}

// resilience4j/resilience4j#734: a part of the breaker reads the real clock beside the one
// that was given. In the bubble a day of real time passes while the given clock stands still.
// The one exception is a context's deadline: it is real time, so Wait compares it with real
// time (N14).
func TestF62ClockIsInjectedEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := policy(func(p *toolcircuit.Policy) {
			p.FailureThreshold, p.FailureRate, p.SlowCall, p.CallTimeout = 2, 1, time.Second, time.Minute
		})
		r := newRig(t, o)
		day := func(r *rig) { time.Sleep(24 * time.Hour) }
		slow := func(r *rig) {
			toolcircuit.Do(context.Background(), r.ToolCircuit, func(ctx context.Context) (int, error) {
				day(r)
				return 0, ctx.Err()
			})
		}
		// still does something, and then nothing may change in a day.
		still := func(do func(*rig)) {
			do(r)
			before, err := json.Marshal(r.Snapshot())
			require.NoError(t, err)
			day(r)
			after, err := json.Marshal(r.Snapshot())
			require.NoError(t, err)
			require.Equal(t, string(before), string(after))
		}
		still(slow)
		require.Equal(t, toolcircuit.KindOK, r.calls[0].Verdict.Kind)
		still(calls(2, errDown))
		still(refused(time.Minute))
		require.False(t, r.Ready())
		still(override(toolcircuit.OverrideOpen))
		still(override(toolcircuit.OverrideNone))
		still(func(r *rig) { require.NoError(t, r.SetPolicy(r.Policy())) })
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		still(func(r *rig) { require.Equal(t, context.DeadlineExceeded, r.Wait(ctx)) })
		soon, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		still(func(r *rig) { require.ErrorIs(t, r.Wait(soon), toolcircuit.ErrCircuitOpen) })
		add(time.Minute)(r)
		still(begin("probe"))
		still(refused(2 * time.Minute))
		still(end("probe", nil))
		require.Equal(t, closed, r.State())
		still(reset)
		require.Equal(t, r.clock.Now(), r.Snapshot().Since)
	})
}

// F. Manual control and reconfiguration.

// cep21/circuit#159: forced open lets probes through, and a timer of the state beneath
// outlives the manual change.
func TestF64OverrideAndTheStateBeneath(t *testing.T) {
	run(t, once(nil), []step{
		{call(errDown), open},
		{override(toolcircuit.OverrideOpen), open},
		{all(add(30*time.Second), refused(0)), open},
		{all(override(toolcircuit.OverrideNone), refused(30*time.Second)), open},
		{override(toolcircuit.OverrideClosed), open},
		{all(calls(100, nil), calls(100, errDown)), open},
		{all(override(toolcircuit.OverrideNone), refused(30*time.Second)), open},
		{all(override(toolcircuit.OverrideOpen), add(time.Hour)), halfOpen},
		{func(r *rig) {
			for range 100 {
				refused(0)(r)
			}
		}, halfOpen},
		{all(override(toolcircuit.OverrideClosed), calls(100, errDown)), halfOpen},
		{all(override(toolcircuit.OverrideNone), begin("probe"), refused(time.Minute)), halfOpen},
		{end("probe", nil), closed},
	})
}

// App-vNext/Polly#1578: new settings while open or with a call under way wedge the breaker.
// The wait of an open circuit is that of the new policy, from the opening on.
func TestF65ReconfigureAtRunTime(t *testing.T) {
	set := func(edit func(*toolcircuit.Policy)) func(*rig) {
		return func(r *rig) { require.NoError(r, r.SetPolicy(once(edit).Policy)) }
	}
	cooldown := func(d time.Duration) func(*rig) {
		return set(func(p *toolcircuit.Policy) { p.Cooldown = d })
	}
	run(t, policy(nil), []step{
		{all(begin("early"), calls(3, errDown), add(10*time.Second)), open},
		{all(cooldown(20*time.Second), refused(10*time.Second)), open},
		{all(end("early", errDown), refused(10*time.Second)), open},
		{all(cooldown(time.Hour), refused(time.Hour-10*time.Second)), open},
		{add(time.Minute), open},
		{cooldown(20 * time.Second), halfOpen},
		{call(nil), closed},
	})
	run(t, policy(nil), []step{ // a lower threshold opens at the next counted failure
		{calls(2, errDown), closed},
		{set(nil), closed},
		{call(errInvalid), closed},
		{call(errDown), open},
	})

	synctest.Test(t, func(t *testing.T) {
		r := newQuietRig(t, once(nil))
		policies := []toolcircuit.Policy{once(nil).Policy, rate(0.5, 1).Policy, {FailureThreshold: 2, Cooldown: time.Second}}
		together(4, func(i int) {
			for n := range 1000 {
				switch i {
				case 0:
					if err := r.SetPolicy(policies[n%len(policies)]); err != nil {
						t.Error(err)
					}
				case 1:
					r.clock.Add(time.Second)
				case 2:
					try(r.ToolCircuit, errDown)
				default:
					try(r.ToolCircuit, nil)
				}
			}
		})
		require.NoError(t, r.SetPolicy(once(nil).Policy))
		all(add(time.Hour), call(nil))(r)
		require.Equal(t, closed, r.State())
	})
}

// G. Keys, memory, races.

// danielfm/pybreaker#3: the lock is held during the call, and calls run one after another.
func TestF70CallsRunConcurrently(t *testing.T) {
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
			call(errDown)(r)
			require.Equal(t, 1, r.Snapshot().Streak)
			close(block)
			synctest.Wait()
		}
	})
}

// afex/hystrix-go PR#36: what is read races with what is written. The race detector judges.
func TestF71ReadsDoNotRace(t *testing.T) {
	o := once(func(p *toolcircuit.Policy) { p.FailureRate, p.Cooldown = 0.5, time.Millisecond })
	o.OnEvent = func(context.Context, toolcircuit.Event) {}
	o.OnCall = func(context.Context, toolcircuit.Call) {}
	c := toolcircuit.MustNew("search-api", o)
	uses := []func(){
		func() { try(c, nil) },
		func() { try(c, errDown) },
		func() {
			try(c.WithTool(toolcircuit.Tool{Name: "web_search", SideEffects: true}), wait(time.Millisecond))
		},
		func() { c.SetPolicy(o.Policy) },
		func() { c.SetOverride(toolcircuit.OverrideClosed) },
		func() { c.SetOverride(toolcircuit.OverrideNone) },
		func() { c.Reset() },
		func() { json.Marshal(c.Snapshot()) },
		func() { _, _, _, _ = c.State(), c.Ready(), c.Policy(), c.Dependency() },
		func() { try(c.Twin("other-api"), errDown) },
		func() {
			if p, err := c.Allow(context.Background()); err != nil {
				toolcircuit.ResultOf(c, "", toolcircuit.Verdict{}, err)
			} else {
				p.Release()
			}
		},
	}
	together(len(uses), func(i int) {
		for range 500 {
			uses[i]()
			runtime.Gosched()
		}
	})
}

// Variants: of each kind above, what the reports do not have.

// A permit of an ended epoch frees no slot, nor does the probe that lost it.
func TestVariantReleaseFreesNoSlotOfAnother(t *testing.T) {
	run(t, once(nil), []step{
		{all(begin("old", "older"), call(errDown)), open},
		{all(add(time.Minute), begin("probe"), release("old"), refused(time.Minute)), halfOpen},
		{all(end("older", errInvalid), refused(time.Minute)), halfOpen},
		{all(add(time.Minute), begin("second"), release("probe"), refused(time.Minute)), halfOpen},
		{all(release("second"), begin("third")), halfOpen},
		{end("third", nil), closed},
	})
}

// A context that is over takes no slot, and neither does a caller that only looks.
func TestVariantNothingTakenByLooking(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	looks := func(r *rig) {
		_, err := r.Allow(ctx)
		require.Equal(r, context.Canceled, err)
		_, err = toolcircuit.Do(ctx, r.ToolCircuit, op(nil))
		require.Equal(r, context.Canceled, err)
		require.Equal(r, context.Canceled, r.Wait(ctx))
		require.NoError(r, r.Wait(context.Background()))
		require.True(r, r.Ready())
		require.Equal(r, halfOpen, r.Snapshot().State)
	}
	run(t, once(nil), []step{
		{call(errDown), open},
		{all(add(time.Minute), looks), halfOpen},
		{call(nil), closed},
	})
}

// A probe ends in every other way that a function can end.
func TestVariantProbeThatDoesNotReturn(t *testing.T) {
	for name, probe := range map[string]func(context.Context) (int, error){
		"Goexit":     func(context.Context) (int, error) { runtime.Goexit(); return 0, nil },
		"panic(nil)": func(context.Context) (int, error) { panic(nil) },
		"an error":   func(context.Context) (int, error) { panic(toolcircuit.ErrCircuitOpen) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, once(nil))
			all(call(errDown), add(time.Minute))(r)
			apart(func() {
				defer func() { recover() }()
				toolcircuit.Do(context.Background(), r.ToolCircuit, probe)
			})
			refused(2 * time.Minute)(r)
			require.Equal(t, toolcircuit.KindPanic, last(r).Kind)
		})
	}
}

// A pause opens the half-open circuit for as long as was asked, and is no further opening.
func TestVariantPauseWhileHalfOpen(t *testing.T) {
	r := run(t, once(nil), []step{
		{call(errDown), open},
		{all(add(time.Minute), call(wait(5*time.Minute)), refused(5*time.Minute)), open},
		{all(add(5*time.Minute), call(errDown), refused(2*time.Minute)), open},
	})
	require.Equal(t, 2, r.Snapshot().Openings)
}

// A refusal beside a failure says nothing of the outer dependency, whatever the order.
func TestVariantRefusalJoinedWithAFailure(t *testing.T) {
	inner := newRig(t, once(nil))
	call(errDown)(inner)
	refusal := try(inner.ToolCircuit, nil)
	run(t, once(nil), []step{
		{call(errors.Join(refusal, errDown)), closed},
		{call(toolcircuit.Fault(errors.Join(errDown, refusal))), closed},
		{call(errDown), open},
		{all(add(time.Minute), call(errors.Join(errDown, refusal))), halfOpen},
		{call(nil), closed},
	})
}

// Reset while a probe runs: what it brings late belongs to no epoch that is left.
func TestVariantResetWhileTheProbeRuns(t *testing.T) {
	run(t, once(nil), []step{
		{call(errDown), open},
		{all(add(time.Minute), begin("probe"), add(time.Minute), begin("again")), halfOpen},
		{reset, closed},
		{end("probe", errDown), closed},
		{call(errDown), open},
		{all(end("again", wait(time.Hour)), refused(time.Minute)), open},
	})
}

// Only the epoch that just ended may move the reopening, and only to a later time, within
// MaxRetryAfter.
func TestVariantLateWaits(t *testing.T) {
	run(t, once(func(p *toolcircuit.Policy) { p.MaxRetryAfter = 10 * time.Minute }), []step{
		{all(begin("1", "2", "3", "4", "5", "6"), call(wait(2*time.Second))), open},
		{all(end("1", errInvalid), end("2", nil), refused(2*time.Second)), open},
		{all(end("4", wait(time.Second)), refused(2*time.Second)), open},
		{all(add(time.Second), end("5", wait(24*time.Hour)), refused(10*time.Minute)), open},
		{all(add(10*time.Minute), call(errDown), refused(time.Minute)), open},
		{all(end("6", wait(9*time.Minute)), refused(time.Minute)), open},
	})
}

// One batch is one observation also across a success, a Reset and a change of policy.
func TestVariantBurstMark(t *testing.T) {
	burst := func(p *toolcircuit.Policy) { p.FailureThreshold, p.CountBurstOnce = 2, true }
	streak := func(n int) func(*rig) {
		return func(r *rig) { require.Equal(r, n, r.Snapshot().Streak) }
	}
	run(t, policy(burst), []step{
		{all(begin("1", "2", "3", "4"), end("1", errDown), end("2", errDown), streak(1)), closed},
		{all(call(nil), end("3", errDown), streak(0)), closed},
		{all(begin("5"), reset, end("4", errDown), end("5", errDown), streak(0)), closed},
		{all(call(errDown), streak(1)), closed},
		{call(errDown), open},
	})
	run(t, policy(nil), []step{
		{all(begin("1", "2", "3"), end("1", errDown), streak(1)), closed},
		{func(r *rig) { require.NoError(r, r.SetPolicy(policy(burst).Policy)) }, closed},
		{all(end("2", errDown), end("3", errDown), streak(1)), closed},
		{call(errDown), open},
	})
}

// Hooks that use the circuit in every way neither deadlock nor break the order of events.
func TestVariantHooksThatUseTheCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		depth := 0
		use := func() {
			if depth++; depth > 3 {
				return
			}
			r.State()
			r.Snapshot()
			r.Ready()
			r.Twin("other-api")
			require.NoError(t, r.SetPolicy(r.Policy()))
			try(r.ToolCircuit, errDown)
			if p, err := r.Allow(context.Background()); err == nil {
				p.Release()
			}
			r.SetOverride(toolcircuit.OverrideOpen)
			r.SetOverride(toolcircuit.OverrideNone)
			r.Reset()
		}
		o := once(nil)
		o.OnEvent = func(context.Context, toolcircuit.Event) { use() }
		o.OnCall = func(context.Context, toolcircuit.Call) { use() }
		o.Classify = func(context.Context, toolcircuit.Outcome) toolcircuit.Verdict {
			use()
			return toolcircuit.Verdict{}
		}
		r = newRig(t, o)
		for range 3 {
			depth = 0
			try(r.ToolCircuit, errDown)
			add(time.Minute)(r)
			depth = 0
			try(r.ToolCircuit, nil)
		}
		from := closed
		for i, e := range r.events {
			require.Equal(t, from, e.From, "event %d", i)
			from = e.To
		}
		require.Zero(t, r.Snapshot().HookPanics)
	})
}

// A hook that ends its goroutine ends neither the events behind it nor the probe's slot.
func TestVariantHookGoexit(t *testing.T) {
	for name, edit := range map[string]func(*toolcircuit.Options){
		"Classify": func(o *toolcircuit.Options) {
			o.Classify = func(_ context.Context, out toolcircuit.Outcome) toolcircuit.Verdict {
				if out.Err == nil {
					runtime.Goexit()
				}
				return toolcircuit.Verdict{}
			}
		},
		"OnCall": func(o *toolcircuit.Options) {
			o.OnCall = func(_ context.Context, c toolcircuit.Call) {
				if c.Err == nil {
					runtime.Goexit()
				}
			}
		},
		"OnEvent": func(o *toolcircuit.Options) {
			o.OnEvent = func(_ context.Context, e toolcircuit.Event) {
				if e.Type == reclosed {
					runtime.Goexit()
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := once(nil)
			edit(&o)
			r := newRig(t, o)
			all(call(errDown), add(time.Minute))(r)
			apart(func() { try(r.ToolCircuit, nil) })
			add(time.Hour)(r)
			require.True(t, r.Ready())
			begin("next")(r)
			end("next", errDown)(r)
			require.Equal(t, open, r.State())
			require.Equal(t, opened, last(r).Type)
		})
	}
}

// A Classifier is asked once about each outcome, so that it may answer differently each time.
func TestVariantClassifierIsAskedOnce(t *testing.T) {
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
func TestVariantContextWithItsOwnError(t *testing.T) {
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

// Of two circuits around one another each with a CallTimeout, the one whose time is over counts.
func TestVariantNestedCallTimeouts(t *testing.T) {
	for name, test := range map[string]struct {
		outer, inner           time.Duration
		outerState, innerState toolcircuit.State
	}{
		"the outer ends first": {time.Second, 2 * time.Second, open, closed},
		"the inner ends first": {2 * time.Second, time.Second, open, open},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				outer := newQuietRig(t, once(func(p *toolcircuit.Policy) { p.CallTimeout = test.outer }))
				o := once(func(p *toolcircuit.Policy) { p.CallTimeout = test.inner })
				o.Clock = outer.clock
				inner, err := toolcircuit.New("inner-api", o)
				require.NoError(t, err)
				go toolcircuit.Do(context.Background(), outer.ToolCircuit, func(ctx context.Context) (int, error) {
					return toolcircuit.Do(ctx, inner, func(ctx context.Context) (int, error) {
						<-ctx.Done()
						return 0, ctx.Err()
					})
				})
				synctest.Wait()
				outer.clock.Add(time.Second)
				synctest.Wait()
				require.Equal(t, test.outerState, outer.State())
				require.Equal(t, test.innerState, inner.State())
			})
		})
	}
}

// Two goroutines that settle and release one permit count once.
func TestVariantPermitSettledTwice(t *testing.T) {
	r := newQuietRig(t, policy(func(p *toolcircuit.Policy) { p.FailureThreshold = math.MaxInt }))
	for n := range 500 {
		p, err := r.Allow(context.Background())
		require.NoError(t, err)
		together(4, func(i int) { p.Settle(context.Background(), nil, errDown) })
		p.Release()
		require.Equal(t, n+1, r.Snapshot().Streak)
	}
}

// What was counted or remembered in the future of a clock set back neither counts nor panics.
func TestVariantClockSetBackWhileClosed(t *testing.T) {
	r := newRig(t, rate(1, 3))
	all(add(time.Hour), calls(2, errDown), add(-time.Hour))(r)
	require.Zero(t, r.Snapshot().Window)
	calls(2, errDown)(r)
	require.Equal(t, closed, r.State())
	call(errDown)(r)
	require.Equal(t, open, r.State())

	run(t, once(nil), []step{ // the memory of openings
		{all(add(time.Hour), call(errDown), add(time.Minute), call(nil)), closed},
		{all(add(-time.Hour), call(errDown), refused(2*time.Minute)), open},
	})
}

// The longest durations there are overflow nothing.
func TestVariantLongestDurations(t *testing.T) {
	const forever = time.Duration(math.MaxInt64)
	for name, edit := range map[string]func(*toolcircuit.Policy){
		"cooldown":    func(p *toolcircuit.Policy) { p.Cooldown = forever },
		"curve":       func(p *toolcircuit.Policy) { p.Cooldown, p.MaxCooldown, p.Multiplier = forever-1, forever, 1e300 },
		"memory":      func(p *toolcircuit.Policy) { p.Cooldown, p.Window = forever, forever },
		"rate window": func(p *toolcircuit.Policy) { p.Cooldown, p.FailureRate, p.Window = forever, 1, forever },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, once(edit))
			all(call(nil), call(errDown), add(24*time.Hour))(r)
			require.Equal(t, open, r.State())
			require.False(t, r.Ready())
			_, err := toolcircuit.ResultOf(r.ToolCircuit, 0, toolcircuit.Verdict{}, try(r.ToolCircuit, nil))
			require.NoError(t, err)
		})
	}
	run(t, once(func(p *toolcircuit.Policy) { p.MaxRetryAfter = forever }), []step{
		{all(call(wait(forever)), refused(forever)), open},
		{all(add(time.Hour), refused(forever-time.Hour)), open},
	})
	run(t, once(func(p *toolcircuit.Policy) { p.ProbeTimeout, p.CallTimeout = forever, forever }), []step{
		{all(call(errDown), add(time.Minute), begin("probe"), refused(forever)), halfOpen},
		{end("probe", nil), closed},
	})
}

// JSON of a user holds no number that is not one.
func TestVariantNumbersInJSON(t *testing.T) {
	for _, text := range []string{
		`{"failureRate":NaN}`, `{"failureRate":"NaN"}`, `{"failureRate":1e999}`, `{"multiplier":-1e999}`,
		`{"failureThreshold":1e30}`, `{"failureThreshold":1.5}`, `{"minCalls":9223372036854775808}`,
		`{"cooldown":30}`, `{"cooldown":"1e9s"}`, `{"cooldown":"9223372036855s"}`, `{"cooldown":"NaNs"}`,
	} {
		p := toolcircuit.Policy{Cooldown: time.Second}
		require.Error(t, p.UnmarshalJSON([]byte(text)), text)
		require.Equal(t, toolcircuit.Policy{Cooldown: time.Second}, p)
	}
	_, err := json.Marshal(toolcircuit.Policy{Jitter: math.NaN()})
	require.ErrorContains(t, err, "Jitter")
}

// New settings while a probe has the slot: its lease and the successes needed are the new ones.
func TestVariantSetPolicyWhileHalfOpen(t *testing.T) {
	set := func(edit func(*toolcircuit.Policy)) func(*rig) {
		return func(r *rig) { require.NoError(r, r.SetPolicy(once(edit).Policy)) }
	}
	run(t, once(nil), []step{
		{all(call(errDown), add(time.Minute), begin("probe"), add(10*time.Second)), halfOpen},
		{all(set(func(p *toolcircuit.Policy) { p.ProbeTimeout = 30 * time.Second }), refused(20*time.Second)), halfOpen},
		{all(set(func(p *toolcircuit.Policy) { p.ProbeSuccesses = 2 }), refused(50*time.Second)), halfOpen},
		{end("probe", nil), halfOpen},
		{set(nil), halfOpen},
		{call(nil), closed},
	})
	run(t, once(nil), []step{ // the lease is over at once
		{all(call(errDown), add(time.Minute), begin("probe"), add(10*time.Second)), halfOpen},
		{set(func(p *toolcircuit.Policy) { p.ProbeTimeout = time.Second }), halfOpen},
		{all(begin("next"), refused(time.Second), release("probe"), refused(time.Second)), halfOpen},
		{end("next", errDown), open},
	})
}

// An override set while a probe runs decides admission alone: the probe still decides the state.
func TestVariantOverrideWhileTheProbeRuns(t *testing.T) {
	r := run(t, once(nil), []step{
		{all(call(errDown), add(time.Minute), begin("probe")), halfOpen},
		{all(override(toolcircuit.OverrideClosed), begin("free"), end("free", errDown)), halfOpen},
		{all(begin("still free"), override(toolcircuit.OverrideOpen), refused(0)), halfOpen},
		{end("probe", nil), closed},
		{refused(0), closed},
		{all(override(toolcircuit.OverrideNone), end("still free", errDown)), closed},
		{call(errDown), open},
	})
	require.False(t, r.permits["free"].Probe())
	require.True(t, r.permits["probe"].Probe())
}

// Reset keeps the override, and one that is set again is no event.
func TestVariantResetUnderAnOverride(t *testing.T) {
	r := run(t, once(nil), []step{
		{all(call(errDown), override(toolcircuit.OverrideOpen), override(toolcircuit.OverrideOpen)), open},
		{all(reset, refused(0)), closed},
		{all(override(toolcircuit.OverrideNone), call(nil)), closed},
	})
	require.Equal(t, []toolcircuit.EventType{
		opened, toolcircuit.EventOverridden, reclosed, toolcircuit.EventOverridden,
	}, happened(r))
}

// A call judges itself by the policy that admitted it; what it does to the state, by the one in
// force.
func TestVariantSetPolicyInsideACall(t *testing.T) {
	r := newRig(t, once(func(p *toolcircuit.Policy) { p.CountUnknown = true }))
	_, err := toolcircuit.Do(context.Background(), r.ToolCircuit, func(context.Context) (int, error) {
		return 0, errors.Join(r.SetPolicy(policy(nil).Policy), errors.New("odd"))
	})
	require.Error(t, err)
	require.Equal(t, closed, r.State())
	require.Equal(t, 1, r.Snapshot().Streak)
}

// A straggler without a Retry-After moves a reopening that the dependency asked for to what the
// curve gives.
func TestVariantStragglerBringsBackTheCurve(t *testing.T) {
	run(t, once(nil), []step{
		{all(begin("late", "later"), call(wait(2*time.Second))), open},
		{all(end("late", errDown), refused(time.Minute)), open},
		{all(add(time.Second), end("later", errDown), refused(59*time.Second)), open},
	})
}

// A policy that is put in force again moves no deadline, and a wait noted before an opening
// keeps to the policy in force.
func TestVariantSetPolicyAndAskedWaits(t *testing.T) {
	same := func(r *rig) { require.NoError(r, r.SetPolicy(r.Policy())) }
	run(t, once(func(p *toolcircuit.Policy) { p.MaxRetryAfter = time.Minute }), []step{
		{all(begin("late"), call(errDown), add(50*time.Second), end("late", wait(time.Minute))), open},
		{all(refused(time.Minute), same, refused(time.Minute)), open},
	})
	lower := func(r *rig) {
		p := r.Policy()
		p.MaxRetryAfter = 2 * time.Minute
		require.NoError(r, r.SetPolicy(p))
	}
	run(t, policy(func(p *toolcircuit.Policy) { p.FailureThreshold, p.MaxRetryAfter = 2, time.Hour }), []step{
		{call(&toolcircuit.HTTPError{StatusCode: 503, RetryAfter: time.Hour}), closed},
		{all(lower, call(errDown), refused(2*time.Minute)), open},
	})
}

// The longest durations there are overflow nothing: with jitter, for a tool with side effects,
// and under a clock set back.
func TestVariantLongestDurationsOverflow(t *testing.T) {
	const forever = time.Duration(math.MaxInt64)
	o := once(func(p *toolcircuit.Policy) { p.Cooldown, p.Jitter = forever, 0.1 })
	run(t, o, []step{{all(call(errDown), refused(forever)), open}})

	o = once(func(p *toolcircuit.Policy) { p.Cooldown = forever })
	o.Tool.SideEffects = true
	run(t, o, []step{{all(call(errDown), refused(forever)), open}})

	o = once(func(p *toolcircuit.Policy) { p.Cooldown = forever })
	run(t, o, []step{{all(add(time.Hour), call(errDown), add(-time.Hour), refused(forever)), open}})
}

// A clock set back in the middle of a call hides neither its timeout nor its error.
func TestVariantClockSetBackInsideACall(t *testing.T) {
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
func TestVariantProbeEndedBeforeItsCall(t *testing.T) {
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
			r := newRig(t, o)
			all(call(errDown), add(time.Minute))(r)
			apart(func() { enter(r) })
			require.True(t, r.Ready())
			call(nil)(r)
			require.Equal(t, closed, r.State())
		})
	}
	t.Run("context", func(t *testing.T) {
		r := newRig(t, once(func(p *toolcircuit.Policy) { p.CallTimeout = time.Minute }))
		all(call(errDown), add(time.Minute))(r)
		require.Panics(t, func() { toolcircuit.Do(brokenContext{context.Background()}, r.ToolCircuit, never) })
		require.True(t, r.Ready())
	})
}

// brokenContext panics when asked for its end.
type brokenContext struct{ context.Context }

func (brokenContext) Done() <-chan struct{} { panic("Done") }
