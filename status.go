package toolcircuit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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
	"time"
)

// judge applies the rules, which know codes and types but no markers.
func judge(err error) Verdict {
	if err == nil {
		return Verdict{Effect: EffectHeal, Kind: KindOK}
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
	if v.Effect == EffectCount && wait > 0 {
		v.RetryAfter = wait
		if v.Kind == KindRateLimited {
			v.Effect = EffectPause
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
