package toolcircuit

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"
	"weak"

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
// A Fleet owns two goroutines until Close, and one for each request and each hook that runs. A
// request that a Store holds past the end of its context counts as failed, and no other of its kind
// is sent until it returns. A Fleet does not keep its circuits alive. All methods are safe for
// concurrent use.
type Fleet struct {
	store  Store
	o      FleetOptions
	id     uint64 // mixed into jitter, so that workers with one Seed differ
	health *health.Health
	stop   context.CancelFunc
	wake   chan struct{} // tells the rhythm that something is due
	over   sync.WaitGroup

	mu      sync.Mutex // taken after the mutex of a circuit where both are held
	closed  bool
	members map[string]*member
	sweepAt int                  // the number of members at which those of lost circuits are dropped
	joined  []*member            // whose records are not loaded yet
	active  map[*member]struct{} // that a poll looks at: open, used lately or in debt
	busy    map[*member]struct{} // of these, that hold a probe or are in debt
	strays  map[Fence]*stray
	pollAt  time.Time
	listens bool                 // the subscription stands
	chunk   int                  // keys in one Load
	stuck   map[health.Class]int // requests that a store that ignores its context still has
}

// FleetOptions are the options of a Fleet. The zero value is usable.
type FleetOptions struct {
	// OpTimeout is the longest wait for one answer of the store. Zero: 50ms.
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

// member is a circuit's place in a Fleet.
type member struct {
	fleet   *Fleet
	key     string
	circuit weak.Pointer[circuit]
}

// stray is a fence that the store may hold for a claim whose answer never came.
type stray struct {
	member *member
	fence  Fence
	terms  Terms
	due    bool      // to be given back
	until  time.Time // then it is forgotten
}

// Shared says whether a circuit shares its state.
type Shared string

const (
	SharedNot      Shared = ""         // the circuit is in no Fleet
	SharedOK       Shared = "ok"       // the Fleet's store answers
	SharedDegraded Shared = "degraded" // it does not, so the circuit goes on by itself
)

// NewFleet returns a Fleet on a Store. An error names the field of o, what it got and what it
// wants.
func NewFleet(s Store, o FleetOptions) (*Fleet, error) {
	if isNil(s) {
		return nil, errors.New("toolcircuit: NewFleet: the store is nil")
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	f := &Fleet{
		store:   s,
		o:       o,
		id:      rand.Uint64(),
		wake:    make(chan struct{}, 1),
		members: map[string]*member{},
		sweepAt: 64,
		active:  map[*member]struct{}{},
		busy:    map[*member]struct{}{},
		strays:  map[Fence]*stray{},
		chunk:   8,
		stuck:   map[health.Class]int{},
	}
	var tell func(health.News)
	if o.OnEvent != nil {
		tell = f.announce
	}
	f.health = health.New(o.OpTimeout, tell)
	var ctx context.Context
	ctx, f.stop = context.WithCancel(context.Background())
	f.over.Add(2)
	go f.forever(ctx, f.rhythm)
	go f.forever(ctx, f.subscribe)
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
		if *field.value < 0 || *field.value > 0 && *field.value < time.Millisecond {
			return fmt.Errorf("toolcircuit: FleetOptions.%s: got %v, want at least 1ms, or 0 for the default", field.name, *field.value)
		}
		if *field.value > longest {
			return fmt.Errorf("toolcircuit: FleetOptions.%s: got %v, want at most %v", field.name, *field.value, longest)
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
	if err := f.enter(m, ci); err != nil {
		return err
	}
	c.advance(context.Background(), time.Time{}, func(s state, _ input) (state, bool) {
		s.use, s.epoch, s.account = useUnseen, 0, nil
		return s, true
	})
	f.mu.Lock()
	f.joined = append(f.joined, m)
	f.mu.Unlock()
	f.poke()
	return nil
}

// enter takes a member in.
func (f *Fleet) enter(m *member, ci *circuit) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return errors.New("toolcircuit: Join: the Fleet is closed")
	}
	if other := f.members[m.key]; other != nil && other.circuit.Value() != nil {
		return fmt.Errorf("toolcircuit: Join: the key %q is another circuit's", m.key)
	}
	if !ci.member.CompareAndSwap(nil, m) {
		return fmt.Errorf("toolcircuit: Join: the circuit of %s is in a Fleet already", ci.dependency)
	}
	if len(f.members) >= f.sweepAt {
		for key, m := range f.members {
			if m.circuit.Value() == nil {
				f.drop(key, m)
			}
		}
		f.sweepAt = 2*len(f.members) + 64
	}
	f.members[m.key] = m
	return nil
}

func (f *Fleet) mustBeMade() {
	if f == nil || f.store == nil {
		panic("toolcircuit: the Fleet is nil; make one with NewFleet")
	}
}

func (f *Fleet) isClosed() bool {
	f.mustBeMade()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// drop takes out a member. The caller holds f.mu.
func (f *Fleet) drop(key string, m *member) {
	if f.members[key] == m {
		delete(f.members, key)
	}
	delete(f.active, m)
	delete(f.busy, m)
}

// Leave makes a circuit go on alone with the state that it has. News that the store has not been
// told yet is dropped. If the circuit has the probe, another worker can have it when the lease
// ends. A circuit that is not in this Fleet stays as it is.
func (f *Fleet) Leave(c *ToolCircuit) {
	f.mustBeMade()
	m := c.made().member.Load()
	if m == nil || m.fleet != f {
		return
	}
	f.mu.Lock()
	f.drop(m.key, m)
	f.mu.Unlock()
	m.leave(c)
}

// leave is the circuit's part of leaving.
func (m *member) leave(c *ToolCircuit) {
	c.advance(context.Background(), time.Time{}, func(s state, _ input) (state, bool) {
		s.use, s.epoch, s.account = useAlone, 0, nil
		return s, true
	})
	c.member.CompareAndSwap(m, nil)
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
	f.mu.Lock()
	closed, members := f.closed, f.members
	f.closed, f.members, f.joined, f.active, f.busy = true, nil, nil, nil, nil
	f.mu.Unlock()
	if closed {
		return nil
	}
	f.health.Close()
	f.stop()
	done := make(chan struct{})
	go func() { f.over.Wait(); close(done) }()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	answers := err == nil
	for _, m := range members {
		c := m.tool()
		if c == nil {
			continue
		}
		if answers && ctx.Err() == nil {
			answers = f.settleUp(ctx, m, c)
		}
		m.leave(c)
		c.deliverAside()
	}
	return err
}

// settleUp pays what a circuit owes and gives its probe back.
func (f *Fleet) settleUp(ctx context.Context, m *member, c *ToolCircuit) bool {
	s := c.state.Load()
	if d := s.debt(); d != nil {
		return f.pay(ctx, m, c, d)
	}
	if a := s.account; a != nil && a.fence != "" {
		_, ok := f.settle(ctx, m.key, a.fence, Settlement{Terms: f.terms(c, s), Result: ProbeAbandoned})
		return ok
	}
	return true
}

// tool returns the circuit, or nil if it is lost. Its events name no tool.
func (m *member) tool() *ToolCircuit {
	if c := m.circuit.Value(); c != nil && c.member.Load() == m {
		return &ToolCircuit{c, noTool}
	}
	return nil
}

// attend makes the rhythm look at a member if the new state s of its circuit asks for that.
func (m *member) attend(s *state) {
	if s.use == useAlone || !s.active() {
		return
	}
	f := m.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.members[m.key] != m {
		return
	}
	_, attended := f.active[m]
	if now := time.Now(); len(f.active) == 0 && f.pollAt.Before(now.Add(-f.o.OpTimeout)) {
		f.pollAt = now.Add(f.interval()) // it was due when there was nothing to poll
	}
	f.active[m] = struct{}{}
	a := s.account
	busy := a != nil && (a.owed != nil || a.fence != "")
	if busy {
		f.busy[m] = struct{}{}
		if a.owed != nil && a.owed.kind == owedClosing {
			f.pollAt = time.Now()
		}
	}
	if busy || !attended {
		f.poke()
	}
}

// active reports whether the rhythm has to look at a circuit in the state s.
func (s *state) active() bool {
	return s.State != StateClosed || s.use >= useIdle || s.account != nil
}

func (f *Fleet) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (c *circuit) shared(s *state) Shared {
	m := c.member.Load()
	switch {
	case s.use == useAlone || m == nil:
		return SharedNot
	case m.fleet.health.Degraded():
		return SharedDegraded
	}
	return SharedOK
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
	a := AcquireRequest{
		Terms: f.terms(c, s),
		Fence: fence,
		Early: s.State == StateOpen && s.gate.answered,
		Epoch: s.epoch,
	}
	a.Lease = lease
	a.Lost = s.lost(c.clock.Now(), a.Retention)
	return request(ctx, f, health.Claim, func(ctx context.Context) (View, error) { return f.store.Acquire(ctx, m.key, a) })
}

func (f *Fleet) settle(ctx context.Context, key string, fence Fence, o Settlement) (View, bool) {
	return request(ctx, f, health.Tell, func(ctx context.Context) (View, error) { return f.store.Settle(ctx, key, fence, o) })
}

// pay tells the store what a circuit owes, and takes in the answer. It reports false if there was
// none.
func (f *Fleet) pay(ctx context.Context, m *member, c *ToolCircuit, d *debt) bool {
	if !d.TryLock() {
		return true // somebody does
	}
	defer d.Unlock()
	s, now := c.state.Load(), c.clock.Now()
	if s.debt() != d {
		return true // it is no longer true
	}
	t := f.terms(c, s)
	var tell func(context.Context) (View, error)
	switch d.kind {
	case owedClosing: // when a Load shows that it is due
		return true
	case owedOpening:
		o := s.opening(now, c.salt(), f.o.OpTimeout)
		if s.at(now) == StateOpen {
			q := TripRequest{Terms: t, Opening: o, Epoch: s.epoch, Pause: s.rule == RulePause}
			tell = func(ctx context.Context) (View, error) { return f.store.Trip(ctx, m.key, q) }
		}
	case owedVerdict:
		q := Settlement{Terms: t}
		q.Result, q.Opening = s.settlement(d, now, c.salt(), f.o.OpTimeout)
		tell = func(ctx context.Context) (View, error) { return f.store.Settle(ctx, m.key, d.fence, q) }
	case owedReset:
		if r, ok := f.store.(Resetter); ok {
			q := ResetRequest{Terms: t, Epoch: s.epoch}
			tell = func(ctx context.Context) (View, error) { return r.Reset(ctx, m.key, q) }
		}
	}
	var v View
	if tell != nil {
		var ok bool
		if v, ok = request(ctx, f, health.Tell, tell); !ok {
			return false
		}
	}
	c.advance(ctx, time.Time{}, func(s state, in input) (state, bool) { return s.told(in, d, v.later(in.now.Sub(now))) })
	return true
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
		f.heard(ctx, c, v)
	}
}

// load loads the records of members, in chunks that the store can answer within OpTimeout: twice as
// many keys after a quick answer, half as many after none. It reports whether all were answered.
func (f *Fleet) load(ctx context.Context, members []*member) bool {
	for len(members) > 0 {
		f.mu.Lock()
		chunk := members[:min(f.chunk, len(members))]
		f.mu.Unlock()
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
		took := time.Since(began)
		f.mu.Lock()
		switch {
		case !ok:
			f.chunk = max(len(chunk)/2, 1)
		case took < f.o.OpTimeout/4 && len(chunk) == f.chunk:
			f.chunk = min(2*f.chunk, 256)
		}
		f.mu.Unlock()
		if !ok {
			return false
		}
		for i, m := range chunk {
			c := m.tool()
			if c == nil {
				continue
			}
			v := views[i].later(time.Since(began))
			f.recognize(v.Fence)
			after, _ := c.advance(ctx, time.Time{}, func(s state, in input) (state, bool) { return s.hear(in, v) })
			if d := after.debt(); d != nil && d.kind == owedClosing && v.Open && v.Remaining == 0 && v.LeaseRemaining == 0 {
				f.reclose(ctx, m, c)
			}
			c.deliverAside()
		}
		members = members[len(chunk):]
	}
	return true
}

// The rhythm and the subscription.

// forever runs a loop until ctx ends, also if a Store or a Clock ends its goroutine or panics.
func (f *Fleet) forever(ctx context.Context, loop func(context.Context)) {
	defer func() {
		recover()
		if ctx.Err() == nil {
			go f.forever(ctx, loop)
		} else {
			f.over.Done()
		}
	}()
	for ctx.Err() == nil {
		loop(ctx)
	}
}

// rhythm does what is due, and then sleeps until the next is.
func (f *Fleet) rhythm(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if wait, some := f.turn(ctx); some {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-timer.C:
		}
	}
}

