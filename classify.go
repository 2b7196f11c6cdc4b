package toolcircuit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/toolcircuit/toolcircuit/internal/errtree"
)

// Kind says what a call met. The set is closed: any other string becomes [KindUnknown]. The empty
// Kind means that there is no opinion.
type Kind string

// The kinds, each with the [Effect] that it has by default.
const (
	KindOK           Kind = "ok"           // heals: the dependency answered
	KindDuplicate    Kind = "duplicate"    // heals: the effect had already happened, see [Duplicate]
	KindTimeout      Kind = "timeout"      // counts: no answer in time
	KindDeadline     Kind = "deadline"     // counts: the caller's own deadline ended the call
	KindUnavailable  Kind = "unavailable"  // counts: refused, reset, unreachable or broken
	KindRateLimited  Kind = "rate_limited" // counts; pauses when told for how long
	KindSlow         Kind = "slow"         // counts: healthy, but over Policy.SlowCall
	KindPanic        Kind = "panic"        // counts: the call did not return
	KindUnauthorized Kind = "unauthorized" // ignored, as are all that follow
	KindInvalid      Kind = "invalid"      // the request was wrong, or not supported
	KindNotFound     Kind = "not_found"
	KindConflict     Kind = "conflict"
	KindCanceled     Kind = "canceled"  // the caller canceled the call
	KindInterrupt    Kind = "interrupt" // the runtime's own control flow; only a Classifier names it
	KindRejected     Kind = "rejected"  // refused by an inner circuit
	KindUnknown      Kind = "unknown"   // no rule knows it
)

// kinds is the closed set with the effects. Its order breaks a tie between the branches of an
// error.
var kinds = [...]struct {
	kind   Kind
	effect Effect
}{
	{KindOK, EffectHeal}, {KindDuplicate, EffectHeal},
	{KindTimeout, EffectCount}, {KindDeadline, EffectCount}, {KindUnavailable, EffectCount},
	{KindRateLimited, EffectCount}, {KindSlow, EffectCount}, {KindPanic, EffectCount},
	{KindUnauthorized, EffectIgnore}, {KindInvalid, EffectIgnore}, {KindNotFound, EffectIgnore},
	{KindConflict, EffectIgnore}, {KindCanceled, EffectIgnore}, {KindInterrupt, EffectIgnore},
	{KindRejected, EffectIgnore}, {KindUnknown, EffectIgnore},
}

// place returns the index of k in kinds, or len(kinds) if k is not in the set.
func (k Kind) place() int {
	for i := range kinds {
		if kinds[i].kind == k {
			return i
		}
	}
	return len(kinds)
}

// effect returns the default effect of k, EffectIgnore if k is not in the set.
func (k Kind) effect() Effect {
	if i := k.place(); i < len(kinds) {
		return kinds[i].effect
	}
	return EffectIgnore
}

// ClientError reports whether k is an answer that finds the fault in the call, not in the
// dependency: unauthorized, invalid, not_found or conflict. Such an answer proves that the
// dependency is reachable.
func (k Kind) ClientError() bool {
	switch k {
	case KindUnauthorized, KindInvalid, KindNotFound, KindConflict:
		return true
	}
	return false
}

// Silent reports whether k means that no answer came: timeout, deadline or unavailable.
func (k Kind) Silent() bool {
	switch k {
	case KindTimeout, KindDeadline, KindUnavailable:
		return true
	}
	return false
}

// verdict returns k with its default effect.
func (k Kind) verdict() Verdict { return Verdict{Effect: k.effect(), Kind: k} }

// Effect is what an outcome does to a circuit.
type Effect uint8

const (
	EffectIgnore Effect = iota // says nothing about the dependency: no streak moves
	EffectCount                // a failure of the dependency
	EffectHeal                 // proof that the dependency works
	EffectPause                // opens the circuit at once, for Verdict.RetryAfter
)

var effectNames = [...]string{"ignore", "count", "heal", "pause"}

// String returns the effect in lower case, "Effect(9)" for one out of range.
func (e Effect) String() string {
	if int(e) < len(effectNames) {
		return effectNames[e]
	}
	return fmt.Sprintf("Effect(%d)", uint8(e))
}

// Verdict is the judgement of one call. The zero Verdict means that there is no opinion. To ignore
// an outcome on purpose, give a Kind.
type Verdict struct {
	Effect Effect

	// Kind is what the call met. If it is empty and Effect is not, the default rules fill it in,
	// and RetryAfter too if that is 0.
	Kind Kind

	// RetryAfter is the wait that the dependency asked for, 0 if none. It belongs to EffectCount
	// and EffectPause. An EffectPause without it is ignored. Without Effect and Kind it adds a
	// wait to what the default rules find.
	RetryAfter time.Duration
}

