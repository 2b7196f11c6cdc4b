package toolcircuit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

func TestStateTable(t *testing.T) {
	play(t, []script{
		{"closed: a call runs", nil, []step{
			{call(nil), closed},
			{seq(0), closed},
		}},
		{"closed: healthy ends the streak", nil, []step{
			{calls(2, errDown), closed},
			{streak(2), closed},
			{call(nil), closed},
			{streak(0), closed},
			{calls(2, errDown), closed},
		}},
		{"closed: a fault at the threshold opens", nil, []step{
			{calls(2, errDown), closed},
			{call(errDown), open},
			{seq(1), open},
		}},
		{"closed: ignored is nothing", nil, []step{
			{calls(2, errDown), closed},
			{call(errInvalid), closed},
			{streak(2), closed},
			{call(errDown), open},
		}},
		{"closed: pause opens", nil, []step{
			{call(wait(5 * time.Second)), open},
			{refused(5 * time.Second), open},
		}},
		{"open: refused while the cooldown runs", nil, []step{
			{trip, open},
			{refused(time.Minute), open},
			{add(time.Minute - 1), open},
			{refused(1), open},
		}},
		{"open: refusals move nothing", nil, []step{
			{trip, open},
			{add(59 * time.Second), open},
			{all(refused(time.Second), refused(time.Second)), open},
			{add(time.Second), halfOpen},
		}},
		{"open: reading takes nothing", nil, []step{
			{cooled, halfOpen},
			{func(r *rig) {
				before := r.Snapshot()
				for range 5 { // as lists of tools and scrapes of metrics do
					require.True(r, r.Ready())
					require.NoError(r, r.Wait(r.T.Context()))
					require.Equal(r, before, r.Snapshot())
				}
				require.Len(r, r.events, 1)
			}, halfOpen},
			{all(seq(1), begin("probe")), halfOpen},
			{seq(2), halfOpen},
		}},
		{"half-open: refused while the lease runs", nil, []step{
			{probing, halfOpen},
			{refused(time.Minute), halfOpen},
			{all(add(time.Minute-1), refused(1)), halfOpen},
			{snapshot(func(is *require.Assertions, s toolcircuit.Snapshot) { is.Equal(time.Unix(120, 0), s.RetryAt) }), halfOpen},
		}},
		{"half-open: healthy closes", nil, []step{
			{all(cooled, call(nil)), closed},
			{all(seq(3), openings(1)), closed},
		}},
		{"half-open: healthy frees the slot until enough are", func(p *toolcircuit.Policy) { p.ProbeSuccesses = 3 }, []step{
			{all(cooled, call(nil)), halfOpen},
			{call(nil), halfOpen},
			{call(nil), closed},
			{seq(3), closed},
		}},
		{"half-open: fault reopens", nil, []step{
			{all(cooled, call(errDown)), open},
			{all(seq(3), openings(2), refused(2*time.Minute)), open},
		}},
		{"half-open: successes before a fault are forgotten", func(p *toolcircuit.Policy) { p.ProbeSuccesses = 2 }, []step{
			{all(cooled, call(nil)), halfOpen},
			{call(errDown), open},
			{all(add(2*time.Minute), call(nil)), halfOpen},
			{call(nil), closed},
		}},
		{"half-open: pause reopens", nil, []step{
			{all(cooled, call(wait(7*time.Second))), open},
			{all(seq(3), openings(1), refused(7*time.Second)), open},
		}},
		{"half-open: ignored frees the slot", nil, []step{
			{probing, halfOpen},
			{end("probe", errInvalid), halfOpen},
			{all(seq(2), call(nil)), closed},
		}},
		{"half-open: ignored keeps the successes", func(p *toolcircuit.Policy) { p.ProbeSuccesses = 2 }, []step{
			{all(cooled, call(nil), call(errInvalid)), halfOpen},
			{call(nil), closed},
		}},
		{"half-open: a released slot is free", nil, []step{
			{probing, halfOpen},
			{all(release("probe"), call(nil)), closed},
		}},
		{"half-open: past the lease the next caller is a probe, too", nil, []step{
			{probing, halfOpen},
			{add(time.Minute), halfOpen},
			{begin("second"), halfOpen},
			{all(seq(2), refused(time.Minute)), halfOpen},
			{all(add(time.Minute), begin("third"), add(time.Minute), begin("fourth"), refused(time.Minute)), halfOpen},
			{end("fourth", nil), closed},
		}},
	})
}

func TestEpochs(t *testing.T) {
	early := begin("early")
	play(t, []script{
		{"a success from before the opening", nil, []step{
			{all(early, trip), open},
			{end("early", nil), open},
			{all(refused(time.Minute), stale(1)), open},
		}},
		{"a success from before the opening, while the probe runs", nil, []step{
			{all(early, probing), halfOpen},
			{end("early", nil), halfOpen},
			{refused(time.Minute), halfOpen},
		}},
		{"a failure from before the opening, while the probe runs", nil, []step{
			{all(early, probing), halfOpen},
			{end("early", asked(time.Hour)), halfOpen},
			{end("probe", nil), closed},
		}},
		{"a failure from before the opening, after the recovery", func(p *toolcircuit.Policy) { p.FailureThreshold = 1 }, []step{
			{all(early, call(errDown), add(time.Minute), call(nil)), closed},
			{end("early", errDown), closed},
			{all(streak(0), stale(1)), closed},
		}},
		{"a probe from before the reopening", nil, []step{
			{all(probing, add(time.Minute), begin("second"), end("second", errDown)), open},
			{end("probe", nil), open},
			{refused(2 * time.Minute), open},
		}},
		{"a probe from before the reopening, while the next one runs", nil, []step{
			{all(probing, add(time.Minute), call(errDown), add(2*time.Minute), begin("own")), halfOpen},
			{all(end("probe", nil), refused(time.Minute)), halfOpen},
			{end("own", nil), closed},
		}},
		{"anything from before the opening, when a probe is due", nil, []step{
			{all(early, begin("bad"), cooled, end("early", nil), end("bad", errDown)), halfOpen},
			{all(stale(2), func(r *rig) { require.True(r, r.Ready()) }, call(nil)), closed},
		}},
		{"no late outcome frees the slot of another", nil, []step{
			{all(begin("released", "canceled", "invalid"), probing), halfOpen},
			{all(release("released"), end("canceled", context.Canceled), end("invalid", errInvalid), refused(time.Minute)), halfOpen},
			{all(stale(2), end("probe", nil)), closed},
		}},
		{"a failure from before a reset", nil, []step{
			{all(calls(2, errDown), early, reset), closed},
			{all(end("early", errDown), streak(0)), closed},
		}},
	})
}

