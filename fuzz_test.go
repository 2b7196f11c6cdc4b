package toolcircuit_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

// model is the circuit once more, slow and plain: it keeps what happened and works out from
// that what is asked. Times are those of the mock clock, which moves in whole seconds, as do
// the slots of the windows in fuzzPolicies, so that it can count calls one by one.
type model struct {
	toolcircuit.Policy
	now      time.Time
	state    toolcircuit.State
	rule     toolcircuit.Rule
	seq      uint64
	since    time.Time // of this state
	override toolcircuit.Override

	streak   int
	observed int // counted failures ever, for CountBurstOnce
	counted  []sample
	cause    toolcircuit.Kind
	err      error
	asked    request // by a failure of the streak or opening

	openings         int       // as written down at calm
	calm             time.Time // since when they fade, while closed
	failures, tested int       // behind the opening
	curveHolds       bool      // for the wait of this opening
	answered         bool      // in this cooldown, to a monitor

	probes     int       // ever
	slotTaken  bool      // by the last of them
	probeStart time.Time // of the last of them
	due        time.Time // half-open: when the cooldown was over
	successes  int

	refused, unclassified, stale uint64
	events                       []toolcircuit.Event
}

// request is what a dependency asked for.
type request struct {
	at   time.Time
	wait time.Duration
}

// sample is a call in the window.
type sample struct {
	at     time.Time
	failed bool
}

// ticket is what a call carries.
type ticket struct {
	rules    toolcircuit.Policy // that judge it
	state    toolcircuit.State
	seq      uint64
	probe    int
	observed int
	ghost    bool // not recorded: let in by an override, or rides on the probe
	start    time.Time
	real     *toolcircuit.Permit
	inner    context.Context // of a probe's operation
}

// curve is the wait after the n-th opening in memory.
func (m *model) curve(n int) time.Duration {
	wait := m.Cooldown
	for range n - 1 {
		wait = min(time.Duration(float64(wait)*m.Multiplier), m.MaxCooldown)
	}
	return min(wait, m.MaxCooldown)
}

// until is the end of what was asked for, the zero time if nothing was.
func (m *model) until(r request) time.Time {
	if r.wait == 0 {
		return time.Time{}
	}
	return r.at.Add(min(max(r.wait, time.Millisecond), m.MaxRetryAfter))
}

// gate returns from when on and for how long calls are refused.
func (m *model) gate(writes bool) (from time.Time, hold time.Duration) {
	switch m.state {
	case open:
		hold = max(m.until(m.asked).Sub(m.since), 0)
		if m.curveHolds {
			hold = max(hold, m.curve(m.openings))
		}
		if writes {
			hold += m.curve(m.openings)
		}
		return m.since, hold
	case halfOpen:
		if m.slotTaken {
			hold = m.ProbeTimeout
		}
		if writes {
			hold = max(hold, m.due.Add(m.curve(m.openings)).Sub(m.probeStart))
		}
		return m.probeStart, hold
	}
	return m.now, 0
}

func (m *model) gated(writes bool) bool {
	from, hold := m.gate(writes)
	return hold > 0 && m.now.Before(from.Add(hold))
}

// visible is the state as it reads.
func (m *model) visible() toolcircuit.State {
	if m.state == open && !m.gated(false) {
		return halfOpen
	}
	return m.state
}

func (m *model) ready(writes bool) bool {
	switch m.override {
	case toolcircuit.OverrideOpen:
		return false
	case toolcircuit.OverrideClosed:
		return true
	}
	return !m.gated(writes)
}

// window returns what the window holds.
func (m *model) window() (w toolcircuit.Window) {
	for _, s := range m.counted {
		if m.now.Sub(s.at) < m.Window {
			w.Calls++
			if s.failed {
				w.Failures++
			}
		}
	}
	return w
}

// remembered returns the openings that are in memory now. One after the other is forgotten,
// after the wait that the curve gives for it.
func (m *model) remembered() int {
	n := m.openings
	for at := m.calm; m.state == closed && n > 0; n-- {
		at = at.Add(m.curve(n))
		if at.After(m.now) {
			break
		}
	}
	return n
}

