package mcpgocircuit

import (
	"context"
	"errors"
	"io"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/toolcircuit/toolcircuit"
)

// ToolError is how a result with isError is shown to a Classifier, as the error beside that
// result. No rule knows it, so Policy.CountUnknown decides where no Classifier does.
type ToolError struct{ Result *mcp.CallToolResult }

// Error returns the first text of the result, which is the server's.
func (e *ToolError) Error() string {
	for _, c := range e.Result.Content {
		if text, ok := c.(mcp.TextContent); ok {
			return text.Text
		}
	}
	return "the tool answered with an error"
}

var (
	errNoResult = errors.New("mcpgocircuit: the handler returned no result")
	errInput    = toolcircuit.Benign(errors.New("mcpgocircuit: the tool asks for input"))
)

// judge returns the value and the error by which a circuit judges what a call returned. A
// Classifier sees a result as the SDK's type, and never a nil one.
func judge(ctx context.Context, res *mcp.CallToolResult, err error, h *hint) (value any, judged error) {
	switch {
	case err != nil:
		return nil, explain(err, h)
	case res == nil:
		return nil, errNoResult
	case res.NeedsInput() && len(res.InputRequests) == 0: // by the protocol, the server is too busy
		return res, &toolcircuit.HTTPError{StatusCode: 429}
	case res.NeedsInput():
		return res, errInput
	case res.Meta != nil && res.Meta.AdditionalFields[MetaKey] != nil: // a circuit on the other end
		return res, toolcircuit.ErrCircuitOpen
	}
	inner := toolcircuit.Outcome{Value: res.StructuredContent}
	if toolcircuit.Classify(ctx, inner).Kind != toolcircuit.KindOK { // a Result with its own story
		return res.StructuredContent, nil
	}
	if res.IsError {
		return res, &ToolError{res}
	}
	return res, nil
}

// explained is an error with another that means the same and that the rules know.
type explained struct {
	error
	meaning error
}

func (e *explained) Unwrap() []error { return []error{e.meaning, e.error} }

// lost are the errors of a session or a connection that is no more.
var lost = []error{transport.ErrSessionTerminated, transport.ErrTransportClosed}

// meanings are what the SDK's other errors mean. An internal error may be anything.
var meanings = []struct {
	meaning error
	errs    []error
}{
	{&toolcircuit.HTTPError{StatusCode: 400}, []error{
		mcp.ErrParseError, mcp.ErrInvalidRequest, mcp.ErrMethodNotFound, mcp.ErrInvalidParams,
		mcp.HeaderMismatchError{}, mcp.MissingRequiredClientCapabilityError{}, mcp.UnsupportedProtocolVersionError{},
	}},
	{&toolcircuit.HTTPError{StatusCode: 404}, []error{mcp.ErrResourceNotFound}},
	{&toolcircuit.HTTPError{StatusCode: 401}, []error{transport.ErrAuthorizationRequired, transport.ErrOAuthAuthorizationRequired}},
	{context.Canceled, []error{mcp.ErrRequestInterrupted}},
	{errInput, []error{mcp.URLElicitationRequiredError{}}},
}

// explain adds to the error of a call what it means, as far as the rules cannot know.
func explain(err error, h *hint) error {
	if isAny(err, lost) {
		return &explained{err, io.ErrUnexpectedEOF}
	}
	if meaning := h.of(err); meaning != nil {
		return &explained{err, meaning}
	}
	for _, m := range meanings {
		if isAny(err, m.errs) {
			return &explained{err, m.meaning}
		}
	}
	return err
}

func isAny(err error, targets []error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
