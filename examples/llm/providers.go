package main

import (
	"context"
	"io"
	"iter"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/toolcircuit/toolcircuit"
)

// claude returns a model of Anthropic. The circuit knows all errors of this SDK, also those that come in
// the middle of a stream.
func claude(client anthropic.Client, name string) model {
	return func(ctx context.Context, prompt string) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			s := client.Messages.NewStreaming(ctx, anthropic.MessageNewParams{
				Model:     name,
				MaxTokens: 1000,
				Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt))},
			})
			defer s.Close()
			whole := false
			for s.Next() {
				event := s.Current()
				if text := event.Delta.Text; text != "" && !yield(text, nil) {
					return
				}
				whole = whole || event.Type == "message_stop"
			}
			if err := ended(whole, s.Err()); err != nil {
				yield("", err)
			}
		}
	}
}

// gpt returns a model of OpenAI, or of another that speaks its format.
func gpt(client openai.Client, name string) model {
	return func(ctx context.Context, prompt string) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			s := client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
				Model:    name,
				Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
			})
			defer s.Close()
			whole := false
			for s.Next() {
				for _, choice := range s.Current().Choices {
					if text := choice.Delta.Content; text != "" && !yield(text, nil) {
						return
					}
					whole = whole || choice.FinishReason != ""
				}
			}
			err := ended(whole, s.Err())
			if _, ok := err.(*ssestream.StreamError); ok { // in the middle of a stream, which no rule knows
				err = toolcircuit.Fault(err)
			}
			if err != nil {
				yield("", err)
			}
		}
	}
}

// ended returns the error of a stream. One that ends before the answer is whole has one, too.
func ended(whole bool, err error) error {
	if err == nil && !whole {
		return io.ErrUnexpectedEOF
	}
	return err
}
