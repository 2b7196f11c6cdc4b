package toolset

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"sync/atomic"

	"github.com/toolcircuit/toolcircuit"
)

// key identifies a circuit.
type key struct{ dependency, scope string }

// shared returns the key in a Fleet. It hides the label of a scope from the store.
func (k key) shared() string {
	if k.scope == "" {
		return k.dependency
	}
	h := sha256.Sum256([]byte(k.scope))
	return k.dependency + "@" + hex.EncodeToString(h[:16])
}

// member is one circuit of a Set. It is small, because there may be very many.
type member struct {
	circuit *toolcircuit.ToolCircuit // as the tool own sees it
	own     *toolcircuit.Tool
	scope   string
	views   atomic.Pointer[[]view] // as other tools see it, made when needed
	calls   atomic.Int32           // under way; -1: the member has left the Set
	marks   atomic.Uint32          // the lowest bit is usedAgain; the rest counts calls refused as busy
}

// usedAgain marks a member that was used since eviction last looked at it.
const usedAgain = 1

// view is a circuit as a tool sees it. tool is nil for a tool without an entry in the config.
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
			v.circuit = m.circuit.WithTool(toolcircuit.Tool{Name: m.circuit.Dependency()})
		} else {
			v.circuit = m.circuit.WithTool(*t)
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

// enter counts a call. left reports that the member has left the Set, busy that limit calls are
// under way. Then the call is not counted.
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

// busy reports whether limit calls are under way. A limit of 0 is none.
func (m *member) busy(limit int) bool { return limit > 0 && int(m.calls.Load()) >= limit }

// left reports whether the member has left the Set.
func (m *member) left() bool { return m.calls.Load() < 0 }

func (m *member) leave() { m.calls.Add(-1) }

// retire makes the member leave, unless a call is under way. It may come back with stay until the
// Set's mutex is released.
func (m *member) retire() bool { return m.calls.CompareAndSwap(0, -1) }

func (m *member) stay() { m.calls.Store(0) }

// touch notes that the member is in use.
func (m *member) touch() {
	if m.marks.Load()&usedAgain == 0 {
		m.marks.Or(usedAgain)
	}
}

// untouch removes the note of touch and reports whether it was there.
func (m *member) untouch() bool {
	return m.marks.Load()&usedAgain != 0 && m.marks.And(^uint32(usedAgain))&usedAgain != 0
}

// countBusy counts a call refused as busy.
func (m *member) countBusy() { m.marks.Add(2 * usedAgain) }

// refused returns the number of calls refused as busy.
func (m *member) refused() int { return int(m.marks.Load() / (2 * usedAgain)) }

// table finds members by key without a lock, because a chain never changes: it is replaced, under
// the Set's mutex. A sync.Map would need twice the memory.
type table struct {
	seed    maphash.Seed
	buckets atomic.Pointer[[]atomic.Pointer[chain]] // their number is a power of two
	size    int
}

// minBuckets is the size of the smallest table.
const minBuckets = 16

// chain is the members of one bucket.
type chain struct {
	member *member
	next   *chain
}

func newTable() *table {
	t := &table{seed: maphash.MakeSeed()}
	buckets := make([]atomic.Pointer[chain], minBuckets)
	t.buckets.Store(&buckets)
	return t
}

func (t *table) bucket(buckets []atomic.Pointer[chain], k key) *atomic.Pointer[chain] {
	h := maphash.String(t.seed, k.dependency)
	if k.scope != "" {
		h = h*31 + maphash.String(t.seed, k.scope)
	}
	return &buckets[h&uint64(len(buckets)-1)]
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
	switch n := t.len(); {
	case t.size >= 2*n:
		t.resize(2 * n)
	case t.size < n/2 && n > minBuckets:
		t.resize(n / 2)
	}
	t.size++
	t.put(*t.buckets.Load(), m)
}

func (t *table) resize(n int) {
	buckets := make([]atomic.Pointer[chain], n)
	for m := range t.all {
		t.put(buckets, m)
	}
	t.buckets.Store(&buckets)
}

func (t *table) put(buckets []atomic.Pointer[chain], m *member) {
	b := t.bucket(buckets, m.key())
	b.Store(&chain{m, b.Load()})
}

func (t *table) remove(m *member) {
	b := t.bucket(*t.buckets.Load(), m.key())
	b.Store(b.Load().without(m))
	t.size--
}

// without returns a chain of the other members.
func (c *chain) without(m *member) *chain {
	if c.member == m {
		return c.next
	}
	return &chain{c.member, c.next.without(m)}
}

// len returns the number of buckets.
func (t *table) len() int { return len(*t.buckets.Load()) }

// in returns the members of bucket i. A later remove does not change them.
func (t *table) in(i int) *chain { return (*t.buckets.Load())[i].Load() }

// all ranges over the members. Members may be removed meanwhile.
func (t *table) all(yield func(*member) bool) {
	for i := range t.len() {
		for c := t.in(i); c != nil; c = c.next {
			if !yield(c.member) {
				return
			}
		}
	}
}
