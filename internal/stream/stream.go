// Package stream bounds a call whose answer is a stream. A plain call has CallTimeout from its
// admission to its end. A stream has it until the first part has come, and may then take as long as
// it likes.
package stream

import (
	"context"
	"errors"
)

// errFlows is the cause with which the bounded context ends when the first part has come.
var errFlows = errors.New("stream: the first part has come")

// Context returns the context of an operation whose answer is a stream. prepare is the Context method of
// a permit. The context has the values of prepare's, and ends when that ends. After flows it ends only with
// ctx and with end. A permit that is settled after flows is not judged by CallTimeout.
//
// Call flows when the first part has come, and end when the stream is over. Both are safe to call again,
// and from any goroutine.
func Context(ctx context.Context, prepare func(context.Context) context.Context) (stream context.Context, flows, end func()) {
	first, came := context.WithCancelCause(ctx)
	bounded := prepare(first)
	stream, cancel := context.WithCancelCause(withValues{ctx, context.WithoutCancel(bounded)})
	stop := context.AfterFunc(bounded, func() {
		if cause := context.Cause(bounded); cause != errFlows && ctx.Err() == nil { // which stream has from ctx
			cancel(cause)
		}
	})
	flows = func() { came(errFlows) }
	end = func() {
		stop()
		flows()
		cancel(context.Canceled)
	}
	return stream, flows, end
}

// withValues is a context with the values of another, which has no end.
type withValues struct {
	context.Context
	values context.Context
}

func (c withValues) Value(key any) any {
	if v := c.values.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key) // its own end is found by a key, too
}
