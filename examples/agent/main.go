// Agent asks a scripted model three questions while its search is down and a fourth when that
// is back, first without a circuit and then with one, and compares what it took.
package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/toolcircuit/toolcircuit"
)

// searchAPI is a dependency that lets a call hang for half a minute while it is down.
type searchAPI struct {
	clock     *clock.Mock
	down      bool
	deadCalls int
}

func (s *searchAPI) search(_ context.Context, query string) (string, error) {
	if !s.down {
		return "live results for " + query, nil
	}
	s.deadCalls++
	s.clock.Add(30 * time.Second)
	return "", &toolcircuit.HTTPError{StatusCode: http.StatusGatewayTimeout}
}

func cachedSearch(_ context.Context, query string) (string, error) {
	return "cached results for " + query, nil
}

func withoutCircuit(api *searchAPI) tool { return plain(api.search) }

func withCircuit(api *searchAPI) tool {
	circuit := toolcircuit.MustNew("search-api", toolcircuit.Options{
		Policy: toolcircuit.Policy{FailureThreshold: 3, Cooldown: 5 * time.Minute},
		Clock:  api.clock,
		Tool:   toolcircuit.Tool{Name: "web_search", Alternatives: []string{"cached_search"}},
	})
	return guarded(toolcircuit.WrapResult(circuit, api.search))
}

// cost is what an outage takes.
type cost struct {
	turns, deadCalls int
	waiting          time.Duration
}

// session takes one agent through an outage.
func session(webSearch func(*searchAPI) tool) (c cost) {
	api := &searchAPI{clock: clock.NewMock(), down: true}
	tools := map[string]tool{
		"web_search":    webSearch(api),
		"cached_search": plain(cachedSearch),
	}
	start := api.clock.Now()
	for _, question := range []string{"Go 1.26", "RFC 9110", "Erlang"} {
		c.turns += run(question, tools)
	}
	c.waiting = api.clock.Since(start)

	api.down = false
	api.clock.Add(10 * time.Minute)
	c.turns += run("Rust", tools)
	c.deadCalls = api.deadCalls
	return c
}

func main() {
	fmt.Println("WITHOUT A CIRCUIT")
	without := session(withoutCircuit)
	fmt.Println("\nWITH A CIRCUIT")
	with := session(withCircuit)

	fmt.Println("\nCOMPARED")
	const row = "%-29s%-9v%v\n"
	fmt.Printf(row, "", "without", "with")
	fmt.Printf(row, "model turns", without.turns, with.turns)
	fmt.Printf(row, "calls to the dead dependency", without.deadCalls, with.deadCalls)
	fmt.Printf(row, "time spent waiting for it", without.waiting, with.waiting)
}
