package toolcircuit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

func TestRate(t *testing.T) {
	opened := func(rule toolcircuit.Rule, failures, calls int) func(*rig) {
		return func(r *rig) {
			r.Helper()
			e := last(r)
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
		{"opens at the rate", byRate, steps{
			calls(4, nil), calls(3, errDown), holds(3, 7), is(closed), call(errDown), opened(toolcircuit.RuleRate, 4, 8), is(open)}},
		{"not below it", byRate, steps{calls(4, nil), calls(3, errDown), call(nil), call(errDown), holds(4, 9), is(closed)}},
		{"says nothing below MinCalls", byRate, steps{calls(3, errDown), holds(3, 3), is(closed), call(errDown), is(open)}},
		{"a success never opens", byRate, steps{calls(3, errDown), call(nil), holds(3, 4), is(closed), call(errDown), is(open)}},
		{"ignored calls are no calls", byRate, steps{calls(3, errDown), calls(9, errInvalid), holds(3, 3), is(closed)}},
		{"nor are refused ones", byRate, steps{
			calls(4, errDown), refused(time.Minute), add(time.Minute), call(nil), holds(0, 0), is(closed)}},
		{"slow calls are failures, with the threshold at one call there is one event", with(func(p *toolcircuit.Policy) { p.FailureThreshold, p.SlowCall = 2, time.Millisecond }), steps{
			calls(2, nil), slow, holds(1, 3), is(closed), slow, opened(toolcircuit.RuleThresholdRate, 2, 4), is(open), heardOf(1)}},
		{"a streak is older than the window", with(func(p *toolcircuit.Policy) { p.FailureThreshold = 5 }), steps{
			call(errDown), add(time.Minute), call(errDown), add(time.Minute), call(errDown), add(time.Minute), call(errDown),
			add(time.Minute), is(closed), call(errDown), opened(toolcircuit.RuleThreshold, 5, 5), is(open)}},
		{"a flaky tool opens by rate alone", with(func(p *toolcircuit.Policy) { p.FailureThreshold, p.MinCalls = 3, 7 }), steps{
			calls(2, errDown), call(nil), calls(2, errDown), call(nil), is(closed),
			call(errDown), opened(toolcircuit.RuleRate, 5, 7), is(open)}},
		{"duplicates are healthy calls", byRate, steps{call(toolcircuit.Duplicate(errDown)), holds(0, 1), is(closed)}},
		{"the threshold alone says among how many calls, too", with(func(p *toolcircuit.Policy) { p.FailureThreshold = 5; p.FailureRate = 1 }), steps{
			calls(2, nil), calls(5, errDown), opened(toolcircuit.RuleThreshold, 5, 7), is(open)}},
		{"a pause opens by itself", byRate, steps{call(nil), call(wait(time.Minute)), opened(toolcircuit.RulePause, 1, 1), is(open)}},
		{"MinCalls is for closed only", byRate, steps{
			calls(4, errDown), add(time.Minute), is(halfOpen),
			call(errDown), opened(toolcircuit.RuleProbe, 1, 1), openings(2), is(open),
			add(2 * time.Minute), call(errDown), refused(4 * time.Minute), is(open)}},
		{"off: not even successes are counted", nil, steps{call(nil), call(errDown), holds(0, 0), is(closed)}},
	})
}

