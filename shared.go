package toolcircuit

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/toolcircuit/toolcircuit/internal/health"
)

// Store keeps one record per key for the circuits of many workers. It shares transitions, never
// calls: a circuit asks it when it opens, is probed or closes, and once at first use. [Fleet]
// does the asking. Package storetest has the suite that a Store must pass.
//
// Each method is one atomic step on one record, on the Store's own clock. Only durations cross
// the interface, so the workers' clocks need not agree. Each method returns the View that
// results, whether it changed the record or not: a request that comes too late is no error.
// After an error the request may or may not have been carried out. Asking again is always safe.
// A method returns as soon as its context ends: one that does not is not asked again until it has
// returned. All methods are safe for concurrent use.
//
// A change gives the record a new Epoch and is passed to Watch. The Epoch is the microseconds
// since 1970, and at least one more than the record's last and than the request's. So a store
// that lost its last writes does not give an Epoch twice. An Epoch of 2^53 or more comes from the
// far future and counts as none, in a request and in a View. Renewing a lease is no change.
//
// A record is dropped Terms.Retention after it is over: after the wait and the lease of an open
// one, after the last change of a closed one.
type Store interface {
	// Load returns the Views of the keys, in their order: the zero View where there is no record.
	Load(ctx context.Context, keys []string) ([]View, error)

	// Trip opens a closed record whose Epoch is at most the request's. Its generation fades by
	// [Terms.Fade] first and then rises by one, except for a Pause. A missing record opens with
	// Opening.Generation.
	//
	// While an open record waits, Trip can only move the end of the wait later. If the dependency
	// Asked, the new end is Wait from now. Otherwise a wait that was asked for returns to what the
	// curve gives from the opening, and Asked ends. A wait by the curve stays.
	//
	// Trip leaves any other record as it is. If a closed one has a later Epoch, the failures are
	// older than its closing. If the wait is over or a probe runs, only the probe decides.
	Trip(ctx context.Context, key string, t TripRequest) (View, error)

	// Acquire claims the probe of an open record whose wait and lease are over, or renews the
	// lease of the Fence that has the probe. The claim is granted iff the View has the request's
	// Fence. Early skips the rest of a wait that the dependency did not ask for. A missing record
	// is first made from Lost, with its wait over; without Lost the zero View is returned.
	Acquire(ctx context.Context, key string, a AcquireRequest) (View, error)

	// Settle ends the probe of a Fence. A record with another Fence, or none, stays as it is: the
	// holder has lost the probe.
	Settle(ctx context.Context, key string, f Fence, o Settlement) (View, error)

	// Watch calls changed with each change that any worker makes, at most once and in any order.
	// It calls resync when changes may have been missed: as soon as it listens, and after each
	// interruption. A store that cannot push calls resync from time to time. Both functions
	// return at once and may be called from any goroutine, but not after Watch has returned.
	// Watch returns when ctx ends or when it can listen no longer. The Fleet then calls it again.
	Watch(ctx context.Context, changed func(key string, v View), resync func()) error
}

// Resetter is a Store that can close a record from outside, in a new Epoch greater than that of
// the request, with generation 0 and without a Fence. On a Store without it
// [ToolCircuit.Reset] stays local, and the next change in the fleet undoes it.
type Resetter interface {
	Reset(ctx context.Context, key string, r ResetRequest) (View, error)
}

// View is a record as it is when the Store answers. A closed record has a Generation, an Epoch and
// an Age, and no more. The zero View is that of a key without a record, which counts as closed.
type View struct {
	Open           bool
	Generation     int           // openings in memory; a closed record has those at its closing
	Epoch          uint64        // rises with each change
	Remaining      time.Duration // until a probe may go; 0 once that is over, and when closed
	LeaseRemaining time.Duration // until another worker may claim the probe; 0 if it may now
	Fence          Fence         // of the probe, also after its lease; "": no probe is out
	Asked          bool          // the dependency asked for the wait
	Cause          Kind          // of the opening
	Failures       int           // that the opening rule counted
	Age            time.Duration // since the record opened or, if closed, since it closed
}

