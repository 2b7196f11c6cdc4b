package toolset

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/toolcircuit/toolcircuit"
)

// Visible returns those of tools that a model should be shown now, in the same order and in a new
// slice. With Config.Hide at HideOpen it leaves out a tool
//
//   - if its circuit is open, its cooldown is not over, and the whole opening is at least
//     Config.HideAtLeast
//   - if an override keeps its circuit open
//
// If no tool is left, it returns all of them. It only reads state and clock, so a tool is back
// when its cooldown is over. A hidden tool that is called anyway is refused as usual.
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

// hides reports whether the tools of a dependency are hidden, given its member, which may be nil.
func (p *plan) hides(dependency string, m *member) bool {
	hidden, _ := p.hidden(dependency, m)
	return hidden
}

// hidden is hides with the time when that ends, zero if only an operator can end it.
func (p *plan) hidden(dependency string, m *member) (hidden bool, until time.Time) {
	override := p.overrides[dependency]
	switch {
	case !p.hiding():
		return false, time.Time{}
	case override != toolcircuit.OverrideNone:
		return override == toolcircuit.OverrideOpen, time.Time{}
	case m == nil || m.circuit.Ready():
		return false, time.Time{}
	}
	snap := m.circuit.Snapshot()
	return snap.State == toolcircuit.StateOpen && snap.RetryAt.Sub(snap.Since) >= p.config.HideAtLeast, snap.RetryAt
}

// hiding reports whether any state hides a tool.
func (p *plan) hiding() bool { return !p.config.Disabled && p.config.Hide == HideOpen }

// Watch calls changed whenever the result of [Visible] may have changed, in any scope: after a
// circuit has opened, half-opened, closed or been overridden, and after Apply and SetOverride.
// With Config.Hide at HideNever only Apply and SetOverride cause a call. changed may also be
// called when nothing has changed, so compare what you show. It is not called
//
//   - when a tool comes back because its cooldown is over: see [Set.NextChange]
//   - when a late answer makes an opening as long as Config.HideAtLeast: the next call of changed
//     covers that
//
// changed runs in the goroutine that caused the change, a tool call's or an operator's, with no
// lock held. It may run concurrently and may use the Set. While it blocks, it delays that
// goroutine and later events of the same circuit. A panic in it is counted in Snapshot.HookPanics.
// It should only wake a goroutine of the adapter, because the Set owns none:
//
//	wake := make(chan struct{}, 1)
//	defer set.Watch(func() {
//		select {
//		case wake <- struct{}{}:
//		default:
//		}
//	})()
//
// stop ends the calls, except one that is under way. A nil changed panics.
func (s *Set) Watch(changed func()) (stop func()) {
	s.inForce()
	if changed == nil {
		panic("toolset: Watch: changed is nil")
	}
	w := &watcher{changed}
	s.rewatch(func(others []*watcher) []*watcher { return append(others, w) })
	return func() {
		s.rewatch(func(all []*watcher) []*watcher {
			return slices.DeleteFunc(all, func(other *watcher) bool { return other == w })
		})
	}
}

// watcher is what one Watch registered. Its pointer identifies it.
type watcher struct{ changed func() }

// rewatch replaces the watchers with what change returns for a copy of them.
func (s *Set) rewatch(change func([]*watcher) []*watcher) {
	for {
		old := s.watchers.Load()
		var all []*watcher
		if old != nil {
			all = slices.Clone(*old)
		}
		all = change(all)
		if s.watchers.CompareAndSwap(old, &all) {
			return
		}
	}
}

// event is the OnEvent of all circuits. It names the tool as [Set.named] does.
func (s *Set) event(ctx context.Context, e toolcircuit.Event) {
	if s.onEvent != nil {
		e.Tool = cmp.Or(e.Tool, e.Dependency)
		defer s.onEvent(ctx, e) // also if a watcher ends the goroutine
	}
	if s.plan.Load().hiding() {
		s.tell()
	}
}

// tell calls the watchers.
func (s *Set) tell() {
	if all := s.watchers.Load(); all != nil {
		s.tellEach(*all)
	}
}

func (s *Set) tellEach(all []*watcher) {
	if len(all) > 0 {
		defer s.tellEach(all[1:]) // also if this one ends the goroutine
		s.safely(all[0].changed)
	}
}

// NextChange returns the time until the next hidden tool comes back by itself, in any scope, or 0
// if none does. Set a timer of the Set's clock to it. When the timer fires, and after each call
// that [Set.Watch] makes, call NextChange first and then [Visible]. In this order no tool comes
// back unnoticed. It looks at all circuits.
func (s *Set) NextChange() (wait time.Duration) {
	p := s.inForce()
	for _, m := range s.members(func(*member) bool { return p.hiding() }) {
		hidden, until := p.hidden(m.circuit.Dependency(), m)
		if d := until.Sub(s.clock.Now()); hidden && d > 0 && (wait == 0 || d < wait) {
			wait = d
		}
	}
	return wait
}
