package shape_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit/internal/shape"
)

// text is the Error method of every type here.
type text struct{}

func (text) Error() string { return "503 timeout: connection refused" } // which nobody reads

func answer(code int) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{"Retry-After": {"7"}}}
}

// Types of the shapes that are known.
type (
	withResponse struct {
		text
		Response *http.Response
	}
	rawResponse struct {
		text
		Raw *http.Response
	}
	response      struct{ *http.Response }
	innerResponse struct {
		text
		LastResponse *response
	}
	embedding   struct{ *innerResponse }
	ownResponse struct {
		StatusCode int
		Header     http.Header
	}
	stripe struct {
		text
		LastResponse *ownResponse
	}
	twoResponses struct {
		text
		First, Second *http.Response
	}
	statusMethod struct {
		text
		code   int
		Header http.Header
	}
	codeMethod  struct{ statusMethod }
	statusField struct {
		text
		StatusCode int
	}
	httpField struct {
		text
		HTTPStatusCode int
		Header         http.Header
	}
	inMidStream struct {
		text
		Response *http.Response
		word     word
	}
	word       string
	googleapis struct {
		text
		Code    int
		Header  http.Header
		Details []any
	}
	genai struct {
		text
		Code    int
		Status  string
		Details []map[string]any
	}
	rpcCode   uint32
	rpcStatus struct{ code rpcCode }
	grpc      struct {
		text
		status *rpcStatus
	}
	connect struct {
		text
		code rpcCode
		meta http.Header
	}
	details    struct{ RetryAfterSeconds int32 }
	kubeStatus struct {
		Code    int32
		Reason  word
		Details *details
	}
	kube struct {
		text
		ErrStatus kubeStatus
	}
	coded    string // ErrorCode
	stated   string // SQLState
	sqlField struct {
		text
		SQLState [5]byte
	}
	labelled map[string]bool
	rate     struct{ Limit, Remaining int }
	spent    struct {
		text
		Response *http.Response
		Rate     rate
	}
	streamError struct {
		text
		StreamID uint32
		Code     rpcCode
		Cause    error
	}
	goAway struct {
		text
		LastStreamID uint32
		ErrCode      rpcCode
		DebugData    string
	}
	waiting struct {
		text
		RetryAfter time.Duration
	}
	waitingMaybe struct {
		text
		Response   *http.Response
		RetryAfter *time.Duration
	}
)

func (e statusMethod) HTTPStatusCode() int         { return e.code }
func (e codeMethod) StatusCode() int               { return e.code }
func (e inMidStream) Type() word                   { return e.word }
func (s *rpcStatus) Code() rpcCode                 { return s.code }
func (e grpc) GRPCStatus() *rpcStatus              { return e.status }
func (e connect) Code() rpcCode                    { return e.code }
func (e connect) Meta() http.Header                { return e.meta }
func (e *kube) Status() kubeStatus                 { return e.ErrStatus }
func (e coded) ErrorCode() string                  { return string(e) }
func (e coded) Error() string                      { return "coded" }
func (e stated) SQLState() string                  { return string(e) }
func (e stated) Error() string                     { return "stated" }
func (e labelled) HasErrorLabel(label string) bool { return e[label] }
func (e labelled) Error() string                   { return "labelled" }

