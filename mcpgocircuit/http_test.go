package mcpgocircuit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/mcpgocircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// host is where a server may run that can be killed and started again. The client's side has
// one address for it.
type host struct {
	*testing.T
	running *httptest.Server
	address atomic.Value // of running, or of the last that ran
	trouble atomic.Value // a http.HandlerFunc that answers calls of tools in the server's place
	serve   http.HandlerFunc

	refusePing atomic.Int64 // with this status, unless it is 0
}

func (h *host) start(s *server.MCPServer) {
	streamable := server.NewStreamableHTTPServer(s, server.WithStateful(true))
	h.serve = streamable.ServeHTTP
	h.running = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if status := h.refusePing.Load(); status != 0 && strings.Contains(string(body), `"method":"ping"`) {
			w.WriteHeader(int(status))
			return
		}
		trouble, _ := h.trouble.Load().(http.HandlerFunc)
		if trouble != nil && strings.Contains(string(body), `"method":"tools/call"`) {
			trouble(w, r)
			return
		}
		streamable.ServeHTTP(w, r)
	}))
	h.address.Store(h.running.Listener.Addr().String())
}

// kill ends the server and what is under way there. Close alone would wait for open streams.
func (h *host) kill() {
	h.running.CloseClientConnections()
	h.running.Close()
}

// connect returns a client of the host, with mcpgocircuit.Transport unless plain. Each request
// has a connection of its own, for what becomes of an idle one when a server dies is chance.
func (h *host) connect(version string, plain bool) (*client.Client, error) {
	c, err := client.NewStreamableHttpClient("http://localhost/mcp", transport.WithHTTPBasicClient(h.httpClient(plain)))
	if err != nil {
		return nil, err
	}
	h.Cleanup(func() { c.Close() })
	return c, start(h.Context(), c, version)
}

func (h *host) httpClient(plain bool) *http.Client {
	var base http.RoundTripper = &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, h.address.Load().(string))
		},
	}
	if !plain {
		base = mcpgocircuit.Transport(base)
	}
	return &http.Client{Transport: base}
}

func (h *host) dial(version string, plain bool) *client.Client {
	h.Helper()
	c, err := h.connect(version, plain)
	require.NoError(h, err)
	return c
}

// newHost returns a host on which a server runs.
func newHost(t *testing.T, s *server.MCPServer) *host {
	h := &host{T: t}
	h.start(s)
	t.Cleanup(func() { h.kill() })
	return h
}

var versions = []string{mcp.LATEST_PROTOCOL_VERSION, mcp.LATEST_LEGACY_PROTOCOL_VERSION}

// conn returns a guarded connection with the host, and counts how many sessions there have been.
func (h *host) conn(set *toolset.Set, version string) (*mcpgocircuit.HTTP, *client.Client, *atomic.Int64) {
	h.Helper()
	n := new(atomic.Int64)
	guard := mcpgocircuit.New(set, mcpgocircuit.Options{})
	h.Cleanup(guard.Close)
	conn := guard.HTTP("web", func() (transport.Interface, error) {
		n.Add(1)
		return transport.NewStreamableHTTP("http://localhost/mcp", transport.WithHTTPBasicClient(h.httpClient(false)))
	})
	c := client.NewClient(conn)
	h.Cleanup(func() { c.Close() })
	require.NoError(h, start(h.Context(), c, version))
	return conn, c, n
}

