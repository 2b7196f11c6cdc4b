package mcptest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
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
		s := mcpgoserver.NewMCPServer("fake", "1")
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

// watched is a handler that tells when a client's stream of notifications is open.
func watched(h http.Handler) (_ http.Handler, open <-chan struct{}) {
	c := make(chan struct{})
	var once sync.Once
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		if req.Method == http.MethodGet || bytes.Contains(body, []byte("subscriptions/listen")) {
			w = stream{w, func() { once.Do(func() { close(c) }) }}
		}
		h.ServeHTTP(w, req)
	}), c
}

type stream struct {
	http.ResponseWriter
	begins func()
}

func (s stream) Flush() {
	s.ResponseWriter.(http.Flusher).Flush()
	s.begins()
}

// teller is a client that was connected to a server.
type teller struct {
	changed <-chan struct{}
	list    func() []string
	call    func(tool string)
}

// outage is a server whose search is down, and what a client that listed once is told of it.
func outage(t *testing.T, name string, connect func(t *testing.T, url string) teller) {
	set, _ := newSet(t, hiding)
	handler, open := watched(servers[name](t, set, func(context.Context) error {
		return &toolcircuit.HTTPError{StatusCode: 503}
	}))
	site := httptest.NewServer(handler)
	t.Cleanup(site.Close)
	t.Cleanup(site.CloseClientConnections)
	c := connect(t, site.URL)
	told := func(what <-chan struct{}) {
		t.Helper()
		select {
		case <-what:
		case <-time.After(time.Minute):
			t.Fatal("the client was not told")
		}
	}
	told(open)
	require.ElementsMatch(t, []string{"search", "other"}, c.list())
	start := time.Now()
	for range 3 {
		c.call("search")
	}
	opened := time.Now()
	usual := opened.Sub(start) // of three calls: the machine may be busy
	told(c.changed)
	gone := time.Since(opened)
	require.Equal(t, []string{"other"}, c.list())
	told(c.changed)
	due := time.Since(opened)
	require.ElementsMatch(t, []string{"search", "other"}, c.list(), "with no call made")
	require.Less(t, gone, time.Second+usual)
	require.InDelta(t, 2, due.Seconds(), (time.Second + usual).Seconds())
	t.Logf("told %v after the tool was gone, and %v after that it is due back (cooldown 2s)", gone.Round(time.Millisecond), due.Round(time.Millisecond))
}

// N39: the official client is told when tools go and when they are due back.
func TestOfficialClientIsTold(t *testing.T) {
	npm(t)
	for name := range servers {
		t.Run(name, func(t *testing.T) {
			outage(t, name, func(t *testing.T, url string) teller {
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
					case <-time.After(time.Minute):
						t.Fatal("the client says nothing")
						return nil
					}
				}
				return teller{changed, func() (names []string) {
					for _, tool := range do(map[string]any{"list": true})["tools"].([]any) {
						names = append(names, tool.(string))
					}
					return names
				}, func(tool string) { do(map[string]any{"call": tool}) }}
			})
		})
	}
}

// N39: so is a client of the go-sdk, in both versions.
func TestGoClientIsTold(t *testing.T) {
	for name := range servers {
		for _, version := range versions {
			t.Run(name+" "+version, func(t *testing.T) {
				outage(t, name, func(t *testing.T, url string) teller {
					changed := make(chan struct{}, 10)
					c := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, &mcp.ClientOptions{
						ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
					})
					session, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: version})
					require.NoError(t, err)
					t.Cleanup(func() { session.Close() })
					return teller{changed, func() (names []string) {
						page, err := session.ListTools(context.Background(), nil)
						require.NoError(t, err)
						for _, tool := range page.Tools {
							names = append(names, tool.Name)
						}
						return names
					}, func(tool string) {
						session.CallTool(context.Background(), &mcp.CallToolParams{Name: tool})
					}}
				})
			})
		}
	}
}
