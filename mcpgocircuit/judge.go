package mcpgocircuit

import (
	"context"
	"errors"
	"sync"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/toolcircuit/toolcircuit"
	shared "github.com/toolcircuit/toolcircuit/internal/mcp"
)

// ToolError is the error that a Classifier sees beside a result with isError. No rule knows it: where
// no Classifier decides, Policy.CountUnknown does.
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

// Report tells the guard around a handler which error its result with isError stands for, and
// returns err. The SDK keeps only the text of that error:
//
//	return mcp.NewToolResultError(mcpgocircuit.Report(ctx, err).Error()), nil
//
// In a handler for mcp.NewStructuredToolHandler or mcp.NewTypedToolHandler, return
// mcpgocircuit.Report(ctx, err) in place of err. The last Report of a call counts. Without a guard,
// or with a nil err, Report only returns err. It is safe for concurrent use.
func Report(ctx context.Context, err error) error {
	if n, _ := ctx.Value(noteKey{}).(*note); n != nil && err != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.err = err
	}
	return err
}

type noteKey struct{}

// note is what a handler has reported.
type note struct {
	mu  sync.Mutex
	err error
}

func (n *note) reported() error {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

var errNoResult = errors.New("mcpgocircuit: the handler returned no result")

// judged returns the value and the error by which a circuit judges an answer. A Classifier sees a
// result as the SDK's type, and never a nil one.
func judged(ctx context.Context, res *mcp.CallToolResult, err error, n *note) (value any, seen error) {
	switch {
	case err != nil:
		return nil, withMeaning(err)
	case res == nil:
		return nil, errNoResult
	case res.NeedsInput() && len(res.InputRequests) == 0:
		return res, shared.ErrBusy
	case res.NeedsInput():
		return res, shared.ErrInput
	case res.Meta != nil && shared.IsBlocked(res.Meta.AdditionalFields[MetaKey]):
		return res, shared.ErrRefused
	}
	inner := toolcircuit.Outcome{Value: res.StructuredContent}
	if toolcircuit.Classify(ctx, inner).Kind != toolcircuit.KindOK { // a Result with its own story
		return res.StructuredContent, nil
	}
	switch err := n.reported(); {
	case res.IsError && err != nil:
		return res, err
	case res.IsError:
		return res, &ToolError{res}
	}
	return res, nil
}

// codes are those of the SDK's errors.
var codes = []struct {
	err  error
	code int64
}{
	{mcp.ErrParseError, mcp.PARSE_ERROR},
	{mcp.ErrInvalidRequest, mcp.INVALID_REQUEST},
	{mcp.ErrMethodNotFound, mcp.METHOD_NOT_FOUND},
	{mcp.ErrInvalidParams, mcp.INVALID_PARAMS},
	{mcp.HeaderMismatchError{}, mcp.HEADER_MISMATCH},
	{mcp.MissingRequiredClientCapabilityError{}, mcp.MISSING_REQUIRED_CLIENT_CAPABILITY},
	{mcp.UnsupportedProtocolVersionError{}, mcp.UNSUPPORTED_PROTOCOL_VERSION},
	{mcp.ErrResourceNotFound, mcp.RESOURCE_NOT_FOUND},
	{mcp.ErrRequestInterrupted, mcp.REQUEST_INTERRUPTED},
	{mcp.URLElicitationRequiredError{}, mcp.URL_ELICITATION_REQUIRED},
}

// withMeaning adds to an error what the rules should make of it.
func withMeaning(err error) error {
	for _, target := range []error{transport.ErrAuthorizationRequired, transport.ErrOAuthAuthorizationRequired} {
		if errors.Is(err, target) {
			return &shared.With{Err: err, Known: &toolcircuit.HTTPError{StatusCode: 401}}
		}
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return shared.Meaning(err, c.code)
		}
	}
	return err
}

// signs returns what an error of the SDK says by itself.
func signs(err error) (s shared.Signs) {
	var failed *transport.Error
	s.Unsent = errors.Is(err, transport.ErrSessionTerminated) // known before it sends, except by a 404 of its own
	s.Closed = s.Unsent || errors.Is(err, transport.ErrTransportClosed)
	s.Answer = !s.Closed && !errors.As(err, &failed)
	return s
}
