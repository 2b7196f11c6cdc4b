package toolcircuit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

func TestRate(t *testing.T) {
	opened := func(rule toolcircuit.Rule, failures, calls int) func(*rig) {
		return func(r *rig) {
			r.Helper()
			e := r.events[len(r.events)-1]
			require.Equal(r, rule, e.Rule)
			require.Equal(r, failures, e.Failures)
			require.Equal(r, calls, e.Calls)
		}
	}
	with := func(edit func(*toolcircuit.Policy)) func(*toolcircuit.Policy) {
		return func(p *toolcircuit.Policy) { byRate(p); edit(p) }
	}
	slow := all(begin("a"), add(2*time.Millisecond), end("a", nil))
	play(t, []script{
		{"opens at the rate", byRate, []step{
			{all(calls(4, nil), calls(3, errDown), holds(3, 7)), closed},
			{all(call(errDown), opened(toolcircuit.RuleRate, 4, 8)), open},
		}},
		{"not below it", byRate, []step{
			{all(calls(4, nil), calls(3, errDown), call(nil), call(errDown), holds(4, 9)), closed},
		}},
		{"says nothing below MinCalls", byRate, []step{
			{all(calls(3, errDown), holds(3, 3)), closed},
			{call(errDown), open},
		}},
		{"a success never opens", byRate, []step{
			{all(calls(3, errDown), call(nil), holds(3, 4)), closed},
			{call(errDown), open},
		}},
		{"ignored calls are no calls", byRate, []step{
			{all(calls(3, errDown), calls(9, errInvalid), holds(3, 3)), closed},
		}},
		{"nor are refused ones", byRate, []step{
			{all(calls(4, errDown), refused(time.Minute), add(time.Minute), call(nil), holds(0, 0)), closed},
		}},
		{"slow calls are failures, with the threshold at one call there is one event", with(func(p *toolcircuit.Policy) { p.FailureThreshold, p.SlowCall = 2, time.Millisecond }), []step{
			{all(calls(2, nil), slow, holds(1, 3)), closed},
			{all(slow, opened(toolcircuit.RuleThresholdRate, 2, 4)), open},
			{func(r *rig) { require.Len(r, r.events, 1) }, open},
		}},
		{"a streak is older than the window", with(func(p *toolcircuit.Policy) { p.FailureThreshold = 5 }), []step{
			{all(call(errDown), add(time.Minute), call(errDown), add(time.Minute), call(errDown), add(time.Minute), call(errDown), add(time.Minute)), closed},
			{all(call(errDown), opened(toolcircuit.RuleThreshold, 5, 5)), open},
		}},
		{"a flaky tool opens by rate alone", with(func(p *toolcircuit.Policy) { p.FailureThreshold, p.MinCalls = 3, 7 }), []step{
			{all(calls(2, errDown), call(nil), calls(2, errDown), call(nil)), closed},
			{all(call(errDown), opened(toolcircuit.RuleRate, 5, 7)), open},
		}},
		{"duplicates are healthy calls", byRate, []step{
			{all(call(toolcircuit.Duplicate(errDown)), holds(0, 1)), closed},
		}},
		{"the threshold alone says among how many calls, too", with(func(p *toolcircuit.Policy) { p.FailureThreshold = 5; p.FailureRate = 1 }), []step{
			{all(calls(2, nil), calls(5, errDown), opened(toolcircuit.RuleThreshold, 5, 7)), open},
		}},
		{"a pause opens by itself", byRate, []step{
			{all(call(nil), call(wait(time.Minute)), opened(toolcircuit.RulePause, 1, 1)), open},
		}},
		{"MinCalls is for closed only", byRate, []step{
			{all(calls(4, errDown), add(time.Minute)), halfOpen},
			{all(call(errDown), opened(toolcircuit.RuleProbe, 1, 1), openings(2)), open},
			{all(add(2*time.Minute), call(errDown), refused(4*time.Minute)), open},
		}},
		{"off: not even successes are counted", nil, []step{
			{all(call(nil), call(errDown), holds(0, 0)), closed},
		}},
	})
}

