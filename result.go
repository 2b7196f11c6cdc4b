package toolcircuit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/toolcircuit/toolcircuit/internal/errtree"
)

// ErrCircuitOpen is what every refusal is: errors.Is(err, ErrCircuitOpen) reports that a call was
// refused and not executed. [OpenError] has the details.
var ErrCircuitOpen = errors.New("toolcircuit: circuit open")

// OpenError is the refusal of a call. A circuit makes one for each state that it publishes and
// gives it to every call that the state refuses. So do not change it. It is safe for concurrent
// reads. [ResultOf] makes from it what a model reads.
type OpenError struct {
	Dependency string
	State      State     // as published: it reads open until a probe is admitted
	Reason     Reason    // zero means ReasonDependencyOpen
	Cause      Kind      // of the failure that opened the circuit; under ReasonRepeatedCall, of the repeated call
	Rule       Rule      // the rule that opened the circuit
	Failures   int       // that the rule counted
	Openings   int       // in memory; one by rule pause adds none
	Since      time.Time // when State began
	RetryAt    time.Time // when a call may run at the latest; zero if no time ends the refusal

	clock  clock.Clock   // nil: real time
	wait   time.Duration // the full wait, the most that RetryAfter returns; 0: not known
	trial  bool          // the wait is the lease of a probe, which may end sooner
	jitter float64       // the share by which a model's wait is longer; 0 if the dependency asked for it
	capped bool          // the curve's wait has reached MaxCooldown
}

// Error names the dependency and the reason, for logs. It is not written for a model.
func (e *OpenError) Error() string {
	return fmt.Sprintf("toolcircuit: %s: %s", e.Dependency, cmp.Or(e.Reason, ReasonDependencyOpen))
}

// Is reports whether target is [ErrCircuitOpen].
func (e *OpenError) Is(target error) bool { return target == ErrCircuitOpen }

// RetryAfter returns how long to wait before the next call: the time until RetryAt on the
// circuit's clock. It is 0 once that is over, or if RetryAt is zero. It is never more than the
// full wait, even if the clock steps back.
//
// While a probe runs, RetryAt is the end of its lease, but the probe most likely ends sooner. Then
// RetryAfter is as long as the probe has run so far, and at least a second, so that a caller who
// waits for it is back soon after a recovery. A tool with SideEffects waits for its own turn.
func (e *OpenError) RetryAfter() time.Duration {
	if e.RetryAt.IsZero() {
		return 0
	}
	left := time.Until(e.RetryAt)
	if e.clock != nil {
		left = e.clock.Until(e.RetryAt)
	}
	if e.trial {
		left = min(left, max(e.wait-left, time.Second))
	}
	if e.wait > 0 {
		left = min(left, e.wait)
	}
	return max(left, 0)
}

// Reason says why a [Result] is not ok. The set is closed and part of the API.
type Reason string

const (
	ReasonDependencyOpen  Reason = "dependency_open"  // the circuit is open, or half-open while its probe runs
	ReasonManualOpen      Reason = "manual_open"      // an operator's override; no time ends it
	ReasonCallFailed      Reason = "call_failed"      // the call ran and failed
	ReasonBusy            Reason = "busy"             // every slot for concurrent calls is taken
	ReasonRepeatedCall    Reason = "repeated_call"    // the run has made this very call before
	ReasonBudgetExhausted Reason = "budget_exhausted" // the run has used up its calls or its time, or is over
)

// Status is the form of a [Result].
type Status string

const (
	StatusOK       Status = "ok"       // Value is the tool's
	StatusBlocked  Status = "blocked"  // refused: the dependency got no call
	StatusFailed   Status = "failed"   // called, and failed
	StatusFallback Status = "fallback" // Value is a substitute; see Result.Or
)

// Action is a step that a model may take instead of a call. The set is closed and part of the API.
type Action string

const (
	ActionAnswerWithout  Action = "answer_without"  // go on without the tool and say what is missing
	ActionUseAlternative Action = "use_alternative" // call one of Alternatives, or some other tool
	ActionPause          Action = "pause"           // wait until the block or the given time is over
	ActionEscalate       Action = "escalate"        // tell a person
)

// actions is the closed set of actions.
var actions = []Action{ActionAnswerWithout, ActionUseAlternative, ActionPause, ActionEscalate}

