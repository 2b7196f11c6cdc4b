package mcpgocircuit_test

//lint:file-ignore SA1019 a legacy session that is renewed keeps its log level and its subscriptions

import (
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/stretchr/testify/require"
)

// kill ends the last session.
func (r *remote) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last.ended = true
	_ = r.last.InProcessTransport.Close() // the server knows no two sessions of the same process
}

func (r *remote) dead(l *link) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return l.ended
}

func (r *remote) note(l *link, req transport.JSONRPCRequest) {
	var p struct{ Level, URI string }
	if text, err := json.Marshal(req.Params); err != nil || json.Unmarshal(text, &p) != nil {
		return
	}
	what, known := map[string]string{"logging/setLevel": p.Level, "resources/subscribe": "+" + p.URI, "resources/unsubscribe": "-" + p.URI}[req.Method]
	if !known {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told[l] = append(r.told[l], what)
}

// now returns what the last session was told.
func (r *remote) now() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.told[r.last])
}

// What a session was told the next one is told once, also if it was answered while the next one was
// already being told.
func TestToldAgain(t *testing.T) {
	const uri = "file:///a"
	subscribe, unsubscribe, level := mcp.SubscribeRequest{}, mcp.UnsubscribeRequest{}, mcp.SetLevelRequest{}
	subscribe.Params.URI, unsubscribe.Params.URI, level.Params.Level = uri, uri, mcp.LoggingLevelDebug
	for method, want := range map[string][]string{
		"":                            {"debug", "+" + uri},
		string(mcp.MethodSetLogLevel): {"debug", "+" + uri, "debug"},
		"resources/subscribe":         {"debug", "+" + uri, "+" + uri},
		"resources/unsubscribe":       {"debug", "+" + uri, "-" + uri},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, nil, tools{"search": returns(fine, nil)}, server.WithLogging(), server.WithResourceCapabilities(true, false))
			r := newRemote(t, s, mcp.LATEST_LEGACY_PROTOCOL_VERSION, aMinute)
			ctx := t.Context()
			renewed := func() {
				r.kill()
				_, err := r.call(ctx, request("search"))
				require.Error(t, err)
				res, err := r.call(ctx, request("search"))
				require.NoError(t, err)
				require.False(t, res.IsError, r.set.Circuit(ctx, "mcp:web").Snapshot().Err)
			}
			require.NoError(t, r.SetLevel(ctx, level))
			require.NoError(t, r.Subscribe(ctx, subscribe))
			r.after = func(req transport.JSONRPCRequest) {
				if req.Method == method { // answered, and not noted yet
					r.after = nil
					renewed()
				}
			}
			switch method {
			case "":
				renewed()
			case "resources/subscribe":
				require.NoError(t, r.Subscribe(ctx, subscribe))
			case "resources/unsubscribe":
				require.NoError(t, r.Unsubscribe(ctx, unsubscribe))
			default:
				require.NoError(t, r.SetLevel(ctx, level))
			}
			require.Equal(t, want, r.now())
		})
	}
}

// What the server refuses by now is left out, and the session goes on.
func TestRefusedWhenToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil, tools{"search": returns(fine, nil)}, server.WithResourceCapabilities(true, false))
		r := newRemote(t, s, mcp.LATEST_LEGACY_PROTOCOL_VERSION, aMinute)
		subscribe := mcp.SubscribeRequest{}
		subscribe.Params.URI = "file:///a"
		require.NoError(t, r.Subscribe(t.Context(), subscribe))
		r.loses.Store(true)
		r.kill()
		_, err := r.call(t.Context(), request("search"))
		require.Error(t, err)
		res, err := r.call(t.Context(), request("search"))
		require.NoError(t, err)
		require.False(t, res.IsError)
	})
}
