package toolset_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

type Tool struct{ name string }

func (t Tool) Name() string { return t.name }

func Example() {
	file := strings.NewReader(`{"monitored":["*"], "default":{"failureThreshold":1}, "hide":"open",
		"tools":{"web_search":{"dependency":"search-api","alternatives":["cached_search"]}}}`)
	tools := []Tool{{"web_search"}, {"cached_search"}}
	ctx := context.Background()
	webSearch := func(ctx context.Context, query string) (string, error) {
		return "", toolcircuit.Fault(errors.New("no answer"))
	}

	config, err := toolset.Load(file)
	if err != nil {
		panic(err)
	}
	set, err := toolset.New(config, toolset.Options{})
	if err != nil {
		panic(err)
	}
	search := toolset.WrapResult(set, "web_search", webSearch)
	failed, _ := search(ctx, "circuit breakers")
	blocked, _ := search(ctx, "circuit breakers")
	shown := toolset.Visible(ctx, set, tools, Tool.Name)
	fmt.Println(failed.Status, failed.Cause)
	fmt.Println(blocked.Status, blocked.Reason, blocked.Alternatives)
	fmt.Println(shown)
	// Output:
	// failed unavailable
	// blocked dependency_open [cached_search]
	// [{cached_search}]
}

// A config with every field. Only what differs from the default needs to be there.
func ExampleLoad() {
	file := strings.NewReader(`{
		"disabled": false,
		"default": {"failureThreshold": 3, "cooldown": "20s"},
		"dependencies": {
			"search-api": {"policy": {"callTimeout": "10s", "jitter": 0}, "maxInFlight": 8, "scoped": true}
		},
		"tools": {
			"web_search": {
				"dependency": "search-api",
				"alternatives": ["cached_search"],
				"nextActions": ["use_alternative", "answer_without"]
			},
			"cached_search": {},
			"send_mail": {"sideEffects": true}
		},
		"monitored": ["fetch_*"],
		"excluded": ["fetch_local"],
		"maxCircuits": 5000,
		"idleAfter": "30m",
		"hide": "open",
		"hideAtLeast": "1m"
	}`)

	config, err := toolset.Load(file)
	if err != nil {
		panic(err)
	}
	set, err := toolset.New(config, toolset.Options{})
	if err != nil {
		panic(err)
	}
	for _, tool := range []string{"web_search", "fetch_page", "fetch_local"} {
		fmt.Println(tool, set.Guards(tool))
	}
	fmt.Println(set.Circuit(context.Background(), "web_search").Policy().Cooldown)
	_, err = toolset.Load(strings.NewReader(`{"dependencies": {"serach-api": {"maxInFlight": 8}}}`))
	fmt.Println(err)
	// Output:
	// web_search true
	// fetch_page true
	// fetch_local false
	// 20s
	// toolset: config: dependencies.serach-api: is no tool's, want the dependency of an entry in tools or a name that monitored matches
}

func ExampleSession() {
	set, err := toolset.New(toolset.Config{Monitored: []string{"*"}}, toolset.Options{})
	if err != nil {
		panic(err)
	}
	find := toolset.WrapResult(set, "find", func(ctx context.Context, name string) (string, error) {
		return "", &toolcircuit.HTTPError{StatusCode: 404}
	})

	ctx := context.Background()
	session, err := set.Session("run-1", toolset.Limits{Calls: 50})
	if err != nil {
		panic(err)
	}
	defer session.Close()
	ctx = toolset.WithSession(ctx, session)
	failed, _ := find(ctx, "nobody")
	fmt.Println(failed.Reason, failed.Cause)
	blocked, _ := find(ctx, "nobody")
	fmt.Println(blocked.Reason, blocked.Cause)
	session.NextTurn()
	if stop := session.StopReason(); stop.Reason != "" {
		fmt.Println(stop.Reason)
	}
	// Output:
	// call_failed not_found
	// repeated_call not_found
}
