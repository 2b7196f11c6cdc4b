package mcp

import (
	"context"
	"errors"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// Serve runs a tool's handler on a server, under the tool's circuit. judge returns the value and
// the error by which the circuit judges what run returned, where err may hide in the result.
//
// told is what the guard has to say to the model, nil if nothing. It is a blocked result, to be read
// in place of res, if the call, or one within it, was refused. Otherwise it has Advice, to be read
// beside res.
func Serve[R any](ctx context.Context, set *toolset.Set, tool string, args any,
	run func(context.Context) (R, error), judge func(R, error) (any, error),
) (res R, told *toolcircuit.Result[any], err error) {
	permit, err := set.Allow(ctx, tool, args)
	if err != nil {
		told, err = result(toolset.ResultOf[any](ctx, set, tool, nil, toolcircuit.Verdict{}, err))
		return res, told, err
	}
	var value any
	seen := toolcircuit.ErrNoReturn
	defer func() { permit.Settle(ctx, value, seen) }() // if the handler does not return
	res, err = run(permit.Context(ctx))
	value, seen = judge(res, err)
	v, seen := permit.Settle(ctx, value, seen)
	if v.Kind == toolcircuit.KindRejected && !errors.Is(seen, ErrRefused) && errors.Is(seen, toolcircuit.ErrCircuitOpen) {
		if r, e := toolset.ResultOf[any](ctx, set, tool, nil, v, seen); e == nil && r.Status == toolcircuit.StatusBlocked {
			return res, &r, nil
		}
	}
	if err != nil {
		return res, nil, err
	}
	return res, advised(ctx, set, tool, v), nil
}

// result returns r, except with an error.
func result(r toolcircuit.Result[any], err error) (*toolcircuit.Result[any], error) {
	if err != nil {
		return nil, err
	}
	return &r, nil
}
