package mcpcircuit_test

import (
	"context"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit/mcpcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// BenchmarkCall is a call in memory, without the guard, with one at either end, and refused.
func BenchmarkCall(b *testing.B) {
	set, err := toolset.New(toolset.Config{Monitored: []string{"*"}}, toolset.Options{})
	require.NoError(b, err)
	guard := mcpcircuit.New(set, mcpcircuit.Options{})
	run := func(name string, prepare func(*mcp.Server, *mcp.Client)) {
		b.Run(name, func(b *testing.B) {
			s := mcp.NewServer(&mcp.Implementation{Name: "web"}, nil)
			addTool(s, "search")
			c := mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil)
			prepare(s, c)
			near, far := mcp.NewInMemoryTransports()
			_, err := s.Connect(context.Background(), far, nil)
			require.NoError(b, err)
			session, err := c.Connect(context.Background(), near, nil)
			require.NoError(b, err)
			defer session.Close()
			p := &mcp.CallToolParams{Name: "search", Arguments: in{"x"}}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := session.CallTool(context.Background(), p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("bare", func(*mcp.Server, *mcp.Client) {})
	run("server", func(s *mcp.Server, _ *mcp.Client) { guard.Server(s) })
	run("client", func(_ *mcp.Server, c *mcp.Client) { guard.Client(c) })
	run("refused", func(_ *mcp.Server, c *mcp.Client) {
		require.NoError(b, set.SetOverride("search", "open"))
		guard.Client(c)
	})
}

// BenchmarkGuard is what the guard of a client adds, with nothing behind it.
func BenchmarkGuard(b *testing.B) {
	set, err := toolset.New(toolset.Config{Monitored: []string{"*"}}, toolset.Options{})
	require.NoError(b, err)
	res := &mcp.CallToolResult{}
	handler := mcpcircuit.New(set, mcpcircuit.Options{
		Server: func(*mcp.ClientSession) string { return "web" },
	}).Middleware(func(context.Context, string, mcp.Request) (mcp.Result, error) { return res, nil })
	req := &mcp.ClientRequest[mcp.Params]{Session: new(mcp.ClientSession), Params: &mcp.CallToolParams{Name: "search"}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := handler(context.Background(), "tools/call", req); err != nil {
			b.Fatal(err)
		}
	}
}
