package mcpgocircuit_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/benbjohnson/clock"
	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/mcpgocircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// A server whose tools are guarded, and hidden while their circuits are open.
func Example() {
	set, err := toolset.New(toolset.Config{
		Tools: map[string]toolset.Tool{"web_search": {Dependency: "search-api"}},
		Hide:  toolset.HideOpen,
	}, toolset.Options{Clock: clock.NewMock()})
	if err != nil {
		panic(err)
	}
	guard := mcpgocircuit.New(set, mcpgocircuit.Options{})
	defer guard.Close()
	s := server.NewMCPServer("example", "1", server.WithRecovery())
	guard.Server(s)
	s.AddTool(mcp.NewTool("web_search"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, &toolcircuit.HTTPError{StatusCode: 429, RetryAfter: 42e9} // as CheckResponse returns it
	})

	c, err := client.NewInProcessClient(s)
	if err != nil {
		panic(err)
	}
	defer c.Close()
	ctx := context.Background()
	if err := c.Start(ctx); err != nil {
		panic(err)
	}
	if _, err := c.Initialize(ctx, mcp.InitializeRequest{}); err != nil {
		panic(err)
	}
	call := mcp.CallToolRequest{Params: mcp.CallToolParams{Name: "web_search"}}
	_, err = c.CallTool(ctx, call)
	fmt.Println(err)
	blocked, err := c.CallTool(ctx, call)
	fmt.Println(blocked.IsError, err)
	fmt.Println(blocked.Content[0].(mcp.TextContent).Text)
	// Output:
	// internal error: HTTP status 429 Too Many Requests
	// true <nil>
	// {"status":"blocked","reason":"dependency_open","dependency":"search-api","tool":"web_search","state":"open","executed":false,"cause":"rate_limited","rule":"pause","failures":1,"retryable":false,"retryAfterMs":42000,"retryAt":"1970-01-01T00:00:42Z","nextActions":["answer_without"],"message":"web_search was not executed: search-api limited the rate of calls. This is temporary; other tools remain usable. Do not call web_search for 42 s, until 00:00:42 UTC. Answer without it and say what is missing."}
}

// A client of a server behind HTTP, whose sessions are renewed.
func ExampleGuard_HTTP() {
	set, err := toolset.New(toolset.Config{Monitored: []string{"*"}}, toolset.Options{})
	if err != nil {
		panic(err)
	}
	guard := mcpgocircuit.New(set, mcpgocircuit.Options{})
	defer guard.Close()
	hc := &http.Client{Transport: mcpgocircuit.Transport(nil)}
	dial := func() (transport.Interface, error) {
		return transport.NewStreamableHTTP("https://weather.example/mcp", transport.WithHTTPBasicClient(hc))
	}
	conn := guard.HTTP("weather", dial)
	c := client.NewClient(conn) // to be started and initialized
	defer c.Close()
	call := conn.Guard(c.CallTool)
	list := func(ctx context.Context) ([]mcp.Tool, error) {
		all, err := c.ListTools(ctx, mcp.ListToolsRequest{})
		if err != nil {
			return nil, err
		}
		return toolset.Visible(ctx, set, all.Tools, mcp.Tool.GetName), nil
	}
	_, _ = call, list // what the agent gets
}
