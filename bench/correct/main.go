// Command correct puts this library and its peers into the same situations, side by side, and
// prints which of them behave as a circuit around a tool should.
//
//	go run ./correct
//
// Every cell comes from running it, in a process of its own, since some libraries end it or hang:
//
//	yes   it holds
//	set   it holds once the library is told so by an option of its own
//	no    it does not hold
//	-     there is nothing to try: the library has no listener, or takes no clock
//
// All circuits open after three failures, or as soon as the library can, and have the same
// cooldown.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"
)

// The exit codes of a cell.
const (
	holds     = 0
	fails     = 10
	untried   = 11
	unsettled = 12 // the library has no option for it
)

// patience is how long a cell may take before it counts as hanging.
const patience = 20 * time.Second

func main() {
	testing.Init()
	cell := flag.String("cell", "", "run one cell: the index of the library, a dot, the index of the situation")
	told := flag.Bool("told", false, "with -cell: tell the library by an option of its own")
	flag.Parse()
	if *cell != "" {
		library, situation := indices(*cell)
		os.Exit(try(libraries[library], situations[situation], *told))
	}
	if err := table(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func indices(cell string) (library, situation int) {
	if _, err := fmt.Sscanf(cell, "%d.%d", &library, &situation); err != nil ||
		library < 0 || library >= len(libraries) || situation < 0 || situation >= len(situations) {
		fmt.Fprintf(os.Stderr, "-cell: got %q, want LIBRARY.SITUATION\n", cell)
		os.Exit(2)
	}
	return library, situation
}

// try puts one library into one situation, in simulated time where it can live there, and returns the
// code.
func try(l library, s situation, told bool) (code int) {
	reset = makeReset()
	if l.cooldown > 0 {
		return judge(l, s, told)
	}
	match := func(string, string) (bool, error) { return true, nil }
	testing.Main(match, []testing.InternalTest{{Name: "cell", F: func(t *testing.T) {
		synctest.Test(t, func(*testing.T) {
			os.Exit(judge(l, s, told)) // at once: what still hangs is no deadlock
		})
	}}}, nil, nil)
	return fails
}

// judge is try, in the time that there is.
func judge(l library, s situation, told bool) (code int) {
	c := config{cooldown: l.cooldown}
	if c.cooldown == 0 {
		c.cooldown = 10 * time.Second
		// Simulated time begins in 2000, and some libraries count from the start of the program.
		time.Sleep(time.Until(time.Date(2060, 1, 1, 0, 0, 0, 0, time.UTC)))
	}
	if told {
		c.told = s.told
	}
	b, quit := l.make(c), make(chan struct{})
	defer close(quit)
	switch {
	case b == nil:
		return unsettled
	case s.listens && !l.listens, s.clock && !l.clock, s.needs != nil && !s.needs(b):
		return untried
	case s.holds(&env{l.make, quit, c, b}):
		return holds
	}
	return fails
}

// table runs all cells and prints them.
func table() error {
	cells := make([][]string, len(situations))
	errs := make([]error, len(situations))
	var all sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range situations {
		cells[i] = make([]string, len(libraries))
		all.Go(func() {
			for j := range libraries {
				slots <- struct{}{}
				cells[i][j], errs[i] = inProcess(j, i)
				<-slots
				if errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "situation")
	counts := make([]map[string]int, len(libraries))
	for j, l := range libraries {
		counts[j] = map[string]int{}
		fmt.Fprint(w, "\t", l.name)
	}
	fmt.Fprintln(w)
	for i, s := range situations {
		fmt.Fprint(w, s.text)
		for j := range libraries {
			counts[j][cells[i][j]]++
			fmt.Fprint(w, "\t", cells[i][j])
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "of %d, yes + set", len(situations))
	for j := range libraries {
		fmt.Fprintf(w, "\t%d + %d", counts[j]["yes"], counts[j]["set"])
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// inProcess runs one cell in a process of its own and returns what to print.
func inProcess(library, situation int) (string, error) {
	code, err := child(library, situation, false)
	switch {
	case err != nil:
		return "", err
	case code == holds:
		return "yes", nil
	case code == untried:
		return "-", nil
	case situations[situation].told == byDefault:
		return "no", nil
	}
	if code, err = child(library, situation, true); code == holds {
		return "set", err
	}
	return "no", err
}

// child returns the exit code of a cell. One that dies or hangs fails.
func child(library, situation int, told bool) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	c := exec.CommandContext(ctx, self, "-cell", fmt.Sprintf("%d.%d", library, situation), "-told="+strconv.FormatBool(told))
	err = c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if code := exit.ExitCode(); code == untried || code == unsettled {
			return code, nil
		}
		return fails, nil
	}
	return holds, err
}
