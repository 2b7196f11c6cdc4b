package toolcircuit

import (
	"math"
	"math/rand/v2"
	"sort"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/toolcircuit/toolcircuit/internal/window"
)

// This file is the state machine: a state is a value, and each step returns the next one. Nothing
// here locks, reads a clock or calls code of the user.
//
//	state                     a call arrives           its outcome, of the same epoch
//	closed                    runs                     healthy: streak = 0; fault: streak + 1, at the threshold or rate -> open; pause -> open
//	open, cooldown running    refused                  none
//	open, cooldown over       becomes the probe -> half-open
//	half-open, slot taken     refused until the lease  healthy: after ProbeSuccesses -> closed, before that slot free
//	  free or lease over      becomes the probe        fault -> open; pause -> open; ignored: slot free

// State is what a circuit does with calls.
type State string

// The states.
const (
	StateClosed   State = "closed"    // calls run
	StateOpen     State = "open"      // calls are refused
	StateHalfOpen State = "half_open" // one call at a time runs, as a probe
)

// state is everything that a circuit knows. A published state never changes, and neither does what
// it points to, except the counters in window and refused. Each step takes a copy and returns the
// next state. A call carries the state that admitted it: seq is the epoch of the call, and probe
// names the slot that it holds.
type state struct {
	*rules
	State    State
	seq      uint64    // the epoch: a new one with each change of State and each Reset
	since    time.Time // when the epoch began
	rule     Rule      // that led to State; if half-open, the rule that led to open
	override Override
	plain    bool // a healthy call changes nothing and is not timed, while this state is the published one
	rides    bool // never published: it admitted a call inside the probe, which is not recorded
	use      use  // how recently a Fleet's circuit was used

	// Closed.
	streak int    // counted failures in a row
	mark   uint64 // how often streak rose, ever; CountBurstOnce compares it with that of the admission
	window *window.Window

	openings int       // in memory at calm; openingsAt returns those left at a later time
	calm     time.Time // when openings began to fade: with the closed state or the latest SetPolicy
	probe    uint64    // the number of the latest probe

	refused *tally // refused calls; made with the first gate and kept

	trouble *trouble // nil: no failure since the last healthy call or since the circuit closed
	gate    *gate    // nil: calls run

	// Of a circuit in a Fleet: see shared.go.
	epoch   uint64   // of the latest View taken in
	account *account // nil: this circuit asks the store nothing and owes it nothing
}

// trouble is what the dependency did: the failures of the streak while the circuit is closed, of
// the opening otherwise.
type trouble struct {
	cause           Kind
	err             error
	failures, calls int // that the opening rule counted

	// The wait that the dependency asked for: since when and how long. 0: none.
	askedAt time.Time
	asked   time.Duration
}

// gate says which calls are refused, until when and with which error. An open or half-open circuit
// has one, and a closed one under OverrideOpen.
type gate struct {
	from      time.Time // when the opening or the latest probe began
	byCurve   bool      // open: the curve's wait applies, not only an asked one
	answered  bool      // open: a Monitor had an answer, so the curve's wait is over
	held      bool      // half-open: the latest probe has the slot
	successes int       // half-open: healthy probes
	due       time.Time // half-open: when the cooldown was over; tools with SideEffects wait from then on

	told time.Duration // how long a Fleet's store says to hold; 0: this circuit computes it

	// publish computes these. Calls are refused until from + hold, those of tools with SideEffects
	// until from + holdWrites. 0: they are not refused.
	hold, holdWrites       time.Duration
	asked                  bool // open: the dependency asked for the wait
	refusal, refusalWrites *OpenError
}

// input is what a step needs besides the call: the time and, for a counted failure, the sums of
// the window.
type input struct {
	now             time.Time
	failures, calls int
}

// admit returns the half-open state in which the arriving call is the probe. The cooldown must be
// over, and the slot free or its lease over.
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

// settle returns the state after a call that ended with verdict v, and whether it changed. by is
// the state that admitted the call.
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

// settleProbe is settle for a half-open circuit. If another probe took the slot after the lease,
// the outcome of the first one still counts, but does not free the slot.
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

// settleLate is settle for a call of another epoch. Such a call changes nothing, with one
// exception: while the circuit is open, a failure of the epoch before may tell that the wait is
// too short (BerriAI/litellm#40130). It moves the end of the wait later, never earlier: to its own
// Retry-After or, without one, to the curve's wait if a Retry-After had replaced that.
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

// open returns the open state. If v has a RetryAfter, that wait replaces the curve's.
func (s state) open(in input, v Verdict, rule Rule, failures, calls int) state {
	s.openings = s.openingsAt(in.now)
	if rule != RulePause {
		s.openings++
	}
	t := s.trouble // not shared: blame has just made it
	t.failures, t.calls = failures, calls
	if t.askedAt.After(in.now) { // the clock has stepped back
		t.askedAt = in.now
	}
	s.rule, s.gate = rule, &gate{from: in.now, byCurve: v.RetryAfter <= 0}
	s.enter(StateOpen, in.now)
	return s
}

