package toolcircuit

import (
	"cmp"
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// EventType says what happened to a circuit.
type EventType string

// The types of events.
const (
	EventOpened     EventType = "opened"
	EventHalfOpened EventType = "half_opened"
	EventClosed     EventType = "closed"
	EventOverridden EventType = "overridden"

	// These are of a Fleet, not of a circuit. Only At and Err are set.
	EventStoreError EventType = "store_error" // the Fleet has given up on the store: each circuit goes on alone
	EventRecovered  EventType = "recovered"   // the store answers again
)

// Rule says which rule changed the state of a circuit.
type Rule string

// The rules.
const (
	RuleThreshold     Rule = "threshold"      // FailureThreshold failures in a row
	RuleRate          Rule = "rate"           // FailureRate within Window
	RuleThresholdRate Rule = "threshold+rate" // both at the same call
	RulePause         Rule = "pause"          // the dependency asked for a wait
	RuleProbe         Rule = "probe"          // a probe failed, or the last probe that was needed succeeded
	RuleReset         Rule = "reset"          // Reset was called
	RuleFleet         Rule = "fleet"          // another worker of the Fleet reported it
)

// Event is one change of a circuit. From is the To of the event before. If only the override
// changed, From and To are both the state below it.
type Event struct {
	Type       EventType
	Dependency string
	Tool       string // whose call, check or method caused it; empty without a Tool.Name
	From, To   State
	Override   Override
	Seq        uint64    // the epoch that begins; rises with each change of state and each Reset
	Openings   int       // in memory at this moment
	Capped     bool      // this opening has raised the curve's wait to MaxCooldown from below
	At         time.Time // on the circuit's clock
	RetryAt    time.Time // of an opening: when a probe may run; a late failure, a Monitor or SetPolicy can move it without an event
	Rule       Rule
	Kind       Kind          // of an opening: its cause
	Failures   int           // of an opening: what the rule counted
	Calls      int           // of an opening: the calls among which it counted
	Elapsed    time.Duration // of the call that caused it
	RunID      string        // of the call that caused it
	Err        error         // of an opening: the last failure; LogValue leaves it out
}

// LogValue is e for log/slog. It leaves Err out, whose text may hold what must not be
// logged.
func (e Event) LogValue() slog.Value {
	if e.Type == EventStoreError || e.Type == EventRecovered {
		return slog.GroupValue(slog.String("event", string(e.Type)))
	}
	attrs := append(logNames(e.Dependency, e.Tool), slog.String("transition", string(e.From)+" -> "+string(e.To)))
	if e.Rule != "" {
		attrs = append(attrs, slog.String("rule", string(e.Rule)))
	}
	if e.Type == EventOverridden {
		attrs = append(attrs, slog.String("override", cmp.Or(string(e.Override), "none")))
	}
	if e.Type == EventOpened {
		attrs = append(attrs,
			slog.String("kind", string(e.Kind)),
			slog.Int("failures", e.Failures),
			slog.Int("openings", e.Openings),
			slog.Time("retry_at", e.RetryAt))
	}
	return slog.GroupValue(append(attrs, logCall(e.RunID, e.Elapsed)...)...)
}

// Call is what one call met: it ran, it was refused, or its context had ended before.
type Call struct {
	Dependency string
	Tool       string
	RunID      string
	State      State  // that the call met
	Reason     Reason // of a refused call
	Executed   bool
	Probe      bool // its outcome decided whether the circuit closes
	Early      bool // a Monitor's check during the cooldown, not a call of the circuit
	Stale      bool // its outcome came after its epoch
	Verdict    Verdict
	Elapsed    time.Duration
	RetryAt    time.Time // of a refused call: when it may run at the latest
	Err        error     // what the caller got, joined with a *PanicError if Classify panicked
}

// LogValue is c for log/slog. It leaves Err out, whose text may hold what must not be
// logged.
func (c Call) LogValue() slog.Value {
	attrs := append(logNames(c.Dependency, c.Tool),
		slog.String("state", string(c.State)),
		slog.String("kind", string(c.Verdict.Kind)),
		slog.Bool("executed", c.Executed),
	)
	return slog.GroupValue(append(attrs, logCall(c.RunID, c.Elapsed)...)...)
}

func logNames(dependency, tool string) []slog.Attr {
	attrs := []slog.Attr{slog.String("dependency", dependency)}
	if tool != "" {
		attrs = append(attrs, slog.String("tool", tool))
	}
	return attrs
}

func logCall(runID string, elapsed time.Duration) []slog.Attr {
	var attrs []slog.Attr
	if runID != "" {
		attrs = append(attrs, slog.String("run_id", runID))
	}
	if elapsed > 0 {
		attrs = append(attrs, slog.Duration("duration", elapsed))
	}
	return attrs
}

// LogEvents returns a hook for Options.OnEvent that logs each event in one line, with what
// Event.LogValue holds. What an operator should look at has level Warn: an opening, and an
// override that is set. The rest has level Info. Names and run ids are logged as they are, also
// a tool's name that a model invented. A nil logger panics.
func LogEvents(l *slog.Logger) func(context.Context, Event) {
	mustHaveLogger("LogEvents", l)
	return func(ctx context.Context, e Event) {
		level := slog.LevelWarn
		if e.Type == EventHalfOpened || e.Type == EventClosed || e.Type == EventOverridden && e.Override == OverrideNone {
			level = slog.LevelInfo
		}
		l.LogAttrs(ctx, level, "toolcircuit: "+string(e.Type), e.LogValue().Group()...)
	}
}

// LogCalls returns a hook for Options.OnCall that logs refused calls at level Debug, with what
// Call.LogValue holds, the reason and retry_at: at most one line a second for each dependency and
// reason, where skipped counts those left out since the line before. Other calls are not logged.
// Names and run ids are logged as they are, as by LogEvents. A nil logger panics.
func LogCalls(l *slog.Logger) func(context.Context, Call) {
	mustHaveLogger("LogCalls", l)
	var p pace
	return func(ctx context.Context, c Call) {
		if c.Reason == "" || !l.Enabled(ctx, slog.LevelDebug) {
			return
		}
		skipped, due := p.next(c.Dependency, c.Reason)
		if !due {
			return
		}
		attrs := append(c.LogValue().Group(), slog.String("reason", string(c.Reason)))
		if !c.RetryAt.IsZero() {
			attrs = append(attrs, slog.Time("retry_at", c.RetryAt))
		}
		if skipped > 0 {
			attrs = append(attrs, slog.Int("skipped", skipped))
		}
		l.LogAttrs(ctx, slog.LevelDebug, "toolcircuit: refused", attrs...)
	}
}

func mustHaveLogger(caller string, l *slog.Logger) {
	if l == nil {
		panic("toolcircuit: " + caller + ": the logger is nil")
	}
}

// pace lets one refusal a second through for each dependency and reason.
type pace struct {
	mu   sync.Mutex
	past map[refusedBy]*refusals
}

type refusedBy struct {
	dependency string
	reason     Reason
}

type refusals struct {
	logged  time.Time // the latest
	skipped int       // since then
}

// maxPaces caps what a pace remembers, since a model can invent names.
const maxPaces = 1000

// next reports whether the refusal is due, and how many were skipped before it.
func (p *pace) next(dependency string, reason Reason) (skipped int, due bool) {
	now, by := time.Now(), refusedBy{dependency, reason}
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.past[by]
	switch {
	case r == nil:
		if p.past == nil || len(p.past) == maxPaces {
			p.past = map[refusedBy]*refusals{}
		}
		r = new(refusals)
		p.past[by] = r
	case now.Sub(r.logged) < time.Second:
		r.skipped++
		return 0, false
	}
	skipped = r.skipped
	*r = refusals{logged: now}
	return skipped, true
}

type runIDKey struct{}

// WithRunID returns a context that carries the id of an agent's run, for events and logs.
func WithRunID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, runIDKey{}, id)
}