func TestLateFailureMovesReopeningOnlyLater(t *testing.T) {
	late := all(begin("late"), trip, add(10*time.Second))
	play(t, []script{
		{"without a wait of its own", nil, []step{
			{all(late, end("late", errDown)), open},
			{refused(50 * time.Second), open},
		}},
		{"nor do many, one after the other", nil, []step{
			{all(begin("1", "2", "3", "4"), late), open},
			{all(end("1", errDown), refused(50*time.Second), add(20*time.Second), end("2", errDown), refused(30*time.Second)), open},
			{all(end("3", nil), end("4", errInvalid), add(30*time.Second-1), refused(1), add(1)), halfOpen},
			{all(openings(1), func(r *rig) { require.Len(r, r.events, 1) }), halfOpen},
		}},
		{"its longer wait counts from now", nil, []step{
			{all(late, end("late", asked(2*time.Minute))), open},
			{refused(2 * time.Minute), open},
		}},
		{"its longer wait has the same cap", func(p *toolcircuit.Policy) { p.MaxRetryAfter = 90 * time.Second }, []step{
			{all(late, end("late", wait(time.Hour))), open},
			{refused(90 * time.Second), open},
		}},
		{"its shorter wait", nil, []step{
			{all(late, end("late", asked(time.Second))), open},
			{refused(50 * time.Second), open},
		}},
		{"after a short wait that was asked for, the curve", nil, []step{
			{all(begin("late"), calls(2, errDown), call(asked(20*time.Second)), refused(20*time.Second)), open},
			{all(add(10*time.Second), end("late", errDown)), open},
			{refused(50 * time.Second), open},
		}},
		{"when the cooldown is over already", nil, []step{
			{all(begin("late"), cooled), halfOpen},
			{end("late", errDown), halfOpen},
			{end("late", asked(time.Minute)), halfOpen}, // settled before
		}},
		{"when the cooldown is over and it asks for more", nil, []step{
			{all(begin("late"), cooled), halfOpen},
			{end("late", asked(time.Minute)), open},
			{refused(time.Minute), open},
		}},
		{"of an epoch before the last", nil, []step{
			{all(begin("late"), cooled, call(errDown)), open},
			{end("late", asked(10*time.Minute)), open},
			{refused(2 * time.Minute), open},
		}},
		{"openings stay", nil, []step{
			{all(late, end("late", asked(2*time.Minute)), openings(1), stale(1)), open},
		}},
	})
}

func TestProbePastItsLeaseKeepsItsVote(t *testing.T) {
	lost := all(probing, add(time.Minute), begin("second"))
	play(t, []script{
		{"its success closes", nil, []step{
			{all(lost, end("probe", nil)), closed},
			{all(end("second", errDown), streak(0)), closed},
		}},
		{"its success is one of several", func(p *toolcircuit.Policy) { p.ProbeSuccesses = 2 }, []step{
			{all(lost, end("probe", nil)), halfOpen},
			{refused(time.Minute), halfOpen}, // the slot is the second's
			{end("second", nil), closed},
		}},
		{"its fault reopens", nil, []step{
			{all(lost, end("probe", errDown)), open},
		}},
		{"ignored it frees nothing", nil, []step{
			{all(lost, end("probe", errInvalid)), halfOpen},
			{refused(time.Minute), halfOpen},
		}},
		{"released it frees nothing", nil, []step{
			{all(lost, release("probe")), halfOpen},
			{refused(time.Minute), halfOpen},
		}},
		{"of several, the first that fails reopens, and the others change nothing", func(p *toolcircuit.Policy) { p.ProbeSuccesses = 3 }, []step{
			{all(lost, add(time.Minute), calls(2, nil)), halfOpen},
			{call(errDown), open},
			{all(end("probe", nil), end("second", nil), stale(2), refused(2*time.Minute)), open},
		}},
		{"with no other probe it still closes", nil, []step{
			{all(probing, add(time.Hour), end("probe", nil)), closed},
		}},
	})
}

