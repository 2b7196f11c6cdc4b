// Package einocircuit puts the circuits of a [toolset.Set] around the tools of an agent built with
// github.com/cloudwego/eino.
//
//	agent, err := react.NewAgent(ctx, &react.AgentConfig{
//		ToolCallingModel: einocircuit.Model(set, model),
//		ToolsConfig: compose.ToolsNodeConfig{Tools: tools, ToolCallMiddlewares: []compose.ToolMiddleware{einocircuit.Guard(set)}},
//	})
//
// [Guard] is for every ToolsNode: that of package react, of adk's ChatModelAgent and of a graph of
// your own. [Model] hides the tools whose circuits are open, and ends a run that its session ends.
package einocircuit

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/internal/adapter"
	"github.com/toolcircuit/toolcircuit/stream"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// Guard returns a middleware for [compose.ToolsNodeConfig].ToolCallMiddlewares, for all four kinds of
// tools. A nil set panics.
//
// An error of a tool ends the run of an eino graph. So the output of a refused call is the JSON of a
// blocked [toolcircuit.Result], and the output of a failed call that of a failed one. These pass as they are:
//   - what a healthy call returned
//   - errors of the kinds canceled and deadline, because they belong to the run
//   - panics
//   - interrupts, as [compose.IsInterruptRerunError] knows them; they count for nothing, and a probe's
//     place is free again
//
// The context of a tool is [toolset.Permit.Context]. The call of a streaming tool lasts until its
// stream ends. CallTimeout bounds it until the first part, also if the tool ignores its context. A
// stream that breaks ends with the JSON of a failed Result, on a line of its own after the parts that
// came. A stream that its reader closes is healthy if a part has come. Otherwise it counts for nothing.
//
// Put one Guard around a tool. A second one, of another Set, takes the text of a blocked or failed Result
// for a healthy output.
//
// The Set and the session know a call by its name and arguments. A Classifier sees the output of a
// tool that does not stream as the SDK's type, such as *[compose.ToolOutput].
func Guard(set *toolset.Set) compose.ToolMiddleware {
	if set == nil {
		panic("einocircuit: Guard: set is nil")
	}
	return compose.ToolMiddleware{
		Invokable: guard[compose.InvokableToolEndpoint](set,
			func(text string) *compose.ToolOutput { return &compose.ToolOutput{Result: text} }, nil),
		EnhancedInvokable: guard[compose.EnhancedInvokableToolEndpoint](set,
			func(text string) *compose.EnhancedInvokableToolOutput {
				return &compose.EnhancedInvokableToolOutput{Result: part(text)}
			}, nil),
		Streamable: guard[compose.StreamableToolEndpoint](set,
			func(text string) *compose.StreamToolOutput { return &compose.StreamToolOutput{Result: one(text)} },
			func(c *call, out *compose.StreamToolOutput) *compose.StreamToolOutput {
				return &compose.StreamToolOutput{Result: relay(c, out.Result, func(text string) string { return text })}
			}),
		EnhancedStreamable: guard[compose.EnhancedStreamableToolEndpoint](set,
			func(text string) *compose.EnhancedStreamableToolOutput {
				return &compose.EnhancedStreamableToolOutput{Result: one(part(text))}
			},
			func(c *call, out *compose.EnhancedStreamableToolOutput) *compose.EnhancedStreamableToolOutput {
				return &compose.EnhancedStreamableToolOutput{Result: relay(c, out.Result, part)}
			}),
	}
}

func part(text string) *schema.ToolResult {
	return &schema.ToolResult{Parts: []schema.ToolOutputPart{{Type: schema.ToolPartTypeText, Text: text}}}
}

func one[T any](part T) *schema.StreamReader[T] { return schema.StreamReaderFromArray([]T{part}) }

// guard returns the middleware for one kind of endpoint. say makes an output of a text. follow returns
// an output whose stream settles the call at its end. It is nil for a kind that does not stream.
func guard[E ~func(context.Context, *compose.ToolInput) (Out, error), Out any](
	set *toolset.Set, say func(text string) Out, follow func(*call, Out) Out) func(E) E {
	return func(next E) E {
		return func(ctx context.Context, in *compose.ToolInput) (out Out, err error) {
			c, told, err := begin(ctx, set, in, follow != nil)
			if c == nil {
				return answer(out, say, told, err)
			}
			err = toolcircuit.ErrNoReturn
			defer func() {
				switch {
				case err != nil:
					told, err = c.over(nil, err)
					out, err = answer(out, say, told, err)
				case follow == nil:
					c.over(out, nil)
				default:
					out = follow(c, out)
				}
			}()
			return next(c.inner, in)
		}
	}
}

// answer returns what the model reads in place of out, if that is anything.
func answer[Out any](out Out, say func(string) Out, told *toolcircuit.Result[any], err error) (Out, error) {
	if told == nil {
		return out, err
	}
	text, err := json.Marshal(told)
	if err != nil {
		return out, err
	}
	return say(string(text)), nil
}

// call is one call of a tool.
type call struct {
	*adapter.Call
	inner      context.Context // of the tool
	flows, end func()

	once sync.Once // for what follows, which over returns
	told *toolcircuit.Result[any]
	err  error
}

// begin is [adapter.Begin].
func begin(ctx context.Context, set *toolset.Set, in *compose.ToolInput, streams bool) (*call, *toolcircuit.Result[any], error) {
	of, told, err := adapter.Begin(ctx, set, in.Name, json.RawMessage(in.Arguments))
	if of == nil {
		return nil, told, err
	}
	c := &call{Call: of, end: func() {}}
	if streams {
		c.inner, c.flows, c.end = stream.Context(ctx, of.Context)
	} else {
		c.inner = of.Context(ctx)
	}
	return c, nil, nil
}

// over ends the call as [adapter.Call.Settle] does, and hands on what an interrupt returned. Later
// calls return what the first did.
func (c *call) over(value any, err error) (*toolcircuit.Result[any], error) {
	c.once.Do(func() {
		defer c.end()
		if _, ok := compose.IsInterruptRerunError(err); ok {
			c.Interrupt()
			c.err = err
			return
		}
		c.told, c.err = c.Settle(value, err)
	})
	return c.told, c.err
}
