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
		{"closed: a call runs", nil, steps{call(nil), seq(0), is(closed)}},
		{"closed: healthy ends the streak", nil, steps{
			calls(2, errDown), streak(2), is(closed), call(nil), streak(0), is(closed), calls(2, errDown), is(closed)}},
		{"closed: a fault at the threshold opens", nil, steps{calls(2, errDown), is(closed), call(errDown), seq(1), is(open)}},
		{"closed: ignored is nothing", nil, steps{
			calls(2, errDown), is(closed), call(errInvalid), streak(2), is(closed), call(errDown), is(open)}},
		{"closed: pause opens", nil, steps{call(wait(5 * time.Second)), refused(5 * time.Second), is(open)}},
		{"open: refused while the cooldown runs", nil, steps{
			trip, refused(time.Minute), is(open), add(time.Minute - 1), refused(1), is(open)}},
		{"open: refusals move nothing", nil, steps{
			trip, is(open), add(59 * time.Second), refused(time.Second), refused(time.Second), is(open),
			add(time.Second), is(halfOpen)}},
		{"open: reading takes nothing", nil, steps{
			cooled, is(halfOpen),
			func(r *rig) {
				before := r.Snapshot()
				for range 5 { // as lists of tools and scrapes of metrics do
					require.True(r, r.Ready())
					require.NoError(r, r.Wait(r.T.Context()))
					require.Equal(r, before, r.Snapshot())
				}
				require.Len(r, r.events, 1)
			}, is(halfOpen),
			seq(1), begin("probe"),
			seq(2), is(halfOpen),
		}},
		{"half-open: refused while the lease runs", nil, steps{
			probing, refused(time.Minute), is(halfOpen),
			add(time.Minute - 1), refused(1), reads(time.Unix(120, 0), func(s snap) time.Time { return s.RetryAt }), is(halfOpen)}},
		{"half-open: healthy closes", nil, steps{cooled, call(nil), seq(3), openings(1), is(closed)}},
		{"half-open: healthy frees the slot until enough are", func(p *toolcircuit.Policy) { p.ProbeSuccesses = 3 }, steps{
			cooled, call(nil), is(halfOpen), call(nil), is(halfOpen), call(nil), seq(3), is(closed)}},
		{"half-open: fault reopens", nil, steps{cooled, call(errDown), seq(3), openings(2), refused(2 * time.Minute), is(open)}},
		{"half-open: successes before a fault are forgotten", func(p *toolcircuit.Policy) { p.ProbeSuccesses = 2 }, steps{
			cooled, call(nil), is(halfOpen), call(errDown), is(open), add(2 * time.Minute), call(nil), is(halfOpen),
			call(nil), is(closed)}},
		{"half-open: pause reopens", nil, steps{
			cooled, call(wait(7 * time.Second)), seq(3), openings(1), refused(7 * time.Second), is(open)}},
		{"half-open: ignored frees the slot", nil, steps{
			probing, is(halfOpen), end("probe", errInvalid), is(halfOpen), seq(2), call(nil), is(closed)}},
		{"half-open: ignored keeps the successes", func(p *toolcircuit.Policy) { p.ProbeSuccesses = 2 }, steps{
			cooled, call(nil), call(errInvalid), is(halfOpen), call(nil), is(closed)}},
		{"half-open: a released slot is free", nil, steps{probing, is(halfOpen), release("probe"), call(nil), is(closed)}},
		{"half-open: past the lease the next caller is a probe, too", nil, steps{
			probing, is(halfOpen), add(time.Minute), is(halfOpen), begin("second"), seq(2), refused(time.Minute), is(halfOpen),
			add(time.Minute), begin("third"), add(time.Minute), begin("fourth"), refused(time.Minute), is(halfOpen),
			end("fourth", nil), is(closed)}},
	})
}

