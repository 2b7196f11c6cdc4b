package toolset_test

import (
	"context"
	"encoding/json"
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

// A loop of your own that ends although its model does not: it reads StopReason after each step.
func ExampleSession_StopReason() {
	set, err := toolset.New(toolset.Config{Monitored: []string{"*"}, Default: &toolcircuit.Policy{FailureThreshold: 1}}, toolset.Options{})
	if err != nil {
		panic(err)
	}
	type call struct {
		tool      string
		arguments json.RawMessage
	}
	run := func(ctx context.Context, c call) (string, error) { return "", &toolcircuit.HTTPError{StatusCode: 503} }
	model := func(tools []Tool, results []string) (*call, string) { // calls whatever it is offered
		if len(tools) == 0 {
			return nil, fmt.Sprintf("no answer, after %d results", len(results))
		}
		return &call{tools[0].Name(), json.RawMessage(`{}`)}, ""
	}
	tools := []Tool{{"web_search"}}

	turn := func(ctx context.Context, session *toolset.Session) (string, error) {
		session.NextTurn() // new input from the user
		var results []string
		for {
			offered, ends := toolset.Visible(ctx, set, tools, Tool.Name), session.StopReason().Reason != ""
			if ends {
				offered = nil // a result said endTurn: the model answers, and its calls are not made
			}
			call, answer := model(offered, results)
			if call == nil || ends {
				return answer, nil
			}
			result, err := toolset.DoResult(ctx, set, call.tool, call.arguments, func(ctx context.Context) (string, error) { return run(ctx, *call) })
			if err != nil {
				return "", err // the run itself was canceled or interrupted
			}
			text, _ := json.Marshal(result)
			results = append(results, string(text))
		}
	}

	session, err := set.Session("run-1", toolset.Limits{Refused: 3})
	if err != nil {
		panic(err)
	}
	defer session.Close()
	fmt.Println(turn(toolset.WithSession(context.Background(), session), session))
	// Output: no answer, after 4 results <nil>
}
