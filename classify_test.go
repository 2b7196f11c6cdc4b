package toolcircuit_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

// The verdicts that the tables below speak of.

func counted(k toolcircuit.Kind) toolcircuit.Verdict {
	return toolcircuit.Verdict{Effect: toolcircuit.EffectCount, Kind: k}
}

func ignored(k toolcircuit.Kind) toolcircuit.Verdict {
	return toolcircuit.Verdict{Effect: toolcircuit.EffectIgnore, Kind: k}
}

func healed(k toolcircuit.Kind) toolcircuit.Verdict {
	return toolcircuit.Verdict{Effect: toolcircuit.EffectHeal, Kind: k}
}

func paused(k toolcircuit.Kind, d time.Duration) toolcircuit.Verdict {
	return toolcircuit.Verdict{Effect: toolcircuit.EffectPause, Kind: k, RetryAfter: d}
}

func after(v toolcircuit.Verdict, d time.Duration) toolcircuit.Verdict {
	v.RetryAfter = d
	return v
}

var (
	unknown     = ignored(toolcircuit.KindUnknown)
	unavailable = counted(toolcircuit.KindUnavailable)
	timeout     = counted(toolcircuit.KindTimeout)
	rateLimited = counted(toolcircuit.KindRateLimited)
	invalid     = ignored(toolcircuit.KindInvalid)
	notFound    = ignored(toolcircuit.KindNotFound)
	canceled    = ignored(toolcircuit.KindCanceled)
	rejected    = ignored(toolcircuit.KindRejected)
	healthy     = healed(toolcircuit.KindOK)

	errOpaque   = errors.New("opaque")
	notFoundErr = &toolcircuit.HTTPError{StatusCode: 404}
)

// kinds are all that there are.
var kinds = []toolcircuit.Kind{
	toolcircuit.KindOK, toolcircuit.KindDuplicate, toolcircuit.KindTimeout, toolcircuit.KindDeadline, toolcircuit.KindUnavailable,
	toolcircuit.KindRateLimited, toolcircuit.KindSlow, toolcircuit.KindPanic, toolcircuit.KindUnauthorized, toolcircuit.KindInvalid,
	toolcircuit.KindNotFound, toolcircuit.KindConflict, toolcircuit.KindCanceled, toolcircuit.KindInterrupt, toolcircuit.KindRejected,
	toolcircuit.KindUnknown,
}

// verdictOn is what the default rules say about err in a living context.
func verdictOn(err error) toolcircuit.Verdict {
	return toolcircuit.Classify(context.Background(), toolcircuit.Outcome{Err: err})
}

// verdicts are errors, and what the default rules say about them.
type verdicts map[string]struct {
	err  error
	want toolcircuit.Verdict
}

func (rows verdicts) check(t *testing.T) {
	for name, row := range rows {
		assert.Equal(t, row.want, verdictOn(row.err), name)
	}
}

// says is a Classifier that gives each outcome the same verdict.
func says(v toolcircuit.Verdict) toolcircuit.Classifier {
	return func(context.Context, toolcircuit.Outcome) toolcircuit.Verdict { return v }
}

// settledWith is what a circuit with a Classifier of its own makes of one call.
func settledWith(t *testing.T, c toolcircuit.Classifier, p toolcircuit.Policy, value any, err error) (v toolcircuit.Verdict, unclassified uint64) {
	t.Helper()
	circuit := toolcircuit.MustNew("dep", toolcircuit.Options{
		Policy:   p,
		Classify: c,
		OnCall:   func(_ context.Context, call toolcircuit.Call) { v = call.Verdict },
	})
	got, gotErr := toolcircuit.Do(context.Background(), circuit, func(context.Context) (any, error) { return value, err })
	require.Equal(t, value, got)
	require.Equal(t, err, gotErr)
	return v, circuit.Snapshot().Unclassified
}

// Errors as other packages make them.
type (
	chain    struct{ error }        // a custom Unwrap, which fmt knows nothing of
	alias    struct{ error }        // claims by Is to be another error, wraps nothing
	lateErr  struct{ late bool }    // says itself whether it is a timeout
	apiError struct{ code int }     // an SDK's error
	proxy    struct{ to *apiError } // gives a *apiError by As, wraps nothing
	loop     struct{ next []error } // Unwrap leads back
	outer    struct {               // a proxy that wraps something else
		proxy
		inner error
	}
	valued  [1][]int                                // not comparable
	deep    int                                     // as many errors inside as its number
	grpcErr interface{ GRPCStatus() (code uint32) } // the shape of an error, not a type
	rpc     uint32
	lazy    func() error // wraps what it returns
	several []error      // wraps its first
)

func (e chain) Unwrap() error        { return e.error }
func (e alias) Is(target error) bool { return target == e.error }
func (e lateErr) Error() string      { return "late" }
func (e lateErr) Timeout() bool      { return e.late }
func (e *apiError) Error() string    { return "status " + strconv.Itoa(e.code) }
func (e proxy) Error() string        { return "proxy" }
func (e outer) Unwrap() error        { return e.inner }
func (e *loop) Error() string        { return "loop" }
func (e *loop) Unwrap() []error      { return e.next }
func (e valued) Error() string       { return "valued" }
func (e deep) Error() string         { return "deep" }
func (e rpc) Error() string          { return "rpc" }
func (e rpc) GRPCStatus() uint32     { return uint32(e) }
func (e lazy) Error() string         { return "lazy" }
func (e lazy) Unwrap() error         { return e() }
func (e several) Error() string      { return "several" }
func (e several) Unwrap() error      { return e[0] }

func (e proxy) As(target any) bool {
	p, ok := target.(**apiError)
	if ok {
		*p = e.to
	}
	return ok
}

func (e deep) Unwrap() error {
	if e == 0 {
		return io.ErrUnexpectedEOF
	}
	return e - 1
}

// nested is err as the last of n+1 errors.
func nested(n int, err error) error {
	for range n {
		err = chain{err}
	}
	return err
}

