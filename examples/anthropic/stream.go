package main

import (
	"context"

	"github.com/anthropics/anthropic-sdk-go"

	"github.com/toolcircuit/toolcircuit/anthropiccircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// streamed returns the answer of a runner that streams. AllStreaming stands where All stands without.
func streamed(ctx context.Context, set *toolset.Set, runner *anthropic.BetaToolRunnerStreaming) (string, error) {
	for events := range anthropiccircuit.AllStreaming(ctx, set, runner) {
		for _, err := range events {
			if err != nil {
				return "", err
			}
		}
	}
	return textOf(runner.LastMessage()), nil
}
