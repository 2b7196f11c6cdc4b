package toolset

import (
	"context"

	"github.com/toolcircuit/toolcircuit"
)

// Visible returns those of tools that a model should be shown now, in the same order and in a
// slice of its own. With Config.Hide at HideOpen it leaves out each tool whose circuit is open
// with cooldown left, if the whole opening is at least Config.HideAtLeast, or is kept open by
// an override. If that would be all of them, it returns them all.
//
// It goes by state and clock alone and takes nothing, so that a tool is back when its cooldown
// is over. A hidden tool that is called all the same is refused as ever.
func Visible[T any](ctx context.Context, s *Set, tools []T, name func(T) string) []T {
	if s == nil || ctx == nil || name == nil {
		panic("toolset: Visible: the Set, ctx or name is nil")
	}
	p := s.inForce()
	shown := make([]T, 0, len(tools))
	for _, t := range tools {
		if dependency, m := s.existing(ctx, p, name(t)); !p.hides(dependency, m) {
			shown = append(shown, t)
		}
	}
	if len(shown) == 0 {
		shown = append(shown, tools...)
	}
	return shown
}

// hides reports whether the state of a dependency, or of the circuit that it has, hides its
// tools.
func (p *plan) hides(dependency string, m *member) bool {
	override := p.overrides[dependency]
	switch {
	case p.config.Disabled || p.config.Hide != HideOpen:
		return false
	case override != toolcircuit.OverrideNone:
		return override == toolcircuit.OverrideOpen
	case m == nil || m.circuit.Ready():
		return false
	}
	snap := m.circuit.Snapshot()
	return snap.State == toolcircuit.StateOpen && snap.RetryAt.Sub(snap.Since) >= p.config.HideAtLeast
}
