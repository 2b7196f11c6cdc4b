package mcpcircuit_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/mcpcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

type query struct {
	Text string `json:"text"`
}

func ExampleGuard_Server() {
	set, err := toolset.New(toolset.Config{Monitored: []string{"*"}}, toolset.Options{})
	if err != nil {
		log.Fatal(err)
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "web", Version: "1.0.0"}, nil)
	guard := mcpcircuit.New(set, mcpcircuit.Options{})
	defer guard.Close()
	guard.Server(server)
	mcp.AddTool(server, &mcp.Tool{Name: "search"}, func(context.Context, *mcp.CallToolRequest, query) (*mcp.CallToolResult, any, error) {
		return nil, nil, &toolcircuit.HTTPError{StatusCode: 503}
	})

	ctx := context.Background()
	near, far := mcp.NewInMemoryTransports()
	if _, err := server.Connect(ctx, far, nil); err != nil {
		log.Fatal(err)
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1.0.0"}, nil).Connect(ctx, near, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()

	for range 6 {
		res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "search", Arguments: query{"gophers"}})
		if err != nil {
			log.Fatal(err)
		}
		if blocked, ok := res.Meta[mcpcircuit.MetaKey].(map[string]any); ok {
			fmt.Println(blocked["status"], blocked["reason"], blocked["executed"])
		} else {
			fmt.Println(res.Content[0].(*mcp.TextContent).Text)
		}
	}
	// Output:
	// HTTP status 503 Service Unavailable
	// HTTP status 503 Service Unavailable
	// HTTP status 503 Service Unavailable
	// HTTP status 503 Service Unavailable
	// HTTP status 503 Service Unavailable
	// blocked dependency_open false
}

// A client of a server behind HTTP: its connecting has a circuit of its own, and a session that
// is lost is replaced.
func ExampleOptions() {
	var set *toolset.Set // from toolset.New
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1.0.0"}, nil)
	httpClient := &http.Client{Transport: mcpcircuit.Transport(nil)}
	dial := toolcircuit.MustNew("weather-dial", toolcircuit.Options{})

	connect := func(ctx context.Context) (*mcp.ClientSession, error) {
		return toolcircuit.Do(ctx, dial, func(ctx context.Context) (*mcp.ClientSession, error) {
			return client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: "https://weather.example/mcp", HTTPClient: httpClient}, nil)
		})
	}
	guard := mcpcircuit.New(set, mcpcircuit.Options{
		Reconnect: func(ctx context.Context, dead *mcp.ClientSession) (*mcp.ClientSession, error) {
			return connect(ctx)
		},
	})
	defer guard.Close()
	guard.Client(client)
	session, err := connect(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
}

func ExampleGuard_Client() {
	var set *toolset.Set // from toolset.New
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1.0.0"}, nil)
	guard := mcpcircuit.New(set, mcpcircuit.Options{})
	defer guard.Close()
	guard.Client(client)
}
