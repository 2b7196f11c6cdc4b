package mcptest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

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
