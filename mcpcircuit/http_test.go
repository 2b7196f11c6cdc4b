package mcpcircuit_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/mcpcircuit"
)

// A server is killed and started again over HTTP: its circuit opens after three calls of whatever
// tools and blocks them all. The first call after the cooldown pings and finds that its session is
// gone; it goes through on a new one.
func TestServerKilledAndRestarted(t *testing.T) {
	for name, tt := range map[string]struct {
		version string
		o       *mcp.StreamableHTTPOptions
		renewed int
	}{
		"stateless": {"", &mcp.StreamableHTTPOptions{Stateless: true}, 0},
		"sessions":  {legacy, nil, 1},
		"JSON":      {legacy, &mcp.StreamableHTTPOptions{JSONResponse: true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, h := newRig(t, everything, nil), newHost(t)
			s, _ := newServer("web", "search", "fetch")
			h.start(s, tt.o)
			var client *mcp.Client
			var dead []*mcp.ClientSession
			client = r.client(mcpcircuit.Options{
				Reconnect: func(ctx context.Context, session *mcp.ClientSession) (*mcp.ClientSession, error) {
					dead = append(dead, session)
					return h.dial(ctx, client, tt.version)
				},
			})
			session := h.connect(client, tt.version)
			healthy(t, session, "search")

			for life := range 2 {
				h.kill()
				lost(t, session, "search")
				lost(t, session, "fetch")
				lost(t, session, "search")
				got := blocked(t, session, "fetch")
				require.Equal(t, "mcp:web", got.Dependency)
				require.Equal(t, "fetch", got.Tool)
				require.Equal(t, toolcircuit.KindUnavailable, got.Cause)
				require.False(t, *got.Executed)
				require.Empty(t, got.Outcome)
				require.Zero(t, r.snapshot("search").Streak, "it is not the tool that is down")

				r.add(10 * time.Minute)
				require.Equal(t, halfOpen, r.state("mcp:web"))
				got = blocked(t, session, "fetch")
				require.Equal(t, toolcircuit.RuleProbe, got.Rule, "the probe found it still down")
				require.Len(t, dead, life*tt.renewed)

				s, tools := newServer("web", "search", "fetch")
				h.start(s, tt.o)
				r.add(10 * time.Minute)
				healthy(t, session, "fetch")
				require.Len(t, dead, (life+1)*tt.renewed)
				require.EqualValues(t, 1, tools["fetch"].calls.Load(), "a tool call is never the probe")
				require.Equal(t, closed, r.state("mcp:web"))

				healthy(t, session, "search")
				_, err := session.ListTools(context.Background(), nil)
				require.NoError(t, err, "other methods go out on the new session, too")
			}
			if tt.renewed > 0 {
				require.Same(t, session, dead[0])
				require.NotSame(t, session, dead[1], "what died last")
			}
		})
	}
}

// forgetting are the ways of a server to say that it does not know a session.
var forgetting = map[string]struct {
	status int
	body   string
}{
	"404":            {404, "session not found"},
	"404, JSON-RPC":  {404, `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Session not found"}}`},
	"400":            {400, "Invalid or missing session ID"},
	"400, JSON-RPC":  {400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}`},
	"400, no method": {400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Bad Request: Server not initialized"}}`},
}

