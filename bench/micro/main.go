// Command micro measures one call through this library and through its peers, side by side in
// one binary: six interleaved rounds, medians, ratios to this library, and whether each bar is
// passed.
//
//	go run ./micro          # about three minutes
//	go run ./micro -short   # one short round: shows that it runs, its figures mean little
//	go run ./micro -busy    # forty very short rounds and their minima: for a machine with other work
//	go run ./micro -save    # also writes results/micro.json, from which ./figure draws
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
)

// crowdSize is the number of goroutines of a crowd.
const crowdSize = 32

// A cell is what was measured of one row in one column: nanoseconds of one goroutine alone and of
// each call in a crowd, and allocations. A negative figure was not measured.
type cell struct {
	Alone  float64 `json:"alone"`
	Crowd  float64 `json:"crowd"`
	Allocs float64 `json:"allocs"`
}

// report is all that one run has measured.
type report struct {
	Go     string                     `json:"go"`
	Rounds int                        `json:"rounds"`
	Cells  map[string]map[column]cell `json:"cells"` // by name of the row
	Bytes  map[string]float64         `json:"bytes"` // of one circuit
}

func main() {
	testing.Init()
	short := flag.Bool("short", false, "one short round")
	busy := flag.Bool("busy", false, "forty very short rounds, and minima in place of medians")
	save := flag.Bool("save", false, "write results/micro.json")
	flag.Parse()
	rounds, benchtime, circuits, middle := 6, "60ms", 100_000, median
	switch {
	case *short:
		rounds, benchtime, circuits = 1, "1ms", 1000
	case *busy:
		rounds, benchtime, middle = 40, "2ms", slices.Min
	}
	if err := flag.Set("test.benchtime", benchtime); err != nil {
		panic(err)
	}
	r := measure(rounds, middle)
	r.Bytes = memory(circuits)
	r.print()
	if *save {
		data, err := json.MarshalIndent(r, "", "\t")
		if err == nil {
			err = os.WriteFile("results/micro.json", append(data, '\n'), 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// measure runs every benchmark once per round and returns the middle of each.
func measure(rounds int, middle func([]float64) float64) report {
	type bench struct {
		row    string
		column column
		call   call
		alone  []float64
		crowd  []float64
		allocs []float64
	}
	var all []*bench
	for _, r := range rows {
		for _, c := range []column{closed, mixed, refused, halfOpen} {
			if maker := r.maker(c); maker != nil {
				all = append(all, &bench{row: r.name, column: c, call: maker()})
			}
		}
	}
	for range rounds {
		for _, b := range all {
			got := testing.Benchmark(alone(b.call))
			b.alone = append(b.alone, perCall(got))
			b.allocs = append(b.allocs, float64(got.AllocsPerOp()))
			if b.column != mixed { // every failure is counted by one goroutine
				b.crowd = append(b.crowd, perCall(testing.Benchmark(crowd(b.call))))
			}
		}
		fmt.Fprint(os.Stderr, ".")
	}
	fmt.Fprintln(os.Stderr)
	r := report{Go: runtime.Version(), Rounds: rounds, Cells: map[string]map[column]cell{}}
	for _, b := range all {
		if r.Cells[b.row] == nil {
			r.Cells[b.row] = map[column]cell{}
		}
		if b.crowd == nil {
			b.crowd = []float64{-1}
		}
		r.Cells[b.row][b.column] = cell{middle(b.alone), middle(b.crowd), middle(b.allocs)}
	}
	return r
}

func perCall(r testing.BenchmarkResult) float64 { return float64(r.T.Nanoseconds()) / float64(r.N) }

// alone calls from one goroutine, with a context that can be cancelled.
func alone(c call) func(*testing.B) {
	return func(b *testing.B) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		b.ReportAllocs()
		for b.Loop() {
			c(ctx)
		}
	}
}

func crowd(c call) func(*testing.B) {
	return func(b *testing.B) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		b.SetParallelism(max(crowdSize/runtime.GOMAXPROCS(0), 1))
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				c(ctx)
			}
		})
	}
}

// median returns the middle of the values, the mean of the middle two if their number is even.
func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// print writes the figures, the ratios and the bars.
func (r report) print() {
	fmt.Printf("%s, %d processors, %d rounds; ns per call, alone and in a crowd of %d\n\n",
		r.Go, runtime.GOMAXPROCS(0), r.Rounds, crowdSize)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tclosed\tcrowd\t1% fail\trefused\tcrowd\thalf-open\tcrowd\tallocs\trefused\tbytes\t")
	for _, row := range rows {
		c := r.Cells[row.name]
		fmt.Fprint(w, row.name)
		for _, v := range []float64{
			r.at(row.name, closed).Alone, r.at(row.name, closed).Crowd, r.at(row.name, mixed).Alone,
			r.at(row.name, refused).Alone, r.at(row.name, refused).Crowd,
			r.at(row.name, halfOpen).Alone, r.at(row.name, halfOpen).Crowd,
			c[closed].Allocs, r.at(row.name, refused).Allocs, r.bytes(row.name),
		} {
			fmt.Fprint(w, "\t", figure(v))
		}
		fmt.Fprintln(w, "\t")
	}
	w.Flush()

	fmt.Printf("\ntimes this library's figure\n\n")
	w = tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tclosed\tcrowd\t1% fail\trefused\tcrowd\thalf-open\tcrowd\tbytes\t")
	for _, row := range rows {
		if row.floor || strings.HasPrefix(row.name, us) {
			continue
		}
		own := us
		if strings.HasSuffix(row.name, " rate") || strings.HasSuffix(row.name, " window") {
			own = us + " rate"
		}
		fmt.Fprint(w, row.name)
		for _, ratio := range []float64{
			over(r.at(row.name, closed).Alone, r.at(own, closed).Alone),
			over(r.at(row.name, closed).Crowd, r.at(own, closed).Crowd),
			over(r.at(row.name, mixed).Alone, r.at(own, mixed).Alone),
			over(r.at(row.name, refused).Alone, r.at(own, refused).Alone),
			over(r.at(row.name, refused).Crowd, r.at(own, refused).Crowd),
			over(r.at(row.name, halfOpen).Alone, r.at(own, halfOpen).Alone),
			over(r.at(row.name, halfOpen).Crowd, r.at(own, halfOpen).Crowd),
			over(r.bytes(row.name), r.bytes(own)),
		} {
			fmt.Fprint(w, "\t", figure(ratio))
		}
		fmt.Fprintln(w, "\t")
	}
	w.Flush()

	fmt.Printf("\nbars\n\n")
	w = tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, b := range bars {
		got := b.got(r)
		verdict, sign := "pass", "at least"
		if b.most {
			sign = "at most"
		}
		if !b.passes(got) {
			verdict = "SHORT"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s %g\n", verdict, b.name, figure(got), sign, b.limit)
	}
	w.Flush()
}

// at returns a cell, one of figures not measured where there is none.
func (r report) at(row string, c column) cell {
	if got, ok := r.Cells[row][c]; ok {
		return got
	}
	return cell{-1, -1, -1}
}

func (r report) bytes(row string) float64 {
	if got, ok := r.Bytes[row]; ok {
		return got
	}
	return -1
}

// over returns a/b, -1 if one of them was not measured.
func over(a, b float64) float64 {
	if a < 0 || b < 0 {
		return -1
	}
	return a / b
}

func figure(v float64) string {
	switch {
	case v < 0:
		return "-"
	case v < 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
