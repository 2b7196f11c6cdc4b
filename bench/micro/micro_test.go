package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every call of the table can be made, again and again.
func TestRows(t *testing.T) {
	for _, r := range rows {
		for _, c := range []column{closed, mixed, refused, halfOpen} {
			if maker := r.maker(c); maker != nil {
				call := maker()
				for range 200 {
					call(context.Background())
				}
			}
		}
	}
}

func TestMedian(t *testing.T) {
	require.Equal(t, 2.0, median([]float64{3, 1, 2}))
	require.Equal(t, 2.5, median([]float64{4, 1, 2, 3}))
}

func TestBars(t *testing.T) {
	r := report{
		Cells: map[string]map[column]cell{
			us:                 {closed: {10, 5, 0}, refused: {40, 20, 0}},
			twoStepped:         {closed: {12, 6, 0}, refused: {40, 20, 0}},
			rated:              {closed: {50, 90, 0}},
			floor:              {closed: {5, 3, 0}},
			sony:               {closed: {100, 250, 0}, refused: {60, 100, 0}},
			"gobreaker window": {closed: {125, 600, 0}},
		},
		Bytes: map[string]float64{us: 512, inSet: 192},
	}
	for _, b := range bars {
		require.True(t, b.passes(b.got(r)), b.name)
	}
	r.Cells[us] = map[column]cell{closed: {11, 12, 1}, refused: {41, 21, 1}}
	r.Cells[twoStepped] = map[column]cell{closed: {13, 6, 0}}
	r.Cells[rated] = map[column]cell{closed: {51, 90, 0}}
	r.Bytes = map[string]float64{us: 513, inSet: 193}
	for _, b := range bars {
		require.False(t, b.passes(b.got(r)), b.name)
	}
	for _, b := range bars { // nothing measured passes nothing
		require.False(t, b.passes(b.got(report{})), b.name)
	}
}
