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
	_, err = search(ctx, "circuit breakers")
	blocked, _ := search(ctx, "circuit breakers")
	shown := toolset.Visible(ctx, set, tools, Tool.Name)
	fmt.Println(err)
	fmt.Println(blocked.Status, blocked.Reason, blocked.Alternatives)
	fmt.Println(shown)
	// Output:
	// no answer
	// blocked dependency_open [cached_search]
	// [{cached_search}]
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
	_, err = find(ctx, "nobody")
	fmt.Println(err)
	blocked, _ := find(ctx, "nobody")
	fmt.Println(blocked.Reason, blocked.Cause)
	// Output:
	// HTTP status 404 Not Found
	// repeated_call not_found
}