func TestAskedWait(t *testing.T) {
	play(t, []script{
		{"replaces a longer curve", nil, []step{
			{all(calls(2, errDown), call(asked(time.Second))), open},
			{refused(time.Second), open},
		}},
		{"replaces a shorter curve", nil, []step{
			{all(calls(2, errDown), call(asked(5*time.Minute))), open},
			{refused(5 * time.Minute), open},
		}},
		{"for that opening only", nil, []step{
			{all(calls(2, errDown), call(asked(time.Second)), add(time.Second), call(errDown)), open},
			{refused(2 * time.Minute), open},
		}},
		{"at least a millisecond", nil, []step{
			{call(wait(1)), open},
			{refused(time.Millisecond), open},
		}},
		{"at most MaxRetryAfter from when it was asked", func(p *toolcircuit.Policy) { p.MaxRetryAfter = 5 * time.Minute }, []step{
			{all(call(asked(time.Hour)), add(2*time.Minute), calls(2, errDown)), open},
			{refused(3 * time.Minute), open},
		}},
		{"at most MaxRetryAfter from now, if the clock has stepped back", nil, []step{
			{all(call(asked(time.Hour)), add(-time.Hour), calls(2, errDown)), open},
			{refused(10 * time.Minute), open},
		}},
		{"at most MaxRetryAfter", func(p *toolcircuit.Policy) { p.MaxRetryAfter = 5 * time.Second }, []step{
			{call(wait(math.MaxInt64)), open},
			{refused(5 * time.Second), open},
		}},
		{"without jitter", func(p *toolcircuit.Policy) { p.Jitter = 1 }, []step{
			{call(wait(time.Second)), open},
			{refused(time.Second), open},
		}},
		{"never ends before an earlier one of the streak", nil, []step{
			{all(call(asked(5*time.Minute)), add(time.Second), call(errDown)), closed},
			{call(asked(10 * time.Second)), open},
			{refused(5*time.Minute - time.Second), open},
		}},
		{"nor does the curve", nil, []step{
			{all(call(asked(5*time.Minute)), calls(2, errDown)), open},
			{refused(5 * time.Minute), open},
		}},
		{"an earlier one does not shorten the curve", nil, []step{
			{all(call(asked(time.Second)), calls(2, errDown)), open},
			{refused(time.Minute), open},
		}},
		{"a healthy call ends the streak and what it asked", nil, []step{
			{all(call(asked(5*time.Minute)), call(nil), trip), open},
			{refused(time.Minute), open},
		}},
	})
}

func TestPause(t *testing.T) {
	play(t, []script{
		{"is no opening for the curve", nil, []step{
			{all(call(wait(time.Second)), openings(0), add(time.Second)), halfOpen},
			{all(call(wait(time.Second)), openings(0), add(time.Second)), halfOpen},
			{all(call(errDown), openings(1), refused(time.Minute)), open},
		}},
		{"the first of a batch opens, the others move nothing", nil, []step{
			{all(begin("1", "2", "3", "4"), end("1", nil)), closed},
			{end("2", fmt.Errorf("mcp: %w", toolcircuit.CheckResponse(&http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"7"}}}))), open},
			{all(end("3", wait(7*time.Second)), end("4", nil), refused(7*time.Second), add(7*time.Second), call(nil)), closed},
		}},
		{"without a wait is ignored", nil, []step{
			{call(toolcircuit.RetryAfter(errors.New("later"), 0)), closed},
			{streak(0), closed},
		}},
		{"never ends before what the streak asked for", nil, []step{
			{all(call(asked(time.Minute)), call(wait(time.Second))), open},
			{refused(time.Minute), open},
		}},
	})

	classify := func(context.Context, toolcircuit.Outcome) toolcircuit.Verdict {
		return toolcircuit.Verdict{Effect: toolcircuit.EffectPause, Kind: toolcircuit.KindRateLimited}
	}
	run(t, toolcircuit.Options{Classify: classify}, []step{
		{calls(10, errors.New("later")), closed},
	})
}

// fails is a cooldown that passes and a probe that fails, after which calls are refused for
// that long.
func fails(cooldown, next time.Duration) func(*rig) {
	return all(add(cooldown), call(errDown), refused(next))
}

func TestCurve(t *testing.T) {
	play(t, []script{
		{"doubles up to MaxCooldown", nil, []step{
			{all(trip, refused(time.Minute)), open},
			{fails(time.Minute, 2*time.Minute), open},
			{fails(2*time.Minute, 4*time.Minute), open},
			{fails(4*time.Minute, 8*time.Minute), open},
			{fails(8*time.Minute, 10*time.Minute), open},
			{fails(10*time.Minute, 10*time.Minute), open},
		}},
		{"is flat with a Multiplier of 1", func(p *toolcircuit.Policy) { p.Multiplier = 1 }, []step{
			{trip, open},
			{fails(time.Minute, time.Minute), open},
			{fails(time.Minute, time.Minute), open},
		}},
		{"saturates", func(p *toolcircuit.Policy) { p.Multiplier = math.MaxFloat64 }, []step{
			{trip, open},
			{fails(time.Minute, 10*time.Minute), open},
			{fails(10*time.Minute, 10*time.Minute), open}, // the power is infinite
		}},
		{"saturates at the end of time.Duration", func(p *toolcircuit.Policy) { p.MaxCooldown = math.MaxInt64; p.Multiplier = 1e300 }, []step{
			{trip, open},
			{fails(time.Minute, math.MaxInt64), open},
		}},
	})

	t.Run("three hours of outage are 21 probes, and two events each", func(t *testing.T) {
		r := run(t, policy(func(p *toolcircuit.Policy) { p.Cooldown = 30 * time.Second }), []step{{trip, open}})
		for range 3 * 60 * 2 {
			add(30 * time.Second)(r)
			try(r.ToolCircuit, errDown)
		}
		require.Len(t, r.events, 1+2*21, "after 30s, 1m, 2m, 4m, 8m, and then every ten minutes")
	})
	t.Run("stays saturated after a thousand openings", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := run(t, policy(nil), []step{{trip, open}})
			for range 1100 { // 2^1024 is no float64
				all(add(10*time.Minute), call(errDown))(r)
			}
			refused(10 * time.Minute)(r)
		})
	})
}