// Tool is one tool's view of a circuit: what a model reads about it.
type Tool struct {
	Name         string   // as the model knows it
	Alternatives []string // tools that the model may use instead
	NextActions  []Action // empty: use_alternative if there are Alternatives, answer_without
	// SideEffects marks a tool that should not be the probe while another tool can be. It becomes
	// the probe only after one more cooldown. If it is the only tool of a dependency without a
	// Monitor, this only doubles the wait.
	SideEffects bool
	// Message writes the text of a blocked or failed result. It gets the result without a text. If
	// Message is nil, panics or returns "", the result has the default text.
	Message func(Blocked) string
	// Detail returns what the tool tells the model about the error of a failed call:
	// Blocked.Detail. If Detail is nil, panics or returns "", that is the text of an error marked
	// [Invalid], if the mark decides, and otherwise empty.
	Detail func(error) string

	monitor bool // a Monitor's view, for which any answer proves health
}

func (t Tool) validate() error {
	for i, a := range t.NextActions {
		if !slices.Contains(actions, a) {
			return fmt.Errorf("Tool.NextActions[%d]: got %q, want one of %q", i, a, actions)
		}
	}
	for i, a := range t.Alternatives {
		if a == "" || a == t.Name {
			return fmt.Errorf("Tool.Alternatives[%d]: got %q, want the name of another tool", i, a)
		}
	}
	return nil
}

var noTool = new(Tool)

// clone returns a copy without slices that the caller can change.
func (t Tool) clone() *Tool {
	if t.Name == "" && len(t.Alternatives) == 0 && len(t.NextActions) == 0 && !t.SideEffects && t.Message == nil && t.Detail == nil {
		return noTool
	}
	t.Alternatives = slices.Clone(t.Alternatives)
	t.NextActions = slices.Clone(t.NextActions)
	return &t
}

// Values of [Blocked].Outcome.
const (
	outcomeUnknown   = "unknown"
	outcomeDuplicate = "duplicate"
)

// Result is what a model reads about one call: a value, or why there is none and what to do
// instead. Its tags alone decide its JSON and the schema inferred from the type. A Result of every
// Status is valid by that schema. The zero Result says nothing. Make one with [ResultOf].
type Result[T any] struct {
	Status  Status `json:"status"`
	Value   *T     `json:"value,omitempty"` // set if ok or fallback, even to a zero value
	Blocked        // the same keys for every Status; zero if ok, except for Outcome
	Source  string `json:"source,omitempty"` // of a fallback's Value
	Advice  string `json:"advice,omitempty"` // a warning in the result of a call that ran
}

// Blocked says why a call has no value of its own. Every key is optional, so that the inferred
// schema holds for each [Status].
type Blocked struct {
	Reason       Reason     `json:"reason,omitempty"`
	Dependency   string     `json:"dependency,omitempty"`   // that refused or failed; if a call inside the tool was refused, the inner one
	Tool         string     `json:"tool,omitempty"`         // that the model called; empty if the circuit has no Tool.Name
	State        State      `json:"state,omitempty"`        // of the circuit that refused
	Executed     *bool      `json:"executed,omitempty"`     // false if refused, true if an answer proves it, nil if nobody can know
	Outcome      string     `json:"outcome,omitempty"`      // "unknown" if Executed is nil; "duplicate" if ok, but the effect had happened before
	Cause        Kind       `json:"cause,omitempty"`        // the kind of the failure that is the reason
	Rule         Rule       `json:"rule,omitempty"`         // that opened the circuit
	Failures     int        `json:"failures,omitempty"`     // that the rule counted
	Retryable    *bool      `json:"retryable,omitempty"`    // whether the same call may work later; false for every refusal
	RetryAfterMS int64      `json:"retryAfterMs,omitempty"` // milliseconds from now, rounded up; at least 1 if a time ends the block
	RetryAt      *time.Time `json:"retryAt,omitempty"`      // the same moment in UTC, rounded up to the second
	NextActions  []Action   `json:"nextActions,omitempty"`  // best first
	Alternatives []string   `json:"alternatives,omitempty"` // tools that can stand in
	BlockedCalls int        `json:"blockedCalls,omitempty"` // in this turn of the run
	EndTurn      bool       `json:"endTurn,omitempty"`      // the run should call no more tools in this turn
	Detail       string     `json:"detail,omitempty"`       // what the tool itself tells the model, at most 500 bytes; see Tool.Detail
	Message      string     `json:"message,omitempty"`      // all of this in under 60 words
}

// Or returns a blocked or failed r as a fallback: value, the source that it came from, and r's
// Reason and Message to say why. BlockedCalls, EndTurn and Advice stay. Any other r is returned
// unchanged.
func (r Result[T]) Or(value T, source string) Result[T] {
	if r.Status != StatusBlocked && r.Status != StatusFailed {
		return r
	}
	return Result[T]{
		Status:  StatusFallback,
		Value:   &value,
		Blocked: Blocked{Reason: r.Reason, BlockedCalls: r.BlockedCalls, EndTurn: r.EndTurn, Message: r.Message},
		Source:  source,
		Advice:  r.Advice,
	}
}

