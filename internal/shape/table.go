package shape

import (
	"net/http"
	"reflect"
	"strings"
	"time"
)

// table has one row for each shape that gives an opinion. The order is the precedence: the first
// opinion decides. A row returns nil if the type does not have its shape. A name alone proves
// nothing, so each row compares types too, and most rows ask for a second field or method.
//
// Names of methods are constants at each place, because the linker keeps every method of the
// program if a name is a variable.
var table = [...]func(reflect.Type) reader{
	// An exported field of type *http.Response, or one pointer away in a field ...Response.
	// openai-go v3.99.0 Error, anthropic-sdk-go v1.84.0 Error, go-github v88.0.0 ErrorResponse
	// and others, azcore v1.24.0 ResponseError, oauth2 v0.38.0 RetrieveError, smithy-go v1.28.9
	// and aws-sdk-go-v2 v1.48.0 transport/http.ResponseError, stripe-go v85.0.0 Error.
	response,

	// HTTPStatusCode() int. slack v0.36.0 StatusCodeError.
	func(t reflect.Type) reader {
		if !t.Implements(typeOf[interface{ HTTPStatusCode() int }]()) {
			return nil
		}
		header := headerOf(t)
		return func(err error) Said {
			return status(err.(interface{ HTTPStatusCode() int }).HTTPStatusCode(), header(err))
		}
	},

	// StatusCode() int, a common name.
	func(t reflect.Type) reader {
		if !t.Implements(typeOf[interface{ StatusCode() int }]()) {
			return nil
		}
		header := headerOf(t)
		return func(err error) Said {
			return status(err.(interface{ StatusCode() int }).StatusCode(), header(err))
		}
	},

	// Fields StatusCode or HTTPStatusCode int. minio-go v7.4.1 ErrorResponse, vault/api v1.23.0
	// ResponseError.
	func(t reflect.Type) reader {
		code := fieldOf(t, typeOf[int](), "StatusCode", "HTTPStatusCode")
		if code == nil {
			return nil
		}
		header := headerOf(t)
		return func(err error) Said { return status(int(code(reflect.ValueOf(err)).Int()), header(err)) }
	},

	// Code int beside Header http.Header, or beside a Status string that fits an answer.
	// google.golang.org/api v0.315.0 googleapi.Error, genai v1.77.0 APIError.
	codeInCompany,

	// GRPCStatus() with one result, whose Code() is of kind uint32. grpc v1.85.0
	// status.Error.
	grpcStatus,

	// Code() of kind uint32 beside Meta() http.Header. connect v1.21.1 Error.
	connectCode,

	// Status() with a struct of Code int32, Reason and Details.RetryAfterSeconds.
	// k8s.io/apimachinery v0.37.2 api/errors.StatusError.
	kubernetesStatus,

	// Type() of kind string. anthropic-sdk-go v1.84.0 Error, in the middle of a stream, when the
	// status is 200.
	func(t reflect.Type) reader {
		m, ok := t.MethodByName("Type")
		if !ok || !gives(m.Func, reflect.String) {
			return nil
		}
		return func(err error) Said { return Said{Kind: modelErrors[call(m.Func, err).String()]} }
	},

	// SQLState() string. pgx v5.13.0 pgconn.PgError, lib/pq v1.12.3 Error.
	func(t reflect.Type) reader {
		if !t.Implements(typeOf[interface{ SQLState() string }]()) {
			return nil
		}
		return func(err error) Said {
			return Said{Kind: sqlState(err.(interface{ SQLState() string }).SQLState())}
		}
	},

	// A field SQLState [5]byte. go-sql-driver/mysql v1.10.1 MySQLError.
	func(t reflect.Type) reader {
		state := fieldOf(t, typeOf[[5]byte](), "SQLState")
		if state == nil {
			return nil
		}
		return func(err error) Said {
			code, _ := state(reflect.ValueOf(err)).Interface().([5]byte)
			return Said{Kind: sqlState(string(code[:]))}
		}
	},

	// HasErrorLabel(string) bool. mongo-driver v2.10.0 CommandError and others.
	func(t reflect.Type) reader {
		if !t.Implements(typeOf[interface{ HasErrorLabel(string) bool }]()) {
			return nil
		}
		return func(err error) Said {
			has := err.(interface{ HasErrorLabel(string) bool }).HasErrorLabel
			switch {
			case has("NetworkTimeoutError"), has("ExceededTimeLimitError"):
				return Said{Kind: "timeout"}
			case has("NetworkError"): // first: if nobody listens, SystemOverloadedError is set, too
				return Said{Kind: "unavailable"}
			case has("SystemOverloadedError"):
				return Said{Kind: "rate_limited"}
			case has("RetryableWriteError"):
				return Said{Kind: "unavailable"}
			}
			return Said{}
		}
	},

	// HTTP/2. Go 1.26.8 net/http and x/net v0.62.0 http2: StreamError, GoAwayError and
	// ConnectionError.
	http2Error,
}

