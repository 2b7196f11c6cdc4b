package toolcircuit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

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

// served serves each connection and closes it.
func served(t *testing.T, serve func(*net.TCPConn)) (address string) {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(conn.(*net.TCPConn))
			conn.Close()
		}
	}()
	return l.Addr().String()
}

func readRequest(c *net.TCPConn) { _, _ = c.Read(make([]byte, 4096)) }

// scripted answers each request with what it is told.
func scripted(t *testing.T, answer string) (url string) {
	return "http://" + served(t, func(c *net.TCPConn) { readRequest(c); _, _ = io.WriteString(c, answer) })
}

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
			l := must(net.Listen("tcp", "127.0.0.1:0"))
			require.NoError(t, l.Close())
			return fetch("http://" + l.Addr().String())
		}, unavailable},
		"connection reset": {func(t *testing.T) error {
			conn := must(net.Dial("tcp", served(t, func(c *net.TCPConn) { readRequest(c); _ = c.SetLinger(0) })))
			defer conn.Close()
			must(conn.Write([]byte("x")))
			_, err := conn.Read(make([]byte, 1))
			return err
		}, unavailable},
		"closed without an answer": {func(t *testing.T) error { return fetch(scripted(t, "")) }, unavailable},
		"closed within the answer": {func(t *testing.T) error {
			return fetch(scripted(t, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"))
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
			conn := must(net.Dial("tcp", served(t, readRequest)))
			defer conn.Close()
			require.NoError(t, conn.SetDeadline(time.Unix(1, 0)))
			_, err := conn.Read(make([]byte, 1))
			return err
		}, timeout},
		"deadline of the client": {func(t *testing.T) error {
			_, err := (&http.Client{Transport: client.Transport, Timeout: time.Nanosecond}).Get("http://127.0.0.1:1")
			return err
		}, timeout},
		"bad port":    {func(t *testing.T) error { _, err := net.Dial("tcp", "127.0.0.1:99999"); return err }, invalid},
		"bad network": {func(t *testing.T) error { _, err := net.Dial("tcq", "127.0.0.1:1"); return err }, invalid},
		"dial cancelled elsewhere": {func(t *testing.T) error {
			_, err := new(net.Dialer).DialContext(endedContext(), "tcp", "127.0.0.1:1")
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
		_, err := client.Do(must(http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)))
		require.ErrorIs(t, err, reason)
		require.Equal(t, unknown, verdictOn(err), "the error alone says nothing")
		require.Equal(t, canceled, toolcircuit.Classify(ctx, toolcircuit.Outcome{Err: err}))
	})
}

// An ordinary https API speaks HTTP/2, and none of its failures is a *net.OpError.
func TestHTTP2(t *testing.T) {
	abort := http.ErrAbortHandler
	for name, handler := range map[string]http.HandlerFunc{
		"before the headers": func(http.ResponseWriter, *http.Request) { panic(abort) },
		"after the headers": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			panic(abort)
		},
		"in the body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			_, _ = io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			panic(abort)
		},
	} {
		t.Run(name, func(t *testing.T) {
			reached := 0
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				reached++
				require.Equal(t, 2, r.ProtoMajor)
				handler(w, r)
			}))
			s.EnableHTTP2 = true
			s.StartTLS()
			defer s.Close()

			circuit := toolcircuit.MustNew("api", toolcircuit.Options{Policy: toolcircuit.Policy{FailureThreshold: 3}})
			for range 10 {
				_, err := toolcircuit.Do(context.Background(), circuit, func(context.Context) (int64, error) {
					resp, err := s.Client().Get(s.URL)
					if err != nil {
						return 0, err
					}
					defer resp.Body.Close()
					return io.Copy(io.Discard, resp.Body)
				})
				require.Error(t, err)
			}
			require.Equal(t, 3, reached)
			require.Equal(t, toolcircuit.KindUnavailable, circuit.Snapshot().Cause)
			require.Zero(t, circuit.Snapshot().Unclassified)
		})
	}
}

