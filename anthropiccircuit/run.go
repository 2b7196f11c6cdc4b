package anthropiccircuit

import (
	"context"
	"iter"
	"sync"

	"github.com/anthropics/anthropic-sdk-go"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// All is [anthropic.BetaToolRunner.All] with two differences. Each request offers only those of the
// tools in Params.Tools that [toolset.Visible] shows. The runner still knows a hidden tool, and Guard
// refuses a call of it.
//
// When a refused call says endTurn, the request with that result has tool_choice none, and the answer to
// it is the last message, whatever it holds. So a run ends with an answer and not at MaxIterations.
// Without a [toolset.Session] in ctx this does not happen.
//
// While it runs, Params.Tools and Params.ToolChoice are its own. Afterwards they are what they were.
func All(ctx context.Context, set *toolset.Set, r *anthropic.BetaToolRunner) iter.Seq2[*anthropic.BetaMessage, error] {
	if set == nil || r == nil {
		panic("anthropiccircuit: All: the set or the runner is nil")
	}
	return func(yield func(*anthropic.BetaMessage, error) bool) {
		for ctx := range turns(ctx, set, &r.Params) {
			message, err := r.NextMessage(ctx)
			if message == nil && err == nil || !yield(message, err) || err != nil {
				return
			}
		}
	}
}

// AllStreaming is [anthropic.BetaToolRunnerStreaming.AllStreaming] with the differences of [All].
func AllStreaming(ctx context.Context, set *toolset.Set, r *anthropic.BetaToolRunnerStreaming) iter.Seq2[iter.Seq2[anthropic.BetaRawMessageStreamEventUnion, error], error] {
	if set == nil || r == nil {
		panic("anthropiccircuit: AllStreaming: the set or the runner is nil")
	}
	return func(yield func(iter.Seq2[anthropic.BetaRawMessageStreamEventUnion, error], error) bool) {
		for ctx := range turns(ctx, set, &r.Params) {
			if !yield(r.NextStreaming(ctx), nil) || r.IsCompleted() {
				return
			}
		}
	}
}

// turns yields the context of one request after another, until the last has been made without tools.
func turns(ctx context.Context, set *toolset.Set, params *anthropic.BetaToolRunnerParams) iter.Seq[context.Context] {
	return func(yield func(context.Context) bool) {
		r := &run{ctx: ctx, set: set, params: params, tools: params.Tools}
		defer func(choice anthropic.BetaToolChoiceUnionParam) {
			params.Tools, params.ToolChoice = r.tools, choice
		}(params.ToolChoice)
		ctx := context.WithValue(ctx, runKey{}, r)
		for !r.ended {
			r.next(nil)
			if !yield(ctx) {
				return
			}
		}
	}
}

type runKey struct{}

// run is what All knows of one run.
type run struct {
	ctx    context.Context
	set    *toolset.Set
	params *anthropic.BetaToolRunnerParams
	tools  []anthropic.BetaToolUnionParam // all of them

	mu    sync.Mutex // for what follows and params: the tools of a turn run at once
	ended bool
}

// next sets what the next request offers, given what the model reads of a call. The runner makes that
// request when the calls of a turn are over.
func (r *run) next(told *toolcircuit.Result[any]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.params.Tools = toolset.Visible(r.ctx, r.set, r.tools, name)
	if told != nil && told.EndTurn {
		none := anthropic.NewBetaToolChoiceNoneParam()
		r.params.ToolChoice = anthropic.BetaToolChoiceUnionParam{OfNone: &none}
		r.ended = true
	}
}

// name returns the name of a tool, "" if it has none.
func name(t anthropic.BetaToolUnionParam) string {
	if name := t.GetName(); name != nil {
		return *name
	}
	return ""
}
