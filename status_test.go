package toolcircuit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)
// A host name that does not exist is the caller's mistake.
func TestA001NameInArgument(t *testing.T) {
	err := get(dial(&net.DNSError{Err: "no such host", Name: "nowhere.invalid", IsNotFound: true}))
	require.Equal(t, notFound, verdictOn(err))
	require.False(t, toolcircuit.Retryable(err))
}

func TestHTTPStatus(t *testing.T) {
	unauthorized, conflict := ignored(toolcircuit.KindUnauthorized), ignored(toolcircuit.KindConflict)
	next := -1
	for _, row := range []struct {
		first, last int
		want        toolcircuit.Verdict
	}{
		{-1, 399, toolcircuit.Verdict{}},
		{400, 400, invalid},
		{401, 402, unauthorized},
		{403, 403, unauthorized},
		{404, 404, notFound},
		{405, 406, invalid},
		{407, 407, unauthorized},
		{408, 408, timeout},
		{409, 409, conflict},
		{410, 410, notFound},
		{411, 411, invalid},
		{412, 412, conflict},
		{413, 420, invalid},
		{421, 421, unavailable},
		{422, 422, invalid},
		{423, 423, unavailable},
		{424, 428, invalid},
		{429, 429, rateLimited},
		{430, 499, invalid},
		{500, 500, unavailable},
		{501, 501, invalid},
		{502, 503, unavailable},
		{504, 504, timeout},
		{505, 505, invalid},
		{506, 599, unavailable},
		{600, 1000, toolcircuit.Verdict{}},
	} {
		require.Equal(t, next, row.first, "no gap between the rows")
		next = row.last + 1

		wait := http.Header{"Retry-After": {"7"}}
		told := row.want
		if told.Effect == toolcircuit.EffectCount {
			told.RetryAfter = 7 * time.Second
		}
		if told.Kind == toolcircuit.KindRateLimited {
			told.Effect = toolcircuit.EffectPause
		}
		if row.first == 403 {
			told = paused(toolcircuit.KindRateLimited, 7*time.Second)
		}
		for code := row.first; code <= row.last; code++ {
			require.Equal(t, row.want, toolcircuit.HTTPStatus(code, nil), code)
			require.Equal(t, told, toolcircuit.HTTPStatus(code, wait), "%d with Retry-After", code)
		}
	}
}

func TestHTTPStatusRetryAfter(t *testing.T) {
	const (
		sent  = "Sun, 06 Nov 1994 08:49:37 GMT"
		later = "Sun, 06 Nov 1994 08:50:07 GMT"
	)
	type header = http.Header
	for name, row := range map[string]struct {
		header header
		want   time.Duration
	}{
		"none":                 {header{"Date": {sent}}, 0},
		"seconds":              {header{"Retry-After": {"120"}}, 2 * time.Minute},
		"leading zeros":        {header{"Retry-After": {"0007"}}, 7 * time.Second},
		"spaces around":        {header{"Retry-After": {" 7\t"}}, 7 * time.Second},
		"zero":                 {header{"Retry-After": {"0"}}, 0},
		"empty":                {header{"Retry-After": {""}}, 0},
		"negative":             {header{"Retry-After": {"-7"}}, 0},
		"sign":                 {header{"Retry-After": {"+7"}}, 0},
		"fraction":             {header{"Retry-After": {"1.5"}}, 0},
		"unit":                 {header{"Retry-After": {"7s"}}, 0},
		"list":                 {header{"Retry-After": {"7, 8"}}, 0},
		"other digits":         {header{"Retry-After": {"٣"}}, 0},
		"largest that fits":    {header{"Retry-After": {"9223372036"}}, 9223372036 * time.Second},
		"one more":             {header{"Retry-After": {"9223372037"}}, math.MaxInt64},
		"beyond 64 bits":       {header{"Retry-After": {"99999999999999999999"}}, math.MaxInt64},
		"beyond, then a word":  {header{"Retry-After": {"99999999999999999999x"}}, 0},
		"date":                 {header{"Retry-After": {later}, "Date": {sent}}, 30 * time.Second},
		"date as of RFC 850":   {header{"Retry-After": {"Sunday, 06-Nov-94 08:50:07 GMT"}, "Date": {sent}}, 30 * time.Second},
		"date as of asctime":   {header{"Retry-After": {"Sun Nov  6 08:50:07 1994"}, "Date": {sent}}, 30 * time.Second},
		"date of the same":     {header{"Retry-After": {sent}, "Date": {sent}}, 0},
		"date that has passed": {header{"Retry-After": {sent}, "Date": {later}}, 0},
		"date without Date":    {header{"Retry-After": {later}}, 0},
		"date with a bad Date": {header{"Retry-After": {later}, "Date": {"now"}}, 0},
		"date of another form": {header{"Retry-After": {"1994-11-06T08:50:07Z"}, "Date": {sent}}, 0},
		"far date":             {header{"Retry-After": {"Fri, 31 Dec 9999 23:59:59 GMT"}, "Date": {sent}}, math.MaxInt64},
		"longest of several":   {header{"Retry-After": {"7", "soon", "9", later, "-99"}, "Date": {sent}}, 30 * time.Second},
		"longest comes first":  {header{"Retry-After": {later, "9"}, "Date": {sent}}, 30 * time.Second},
		"keys in lower case":   {header{"retry-after": {later}, "date": {sent}}, 30 * time.Second},
		"keys in both":         {header{"retry-after": {"7"}, "Retry-After": {"9"}, "RETRY-AFTER": {"8"}}, 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, row.want, toolcircuit.HTTPStatus(503, row.header).RetryAfter)

			err := toolcircuit.CheckResponse(&http.Response{StatusCode: 503, Header: row.header})
			require.Equal(t, &toolcircuit.HTTPError{StatusCode: 503, RetryAfter: row.want}, err)
			require.Equal(t, after(unavailable, row.want), verdictOn(err))
		})
	}
}