func (h *host) forget(id string, status int, body string) (asked *atomic.Int64) {
	asked = new(atomic.Int64)
	h.intercept(func(w http.ResponseWriter, req *http.Request) bool {
		if req.Header.Get("Mcp-Session-Id") != id || req.Method != http.MethodPost {
			return false
		}
		asked.Add(1)
		if strings.HasPrefix(body, "{") {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
		return true
	})
	return asked
}

func (r *rig) httpClient(h *host) *mcp.Client {
	var client *mcp.Client
	client = r.client(mcpcircuit.Options{
		Reconnect: func(ctx context.Context, _ *mcp.ClientSession) (*mcp.ClientSession, error) {
			return h.dial(ctx, client, legacy)
		},
	})
	return client
}

// N33: a session that the server has forgotten costs no call: what was not executed is sent again
// on a new one.
func TestN33SessionForgotten(t *testing.T) {
	for name, tt := range forgetting {
		t.Run(name, func(t *testing.T) {
			r, h := newRig(t, strings.Replace(everything, "3", "1", 1), nil), newHost(t)
			s, tools := newServer("web", "search")
			h.start(s, nil)
			session := h.connect(r.httpClient(h), legacy)
			asked := h.forget(session.ID(), tt.status, tt.body)
			healthy(t, session, "search")
			healthy(t, session, "search")
			require.EqualValues(t, 2, tools["search"].calls.Load())
			require.EqualValues(t, 1, asked.Load())
			require.Equal(t, closed, r.state("mcp:web"))
			require.Equal(t, []toolcircuit.Kind{"ok", "ok"}, r.kinds("search"))
		})
	}
}

// A write that was answered 400 may have been executed: it is not sent again. The next call is.
func TestN33WriteIsNotSentAgain(t *testing.T) {
	config := strings.Replace(everything, `{`, `{"tools": {"pay": {"sideEffects": true}}, `, 1)
	r, h := newRig(t, config, nil), newHost(t)
	s, tools := newServer("web", "pay")
	h.start(s, nil)
	session := h.connect(r.httpClient(h), legacy)
	h.forget(session.ID(), 400, "no session")
	lost(t, session, "pay")
	require.Zero(t, tools["pay"].calls.Load())
	require.Equal(t, []toolcircuit.Kind{"unavailable"}, r.kinds("pay"), "the arguments are not to blame")
	healthy(t, session, "pay")
	require.EqualValues(t, 1, tools["pay"].calls.Load())
}

// If the new session is answered 400 like the old one, that is about the call.
func TestN33BadRequestIsTheCallsOwn(t *testing.T) {
	r, h := newRig(t, everything, nil), newHost(t)
	s, _ := newServer("web", "search")
	h.start(s, nil)
	session := h.connect(r.httpClient(h), legacy)
	var posts atomic.Int64
	h.intercept(func(w http.ResponseWriter, req *http.Request) bool {
		body, _ := io.ReadAll(req.Body)
		req.Body = io.NopCloser(strings.NewReader(string(body)))
		if !strings.Contains(string(body), "tools/call") {
			return false
		}
		posts.Add(1)
		http.Error(w, "no such tool", 400)
		return true
	})
	for range 5 {
		lost(t, session, "search")
	}
	require.EqualValues(t, 6, posts.Load(), "the first call once more, and no further")
	_, err := call(session, "search")
	require.EqualError(t, err, `calling "tools/call": rejected by transport: sending "tools/call": HTTP status 400 Bad Request`)
	var status *toolcircuit.HTTPError
	require.ErrorAs(t, err, &status)
	require.Equal(t, toolcircuit.KindInvalid, r.kinds("search")[4])
	require.Equal(t, closed, r.state("mcp:web"))
	h.intercept(nil)
	healthy(t, session, "search")
}

// A token that has expired is for the host to renew: every call and list says so, the server's circuit
// stays closed, and with a new token the next attempt succeeds.
func TestUnauthorizedRenewal(t *testing.T) {
	for _, status := range []int{401, 403} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			r, h := newRig(t, everything, nil), newHost(t)
			s, _ := newServer("web", "search")
			h.start(s, nil)
			session := h.connect(r.httpClient(h), legacy)
			_, err := session.ListTools(t.Context(), nil)
			require.NoError(t, err)
			h.answering(status)
			for range 5 {
				var got *toolcircuit.HTTPError
				_, err := call(session, "search")
				require.ErrorAs(t, err, &got)
				require.Equal(t, status, got.StatusCode)
				_, err = session.ListTools(t.Context(), nil)
				require.ErrorAs(t, err, &got)
				require.Equal(t, status, got.StatusCode)
			}
			require.Equal(t, closed, r.state("mcp:web"))
			require.Equal(t, closed, r.state("search"))
			h.intercept(nil)
			eventually(t, func() bool {
				res, err := call(session, "search")
				return err == nil && !res.IsError
			})
		})
	}
}

