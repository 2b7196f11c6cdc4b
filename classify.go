package toolcircuit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
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
	KindOK: Heal, KindDuplicate: Heal,
	KindTimeout: Count, KindDeadline: Count, KindUnavailable: Count,
	KindRateLimited: Count, KindSlow: Count, KindPanic: Count,
	KindUnauthorized: Ignore, KindInvalid: Ignore, KindNotFound: Ignore, KindConflict: Ignore,
	KindCanceled: Ignore, KindInterrupt: Ignore, KindRejected: Ignore, KindUnknown: Ignore,
}

// effect returns the default effect of k, Ignore outside the closed set.
func (k Kind) effect() Effect { return effects[k] }

// verdict returns k with its default effect.
func (k Kind) verdict() Verdict { return Verdict{Effect: k.effect(), Kind: k} }

// Effect is what an outcome does to a circuit.
type Effect uint8

const (
	Ignore Effect = iota // says nothing about the dependency: no streak moves
	Count                // a failure of the dependency
	Heal                 // proof that the dependency works
	Pause                // opens the circuit at once, for Verdict.RetryAfter
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

	// RetryAfter is the wait that the dependency asked for, zero if none. It belongs to Count
	// and Pause; a Pause without it is ignored.
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

// judged is implemented by values that know what became of their call.
type judged interface {
	verdict() (v Verdict, ok bool)
}

// classify is [Classify] with custom, which may be nil, asked between the markers and the
// rules. known is false if nobody had an opinion, and if custom's was that it is unknown:
// Policy.CountUnknown and Snapshot.Unclassified are for both.
func classify(ctx context.Context, o Outcome, custom Classifier) (v Verdict, known bool) {
	if o.Err == nil {
		if r, ok := o.Value.(judged); ok && !isNil(r) {
			if v, ok := r.verdict(); ok {
				v = v.complete(KindUnknown.verdict())
				return v, v != KindUnknown.verdict()
			}
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
		case own.Effect != Ignore || own.Kind != "":
			v = own.complete(v)
		case own.RetryAfter > 0 && v.Effect == Count: // a wait alone leaves the rest to the rules
			v.RetryAfter = own.RetryAfter
			if v.Kind == KindRateLimited {
				v.Effect = Pause
			}
		}
	}
	return v, v != KindUnknown.verdict()
}

// complete returns v with what it leaves open taken from rules, and with what makes no sense
// put right. Every opinion that is not a rule passes here.
func (v Verdict) complete(rules Verdict) Verdict {
	if v.Effect > Pause {
		v.Effect = Count
	}
	if v.Kind == "" {
		v.Kind = rules.Kind
		if v.RetryAfter <= 0 {
			v.RetryAfter = rules.RetryAfter
		}
		vague := v.Kind == KindOK || v.Kind == KindUnknown
		switch {
		case v.Effect == Heal:
			v.Kind = KindOK
		case v.Effect == Count && vague:
			v.Kind = KindUnavailable
		case v.Effect == Pause && vague:
			v.Kind = KindRateLimited
		}
	} else if _, ok := effects[v.Kind]; !ok {
		v.Kind = KindUnknown
	}
	if v.RetryAfter <= 0 || v.Effect == Ignore || v.Effect == Heal {
		v.RetryAfter = 0
	}
	if v.Effect == Pause && v.RetryAfter == 0 {
		v.Effect = Ignore
	}
	return v
}

// judge applies the rules, which know codes and types but no markers.
func judge(err error) Verdict {
	if err == nil {
		return Verdict{Effect: Heal, Kind: KindOK}
	}
	for e := range tree(err) {
		if v := specific(e); v.Kind != "" {
			return v
		}
	}
	for e := range tree(err) {
		switch e.(type) {
		case *net.OpError, *net.DNSError:
			return KindUnavailable.verdict()
		case *url.Error: // the server hung up; anywhere else io.EOF is the end of a file
			if has(e, io.EOF) {
				return KindUnavailable.verdict()
			}
		}
	}
	return KindUnknown.verdict()
}

// specific applies the rules that need no more than one error of a tree.
func specific(err error) Verdict {
	switch e := err.(type) {
	case *HTTPError:
		if e.StatusCode >= 400 && e.StatusCode <= 599 {
			return statusVerdict(e.StatusCode, e.RetryAfter)
		}
	case *net.DNSError:
		if e.IsNotFound {
			return KindNotFound.verdict()
		}
	case *net.AddrError, *net.ParseError, net.UnknownNetworkError, net.InvalidAddrError:
		return KindInvalid.verdict()
	case *tls.CertificateVerificationError, tls.RecordHeaderError, tls.AlertError, *tls.ECHRejectionError,
		x509.UnknownAuthorityError, x509.HostnameError, x509.CertificateInvalidError:
		return KindUnavailable.verdict()
	}
	for _, s := range sentinels {
		if slices.ContainsFunc(s.errs, func(target error) bool { return is(err, target) }) {
			return s.kind.verdict()
		}
	}
	if timedOut(err) {
		return KindTimeout.verdict()
	}
	return Verdict{}
}

// sentinels are the rules for single values. The numbers that Windows itself gives to sockets
// are not among them: they come inside a [net.OpError].
var sentinels = [...]struct {
	kind Kind
	errs []error
}{
	{KindTimeout, []error{ErrCallTimeout, context.DeadlineExceeded, os.ErrDeadlineExceeded, syscall.ETIMEDOUT}},
	{KindCanceled, []error{context.Canceled}},
	{KindUnavailable, []error{
		io.ErrUnexpectedEOF,
		http.ErrSchemeMismatch, // what net/http makes of a tls.RecordHeaderError
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE,
		syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN,
	}},
}

// timedOut reports whether err calls itself a timeout.
func timedOut(err error) bool {
	switch err.(type) {
	case syscall.Errno, *os.SyscallError, *fs.PathError, *net.OpError, *url.Error:
		// EAGAIN calls itself one, but means a held lock or a full process table on this
		// machine. The others only repeat what they wrap, even a typed nil, and the walk gets
		// there by itself.
		return false
	}
	t, ok := err.(interface{ Timeout() bool })
	return ok && t.Timeout()
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
func Fault(err error) error { return mark(err, Verdict{Effect: Count}) }

// Benign marks err as one that says nothing about the dependency: it is ignored, and is not
// unclassified even if no rule knows it.
func Benign(err error) error { return mark(err, Verdict{Effect: Ignore}) }

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
	return mark(err, Verdict{Effect: Pause, RetryAfter: d})
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

// HTTPStatus returns the verdict on an HTTP response: the kind by code, and from header, which
// may be nil, the wait that a Retry-After asks for. A 429 with one pauses; any other failure
// that counts carries it.
//
// Retry-After is read by RFC 9110 section 10.2.3, a date against the response's own Date,
// without which it is no hint: the two clocks need not agree. Of several the longest holds.
// Names are compared as section 5.1 wants, so a map that no http.Header method filled works
// too.
//
// A code outside 100 to 599 is [KindUnknown], and that is what a Classifier returning it says.
// Where an SDK's error has no status because no answer came, return the zero Verdict instead:
// the default rules then look at what it wraps.
func HTTPStatus(code int, header http.Header) Verdict {
	return statusVerdict(code, retryAfter(header))
}

// statusVerdict is HTTPStatus with the header read.
func statusVerdict(code int, wait time.Duration) Verdict {
	v := statusKind(code).verdict()
	if v.Effect == Count && wait > 0 {
		v.RetryAfter = wait
		if v.Kind == KindRateLimited {
			v.Effect = Pause
		}
	}
	return v
}

// statusKind follows RFC 9110 section 15; 423 is from RFC 4918 section 11.3, 425 from RFC 8470
// section 5.2, 429 from RFC 6585 section 4. 529 is in no RFC: providers of models send it when
// overloaded.
func statusKind(code int) Kind {
	switch code {
	case 401, 402, 403, 407:
		return KindUnauthorized
	case 404, 410:
		return KindNotFound
	case 408, 504:
		return KindTimeout
	case 409, 412:
		return KindConflict
	case 421, 423: // this server, or this resource, cannot serve it now
		return KindUnavailable
	case 429:
		return KindRateLimited
	case 501, 505: // never offered, so not broken
		return KindInvalid
	}
	switch {
	case code < 100 || code > 599:
		return KindUnknown
	case code < 400:
		return KindOK
	case code < 500:
		return KindInvalid
	}
	return KindUnavailable
}

// retryAfter returns the longest wait that h asks for, 0 if none.
func retryAfter(h http.Header) (wait time.Duration) {
	dates := fields(h, "Date")
	for _, value := range fields(h, "Retry-After") {
		if strings.Trim(value, "0123456789") == "" {
			n, _ := strconv.ParseUint(value, 10, 64) // out of range gives the largest number, "" gives 0
			if n > uint64(math.MaxInt64/time.Second) {
				return math.MaxInt64
			}
			wait = max(wait, time.Duration(n)*time.Second)
			continue
		}
		until, err := http.ParseTime(value)
		if err != nil {
			continue
		}
		for _, date := range dates {
			if sent, err := http.ParseTime(date); err == nil {
				wait = max(wait, until.Sub(sent))
			}
		}
	}
	return wait
}

// fields returns the values of name in h, however its keys are spelled.
func fields(h http.Header, name string) (values []string) {
	for key, lines := range h {
		if strings.EqualFold(key, name) {
			for _, line := range lines {
				values = append(values, strings.Trim(line, " \t"))
			}
		}
	}
	return values
}

// HTTPError is a response with a status that is not a success. [Classify] judges a status from
// 400 to 599 as [HTTPStatus] does.
type HTTPError struct {
	StatusCode int
	RetryAfter time.Duration // the wait that the response asked for, 0 if none
}

func (e *HTTPError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("HTTP status %d %s", e.StatusCode, http.StatusText(e.StatusCode)))
}

// CheckResponse returns an *[HTTPError] for a status of 400 or more, else nil. It leaves the
// body alone: to close it is still the caller's part. It panics if resp is nil, for then the
// error beside it was not looked at.
func CheckResponse(resp *http.Response) error {
	if resp == nil {
		panic("toolcircuit: CheckResponse: resp is nil")
	}
	if resp.StatusCode < 400 {
		return nil
	}
	return &HTTPError{StatusCode: resp.StatusCode, RetryAfter: retryAfter(resp.Header)}
}

// grpcKinds has the kinds of the gRPC status codes 0 to 16.
var grpcKinds = [...]Kind{
	0:  KindOK,
	1:  KindCanceled,     // CANCELLED
	2:  KindUnknown,      // UNKNOWN
	3:  KindInvalid,      // INVALID_ARGUMENT
	4:  KindTimeout,      // DEADLINE_EXCEEDED
	5:  KindNotFound,     // NOT_FOUND
	6:  KindConflict,     // ALREADY_EXISTS
	7:  KindUnauthorized, // PERMISSION_DENIED
	8:  KindRateLimited,  // RESOURCE_EXHAUSTED
	9:  KindInvalid,      // FAILED_PRECONDITION
	10: KindConflict,     // ABORTED
	11: KindInvalid,      // OUT_OF_RANGE
	12: KindInvalid,      // UNIMPLEMENTED
	13: KindUnavailable,  // INTERNAL
	14: KindUnavailable,  // UNAVAILABLE
	15: KindUnavailable,  // DATA_LOSS
	16: KindUnauthorized, // UNAUTHENTICATED
}

// GRPCCode returns the verdict on a gRPC status code, as listed at
// https://grpc.io/docs/guides/status-codes/. A code that is not on the list is [KindUnknown],
// as UNKNOWN is.
func GRPCCode(code uint32) Verdict {
	if code < uint32(len(grpcKinds)) {
		return grpcKinds[code].verdict()
	}
	return KindUnknown.verdict()
}

// ErrCallTimeout is what every [CallTimeoutError] is.
var ErrCallTimeout = errors.New("toolcircuit: call timed out")

// CallTimeoutError is an error that came back after the circuit's own deadline,
// Policy.CallTimeout, had passed. It is [ErrCallTimeout] and [context.DeadlineExceeded].
type CallTimeoutError struct {
	Dependency string
	After      time.Duration // the deadline, from the start of the call
	Err        error         // what the tool returned, nil if it is still running
}

func (e *CallTimeoutError) Error() string {
	text := fmt.Sprintf("toolcircuit: %s did not answer within %v", e.Dependency, e.After)
	if e.Err != nil {
		text += fmt.Sprintf(": %v", e.Err)
	}
	return text
}

// Is reports whether target is ErrCallTimeout or context.DeadlineExceeded.
func (e *CallTimeoutError) Is(target error) bool {
	return target == ErrCallTimeout || target == context.DeadlineExceeded
}

// Timeout returns true, as net.Error wants it of a timeout.
func (e *CallTimeoutError) Timeout() bool { return true }

// Unwrap returns Err.
func (e *CallTimeoutError) Unwrap() error { return e.Err }

// Retryable reports whether err is transient: a failure that counts by its kind (timeout,
// unavailable, rate_limited), or one that the tool marked with [RetryAfter]. It is false for
// nil, for every refusal of a circuit, for what the caller must mend, for [Benign] and
// [Duplicate], for context.Canceled, and for what no rule knows.
//
// It knows the error alone. A DeadlineExceeded may stem from one attempt or from the loop
// around it, so the loop has to look at its own context first.
func Retryable(err error) bool {
	v, _ := classify(context.Background(), Outcome{Err: err}, nil)
	return v.Effect == Pause || v.Effect == Count && v.Kind.effect() == Count
}