// Outcome is what one call of a tool returned.
type Outcome struct {
	Dependency string
	Value      any // as the tool returned it, nil if it was not passed on
	Err        error
	Elapsed    time.Duration // 0 if not measured
}

// Classifier judges an outcome. It judges only what it knows and returns the zero [Verdict] for
// the rest, which the default rules then decide. It gets outcomes without an error too. ctx is the
// caller's. It is called concurrently.
type Classifier func(ctx context.Context, o Outcome) Verdict

// Classify is the default classification of an outcome. The first of these that applies decides:
//
//   - after ctx has ended, an error is the caller's doing, whatever it says: deadline or canceled
//   - [ErrCircuitOpen] anywhere in the error, or a blocked or fallback [Result]: rejected
//   - the outermost of [Fault], [Benign], [Duplicate], [Invalid] and [RetryAfter]
//   - the outermost error that a rule knows, by type or code and never by text: those of net/http
//     (HTTP/2 too), net, crypto/tls, syscall, context, io and database/sql/driver, and those of
//     SDKs by their shape: a status, a gRPC code, an SQLSTATE (internal/shape has the list)
//
// An error may branch, as with errors.Join or several %w. Then the last two apply to each branch,
// and the strongest branch decides, in whatever order they were joined. From strong to weak:
// pause, count, heal, ignored on purpose, unknown. Between equals the longest wait decides, then
// the kind that is declared first.
//
// A nil error is ok, except that a failed [Result] has the kind of its Cause. An error that no
// rule knows is unknown and ignored, and so is a typed nil pointer. A method of an error that
// panics says nothing. A nil ctx panics.
func Classify(ctx context.Context, o Outcome) Verdict {
	if ctx == nil {
		panic("toolcircuit: Classify: ctx is nil")
	}
	v, _ := classify(ctx, o, nil)
	return v
}

// classify is [Classify] with custom, which may be nil. custom is asked before the rules, but not
// if a marker above all branches has decided. known is false if nobody had an opinion, and if
// custom's opinion was unknown: Policy.CountUnknown and Snapshot.Unclassified are for both.
func classify(ctx context.Context, o Outcome, custom Classifier) (v Verdict, known bool) {
	v = KindOK.verdict()
	if o.Err == nil {
		if v, ok := verdictOf(o.Value); ok {
			v = v.complete(KindUnknown.verdict())
			return v, v != KindUnknown.verdict()
		}
	} else {
		// After ctx has ended the error proves nothing: net/http returns the context's cause,
		// which can be any error.
		switch ended := ctx.Err(); {
		case errors.Is(ended, context.DeadlineExceeded):
			return KindDeadline.verdict(), true
		case ended != nil:
			return KindCanceled.verdict(), true
		}
		j := examine(o.Err)
		switch v = j.verdict; {
		case j.refused:
			return KindRejected.verdict(), true
		case j.decided:
			return v, true
		}
	}
	known = v.Kind != ""
	v = v.orUnknown()
	if custom != nil {
		switch own := custom(ctx, o); {
		case own.Effect != EffectIgnore || own.Kind != "":
			v = own.complete(v)
			known = v != KindUnknown.verdict()
		case own.RetryAfter > 0: // a wait alone leaves the rest to the rules
			if v = v.told(own.RetryAfter); !known {
				v.RetryAfter = own.RetryAfter // judge keeps it if CountUnknown is set
			}
		}
	}
	return v, known
}

// opinion reports whether v says anything. A wait that is not positive is none.
func (v Verdict) opinion() bool { return v.Effect != EffectIgnore || v.Kind != "" || v.RetryAfter > 0 }

// orUnknown returns v, or unknown if v is no opinion.
func (v Verdict) orUnknown() Verdict {
	if v.Kind == "" {
		return KindUnknown.verdict()
	}
	return v
}

// told returns v with the wait that the dependency asked for, if wait is positive and v counts. A
// rate_limited failure with a wait pauses.
func (v Verdict) told(wait time.Duration) Verdict {
	if v.Effect == EffectCount && wait > 0 {
		v.RetryAfter = wait
		if v.Kind == KindRateLimited {
			v.Effect = EffectPause
		}
	}
	return v
}

// complete returns v with its empty fields taken from rules, and with a contradiction corrected.
// Every opinion that is not a rule's passes through it.
func (v Verdict) complete(rules Verdict) Verdict {
	if v.Effect > EffectPause {
		v.Effect = EffectCount
	}
	if v.Kind == "" {
		v.Kind = rules.Kind
		if v.RetryAfter <= 0 {
			v.RetryAfter = rules.RetryAfter
		}
		vague := v.Kind == KindOK || v.Kind == KindUnknown
		switch {
		case v.Effect == EffectHeal:
			v.Kind = KindOK
		case v.Effect == EffectCount && vague:
			v.Kind = KindUnavailable
		case v.Effect == EffectPause && vague:
			v.Kind = KindRateLimited
		}
	} else if v.Kind.place() == len(kinds) {
		v.Kind = KindUnknown
	}
	if v.RetryAfter <= 0 || v.Effect == EffectIgnore || v.Effect == EffectHeal {
		v.RetryAfter = 0
	}
	if v.Effect == EffectPause && v.RetryAfter == 0 {
		v.Effect = EffectIgnore
	}
	return v
}