// Fence names one claim of a probe. The worker draws it at random and never uses it again. The
// empty Fence is none.
type Fence string

// Terms are what the policy of the asking circuit and its Fleet set for one request. They are
// valid and complete.
//
// They also bound the times of a record, which a clock that stepped back may have moved away.
// Before a Store carries out a request, it cuts the wait to MaxRetryAfter from now if the
// dependency asked for it, otherwise to MaxCooldown from now, and the lease to Lease from now.
type Terms struct {
	Cooldown, MaxCooldown time.Duration // as in Policy
	Multiplier, Jitter    float64       // as in Policy
	Draw                  float64       // the share of Jitter for this request, from 0 up to 1
	MaxRetryAfter         time.Duration // cap on a wait that the dependency asked for
	ProbeSuccesses        int           // in a row that close the record
	Lease                 time.Duration // of a probe, from now
	Retention             time.Duration
}

// Curve returns the wait after the opening with that generation, if the dependency asks for none:
// min(Cooldown * Multiplier^(generation-1), MaxCooldown), longer by Jitter*Draw of it. It never
// exceeds MaxCooldown: near it the part without jitter is shorter.
func (t Terms) Curve(generation int) time.Duration {
	return t.rules().spread(generation, t.Draw)
}

// Fade returns what is left of a generation after the record has been closed for that long. A
// generation falls by one after its wait on the curve, without jitter, and so on.
func (t Terms) Fade(generation int, closed time.Duration) int {
	began := time.Unix(0, 0)
	s := state{rules: t.rules(), State: StateClosed, openings: generation, calm: began}
	return s.openingsAt(began.Add(closed))
}

func (t Terms) rules() *rules {
	return &rules{Policy: Policy{Cooldown: t.Cooldown, MaxCooldown: t.MaxCooldown, Multiplier: t.Multiplier, Jitter: t.Jitter}}
}

// Opening is what a worker knows of an opening.
type Opening struct {
	Generation int           // with this opening
	Wait       time.Duration // from now; 0: [Terms.Curve]. One that is asked for or over is at least 1ms
	Asked      bool          // the dependency asked for Wait
	Age        time.Duration // since the opening, because it may be told late
	Cause      Kind
	Failures   int
}

// TripRequest says that a worker has opened its circuit, or that a failure from before the
// opening asks for a longer wait.
type TripRequest struct {
	Terms
	Opening
	Epoch uint64 // of the record in which the failures happened
	Pause bool   // the dependency asked for a pause, so the generation does not rise
}

// AcquireRequest claims or renews a probe.
type AcquireRequest struct {
	Terms
	Fence Fence
	Early bool     // a Monitor has seen the dependency answer during the cooldown
	Epoch uint64   // the latest that the worker knows; a record that is made anew gets a greater one
	Lost  *Opening // what a missing record is made from; nil: the worker knows of no opening
}

// Settlement is how a probe ended.
type Settlement struct {
	Terms
	Result  ProbeResult
	Opening // of ProbeFailed and ProbePaused; the record has its own Generation
}

// ProbeResult is the result of a probe.
type ProbeResult string

const (
	// ProbeOK closes the record if it is the last of ProbeSuccesses in a row. Otherwise it frees
	// the probe.
	ProbeOK ProbeResult = "ok"
	// ProbeFailed opens the record anew, with the next generation.
	ProbeFailed ProbeResult = "failed"
	// ProbePaused opens it anew for the wait that the dependency asked for, with the same
	// generation.
	ProbePaused ProbeResult = "paused"
	// ProbeAbandoned says nothing about the dependency: the next to ask gets the probe.
	ProbeAbandoned ProbeResult = "abandoned"
)

// ResetRequest closes a record.
type ResetRequest struct {
	Terms
	Epoch uint64 // the latest that the worker knows
}

// Shared says whether a circuit shares its state.
type Shared string

