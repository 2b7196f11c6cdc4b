package toolset

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/toolcircuit/toolcircuit"
)

// key names a circuit.
type key struct{ dependency, scope string }

// member is one circuit of a Set. There may be very many, so it is small.
type member struct {
	circuit *toolcircuit.ToolCircuit // as the tool own sees it
	own     *toolcircuit.Tool
	scope   string
	views   atomic.Pointer[[]view] // as other tools see it, made when needed
	calls   atomic.Int32           // under way; -1: the member has left the Set
	used    atomic.Bool            // again, since eviction last looked
}

// view is a circuit as a tool sees it, nil for one without an entry in the config.
type view struct {
	tool    *toolcircuit.Tool
	circuit *toolcircuit.ToolCircuit
}

func (m *member) key() key { return key{m.circuit.Dependency(), m.scope} }

// as returns the circuit as a tool sees it.
func (m *member) as(t *toolcircuit.Tool) *toolcircuit.ToolCircuit {
	if t == m.own {
		return m.circuit
	}
	for {
		views := m.views.Load()
		if views != nil {
			for _, v := range *views {
				if v.tool == t {
					return v.circuit
				}
			}
		}
		v := view{tool: t}
		if t == nil {
			v.circuit = m.circuit.For(toolcircuit.Tool{Name: m.circuit.Dependency()})
		} else {
			v.circuit = m.circuit.For(*t)
		}
		more := []view{v}
		if views != nil {
			more = append(more, *views...)
		}
		if m.views.CompareAndSwap(views, &more) {
			return v.circuit
		}
	}
}

// enter counts a call, unless the member has left or as many as limit are under way.
func (m *member) enter(limit int) (left, busy bool) {
	for {
		switch n := m.calls.Load(); {
		case n < 0:
			return true, false
		case limit > 0 && int(n) >= limit:
			return false, true
		case m.calls.CompareAndSwap(n, n+1):
			return false, false
		}
	}
}

// busy reports whether as many calls as limit are under way.
func (m *member) busy(limit int) bool { return limit > 0 && int(m.calls.Load()) >= limit }

func (m *member) leave() { m.calls.Add(-1) }

// retire makes the member leave, unless a call is under way.
func (m *member) retire() bool { return m.calls.CompareAndSwap(0, -1) }

// touch notes that the member is in use.
func (m *member) touch() {
	if !m.used.Load() {
		m.used.Store(true)
	}
}

// table finds members by key without a lock: its chains never change, they are replaced. Those
// who replace them hold the Set's mutex. A sync.Map would need twice the memory.
type table struct {
	seed    maphash.Seed
	buckets atomic.Pointer[[]atomic.Pointer[chain]] // a power of two of them
	size    int
}

// chain is the members of one bucket.
type chain struct {
	member *member
	next   *chain
}

func newTable() *table {
	t := &table{seed: maphash.MakeSeed()}
	buckets := make([]atomic.Pointer[chain], 16)
	t.buckets.Store(&buckets)
	return t
}

func (t *table) bucket(buckets []atomic.Pointer[chain], k key) *atomic.Pointer[chain] {
	return &buckets[maphash.Comparable(t.seed, k)&uint64(len(buckets)-1)]
}

func (t *table) find(k key) *member {
	for c := t.bucket(*t.buckets.Load(), k).Load(); c != nil; c = c.next {
		if c.member.key() == k {
			return c.member
		}
	}
	return nil
}

func (t *table) insert(m *member) {
	buckets := *t.buckets.Load()
	if t.size++; t.size > 2*len(buckets) {
		more := make([]atomic.Pointer[chain], 2*len(buckets))
		for old := range t.all {
			t.put(more, old)
		}
		buckets = more
		t.buckets.Store(&more)
	}
	t.put(buckets, m)
}

func (t *table) put(buckets []atomic.Pointer[chain], m *member) {
	b := t.bucket(buckets, m.key())
	b.Store(&chain{m, b.Load()})
}

// len returns the number of buckets.
func (t *table) len() int { return len(*t.buckets.Load()) }

// sweep takes those members out of bucket i for which drop is true.
func (t *table) sweep(i int, drop func(*member) bool) {
	b := &(*t.buckets.Load())[i]
	b.Store(b.Load().without(func(m *member) bool {
		if !drop(m) {
			return false
		}
		t.size--
		return true
	}))
}

// without returns what is left of a chain, itself if that is all.
func (c *chain) without(drop func(*member) bool) *chain {
	if c == nil {
		return nil
	}
	next := c.next.without(drop)
	switch {
	case drop(c.member):
		return next
	case next == c.next:
		return c
	}
	return &chain{c.member, next}
}

// all ranges over the members.
func (t *table) all(yield func(*member) bool) {
	buckets := *t.buckets.Load()
	for i := range buckets {
		for c := buckets[i].Load(); c != nil; c = c.next {
			if !yield(c.member) {
				return
			}
		}
	}
}