func TestFading(t *testing.T) {
	const minute = time.Minute
	fades := func(in time.Duration, left int) func(*rig) { // from one opening more
		return all(add(in-1), openings(left+1), add(1), openings(left))
	}
	flat := func(p *toolcircuit.Policy) { p.Multiplier = 1 }
	play(t, []script{
		{"openings outlive a recovery", nil, []step{
			{all(outage(1), openings(1), add(minute-1)), closed},
			{all(trip, openings(2), refused(2*minute)), open},
		}},
		{"while closed the latest goes first, each after the wait of the curve", nil, []step{
			{all(outage(3), fades(4*minute, 2), fades(2*minute, 1), fades(minute, 0)), closed},
			{all(trip, openings(1), refused(minute)), open},
		}},
		{"also where nobody looks", nil, []step{
			{all(outage(3), add(6*minute+59*time.Second), openings(1)), closed},
			{all(reset, outage(3), add(7*minute), openings(0)), closed},
			{all(reset, outage(3), add(24*time.Hour), openings(0)), closed},
		}},
		{"at the cap", nil, []step{ // 1, 2, 4, 8, 10, 10, 10
			{all(outage(7), fades(10*minute, 6), fades(10*minute, 5), fades(10*minute, 4), fades(8*minute, 3)), closed},
			{all(reset, outage(7), add(37*minute), openings(4), fades(minute, 3)), closed},
		}},
		{"under a fixed cooldown", flat, []step{
			{all(outage(5), fades(minute, 4), add(2*minute), openings(2), fades(minute, 1), fades(minute, 0)), closed},
		}},
		{"an opening makes those that are left one more", nil, []step{
			{all(outage(3), add(5*minute), trip, openings(3), refused(4*minute)), open},
		}},
		{"each recovery begins the fade anew", nil, []step{
			{all(outage(2), add(2*minute-1), trip, openings(3), untilDue, call(nil), fades(4*minute, 2)), closed},
		}},
		{"not while open or half-open", nil, []step{
			{all(trip, add(3*time.Hour), openings(1), begin("probe"), add(3*time.Hour), openings(1)), halfOpen},
			{all(end("probe", errDown), openings(2), refused(2*minute)), open},
		}},
		{"not by an asked wait, short or long", func(p *toolcircuit.Policy) { p.FailureThreshold = 1 }, []step{
			{all(call(asked(time.Second)), untilDue, call(nil), fades(minute, 0)), closed},
			{all(call(asked(9*minute)), untilDue, call(nil), fades(minute, 0)), closed},
		}},
		{"not by jitter", func(p *toolcircuit.Policy) { p.Jitter = 1 }, []step{
			{all(outage(2), fades(2*minute, 1), fades(minute, 0)), closed},
		}},
		{"a pause adds none and takes none", nil, []step{
			{all(outage(2), call(wait(time.Second)), openings(2), untilDue, call(nil), fades(2*minute, 1)), closed},
			{all(call(wait(time.Hour)), openings(1), untilDue, call(nil), fades(minute, 0)), closed},
			{all(call(wait(time.Hour)), openings(0)), open},
		}},
		{"a pause finds what is left", nil, []step{
			{all(outage(3), add(5*minute), call(wait(time.Second)), openings(2)), open},
		}},
		{"an override makes no difference", nil, []step{
			{all(outage(2), override(toolcircuit.OverrideOpen), fades(2*minute, 1), override(toolcircuit.OverrideClosed), fades(minute, 0)), closed},
		}},
		{"a clock that steps back brings them back", nil, []step{
			{all(outage(2), add(2*minute), openings(1), add(-time.Hour), openings(2), add(time.Hour), openings(1)), closed},
		}},
		{"a reset forgets them at once", nil, []step{
			{all(outage(3), reset, openings(0)), closed},
		}},
		{"SetPolicy keeps what has faded and begins the fade anew", nil, []step{
			{all(outage(3), add(5*minute), set(func(p *toolcircuit.Policy) { p.Cooldown = 10 * time.Minute }), openings(2)), closed},
			{all(set(nil), openings(2), add(minute), set(nil), fades(2*minute, 1), fades(minute, 0)), closed},
		}},
		{"SetPolicy leaves Since", nil, []step{
			{all(outage(1), func(r *rig) {
				before := r.Snapshot().Since
				all(add(time.Second), set(flat))(r)
				require.Equal(r, before, r.Snapshot().Since)
			}), closed},
		}},
		{"an event has those of its moment", nil, []step{
			{all(outage(3), add(4*minute), override(toolcircuit.OverrideOpen)), closed},
			{func(r *rig) { require.Equal(r, 2, last(r).Openings) }, closed},
		}},
	})
}

// An outage under the default policy is forgotten in the time from its first opening to the
// recovery.
func TestFadingTakesAsLongAsTheOutage(t *testing.T) {
	for _, tt := range []struct {
		down time.Duration // for so long probes fail
		took time.Duration // to the recovery
	}{
		{0, 10 * time.Second},
		{2 * time.Minute, 2*time.Minute + 31*time.Second},
		{30 * time.Minute, 33 * time.Minute},
		{3 * time.Hour, 3*time.Hour + 3*time.Minute},
	} {
		r := newRig(t, toolcircuit.Options{})
		start := r.clock.Now()
		for calls(5, errDown)(r); ; call(errDown)(r) {
			if untilDue(r); r.clock.Now().Sub(start) >= tt.down {
				break
			}
		}
		call(nil)(r)
		took := r.clock.Now().Sub(start)
		require.InDelta(t, tt.took, took, float64(time.Minute))
		all(add(took-1), openings(1), add(1), openings(0))(r)
	}
}