func TestEpochs(t *testing.T) {
	early := begin("early")
	play(t, []script{
		{"a success from before the opening", nil, steps{
			early, trip, is(open), end("early", nil), refused(time.Minute), stale(1), is(open)}},
		{"a success from before the opening, while the probe runs", nil, steps{
			early, probing, is(halfOpen), end("early", nil), refused(time.Minute), is(halfOpen)}},
		{"a failure from before the opening, while the probe runs", nil, steps{
			early, probing, is(halfOpen), end("early", asked(time.Hour)), is(halfOpen), end("probe", nil), is(closed)}},
		{"a failure from before the opening, after the recovery", func(p *toolcircuit.Policy) { p.FailureThreshold = 1 }, steps{
			early, call(errDown), add(time.Minute), call(nil), is(closed), end("early", errDown), streak(0), stale(1), is(closed)}},
		{"a probe from before the reopening", nil, steps{
			probing, add(time.Minute), begin("second"), end("second", errDown), is(open),
			end("probe", nil), refused(2 * time.Minute), is(open)}},
		{"a probe from before the reopening, while the next one runs", nil, steps{
			probing, add(time.Minute), call(errDown), add(2 * time.Minute), begin("own"), is(halfOpen),
			end("probe", nil), refused(time.Minute), is(halfOpen), end("own", nil), is(closed)}},
		{"anything from before the opening, when a probe is due", nil, steps{
			early, begin("bad"), cooled, end("early", nil), end("bad", errDown), is(halfOpen),
			stale(2), ready, call(nil), is(closed)}},
		{"no late outcome frees the slot of another", nil, steps{
			begin("released", "canceled", "invalid"), probing, is(halfOpen),
			release("released"), end("canceled", context.Canceled), end("invalid", errInvalid), refused(time.Minute), is(halfOpen),
			stale(2), end("probe", nil), is(closed)}},
		{"a failure from before a reset", nil, steps{
			calls(2, errDown), early, reset, is(closed), end("early", errDown), streak(0), is(closed)}},
	})
}

func TestLateFailureMovesReopeningOnlyLater(t *testing.T) {
	late := all(begin("late"), trip, add(10*time.Second))
	play(t, []script{
		{"without a wait of its own", nil, steps{late, end("late", errDown), refused(50 * time.Second), is(open)}},
		{"nor do many, one after the other", nil, steps{
			begin("1", "2", "3", "4"), late, is(open), end("1", errDown), refused(50 * time.Second), add(20 * time.Second),
			end("2", errDown), refused(30 * time.Second), is(open),
			end("3", nil), end("4", errInvalid), add(30*time.Second - 1), refused(1), add(1), is(halfOpen),
			openings(1), heardOf(1), is(halfOpen)}},
		{"its longer wait counts from now", nil, steps{late, end("late", asked(2*time.Minute)), refused(2 * time.Minute), is(open)}},
		{"its longer wait has the same cap", func(p *toolcircuit.Policy) { p.MaxRetryAfter = 90 * time.Second }, steps{
			late, end("late", wait(time.Hour)), refused(90 * time.Second), is(open)}},
		{"its shorter wait", nil, steps{late, end("late", asked(time.Second)), refused(50 * time.Second), is(open)}},
		{"after a short wait that was asked for, the curve", nil, steps{
			begin("late"), calls(2, errDown), call(asked(20 * time.Second)), refused(20 * time.Second), is(open),
			add(10 * time.Second), end("late", errDown), refused(50 * time.Second), is(open)}},
		{"when the cooldown is over already", nil, steps{
			begin("late"), cooled, is(halfOpen),
			end("late", errDown), is(halfOpen),
			end("late", asked(time.Minute)), is(halfOpen), // settled before
		}},
		{"when the cooldown is over and it asks for more", nil, steps{
			begin("late"), cooled, is(halfOpen), end("late", asked(time.Minute)), refused(time.Minute), is(open)}},
		{"of an epoch before the last", nil, steps{
			begin("late"), cooled, call(errDown), is(open), end("late", asked(10*time.Minute)), refused(2 * time.Minute), is(open)}},
		{"openings stay", nil, steps{late, end("late", asked(2*time.Minute)), openings(1), stale(1), is(open)}},
	})
}

func TestProbePastItsLeaseKeepsItsVote(t *testing.T) {
	lost := all(probing, add(time.Minute), begin("second"))
	play(t, []script{
		{"its success closes", nil, steps{lost, end("probe", nil), is(closed), end("second", errDown), streak(0), is(closed)}},
		{"its success is one of several", func(p *toolcircuit.Policy) { p.ProbeSuccesses = 2 }, steps{
			lost, end("probe", nil),
			refused(time.Minute), is(halfOpen), // the slot is the second's
			end("second", nil), is(closed),
		}},
		{"its fault reopens", nil, steps{lost, end("probe", errDown), is(open)}},
		{"ignored it frees nothing", nil, steps{lost, end("probe", errInvalid), refused(time.Minute), is(halfOpen)}},
		{"released it frees nothing", nil, steps{lost, release("probe"), refused(time.Minute), is(halfOpen)}},
		{"of several, the first that fails reopens, and the others change nothing", func(p *toolcircuit.Policy) { p.ProbeSuccesses = 3 }, steps{
			lost, add(time.Minute), calls(2, nil), is(halfOpen), call(errDown), is(open),
			end("probe", nil), end("second", nil), stale(2), refused(2 * time.Minute), is(open)}},
		{"with no other probe it still closes", nil, steps{probing, add(time.Hour), end("probe", nil), is(closed)}},
	})
}