// besides has the rows that add to an opinion: that the caller is throttled, or how long to wait.
// They are asked whatever table says.
var besides = [...]func(reflect.Type) reader{
	// ErrorCode() string among AWS's codes for throttling. smithy-go v1.28.9 GenericAPIError,
	// dynamodb v1.74.0 types.ProvisionedThroughputExceededException.
	func(t reflect.Type) reader {
		if !t.Implements(typeOf[interface{ ErrorCode() string }]()) {
			return nil
		}
		return func(err error) Said {
			return Said{Throttled: throttles[err.(interface{ ErrorCode() string }).ErrorCode()]}
		}
	},

	// A field Rate with Limit and Remaining int. go-github v88.0.0 RateLimitError, which the client
	// also makes itself, without a header, until the rate is reset.
	spentRate,

	// A field RetryAfter time.Duration or *time.Duration. slack v0.36.0 RateLimitedError,
	// go-github v88.0.0 AbuseRateLimitError. Alone it says that the rate is limited.
	func(t reflect.Type) reader {
		wait := fieldOf(t, typeOf[time.Duration](), "RetryAfter")
		if wait == nil {
			wait = fieldOf(t, typeOf[*time.Duration](), "RetryAfter")
		}
		if wait == nil {
			return nil
		}
		return func(err error) Said {
			d := reflect.Indirect(wait(reflect.ValueOf(err)))
			if !d.IsValid() || d.Int() <= 0 {
				return Said{}
			}
			return Said{Kind: "rate_limited", Wait: time.Duration(d.Int())}
		}
	},
}

// status returns what an HTTP status says. A status below 400 says nothing, because an error is
// never a success.
func status(code int, h http.Header) Said {
	if code < 400 || code > 599 {
		return Said{}
	}
	return Said{Status: code, Header: h}
}

func response(t reflect.Type) reader {
	var found []func(error) Said
	for _, f := range fieldsOf(t) {
		switch {
		case f.Type == typeOf[*http.Response]():
			found = append(found, func(err error) Said {
				r, _ := f.in(reflect.ValueOf(err)).Interface().(*http.Response)
				return status(r.StatusCode, r.Header) // a nil r panics, so it says nothing
			})
		case strings.HasSuffix(f.Name, "Response") && f.Type.Kind() == reflect.Pointer:
			if read := innerResponse(f); read != nil {
				found = append(found, read)
			}
		}
	}
	if found == nil {
		return nil
	}
	return func(err error) (s Said) {
		for _, read := range found {
			s = s.merge(ask(read, err))
		}
		return s
	}
}

// innerResponse returns a reader for the type that f points to: it reads an *http.Response in it,
// or a status with a header.
func innerResponse(f field) reader {
	inner := f.Type.Elem()
	var code, header field
	for _, g := range fieldsOf(inner) {
		switch {
		case g.Type == typeOf[*http.Response]():
			return func(err error) Said {
				r, _ := g.in(f.in(reflect.ValueOf(err))).Interface().(*http.Response)
				return status(r.StatusCode, r.Header)
			}
		case g.Name == "StatusCode" && g.Type == typeOf[int]():
			code = g
		case g.Name == "Header" && g.Type == typeOf[http.Header]():
			header = g
		}
	}
	if code.Type == nil || header.Type == nil {
		return nil
	}
	return func(err error) Said {
		r := f.in(reflect.ValueOf(err))
		h, _ := header.in(r).Interface().(http.Header)
		return status(int(code.in(r).Int()), h)
	}
}

func codeInCompany(t reflect.Type) reader {
	code, header := fieldOf(t, typeOf[int](), "Code"), fieldOf(t, typeOf[http.Header](), "Header")
	word := fieldOf(t, typeOf[string](), "Status")
	if code == nil || header == nil && word == nil {
		return nil
	}
	headers := headerOf(t)
	details := fieldOf(t, typeOf[[]map[string]any](), "Details")
	if details == nil {
		details = fieldOf(t, typeOf[[]any](), "Details")
	}
	return func(err error) Said {
		n := int(code(reflect.ValueOf(err)).Int())
		if header == nil && !fits(n, word(reflect.ValueOf(err)).String()) {
			return Said{}
		}
		s := status(n, headers(err))
		if s.Status != 0 && details != nil {
			try(func() { s.Wait = retryInfo(details(reflect.ValueOf(err)).Interface()) })
		}
		return s
	}
}

