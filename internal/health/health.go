// Package health asks a store within a time limit, and tells from the outcomes whether it is there.
package health

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Class is a class of requests, one for each method of a store. A store may answer some and not
// others.
type Class int

// The classes.
const (
	Load Class = iota
	Claim
	Trip
	Settle
	Reset
	Watch
	classes
)

// Enough is the number of failures in a row after which a store is given up on.
const Enough = 3

// Pause returns a random time between two attempts, from 0.5 s up to 1 s.
func Pause() time.Duration { return 500*time.Millisecond + rand.N(500*time.Millisecond) }

// Health is what the latest requests say of a store. Make one with New. All methods are safe for
// concurrent use.
type Health struct {
	timeout  time.Duration // of a request
	panicked func(any) error
	tell     func(News)

	mu       sync.Mutex
	closed   bool
	sick     bool         // the latest request failed
	retryAt  time.Time    // when the next attempt is due
	row      int          // failed in a row
	failed   [classes]int // the same by class
	heard    bool         // the latest claim or news was answered
	stuck    [classes]int // requests that the store has not returned from, though their time is over
	chunk    int          // keys in one Load
	degraded bool         // as told
	news     []News
	telling  bool // somebody delivers news
}

// News is that a store is given up on, or answers again.
type News struct {
	Degraded bool
	At       time.Time
	Err      error // of the last request; nil if the store answers
}

// New returns the Health of a store whose requests end after timeout. panicked makes an error of what
// the store panicked with, and is called where that is recovered. Each change between answering and
// given up on is told: in order, one at a time, in a goroutine of its own and with no lock held. A
// panic in tell is dropped. A nil tell hears nothing.
func New(timeout time.Duration, panicked func(any) error, tell func(News)) *Health {
	return &Health{timeout: timeout, panicked: panicked, tell: tell, chunk: 8}
}

// Note takes in how a request ended. Failures before the next attempt is due count once.
func (h *Health) Note(class Class, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if class >= Claim && class <= Reset {
		h.heard = err == nil
	}
	switch {
	case class == Watch && err != nil:
		h.failed[class]++
	case class == Watch:
		h.failed[class] = 0
	case err != nil:
		if now := time.Now(); !now.Before(h.retryAt) {
			h.row++
			h.failed[class]++
			h.retryAt = now.Add(Pause())
		}
		h.sick = true
	default:
		if class == Load && h.failed[Load] > 0 { // it was away
			h.forgive()
		}
		h.sick, h.row = false, 0
		h.failed[class] = 0
	}
	h.judge(err)
}

// Settled notes that nothing is left to claim or to tell, so that earlier failures to do so mean
// nothing any more.
func (h *Health) Settled() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgive()
	h.judge(nil)
}

// forgive forgets which claims and news were not answered. The caller holds mu.
func (h *Health) forgive() {
	for class := Claim; class <= Reset; class++ {
		h.failed[class] = 0
	}
}

// Moot notes that no request of a class is due, so that none can show that it is answered again.
// If the latest claim or news was, earlier failures of the class mean nothing any more.
func (h *Health) Moot(class Class) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.heard {
		h.failed[class] = 0
		h.judge(nil)
	}
}

// Unused notes that there is nothing to ask the store, so calls may try it again.
func (h *Health) Unused() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sick = false
}

// Close makes calls ask no more.
func (h *Health) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}

// Reachable reports whether a call may ask the store. If not, it returns how long until the next
// attempt has ended, and 0 once the store is given up on.
func (h *Health) Reachable() (wait time.Duration, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed || h.sick && h.row >= Enough:
		return 0, false
	case h.sick:
		return max(time.Until(h.retryAt)+h.timeout, time.Millisecond), false
	}
	return 0, true
}

// Sick reports whether the latest request failed.
func (h *Health) Sick() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sick
}

// RetryAt returns when the next attempt is due after the latest failure.
func (h *Health) RetryAt() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.retryAt
}

// Degraded reports whether the store is given up on, as was told.
func (h *Health) Degraded() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.degraded
}

// Refuses reports whether requests of a class are never answered, though the store may be there.
func (h *Health) Refuses(class Class) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed[class] >= Enough
}

// judge tells if the store is given up on now, or answers again. The caller holds mu.
func (h *Health) judge(err error) {
	degraded := h.row >= Enough || slices.Max(h.failed[:]) >= Enough
	if degraded == h.degraded {
		return
	}
	h.degraded = degraded
	if !degraded {
		err = nil
	}
	if h.tell != nil {
		h.news = append(h.news, News{degraded, time.Now(), err})
		h.deliver()
	}
}

// deliver starts to tell the news, unless somebody does. The caller holds mu.
func (h *Health) deliver() {
	if !h.telling && len(h.news) > 0 {
		h.telling = true
		go h.deliverOne()
	}
}

func (h *Health) deliverOne() {
	h.mu.Lock()
	next := h.news[0]
	h.news = h.news[1:]
	h.mu.Unlock()
	defer func() { // also if tell panics or ends the goroutine
		recover()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.telling = false
		h.deliver()
	}()
	h.tell(next)
}
