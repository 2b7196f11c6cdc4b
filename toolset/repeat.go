package toolset

import (
	"container/list"
	"fmt"
	"slices"
	"time"

	"github.com/toolcircuit/toolcircuit"
)

const (
	maxRound  = 4    // calls in the longest round that is recognized
	maxRounds = 1000 // above which Limits.Repeats recognizes none
)

// past is what a session knows of the calls that it has seen. The session's mutex guards it.
// Nothing here calls code of the user.
type past struct {
	limits  Limits
	records map[digest]*record // of calls under way and of those in kept
	kept    *list.List         // of *record: the failed and the advised, the latest at the back
	world   world
	history []step            // the latest outcomes, the latest at the end
	round   []step            // that the run is in, none if in none
	last    time.Time         // when the latest outcome came
	advice  map[digest]advice // of this turn, by tool, until a result takes it
}

// record is what is known of one call.
type record struct {
	id      digest
	running int
	mark    int // outcomes that counted
	failure
	advised uint64        // in that turn
	place   *list.Element // in kept, nil if not
}

// failure is how a call keeps failing. The zero failure: it does not.
type failure struct {
	kind  toolcircuit.Kind
	way   digest
	times int  // in a row
	final bool // a repeat cannot help
	at    time.Time
	world world // when the call began
}

// world counts what tools with side effects did to the world that other calls see.
type world struct {
	changes uint64 // they succeeded
	doubts  uint64 // nobody knows
}

// step is the outcome of a call in history. The zero step equals none.
type step struct {
	id, way digest
	kind    toolcircuit.Kind // empty if it went well
}

func newPast(l Limits) past {
	return past{limits: l, records: map[digest]*record{}, kept: list.New()}
}

// begin takes in that a call begins, or returns the refusal.
func (p *past) begin(c *call, now time.Time) *toolcircuit.OpenError {
	rec := p.records[c.id]
	if refusal := p.repeats(c.id, now); refusal != nil {
		return refusal
	}
	if rec == nil {
		rec = &record{id: c.id}
		p.records[c.id] = rec
	}
	if rec.running >= p.limits.Copies {
		return &toolcircuit.OpenError{Reason: toolcircuit.ReasonRepeatedCall}
	}
	rec.running++
	c.mark, c.world = rec.mark, p.world
	return nil
}

// repeats returns the refusal of a call that would repeat what has come of it before.
func (p *past) repeats(id digest, now time.Time) *toolcircuit.OpenError {
	if rec := p.records[id]; rec != nil && rec.times > 0 && rec.holdsIn(p.world) {
		if rec.final {
			return &toolcircuit.OpenError{Reason: toolcircuit.ReasonRepeatedCall, Cause: rec.kind}
		}
		if rec.times >= p.limits.Repeats && now.Sub(rec.at) < p.limits.Pause {
			return p.pause(rec.kind, rec.at)
		}
	}
	for _, s := range p.round {
		if s.id == id && now.Sub(p.last) < p.limits.Pause {
			return p.pause(s.kind, p.last)
		}
	}
	return nil
}

func (p *past) pause(kind toolcircuit.Kind, from time.Time) *toolcircuit.OpenError {
	return &toolcircuit.OpenError{Reason: toolcircuit.ReasonRepeatedCall, Cause: kind, RetryAt: from.Add(p.limits.Pause)}
}

// end takes in what came of a call that has begun.
func (p *past) end(c *call, o outcome, way digest, now time.Time, turn uint64) {
	kind := o.verdict.Kind
	if o.executed && c.writes {
		p.world.after(kind)
	}
	if !c.guarded {
		return // nor does it hide a round of the others
	}
	rec := p.records[c.id]
	rec.running--
	defer p.tidy(rec)
	if !o.executed {
		return
	}
	switch kind {
	case toolcircuit.KindCanceled, toolcircuit.KindInterrupt, toolcircuit.KindRejected:
		return // which is no outcome
	}
	well := kind == toolcircuit.KindOK || kind == toolcircuit.KindSlow || kind == toolcircuit.KindDuplicate
	if well {
		rec.failure = failure{}
	}
	if rec.mark != c.mark {
		return // known from a call at the same time
	}
	rec.mark++
	s := step{id: c.id, way: way}
	if !well {
		s.kind = kind
		rec.fail(o.verdict, way, now, c.world)
	}
	p.add(s, now)
	if rec.times > 0 {
		p.keep(rec)
	}
	if rec.advised != turn && p.repeats(rec.id, now) != nil {
		rec.advised = turn
		p.keep(rec)
		p.warn(c.tool, rec)
	}
}

// after takes in how a call with side effects went.
func (w *world) after(kind toolcircuit.Kind) {
	switch kind {
	case toolcircuit.KindOK, toolcircuit.KindSlow, toolcircuit.KindDuplicate:
		w.changes++
	case toolcircuit.KindRateLimited, toolcircuit.KindUnauthorized, toolcircuit.KindInvalid, toolcircuit.KindNotFound,
		toolcircuit.KindConflict, toolcircuit.KindInterrupt: // no effect, or none yet
	default:
		w.doubts++ // and the model is told to look
	}
}

