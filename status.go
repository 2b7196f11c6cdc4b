package toolcircuit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql/driver"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/toolcircuit/toolcircuit/internal/shape"
)

// pass adds to b what err says, the next error down the branch. It reports whether err is the
// refusal of a circuit. A method of err that panics says nothing.
func (b *branch) pass(err error) (refused bool) {
	defer func() { recover() }()
	if is(err, ErrCircuitOpen) {
		return true
	}
	if b.verdict != (Verdict{}) {
		if b.answer {
			b.explain(shape.Of(err))
		}
		return false
	}
	switch e := err.(type) {
	case *net.OpError:
		b.fallBack(KindUnavailable)
		b.local = b.local || e.Op == "dial"
		return false
	case *url.Error:
		b.request = true
		return false
	case *net.DNSError:
		b.fallBack(KindUnavailable)
		b.local = true
		if e.IsNotFound {
			b.verdict = KindNotFound.verdict()
			return false
		}
	case *HTTPError:
		b.verdict = statusVerdict(e.StatusCode, shape.Hints{Wait: e.RetryAfter, Spent: e.spent})
		return false
	case *net.AddrError, *net.ParseError, net.UnknownNetworkError, net.InvalidAddrError:
		b.verdict, b.local = KindInvalid.verdict(), true
		return false
	case *tls.CertificateVerificationError, x509.UnknownAuthorityError, x509.HostnameError, x509.CertificateInvalidError:
		b.verdict, b.local = KindUnavailable.verdict(), true
		return false
	case *brokenError, tls.RecordHeaderError, tls.AlertError, *tls.ECHRejectionError:
		b.verdict = KindUnavailable.verdict()
		return false
	}
	if b.request && is(err, io.EOF) { // the server hung up; elsewhere EOF is the end of a file
		b.verdict = KindUnavailable.verdict()
		return false
	}
	if b.verdict = sentinel(func(target error) bool { return err == target }); b.verdict != (Verdict{}) {
		b.local = b.local || err == syscall.ECONNREFUSED
		return false
	}
	if b.read(shape.Of(err)); b.verdict != (Verdict{}) {
		return false
	}
	if _, ok := err.(interface{ Is(error) bool }); ok { // last, because some allocate at each question
		b.verdict = sentinel(func(target error) bool { return is(err, target) })
	}
	if b.verdict == (Verdict{}) && timedOut(err) {
		b.verdict = KindTimeout.verdict()
	}
	return false
}

// read adds to b what an error says by its shape.
func (b *branch) read(s shape.Said) {
	switch {
	case s.Status != 0:
		h := shape.ReadHints(s.Header)
		h.Wait = max(h.Wait, s.Wait)
		b.verdict, b.answer, b.header = statusVerdict(s.Status, h), true, s.Header
	case GRPCCode(s.GRPC).Kind == KindCanceled: // connect says this of a reset, too
		b.fallBack(KindCanceled)
	case s.GRPC != 0:
		b.verdict = GRPCCode(s.GRPC).told(max(s.Wait, shape.ReadHints(s.Header).Wait))
	case s.Kind != "":
		b.verdict = Kind(s.Kind).verdict().told(s.Wait)
	}
	b.explain(s)
}

// fallBack adds to b the kind that holds if no inner error says anything more specific.
func (b *branch) fallBack(k Kind) { b.general = stronger(b.general, k.verdict()) }

// explain corrects the verdict on an answer's status. AWS answers a throttled call with 400, too.
func (b *branch) explain(s shape.Said) {
	if s.Throttled {
		wait := shape.ReadHints(b.header).For(http.StatusTooManyRequests)
		b.verdict, b.answer = KindRateLimited.verdict().told(max(s.Wait, wait)), false
	}
}

// sentinels are the rules for single error values. They need no numbers of Windows' own sockets,
// because those come inside a [net.OpError].
var sentinels = [...]struct {
	kind Kind
	errs []error
}{
	{KindTimeout, []error{ErrCallTimeout, context.DeadlineExceeded, os.ErrDeadlineExceeded, syscall.ETIMEDOUT}},
	{KindCanceled, []error{context.Canceled}},
	{KindUnavailable, []error{
		io.ErrUnexpectedEOF,
		driver.ErrBadConn,
		http.ErrSchemeMismatch, // what net/http makes of a tls.RecordHeaderError
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE,
		syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN,
	}},
}