// turn does what is due, and returns when something is due again, if anything is. After a failed
// request it waits for retryAt, and then tries the store with a Load first.
func (f *Fleet) turn(ctx context.Context) (wait time.Duration, some bool) {
	now := time.Now()
	f.mu.Lock()
	due := !now.Before(f.pollAt)
	f.mu.Unlock()
	sick := f.health.Sick()
	switch {
	case now.Before(f.health.RetryAt()):
	case sick && !f.poll(ctx, true):
	case !f.clear(ctx): // is it the store, or one record?
		f.load(ctx, f.anyone())
	case !sick:
		f.poll(ctx, due)
	}
	return f.next()
}

// list returns the members of a set.
func (f *Fleet) list(set *map[*member]struct{}) []*member {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*member, 0, len(*set))
	for m := range *set {
		all = append(all, m)
	}
	return all
}

// anyone returns one member, if there is any.
func (f *Fleet) anyone() []*member {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		return []*member{m}
	}
	f.health.Unused()
	return nil
}

// poll loads the records of new members and, if due, of all that are open or in debt or were used
// since the last poll. Then it also lowers the use of all.
func (f *Fleet) poll(ctx context.Context, due bool) bool {
	f.mu.Lock()
	joined := f.joined
	f.joined = nil
	f.mu.Unlock()
	load := joined
	if due {
		load = append(load, f.rest(ctx)...)
	}
	if f.load(ctx, load) {
		return true
	}
	f.mu.Lock()
	f.joined = append(f.joined, joined...)
	f.mu.Unlock()
	return false
}