// openabdev/openab#969: the session dies with the server, and the call after the cooldown has another.
func TestA047ServerDiesAndComesBack(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			r := newRig(t, "", toolset.Options{})
			h := newHost(t, newServer(t, nil, tools{"search": returns(fine, nil)}))
			conn, c, sessions := h.conn(r.Set, version)
			call := conn.Guard(c.CallTool)
			_, err := call(t.Context(), request("search"))
			require.NoError(t, err)

			h.kill()
			for range 3 {
				_, err = call(t.Context(), request("search"))
				require.Error(t, err)
			}
			res, err := call(t.Context(), request("search"))
			blocked := requireBlocked(t, res, err)
			require.Equal(t, toolcircuit.KindUnavailable, blocked.Cause)
			require.Equal(t, "mcp:web", blocked.Dependency)
			require.False(t, *blocked.Executed)
			require.Equal(t, closed, r.state("search"))

			h.start(newServer(t, nil, tools{"search": returns(fine, nil)}))
			res, err = call(t.Context(), request("search"))
			requireBlocked(t, res, err)
			r.clock.Add(time.Minute)
			res, err = call(t.Context(), request("search"))
			require.NoError(t, err)
			require.Equal(t, "fine", text(t, res))
			require.Equal(t, closed, r.state("mcp:web"))
			if version == mcp.LATEST_PROTOCOL_VERSION {
				require.EqualValues(t, 1, sessions.Load(), "it has none that could die")
			} else {
				require.EqualValues(t, 2, sessions.Load())
			}
		})
	}
}

// A server that was restarted between two calls costs a session, and no failure.
func TestRestartBetweenCalls(t *testing.T) {
	r := newRig(t, `{"default":{"failureThreshold":1}}`, toolset.Options{})
	h := newHost(t, newServer(t, nil, tools{"search": returns(fine, nil)}))
	conn, c, sessions := h.conn(r.Set, mcp.LATEST_LEGACY_PROTOCOL_VERSION)
	call := conn.Guard(c.CallTool)
	h.kill()
	h.start(newServer(t, nil, tools{"search": returns(fine, nil)}))
	errs := make(chan error)
	for range 20 {
		go func() {
			res, err := call(t.Context(), request("search"))
			if err == nil && res.IsError {
				err = errors.New("refused")
			}
			errs <- err
		}()
	}
	for range 20 {
		require.NoError(t, <-errs)
	}
	require.EqualValues(t, 2, sessions.Load())
	require.Equal(t, closed, r.state("search"))
	require.Equal(t, []string{"search"}, list(t, c))
}

