package toolcircuit

import (
	"math"
	"math/rand/v2"
	"sort"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/toolcircuit/toolcircuit/internal/window"
)

// This file is the state machine: values and steps from one to the next. Nothing here
// locks, reads a clock or calls code of the user.
//
//	state                     a call arrives           its outcome, of the same epoch
//	closed                    runs                     healthy: streak = 0; fault: streak + 1, at the threshold or rate -> open; pause -> open
//	open, cooldown running    refused                  none
//	open, cooldown over       becomes the probe -> half-open
//	half-open, slot taken     refused until the lease  healthy: after ProbeSuccesses -> closed, else slot free
//	  free or lease over      becomes the probe        fault -> open; pause -> open; ignored: slot free

// State is what a circuit does with calls.
type State string

// The states.
const (
	StateClosed   State = "closed"    // calls run
	StateOpen     State = "open"      // calls are refused
	StateHalfOpen State = "half_open" // one call at a time runs, as a probe
)

// state is everything that a circuit knows. A published state never changes, nor does what
// it points to: each step takes a copy and returns the next one. A call carries the state
// that admitted it, whose seq is its epoch and whose probe is the slot it holds.
type state struct {
	*rules
	State    State
	seq      uint64    // the epoch: a new one with each change of State and each Reset
	since    time.Time // when the epoch began
	rule     Rule      // that led to State; half-open: that led to open
	override Override
	plain    bool // a healthy call needs no more than this state, if it is still the published one
	rides    bool // never published: admits a call inside the probe, which is not recorded
	use      use  // of a circuit in a Fleet

	// Closed.
	streak int    // counted failures in a row
	mark   uint64 // counted failures in all; tells who was admitted before one of them
	window *window.Window

	openings int       // in memory when the fade began; openingsAt has those that are left
	calm     time.Time // when the fade began: with the closed state or the latest SetPolicy
	probe    uint64

	refused *tally // calls; made with the first gate and kept

	trouble *trouble // nil: no failure since the last healthy call or since it closed
	gate    *gate    // nil: calls run

	// Of a circuit in a Fleet: see shared.go.
	epoch   uint64   // of the latest View taken in
	account *account // nil: nothing is asked of the store, and nothing owed to it
}

// trouble is what the dependency did in the streak or, when not closed, for the opening.
type trouble struct {
	cause           Kind
	err             error
	failures, calls int // that the opening rule counted

	// The dependency itself asked for a pause, at that time and of that length; 0: never.
	askedAt time.Time
	asked   time.Duration
}

// gate is what an open or half-open circuit puts before calls.
type gate struct {
	from      time.Time // of the opening or of the latest probe
	byCurve   bool      // open: the wait is at least what the curve gives
	answered  bool      // open: a monitor has had an answer, so the curve gives nothing any more
	held      bool      // half-open: the latest probe has the slot
	successes int       // half-open
	due       time.Time // half-open: when the cooldown was over

	told time.Duration // how long the Fleet's store says to hold; 0: the machine's own rules say it

	// These follow from the rest, in publish. Calls are refused for hold from the gate's
	// beginning on, those of tools with SideEffects for holdWrites; 0 is not at all.
	hold, holdWrites       time.Duration
	refusal, refusalWrites *OpenError
}

// input is what a step is told beside the call: the time, and for a failure what the rate
// window holds.
type input struct {
	now             time.Time
	failures, calls int
}

// admit returns the state in which the call that arrives is the probe. The cooldown must be
// over and the slot free or its lease over.
func (s state) admit(in input) state {
	g := *s.gate
	if s.State == StateOpen {
		g.due = g.from.Add(g.hold)
		s.enter(StateHalfOpen, in.now)
	}
	s.probe++
	g.held, g.told = true, 0
	g.from = in.now
	s.gate = &g
	return s
}

// settle returns the state after a call that the state by admitted has ended with v, and
// whether that changed anything.
func (s state) settle(in input, by *state, v Verdict, err error) (state, bool) {
	switch {
	case by.seq != s.seq:
		return s.settleLate(in, by, v)
	case s.State == StateClosed:
		return s.settleClosed(in, by, v, err)
	default:
		return s.settleProbe(in, by, v, err)
	}
}