// endCooldown ends the curve's wait, because a Monitor's check had an answer. A wait that the
// dependency asked for stays. by is the open state in which the check began.
func (s state) endCooldown(by *state) (state, bool) {
	if s.State != StateOpen || s.seq != by.seq || !s.gate.byCurve {
		return s, false
	}
	g := *s.gate
	g.byCurve, g.answered = false, true
	s.gate = &g
	return s, true
}

// close returns the closed state. It keeps the openings and forgets the rest.
func (s state) close(in input, rule Rule) state {
	s.rule, s.trouble, s.gate = rule, nil, nil
	s.enter(StateClosed, in.now)
	s.window = s.newWindow(in.now)
	return s
}

// reset returns the closed state in a new epoch, without openings. An override stays.
func (s state) reset(in input) state {
	s.openings = 0
	return s.close(in, RuleReset)
}

// enter begins an epoch, without a streak or a window.
func (s *state) enter(to State, now time.Time) {
	s.State, s.seq, s.since, s.calm = to, s.seq+1, now, now
	s.streak, s.window = 0, nil
}

// blame notes a failure in trouble. The latest failure gives the cause. Exception: an answer does
// not replace a cause that is silent, because one timeout among refusals of a live server means
// that it may be unreachable (NousResearch/hermes-agent#109245).
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

// ask notes the wait that v asks for, if it ends later than the wait noted before. It reports
// whether it does.
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

// askedUntil returns when the wait ends that the dependency asked for: at most MaxRetryAfter after
// it asked. The zero time: it never asked.
func (r *rules) askedUntil(t *trouble) time.Time {
	if t.asked == 0 {
		return time.Time{}
	}
	return t.askedAt.Add(min(max(t.asked, time.Millisecond), r.MaxRetryAfter))
}

// openingsAt returns the openings in memory at now. While the circuit is closed they fade: the
// latest is forgotten after the wait that the curve gives for it, then the one before it.
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

// withRules returns s under another policy. The window starts empty if its length changes.
// Openings that are left fade by the new curve. publish computes the wait of an open circuit anew.
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

// curve returns the policy's wait after opening number n in memory, without jitter. An opening by
// rule pause may find none in memory: n below 1 counts as 1.
func (r *rules) curve(n int) time.Duration {
	wait := float64(r.Cooldown) * math.Pow(r.Multiplier, float64(max(n, 1)-1))
	if !(wait < float64(r.MaxCooldown)) { // not >=, so that NaN is capped too
		return r.MaxCooldown
	}
	return time.Duration(wait)
}

// capped reports whether the curve gives MaxCooldown for opening number n.
func (r *rules) capped(n int) bool { return n > 0 && r.curve(n) == r.MaxCooldown }

// cooldown returns how long an open circuit waits from its opening on: the longer of the curve's
// wait, if that applies, and the wait that the dependency asked for. isAsked reports whether the
// latter decides. A wait told by a Fleet's store takes the place of the curve's.
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

// spread returns the curve's wait for opening number n with jitter: longer by the part draw, from
// 0 up to 1, of the share Jitter. It is at most MaxCooldown.
func (r *rules) spread(n int, draw float64) time.Duration {
	wait := r.curve(n)
	if r.Jitter > 0 {
		least := wait
		if most := float64(r.MaxCooldown) / (1 + r.Jitter); most < float64(wait) { // otherwise it may overflow
			least = max(r.Cooldown, time.Duration(most))
		}
		wait = least + min(time.Duration(r.Jitter*draw*float64(least)), r.MaxCooldown-least)
	}
	return wait
}

// draw returns a number from 0 up to 1. It is the same for the same salt and epoch.
func draw(salt, seq uint64) float64 { return rand.New(rand.NewPCG(salt, seq)).Float64() }

// remaining returns what is left of a hold when elapsed has passed since from. It is never more
// than hold, even if the clock steps back.
func (g *gate) remaining(hold, elapsed time.Duration) time.Duration {
	return max(hold-max(elapsed, 0), 0)
}

// at returns the State as a reader sees it at now: an open circuit reads half-open once its wait
// is over. No step is needed for that.
func (s *state) at(now time.Time) State {
	if s.State == StateOpen && s.gate.remaining(s.gate.hold, now.Sub(s.gate.from)) == 0 {
		return StateHalfOpen
	}
	return s.State
}

// slot names the slot that the latest probe took.
type slot struct{ seq, probe uint64 }

func (s *state) slot() slot { return slot{s.seq, s.probe} }

// publish returns s with plain and the gate computed from the rest, ready to be stored.
func (s state) publish(salt uint64, dependency string, c clock.Clock) *state {
	s.plain = s.State == StateClosed && s.override == OverrideNone && s.trouble == nil && !s.timed && s.use.plain()
	g := gate{}
	switch s.State {
	case StateOpen:
		g = *s.gate
		g.hold, g.asked = s.cooldown(salt)
		g.hold = s.account.hold(&g, g.hold)
		g.holdWrites = g.hold + min(s.curve(s.openings), math.MaxInt64-g.hold)
	case StateHalfOpen:
		g = *s.gate
		g.hold, g.asked = 0, false
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
		if !g.asked {
			g.refusal.jitter, g.refusalWrites.jitter = s.Jitter, s.Jitter
		}
	}
	return &s
}

// newRefusal returns the error of all calls that the gate refuses for hold.
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
