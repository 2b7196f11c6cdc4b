// Package sdktest holds what real SDKs return against what toolcircuit.Classify makes of it. It is a
// module of its own so that the core does not require any of them.
//
// Each row is a type, an event on the wire, and the kind, effect and wait that come of it. Where a
// row says unknown, the reason stands beside it.
package sdktest

import (
	"context"
	"fmt"
	"go/token"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

type verdict = toolcircuit.Verdict

func counted(k toolcircuit.Kind) verdict { return verdict{Effect: toolcircuit.EffectCount, Kind: k} }
func ignored(k toolcircuit.Kind) verdict { return verdict{Kind: k} }

func waiting(v verdict, d time.Duration) verdict {
	v.RetryAfter = d
	return v
}

func paused(d time.Duration) verdict {
	return verdict{Effect: toolcircuit.EffectPause, Kind: toolcircuit.KindRateLimited, RetryAfter: d}
}

var (
	unavailable  = counted(toolcircuit.KindUnavailable)
	timeout      = counted(toolcircuit.KindTimeout)
	rateLimited  = counted(toolcircuit.KindRateLimited)
	unauthorized = ignored(toolcircuit.KindUnauthorized)
	invalid      = ignored(toolcircuit.KindInvalid)
	notFound     = ignored(toolcircuit.KindNotFound)
	conflict     = ignored(toolcircuit.KindConflict)
	canceled     = ignored(toolcircuit.KindCanceled)
	unknown      = ignored(toolcircuit.KindUnknown)
)

// row is one line of the table.
type row struct {
	typ   string // of an error in the tree, as %T prints it; an unknown without one has no type of the SDK's
	event string
	fail  func(t *testing.T) error
	want  verdict
	why   string // it is unknown
}

// check runs the rows of an SDK.
func check(t *testing.T, rows []row) {
	for _, r := range rows {
		name := r.event
		if r.typ != "" {
			name = r.typ + " " + name
		}
		t.Run(name, func(t *testing.T) {
			err := r.fail(t)
			require.Error(t, err)
			if r.typ != "" {
				require.Contains(t, types(err), r.typ)
			} else if r.want == unknown {
				require.Empty(t, foreign(err), "the SDK has a type for it")
			}
			require.Equal(t, r.want, toolcircuit.Classify(context.Background(), toolcircuit.Outcome{Err: err}), "%v\n%v", types(err), err)
			require.Equal(t, r.want == unknown, r.why != "", "an unknown has a reason")
		})
	}
}

// tree returns the errors in a tree.
func tree(err error) (all []error) {
	if err == nil {
		return nil
	}
	all = append(all, err)
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		all = append(all, tree(e.Unwrap())...)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			all = append(all, tree(err)...)
		}
	}
	return all
}

// types returns the types of the errors in a tree.
func types(err error) (all []string) {
	for _, err := range tree(err) {
		all = append(all, fmt.Sprintf("%T", err))
	}
	return all
}

// foreign returns those types that a package outside of the standard library exports.
func foreign(err error) (all []string) {
	for _, err := range tree(err) {
		t := reflect.TypeOf(err)
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if host, _, _ := strings.Cut(t.PkgPath(), "/"); strings.Contains(host, ".") && token.IsExported(t.Name()) {
			all = append(all, fmt.Sprintf("%T", err))
		}
	}
	return all
}

// client is an SDK's client of an HTTP API, which makes one request and never repeats it.
type client struct {
	typ  string // of its error for an answer
	call func(t *testing.T, url string, hc *http.Client) error
	body func(status int) string // of an answer, nil if that does not matter

	differ map[string]verdict // where a client's error says something else than what was answered
	why    map[string]string  // that is unknown
	skip   map[string]bool    // events that do not come to this client
}

