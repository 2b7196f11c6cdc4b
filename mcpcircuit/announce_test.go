package mcpcircuit_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit/mcpcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// newReal returns a Set on the real clock, which is the bubble's.
func newReal(t *testing.T, config string) *toolset.Set {
	c, err := toolset.Load(strings.NewReader(config))
	require.NoError(t, err)
	set, err := toolset.New(c, toolset.Options{})
	require.NoError(t, err)
	return set
}

func fail(t *testing.T, set *toolset.Set, tool string, times int) {
	for range times {
		p, err := set.Allow(t.Context(), tool, nil)
		require.NoError(t, err)
		p.Settle(t.Context(), nil, errBackend)
	}
}

// N39: a client that lists once is told when tools go, and when they are due back, with no call
// made. At each end, in both versions of the protocol.
func TestN39ChangesAreAnnounced(t *testing.T) {
	for _, version := range []string{"", legacy} {
		for _, end := range []string{"server", "client"} {
			t.Run(end+version, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					set := newReal(t, hiding)
					guard := mcpcircuit.New(set, mcpcircuit.Options{})
					defer guard.Close()
					s := mcp.NewServer(&mcp.Implementation{Name: "web"}, &mcp.ServerOptions{PageSize: 2})
					for _, name := range []string{"a", "b", "c", "d", "e"} {
						addTool(s, name)
					}
					var told atomic.Int64
					var session *mcp.ClientSession
					var shown atomic.Value
					list := func() (names []string) {
						for tool, err := range session.Tools(context.Background(), nil) {
							require.NoError(t, err)
							names = append(names, tool.Name)
						}
						return names
					}
					c := mcp.NewClient(&mcp.Implementation{Name: "agent"}, &mcp.ClientOptions{
						ToolListChangedHandler: func(_ context.Context, req *mcp.ToolListChangedRequest) {
							require.Same(t, session, req.Session)
							told.Add(1)
							go func() { shown.Store(list()) }()
						},
					})
					if end == "server" {
						guard.Server(s)
					} else {
						guard.Client(c)
					}
					session = connect(t, s, c, version)
					settle := func(d time.Duration) {
						time.Sleep(d)
						synctest.Wait()
					}
					require.Equal(t, []string{"a", "b", "c", "d", "e"}, list())
					settle(time.Second)
					told.Store(0)
					fail(t, set, "c", 3)
					settle(time.Second)
					require.EqualValues(t, 1, told.Load())
					require.Equal(t, []string{"a", "b", "d", "e"}, shown.Load(), "no gap in the pages")
					settle(58 * time.Second)
					require.EqualValues(t, 1, told.Load())
					settle(2 * time.Second)
					require.EqualValues(t, 2, told.Load(), "due back")
					require.Equal(t, []string{"a", "b", "c", "d", "e"}, shown.Load())

					fail(t, set, "c", 1) // as the probe
					settle(time.Second)
					require.EqualValues(t, 3, told.Load())
					require.NoError(t, set.Reset("c"))
					settle(time.Second)
					require.EqualValues(t, 4, told.Load())

					guard.Close()
					settle(time.Second)
					fail(t, set, "c", 3)
					settle(time.Second)
					require.EqualValues(t, 4, told.Load(), "nothing is announced after Close")
				})
			})
		}
	}
}

// A host that lists whenever it is told to, while its server is gone, is told nothing: what its list
// shows does not change.
func TestListingIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, _ := newRenewing(t, everything, legacy, "search", "fetch")
		x.set = newReal(t, strings.Replace(hiding, `"1m"`, `"1s", "multiplier": 1`, 1))
		var session *mcp.ClientSession
		var told atomic.Int64
		x.client = mcp.NewClient(&mcp.Implementation{Name: "agent"}, &mcp.ClientOptions{
			ToolListChangedHandler: func(ctx context.Context, req *mcp.ToolListChangedRequest) {
				told.Add(1)
				_, _ = session.ListTools(ctx, nil)
			},
		})
		x.guard(mcpcircuit.Options{ReconnectTimeout: 5 * time.Second, Reconnect: func(ctx context.Context, _ *mcp.ClientSession) (*mcp.ClientSession, error) {
			return nil, errBackend
		}}).Client(x.client)
		session = x.session()
		_, err := session.ListTools(t.Context(), nil)
		require.NoError(t, err)
		time.Sleep(time.Second) // what the server itself announces
		told.Store(0)
		x.kill()
		synctest.Wait()
		for range 60 {
			blocked(t, session, "search")
			time.Sleep(time.Second)
		}
		require.Zero(t, told.Load())
		fail(t, x.set, "fetch", 3)
		synctest.Wait()
		require.EqualValues(t, 1, told.Load())
	})
}

// A handler that is slow is told nothing any more once Close has returned.
func TestNothingIsToldAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := newReal(t, hiding)
		guard := mcpcircuit.New(set, mcpcircuit.Options{})
		s, _ := newServer("web", "search", "fetch")
		var told atomic.Int64
		c := mcp.NewClient(&mcp.Implementation{Name: "agent"}, &mcp.ClientOptions{
			ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
				told.Add(1)
				time.Sleep(time.Minute)
			},
		})
		guard.Client(c)
		session := connect(t, s, c, legacy)
		healthy(t, session, "search")
		synctest.Wait()
		told.Store(0)
		for _, tool := range []string{"search", "fetch"} {
			fail(t, set, tool, 3)
			synctest.Wait()
		}
		require.EqualValues(t, 1, told.Load(), "the other waits")
		guard.Close()
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, told.Load())
	})
}

