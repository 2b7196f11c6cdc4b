package toolcircuit

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// Snapshot is what a circuit was at one moment.
type Snapshot struct {
	Dependency string    `json:"dependency"`
	State      State     `json:"state"`            // as State gives it
	Since      time.Time `json:"since"`            // when the epoch began; of a twin's first, when its settings were made
	RetryAt    time.Time `json:"retryAt,omitzero"` // until when the state refuses calls of tools without SideEffects; zero if it does not
	Override   Override  `json:"override,omitempty"`
	Shared     Shared    `json:"shared,omitempty"` // whether a Fleet shares the state
	Seq        uint64    `json:"seq"`
	Openings   int       `json:"openings"`        // in memory at this moment
	Rule       Rule      `json:"rule,omitempty"`  // that led to State
	Cause      Kind      `json:"cause,omitempty"` // of the streak or the opening
	Err        error     `json:"-"`               // the last counted failure of it
	Streak     int       `json:"streak"`
	Window     Window    `json:"window"`

	Refused      uint64 `json:"refused"`      // calls
	Unclassified uint64 `json:"unclassified"` // outcomes that no rule knew: why it may never open
	Stale        uint64 `json:"stale"`        // outcomes that came after the circuit had moved on
	HookPanics   uint64 `json:"hookPanics"`   // recovered panics of Classify, OnEvent, OnCall and Message

	Policy Policy `json:"policy"`
}

// Window is what the window of Policy.FailureRate holds; zero without one. Healthy and
// counted calls are calls.
type Window struct {
	Calls    int `json:"calls"`
	Failures int `json:"failures"`
}

// Snapshot returns what the circuit is now. It rolls the window on and changes nothing.
func (c *ToolCircuit) Snapshot() Snapshot {
	s, now := c.made().state.Load(), c.clock.Now()
	snap := Snapshot{
		Dependency:   c.dependency,
		State:        s.at(now),
		Since:        s.since,
		Override:     s.override,
		Shared:       c.shared(s),
		Seq:          s.seq,
		Openings:     s.openingsAt(now),
		Rule:         s.rule,
		Streak:       s.streak,
		Refused:      s.refused.sum(),
		Unclassified: c.unclassified.Load(),
		Stale:        c.stale.Load(),
		HookPanics:   c.hookPanics.Load(),
		Policy:       s.Policy,
	}
	if s.trouble != nil {
		snap.Cause, snap.Err = s.trouble.cause, s.trouble.err
	}
	if g := s.gate; g != nil && g.remaining(g.hold, now.Sub(g.from)) > 0 {
		snap.RetryAt = g.from.Add(g.hold)
	}
	if s.window != nil {
		snap.Window.Calls, snap.Window.Failures = s.window.Sum(now)
	}
	return snap
}

// State returns the state as of now: an open circuit whose cooldown is over reads half_open.
// It takes nothing and leaves the override out of account.
func (c *ToolCircuit) State() State {
	s := c.made().state.Load()
	if s.State != StateOpen {
		return s.State
	}
	return s.at(c.clock.Now())
}

// Ready reports whether this tool's call would be let through now. It takes nothing.
func (c *ToolCircuit) Ready() bool {
	_, refusal := c.look(c.made().state.Load())
	return refusal == nil
}

// tally counts on several words, each in a cache line of its own. Calls that an outage refuses
// come all at once, and one word that all processors write would make them wait for one another.
type tally [1 << tallyBits]struct {
	n atomic.Uint64
	_ [56]byte
}

const tallyBits = 5

// add counts one. The address of the goroutine's stack tells on which word: a goroutine mostly
// stays on one processor, and a sync.Pool, which knows the processor, costs as much as the rest
// of a refusal.
func (t *tally) add() {
	var here byte
	t[uint64(uintptr(unsafe.Pointer(&here)))*0x9E3779B97F4A7C15>>(64-tallyBits)].n.Add(1)
}

// sum returns what was counted, 0 if t is nil.
func (t *tally) sum() (n uint64) {
	if t != nil {
		for i := range t {
			n += t[i].n.Load()
		}
	}
	return n
}