// answers are what a server can answer a request with.
var answers = []struct {
	event  string
	status int
	header http.Header
	want   verdict
}{
	{"400", 400, nil, invalid},
	{"401", 401, nil, unauthorized},
	{"403", 403, nil, unauthorized},
	{"404", 404, nil, notFound},
	{"409", 409, nil, conflict},
	{"422", 422, nil, invalid},
	{"429", 429, nil, rateLimited},
	{"429 with Retry-After", 429, http.Header{"Retry-After": {"7"}}, paused(7 * time.Second)},
	{"500", 500, nil, unavailable},
	{"501", 501, nil, invalid},
	{"502", 502, nil, unavailable},
	{"503", 503, nil, unavailable},
	{"503 with Retry-After", 503, http.Header{"Retry-After": {"7"}}, waiting(unavailable, 7*time.Second)},
	{"504", 504, nil, timeout},
	{"529", 529, nil, unavailable},
}

// wires are what happens to a connection.
var wires = []struct {
	event string
	serve func(t *testing.T) (url string, hc *http.Client)
	want  verdict
}{
	{"connection refused", func(t *testing.T) (string, *http.Client) { return "http://" + closedPort(t), &http.Client{} }, unavailable},
	{"connection closed without an answer", func(t *testing.T) (string, *http.Client) { return hijacked(t, "", false), &http.Client{} }, unavailable},
	{"connection reset", func(t *testing.T) (string, *http.Client) { return hijacked(t, "", true), &http.Client{} }, unavailable},
	{"answer cut off", func(t *testing.T) (string, *http.Client) {
		return hijacked(t, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{\"a", false), &http.Client{}
	}, unavailable},
	{"HTTP/2 stream reset", func(t *testing.T) (string, *http.Client) {
		return http2Server(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	}, unavailable},
	{"client's time is over", func(t *testing.T) (string, *http.Client) {
		gone := make(chan struct{})
		url := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-gone })
		t.Cleanup(func() { close(gone) }) // before the server waits for its handlers
		return url, &http.Client{Timeout: 50 * time.Millisecond}
	}, timeout},
}

// checkClient runs every answer and every wire event against c.
func checkClient(t *testing.T, c client) {
	var rows []row
	add := func(typ, event string, want verdict, fail func(t *testing.T) error) {
		if c.skip[event] {
			return
		}
		if other, ok := c.differ[event]; ok {
			want = other
		}
		rows = append(rows, row{typ, event, fail, want, c.why[event]})
	}
	for _, a := range answers {
		add(c.typ, a.event, a.want, func(t *testing.T) error {
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				for key, values := range a.header {
					w.Header()[key] = values
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(a.status)
				if c.body != nil {
					_, _ = io.WriteString(w, c.body(a.status))
				}
			})
			return c.call(t, url, &http.Client{})
		})
	}
	for _, w := range wires {
		add("", w.event, w.want, func(t *testing.T) error {
			url, hc := w.serve(t)
			return c.call(t, url, hc)
		})
	}
	check(t, rows)
}

// serve starts a server that ends with the test.
func serve(t *testing.T, handler http.HandlerFunc) (url string) {
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL
}

func http2Server(t *testing.T, handler http.HandlerFunc) (url string, hc *http.Client) {
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL, s.Client()
}

// answered serves one status, header and body.
func answered(t *testing.T, status int, header http.Header, body string) (url string) {
	return serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for key, values := range header {
			w.Header()[key] = values
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

// hijacked serves raw bytes on each connection and closes it, with a reset if that is asked for.
func hijacked(t *testing.T, answer string, reset bool) (url string) {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, answer)
		if reset {
			_ = conn.(*net.TCPConn).SetLinger(0)
		}
		conn.Close()
	})
}

// closedPort returns an address where nobody listens.
func closedPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// tcp serves connections one after the other until the test ends.
func tcp(t *testing.T, serve func(net.Conn)) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return l.Addr().String()
}

// jsonError is the body of an API's error.
func jsonError(format string) func(int) string {
	return func(status int) string { return fmt.Sprintf(format, strconv.Itoa(status)) }
}
