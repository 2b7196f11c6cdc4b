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

// start makes a tool runner for each question. The lines with anthropiccircuit are all that circuits
// need, one of All and AllStreaming in place of the runner's own, and the one with toolset a session. The
// SDK's two retries are off: they wait inside the request, where nobody sees that the provider is down
// (examples/llm counts that).
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
	return func(ctx context.Context, session *toolset.Session, question string) (answer string, err error) {
		ctx = toolset.WithSession(ctx, session)
		params := anthropic.BetaToolRunnerParams{BetaMessageNewParams: anthropic.BetaMessageNewParams{
			Model:     "claude",
			MaxTokens: 1000,
			Messages:  []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock(question))},
		}}
		var last *anthropic.BetaMessage
		if rig.Stream {
			runner := client.Beta.Messages.NewToolRunnerStreaming(tools, params)
			for events := range anthropiccircuit.AllStreaming(ctx, rig.Set, runner) {
				for _, err := range events {
					if err != nil {
						return "", err
					}
				}
			}
			last = runner.LastMessage()
		} else {
			for message, err := range anthropiccircuit.All(ctx, rig.Set, client.Beta.Messages.NewToolRunner(tools, params)) {
				if err != nil {
					return "", err
				}
				last = message
			}
		}
		for _, block := range last.Content {
			answer += block.Text
		}
		return cmp.Or(answer, "(no answer)"), nil // from a model that calls tools although it may not
	}, nil
}
