package toolset

import (
	"time"

	"github.com/toolcircuit/toolcircuit"
)

// look caps the buckets that one new circuit looks at, so that making a circuit takes as long
// among many as among few.
const look = minBuckets

// makeRoom drops circuits that have been idle and, at the cap, others. At the cap it prefers
// circuits that remember nothing and were not used since the cursor last came to them, so that a
// flood of new names evicts itself. If it finds too few, it drops other closed ones: first those
// that were used, then those that remember something. The caller holds s.mu.
func (s *Set) makeRoom(now time.Time, p *plan) {
	if now.Sub(s.swept) >= p.idleAfter {
		s.swept, s.unswept = now, s.circuits.len()
	}
	full := func() bool { return s.circuits.size >= p.maxCircuits }
	var idle, used []*member
	for i := 0; i < look && (s.unswept > 0 || full()); i++ {
		s.cursor = (s.cursor + 1) & (s.circuits.len() - 1)
		for c := s.circuits.in(s.cursor); c != nil && (s.unswept > 0 || full()); c = c.next {
			if c.member.untouch() {
				used = append(used, c.member)
			} else if !s.evict(c.member, now, false) {
				idle = append(idle, c.member)
			}
		}
		s.unswept = max(s.unswept-1, 0)
	}
	for _, next := range []struct {
		members []*member
		force   bool
	}{{used, false}, {idle, true}, {used, true}} {
		for _, m := range next.members {
			if full() {
				s.evict(m, now, next.force)
			}
		}
	}
}

// evict removes m if no call is under way and m remembers nothing. With force it also removes a
// closed circuit that remembers something, and counts it. It reports whether it did.
func (s *Set) evict(m *member, now time.Time, force bool) bool {
	if m.circuit.State() == toolcircuit.StateOpen || !m.retire() {
		return false
	}
	snap := m.circuit.Snapshot() // only now: before retire a call could change it
	closed := snap.State == toolcircuit.StateClosed
	clean := snap.Streak == 0 && snap.Openings == 0 && snap.Window.Failures == 0
	if !closed {
		clean = faded(snap, now)
	}
	if !clean && !(closed && force) {
		m.stay()
		return false
	}
	if !clean {
		s.forgotten.Add(1)
	}
	s.remove(m)
	return true
}

// faded reports whether a circuit that is not closed has been left alone for so long that its
// openings would have faded if it had closed at the end of its wait. The wait is at most the
// curve's for the last opening, with all jitter. A wait that the dependency asked for may be
// longer, so the circuit must also refuse nobody now.
func faded(snap toolcircuit.Snapshot, now time.Time) bool {
	if !snap.RetryAt.IsZero() || snap.Override != toolcircuit.OverrideNone {
		return false
	}
	p, elapsed := snap.Policy, float64(now.Sub(snap.Since))
	most := float64(p.MaxCooldown)
	var wait, fade float64
	for range snap.Openings {
		wait = min(max(wait*p.Multiplier, float64(p.Cooldown)), most)
		if fade += wait; fade > elapsed {
			return false
		}
	}
	return elapsed >= min(wait*(1+p.Jitter), most)+fade
}