// fits reports whether word is what an answer with status code n has beside it: a name of
// google.rpc.Code, or a status line.
func fits(n int, word string) bool {
	if rpcNames[word] {
		return true
	}
	digits, _, _ := strings.Cut(word, " ")
	return len(digits) == 3 && n == int(digits[0]-'0')*100+int(digits[1]-'0')*10+int(digits[2]-'0')
}

// retryInfo returns the longest delay of a google.rpc.RetryInfo in details, as encoding/json
// decodes them.
func retryInfo(details any) (wait time.Duration) {
	read := func(d map[string]any) {
		if kind, _ := d["@type"].(string); strings.HasSuffix(kind, "google.rpc.RetryInfo") {
			text, _ := d["retryDelay"].(string)
			if delay, err := time.ParseDuration(text); err == nil {
				wait = max(wait, delay)
			}
		}
	}
	switch details := details.(type) {
	case []map[string]any:
		for _, d := range details {
			read(d)
		}
	case []any:
		for _, d := range details {
			if d, ok := d.(map[string]any); ok {
				read(d)
			}
		}
	}
	return wait
}

func spentRate(t reflect.Type) reader {
	for _, f := range fieldsOf(t) {
		if f.Name != "Rate" {
			continue
		}
		left, limit := fieldOf(f.Type, typeOf[int](), "Remaining"), fieldOf(f.Type, typeOf[int](), "Limit")
		if left == nil || limit == nil {
			continue
		}
		return func(err error) Said {
			rate := f.in(reflect.ValueOf(err))
			return Said{Throttled: left(rate).Int() == 0 && limit(rate).Int() > 0}
		}
	}
	return nil
}

func kubernetesStatus(t reflect.Type) reader {
	m, ok := t.MethodByName("Status")
	if !ok || !gives(m.Func, reflect.Struct) {
		return nil
	}
	said := m.Type.Out(0)
	code, ok := said.FieldByName("Code")
	reason, withReason := said.FieldByName("Reason")
	details, withDetails := said.FieldByName("Details")
	if !ok || code.Type.Kind() != reflect.Int32 || !withReason || reason.Type.Kind() != reflect.String ||
		!withDetails || details.Type.Kind() != reflect.Pointer || details.Type.Elem().Kind() != reflect.Struct {
		return nil
	}
	seconds, ok := details.Type.Elem().FieldByName("RetryAfterSeconds")
	if !ok || seconds.Type.Kind() != reflect.Int32 {
		return nil
	}
	return func(err error) Said {
		v := call(m.Func, err)
		s := status(int(v.FieldByIndex(code.Index).Int()), nil)
		if d := v.FieldByIndex(details.Index); s.Status != 0 && !d.IsNil() {
			s.Wait = time.Duration(d.Elem().FieldByIndex(seconds.Index).Int()) * time.Second
		}
		return s
	}
}

// enhanceYourCalm is the code of a server that is called too often: RFC 9113 section 7.
const enhanceYourCalm = 0xb

func http2Error(t reflect.Type) reader {
	said := func(code uint64) Said {
		if code == enhanceYourCalm {
			return Said{Kind: "rate_limited"}
		}
		return Said{Kind: "unavailable"}
	}
	if t.Kind() == reflect.Uint32 && strings.TrimPrefix(t.Name(), "http2") == "ConnectionError" &&
		(t.PkgPath() == "net/http" || strings.HasSuffix(t.PkgPath(), "/http2")) {
		return func(err error) Said { return said(reflect.ValueOf(err).Uint()) }
	}
	var stream, code, cause, last, errCode *field
	for _, f := range fieldsOf(t) {
		number := f.Type.Kind() == reflect.Uint32
		switch {
		case f.Name == "StreamID" && number:
			stream = &f
		case f.Name == "Code" && number:
			code = &f
		case f.Name == "Cause" && f.Type == typeOf[error]():
			cause = &f
		case f.Name == "LastStreamID" && number:
			last = &f
		case f.Name == "ErrCode" && number:
			errCode = &f
		}
	}
	switch {
	case stream != nil && code != nil && cause != nil:
		return func(err error) Said { return said(code.in(reflect.ValueOf(err)).Uint()) }
	case last != nil && errCode != nil:
		return func(err error) Said { return said(errCode.in(reflect.ValueOf(err)).Uint()) }
	}
	return nil
}