func (s state) settleClosed(in input, by *state, v Verdict, err error) (state, bool) {
	switch v.Effect {
	case EffectHeal:
		s.streak, s.trouble = 0, nil
		return s, true
	case EffectPause:
		s.blame(in, v, err)
		s.trouble.cause = v.Kind // this answer alone opens the circuit
		return s.open(in, v, RulePause, s.streak+1, s.streak+1), true
	case EffectCount:
		s.blame(in, v, err)
		counted := !s.CountBurstOnce || by.mark == s.mark
		if counted {
			s.streak++
			s.mark++
		}
		byStreak := counted && s.streak >= s.FailureThreshold
		byRate := s.FailureRate > 0 && in.calls >= s.MinCalls &&
			float64(in.failures)/float64(in.calls) >= s.FailureRate
		switch {
		case byStreak && byRate:
			return s.open(in, v, RuleThresholdRate, in.failures, in.calls), true
		case byStreak:
			return s.open(in, v, RuleThreshold, s.streak, max(s.streak, in.calls)), true
		case byRate:
			return s.open(in, v, RuleRate, in.failures, in.calls), true
		}
		return s, true
	}
	return s, false
}

// settleProbe is settle for half-open. A probe that outlived its lease has lost the slot,
// which only its holder can free, but not its vote.
func (s state) settleProbe(in input, by *state, v Verdict, err error) (state, bool) {
	g := *s.gate
	holder := by.probe == s.probe
	if holder {
		g.held = false
	}
	switch v.Effect {
	case EffectHeal:
		g.successes++
		if g.successes >= s.ProbeSuccesses {
			return s.close(in, RuleProbe), true
		}
	case EffectCount, EffectPause:
		rule := RuleProbe
		if v.Effect == EffectPause {
			rule = RulePause
		}
		s.trouble = nil
		s.blame(in, v, err)
		return s.open(in, v, rule, 1, 1), true
	}
	s.gate = &g
	return s, holder || v.Effect == EffectHeal
}

// settleLate is settle for a call of another epoch, which decides nothing. Yet while the
// circuit is open, a failure of the epoch that just ended may tell that the wait is too
// short: it may move the reopening later, never earlier (BerriAI/litellm#40130). It does so
// by its own Retry-After. Without one it brings back the curve that a Retry-After replaced.
func (s state) settleLate(in input, by *state, v Verdict) (state, bool) {
	if s.State != StateOpen || by.seq+1 != s.seq || v.Effect != EffectCount && v.Effect != EffectPause {
		return s, false
	}
	if v.RetryAfter > 0 {
		news := s.ask(in, v)
		return s, news
	}
	if s.gate.byCurve || s.gate.answered {
		return s, false
	}
	g := *s.gate
	g.byCurve = true
	s.gate = &g
	return s, true
}

// untouched reports whether a call of this epoch that ended with v changes nothing.
func (s *state) untouched(v Verdict) bool {
	return s.State == StateClosed && (v.Effect == EffectIgnore || v.Effect == EffectHeal && s.trouble == nil)
}

// open returns the open state. A wait that the dependency asked for stands in for the curve.
func (s state) open(in input, v Verdict, rule Rule, failures, calls int) state {
	s.openings = s.openingsAt(in.now)
	if rule != RulePause {
		s.openings++
	}
	t := s.trouble // blame has just made it, so it is not shared
	t.failures, t.calls = failures, calls
	if t.askedAt.After(in.now) { // the clock has stepped back
		t.askedAt = in.now
	}
	s.rule, s.gate = rule, &gate{from: in.now, byCurve: v.RetryAfter <= 0}
	s.enter(StateOpen, in.now)
	return s
}

// endCooldown drops what the curve gives from the wait of the open state in which a monitor
// began its check. What the dependency asked for stands.
func (s state) endCooldown(by *state) (state, bool) {
	if s.State != StateOpen || s.seq != by.seq || !s.gate.byCurve {
		return s, false
	}
	g := *s.gate
	g.byCurve, g.answered = false, true
	s.gate = &g
	return s, true
}