func retryInfo(delay string) map[string]any {
	return map[string]any{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
}

func TestOf(t *testing.T) {
	header := http.Header{"Retry-After": {"7"}}
	minute := time.Minute
	for name, row := range map[string]struct {
		err  error
		want shape.Said
	}{
		"response":                      {&withResponse{Response: answer(503)}, shape.Said{Status: 503, Header: header}},
		"response in a value":           {withResponse{Response: answer(404)}, shape.Said{Status: 404, Header: header}},
		"response by any name":          {&rawResponse{Raw: answer(429)}, shape.Said{Status: 429, Header: header}},
		"response one pointer away":     {&innerResponse{LastResponse: &response{answer(500)}}, shape.Said{Status: 500, Header: header}},
		"response promoted":             {&embedding{&innerResponse{LastResponse: &response{answer(500)}}}, shape.Said{Status: 500, Header: header}},
		"response with its own status":  {&stripe{LastResponse: &ownResponse{429, header}}, shape.Said{Status: 429, Header: header}},
		"second of two responses":       {&twoResponses{First: answer(302), Second: answer(502)}, shape.Said{Status: 502, Header: header}},
		"no response beside the second": {&twoResponses{Second: answer(502)}, shape.Said{Status: 502, Header: header}},
		"status method":                 {&statusMethod{code: 503, Header: header}, shape.Said{Status: 503, Header: header}},
		"status method without header":  {statusMethod{code: 400}, shape.Said{Status: 400}},
		"code method":                   {&codeMethod{statusMethod{code: 599}}, shape.Said{Status: 599}},
		"status field":                  {statusField{StatusCode: 404}, shape.Said{Status: 404}},
		"status field with header":      {&httpField{HTTPStatusCode: 429, Header: header}, shape.Said{Status: 429, Header: header}},
		"code beside a header":          {&googleapis{Code: 403, Header: header}, shape.Said{Status: 403, Header: header}},
		"code with RetryInfo":           {&googleapis{Code: 429, Details: []any{1, retryInfo("3s"), retryInfo("x")}}, shape.Said{Status: 429, Wait: 3 * time.Second}},
		"code beside an RPC's name":     {genai{Code: 429, Status: "RESOURCE_EXHAUSTED", Details: []map[string]any{{}, retryInfo("1.5s")}}, shape.Said{Status: 429, Wait: 1500 * time.Millisecond}},
		"code beside a status line":     {genai{Code: 503, Status: "503 Service Unavailable"}, shape.Said{Status: 503}},
		"status line of three digits":   {genai{Code: 429, Status: "429 Too Many Requests"}, shape.Said{Status: 429}},
		"gRPC, the last code":           {grpc{status: &rpcStatus{16}}, shape.Said{GRPC: 16}},
		"gRPC":                          {grpc{status: &rpcStatus{14}}, shape.Said{GRPC: 14}},
		"Connect":                       {&connect{code: 8, meta: header}, shape.Said{GRPC: 8, Header: header}},
		"Kubernetes":                    {&kube{ErrStatus: kubeStatus{Code: 404}}, shape.Said{Status: 404}},
		"Kubernetes with a wait":        {&kube{ErrStatus: kubeStatus{Code: 429, Details: &details{9}}}, shape.Said{Status: 429, Wait: 9 * time.Second}},
		"AWS throttles":                 {coded("ThrottlingException"), shape.Said{Throttled: true}},
		"model overloaded":              {inMidStream{word: "overloaded_error", Response: answer(200)}, shape.Said{Kind: "unavailable"}},
		"model limits":                  {inMidStream{word: "rate_limit_error"}, shape.Said{Kind: "rate_limited"}},
		"model with a status":           {inMidStream{word: "api_error", Response: answer(529)}, shape.Said{Status: 529, Header: header}},
		"SQLSTATE":                      {stated("08006"), shape.Said{Kind: "unavailable"}},
		"SQLSTATE in bytes":             {&sqlField{SQLState: [5]byte([]byte("40001"))}, shape.Said{Kind: "conflict"}},
		"network label":                 {labelled{"NetworkError": true}, shape.Said{Kind: "unavailable"}},
		"network label of an overload":  {labelled{"NetworkError": true, "SystemOverloadedError": true}, shape.Said{Kind: "unavailable"}},
		"label of time":                 {labelled{"ExceededTimeLimitError": true}, shape.Said{Kind: "timeout"}},
		"spent rate":                    {&spent{Response: answer(403), Rate: rate{Limit: 60}}, shape.Said{Status: 403, Header: header, Throttled: true}},
		"rate that is not spent":        {&spent{Response: answer(403), Rate: rate{60, 1}}, shape.Said{Status: 403, Header: header}},
		"overload label":                {labelled{"SystemOverloadedError": true, "RetryableWriteError": true}, shape.Said{Kind: "rate_limited"}},
		"HTTP/2 stream":                 {streamError{Code: 2}, shape.Said{Kind: "unavailable"}},
		"HTTP/2 stream, too much":       {&streamError{Code: 11}, shape.Said{Kind: "rate_limited"}},
		"HTTP/2 GOAWAY":                 {goAway{}, shape.Said{Kind: "unavailable"}},
		"HTTP/2 GOAWAY, too much":       {goAway{ErrCode: 11}, shape.Said{Kind: "rate_limited"}},
		"wait":                          {&waiting{RetryAfter: minute}, shape.Said{Kind: "rate_limited", Wait: minute}},
		"wait beside a status":          {waitingMaybe{Response: answer(403), RetryAfter: &minute}, shape.Said{Status: 403, Header: header, Wait: minute}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, row.want, shape.Of(row.err))
			require.Equal(t, row.want, shape.Of(row.err), "once more, now that the type is known")
		})
	}
}

