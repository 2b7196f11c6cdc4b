package main

import "math"

// estimate is a mean over seeds with its standard error.
type estimate struct {
	Mean float64 `json:"mean"`
	SE   float64 `json:"se"`
}

func estimateOf(values []float64) (e estimate) {
	n := float64(len(values))
	for _, v := range values {
		e.Mean += v / n
	}
	if n < 2 {
		return e
	}
	for _, v := range values {
		e.SE += (v - e.Mean) * (v - e.Mean) / (n - 1) / n
	}
	e.SE = math.Sqrt(e.SE)
	return e
}

// column returns one figure of all runs.
func column(runs []figures, figure func(figures) float64) []float64 {
	values := make([]float64, len(runs))
	for i, f := range runs {
		values[i] = figure(f)
	}
	return values
}

// difference is the mean of a - b by seed.
func difference(a, b []float64) estimate {
	d := make([]float64, len(a))
	for i := range a {
		d[i] = a[i] - b[i]
	}
	return estimateOf(d)
}

// sum adds up runs seed by seed.
func sum(all [][]float64) []float64 {
	total := make([]float64, len(all[0]))
	for _, values := range all {
		for i, v := range values {
			total[i] += v
		}
	}
	return total
}
