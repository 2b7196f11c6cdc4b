package toolcircuit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/benbjohnson/clock"
)

// ErrCircuitOpen is the condition behind every refusal: errors.Is(err, ErrCircuitOpen) reports
// that a call was refused and not executed. The data is in [OpenError].
var ErrCircuitOpen = errors.New("toolcircuit: circuit open")

// OpenError is the refusal of a call. A circuit makes one for each state that it publishes and hands
// it to every call that the state refuses, so it must not be changed. It may be read from any
// goroutine. What a model should read is made from it by [ResultOf].
type OpenError struct {
	Dependency string
	State      State     // as published: an open circuit reads open until a probe goes out
	Reason     Reason    // the zero Reason is taken for ReasonDependencyOpen
	Cause      Kind      // of the failure that opened the circuit or, under ReasonRepeatedCall, of the call repeated
	Rule       Rule      // what opened the circuit
	Failures   int       // that it counted
	Openings   int       // in memory; one by rule pause adds none
	Since      time.Time // when State began
	RetryAt    time.Time // when a call may be let through, at the latest; zero if no time ends the refusal

	clock  clock.Clock   // nil: real time
	wait   time.Duration // the full wait, which RetryAfter never exceeds; 0: no bound known
	trial  bool          // the wait is the lease of a probe, which may end sooner
	jitter float64       // share of the wait by which a model's is spread; 0 if the dependency asked for it
	capped bool          // the wait has reached MaxCooldown
}

// Error names the dependency and the reason, for logs. It is no text for a model.
func (e *OpenError) Error() string {
	return fmt.Sprintf("toolcircuit: %s: %s", e.Dependency, cmp.Or(e.Reason, ReasonDependencyOpen))
}

// Is reports whether target is [ErrCircuitOpen].
func (e *OpenError) Is(target error) bool { return target == ErrCircuitOpen }

// RetryAfter returns how long to wait before the next call: the time from now to RetryAt on the
// circuit's clock. It is 0 when that is over or no such moment is known, and never more than the full
// wait, even if the clock has stepped back.
//
// While a probe is under way RetryAt is the end of its lease, but the probe will most likely end
// sooner. RetryAfter is then as long as the probe has run so far and at least a second, so that who
// obeys it is back soon after a recovery. A tool with SideEffects waits for its own turn.
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
	ReasonDependencyOpen  Reason = "dependency_open"  // the circuit is open, or half-open with its probe out
	ReasonManualOpen      Reason = "manual_open"      // an operator's override; no time ends it
	ReasonCallFailed      Reason = "call_failed"      // the call ran and failed
	ReasonBusy            Reason = "busy"             // every slot for concurrent calls is taken
	ReasonRepeatedCall    Reason = "repeated_call"    // the run has made this very call before
	ReasonBudgetExhausted Reason = "budget_exhausted" // the run has used up its calls
)

// Status is the form of a [Result].
type Status string

const (
	StatusOK       Status = "ok"       // Value is the tool's
	StatusBlocked  Status = "blocked"  // refused: the dependency got no call
	StatusFailed   Status = "failed"   // called, and failed
	StatusFallback Status = "fallback" // Value is a substitute; see Result.Or
)

// Action is a step that a model may take in place of a call. The set is closed and part of the API.
type Action string

const (
	ActionAnswerWithout  Action = "answer_without"  // go on without the tool and say what is missing
	ActionUseAlternative Action = "use_alternative" // call one of Alternatives, or some other tool
	ActionPause          Action = "pause"           // wait until the block or the named time is over
	ActionEscalate       Action = "escalate"        // tell a person
)

// actions is the closed set of actions.
var actions = []Action{ActionAnswerWithout, ActionUseAlternative, ActionPause, ActionEscalate}