func (m *model) event(typ toolcircuit.EventType, from toolcircuit.State) *toolcircuit.Event {
	m.events = append(m.events, toolcircuit.Event{
		Type: typ, Dependency: "search-api", From: from, To: m.state, Override: m.override,
		Seq: m.seq, Openings: m.remembered(), At: m.now,
	})
	return &m.events[len(m.events)-1]
}

// enter moves to a state, in a new epoch.
func (m *model) enter(s toolcircuit.State) {
	m.state, m.since, m.calm, m.seq = s, m.now, m.now, m.seq+1
	m.streak, m.counted, m.successes, m.slotTaken, m.answered = 0, nil, 0, false, false
}

// call is a call that arrives, from inside a probe or with a nil one from elsewhere; it returns
// nil if it is refused.
func (m *model) call(writes bool, inside *ticket) *ticket {
	rides := inside != nil && m.override == toolcircuit.OverrideNone && m.gated(writes) &&
		m.state == halfOpen && m.gated(false) && inside.seq == m.seq && inside.probe == m.probes
	if !rides && !m.ready(writes) {
		m.refused++
		return nil
	}
	ghost := rides || m.override == toolcircuit.OverrideClosed
	if m.state != closed && !ghost { // it is the probe
		if m.state == open {
			from, hold := m.gate(false)
			m.due = from.Add(hold)
			m.enter(halfOpen)
			m.event(toolcircuit.EventHalfOpened, open)
		}
		m.probes++
		m.slotTaken, m.probeStart = true, m.now
	}
	return &ticket{
		rules: m.Policy, state: m.state, seq: m.seq, probe: m.probes, observed: m.observed, ghost: ghost, start: m.now,
	}
}

// end is the outcome of a call, if the rules say v.
func (m *model) end(t *ticket, v toolcircuit.Verdict, err error) {
	took := m.now.Sub(t.start)
	switch p := t.rules; {
	case v.Kind == toolcircuit.KindPanic:
	case p.CallTimeout > 0 && took >= p.CallTimeout:
		v = timeout
		if err != nil {
			err = &toolcircuit.CallTimeoutError{Dependency: "search-api", After: p.CallTimeout, Err: err}
		}
	case v.Effect == toolcircuit.EffectHeal && p.SlowCall > 0 && took > p.SlowCall:
		v = counted(toolcircuit.KindSlow)
	case v.Kind == toolcircuit.KindUnknown:
		if !t.ghost {
			m.unclassified++
		}
		if p.CountUnknown {
			v.Effect = toolcircuit.EffectCount
		}
	}
	m.settle(t, v, err)
}

func (m *model) settle(t *ticket, v toolcircuit.Verdict, err error) {
	bad := v.Effect == toolcircuit.EffectCount || v.Effect == toolcircuit.EffectPause
	switch {
	case t.ghost:
	case t.seq != m.seq:
		if v.Kind != "" { // else released: no outcome
			m.stale++
		}
		if m.state != open || t.seq != m.seq-1 || !bad {
			break
		}
		if v.RetryAfter > 0 {
			m.ask(v)
		} else if !m.answered {
			m.curveHolds = true
		}
	case m.state == closed:
		if m.FailureRate > 0 && (v.Effect == toolcircuit.EffectHeal || v.Effect == toolcircuit.EffectCount) {
			m.counted = append(m.counted, sample{m.now, bad})
		}
		switch v.Effect {
		case toolcircuit.EffectHeal:
			m.forget()
		case toolcircuit.EffectPause:
			m.blame(v, err)
			m.cause = v.Kind
			m.open(toolcircuit.RulePause, v, m.streak+1, m.streak+1)
		case toolcircuit.EffectCount:
			m.blame(v, err)
			news := !m.CountBurstOnce || t.observed == m.observed
			if news {
				m.streak++
				m.observed++
			}
			w := m.window()
			byRate := m.FailureRate > 0 && w.Calls >= m.MinCalls && float64(w.Failures)/float64(w.Calls) >= m.FailureRate
			byStreak := news && m.streak >= m.FailureThreshold
			switch {
			case byStreak && byRate:
				m.open(toolcircuit.RuleThresholdRate, v, w.Failures, w.Calls)
			case byRate:
				m.open(toolcircuit.RuleRate, v, w.Failures, w.Calls)
			case byStreak:
				m.open(toolcircuit.RuleThreshold, v, m.streak, max(m.streak, w.Calls))
			}
		}
	default:
		if t.probe == m.probes {
			m.slotTaken = false
		}
		switch {
		case v.Effect == toolcircuit.EffectHeal:
			m.successes++
			if m.successes >= m.ProbeSuccesses {
				m.close(toolcircuit.RuleProbe)
			}
		case bad:
			m.forget()
			m.blame(v, err)
			rule := toolcircuit.RuleProbe
			if v.Effect == toolcircuit.EffectPause {
				rule = toolcircuit.RulePause
			}
			m.open(rule, v, 1, 1)
		}
	}
}