// sentinel returns the verdict on the first of sentinels that match accepts.
func sentinel(match func(target error) bool) Verdict {
	for i := range sentinels {
		if slices.ContainsFunc(sentinels[i].errs, match) {
			return sentinels[i].kind.verdict()
		}
	}
	return Verdict{}
}

// is reports whether err itself, not what it wraps, is target. target must be comparable. An Is
// method that panics, as one does that knows only errors of its own type, says no.
func is(err, target error) (yes bool) {
	if err == target {
		return true
	}
	defer func() { recover() }()
	e, ok := err.(interface{ Is(error) bool })
	return ok && e.Is(target)
}

// timedOut reports whether err calls itself a timeout.
func timedOut(err error) bool {
	switch err.(type) {
	case syscall.Errno, *os.SyscallError, *fs.PathError, *net.OpError, *url.Error:
		// EAGAIN calls itself a timeout, but means a held lock or a full process table on this
		// machine. The others only repeat what they wrap, even a typed nil, and the walk comes
		// to that anyway.
		return false
	}
	t, ok := err.(interface{ Timeout() bool })
	return ok && t.Timeout()
}

// HTTPStatus returns the verdict on an HTTP response that failed. code gives the kind. header,
// which may be nil, gives the wait. A 429 with a wait pauses, and any other failure that counts
// has the wait in RetryAfter. A 403 is rate_limited if it has a wait or says that no rate is left,
// as GitHub's does.
//
// A code below 400 or above 599 gives the zero Verdict, because an error is never a success. An
// SDK's error has status 200 when a stream broke off, and 0 when no answer came. The default rules
// then look at what it wraps.
//
// The wait is the longest of these. Names are compared as RFC 9110 section 5.1 wants, so a map
// that no http.Header method filled works too.
//
//   - Retry-After by RFC 9110 section 10.2.3. A date counts from the response's own Date, because
//     the two clocks need not agree. Without Date it is no hint
//   - Retry-After-Ms, X-Ms-Retry-After-Ms and X-Amz-Retry-After in milliseconds, as OpenAI, Azure
//     and AWS send them
//   - with 403 and 429, X-RateLimit-Reset in seconds of Unix time against Date, if
//     X-RateLimit-Remaining is 0:
//     https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api
func HTTPStatus(code int, header http.Header) Verdict {
	return statusVerdict(code, shape.ReadHints(header))
}

// statusVerdict is HTTPStatus for a header that has been read.
func statusVerdict(code int, h shape.Hints) Verdict {
	if code < 400 || code > 599 {
		return Verdict{}
	}
	v := statusKind(code).verdict()
	if v.Effect != EffectCount && code != http.StatusForbidden {
		return v
	}
	wait := h.For(code)
	if code == http.StatusForbidden && (wait > 0 || h.Spent) {
		v = KindRateLimited.verdict()
	}
	return v.told(wait)
}

// statusKind follows RFC 9110 section 15; 423 is from RFC 4918 section 11.3, 425 from RFC 8470
// section 5.2, 429 from RFC 6585 section 4. 529 is in no RFC: providers of models send it when
// overloaded. code is from 400 to 599.
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
	if code < 500 {
		return KindInvalid
	}
	return KindUnavailable
}

// HTTPError is a response whose status is not a success. [Classify] judges a status from 400 to
// 599 as [HTTPStatus] does.
type HTTPError struct {
	StatusCode int
	RetryAfter time.Duration // the wait that the response asked for, 0 if none

	spent bool // the header said that no rate is left
}

func (e *HTTPError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("HTTP status %d %s", e.StatusCode, http.StatusText(e.StatusCode)))
}

