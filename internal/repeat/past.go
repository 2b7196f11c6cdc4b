package repeat

import (
	"container/list"
	"time"
)

// The kinds of outcomes that the rules tell apart, as toolcircuit names them. An outcome of any
// other kind is a failure like kindUnavailable.
const (
	kindOK           = "ok"
	kindSlow         = "slow"
	kindDuplicate    = "duplicate"
	kindUnknown      = "unknown"
	kindInvalid      = "invalid"
	kindNotFound     = "not_found"
	kindConflict     = "conflict"
	kindUnauthorized = "unauthorized"
	kindRateLimited  = "rate_limited"
	kindCanceled     = "canceled"
	kindInterrupt    = "interrupt"
	kindRejected     = "rejected"
)

// Limits are the bounds of the rules. All are positive.
type Limits struct {
	Repeats int           // same failures in a row, or rounds of same answers, before a hold
	Pause   time.Duration // how long a hold lasts, since the latest outcome
	Poll    time.Duration // from start to start; a slower repeat is a poll
	Copies  int           // of one call under way
	Memory  int           // calls that are remembered once they have ended
}

// Past is what a run has done so far. Its methods must not run at the same time. Make one with New.
type Past struct {
	limits  Limits
	records map[Digest]*record // of calls under way and of those in kept
	kept    *list.List         // of *record that still say something, the latest at the back
	seen    memory             // answers of this run
	history []step             // the latest outcomes of guarded calls, the latest at the end
	advice  []warning          // of this turn, until a result takes it, the latest at the end

	// The clocks of what can change an answer. Moments are numbers that only grow.
	now     uint64 // of the latest begin or end
	news    uint64 // when the latest call began that brought news
	guarded uint64 // the same of guarded calls
	epoch   epoch
}

// epoch is what a call can rely on to be as it was.
type epoch struct {
	turn    uint64 // the first is 1
	effects uint64 // calls of tools with side effects that succeeded
	doubts  uint64 // those of which nobody knows whether they took effect
}

// New returns the past of a run that begins now.
func New(l Limits) *Past {
	return &Past{limits: l, records: map[Digest]*record{}, kept: list.New(), seen: newMemory(l.Memory), epoch: epoch{turn: 1}}
}

// Call is one call of a run. Its first fields are the caller's; Begin fills in the rest.
type Call struct {
	ID      Digest // of tool and arguments; zero: it equals no other call
	Tool    string // for advice
	Guarded bool   // the call may be refused; without it, it can only bring news and effects
	Writes  bool   // the tool has side effects

	record   *record // nil: not guarded
	start    time.Time
	began    uint64
	epoch    epoch
	outcomes uint64 // of the record when the call began
	honoured bool   // it waited as long as it was asked to
}

// Outcome is what came of a call. The zero Outcome: it did not run.
type Outcome struct {
	Kind string // empty: the call did not run
	// Print is the fingerprint of the answer, or of the error's text where Kind is unknown. Zero:
	// it equals no other.
	Print Digest
	// Wait is until when the dependency, or its circuit, asks to stay away. Zero: nobody asks.
	Wait time.Time
}

// record is what is known of one call.
type record struct {
	id       Digest
	writes   bool
	running  int
	outcomes uint64 // that counted
	failure  failure
	loop     loop
	at       time.Time     // of the latest outcome that counted
	wait     time.Time     // until when that outcome, or a circuit since, asked to wait
	advised  uint64        // in that turn
	place    *list.Element // in kept, nil if not
}

// failure is how a call keeps failing. The zero failure: it does not.
type failure struct {
	kind   string
	print  Digest
	times  int       // in a row
	start  time.Time // of the latest
	known  uint64    // when it was
	before epoch     // when it began
}

// loop is that a call went round with others. The zero loop: it did not.
type loop struct {
	print Digest    // of the answer
	again bool      // the answer came again after the hold
	start time.Time // of the latest call
	at    time.Time // when the loop was known
	known uint64    // the same as a moment
	after epoch     // then
}

// Begin takes in that a call begins, or returns why it must not. Each call that begins must End
// once. A refused one changes nothing, and must not.
func (p *Past) Begin(c *Call, now time.Time) *Refusal {
	c.Guarded = c.Guarded && c.ID != Digest{}
	if c.Guarded {
		r := p.records[c.ID]
		if r == nil {
			r = &record{id: c.ID}
		}
		if refusal := p.refusal(r, now); refusal != nil {
			return refusal
		}
		p.records[c.ID] = r
		r.running++
		r.writes = c.Writes
		c.record, c.outcomes, c.honoured = r, r.outcomes, r.honours(now)
	}
	p.now++
	c.start, c.began, c.epoch = now, p.now, p.epoch
	return nil
}

