// Package stream puts a circuit around a call whose answer is a stream. A plain call has CallTimeout
// from its admission to its end. A stream has it until the first part has come, and may then take
// as long as it likes. The call is judged when the stream ends or breaks.
//
//	s, call, err := stream.Open(ctx, set, "search", query, client.Stream)
//	if err != nil {
//		return err // refused, or it could not be opened
//	}
//	defer call.End(nil) // if the reader has enough
//	for {
//		part, err := s.Recv()
//		if err = call.Part(err); err != nil {
//			return err // io.EOF at the healthy end
//		}
//	}
package stream

import (
	"context"
	"errors"
	"io"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// errFlows is the cause with which the bounded context ends when the first part has come.
var errFlows = errors.New("stream: the first part has come")

// Context returns the context of an operation whose answer is a stream, for adapters that hold a
// permit of their own. prepare is the permit's Context method. The context has the values of
// prepare's, and ends when that ends. After flows it ends only with ctx and with end. A permit that
// is settled after flows is not judged by CallTimeout.
//
// Call flows when the first part has come, and end when the stream is over. Both are safe to call
// again, and from any goroutine.
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

// Call is one call from [Open]. It is settled once: by the first of its methods that settles it, or
// by the end of its caller's context. It is safe for concurrent use.
type Call struct {
	permit     toolset.Permit
	ctx        context.Context // of the caller
	flows, end func()
}

// Open opens a stream with the circuit of a tool around it. args are as in [toolset.Do]. If the call
// is refused, c is nil. If open returns an error, the call is over. A panic of open counts, and
// passes. A call that is neither read to its end nor ended is over when ctx ends. A nil argument
// panics.
func Open[T any](ctx context.Context, s *toolset.Set, tool string, args any, open func(context.Context) (T, error)) (opened T, c *Call, err error) {
	if open == nil {
		panic("stream: Open: open is nil")
	}
	c = &Call{ctx: ctx}
	if c.permit, err = s.Allow(ctx, tool, args); err != nil {
		return opened, nil, err
	}
	inner, flows, end := Context(ctx, c.permit.Context)
	stop := context.AfterFunc(ctx, func() { c.permit.Settle(ctx, nil, ctx.Err()) })
	c.flows, c.end = flows, func() { stop(); end() }
	err = toolcircuit.ErrNoReturn
	defer func() {
		if err != nil {
			err = c.End(err)
		}
	}()
	opened, err = open(inner)
	return opened, c, err
}

// Part takes the error with which the stream gave a part: nil, [io.EOF] at its healthy end, or that
// of a failure. It returns the error for the reader.
func (c *Call) Part(err error) error {
	switch err {
	case nil:
		c.flows()
	case io.EOF:
		c.End(nil)
	default:
		return c.End(err)
	}
	return err
}

// End settles the call, and ends the context of the stream. err is nil if the stream ended well or
// its reader has enough. It returns the error for the reader.
func (c *Call) End(err error) error {
	defer c.end()
	_, err = c.permit.Settle(c.ctx, nil, err)
	return err
}

// Judge settles the call before its stream ends, if err is not nil or over is true, which says that
// no part will come. The stream can still be read.
func (c *Call) Judge(err error, over bool) {
	if err != nil || over {
		c.flows()
		c.permit.Settle(c.ctx, nil, err)
	}
}
