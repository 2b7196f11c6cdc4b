package mcpcircuit_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/mcpcircuit"
)

// host is an HTTP server that can be killed and started again at the same address. It is not
// httptest's, whose Close waits for the stream that a session keeps open.
type host struct {
	*testing.T
	addr string
	mu   sync.Mutex
	http *http.Server
	// before, if set, answers requests in the server's place where it returns true.
	before atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

func newHost(t *testing.T) *host {
	h := &host{T: t, addr: "127.0.0.1:0"}
	t.Cleanup(h.kill)
	return h
}

func (h *host) start(s *mcp.Server, o *mcp.StreamableHTTPOptions) {
	h.Helper()
	l, err := net.Listen("tcp", h.addr)
	require.NoError(h, err)
	h.addr = l.Addr().String()
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, o)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.http = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if before := h.before.Load(); before != nil && (*before)(w, req) {
			return
		}
		handler.ServeHTTP(w, req)
	})}
	go h.http.Serve(l)
}

func (h *host) kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.http != nil {
		h.http.Close()
	}
}

func (h *host) intercept(f func(http.ResponseWriter, *http.Request) bool) {
	if f == nil {
		h.before.Store(nil)
	} else {
		h.before.Store(&f)
	}
}

// answering intercepts what a client posts with a status.
func (h *host) answering(status int, header ...string) {
	h.intercept(func(w http.ResponseWriter, req *http.Request) bool {
		if req.Method != http.MethodPost {
			return false
		}
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		http.Error(w, "no", status)
		return true
	})
}

func (h *host) dial(ctx context.Context, c *mcp.Client, version string) (*mcp.ClientSession, error) {
	pool := &http.Transport{}
	h.Cleanup(pool.CloseIdleConnections)
	return c.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint:             "http://" + h.addr,
		HTTPClient:           &http.Client{Transport: mcpcircuit.Transport(pool)},
		DisableStandaloneSSE: true,
	}, &mcp.ClientSessionOptions{ProtocolVersion: version})
}

func (h *host) connect(c *mcp.Client, version string) *mcp.ClientSession {
	h.Helper()
	session, err := h.dial(context.Background(), c, version)
	require.NoError(h, err)
	h.Cleanup(func() {
		h.kill()
		session.Close()
	})
	return session
}

// A 429 that says when to come back opens the circuit for just that long, at once and for every
// tool of the server.
func TestRetryAfter(t *testing.T) {
	r, h := newRig(t, everything, nil), newHost(t)
	s, _ := newServer("web", "search", "fetch")
	pings := counted(s)
	h.start(s, nil)
	session := h.connect(r.client(mcpcircuit.Options{}), legacy)
	h.answering(http.StatusTooManyRequests, "Retry-After", "42")
	lost(t, session, "search")
	got := blocked(t, session, "fetch")
	require.EqualValues(t, 42_000, got.RetryAfterMS)
	require.Equal(t, toolcircuit.RulePause, got.Rule)

	r.add(42 * time.Second)
	h.answering(http.StatusServiceUnavailable, "Retry-After", "100")
	require.EqualValues(t, 100_000, blocked(t, session, "fetch").RetryAfterMS, "a probe may be told to wait, too")
	h.intercept(nil)
	r.add(100 * time.Second)
	healthy(t, session, "fetch")
	require.EqualValues(t, 1, pings.Load())
}

// Connecting is no method call, but what it sends passes the guard: an outer circuit can judge it
// by code as well.
func TestConnectJudgedByCode(t *testing.T) {
	r, h := newRig(t, everything, nil), newHost(t)
	s, _ := newServer("web")
	h.start(s, nil)
	dial := toolcircuit.MustNew("web-dial", toolcircuit.Options{Clock: r.clock})
	connect := func() error {
		_, err := toolcircuit.Do(context.Background(), dial, func(ctx context.Context) (*mcp.ClientSession, error) {
			return h.dial(ctx, r.client(mcpcircuit.Options{}), "")
		})
		return err
	}
	h.answering(http.StatusServiceUnavailable)
	err := connect()
	var status *toolcircuit.HTTPError
	require.ErrorAs(t, err, &status)
	require.Equal(t, 503, status.StatusCode)
	require.Equal(t, 1, dial.Snapshot().Streak)
	h.answering(http.StatusTooManyRequests, "Retry-After", "42")
	require.Error(t, connect())
	require.ErrorIs(t, connect(), toolcircuit.ErrCircuitOpen)
	require.Equal(t, toolcircuit.RulePause, dial.Snapshot().Rule)
}