const (
	SharedNot      Shared = ""         // the circuit is in no Fleet
	SharedOK       Shared = "ok"       // the Fleet's store answers
	SharedDegraded Shared = "degraded" // it does not, so the circuit goes on by itself
)

// What follows is a circuit's side of a Fleet: what its state holds besides, the steps that the
// store causes, which are pure like those of the machine, and what a call does when it needs the
// store. A View says what the store knows of the circuit: closed, open with the wait that is left,
// or half-open with the lease that is left.
//
//	step          what happened                        next state
//	settleShared  a call has ended                     settle's, and the store is owed the change
//	adopt         a View came                          the View's, if it is newer; nothing is owed
//	hear          a Load was answered                  adopt's; an opening that the store lost is owed
//	told          what was owed has been told          adopt's; nothing is owed
//	holdBack      a call asks the store for the probe  refuses until the answer
//	claimed       the store gave the probe             half-open, the call is the probe
//	              another worker has it                adopt's, or refuses until the wait is over
//	              the store knows of no opening        alone's
//	unanswered    the store did not answer             refuses for a while; alone's at the third time
//	cutOff        the store cannot be asked            refuses for a while; alone's if given up on
//	alone         the store cannot help                half-open, the call is this worker's own probe
//	renewed       the probe's lease was renewed        the same, with a later end of the lease
//	rested        a poll has passed                    the same, used less recently
//
// Two numbers have two jobs. seq is the circuit's own: an admission carries it and a settlement
// compares it. epoch is the store's, and is compared only with that of a View.

// use says how recently a circuit in a Fleet was used. Each poll lowers it by one.
type use uint8

const (
	useAlone   use = iota // the circuit is in no Fleet
	useUnseen             // nobody looks after it: the next call loads its record first
	useLoading            // a call does so now
	useIdle               // a call since the last poll would be news
	useFresh              // used since the last poll, which asks for its record
)

// plain reports whether a call need not be noted.
func (u use) plain() bool { return u == useAlone || u == useFresh }

// account is what a circuit asks of the store and owes to it. It never changes, like all that a
// state points to, so a step that replaces it drops what was owed.
type account struct {
	fence      Fence     // of the probe that this worker has
	lease      time.Time // until when it has it for sure
	claim      Fence     // of the probe that it asks for
	until      time.Time // calls are held back until then: somebody asks, or the store cannot be asked
	unanswered int       // claims in this cooldown
	owed       *debt     // what the store is still to be told
}

// debt is one thing that the store is to be told. It is told once at a time.
type debt struct {
	sync.Mutex
	kind    debtKind
	fence   Fence   // owedVerdict: of the probe
	verdict Verdict // owedVerdict: of the probe
	at      time.Time
}

type debtKind uint8

const (
	owedOpening debtKind = iota // the state is open
	owedVerdict                 // the fleet's probe has ended
	owedClosing                 // this worker's own probe has closed a circuit that is open in the store
	owedReset
)

// hold returns how long a gate holds back calls, if the rest of the state says hold.
func (a *account) hold(g *gate, hold time.Duration) time.Duration {
	if a == nil || a.until.IsZero() {
		return hold
	}
	return max(hold, a.until.Sub(g.from))
}

// owes returns s with a debt if the circuit is in a Fleet, otherwise s.
func (s state) owes(d *debt) state {
	if s.use != useAlone {
		s.account = &account{owed: d}
	}
	return s
}

// debt returns what s owes, or nil.
func (s *state) debt() *debt {
	if s.account == nil {
		return nil
	}
	return s.account.owed
}

// active reports whether the rhythm has to look at a circuit in the state s.
func (s *state) active() bool {
	return s.State != StateClosed || s.use >= useIdle || s.account != nil
}

// busy reports whether the rhythm has to look at it as soon as something is due.
func (s *state) busy() bool {
	return s.account != nil && (s.account.owed != nil || s.account.fence != "")
}