// rest lowers the use of the active members and returns those whose records a poll loads.
func (f *Fleet) rest(ctx context.Context) (load []*member) {
	calm := true
	for _, m := range f.list(&f.active) {
		c := m.tool()
		if c == nil {
			f.retire(m)
			continue
		}
		s := c.state.Load()
		calm = calm && s.State == StateClosed && s.account == nil
		loads := s.State != StateClosed || s.use == useFresh || s.account != nil
		if loads {
			load = append(load, m)
		}
		c.advance(ctx, time.Time{}, func(s state, _ input) (state, bool) { return s.rested() })
		if !loads {
			f.retire(m)
		}
	}
	f.mu.Lock()
	f.pollAt = time.Now().Add(f.interval())
	if len(f.active) == 0 {
		f.active = map[*member]struct{}{} // the old one would keep the memory of its largest size
	}
	for _, s := range f.strays {
		calm = calm && !s.due
	}
	f.mu.Unlock()
	if calm {
		f.health.Settled()
	}
	if f.health.Sick() && len(load) == 0 {
		load = f.anyone()
	}
	return load
}

// interval is the time to the next poll. The caller holds f.mu.
func (f *Fleet) interval() time.Duration {
	if f.listens {
		return time.Duration((0.9 + 0.2*rand.Float64()) * float64(f.o.Poll))
	}
	return min(f.o.Poll, health.Pause())
}

