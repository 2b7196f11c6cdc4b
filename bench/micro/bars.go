package main

// us is the row of this library.
const us = "toolcircuit"

// A bar is a ratio that a run must reach.
type bar struct {
	name  string
	got   func(report) float64
	limit float64
	most  bool // limit is the most that passes; otherwise it is the least
}

// passes reports whether a ratio that was measured, so is not negative, reaches the bar.
func (b bar) passes(got float64) bool {
	return got >= 0 && (b.most && got <= b.limit || !b.most && got >= b.limit)
}

const (
	floor      = "function + defer + closure"
	twoStepped = us + " two-step"
	rated      = us + " rate"
	sony       = "gobreaker"
)

var bars = []bar{
	{name: "closed, alone: times gobreaker", limit: 10, got: func(r report) float64 {
		return over(r.at(sony, closed).Alone, r.at(us, closed).Alone)
	}},
	{name: "closed, crowd: times gobreaker", limit: 50, got: func(r report) float64 {
		return over(r.at(sony, closed).Crowd, r.at(us, closed).Crowd)
	}},
	{name: "closed, alone: over function + defer + closure", limit: 2, most: true, got: func(r report) float64 {
		return over(r.at(us, closed).Alone, r.at(floor, closed).Alone)
	}},
	{name: "closed: crowd over alone", limit: 1, most: true, got: func(r report) float64 {
		return over(r.at(us, closed).Crowd, r.at(us, closed).Alone)
	}},
	{name: "two-step, alone: over function + defer + closure", limit: 2.5, most: true, got: func(r report) float64 {
		return over(r.at(twoStepped, closed).Alone, r.at(floor, closed).Alone)
	}},
	{name: "refused, alone: times gobreaker", limit: 1.5, got: func(r report) float64 {
		return over(r.at(sony, refused).Alone, r.at(us, refused).Alone)
	}},
	{name: "refused, crowd: times gobreaker", limit: 5, got: func(r report) float64 {
		return over(r.at(sony, refused).Crowd, r.at(us, refused).Crowd)
	}},
	{name: "rate, alone: times gobreaker with a window", limit: 2.5, got: func(r report) float64 {
		return over(r.at("gobreaker window", closed).Alone, r.at(rated, closed).Alone)
	}},
	{name: "closed: allocations", limit: 0, most: true, got: func(r report) float64 {
		return max(r.at(us, closed).Allocs, r.at(twoStepped, closed).Allocs, r.at(rated, closed).Allocs)
	}},
	{name: "refused: allocations", limit: 0, most: true, got: func(r report) float64 {
		return max(r.at(us, refused).Allocs, r.at(twoStepped, refused).Allocs)
	}},
	{name: "bytes of a circuit with settings of its own", limit: 512, most: true, got: func(r report) float64 {
		return r.bytes(us)
	}},
	{name: "bytes of a circuit of a Set", limit: 192, most: true, got: func(r report) float64 {
		return r.bytes(inSet)
	}},
}
