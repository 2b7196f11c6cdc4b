package main

import (
	"context"
	"errors"
	"iter"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/stream"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// model answers a prompt, part by part. An error is the last that it yields.
//
// To use guard and first elsewhere, copy this file.
type model func(ctx context.Context, prompt string) iter.Seq2[string, error]

// guard returns m with its circuit. The Set knows a model as a tool of that name, so each model of each
// provider has a circuit of its own. Give models a Set of their own. In the tools' Set a session would
// take a request to a model for the call of a tool.
//
// A call lasts until the answer ends, breaks, or is left by its reader. CallTimeout bounds it until the
// first part. An answer is healthy if it ends, or if its reader leaves it after a part. A refusal is the
// error of the answer.
func guard(set *toolset.Set, name string, m model) model {
	return func(ctx context.Context, prompt string) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			permit, err := set.Allow(ctx, name, toolset.Unknown)
			if err != nil {
				yield("", err)
				return
			}
			inner, flows, end := stream.Context(ctx, permit.Context)
			defer end()
			outcome := toolcircuit.ErrNoReturn
			defer func() { permit.Settle(ctx, nil, outcome) }()
			for part, err := range m(inner, prompt) {
				if err != nil {
					_, outcome = permit.Settle(ctx, nil, err)
					yield("", outcome)
					return
				}
				flows()
				outcome = nil // whatever the reader does now
				if !yield(part, nil) {
					return
				}
				outcome = toolcircuit.ErrNoReturn
			}
			outcome = nil
		}
	}
}

// first returns a model that asks one of models after another, until one answers. It asks the next after a
// refusal, and after an error before the first part that [toolcircuit.Retryable] reports. An answer that
// breaks later ends with its error, because its reader has begun.
func first(models ...model) model {
	return func(ctx context.Context, prompt string) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			var all []error
			for _, m := range models {
				begun, err := false, error(nil)
				for part, failure := range m(ctx, prompt) {
					if err = failure; err != nil {
						break
					}
					begun = true
					if !yield(part, nil) {
						return
					}
				}
				if err == nil {
					return
				}
				all = append(all, err)
				if begun || !errors.Is(err, toolcircuit.ErrCircuitOpen) && !toolcircuit.Retryable(err) {
					break
				}
			}
			yield("", errors.Join(all...))
		}
	}
}