// close returns the closed state. Openings stay in memory, the rest is forgotten.
func (s state) close(in input, rule Rule) state {
	s.rule, s.trouble, s.gate = rule, nil, nil
	s.enter(StateClosed, in.now)
	s.window = s.newWindow(in.now)
	return s
}

// reset returns the closed state of a circuit that remembers nothing, also if it is closed.
func (s state) reset(in input) state {
	s.openings = 0
	return s.close(in, RuleReset)
}

// enter begins an epoch. What the old one counted is over.
func (s *state) enter(to State, now time.Time) {
	s.State, s.seq, s.since, s.calm = to, s.seq+1, now, now
	s.streak, s.window = 0, nil
}

// blame records a failure as the reason for what may follow from it. The latest failure is
// the cause, but silence outranks an answer: one timeout among refusals of a live server
// means that it may not be reachable (NousResearch/hermes-agent#109245).
func (s *state) blame(in input, v Verdict, err error) {
	t := trouble{}
	if s.trouble != nil {
		t = *s.trouble
	}
	if v.Kind.Silent() || !t.cause.Silent() {
		t.cause = v.Kind
	}
	t.err = err
	s.trouble = &t
	s.ask(in, v)
}

// ask notes that the dependency asks to be left alone, unless it asked for longer before, and
// reports whether that is news.
func (s *state) ask(in input, v Verdict) bool {
	if v.RetryAfter <= 0 {
		return false
	}
	t := *s.trouble
	t.askedAt, t.asked = in.now, v.RetryAfter
	if !s.askedUntil(&t).After(s.askedUntil(s.trouble)) {
		return false
	}
	s.trouble = &t
	return true
}

// askedUntil is when the pause ends that the dependency asked for, MaxRetryAfter after it
// asked at the latest; the zero time if it never did.
func (r *rules) askedUntil(t *trouble) time.Time {
	if t.asked == 0 {
		return time.Time{}
	}
	return t.askedAt.Add(min(max(t.asked, time.Millisecond), r.MaxRetryAfter))
}

// openingsAt returns the openings that are in memory at a time. While the circuit stays
// closed, the latest of them is forgotten after the wait that the curve gives for it, and then
// the one before it.
func (s *state) openingsAt(now time.Time) int {
	n := s.openings
	if s.State != StateClosed {
		return n
	}
	for left := now.Sub(s.calm); n > 0; {
		wait := s.curve(n)
		if left < wait {
			break
		}
		// Those with the same wait go at once: there may be millions at MaxCooldown.
		same := n - sort.Search(n, func(i int) bool { return s.curve(i+1) == wait })
		gone := int(min(int64(same), int64(left/wait)))
		left -= time.Duration(gone) * wait
		n -= gone
	}
	return n
}

// withRules returns s under another policy. A window of another length starts empty, and
// what an open circuit waits for is computed anew. Openings that the old curve has not
// forgotten yet fade by the new one.
func (s state) withRules(in input, r *rules) state {
	s.openings, s.calm = s.openingsAt(in.now), in.now
	old := s.rules
	s.rules = r
	if s.State == StateClosed && (r.Window != old.Window || (r.FailureRate > 0) != (s.window != nil)) {
		s.window = s.newWindow(in.now)
	}
	return s
}

func (s *state) newWindow(now time.Time) *window.Window {
	if s.FailureRate == 0 {
		return nil
	}
	return window.New(now, s.Window)
}

// curve is the wait that the policy gives after the nth opening in memory, without jitter. A
// pause that finds none in memory counts as the first.
func (r *rules) curve(n int) time.Duration {
	wait := float64(r.Cooldown) * math.Pow(r.Multiplier, float64(max(n, 1)-1))
	if !(wait < float64(r.MaxCooldown)) { // also what is no number any more
		return r.MaxCooldown
	}
	return time.Duration(wait)
}

// capped reports whether the nth opening in memory has the curve at MaxCooldown.
func (r *rules) capped(n int) bool { return n > 0 && r.curve(n) == r.MaxCooldown }

