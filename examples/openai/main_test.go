package main

import (
	"context"
	_ "embed"
	"errors"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/examples/internal/demo"
	"github.com/toolcircuit/toolcircuit/examples/internal/demotest"
	"github.com/toolcircuit/toolcircuit/toolset"
)

//go:embed agent.go
var source string

func TestAgent(t *testing.T) { demotest.Test(t, runtime) }

func TestLines(t *testing.T) { demotest.Lines(t, source, 9, "StopReason", "ends", `"none"`) }

// A tool that needs a person ends the run with its own error, which counts for nothing, also as the probe.
func TestInterrupt(t *testing.T) {
	ctx, now, asks := t.Context(), clock.NewMock(), errors.New("may I?")
	set, err := toolset.New(toolset.Config{
		Tools:   map[string]toolset.Tool{"forecast": {}},
		Default: &toolcircuit.Policy{FailureThreshold: 1, Cooldown: time.Minute},
	}, toolset.Options{Clock: now, Classify: func(_ context.Context, o toolcircuit.Outcome) (v toolcircuit.Verdict) {
		if errors.Is(o.Err, asks) {
			v.Kind = toolcircuit.KindInterrupt
		}
		return v
	}})
	require.NoError(t, err)
	session, err := set.Session("run", toolset.Limits{})
	require.NoError(t, err)
	model := demo.Serve((&demo.Model{Next: func(int, demo.Asked) demo.Says {
		return demo.Says{Calls: []demo.Call{{Tool: "forecast", City: "Bern"}}}
	}}).OpenAI())
	defer model.Close()
	a := &agent{
		Rig:    demo.Rig{Set: set},
		client: openai.NewClient(option.WithBaseURL(model.URL), option.WithAPIKey("key")),
		do: map[string]func(context.Context, string) (string, error){"forecast": func(ctx context.Context, _ string) (string, error) {
			require.True(t, toolcircuit.IsProbe(ctx))
			return "", asks
		}},
	}
	_, err = toolset.Do(ctx, set, "forecast", nil, func(context.Context) (any, error) {
		return nil, &toolcircuit.HTTPError{StatusCode: 503}
	})
	require.Error(t, err)
	now.Add(time.Minute) // so that the next call is the probe
	for range 2 {
		_, err = a.ask(ctx, session, "?")
		require.ErrorIs(t, err, asks)
		require.True(t, set.Circuit(ctx, "forecast").Ready())
	}
}

func Example() {
	main()
	// Output:
	// The weather API is dead.
	// model: offered climate, forecast
	// model: offered climate; reads failed; reads failed; reads failed
	// model: offered climate; reads blocked
	//   {"status":"blocked","reason":"dependency_open","dependency":"weather-api","tool":"forecast","state":"open","executed":false,"cause":"unavailable","rule":"threshold","failures":3,"retryable":false,"retryAfterMs":30000,"retryAt":"2026-05-04T12:00:30Z","nextActions":["use_alternative","answer_without"],"alternatives":["climate"],"blockedCalls":1,"message":"forecast was not executed: weather-api was unreachable or broken (3 failures in a row). This is temporary; other tools remain usable. Do not call forecast for 30 s, until 12:00:30 UTC. Use climate, or answer without it and say what is missing."}
	// model: offered climate, may call none; reads blocked
	//   {"status":"blocked","reason":"dependency_open","dependency":"weather-api","tool":"forecast","state":"open","executed":false,"cause":"unavailable","rule":"threshold","failures":3,"retryable":false,"retryAfterMs":30000,"retryAt":"2026-05-04T12:00:30Z","nextActions":["use_alternative","answer_without"],"alternatives":["climate"],"blockedCalls":2,"endTurn":true,"message":"forecast was not executed: weather-api was unreachable or broken (3 failures in a row). This is temporary; other tools remain usable. Do not call forecast for 30 s, until 12:00:30 UTC. Use climate, or answer without it and say what is missing."}
	// The agent answers: The weather service cannot be reached now.
	//
	// It is back, and the cooldown is over.
	// model: offered climate, forecast
	// model: offered climate, forecast; reads ok
	// The agent answers: It will be sunny.
	//
	// Calls that reached the API: 4
}