// CheckResponse returns an *[HTTPError] for a status of 400 or more, otherwise nil. It does not
// read or close the body: the caller still closes it. A nil resp panics, because then the error
// that came with it was not checked.
func CheckResponse(resp *http.Response) error {
	if resp == nil {
		panic("toolcircuit: CheckResponse: resp is nil")
	}
	if resp.StatusCode < 400 {
		return nil
	}
	h := shape.ReadHints(resp.Header)
	return &HTTPError{StatusCode: resp.StatusCode, RetryAfter: h.For(resp.StatusCode), spent: h.Spent}
}

// Transport returns a RoundTripper for an [http.Client] whose errors then tell a broken
// connection. It sends requests with base, or with [http.DefaultTransport] if base is nil.
// net/http has no type for a malformed response, a bad chunk, a lost HTTP/2 connection or a
// proxy's refusal. An error of the round trip, or of reading the body, that no rule knows becomes
// unavailable. It keeps its text, and errors.Is and errors.As find it.
//
// These errors stay as they are:
//
//   - one after the request's own context has ended
//   - one of reading a body that the caller has closed
//   - one of a request whose own body fails or has another length than ContentLength
//   - if base is an [http.Transport], one of a request that it does not send because of its URL or
//     header
//
// A status is no error of a round trip: see [CheckResponse].
func Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return transport{base}
}

type transport struct{ base http.RoundTripper }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	sought := true // base has asked for a connection
	if _, ok := t.base.(*http.Transport); ok {
		sought = false
		req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GetConn: func(string) { sought = true }}))
	}
	var sent *sentBody
	if req.Body != nil && req.Body != http.NoBody {
		sent = &sentBody{ReadCloser: req.Body, length: req.ContentLength}
		own := *req
		own.Body = sent
		req = &own
	}
	resp, err := t.base.RoundTrip(req)
	switch {
	case err != nil && sought && !sent.failed():
		err = broken(ctx, err)
	case err == nil && resp != nil && resp.Body != nil && // http.Client fills in what base leaves out
		resp.StatusCode != http.StatusSwitchingProtocols: // its body can be written to
		resp.Body = &body{ReadCloser: resp.Body, ctx: ctx}
	}
	return resp, err
}

// CloseIdleConnections is for [http.Client.CloseIdleConnections].
func (t transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// sentBody is the request body, which comes from the caller.
type sentBody struct {
	io.ReadCloser
	length int64 // that the request announces; 0 or less: unknown
	read   atomic.Int64
	broke  atomic.Bool
}

func (b *sentBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	read := b.read.Add(int64(n))
	switch {
	case err != nil && err != io.EOF:
		b.broke.Store(true)
	case b.length > 0 && (read > b.length || err == io.EOF && read < b.length):
		b.broke.Store(true)
	}
	return n, err
}

// failed reports whether the request broke because of its body. b may be nil.
func (b *sentBody) failed() bool { return b != nil && b.broke.Load() }

// body is a response body.
type body struct {
	io.ReadCloser
	ctx    context.Context
	closed atomic.Bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !b.closed.Load() {
		err = broken(b.ctx, err)
	}
	return n, err
}

func (b *body) Close() error {
	b.closed.Store(true)
	return b.ReadCloser.Close()
}

// brokenError is an error of a connection that has no type of its own.
type brokenError struct{ error }

func (e *brokenError) Unwrap() error { return e.error }

// broken returns err as a *brokenError. It returns err itself if ctx has ended or a rule knows it.
func broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if j := examine(err); j.refused || j.verdict != (Verdict{}) {
		return err
	}
	return &brokenError{err}
}

// grpcKinds has the kinds of the gRPC status codes, "" for a code that says nothing.
var grpcKinds = [...]Kind{
	1:  KindCanceled,     // CANCELLED
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
// https://grpc.io/docs/guides/status-codes/. OK, UNKNOWN and a code that is not listed give the
// zero Verdict: an error is never a success, and a client reports UNKNOWN when it does not know
// itself.
func GRPCCode(code uint32) Verdict {
	if code < uint32(len(grpcKinds)) && grpcKinds[code] != "" {
		return grpcKinds[code].verdict()
	}
	return Verdict{}
}
