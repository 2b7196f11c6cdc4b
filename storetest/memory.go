package storetest

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/toolcircuit/toolcircuit"
)

// Memory is a [toolcircuit.Store] in memory, for tests of one process. Several Fleets that share
// one see each other; [Memory.Peer] gives further clients of the same records, each with faults
// of its own. Make one with NewMemory. All methods are safe for concurrent use.
type Memory struct {
	records *records

	mu      sync.Mutex // taken after records.mu where both are held
	faults  [methods]Fault
	waiting [methods][]func() // requests that a frozen method has not carried out yet
	counts  [methods]int
	keys    int
	deaf    bool
}

var (
	_ toolcircuit.Store    = (*Memory)(nil)
	_ toolcircuit.Resetter = (*Memory)(nil)
)

// Method is a method of a Store.
type Method int

// The methods.
const (
	Load Method = iota
	Trip
	Acquire
	Settle
	Reset
	Watch
	methods
)

// Fault is what goes wrong with a method. The zero Fault is none.
type Fault struct {
	Err        error         // returned at once; the request is not carried out
	Panic      any           // what the method panics with, nil: it does not
	Delay      time.Duration // until the request is carried out, also if its context has ended by then
	Frozen     bool          // nothing is carried out before another fault is set, then all that waits is
	LoseAnswer bool          // the request is carried out and [ErrLost] returned
}

// ErrLost is the error of a request whose answer was lost.
var ErrLost = errors.New("storetest: the answer was lost")

// records are what all clients of a Memory share.
type records struct {
	mu       sync.Mutex
	by       map[string]*record
	began    time.Time     // of the clock
	steps    time.Duration // that the clock was moved by
	watchers map[*watcher]struct{}
}

// record is one record, times counted on the clock of the store.
type record struct {
	open                        bool
	generation, failures        int
	successes                   int
	epoch                       uint64
	since, until, lease, forget time.Time // since: it opened or closed
	asked                       bool
	cause                       toolcircuit.Kind
	fence                       toolcircuit.Fence
}

type watcher struct {
	of    *Memory
	mu    sync.Mutex
	queue []change
	wake  chan struct{}
}

type change struct {
	key  string
	view toolcircuit.View
}

// NewMemory returns an empty Memory.
func NewMemory() *Memory {
	return &Memory{records: &records{
		by:       map[string]*record{},
		began:    time.Now(),
		watchers: map[*watcher]struct{}{},
	}}
}

// Peer returns another client of the same records and the same clock, without faults.
func (m *Memory) Peer() *Memory { return &Memory{records: m.records} }

// Set puts a fault in force for the requests to come of some methods, by default of all. What a
// frozen method has kept waiting is carried out now, unless the new fault freezes it, too. Watch
// takes a fault to heart while it is under way.
func (m *Memory) Set(f Fault, of ...Method) {
	if len(of) == 0 {
		of = []Method{Load, Trip, Acquire, Settle, Reset, Watch}
	}
	var thawed []func()
	m.mu.Lock()
	for _, method := range of {
		m.faults[method] = f
		if !f.Frozen {
			thawed = append(thawed, m.waiting[method]...)
			m.waiting[method] = nil
		}
	}
	m.mu.Unlock()
	for _, run := range thawed {
		run()
	}
	m.records.poke(m)
}

// Deafen makes changes pass by this client's subscription unnoticed, or ends that.
func (m *Memory) Deafen(deaf bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deaf = deaf
}

// Empty drops all records, as a store does that is restarted without its data.
func (m *Memory) Empty() {
	m.records.mu.Lock()
	defer m.records.mu.Unlock()
	clear(m.records.by)
}

// Step moves the store's clock by d, which may be negative.
func (m *Memory) Step(d time.Duration) {
	m.records.mu.Lock()
	defer m.records.mu.Unlock()
	m.records.steps += d
}

// Record returns a record as it is now, without a request; the zero View if there is none.
func (m *Memory) Record(key string) toolcircuit.View {
	m.records.mu.Lock()
	defer m.records.mu.Unlock()
	return m.records.view(key, m.records.now())
}

// Requests returns how many requests of a method this client has had, failed ones included, and
// for Load of how many keys.
func (m *Memory) Requests(of Method) (requests, keys int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if of == Load {
		keys = m.keys
	}
	return m.counts[of], keys
}