// End takes in what came of a call that has begun.
func (p *Past) End(c *Call, o Outcome, now time.Time) {
	p.now++
	if o.Kind == kindSlow {
		o.Kind = kindOK // the same answer
	}
	s := step{id: c.ID, kind: o.Kind, print: o.Print, start: c.start}
	if o.Kind != kindOK && o.Kind != kindUnknown {
		s.print = digestOf([]byte(o.Kind))
	}
	if c.Writes {
		p.effect(o.Kind)
	}
	if s.answers() && p.seen.add(s) {
		p.news = max(p.news, c.began)
		if c.Guarded {
			p.guarded = max(p.guarded, c.began)
		}
	}
	if r := c.record; r != nil {
		r.running--
		p.count(c, s, o, now)
		p.tidy(r)
	}
}

// count counts the outcome of a guarded call.
func (p *Past) count(c *Call, s step, o Outcome, now time.Time) {
	r := c.record
	switch o.Kind {
	case "", kindCanceled, kindInterrupt, kindRejected:
		return // which is no outcome
	}
	if s.answers() {
		r.failure, r.wait = failure{}, time.Time{}
	}
	if r.outcomes != c.outcomes { // known from a call at the same time
		if r.failure.times > 0 && o.Wait.After(r.wait) {
			r.wait = o.Wait
		}
		return
	}
	r.outcomes++
	again := s.answers() && r.loop.print == s.print && !c.honoured && p.standing(&r.loop, c.epoch)
	r.loop, r.at = loop{}, now
	if again {
		r.loop = loop{print: s.print, again: true, start: s.start, at: now, known: p.now, after: p.epoch}
	}
	if !s.answers() {
		r.wait = o.Wait
		r.fail(c, s, p.now)
		p.keep(r)
	}
	if s.print == (Digest{}) || c.honoured {
		s = step{}
	}
	p.add(s, now)
	if r.advised != p.epoch.turn && p.hold(r, now) != nil {
		r.advised = p.epoch.turn
		p.keep(r)
		p.warn(c.Tool, r)
	}
}

// effect takes in how a call with side effects went.
func (p *Past) effect(kind string) {
	switch kind {
	case kindOK, kindDuplicate:
		p.epoch.effects++
	case "", kindRateLimited, kindUnauthorized, kindInvalid, kindNotFound, kindConflict, kindInterrupt:
		// no effect, or none yet
	default:
		p.epoch.doubts++ // and the model is told to look
	}
}

// fail counts a failure.
func (r *record) fail(c *Call, s step, moment uint64) {
	times := 0
	if f := r.failure; s.print != (Digest{}) && f.kind == s.kind && f.print == s.print && f.standsIn(c.epoch) && !c.honoured {
		times = f.times
	}
	r.failure = failure{kind: s.kind, print: s.print, times: times + 1, start: c.start, known: moment, before: c.epoch}
}

// Wait takes in that a circuit refused a call and named an end, so that the call may be made then.
func (p *Past) Wait(id Digest, until time.Time) {
	if r := p.records[id]; r != nil && id != (Digest{}) {
		r.wait = until
	}
}

// NextTurn takes in that the run has got new input from outside.
func (p *Past) NextTurn() {
	p.epoch.turn++
	p.history = nil
	p.advice = nil
}

// keep remembers a record, and forgets the oldest if there are too many.
func (p *Past) keep(r *record) {
	if r.place != nil {
		p.kept.MoveToBack(r.place)
		return
	}
	r.place = p.kept.PushBack(r)
	if p.kept.Len() <= p.limits.Memory {
		return
	}
	oldest := p.kept.Remove(p.kept.Front()).(*record)
	oldest.failure, oldest.loop, oldest.place = failure{}, loop{}, nil
	p.tidy(oldest)
}

// tidy drops a record that has nothing to say.
func (p *Past) tidy(r *record) {
	if r.place != nil && r.failure.times == 0 && r.loop == (loop{}) && r.advised == 0 {
		p.kept.Remove(r.place)
		r.place = nil
	}
	if r.place == nil && r.running == 0 {
		delete(p.records, r.id)
	}
}
