package otelcircuit

import (
	"strings"
	"sync"
	"sync/atomic"
)

// other is the name that stands for all those beyond the bound, as in the semantic conventions.
const other = "_OTHER"

// names decides which names become attributes: those that are listed, and as many others as there
// is room for, first come.
type names struct {
	listed  func() []string // set before the first call; asked again after changed
	changed atomic.Bool

	mu    sync.Mutex
	shown map[string]bool
	room  int
}

func newNames(room int) *names {
	n := &names{shown: map[string]bool{"": true}, room: room}
	n.changed.Store(true)
	return n
}

// bounded returns name as it is to be shown, or what stands for it.
func (n *names) bounded(name string) string {
	name = valid(name)
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.shown[name] && n.changed.Swap(false) {
		for _, l := range n.listed() {
			n.shown[valid(l)] = true
		}
	}
	switch {
	case n.shown[name]:
	case n.room > 0:
		n.room--
		n.shown[name] = true
	default:
		return other
	}
	return name
}

// valid returns text with U+FFFD in place of what is not UTF-8.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
