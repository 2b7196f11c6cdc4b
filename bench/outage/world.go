package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// figures are what one run of one policy through one trace comes to.
type figures struct {
	Wasted float64 // calls that ran although the dependency was sick, and failed
	Lost   float64 // calls that would have worked, and were refused or not made because of a hint
	Turns  float64 // turns of a model that brought nothing because the tool failed or was refused
	Probes float64 // calls that ran while the circuit was not closed
	Peak   float64 // the most calls in one second from a recovery to a minute after the first success
	First  float64 // seconds from a recovery to the first success, mean over the recoveries
	All    float64 // the same to the first success of the last agent
	Served float64 // calls that worked
}

// world is one dependency under one trace, in simulated time, and what is counted of it.
//
// No two goroutines of a run ever wake in the same nanosecond: each sleeps until a moment that is
// its own slot modulo a microsecond. Time moves on only when all of them sleep, so one runs at a
// time, in an order that the seed alone decides.
type world struct {
	*trace
	start time.Time

	mu     sync.Mutex // only tells the race detector what the slots ensure
	rng    *rand.Rand
	got    figures
	knock  time.Duration   // until then the dependency is knocked down
	recent []time.Duration // the calls of the last second
	period int64           // that the quota is of
	used   int             // of it
	spells []spell
}

// spell is one time after a recovery.
type spell struct {
	from, to time.Duration
	first    time.Duration         // of the first success; 0: none yet
	agents   map[int]time.Duration // first success of each
}

// slots is how many goroutines can have a nanosecond of their own in each microsecond.
const slots = 1000

func newWorld(t *trace, seed uint64) *world {
	w := &world{trace: t, start: time.Now(), rng: rand.New(rand.NewPCG(seed, 1<<32)), period: -1}
	for _, r := range t.recoveries() {
		w.spells = append(w.spells, spell{from: r[0], to: r[1], agents: map[int]time.Duration{}})
	}
	return w
}

// now returns the time since the trace began.
func (w *world) now() time.Duration { return time.Since(w.start) }