// FuzzRetryAfter compares digits with a model in big integers; whatever else comes, the wait
// is never negative, and a verdict stays one that a circuit can obey.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"", "0", "7", "-7", "1e3", "9223372036", "9223372037", "18446744073709551616x", "Sun, 06 Nov 1994 08:49:37 GMT", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		f.Add(seed, "Sun, 06 Nov 1994 08:49:00 GMT")
		f.Add("5", seed)
	}
	f.Fuzz(func(t *testing.T, value, date string) {
		v := toolcircuit.HTTPStatus(429, http.Header{"Retry-After": {value}, "Date": {date}})
		require.Equal(t, toolcircuit.KindRateLimited, v.Kind)
		require.GreaterOrEqual(t, v.RetryAfter, time.Duration(0))
		require.Equal(t, v.RetryAfter > 0, v.Effect == toolcircuit.EffectPause)

		for _, c := range []byte(value) {
			if c < '0' || c > '9' {
				return
			}
		}
		want, valid := new(big.Int).SetString(value, 10)
		if !valid {
			want = new(big.Int) // the empty string
		}
		want.Mul(want, big.NewInt(int64(time.Second)))
		if limit := big.NewInt(math.MaxInt64); want.Cmp(limit) > 0 {
			want = limit
		}
		require.Equal(t, time.Duration(want.Int64()), v.RetryAfter)
	})
}

func TestGRPCCode(t *testing.T) {
	for code, want := range []toolcircuit.Verdict{
		0:  {}, // OK
		1:  canceled,
		2:  {}, // UNKNOWN
		3:  invalid,
		4:  timeout,
		5:  notFound,
		6:  ignored(toolcircuit.KindConflict),
		7:  ignored(toolcircuit.KindUnauthorized),
		8:  rateLimited,
		9:  invalid,
		10: ignored(toolcircuit.KindConflict),
		11: invalid,
		12: invalid,
		13: unavailable,
		14: unavailable,
		15: unavailable,
		16: ignored(toolcircuit.KindUnauthorized),
		17: {},
	} {
		require.Equal(t, want, toolcircuit.GRPCCode(uint32(code)), code)
	}
	require.Zero(t, toolcircuit.GRPCCode(math.MaxUint32))
}

func TestCheckResponse(t *testing.T) {
	require.PanicsWithValue(t, "toolcircuit: CheckResponse: resp is nil", func() { _ = toolcircuit.CheckResponse(nil) })

	body := io.NopCloser(errReader{})
	for _, code := range []int{0, 101, 200, 304, 399} {
		require.NoError(t, toolcircuit.CheckResponse(&http.Response{StatusCode: code, Body: body}))
	}
	for code, text := range map[int]string{
		400: "HTTP status 400 Bad Request",
		599: "HTTP status 599",
	} {
		err := toolcircuit.CheckResponse(&http.Response{StatusCode: code, Body: body})
		require.Equal(t, &toolcircuit.HTTPError{StatusCode: code}, err)
		require.EqualError(t, err, text)
	}
}

// errReader fails the process that reads it.
type errReader struct{}

func (errReader) Read([]byte) (int, error) { panic("the body is the caller's") }