// RunID returns the run id that ctx carries, or "".
func RunID(ctx context.Context) string {
	id, _ := ctx.Value(runIDKey{}).(string)
	return id
}

// outbox holds the queued events of a circuit until they are delivered: in order, one at a time,
// with no lock held. The circuit's mutex guards it.
type outbox struct {
	events     []queuedEvent
	delivering bool // a goroutine is in OnEvent
}

type queuedEvent struct {
	ctx   context.Context
	event Event
}

// post queues the event of the step from before to after, if there is one. e has what only the
// caller knows. The caller holds c.mu, and calls deliver after it has released it.
func (c *circuit) post(ctx context.Context, before, after *state, e Event) {
	if c.onEvent == nil || before.State == after.State && before.override == after.override {
		return
	}
	e.Dependency = c.dependency
	e.From, e.To = before.State, after.State
	e.Override, e.Seq, e.Openings, e.Rule = after.override, after.seq, after.openingsAt(e.At), after.rule
	switch {
	case before.State == after.State:
		e.Type, e.Rule = EventOverridden, ""
	case after.State == StateOpen:
		e.Type = EventOpened
		e.Capped = after.rule != RulePause && after.capped(after.openings) && !after.capped(after.openings-1)
		e.RetryAt = after.gate.from.Add(after.gate.hold)
		t := after.trouble
		e.Kind, e.Failures, e.Calls, e.Err = t.cause, t.failures, t.calls, t.err
	case after.State == StateHalfOpen:
		e.Type, e.Rule = EventHalfOpened, ""
		if after.gate.told > 0 { // it is another worker's probe
			e.Rule, e.Kind = RuleFleet, after.trouble.cause
		}
	default:
		e.Type = EventClosed
	}
	if c.out == nil {
		c.out = new(outbox)
	}
	c.out.events = append(c.out.events, queuedEvent{context.WithoutCancel(ctx), e})
}

// deliver calls OnEvent for each queued event, unless another goroutine does so already. The
// caller holds no lock.
func (c *circuit) deliver() {
	for c.deliverOne() {
	}
}

// deliverAside is deliver in a goroutine of its own, for callers that OnEvent must not block.
func (c *circuit) deliverAside() {
	if c.onEvent == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out != nil && !c.out.delivering && len(c.out.events) > 0 {
		go c.deliver()
	}
}

func (c *circuit) deliverOne() bool {
	if c.onEvent == nil {
		return false
	}
	c.mu.Lock()
	if c.out == nil || c.out.delivering || len(c.out.events) == 0 {
		c.mu.Unlock()
		return false
	}
	next := c.out.events[0]
	c.out.events[0] = queuedEvent{} // otherwise its context stays in memory
	c.out.events = c.out.events[1:]
	c.out.delivering = true
	c.mu.Unlock()

	returned := false
	defer func() {
		c.mu.Lock()
		c.out.delivering = false
		c.mu.Unlock()
		if !returned { // Goexit ends this goroutine, but not the events after this one
			c.deliver()
		}
	}()
	c.safely(func() { next.event.RunID = RunID(next.ctx) }) // the context may be a user's
	c.safely(func() { c.onEvent(next.ctx, next.event) })
	returned = true
	return true
}

// safely runs code of the user. A panic of f is counted and returned, so that the caller keeps its
// own result. safely returns nil if f returned. Goexit passes through.
func (c *circuit) safely(f func()) (p *PanicError) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil { // nil after Goexit, which nothing can stop
			c.hookPanics.Add(1)
			p = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	f()
	returned = true
	return nil
}
