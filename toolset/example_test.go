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
