package main

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"time"
)

// A trace says what happens to a dependency and who calls it. Traces are data: one JSON file each,
// durations as "30s".
type trace struct {
	Name    string   `json:"-"` // of its file
	About   string   `json:"about"`
	Length  duration `json:"length"`
	Agents  int      `json:"agents"`
	Think   span     `json:"think"`   // one turn of a model
	Latency span     `json:"latency"` // one healthy call
	Timeout duration `json:"timeout"` // the deadline that the runtime gives each call
	Calls   int      `json:"calls"`   // parallel calls in one turn; zero: 1

	Bad       int     `json:"bad"`       // agents whose every call is a mistake of their own: status 400
	Cancelled float64 `json:"cancelled"` // share of the calls that the user cancels

	Phases []phase `json:"phases"` // where two overlap the later one in the list holds
}

// A phase is a time in which the dependency is not itself.
type phase struct {
	From  duration `json:"from"`
	To    duration `json:"to"`
	Times int      `json:"times"` // the phase comes so many times; zero: once
	Every duration `json:"every"` // from one beginning to the next

	How        failure  `json:"how"`        // empty: calls do not fail, unless for lack of capacity
	Rate       float64  `json:"rate"`       // share of the calls that fail; zero: all
	RetryAfter duration `json:"retryAfter"` // what How limit asks for; zero: nothing
	UntilEnd   bool     `json:"untilEnd"`   // How limit asks for what is left of the phase
	Latency    *span    `json:"latency"`    // of calls that work; nil: that of the trace

	// Capacity is how many calls a second the dependency can take, growing to Full by the end of
	// the phase. One more knocks it down for Knock, and calls meanwhile keep it down. Zero: any
	// number.
	Capacity float64  `json:"capacity"`
	Full     float64  `json:"full"` // zero: Capacity
	Knock    duration `json:"knock"`

	// Quota is how many calls it takes in each Per. It answers those above with status 429 and
	// what is left of Per as Retry-After. Zero: any number.
	Quota int      `json:"quota"`
	Per   duration `json:"per"`
}

// failure is how a call fails.
type failure string

const (
	fails  failure = "error" // status 503, at once
	hangs  failure = "hang"  // no answer until the call's context ends
	limits failure = "limit" // status 429, at once
)

type duration struct{ time.Duration }

func (d *duration) UnmarshalText(text []byte) (err error) {
	d.Duration, err = time.ParseDuration(string(text))
	return err
}

// span is the bounds of a duration that is drawn.
type span [2]duration

//go:embed traces/*.json
var files embed.FS

// load returns the traces by name, those alone whose name holds the text. An error names the
// file.
func load(text string) ([]*trace, error) {
	names, err := fs.Glob(files, "traces/*.json")
	if err != nil {
		return nil, err
	}
	var all []*trace
	for _, name := range names {
		t := &trace{Name: strings.TrimSuffix(path.Base(name), ".json"), Calls: 1}
		data, err := files.ReadFile(name)
		if err == nil {
			d := json.NewDecoder(strings.NewReader(string(data)))
			d.DisallowUnknownFields()
			err = d.Decode(t)
		}
		if err == nil {
			err = t.check()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if strings.Contains(t.Name, text) {
			t.expand()
			all = append(all, t)
		}
	}
	return all, nil
}

func (t *trace) check() error {
	switch {
	case t.Length.Duration <= 0, t.Agents <= 0, t.Calls <= 0, t.Timeout.Duration <= 0:
		return fmt.Errorf("length, agents, calls and timeout must be positive")
	case t.Agents*t.Calls >= slots:
		return fmt.Errorf("agents times calls: got %d, want less than %d", t.Agents*t.Calls, slots)
	case t.Bad > t.Agents:
		return fmt.Errorf("bad: got %d of %d agents", t.Bad, t.Agents)
	}
	for i, p := range t.Phases {
		if p.To.Duration <= p.From.Duration || p.To.Duration > t.Length.Duration {
			return fmt.Errorf("phases[%d]: got %v to %v, want a time within %v", i, p.From, p.To, t.Length)
		}
		if !slices.Contains([]failure{"", fails, hangs, limits}, p.How) {
			return fmt.Errorf("phases[%d].how: got %q", i, p.How)
		}
	}
	return nil
}

// expand writes out phases that come several times, and fills in defaults.
func (t *trace) expand() {
	var all []phase
	for _, p := range t.Phases {
		if p.How != "" && p.Rate == 0 {
			p.Rate = 1
		}
		if p.Full == 0 {
			p.Full = p.Capacity
		}
		for range max(p.Times, 1) {
			all = append(all, p)
			p.From.Duration += p.Every.Duration
			p.To.Duration += p.Every.Duration
		}
	}
	t.Phases = all
}

// stretched returns the trace with all its times longer by the same factor, up to 1.3, which the
// seed draws: no policy should win because its timeout fits an outage to the second.
func (t *trace) stretched(seed uint64) *trace {
	factor := 1 + 0.3*rand.New(rand.NewPCG(seed, 1<<35)).Float64()
	stretch := func(d duration) duration {
		return duration{time.Duration(factor * float64(d.Duration))}
	}
	long := *t
	long.Length = stretch(t.Length)
	long.Phases = slices.Clone(t.Phases)
	for i := range long.Phases {
		p := &long.Phases[i]
		p.From, p.To = stretch(p.From), stretch(p.To)
	}
	return &long
}

// at returns the phase at a time after the beginning, nil if the dependency is itself.
func (t *trace) at(since time.Duration) *phase {
	for i := len(t.Phases) - 1; i >= 0; i-- {
		if p := &t.Phases[i]; p.From.Duration <= since && since < p.To.Duration {
			return p
		}
	}
	return nil
}

// down reports whether every call fails at that time.
func (t *trace) down(since time.Duration) bool {
	p := t.at(since)
	return p != nil && p.Rate == 1
}

// recoveries returns the times in which the dependency works again after it was down: each from
// its end to the next, or to the end of the trace.
func (t *trace) recoveries() (all [][2]time.Duration) {
	var edges []time.Duration
	for _, p := range t.Phases {
		edges = append(edges, p.From.Duration, p.To.Duration)
	}
	slices.Sort(edges)
	edges = append(slices.Compact(edges), t.Length.Duration)
	down := false
	for i, edge := range edges[:len(edges)-1] {
		switch now := t.down(edge); {
		case down && !now:
			all = append(all, [2]time.Duration{edge, edges[i+1]})
		case !down && !now && len(all) > 0 && all[len(all)-1][1] == edge:
			all[len(all)-1][1] = edges[i+1] // another phase, still working
		}
		down = t.down(edge)
	}
	return all
}

// longest returns how long the longest time is in which every call fails.
func (t *trace) longest() (d time.Duration) {
	for _, p := range t.Phases {
		if p.Rate == 1 {
			d = max(d, p.To.Duration-p.From.Duration)
		}
	}
	return d
}
