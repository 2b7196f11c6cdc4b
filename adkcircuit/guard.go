// Package adkcircuit puts the circuits of a [toolset.Set] around the tools of an agent built with
// google.golang.org/adk.
//
//	agent, err := llmagent.New(llmagent.Config{
//		Model: adkcircuit.Model(set, model),
//		Tools: adkcircuit.Guard(set, tools...),
//	})
//
// [Guard] makes the tools refuse; [Toolset] is the same for a [tool.Toolset]. [Model] hides the tools
// whose circuits are open, and ends a turn that the session ends.
package adkcircuit

import (
	"context"
	"encoding/json"
	"errors"

	"google.golang.org/adk/agent"
	"google.golang.org/adk/model"
	"google.golang.org/adk/tool"
	"google.golang.org/genai"

	"github.com/toolcircuit/toolcircuit/internal/adapter"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// Guard returns the tools in a new slice, each with its circuit around it. A tool that the provider runs,
// and not ADK, stays as it is. The Set knows a tool by its name. A nil set or tool panics.
//
// ADK answers the model with the text of a tool's error. So a refused call returns the keys of a blocked
// [toolcircuit.Result], and a failed call those of a failed one. AfterToolCallbacks see them, and
// OnToolErrorCallbacks do not. These pass as they are:
//   - what a healthy call returned
//   - errors of the kinds canceled and deadline, because they belong to the run
//   - the confirmation flow, also with [tool.WithConfirmation] inside or outside of the guard. A call that
//     requests a confirmation, or whose confirmation was rejected, counts for nothing, and a probe's place
//     is free again
//
// The [tool.Context] of a tool ends and has values as [toolset.Permit.Context] does: CallTimeout ends it,
// and [toolcircuit.IsProbe] and [toolset.IdempotencyKey] work. A function tool of ADK turns a panic into an
// error without a type, so its kind is unknown. A panic of another tool counts, and passes.
//
// Put one Guard around a tool. A second one, of another Set, takes the keys of a blocked or failed Result
// for a healthy output.
func Guard(set *toolset.Set, tools ...tool.Tool) []tool.Tool {
	if set == nil {
		panic("adkcircuit: Guard: set is nil")
	}
	guarded := make([]tool.Tool, len(tools))
	for i, t := range tools {
		if t == nil {
			panic("adkcircuit: Guard: a tool is nil")
		}
		guarded[i] = t
		if r, ok := t.(runnable); ok {
			guarded[i] = &guardedTool{r, set}
		}
	}
	return guarded
}

// Toolset returns ts with [Guard] around the tools that it has at each step. A nil argument panics.
func Toolset(set *toolset.Set, ts tool.Toolset) tool.Toolset {
	if set == nil || ts == nil {
		panic("adkcircuit: Toolset: the set or the toolset is nil")
	}
	return &guardedToolset{ts, set}
}

type guardedToolset struct {
	tool.Toolset
	set *toolset.Set
}

func (s *guardedToolset) Tools(ctx agent.ReadonlyContext) ([]tool.Tool, error) {
	tools, err := s.Toolset.Tools(ctx)
	return Guard(s.set, tools...), err
}

// runnable is a tool that ADK runs.
type runnable interface {
	tool.Tool
	Declaration() *genai.FunctionDeclaration
	ProcessRequest(ctx tool.Context, req *model.LLMRequest) error
	Run(ctx tool.Context, args any) (map[string]any, error)
}

// guardedTool is a tool with its circuit.
type guardedTool struct {
	runnable
	set *toolset.Set
}

// ProcessRequest puts the tool in the place of the one inside.
func (t *guardedTool) ProcessRequest(ctx tool.Context, req *model.LLMRequest) error {
	err := t.runnable.ProcessRequest(ctx, req)
	if _, ok := req.Tools[t.Name()]; ok {
		req.Tools[t.Name()] = t
	}
	return err
}

func (t *guardedTool) Run(ctx tool.Context, args any) (map[string]any, error) {
	value, told, err := adapter.Do(ctx, t.set, t.Name(), args,
		func(inner context.Context) (map[string]any, error) {
			return t.runnable.Run(&toolContext{ctx, inner}, args)
		},
		func(_ map[string]any, err error) bool {
			_, asks := ctx.Actions().RequestedToolConfirmations[ctx.FunctionCallID()]
			return asks || errors.Is(err, tool.ErrConfirmationRequired) || errors.Is(err, tool.ErrConfirmationRejected)
		})
	if told == nil {
		return value, err
	}
	text, err := json.Marshal(told)
	if err != nil {
		return nil, err
	}
	var keys map[string]any // as it would come over a wire
	err = json.Unmarshal(text, &keys)
	return keys, err
}