// Errors of the standard library that have a number, a text or a request in them, and say nothing
// about a dependency.
func TestFalseFriends(t *testing.T) {
	redirected := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return errOpaque }}
	loop := httptest.NewServer(http.RedirectHandler("/", http.StatusFound))
	defer loop.Close()
	for name, fail := range map[string]func() error{
		"reply of a mail server": func() error { return &textproto.Error{Code: 550, Msg: "no such user"} },
		"exit status":            func() error { return exec.Command("sh", "-c", "exit 137").Run() },
		"no such program":        func() error { return exec.Command("no-such-program").Run() },
		"number that is none": func() error {
			_, err := strconv.Atoi("503")
			_, err2 := strconv.Atoi("x")
			return errors.Join(err, err2)
		},
		"JSON of the wrong type": func() error { return json.Unmarshal([]byte(`{"code":503}`), new(int)) },
		"file that is not there": func() error { _, err := os.Open("no-such-file"); return err },
		"URL that is none":       func() error { _, err := url.Parse(strings.Repeat("%", 3)); return err },
		"header that is none": func() error {
			_, err := new(http.Client).Do(&http.Request{URL: &url.URL{Scheme: "http", Host: "dep"}, Header: http.Header{"a b": {"x"}}})
			return err
		},
		"redirect refused":         func() error { _, err := redirected.Get(loop.URL); return err },
		"redirects without an end": func() error { _, err := http.Get(loop.URL); return err },
		"cause of an inner context": func() error {
			ctx, cancel := context.WithCancelCause(context.Background())
			cancel(errors.New("503 Service Unavailable"))
			_, err := http.DefaultClient.Do(must(http.NewRequestWithContext(ctx, http.MethodGet, loop.URL, nil)))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := fail()
			require.Error(t, err)
			require.Equal(t, unknown, verdictOn(err), "%#v", err)
		})
	}
}

// roundTripper is a base of which nothing is known.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// What net/http has no type for is told where it happens.
func TestTransport(t *testing.T) {
	proxied := func(t *testing.T) *http.Transport {
		proxy := must(url.Parse(scripted(t, "HTTP/1.1 503 Service Unavailable\r\n\r\n")))
		return &http.Transport{Proxy: http.ProxyURL(proxy)}
	}
	for name, row := range map[string]struct {
		answer string
		base   func(*testing.T) *http.Transport
		url    string
		want   toolcircuit.Verdict
	}{
		"malformed response": {answer: "what?\r\n\r\n", want: unavailable},
		"malformed header":   {answer: "HTTP/1.1 200 OK\r\nno colon\r\n\r\n", want: unavailable},
		"bad length":         {answer: "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", want: unavailable},
		"bad chunk":          {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", want: unavailable},
		"bad gzip":           {answer: "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 10\r\n\r\n0123456789", want: unavailable},
		"proxy refuses":      {base: proxied, url: "https://dep.invalid/", want: unavailable},
		"unknown scheme":     {url: "htp://dep.invalid/", want: unknown},
		"no host":            {url: "http:///", want: unknown},
	} {
		t.Run(name, func(t *testing.T) {
			base := &http.Transport{}
			if row.base != nil {
				base = row.base(t)
			}
			if row.url == "" {
				row.url = scripted(t, row.answer)
			}
			get := func(rt http.RoundTripper) error {
				resp, err := (&http.Client{Transport: rt}).Get(row.url)
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				_, err = io.Copy(io.Discard, resp.Body)
				return err
			}
			plain := get(base)
			require.Error(t, plain)
			require.Equal(t, unknown, verdictOn(plain), "without Transport")
			err := get(toolcircuit.Transport(base))
			require.Equal(t, row.want, verdictOn(err))
			require.EqualError(t, err, plain.Error(), "the text stays")
		})
	}
}

// A round trip is broken by what no rule knows, in a living request.
func TestTransportRoundTrip(t *testing.T) {
	gone, cancel := context.WithCancelCause(context.Background())
	cancel(errOpaque)
	notFound := &net.DNSError{IsNotFound: true}
	for name, row := range map[string]struct {
		ctx  context.Context
		err  error
		want toolcircuit.Verdict
		same bool
	}{
		"unknown":                {context.Background(), errOpaque, unavailable, false},
		"known":                  {context.Background(), lateErr{true}, timeout, true},
		"no such host":           {context.Background(), notFound, ignored(toolcircuit.KindNotFound), true},
		"cancelled inside":       {context.Background(), context.Canceled, canceled, true},
		"refused by a circuit":   {context.Background(), toolcircuit.ErrCircuitOpen, rejected, true},
		"cause of the request's": {gone, errOpaque, unknown, true},
	} {
		t.Run(name, func(t *testing.T) {
			rt := toolcircuit.Transport(roundTripper(func(*http.Request) (*http.Response, error) { return nil, row.err }))
			_, err := rt.RoundTrip(must(http.NewRequestWithContext(row.ctx, http.MethodGet, "http://dep/", nil)))
			require.ErrorIs(t, err, row.err)
			require.Equal(t, row.want, verdictOn(err))
			require.Equal(t, row.same, err == row.err)
			require.EqualError(t, err, row.err.Error())
		})
	}
}

// brokenBody gives its bytes and then its error.
type brokenBody struct {
	text string
	err  error
}

func (b *brokenBody) Read(p []byte) (n int, err error) {
	n = copy(p, b.text)
	b.text = b.text[n:]
	if b.text == "" {
		err = b.err
	}
	return n, err
}

func (b *brokenBody) Close() error { return errOpaque }

func TestTransportBody(t *testing.T) {
	send := func(ctx context.Context, code int, body io.ReadCloser) *http.Response {
		rt := toolcircuit.Transport(roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: code, Body: body}, nil
		}))
		return must(rt.RoundTrip(must(http.NewRequestWithContext(ctx, http.MethodGet, "http://dep/", nil))))
	}
	lost := errors.New("http2: client connection lost")

	resp := send(t.Context(), 200, &brokenBody{"half", lost})
	got, err := io.ReadAll(resp.Body)
	require.Equal(t, "half", string(got))
	require.ErrorIs(t, err, lost)
	require.Equal(t, unavailable, verdictOn(err))
	require.Equal(t, errOpaque, resp.Body.Close(), "the body's own")
	_, err = resp.Body.Read(nil)
	require.Same(t, lost, err, "read after the caller has closed it")

	resp = send(t.Context(), 200, &brokenBody{"all", io.EOF})
	require.Equal(t, "all", string(must(io.ReadAll(resp.Body))))

	resp = send(t.Context(), 200, &brokenBody{"", io.ErrUnexpectedEOF})
	_, err = resp.Body.Read(make([]byte, 1))
	require.True(t, err == io.ErrUnexpectedEOF, "what is known stays comparable")

	ctx, cancel := context.WithCancel(context.Background())
	resp = send(ctx, 200, &brokenBody{"", lost})
	cancel()
	_, err = resp.Body.Read(make([]byte, 1))
	require.Same(t, lost, err, "the caller has gone")

	raw := &brokenBody{"", lost}
	resp = send(t.Context(), http.StatusSwitchingProtocols, raw)
	require.Same(t, raw, resp.Body, "which can be written to")

	closed := false
	base := struct {
		roundTripper
		closer
	}{closer: func() { closed = true }}
	(&http.Client{Transport: toolcircuit.Transport(base)}).CloseIdleConnections()
	require.True(t, closed)
	(&http.Client{Transport: toolcircuit.Transport(roundTripper(nil))}).CloseIdleConnections()
}