// forget ends the streak.
func (m *model) forget() { m.streak, m.cause, m.err, m.asked = 0, "", nil, request{} }

func (m *model) blame(v toolcircuit.Verdict, err error) {
	silence := []toolcircuit.Kind{toolcircuit.KindUnavailable, toolcircuit.KindTimeout, toolcircuit.KindDeadline}
	if slices.Contains(silence, v.Kind) || !slices.Contains(silence, m.cause) {
		m.cause = v.Kind
	}
	m.err = err
	m.ask(v)
}

func (m *model) ask(v toolcircuit.Verdict) {
	r := request{m.now, v.RetryAfter}
	if m.until(r).After(m.until(m.asked)) {
		m.asked = r
	}
}

func (m *model) open(rule toolcircuit.Rule, v toolcircuit.Verdict, failures, tested int) {
	m.openings = m.remembered()
	below := m.openings == 0 || m.curve(m.openings) < m.MaxCooldown
	if rule != toolcircuit.RulePause {
		m.openings++
	}
	m.failures, m.tested, m.rule = failures, tested, rule
	m.curveHolds = v.RetryAfter == 0
	if m.asked.at.After(m.now) { // the clock stepped back
		m.asked.at = m.now
	}
	from := m.state
	m.enter(open)
	e := m.event(toolcircuit.EventOpened, from)
	e.Rule, e.Kind, e.Failures, e.Calls, e.Err = rule, m.cause, failures, tested, m.err
	e.Capped = below && m.openings > 0 && m.curve(m.openings) == m.MaxCooldown
	began, hold := m.gate(false)
	e.RetryAt = began.Add(hold)
}

func (m *model) close(rule toolcircuit.Rule) {
	from := m.state
	m.rule = rule
	m.forget()
	m.enter(closed)
	if from != closed {
		m.event(toolcircuit.EventClosed, from).Rule = rule
	}
}

func (m *model) reset() {
	m.openings = 0
	m.close(toolcircuit.RuleReset)
}

func (m *model) setOverride(o toolcircuit.Override) {
	if m.override != o {
		m.override = o
		m.event(toolcircuit.EventOverridden, m.state)
	}
}

func (m *model) setPolicy(p toolcircuit.Policy) {
	if p.Window != m.Window || p.FailureRate == 0 {
		m.counted = nil
	}
	m.openings, m.calm = m.remembered(), m.now
	m.Policy = p
}

// fuzzPolicies are the policies that a fuzzed circuit may have. Their waits are seconds, so
// that a few steps get far.
var fuzzPolicies = func() []toolcircuit.Policy {
	base := toolcircuit.Policy{
		FailureThreshold: 2, Window: 16 * time.Second, MinCalls: 3, Cooldown: 4 * time.Second, Multiplier: 2,
		MaxCooldown: 20 * time.Second, MaxRetryAfter: 12 * time.Second, ProbeTimeout: 6 * time.Second,
	}
	edits := []func(*toolcircuit.Policy){
		func(*toolcircuit.Policy) {},
		func(p *toolcircuit.Policy) { p.FailureThreshold = 1; p.Multiplier = 1 },
		func(p *toolcircuit.Policy) { p.ProbeSuccesses = 2; p.CountUnknown = true },
		func(p *toolcircuit.Policy) { p.FailureThreshold = 100; p.FailureRate = 0.5 },
		func(p *toolcircuit.Policy) { p.FailureThreshold = 3; p.FailureRate = 1; p.Window = 8 * time.Second },
		func(p *toolcircuit.Policy) { p.CountBurstOnce = true; p.FailureRate = 0.75; p.MinCalls = 5 },
		func(p *toolcircuit.Policy) { p.SlowCall = 2 * time.Second; p.CallTimeout = 5 * time.Second },
		func(p *toolcircuit.Policy) { p.Cooldown = 20 * time.Second; p.ProbeTimeout = time.Second },
		func(p *toolcircuit.Policy) { p.Multiplier = 1.5; p.ProbeSuccesses = 3 },
		func(p *toolcircuit.Policy) {
			p.FailureThreshold, p.MaxCooldown, p.MaxRetryAfter = 1, 8*time.Second, 30*time.Second
		},
	}
	var policies []toolcircuit.Policy
	for _, edit := range edits {
		p := base
		edit(&p)
		policies = append(policies, filled(p))
	}
	return policies
}()

