package repeat

import "time"

// Size returns how many things a past remembers.
func (p *Past) Size() int { return len(p.records) + p.kept.Len() + len(p.seen.set) + len(p.history) }

// Peek returns why a guarded call must not begin, and begins none.
func (p *Past) Peek(id Digest, now time.Time) *Refusal {
	r := p.records[id]
	if r == nil {
		r = &record{id: id}
	}
	return p.refusal(r, now)
}
