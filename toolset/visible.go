package toolset

import (
	"context"
	"slices"
	"time"

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
	hidden, _ := p.hidden(dependency, m)
	return hidden
}

// hidden is hides, and says until when. The time is zero where only an operator can end it.
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

// Watch calls changed whenever what [Visible] returns may have changed, in any scope: after a
// circuit opened, half-opened, closed or was overridden, and after Apply and SetOverride. It may
// also call where nothing changed, so compare what you show. A tool that comes back because its
// cooldown is over makes no call: [Set.NextChange] says when that is. Nor does an opening that a
// late answer makes as long as Config.HideAtLeast: the next call tells. With Config.Hide at
// HideNever only Apply and SetOverride make calls.
//
// The Set owns no goroutine and no timer. changed runs in the goroutine of the tool call, or of
// the operator's, that caused the change, with no lock held, and may run concurrently; it may
// use the Set. It should do no more than wake the goroutine of an adapter:
//
//	wake := make(chan struct{}, 1)
//	defer set.Watch(func() {
//		select {
//		case wake <- struct{}{}:
//		default:
//		}
//	})()
//
// While it blocks, it delays that caller, and the later events of the same circuit. A panic in it
// is counted in Snapshot.HookPanics.
//
// stop ends the calls. One that is under way goes on. A nil changed panics.
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

// watcher is one call of Watch.
type watcher struct{ changed func() }

// rewatch replaces the watchers with what change makes of a copy of them.
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

// event is the OnEvent of all circuits.
func (s *Set) event(ctx context.Context, e toolcircuit.Event) {
	if s.onEvent != nil {
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

// NextChange returns how long it takes until the next hidden tool comes back by itself, over all
// scopes, and 0 if none does. It is what to set a timer to, on the Set's clock. When the timer
// fires, and after each call that [Set.Watch] makes, ask again and then make the list anew; in
// this order no tool comes back unnoticed. It looks at all circuits.
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