// Answers of 400 for a session that a restarted server does not know: the Guard before saw wrong
// arguments in them.
func TestN33SessionForgotten(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"400": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "Invalid or missing session ID", 400) },
		"400, JSON-RPC": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(400)
			io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}`)
		},
		"404": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "session not found", 404) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, `{"default":{"failureThreshold":1},"tools":{"pay":{"sideEffects":true}}}`, toolset.Options{})
			search, searched := counting(returns(fine, nil))
			pay, paid := counting(returns(fine, nil))
			h := newHost(t, newServer(t, nil, tools{"search": search, "pay": pay}))
			conn, c, sessions := h.conn(r.Set, mcp.LATEST_LEGACY_PROTOCOL_VERSION)
			call := conn.Guard(c.CallTool)
			forget := func() {
				id := conn.GetSessionId()
				h.trouble.Store(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Mcp-Session-Id") == id {
						answer(w, r)
					} else {
						h.serve(w, r)
					}
				}))
			}
			forget()
			_, err := call(t.Context(), request("search"))
			require.NoError(t, err)
			require.EqualValues(t, 2, sessions.Load())
			require.EqualValues(t, 1, searched.Load())

			forget()
			_, err = call(t.Context(), request("pay"))
			if name == "404" {
				require.NoError(t, err)
			} else {
				require.Error(t, err, "nobody knows that it was not executed")
				_, err = call(t.Context(), request("pay"))
				require.NoError(t, err)
			}
			require.EqualValues(t, 3, sessions.Load())
			require.EqualValues(t, 1, paid.Load())
			require.Equal(t, closed, r.state("mcp:web"))
		})
	}
}

// A token that has expired is for the host to renew: every call and list says so, the server's circuit
// stays closed, and with a new token the next attempt succeeds.
func TestUnauthorizedRenewal(t *testing.T) {
	for _, status := range []int{401, 403} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			r := newRig(t, "", toolset.Options{})
			h := newHost(t, newServer(t, nil, tools{"search": returns(fine, nil)}))
			conn, c, _ := h.conn(r.Set, mcp.LATEST_LEGACY_PROTOCOL_VERSION)
			require.Equal(t, []string{"search"}, list(t, c))
			refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Mcp-Session-Id") != "" {
					w.WriteHeader(404)
				} else {
					w.WriteHeader(status)
				}
			}))
			defer refusing.Close()
			server := h.address.Load()
			h.address.Store(refusing.Listener.Addr().String())
			for range 5 {
				var got *toolcircuit.HTTPError
				_, err := conn.Guard(c.CallTool)(t.Context(), request("search"))
				require.ErrorAs(t, err, &got)
				require.Equal(t, status, got.StatusCode)
				_, err = c.ListTools(t.Context(), mcp.ListToolsRequest{})
				require.ErrorAs(t, err, &got)
				require.Equal(t, status, got.StatusCode)
			}
			require.Equal(t, closed, r.state("mcp:web"))
			require.Equal(t, closed, r.state("search"))
			h.address.Store(server)
			eventually(t, 5*time.Second, func() bool {
				res, err := conn.Guard(c.CallTool)(t.Context(), request("search"))
				return err == nil && !res.IsError
			})
		})
	}
}

// A server that answers every call with 400 costs one session.
func TestN33BadRequestIsTheCallsOwn(t *testing.T) {
	r := newRig(t, "", toolset.Options{})
	h := newHost(t, newServer(t, nil, tools{"search": returns(fine, nil)}))
	conn, c, sessions := h.conn(r.Set, mcp.LATEST_LEGACY_PROTOCOL_VERSION)
	var posts atomic.Int64
	h.trouble.Store(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		posts.Add(1)
		http.Error(w, "no", 400)
	}))
	for range 5 {
		_, err := conn.Guard(c.CallTool)(t.Context(), request("search"))
		require.Error(t, err)
	}
	require.EqualValues(t, 6, posts.Load(), "the first call once more, and no further")
	require.EqualValues(t, 2, sessions.Load())
	require.Equal(t, closed, r.state("mcp:web"))
}

// A host that does not start another session keeps its circuit open, and its tools quiet.
func TestDeadSession(t *testing.T) {
	r := newRig(t, "", toolset.Options{})
	s := newServer(t, nil, tools{"search": returns(fine, nil)})
	h := newHost(t, s)
	call := guarded(r.Set, h.dial(mcp.LATEST_LEGACY_PROTOCOL_VERSION, false).CallTool)
	h.trouble.Store(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }))
	for range 3 {
		_, err := call(t.Context(), request("search"))
		require.ErrorIs(t, err, transport.ErrSessionTerminated)
	}
	require.Equal(t, open, r.state("search"))
}

// mckinsey/agents-at-scale-ark#2633
func TestR11OneRateLimitIsEnough(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			r := newRig(t, "", toolset.Options{})
			h := newHost(t, newServer(t, nil, tools{"search": returns(fine, nil)}))
			h.trouble.Store(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "42")
				w.WriteHeader(http.StatusTooManyRequests)
				io.WriteString(w, `{"message":"slow down"}`)
			}))
			call := guarded(r.Set, h.dial(version, false).CallTool)
			_, err := call(t.Context(), request("search"))
			require.Error(t, err)
			res, err := call(t.Context(), request("search"))
			blocked := requireBlocked(t, res, err)
			require.Equal(t, toolcircuit.KindRateLimited, blocked.Cause)
			require.Equal(t, int64(42_000), blocked.RetryAfterMS)

			plain := guarded(r.Set, h.dial(version, true).CallTool)
			for range 5 {
				_, err := plain(t.Context(), request("other"))
				require.Error(t, err)
			}
			require.Equal(t, closed, r.state("other"), "without Transport the status is a text")

			h.trouble.Store(http.HandlerFunc(nil))
			r.clock.Add(42 * time.Second)
			_, err = call(t.Context(), request("search"))
			require.NoError(t, err)
			require.Equal(t, closed, r.state("search"))
		})
	}
}

// What Transport knows, each three times.
func TestTransport(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for name, tc := range map[string]struct {
		trouble http.HandlerFunc
		cause   toolcircuit.Kind // "": none of it counts
	}{
		"500": {status(500), toolcircuit.KindUnavailable},
		"529": {status(529), toolcircuit.KindUnavailable},
		"504": {status(504), toolcircuit.KindTimeout},
		"400": {status(400), ""},
		"403": {status(403), ""},
		"error of the protocol with a status": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(503)
			io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"overloaded"}}`)
		}, toolcircuit.KindUnavailable},
		"error of the protocol": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"overloaded"}}`)
		}, ""},
		"stream that breaks off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, toolcircuit.KindUnavailable},
		"stream that ends": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(200)
		}, toolcircuit.KindUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "", toolset.Options{})
			h := newHost(t, newServer(t, nil, tools{"search": returns(fine, nil)}))
			h.trouble.Store(tc.trouble)
			call := guarded(r.Set, h.dial("", false).CallTool)
			for range 3 {
				_, err := call(t.Context(), request("search"))
				require.Error(t, err)
			}
			require.Equal(t, tc.cause, r.Circuit(t.Context(), "search").Snapshot().Cause)
			require.Equal(t, tc.cause != "", r.state("search") == open)
		})
	}
}

// Of several requests within one call the last one counts.
func TestTransportHearsTheLast(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	answer := func(code int) func() (*http.Response, error) {
		return func() (*http.Response, error) {
			return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader("{}"))}, nil
		}
	}
	refuse := func() (*http.Response, error) { return nil, refused }
	broken := transport.NewError(errors.New("no answer"))
	for name, tc := range map[string]struct {
		first, last func() (*http.Response, error)
		err         error
		kind        toolcircuit.Kind
	}{
		"status, then refused":     {answer(404), refuse, refused, toolcircuit.KindUnavailable},
		"status, then none":        {answer(503), answer(200), errors.New("content is missing"), toolcircuit.KindUnknown},
		"two statuses":             {answer(404), answer(503), broken, toolcircuit.KindUnavailable},
		"two responses, no answer": {answer(200), answer(200), broken, toolcircuit.KindUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			var kind toolcircuit.Kind
			r := newRig(t, "", toolset.Options{OnCall: func(_ context.Context, c toolcircuit.Call) { kind = c.Verdict.Kind }})
			call := guarded(r.Set, func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				for i, step := range []func() (*http.Response, error){tc.first, tc.last} {
					req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/", nil)
					require.NoError(t, err)
					resp, err := mcpgocircuit.Transport(roundTrip(step)).RoundTrip(req)
					if err == nil && i == 0 {
						io.Copy(io.Discard, resp.Body)
					}
				}
				return nil, tc.err
			})
			_, err := call(t.Context(), request("search"))
			require.Equal(t, tc.err, err)
			require.Equal(t, tc.kind, kind)
		})
	}
}

type roundTrip func() (*http.Response, error)

func (f roundTrip) RoundTrip(*http.Request) (*http.Response, error) { return f() }

// NousResearch/hermes-agent#11128
func TestA020WrongKey(t *testing.T) {
	r := newRig(t, `{"default":{"failureThreshold":3,"countUnknown":true}}`, toolset.Options{})
	h := newHost(t, newServer(t, nil, tools{"search": returns(fine, nil)}))
	h.trouble.Store(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	call := guarded(r.Set, h.dial("", true).CallTool)
	for range 5 {
		_, err := call(t.Context(), request("search"))
		require.ErrorIs(t, err, transport.ErrAuthorizationRequired)
	}
	h.trouble.Store(http.HandlerFunc(nil)) // the key is right now
	_, err := call(t.Context(), request("search"))
	require.NoError(t, err)
}

// danny-avila/LibreChat#13645
func TestA019ClientClosedByItsUser(t *testing.T) {
	r := newRig(t, "", toolset.Options{})
	entered := make(chan struct{})
	h := newHost(t, newServer(t, nil, tools{"search": func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}}))
	for range 5 {
		c := h.dial("", false)
		done := make(chan error)
		go func() {
			_, err := guarded(r.Set, c.CallTool)(t.Context(), request("search"))
			done <- err
		}()
		<-entered
		require.NoError(t, c.Close())
		require.ErrorIs(t, <-done, context.Canceled)
	}
	require.Zero(t, r.Circuit(t.Context(), "search").Snapshot().Streak)
}

func TestHangingToolOverHTTP(t *testing.T) {
	r := newRig(t, `{"default":{"failureThreshold":3,"cooldown":"60s","callTimeout":"5s"}}`, toolset.Options{})
	entered := make(chan struct{})
	h := newHost(t, newServer(t, nil, tools{
		"healthy": returns(fine, nil),
		"hanging": func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			entered <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}))
	call := guarded(r.Set, h.dial("", false).CallTool)
	for range 3 {
		done := make(chan error)
		go func() {
			_, err := call(t.Context(), request("hanging"))
			done <- err
		}()
		<-entered
		_, err := call(t.Context(), request("healthy"))
		require.NoError(t, err)
		r.clock.Add(5 * time.Second)
		require.ErrorIs(t, <-done, context.DeadlineExceeded)
	}
	res, err := call(t.Context(), request("hanging"))
	require.Equal(t, toolcircuit.KindTimeout, requireBlocked(t, res, err).Cause)
	_, err = call(t.Context(), request("healthy"))
	require.NoError(t, err)
}

// A server guards its tools over HTTP as in a process.
func TestServerOverHTTP(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			r := newRig(t, "", toolset.Options{})
			h := newHost(t, newServer(t, r.Set, tools{"fetch": returns(fine, nil), "search": returns(fine, nil)}))
			c := h.dial(version, true)
			r.trip("search")
			require.Equal(t, []string{"fetch"}, list(t, c))
			res, err := c.CallTool(t.Context(), request("search"))
			require.Equal(t, "search", requireBlocked(t, res, err).Tool)
			r.clock.Add(time.Minute)
			require.Equal(t, []string{"fetch", "search"}, list(t, c))
			res, err = c.CallTool(t.Context(), request("search"))
			require.NoError(t, err)
			require.Equal(t, "fine", text(t, res))
		})
	}
}

// N36: a gateway that refuses a ping and lets calls through is there.
func TestN36PingRefused(t *testing.T) {
	for _, version := range versions {
		for _, status := range []int{400, 401, 403, 404, 405, 410, 501} {
			t.Run(fmt.Sprint(version, " ", status), func(t *testing.T) {
				r := newRig(t, "", toolset.Options{})
				h := newHost(t, newServer(t, nil, tools{"search": returns(fine, nil)}))
				conn, c, _ := h.conn(r.Set, version)
				call := conn.Guard(c.CallTool)
				h.trouble.Store(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }))
				for range 3 {
					_, err := call(t.Context(), request("search"))
					require.Error(t, err)
				}
				res, err := call(t.Context(), request("search"))
				requireBlocked(t, res, err)
				h.trouble.Store(http.HandlerFunc(nil))
				h.refusePing.Store(int64(status))
				r.clock.Add(time.Minute)
				for range 2 {
					res, err = call(t.Context(), request("search"))
					require.NoError(t, err)
					require.Equal(t, "fine", text(t, res))
				}
				require.Equal(t, closed, r.state("mcp:web"))
			})
		}
	}
}
