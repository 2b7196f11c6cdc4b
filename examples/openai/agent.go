package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/examples/internal/demo"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// agent is the loop that openai-go leaves to its users. It needs no adapter.
type agent struct {
	demo.Rig
	client openai.Client
	tools  []openai.ChatCompletionToolUnionParam
	do     map[string]func(ctx context.Context, city string) (string, error)
}

// start makes an agent. The SDK's two retries are off: they wait inside the request, where nobody sees
// that the provider is down (examples/llm counts that).
func start(_ context.Context, rig demo.Rig) (demo.Ask, error) {
	a := &agent{
		Rig:    rig,
		client: openai.NewClient(option.WithBaseURL(rig.URL), option.WithAPIKey("key"), option.WithMaxRetries(0)),
		do:     map[string]func(context.Context, string) (string, error){},
	}
	for _, of := range rig.Tools() {
		a.tools = append(a.tools, openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name:        of.Name,
			Description: openai.String(of.Description),
			Parameters: shared.FunctionParameters{
				"type":       "object",
				"properties": map[string]any{"city": map[string]any{"type": "string"}},
				"required":   []string{"city"},
			},
		}))
		a.do[of.Name] = of.Do
	}
	return a.ask, nil
}

// ask asks the model until it calls no tool, or may call none because the session ends the turn.
func (a *agent) ask(ctx context.Context, session *toolset.Session, question string) (string, error) {
	ctx = toolset.WithSession(ctx, session)
	params := openai.ChatCompletionNewParams{Model: "gpt", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)}}
	for {
		params.Tools = toolset.Visible(ctx, a.Set, a.tools, func(t openai.ChatCompletionToolUnionParam) string { return t.OfFunction.Function.Name })
		ends := session.StopReason().Reason != ""
		if ends {
			params.ToolChoice.OfAuto = openai.String("none") // the definitions stay, beside the calls made before
		}
		message, err := a.complete(ctx, params)
		switch {
		case err != nil:
			return "", err
		case len(message.ToolCalls) == 0 || ends:
			return cmp.Or(message.Content, "(no answer)"), nil // of a model that calls tools although it may not
		}
		results, err := a.run(ctx, message.ToolCalls)
		if err != nil {
			return "", err
		}
		params.Messages = append(append(params.Messages, message.ToParam()), results...)
	}
}

// run makes the calls of a turn at once. An error is one that ends the run.
func (a *agent) run(ctx context.Context, calls []openai.ChatCompletionMessageToolCallUnion) ([]openai.ChatCompletionMessageParamUnion, error) {
	messages, errs := make([]openai.ChatCompletionMessageParamUnion, len(calls)), make([]error, len(calls))
	var turn sync.WaitGroup
	for i, call := range calls {
		turn.Go(func() {
			var text []byte
			text, errs[i] = a.call(ctx, call.Function.Name, json.RawMessage(call.Function.Arguments))
			messages[i] = openai.ToolMessage(string(text), call.ID)
		})
	}
	turn.Wait()
	return messages, errors.Join(errs...)
}

// call makes one call. It returns the JSON of a Result, whatever came of it.
func (a *agent) call(ctx context.Context, tool string, arguments json.RawMessage) ([]byte, error) {
	result, err := toolset.DoResult(ctx, a.Set, tool, arguments, func(ctx context.Context) (string, error) {
		do, ok := a.do[tool]
		if !ok {
			return "", toolcircuit.Invalid(fmt.Errorf("there is no tool %q", tool))
		}
		var place struct{ City string }
		if err := json.Unmarshal(arguments, &place); err != nil {
			return "", toolcircuit.Invalid(err)
		}
		return do(ctx, place.City)
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(result)
}

// complete makes one request.
func (a *agent) complete(ctx context.Context, params openai.ChatCompletionNewParams) (*openai.ChatCompletionMessage, error) {
	if !a.Stream {
		completion, err := a.client.Chat.Completions.New(ctx, params)
		if err != nil {
			return nil, err
		}
		return &completion.Choices[0].Message, nil
	}
	s := a.client.Chat.Completions.NewStreaming(ctx, params)
	defer s.Close()
	var whole openai.ChatCompletionAccumulator
	for s.Next() {
		whole.AddChunk(s.Current())
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return &whole.Choices[0].Message, nil
}
