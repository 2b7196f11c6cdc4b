package toolcircuit

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"
	"weak"

	"github.com/toolcircuit/toolcircuit/internal/errtree"
	"github.com/toolcircuit/toolcircuit/internal/fleet"
	"github.com/toolcircuit/toolcircuit/internal/health"
)

// Fleet is this process's side of a [Store]: it shares the states of its circuits with those of
// other workers under the same keys. One worker finds a dependency down and all stop; one probe in
// the whole fleet tries whether it is back; a restarted worker knows what the others know.
//
// The store is never the outage. A closed circuit that is in use, which means called within the
// last two polls, does not ask it, and neither does one that refuses. These calls wait for it, at
// most OpTimeout for each answer: the first one in a while, one that opens the circuit or prolongs
// its wait, and the probe, twice. If the store does not answer, each circuit goes on by itself.
//
// A circuit's policy is its worker's own, but the wait of an open circuit is the record's: a policy
// that is set meanwhile acts from the next opening on.
//
// A Fleet owns two goroutines until Close, and one for each request and hook that runs. A request
// that a Store holds past the end of its context has failed, and no other of its method is sent
// until it returns. A Fleet does not keep its circuits alive. It is safe for concurrent use.
type Fleet struct {
	store   Store
	o       FleetOptions
	id      uint64 // mixed into jitter, so that workers with one Seed differ
	health  *health.Health
	loops   *fleet.Loops // the rhythm and the subscription
	members *fleet.Roster[*member]
	strays  fleet.Strays[Fence, stray]
	polls   fleet.Alarm
	listens atomic.Bool // the subscription stands
}

// FleetOptions are the options of a Fleet. The zero value is usable.
type FleetOptions struct {
	// OpTimeout is the longest wait for one answer of the store, and 5ms more for a Store that
	// ignores its context. Zero: 50ms.
	OpTimeout time.Duration
	// Poll is the time between two Loads of the circuits in use, because news of a change may be
	// lost. It varies by a tenth, and is at most 1s while the subscription is interrupted. Zero:
	// 5s.
	Poll time.Duration
	// Lease is how long a worker keeps the probe without renewing it. If the worker dies, another
	// can probe after that. The Fleet renews it while the probe runs, up to Policy.ProbeTimeout.
	// Lease must be longer than OpTimeout. Zero: 10s, or twice OpTimeout if that is longer.
	Lease time.Duration
	// Retention is how long the store keeps a record after its wait is over or it has closed. Less
	// than twice the longest wait of a circuit's policy counts as that. Zero: 1h.
	Retention time.Duration
	// OnEvent hears when the store is given up on (store_error), after a few failures in a row, and
	// when it answers again (recovered). The Event has only Type, At and Err. OnEvent is called in
	// order, one at a time, with no lock held, and delays nothing. A panic in it is dropped. Nil:
	// nobody hears.
	OnEvent func(context.Context, Event)
}

// member is a circuit's place in a Fleet. It is active while a poll looks at it: if it is open, used
// lately or in debt. It is busy while it holds a probe or is in debt.
type member struct {
	fleet   *Fleet
	key     string
	circuit weak.Pointer[circuit]
}

// Key and Lost are for the Roster.
func (m *member) Key() string { return m.key }
func (m *member) Lost() bool  { return m.circuit.Value() == nil }

// stray is a claim whose answer never came. The store may hold its fence.
type stray struct {
	member *member
	terms  Terms
}

