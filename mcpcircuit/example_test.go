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

// A client of a server behind HTTP, with a new session where one has died.
func ExampleOptions() {
	var set *toolset.Set // from toolset.New
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1.0.0"}, nil)
	httpClient := &http.Client{Transport: mcpcircuit.Transport(nil)}
	connect := func(ctx context.Context) (*mcp.ClientSession, error) {
		return client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: "https://weather.example/mcp", HTTPClient: httpClient}, nil)
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

// A client whose server dies between two calls: the second goes out on a new session.
func ExampleGuard_Client() {
	set, err := toolset.New(toolset.Config{Monitored: []string{"*"}}, toolset.Options{})
	if err != nil {
		log.Fatal(err)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1.0.0"}, nil)
	var serving *mcp.ServerSession
	connect := func(ctx context.Context) (*mcp.ClientSession, error) {
		server := mcp.NewServer(&mcp.Implementation{Name: "web", Version: "1.0.0"}, nil)
		mcp.AddTool(server, &mcp.Tool{Name: "search"}, func(context.Context, *mcp.CallToolRequest, query) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "found"}}}, nil, nil
		})
		near, far := mcp.NewInMemoryTransports()
		if serving, err = server.Connect(context.WithoutCancel(ctx), far, nil); err != nil {
			return nil, err
		}
		return client.Connect(ctx, near, nil)
	}
	guard := mcpcircuit.New(set, mcpcircuit.Options{
		Reconnect: func(ctx context.Context, _ *mcp.ClientSession) (*mcp.ClientSession, error) { return connect(ctx) },
	})
	defer guard.Close()
	guard.Client(client)

	ctx := context.Background()
	session, err := connect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	for range 2 {
		res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "search", Arguments: query{"gophers"}})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Content[0].(*mcp.TextContent).Text)
		serving.Close() // the server dies
		session.Wait()
	}
	// Output:
	// found
	// found
}
