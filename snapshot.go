package toolcircuit

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// Snapshot is what a circuit was at one moment.
type Snapshot struct {
	Dependency string    `json:"dependency"`
	State      State     `json:"state"`            // as [ToolCircuit.State] returns it
	Since      time.Time `json:"since"`            // when the epoch began; for the first epoch of a twin, when its policy was set
	RetryAt    time.Time `json:"retryAt,omitzero"` // until when tools without SideEffects are refused by the state; zero if they are not
	Override   Override  `json:"override,omitempty"`
	Shared     Shared    `json:"shared,omitempty"` // whether a Fleet shares the state
	Seq        uint64    `json:"seq"`
	Openings   int       `json:"openings"`        // in memory at this moment
	Rule       Rule      `json:"rule,omitempty"`  // that led to State
	Cause      Kind      `json:"cause,omitempty"` // of the streak or the opening
	Err        error     `json:"-"`               // the last counted failure of it
	Streak     int       `json:"streak"`
	Window     Window    `json:"window"`

	Refused      uint64 `json:"refused"`      // calls refused
	Unclassified uint64 `json:"unclassified"` // outcomes that no rule knew; if it grows, they may be why the circuit never opens
	Stale        uint64 `json:"stale"`        // outcomes that came after their epoch
	HookPanics   uint64 `json:"hookPanics"`   // recovered panics of Classify, OnEvent, OnCall, Message and Detail, and of the errors and contexts that they read

	Policy Policy `json:"policy"`
}

// Window is what the window of Policy.FailureRate holds. Without FailureRate it is zero. Calls are
// healthy and counted calls.
type Window struct {
	Calls    int `json:"calls"`
	Failures int `json:"failures"`
}

// Snapshot returns what the circuit is now. It changes nothing.
func (c *ToolCircuit) Snapshot() Snapshot {
	s, now := c.made().state.Load(), c.clock.Now()
	snap := Snapshot{
		Dependency:   c.dependency,
		State:        s.State,
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
	if g := s.gate; g != nil {
		passed := c.clock.Since(g.from)
		snap.State = s.at(g.from.Add(passed))
		if g.remaining(g.hold, passed) > 0 {
			snap.RetryAt = now.Add(-passed).Add(g.hold) // not from g.from: the host may have slept since
		}
	}
	if s.window != nil {
		snap.Window.Calls, snap.Window.Failures = s.window.Sum(now)
	}
	return snap
}

// State returns the state at this moment: an open circuit whose cooldown is over reads half_open.
// It changes nothing and does not look at the override.
func (c *ToolCircuit) State() State {
	s := c.made().state.Load()
	if s.State != StateOpen {
		return s.State
	}
	return s.at(s.gate.from.Add(c.clock.Since(s.gate.from)))
}

// Ready reports whether a call of this tool would run now. It changes nothing and does not reserve
// the probe.
func (c *ToolCircuit) Ready() bool {
	_, refusal := c.look(c.made().state.Load())
	return refusal == nil
}

// tally is a counter of several words, each in its own cache line. An outage refuses calls all at
// once, and processors that write one word would wait for one another.
type tally [1 << tallyBits]struct {
	n atomic.Uint64
	_ [56]byte
}

const tallyBits = 5

// add counts one. The address of the goroutine's stack chooses the word, because a goroutine
// mostly stays on one processor. A sync.Pool, which knows the processor, costs as much as the rest
// of a refusal.
func (t *tally) add() {
	var here byte
	t[uint64(uintptr(unsafe.Pointer(&here)))*0x9E3779B97F4A7C15>>(64-tallyBits)].n.Add(1)
}

// sum returns the count, 0 if t is nil.
func (t *tally) sum() (n uint64) {
	if t != nil {
		for i := range t {
			n += t[i].n.Load()
		}
	}
	return n
}