// stronger returns the stronger of two opinions on parts of the same outcome.
func stronger(v, w Verdict) Verdict {
	if c := cmp.Or(
		cmp.Compare(v.weight(), w.weight()),
		cmp.Compare(v.RetryAfter, w.RetryAfter),
		cmp.Compare(w.Kind.place(), v.Kind.place()),
	); c < 0 {
		return w
	}
	return v
}

// weight ranks v by its effect. A pause without a wait is the weakest failure, because the rules
// may know its wait.
func (v Verdict) weight() int {
	switch {
	case !v.opinion():
		return 0
	case v.Effect == EffectIgnore:
		return 1
	case v.Effect == EffectHeal:
		return 2
	case v.Effect == EffectPause && v.RetryAfter <= 0:
		return 3
	case v.Effect == EffectPause:
		return 5
	}
	return 4
}

// judgement is what one walk through the tree of an error finds.
type judgement struct {
	verdict Verdict   // of the strongest branch, zero if no rule knows one
	refused bool      // ErrCircuitOpen is in it
	decided bool      // a marker above all branches decides
	invalid []*marker // the outermost [Invalid] of each branch
	fate    fate      // zero if the branches do not agree
	ends    int       // how many branches have ended

	left int // how many errors may still be looked at
}

// fate says how far an error proves that its call has come.
type fate uint8

const (
	unproven fate = iota // nobody knows how far the dependency has come
	unsent               // nothing was sent
	answered             // the dependency answered
)

// fateOf returns what a failure of kind k proves. Unavailable proves nothing: a status 500 does
// not say how far the dependency has come.
func fateOf(k Kind) fate {
	if k == KindOK || k == KindRateLimited || k.ClientError() {
		return answered
	}
	return unproven
}

// end notes that a branch ends with verdict v. local says that nothing was sent.
func (j *judgement) end(v Verdict, local bool) {
	f := fateOf(v.Kind)
	if local {
		f = unsent
	}
	if j.ends++; j.ends == 1 {
		j.fate = f
	} else if j.fate != f {
		j.fate = unproven
	}
}

// examine walks through the tree of err, which is not nil.
func examine(err error) judgement {
	j := judgement{left: errtree.MaxNodes}
	if !errtree.IsNil(err) {
		j.verdict = j.look(err, branch{trunk: true})
	}
	return j
}

// branch is what the walk knows at one error, from those above it. It is copied where the error
// branches.
type branch struct {
	verdict Verdict     // of the outermost error that a rule knows, zero if there is none
	header  http.Header // of the answer that verdict comes from
	answer  bool        // verdict is that of an answer's status, which an inner error may correct
	general Verdict     // holds if no rule knows anything more specific
	request bool        // inside a *url.Error
	marked  bool        // inside a marker
	local   bool        // nothing was sent
	trunk   bool        // nothing has branched above
}

// look walks on from err, which is not nil, and returns the verdict of the strongest branch from
// there. b is what is known from the errors above.
func (j *judgement) look(err error, b branch) Verdict {
	if j.left--; j.left < 0 {
		return j.endOf(&b)
	}
	if m, ok := err.(*marker); ok && !b.marked {
		j.decided = b.trunk
		local := m.verdict == KindInvalid.verdict()
		if local {
			j.invalid = append(j.invalid, m)
		}
		var inner Verdict
		if errtree.IsNil(m.err) {
			j.end(Verdict{}, local)
		} else {
			inner = j.look(m.err, branch{marked: true, local: local})
		}
		return m.verdict.complete(inner.orUnknown())
	}
	if j.refused = j.refused || b.pass(err); j.refused {
		return Verdict{} // the refusal decides
	}
	several, one := errtree.Unwrap(err)
	if one != nil {
		return j.look(one, b)
	}
	var best Verdict
	b.trunk = b.trunk && len(several) == 1
	for _, err := range several {
		best = stronger(best, j.look(err, b))
	}
	if len(several) == 0 {
		best = j.endOf(&b)
	}
	return best
}

// endOf returns the verdict of a branch that ends here.
func (j *judgement) endOf(b *branch) Verdict {
	v := b.verdict
	if v == (Verdict{}) {
		v = b.general
	}
	j.end(v, b.local)
	return v
}