func dial(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
func get(err error) error  { return &url.Error{Op: "Get", URL: "http://dep/", Err: err} }

func TestClassifyRules(t *testing.T) {
	verdicts{
		"nil":                       {nil, healthy},
		"plain error":               {errOpaque, unknown},
		"not comparable":            {valued{}, unknown},
		"text is not read":          {errors.New("429 timeout: connection refused"), unknown},
		"not supported":             {errors.ErrUnsupported, unknown},
		"plain end of file":         {io.EOF, unknown},
		"end of file in a request":  {get(io.EOF), unavailable},
		"end of file deeper":        {get(chain{io.EOF}), unavailable},
		"end of file beside one":    {errors.Join(get(errOpaque), io.EOF), unknown},
		"end of file on a socket":   {dial(io.EOF), unavailable},
		"unexpected end":            {io.ErrUnexpectedEOF, unavailable},
		"request of a wrong scheme": {get(errors.New("unsupported protocol scheme")), unknown},

		"refused":           {syscall.ECONNREFUSED, unavailable},
		"reset":             {syscall.ECONNRESET, unavailable},
		"aborted":           {syscall.ECONNABORTED, unavailable},
		"broken pipe":       {&fs.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}, unavailable},
		"no route to host":  {syscall.EHOSTUNREACH, unavailable},
		"no route to net":   {syscall.ENETUNREACH, unavailable},
		"net down":          {syscall.ENETDOWN, unavailable},
		"socket timed out":  {dial(os.NewSyscallError("connect", syscall.ETIMEDOUT)), timeout},
		"no such file":      {&fs.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}, unknown},
		"lock held":         {syscall.EAGAIN, unknown},
		"no more processes": {&fs.PathError{Op: "fork/exec", Path: "x", Err: syscall.EAGAIN}, unknown},
		"full backlog":      {dial(os.NewSyscallError("connect", syscall.EAGAIN)), unavailable},

		"deadline of something":  {context.DeadlineExceeded, timeout},
		"deadline of a file":     {os.ErrDeadlineExceeded, timeout},
		"either by Is":           {errors.Join(alias{os.ErrDeadlineExceeded}, io.ErrUnexpectedEOF), timeout},
		"or the other":           {errors.Join(alias{context.DeadlineExceeded}, io.ErrUnexpectedEOF), timeout},
		"deadline of a circuit":  {toolcircuit.ErrCallTimeout, timeout},
		"says it is late":        {lateErr{true}, timeout},
		"says it is not late":    {lateErr{false}, unknown},
		"late inside a request":  {get(lateErr{true}), timeout},
		"somebody else's cancel": {context.Canceled, canceled},
		"cancelled request":      {get(context.Canceled), canceled},
		"cancelled dial":         {dial(alias{context.Canceled}), canceled},
		"cancelled lookup":       {dial(&net.DNSError{UnwrapErr: alias{context.Canceled}}), canceled},
		"refused by a circuit":   {toolcircuit.ErrCircuitOpen, rejected},
		"refusal with its data":  {&toolcircuit.OpenError{}, rejected},
		"refusal beside a fault": {errors.Join(syscall.ECONNREFUSED, chain{toolcircuit.ErrCircuitOpen}), rejected},
		"refusal marked a fault": {toolcircuit.Fault(toolcircuit.ErrCircuitOpen), rejected},
		"two faults":             {errors.Join(errOpaque, syscall.EPIPE, lateErr{true}), timeout},

		"any other socket error":   {dial(errOpaque), unavailable},
		"lookup without a name":    {&net.DNSError{IsNotFound: true}, notFound},
		"lookup timed out":         {&net.DNSError{IsTimeout: true}, timeout},
		"lookup failed":            {&net.DNSError{IsTemporary: true}, unavailable},
		"general around specific":  {get(dial(&net.DNSError{IsNotFound: true})), notFound},
		"general beside specific":  {errors.Join(dial(errOpaque), &net.DNSError{IsNotFound: true}), unavailable},
		"bad address":              {dial(&net.AddrError{Err: "missing port"}), invalid},
		"bad number":               {dial(&net.ParseError{Type: "IP address"}), invalid},
		"bad network":              {dial(net.UnknownNetworkError("tcq")), invalid},
		"bad kind of address":      {dial(net.InvalidAddrError("x")), invalid},
		"certificate":              {get(&tls.CertificateVerificationError{Err: errOpaque}), unavailable},
		"certificate of nobody":    {x509.UnknownAuthorityError{}, unavailable},
		"certificate of another":   {x509.HostnameError{Certificate: &x509.Certificate{}}, unavailable},
		"certificate expired":      {x509.CertificateInvalidError{Reason: x509.Expired}, unavailable},
		"TLS alert":                {tls.AlertError(40), unavailable},
		"not TLS":                  {tls.RecordHeaderError{}, unavailable},
		"not TLS, says net/http":   {get(http.ErrSchemeMismatch), unavailable},
		"hello rejected":           {&tls.ECHRejectionError{}, unavailable},
		"response":                 {&toolcircuit.HTTPError{StatusCode: 404}, notFound},
		"response with a wait":     {&toolcircuit.HTTPError{StatusCode: 429, RetryAfter: time.Second}, paused(toolcircuit.KindRateLimited, time.Second)},
		"response with the least":  {&toolcircuit.HTTPError{StatusCode: 429, RetryAfter: 1}, paused(toolcircuit.KindRateLimited, 1)},
		"response that is none":    {&toolcircuit.HTTPError{StatusCode: 700}, unknown},
		"response without failure": {&toolcircuit.HTTPError{StatusCode: 200}, unknown},
	}.check(t)
}

func TestEffectString(t *testing.T) {
	var zero toolcircuit.Effect
	for effect, want := range map[toolcircuit.Effect]string{
		zero:                    "ignore",
		toolcircuit.EffectCount: "count",
		toolcircuit.EffectHeal:  "heal",
		toolcircuit.EffectPause: "pause",
		4:                       "Effect(4)",
		9:                       "Effect(9)",
	} {
		require.Equal(t, want, effect.String())
	}
}

// An ended context explains every error, and no success.
func TestCallerWalkedAway(t *testing.T) {
	gone, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("user closed the tab"))
	past, stop := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer stop()

	for name, err := range map[string]error{
		"its own error": fmt.Errorf("call: %w", context.Canceled),
		"its cause":     get(context.Cause(gone)),
		"a fault":       &toolcircuit.HTTPError{StatusCode: 500},
		"a marked one":  toolcircuit.Fault(errOpaque),
		"a refusal":     toolcircuit.ErrCircuitOpen,
		"typed nil":     (*apiError)(nil),
	} {
		o := toolcircuit.Outcome{Err: err}
		assert.Equal(t, canceled, toolcircuit.Classify(gone, o), name)
		assert.Equal(t, counted(toolcircuit.KindDeadline), toolcircuit.Classify(past, o), name)
	}
	require.Equal(t, healthy, toolcircuit.Classify(gone, toolcircuit.Outcome{}))
}