// settleShared is settle, and notes what the fleet is to be told. A holder that has stalled past
// its lease decides nothing here: the fence decides, in the store.
func (s state) settleShared(in input, by *state, v Verdict, err error) (state, bool) {
	var held *debt
	if s.State == StateHalfOpen && by.seq == s.seq && s.account != nil && s.account.fence != "" {
		held = &debt{kind: owedVerdict, fence: s.account.fence, verdict: v, at: in.now}
		if !in.now.Before(s.account.lease) {
			g := *s.gate
			g.held = false
			s.gate = &g
			return s.owes(held), true
		}
	}
	next, changed := s.settle(in, by, v, err)
	switch {
	case !changed || s.use == useAlone:
	case held != nil:
		next = next.owes(held)
	case next.State == StateOpen:
		next = next.owes(&debt{kind: owedOpening})
	case next.State == StateClosed && s.State == StateHalfOpen && s.epoch > 0:
		next = next.owes(&debt{kind: owedClosing})
	}
	return next, changed
}

// adopt takes in a View that is newer than what the circuit knows. It begins a new seq, except
// from open to open: a late failure may still ask for a longer wait there. What is owed is
// dropped, because it is about the past.
func (s state) adopt(in input, v View) (state, bool) {
	if !v.newer(s.epoch) || s.use == useAlone || s.asks(v.Fence) {
		return s, false
	}
	if a := s.account; a != nil && a.fence != "" && a.fence == v.Fence { // its own probe, whose grant it knows
		s.epoch = v.Epoch
		return s, true
	}
	owed := s.debt()
	if owed != nil && owed.kind == owedClosing && v.Open && v.Age >= in.now.Sub(s.since) {
		s.epoch = v.Epoch // of an opening whose end this worker has seen
		return s, true
	}
	s.use, s.epoch, s.account = max(s.use, useIdle), v.Epoch, nil
	v = v.within(&s.Policy)
	began := in.now.Add(-v.Age)
	free := s.State == StateHalfOpen && v.Remaining == 0
	switch leased := v.LeaseRemaining > 0; {
	case !v.Open && s.State == StateClosed && owed != nil: // its own closing
	case !v.Open:
		s = s.close(in, RuleFleet)
		s.openings, s.calm = v.Generation, began
	case leased || free:
		s = s.learn(v)
		s.enter(StateHalfOpen, in.now)
		s.gate = &gate{from: in.now, due: in.now, held: leased, told: v.LeaseRemaining}
	case s.State == StateOpen:
		s = s.learn(v)
		if began.After(s.since) {
			s.since = began
		}
		s.gate = &gate{from: s.since, byCurve: !v.Asked, told: max(in.now.Sub(s.since)+v.Remaining, 1)}
		if end := in.now.Add(v.Remaining + time.Millisecond); owed != nil && s.askedUntil(s.trouble).After(end) {
			s = s.owes(&debt{kind: owedOpening})
		}
	default:
		s.rule = RuleFleet
		s = s.learn(v)
		s.enter(StateOpen, began)
		s.gate = &gate{from: began, byCurve: !v.Asked, told: max(v.Age+v.Remaining, 1)}
	}
	return s, true
}

// learn takes from a View why the record is open, unless the circuit has seen that itself.
func (s state) learn(v View) state {
	s.openings = v.Generation
	if s.State == StateClosed || s.rule == RuleFleet {
		s.rule, s.trouble = RuleFleet, &trouble{cause: v.Cause, failures: v.Failures, calls: v.Failures}
	}
	return s
}

// asks reports whether the circuit itself waits for the answer to a claim with that fence.
func (s *state) asks(f Fence) bool {
	return f != "" && s.account != nil && s.account.claim == f
}

// newer reports whether v has a later epoch than that. One from the far future counts as none,
// because no change would be newer than it.
func (v View) newer(epoch uint64) bool { return v.Epoch > epoch && v.Epoch < 1<<53 }

