// Package mcp is what the adapters for SDKs of the Model Context Protocol share. It knows the
// protocol by its JSON and its HTTP, and neither SDK. The adapters are released apart from the
// module that this package is in, so its names are kept like public ones.
package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// MetaKey is the key in _meta of a blocked result's machine-readable copy, and of what marks a
// list that stands in for another.
const MetaKey = "toolcircuit/result"

// Prefix begins the name of a server's circuit.
const Prefix = "mcp:"

// The methods that a guard knows.
const (
	CallTool    = "tools/call"
	ListTools   = "tools/list"
	Ping        = "ping"
	SetLevel    = "logging/setLevel"
	Subscribe   = "resources/subscribe"
	Unsubscribe = "resources/unsubscribe"
	ListChanged = "notifications/tools/list_changed"
)

// ToolName returns name, or "", which is never guarded, if it would be a server's.
func ToolName(name string) string {
	if strings.HasPrefix(name, Prefix) {
		return ""
	}
	return name
}

// Blocked returns what the model reads in place of a call's result: the JSON of r, and the same as a
// map, for _meta.
func Blocked(r toolcircuit.Result[any]) (text string, meta map[string]any, err error) {
	data, err := json.Marshal(r)
	if err != nil {
		return "", nil, err
	}
	err = json.Unmarshal(data, &meta)
	return string(data), meta, err
}

// IsBlocked reports whether what a result has under MetaKey says that a circuit on the other end
// refused the call.
func IsBlocked(meta any) bool {
	m, _ := meta.(map[string]any)
	return m["status"] == string(toolcircuit.StatusBlocked)
}

// Hides reports whether a Set hides tools at all.
func Hides(set *toolset.Set) bool {
	c := set.Config()
	return c.Hide == toolset.HideOpen && !c.Disabled
}

// advised returns the advice that a run's session has for the model in the result of a call of tool
// that ran, nil if there is none. It is said once.
func advised(ctx context.Context, set *toolset.Set, tool string, v toolcircuit.Verdict) *toolcircuit.Result[any] {
	r, err := toolset.ResultOf[any](ctx, set, tool, nil, v, nil)
	if err != nil || r.Advice == "" {
		return nil
	}
	return &r
}

// The codes of errors in JSON-RPC and MCP that say what they are about. An internal error
// (-32603) may be anything.
const (
	codeParse            = -32700
	codeInvalidRequest   = -32600
	codeMethodNotFound   = -32601
	codeInvalidParams    = -32602
	codeHeaderMismatch   = -32020
	codeCapability       = -32021
	codeVersion          = -32022
	codeResourceNotFound = -32002
	codeURLElicitation   = -32042
	codeInterrupted      = -32800
)

// ErrInput stands for a result, or an error, that asks the client for input. It counts for
// nothing.
var ErrInput = toolcircuit.Benign(errors.New("mcp: the tool asks for input"))

// ErrBusy stands for a result that asks for input and names none, with which a server sheds load.
var ErrBusy error = &toolcircuit.HTTPError{StatusCode: 429}

// ErrRefused stands for a blocked result that a circuit on the other end has made.
var ErrRefused error = refused{}

type refused struct{}

func (refused) Error() string { return "mcp: refused by a circuit on the other end" }

func (refused) Is(target error) bool { return target == toolcircuit.ErrCircuitOpen }

// meanings are what the codes mean to the rules.
var meanings = map[int64]error{
	codeParse:            &toolcircuit.HTTPError{StatusCode: 400},
	codeInvalidRequest:   &toolcircuit.HTTPError{StatusCode: 400},
	codeMethodNotFound:   &toolcircuit.HTTPError{StatusCode: 400},
	codeInvalidParams:    &toolcircuit.HTTPError{StatusCode: 400},
	codeHeaderMismatch:   &toolcircuit.HTTPError{StatusCode: 400},
	codeCapability:       &toolcircuit.HTTPError{StatusCode: 400},
	codeVersion:          &toolcircuit.HTTPError{StatusCode: 400},
	codeResourceNotFound: &toolcircuit.HTTPError{StatusCode: 404},
	codeURLElicitation:   ErrInput,
	codeInterrupted:      context.Canceled,
}

// Meaning adds to the error of a call that was answered with a code what the rules should make
// of it.
func Meaning(err error, code int64) error {
	if meaning := meanings[code]; meaning != nil {
		return &With{Err: err, Known: meaning}
	}
	return err
}

// With is an error of an SDK and what it leaves out.
type With struct{ Err, Known error }

func (e *With) Error() string { return e.Err.Error() }

// Unwrap returns both.
func (e *With) Unwrap() []error { return []error{e.Err, e.Known} }