// Errors as a socket really gives them.
func TestClassifySockets(t *testing.T) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	fetch := func(url string) error {
		resp, err := client.Get(url)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	raw := func(t *testing.T, serve func(*net.TCPConn)) (address string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		go func() {
			if conn, err := l.Accept(); err == nil {
				serve(conn.(*net.TCPConn))
				conn.Close()
			}
		}()
		return l.Addr().String()
	}
	readRequest := func(c *net.TCPConn) { _, _ = c.Read(make([]byte, 4096)) }
	quiet := func(s *httptest.Server, start func()) string {
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		start()
		return s.URL
	}

	for name, row := range map[string]struct {
		fail func(t *testing.T) error
		want toolcircuit.Verdict
	}{
		"port refused": {func(t *testing.T) error {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			require.NoError(t, l.Close())
			return fetch("http://" + l.Addr().String())
		}, unavailable},
		"connection reset": {func(t *testing.T) error {
			address := raw(t, func(c *net.TCPConn) {
				readRequest(c)
				_ = c.SetLinger(0)
			})
			conn, err := net.Dial("tcp", address)
			require.NoError(t, err)
			defer conn.Close()
			_, err = conn.Write([]byte("x"))
			require.NoError(t, err)
			_, err = conn.Read(make([]byte, 1))
			return err
		}, unavailable},
		"closed without an answer": {func(t *testing.T) error {
			return fetch("http://" + raw(t, readRequest))
		}, unavailable},
		"closed within the answer": {func(t *testing.T) error {
			return fetch("http://" + raw(t, func(c *net.TCPConn) {
				readRequest(c)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
			}))
		}, unavailable},
		"certificate of nobody": {func(t *testing.T) error {
			s := httptest.NewUnstartedServer(http.NotFoundHandler())
			defer s.Close()
			return fetch(quiet(s, s.StartTLS))
		}, unavailable},
		"no TLS at all": {func(t *testing.T) error {
			s := httptest.NewUnstartedServer(http.NotFoundHandler())
			defer s.Close()
			return fetch("https" + quiet(s, s.Start)[len("http"):])
		}, unavailable},
		"deadline of the socket": {func(t *testing.T) error {
			conn, err := net.Dial("tcp", raw(t, readRequest))
			require.NoError(t, err)
			defer conn.Close()
			require.NoError(t, conn.SetDeadline(time.Unix(1, 0)))
			_, err = conn.Read(make([]byte, 1))
			return err
		}, timeout},
		"deadline of the client": {func(t *testing.T) error {
			impatient := &http.Client{Transport: client.Transport, Timeout: time.Nanosecond}
			_, err := impatient.Get("http://127.0.0.1:1")
			return err
		}, timeout},
		"bad port": {func(t *testing.T) error {
			_, err := net.Dial("tcp", "127.0.0.1:99999")
			return err
		}, invalid},
		"bad network": {func(t *testing.T) error {
			_, err := net.Dial("tcq", "127.0.0.1:1")
			return err
		}, invalid},
		"dial cancelled elsewhere": {func(t *testing.T) error {
			gone, cancel := context.WithCancel(context.Background())
			cancel()
			_, err := new(net.Dialer).DialContext(gone, "tcp", "127.0.0.1:1")
			return err
		}, canceled},
	} {
		t.Run(name, func(t *testing.T) {
			err := row.fail(t)
			require.Error(t, err)
			require.Equal(t, row.want, verdictOn(err), "%#v", err)
		})
	}

	t.Run("caller gone, its cause returned", func(t *testing.T) {
		reason := errors.New("user closed the tab")
		ctx, cancel := context.WithCancelCause(context.Background())
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			cancel(reason)
			<-r.Context().Done()
		}))
		defer s.Close()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
		require.NoError(t, err)
		_, err = client.Do(req)
		require.ErrorIs(t, err, reason)
		require.Equal(t, unknown, verdictOn(err), "the error alone says nothing")
		require.Equal(t, canceled, toolcircuit.Classify(ctx, toolcircuit.Outcome{Err: err}))
	})
}

// The status of a response as an error that the default rules know.
func ExampleCheckResponse() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()

	search := func() error {
		resp, err := http.Get(server.URL)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return toolcircuit.CheckResponse(resp)
	}

	err := search()
	v := toolcircuit.Classify(context.Background(), toolcircuit.Outcome{Err: err})
	fmt.Println(err)
	fmt.Println(v.Effect, v.Kind, v.RetryAfter)
	// Output:
	// HTTP status 429 Too Many Requests
	// pause rate_limited 30s
}