// within returns v as a circuit under p takes it in, whatever the store says.
func (v View) within(p *Policy) View {
	longest := p.MaxCooldown
	if v.Asked {
		longest = p.MaxRetryAfter
	}
	v.Remaining = min(max(v.Remaining, 0), longest)
	v.LeaseRemaining = min(max(v.LeaseRemaining, 0), p.ProbeTimeout)
	v.Age = min(max(v.Age, 0), 1<<61) // room to add to it
	v.Generation, v.Failures = max(v.Generation, 0), max(v.Failures, 0)
	if v.Cause.place() == len(kinds) {
		v.Cause = KindUnknown
	}
	return v
}

// hear takes in the answer to a Load. A missing record does not close a circuit: it was lost, so
// an opening whose wait runs is put back.
func (s state) hear(in input, v View) (state, bool) {
	next, changed := s.adopt(in, v)
	if changed || s.use == useAlone {
		return next, changed
	}
	d := s.debt()
	switch {
	case v.Epoch == 0 && s.State == StateOpen && s.account == nil && s.at(in.now) == StateOpen:
		return s.owes(&debt{kind: owedOpening}), true
	case v.Open && v.Epoch == s.epoch && s.State == StateOpen && s.account == nil && s.gate.told-v.Age-v.Remaining > time.Second:
		// another's terms have cut the wait; had the store's clock moved, Age would have, too
		g := *s.gate
		g.told = max(in.now.Sub(g.from)+v.within(&s.Policy).Remaining, 1)
		if g.told < s.gate.told { // not so in a View that says nonsense
			s.gate, changed = &g, true
		}
	case d != nil && d.kind == owedClosing && !v.Open: // it is closed there, too
		s.account, changed = nil, true
	}
	if s.use < useIdle {
		s.use, changed = useIdle, true
	}
	return s, changed
}

// told takes in the answer to a debt.
func (s state) told(in input, d *debt, v View) (state, bool) {
	next, changed := s.adopt(in, v)
	if next.debt() != d {
		return next, changed
	}
	next.account = nil
	if v.Epoch == 0 && s.State == StateOpen && d.kind == owedVerdict { // the record was lost
		next = next.owes(&debt{kind: owedOpening})
	}
	return next, true
}

// holdBack returns s with calls held back until then. Either one of them claims the probe, another
// worker has it, or the store cannot be asked.
func (s state) holdBack(claim Fence, until time.Time) state {
	a := account{}
	if s.account != nil {
		a = *s.account
	}
	a.claim, a.until = claim, until
	s.account = &a
	return s
}

// claimed takes in the answer to a claim.
func (s state) claimed(in input, f Fence, v View, lease time.Time) (state, bool) {
	mine := s.asks(f) && s.State != StateClosed
	switch {
	case s.use == useAlone || !mine && (s.State == StateClosed || !v.newer(s.epoch)):
		return s, false
	case v.Open && v.Fence == f:
		again := s.State == StateHalfOpen
		if s = s.admit(in); again {
			s.enter(StateHalfOpen, in.now) // so that only the fence decides
		}
		if v.newer(s.epoch) {
			s.epoch = v.Epoch
		}
		s.openings, s.account = max(v.Generation, 0), &account{fence: f, lease: lease}
		return s, true
	case v.newer(s.epoch):
		s.account = nil
		return s.adopt(in, v)
	case !v.Open:
		return s.alone(in), true
	}
	w := v.within(&s.Policy)
	wait := max(w.Remaining, w.LeaseRemaining)
	longest := max(s.MaxCooldown, s.MaxRetryAfter) + s.ProbeTimeout
	if wait == 0 || in.now.Sub(s.gate.from) > 2*longest { // then this is no answer
		return s.unanswered(in, 0), true
	}
	return s.holdBack("", in.now.Add(wait)), true
}

// unanswered returns s after a claim without an answer. Calls are held back for a while. After
// health.Enough such claims in one cooldown this call is the worker's own probe.
func (s state) unanswered(in input, wait time.Duration) state {
	if s.account.unanswered+1 >= health.Enough {
		return s.alone(in)
	}
	s = s.holdBack("", in.now.Add(wait))
	s.account.unanswered++ // holdBack has just made it, so it is not shared
	return s
}