// cooldown is how long an open circuit waits from its opening on: what the curve gives and
// what the dependency asked for, whichever applies and is longer. isAsked reports the latter.
func (s *state) cooldown(salt uint64) (wait time.Duration, isAsked bool) {
	asked := max(s.askedUntil(s.trouble).Sub(s.since), 0)
	switch told := s.gate.told; {
	case told > 0 && !s.gate.answered:
		return max(asked, told), !s.gate.byCurve || asked >= told
	case !s.gate.byCurve:
		return asked, true
	}
	wait = s.spread(s.openings, draw(salt, s.seq))
	return max(asked, wait), asked >= wait
}

// spread is the curve with jitter, of which draw is the share.
func (r *rules) spread(n int, draw float64) time.Duration {
	wait := r.curve(n)
	if r.Jitter > 0 {
		least := max(r.Cooldown, min(wait, time.Duration(float64(r.MaxCooldown)/(1+r.Jitter))))
		wait = least + min(time.Duration(r.Jitter*draw*float64(least)), r.MaxCooldown-least)
	}
	return wait
}

// draw is the share of jitter in an epoch, from 0 up to 1.
func draw(salt, seq uint64) float64 { return rand.New(rand.NewPCG(salt, seq)).Float64() }

// remaining is how much is left of a hold of the gate so long after its beginning. A clock
// that steps back makes it no longer than it was.
func (g *gate) remaining(hold, elapsed time.Duration) time.Duration {
	return max(hold-max(elapsed, 0), 0)
}

// at is the State as a reader sees it at a time, which alone makes an open circuit
// half-open.
func (s *state) at(now time.Time) State {
	if s.State == StateOpen && s.gate.remaining(s.gate.hold, now.Sub(s.gate.from)) == 0 {
		return StateHalfOpen
	}
	return s.State
}

// slot names the slot that the latest probe took.
type slot struct{ seq, probe uint64 }

func (s *state) slot() slot { return slot{s.seq, s.probe} }

// publish returns s with all that follows from it, ready to be shared.
func (s state) publish(salt uint64, dependency string, c clock.Clock) *state {
	s.plain = s.State == StateClosed && s.override == OverrideNone && s.trouble == nil && !s.timed && s.use.plain()
	g, asked := gate{}, false
	switch s.State {
	case StateOpen:
		g = *s.gate
		g.hold, asked = s.cooldown(salt)
		g.hold = s.account.hold(&g, g.hold)
		g.holdWrites = g.hold + min(s.curve(s.openings), math.MaxInt64-g.hold)
	case StateHalfOpen:
		g = *s.gate
		g.hold = 0
		switch {
		case g.told > 0:
			g.hold = g.told
		case g.held:
			g.hold = s.ProbeTimeout
		}
		g.hold = s.account.hold(&g, g.hold)
		g.holdWrites = max(g.hold, g.due.Add(s.curve(s.openings)).Sub(g.from))
	}
	s.gate = nil
	if s.State != StateClosed || s.override == OverrideOpen {
		if s.gate = &g; s.refused == nil {
			s.refused = new(tally)
		}
		g.refusal = s.newRefusal(dependency, g.hold, c)
		g.refusal.trial = g.held
		g.refusalWrites = s.newRefusal(dependency, g.holdWrites, c)
		if !asked {
			g.refusal.jitter, g.refusalWrites.jitter = s.Jitter, s.Jitter
		}
	}
	return &s
}

// newRefusal returns the error of all calls that the gate holds back for that long.
func (s *state) newRefusal(dependency string, hold time.Duration, c clock.Clock) *OpenError {
	e := &OpenError{
		Dependency: dependency,
		State:      s.State,
		Reason:     ReasonDependencyOpen,
		Since:      s.since,
		clock:      c,
	}
	if s.State != StateClosed {
		e.Cause, e.Rule = s.trouble.cause, s.rule
		e.Failures, e.Openings = s.trouble.failures, s.openings
		e.capped = s.gate.byCurve && s.openings > 1 && s.capped(s.openings)
	}
	if s.override == OverrideOpen {
		e.State, e.Reason = StateOpen, ReasonManualOpen
	} else {
		e.RetryAt, e.wait = s.gate.from.Add(hold), hold
	}
	return e
}