// One verdict, however an error is wrapped.
func TestWrappedErrors(t *testing.T) {
	wrappings := map[string]func(error) error{
		"plain":     func(err error) error { return err },
		"%w":        func(err error) error { return fmt.Errorf("call: %w", err) },
		"%w twice":  func(err error) error { return fmt.Errorf("%w: %w", errOpaque, err) },
		"Join":      func(err error) error { return errors.Join(nil, errOpaque, err) },
		"Unwrap":    func(err error) error { return chain{err} },
		"deep":      func(err error) error { return chain{errors.Join(chain{fmt.Errorf("call: %w", err)})} },
		"in a mark": func(err error) error { return toolcircuit.Fault(err) },
	}
	for name, row := range map[string]struct {
		err  error
		want toolcircuit.Verdict
	}{
		"sentinel": {io.ErrUnexpectedEOF, unavailable},
		"type":     {&toolcircuit.HTTPError{StatusCode: 503}, unavailable},
		"number":   {syscall.ECONNRESET, unavailable},
		"by Is":    {alias{syscall.ECONNRESET}, unavailable},
		"method":   {lateErr{true}, timeout},
		"general":  {dial(errOpaque), unavailable},
		"refusal":  {toolcircuit.ErrCircuitOpen, rejected},
		"mark":     {toolcircuit.Fault(errOpaque), unavailable},
	} {
		for how, wrap := range wrappings {
			assert.Equal(t, row.want, verdictOn(wrap(row.err)), name+"/"+how)
		}
	}
	rule := toolcircuit.ForError(func(e *apiError) toolcircuit.Verdict { return toolcircuit.HTTPStatus(e.code, nil) })
	for how, wrap := range wrappings {
		for name, err := range map[string]error{"type": &apiError{429}, "by As": proxy{&apiError{429}}} {
			assert.Equal(t, rateLimited, rule(context.Background(), toolcircuit.Outcome{Err: wrap(err)}), "ForError "+name+"/"+how)
		}
	}
}

// Nil is no error, and a typed nil is one of which nothing is known.
func TestNilInside(t *testing.T) {
	for _, err := range []error{
		toolcircuit.Fault(nil), toolcircuit.Benign(nil), toolcircuit.Duplicate(nil), toolcircuit.Invalid(nil), toolcircuit.RetryAfter(nil, 1),
	} {
		require.NoError(t, err)
	}
	require.Equal(t, healthy, verdictOn(errors.Join(nil, nil)))

	for name, err := range map[string]error{
		"pointer":            (*apiError)(nil),
		"pointer to a rule":  (*toolcircuit.HTTPError)(nil),
		"refusal":            (*toolcircuit.OpenError)(nil),
		"func":               lazy(nil),
		"slice":              several(nil),
		"in a request":       get((*net.OpError)(nil)),
		"Unwrap to nothing":  chain{nil},
		"in Join":            errors.Join((*net.DNSError)(nil), (*toolcircuit.CallTimeoutError)(nil)),
		"only nils inside":   &loop{next: []error{nil, (*url.Error)(nil)}},
		"two levels of them": chain{chain{(*loop)(nil)}},
	} {
		assert.Equal(t, unknown, verdictOn(err), name)
	}
	require.Equal(t, timeout, verdictOn(errors.Join((*apiError)(nil), lateErr{true})), "what stands beside it is seen")

	marked := toolcircuit.Fault((*apiError)(nil))
	require.EqualError(t, marked, "<nil>")
	require.Equal(t, unavailable, verdictOn(marked))

	never := toolcircuit.ForError(func(*apiError) toolcircuit.Verdict { return unavailable })
	for _, err := range []error{nil, (*apiError)(nil), chain{(*apiError)(nil)}, proxy{nil}} {
		require.Zero(t, never(context.Background(), toolcircuit.Outcome{Err: err}))
	}
}

// An Unwrap that leads back ends, and what can be found is found.
func TestClassifyEndsOnCycles(t *testing.T) {
	one := &loop{}
	one.next = []error{one}
	two := &loop{}
	two.next = []error{two, chain{two}, two} // would be walked for ever, and wider each time

	require.Equal(t, unknown, verdictOn(one))
	require.Equal(t, unknown, verdictOn(get(two)))
	require.Equal(t, timeout, verdictOn(errors.Join(lateErr{true}, two)))
	require.Equal(t, unavailable, verdictOn(toolcircuit.Fault(two)))
	require.Equal(t, unavailable, verdictOn(deep(500)))
	require.Equal(t, unknown, verdictOn(deep(2000)), "too deep")
	rule := toolcircuit.ForError(func(*apiError) toolcircuit.Verdict { return timeout })
	require.Equal(t, timeout, rule(t.Context(), toolcircuit.Outcome{Err: nested(999, &apiError{})}))
	require.Zero(t, rule(t.Context(), toolcircuit.Outcome{Err: nested(1000, &apiError{})}))
	require.Equal(t, unknown, verdictOn(deep(math.MaxInt)))
}

func TestMarkers(t *testing.T) {
	tooMany := &toolcircuit.HTTPError{StatusCode: 429, RetryAfter: time.Minute}
	busy := &toolcircuit.HTTPError{StatusCode: 503, RetryAfter: time.Minute}
	verdicts{
		"fault of nobody knows what":  {toolcircuit.Fault(errOpaque), unavailable},
		"fault of a known kind":       {toolcircuit.Fault(&toolcircuit.HTTPError{StatusCode: 404}), counted(toolcircuit.KindNotFound)},
		"fault keeps the wait":        {toolcircuit.Fault(busy), after(unavailable, time.Minute)},
		"fault keeps a pause's wait":  {toolcircuit.Fault(tooMany), after(rateLimited, time.Minute)},
		"benign of nobody knows what": {toolcircuit.Benign(errOpaque), unknown},
		"benign of a known kind":      {toolcircuit.Benign(busy), ignored(toolcircuit.KindUnavailable)},
		"duplicate":                   {toolcircuit.Duplicate(&toolcircuit.HTTPError{StatusCode: 409}), healed(toolcircuit.KindDuplicate)},
		"wait of nobody knows what":   {toolcircuit.RetryAfter(errOpaque, 3), paused(toolcircuit.KindRateLimited, 3)},
		"wait of a known kind":        {toolcircuit.RetryAfter(&toolcircuit.HTTPError{StatusCode: 403}, 3), paused(toolcircuit.KindUnauthorized, 3)},
		"wait of its own":             {toolcircuit.RetryAfter(busy, 3), paused(toolcircuit.KindUnavailable, 3)},
		"no wait":                     {toolcircuit.RetryAfter(errOpaque, 0), unknown},
		"negative wait":               {toolcircuit.RetryAfter(busy, -1), after(unavailable, time.Minute)},
		"outermost of two":            {chain{toolcircuit.Benign(chain{toolcircuit.Fault(busy)})}, ignored(toolcircuit.KindUnavailable)},
		"outermost the other way":     {toolcircuit.Fault(toolcircuit.Benign(errOpaque)), unavailable},
		"strongest of two":            {errors.Join(errOpaque, toolcircuit.Duplicate(errOpaque), toolcircuit.Fault(errOpaque)), unavailable},
		"kind of the marked alone":    {errors.Join(notFoundErr, toolcircuit.Fault(errOpaque)), unavailable},
		"the caller's mistake":        {toolcircuit.Invalid(errOpaque), invalid},
		"whatever it seems":           {toolcircuit.Invalid(busy), invalid},
	}.check(t)
	for _, err := range []error{
		toolcircuit.Fault(busy), toolcircuit.Benign(busy), toolcircuit.Duplicate(busy), toolcircuit.Invalid(busy), toolcircuit.RetryAfter(busy, 1),
	} {
		require.ErrorIs(t, err, busy)
		require.EqualError(t, err, busy.Error())
	}
	require.Same(t, busy, toolcircuit.RetryAfter(busy, 0), "returned as it was")
}

