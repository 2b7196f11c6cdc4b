// Fakeserver is an MCP server on stdin and stdout for the tests: work writes the id that it is given
// to a file, once for each time that it is executed, and takes a while over it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type work struct {
	ID string `json:"id"`
	MS int    `json:"ms"`
}

type message struct {
	Message string `json:"message"`
}

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, file string) error {
	done, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "fake", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "work"}, func(_ context.Context, _ *mcp.CallToolRequest, w work) (*mcp.CallToolResult, any, error) {
		if _, err := fmt.Fprintln(done, w.ID); err != nil { // one write: no line is ever torn
			return nil, nil, err
		}
		time.Sleep(time.Duration(w.MS) * time.Millisecond)
		return say(w.ID), nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, m message) (*mcp.CallToolResult, any, error) {
		return say(m.Message), nil, nil
	})
	return s.Run(ctx, &mcp.StdioTransport{})
}

func say(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}