// Tool is one tool's view of a circuit: what a model reads of it.
type Tool struct {
	Name         string   // as the model knows it
	Alternatives []string // tools that the model may use instead
	NextActions  []Action // empty: use_alternative if there is one, answer_without
	// SideEffects marks a tool that must not be the one to try whether the dependency is
	// back while another can: it becomes the probe only after one further cooldown. On the
	// only tool of a dependency that has no Monitor it does nothing but double the wait.
	SideEffects bool
	// Message writes the text of a blocked or failed result, which is given without one. If
	// it is nil, panics or returns "", the default text stands.
	Message func(Blocked) string
	// Detail says to the model what the tool itself has to say about the error of a call that
	// failed: Blocked.Detail. If it is nil, panics or returns "", the text of an error marked
	// [Invalid] stands there, where that mark decides, and otherwise nothing.
	Detail func(error) string

	monitor bool // a Monitor's view, to which any answer proves health
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

// clone returns a copy that shares nothing which its owner may change.
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
// instead. Its tags alone decide both the JSON and the schema that is inferred from the type, and a
// Result of every Status validates against that schema. The zero Result says nothing; make one with
// [ResultOf].
type Result[T any] struct {
	Status  Status `json:"status"`
	Value   *T     `json:"value,omitempty"` // set when ok or fallback, zero values included
	Blocked        // but for Outcome, zero when ok: one set of keys, whatever the Status
	Source  string `json:"source,omitempty"` // of a fallback's Value
	Advice  string `json:"advice,omitempty"` // a warning that comes with a call that ran
}

// Blocked says why a call has no value of its own. Every key is optional, so that the inferred schema
// holds for each [Status].
type Blocked struct {
	Reason       Reason     `json:"reason,omitempty"`
	Dependency   string     `json:"dependency,omitempty"`   // that refused or failed: the inner one, if a call inside the tool was refused
	Tool         string     `json:"tool,omitempty"`         // that the model called; absent if the circuit has no Tool.Name
	State        State      `json:"state,omitempty"`        // of the circuit that refused
	Executed     *bool      `json:"executed,omitempty"`     // false when refused, true when an answer leaves no doubt, absent when nobody can know
	Outcome      string     `json:"outcome,omitempty"`      // "unknown" where Executed is absent; "duplicate": ok, for the effect had happened before
	Cause        Kind       `json:"cause,omitempty"`        // the kind of the failure behind this
	Rule         Rule       `json:"rule,omitempty"`         // that opened the circuit
	Failures     int        `json:"failures,omitempty"`     // that the rule counted
	Retryable    *bool      `json:"retryable,omitempty"`    // whether the same call may work later; false for every refusal
	RetryAfterMS int64      `json:"retryAfterMs,omitempty"` // milliseconds from now, rounded up; at least 1 while a time ends the block
	RetryAt      *time.Time `json:"retryAt,omitempty"`      // the same moment in UTC, rounded up to the second
	NextActions  []Action   `json:"nextActions,omitempty"`  // best first
	Alternatives []string   `json:"alternatives,omitempty"` // tools that can stand in
	BlockedCalls int        `json:"blockedCalls,omitempty"` // in this turn of the run
	EndTurn      bool       `json:"endTurn,omitempty"`      // the run should stop calling tools in this turn
	Detail       string     `json:"detail,omitempty"`       // what the tool itself says to the model, at most 500 bytes; see Tool.Detail
	Message      string     `json:"message,omitempty"`      // the same in under 60 words
}

// Or returns a blocked or failed r as a fallback: value, the source it came from, and r's Reason and
// Message to say why. What a session noted about the run stays. Any other r comes back unchanged.
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

// Judged is a value that knows what became of its call, as a [Result] does. A circuit around such a
// call takes its word. Nobody else can implement it.
type Judged interface {
	verdict() (v Verdict, ok bool)
	unusable() (status Status, why Blocked, ok bool)
}

// unusable returns what a model reads of a blocked or failed r. It is the same if the tool that
// returned r is wrapped once more.
func (r Result[T]) unusable() (status Status, why Blocked, ok bool) {
	return r.Status, r.Blocked, r.Status == StatusBlocked || r.Status == StatusFailed
}

// unusableIn is unusable for any value. A struct that embeds a nil *Result is usable.
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

// verdict returns how r settles as the value of a call under an outer circuit, and false where r is
// an ordinary value. Neither a refusal nor a substitute proves the outer dependency healthy.
func (r Result[T]) verdict() (Verdict, bool) {
	switch r.Status {
	case StatusBlocked, StatusFallback:
		return Verdict{Effect: EffectIgnore, Kind: KindRejected}, true
	case StatusFailed:
		return Verdict{Effect: r.Cause.effect(), Kind: r.Cause}, true
	}
	if r.Value != nil { // which may be a Result itself, of a tool that was wrapped twice
		return verdictOf(*r.Value)
	}
	return Verdict{}, false
}

// verdictOf returns what a value knows of its call, false if that is nothing. A struct that embeds
// a nil *Result knows nothing.
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

// ResultOf turns what a call under c returned, and the verdict on it, into what [DoResult]
// returns. It is for the two-step form: hand it what [Permit.Settle] returned or, if Allow
// refused, its error with the zero Verdict.
//
//   - a nil err is ok with value, and so is verdict duplicate; a value that is a blocked or
//     failed Result itself stays blocked or failed
//   - a refusal at any depth of err is blocked
//   - any other err is handed on where nothing was judged, and for kinds canceled, deadline
//     and interrupt
//   - any other err is failed
//
// If the refusal came from another circuit, or the call was judged, the tool had begun when a
// call inside it was refused. The Result then names the inner dependency, and its Outcome is
// unknown.
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
	case v.Kind == KindDuplicate:
		return Result[T]{Status: StatusOK, Value: &value, Blocked: Blocked{Outcome: outcomeDuplicate}}, nil
	case v.Kind == "", v.Kind == KindCanceled, v.Kind == KindDeadline, v.Kind == KindInterrupt:
		return Result[T]{}, err
	}
	return Result[T]{Status: StatusFailed, Blocked: failed(c, v, err)}, nil
}