// The strongest branch decides, however the branches were joined.
func TestBranches(t *testing.T) {
	status := func(code int, wait time.Duration) error {
		return &toolcircuit.HTTPError{StatusCode: code, RetryAfter: wait}
	}
	hour := status(429, time.Hour)
	for name, row := range map[string]struct {
		branches []error
		want     toolcircuit.Verdict
	}{
		"a fault beside a mistake":      {[]error{status(404, 0), status(503, 0)}, unavailable},
		"a pause beside a mistake":      {[]error{status(401, 0), hour}, paused(toolcircuit.KindRateLimited, time.Hour)},
		"a pause beside a fault":        {[]error{status(503, 2*time.Hour), hour}, paused(toolcircuit.KindRateLimited, time.Hour)},
		"a fault beside a cancel":       {[]error{context.Canceled, status(503, 0)}, unavailable},
		"a fault beside a duplicate":    {[]error{toolcircuit.Duplicate(errOpaque), errOpaque, lateErr{true}}, timeout},
		"a duplicate beside a mistake":  {[]error{status(404, 0), toolcircuit.Duplicate(errOpaque)}, healed(toolcircuit.KindDuplicate)},
		"a mistake beside nothing":      {[]error{errOpaque, status(404, 0)}, notFound},
		"benign beside nothing":         {[]error{errOpaque, toolcircuit.Benign(errOpaque)}, unknown},
		"benign beside a fault":         {[]error{toolcircuit.Benign(status(503, 0)), lateErr{true}}, timeout},
		"benign beside a mistake":       {[]error{toolcircuit.Benign(errOpaque), status(404, 0)}, notFound},
		"the longer of two waits":       {[]error{status(503, time.Second), status(502, time.Minute)}, after(unavailable, time.Minute)},
		"the longer of two pauses":      {[]error{hour, status(429, time.Minute), toolcircuit.RetryAfter(errOpaque, 2*time.Hour)}, paused(toolcircuit.KindRateLimited, 2*time.Hour)},
		"a wait, whatever the kind":     {[]error{lateErr{true}, status(503, time.Second)}, after(unavailable, time.Second)},
		"of equals, the kind in order":  {[]error{status(503, 0), status(429, 0), lateErr{true}}, timeout},
		"of mistakes, the kind, too":    {[]error{status(409, 0), status(404, 0), status(400, 0), status(401, 0)}, ignored(toolcircuit.KindUnauthorized)},
		"a fault deeper":                {[]error{status(404, 0), chain{errors.Join(errOpaque, chain{lateErr{true}})}}, timeout},
		"a mark deeper":                 {[]error{errOpaque, fmt.Errorf("%w: %w", status(404, 0), toolcircuit.Fault(errOpaque))}, unavailable},
		"a mark above branches":         {[]error{status(404, 0), toolcircuit.Benign(errors.Join(lateErr{true}, hour))}, ignored(toolcircuit.KindRateLimited)},
		"marked, of its own branches":   {[]error{status(404, 0), toolcircuit.Fault(errors.Join(errOpaque, hour))}, after(rateLimited, time.Hour)},
		"a refusal beside all the rest": {[]error{toolcircuit.Fault(hour), toolcircuit.ErrCircuitOpen, status(503, 0)}, rejected},
		"a refusal under a mark":        {[]error{hour, toolcircuit.Benign(toolcircuit.ErrCircuitOpen)}, rejected},
	} {
		for _, order := range orders(row.branches) {
			assert.Equal(t, row.want, verdictOn(errors.Join(order...)), name)
			nils := append([]error{nil, (*apiError)(nil)}, order...)
			assert.Equal(t, row.want, verdictOn(chain{&loop{next: nils}}), "%s, with nils between", name)
		}
	}
}

// orders returns errs in each order.
func orders(errs []error) (all [][]error) {
	if len(errs) == 0 {
		return [][]error{nil}
	}
	for i := range errs {
		rest := append(slices.Clone(errs[:i]), errs[i+1:]...)
		for _, order := range orders(rest) {
			all = append(all, append([]error{errs[i]}, order...))
		}
	}
	return all
}

// Along one chain the outermost decides, also above branches.
func TestClassifyChain(t *testing.T) {
	verdicts{
		"an SDK around a status":      {chain{fmt.Errorf("sdk: request failed: %w", notFoundErr)}, notFound},
		"status around a reset":       {&statusError{404, syscall.ECONNRESET}, notFound},
		"status around branches":      {&statusError{404, errors.Join(errOpaque, syscall.ECONNRESET)}, notFound},
		"no status around a reset":    {&statusError{0, dial(syscall.ECONNREFUSED)}, unavailable},
		"success around a fault":      {&statusError{200, throttle("overloaded")}, unknown},
		"throttled as a bad request":  {&statusError{400, chain{throttle("ThrottlingException")}}, rateLimited},
		"throttled as unavailable":    {&statusError{503, throttle("SlowDown")}, rateLimited},
		"throttled with a success":    {&statusError{200, throttle("SlowDown")}, rateLimited},
		"throttled in one branch":     {&statusError{400, errors.Join(errOpaque, throttle("SlowDown"))}, rateLimited},
		"another code in a bad one":   {&statusError{400, throttle("ValidationException")}, invalid},
		"a mark in a branch under it": {&statusError{404, errors.Join(errOpaque, toolcircuit.Fault(errOpaque))}, unavailable},
		"a timeout around a throttle": {&toolcircuit.CallTimeoutError{Err: throttle("SlowDown")}, timeout},
		"canceled around a reset":     {canceledCode{dial(syscall.ECONNRESET)}, unavailable},
		"canceled around a cancel":    {canceledCode{get(context.Canceled)}, canceled},
		"canceled around nothing":     {canceledCode{}, canceled},
		"canceled around the unknown": {canceledCode{errOpaque}, canceled},
		"timeout by code, Is another": {timeoutCode{}, ignored(toolcircuit.KindNotFound)},
		"lost connection of a pool":   {fmt.Errorf("query: %w", driver.ErrBadConn), unavailable},
		"end of file by Is":           {get(alias{io.EOF}), unavailable},
	}.check(t)
}

