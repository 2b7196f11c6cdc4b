package mcpgocircuit_test

import (
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit/mcpgocircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// BenchmarkCall is one call of a tool in this process, without and with the guard, on a server
// and on its client, and what the guard costs by itself.
func BenchmarkCall(b *testing.B) {
	set, err := toolset.New(toolset.Config{Monitored: []string{"*"}}, toolset.Options{})
	require.NoError(b, err)
	handlers := tools{"search": returns(fine, nil)}
	run := func(name string, guardServer *toolset.Set, wrap bool) {
		b.Run(name, func(b *testing.B) {
			c, err := client.NewInProcessClient(newServer(b, guardServer, handlers))
			require.NoError(b, err)
			defer c.Close()
			require.NoError(b, start(b.Context(), c, ""))
			call := c.CallTool
			if wrap {
				call = mcpgocircuit.New(set, mcpgocircuit.Options{}).Middleware(call)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := call(b.Context(), request("search")); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("unguarded", nil, false)
	run("server", set, false)
	run("client", nil, true)
	b.Run("guard alone", func(b *testing.B) {
		call := guarded(set, returns(fine, nil))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := call(b.Context(), request("search")); err != nil {
				b.Fatal(err)
			}
		}
	})
}