// N11: unrelated outages of two minutes, five minutes apart, inherited waits of four to eight
// minutes. Each is an outage of its own.
func TestUnrelatedOutages(t *testing.T) {
	r := newRig(t, toolcircuit.Options{})
	for range 10 {
		calls(5, errDown)(r)
		back := r.clock.Now().Add(2 * time.Minute)
		for all(openings(1), refused(10*time.Second), untilDue)(r); r.clock.Now().Before(back); untilDue(r) {
			call(errDown)(r)
		}
		require.Less(t, r.clock.Now().Sub(back), 31*time.Second)
		all(call(nil), add(5*time.Minute))(r)
	}
}

func TestJitter(t *testing.T) {
	const cooldown, most = time.Minute, 90 * time.Second
	waits := func(seed uint64, dependency string, jitter float64) (waits []time.Duration) {
		r := newRig(t, toolcircuit.Options{Seed: seed, Policy: toolcircuit.Policy{
			FailureThreshold: 1, Cooldown: cooldown, Multiplier: 2, MaxCooldown: most, Jitter: jitter,
		}})
		r.ToolCircuit = r.Twin(dependency)
		for range 4 {
			call(errDown)(r)
			at := r.Snapshot().RetryAt
			waits = append(waits, at.Sub(r.clock.Now()))
			r.clock.Set(at)
		}
		return waits
	}
	var low, high int
	for _, jitter := range []float64{0.1, 0.5, 1} {
		for seed := range uint64(50) {
			for n, wait := range waits(seed+1, "search-api", jitter) {
				least := max(cooldown, min(cooldown<<n, time.Duration(float64(most)/(1+jitter))))
				require.GreaterOrEqual(t, wait, least)
				limit := min(most, time.Duration(float64(least)*(1+jitter))+1)
				require.LessOrEqual(t, wait, limit)
				if quarter := (limit - least) / 4; wait < least+quarter {
					low++
				} else if wait > limit-quarter {
					high++
				}
			}
		}
	}
	require.Greater(t, low, 600/8, "spread over the whole range")
	require.Greater(t, high, 600/8)
	first := waits(1, "search-api", 0.5)
	require.Equal(t, first, waits(1, "search-api", 0.5), "nothing else plays a part")
	for n, other := range waits(2, "search-api", 0.5) {
		require.NotEqual(t, first[n], other, "the seed plays a part, also at the cap")
	}
	for n, other := range waits(1, "mail-api", 0.5) {
		require.NotEqual(t, first[n], other, "the dependency plays a part, also at the cap")
	}
	require.NotEqual(t, first[2], first[3], "the epoch plays a part")
}

func TestOverride(t *testing.T) {
	manual := func(r *rig) {
		r.Helper()
		require.False(r, r.Ready())
		_, err := r.Allow(context.Background())
		var e *toolcircuit.OpenError
		require.ErrorAs(r, err, &e)
		require.Equal(r, toolcircuit.ReasonManualOpen, e.Reason)
		require.Equal(r, open, e.State)
		require.Zero(r, e.RetryAt)
		require.Zero(r, e.RetryAfter())
		require.Zero(r, r.calls[len(r.calls)-1].RetryAt)
	}
	const (
		none     = toolcircuit.OverrideNone
		shut     = toolcircuit.OverrideOpen
		letAllIn = toolcircuit.OverrideClosed
	)
	play(t, []script{
		{"open refuses all", nil, []step{
			{all(override(shut), manual, seq(0)), closed},
			{all(override(none), call(nil)), closed},
		}},
		{"open refuses all past every deadline", nil, []step{
			{all(trip, override(shut), add(24*time.Hour), manual), halfOpen},
			{all(override(letAllIn), calls(9, errDown), override(none), begin("probe"), refused(time.Minute)), halfOpen},
			{end("probe", nil), closed},
		}},
		{"open refuses the probe", nil, []step{
			{all(cooled, override(shut), manual), halfOpen},
			{all(override(none), call(nil)), closed},
		}},
		{"beneath open the cooldown runs on", nil, []step{
			{all(trip, override(shut), add(50*time.Second), manual), open},
			{all(override(none), refused(10*time.Second)), open},
		}},
		{"closed runs all and records nothing", nil, []step{
			{all(trip, override(letAllIn), call(nil), calls(9, errDown), call(wait(time.Hour))), open},
			{all(override(none), refused(time.Minute)), open},
		}},
		{"closed records nothing of a closed circuit, either", func(p *toolcircuit.Policy) { p.FailureRate = 0.1; p.MinCalls = 1 }, []step{
			{all(override(letAllIn), calls(9, errDown), call(wait(time.Hour)), streak(0)), closed},
			{snapshot(func(is *require.Assertions, s toolcircuit.Snapshot) { is.Zero(s.Window) }), closed},
			{override(none), closed},
		}},
		{"closed takes no slot", nil, []step{
			{all(cooled, override(letAllIn), begin("a", "b"), seq(1)), halfOpen},
			{all(override(none), end("a", nil), end("b", errDown)), halfOpen},
			{call(nil), closed},
		}},
		{"what came in before is recorded", nil, []step{
			{all(begin("a", "b", "c"), override(letAllIn), end("a", errDown)), closed},
			{all(override(shut), end("b", errDown), streak(2)), closed},
			{all(end("c", errDown), seq(1)), open},
			{all(override(none), refused(time.Minute)), open},
		}},
		{"a probe from before closes beneath it", nil, []step{
			{all(probing, override(shut), end("probe", nil), manual), closed},
			{all(override(none), call(nil)), closed},
		}},
		{"lifting what is not there changes nothing", nil, []step{
			{override(none), closed},
			{all(override(shut), override(shut)), closed},
			{func(r *rig) { require.Len(r, r.events, 1) }, closed},
		}},
	})
}