// Errors of the shapes that SDKs have.
type (
	statusError struct {
		StatusCode int
		error
	}
	throttle     string // an AWS code
	rpcCode      uint32
	canceledCode struct{ error } // of Connect, which says so of a reset, too
	timeoutCode  struct{ gone }  // a status, and a deadline by Is and Timeout
	gone         struct{}
	panicky      int // each method panics in turn
)

func (e *statusError) Unwrap() error     { return e.error }
func (canceledCode) Error() string       { return "canceled" }
func (canceledCode) Code() rpcCode       { return 1 }
func (canceledCode) Meta() http.Header   { return nil }
func (e canceledCode) Unwrap() error     { return e.error }
func (gone) Error() string               { return "not found" }
func (gone) StatusCode() int             { return 404 }
func (timeoutCode) Is(target error) bool { return target == context.DeadlineExceeded }
func (timeoutCode) Timeout() bool        { return true }
func (e throttle) Error() string         { return string(e) }
func (e throttle) ErrorCode() string     { return string(e) }
func (e panicky) Error() string          { panic("Error") }
func (e panicky) Is(error) bool          { return e.at(0) }
func (e panicky) Timeout() bool          { return e.at(1) }
func (e panicky) StatusCode() int        { e.at(2); return 200 }
func (e panicky) Unwrap() error          { e.at(3); return nil }

func (e panicky) at(method panicky) bool {
	if e == method {
		panic("method")
	}
	return false
}

// A method that panics says nothing, and leaves what others say.
func TestClassifyMethodsThatPanic(t *testing.T) {
	for method := range panicky(4) {
		require.Equal(t, unknown, verdictOn(method), method)
		require.Equal(t, timeout, verdictOn(errors.Join(method, lateErr{true})), method)
	}
}

// A caller's mistake that the tool found itself says so, and no more.
func TestInvalid(t *testing.T) {
	wrong := errors.New("date must be YYYY-MM-DD")
	for _, err := range []error{toolcircuit.Invalid(wrong), fmt.Errorf("parse: %w", toolcircuit.Invalid(wrong)), errors.Join(errOpaque, toolcircuit.Invalid(wrong))} {
		require.Equal(t, invalid, verdictOn(err))
		require.False(t, toolcircuit.Retryable(err))
		_, unclassified := settledWith(t, nil, toolcircuit.Policy{FailureThreshold: 1}, nil, err)
		require.Zero(t, unclassified)
	}

	// Truncated arguments look like a truncated answer until the tool says whose they are.
	err := json.NewDecoder(strings.NewReader(`{"q": "wea`)).Decode(new(struct{}))
	require.Equal(t, unavailable, verdictOn(err))
	require.Equal(t, invalid, verdictOn(toolcircuit.Invalid(err)))
}

// A Classifier is asked before the marks of single branches, and after one above them all.
func TestClassifierAndMarkedBranches(t *testing.T) {
	marked := toolcircuit.Fault(errOpaque)
	for name, row := range map[string]struct {
		says toolcircuit.Classifier
		err  error
		want toolcircuit.Verdict
	}{
		"mark above":           {says(invalid), chain{marked}, unavailable},
		"mark above branches":  {says(invalid), toolcircuit.Fault(errors.Join(errOpaque, errOpaque)), unavailable},
		"joined alone":         {says(invalid), errors.Join(nil, marked), unavailable},
		"mark in a branch":     {says(invalid), errors.Join(errOpaque, marked), invalid},
		"no opinion, a branch": {says(toolcircuit.Verdict{}), errors.Join(errOpaque, marked), unavailable},
	} {
		got, _ := settledWith(t, row.says, toolcircuit.Policy{}, nil, row.err)
		assert.Equal(t, row.want, got, name)
	}
}

// FuzzClassifyTrees builds a tree of known and unknown errors from bytes and compares its effect with
// that of a naive model: each way from the root to a leaf is looked at by itself, and the strongest
// decides. Nothing panics, nothing heals without a mark, and no order of branches matters.
func FuzzClassifyTrees(f *testing.F) {
	for _, seed := range []string{"", "\x00", "\x80\x03\x01\x04", "\x83\x11\x12\x13", "\x90\x21\x85\x02\x14\x01\x0b", "\xff\xfe\x7f\x33\x82\x81\x0c"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) > 200 { // far below the bound on a walk
			return
		}
		rest := program
		tree := grow(&rest, 0)
		want := tree.effect()
		got := verdictOn(tree.error(false))
		require.Equal(t, want, got.Effect, "%+v", got)
		require.Equal(t, got, verdictOn(tree.error(true)), "in the other order")
	})
}

// sprout is a node of the model's tree.
type sprout struct {
	wrap   func(...error) error // makes the error of those inside
	says   toolcircuit.Effect   // where known
	known  bool
	mark   bool
	status bool // what it says is a status
	code   bool // it is a code of AWS for throttling
	socket bool
	none   bool // a typed nil
	in     []*sprout
}

// grow reads one node and what it wraps from program.
func grow(program *[]byte, depth int) *sprout {
	op := byte(0)
	if len(*program) > 0 {
		op, *program = (*program)[0], (*program)[1:]
	}
	const ignore, count, heal, pause = toolcircuit.EffectIgnore, toolcircuit.EffectCount, toolcircuit.EffectHeal, toolcircuit.EffectPause
	leaf := func(err error, known bool, says toolcircuit.Effect) *sprout {
		return &sprout{wrap: func(...error) error { return err }, known: known, says: says}
	}
	plain := func(wrap func(error) error) *sprout {
		return &sprout{wrap: func(in ...error) error { return wrap(in[0]) }}
	}
	mark := func(m func(error) error, says toolcircuit.Effect) *sprout {
		return &sprout{wrap: func(in ...error) error { return m(in[0]) }, mark: true, says: says}
	}
	status := func(code int, known bool, says toolcircuit.Effect) *sprout {
		return &sprout{wrap: func(in ...error) error { return &statusError{code, in[0]} }, known: known, status: known, says: says}
	}
	none, code, socket := leaf((*apiError)(nil), false, 0), leaf(throttle("SlowDown"), true, count), plain(dial)
	none.none, code.code, socket.socket = true, true, true
	if op < 0x80 || depth > 20 {
		leaves := []*sprout{
			leaf(errOpaque, false, 0), leaf(&apiError{503}, false, 0), none, leaf(panicky(op%4), false, 0),
			leaf(&statusError{StatusCode: 302}, false, 0), leaf(syscall.ECONNRESET, true, count), leaf(lateErr{true}, true, count),
			leaf(&statusError{StatusCode: 503}, true, count), leaf(notFoundErr, true, ignore), leaf(context.Canceled, true, ignore),
			leaf(&toolcircuit.HTTPError{StatusCode: 429, RetryAfter: time.Second}, true, pause), code,
		}
		return leaves[int(op)%len(leaves)]
	}
	wraps := []*sprout{
		{wrap: errors.Join},
		{wrap: func(in ...error) error { return &loop{next: in} }},
		plain(func(err error) error { return fmt.Errorf("call: %w", err) }),
		plain(func(err error) error { return chain{err} }),
		plain(get),
		socket,
		status(404, true, ignore), status(503, true, count), status(200, false, 0),
		mark(toolcircuit.Fault, count), mark(toolcircuit.Benign, ignore),
		mark(toolcircuit.Duplicate, heal), mark(toolcircuit.Invalid, ignore),
		mark(func(err error) error { return toolcircuit.RetryAfter(err, time.Second) }, pause),
	}
	kind := int(op) % len(wraps)
	s := wraps[kind]
	for range 1 + int(op)/len(wraps)%4 {
		s.in = append(s.in, grow(program, depth+1))
		if kind > 1 { // which wrap one error
			break
		}
	}
	return s
}