// refusalIn returns the outermost refusal in err's tree, nil if there is none. Where the tree
// holds [ErrCircuitOpen] alone, it is one that knows nothing.
func (c *ToolCircuit) refusalIn(err error) (refusal *OpenError) {
	c.safely(func() { // because methods of err may panic
		for err := range tree(err) {
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

// refused returns what a model is told about the refusal e of a call of c's tool, or of one inside it
// if that is known to have begun.
func refused(c *ToolCircuit, e *OpenError, began bool) Blocked {
	if e.clock == nil { // made by others
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
	case ReasonBudgetExhausted: // which no other tool of the run has either
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

// failed returns what a model is told about a call of c's tool that failed with err and was judged v.
//
// The same call may work later if the kind is transient: timeout, unavailable, rate_limited or slow.
// An unknown failure is not, for nothing says that a repeat would help. Neither is one that leaves
// open whether a side effect happened: a repeat could make it happen twice
// (langchain-ai/langchain#40688).
func failed(c *ToolCircuit, v Verdict, err error) Blocked {
	b := Blocked{Reason: ReasonCallFailed, Dependency: c.Dependency(), Tool: c.tool.Name, Cause: v.Kind}
	if b.Cause == KindOK { // a Classifier says that the error proves health, and not what it is
		b.Cause = KindUnknown
	}
	s := c.state.Load()
	wait := min(v.RetryAfter, s.MaxRetryAfter)
	_, refusal := c.look(s) // this failure may have opened the circuit
	switch {
	case refusal != nil && refusal.Reason == ReasonManualOpen:
		wait = 0 // which no time ends
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

// executed returns what a failure with err, judged v, proves: that the call was executed, that it was
// not, or nothing. Where err branches, all branches must agree: one attempt may have had no answer.
func (c *ToolCircuit) executed(v Verdict, err error) *bool {
	f := fateOf(v.Kind)
	c.safely(func() { // because methods of err may panic
		if isNil(err) {
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

// doubtful reports whether t may have had a side effect that nobody knows of.
func doubtful(b Blocked, t *Tool) bool { return t.SideEffects && b.Outcome == outcomeUnknown }

// nextActions returns what t's model may do without t, in a slice of its own.
func nextActions(t *Tool) []Action {
	switch {
	case len(t.NextActions) > 0:
		return slices.Clone(t.NextActions)
	case len(t.Alternatives) > 0:
		return []Action{ActionUseAlternative, ActionAnswerWithout}
	}
	return []Action{ActionAnswerWithout}
}

// putFirst returns a and then what else is in actions.
func putFirst(a Action, actions []Action) []Action {
	return append([]Action{a}, slices.DeleteFunc(actions, func(b Action) bool { return b == a })...)
}

func ptr[T any](v T) *T { return &v }