func TestReset(t *testing.T) {
	play(t, []script{
		{"closes an open circuit", nil, []step{
			{all(trip, reset, seq(2), openings(0)), closed},
			{all(trip, refused(time.Minute)), open},
		}},
		{"closes under a running probe", nil, []step{
			{all(probing, reset, end("probe", errDown), streak(0)), closed},
		}},
		{"of a closed circuit is a new epoch", nil, []step{
			{all(calls(2, errDown), begin("early"), add(time.Second), reset, seq(1), streak(0)), closed},
			{all(end("early", wait(time.Minute)), stale(1)), closed},
			{calls(2, errDown), closed},
			{snapshot(func(is *require.Assertions, s toolcircuit.Snapshot) {
				is.Equal(toolcircuit.RuleReset, s.Rule)
				is.Equal(time.Unix(1, 0), s.Since)
			}), closed},
		}},
		{"from another tool's view", nil, []step{
			{all(trip, as(toolcircuit.Tool{Name: "sign_in"}, reset), call(nil)), closed},
		}},
		{"what is late afterwards does not count", nil, []step{
			{all(probing, reset, trip, end("probe", wait(time.Hour)), refused(time.Minute)), open},
		}},
		{"forgets what the dependency asked for", nil, []step{
			{all(calls(2, asked(time.Hour)), reset, trip, refused(time.Minute)), open},
		}},
		{"keeps the override", nil, []step{
			{all(override(toolcircuit.OverrideOpen), reset), closed},
			{func(r *rig) { require.False(r, r.Ready()) }, closed},
		}},
	})
}

func TestSetPolicy(t *testing.T) {
	play(t, []script{
		{"a lower threshold opens at the next counted failure", nil, []step{
			{all(calls(2, errDown), set(func(p *toolcircuit.Policy) { p.FailureThreshold = 1 })), closed},
			{all(seq(0), call(errInvalid)), closed},
			{call(errDown), open},
		}},
		{"a shorter cooldown ends an open circuit's", nil, []step{
			{all(trip, add(10*time.Second), set(func(p *toolcircuit.Policy) { p.Cooldown = 15 * time.Second })), open},
			{refused(5 * time.Second), open},
			{set(func(p *toolcircuit.Policy) { p.Cooldown = 10 * time.Second }), halfOpen},
			{all(seq(1), call(nil)), closed},
		}},
		{"a longer cooldown holds for an open circuit", nil, []step{
			{all(trip, add(59*time.Second), set(func(p *toolcircuit.Policy) { p.Cooldown = time.Hour })), open},
			{refused(time.Hour - 59*time.Second), open},
		}},
		{"leaves what the dependency asked for", nil, []step{
			{all(call(wait(5*time.Minute)), set(func(p *toolcircuit.Policy) { p.Cooldown = time.Second })), open},
			{refused(5 * time.Minute), open},
		}},
		{"caps what the dependency asked for", nil, []step{
			{all(call(wait(5*time.Minute)), add(time.Second)), open},
			{set(func(p *toolcircuit.Policy) { p.MaxRetryAfter = 2 * time.Minute }), open},
			{refused(2*time.Minute - time.Second), open},
			{all(set(nil), refused(5*time.Minute-time.Second)), open},
		}},
		{"caps what a late failure asked for, from when it did", nil, []step{
			{all(begin("late"), call(wait(5*time.Minute)), add(4*time.Minute), end("late", wait(8*time.Minute))), open},
			{refused(8 * time.Minute), open},
			{set(func(p *toolcircuit.Policy) { p.MaxRetryAfter = 7 * time.Minute }), open},
			{refused(7 * time.Minute), open},
		}},
		{"the turn of tools with SideEffects follows, too", func(p *toolcircuit.Policy) { p.Cooldown = 1000 * time.Hour }, []step{
			{all(trip, add(1000*time.Hour), begin("probe"), release("probe"), set(nil)), halfOpen},
			{as(toolcircuit.Tool{SideEffects: true}, refused(time.Minute)), halfOpen},
		}},
		{"a running lease follows ProbeTimeout", nil, []step{
			{all(probing, add(10*time.Second), set(func(p *toolcircuit.Policy) { p.ProbeTimeout = 15 * time.Second })), halfOpen},
			{refused(5 * time.Second), halfOpen},
			{set(func(p *toolcircuit.Policy) { p.ProbeTimeout = 10 * time.Second }), halfOpen},
			{all(begin("second"), seq(2)), halfOpen},
		}},
		{"fewer ProbeSuccesses close at the next success", func(p *toolcircuit.Policy) { p.ProbeSuccesses = 9 }, []step{
			{all(cooled, calls(2, nil), set(func(p *toolcircuit.Policy) { p.ProbeSuccesses = 2 })), halfOpen},
			{call(nil), closed},
		}},
		{"more ProbeSuccesses keep it half-open", nil, []step{
			{all(probing, set(func(p *toolcircuit.Policy) { p.ProbeSuccesses = 2 }), end("probe", nil)), halfOpen},
			{call(nil), closed},
		}},
		{"a wait asked for before the opening keeps to the policy in force", func(p *toolcircuit.Policy) { p.MaxRetryAfter = time.Hour }, []step{
			{all(calls(2, asked(time.Hour)), set(func(p *toolcircuit.Policy) { p.MaxRetryAfter = 2 * time.Minute }), call(errDown)), open},
			{all(refused(2*time.Minute), set(func(p *toolcircuit.Policy) { p.MaxRetryAfter = 2 * time.Minute }), refused(2*time.Minute)), open},
		}},
		{"a call judges itself by the policy that admitted it, also if it sets another", func(p *toolcircuit.Policy) { p.CountUnknown = true }, []step{
			{func(r *rig) { tell(r, func(context.Context) (int, error) { set(nil)(r); return 0, errors.New("?") }) }, closed},
			{streak(1), closed},
		}},
		{"a call under way is judged by the policy that admitted it", func(p *toolcircuit.Policy) { p.CountUnknown = true }, []step{
			{all(begin("a", "b", "c"), set(nil)), closed},
			{all(end("a", errors.New("?")), end("b", errors.New("?")), streak(2)), closed},
			{end("c", errors.New("?")), open},
		}},
		{"an invalid one changes nothing", nil, []step{
			{func(r *rig) {
				before := r.Policy()
				require.EqualError(r, r.SetPolicy(toolcircuit.Policy{Jitter: 2}), "toolcircuit: Policy.Jitter: got 2, want a part from 0 to 1")
				require.Equal(r, before, r.Policy())
			}, closed},
		}},
		{"no event", nil, []step{
			{all(set(nil), func(r *rig) { require.Empty(r, r.events) }), closed},
		}},
	})
}

