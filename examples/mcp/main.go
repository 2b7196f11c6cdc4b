// Mcp is an MCP server and its client in one process. The HTTP API behind one of the server's
// tools dies and recovers; printed is what the client's model reads of it.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/mcpcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

const config = `{
	"default": {"failureThreshold": 3, "cooldown": "30s", "jitter": 0},
	"hide": "open",
	"tools": {
		"forecast": {"dependency": "weather-api", "alternatives": ["climate"]},
		"climate": {}
	}
}`

type place struct {
	City string `json:"city"`
}

// newServer makes a guarded server with a tool that asks api and one that needs nobody.
func newServer(guard *mcpcircuit.Guard, api string) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "weather", Version: "1.0.0"}, nil)
	guard.Server(server) // the one line

	mcp.AddTool(server, &mcp.Tool{Name: "forecast", Description: "Tomorrow's weather"},
		func(ctx context.Context, _ *mcp.CallToolRequest, _ place) (*mcp.CallToolResult, any, error) {
			if err := get(ctx, api); err != nil {
				return nil, nil, err // judged by its type: the server sees more than a client would
			}
			return say("Tomorrow: sunny, 21 degrees."), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "climate", Description: "The weather of an average year"},
		func(context.Context, *mcp.CallToolRequest, place) (*mcp.CallToolResult, any, error) {
			return say("On average: cloudy, 18 degrees."), nil, nil
		})
	return server
}

func say(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return toolcircuit.CheckResponse(resp)
}

// connect returns a client's session with server.
func connect(ctx context.Context, server *mcp.Server) (*mcp.ClientSession, error) {
	near, far := mcp.NewInMemoryTransports()
	if _, err := server.Connect(ctx, far, nil); err != nil {
		return nil, err
	}
	return mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1.0.0"}, nil).Connect(ctx, near, nil)
}

func run(ctx context.Context) error {
	now := clock.NewMock() // so that nobody has to wait
	now.Set(time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC))
	c, err := toolset.Load(strings.NewReader(config))
	if err != nil {
		return err
	}
	set, err := toolset.New(c, toolset.Options{Clock: now})
	if err != nil {
		return err
	}
	api := startAPI()
	defer api.Close()
	guard := mcpcircuit.New(set, mcpcircuit.Options{})
	defer guard.Close()
	session, err := connect(ctx, newServer(guard, api.URL))
	if err != nil {
		return err
	}
	defer session.Close()

	forecast := func() error { return read(ctx, session, "forecast") }
	steps := []struct {
		what string
		do   func() error
	}{
		{"The API works.", forecast},
		{"It dies.", func() error { api.down.Store(true); return forecast() }},
		{"", forecast},
		{"", forecast},
		{"The circuit is open: the tool is not run any more.", forecast},
		{"The list goes without it.", func() error { return list(ctx, session) }},
		{"So the model does as it was told.", func() error { return read(ctx, session, "climate") }},
		{"The API recovers; the cooldown is over.", func() error { api.down.Store(false); now.Add(30 * time.Second); return forecast() }},
		{"", func() error { return list(ctx, session) }},
	}
	for _, s := range steps {
		if s.what != "" {
			fmt.Println("\n" + s.what)
		}
		if err := s.do(); err != nil {
			return err
		}
	}
	fmt.Printf("\nCalls that reached the API: %d\n", api.calls.Load())
	return nil
}

// read calls a tool and prints what the model reads.
func read(ctx context.Context, session *mcp.ClientSession, tool string) error {
	res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: place{"Bern"}})
	if err != nil {
		return err
	}
	fmt.Printf("%s, isError %v: %s\n", tool, res.IsError, res.Content[0].(*mcp.TextContent).Text)
	return nil
}

func list(ctx context.Context, session *mcp.ClientSession) error {
	var names []string
	for tool, err := range session.Tools(ctx, nil) {
		if err != nil {
			return err
		}
		names = append(names, tool.Name)
	}
	fmt.Println("tools:", strings.Join(names, ", "))
	return nil
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
