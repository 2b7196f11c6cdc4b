package main

import (
	"context"
	"sync/atomic"
	"time"
)

//go:noinline
func floorClosure() call {
	return func(ctx context.Context) {
		n := in[2]
		bare(ctx, func(context.Context) (int, error) { return in[0] + n, nil })
	}
}

//go:noinline
func bare(ctx context.Context, op func(context.Context) (int, error)) (int, error) { return op(ctx) }

//go:noinline
func floorDefer() call {
	return func(ctx context.Context) {
		n := in[2]
		deferred(ctx, func(context.Context) (int, error) { return in[0] + n, nil })
	}
}

//go:noinline
func deferred(ctx context.Context, op func(context.Context) (int, error)) (n int, err error) {
	err = errSick
	defer func() {
		if err == errSick {
			in[3]++
		}
	}()
	return op(ctx)
}

//go:noinline
func floorAdd() call {
	var total atomic.Int64
	return func(ctx context.Context) {
		n := in[2]
		total.Add(1)
		bare(ctx, func(context.Context) (int, error) { return in[0] + n, nil })
	}
}

//go:noinline
func floorNow() call { return func(context.Context) { in[3] = time.Now().Nanosecond() } }