// A -32001 in an answer is whatever the server means by it.
func TestCodeOfALostSessionInAnAnswer(t *testing.T) {
	r, h := newRig(t, everything, nil), newHost(t)
	s, _ := newServer("web", "search")
	h.start(s, nil)
	session := h.connect(r.httpClient(h), legacy)
	asked := h.forget(session.ID(), 200, `{"jsonrpc":"2.0","id":2,"error":{"code":-32001,"message":"Session not found"}}`)
	_, err := call(session, "search")
	require.ErrorContains(t, err, "Session not found")
	require.EqualValues(t, 1, asked.Load())
	require.Equal(t, []toolcircuit.Kind{"ok"}, r.kinds("mcp:web"))
}

// The status is judged by its code, and a session survives what can pass: without Reconnect, the
// call after the trouble is answered.
func TestStatuses(t *testing.T) {
	for status, want := range map[int]struct {
		server, tool toolcircuit.Kind
		lives        bool
	}{
		http.StatusRequestTimeout:      {"timeout", "timeout", true},
		http.StatusTooManyRequests:     {"rate_limited", "rate_limited", true},
		http.StatusInternalServerError: {"unavailable", "unavailable", true},
		http.StatusNotImplemented:      {"ok", "invalid", true},
		http.StatusBadGateway:          {"unavailable", "unavailable", true},
		http.StatusServiceUnavailable:  {"unavailable", "unavailable", true},
		http.StatusGatewayTimeout:      {"timeout", "timeout", true},
		529:                            {"unavailable", "unavailable", true},
		http.StatusBadRequest:          {"unavailable", "unavailable", true}, // as if the session were gone
		http.StatusNotFound:            {"unavailable", "unavailable", true},
		http.StatusMethodNotAllowed:    {"ok", "invalid", true},
		http.StatusGone:                {"ok", "not_found", true},
		http.StatusUnauthorized:        {"ok", "unauthorized", false},
		http.StatusForbidden:           {"ok", "unauthorized", false},
		http.StatusLocked:              {"ok", "unavailable", true},
		http.StatusInsufficientStorage: {"unavailable", "unavailable", true},
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			r, h := newRig(t, everything, nil), newHost(t)
			s, _ := newServer("web", "search")
			h.start(s, nil)
			session := h.connect(r.client(mcpcircuit.Options{}), legacy)
			h.answering(status)
			lost(t, session, "search")
			require.Equal(t, []toolcircuit.Kind{want.tool}, r.kinds("search"))
			eventually(t, func() bool { return len(r.kinds("mcp:web")) == 1 })
			h.intercept(nil)
			if want.lives {
				healthy(t, session, "search")
				require.Equal(t, []toolcircuit.Kind{want.server, "ok"}, r.kinds("mcp:web"))
			} else {
				_, err := call(session, "search")
				require.ErrorIs(t, err, mcp.ErrConnectionClosed)
				require.Equal(t, []toolcircuit.Kind{want.server, "unavailable"}, r.kinds("mcp:web"))
			}
		})
	}
}

// eventually waits for what a goroutine does where there are sockets. A busy machine needs long.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	require.Eventually(t, done, time.Minute, time.Millisecond)
}

// N36: a gateway that refuses a ping and lets calls through is there.
func TestN36PingRefused(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 405, 410, 501} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			r, h := newRig(t, everything, nil), newHost(t)
			s, tools := newServer("web", "search")
			h.start(s, nil)
			session := h.connect(r.client(mcpcircuit.Options{}), legacy)
			h.answering(502)
			for range 3 {
				lost(t, session, "search")
			}
			blocked(t, session, "search")
			h.intercept(func(w http.ResponseWriter, req *http.Request) bool {
				body, _ := io.ReadAll(req.Body)
				req.Body = io.NopCloser(strings.NewReader(string(body)))
				if !strings.Contains(string(body), `"ping"`) {
					return false
				}
				http.Error(w, "no", status)
				return true
			})
			r.add(time.Minute)
			healthy(t, session, "search")
			healthy(t, session, "search")
			require.EqualValues(t, 2, tools["search"].calls.Load())
			require.Equal(t, closed, r.state("mcp:web"))
		})
	}
}