// fuzzOutcomes are the ways a call can end, and what the rules say to them.
var fuzzOutcomes = []struct {
	err     error
	verdict toolcircuit.Verdict
}{
	{nil, healthy},
	{errDown, unavailable},
	{errInvalid, invalid},
	{errors.New("?"), unknown},
	{wait(3 * time.Second), paused(toolcircuit.KindRateLimited, 3*time.Second)},
	{wait(time.Hour), paused(toolcircuit.KindRateLimited, time.Hour)},
	{asked(time.Second), after(unavailable, time.Second)},
	{asked(9 * time.Second), after(unavailable, 9*time.Second)},
	{&toolcircuit.HTTPError{StatusCode: 429}, rateLimited},
	{toolcircuit.Duplicate(errInvalid), healed(toolcircuit.KindDuplicate)},
}

// pair is a circuit and its model, side by side.
type pair struct {
	*rig
	*model
	writes *toolcircuit.ToolCircuit
	under  []*ticket // calls under way
	probes []*ticket // the latest, with the context of their operation, also when they have ended
}

// begin starts a call in both, inside a probe if there is one, and compares how it is let in or
// refused.
func (p *pair) begin(writes bool, inside *ticket) *ticket {
	before := *p.model
	t := p.model.call(writes, inside)
	ctx := context.Background()
	if inside != nil {
		ctx = inside.inner
	}
	view := p.ToolCircuit
	if writes {
		view = p.writes
	}
	permit, err := view.Allow(ctx)
	if t == nil {
		p.compareRefusal(&before, writes, err)
		return nil
	}
	require.NoError(p, err)
	require.Equal(p, t.state == halfOpen && !t.ghost, permit.Probe())
	t.real = &permit
	if permit.Probe() && t.rules.CallTimeout == 0 { // whose end a clock that steps back would not undo
		t.inner = permit.Context(ctx)
		p.probes = append(p.probes, t)
	}
	return t
}

// inside returns one of the latest probes, nil if there was none.
func (p *pair) inside(i byte) *ticket {
	if len(p.probes) == 0 {
		return nil
	}
	p.probes = p.probes[max(0, len(p.probes)-3):]
	return p.probes[int(i)%len(p.probes)]
}

func (p *pair) compareRefusal(m *model, writes bool, err error) {
	var got *toolcircuit.OpenError
	require.ErrorAs(p, err, &got)
	require.Equal(p, "search-api", got.Dependency)
	require.Equal(p, m.since, got.Since)
	if m.state != closed {
		require.Equal(p, m.cause, got.Cause)
		require.Equal(p, m.rule, got.Rule)
		require.Equal(p, m.failures, got.Failures)
		require.Equal(p, m.openings, got.Openings)
	}
	if m.override == toolcircuit.OverrideOpen {
		require.Equal(p, toolcircuit.ReasonManualOpen, got.Reason)
		require.Equal(p, open, got.State)
		require.Zero(p, got.RetryAt)
		require.Zero(p, got.RetryAfter())
		return
	}
	from, hold := m.gate(writes)
	require.Equal(p, toolcircuit.ReasonDependencyOpen, got.Reason)
	require.Equal(p, m.state, got.State)
	require.Equal(p, from.Add(hold), got.RetryAt)
	want := min(hold, from.Add(hold).Sub(m.now))
	if m.state == halfOpen && !writes {
		want = min(want, max(m.now.Sub(m.probeStart), time.Second))
	}
	require.Equal(p, want, got.RetryAfter())
}

// end ends a call in both, with Settle or with a panic.
func (p *pair) end(t *ticket, arg byte) {
	o := fuzzOutcomes[int(arg)%len(fuzzOutcomes)]
	t.real.Settle(context.Background(), nil, o.err)
	p.model.end(t, o.verdict, o.err)
}

