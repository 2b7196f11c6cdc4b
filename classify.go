package toolcircuit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"time"
)

// Kind says what a call met. The set is closed: any other string becomes [KindUnknown]. The
// empty Kind is the absence of an opinion.
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
	KindCanceled     Kind = "canceled"  // the caller walked away
	KindInterrupt    Kind = "interrupt" // the runtime's own control flow; only a Classifier names it
	KindRejected     Kind = "rejected"  // refused by an inner circuit
	KindUnknown      Kind = "unknown"   // no rule knows it
)

// effects is the closed set of kinds.
var effects = map[Kind]Effect{
	KindOK: EffectHeal, KindDuplicate: EffectHeal,
	KindTimeout: EffectCount, KindDeadline: EffectCount, KindUnavailable: EffectCount,
	KindRateLimited: EffectCount, KindSlow: EffectCount, KindPanic: EffectCount,
	KindUnauthorized: EffectIgnore, KindInvalid: EffectIgnore, KindNotFound: EffectIgnore, KindConflict: EffectIgnore,
	KindCanceled: EffectIgnore, KindInterrupt: EffectIgnore, KindRejected: EffectIgnore, KindUnknown: EffectIgnore,
}

// effect returns the default effect of k, EffectIgnore outside the closed set.
func (k Kind) effect() Effect { return effects[k] }

// ClientError reports whether k is an answer that puts the call at fault, not the dependency:
// unauthorized, invalid, not_found or conflict. Such an answer proves that the dependency is there.
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

// Verdict is the judgement on one call. The zero Verdict means "no opinion": to ignore an
// outcome on purpose, give a Kind.
type Verdict struct {
	Effect Effect

	// Kind is what the call met. When it is empty beside an Effect, the default rules fill it
	// in, and RetryAfter too if that is missing.
	Kind Kind

	// RetryAfter is the wait that the dependency asked for, zero if none. It belongs to EffectCount
	// and EffectPause; an EffectPause without it is ignored.
	RetryAfter time.Duration
}

// Outcome is what one call of a tool came back with.
type Outcome struct {
	Dependency string
	Value      any // as the tool returned it, nil where none was handed over
	Err        error
	Elapsed    time.Duration // zero where nobody asked the clock
}

// Classifier judges an outcome. It names only what it knows and returns the zero [Verdict] for
// the rest, which the default rules then decide. It sees results with a nil error too. ctx is
// the caller's. It is called from many goroutines at once.
type Classifier func(ctx context.Context, o Outcome) Verdict

// Classify is the default classification, in this order:
//
//   - an error after ctx has ended is the caller's doing, whatever it says: deadline or canceled
//   - [ErrCircuitOpen] anywhere in the error, or a blocked [Result]: rejected
//   - the outermost of [Fault], [Benign], [Duplicate] and [RetryAfter]
//   - codes and types of net/http, net, crypto/tls, syscall, context and io, never the text; the
//     specific before the general, the outer before the inner
//
// A nil error is ok. An error that no rule knows is unknown and ignored, and so is a typed nil
// pointer. Classify panics if ctx is nil.
func Classify(ctx context.Context, o Outcome) Verdict {
	if ctx == nil {
		panic("toolcircuit: Classify: ctx is nil")
	}
	v, _ := classify(ctx, o, nil)
	return v
}

// classify is [Classify] with custom, which may be nil, asked between the markers and the
// rules. known is false if nobody had an opinion, and if custom's was that it is unknown:
// Policy.CountUnknown and Snapshot.Unclassified are for both.
func classify(ctx context.Context, o Outcome, custom Classifier) (v Verdict, known bool) {
	if o.Err == nil {
		if v, ok := verdictOf(o.Value); ok {
			v = v.complete(KindUnknown.verdict())
			return v, v != KindUnknown.verdict()
		}
	} else {
		// After the end the error proves nothing: net/http returns the context's cause, which
		// can be any error.
		switch ended := ctx.Err(); {
		case errors.Is(ended, context.DeadlineExceeded):
			return KindDeadline.verdict(), true
		case ended != nil:
			return KindCanceled.verdict(), true
		case has(o.Err, ErrCircuitOpen):
			return KindRejected.verdict(), true
		}
		for err := range tree(o.Err) {
			if m, ok := err.(*marker); ok {
				return m.verdict.complete(judge(m.err)), true
			}
		}
	}
	v = judge(o.Err)
	if custom != nil {
		switch own := custom(ctx, o); {
		case own.Effect != EffectIgnore || own.Kind != "":
			v = own.complete(v)
		case own.RetryAfter > 0 && v.Effect == EffectCount: // a wait alone leaves the rest to the rules
			v.RetryAfter = own.RetryAfter
			if v.Kind == KindRateLimited {
				v.Effect = EffectPause
			}
		}
	}
	return v, v != KindUnknown.verdict()
}