func TestClockStepsBack(t *testing.T) {
	sideEffects := toolcircuit.Tool{SideEffects: true}
	play(t, []script{
		{"while open", nil, []step{
			{all(trip, add(-time.Hour), refused(time.Minute)), open},
			{as(sideEffects, refused(2*time.Minute)), open},
			{all(add(time.Hour), refused(time.Minute)), open},
			{add(time.Minute), halfOpen},
		}},
		{"while the cooldown is over", nil, []step{
			{all(cooled, add(-time.Second), refused(time.Second)), open},
			{all(add(-time.Hour), refused(time.Minute)), open},
		}},
		{"while a probe runs", nil, []step{
			{all(probing, add(-time.Hour), refused(time.Minute)), halfOpen},
			{end("probe", nil), closed},
		}},
		{"while closed", nil, []step{
			{all(add(-time.Hour), calls(2, errDown)), closed},
			{call(errDown), open},
			{refused(time.Minute), open},
		}},
		{"after a recovery", nil, []step{
			{all(cooled, call(nil), add(-time.Hour), openings(1)), closed},
		}},
		{"during a call", func(p *toolcircuit.Policy) { p.CallTimeout = time.Second; p.SlowCall = time.Millisecond }, []step{
			{all(begin("a"), add(-time.Hour), end("a", nil), streak(0)), closed},
			{func(r *rig) { require.Zero(r, r.calls[0].Elapsed) }, closed},
		}},
	})
}

func TestSideEffectsProbeLast(t *testing.T) {
	writes := func(actions ...func(*rig)) func(*rig) {
		return as(toolcircuit.Tool{Name: "send_mail", SideEffects: true}, actions...)
	}
	unready := func(r *rig) { r.Helper(); require.False(r, r.Ready()) }
	ready := func(r *rig) { r.Helper(); require.True(r, r.Ready()) }
	play(t, []script{
		{"a closed circuit makes no difference", nil, []step{
			{writes(ready, call(nil)), closed},
		}},
		{"one further cooldown", nil, []step{
			{all(trip, writes(refused(2*time.Minute))), open},
			{all(add(time.Minute), ready, writes(unready, refused(time.Minute))), halfOpen},
			{all(add(time.Minute-1), writes(unready, refused(1))), halfOpen},
			{all(add(1), writes(ready, call(nil))), closed},
		}},
		{"a further cooldown of the same length", nil, []step{
			{all(cooled, call(errDown), writes(refused(4*time.Minute))), open},
			{all(add(4*time.Minute), writes(call(errDown))), open},
		}},
		{"a read goes first", nil, []step{
			{all(probing, writes(refused(time.Minute))), halfOpen},
			{all(end("probe", nil), writes(call(nil))), closed},
		}},
		{"while other probes say nothing", nil, []step{
			{all(cooled, call(errInvalid), add(time.Minute-1), call(errInvalid), writes(unready)), halfOpen},
			{all(add(1), writes(call(nil))), closed},
		}},
		{"while the slot of a read is free again", nil, []step{
			{all(probing, add(20*time.Second), release("probe"), writes(refused(40*time.Second))), halfOpen},
			{all(add(40*time.Second), writes(call(nil))), closed},
		}},
		{"no longer than a lease that lasts", func(p *toolcircuit.Policy) { p.ProbeTimeout = 5 * time.Minute }, []step{
			{all(probing, writes(refused(5*time.Minute))), halfOpen},
			{all(add(5*time.Minute), writes(call(nil))), closed},
		}},
		{"after what the dependency asked for, too", nil, []step{
			{all(call(wait(5*time.Second)), writes(refused(65*time.Second))), open},
			{all(add(5*time.Second), writes(refused(time.Minute))), halfOpen},
		}},
		{"under an override it is like any other", nil, []step{
			{all(trip, override(toolcircuit.OverrideClosed), writes(ready, call(nil))), open},
			{all(override(toolcircuit.OverrideOpen), writes(unready)), open},
		}},
	})
}

