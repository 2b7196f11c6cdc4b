// Package anthropiccircuit puts the circuits of a [toolset.Set] around the tools of a tool runner of
// github.com/anthropics/anthropic-sdk-go.
//
//	runner := client.Beta.Messages.NewToolRunner(anthropiccircuit.Guard(set, tools...), params)
//	for message, err := range anthropiccircuit.All(ctx, set, runner) {
//
// [Guard] makes the tools refuse. [All] and [AllStreaming] run the runner, hide the tools whose circuits
// are open, and end a turn that the session ends.
package anthropiccircuit

import (
	"context"
	"encoding/json"

	"github.com/anthropics/anthropic-sdk-go"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/internal/adapter"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// Guard returns the tools in a new slice, each with its circuit around it. The Set knows a tool by its
// name. A nil set or tool panics.
//
// The runner turns an error into a result with is_error, whose text is "Error: " and that of the error. So
// a refused call returns an error whose text is the JSON of a blocked [toolcircuit.Result], and a failed
// call that of a failed one. A healthy result passes as it is, and so do errors of the kinds canceled and
// deadline, because they belong to the run. A panic counts, and passes. The runner does not recover it.
//
// Put one Guard around a tool. A second one, of another Set, takes a failed call for one of kind unknown.
//
// The context of a tool is [toolset.Permit.Context]. A Classifier sees the content that a tool returned.
func Guard(set *toolset.Set, tools ...anthropic.BetaTool) []anthropic.BetaTool {
	if set == nil {
		panic("anthropiccircuit: Guard: set is nil")
	}
	guarded := make([]anthropic.BetaTool, len(tools))
	for i, t := range tools {
		if t == nil {
			panic("anthropiccircuit: Guard: a tool is nil")
		}
		guarded[i] = &tool{t, set}
	}
	return guarded
}

// tool is a tool with its circuit.
type tool struct {
	anthropic.BetaTool
	set *toolset.Set
}

type content = []anthropic.BetaToolResultBlockParamContentUnion

func (t *tool) Execute(ctx context.Context, input json.RawMessage) (content, error) {
	value, told, err := adapter.Do(ctx, t.set, t.Name(), input,
		func(ctx context.Context) (content, error) { return t.BetaTool.Execute(ctx, input) },
		func(content, error) bool { return false })
	if r, ok := ctx.Value(runKey{}).(*run); ok {
		r.next(told)
	}
	if told == nil {
		return value, err
	}
	text, err := json.Marshal(told)
	if err != nil {
		return nil, err
	}
	return nil, &resultError{told, string(text)}
}

// resultError is a Result as an error.
type resultError struct {
	result *toolcircuit.Result[any]
	text   string
}

func (e *resultError) Error() string { return e.text }

// Is reports whether target is [toolcircuit.ErrCircuitOpen] and the call was refused.
func (e *resultError) Is(target error) bool {
	return target == toolcircuit.ErrCircuitOpen && e.result.Status == toolcircuit.StatusBlocked
}