// sleep sleeps for about d, until the next moment that is the slot's, and reports whether ctx
// still lives.
func sleep(ctx context.Context, slot int, d time.Duration) bool {
	wake := time.Now().Add(max(d, 1))
	wake = wake.Add(time.Duration((slot - wake.Nanosecond()%slots + slots) % slots))
	if ctx.Done() == nil {
		time.Sleep(time.Until(wake))
		return true
	}
	timer := time.NewTimer(time.Until(wake))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func draw(rng *rand.Rand, s span) time.Duration {
	least, most := s[0].Duration, s[1].Duration
	return least + time.Duration(rng.Int64N(int64(most-least)+1))
}

// statusError is the error of a status, as the SDKs of most APIs have one.
type statusError struct {
	StatusCode int
	Header     http.Header
}

func (e *statusError) Error() string {
	if after := retryAfter(e); after > 0 {
		return fmt.Sprintf("status %d, retry after %v", e.StatusCode, after)
	}
	return fmt.Sprintf("status %d", e.StatusCode)
}

// retryAfter returns the wait that an error asks for, as its text says it.
func retryAfter(err error) time.Duration {
	var e *statusError
	if !errors.As(err, &e) {
		return 0
	}
	seconds, _ := strconv.Atoi(e.Header.Get("Retry-After"))
	return time.Duration(seconds) * time.Second
}

func status(code int, after time.Duration) error {
	e := &statusError{StatusCode: code, Header: http.Header{}}
	if after > 0 {
		e.Header.Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	}
	return e
}

// fate is what becomes of a call that reaches the dependency.
type fate struct {
	how     failure // empty: it works
	latency span
	after   time.Duration
}

var quick = span{{20 * time.Millisecond}, {80 * time.Millisecond}} // how long an error takes

// decide draws the fate of a call that arrives now.
func (w *world) decide() fate {
	now := w.now()
	for len(w.recent) > 0 && w.recent[0] <= now-time.Second {
		w.recent = w.recent[1:]
	}
	w.recent = append(w.recent, now)
	if s := w.spell(now); s != nil && (s.first == 0 || now < s.first+time.Minute) {
		w.got.Peak = max(w.got.Peak, float64(len(w.recent)))
	}
	p := w.at(now)
	f := fate{latency: w.Latency}
	if p == nil {
		return f
	}
	if p.Latency != nil {
		f.latency = *p.Latency
	}
	sick := fate{how: fails, latency: quick}
	if p.Capacity > 0 {
		if now < w.knock || float64(len(w.recent)) > p.capacity(now) {
			w.knock = max(w.knock, now+p.Knock.Duration)
			return sick
		}
	}
	if p.Quota > 0 {
		period := int64(now / p.Per.Duration)
		if period != w.period {
			w.period, w.used = period, 0
		}
		if w.used++; w.used > p.Quota {
			sick.how, sick.after = limits, time.Duration(period+1)*p.Per.Duration-now
			return sick
		}
	}
	if p.How == "" || p.Rate < 1 && w.rng.Float64() >= p.Rate {
		return f
	}
	sick.how, sick.after = p.How, p.RetryAfter.Duration
	if p.UntilEnd {
		sick.after = p.To.Duration - now
	}
	return sick
}

// capacity is how many calls a second the dependency takes.
func (p *phase) capacity(now time.Duration) float64 {
	part := float64(now-p.From.Duration) / float64(p.To.Duration-p.From.Duration)
	return p.Capacity + part*(p.Full-p.Capacity)
}

// works returns how likely a call that arrived now would work.
func (w *world) works() float64 {
	now := w.now()
	p := w.at(now)
	switch {
	case p == nil:
		return 1
	case p.Capacity > 0 && (now < w.knock || float64(w.lastSecond(now)+1) > p.capacity(now)):
		return 0
	case p.Quota > 0 && w.period == int64(now/p.Per.Duration) && w.used >= p.Quota:
		return 0
	}
	works := 1 - p.Rate
	if l := p.Latency; l != nil && l[1].Duration > w.Timeout.Duration {
		works *= float64(w.Timeout.Duration-l[0].Duration) / float64(l[1].Duration-l[0].Duration)
	}
	return works
}

func (w *world) lastSecond(now time.Duration) (n int) {
	for _, t := range w.recent {
		if t > now-time.Second {
			n++
		}
	}
	return n
}

// spell returns the one at a time, nil if there is none.
func (w *world) spell(now time.Duration) *spell {
	for i := range w.spells {
		if s := &w.spells[i]; s.from <= now && now < s.to {
			return s
		}
	}
	return nil
}

// serve is the dependency: one call of one agent, whose goroutine has that slot.
func (w *world) serve(ctx context.Context, a *agent, slot int) error {
	w.mu.Lock()
	f := w.decide()
	if f.how != "" {
		w.got.Wasted++
	}
	latency := draw(w.rng, f.latency)
	if f.how == "" && latency > w.Timeout.Duration {
		w.got.Wasted++
	}
	w.mu.Unlock()

	if f.how == hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	if !sleep(ctx, slot, latency) {
		return ctx.Err()
	}
	switch {
	case f.how == fails:
		return status(http.StatusServiceUnavailable, 0)
	case f.how == limits:
		return status(http.StatusTooManyRequests, f.after)
	case a.bad():
		return status(http.StatusBadRequest, 0)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.got.Served++
	now := w.now()
	if s := w.spell(now); s != nil {
		if s.first == 0 {
			s.first = now
		}
		if s.agents[a.id] == 0 {
			s.agents[a.id] = now
		}
	}
	return nil
}

// lose counts calls that are not made now. Those of an agent whose calls are all mistakes are no
// loss.
func (w *world) lose(a *agent, calls int) {
	if a.bad() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.got.Lost += float64(calls) * w.works()
}

// figures returns what was counted. An agent that had no success before the next outage counts
// with the time until then.
func (w *world) figures() figures {
	got := w.got
	for _, s := range w.spells {
		first, all := s.to, s.from
		if s.first > 0 {
			first = s.first
		}
		for id := w.Bad; id < w.Agents; id++ {
			if t := s.agents[id]; t > 0 {
				all = max(all, t)
			} else {
				all = s.to
			}
		}
		got.First += (first - s.from).Seconds() / float64(len(w.spells))
		got.All += (all - s.from).Seconds() / float64(len(w.spells))
	}
	return got
}