// compare compares all that can be read.
func (p *pair) compare() {
	m := p.model
	require.Equal(p, m.visible(), p.State())
	require.Equal(p, m.ready(false), p.Ready())
	require.Equal(p, m.ready(true), p.writes.Ready())
	want := toolcircuit.Snapshot{
		Dependency: "search-api", State: m.visible(), Since: m.since, Override: m.override, Seq: m.seq,
		Openings: m.remembered(), Rule: m.rule, Cause: m.cause, Err: m.err, Streak: m.streak, Window: m.window(),
		Refused: m.refused, Unclassified: m.unclassified, Stale: m.stale, Policy: m.Policy,
	}
	if m.gated(false) {
		from, hold := m.gate(false)
		want.RetryAt = from.Add(hold)
	}
	require.Equal(p, want, p.Snapshot())

	got := slices.Clone(p.rig.events)
	for i := range got {
		got[i].Elapsed = 0 // TestOnCall has it
	}
	require.Equal(p, m.events, got)
	p.rig.events, m.events = nil, nil
}

// monitor runs a monitor until its first check, or for as long as none is due at once or in a
// second. A check that fails says nothing, for it ends the monitor's context.
func (p *pair) monitor(answer error) {
	ctx, cancel := context.WithCancel(context.Background())
	go p.Monitor(ctx, time.Second, func(context.Context) error { cancel(); return answer })
	synctest.Wait()
	m := p.model
	from, hold := m.gate(false)
	switch {
	case m.override != toolcircuit.OverrideNone || m.state == closed:
	case m.ready(false): // it is the probe
		v := healthy
		if answer != nil {
			v = canceled
		}
		m.end(m.call(false, nil), v, answer)
	case m.state == open && m.curveHolds && m.until(m.asked).Sub(m.since) < m.curve(m.openings) && from.Add(hold).Sub(m.now) > time.Second:
		m.now = m.now.Add(time.Second)
		p.clock.Set(m.now)
		synctest.Wait()
		if answer == nil {
			m.curveHolds, m.answered = false, true
		}
	}
	cancel()
	synctest.Wait()
}

// step takes both through what one byte and its argument stand for.
func (p *pair) step(op, arg byte) {
	m := p.model
	switch op % 19 {
	case 0, 1, 2: // time passes, or steps back where no window would notice
		by := time.Duration(arg%64) * time.Second
		if op%19 == 2 && m.FailureRate == 0 && len(m.counted) == 0 {
			by = -by / 4 / time.Second * time.Second
		}
		m.now = m.now.Add(by)
		p.clock.Set(m.now)
	case 3: // to the end of the wait
		if from, hold := m.gate(arg%2 == 1); m.gated(arg%2 == 1) {
			m.now = from.Add(hold)
			p.clock.Set(m.now)
		}
	case 4, 5, 6: // a call
		if t := p.begin(arg >= 0xE0, nil); t != nil {
			p.end(t, arg)
		}
	case 7: // a call that does not return
		before := *m
		t := m.call(false, nil)
		var err error
		panicked, _ := quits(func() { _, err = tell(p.rig, func(context.Context) (int, error) { panic("boom") }) })
		if t == nil {
			p.compareRefusal(&before, false, err)
			break
		}
		require.Equal(p, "boom", panicked)
		m.end(t, counted(toolcircuit.KindPanic), toolcircuit.ErrNoReturn)
	case 8, 9, 10: // a call begins
		if t := p.begin(arg >= 0xE0, nil); t != nil {
			p.under = append(p.under, t)
		}
	case 11, 12, 13: // one ends, or is handed back
		if len(p.under) == 0 {
			break
		}
		i := int(op/19) % len(p.under)
		t := p.under[i]
		p.under = slices.Delete(p.under, i, i+1)
		if op%19 == 13 {
			t.real.Release()
			m.settle(t, toolcircuit.Verdict{}, nil)
		} else {
			p.end(t, arg)
		}
	case 14:
		o := []toolcircuit.Override{toolcircuit.OverrideNone, toolcircuit.OverrideOpen, toolcircuit.OverrideClosed, toolcircuit.OverrideNone}[arg%4]
		p.SetOverride(o)
		m.setOverride(o)
	case 15:
		if arg%4 == 0 {
			p.ToolCircuit.Reset()
			m.reset()
			break
		}
		policy := fuzzPolicies[int(arg/4)%len(fuzzPolicies)]
		require.NoError(p, p.SetPolicy(policy))
		m.setPolicy(policy)
	case 16:
		p.monitor([]error{nil, errDown}[arg%2])
	case 17, 18: // a call inside a probe
		if t := p.begin(arg >= 0xC0, p.inside(arg)); t != nil && op%19 == 17 {
			p.end(t, arg)
		} else if t != nil {
			p.under = append(p.under, t)
		}
	}
}