// Judged is a value that knows the outcome of its call, as a [Result] does. A circuit around such
// a call takes that outcome. No other package can implement it.
type Judged interface {
	verdict() (v Verdict, ok bool)
	unusable() (status Status, why Blocked, ok bool)
}

// unusable returns what a model reads about a blocked or failed r. It stays the same if the tool
// that returned r is wrapped again.
func (r Result[T]) unusable() (status Status, why Blocked, ok bool) {
	return r.Status, r.Blocked, r.Status == StatusBlocked || r.Status == StatusFailed
}

// unusableIn is unusable for any value. A struct that embeds a nil *Result counts as usable.
func unusableIn(value any) (status Status, why Blocked, ok bool) {
	r, ok := value.(Judged)
	if !ok {
		return "", Blocked{}, false
	}
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return r.unusable()
}

// verdict returns the verdict of an outer circuit on a call that returned r. ok is false if r is
// an ordinary value. Neither a refusal nor a fallback proves that the outer dependency works.
func (r Result[T]) verdict() (Verdict, bool) {
	switch r.Status {
	case StatusBlocked, StatusFallback:
		return Verdict{Effect: EffectIgnore, Kind: KindRejected}, true
	case StatusFailed:
		return Verdict{Effect: r.Cause.effect(), Kind: r.Cause}, true
	}
	if r.Value != nil { // the value may be a Result itself, of a tool that was wrapped twice
		return verdictOf(*r.Value)
	}
	return Verdict{}, false
}

// verdictOf returns the verdict that a value knows of its call. ok is false if it knows none. A
// struct that embeds a nil *Result knows none.
func verdictOf(value any) (v Verdict, ok bool) {
	r, ok := value.(Judged)
	if !ok {
		return Verdict{}, false
	}
	defer func() {
		if recover() != nil {
			v, ok = Verdict{}, false
		}
	}()
	return r.verdict()
}

// ResultOf returns what [DoResult] returns, for a call in two steps. Pass what the call and
// [Permit.Settle] returned. If Allow refused, pass its error and the zero Verdict.
//
//   - a nil err is ok with value, and so is a duplicate, however slow. A value that is a blocked or
//     failed Result stays blocked or failed
//   - a refusal at any depth of err is blocked
//   - any other err is returned if v is zero or of kind canceled, deadline or interrupt
//   - an err that is none of these is failed
//
// A refusal may come from a call inside the tool: it is another circuit's, or v is not zero. Then
// the tool had begun. The Result names the inner dependency, and its Outcome is unknown.
func ResultOf[T any](c *ToolCircuit, value T, v Verdict, err error) (Result[T], error) {
	c.made()
	if err == nil && v.Kind != KindDuplicate {
		if status, why, ok := unusableIn(value); ok {
			return Result[T]{Status: status, Blocked: why}, nil
		}
		return Result[T]{Status: StatusOK, Value: &value}, nil
	}
	refusal := c.refusalIn(err)
	switch {
	case refusal != nil:
		return Result[T]{Status: StatusBlocked, Blocked: refused(c, refusal, v.Kind != "")}, nil
	case v.Kind == KindDuplicate, v.Kind == KindSlow && examine(err).verdict.Kind == KindDuplicate:
		return Result[T]{Status: StatusOK, Value: &value, Blocked: Blocked{Outcome: outcomeDuplicate}}, nil
	case v.Kind == "", v.Kind == KindCanceled, v.Kind == KindDeadline, v.Kind == KindInterrupt:
		return Result[T]{}, err
	}
	return Result[T]{Status: StatusFailed, Blocked: failed(c, v, err)}, nil
}

// refusalIn returns the outermost refusal in err's tree, or nil. If the tree has [ErrCircuitOpen]
// only, it returns an empty one.
func (c *ToolCircuit) refusalIn(err error) (refusal *OpenError) {
	c.safely(func() { // methods of err may panic
		for err := range errtree.All(err) {
			if e, ok := err.(*OpenError); ok {
				refusal = e
				return
			}
		}
		if err != nil && examine(err).refused {
			refusal = &OpenError{}
		}
	})
	return refusal
}

