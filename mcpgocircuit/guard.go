// Package mcpgocircuit puts the circuits of a [toolset.Set] around tools of the Model Context
// Protocol, with the SDK github.com/mark3labs/mcp-go. One function is for both ends:
//
//	server.NewMCPServer(name, version, server.WithToolHandlerMiddleware(mcpgocircuit.Guard(set)))
//	call := mcpgocircuit.Guard(set)(client.CallTool)
//
// With the defaults a client does not trip on a live server whose backend is dead: all that
// such a server sends is a result with isError or an internal error, which may as well tell the
// model of a mistake in its arguments. Set countUnknown in the policy of the tools for which it
// means a failure, give the Set a Classifier for [*ToolError], or guard the server, which sees
// the error that its handler returned.
//
// In a process that is both, a server that hands calls on to another, guard one end, or give
// the two ends different names: a call that asks one circuit twice is in its own way.
package mcpgocircuit

import (
	"context"
	"encoding/json"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// MetaKey is the key in _meta of a blocked result's machine-readable copy, an object with the
// keys of a [toolcircuit.Result].
const MetaKey = "toolcircuit/result"

// Guard returns the middleware for [server.WithToolHandlerMiddleware], and for a client's
// CallTool: what it makes of that is called in its place. It keeps nothing of its own, for the
// SDK applies it anew at each call. A nil set or handler panics.
//
// A refused call is answered with a [mcp.CallToolResult] that has IsError, the JSON of a
// blocked [toolcircuit.Result] as its text, and the same under [MetaKey]. So is a call whose
// handler returned the refusal of a circuit within. What any other call returned is passed on
// as it is, panics too. A tool that the Set does not guard is never refused. The rest is as
// with [toolset.Do]: CallTimeout ends the context of the call, and [toolcircuit.IsProbe] tells
// whether it is a probe.
//
// A circuit judges by codes and types, the same on both ends. An error is what it is to
// [toolcircuit.Classify]; beyond that, a session or a connection that is gone is unavailable,
// and the SDK's errors for requests that are at fault are invalid. A result with isError is
// a [*ToolError], which no rule knows. A result that asks for input counts for nothing, and is
// load shedding, so rate_limited, if it names no input. See [Transport] for what HTTP says.
func Guard(set *toolset.Set) server.ToolHandlerMiddleware {
	if set == nil {
		panic("mcpgocircuit: Guard: set is nil")
	}
	return func(next server.ToolHandlerFunc) server.ToolHandlerFunc {
		if next == nil {
			panic("mcpgocircuit: Guard: the handler is nil")
		}
		return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return call(ctx, set, next, req)
		}
	}
}

func call(ctx context.Context, set *toolset.Set, next server.ToolHandlerFunc, req mcp.CallToolRequest) (res *mcp.CallToolResult, err error) {
	if req.Params.Task != nil && server.ServerFromContext(ctx) != nil {
		ctx = context.WithoutCancel(ctx) // which the SDK ends with the request that began the task
	}
	tool, ran := req.Params.Name, false
	_, judged := toolset.Do(ctx, set, tool, req.Params.Arguments, func(ctx context.Context) (any, error) {
		ran = true
		h := new(hint)
		res, err = next(context.WithValue(ctx, hintKey{}, h), req)
		return judge(ctx, res, err, h)
	})
	if !ran {
		err = judged
	}
	if err == nil {
		return res, nil
	}
	if r, _ := toolset.ResultOf[any](ctx, set, tool, nil, toolcircuit.Verdict{}, err); r.Status == toolcircuit.StatusBlocked {
		return blocked(r)
	}
	return res, err
}

// blocked returns what the model reads in place of a result. It has no StructuredContent, for
// the tool may have an output schema, which that would break.
func blocked(r toolcircuit.Result[any]) (*mcp.CallToolResult, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var meta map[string]any // as it would come over a wire
	if err := json.Unmarshal(text, &meta); err != nil {
		return nil, err
	}
	res := mcp.NewToolResultError(string(text))
	res.Meta = mcp.NewMetaFromMap(map[string]any{MetaKey: meta})
	return res, nil
}

// Hide returns the hook for [server.Hooks.AddAfterListTools] that leaves out the tools which
// [toolset.Visible] leaves out. The SDK's own filters will not do: a tool that they hide is not
// found when it is called all the same, where this one is answered with a blocked result. A nil
// set panics.
//
// With pages, one of which all tools would be hidden stays whole.
func Hide(set *toolset.Set) server.OnAfterListToolsFunc {
	if set == nil {
		panic("mcpgocircuit: Hide: set is nil")
	}
	return func(ctx context.Context, _ any, _ *mcp.ListToolsRequest, result *mcp.ListToolsResult) {
		all := len(result.Tools)
		result.Tools = toolset.Visible(ctx, set, result.Tools, mcp.Tool.GetName)
		if len(result.Tools) < all && mcp.IsModernProtocol(server.RequestProtocolVersion(ctx)) {
			result.SetCacheHints(0, mcp.CacheScopePrivate) // it must not outlive the opening
		}
	}
}
