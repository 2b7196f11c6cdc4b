package toolcircuit

import (
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
)

// window counts the calls of the last while in slots, each one word, so that adding is one
// compare-and-swap and nothing ever needs clearing: a word names the lap of the ring that
// it belongs to, and a word of another lap is empty. A window belongs to one epoch of one
// circuit, which throws it away at its end.
type window struct {
	start time.Time
	width time.Duration // of one slot
	slots [windowSlots]atomic.Uint64
}

const (
	windowSlots = 16
	countBits   = 20 // of calls and of failures; the lap has what is left
	countMask   = 1<<countBits - 1
)

func newWindow(start time.Time, length time.Duration) *window {
	return &window{start: start, width: length / windowSlots}
}

// slot is one word of a window: lap, failures, calls.
type slot uint64

func makeSlot(lap int64, failures, calls uint64) slot {
	return slot(uint64(lap)<<(2*countBits) | failures<<countBits | calls)
}
func (s slot) calls() uint64    { return uint64(s) & countMask }
func (s slot) failures() uint64 { return uint64(s) >> countBits & countMask }

// add counts one call. It reads the clock itself, being the only thing that needs the time
// on the way of a healthy call. Safe for concurrent use.
func (w *window) add(c clock.Clock, failed bool) {
	lap, at := w.place(c.Since(w.start), 0)
	for {
		word := w.slots[at].Load()
		old := slot(word)
		calls, failures := old.calls(), old.failures()
		if old != makeSlot(lap, failures, calls) { // of another lap
			calls, failures = 0, 0
		}
		if calls == countMask { // full: half of both keeps the rate
			calls, failures = calls/2, failures/2
		}
		calls++
		if failed {
			failures++
		}
		if w.slots[at].CompareAndSwap(word, uint64(makeSlot(lap, failures, calls))) {
			return
		}
	}
}

// sum returns the calls and failures within one length of the window before now. Safe for
// concurrent use.
func (w *window) sum(now time.Time) (calls, failures int) {
	for back := range int64(windowSlots) {
		lap, at := w.place(now.Sub(w.start), back)
		s := slot(w.slots[at].Load())
		if s == makeSlot(lap, s.failures(), s.calls()) {
			calls += int(s.calls())
			failures += int(s.failures())
		}
	}
	return calls, failures
}

// place returns the lap and the index of the slot that lies back slots before the one of
// that age. It holds for a clock that stands before the window's start, too.
func (w *window) place(age time.Duration, back int64) (lap int64, at int64) {
	n := int64(age/w.width) - back
	if age < 0 {
		n--
	}
	at = n & (windowSlots - 1)
	return (n - at) / windowSlots, at
}