func TestWindowSlides(t *testing.T) {
	second := add(time.Second)
	play(t, []script{
		{"a call leaves it after one Window", byRate, []step{
			{all(calls(3, errDown), add(16*time.Second-1), holds(3, 3)), closed},
			{all(add(1), holds(0, 0)), closed},
			{all(call(errDown), holds(1, 1)), closed},
		}},
		{"calls leave it one by one", byRate, []step{
			{all(call(errDown), second, call(errDown), second, call(errDown), add(14*time.Second), holds(2, 2)), closed},
			{all(second, holds(1, 1)), closed},
			{all(second, holds(0, 0)), closed},
		}},
		{"no call is older than it, wherever in its slot it came", byRate, []step{
			{all(add(time.Second-1), calls(3, errDown), add(15*time.Second), holds(3, 3)), closed},
			{all(add(1), holds(0, 0)), closed},
		}},
		{"rates what is within it", byRate, []step{
			{all(calls(9, nil), add(10*time.Second), calls(3, errDown), holds(3, 12)), closed},
			{all(add(6*time.Second), holds(3, 3)), closed},
			{call(errDown), open},
		}},
		{"many of its lengths later it is empty", byRate, []step{
			{all(calls(3, errDown), add(16*time.Second*1000), holds(0, 0)), closed},
			{all(calls(3, errDown), holds(3, 3)), closed},
		}},
		{"belongs to one epoch", byRate, []step{
			{all(calls(3, errDown), reset, holds(0, 0), calls(3, errDown), holds(3, 3)), closed},
			{call(errDown), open},
			{all(holds(0, 0), add(time.Minute), call(nil), holds(0, 0)), closed},
			{calls(3, errDown), closed},
		}},
		{"takes no call of an earlier epoch", byRate, []step{
			{all(begin("a"), reset, end("a", errDown), holds(0, 0)), closed},
		}},
		{"another length begins empty", byRate, []step{
			{all(calls(3, errDown), set(func(p *toolcircuit.Policy) { byRate(p); p.Window = time.Minute }), holds(0, 0)), closed},
			{all(call(errDown), add(59*time.Second), holds(1, 1)), closed},
		}},
		{"another rate keeps it", byRate, []step{
			{all(call(nil), calls(2, errDown), set(func(p *toolcircuit.Policy) { byRate(p); p.FailureRate = 0.1 }), holds(2, 3)), closed},
			{call(errDown), open},
		}},
		{"begins when the rate is switched on, and ends when it is switched off", nil, []step{
			{all(calls(2, nil), set(byRate), holds(0, 0), call(nil), holds(0, 1)), closed},
			{all(set(nil), holds(0, 0), set(byRate), holds(0, 0)), closed},
		}},
		{"switched on while open it begins with the recovery", nil, []step{
			{all(trip, set(byRate), holds(0, 0)), open},
			{all(add(time.Minute), call(nil), call(errDown), holds(1, 1)), closed},
		}},
		{"reading changes nothing", byRate, []step{
			{all(calls(3, errDown), add(20*time.Second), holds(0, 0), add(-10*time.Second), holds(3, 3)), closed},
		}},
		{"a clock before its beginning counts as usual", byRate, []step{
			{all(add(-time.Hour), calls(3, errDown), holds(3, 3), add(15*time.Second), holds(3, 3)), closed},
			{all(add(time.Second), holds(0, 0)), closed},
		}},
		{"a slot before its beginning is one of its own", byRate, []step{
			{all(add(-time.Second/2), call(errDown), add(15*time.Second), holds(1, 1), add(time.Second/2), holds(0, 0)), closed},
		}},
		{"calls from what is now the future are not within it", byRate, []step{
			{all(calls(3, errDown), add(-10*time.Second), holds(0, 0)), closed},
			{all(call(nil), add(10*time.Second), holds(3, 4)), closed},
		}},
	})
}

// TestWindowLosesNothing has many goroutines count at once.
func TestWindowLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := policy(byRate)
		o.Policy.FailureRate, o.Policy.Window = 1, time.Hour
		c := toolcircuit.MustNew("search-api", o)
		do := func(err error) {
			toolcircuit.Do(context.Background(), c, func(context.Context) (int, error) { return 0, err })
		}
		do(nil) // so that the rate is never reached
		for i := range 32 {
			go func() {
				for range 500 {
					if i%4 == 0 {
						do(errDown)
					} else {
						do(nil)
					}
				}
			}()
		}
		synctest.Wait()
		require.Equal(t, toolcircuit.Window{Calls: 32*500 + 1, Failures: 8 * 500}, c.Snapshot().Window)
	})
}

// A rate that is reached exactly opens, also where a product would be rounded up.
func TestRateExactly(t *testing.T) {
	for _, test := range []struct {
		rate         float64
		healthy, bad int
		want         toolcircuit.State
	}{
		{0.57, 43, 57, open},
		{0.57, 44, 56, closed},
		{0.5, 1, 1, open},
		{0.29, 71, 29, open},
		{0.1, 9, 1, open},
		{0.07, 93, 7, open}, // 0.07*100 is more than 7
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