// Types that are not what they seem.
type (
	exitError   struct{ text }
	innerStatus struct {
		text
		LastResponse *struct{ StatusCode int }
	}
	codeAlone struct {
		text
		Code int
	}
	codeAndText struct {
		text
		Code   int
		Status string
	}
	codeAndMap struct {
		text
		Code   int
		Header map[string]string
	}
	namedStatus  int
	statusOfKind struct {
		text
		StatusCode namedStatus
	}
	statusText struct {
		text
		StatusCode string
		HTTPStatus int
	}
	unexported struct {
		text
		response   *http.Response
		statusCode int
	}
	anyTyped struct {
		text
		Response   any
		StatusCode any
		RetryAfter any
	}
	byValue struct {
		text
		Response http.Response
	}
	request struct {
		text
		Request *http.Request
	}
	statusPair  struct{ text }
	statusParam struct{ text }
	statusBool  struct{ text }
	statusWord  struct{ text }
	grpcPair    struct{ text }
	grpcInt     struct{ text }
	intCode     struct{}
	uintAlone   struct{ text }
	typeInt     struct{ text }
	stateInt    struct{ text }
	panics      struct{ text }
	shortState  struct {
		text
		SQLState [4]byte
	}
	streamAlone struct {
		text
		StreamID, Code uint32
	}
	ConnectionError uint32
	rateOfApp       struct {
		text
		Rate struct{ Remaining int }
	}
	retryInt struct {
		text
		RetryAfter int
	}
	kubeLike struct {
		text
	}
	looseStatus struct{ Code int32 }
	otherInner  struct {
		text
		Response *codeAlone
	}
	numbers []int
)

func (exitError) ExitCode() int                 { return 137 }
func (statusPair) HTTPStatusCode() (int, bool)  { return 503, true }
func (statusParam) StatusCode(int) int          { return 503 }
func (statusBool) StatusCode() int32            { return 503 }
func (statusWord) Status() int                  { return 503 }
func (grpcPair) GRPCStatus() (*rpcStatus, bool) { return &rpcStatus{14}, false }
func (grpcInt) GRPCStatus() intCode             { return intCode{} }
func (intCode) Code() int                       { return 14 }
func (uintAlone) Code() uint32                  { return 14 }
func (typeInt) Type() int                       { return 529 }
func (stateInt) SQLState() int                  { return 8006 }
func (panics) HTTPStatusCode() int              { panic("status") }
func (panics) StatusCode() int                  { panic("status") }
func (panics) GRPCStatus() *rpcStatus           { panic("status") }
func (panics) Status() kubeStatus               { panic("status") }
func (panics) ErrorCode() string                { panic("code") }
func (panics) Type() string                     { panic("type") }
func (panics) SQLState() string                 { panic("state") }
func (panics) HasErrorLabel(string) bool        { panic("label") }
func (ConnectionError) Error() string           { return "connection" }
func (kubeLike) Status() looseStatus            { return looseStatus{503} }
func (numbers) Error() string                   { return "numbers" }