// NewFleet returns a Fleet on a Store. An error names the field of o, what it got and what it
// wants.
func NewFleet(s Store, o FleetOptions) (*Fleet, error) {
	if errtree.IsNil(s) {
		return nil, errors.New("toolcircuit: NewFleet: the store is nil")
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	f := &Fleet{store: s, o: o, id: rand.Uint64(), loops: fleet.NewLoops(), members: fleet.NewRoster[*member]()}
	var tell func(health.News)
	if o.OnEvent != nil {
		tell = f.announce
	}
	f.health = health.New(o.OpTimeout, newStorePanic, tell)
	f.loops.Turns(f.turn)
	f.loops.Go(f.subscribe)
	return f, nil
}

// complete checks o and fills in the defaults.
func (o *FleetOptions) complete() error {
	const longest = 10 * 365 * 24 * time.Hour // so that sums do not overflow
	for _, field := range []struct {
		name      string
		value     *time.Duration
		otherwise time.Duration
	}{
		{"OpTimeout", &o.OpTimeout, 50 * time.Millisecond},
		{"Poll", &o.Poll, 5 * time.Second},
		{"Lease", &o.Lease, 0},
		{"Retention", &o.Retention, time.Hour},
	} {
		switch got := *field.value; {
		case got < 0 || got > 0 && got < time.Millisecond:
			return fmt.Errorf("toolcircuit: FleetOptions.%s: got %v, want at least 1ms, or 0 for the default", field.name, got)
		case got > longest:
			return fmt.Errorf("toolcircuit: FleetOptions.%s: got %v, want at most %v", field.name, got, longest)
		}
		setDefault(field.value, field.otherwise)
	}
	setDefault(&o.Lease, max(10*time.Second, 2*o.OpTimeout))
	if o.Lease <= o.OpTimeout {
		return fmt.Errorf("toolcircuit: FleetOptions.Lease: got %v, want more than OpTimeout, %v", o.Lease, o.OpTimeout)
	}
	return nil
}

// Join makes a circuit share its state under a key. The key is the same in all workers and says
// whose failures are common: the dependency, and the tenant or the endpoint where that matters.
// Join should come before the circuit's first call. After it a record in the store replaces what
// the circuit knows, and an open circuit that finds none makes one. These are errors:
//
//   - an empty key, or one that a living circuit of this Fleet has,
//   - a circuit that is in a Fleet already,
//   - a closed Fleet.
func (f *Fleet) Join(c *ToolCircuit, key string) error {
	f.mustBeMade()
	ci := c.made()
	if key == "" {
		return errors.New("toolcircuit: Join: the key is empty")
	}
	m := &member{fleet: f, key: key, circuit: weak.Make(ci)}
	if !ci.member.CompareAndSwap(nil, m) {
		return fmt.Errorf("toolcircuit: Join: the circuit of %s is in a Fleet already", ci.dependency)
	}
	c.share(useUnseen)
	if err := f.members.Enter(m); err != nil {
		m.leave(c)
		return fmt.Errorf("toolcircuit: Join: %w", err)
	}
	f.loops.Wake()
	return nil
}

// share makes a circuit begin to share its state, or end that.
func (c *ToolCircuit) share(u use) {
	c.advance(context.Background(), time.Time{}, func(s state, _ input) (state, bool) {
		s.use, s.epoch, s.account = u, 0, nil
		return s, true
	})
}

// leave is the circuit's part of leaving.
func (m *member) leave(c *ToolCircuit) {
	c.share(useAlone)
	c.member.CompareAndSwap(m, nil)
}

func (f *Fleet) mustBeMade() {
	if f == nil || f.store == nil {
		panic("toolcircuit: the Fleet is nil; make one with NewFleet")
	}
}

func (f *Fleet) isClosed() bool {
	f.mustBeMade()
	return f.members.Closed()
}

// Leave makes a circuit go on alone with the state that it has. News that the store has not been
// told yet is dropped. If the circuit has the probe, another worker can have it when the lease
// ends. A circuit that is not in this Fleet stays as it is.
func (f *Fleet) Leave(c *ToolCircuit) {
	f.mustBeMade()
	if m := c.made().member.Load(); m != nil && m.fleet == f {
		f.members.Drop(m)
		m.leave(c)
	}
}

// Close ends the Fleet. It tries once to tell the store what it has not been told yet and to give
// back probes, up to the first request that fails. Then the circuits go on alone. Close waits for
// the Fleet's goroutines. If ctx ends first, which takes a Store that ignores its context, Close
// returns ctx's error. Under a ctx that has ended before, the store is told nothing. A second Close
// does nothing and does not wait.
func (f *Fleet) Close(ctx context.Context) error {
	f.mustBeMade()
	if ctx == nil {
		panic("toolcircuit: Close: ctx is nil")
	}
	members, open := f.members.Close()
	if !open {
		return nil
	}
	f.health.Close()
	var err error
	select {
	case <-f.loops.Stop():
	case <-ctx.Done():
		err = ctx.Err()
	}
	answers := err == nil
	for m, c := range f.living(members) {
		answers = answers && ctx.Err() == nil && f.settleUp(ctx, m, c)
		m.leave(c)
		c.deliverAside()
	}
	return err
}

// settleUp pays what a circuit owes and gives its probe back.
func (f *Fleet) settleUp(ctx context.Context, m *member, c *ToolCircuit) bool {
	s := c.state.Load()
	if !s.busy() {
		return true
	}
	if d := s.debt(); d != nil {
		return f.pay(ctx, m, c, d)
	}
	_, ok := f.settle(ctx, m.key, s.account.fence, Settlement{Terms: f.terms(c, s), Result: ProbeAbandoned})
	return ok
}

// tool returns the circuit, or nil if it is lost. Its events name no tool.
func (m *member) tool() *ToolCircuit {
	if c := m.circuit.Value(); c != nil && c.member.Load() == m {
		return &ToolCircuit{c, noTool}
	}
	return nil
}

// living yields the members whose circuits are not lost, and drops the others.
func (f *Fleet) living(members []*member) iter.Seq2[*member, *ToolCircuit] {
	return func(yield func(*member, *ToolCircuit) bool) {
		for _, m := range members {
			if c := m.tool(); c == nil {
				f.members.Drop(m)
			} else if !yield(m, c) {
				return
			}
		}
	}
}

// attend makes the rhythm look at a member as the new state s of its circuit asks.
func (m *member) attend(s *state) {
	if s.use == useAlone {
		return
	}
	f, busy := m.fleet, s.busy()
	f.members.Mark(m, s.active(), busy)
	if d := s.debt(); d != nil && d.kind == owedClosing {
		f.polls.Set(0)
	}
	if busy {
		f.loops.Wake()
	}
}

// Requests.

// terms returns what the circuit c in the state s and its Fleet set for a request.
func (f *Fleet) terms(c *ToolCircuit, s *state) Terms {
	return Terms{
		Cooldown:       s.Cooldown,
		MaxCooldown:    s.MaxCooldown,
		Multiplier:     s.Multiplier,
		Jitter:         s.Jitter,
		Draw:           draw(c.salt(), s.seq),
		MaxRetryAfter:  s.MaxRetryAfter,
		ProbeSuccesses: s.ProbeSuccesses,
		Lease:          f.lease(s),
		Retention:      f.retention(s),
	}
}

// lease is that of a probe that begins now.
func (f *Fleet) lease(s *state) time.Duration { return min(f.o.Lease, s.ProbeTimeout) }

// retention outlives what any worker believes: a wait ends within one of the longest.
func (f *Fleet) retention(s *state) time.Duration {
	longest := max(s.MaxCooldown, s.MaxRetryAfter, f.o.Lease)
	return max(f.o.Retention, 2*min(longest, math.MaxInt64/2))
}

// acquire claims the probe for a fence, or renews its lease.
func (f *Fleet) acquire(ctx context.Context, m *member, c *ToolCircuit, s *state, fence Fence, lease time.Duration) (View, bool) {
	a := AcquireRequest{Terms: f.terms(c, s), Fence: fence, Epoch: s.epoch}
	a.Lease = lease
	a.Early = s.State == StateOpen && s.gate.answered
	a.Lost = s.lost(c.clock.Now(), a.Retention)
	return request(ctx, f, health.Claim, func(ctx context.Context) (View, error) { return f.store.Acquire(ctx, m.key, a) })
}

func (f *Fleet) settle(ctx context.Context, key string, fence Fence, o Settlement) (View, bool) {
	return request(ctx, f, health.Settle, func(ctx context.Context) (View, error) { return f.store.Settle(ctx, key, fence, o) })
}

// pay tells the store what a circuit owes, and takes in the answer. It reports false if there was
// none.
func (f *Fleet) pay(ctx context.Context, m *member, c *ToolCircuit, d *debt) bool {
	if !d.TryLock() {
		return true // somebody does
	}
	defer d.Unlock()
	s, now := c.state.Load(), c.clock.Now()
	if s.debt() != d || d.kind == owedClosing {
		return true // it is no longer true, or a Load shows when it is due
	}
	v, ok := f.tell(ctx, m, c, s, d, now)
	if ok {
		c.advance(ctx, time.Time{}, func(s state, in input) (state, bool) { return s.told(in, d, v.later(in.now.Sub(now))) })
	}
	return ok
}

// tell sends the request that pays the debt d of the state s. What means nothing any more is not
// sent. Requests about one key may overtake each other in the store: their epochs and fences keep
// an old one from undoing a newer one.
func (f *Fleet) tell(ctx context.Context, m *member, c *ToolCircuit, s *state, d *debt, now time.Time) (v View, ok bool) {
	t := f.terms(c, s)
	switch d.kind {
	case owedOpening:
		if s.at(now) == StateOpen {
			q := TripRequest{Terms: t, Opening: s.opening(now, c.salt(), f.o.OpTimeout), Epoch: s.epoch, Pause: s.rule == RulePause}
			return request(ctx, f, health.Trip, func(ctx context.Context) (View, error) { return f.store.Trip(ctx, m.key, q) })
		}
	case owedVerdict:
		q := Settlement{Terms: t}
		q.Result, q.Opening = s.settlement(d, now, c.salt(), f.o.OpTimeout)
		return f.settle(ctx, m.key, d.fence, q)
	case owedReset:
		if r, ok := f.store.(Resetter); ok {
			q := ResetRequest{Terms: t, Epoch: s.epoch}
			return request(ctx, f, health.Reset, func(ctx context.Context) (View, error) { return r.Reset(ctx, m.key, q) })
		}
	}
	return v, true
}

// reclose tells the fleet of a closing that it could not be told when it happened. Without this it
// would not hear of the next outage: the record would still be open.
func (f *Fleet) reclose(ctx context.Context, m *member, c *ToolCircuit) {
	s := c.state.Load()
	fence := Fence(crand.Text())
	t := f.terms(c, s)
	ok := false
	defer func() {
		if !ok {
			f.giveBack(m, fence, t)
		}
	}()
	v, ok := f.acquire(ctx, m, c, s, fence, t.Lease)
	if ok && v.Fence == fence {
		t.ProbeSuccesses = 1
		v, ok = f.settle(ctx, m.key, fence, Settlement{Terms: t, Result: ProbeOK})
	}
	if ok {
		f.heard(ctx, m, v)
	}
}

// load loads the records of members, in chunks. It reports whether all were answered.
func (f *Fleet) load(ctx context.Context, members []*member) bool {
	for len(members) > 0 {
		chunk := members[:min(f.health.Chunk(), len(members))]
		members = members[len(chunk):]
		keys := make([]string, len(chunk))
		for i, m := range chunk {
			keys[i] = m.key
		}
		began := time.Now()
		views, ok := request(ctx, f, health.Load, func(ctx context.Context) ([]View, error) {
			views, err := f.store.Load(ctx, keys)
			if err == nil && len(views) != len(keys) {
				err = fmt.Errorf("toolcircuit: Load of %d keys: got %d views", len(keys), len(views))
			}
			return views, err
		})
		f.health.Loaded(len(keys), time.Since(began), ok)
		if !ok {
			return false
		}
		for i, m := range chunk {
			if c := m.tool(); c != nil {
				f.loaded(ctx, m, c, views[i].later(time.Since(began)))
			}
		}
	}
	return true
}

// loaded makes a circuit take in the answer to a Load.
func (f *Fleet) loaded(ctx context.Context, m *member, c *ToolCircuit, v View) {
	f.recognize(v.Fence)
	s := c.take(ctx, func(s state, in input) (state, bool) { return s.hear(in, v) })
	if d := s.debt(); d != nil && d.kind == owedClosing && v.Open && v.Remaining == 0 && v.LeaseRemaining == 0 {
		f.reclose(ctx, m, c)
	}
}

// The rhythm and the subscription.

// turn does what is due, and returns how long nothing more is. After a failed request it waits for
// RetryAt, and then tries the store with a Load first.
func (f *Fleet) turn(ctx context.Context) time.Duration {
	sick := f.health.Sick()
	switch {
	case time.Now().Before(f.health.RetryAt()):
	case sick && !f.poll(ctx, true):
	case !f.clear(ctx): // is it the store, or one record?
		f.load(ctx, f.anyone())
	case !sick:
		f.poll(ctx, f.polls.Left() <= 0)
	}
	return f.next()
}

// next returns in what time something is due.
func (f *Fleet) next() time.Duration {
	wait := f.polls.Left()
	for _, c := range f.living(f.members.Busy()) {
		wait = min(wait, f.renewal(c.state.Load(), c.clock.Now()))
	}
	if retry := time.Until(f.health.RetryAt()); retry > 0 {
		wait = retry
	}
	return max(wait, time.Millisecond)
}

// anyone returns one member, if there is any.
func (f *Fleet) anyone() []*member {
	one := f.members.Any()
	if one == nil {
		f.health.Unused()
	}
	return one
}

// poll loads the records of new members and, if due, of all that are open or in debt or were used
// since the last poll. Then it also lowers the use of all.
func (f *Fleet) poll(ctx context.Context, due bool) bool {
	load := f.members.New()
	fresh := load
	if due {
		load = append(load, f.rest(ctx)...)
	}
	if f.load(ctx, load) {
		return true
	}
	f.members.Renew(fresh)
	return false
}

// rest lowers the use of the active members and returns those whose records a poll loads.
func (f *Fleet) rest(ctx context.Context) (load []*member) {
	calm := len(f.strays.Due()) == 0
	for m, c := range f.living(f.members.Active()) {
		s, _ := c.advance(ctx, time.Time{}, func(s state, _ input) (state, bool) { return s.rested() })
		calm = calm && s.State == StateClosed && s.account == nil
		if s.active() {
			load = append(load, m)
		}
	}
	f.polls.Set(f.interval())
	if calm {
		f.health.Settled()
	}
	if f.health.Sick() && len(load) == 0 {
		load = f.anyone()
	}
	return load
}

// interval is the time to the next poll.
func (f *Fleet) interval() time.Duration {
	if f.listens.Load() {
		return time.Duration((0.9 + 0.2*rand.Float64()) * float64(f.o.Poll))
	}
	return min(f.o.Poll, health.Pause())
}

// clear renews the leases that are due, gives back what strayed and pays debts. After a request that
// fails it sends no more like it. It reports whether none failed.
func (f *Fleet) clear(ctx context.Context) bool {
	var owed, failed [owedReset + 1]bool
	ok := f.renew(ctx)
	strays := f.giveBackStrays(ctx)
	ok = ok && strays
	for m, c := range f.living(f.members.Busy()) {
		if d := c.state.Load().debt(); d != nil && !failed[d.kind] {
			owed[d.kind], failed[d.kind] = true, !f.pay(ctx, m, c, d)
			ok = ok && !failed[d.kind]
			c.deliverAside()
		}
	}
	if !owed[owedOpening] {
		f.health.Moot(health.Trip)
	}
	if !owed[owedVerdict] && !owed[owedClosing] && strays {
		f.health.Moot(health.Settle)
	}
	if !owed[owedReset] {
		f.health.Moot(health.Reset)
	}
	return ok
}

// renew renews the leases that are due, up to the first request that fails.
func (f *Fleet) renew(ctx context.Context) bool {
	for m, c := range f.living(f.members.Busy()) {
		s, now := c.state.Load(), c.clock.Now()
		if f.renewal(s, now) > 0 {
			continue
		}
		fence, lease := s.account.fence, min(f.lease(s), s.ProbeTimeout-now.Sub(s.gate.from))
		v, ok := f.acquire(ctx, m, c, s, fence, lease)
		if !ok {
			return false
		}
		c.take(ctx, func(s state, in input) (state, bool) {
			return s.renewed(in, fence, v.later(in.now.Sub(now)), now.Add(lease))
		})
	}
	return true
}

// renewal returns in what time the lease of the probe that s has is to be renewed: at a third of it,
// and not past ProbeTimeout.
func (f *Fleet) renewal(s *state, now time.Time) time.Duration {
	a := s.account
	if a == nil || a.fence == "" || s.State != StateHalfOpen || !s.gate.held || !a.lease.Before(s.gate.from.Add(s.ProbeTimeout)) {
		return math.MaxInt64
	}
	return a.lease.Sub(now) - f.lease(s)/3*2
}

// subscribe listens until the subscription ends, and then waits a little.
func (f *Fleet) subscribe(ctx context.Context) {
	err := health.ErrNoAnswer
	defer func() { // also if the store panics or ends the goroutine
		if ctx.Err() != nil {
			return
		}
		f.health.Note(health.Watch, err)
		f.listens.Store(false)
		f.polls.Set(f.interval())
		f.loops.Wake()
		select {
		case <-time.After(health.Pause()):
		case <-ctx.Done():
		}
	}()
	ended := errors.New("toolcircuit: Watch returned nil before its context ended")
	err = cmp.Or(f.store.Watch(ctx, func(key string, v View) { f.changed(ctx, key, v) }, f.resync), ended)
}

// changed takes in a change that the store tells of. A circuit that this process does not have
// loads its record when it is first used.
func (f *Fleet) changed(ctx context.Context, key string, v View) {
	f.recognize(v.Fence)
	if m := f.members.Get(key); m != nil {
		f.heard(ctx, m, v)
	}
}

// heard makes a member's circuit take in a View for which it has not asked.
func (f *Fleet) heard(ctx context.Context, m *member, v View) {
	if c := m.tool(); c != nil {
		c.take(ctx, func(s state, in input) (state, bool) { return s.adopt(in, v) })
	}
}

// take takes a step with what the store says. OnEvent hears of it in another goroutine.
func (c *ToolCircuit) take(ctx context.Context, f func(state, input) (state, bool)) *state {
	after, _ := c.advance(ctx, time.Time{}, f)
	c.deliverAside()
	return after
}

// resync makes the rhythm poll now, because changes may have been missed.
func (f *Fleet) resync() {
	f.health.Note(health.Watch, nil)
	f.listens.Store(true)
	f.polls.Set(0)
	f.loops.Wake()
}

// giveBack notes that the store may have taken, or may yet take, a claim that nobody waits for.
func (f *Fleet) giveBack(m *member, fence Fence, t Terms) {
	f.strays.Add(fence, stray{m, t}, time.Now().Add(2*t.Lease+f.o.OpTimeout))
	f.loops.Wake()
}

// recognize notes that the store holds a fence. If it is a stray it is given back once more: a store
// that was frozen may carry out a claim long after it was made.
func (f *Fleet) recognize(fence Fence) {
	if f.strays.Seen(fence) {
		f.loops.Wake()
	}
}

// giveBackStrays gives back the strays that are due, up to the first request that fails.
func (f *Fleet) giveBackStrays(ctx context.Context) bool {
	for fence, s := range f.strays.Due() {
		v, ok := f.settle(ctx, s.member.key, fence, Settlement{Terms: s.terms, Result: ProbeAbandoned})
		if !ok {
			return false
		}
		f.strays.Asked(fence)
		f.heard(ctx, s.member, v)
	}
	return true
}

// storePanic is a panic in the store. Its text is one line; the PanicError has the stack.
type storePanic struct{ *PanicError }

func newStorePanic(value any) error {
	return storePanic{&PanicError{Value: value, Stack: debug.Stack()}}
}

func (e storePanic) Error() string { return fmt.Sprint("toolcircuit: the store panicked: ", e.Value) }
func (e storePanic) Unwrap() error { return e.PanicError }

// request sends one request. It reports whether the store answered.
func request[T any](ctx context.Context, f *Fleet, class health.Class, send func(context.Context) (T, error)) (T, bool) {
	answer, err := health.Ask(ctx, f.health, class, send)
	if err != nil {
		f.loops.Wake()
	}
	return answer, err == nil
}

// announce tells OnEvent.
func (f *Fleet) announce(n health.News) {
	e := Event{Type: EventRecovered, At: n.At, Err: n.Err}
	if n.Degraded {
		e.Type = EventStoreError
	}
	f.o.OnEvent(context.Background(), e)
}
