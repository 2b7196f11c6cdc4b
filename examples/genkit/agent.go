package main

import (
	"context"

	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/genkit"
	"github.com/firebase/genkit/go/plugins/compat_oai/openai"
	"github.com/openai/openai-go/option"

	"github.com/toolcircuit/toolcircuit/examples/internal/demo"
	"github.com/toolcircuit/toolcircuit/toolset"
)

type place struct {
	City string `json:"city"`
}

// start defines the tools of an agent. The retries of the SDK that the plugin uses are off: they wait
// inside the request, where nobody sees that the provider is down (examples/llm counts that).
func start(ctx context.Context, rig demo.Rig) (demo.Ask, error) {
	g := genkit.Init(ctx, genkit.WithPlugins(&openai.OpenAI{
		APIKey: "key",
		Opts:   []option.RequestOption{option.WithBaseURL(rig.URL), option.WithMaxRetries(0)},
	}))
	var tools []ai.ToolRef
	for _, of := range rig.Tools() {
		tools = append(tools, genkit.DefineTool(g, of.Name, of.Description, guard(rig.Set, of.Name,
			func(ctx *ai.ToolContext, p place) (string, error) { return of.Do(ctx, p.City) })))
	}
	return func(ctx context.Context, session *toolset.Session, question string) (string, error) {
		options := []ai.GenerateOption{
			ai.WithModelName("openai/gpt-4.1"),
			ai.WithPrompt(question),
			ai.WithTools(tools...),
			ai.WithMaxTurns(100),
			ai.WithMiddleware(offer(rig.Set, session)),
		}
		if rig.Stream {
			options = append(options, ai.WithStreaming(func(context.Context, *ai.ModelResponseChunk) error { return nil }))
		}
		resp, err := genkit.Generate(toolset.WithSession(ctx, session), g, options...)
		if err != nil {
			return "", err
		}
		return resp.Text(), nil
	}, nil
}