// retire takes a member off the rhythm if nothing is to be done for it.
func (f *Fleet) retire(m *member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch c := m.tool(); {
	case c == nil:
		f.drop(m.key, m)
	default:
		s := c.state.Load()
		if s.account == nil {
			delete(f.busy, m)
		}
		if !s.active() {
			delete(f.active, m)
		}
	}
}

// clear renews the leases that are due, gives back what strayed and pays debts, up to the first
// request that fails.
func (f *Fleet) clear(ctx context.Context) bool {
	busy := f.list(&f.busy)
	for _, m := range busy {
		if c := m.tool(); c != nil {
			if in, some := f.renewal(c); some && in <= 0 && !f.renew(ctx, m, c) {
				return false
			}
		}
	}
	if !f.giveBackStrays(ctx) {
		return false
	}
	for _, m := range busy {
		if c := m.tool(); c != nil {
			if d := c.state.Load().debt(); d != nil {
				ok := f.pay(ctx, m, c, d)
				c.deliverAside()
				if !ok {
					return false
				}
			}
		}
		f.retire(m)
	}
	return true
}

// renewal returns in what time the lease of a probe is to be renewed, if the circuit has one: at a
// third of it, and not past ProbeTimeout.
func (f *Fleet) renewal(c *ToolCircuit) (in time.Duration, some bool) {
	s := c.state.Load()
	a := s.account
	if a == nil || a.fence == "" || s.State != StateHalfOpen || !s.gate.held {
		return 0, false
	}
	if !a.lease.Before(s.gate.from.Add(s.ProbeTimeout)) {
		return 0, false
	}
	return a.lease.Sub(c.clock.Now()) - f.lease(s)/3*2, true
}

