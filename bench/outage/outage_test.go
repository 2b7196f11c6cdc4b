package main

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func traces(t *testing.T) []*trace {
	all, err := load("")
	require.NoError(t, err)
	return all
}

func named(t *testing.T, name string) *trace {
	all := traces(t)
	i := slices.IndexFunc(all, func(tr *trace) bool { return tr.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return all[i]
}

func TestTraces(t *testing.T) {
	all := traces(t)
	require.GreaterOrEqual(t, len(all), 18)
	for _, tr := range all {
		require.NotEmpty(t, tr.About, tr.Name)
		for _, seed := range []uint64{1, 2} {
			s := tr.stretched(seed)
			for _, p := range s.Phases {
				require.LessOrEqual(t, p.To.Duration, s.Length.Duration, tr.Name)
			}
		}
	}
}

func TestTraceTimes(t *testing.T) {
	const m = time.Minute
	for _, c := range []struct {
		trace   string
		spells  [][2]time.Duration
		longest time.Duration
	}{
		{"hard-1m", [][2]time.Duration{{4 * m, 10 * m}}, m},
		{"half-then-down", [][2]time.Duration{{18 * m, 30 * m}}, 10 * m},
		{"overload", [][2]time.Duration{{8 * m, 30 * m}}, 5 * m},
		{"fail-30", nil, 0},
		{"quota", nil, 0},
		{"five-outages", [][2]time.Duration{
			{6 * m, 10 * m}, {13 * m, 17 * m}, {20 * m, 24 * m}, {27 * m, 31 * m}, {34 * m, 45 * m}}, 3 * m},
	} {
		tr := named(t, c.trace)
		require.Equal(t, c.spells, tr.recoveries(), c.trace)
		require.Equal(t, c.longest, tr.longest(), c.trace)
	}
}

// The same seed gives the same bytes, another one others, also where runs take turns on several
// processors.
func TestSameSeedSameBytes(t *testing.T) {
	brief := &trace{
		Name: "brief", Length: duration{4 * time.Minute}, Agents: 4, Calls: 3, Cancelled: 0.1,
		Think:   span{{time.Second}, {3 * time.Second}},
		Latency: span{{200 * time.Millisecond}, {time.Second}}, Timeout: duration{10 * time.Second},
		Phases: []phase{
			{From: duration{time.Minute}, To: duration{90 * time.Second}, How: fails, Rate: 1},
			{From: duration{90 * time.Second}, To: duration{2 * time.Minute}, How: hangs, Rate: 0.7},
		},
	}
	table := func() string {
		var b bytes.Buffer
		r := simulate(t, []*trace{brief}, choices, obeys, 3)
		r.printTraces(&b)
		r.printTotals(&b)
		r.printBars(&b)
		r.printDomination(&b)
		fmt.Fprintln(&b, r.runs)
		return b.String()
	}
	require.Equal(t, table(), table())
	require.NotEqual(t, run(t, brief, choices[0], obeys, 1), run(t, brief, choices[0], obeys, 2))
}

func policyOf(t *testing.T, name string) choice {
	i := slices.IndexFunc(choices, func(c choice) bool { return c.name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return choices[i]
}

// What is counted without a policy is known: every call runs, so nothing is lost, and what fails
// burns a turn.
func TestFiguresWithoutPolicy(t *testing.T) {
	for _, text := range []string{"hard-1m", "fail-30", "overload", "quota", "hang-2m"} {
		got := run(t, named(t, text), policyOf(t, "none"), ignores, 1)
		require.Zero(t, got.Lost, text)
		require.Zero(t, got.Probes, text)
		require.Equal(t, got.Wasted, got.Turns, text)
		require.Positive(t, got.Wasted, text)
		require.Positive(t, got.Served, text)
	}
	got := run(t, named(t, "bad-caller-alone"), policyOf(t, "none"), obeys, 1)
	require.Zero(t, got.Wasted+got.Lost+got.Turns)
	got = run(t, named(t, "cancelled-hang"), policyOf(t, "none"), obeys, 1)
	require.Positive(t, got.Turns)
	require.Less(t, got.Turns, got.Wasted, "a user who leaves burns no turn")
}

// A circuit that mistakes open loses what works.
func TestLost(t *testing.T) {
	tr := named(t, "bad-caller-alone")
	require.Positive(t, run(t, tr, policyOf(t, "failsafe-go"), obeys, 1).Lost)
	require.Zero(t, run(t, tr, policyOf(t, ownName), obeys, 1).Lost)
}

// Who obeys burns fewer turns, and what it keeps away from is counted: a hint hides no loss.
func TestManners(t *testing.T) {
	tr := named(t, "hard-5m")
	got := map[manner]figures{}
	for _, m := range []manner{obeys, sleeps, ignores} {
		got[m] = run(t, tr, policyOf(t, ownName), m, 1)
		require.Positive(t, got[m].Lost, m)
	}
	require.Less(t, got[sleeps].Turns, got[obeys].Turns)
	require.Less(t, got[obeys].Turns, got[ignores].Turns/5)
}

func TestEstimate(t *testing.T) {
	require.Equal(t, estimate{}, estimateOf(nil))
	require.Equal(t, estimate{Mean: 7}, estimateOf([]float64{7}))
	require.Equal(t, estimate{Mean: 3, SE: 1}, estimateOf([]float64{2, 4}))
	require.Equal(t, estimate{Mean: 2, SE: 1}, difference([]float64{2, 5}, []float64{1, 2}))
}