type closer func()

func (f closer) CloseIdleConnections() { f() }

// GitHub says so with 403, and gives the time as a date.
func TestHTTPStatusSpentRate(t *testing.T) {
	date := time.Date(2026, 11, 29, 14, 0, 0, 0, time.UTC)
	reset := strconv.FormatInt(date.Add(90*time.Second).Unix(), 10)
	header := func(pairs ...string) http.Header {
		h := http.Header{"Date": {date.Format(http.TimeFormat)}}
		for i := 0; i < len(pairs); i += 2 {
			h[pairs[i]] = []string{pairs[i+1]}
		}
		return h
	}
	limit := func(d time.Duration) toolcircuit.Verdict { return paused(toolcircuit.KindRateLimited, d) }
	for name, row := range map[string]struct {
		code   int
		header http.Header
		want   toolcircuit.Verdict
	}{
		"spent, with the time":         {403, header("X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", reset), limit(90 * time.Second)},
		"spelled another way":          {403, header("x-ratelimit-remaining", "0", "x-ratelimit-reset", reset), limit(90 * time.Second)},
		"the longer of two waits":      {403, header("X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", reset, "Retry-After", "100"), limit(100 * time.Second)},
		"spent, no time":               {403, header("X-Ratelimit-Remaining", "0"), rateLimited},
		"spent, time in seconds":       {403, header("X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "90"), rateLimited},
		"spent, no Date":               {403, http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {reset}}, rateLimited},
		"not spent":                    {403, header("X-Ratelimit-Remaining", "1", "X-Ratelimit-Reset", reset), ignored(toolcircuit.KindUnauthorized)},
		"told when":                    {403, header("Retry-After", "7"), limit(7 * time.Second)},
		"too many requests, spent":     {429, header("X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", reset), limit(90 * time.Second)},
		"too many requests, not spent": {429, header("X-Ratelimit-Remaining", "1", "X-Ratelimit-Reset", reset), rateLimited},
		"another status":               {503, header("X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", reset), unavailable},
		"milliseconds":                 {429, header("Retry-After-Ms", "1500"), limit(1500 * time.Millisecond)},
		"milliseconds, as of Azure":    {503, header("X-Ms-Retry-After-Ms", "20"), after(unavailable, 20*time.Millisecond)},
		"seconds beside milliseconds":  {429, header("Retry-After", "1", "retry-after-ms", "1500"), limit(1500 * time.Millisecond)},
		"milliseconds that are none":   {429, header("Retry-After-Ms", "1.5s"), rateLimited},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, row.want, toolcircuit.HTTPStatus(row.code, row.header))
			err := toolcircuit.CheckResponse(&http.Response{StatusCode: row.code, Header: row.header})
			if row.want.RetryAfter > 0 {
				require.Equal(t, row.want, verdictOn(err))
			}
		})
	}
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

