// Quickstart puts a circuit around one tool, whose server works, fails, hangs and recovers.
package main

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/toolcircuit/toolcircuit"
)

// webSearch is a tool as it was before, plus CheckResponse: it makes a status such as 503
// an error that the circuit can judge.
func webSearch(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if err := toolcircuit.CheckResponse(resp); err != nil {
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

func main() {
	// One circuit per dependency, made once.
	circuit := toolcircuit.MustNew("search-api", toolcircuit.Options{
		Policy: toolcircuit.Policy{FailureThreshold: 3, CallTimeout: 500 * time.Millisecond, Cooldown: 2 * time.Second},
		Tool:   toolcircuit.Tool{Name: "web_search", Alternatives: []string{"cached_search"}},
	})
	tool := toolcircuit.WrapResult(circuit, webSearch) // returns (toolcircuit.Result[string], error)

	demonstrate(circuit, tool) // calls it through an outage: see server.go
}
