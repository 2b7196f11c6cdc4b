package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// dependency is a simulated one: of each cycle it is down for some time at the end of it. Its tools
// are called in turn.
type dependency struct {
	name        string
	tools       []string
	cycle, down time.Duration
	failure     error
	cooldown    time.Duration
	tenants     int
}

var dependencies = []dependency{
	{name: "search-api", tools: []string{"web_search", "news_search"}, cycle: 40 * time.Second, down: 15 * time.Second, failure: status(503)},
	{name: "postgres", tools: []string{"run_query", "list_tables"}, cycle: 3 * time.Minute, down: 20 * time.Second, failure: errors.New("no rule knows this")},
	{name: "weather-api", tools: []string{"forecast"}, cycle: 25 * time.Second, down: 24 * time.Second, failure: status(504), cooldown: 4 * time.Second},
	{name: "github", tools: []string{"open_issue", "read_file"}, cycle: time.Minute, down: 5 * time.Second, failure: &toolcircuit.HTTPError{StatusCode: 429, RetryAfter: 20 * time.Second}},
	{name: "payments", tools: []string{"refund"}, cycle: 2 * time.Minute, down: 30 * time.Second, failure: status(502), cooldown: 10 * time.Second},
	{name: "mail", tools: []string{"send_mail"}, cycle: 50 * time.Second, down: 12 * time.Second, failure: toolcircuit.Fault(errors.New("connection lost"))},
	{name: "vector-store", tools: []string{"recall", "remember"}, cycle: 90 * time.Second, down: 25 * time.Second, failure: context.DeadlineExceeded, tenants: 3},
	{name: "calendar", tools: []string{"find_slot"}, cycle: time.Minute, failure: nil},
	{name: "translator", tools: []string{"translate"}, cycle: 35 * time.Second, down: 2 * time.Second, failure: status(500)},
	{name: "browser", tools: []string{"open_page"}, cycle: 70 * time.Second, down: 10 * time.Second, failure: status(503)},
}

func status(code int) error { return &toolcircuit.HTTPError{StatusCode: code} }

// config guards the dependencies.
func config() toolset.Config {
	c := toolset.Config{
		Default:      &toolcircuit.Policy{FailureThreshold: 3, Cooldown: 3 * time.Second, Jitter: 0.1},
		Dependencies: map[string]toolset.Dependency{},
		Tools:        map[string]toolset.Tool{},
		Hide:         toolset.HideOpen,
		HideAtLeast:  5 * time.Second,
	}
	for _, d := range dependencies {
		policy := *c.Default
		if d.cooldown > 0 {
			policy.Cooldown = d.cooldown
		}
		c.Dependencies[d.name] = toolset.Dependency{Policy: &policy, Scoped: d.tenants > 0}
		for _, tool := range d.tools {
			c.Tools[tool] = toolset.Tool{Dependency: d.name}
		}
	}
	return c
}

// use calls the tools of d as agents would, until ctx ends.
func (d dependency) use(ctx context.Context, set *toolset.Set, nth int) {
	start := time.Now().Add(-d.cycle * time.Duration(nth) / 10) // so that they do not fail all at once
	ticker := time.NewTicker(150 * time.Millisecond)
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		run := ctx
		if d.tenants > 0 {
			run = toolset.WithScope(ctx, fmt.Sprint("tenant-", i%d.tenants))
		}
		toolset.Do(run, set, d.tools[i%len(d.tools)], nil, func(context.Context) (int, error) {
			if time.Since(start)%d.cycle > d.cycle-d.down {
				return 0, d.failure
			}
			return http.StatusOK, nil
		})
	}
}
