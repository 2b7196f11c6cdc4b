package main

import (
	"context"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/genkit"
	"github.com/firebase/genkit/go/plugins/compat_oai/openai"
	"github.com/openai/openai-go/option"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/examples/internal/demo"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// An interrupt reaches the caller of genkit and counts for nothing, also as the probe. What it answers
// resumes the tool.
func TestInterrupt(t *testing.T) {
	ctx, now := t.Context(), clock.NewMock()
	var calls []toolcircuit.Call
	set, err := toolset.New(toolset.Config{
		Tools:   map[string]toolset.Tool{"forecast": {}},
		Default: &toolcircuit.Policy{FailureThreshold: 1, Cooldown: time.Minute},
	}, toolset.Options{Clock: now, Classify: interrupts, OnCall: func(_ context.Context, c toolcircuit.Call) { calls = append(calls, c) }})
	require.NoError(t, err)
	session, err := set.Session("run", toolset.Limits{})
	require.NoError(t, err)
	_, err = toolset.Do(ctx, set, "forecast", nil, func(context.Context) (any, error) {
		return nil, &toolcircuit.HTTPError{StatusCode: 503}
	})
	require.Error(t, err)
	now.Add(time.Minute) // so that the next call is the probe

	model := demo.Serve((&demo.Model{Next: func(n int, asked demo.Asked) demo.Says {
		if len(asked.Results) > 0 {
			return demo.Says{Text: "done"}
		}
		return demo.Says{Calls: []demo.Call{{Tool: "forecast", City: "Bern"}}}
	}}).OpenAI())
	defer model.Close()
	g := genkit.Init(ctx, genkit.WithPlugins(&openai.OpenAI{APIKey: "key", Opts: []option.RequestOption{option.WithBaseURL(model.URL)}}))
	tool := genkit.DefineTool(g, "forecast", "Tomorrow's weather", guard(set, "forecast",
		func(tc *ai.ToolContext, p place) (string, error) {
			if !tc.IsResumed() {
				return "", ai.InterruptWith(tc, map[string]any{"question": "may I?"})
			}
			return p.City + ": sunny", nil
		}))
	options := []ai.GenerateOption{ai.WithModelName("openai/gpt-4.1"), ai.WithTools(tool), ai.WithMiddleware(offer(set, session))}

	resp, err := genkit.Generate(ctx, g, append(options, ai.WithPrompt("?"))...)
	require.NoError(t, err)
	require.Len(t, resp.Interrupts(), 1)
	last := calls[len(calls)-1]
	require.True(t, last.Probe)
	require.Equal(t, toolcircuit.KindInterrupt, last.Verdict.Kind)
	require.Equal(t, toolcircuit.StateHalfOpen, set.Circuit(ctx, "forecast").State())

	restart, err := tool.RestartWith(resp.Interrupts()[0])
	require.NoError(t, err)
	resp, err = genkit.Generate(ctx, g, append(options, ai.WithMessages(resp.History()...), ai.WithToolRestarts(restart))...)
	require.NoError(t, err)
	require.Equal(t, "done", resp.Text())
	require.Equal(t, toolcircuit.StateClosed, set.Circuit(ctx, "forecast").State())
}
