// Command outage runs agents against a dependency that has outages, in simulated time, under this
// library and under its peers, and prints what each policy costs.
//
//	go run ./outage                # all traces, twenty seeds
//	go run ./outage -v             # also a table for each trace
//	go run ./outage -short         # two seeds, the shorter traces: shows that it runs
//	go run ./outage -trace hard    # the traces whose name holds a text
//	go run ./outage -hints sleep   # how agents take a hint: obey, sleep or ignore
//	go run ./outage -sweep         # this library's defaults, varied one by one
//	go run ./outage -save          # also writes results/outage.json, from which ./figure draws
//
// The same flags print the same bytes.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

func main() {
	testing.Init()
	short := flag.Bool("short", false, "two seeds and the traces of up to half an hour")
	seeds := flag.Int("seeds", 20, "runs of each policy through each trace")
	text := flag.String("trace", "", "only traces whose name holds this")
	hints := flag.String("hints", string(obeys), "how agents take a hint: obey, sleep or ignore")
	verbose := flag.Bool("v", false, "a table for each trace")
	sweep := flag.Bool("sweep", false, "vary this library's defaults instead")
	save := flag.Bool("save", false, "write results/outage.json")
	flag.Parse()

	m := manner(*hints)
	traces, err := load(*text)
	switch {
	case err != nil:
	case !slices.Contains([]manner{obeys, sleeps, ignores}, m):
		err = fmt.Errorf("-hints: got %q, want obey, sleep or ignore", m)
	case *seeds < 1:
		err = fmt.Errorf("-seeds: got %d, want 1 or more", *seeds)
	case len(traces) == 0:
		err = fmt.Errorf("-trace: no trace has %q in its name", *text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if *short {
		*seeds = 2
		traces = slices.DeleteFunc(traces, func(t *trace) bool { return t.Length.Duration > 30*time.Minute })
	}
	simulated(func(t *testing.T) error {
		if *sweep {
			simulate(t, traces, variants(), m, *seeds).printSweep(os.Stdout)
			return nil
		}
		r := simulate(t, traces, choices, m, *seeds)
		if *verbose {
			r.printTraces(os.Stdout)
		}
		r.printTotals(os.Stdout)
		r.printBars(os.Stdout)
		r.printDomination(os.Stdout)
		if *save {
			return r.save("results/outage.json")
		}
		return nil
	})
}

// simulated runs f with the test that simulated time needs, and ends the program.
func simulated(f func(*testing.T) error) {
	all := func(string, string) (bool, error) { return true, nil }
	testing.Main(all, []testing.InternalTest{{Name: "outage", F: func(t *testing.T) {
		if err := f(t); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0) // before the verdict of a test is printed
	}}}, nil, nil)
}

// results are all runs.
type results struct {
	traces  []*trace
	choices []choice
	hints   manner
	seeds   int
	runs    [][][]figures // by trace, choice and seed
}

// simulate runs every policy through every trace with every seed, one run per processor at a time.
func simulate(t *testing.T, traces []*trace, choices []choice, m manner, seeds int) results {
	r := results{traces, choices, m, seeds, make([][][]figures, len(traces))}
	type job struct {
		trace, choice, seed int
	}
	var jobs []job
	for i := range traces {
		r.runs[i] = make([][]figures, len(choices))
		for j := range choices {
			r.runs[i][j] = make([]figures, seeds)
			for k := range seeds {
				jobs = append(jobs, job{i, j, k})
			}
		}
	}
	queue := make(chan job, len(jobs))
	for _, j := range jobs {
		queue <- j
	}
	close(queue)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for j := range queue {
				r.runs[j.trace][j.choice][j.seed] = run(t, traces[j.trace], choices[j.choice], m, uint64(j.seed)+1)
			}
		})
	}
	wg.Wait()
	return r
}
