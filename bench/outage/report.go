package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"
)

var (
	wasted = func(f figures) float64 { return f.Wasted }
	lost   = func(f figures) float64 { return f.Lost }
	turns  = func(f figures) float64 { return f.Turns }
)

// all returns one figure of one policy, summed over the traces that pass, seed by seed.
func (r results) all(choice int, figure func(figures) float64, passes func(*trace) bool) []float64 {
	var each [][]float64
	for i, t := range r.traces {
		if passes(t) {
			each = append(each, column(r.runs[i][choice], figure))
		}
	}
	if each == nil {
		return make([]float64, r.seeds)
	}
	return sum(each)
}

func every(*trace) bool   { return true }
func hours(t *trace) bool { return t.longest() >= time.Hour }

// index returns the place of a policy by name.
func (r results) index(name string) int {
	for i, c := range r.choices {
		if c.name == name {
			return i
		}
	}
	panic("outage: no policy " + name)
}

func (e estimate) String() string {
	if e.SE == 0 {
		return fmt.Sprintf("%.0f", e.Mean)
	}
	return fmt.Sprintf("%.0f ± %.0f", e.Mean, e.SE)
}

// printTraces writes a table for each trace.
func (r results) printTraces(out io.Writer) {
	for i, t := range r.traces {
		fmt.Fprintf(out, "%s: %s\n\n", t.Name, t.About)
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(w, "\twasted\tLOST\tturns\tprobes\tfirst s\tall s\tpeak\tserved\t")
		for j, c := range r.choices {
			fmt.Fprint(w, c.name)
			for _, figure := range []func(figures) float64{
				wasted, lost, turns,
				func(f figures) float64 { return f.Probes },
				func(f figures) float64 { return f.First },
				func(f figures) float64 { return f.All },
				func(f figures) float64 { return f.Peak },
				func(f figures) float64 { return f.Served },
			} {
				fmt.Fprint(w, "\t", estimateOf(column(r.runs[i][j], figure)))
			}
			fmt.Fprintln(w, "\t")
		}
		w.Flush()
		fmt.Fprintln(out)
	}
}

// printTotals writes one table for all traces together.
func (r results) printTotals(out io.Writer) {
	fmt.Fprintf(out, "%d traces, %d seeds, hints: %s\n\n", len(r.traces), r.seeds, r.hints)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\twasted\tLOST\tturns\tof an hour and more: wasted\tprobes\t")
	for j, c := range r.choices {
		fmt.Fprintf(w, "%s\t%v\t%v\t%v\t%v\t%v\t\n", c.name,
			estimateOf(r.all(j, wasted, every)), estimateOf(r.all(j, lost, every)), estimateOf(r.all(j, turns, every)),
			estimateOf(r.all(j, wasted, hours)), estimateOf(r.all(j, func(f figures) float64 { return f.Probes }, every)))
	}
	w.Flush()
	fmt.Fprintln(out)
}

// printBars writes the ratios that this library must reach by its default policy, and whether it does.
func (r results) printBars(out io.Writer) {
	us, them := r.index(ownName), r.index(gobreakerName)
	best, bestTurns := them, estimateOf(r.all(them, turns, every)).Mean
	for j, c := range r.choices {
		if m := estimateOf(r.all(j, turns, every)).Mean; c.kind == peer && m < bestTurns {
			best, bestTurns = j, m
		}
	}
	mean := func(choice int, figure func(figures) float64, passes func(*trace) bool) float64 {
		return estimateOf(r.all(choice, figure, passes)).Mean
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	bar := func(name string, got, limit float64, most bool) {
		verdict, sign := "pass", "at least"
		if most {
			sign = "at most"
		}
		if most && !(got <= limit) || !most && !(got >= limit) {
			verdict = "SHORT"
		}
		fmt.Fprintf(w, "%s\t%s\t%.2f\t%s %g\n", verdict, name, got, sign, limit)
	}
	bar("turns: times fewer than "+r.choices[best].name, bestTurns/mean(us, turns, every), 8, false)
	bar("wasted: over gobreaker", mean(us, wasted, every)/mean(them, wasted, every), 1.05, true)
	bar("LOST: over gobreaker", mean(us, lost, every)/mean(them, lost, every), 1.05, true)
	if w := mean(them, wasted, hours); w > 0 {
		bar("outages of an hour and more, wasted: over gobreaker", mean(us, wasted, hours)/w, 0.5, true)
	}
	w.Flush()
	fmt.Fprintln(out)
}

// enough is how many seeds a standard error needs to mean something.
const enough = 5

// printDomination writes each trace in which a peer both wastes and loses less than this library by
// default, with the differences in standard errors.
func (r results) printDomination(out io.Writer) {
	us := r.index(ownName)
	sure := 0
	fmt.Fprintln(out, "domination: a peer wastes less and loses less; differences with their standard errors")
	for i, t := range r.traces {
		for j, c := range r.choices {
			if c.kind == own {
				continue
			}
			dw, dl, surely := r.dominates(i, j, us)
			if dw.Mean <= 0 || dl.Mean <= 0 {
				continue
			}
			word := "perhaps"
			if surely {
				word = "surely"
				sure++
			}
			fmt.Fprintf(out, "  %s, %s: %s; wasted %+.1f ± %.1f, LOST %+.1f ± %.1f\n",
				t.Name, c.name, word, dw.Mean, dw.SE, dl.Mean, dl.SE)
		}
	}
	fmt.Fprintf(out, "surely: %d\n", sure)
}

// dominates returns by how much one policy wastes and loses less than another in a trace, and whether
// both are sure.
func (r results) dominates(trace, a, b int) (wastes, loses estimate, surely bool) {
	runs := r.runs[trace]
	wastes = difference(column(runs[b], wasted), column(runs[a], wasted))
	loses = difference(column(runs[b], lost), column(runs[a], lost))
	surely = r.seeds >= enough && wastes.Mean > 2*wastes.SE && loses.Mean > 2*loses.SE
	return wastes, loses, surely
}

// save writes the totals for ./figure.
func (r results) save(file string) error {
	type row struct {
		Name   string   `json:"name"`
		Wasted estimate `json:"wasted"`
		Lost   estimate `json:"lost"`
		Turns  estimate `json:"turns"`
	}
	var rows []row
	for j, c := range r.choices {
		rows = append(rows, row{c.name, estimateOf(r.all(j, wasted, every)), estimateOf(r.all(j, lost, every)), estimateOf(r.all(j, turns, every))})
	}
	data, err := json.MarshalIndent(map[string]any{
		"traces": len(r.traces), "seeds": r.seeds, "hints": r.hints, "policies": rows,
	}, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