// A name alone proves nothing, and neither does a shape that is empty.
func TestFalseFriends(t *testing.T) {
	for name, err := range map[string]error{
		"text":                      errors.New("503 Service Unavailable"),
		"exit status":               exitError{},
		"code alone":                codeAlone{Code: 503},
		"code of gRPC beyond":       grpc{status: &rpcStatus{17}},
		"inner status alone":        innerStatus{LastResponse: &struct{ StatusCode int }{503}},
		"code beside any word":      codeAndText{Code: 503, Status: "open"},
		"code beside another line":  codeAndText{Code: 503, Status: "404 Not Found"},
		"code beside a longer one":  codeAndText{Code: 503, Status: "5030"},
		"code of FTP":               codeAndText{Code: 550, Status: ""},
		"code of JSON-RPC":          codeAndText{Code: -32603, Status: "INTERNAL"},
		"code that is no failure":   codeAndText{Code: 200, Status: "UNAVAILABLE"},
		"code beside another map":   codeAndMap{Code: 503},
		"status of another type":    statusOfKind{StatusCode: 503},
		"status of text":            statusText{StatusCode: "503", HTTPStatus: 503},
		"status of a process":       statusField{StatusCode: 137},
		"status of a redirect":      statusField{StatusCode: 302},
		"status beyond HTTP":        statusField{StatusCode: 5003},
		"unexported fields":         unexported{response: answer(503), statusCode: 503},
		"fields of type any":        anyTyped{Response: answer(503), StatusCode: 503, RetryAfter: time.Second},
		"response by value":         byValue{Response: *answer(503)},
		"response of a redirect":    withResponse{Response: answer(302)},
		"response of a success":     withResponse{Response: answer(200)},
		"no response":               withResponse{},
		"request's own cause":       request{Request: &http.Request{Response: answer(503)}},
		"nil pointer embedded":      embedding{},
		"nil pointer deeper":        embedding{&innerResponse{}},
		"nil pointers all the way":  &innerResponse{LastResponse: &response{}},
		"nil status":                &stripe{},
		"inner of another type":     otherInner{Response: &codeAlone{Code: 503}},
		"pair of results":           statusPair{},
		"method that wants more":    statusParam{},
		"method of another int":     statusBool{},
		"status as a number":        statusWord{},
		"gRPC with two results":     grpcPair{},
		"gRPC with another code":    grpcInt{},
		"gRPC OK":                   grpc{status: &rpcStatus{0}},
		"gRPC UNKNOWN":              grpc{status: &rpcStatus{2}},
		"gRPC beyond the list":      grpc{status: &rpcStatus{17}},
		"gRPC without status":       grpc{},
		"Connect UNKNOWN":           connect{code: 2},
		"number alone":              uintAlone{},
		"type that is a number":     typeInt{},
		"type of another meaning":   inMidStream{word: "about:blank"},
		"Kubernetes without reason": kubeLike{},
		"Kubernetes without code":   &kube{},
		"ErrorCode of an app":       coded("E42"),
		"SQLSTATE that is a word":   stated("open"),
		"SQLSTATE of five letters":  stated("ready"),
		"SQLSTATE of no class":      stated("ZZ000"),
		"SQLSTATE of success":       stated("00000"),
		"SQLSTATE that is a number": stateInt{},
		"SQLSTATE of four bytes":    shortState{SQLState: [4]byte([]byte("0800"))},
		"SQLSTATE of zeros":         &sqlField{},
		"no label":                  labelled{},
		"stream without a cause":    streamAlone{Code: 2},
		"ConnectionError of an app": ConnectionError(2),
		"wait in another unit":      retryInt{RetryAfter: 7},
		"wait of nothing":           waiting{},
		"negative wait":             waiting{RetryAfter: -1},
		"nil wait":                  waitingMaybe{},
		"rate of an app":            rateOfApp{},
		"rate that nobody set":      &spent{},
		"methods that panic":        panics{},
		"a slice":                   numbers{503},
	} {
		t.Run(name, func(t *testing.T) {
			said := shape.Of(err)
			said.Header = nil
			require.Equal(t, shape.Said{}, said)
		})
	}
}

func TestSQLState(t *testing.T) {
	for state, want := range map[string]string{
		"08001": "unavailable", "53300": "unavailable", "57P01": "unavailable", "58030": "unavailable", "XX000": "unavailable",
		"57014": "timeout", "40001": "conflict", "40P01": "conflict", "55P03": "conflict",
		"28P01": "unauthorized", "42501": "unauthorized",
		"22P02": "invalid", "23505": "invalid", "42601": "invalid", "0A000": "invalid",
		"55006": "", "57000": "", "HY000": "", "02000": "",
	} {
		require.Equal(t, want, shape.Of(stated(state)).Kind, state)
	}
}

// A panic of one method leaves what the others say.
func TestPanicsAloneSayNothing(t *testing.T) {
	require.Equal(t, shape.Said{Kind: "unavailable"}, shape.Of(halfPanics{SQLState: [5]byte([]byte("08006"))}))
}

type halfPanics struct {
	panics
	SQLState [5]byte
}

// What panics beside an opinion leaves the opinion: a header that an embedded nil pointer would
// have, or the metadata of a gRPC code.
func TestPanicBesideAnOpinion(t *testing.T) {
	require.Equal(t, shape.Said{Status: 503}, shape.Of(headless{StatusCode: 503}))
	require.Equal(t, shape.Said{GRPC: 14}, shape.Of(bareCode(14)))
}

type bareCode uint32

func (bareCode) Error() string     { return "bare" }
func (c bareCode) Code() bareCode  { return c }
func (bareCode) Meta() http.Header { panic("no metadata") }
func (bareCode) Details() []string { panic("no details") }

type headless struct {
	*Answer
	StatusCode int
}

type Answer struct{ Header http.Header }

func (headless) Error() string { return "headless" }
