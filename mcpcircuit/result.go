package mcpcircuit

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// MetaKey is the key in _meta of a blocked result's machine-readable copy, an object with the
// keys of a [toolcircuit.Result], and of what marks a list that stands in for another.
const MetaKey = "toolcircuit/result"

// refused is the result of a call of tool that the circuit of the server refused: the tool knows
// what to do instead; that nothing was executed, the server.
func (x *exchange) refused(ctx context.Context, tool string, refusal error) (toolcircuit.Result[any], error) {
	r, err := toolset.ResultOf[any](ctx, x.set, tool, nil, toolcircuit.Verdict{}, refusal)
	if err != nil {
		return r, err
	}
	view := toolcircuit.Tool{Name: tool, Alternatives: x.elsewhere(ctx, r.Alternatives), NextActions: r.NextActions}
	if len(r.Alternatives) > 0 && len(view.Alternatives) == 0 {
		view.NextActions = slices.DeleteFunc(view.NextActions, func(a toolcircuit.Action) bool { return a == toolcircuit.ActionUseAlternative })
	}
	told, err := toolcircuit.ResultOf[any](x.circuit.WithTool(view), nil, toolcircuit.Verdict{}, refusal)
	told.BlockedCalls, told.EndTurn = r.BlockedCalls, r.EndTurn
	return told, err
}

// blocked returns what the model reads instead of the result of a call.
func blocked(r toolcircuit.Result[any], err error) (mcp.Result, error) {
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var meta map[string]any // as it would come over a wire
	if err := json.Unmarshal(text, &meta); err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{
		Meta:    mcp.Meta{MetaKey: meta},
		Content: []mcp.Content{&mcp.TextContent{Text: string(text)}},
		IsError: true,
		// No StructuredContent: the tool may have an output schema, which this would break.
	}, nil
}

// ToolError is how a result with isError, and with no error that [mcp.CallToolResult.GetError]
// knows, is shown to a Classifier, as the error beside that result.
// No rule knows it, so Policy.CountUnknown decides where no Classifier does.
type ToolError struct{ Result *mcp.CallToolResult }

// Error returns the first text of the result, which is the server's.
func (e *ToolError) Error() string {
	for _, c := range e.Result.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			return text.Text
		}
	}
	return "the tool answered with an error"
}

var errInput = toolcircuit.Benign(errors.New("mcpcircuit: the tool asks for input"))

// judged returns the value and the error that a tool's circuit is to judge an answer by.
func judged(res mcp.Result, err error) (value any, seen error) {
	if err != nil {
		return nil, withStatus(err)
	}
	r, ok := res.(*mcp.CallToolResult)
	switch {
	case !ok || r == nil: // the SDK allows a handler to return a nil result
		return nil, nil
	case r.NeedsInput() || r.InputRequests != nil:
		if len(r.InputRequests) == 0 { // by the protocol, the server is too busy
			return r, &toolcircuit.HTTPError{StatusCode: 429}
		}
		return r, errInput
	case !r.IsError:
		return r, nil
	case r.Meta[MetaKey] != nil: // a circuit on the server's side
		return r, toolcircuit.ErrCircuitOpen
	case r.GetError() != nil:
		return r, r.GetError()
	}
	return r, &ToolError{r}
}

// withStatus adds to an error of the protocol the HTTP status that means the same, which the
// rules know. An internal error has none: it may be anything.
func withStatus(err error) error {
	var e *jsonrpc.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code {
	case jsonrpc.CodeParseError, jsonrpc.CodeInvalidRequest, jsonrpc.CodeMethodNotFound, jsonrpc.CodeInvalidParams,
		mcp.CodeHeaderMismatch, mcp.CodeMissingRequiredClientCapabilities, mcp.CodeUnsupportedProtocolVersion:
		return errors.Join(err, &toolcircuit.HTTPError{StatusCode: 400})
	case mcp.CodeURLElicitationRequired:
		return errors.Join(err, errInput)
	}
	return err
}
