package mcptest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mcpgo "github.com/mark3labs/mcp-go/mcp"
	mcpgoserver "github.com/mark3labs/mcp-go/server"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/mcpcircuit"
	"github.com/toolcircuit/toolcircuit/mcpgocircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// servers make guarded servers with two tools, of which search calls do.
var servers = map[string]func(t *testing.T, set *toolset.Set, do func(context.Context) error) http.Handler{
	"go-sdk": func(t *testing.T, set *toolset.Set, do func(context.Context) error) http.Handler {
		s := mcp.NewServer(&mcp.Implementation{Name: "fake", Version: "1"}, nil)
		guard := mcpcircuit.New(set, mcpcircuit.Options{})
		t.Cleanup(guard.Close)
		guard.Server(s)
		for _, name := range []string{"search", "other"} {
			mcp.AddTool(s, &mcp.Tool{Name: name}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
				if name == "search" {
					if err := do(ctx); err != nil {
						return nil, nil, err
					}
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "fine"}}}, nil, nil
			})
		}
		return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	},
	"mcp-go": func(t *testing.T, set *toolset.Set, do func(context.Context) error) http.Handler {
		guard := mcpgocircuit.New(set, mcpgocircuit.Options{})
		t.Cleanup(guard.Close)
		hooks := &mcpgoserver.Hooks{}
		hooks.AddAfterListTools(guard.Hide)
		s := mcpgoserver.NewMCPServer("fake", "1", mcpgoserver.WithHooks(hooks), mcpgoserver.WithToolCapabilities(true),
			mcpgoserver.WithToolHandlerMiddleware(guard.Middleware))
		guard.Server(s)
		for _, name := range []string{"search", "other"} {
			s.AddTool(mcpgo.NewTool(name), func(ctx context.Context, _ mcpgo.CallToolRequest) (*mcpgo.CallToolResult, error) {
				if name == "search" {
					if err := do(ctx); err != nil {
						return mcpgo.NewToolResultError(mcpgocircuit.Report(ctx, err).Error()), nil
					}
				}
				return mcpgo.NewToolResultText("fine"), nil
			})
		}
		return mcpgoserver.NewStreamableHTTPServer(s)
	},
}

// The official client of a guarded server: refused calls are results that its model reads.
func TestOfficialClient(t *testing.T) {
	npm(t)
	for name, newServer := range servers {
		t.Run(name, func(t *testing.T) {
			set, _ := newSet(t, guarded)
			var down atomic.Bool
			var calls atomic.Int64
			site := httptest.NewServer(newServer(t, set, func(context.Context) error {
				calls.Add(1)
				if down.Load() {
					return &toolcircuit.HTTPError{StatusCode: 503}
				}
				return nil
			}))
			defer site.Close()
			defer site.CloseClientConnections()
			c := newTSClient(t, site.URL)
			text := func(line map[string]any) string {
				require.Contains(t, line, "result", line)
				content := line["result"].(map[string]any)["content"].([]any)
				return content[0].(map[string]any)["text"].(string)
			}
			call := func(tool string) string { return text(c.do(map[string]any{"call": tool})) }
			require.Equal(t, "fine", call("search"))
			down.Store(true)
			for range 10 {
				call("search")
			}
			require.EqualValues(t, 4, calls.Load())
			read := call("search")
			require.True(t, strings.HasPrefix(read, `{"status":"blocked"`), read)
			require.Equal(t, "fine", call("other"))
			down.Store(false)
			require.NoError(t, set.Reset("search"))
			require.Equal(t, "fine", call("search"))
			t.Logf("the official client: 3 of 11 calls reached the API while it was down; read: %s", read)
		})
	}
}

const hiding = `{"default": {"failureThreshold": 3, "cooldown": "2s", "jitter": 0}, "monitored": ["*"], "hide": "open"}`

// outage is a server whose search is down, and what a client that listed once is told of it.
func outage(t *testing.T, name string, connect func(t *testing.T, url string) (changed <-chan struct{}, list func() []string, call func(tool string))) {
	set, _ := newSet(t, hiding)
	site := httptest.NewServer(servers[name](t, set, func(context.Context) error {
		return &toolcircuit.HTTPError{StatusCode: 503}
	}))
	t.Cleanup(site.Close)
	t.Cleanup(site.CloseClientConnections)
	changed, list, call := connect(t, site.URL)
	told := func(within time.Duration) {
		t.Helper()
		select {
		case <-changed:
		case <-time.After(within):
			t.Fatal("the client was not told")
		}
	}
	require.ElementsMatch(t, []string{"search", "other"}, list())
	for range 3 {
		call("search")
	}
	opened := time.Now()
	told(time.Second)
	gone := time.Since(opened)
	require.Equal(t, []string{"other"}, list())
	told(4 * time.Second)
	due := time.Since(opened)
	require.ElementsMatch(t, []string{"search", "other"}, list(), "with no call made")
	require.InDelta(t, 2, due.Seconds(), 1)
	t.Logf("told %v after the tool was gone, and %v after that it is due back (cooldown 2s)", gone.Round(time.Millisecond), due.Round(time.Millisecond))
}

// N39: the official client is told when tools go and when they are due back.
func TestOfficialClientIsTold(t *testing.T) {
	npm(t)
	for name := range servers {
		t.Run(name, func(t *testing.T) {
			outage(t, name, func(t *testing.T, url string) (<-chan struct{}, func() []string, func(string)) {
				c := newTSClient(t, url)
				changed, answers := make(chan struct{}, 10), make(chan map[string]any, 10)
				go func() {
					for line := range c.lines {
						if line["changed"] == true {
							changed <- struct{}{}
						} else {
							answers <- line
						}
					}
				}()
				do := func(what map[string]any) map[string]any {
					c.send(what)
					select {
					case line := <-answers:
						return line
					case <-time.After(20 * time.Second):
						t.Fatal("the client says nothing")
						return nil
					}
				}
				time.Sleep(500 * time.Millisecond) // for its stream of notifications, which it opens after it is ready
				return changed, func() (names []string) {
						for _, tool := range do(map[string]any{"list": true})["tools"].([]any) {
							names = append(names, tool.(string))
						}
						return names
					}, func(tool string) {
						do(map[string]any{"call": tool})
					}
			})
		})
	}
}

// N39: so is a client of the go-sdk, in both versions.
func TestGoClientIsTold(t *testing.T) {
	for name := range servers {
		for _, version := range versions {
			t.Run(name+" "+version, func(t *testing.T) {
				outage(t, name, func(t *testing.T, url string) (<-chan struct{}, func() []string, func(string)) {
					changed := make(chan struct{}, 10)
					c := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, &mcp.ClientOptions{
						ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
					})
					session, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: version})
					require.NoError(t, err)
					t.Cleanup(func() { session.Close() })
					time.Sleep(200 * time.Millisecond) // for its stream of notifications
					return changed, func() (names []string) {
							page, err := session.ListTools(context.Background(), nil)
							require.NoError(t, err)
							for _, tool := range page.Tools {
								names = append(names, tool.Name)
							}
							return names
						}, func(tool string) {
							session.CallTool(context.Background(), &mcp.CallToolParams{Name: tool})
						}
				})
			})
		}
	}
}
