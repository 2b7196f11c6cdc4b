package debugpage

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// History keeps the latest transitions of a Set's circuits, 4096 in all, for the timelines of the
// page, also of those that happen while nobody watches. The zero History is empty and ready:
//
//	var history debugpage.History
//	set, err := toolset.New(config, toolset.Options{OnEvent: history.OnEvent})
//	...
//	http.Handle("/debug/circuits/", debugpage.Handler(set, debugpage.Options{History: &history}))
//
// It is safe for concurrent use, belongs to one Set, and must not be copied.
type History struct {
	mu   sync.Mutex
	ring []transition
	next int // the place of the next one, once the ring is full
}

const (
	maxHistory  = 4096
	maxTimeline = 32 // transitions of one circuit that the page shows: about ten minutes of failed probes
)

// transition is the beginning of an epoch of a circuit.
type transition struct {
	circuit
	point
}

// circuit names a circuit of a Set.
type circuit struct{ dependency, scope string }

// point says since when a circuit is in a state.
type point struct {
	At    time.Time         `json:"at"`
	State toolcircuit.State `json:"state"`
	First bool              `json:"first,omitempty"` // the circuit was closed until then, from the beginning
}

// OnEvent is the hook for [toolset.Options]. If you have one of your own, call this in it.
func (h *History) OnEvent(ctx context.Context, e toolcircuit.Event) {
	if e.From != e.To {
		h.add(transition{circuit{e.Dependency, toolset.Scope(ctx)}, point{e.At, e.To, e.Seq == 1}})
	}
}

func (h *History) add(t transition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ring) < maxHistory {
		h.ring = append(h.ring, t)
		return
	}
	h.ring[h.next] = t
	h.next = (h.next + 1) % maxHistory
}

// heard returns what OnEvent has heard of each circuit, oldest first. Scoped says which dependencies
// have a circuit per scope. In the others the scope of a call's context tells nothing.
func (h *History) heard(scoped map[string]bool) map[circuit][]point {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[circuit][]point{}
	for _, t := range slices.Concat(h.ring[h.next:], h.ring[:h.next]) {
		if !scoped[t.dependency] {
			t.scope = ""
		}
		all[t.circuit] = append(all[t.circuit], t.point)
	}
	return all
}

// timeline returns the latest states of a circuit, oldest first: those shown before, those heard
// of, and the one that it is in. It leaves shown as it is.
func timeline(shown, heard []point, now point) []point {
	add := func(p point) {
		if !slices.ContainsFunc(shown, func(s point) bool { return s.State == p.State && s.At.Equal(p.At) }) {
			shown = append(slices.Clip(shown), p)
		}
	}
	if n := len(shown); n > 0 && shown[n-1].At.After(now.At) { // of one that the Set has let go
		shown = nil
	}
	for _, p := range heard {
		if !p.At.After(now.At) { // later ones come with a later look
			add(p)
		}
	}
	// An open circuit reads half-open when its cooldown is over, in the same epoch.
	if !slices.ContainsFunc(shown, func(s point) bool { return s.At.Equal(now.At) }) {
		add(now)
	}
	if !slices.IsSortedFunc(shown, point.compare) {
		shown = slices.SortedStableFunc(slices.Values(shown), point.compare)
	}
	return shown[max(0, len(shown)-maxTimeline):]
}

func (p point) compare(other point) int { return p.At.Compare(other.At) }