// marker is an error with the verdict that the tool wants for it.
type marker struct {
	err     error
	verdict Verdict
}

func mark(err error, v Verdict) error {
	if err == nil {
		return nil
	}
	return &marker{err, v}
}

// Error returns the text of the marked error, and for a typed nil what fmt prints for it.
func (m *marker) Error() string {
	if errtree.IsNil(m.err) {
		return "<nil>"
	}
	return m.err.Error()
}

func (m *marker) Unwrap() error { return m.err }

// Fault marks err as a failure of the dependency: it counts, whatever the rules say. The kind and
// a Retry-After are those that the rules find. If they know nothing, the kind is unavailable.
//
// For all markers:
//
//   - the text stays the same, and [errors.Is] and [errors.As] find err
//   - the mark is found through any wrapping, and the outermost of several decides
//   - the mark of a nil error is nil
func Fault(err error) error { return mark(err, Verdict{Effect: EffectCount}) }

// Benign marks err as one that says nothing about the dependency. It is ignored, and not counted
// as unclassified.
func Benign(err error) error { return mark(err, Verdict{Effect: EffectIgnore}) }

// Duplicate marks err as the message that the effect had already happened, such as a payment that
// is refused because it was made before. It heals like a success.
func Duplicate(err error) error { return mark(err, KindDuplicate.verdict()) }

// Invalid marks err as a mistake of the caller that was found before anything was sent, such as a
// missing argument. Its kind is invalid, and it does not prove that the dependency works. The
// model reads the text of err as Blocked.Detail, to correct the arguments.
func Invalid(err error) error { return mark(err, KindInvalid.verdict()) }

// invalidText returns the text of the error that was marked [Invalid], or one line for each of
// several. ok is false if err has no such mark, or if something else in err decides.
func invalidText(err error) (text string, ok bool) {
	if errtree.IsNil(err) {
		return "", false
	}
	j := examine(err)
	if j.refused || len(j.invalid) == 0 || j.verdict != KindInvalid.verdict() {
		return "", false
	}
	lines := make([]string, len(j.invalid))
	for i, m := range j.invalid {
		lines[i] = m.Error()
	}
	return strings.Join(lines, "\n"), true
}

// RetryAfter marks err as a request of the dependency to come back after d. The circuit opens at
// once, for d or for Policy.MaxRetryAfter if that is less. The kind is that of the rules, or
// rate_limited if they know nothing. If d is not positive, RetryAfter returns err itself.
func RetryAfter(err error, d time.Duration) error {
	if d <= 0 {
		return err
	}
	return mark(err, Verdict{Effect: EffectPause, RetryAfter: d})
}

// First returns a Classifier that asks each of classifiers in turn and returns the first opinion.
// It skips nil ones. Without any it has no opinion.
func First(classifiers ...Classifier) Classifier {
	classifiers = slices.Clone(classifiers)
	return func(ctx context.Context, o Outcome) Verdict {
		for _, c := range classifiers {
			if c == nil {
				continue
			}
			if v := c(ctx, o); v.opinion() {
				return v
			}
		}
		return Verdict{}
	}
}

// ForError returns a Classifier that calls rule with each error of type E, from the outermost on,
// until rule has an opinion. It finds them as [errors.As] does, but never a nil one. If the error
// branches, the strongest opinion decides, as in [Classify]. A nil rule panics.
func ForError[E error](rule func(E) Verdict) Classifier {
	if rule == nil {
		panic("toolcircuit: ForError: rule is nil")
	}
	return func(_ context.Context, o Outcome) Verdict {
		left := errtree.MaxNodes
		return forError(o.Err, rule, &left)
	}
}

// forError is the recursion of [ForError].
func forError[E error](err error, rule func(E) Verdict, left *int) (best Verdict) {
	if *left--; *left < 0 || errtree.IsNil(err) {
		return Verdict{}
	}
	if target, ok := errtree.As[E](err); ok {
		if v := rule(target); v.opinion() {
			return v
		}
	}
	several, one := errtree.Unwrap(err)
	for _, err := range several {
		best = stronger(best, forError(err, rule, left))
	}
	return stronger(best, forError(one, rule, left))
}

// Retryable reports whether err is transient: its kind counts (timeout, unavailable,
// rate_limited), or the tool marked it with [RetryAfter]. It is false for nil, for every refusal
// of a circuit, for what the caller must correct, for [Benign] and [Duplicate], for
// context.Canceled, and for what no rule knows.
//
// It knows the error alone. A DeadlineExceeded may come from one attempt or from the loop around
// it, so the loop must check its own context first.
func Retryable(err error) bool {
	v, _ := classify(context.Background(), Outcome{Err: err}, nil)
	return v.Effect == EffectPause || v.Effect == EffectCount && v.Kind.effect() == EffectCount
}
