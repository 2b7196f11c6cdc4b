package main

import (
	"cmp"
	"context"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/toolrunner"

	"github.com/toolcircuit/toolcircuit/anthropiccircuit"
	"github.com/toolcircuit/toolcircuit/examples/internal/demo"
	"github.com/toolcircuit/toolcircuit/toolset"
)

type place struct {
	City string `json:"city" jsonschema:"required"`
}

// start makes a tool runner for each question. The two lines with anthropiccircuit are all that circuits
// need, and the one with toolset a session. The SDK's two retries are off: they wait inside the request,
// where nobody sees that the provider is down (examples/llm counts that).
func start(_ context.Context, rig demo.Rig) (demo.Ask, error) {
	client := anthropic.NewClient(option.WithBaseURL(rig.URL), option.WithAPIKey("key"), option.WithMaxRetries(0))
	var tools []anthropic.BetaTool
	for _, of := range rig.Tools() {
		t, err := toolrunner.NewBetaToolFromJSONSchema(of.Name, of.Description,
			func(ctx context.Context, p place) (anthropic.BetaToolResultBlockParamContentUnion, error) {
				text, err := of.Do(ctx, p.City)
				return anthropic.BetaToolResultBlockParamContentUnion{OfText: &anthropic.BetaTextBlockParam{Text: text}}, err
			})
		if err != nil {
			return nil, err
		}
		tools = append(tools, t)
	}
	tools = anthropiccircuit.Guard(rig.Set, tools...)
	return func(ctx context.Context, session *toolset.Session, question string) (string, error) {
		ctx = toolset.WithSession(ctx, session)
		params := anthropic.BetaToolRunnerParams{BetaMessageNewParams: anthropic.BetaMessageNewParams{
			Model:     "claude",
			MaxTokens: 1000,
			Messages:  []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock(question))},
		}}
		if rig.Stream {
			return streamed(ctx, rig.Set, client.Beta.Messages.NewToolRunnerStreaming(tools, params))
		}
		var last *anthropic.BetaMessage
		for message, err := range anthropiccircuit.All(ctx, rig.Set, client.Beta.Messages.NewToolRunner(tools, params)) {
			if err != nil {
				return "", err
			}
			last = message
		}
		return textOf(last), nil
	}, nil
}

// textOf returns what a message says.
func textOf(message *anthropic.BetaMessage) (text string) {
	for _, block := range message.Content {
		text += block.Text
	}
	return cmp.Or(text, "(no answer)") // of a model that calls tools although it may not
}