// error makes the error of s.
func (s *sprout) error(reversed bool) error {
	in := make([]error, len(s.in))
	for i, child := range s.in {
		in[i] = child.error(reversed)
	}
	if reversed {
		slices.Reverse(in)
	}
	return s.wrap(in...)
}

// effect is the strongest of the ways down.
func (s *sprout) effect() toolcircuit.Effect {
	best := toolcircuit.EffectIgnore
	order := []toolcircuit.Effect{toolcircuit.EffectIgnore, toolcircuit.EffectHeal, toolcircuit.EffectCount, toolcircuit.EffectPause}
	for _, way := range s.ways(nil) {
		if e := judgeWay(way); slices.Index(order, e) > slices.Index(order, best) {
			best = e
		}
	}
	return best
}

func (s *sprout) ways(above []*sprout) (all [][]*sprout) {
	way := append(slices.Clone(above), s)
	for _, child := range s.in {
		if !child.none {
			all = append(all, child.ways(way)...)
		}
	}
	if all == nil {
		return [][]*sprout{way}
	}
	return all
}

// judgeWay looks for a mark, then for the outermost that is known, then for a socket.
func judgeWay(way []*sprout) toolcircuit.Effect {
	for _, s := range way {
		if s.mark {
			return s.says
		}
	}
	for i, s := range way {
		if s.known && s.status && slices.ContainsFunc(way[i:], func(s *sprout) bool { return s.code }) {
			return toolcircuit.EffectCount
		}
		if s.known {
			return s.says
		}
	}
	if slices.ContainsFunc(way, func(s *sprout) bool { return s.socket }) {
		return toolcircuit.EffectCount
	}
	return toolcircuit.EffectIgnore
}

// A mark is older than the Classifier; the Classifier is older than the rules.
func TestClassifierOrder(t *testing.T) {
	busy := &toolcircuit.HTTPError{StatusCode: 503, RetryAfter: time.Minute}
	interrupt := ignored(toolcircuit.KindInterrupt)
	for name, row := range map[string]struct {
		says  toolcircuit.Verdict
		value any
		err   error
		want  toolcircuit.Verdict
	}{
		"no opinion on an error":    {toolcircuit.Verdict{}, nil, busy, after(unavailable, time.Minute)},
		"no opinion on a value":     {toolcircuit.Verdict{}, 1, nil, healthy},
		"kind alone ignores":        {toolcircuit.Verdict{Kind: toolcircuit.KindTimeout}, nil, busy, ignored(toolcircuit.KindTimeout)},
		"before the rules":          {interrupt, nil, busy, interrupt},
		"after a mark":              {interrupt, nil, toolcircuit.Fault(errOpaque), unavailable},
		"after a refusal":           {interrupt, nil, toolcircuit.ErrCircuitOpen, rejected},
		"count a value":             {counted(""), 1, nil, unavailable},
		"count an unknown":          {counted(""), nil, errOpaque, unavailable},
		"count a known":             {counted(""), nil, lateErr{true}, timeout},
		"count with the wait":       {counted(""), nil, busy, after(unavailable, time.Minute)},
		"count with its own wait":   {after(counted(""), 3), nil, busy, after(unavailable, 3)},
		"count without the wait":    {unavailable, nil, busy, unavailable},
		"negative wait":             {after(unavailable, -3), nil, busy, unavailable},
		"heal a known":              {healed(""), nil, busy, healthy},
		"heal has no wait":          {after(healthy, 3), nil, busy, healthy},
		"ignore has no wait":        {after(invalid, 3), nil, busy, invalid},
		"wait alone, by the rules":  {toolcircuit.Verdict{RetryAfter: 3}, nil, busy, after(unavailable, 3)},
		"wait alone, for a 429":     {toolcircuit.Verdict{RetryAfter: 3}, nil, &toolcircuit.HTTPError{StatusCode: 429}, paused(toolcircuit.KindRateLimited, 3)},
		"wait alone, for a mistake": {toolcircuit.Verdict{RetryAfter: 3}, nil, &toolcircuit.HTTPError{StatusCode: 400}, invalid},
		"a wait that is none":       {toolcircuit.Verdict{RetryAfter: -1}, nil, &toolcircuit.HTTPError{StatusCode: 500}, unavailable},
		"pause a value":             {paused("", 3), 1, nil, paused(toolcircuit.KindRateLimited, 3)},
		"pause an unknown":          {paused("", 3), nil, errOpaque, paused(toolcircuit.KindRateLimited, 3)},
		"pause a known":             {paused("", 3), nil, lateErr{true}, paused(toolcircuit.KindTimeout, 3)},
		"pause with the wait":       {paused("", 0), nil, busy, paused(toolcircuit.KindUnavailable, time.Minute)},
		"pause without a wait":      {paused("", 0), nil, errOpaque, ignored(toolcircuit.KindRateLimited)},
		"pause with a negative one": {paused(toolcircuit.KindTimeout, -3), nil, errOpaque, ignored(toolcircuit.KindTimeout)},
		"effect out of range":       {toolcircuit.Verdict{Effect: 9}, nil, errOpaque, unavailable},
		"kind out of the set":       {toolcircuit.Verdict{Kind: "billing"}, nil, busy, unknown},
		"counted kind out of it":    {counted("billing"), nil, busy, counted(toolcircuit.KindUnknown)},
	} {
		got, _ := settledWith(t, says(row.says), toolcircuit.Policy{}, row.value, row.err)
		assert.Equal(t, row.want, got, name)
	}
	for _, kind := range kinds {

		got, _ := settledWith(t, says(counted(kind)), toolcircuit.Policy{}, nil, errOpaque)
		require.Equal(t, counted(kind), got, "every kind is in the set")
	}
}

