package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/toolcircuit/toolcircuit"
)

// variants are this library's defaults, each changed in one or two fields, beside gobreaker's.
func variants() []choice {
	all := []choice{choices[slices.IndexFunc(choices, func(c choice) bool { return c.name == gobreakerName })]}
	add := func(name string, p toolcircuit.Policy) {
		all = append(all, choice{name, own, func(_ *trace, seed uint64) policy { return single(seed, p) }})
	}
	add(ownName, toolcircuit.Policy{})
	for _, n := range []int{3, 4, 6, 8} {
		add(fmt.Sprint("threshold ", n), toolcircuit.Policy{FailureThreshold: n})
	}
	for _, d := range []time.Duration{5 * time.Second, 15 * time.Second, 20 * time.Second, 30 * time.Second} {
		add(fmt.Sprint("cooldown ", d), toolcircuit.Policy{Cooldown: d})
	}
	for _, m := range []float64{1, 1.1, 1.2, 1.35, 1.5, 2} {
		add(fmt.Sprint("multiplier ", m), toolcircuit.Policy{Multiplier: m})
	}
	for _, d := range []time.Duration{time.Minute, 2 * time.Minute, 10 * time.Minute} {
		add(fmt.Sprint("cap ", d), toolcircuit.Policy{MaxCooldown: d})
	}
	for _, j := range []float64{0.1, 0.25} {
		add(fmt.Sprint("jitter ", j), toolcircuit.Policy{Jitter: j})
	}
	add("two successes", toolcircuit.Policy{ProbeSuccesses: 2})
	add("burst once", toolcircuit.Policy{CountBurstOnce: true})
	add("rate 0.5", toolcircuit.Policy{FailureRate: 0.5})
	add("old: 30s x2 10m", toolcircuit.Policy{Cooldown: 30 * time.Second, Multiplier: 2, MaxCooldown: 10 * time.Minute})
	for _, d := range []time.Duration{10 * time.Second, 15 * time.Second, 20 * time.Second} {
		for _, m := range []float64{1.1, 1.15, 1.2} {
			add(fmt.Sprintf("%v x%v threshold 4", d, m), toolcircuit.Policy{FailureThreshold: 4, Cooldown: d, Multiplier: m})
		}
	}
	add("10s x1.5 2m", toolcircuit.Policy{Multiplier: 1.5, MaxCooldown: 2 * time.Minute})
	return all
}

// printSweep writes what each variant comes to, over gobreaker, and in how many traces one of them
// surely dominates the other.
func (r results) printSweep(out io.Writer) {
	const them = 0
	fmt.Fprintf(out, "%d traces, %d seeds, hints: %s; over gobreaker\n\n", len(r.traces), r.seeds, r.hints)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\twasted\tLOST\tturns\tof an hour and more: wasted\tdominated\tdominates\t")
	for j, c := range r.choices {
		fmt.Fprint(w, c.name)
		for _, f := range []struct {
			figure func(figures) float64
			passes func(*trace) bool
		}{{wasted, every}, {lost, every}, {turns, every}, {wasted, hours}} {
			ratio := estimateOf(r.all(j, f.figure, f.passes)).Mean / estimateOf(r.all(them, f.figure, f.passes)).Mean
			fmt.Fprintf(w, "\t%.3f", ratio)
		}
		worse, better := 0, 0
		for i := range r.traces {
			if _, _, surely := r.dominates(i, them, j); surely {
				worse++
			}
			if _, _, surely := r.dominates(i, j, them); surely {
				better++
			}
		}
		fmt.Fprintf(w, "\t%d\t%d\t\n", worse, better)
	}
	w.Flush()
}