// A renewed session may have another list: the host hears of it, by the session that it knows.
func TestRenewalIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, _ := newRenewing(t, everything, legacy, "search")
		var session *mcp.ClientSession
		var told atomic.Int64
		x.client = mcp.NewClient(&mcp.Implementation{Name: "agent"}, &mcp.ClientOptions{
			ToolListChangedHandler: func(_ context.Context, req *mcp.ToolListChangedRequest) {
				require.Same(t, session, req.Session)
				told.Add(1)
			},
		})
		x.guard(mcpcircuit.Options{Reconnect: func(ctx context.Context, _ *mcp.ClientSession) (*mcp.ClientSession, error) {
			return x.connect(ctx)
		}}).Client(x.client)
		session = x.session()
		x.kill()
		synctest.Wait()
		healthy(t, session, "search")
		synctest.Wait()
		require.EqualValues(t, 1, told.Load())
		addTool(x.server, "more") // the new session's own news
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, 2, told.Load())
	})
}

// What a tool's annotations say raises its side effects, where the config says nothing.
func TestAnnotations(t *testing.T) {
	for _, end := range []string{"server", "client"} {
		t.Run(end, func(t *testing.T) {
			config := strings.Replace(everything, `{`, `{"tools": {"declared": {"sideEffects": false}}, `, 1)
			r := newRig(t, config, nil)
			s := mcp.NewServer(&mcp.Implementation{Name: "bank"}, nil)
			for name, a := range map[string]*mcp.ToolAnnotations{
				"pay":      {},
				"declared": {},
				"read":     {ReadOnlyHint: true},
				"put":      {IdempotentHint: true},
				"plain":    nil,
			} {
				mcp.AddTool(s, &mcp.Tool{Name: name, Annotations: a}, func(context.Context, *mcp.CallToolRequest, in) (*mcp.CallToolResult, any, error) {
					return nil, nil, nil
				})
			}
			session := r.connectGuarded(end, s, "")
			if end == "client" {
				_, err := session.ListTools(t.Context(), nil)
				require.NoError(t, err)
			} else {
				healthy(t, session, "read")
			}
			for name, want := range map[string]time.Duration{
				"pay": 2 * time.Minute, "declared": time.Minute, "read": time.Minute, "put": time.Minute, "plain": time.Minute,
			} {
				r.trip(name)
				require.EqualValues(t, want.Milliseconds(), blocked(t, session, name).RetryAfterMS, name)
			}
		})
	}
}

// A run's advice reaches the model as a text at the end of a result, and endTurn in a refusal.
func TestAdviceAndEndTurn(t *testing.T) {
	for _, end := range []string{"server", "client"} {
		t.Run(end, func(t *testing.T) {
			r := newRig(t, everything, nil)
			run, err := r.set.Session("run", toolset.Limits{Refused: 1})
			require.NoError(t, err)
			s, tools := newServer("web", "search")
			in := func(next mcp.MethodHandler) mcp.MethodHandler {
				return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
					return next(toolset.WithSession(ctx, run), method, req)
				}
			}
			c := plainClient()
			if end == "server" {
				r.guardServer(s).AddReceivingMiddleware(in)
			} else {
				r.guard(mcpcircuit.Options{}).Client(c)
				c.AddSendingMiddleware(in)
			}
			session := connect(t, s, c, "")
			kept := &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "no such page"}}}
			tools["search"].answer(kept)
			advised := ""
			for i := range 20 {
				res, err := call(session, "search")
				require.NoError(t, err)
				if len(res.Content) > 1 {
					advised = res.Content[len(res.Content)-1].(*mcp.TextContent).Text
					require.Equal(t, "no such page", text(res))
				}
				if strings.Contains(text(res), `"endTurn":true`) {
					require.NotEmpty(t, advised, fmt.Sprint("after ", i))
					require.Len(t, kept.Content, 1, "the tool's own result is not touched")
					return
				}
			}
			t.Fatal("never refused")
		})
	}
}

// The advice about a call whose error carried none is not that of another call, which ran well.
func TestAdviceIsOfTheOutcome(t *testing.T) {
	for _, end := range []string{"server", "client"} {
		t.Run(end, func(t *testing.T) {
			r := newRig(t, everything, nil)
			run, err := r.set.Session("run", toolset.Limits{})
			require.NoError(t, err)
			s, _ := newServer("web", "search")
			s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
				return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
					if p, ok := req.GetParams().(*mcp.CallToolParamsRaw); ok && strings.Contains(string(p.Arguments), "bad") {
						return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "bad query"}
					}
					return next(ctx, method, req)
				}
			})
			inRun := func(next mcp.MethodHandler) mcp.MethodHandler {
				return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
					return next(toolset.WithSession(ctx, run), method, req)
				}
			}
			c := plainClient()
			if end == "server" {
				r.guardServer(s).AddReceivingMiddleware(inRun)
			} else {
				r.guard(mcpcircuit.Options{}).Client(c)
				c.AddSendingMiddleware(inRun)
			}
			session := connect(t, s, c, "")
			search := func(what string) (*mcp.CallToolResult, error) {
				return session.CallTool(t.Context(), &mcp.CallToolParams{Name: "search", Arguments: in{what}})
			}
			_, err = search("bad")
			require.ErrorContains(t, err, "bad query")
			res, err := search("good")
			require.NoError(t, err)
			require.Len(t, res.Content, 1)
			require.False(t, res.IsError)
		})
	}
}
