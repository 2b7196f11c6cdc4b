package main

import (
	"context"
	"time"

	"github.com/toolcircuit/toolcircuit"
)

func ours(p toolcircuit.Policy) *toolcircuit.ToolCircuit {
	return toolcircuit.MustNew("search", toolcircuit.Options{Policy: p})
}

// tripped is one whose first failure, already past, opened it for that long.
func tripped(cooldown time.Duration, p toolcircuit.Policy) *toolcircuit.ToolCircuit {
	p.FailureThreshold, p.Cooldown, p.ProbeTimeout = 1, cooldown, long
	c := ours(p)
	toolcircuit.Do(context.Background(), c, func(context.Context) (int, error) { return 0, sick })
	return c
}

func probing() *toolcircuit.ToolCircuit {
	c := tripped(short, toolcircuit.Policy{})
	past(short)
	held(func(op func()) {
		toolcircuit.Do(context.Background(), c, func(context.Context) (int, error) { op(); return 0, nil })
	})
	return c
}

var rate = toolcircuit.Policy{FailureRate: 0.5}

//go:noinline
func do(c *toolcircuit.ToolCircuit) call {
	return func(ctx context.Context) {
		n := in[2]
		toolcircuit.Do(ctx, c, func(context.Context) (int, error) { return in[0] + n, nil })
	}
}

//go:noinline
func doFailing(c *toolcircuit.ToolCircuit) call {
	fail := every(sick)
	return func(ctx context.Context) {
		n := in[2]
		toolcircuit.Do(ctx, c, func(context.Context) (int, error) { return in[0] + n, fail() })
	}
}

//go:noinline
func twoStep(c *toolcircuit.ToolCircuit) call {
	return func(ctx context.Context) {
		p, err := c.Allow(ctx)
		if err != nil {
			return
		}
		defer p.Release()
		n := in[2]
		_, err = bare(ctx, func(context.Context) (int, error) { return in[0] + n, nil })
		p.Settle(ctx, nil, err)
	}
}

//go:noinline
func twoStepFailing(c *toolcircuit.ToolCircuit) call {
	fail := every(sick)
	return func(ctx context.Context) {
		p, err := c.Allow(ctx)
		if err != nil {
			return
		}
		defer p.Release()
		n := in[2]
		_, err = bare(ctx, func(context.Context) (int, error) { return in[0] + n, fail() })
		p.Settle(ctx, nil, err)
	}
}

func oursClosed() call         { return do(ours(toolcircuit.Policy{})) }
func oursMixed() call          { return doFailing(ours(toolcircuit.Policy{})) }
func oursRefused() call        { return do(tripped(long, toolcircuit.Policy{})) }
func oursHalf() call           { return do(probing()) }
func oursTwoStep() call        { return twoStep(ours(toolcircuit.Policy{})) }
func oursTwoStepMixed() call   { return twoStepFailing(ours(toolcircuit.Policy{})) }
func oursTwoStepRefused() call { return twoStep(tripped(long, toolcircuit.Policy{})) }
func oursTwoStepHalf() call    { return twoStep(probing()) }
func oursRate() call           { return do(ours(rate)) }
func oursRateMixed() call      { return doFailing(ours(rate)) }
func oursRateRefused() call    { return do(tripped(long, rate)) }