// renew renews the lease of the probe that a circuit has.
func (f *Fleet) renew(ctx context.Context, m *member, c *ToolCircuit) bool {
	s, now := c.state.Load(), c.clock.Now()
	fence, lease := s.account.fence, min(f.lease(s), s.ProbeTimeout-now.Sub(s.gate.from))
	v, ok := f.acquire(ctx, m, c, s, fence, lease)
	if ok {
		c.advance(ctx, time.Time{}, func(s state, in input) (state, bool) {
			return s.renewed(in, fence, v.later(in.now.Sub(now)), now.Add(lease))
		})
		c.deliverAside()
	}
	return ok
}

// next returns in what time something is due again.
func (f *Fleet) next() (wait time.Duration, some bool) {
	now, retry := time.Now(), f.health.RetryAt()
	at := now.Add(time.Hour)
	f.mu.Lock()
	if len(f.active) > 0 {
		at, some = f.pollAt, true
	}
	f.mu.Unlock()
	for _, m := range f.list(&f.busy) {
		if c := m.tool(); c != nil {
			if in, leased := f.renewal(c); leased && now.Add(in).Before(at) {
				at = now.Add(in)
			}
		}
	}
	if retry.After(now) {
		at, some = retry, true
	}
	return max(at.Sub(now), time.Millisecond), some
}

// subscribe listens until the subscription ends, and then waits a little.
func (f *Fleet) subscribe(ctx context.Context) {
	defer func() {
		f.mu.Lock()
		f.listens = false
		f.pollAt = time.Now().Add(f.interval())
		f.mu.Unlock()
		f.poke()
		select {
		case <-time.After(health.Pause()):
		case <-ctx.Done():
		}
	}()
	err := errNoAnswer
	defer func() {
		if ctx.Err() == nil {
			f.health.Note(health.Watch, err)
		}
	}()
	err = cmp.Or(f.store.Watch(ctx, func(key string, v View) { f.changed(ctx, key, v) }, f.resync), errWatchEnded)
}

// changed takes in a change that the store tells of. A circuit that this process does not have
// loads its record when it is first used.
func (f *Fleet) changed(ctx context.Context, key string, v View) {
	f.mu.Lock()
	m := f.members[key]
	f.mu.Unlock()
	f.recognize(v.Fence)
	if m != nil {
		if c := m.tool(); c != nil {
			f.heard(ctx, c, v)
		}
	}
}

// heard makes a circuit take in a View for which it has not asked.
func (f *Fleet) heard(ctx context.Context, c *ToolCircuit, v View) {
	c.advance(ctx, time.Time{}, func(s state, in input) (state, bool) { return s.adopt(in, v) })
	c.deliverAside()
}