// FuzzMachine holds a circuit against its model: a policy, then steps of two bytes each.
func FuzzMachine(f *testing.F) {
	const (
		pass, untilReady, do, panics, begin, end, release, force, change, look, nested = 1, 3, 4, 7, 8, 11, 13, 14, 15, 16, 17
		ok, down, invalid, unknown, paused, asked                                      = 0, 1, 2, 3, 4, 6
	)
	f.Add([]byte{0, do, down, do, down, do, ok, untilReady, 0, do, ok, do, ok})
	f.Add([]byte{0, do, down, do, down, untilReady, 0, do, down, untilReady, 0, do, down, untilReady, 0, do, down})
	f.Add([]byte{0, begin, 0, do, down, do, down, untilReady, 0, begin, 0, end, 7, pass, 6, begin, 0, end, down, end, ok})
	f.Add([]byte{0, begin, 0, do, 6, do, 6, end, down, untilReady, 1, begin, 0xE0, release, 0, do, ok})
	f.Add([]byte{2, do, unknown, do, unknown, untilReady, 0, do, ok, do, invalid, do, ok, pass, 15, pass, 15, do, down})
	f.Add([]byte{3, do, down, do, ok, do, down, do, ok, pass, 8, do, down, pass, 8, do, down, do, down})
	f.Add([]byte{5, begin, 0, begin, 0, begin, 0, end, down, end, down, end, down, do, down, panics, 0})
	f.Add([]byte{6, begin, 0, pass, 3, end, ok, begin, 0, pass, 5, end, ok, do, paused, untilReady, 0, do, paused})
	f.Add([]byte{1, do, down, force, 2, do, down, begin, 0, force, 1, do, ok, force, 0, end, ok, change, 0, change, 5, change, 17})
	f.Add([]byte{0, begin, 0, do, asked, pass, 3, do, down, look, 0, end, down, do, ok, pass, 3, change, 8, pass, 4})
	f.Add([]byte{9, do, down, untilReady, 0, do, asked, untilReady, 0, do, down, untilReady, 0, do, ok, pass, 8, pass, 7, do, down})
	f.Add([]byte{0, do, down, do, down, untilReady, 0, begin, 0, nested, 0, nested, down, nested, 0xC0, pass, 5, nested, 0, end, down, nested, 0})
	f.Add([]byte{7, do, down, do, down, untilReady, 0, begin, 0, pass, 1, nested, 0xC0, nested, 1, end, ok, nested, 2})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 || len(data) > 400 {
			return
		}
		synctest.Test(t, func(t *testing.T) { compareToModel(t, data) })
	})
}

var atRandom = flag.Int("steps", 50_000, "what TestMachineAtRandom does")

// TestMachineAtRandom does what FuzzMachine does, with the same inputs each time.
func TestMachineAtRandom(t *testing.T) {
	random := rand.NewChaCha8([32]byte{})
	const each = 100
	synctest.Test(t, func(t *testing.T) {
		for range *atRandom / each {
			data := make([]byte, 1+2*each)
			random.Read(data)
			compareToModel(t, data)
		}
	})
}

func compareToModel(t *testing.T, data []byte) {
	first := fuzzPolicies[int(data[0])%len(fuzzPolicies)]
	r := newRig(t, toolcircuit.Options{Policy: first})
	m := &model{Policy: first, now: r.clock.Now(), since: r.clock.Now(), state: closed}
	p := &pair{rig: r, model: m, writes: r.WithTool(toolcircuit.Tool{SideEffects: true})}
	for i := 1; i+1 < len(data); i += 2 {
		p.step(data[i], data[i+1])
		p.compare()
	}
	if t.Failed() {
		t.Logf("data: %v", data)
	}
}
