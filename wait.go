package toolcircuit

import (
	"context"
	"fmt"
	"time"
)

// Wait returns nil once this tool's call would be let through. It takes nothing: callers
// that wake together compete for the probe like any others.
//
// It returns the refusal, an [*OpenError], at once where waiting cannot help: the rest of the
// cooldown is longer than the time until ctx's deadline, or a manual override keeps the circuit
// open. A context's deadline is real time, and so is the time until it, whatever
// Options.Clock says. When ctx ends Wait returns ctx.Err(). The wait for another's probe may
// end sooner than its lease, so it is never given up in advance. Safe for concurrent use.
func (c *ToolCircuit) Wait(ctx context.Context) error {
	c.mustHave(ctx)
	if ctx.Err() == nil {
		c.touch(ctx) // the record of a circuit in a Fleet may say more
	}
	for ctx.Err() == nil {
		changed := c.changes() // before the look, so that no change is missed
		s := c.state.Load()
		wait, refusal := c.look(s)
		switch {
		case refusal == nil || c.rides(ctx, s):
			return nil
		case refusal.Reason == ReasonManualOpen:
			return refusal
		}
		cooling := s.gate.remaining(s.gate.hold, c.clock.Since(s.gate.from))
		if deadline, ok := ctx.Deadline(); ok && s.State == StateOpen && time.Until(deadline) <= cooling {
			return refusal
		}
		c.sleep(ctx, wait, changed)
	}
	return ctx.Err()
}

// Monitor probes the dependency from the caller's goroutine until ctx ends, whose error it
// returns. Whenever a probe is due it runs check as that probe; if that says nothing, it
// sleeps for one Policy.Cooldown. With every > 0 it also runs check each every during a
// cooldown that the dependency did not ask for: an answer ends what is left of it, and
// anything else changes nothing.
//
// The outcomes of check are judged like a call's, except that kinds that prove an answer
// (invalid, unauthorized, not_found, conflict) are healthy. An error marked [Invalid] proves
// none. While the circuit is closed or overridden Monitor sleeps. A check that always fails
// keeps the circuit open, also for tools with SideEffects.
//
// A negative every is an error; a nil ctx or check panics. A panic of a probe counts; any panic
// of check passes through and so ends Monitor.
func (c *ToolCircuit) Monitor(ctx context.Context, every time.Duration, check func(context.Context) error) error {
	c.mustHave(ctx)
	if check == nil {
		panic("toolcircuit: Monitor: check is nil")
	}
	if every < 0 {
		return fmt.Errorf("toolcircuit: Monitor: every: got %v, want 0 or more", every)
	}
	m := &ToolCircuit{c.circuit, &Tool{Name: c.tool.Name, monitor: true}} // without SideEffects
	for ctx.Err() == nil {
		changed := m.changes()
		s := m.state.Load()
		cooling, refusal := m.look(s)
		switch {
		case s.override != OverrideNone || s.State == StateClosed:
			m.sleep(ctx, 0, changed)
		case refusal == nil: // a probe is due
			p, err := m.Allow(ctx)
			if err == nil && m.probe(ctx, &p, check).Effect == EffectIgnore {
				m.sleep(ctx, s.Cooldown, nil)
			}
		case s.State == StateHalfOpen || every == 0 || cooling <= every || !s.gate.byCurve:
			m.sleep(ctx, cooling, changed)
		case m.sleep(ctx, every, changed):
			if s := m.state.Load(); s.State == StateOpen && s.override == OverrideNone {
				p := Permit{c: m, by: s}
				p.start()
				m.probe(ctx, &p, check)
			}
		}
	}
	return ctx.Err()
}

// probe runs a Monitor's check under a permit.
func (c *ToolCircuit) probe(ctx context.Context, p *Permit, check func(context.Context) error) Verdict {
	_, v, _ := run(ctx, p, func(ctx context.Context) (struct{}, error) { return struct{}{}, check(ctx) })
	return v
}

// changes returns a channel that the next published change of the circuit closes.
func (c *circuit) changes() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// sleep returns when ctx ends, something changes or, with d > 0, d is over: only then it
// reports true.
func (c *circuit) sleep(ctx context.Context, d time.Duration, changed <-chan struct{}) bool {
	var over <-chan time.Time
	if d > 0 {
		timer := c.clock.Timer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
		return true
	case <-ctx.Done():
	case <-changed:
	}
	return false
}