// resync makes the rhythm poll now, because changes may have been missed.
func (f *Fleet) resync() {
	f.health.Note(health.Watch, nil)
	f.mu.Lock()
	f.listens, f.pollAt = true, time.Now()
	f.mu.Unlock()
	f.poke()
}

// giveBack notes that the store may have taken, or may yet take, a claim that nobody waits for.
func (f *Fleet) giveBack(m *member, fence Fence, t Terms) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.strays[fence] = &stray{m, fence, t, true, time.Now().Add(2*t.Lease + f.o.OpTimeout)}
		f.poke()
	}
}

// recognize notes that the store holds a fence. If it is a stray it is given back once more: a store
// that was frozen may carry out a claim long after it was made.
func (f *Fleet) recognize(fence Fence) {
	if fence == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.strays[fence]; s != nil && !s.due {
		s.due = true
		f.poke()
	}
}

// giveBackStrays gives back the strays that are due, up to the first request that fails.
func (f *Fleet) giveBackStrays(ctx context.Context) bool {
	var due []*stray
	f.mu.Lock()
	for fence, s := range f.strays {
		switch {
		case s.due:
			due = append(due, s)
		case time.Now().After(s.until):
			delete(f.strays, fence)
		}
	}
	f.mu.Unlock()
	for _, s := range due {
		v, ok := f.settle(ctx, s.member.key, s.fence, Settlement{Terms: s.terms, Result: ProbeAbandoned})
		if !ok {
			return false
		}
		f.mu.Lock()
		s.due = false
		f.mu.Unlock()
		if c := s.member.tool(); c != nil {
			f.heard(ctx, c, v)
		}
	}
	return true
}

var (
	errNoAnswer   = errors.New("toolcircuit: the store did not return")
	errWatchEnded = errors.New("toolcircuit: Watch returned nil before its context ended")
)

// storePanic is a panic in the store. Its text is one line; the PanicError has the stack.
type storePanic struct{ *PanicError }

func (e storePanic) Error() string {
	return fmt.Sprintf("toolcircuit: the store panicked: %v", e.Value)
}
func (e storePanic) Unwrap() error { return e.PanicError }

// grace is how long a store may take to notice that its context has ended.
const grace = 5 * time.Millisecond

// request sends one request under OpTimeout, in a goroutine of its own because a store may ignore
// its context. It reports whether the store answered. A panic and runtime.Goexit in the store are
// no answer. While a request of the class is stuck in the store, no other is sent.
func request[T any](ctx context.Context, f *Fleet, class health.Class, send func(context.Context) (T, error)) (T, bool) {
	ctx, cancel := context.WithTimeout(ctx, f.o.OpTimeout)
	defer cancel()
	type reply struct {
		answer T
		err    error
	}
	replied, r := make(chan reply, 1), reply{err: errNoAnswer}
	if f.isStuck(class) {
		replied <- r
	} else {
		go func() {
			r := reply{err: errNoAnswer}
			defer func() {
				if p := recover(); p != nil {
					r.err = storePanic{&PanicError{Value: p, Stack: debug.Stack()}}
				}
				replied <- r
			}()
			r.answer, r.err = send(ctx)
		}()
	}
	select {
	case r = <-replied:
	case <-ctx.Done():
		select {
		case r = <-replied:
		case <-time.After(grace):
			f.setStuck(class, 1)
			go func() { <-replied; f.setStuck(class, -1) }()
		}
	}
	f.health.Note(class, r.err)
	if r.err != nil {
		f.poke()
	}
	return r.answer, r.err == nil
}

func (f *Fleet) isStuck(class health.Class) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stuck[class] > 0
}

func (f *Fleet) setStuck(class health.Class, by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stuck[class] += by
}

// announce tells OnEvent.
func (f *Fleet) announce(n health.News) {
	e := Event{Type: EventRecovered, At: n.At, Err: n.Err}
	if n.Degraded {
		e.Type = EventStoreError
	}
	f.o.OnEvent(context.Background(), e)
}