func TestAskedWait(t *testing.T) {
	play(t, []script{
		{"replaces a longer curve", nil, steps{calls(2, errDown), call(asked(time.Second)), refused(time.Second), is(open)}},
		{"replaces a shorter curve", nil, steps{calls(2, errDown), call(asked(5 * time.Minute)), refused(5 * time.Minute), is(open)}},
		{"for that opening only", nil, steps{
			calls(2, errDown), call(asked(time.Second)), add(time.Second), call(errDown), refused(2 * time.Minute), is(open)}},
		{"at least a millisecond", nil, steps{call(wait(1)), refused(time.Millisecond), is(open)}},
		{"at most MaxRetryAfter from when it was asked", func(p *toolcircuit.Policy) { p.MaxRetryAfter = 5 * time.Minute }, steps{
			call(asked(time.Hour)), add(2 * time.Minute), calls(2, errDown), refused(3 * time.Minute), is(open)}},
		{"at most MaxRetryAfter from now, if the clock has stepped back", nil, steps{
			call(asked(time.Hour)), add(-time.Hour), calls(2, errDown), refused(10 * time.Minute), is(open)}},
		{"at most MaxRetryAfter", func(p *toolcircuit.Policy) { p.MaxRetryAfter = 5 * time.Second }, steps{
			call(wait(math.MaxInt64)), refused(5 * time.Second), is(open)}},
		{"without jitter", func(p *toolcircuit.Policy) { p.Jitter = 1 }, steps{call(wait(time.Second)), refused(time.Second), is(open)}},
		{"never ends before an earlier one of the streak", nil, steps{
			call(asked(5 * time.Minute)), add(time.Second), call(errDown), is(closed),
			call(asked(10 * time.Second)), refused(5*time.Minute - time.Second), is(open)}},
		{"nor does the curve", nil, steps{call(asked(5 * time.Minute)), calls(2, errDown), refused(5 * time.Minute), is(open)}},
		{"an earlier one does not shorten the curve", nil, steps{
			call(asked(time.Second)), calls(2, errDown), refused(time.Minute), is(open)}},
		{"a healthy call ends the streak and what it asked", nil, steps{
			call(asked(5 * time.Minute)), call(nil), trip, refused(time.Minute), is(open)}},
	})
}

func TestPause(t *testing.T) {
	play(t, []script{
		{"is no opening for the curve", nil, steps{
			call(wait(time.Second)), openings(0), add(time.Second), is(halfOpen),
			call(wait(time.Second)), openings(0), add(time.Second), is(halfOpen),
			call(errDown), openings(1), refused(time.Minute), is(open)}},
		{"the first of a batch opens, the others move nothing", nil, steps{
			begin("1", "2", "3", "4"), end("1", nil), is(closed),
			end("2", fmt.Errorf("mcp: %w", toolcircuit.CheckResponse(&http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"7"}}}))),
			is(open),
			end("3", wait(7*time.Second)), end("4", nil), refused(7 * time.Second), add(7 * time.Second), call(nil), is(closed)}},
		{"without a wait is ignored", nil, steps{call(toolcircuit.RetryAfter(errors.New("later"), 0)), streak(0), is(closed)}},
		{"never ends before what the streak asked for", nil, steps{
			call(asked(time.Minute)), call(wait(time.Second)), refused(time.Minute), is(open)}},
	})

	run(t, toolcircuit.Options{Classify: says(paused(toolcircuit.KindRateLimited, 0))}, calls(10, errors.New("later")), is(closed))
}

// fails is a cooldown that passes and a probe that fails, after which calls are refused for
// that long.
func fails(cooldown, next time.Duration) func(*rig) {
	return all(add(cooldown), call(errDown), refused(next))
}

