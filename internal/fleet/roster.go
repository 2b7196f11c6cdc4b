package fleet

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Member is what a Roster keeps.
type Member interface {
	comparable
	Key() string
	Lost() bool // it does not exist any more
}

// Roster knows the members of a Fleet by their keys, and which of them need to be looked at. Make
// one with NewRoster. All methods are safe for concurrent use.
type Roster[M Member] struct {
	mu      sync.Mutex
	members map[string]M // nil: closed
	sweepAt int          // the number of members at which lost ones are dropped
	fresh   []M          // nobody has asked for them yet
	active  map[M]struct{}
	busy    map[M]struct{}
}

// NewRoster returns an empty Roster.
func NewRoster[M Member]() *Roster[M] {
	return &Roster[M]{members: map[string]M{}, sweepAt: 64, active: map[M]struct{}{}, busy: map[M]struct{}{}}
}

// Enter takes in m as a new member. It is an error if the Roster is closed, or if another member has
// the key and is not lost.
func (r *Roster[M]) Enter(m M) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.members == nil {
		return errors.New("the Fleet is closed")
	}
	if other, ok := r.members[m.Key()]; ok && !other.Lost() {
		return fmt.Errorf("the key %q is another circuit's", m.Key())
	}
	if len(r.members) >= r.sweepAt {
		for _, m := range r.members {
			if m.Lost() {
				r.drop(m)
			}
		}
		r.sweepAt = 2*len(r.members) + 64
	}
	r.members[m.Key()] = m
	r.fresh = append(r.fresh, m)
	return nil
}

// Drop takes out m.
func (r *Roster[M]) Drop(m M) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(m)
}

func (r *Roster[M]) drop(m M) {
	if r.members[m.Key()] == m {
		delete(r.members, m.Key())
	}
	delete(r.active, m)
	delete(r.busy, m)
}

// Close takes out all members and returns them. It reports false if the Roster was closed before.
func (r *Roster[M]) Close() (members []M, open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	members, open = slices.Collect(maps.Values(r.members)), r.members != nil
	r.members, r.fresh, r.active, r.busy = nil, nil, nil, nil
	return members, open
}

// Closed reports whether the Roster is closed.
func (r *Roster[M]) Closed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members == nil
}

// Get returns the member with a key, or the zero M.
func (r *Roster[M]) Get(key string) M {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members[key]
}

// Any returns one member, if there is any.
func (r *Roster[M]) Any() []M {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.members {
		return []M{m}
	}
	return nil
}

// New returns the members that are new, once.
func (r *Roster[M]) New() []M {
	r.mu.Lock()
	defer r.mu.Unlock()
	members := r.fresh
	r.fresh = nil
	return members
}

// Renew makes members new again.
func (r *Roster[M]) Renew(members []M) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fresh = append(r.fresh, members...)
}

// Mark says whether a member is active, and whether it is busy.
func (r *Roster[M]) Mark(m M, active, busy bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.members[m.Key()] == m {
		r.active = put(r.active, m, active)
		r.busy = put(r.busy, m, busy)
	}
}

// put puts m into a set, or takes it out. An empty set is a new one, because the old one would keep
// the memory of its largest size.
func put[M comparable](set map[M]struct{}, m M, in bool) map[M]struct{} {
	switch {
	case in:
		set[m] = struct{}{}
	case len(set) > 0:
		if delete(set, m); len(set) == 0 {
			return map[M]struct{}{}
		}
	}
	return set
}

// Active returns the members that are active.
func (r *Roster[M]) Active() []M {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.active))
}

// Busy returns the members that are busy.
func (r *Roster[M]) Busy() []M {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.busy))
}