// alone returns the state in which the call that arrives is this worker's own probe.
func (s state) alone(in input) state {
	s.account = nil
	return s.admit(in)
}

// renewed takes in the answer to a renewal.
func (s state) renewed(in input, f Fence, v View, lease time.Time) (state, bool) {
	if s.account == nil || s.account.fence != f || v.Fence != f {
		return s.adopt(in, v)
	}
	a := *s.account
	a.lease = lease
	s.account = &a
	return s, true
}

// later returns v as it is after that long.
func (v View) later(d time.Duration) View {
	d = max(d, 0)
	v.Remaining, v.LeaseRemaining = max(v.Remaining-d, 0), max(v.LeaseRemaining-d, 0)
	v.Age += d
	return v
}

// rested returns s after a poll: its last use is one poll longer ago. A circuit that is open or in
// debt does not rest.
func (s state) rested() (state, bool) {
	switch {
	case s.State != StateClosed || s.account != nil:
	case s.use == useFresh:
		return s.touched(useIdle)
	case s.use == useIdle:
		return s.touched(useUnseen)
	}
	return s, false
}

// touched returns s as used that recently.
func (s state) touched(u use) (state, bool) {
	changed := s.use != useAlone && s.use != u
	if changed {
		s.use = u
	}
	return s, changed
}

// opening returns what the store is told about the open state s. An opening that is told late has
// only what is left of its wait: 1ms if nothing is.
func (s *state) opening(now time.Time, salt uint64, late time.Duration) Opening {
	hold, asked := s.cooldown(salt)
	o := Opening{
		Generation: s.openings,
		Asked:      asked,
		Age:        max(now.Sub(s.since), 0),
		Cause:      s.trouble.cause,
		Failures:   s.trouble.failures,
	}
	if o.Asked || o.Age > late {
		o.Wait = max(hold-o.Age, time.Millisecond) // 0 would be a whole new wait
	}
	return o
}

// settlement returns what the store is told about the probe that ended with d.
func (s *state) settlement(d *debt, now time.Time, salt uint64, late time.Duration) (r ProbeResult, o Opening) {
	switch d.verdict.Effect {
	case EffectHeal:
		return ProbeOK, o
	case EffectIgnore:
		return ProbeAbandoned, o
	case EffectPause:
		r = ProbePaused
	default:
		r = ProbeFailed
	}
	if s.State == StateOpen {
		return r, s.opening(now, salt, late)
	}
	o = Opening{Cause: d.verdict.Kind, Failures: 1, Age: max(now.Sub(d.at), 0)}
	if d.verdict.RetryAfter > 0 {
		o.Asked, o.Wait = true, max(d.verdict.RetryAfter-o.Age, time.Millisecond)
	}
	return r, o
}

// lost returns what a missing record is made from, or nil if the store has more likely dropped it
// than lost it. Otherwise a worker that slept for hours would open a healthy tool for its fleet.
func (s *state) lost(now time.Time, retention time.Duration) *Opening {
	if s.State == StateClosed || now.Sub(s.gate.from) > s.gate.hold+retention/4*3 {
		return nil
	}
	return &Opening{Generation: s.openings, Age: max(now.Sub(s.since), 0), Cause: s.trouble.cause, Failures: s.trouble.failures}
}

// cutOff returns the state after a call that should ask for the probe while the store cannot be
// asked. With a wait, calls are held back for it: then the Fleet has tried again. Without one the
// Fleet has given up on the store, and each worker probes by itself. It does so up to a tenth of
// the cooldown later, which is drawn once.
func (s state) cutOff(in input, wait time.Duration, salt uint64) state {
	if wait == 0 {
		due := s.gate.from
		if s.State == StateOpen {
			cooldown, _ := s.cooldown(salt)
			due = due.Add(cooldown + time.Duration(draw(^salt, s.seq)*float64(cooldown)/10))
		}
		if !in.now.Before(due) {
			return s.alone(in)
		}
		wait = due.Sub(in.now)
	}
	return s.holdBack("", in.now.Add(wait))
}