func TestCountBurstOnce(t *testing.T) {
	once := func(p *toolcircuit.Policy) { p.CountBurstOnce = true }
	batch := begin("a", "b", "c", "d")
	fail := all(end("a", errDown), end("b", errDown), end("c", errDown), end("d", errDown))
	play(t, []script{
		{"one batch is one failure", once, []step{
			{all(batch, fail, streak(1)), closed},
			{all(batch, fail, streak(2)), closed},
			{all(batch, fail), open},
		}},
		{"one after the other they all count", once, []step{
			{calls(2, errDown), closed},
			{call(errDown), open},
		}},
		{"a success in between gives no second count", once, []step{
			{all(batch, end("a", errDown), call(nil), end("b", errDown), streak(0)), closed},
		}},
		{"nor does a call that began after the first failure", once, []step{
			{all(batch, end("a", errDown), begin("e"), end("e", errDown), end("b", errDown), streak(2)), closed},
		}},
		{"nor does a reset, or a change of the policy", once, []step{
			{all(batch, end("a", errDown), reset, end("b", errDown), streak(0)), closed},
			{all(set(nil), batch, end("a", errDown), set(once), end("b", errDown), end("c", errDown), streak(1)), closed},
			{all(call(errDown), streak(2)), closed},
		}},
		{"without it a batch opens", nil, []step{
			{all(batch, fail), open},
		}},
		{"the rate counts them all", func(p *toolcircuit.Policy) { once(p); p.FailureRate = 1; p.MinCalls = 4 }, []step{
			{all(batch, fail), open},
			{snapshot(func(is *require.Assertions, s toolcircuit.Snapshot) { is.Equal(toolcircuit.RuleRate, s.Rule) }), open},
		}},
		{"a wait asked for by any of them stands", once, []step{
			{all(begin("a", "b"), end("a", errDown), end("b", asked(5*time.Minute)), calls(2, errDown)), open},
			{refused(5 * time.Minute), open},
		}},
	})
}

func TestTwin(t *testing.T) {
	r := newRig(t, policy(nil))
	all(trip, set(func(p *toolcircuit.Policy) { p.FailureThreshold = 2 }))(r)
	twin := *r
	twin.ToolCircuit = r.WithTool(toolcircuit.Tool{Name: "search"}).Twin("mail-api")
	require.Equal(t, "mail-api", twin.Dependency())
	require.Equal(t, closed, twin.State())
	require.Equal(t, r.Policy(), twin.Policy())
	require.Equal(t, closed, r.Twin("search-api").State(), "the name is no key")

	calls(2, errDown)(&twin)
	require.Equal(t, open, twin.State(), "a twin has the policy of the moment it was made")
	require.Equal(t, "mail-api", r.events[len(r.events)-1].Dependency, "a twin has the hooks")
	require.Equal(t, "search", r.calls[len(r.calls)-1].Tool, "a twin has the view")

	rated := newRig(t, policy(byRate))
	other := rated.Twin("mail-api")
	call(errDown)(rated)
	require.Zero(t, other.Snapshot().Window, "a twin has a window of its own")

	set(func(p *toolcircuit.Policy) { p.Cooldown = time.Hour })(&twin)
	refused(time.Hour)(&twin)
	refused(time.Minute)(r)
	add(time.Minute)(r)
	call(nil)(r)
	refused(time.Hour - time.Minute)(&twin)
}

// The longest waits there are overflow nothing.
func TestLongestWaits(t *testing.T) {
	longest := func(p *toolcircuit.Policy) { p.Cooldown = math.MaxInt64 }
	play(t, []script{
		{"clock steps back under the longest cooldown", longest, []step{
			{all(trip, add(-time.Second), refused(math.MaxInt64)), open},
		}},
		{"side effects under the longest cooldown", longest, []step{
			{all(trip, as(toolcircuit.Tool{SideEffects: true}, refused(math.MaxInt64))), open},
		}},
		{"jitter under the longest cooldown", func(p *toolcircuit.Policy) { longest(p); p.Jitter = 1 }, []step{
			{all(trip, refused(math.MaxInt64)), open},
			{func(r *rig) {
				require.Equal(r, int64(math.MaxInt64/1_000_000+1), refusalRead(r.T, r.ToolCircuit).RetryAfterMS)
			}, open},
		}},
		{"half-open, side effects", longest, []step{
			{all(trip, add(math.MaxInt64), begin("probe"), as(toolcircuit.Tool{SideEffects: true}, refused(math.MaxInt64))), halfOpen},
		}},
		{"two curves of the longest cooldown", func(p *toolcircuit.Policy) {
			p.Cooldown, p.MaxCooldown, p.Multiplier = math.MaxInt64-1, math.MaxInt64, 1e300
		}, []step{
			{all(trip, add(24*time.Hour), func(r *rig) { require.False(r, r.Ready()) }), open},
		}},
		{"rate window", func(p *toolcircuit.Policy) { longest(p); p.FailureRate, p.Window = 1, math.MaxInt64 }, []step{
			{all(call(nil), trip, add(24*time.Hour), refused(math.MaxInt64-24*time.Hour)), open},
		}},
		{"asked wait", func(p *toolcircuit.Policy) { p.MaxRetryAfter = math.MaxInt64 }, []step{
			{all(call(wait(math.MaxInt64)), add(time.Hour), refused(math.MaxInt64-time.Hour)), open},
		}},
		{"lease of the longest call", func(p *toolcircuit.Policy) { p.ProbeTimeout, p.CallTimeout = math.MaxInt64, math.MaxInt64 }, []step{
			{all(probing, refused(math.MaxInt64), end("probe", nil)), closed},
		}},
		{"lease", func(p *toolcircuit.Policy) { p.ProbeTimeout = math.MaxInt64 }, []step{
			{all(probing, add(-time.Second), refused(math.MaxInt64)), halfOpen},
		}},
		{"fade", longest, []step{
			{all(trip, add(math.MaxInt64), call(nil), add(math.MaxInt64-1), openings(1), add(1), openings(0)), closed},
		}},
	})
}

// The least jitter under the longest MaxCooldown takes nothing from the curve.
func TestLeastJitterOfTheLongestCooldown(t *testing.T) {
	r := newRig(t, policy(func(p *toolcircuit.Policy) {
		p.MaxCooldown, p.Multiplier, p.Jitter = math.MaxInt64, 60, 1e-17
	}))
	all(trip, untilDue, call(errDown), refused(time.Hour))(r)
}
