// Package adapter is what the adapters of agent runtimes share. It imports no SDK.
package adapter

import (
	"context"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// interrupted is the value of a call that its runtime interrupted, for instance to ask a person.
// The circuit and the session ignore it.
var interrupted any = toolcircuit.Result[any]{
	Status:  toolcircuit.StatusFailed,
	Blocked: toolcircuit.Blocked{Cause: toolcircuit.KindInterrupt},
}

// Call is one call of a tool, from [Begin]. It must end with Settle or Interrupt.
type Call struct {
	toolset.Permit
	ctx  context.Context
	set  *toolset.Set
	tool string
}

// Begin asks for one call of a tool, with args as in [toolset.Set.Allow]. If the call is refused,
// c is nil, and told and err are as [Call.Settle] returns them.
func Begin(ctx context.Context, set *toolset.Set, tool string, args any) (c *Call, told *toolcircuit.Result[any], err error) {
	c = &Call{ctx: ctx, set: set, tool: tool}
	if c.Permit, err = set.Allow(ctx, tool, args); err != nil {
		told, err = c.tell(toolcircuit.Verdict{}, err)
		return nil, told, err
	}
	return c, nil, nil
}

// Settle settles the call. told is what the model reads in place of the value, nil if it reads the
// value. The error is one that belongs to the runtime.
func (c *Call) Settle(value any, err error) (told *toolcircuit.Result[any], forCaller error) {
	v, err := c.Permit.Settle(c.ctx, value, err)
	return c.tell(v, err)
}

// Interrupt settles a call that its runtime interrupted. The runtime gets what the call returned,
// unchanged.
func (c *Call) Interrupt() { c.Permit.Settle(c.ctx, interrupted, nil) }

// tell returns what the model reads about err, or the error if it belongs to the runtime.
func (c *Call) tell(v toolcircuit.Verdict, err error) (*toolcircuit.Result[any], error) {
	if err == nil {
		return nil, nil
	}
	r, err := toolset.ResultOf[any](c.ctx, c.set, c.tool, nil, v, err)
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// Do runs a call of a tool whose op returns when the call is over. interrupts reports whether the
// runtime interrupted it. If told and err are nil, value is op's. If the call was interrupted,
// value and err are op's.
func Do[T any](ctx context.Context, set *toolset.Set, tool string, args any, op func(context.Context) (T, error),
	interrupts func(T, error) bool) (value T, told *toolcircuit.Result[any], err error) {
	c, told, err := Begin(ctx, set, tool, args)
	if c == nil {
		return value, told, err
	}
	defer c.Release()
	err = toolcircuit.ErrNoReturn
	defer func() {
		if err == toolcircuit.ErrNoReturn || !interrupts(value, err) {
			told, err = c.Settle(value, err)
			return
		}
		c.Interrupt()
	}()
	value, err = op(c.Context(ctx))
	return value, nil, err
}

// EndTurn reports whether the session in ctx wants no more calls in this turn. tool is any tool of
// the run.
func EndTurn(ctx context.Context, set *toolset.Set, tool string) bool {
	// This asks what a refusal would say. It refuses nothing and counts nothing.
	r, _ := toolset.ResultOf[any](ctx, set, tool, nil, toolcircuit.Verdict{}, toolcircuit.ErrCircuitOpen)
	return r.EndTurn
}

// Stopped is the answer of a run whose model calls tools again after [EndTurn] reported true.
const Stopped = "I stop here: the tools that this needs cannot be called now."
