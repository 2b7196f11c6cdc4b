package main

import (
	"context"
	_ "embed"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/toolrunner"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit/anthropiccircuit"
	"github.com/toolcircuit/toolcircuit/examples/internal/demo"
	"github.com/toolcircuit/toolcircuit/examples/internal/demotest"
	"github.com/toolcircuit/toolcircuit/toolset"
)

//go:embed agent.go
var source string

func TestAgent(t *testing.T) { demotest.Test(t, runtime) }

func TestLines(t *testing.T) { demotest.Lines(t, source, 3) }

// A caller that leaves the loop at a message has its calls not made. It can ask a person, and goes on with
// another loop.
func TestPerson(t *testing.T) {
	set, err := toolset.New(toolset.Config{Tools: map[string]toolset.Tool{"forecast": {}}}, toolset.Options{})
	require.NoError(t, err)
	var requests []demo.Asked
	model := demo.Serve((&demo.Model{Next: func(n int, asked demo.Asked) demo.Says {
		requests = append(requests, asked)
		if n == 1 {
			return demo.Says{Calls: []demo.Call{{Tool: "forecast", City: "Bern"}}}
		}
		return demo.Says{Text: "done"}
	}}).Anthropic())
	defer model.Close()
	calls := 0
	tool, err := toolrunner.NewBetaToolFromJSONSchema("forecast", "", func(context.Context, place) (anthropic.BetaToolResultBlockParamContentUnion, error) {
		calls++
		return anthropic.BetaToolResultBlockParamContentUnion{OfText: &anthropic.BetaTextBlockParam{Text: "sunny"}}, nil
	})
	require.NoError(t, err)
	client := anthropic.NewClient(option.WithBaseURL(model.URL), option.WithAPIKey("key"))
	runner := client.Beta.Messages.NewToolRunner(anthropiccircuit.Guard(set, tool), anthropic.BetaToolRunnerParams{BetaMessageNewParams: anthropic.BetaMessageNewParams{
		Model: "claude", MaxTokens: 1000, Messages: []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock("?"))},
	}})
	for _, err := range anthropiccircuit.All(t.Context(), set, runner) {
		require.NoError(t, err)
		break
	}
	require.Zero(t, calls)
	for _, err := range anthropiccircuit.All(t.Context(), set, runner) {
		require.NoError(t, err)
	}
	require.Equal(t, 1, calls)
	require.Equal(t, []string{"forecast"}, requests[1].Tools)
	require.Equal(t, "sunny", requests[1].Results[0].Text)
	require.Equal(t, "done", textOf(runner.LastMessage()))
}

func Example() {
	main()
	// Output:
	// The weather API is dead.
	// model: offered climate, forecast
	// model: offered climate; reads failed (is_error); reads failed (is_error); reads failed (is_error)
	// model: offered climate; reads blocked (is_error)
	//   Error: {"status":"blocked","reason":"dependency_open","dependency":"weather-api","tool":"forecast","state":"open","executed":false,"cause":"unavailable","rule":"threshold","failures":3,"retryable":false,"retryAfterMs":30000,"retryAt":"2026-05-04T12:00:30Z","nextActions":["use_alternative","answer_without"],"alternatives":["climate"],"blockedCalls":1,"message":"forecast was not executed: weather-api was unreachable or broken (3 failures in a row). This is temporary; other tools remain usable. Do not call forecast for 30 s, until 12:00:30 UTC. Use climate, or answer without it and say what is missing."}
	// model: offered climate, may call none; reads blocked (is_error)
	//   Error: {"status":"blocked","reason":"dependency_open","dependency":"weather-api","tool":"forecast","state":"open","executed":false,"cause":"unavailable","rule":"threshold","failures":3,"retryable":false,"retryAfterMs":30000,"retryAt":"2026-05-04T12:00:30Z","nextActions":["use_alternative","answer_without"],"alternatives":["climate"],"blockedCalls":2,"endTurn":true,"message":"forecast was not executed: weather-api was unreachable or broken (3 failures in a row). This is temporary; other tools remain usable. Do not call forecast for 30 s, until 12:00:30 UTC. Use climate, or answer without it and say what is missing."}
	// The agent answers: The weather service cannot be reached now.
	//
	// It is back, and the cooldown is over.
	// model: offered climate, forecast
	// model: offered climate, forecast; reads Bern: sunny, 21 degrees
	// The agent answers: It will be sunny.
	//
	// Calls that reached the API: 4
}