// ask asks the store for the probe, for a call that a circuit in a Fleet does not hold back. It
// returns the state that lets the call run as the probe, or nil. If the circuit is no longer in s,
// ask does nothing and reports false.
func (c *ToolCircuit) ask(ctx context.Context, s *state) (probe *state, tried bool) {
	m := c.member.Load()
	if m == nil { // it has just left
		return nil, false
	}
	f := m.fleet
	admitted, asks := false, false
	step := func(f func(s state, in input) (state, bool)) *state {
		after, _ := c.advance(ctx, time.Time{}, func(now state, in input) (state, bool) {
			next, changed := f(now, in)
			admitted = changed && next.probe != now.probe
			return next, changed
		})
		return after
	}
	wait, reachable := f.health.Reachable()
	fence, began := Fence(rand.Text()), c.clock.Now()
	after := step(func(now state, in input) (state, bool) {
		switch {
		case c.state.Load() != s:
			return now, false
		case !reachable && (wait == 0 || now.account != nil && now.account.unanswered > 0):
			now = now.cutOff(in, wait, c.salt())
		default: // once in a cooldown also if the latest request failed
			asks = true
			now = now.holdBack(fence, in.now.Add(f.o.OpTimeout))
		}
		tried = true
		return now, true
	})
	switch {
	case admitted:
		return after, true
	case !asks:
		return nil, tried
	}
	var v View
	answered := false
	defer func() { // also if the store ends the goroutine
		if !answered || v.Fence == fence && !admitted {
			f.giveBack(m, fence, f.terms(c, after))
		}
	}()
	v, answered = f.acquire(context.WithoutCancel(ctx), m, c, s, fence, f.lease(s))
	after = step(func(now state, in input) (state, bool) {
		switch {
		case answered:
			return now.claimed(in, fence, v.later(in.now.Sub(began)), began.Add(f.lease(&now)))
		case !now.asks(fence):
			return now, false
		case f.health.Refuses(health.Claim):
			return now.alone(in), true
		}
		return now.unanswered(in, max(time.Until(f.health.RetryAt()), time.Millisecond)), true
	})
	if admitted {
		return after, true
	}
	return nil, true
}

// touch notes the first call of a closed circuit since a poll. If no poll has looked at the circuit
// either, touch loads the record first, and other calls wait for that.
func (c *ToolCircuit) touch(ctx context.Context) {
	m := c.member.Load()
	if m == nil {
		return
	}
	f := m.fleet
	_, reachable := f.health.Reachable()
	loads, waits := false, false
	c.advance(ctx, time.Time{}, func(s state, in input) (state, bool) {
		switch {
		case s.State != StateClosed:
			return s, false
		case s.use == useLoading && reachable:
			waits = true
			return s, false
		case s.use == useUnseen && reachable:
			loads = true
			return s.touched(useLoading)
		}
		return s.touched(useFresh)
	})
	if waits {
		c.awaitLoad(ctx, f.o.OpTimeout)
	}
	if loads {
		defer c.step(ctx, time.Time{}, func(s state, _ input) (state, bool) { return s.touched(useFresh) })
		f.load(context.WithoutCancel(ctx), []*member{m})
	}
}

// awaitLoad returns when the call that loads the record has done so, when ctx ends or after limit.
func (c *circuit) awaitLoad(ctx context.Context, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		changed := c.changes() // before the look, so that no change is missed
		if c.state.Load().use != useLoading {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// tell pays what the state s owes, if the store can be asked. Otherwise the Fleet does so later.
func (c *ToolCircuit) tell(ctx context.Context, s *state) {
	if m := c.member.Load(); m != nil {
		if _, reachable := m.fleet.health.Reachable(); reachable {
			m.fleet.pay(context.WithoutCancel(ctx), m, c, s.debt())
		}
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