// What is unknown is counted as unclassified, unless somebody took it on himself.
func TestClassifyUnclassified(t *testing.T) {
	failed := toolcircuit.Result[int]{Status: toolcircuit.StatusFailed}
	for name, row := range map[string]struct {
		says  toolcircuit.Verdict
		value any
		err   error
		want  uint64
	}{
		"nobody knows":           {toolcircuit.Verdict{}, nil, errOpaque, 1},
		"Classifier: unknown":    {unknown, nil, errOpaque, 1},
		"unknown above the rule": {unknown, nil, lateErr{true}, 1},
		"failed, no cause":       {toolcircuit.Verdict{}, failed, nil, 1},
		"Classifier knows":       {invalid, nil, errOpaque, 0},
		"Classifier counts":      {counted(toolcircuit.KindUnknown), nil, errOpaque, 0},
		"a rule knows":           {toolcircuit.Verdict{}, nil, lateErr{true}, 0},
		"benign":                 {toolcircuit.Verdict{}, nil, toolcircuit.Benign(errOpaque), 0},
		"no error":               {toolcircuit.Verdict{}, nil, nil, 0},
	} {
		_, got := settledWith(t, says(row.says), toolcircuit.Policy{}, row.value, row.err)
		assert.Equal(t, row.want, got, name)
		v, _ := settledWith(t, says(row.says), toolcircuit.Policy{CountUnknown: true}, row.value, row.err)
		assert.Equal(t, row.want == 1 || row.says == counted(toolcircuit.KindUnknown), v == counted(toolcircuit.KindUnknown), name)
	}
}

// A value that knows what became of its call is believed, but not against an error.
func TestClassifyBlockedResult(t *testing.T) {
	inner := toolcircuit.MustNew("inner", toolcircuit.Options{})
	inner.SetOverride(toolcircuit.OverrideOpen)
	tool := toolcircuit.WrapResult(inner, func(context.Context, int) (int, error) { return 0, nil })
	blocked := must(tool(context.Background(), 1))
	timedOut := softly(t, webSearch, failure(toolcircuit.KindTimeout))
	inner.SetOverride(toolcircuit.OverrideNone)
	fine := must(tool(context.Background(), 1))

	type result = toolcircuit.Result[int]
	for name, row := range map[string]struct {
		value any
		err   error
		want  toolcircuit.Verdict
	}{
		"blocked":             {blocked, nil, rejected},
		"pointer":             {&blocked, nil, rejected},
		"nil pointer":         {(*result)(nil), nil, healthy},
		"fine":                {fine, nil, healthy},
		"failed":              {result{Status: toolcircuit.StatusFailed, Blocked: toolcircuit.Blocked{Cause: toolcircuit.KindTimeout}}, nil, timeout},
		"fallback":            {blocked.Or(1, "cache"), nil, rejected},
		"failed for real":     {timedOut, nil, timeout},
		"failed by a mistake": {softly(t, webSearch, failure(toolcircuit.KindInvalid)), nil, invalid},
		"fallback of failed":  {timedOut.Or(1, "cache"), nil, rejected},
		"failed, no cause":    {result{Status: toolcircuit.StatusFailed}, nil, unknown},
		"beside an error":     {blocked, lateErr{true}, timeout},
		"any other value":     {"blocked", nil, healthy},
		"words of errors":     {`{"error":false,"errors":[]}`, nil, healthy},
		"words in bytes":      {[]byte("500 timeout"), nil, healthy},
		"words in JSON":       {json.RawMessage(`{"isError":true}`), nil, healthy},
		"nil beside no err":   {nil, nil, healthy},
	} {
		assert.Equal(t, row.want, toolcircuit.Classify(context.Background(), toolcircuit.Outcome{Value: row.value, Err: row.err}), name)
	}
}

// Transient is what may work later without anybody's doing.
func TestRetryable(t *testing.T) {
	for name, row := range map[string]struct {
		err  error
		want bool
	}{
		"nil":                 {nil, false},
		"timeout":             {lateErr{true}, true},
		"deadline":            {context.DeadlineExceeded, true},
		"unavailable":         {get(io.EOF), true},
		"rate limited":        {&toolcircuit.HTTPError{StatusCode: 429}, true},
		"rate limited, wait":  {&toolcircuit.HTTPError{StatusCode: 429, RetryAfter: 1}, true},
		"fault":               {toolcircuit.Fault(errOpaque), true},
		"told when to return": {toolcircuit.RetryAfter(&toolcircuit.HTTPError{StatusCode: 403}, 1), true},
		"revoked key":         {&toolcircuit.HTTPError{StatusCode: 401}, false},
		"bad argument":        {&toolcircuit.HTTPError{StatusCode: 422}, false},
		"fault of the caller": {toolcircuit.Fault(&toolcircuit.HTTPError{StatusCode: 401}), false},
		"missing":             {&toolcircuit.HTTPError{StatusCode: 404}, false},
		"no such host":        {get(dial(&net.DNSError{IsNotFound: true})), false},
		"conflict":            {&toolcircuit.HTTPError{StatusCode: 409}, false},
		"cancelled":           {get(context.Canceled), false},
		"unknown":             {errOpaque, false},
		"benign":              {toolcircuit.Benign(lateErr{true}), false},
		"duplicate":           {toolcircuit.Duplicate(lateErr{true}), false},
		"refusal":             {toolcircuit.ErrCircuitOpen, false},
		"refusal and fault":   {errors.Join(lateErr{true}, &toolcircuit.OpenError{}), false},
		"marked refusal":      {toolcircuit.RetryAfter(toolcircuit.ErrCircuitOpen, 1), false},
	} {
		assert.Equal(t, row.want, toolcircuit.Retryable(row.err), name)
	}
}

func TestFirst(t *testing.T) {
	var asked []string
	says := func(name string, v toolcircuit.Verdict) toolcircuit.Classifier {
		return func(_ context.Context, o toolcircuit.Outcome) toolcircuit.Verdict {
			asked = append(asked, name+" "+o.Dependency)
			return v
		}
	}
	o := toolcircuit.Outcome{Dependency: "dep"}
	list := []toolcircuit.Classifier{nil, says("a", toolcircuit.Verdict{}), says("b", invalid), says("c", timeout)}
	first := toolcircuit.First(list...)
	list[2] = nil // First has its own copy
	require.Equal(t, invalid, first(context.Background(), o))
	require.Equal(t, []string{"a dep", "b dep"}, asked)

	require.Zero(t, toolcircuit.First()(context.Background(), o))
	require.Zero(t, toolcircuit.First(nil, nil)(context.Background(), o))
	require.Zero(t, toolcircuit.First(says("a", toolcircuit.Verdict{}))(context.Background(), o))
}

