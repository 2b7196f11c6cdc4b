package toolset

import (
	"time"

	"github.com/toolcircuit/toolcircuit"
)

// look is the number of buckets that eviction may look at for one new circuit, so that making
// one takes as long among many as among few.
const look = minBuckets

// makeRoom lets go of circuits that have been idle and, at the maximum, of others. First go
// those that have nothing to remember and were not used again since the hand last came by, so
// that a flood of new names drives out itself. Where a look finds too few of them, other closed
// ones go: those that were used, then those that remember something. The caller holds s.mu.
func (s *Set) makeRoom(now time.Time, p *plan) {
	if now.Sub(s.swept) >= p.idleAfter {
		s.swept, s.due = now, s.circuits.len()
	}
	full := func() bool { return s.circuits.size >= p.maxCircuits }
	var idle, used []*member
	for i := 0; i < look && (s.due > 0 || full()); i++ {
		s.hand = (s.hand + 1) & (s.circuits.len() - 1)
		for c := s.circuits.in(s.hand); c != nil && (s.due > 0 || full()); c = c.next {
			if c.member.untouch() {
				used = append(used, c.member)
			} else if !s.evict(c.member, false) {
				idle = append(idle, c.member)
			}
		}
		s.due = max(s.due-1, 0)
	}
	for _, next := range []struct {
		members []*member
		force   bool
	}{{used, false}, {idle, true}, {used, true}} {
		for _, m := range next.members {
			if full() {
				s.evict(m, next.force)
			}
		}
	}
}

// evict makes a member leave if no call is under way and it loses nothing or, with force, no
// more than what a closed circuit remembers, which is counted.
func (s *Set) evict(m *member, force bool) bool {
	if m.circuit.State() != toolcircuit.StateClosed || !m.retire() {
		return false
	}
	snap := m.circuit.Snapshot() // only now, for until then a call could open it
	clean := snap.Streak == 0 && snap.Openings == 0 && snap.Window.Failures == 0
	if snap.State != toolcircuit.StateClosed || !clean && !force {
		m.stay()
		return false
	}
	if !clean {
		s.forgotten.Add(1)
	}
	s.circuits.remove(m)
	return true
}