// refused returns what a model reads about the refusal e of a call of c's tool. began says that
// the tool had begun, so the refused call is one inside it.
func refused(c *ToolCircuit, e *OpenError, began bool) Blocked {
	if e.clock == nil { // another package made it
		own := *e
		own.clock = c.clock
		e = &own
	}
	b := Blocked{
		Reason:       cmp.Or(e.Reason, ReasonDependencyOpen),
		Dependency:   cmp.Or(e.Dependency, c.Dependency()),
		Tool:         c.tool.Name,
		State:        e.State,
		Cause:        e.Cause,
		Rule:         e.Rule,
		Failures:     e.Failures,
		Retryable:    ptr(false),
		NextActions:  nextActions(c.tool),
		Alternatives: slices.Clone(c.tool.Alternatives),
	}
	if began || b.Dependency != c.Dependency() {
		b.Outcome = outcomeUnknown
	} else {
		b.Executed = ptr(false)
	}
	switch b.Reason {
	case ReasonBusy:
		b.NextActions = putFirst(ActionPause, b.NextActions)
	case ReasonBudgetExhausted: // of all tools of the run, so no alternative helps
		left := slices.DeleteFunc(b.NextActions, func(a Action) bool { return a == ActionUseAlternative })
		b.NextActions, b.Alternatives = nextActions(&Tool{NextActions: left}), nil
	case ReasonDependencyOpen:
		if !e.RetryAt.IsZero() {
			b.stayAway(e.clock.Now(), c.hint(e))
		}
		if e.capped {
			b.NextActions = putFirst(ActionEscalate, b.NextActions)
		}
	}
	return tell(c, b, e)
}

// failed returns what a model reads about a call of c's tool that failed with err and verdict v.
//
// The call is retryable if the failure pauses or its kind is transient: timeout, unavailable,
// rate_limited or slow. An unknown failure is not, because nothing says that a repeat helps.
// Neither is a failure that may have had a side effect, because a repeat could make it happen
// twice (langchain-ai/langchain#40688).
func failed(c *ToolCircuit, v Verdict, err error) Blocked {
	b := Blocked{Reason: ReasonCallFailed, Dependency: c.Dependency(), Tool: c.tool.Name, Cause: v.Kind}
	if b.Cause == KindOK { // a Classifier says that the error proves health, but not what it is
		b.Cause = KindUnknown
	}
	s := c.state.Load()
	wait := min(v.RetryAfter, s.MaxRetryAfter)
	_, refusal := c.look(s) // this failure may have opened the circuit
	switch {
	case refusal != nil && refusal.Reason == ReasonManualOpen:
		wait = 0 // no time ends it
	case refusal != nil:
		wait = max(wait, c.hint(refusal))
	}
	if wait > 0 {
		b.stayAway(c.clock.Now(), wait)
	}
	c.detail(&b, err)
	if b.Executed = c.executed(v, err); b.Executed == nil {
		b.Outcome = outcomeUnknown
	}
	transient := v.Effect == EffectPause || v.Effect == EffectCount && v.Kind.effect() == EffectCount && v.Kind != KindPanic
	b.Retryable = ptr(transient && !doubtful(b, c.tool))
	switch {
	case doubtful(b, c.tool):
		b.NextActions = []Action{ActionEscalate}
	case transient && refusal == nil && wait > 0:
		b.NextActions = []Action{ActionPause}
	case !transient || refusal != nil:
		b.NextActions = nextActions(c.tool)
		b.Alternatives = slices.Clone(c.tool.Alternatives)
		if v.Kind == KindUnauthorized || refusal != nil && refusal.capped {
			b.NextActions = putFirst(ActionEscalate, b.NextActions)
		}
	}
	return tell(c, b, refusal)
}

// executed returns what a failure with err and verdict v proves: that the call was executed, that
// it was not, or, with nil, nothing. If err branches, all branches must agree, because one attempt
// may have had no answer.
func (c *ToolCircuit) executed(v Verdict, err error) *bool {
	f := fateOf(v.Kind)
	c.safely(func() { // methods of err may panic
		if errtree.IsNil(err) {
			return
		}
		if j := examine(err); j.fate == unsent || j.ends > 1 {
			f = j.fate
		}
	})
	switch f {
	case unsent:
		return ptr(false)
	case answered:
		return ptr(true)
	}
	return nil
}

// doubtful reports whether t has side effects and nobody knows whether the call had them.
func doubtful(b Blocked, t *Tool) bool { return t.SideEffects && b.Outcome == outcomeUnknown }

// nextActions returns, in a new slice, what a model may do without t.
func nextActions(t *Tool) []Action {
	switch {
	case len(t.NextActions) > 0:
		return slices.Clone(t.NextActions)
	case len(t.Alternatives) > 0:
		return []Action{ActionUseAlternative, ActionAnswerWithout}
	}
	return []Action{ActionAnswerWithout}
}

// putFirst returns a, followed by the other actions.
func putFirst(a Action, actions []Action) []Action {
	return append([]Action{a}, slices.DeleteFunc(actions, func(b Action) bool { return b == a })...)
}

func ptr[T any](v T) *T { return &v }