func TestForError(t *testing.T) {
	type sdk interface {
		error
		grpcErr
	}
	grpc := func(e sdk) toolcircuit.Verdict { return toolcircuit.GRPCCode(e.GRPCStatus()) }
	status := func(e *apiError) toolcircuit.Verdict { return toolcircuit.HTTPStatus(e.code, nil) }
	below500 := func(v toolcircuit.Verdict) func(*apiError) toolcircuit.Verdict {
		return func(e *apiError) toolcircuit.Verdict {
			if e.code < 500 {
				return v
			}
			return unavailable
		}
	}
	for name, row := range map[string]struct {
		rule toolcircuit.Classifier
		err  error
		want toolcircuit.Verdict
	}{
		"other type":            {toolcircuit.ForError(status), errOpaque, toolcircuit.Verdict{}},
		"value type":            {toolcircuit.ForError(func(lateErr) toolcircuit.Verdict { return timeout }), chain{lateErr{}}, timeout},
		"interface":             {toolcircuit.ForError(grpc), chain{rpc(5)}, notFound},
		"strongest of branches": {toolcircuit.ForError(status), errors.Join(&apiError{404}, &apiError{503}), unavailable},
		"outermost of a chain":  {toolcircuit.ForError(status), errors.Join(outer{proxy{&apiError{404}}, &apiError{503}}, errOpaque), notFound},
		"a pause without a wait beside a fault": {toolcircuit.ForError(below500(paused(toolcircuit.KindTimeout, 0))),
			errors.Join(&apiError{429}, &apiError{503}), unavailable},
		"until an opinion": {toolcircuit.ForError(below500(toolcircuit.Verdict{})), errors.Join(&apiError{404}, &apiError{503}), unavailable},
	} {
		assert.Equal(t, row.want, row.rule(t.Context(), toolcircuit.Outcome{Err: row.err}), name)
	}
}

func TestCallTimeoutError(t *testing.T) {
	var err error = &toolcircuit.CallTimeoutError{Dependency: "search-api", After: 5 * time.Second, Err: context.Canceled}
	require.EqualError(t, err, "toolcircuit: search-api did not answer within 5s: context canceled")
	require.ErrorIs(t, err, toolcircuit.ErrCallTimeout)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, toolcircuit.ErrCircuitOpen)
	require.Equal(t, timeout, verdictOn(err), "what it wraps does not decide")
	require.True(t, os.IsTimeout(err))

	err = &toolcircuit.CallTimeoutError{Dependency: "search-api", After: time.Second}
	require.EqualError(t, err, "toolcircuit: search-api did not answer within 1s")
	require.NoError(t, errors.Unwrap(err))
	require.Equal(t, timeout, verdictOn(err))
}

// Any SDK's error is one rule.
func ExampleForError() {
	classify := toolcircuit.ForError(func(e *apiError) toolcircuit.Verdict {
		return toolcircuit.HTTPStatus(e.code, nil)
	})
	err := fmt.Errorf("search: %w", &apiError{code: 503})
	v := classify(context.Background(), toolcircuit.Outcome{Err: err})
	fmt.Println(v.Effect, v.Kind)
	// Output: count unavailable
}

// A plain error says nothing about the dependency until the tool says that it does.
func ExampleFault() {
	err := errors.New("index is being rebuilt")
	for _, err := range []error{err, toolcircuit.Fault(err)} {
		v := toolcircuit.Classify(context.Background(), toolcircuit.Outcome{Err: err})
		fmt.Println(v.Effect, v.Kind)
	}
	// Output:
	// ignore unknown
	// count unavailable
}

// Unknown errors are the floor; the rest is read against them.
func BenchmarkClassify(b *testing.B) {
	type sdkError struct {
		statusError
		Request  *http.Request
		Response *http.Response
	}
	header := http.Header{}
	for _, name := range []string{"Content-Type", "Content-Length", "Server", "X-Request-Id", "Cache-Control", "Vary", "Via", "Cf-Ray", "Alt-Svc"} {
		header.Set(name, "x")
	}
	header.Set("Retry-After", "7")
	header.Set("Date", "Sun, 06 Nov 1994 08:49:37 GMT")
	var joined []error
	for range 1000 {
		joined = append(joined, errOpaque)
	}
	for name, err := range map[string]error{
		"unknown":         errOpaque,
		"unknown/wrapped": fmt.Errorf("search: %w", errOpaque),
		"unknown/request": get(dial(chain{errOpaque})),
		"status":          &toolcircuit.HTTPError{StatusCode: 503},
		"sdk":             fmt.Errorf("search: %w", &sdkError{Response: &http.Response{StatusCode: 429, Header: header}}),
		"sdk/bare":        &sdkError{Response: &http.Response{StatusCode: 503, Header: header}},
		"1000 joined":     errors.Join(joined...),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				verdictOn(err)
			}
		})
	}
}

// narrow knows no other errors than its own, and panics when it is asked.
type narrow struct {
	StatusCode int
	late       bool
}

func (e *narrow) Error() string        { return "narrow" }
func (e *narrow) Is(target error) bool { return e.StatusCode == target.(*narrow).StatusCode }
func (e *narrow) Timeout() bool        { return e.late }

// An Is method that panics says nothing, and leaves what the same error says otherwise.
func TestPanicOfIs(t *testing.T) {
	require.Equal(t, unavailable, verdictOn(fmt.Errorf("search: %w", &narrow{StatusCode: 503})))
	require.Equal(t, timeout, verdictOn(&narrow{late: true}))
}

func (e *narrow) As(target any) bool { *target.(**narrow) = e; return true }

// An As method that panics says nothing: the rule is asked about what the error wraps.
func TestPanicOfAs(t *testing.T) {
	classify := toolcircuit.ForError(func(e *apiError) toolcircuit.Verdict { return toolcircuit.HTTPStatus(e.code, nil) })
	err := fmt.Errorf("%w: %w", new(narrow), &apiError{503})
	require.Equal(t, unavailable, classify(context.Background(), toolcircuit.Outcome{Err: err}))
}

// A wait that is over, such as time.Until of a moment that has passed, is no opinion that keeps
// others from giving theirs.
func TestWaitThatIsOverIsNoOpinion(t *testing.T) {
	over := toolcircuit.Verdict{RetryAfter: -time.Second}
	past := func(context.Context, toolcircuit.Outcome) toolcircuit.Verdict { return over }
	knows := func(context.Context, toolcircuit.Outcome) toolcircuit.Verdict { return unavailable }
	o := toolcircuit.Outcome{Err: chain{&apiError{503}}}
	require.Equal(t, unavailable, toolcircuit.First(past, knows)(context.Background(), o))
	inner := toolcircuit.ForError(func(e error) toolcircuit.Verdict {
		if _, ok := e.(*apiError); ok {
			return unavailable
		}
		return over
	})
	require.Equal(t, unavailable, inner(context.Background(), o))
}