func TestCurve(t *testing.T) {
	play(t, []script{
		{"doubles up to MaxCooldown", nil, steps{
			trip, refused(time.Minute), is(open), fails(time.Minute, 2*time.Minute), is(open),
			fails(2*time.Minute, 4*time.Minute), is(open), fails(4*time.Minute, 8*time.Minute), is(open),
			fails(8*time.Minute, 10*time.Minute), is(open), fails(10*time.Minute, 10*time.Minute), is(open)}},
		{"is flat with a Multiplier of 1", func(p *toolcircuit.Policy) { p.Multiplier = 1 }, steps{
			trip, is(open), fails(time.Minute, time.Minute), is(open), fails(time.Minute, time.Minute), is(open)}},
		{"saturates", func(p *toolcircuit.Policy) { p.Multiplier = math.MaxFloat64 }, steps{
			trip, is(open),
			fails(time.Minute, 10*time.Minute), is(open),
			fails(10*time.Minute, 10*time.Minute), is(open), // the power is infinite
		}},
		{"saturates at the end of time.Duration", func(p *toolcircuit.Policy) { p.MaxCooldown = math.MaxInt64; p.Multiplier = 1e300 }, steps{
			trip, is(open), fails(time.Minute, math.MaxInt64), is(open)}},
	})

	t.Run("three hours of outage are 21 probes, and two events each", func(t *testing.T) {
		r := run(t, policy(func(p *toolcircuit.Policy) { p.Cooldown = 30 * time.Second }), trip, is(open))
		for range 3 * 60 * 2 {
			add(30 * time.Second)(r)
			try(r.ToolCircuit, errDown)
		}
		require.Len(t, r.events, 1+2*21, "after 30s, 1m, 2m, 4m, 8m, and then every ten minutes")
	})
	t.Run("stays saturated after a thousand openings", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := run(t, policy(nil), trip, is(open))
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
		{"openings outlive a recovery", nil, steps{
			outage(1), openings(1), add(minute - 1), is(closed), trip, openings(2), refused(2 * minute), is(open)}},
		{"while closed the latest goes first, each after the wait of the curve", nil, steps{
			outage(3), fades(4*minute, 2), fades(2*minute, 1), fades(minute, 0), is(closed),
			trip, openings(1), refused(minute), is(open)}},
		{"also where nobody looks", nil, steps{
			outage(3), add(6*minute + 59*time.Second), openings(1), is(closed),
			reset, outage(3), add(7 * minute), openings(0), is(closed),
			reset, outage(3), add(24 * time.Hour), openings(0), is(closed)}},
		{"at the cap", nil, steps{
			outage(7), fades(10*minute, 6), fades(10*minute, 5), fades(10*minute, 4), fades(8*minute, 3), is(closed), // 1, 2, 4, 8, 10, 10, 10
			reset, outage(7), add(37 * minute), openings(4), fades(minute, 3), is(closed),
		}},
		{"under a fixed cooldown", flat, steps{
			outage(5), fades(minute, 4), add(2 * minute), openings(2), fades(minute, 1), fades(minute, 0), is(closed)}},
		{"an opening makes those that are left one more", nil, steps{
			outage(3), add(5 * minute), trip, openings(3), refused(4 * minute), is(open)}},
		{"each recovery begins the fade anew", nil, steps{
			outage(2), add(2*minute - 1), trip, openings(3), untilDue, call(nil), fades(4*minute, 2), is(closed)}},
		{"not while open or half-open", nil, steps{
			trip, add(3 * time.Hour), openings(1), begin("probe"), add(3 * time.Hour), openings(1), is(halfOpen),
			end("probe", errDown), openings(2), refused(2 * minute), is(open)}},
		{"not by an asked wait, short or long", func(p *toolcircuit.Policy) { p.FailureThreshold = 1 }, steps{
			call(asked(time.Second)), untilDue, call(nil), fades(minute, 0), is(closed),
			call(asked(9 * minute)), untilDue, call(nil), fades(minute, 0), is(closed)}},
		{"not by jitter", func(p *toolcircuit.Policy) { p.Jitter = 1 }, steps{
			outage(2), fades(2*minute, 1), fades(minute, 0), is(closed)}},
		{"a pause adds none and takes none", nil, steps{
			outage(2), call(wait(time.Second)), openings(2), untilDue, call(nil), fades(2*minute, 1), is(closed),
			call(wait(time.Hour)), openings(1), untilDue, call(nil), fades(minute, 0), is(closed),
			call(wait(time.Hour)), openings(0), is(open)}},
		{"a pause finds what is left", nil, steps{outage(3), add(5 * minute), call(wait(time.Second)), openings(2), is(open)}},
		{"an override makes no difference", nil, steps{
			outage(2), override(shut), fades(2*minute, 1), override(letAllIn), fades(minute, 0), is(closed)}},
		{"a clock that steps back brings them back", nil, steps{
			outage(2), add(2 * minute), openings(1), add(-time.Hour), openings(2), add(time.Hour), openings(1), is(closed)}},
		{"a reset forgets them at once", nil, steps{outage(3), reset, openings(0), is(closed)}},
		{"SetPolicy keeps what has faded and begins the fade anew", nil, steps{
			outage(3), add(5 * minute), set(func(p *toolcircuit.Policy) { p.Cooldown = 10 * time.Minute }), openings(2), is(closed),
			set(nil), openings(2), add(minute), set(nil), fades(2*minute, 1), fades(minute, 0), is(closed)}},
		{"SetPolicy leaves Since", nil, steps{
			outage(1), func(r *rig) {
				before := r.Snapshot().Since
				all(add(time.Second), set(flat))(r)
				require.Equal(r, before, r.Snapshot().Since)
			}, is(closed),
		}},
		{"an event has those of its moment", nil, steps{
			outage(3), add(4 * minute), override(shut), is(closed),
			func(r *rig) { require.Equal(r, 2, last(r).Openings) }, is(closed)}},
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
	play(t, []script{
		{"open refuses all", nil, steps{override(shut), manual, seq(0), is(closed), override(lifted), call(nil), is(closed)}},
		{"open refuses all past every deadline", nil, steps{
			trip, override(shut), add(24 * time.Hour), manual, is(halfOpen),
			override(letAllIn), calls(9, errDown), override(lifted), begin("probe"), refused(time.Minute), is(halfOpen),
			end("probe", nil), is(closed)}},
		{"open refuses the probe", nil, steps{cooled, override(shut), manual, is(halfOpen), override(lifted), call(nil), is(closed)}},
		{"beneath open the cooldown runs on", nil, steps{
			trip, override(shut), add(50 * time.Second), manual, is(open), override(lifted), refused(10 * time.Second), is(open)}},
		{"closed runs all and records nothing", nil, steps{
			trip, override(letAllIn), call(nil), calls(9, errDown), call(wait(time.Hour)), is(open),
			override(lifted), refused(time.Minute), is(open)}},
		{"closed records nothing of a closed circuit, either", func(p *toolcircuit.Policy) { p.FailureRate = 0.1; p.MinCalls = 1 }, steps{
			override(letAllIn), calls(9, errDown), call(wait(time.Hour)), streak(0), holds(0, 0), is(closed),
			override(lifted), is(closed)}},
		{"closed takes no slot", nil, steps{
			cooled, override(letAllIn), begin("a", "b"), seq(1), is(halfOpen),
			override(lifted), end("a", nil), end("b", errDown), is(halfOpen), call(nil), is(closed)}},
		{"what came in before is recorded", nil, steps{
			begin("a", "b", "c"), override(letAllIn), end("a", errDown), is(closed),
			override(shut), end("b", errDown), streak(2), is(closed), end("c", errDown), seq(1), is(open),
			override(lifted), refused(time.Minute), is(open)}},
		{"a probe from before closes beneath it", nil, steps{
			probing, override(shut), end("probe", nil), manual, is(closed), override(lifted), call(nil), is(closed)}},
		{"lifting what is not there changes nothing", nil, steps{
			override(lifted), is(closed), override(shut), override(shut), is(closed), heardOf(1)}},
	})
}

func TestReset(t *testing.T) {
	play(t, []script{
		{"closes an open circuit", nil, steps{trip, reset, seq(2), openings(0), is(closed), trip, refused(time.Minute), is(open)}},
		{"closes under a running probe", nil, steps{probing, reset, end("probe", errDown), streak(0), is(closed)}},
		{"of a closed circuit is a new epoch", nil, steps{
			calls(2, errDown), begin("early"), add(time.Second), reset, seq(1), streak(0), is(closed),
			end("early", wait(time.Minute)), stale(1), is(closed), calls(2, errDown), is(closed),
			reads(toolcircuit.RuleReset, func(s snap) toolcircuit.Rule { return s.Rule }),
			reads(time.Unix(1, 0), func(s snap) time.Time { return s.Since })}},
		{"from another tool's view", nil, steps{trip, as(toolcircuit.Tool{Name: "sign_in"}, reset), call(nil), is(closed)}},
		{"what is late afterwards does not count", nil, steps{
			probing, reset, trip, end("probe", wait(time.Hour)), refused(time.Minute), is(open)}},
		{"forgets what the dependency asked for", nil, steps{calls(2, asked(time.Hour)), reset, trip, refused(time.Minute), is(open)}},
		{"keeps the override", nil, steps{override(shut), reset, is(closed), unready}},
	})
}

func TestSetPolicy(t *testing.T) {
	play(t, []script{
		{"a lower threshold opens at the next counted failure", nil, steps{
			calls(2, errDown), set(func(p *toolcircuit.Policy) { p.FailureThreshold = 1 }), is(closed),
			seq(0), call(errInvalid), is(closed), call(errDown), is(open)}},
		{"a shorter cooldown ends an open circuit's", nil, steps{
			trip, add(10 * time.Second), set(func(p *toolcircuit.Policy) { p.Cooldown = 15 * time.Second }),
			refused(5 * time.Second), is(open), set(func(p *toolcircuit.Policy) { p.Cooldown = 10 * time.Second }), is(halfOpen),
			seq(1), call(nil), is(closed)}},
		{"a longer cooldown holds for an open circuit", nil, steps{
			trip, add(59 * time.Second), set(func(p *toolcircuit.Policy) { p.Cooldown = time.Hour }),
			refused(time.Hour - 59*time.Second), is(open)}},
		{"leaves what the dependency asked for", nil, steps{
			call(wait(5 * time.Minute)), set(func(p *toolcircuit.Policy) { p.Cooldown = time.Second }), refused(5 * time.Minute),
			is(open)}},
		{"caps what the dependency asked for", nil, steps{
			call(wait(5 * time.Minute)), add(time.Second), is(open),
			set(func(p *toolcircuit.Policy) { p.MaxRetryAfter = 2 * time.Minute }), refused(2*time.Minute - time.Second), is(open),
			set(nil), refused(5*time.Minute - time.Second), is(open)}},
		{"caps what a late failure asked for, from when it did", nil, steps{
			begin("late"), call(wait(5 * time.Minute)), add(4 * time.Minute), end("late", wait(8*time.Minute)),
			refused(8 * time.Minute), is(open),
			set(func(p *toolcircuit.Policy) { p.MaxRetryAfter = 7 * time.Minute }), refused(7 * time.Minute), is(open)}},
		{"the turn of tools with SideEffects follows, too", func(p *toolcircuit.Policy) { p.Cooldown = 1000 * time.Hour }, steps{
			trip, add(1000 * time.Hour), begin("probe"), release("probe"), set(nil), as(writes, refused(time.Minute)), is(halfOpen)}},
		{"a running lease follows ProbeTimeout", nil, steps{
			probing, add(10 * time.Second), set(func(p *toolcircuit.Policy) { p.ProbeTimeout = 15 * time.Second }),
			refused(5 * time.Second), is(halfOpen),
			set(func(p *toolcircuit.Policy) { p.ProbeTimeout = 10 * time.Second }), is(halfOpen),
			begin("second"), seq(2), is(halfOpen)}},
		{"fewer ProbeSuccesses close at the next success", func(p *toolcircuit.Policy) { p.ProbeSuccesses = 9 }, steps{
			cooled, calls(2, nil), set(func(p *toolcircuit.Policy) { p.ProbeSuccesses = 2 }), is(halfOpen), call(nil), is(closed)}},
		{"more ProbeSuccesses keep it half-open", nil, steps{
			probing, set(func(p *toolcircuit.Policy) { p.ProbeSuccesses = 2 }), end("probe", nil), is(halfOpen),
			call(nil), is(closed)}},
		{"a wait asked for before the opening keeps to the policy in force", func(p *toolcircuit.Policy) { p.MaxRetryAfter = time.Hour }, steps{
			calls(2, asked(time.Hour)), set(func(p *toolcircuit.Policy) { p.MaxRetryAfter = 2 * time.Minute }), call(errDown),
			is(open), refused(2 * time.Minute), set(func(p *toolcircuit.Policy) { p.MaxRetryAfter = 2 * time.Minute }),
			refused(2 * time.Minute), is(open)}},
		{"a call judges itself by the policy that admitted it, also if it sets another", func(p *toolcircuit.Policy) { p.CountUnknown = true }, steps{
			func(r *rig) { tell(r, func(context.Context) (int, error) { set(nil)(r); return 0, errors.New("?") }) }, streak(1),
			is(closed)}},
		{"a call under way is judged by the policy that admitted it", func(p *toolcircuit.Policy) { p.CountUnknown = true }, steps{
			begin("a", "b", "c"), set(nil), is(closed), end("a", errors.New("?")), end("b", errors.New("?")), streak(2), is(closed),
			end("c", errors.New("?")), is(open)}},
		{"an invalid one changes nothing", nil, steps{
			func(r *rig) {
				before := r.Policy()
				require.EqualError(r, r.SetPolicy(toolcircuit.Policy{Jitter: 2}), "toolcircuit: Policy.Jitter: got 2, want a part from 0 to 1")
				require.Equal(r, before, r.Policy())
			}, is(closed),
		}},
		{"no event", nil, steps{set(nil), heardOf(0), is(closed)}},
	})
}

func TestClockStepsBack(t *testing.T) {
	play(t, []script{
		{"while open", nil, steps{
			trip, add(-time.Hour), refused(time.Minute), as(writes, refused(2*time.Minute)), is(open),
			add(time.Hour), refused(time.Minute), is(open), add(time.Minute), is(halfOpen)}},
		{"while the cooldown is over", nil, steps{
			cooled, add(-time.Second), refused(time.Second), is(open), add(-time.Hour), refused(time.Minute), is(open)}},
		{"while a probe runs", nil, steps{probing, add(-time.Hour), refused(time.Minute), is(halfOpen), end("probe", nil), is(closed)}},
		{"while closed", nil, steps{add(-time.Hour), calls(2, errDown), is(closed), call(errDown), refused(time.Minute), is(open)}},
		{"after a recovery", nil, steps{cooled, call(nil), add(-time.Hour), openings(1), is(closed)}},
		{"during a call", func(p *toolcircuit.Policy) { p.CallTimeout = time.Second; p.SlowCall = time.Millisecond }, steps{
			begin("a"), add(-time.Hour), end("a", nil), streak(0), is(closed),
			func(r *rig) { require.Zero(r, r.calls[0].Elapsed) }, is(closed)}},
	})
}

func TestSideEffectsProbeLast(t *testing.T) {
	play(t, []script{
		{"a closed circuit makes no difference", nil, steps{as(writes, ready, call(nil)), is(closed)}},
		{"one further cooldown", nil, steps{
			trip, as(writes, refused(2*time.Minute)), is(open),
			add(time.Minute), ready, as(writes, unready, refused(time.Minute)), is(halfOpen),
			add(time.Minute - 1), as(writes, unready, refused(1)), is(halfOpen), add(1), as(writes, ready, call(nil)), is(closed)}},
		{"a further cooldown of the same length", nil, steps{
			cooled, call(errDown), as(writes, refused(4*time.Minute)), is(open),
			add(4 * time.Minute), as(writes, call(errDown)), is(open)}},
		{"a read goes first", nil, steps{
			probing, as(writes, refused(time.Minute)), is(halfOpen), end("probe", nil), as(writes, call(nil)), is(closed)}},
		{"while other probes say nothing", nil, steps{
			cooled, call(errInvalid), add(time.Minute - 1), call(errInvalid), as(writes, unready), is(halfOpen),
			add(1), as(writes, call(nil)), is(closed)}},
		{"while the slot of a read is free again", nil, steps{
			probing, add(20 * time.Second), release("probe"), as(writes, refused(40*time.Second)), is(halfOpen),
			add(40 * time.Second), as(writes, call(nil)), is(closed)}},
		{"no longer than a lease that lasts", func(p *toolcircuit.Policy) { p.ProbeTimeout = 5 * time.Minute }, steps{
			probing, as(writes, refused(5*time.Minute)), is(halfOpen), add(5 * time.Minute), as(writes, call(nil)), is(closed)}},
		{"after what the dependency asked for, too", nil, steps{
			call(wait(5 * time.Second)), as(writes, refused(65*time.Second)), is(open),
			add(5 * time.Second), as(writes, refused(time.Minute)), is(halfOpen)}},
		{"under an override it is like any other", nil, steps{
			trip, override(letAllIn), as(writes, ready, call(nil)), is(open), override(shut), as(writes, unready), is(open)}},
	})
}

func TestCountBurstOnce(t *testing.T) {
	once := func(p *toolcircuit.Policy) { p.CountBurstOnce = true }
	batch := begin("a", "b", "c", "d")
	fail := all(end("a", errDown), end("b", errDown), end("c", errDown), end("d", errDown))
	play(t, []script{
		{"one batch is one failure", once, steps{
			batch, fail, streak(1), is(closed), batch, fail, streak(2), is(closed), batch, fail, is(open)}},
		{"one after the other they all count", once, steps{calls(2, errDown), is(closed), call(errDown), is(open)}},
		{"a success in between gives no second count", once, steps{
			batch, end("a", errDown), call(nil), end("b", errDown), streak(0), is(closed)}},
		{"nor does a call that began after the first failure", once, steps{
			batch, end("a", errDown), begin("e"), end("e", errDown), end("b", errDown), streak(2), is(closed)}},
		{"nor does a reset, or a change of the policy", once, steps{
			batch, end("a", errDown), reset, end("b", errDown), streak(0), is(closed),
			set(nil), batch, end("a", errDown), set(once), end("b", errDown), end("c", errDown), streak(1), is(closed),
			call(errDown), streak(2), is(closed)}},
		{"without it a batch opens", nil, steps{batch, fail, is(open)}},
		{"the rate counts them all", func(p *toolcircuit.Policy) { once(p); p.FailureRate = 1; p.MinCalls = 4 }, steps{
			batch, fail, reads(toolcircuit.RuleRate, func(s snap) toolcircuit.Rule { return s.Rule }), is(open)}},
		{"a wait asked for by any of them stands", once, steps{
			begin("a", "b"), end("a", errDown), end("b", asked(5*time.Minute)), calls(2, errDown), refused(5 * time.Minute),
			is(open)}},
	})
}

func TestTwin(t *testing.T) {
	r := run(t, policy(nil), trip, set(func(p *toolcircuit.Policy) { p.FailureThreshold = 2 }))
	twin := *r
	twin.ToolCircuit = r.WithTool(toolcircuit.Tool{Name: "search"}).Twin("mail-api")
	require.Equal(t, "mail-api", twin.Dependency())
	require.Equal(t, closed, twin.State())
	require.Equal(t, r.Policy(), twin.Policy())
	require.Equal(t, closed, r.Twin("search-api").State(), "the name is no key")

	calls(2, errDown)(&twin)
	require.Equal(t, open, twin.State(), "a twin has the policy of the moment it was made")
	require.Equal(t, "mail-api", last(r).Dependency, "a twin has the hooks")
	require.Equal(t, "search", lastCall(r).Tool, "a twin has the view")

	rated := newRig(t, policy(byRate))
	other := rated.Twin("mail-api")
	call(errDown)(rated)
	require.Zero(t, other.Snapshot().Window, "a twin has a window of its own")

	set(func(p *toolcircuit.Policy) { p.Cooldown = time.Hour })(&twin)
	refused(time.Hour)(&twin)
	all(refused(time.Minute), add(time.Minute), call(nil))(r)
	refused(time.Hour - time.Minute)(&twin)
}

// The longest waits there are overflow nothing.
func TestLongestWaits(t *testing.T) {
	longest := func(p *toolcircuit.Policy) { p.Cooldown = math.MaxInt64 }
	play(t, []script{
		{"clock steps back under the longest cooldown", longest, steps{trip, add(-time.Second), refused(math.MaxInt64), is(open)}},
		{"side effects under the longest cooldown", longest, steps{trip, as(writes, refused(math.MaxInt64)), is(open)}},
		{"jitter under the longest cooldown", func(p *toolcircuit.Policy) { longest(p); p.Jitter = 1 }, steps{
			trip, refused(math.MaxInt64), is(open),
			func(r *rig) {
				require.Equal(r, int64(math.MaxInt64/1_000_000+1), refusalRead(r.T, r.ToolCircuit).RetryAfterMS)
			}, is(open),
		}},
		{"half-open, side effects", longest, steps{
			trip, add(math.MaxInt64), begin("probe"), as(writes, refused(math.MaxInt64)), is(halfOpen)}},
		{"two curves of the longest cooldown", func(p *toolcircuit.Policy) {
			p.Cooldown, p.MaxCooldown, p.Multiplier = math.MaxInt64-1, math.MaxInt64, 1e300
		}, steps{trip, add(24 * time.Hour), unready, is(open)}},
		{"rate window", func(p *toolcircuit.Policy) { longest(p); p.FailureRate, p.Window = 1, math.MaxInt64 }, steps{
			call(nil), trip, add(24 * time.Hour), refused(math.MaxInt64 - 24*time.Hour), is(open)}},
		{"asked wait", func(p *toolcircuit.Policy) { p.MaxRetryAfter = math.MaxInt64 }, steps{
			call(wait(math.MaxInt64)), add(time.Hour), refused(math.MaxInt64 - time.Hour), is(open)}},
		{"lease of the longest call", func(p *toolcircuit.Policy) { p.ProbeTimeout, p.CallTimeout = math.MaxInt64, math.MaxInt64 }, steps{
			probing, refused(math.MaxInt64), end("probe", nil), is(closed)}},
		{"lease", func(p *toolcircuit.Policy) { p.ProbeTimeout = math.MaxInt64 }, steps{
			probing, add(-time.Second), refused(math.MaxInt64), is(halfOpen)}},
		{"fade", longest, steps{trip, add(math.MaxInt64), call(nil), add(math.MaxInt64 - 1), openings(1), add(1), openings(0), is(closed)}},
	})
}

// The least jitter under the longest MaxCooldown takes nothing from the curve.
func TestLeastJitterOfTheLongestCooldown(t *testing.T) {
	r := newRig(t, policy(func(p *toolcircuit.Policy) {
		p.MaxCooldown, p.Multiplier, p.Jitter = math.MaxInt64, 60, 1e-17
	}))
	all(trip, untilDue, call(errDown), refused(time.Hour))(r)
}
