package main

import (
	"context"

	"github.com/firebase/genkit/go/ai"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// Genkit needs these three functions, to copy.

// guard puts its circuit around the function of a tool. An error ends the run of genkit, so refusals and
// failures become a Result. The function gets a ToolContext that CallTimeout ends.
func guard[In, Out any](set *toolset.Set, name string, fn ai.ToolFunc[In, Out]) ai.ToolFunc[In, toolcircuit.Result[Out]] {
	return func(tc *ai.ToolContext, in In) (toolcircuit.Result[Out], error) {
		return toolset.DoResult(tc, set, name, in, func(ctx context.Context) (Out, error) {
			own := *tc
			own.Context = ctx
			return fn(&own, in)
		})
	}
}

// interrupts is the Classifier of the Set. It leaves interrupts to genkit, and counts them for nothing.
func interrupts(_ context.Context, o toolcircuit.Outcome) toolcircuit.Verdict {
	if interrupted, _ := ai.IsToolInterruptError(o.Err); interrupted {
		return toolcircuit.Verdict{Kind: toolcircuit.KindInterrupt}
	}
	return toolcircuit.Verdict{}
}

// offer is the middleware of one turn. It offers visible tools only, and none when the session ends the
// turn, because not every plugin of a model knows ToolChoiceNone. Genkit still knows a hidden tool, and
// guard refuses a call of it.
func offer(set *toolset.Set, session *toolset.Session) ai.ModelMiddleware {
	return func(next ai.ModelFunc) ai.ModelFunc {
		return func(ctx context.Context, req *ai.ModelRequest, stream ai.ModelStreamCallback) (*ai.ModelResponse, error) {
			own := *req // which genkit uses for the next request, too
			own.Tools = toolset.Visible(ctx, set, req.Tools, func(t *ai.ToolDefinition) string { return t.Name })
			ends := session.StopReason().Reason != ""
			if ends {
				own.Tools = nil
			}
			resp, err := next(ctx, &own, stream)
			if err == nil && ends && len(resp.ToolRequests()) > 0 { // of a model that invents calls
				resp.Message = ai.NewModelTextMessage("(no answer)")
			}
			return resp, err
		}
	}
}
