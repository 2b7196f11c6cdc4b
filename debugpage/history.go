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
	Seen  bool              `json:"seen,omitempty"` // At is when it was seen first, and it may be so for longer

	epoch time.Time // when the epoch began
	until time.Time // of an open circuit: when its wait ends, as far as is known
}

// OnEvent is the hook for [toolset.Options]. If you have one of your own, call this in it.
func (h *History) OnEvent(ctx context.Context, e toolcircuit.Event) {
	if e.From != e.To {
		h.add(transition{circuit{e.Dependency, toolset.Scope(ctx)}, point{At: e.At, State: e.To, epoch: e.At, until: e.RetryAt}})
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
//
// A circuit is half-open from the end of its wait, in the epoch of its opening, until the probe has
// decided. That end makes no event.
func timeline(shown, heard []point, c toolcircuit.Snapshot, now time.Time) []point {
	line := slices.DeleteFunc(slices.Clone(shown), func(p point) bool {
		return p.epoch.After(c.Since) || // of a circuit that the Set has let go
			p.epoch.Equal(c.Since) && c.State == toolcircuit.StateOpen && p.State == toolcircuit.StateHalfOpen // the wait was made longer
	})
	find := func(s toolcircuit.State, epoch time.Time) int {
		return slices.IndexFunc(line, func(p point) bool { return p.State == s && p.epoch.Equal(epoch) })
	}
	for _, p := range heard[max(0, len(heard)-maxTimeline):] {
		if !p.epoch.After(c.Since) && find(p.State, p.epoch) < 0 { // later ones come with a later look
			line = append(line, p)
		}
	}
	current := point{At: c.Since, State: c.State, epoch: c.Since, until: c.RetryAt}
	switch known, opened := find(c.State, c.Since), find(toolcircuit.StateOpen, c.Since); {
	case known >= 0:
		current.At, current.Seen = line[known].At, line[known].Seen
		line = append(slices.Delete(line, known, known+1), current)
	case c.State != toolcircuit.StateHalfOpen || opened < 0 && !c.RetryAt.IsZero(): // the latter is a probe
		line = append(line, current)
	case opened < 0:
		current.At, current.Seen = now, true
		line = append(line, current)
	case line[opened].until.After(now): // a Monitor has ended the wait
		line[opened].until = now
	}
	slices.SortStableFunc(line, func(a, b point) int { return a.At.Compare(b.At) })
	line = waited(line, c)
	return line[max(0, len(line)-maxTimeline):]
}

// waited returns the line with the end of each wait that came before the probe, and with one point
// for each time of being open or half-open.
func waited(line []point, c toolcircuit.Snapshot) (all []point) {
	for i, p := range line {
		if last := len(all) - 1; last >= 0 && p.State == all[last].State && p.State != toolcircuit.StateClosed {
			all[last].epoch, all[last].until = p.epoch, p.until
		} else {
			all = append(all, p)
		}
		over := c.State == toolcircuit.StateHalfOpen
		if i+1 < len(line) {
			over = line[i+1].At.After(p.until)
		}
		if over && !p.until.IsZero() && p.State == toolcircuit.StateOpen {
			all = append(all, point{At: p.until, State: toolcircuit.StateHalfOpen, epoch: p.epoch})
		}
	}
	return all
}