// Behind Transport, an error of net/http without a type counts.
func ExampleTransport() {
	client := &http.Client{Transport: toolcircuit.Transport(http.DefaultTransport)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, _ := w.(http.Hijacker).Hijack()
		io.WriteString(conn, "HTTP/1.1 what\r\n\r\n") // a malformed response
		conn.Close()
	}))
	defer server.Close()
	_, err := client.Get(server.URL)
	fmt.Println(toolcircuit.Classify(context.Background(), toolcircuit.Outcome{Err: err}).Kind)
	// Output: unavailable
}

// What the caller's own body does wrong is not the server's fault.
func TestTransportAndTheCallersBody(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }))
	defer server.Close()
	client := &http.Client{Transport: toolcircuit.Transport(nil)}
	for name, tt := range map[string]struct {
		body   io.Reader
		length int64
	}{
		"fails":     {io.MultiReader(strings.NewReader("a"), iotest.ErrReader(errors.New("my file broke"))), 0},
		"too short": {strings.NewReader("abc"), 10},
		"too long":  {strings.NewReader("abcdef"), 3},
	} {
		t.Run(name, func(t *testing.T) {
			req := must(http.NewRequest(http.MethodPost, server.URL, io.NopCloser(tt.body)))
			req.ContentLength = tt.length
			_, err := client.Do(req)
			require.Error(t, err)
			require.Equal(t, ignored(toolcircuit.KindUnknown), toolcircuit.Classify(t.Context(), toolcircuit.Outcome{Err: err}), err)
		})
	}
	resp := must(client.Post(server.URL, "text/plain", strings.NewReader("abc")))
	require.NoError(t, resp.Body.Close())
	client.CloseIdleConnections()

	// What breaks while a sound body is half sent, the server has broken.
	broken := toolcircuit.Transport(roundTripper(func(r *http.Request) (*http.Response, error) {
		_, _ = r.Body.Read(make([]byte, 1))
		return nil, errOpaque
	}))
	_, err := broken.RoundTrip(must(http.NewRequest(http.MethodPost, "http://dep/", strings.NewReader("abc"))))
	require.Equal(t, unavailable, verdictOn(err))
}

// A response that http.Client mends or refuses by itself passes through, as a RoundTripper of a
// test may return it.
func TestTransportWithoutBody(t *testing.T) {
	for name, resp := range map[string]*http.Response{"no body": {StatusCode: 503}, "no response": nil} {
		t.Run(name, func(t *testing.T) {
			client := http.Client{Transport: toolcircuit.Transport(roundTripper(func(*http.Request) (*http.Response, error) { return resp, nil }))}
			got, err := client.Get("http://dep/")
			require.Equal(t, resp == nil, err != nil)
			if err == nil {
				text, err := io.ReadAll(got.Body)
				require.NoError(t, err)
				require.Empty(t, text)
				require.NoError(t, got.Body.Close())
			}
		})
	}
}

// The error of a response says what HTTPStatus says, also of a spent rate without a time.
func TestCheckResponseSpentRate(t *testing.T) {
	for _, left := range []string{"0", " 0\t", "1"} {
		h := http.Header{"X-Ratelimit-Remaining": {left}}
		want := rateLimited
		if left == "1" {
			want = ignored(toolcircuit.KindUnauthorized)
		}
		require.Equal(t, want, toolcircuit.HTTPStatus(403, h), left)
		require.Equal(t, want, verdictOn(toolcircuit.CheckResponse(&http.Response{StatusCode: 403, Header: h})), left)
	}
}

// A Date that no clock has yet is later than any reset of a rate.
func TestSpentRateOfAFarDate(t *testing.T) {
	h := http.Header{"Date": {"Fri, 31 Dec 9999 23:59:59 GMT"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"1800000000"}}
	require.Equal(t, rateLimited, toolcircuit.HTTPStatus(403, h))
}
