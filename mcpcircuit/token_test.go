package mcpcircuit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/auth/extauth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/mcpcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// issuer is an endpoint that gives tokens out, each for seconds.
type issuer struct {
	*httptest.Server
	seconds int
	trouble atomic.Pointer[http.HandlerFunc] // answers in its place, if set
}

func newIssuer(t *testing.T, seconds int) *issuer {
	i := &issuer{seconds: seconds}
	i.Server = httptest.NewServer(i)
	t.Cleanup(func() { i.CloseClientConnections(); i.Close() })
	return i
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if trouble := i.trouble.Load(); trouble != nil {
		_, _ = io.Copy(io.Discard, req.Body) // so that the server sees it when the client leaves
		(*trouble)(w, req)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"access_token": "t", "token_type": "bearer", "expires_in": %d}`, i.seconds)
}

// handler returns the SDK's handler. Its token source lives as long as the context of the first
// request that was answered 401.
func (i *issuer) handler(t *testing.T, pool http.RoundTripper) auth.OAuthHandler {
	h, err := extauth.NewClientCredentialsHandler(&extauth.ClientCredentialsHandlerConfig{
		Credentials: &oauthex.ClientCredentials{ClientID: "a", ClientSecretAuth: &oauthex.ClientSecretAuth{ClientSecret: "b"}},
		HTTPClient: &http.Client{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
			if !strings.HasSuffix(req.URL.Path, "/token") { // of the discovery
				return &http.Response{StatusCode: 404, Body: http.NoBody, Request: req, Header: http.Header{}}, nil
			}
			req = req.Clone(req.Context())
			req.URL.Host = i.Listener.Addr().String()
			return pool.RoundTrip(req)
		})},
	})
	require.NoError(t, err)
	return h
}

// roundTripper gets a token for each request, and sends none without.
func (i *issuer) roundTripper(pool http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		ask, err := http.NewRequestWithContext(req.Context(), http.MethodPost, i.URL, nil)
		if err != nil {
			return nil, err
		}
		resp, err := pool.RoundTrip(ask)
		if err != nil {
			return nil, err
		}
		resp.Body.Close()
		if resp.StatusCode >= 400 {
			return nil, errors.New("no token: " + resp.Status)
		}
		return pool.RoundTrip(req)
	})
}

// A call for which there is no token was not executed, and the tool is not to blame: the call is none of
// the run's, and can be made again. The server is to blame if it was not asked.
func TestNoToken(t *testing.T) {
	const (
		authorize   = "after 401"
		tokenSource = "before sending"
		below       = "below Transport"
	)
	ways := map[string]map[string]toolcircuit.Kind{ // what each trouble is for the server
		authorize:   {"hangs": "ok", "500": "ok", "401": "ok", "breaks off": "ok"},
		tokenSource: {"hangs": "timeout", "500": "unavailable", "401": "unauthorized", "breaks off": "unavailable"},
		below:       {"hangs": "timeout", "500": "unavailable", "401": "unavailable", "breaks off": "unavailable"},
	}
	for way, troubles := range ways {
		for name, want := range troubles {
			t.Run(way+", "+name, func(t *testing.T) {
				config := strings.Replace(everything, `"1m"`, `"1m", "callTimeout": "1s"`, 1)
				r := newRig(t, strings.Replace(config, `{`, `{"tools": {"pay": {"sideEffects": true}}, "dependencies": {"mcp:web": {"policy": {"callTimeout": "0s"}}}, `, 1), nil)
				seconds := 3600
				if way == tokenSource {
					seconds = 1 // each request needs another
				}
				h, i := newHost(t), newIssuer(t, seconds)
				s, tools := newServer("web", "pay")
				h.start(s, nil)
				pool := &http.Transport{}
				t.Cleanup(pool.CloseIdleConnections)
				dial := &mcp.StreamableClientTransport{Endpoint: "http://" + h.addr, DisableStandaloneSSE: true}
				if way == below {
					dial.HTTPClient = &http.Client{Transport: mcpcircuit.Transport(i.roundTripper(pool))}
				} else {
					dial.HTTPClient = &http.Client{Transport: mcpcircuit.Transport(pool)}
					dial.OAuthHandler = i.handler(t, dial.HTTPClient.Transport) // as a program with one client has it
				}
				asks := func() {
					h.intercept(func(w http.ResponseWriter, req *http.Request) bool {
						if way == below || req.Header.Get("Authorization") != "" {
							return false
						}
						http.Error(w, "token?", http.StatusUnauthorized)
						return true
					})
				}
				if way == tokenSource {
					asks()
				}
				var client *mcp.Client
				connect := func(ctx context.Context) (*mcp.ClientSession, error) {
					return client.Connect(ctx, dial, &mcp.ClientSessionOptions{ProtocolVersion: legacy})
				}
				client = r.client(mcpcircuit.Options{
					Reconnect: func(ctx context.Context, _ *mcp.ClientSession) (*mcp.ClientSession, error) { return connect(ctx) },
				})
				session, err := connect(context.Background())
				require.NoError(t, err)
				t.Cleanup(func() { h.kill(); session.Close() })
				_, err = session.ListTools(t.Context(), nil)
				require.NoError(t, err)
				asks()

				trouble := map[string]http.HandlerFunc{
					"500": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 500) },
					"401": func(w http.ResponseWriter, _ *http.Request) {
						http.Error(w, `{"error":"invalid_client"}`, http.StatusUnauthorized)
					},
					"breaks off": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
					"hangs": func(_ http.ResponseWriter, req *http.Request) {
						r.add(time.Second)
						if way == tokenSource { // which knows no context
							panic(http.ErrAbortHandler)
						}
						<-req.Context().Done()
					},
				}[name]
				i.trouble.Store(&trouble)
				run, err := r.set.Session("run", toolset.Limits{Calls: 1})
				require.NoError(t, err)
				ctx := toolset.WithSession(t.Context(), run)
				pay := func() (*mcp.CallToolResult, error) {
					return session.CallTool(ctx, &mcp.CallToolParams{Name: "pay", Arguments: in{"100 to bob"}})
				}
				_, err = pay()
				require.Error(t, err)
				var late *toolcircuit.CallTimeoutError
				require.Equal(t, name == "hangs", errors.As(err, &late), err)
				require.Zero(t, tools["pay"].calls.Load())
				require.Empty(t, r.kinds("pay"))
				eventually(t, func() bool { return len(r.kinds("mcp:web")) == 2 })
				require.Equal(t, []toolcircuit.Kind{"ok", want}, r.kinds("mcp:web"))

				i.trouble.Store(nil)
				var res *mcp.CallToolResult
				eventually(t, func() bool { // where the SDK gives its session up, it does so in a goroutine
					res, err = pay()
					return err == nil
				})
				require.False(t, res.IsError, text(res))
				require.EqualValues(t, 1, tools["pay"].calls.Load())
			})
		}
	}
}