// A RoundTripper's own errors have no type, as some of net/http's: there was no response, so the
// server was not reached, unless the RoundTripper says that this means nothing.
func TestNoResponse(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{errors.New("http: server closed idle connection"), 1},
		{toolcircuit.Benign(errors.New("no token")), 0},
	} {
		r, h := newRig(t, everything, nil), newHost(t)
		s, _ := newServer("web", "search")
		h.start(s, nil)
		var failing atomic.Bool
		session, err := r.client(mcpcircuit.Options{}).Connect(context.Background(), &mcp.StreamableClientTransport{
			Endpoint:             "http://" + h.addr,
			DisableStandaloneSSE: true,
			HTTPClient: &http.Client{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
				if failing.Load() {
					return nil, tt.err
				}
				return http.DefaultTransport.RoundTrip(req)
			})},
		}, nil)
		require.NoError(t, err)
		failing.Store(true)
		lost(t, session, "search")
		require.Equal(t, tt.want, r.snapshot("mcp:web").Streak)
		failing.Store(false)
		session.Close()
		h.kill()
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A response that breaks off before the answer comes to the SDK's caller as an error of no type.
func TestResponseThatBreaksOff(t *testing.T) {
	r, h := newRig(t, everything, nil), newHost(t)
	s, _ := newServer("web", "search")
	h.start(s, nil)
	session := h.connect(r.client(mcpcircuit.Options{}), legacy)
	h.intercept(func(w http.ResponseWriter, req *http.Request) bool {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	lost(t, session, "search")
	require.Equal(t, []toolcircuit.Kind{"unavailable"}, r.kinds("mcp:web"))
	require.Zero(t, r.snapshot("search").Streak, "not the tool's failure")
}

// A page of a proxy that says 200 is no answer of the server.
func TestResponseThatIsNotMCP(t *testing.T) {
	for _, content := range []string{"text/html", "application/json"} {
		r, h := newRig(t, everything, nil), newHost(t)
		s, _ := newServer("web", "search")
		h.start(s, nil)
		session := h.connect(r.client(mcpcircuit.Options{}), legacy)
		h.intercept(func(w http.ResponseWriter, req *http.Request) bool {
			w.Header().Set("Content-Type", content)
			_, _ = w.Write([]byte("<html>"))
			return true
		})
		lost(t, session, "search")
		require.Equal(t, []toolcircuit.Kind{"unavailable"}, r.kinds("mcp:web"))
		require.Zero(t, r.snapshot("search").Streak)
	}
}

// Any answer to the ping heals, an error too: the newest version of the protocol has no ping.
func TestPingAnsweredWithAnError(t *testing.T) {
	r, h := newRig(t, everything, nil), newHost(t)
	o := &mcp.StreamableHTTPOptions{Stateless: true}
	s, _ := newServer("web", "search")
	h.start(s, o)
	session := h.connect(r.client(mcpcircuit.Options{}), "")
	require.Error(t, session.Ping(context.Background(), nil))
	h.kill()
	for range 3 {
		lost(t, session, "search")
	}
	blocked(t, session, "search")
	h.start(s, o)
	r.add(time.Minute)
	healthy(t, session, "search")
}

// Who forgets Transport still has a circuit: what the SDK could not deliver is unavailable.
func TestWithoutTransport(t *testing.T) {
	r, h := newRig(t, everything, nil), newHost(t)
	s, _ := newServer("web", "search")
	h.start(s, nil)
	pool := &http.Transport{}
	defer pool.CloseIdleConnections()
	session, err := r.client(mcpcircuit.Options{}).Connect(context.Background(), &mcp.StreamableClientTransport{
		Endpoint: "http://" + h.addr, HTTPClient: &http.Client{Transport: pool}, DisableStandaloneSSE: true,
	}, &mcp.ClientSessionOptions{ProtocolVersion: legacy})
	require.NoError(t, err)
	h.answering(http.StatusServiceUnavailable)
	for range 3 {
		lost(t, session, "search")
	}
	require.Equal(t, toolcircuit.KindUnavailable, blocked(t, session, "search").Cause)
	h.intercept(nil)
	r.add(time.Minute)
	healthy(t, session, "search")
	h.kill()
	session.Close()
}