// request carries out one step on the records under this client's faults.
func request[T any](ctx context.Context, m *Memory, method Method, keys int, step func(now time.Time) T) (answer T, err error) {
	m.mu.Lock()
	m.counts[method]++
	m.keys += keys
	f := m.faults[method]
	if err := cmp.Or(ctx.Err(), f.Err); err != nil {
		m.mu.Unlock()
		return answer, err
	}
	if f.Panic != nil {
		m.mu.Unlock()
		panic(f.Panic)
	}
	done := make(chan T, 1)
	run := func() {
		m.records.mu.Lock()
		defer m.records.mu.Unlock()
		done <- step(m.records.now())
	}
	if f.Frozen {
		m.waiting[method] = append(m.waiting[method], run)
	}
	m.mu.Unlock()
	switch {
	case f.Frozen:
	case f.Delay > 0:
		time.AfterFunc(f.Delay, run)
	default:
		run()
	}
	select {
	case answer := <-done:
		if f.LoseAnswer {
			err = ErrLost
		}
		return answer, err
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

// Load is [toolcircuit.Store]'s.
func (m *Memory) Load(ctx context.Context, keys []string) ([]toolcircuit.View, error) {
	return request(ctx, m, Load, len(keys), func(now time.Time) []toolcircuit.View {
		views := make([]toolcircuit.View, len(keys))
		for i, key := range keys {
			views[i] = m.records.view(key, now)
		}
		return views
	})
}

// change carries out one step on a record, which it makes if there is none. The step reports
// whether it changed anything.
func (m *Memory) change(ctx context.Context, method Method, key string, t toolcircuit.Terms, known uint64, step func(r *record, now time.Time) bool) (toolcircuit.View, error) {
	return request(ctx, m, method, 0, func(now time.Time) toolcircuit.View {
		all := m.records
		r := all.find(key, now)
		if r == nil {
			r = new(record)
		}
		r.cut(t, now)
		if step(r, now) {
			r.epoch = max(r.epoch+1, past(known)+1, uint64(now.UnixMicro()))
			r.keep(t, now)
			all.by[key] = r
			all.publish(key, r.view(now))
		}
		return all.view(key, now)
	})
}

// Trip is [toolcircuit.Store]'s.
func (m *Memory) Trip(ctx context.Context, key string, t toolcircuit.TripRequest) (toolcircuit.View, error) {
	return m.change(ctx, Trip, key, t.Terms, t.Epoch, func(r *record, now time.Time) bool {
		switch {
		case r.epoch == 0:
			r.generation = t.Generation
		case r.open && r.until.After(now) && !r.lease.After(now):
			return r.prolong(t, now)
		case r.open || r.epoch > past(t.Epoch):
			return false
		default:
			r.generation = t.Fade(r.generation, now.Sub(r.since))
			if !t.Pause {
				r.generation++
			}
		}
		r.reopen(t.Terms, t.Opening, now)
		return true
	})
}

// Acquire is [toolcircuit.Store]'s.
func (m *Memory) Acquire(ctx context.Context, key string, a toolcircuit.AcquireRequest) (toolcircuit.View, error) {
	return m.change(ctx, Acquire, key, a.Terms, a.Epoch, func(r *record, now time.Time) bool {
		switch {
		case r.fence != "" && r.fence == a.Fence:
			r.lease = now.Add(a.Lease)
			r.keep(a.Terms, now)
			return false
		case r.epoch == 0 && a.Lost != nil:
			r.generation = a.Lost.Generation
			r.reopen(a.Terms, *a.Lost, now)
			r.until = now
		case !r.open, r.lease.After(now):
			return false
		case r.until.After(now) && (r.asked || !a.Early):
			return false
		}
		if r.until.After(now) {
			r.until = now
		}
		r.fence, r.lease = a.Fence, now.Add(a.Lease)
		return true
	})
}

// Settle is [toolcircuit.Store]'s.
func (m *Memory) Settle(ctx context.Context, key string, f toolcircuit.Fence, o toolcircuit.Settlement) (toolcircuit.View, error) {
	return m.change(ctx, Settle, key, o.Terms, 0, func(r *record, now time.Time) bool {
		if f == "" || r.fence != f {
			return false
		}
		r.fence, r.lease = "", time.Time{}
		switch o.Result {
		case toolcircuit.ProbeOK:
			if r.successes++; r.successes >= o.ProbeSuccesses {
				r.close(now)
			}
		case toolcircuit.ProbeFailed:
			r.generation++
			r.reopen(o.Terms, o.Opening, now)
		case toolcircuit.ProbePaused:
			r.reopen(o.Terms, o.Opening, now)
		}
		return true
	})
}

// Reset is [toolcircuit.Resetter]'s.
func (m *Memory) Reset(ctx context.Context, key string, q toolcircuit.ResetRequest) (toolcircuit.View, error) {
	return m.change(ctx, Reset, key, q.Terms, q.Epoch, func(r *record, now time.Time) bool {
		r.generation = 0
		r.close(now)
		return true
	})
}

// Watch is [toolcircuit.Store]'s.
func (m *Memory) Watch(ctx context.Context, changed func(key string, v toolcircuit.View), resync func()) error {
	w := &watcher{of: m, wake: make(chan struct{}, 1)}
	if _, err := request(ctx, m, Watch, 0, func(time.Time) bool { m.records.watchers[w] = struct{}{}; return true }); err != nil {
		return err
	}
	defer func() {
		m.records.mu.Lock()
		defer m.records.mu.Unlock()
		delete(m.records.watchers, w)
	}()
	resync()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake:
		}
		m.mu.Lock()
		f := m.faults[Watch]
		m.mu.Unlock()
		switch {
		case f.Err != nil:
			return f.Err
		case f.Panic != nil:
			panic(f.Panic)
		case f.Frozen:
			continue
		}
		w.mu.Lock()
		queue := w.queue
		w.queue = nil
		w.mu.Unlock()
		for _, c := range queue {
			changed(c.key, c.view)
		}
	}
}

