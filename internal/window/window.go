// Package window counts calls and failures over a sliding window of time.
package window

import (
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
)

// Window counts the latest calls in slots of time. Each slot is one word, so that adding is one
// compare-and-swap. Nothing is ever cleared: a word has the number of its lap around the ring, and
// a word of another lap counts as empty. A Window belongs to one epoch of one circuit and is
// dropped with it. All methods are safe for concurrent use.
type Window struct {
	start time.Time
	width time.Duration // of one slot
	slots [slotCount]atomic.Uint64
}

const (
	slotCount = 16
	countBits = 20 // each, for calls and for failures; the lap has the other bits
	countMask = 1<<countBits - 1
)

// MaxMinCalls is the largest number of calls that a window can surely hold. A full slot halves its
// counts.
const MaxMinCalls = 1 << (countBits - 1)

// New returns an empty window of the given length, which should be at least some milliseconds.
func New(start time.Time, length time.Duration) *Window {
	return &Window{start: start, width: length / slotCount}
}

// slot is one word of a window: lap, failures, calls.
type slot uint64

func makeSlot(lap int64, failures, calls uint64) slot {
	return slot(uint64(lap)<<(2*countBits) | failures<<countBits | calls)
}
func (s slot) calls() uint64    { return uint64(s) & countMask }
func (s slot) failures() uint64 { return uint64(s) >> countBits & countMask }

// Add counts one call. It reads the clock itself, because nothing else in a healthy call needs the
// time.
func (w *Window) Add(c clock.Clock, failed bool) {
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

// Sum returns the calls and the failures in the window that ends at now.
func (w *Window) Sum(now time.Time) (calls, failures int) {
	for back := range int64(slotCount) {
		lap, at := w.place(now.Sub(w.start), back)
		s := slot(w.slots[at].Load())
		if s == makeSlot(lap, s.failures(), s.calls()) {
			calls += int(s.calls())
			failures += int(s.failures())
		}
	}
	return calls, failures
}

// place returns the lap and the index of the slot that is back slots before the slot of age. age
// may be negative: a clock may read a time before the window's start.
func (w *Window) place(age time.Duration, back int64) (lap int64, at int64) {
	n := int64(age/w.width) - back
	if age < 0 {
		n--
	}
	at = n & (slotCount - 1)
	return (n - at) / slotCount, at
}
