package mcpcircuit

import (
	"errors"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcircuit/toolcircuit"
	shared "github.com/toolcircuit/toolcircuit/internal/mcp"
)

// MetaKey is the key in _meta under which a blocked result has a copy as an object, with the keys of
// a [toolcircuit.Result]. A list that stands in for another has an object with a status there.
const MetaKey = shared.MetaKey

// resultOf returns what a call of a tool returned, with what the guard has to say to the model.
func resultOf(res mcp.Result, told *toolcircuit.Result[any], err error) (mcp.Result, error) {
	if err != nil || told == nil {
		return res, err
	}
	if told.Status != toolcircuit.StatusBlocked {
		r, ok := res.(*mcp.CallToolResult)
		if !ok || r == nil || r.NeedsInput() || r.InputRequests != nil {
			return res, nil
		}
		own := *r // the tool's may be that of other calls, too
		own.Content = append(slices.Clip(r.Content), &mcp.TextContent{Text: told.Advice})
		return &own, nil
	}
	text, meta, err := shared.Blocked(*told)
	if err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{
		Meta:    mcp.Meta{MetaKey: meta},
		Content: []mcp.Content{&mcp.TextContent{Text: text}},
		IsError: true,
		// No StructuredContent: the tool may have an output schema, which this would break.
	}, nil
}

// ToolError is the error that a Classifier sees beside a result with isError for which
// [mcp.CallToolResult.GetError] knows no error. No rule knows it: where no Classifier decides,
// Policy.CountUnknown does.
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

// judged returns the value and the error that a tool's circuit is to judge an answer by.
func judged(res mcp.Result, err error) (value any, seen error) {
	var answer *jsonrpc.Error
	if errors.As(err, &answer) {
		return nil, shared.Meaning(err, answer.Code)
	} else if err != nil {
		return nil, err
	}
	r, ok := res.(*mcp.CallToolResult)
	switch {
	case !ok || r == nil: // the SDK allows a handler to return a nil result
		return nil, nil
	case r.NeedsInput() || r.InputRequests != nil:
		if len(r.InputRequests) == 0 {
			return r, shared.ErrBusy
		}
		return r, shared.ErrInput
	case !r.IsError:
		return r, nil
	case shared.IsBlocked(r.Meta[MetaKey]):
		return r, shared.ErrRefused
	case r.GetError() != nil:
		return r, r.GetError()
	}
	return r, &ToolError{r}
}