// holdsIn reports whether f says something about a call in the world w. What failed for good may
// be mended by an effect in doubt; other failures are not, or failing writes would excuse one
// another.
func (f *failure) holdsIn(w world) bool {
	return f.world == w || !f.final && f.world.changes == w.changes
}

// fail counts a failure of a call that began in the world w.
func (f *failure) fail(v toolcircuit.Verdict, way digest, now time.Time, w world) {
	if f.way != way || way == (digest{}) || !f.holdsIn(w) {
		f.times = 0
	}
	f.times++
	f.kind, f.way, f.at, f.world = v.Kind, way, now, w
	f.final = v.Kind.ClientError() && v.Effect != toolcircuit.EffectPause // a pause says when to come back
}

// add adds an outcome to history and finds out whether the run goes round.
func (p *past) add(s step, now time.Time) {
	if s.way == (digest{}) {
		s = step{}
	}
	p.last = now
	p.history = append(p.history, s)
	n := p.limits.Repeats
	if over := len(p.history) - maxRound*min(n, maxRounds); over > 0 {
		p.history = slices.Delete(p.history, 0, over)
	}
	p.round = nil
	if s == (step{}) || times(s, p.history) < n {
		return
	}
	for size := 1; size <= maxRound && n <= len(p.history)/size; size++ {
		if p.round = roundOf(p.history[len(p.history)-n*size:], n); len(p.round) == size {
			return
		}
	}
	p.round = nil
}

// roundOf returns the different steps of a history of which each is there n times, in whatever
// order, since calls may be made at the same time. It returns nil if that is not so.
func roundOf(history []step, n int) (round []step) {
	for _, s := range history {
		if s == (step{}) || times(s, history) != n {
			return nil
		}
		if !slices.Contains(round, s) {
			round = append(round, s)
		}
	}
	return round
}

// times returns how often s is in history.
func times(s step, history []step) (n int) {
	for _, other := range history {
		if other == s {
			n++
		}
	}
	return n
}

// keep remembers a record, and forgets the oldest if there are too many.
func (p *past) keep(rec *record) {
	if rec.place != nil {
		p.kept.MoveToBack(rec.place)
		return
	}
	rec.place = p.kept.PushBack(rec)
	if p.kept.Len() <= p.limits.Memory {
		return
	}
	oldest := p.kept.Remove(p.kept.Front()).(*record)
	oldest.failure, oldest.place = failure{}, nil
	p.tidy(oldest)
}

// tidy drops a record that has nothing to say.
func (p *past) tidy(rec *record) {
	if rec.place != nil && rec.times == 0 && rec.advised == 0 {
		p.kept.Remove(rec.place)
		rec.place = nil
	}
	if rec.place == nil && rec.running == 0 {
		delete(p.records, rec.id)
	}
}

// advice is a warning about a call of a tool.
type advice struct {
	kind  toolcircuit.Kind
	times int // failed; 0: the same results
	final bool
}

func (p *past) warn(tool string, rec *record) {
	if p.advice == nil {
		p.advice = map[digest]advice{}
	}
	if len(p.advice) < p.limits.Memory {
		p.advice[digestOf([]byte(tool))] = advice{rec.kind, rec.times, rec.final}
	}
}

// advise returns the advice about a tool, once. It limits itself to that tool
// (NousResearch/hermes-agent#28592), and is true in the result of any of its calls.
func (p *past) advise(tool string) string {
	if len(p.advice) == 0 {
		return ""
	}
	key := digestOf([]byte(tool))
	a, ok := p.advice[key]
	if !ok {
		return ""
	}
	delete(p.advice, key)
	why, do := "gave the same result again and again", "Use the result you have."
	switch {
	case a.final:
		why, do = "failed in a way that a repeat cannot mend", "Change the arguments."
	case a.times > 0:
		why, do = fmt.Sprintf("failed in the same way, in a row: %d", a.times), "Change the arguments."
	}
	if a.kind.Silent() {
		do = "Go on without it for now."
	}
	return fmt.Sprintf("This or an earlier call of %s %s. The next one with the same arguments will be refused. "+
		"Other arguments and other tools remain usable. %s", tool, why, do)
}

// way returns what two outcomes of the same call have in common that went the same way: the
// kind, and the text of an error of an unknown kind, or the result as JSON.
func (o outcome) way() digest {
	if !o.executed {
		return digest{}
	}
	kind := o.verdict.Kind
	text := append([]byte(kind), 0)
	switch kind {
	case toolcircuit.KindOK, toolcircuit.KindSlow, toolcircuit.KindUnknown:
		switch {
		case o.err != nil:
			message, ok := textOf(o.err)
			if !ok {
				return digest{}
			}
			text = append(text, message...)
		case o.value == nil: // nobody handed it over
			return digest{}
		default:
			var err error
			if text, err = appendCanonical(text, o.value); err != nil {
				return digest{}
			}
		}
	}
	return digestOf(text)
}

// textOf returns the text of an error, whose method may panic.
func textOf(err error) (text string, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return err.Error(), true
}
