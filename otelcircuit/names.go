package otelcircuit

import "sync"

// other is the name that stands for all those beyond the bound, as in the semantic conventions.
const other = "_OTHER"

// names decides which names become attributes: those that are listed, and as many others as there
// is room for, first come.
type names struct {
	mu    sync.Mutex
	shown map[string]bool
	room  int
}

// list notes names that are always shown.
func (n *names) list(listed []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range listed {
		n.show(name)
	}
}

func (n *names) show(name string) {
	if n.shown == nil {
		n.shown = map[string]bool{}
	}
	n.shown[name] = true
}

// bounded returns name if it is to be shown, or what stands for it.
func (n *names) bounded(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case name == "" || n.shown[name]:
	case n.room > 0:
		n.room--
		n.show(name)
	default:
		return other
	}
	return name
}