// publish tells all clients that listen. The caller holds mu.
func (all *records) publish(key string, v toolcircuit.View) {
	for w := range all.watchers {
		w.tell(change{key, v})
	}
}

// poke makes a client's subscriptions look at its fault.
func (all *records) poke(m *Memory) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for w := range all.watchers {
		if w.of == m {
			w.poke()
		}
	}
}

func (w *watcher) tell(c change) {
	w.of.mu.Lock()
	deaf := w.of.deaf
	w.of.mu.Unlock()
	if deaf {
		return
	}
	w.mu.Lock()
	w.queue = append(w.queue, c)
	w.mu.Unlock()
	w.poke()
}

func (w *watcher) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// now reads the store's clock. The caller holds mu, as for all that follows.
func (all *records) now() time.Time { return all.began.Add(time.Since(all.began) + all.steps) }

// find returns a record that is not forgotten yet, or nil.
func (all *records) find(key string, now time.Time) *record {
	if r := all.by[key]; r != nil && r.forget.After(now) {
		return r
	}
	delete(all.by, key)
	return nil
}

func (all *records) view(key string, now time.Time) toolcircuit.View {
	if r := all.find(key, now); r != nil {
		return r.view(now)
	}
	return toolcircuit.View{}
}

func (r *record) view(now time.Time) toolcircuit.View {
	v := toolcircuit.View{
		Open:       r.open,
		Generation: r.generation,
		Epoch:      r.epoch,
		Fence:      r.fence,
		Asked:      r.asked,
		Cause:      r.cause,
		Failures:   r.failures,
		Age:        max(now.Sub(r.since), 0),
	}
	if r.open {
		v.Remaining = max(r.until.Sub(now), 0)
	}
	if r.fence != "" {
		v.LeaseRemaining = max(r.lease.Sub(now), 0)
	}
	return v
}

// cut shortens what a clock that stepped back has made too long.
func (r *record) cut(t toolcircuit.Terms, now time.Time) {
	longest := t.MaxCooldown
	if r.asked {
		longest = t.MaxRetryAfter
	}
	r.until = earlier(r.until, now.Add(longest))
	r.lease = earlier(r.lease, now.Add(t.Lease))
	r.since = earlier(r.since, now)
}

// past is an epoch in a request, or 0 if it comes from the far future.
func past(epoch uint64) uint64 {
	if epoch >= 1<<53 {
		return 0
	}
	return epoch
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// prolong moves the end of a wait later, if a failure asks for that.
func (r *record) prolong(t toolcircuit.TripRequest, now time.Time) bool {
	until, asked := r.until, false
	switch {
	case t.Asked:
		until, asked = now.Add(askedWait(t.Terms, t.Wait)), true
	case r.asked:
		until = r.since.Add(t.Curve(r.generation))
	}
	if !until.After(r.until) {
		return false
	}
	r.until, r.asked = until, asked
	return true
}

func (r *record) reopen(t toolcircuit.Terms, o toolcircuit.Opening, now time.Time) {
	wait := o.Wait
	switch {
	case o.Asked:
		wait = askedWait(t, wait)
	case wait <= 0:
		wait = t.Curve(r.generation)
	default:
		wait = min(wait, t.MaxCooldown)
	}
	r.open, r.asked, r.successes = true, o.Asked, 0
	r.since, r.until = now.Add(-o.Age), now.Add(wait)
	r.cause, r.failures = o.Cause, o.Failures
}

func askedWait(t toolcircuit.Terms, wait time.Duration) time.Duration {
	return min(max(wait, time.Millisecond), t.MaxRetryAfter)
}

func (r *record) close(now time.Time) {
	*r = record{generation: r.generation, epoch: r.epoch, since: now}
}

// keep sets when the record is forgotten.
func (r *record) keep(t toolcircuit.Terms, now time.Time) {
	last := now
	for _, until := range []time.Time{r.until, r.lease} {
		if r.open && until.After(last) {
			last = until
		}
	}
	r.forget = last.Add(t.Retention)
}
