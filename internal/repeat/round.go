package repeat

import (
	"slices"
	"time"
)

const (
	maxRound  = 4    // calls in the longest round that is found
	maxRounds = 1000 // with more Repeats no round is found
)

// step is an outcome in history. The zero step equals none.
type step struct {
	id    Digest
	kind  string
	print Digest
	start time.Time // of the call
}

// answers reports whether s is an answer.
func (s *step) answers() bool { return s.kind == kindOK || s.kind == kindDuplicate }

// same reports whether two steps are the same call with the same outcome.
func (s *step) same(o *step) bool {
	return s.id == o.id && s.kind == o.kind && s.print == o.print && s.id != Digest{}
}

// add adds an outcome to history. If the run goes round now, add holds the answers of the round.
func (p *Past) add(s step, now time.Time) {
	n := p.limits.Repeats
	if n > maxRounds {
		return
	}
	if keep := maxRound * n; len(p.history) == 2*keep { // many at a time, because the rest moves
		p.history = slices.Delete(p.history, 0, keep)
	}
	p.history = append(p.history, s)
	for size := 1; size <= maxRound && n <= len(p.history)/size; size++ {
		if laps := p.history[len(p.history)-n*size:]; p.isRound(laps, size) {
			p.loop(laps[(n-1)*size:], now)
			return
		}
	}
}

// isRound reports whether steps is a number of laps of size steps that are all the same and fast.
// Within a lap the order means nothing, because calls may be made at the same time.
func (p *Past) isRound(steps []step, size int) bool {
	last := steps[len(steps)-size:]
	for i := range steps { // the oldest first: it differs soonest
		s := &steps[i]
		lap := steps[i/size*size:][:size]
		if n := times(s, lap); n == 0 || n != times(s, last) {
			return false
		}
		for _, next := range steps[i+1 : min(i+2*size, len(steps))] {
			if next.id != s.id {
				continue
			}
			if next.start.Sub(s.start) >= p.limits.Poll {
				return false
			}
			break
		}
	}
	return true
}

// times returns how often s is in a lap.
func times(s *step, lap []step) (n int) {
	for i := range lap {
		if s.same(&lap[i]) {
			n++
		}
	}
	return n
}

// loop holds the answers of a lap. Failures have their own rules.
func (p *Past) loop(lap []step, now time.Time) {
	for _, s := range lap {
		if !s.answers() {
			continue
		}
		r := p.records[s.id]
		if r == nil {
			r = &record{id: s.id}
			p.records[s.id] = r
		}
		r.loop = loop{print: s.print, start: s.start, at: now, known: p.now, after: p.epoch}
		p.keep(r)
	}
}

// memory is a set of answers that forgets the oldest.
type memory struct {
	set  map[answer]struct{}
	ring []answer
	next int
	size int
}

type answer struct{ id, print Digest }

func newMemory(size int) memory { return memory{set: map[answer]struct{}{}, size: size} }

// add adds an answer and reports whether it is new.
func (m *memory) add(s step) bool {
	a := answer{s.id, s.print}
	if a.id == (Digest{}) || a.print == (Digest{}) {
		return true // it equals none
	}
	if _, known := m.set[a]; known {
		return false
	}
	if len(m.ring) < m.size {
		m.ring = append(m.ring, a)
	} else {
		delete(m.set, m.ring[m.next])
		m.ring[m.next] = a
		m.next = (m.next + 1) % m.size
	}
	m.set[a] = struct{}{}
	return true
}
