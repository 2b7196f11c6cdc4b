package main

import (
	"context"
	"io"

	"google.golang.org/grpc"

	"github.com/toolcircuit/toolcircuit/internal/stream"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// interceptors return the options of a client whose calls go through the circuit of its target. The
// Set knows a target as a tool of that name. A refusal is returned as it is, so that
// [toolcircuit.ErrCircuitOpen] is found. Retries by a service config are off: they would run inside
// the circuit, which then sees one slow call in place of several that failed.
//
// A stream lasts until RecvMsg says that it is over, or until its context ends. CallTimeout bounds it
// until the first message. To use this elsewhere, copy this file and internal/stream/stream.go.
func interceptors(set *toolset.Set) []grpc.DialOption {
	unary := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		_, err := toolset.Do(ctx, set, cc.Target(), toolset.Unknown, func(ctx context.Context) (any, error) {
			return nil, next(ctx, method, req, reply, cc, opts...)
		})
		return err
	}
	streaming := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		permit, err := set.Allow(ctx, cc.Target(), toolset.Unknown)
		if err != nil {
			return nil, err
		}
		inner, flows, end := stream.Context(ctx, permit.Context)
		over := func(err error) error {
			defer end()
			_, err = permit.Settle(ctx, nil, err)
			return err
		}
		s, err := next(inner, desc, cc, method, opts...)
		if err != nil {
			return nil, over(err)
		}
		stop := context.AfterFunc(ctx, func() { over(ctx.Err()) }) // a caller that has enough says so by its context
		return &clientStream{s, desc.ServerStreams, flows, func(err error) error { stop(); return over(err) }}, nil
	}
	return []grpc.DialOption{
		grpc.WithUnaryInterceptor(unary), grpc.WithStreamInterceptor(streaming), grpc.WithDisableRetry(),
	}
}

// clientStream is a stream under a permit.
type clientStream struct {
	grpc.ClientStream
	several bool // answers may come
	flows   func()
	over    func(error) error
}

func (s *clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	switch {
	case err == io.EOF, err == nil && !s.several:
		s.over(nil)
	case err != nil:
		err = s.over(err)
	default:
		s.flows()
	}
	return err
}