func TestWindowSlides(t *testing.T) {
	second := add(time.Second)
	play(t, []script{
		{"a call leaves it after one Window", byRate, steps{
			calls(3, errDown), add(16*time.Second - 1), holds(3, 3), is(closed), add(1), holds(0, 0), is(closed),
			call(errDown), holds(1, 1), is(closed)}},
		{"calls leave it one by one", byRate, steps{
			call(errDown), second, call(errDown), second, call(errDown), add(14 * time.Second), holds(2, 2), is(closed),
			second, holds(1, 1), is(closed), second, holds(0, 0), is(closed)}},
		{"no call is older than it, wherever in its slot it came", byRate, steps{
			add(time.Second - 1), calls(3, errDown), add(15 * time.Second), holds(3, 3), is(closed), add(1), holds(0, 0), is(closed)}},
		{"rates what is within it", byRate, steps{
			calls(9, nil), add(10 * time.Second), calls(3, errDown), holds(3, 12), is(closed),
			add(6 * time.Second), holds(3, 3), is(closed), call(errDown), is(open)}},
		{"many of its lengths later it is empty", byRate, steps{
			calls(3, errDown), add(16 * time.Second * 1000), holds(0, 0), is(closed), calls(3, errDown), holds(3, 3), is(closed)}},
		{"belongs to one epoch", byRate, steps{
			calls(3, errDown), reset, holds(0, 0), calls(3, errDown), holds(3, 3), is(closed), call(errDown), is(open),
			holds(0, 0), add(time.Minute), call(nil), holds(0, 0), is(closed), calls(3, errDown), is(closed)}},
		{"takes no call of an earlier epoch", byRate, steps{begin("a"), reset, end("a", errDown), holds(0, 0), is(closed)}},
		{"another length begins empty", byRate, steps{
			calls(3, errDown), set(func(p *toolcircuit.Policy) { byRate(p); p.Window = time.Minute }), holds(0, 0), is(closed),
			call(errDown), add(59 * time.Second), holds(1, 1), is(closed)}},
		{"another rate keeps it", byRate, steps{
			call(nil), calls(2, errDown), set(func(p *toolcircuit.Policy) { byRate(p); p.FailureRate = 0.1 }), holds(2, 3),
			is(closed), call(errDown), is(open)}},
		{"begins when the rate is switched on, and ends when it is switched off", nil, steps{
			calls(2, nil), set(byRate), holds(0, 0), call(nil), holds(0, 1), is(closed),
			set(nil), holds(0, 0), set(byRate), holds(0, 0), is(closed)}},
		{"switched on while open it begins with the recovery", nil, steps{
			trip, set(byRate), holds(0, 0), is(open), add(time.Minute), call(nil), call(errDown), holds(1, 1), is(closed)}},
		{"reading changes nothing", byRate, steps{
			calls(3, errDown), add(20 * time.Second), holds(0, 0), add(-10 * time.Second), holds(3, 3), is(closed)}},
		{"a clock before its beginning counts as usual", byRate, steps{
			add(-time.Hour), calls(3, errDown), holds(3, 3), add(15 * time.Second), holds(3, 3), is(closed),
			add(time.Second), holds(0, 0), is(closed)}},
		{"a slot before its beginning is one of its own", byRate, steps{
			add(-time.Second / 2), call(errDown), add(15 * time.Second), holds(1, 1), add(time.Second / 2), holds(0, 0), is(closed)}},
		{"calls from what is now the future are not within it", byRate, steps{
			calls(3, errDown), add(-10 * time.Second), holds(0, 0), is(closed),
			call(nil), add(10 * time.Second), holds(3, 4), is(closed)}},
	})
}

// TestWindowLosesNothing has many goroutines count at once.
func TestWindowLosesNothing(t *testing.T) {
	o := policy(byRate)
	o.Policy.FailureRate, o.Policy.Window = 1, time.Hour
	r := newQuietRig(t, o)
	call(nil)(r) // so that the rate is never reached
	together(32, func(i int) {
		var err error
		if i%4 == 0 {
			err = errDown
		}
		for range 500 {
			try(r.ToolCircuit, err)
		}
	})
	holds(8*500, 32*500+1)(r)
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
		r := run(t, rate(test.rate, test.healthy+test.bad), calls(test.healthy, nil), calls(test.bad-1, errDown))
		require.Equal(t, closed, r.State(), "%+v", test)
		call(errDown)(r)
		require.Equal(t, test.want, r.State(), "%+v", test)
	}
}