// complete returns v with what it leaves open taken from rules, and with what makes no sense
// put right. Every opinion that is not a rule passes here.
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
	} else if _, ok := effects[v.Kind]; !ok {
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

// maxNodes bounds the errors looked at in one tree, so that an Unwrap method that leads back
// to where it came from costs time but not the program.
const maxNodes = 1000

// tree returns err and all that it wraps in the order of [errors.Is]: an error before those
// inside it. Unlike errors.Is it leaves out typed nils, whose methods would panic, and ends
// after maxNodes errors.
func tree(err error) iter.Seq[error] {
	return func(yield func(error) bool) {
		left := maxNodes
		walk(err, &left, yield)
	}
}

// walk is the recursion of [tree]. It returns false to end the whole walk.
func walk(err error, left *int, yield func(error) bool) bool {
	if isNil(err) {
		return true
	}
	if *left--; *left < 0 || !yield(err) {
		return false
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return walk(e.Unwrap(), left, yield)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if !walk(err, left, yield) {
				return false
			}
		}
	}
	return true
}

// is reports whether err alone, not what it wraps, is target, which must be comparable.
func is(err, target error) bool {
	if err == target {
		return true
	}
	e, ok := err.(interface{ Is(error) bool })
	return ok && e.Is(target)
}

// has is [errors.Is] over [tree].
func has(err, target error) bool {
	for e := range tree(err) {
		if is(e, target) {
			return true
		}
	}
	return false
}

// isNil reports whether v is nil or an interface that holds a nil pointer, map, slice, func or
// chan.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan:
		return r.IsNil()
	}
	return false
}

// marker is an error with an instruction: the verdict that its tool wants.
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
	if isNil(m.err) {
		return "<nil>"
	}
	return m.err.Error()
}

func (m *marker) Unwrap() error { return m.err }

// Fault marks err as a failure of the dependency: it counts, whatever the rules say. The kind
// stays what they say, or is unavailable if they know nothing; a Retry-After that they found
// stays too.
//
// As with the other markers the text stays the same, err is found with [errors.Is] and
// [errors.As], the mark is seen through any wrapping, of several the outermost is obeyed, and
// the mark of a nil error is nil.
func Fault(err error) error { return mark(err, Verdict{Effect: EffectCount}) }

// Benign marks err as one that says nothing about the dependency: it is ignored, and is not
// unclassified even if no rule knows it.
func Benign(err error) error { return mark(err, Verdict{Effect: EffectIgnore}) }

// Duplicate marks err as the news that the effect had already happened, such as a payment
// refused because it was made before. It heals like a success.
func Duplicate(err error) error { return mark(err, KindDuplicate.verdict()) }

// RetryAfter marks err as an order of the dependency to come back after d: the circuit opens
// at once for that long. The kind stays what the rules say, or is rate_limited if they know
// nothing. If d is not positive, RetryAfter returns err itself.
func RetryAfter(err error, d time.Duration) error {
	if d <= 0 {
		return err
	}
	return mark(err, Verdict{Effect: EffectPause, RetryAfter: d})
}

// First returns a Classifier that asks each of classifiers in turn and gives the first
// opinion. Nil ones are skipped; with none left it has no opinion.
func First(classifiers ...Classifier) Classifier {
	classifiers = slices.Clone(classifiers)
	return func(ctx context.Context, o Outcome) Verdict {
		for _, c := range classifiers {
			if c == nil {
				continue
			}
			if v := c(ctx, o); v != (Verdict{}) {
				return v
			}
		}
		return Verdict{}
	}
}

// ForError returns a Classifier that shows rule each error of type E, found as [errors.As]
// finds it, until rule has an opinion: the outermost first, and never a nil one. ForError
// panics if rule is nil.
func ForError[E error](rule func(E) Verdict) Classifier {
	if rule == nil {
		panic("toolcircuit: ForError: rule is nil")
	}
	return func(_ context.Context, o Outcome) Verdict {
		for err := range tree(o.Err) {
			target, ok := err.(E)
			if as, able := err.(interface{ As(any) bool }); !ok && able {
				ok = as.As(&target) && !isNil(target)
			}
			if !ok {
				continue
			}
			if v := rule(target); v != (Verdict{}) {
				return v
			}
		}
		return Verdict{}
	}
}

// Retryable reports whether err is transient: a failure that counts by its kind (timeout,
// unavailable, rate_limited), or one that the tool marked with [RetryAfter]. It is false for
// nil, for every refusal of a circuit, for what the caller must mend, for [Benign] and
// [Duplicate], for context.Canceled, and for what no rule knows.
//
// It knows the error alone. A DeadlineExceeded may stem from one attempt or from the loop
// around it, so the loop has to look at its own context first.
func Retryable(err error) bool {
	v, _ := classify(context.Background(), Outcome{Err: err}, nil)
	return v.Effect == EffectPause || v.Effect == EffectCount && v.Kind.effect() == EffectCount
}
