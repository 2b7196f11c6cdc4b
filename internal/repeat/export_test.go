package repeat

// Size returns how many things a past remembers.
func (p *Past) Size() int { return len(p.records) + p.kept.Len() + len(p.seen.set) + len(p.history) }
