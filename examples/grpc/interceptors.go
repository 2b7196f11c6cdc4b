package main

import (
	"context"

	"google.golang.org/grpc"

	"github.com/toolcircuit/toolcircuit/stream"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// interceptors return the options of a client whose calls go through the circuit of its target. The
// Set knows a target as a tool of that name. A refusal is returned as it is, so that
// [toolcircuit.ErrCircuitOpen] is found. Retries by a service config are off: they would run inside
// the circuit, which then sees one slow call in place of several that failed.
//
// A stream lasts until RecvMsg says that it is over, or until its context ends. CallTimeout bounds it
// until the first message. To use this elsewhere, copy this file.
func interceptors(set *toolset.Set) []grpc.DialOption {
	unary := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		_, err := toolset.Do(ctx, set, cc.Target(), toolset.Unknown, func(ctx context.Context) (any, error) {
			return nil, next(ctx, method, req, reply, cc, opts...)
		})
		return err
	}
	streaming := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, call, err := stream.Open(ctx, set, cc.Target(), toolset.Unknown, func(ctx context.Context) (grpc.ClientStream, error) {
			return next(ctx, desc, cc, method, opts...)
		})
		if err != nil {
			return nil, err
		}
		return &clientStream{s, call, desc.ServerStreams}, nil
	}
	return []grpc.DialOption{grpc.WithUnaryInterceptor(unary), grpc.WithStreamInterceptor(streaming), grpc.WithDisableRetry()}
}

// clientStream is a stream with the circuit of its target.
type clientStream struct {
	grpc.ClientStream
	call    *stream.Call
	several bool // answers may come
}

func (s *clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil && !s.several {
		defer s.call.End(nil)
	}
	return s.call.Part(err)
}
