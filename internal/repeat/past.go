package repeat

import (
	"container/list"
	"time"
)

// The kinds of outcomes that the rules tell apart, as toolcircuit names them. Any other kind is a failure of the
// last row in rules.go.
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

// Limits are the limits of the rules. All are positive.
type Limits struct {
	Repeats int           // failures of one kind in a row, or rounds of the same answers, before a hold
	Pause   time.Duration // how long a hold lasts, from the latest outcome
	Poll    time.Duration // from start to start; a slower repeat is a poll
	Copies  int           // of one call under way
	Memory  int           // how many calls are remembered after they have ended
}

// Past is what one run has done so far. Make one with New. It does not lock: the caller must not
// call two methods at the same time.
type Past struct {
	limits  Limits
	records map[Digest]*record // of calls under way and of those in kept
	kept    *list.List         // of *record that still matter, the latest at the back
	seen    memory             // answers of this run
	history []step             // the latest outcomes of guarded calls, the latest at the end
	advice  []warning          // of this turn and not in a result yet, the latest at the end

	// When something happened that can change an answer. now counts the begins and ends of calls, and
	// a moment is a value of now.
	now     uint64 // the latest moment
	news    uint64 // when the latest call began that brought news
	guarded uint64 // the same for guarded calls
	epoch   epoch
}

// epoch counts what changes the answers of other calls.
type epoch struct {
	turn    uint64 // the first is 1
	effects uint64 // calls of tools with side effects that succeeded
	doubts  uint64 // those that may have taken effect: nobody knows
}

// New returns the past of a run that begins now.
func New(l Limits) *Past {
	return &Past{limits: l, records: map[Digest]*record{}, kept: list.New(), seen: newMemory(l.Memory), epoch: epoch{turn: 1}}
}

// Call is one call of a run. The caller sets the first four fields, and Begin the rest.
type Call struct {
	ID      Digest // fingerprint of tool and arguments; zero: it equals no other call
	Tool    string // for advice
	Guarded bool   // the call may be refused; otherwise it can only bring news and effects
	Writes  bool   // the tool has side effects

	record   *record // nil: not guarded
	start    time.Time
	began    uint64
	epoch    epoch
	outcomes uint64 // record.outcomes when the call began
	honoured bool   // it has waited as asked
}

// Outcome is the outcome of a call. The zero Outcome: the call did not run.
type Outcome struct {
	Kind string // empty: the call did not run
	// Print is the fingerprint of the answer or, if Kind is unknown, of the error's text. Zero: it
	// equals no other.
	Print Digest
	// Wait is until when the dependency or its circuit asks not to call it. Zero: nobody asks.
	Wait time.Time
}

// record is what is known about one call and all that are the same.
type record struct {
	id       Digest
	writes   bool
	running  int
	outcomes uint64 // that counted
	failure  failure
	loop     loop
	at       time.Time     // when the latest outcome came that counted
	wait     time.Time     // until when that outcome, or a circuit after it, asked to wait
	advised  uint64        // the turn in which advice about it was given; 0: none
	place    *list.Element // in kept; nil: not there
}

// failure is how a call keeps failing. The zero failure: it does not.
type failure struct {
	kind   string
	print  Digest
	times  int       // in a row
	start  time.Time // when the latest of these calls began
	known  uint64    // the moment when that call ended
	before epoch     // the epoch in which it began
}

// loop says that a call was part of a loop. The zero loop: it was not.
type loop struct {
	print Digest    // of the answer
	again bool      // the answer came again after the hold
	start time.Time // when the latest call began
	at    time.Time // when the loop was found
	known uint64    // the moment when it was found
	after epoch     // the epoch when it was found
}

// Begin notes that a call begins, or returns why it must not. Each call that begins must End once.
// A refused call changes nothing and must not End.
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

// End notes the outcome of a call that has begun.
func (p *Past) End(c *Call, o Outcome, now time.Time) {
	p.now++
	if o.Kind == kindSlow {
		o.Kind = kindOK // a slow answer is the same answer
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
		return // not an outcome
	}
	if s.answers() {
		r.failure, r.wait = failure{}, time.Time{}
	}
	if r.outcomes != c.outcomes { // a call at the same time has counted
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

// effect notes the outcome of a call with side effects.
func (p *Past) effect(kind string) {
	switch kind {
	case kindOK, kindDuplicate:
		p.epoch.effects++
	case "", kindRateLimited, kindUnauthorized, kindInvalid, kindNotFound, kindConflict, kindInterrupt:
		// no effect, or none yet
	default:
		p.epoch.doubts++ // the model is told to look, so let it
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

// Wait notes that a circuit refused a call and asks to wait until then.
func (p *Past) Wait(id Digest, until time.Time) {
	if r := p.records[id]; r != nil && id != (Digest{}) {
		r.wait = until
	}
}

// NextTurn notes that the run has got new input from outside.
func (p *Past) NextTurn() {
	p.epoch.turn++
	p.history = nil
	p.advice = nil
}

// keep remembers a record, and forgets the oldest if there are more than Limits.Memory.
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

// tidy drops a record that says nothing more.
func (p *Past) tidy(r *record) {
	if r.place != nil && r.failure.times == 0 && r.loop == (loop{}) && r.advised == 0 {
		p.kept.Remove(r.place)
		r.place = nil
	}
	if r.place == nil && r.running == 0 {
		delete(p.records, r.id)
	}
}
