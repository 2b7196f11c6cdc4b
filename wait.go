package toolcircuit

import (
	"context"
	"fmt"
	"time"
)

// Wait returns nil once a call of this tool would run. It does not reserve the probe: callers that
// wake at one moment compete for it. Safe for concurrent use.
//
// When ctx ends, Wait returns ctx.Err(). It returns the refusal, an [*OpenError], at once if
// waiting cannot help:
//
//   - an operator's override keeps the circuit open
//   - the circuit is open and ctx's deadline comes before the end of its cooldown. A deadline is
//     real time, whatever Options.Clock says
//
// Wait does not give up while another call is the probe, because a probe may end before its lease.
func (c *ToolCircuit) Wait(ctx context.Context) error {
	c.mustHave(ctx)
	if ctx.Err() == nil {
		c.touch(ctx) // in a Fleet the store may know more
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

// Monitor probes the dependency until ctx ends, and returns ctx.Err(). It runs check in the
// caller's goroutine:
//
//   - as the probe, once the cooldown is over. If the outcome is ignored, Monitor sleeps for one
//     Policy.Cooldown
//   - with every > 0, also each every during a cooldown, unless the dependency itself asked for
//     the wait. An answer ends the rest of the cooldown, and any other outcome changes nothing
//
// Monitor sleeps while the circuit is closed or overridden. The outcomes of check are judged like
// a call's, with one difference: where a call is ignored, kinds that prove an answer (invalid,
// unauthorized, not_found, conflict) are healthy, unless nothing was sent, as with an error marked
// [Invalid] or a host name that does not exist. A check that always fails keeps the circuit open,
// also for tools with SideEffects.
//
// A negative every is an error. A nil ctx or check panics. A panic of check passes through and
// ends Monitor. In a probe it counts as a failure.
func (c *ToolCircuit) Monitor(ctx context.Context, every time.Duration, check func(context.Context) error) error {
	c.mustHave(ctx)
	if check == nil {
		panic("toolcircuit: Monitor: check is nil")
	}
	if every < 0 {
		return fmt.Errorf("toolcircuit: Monitor: every: got %v, want 0 or more", every)
	}
	m := &ToolCircuit{c.circuit, &Tool{Name: c.tool.Name, monitor: true}} // without SideEffects, so that it is not the last to probe
	for ctx.Err() == nil {
		changed := m.changes()
		s := m.state.Load()
		cooling, refusal := m.look(s)
		switch {
		case s.override != OverrideNone || s.State == StateClosed:
			m.sleep(ctx, 0, changed)
		case refusal == nil: // it can be the probe
			p, err := m.Allow(ctx)
			if err == nil && m.probe(ctx, &p, check).Effect == EffectIgnore {
				m.sleep(ctx, s.Cooldown, nil)
			}
		case s.State == StateHalfOpen || every == 0 || cooling <= every || s.gate.asked:
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

// changes returns a channel that is closed when the next change of the state is published.
func (c *circuit) changes() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// sleep returns when ctx ends, when changed is closed, or after d, if d is positive. It reports
// whether d is over.
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
