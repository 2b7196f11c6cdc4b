package mcpgocircuit_test

import (
	"context"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/mcpgocircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// The SDK and its users make a text of an error before any middleware sees it. What is reported
// counts as the error that it is, and the model still reads the text.
func TestReport(t *testing.T) {
	type args struct{}
	type hits struct {
		N int `json:"n"`
	}
	down := &toolcircuit.HTTPError{StatusCode: 503}
	for name, tc := range map[string]struct {
		handler server.ToolHandlerFunc
		want    toolcircuit.State
	}{
		"unreported": {func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultError(down.Error()), nil
		}, closed},
		"result": {func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultError(mcpgocircuit.Report(ctx, down).Error()), nil
		}, open},
		"structured": {mcp.NewStructuredToolHandler(func(ctx context.Context, _ mcp.CallToolRequest, _ args) (hits, error) {
			return hits{}, mcpgocircuit.Report(ctx, down)
		}), open},
		"healthy": {mcp.NewStructuredToolHandler(func(ctx context.Context, _ mcp.CallToolRequest, _ args) (hits, error) {
			_ = mcpgocircuit.Report(ctx, down) // and went on without
			return hits{1}, mcpgocircuit.Report(ctx, nil)
		}), closed},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "", toolset.Options{})
			c := connect(t, newServer(t, r.Set, tools{"search": tc.handler}), "")
			for range 3 {
				res, err := c.CallTool(t.Context(), request("search"))
				require.NoError(t, err)
				if name != "healthy" {
					require.Contains(t, text(t, res), "503")
				}
			}
			require.Equal(t, tc.want, r.state("search"))
		})
	}
	require.Equal(t, down, mcpgocircuit.Report(t.Context(), down), "without a guard it changes nothing")
}
