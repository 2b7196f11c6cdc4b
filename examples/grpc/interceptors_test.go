package main

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

const threshold = 3

var (
	request = &health.HealthCheckRequest{}
	serving = &health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}
)

// rig is a client of one service.
type rig struct {
	now    *clock.Mock
	set    *toolset.Set
	client health.HealthClient
	calls  chan toolcircuit.Call
}

func newRig(t *testing.T, s service) *rig {
	r := &rig{now: clock.NewMock(), calls: make(chan toolcircuit.Call, 100)}
	var err error
	r.set, err = toolset.New(toolset.Config{
		Monitored: []string{"*"},
		Default:   &toolcircuit.Policy{FailureThreshold: threshold, CallTimeout: 10 * time.Second},
	}, toolset.Options{Clock: r.now, OnCall: func(_ context.Context, c toolcircuit.Call) { r.calls <- c }})
	require.NoError(t, err)
	var disconnect func()
	r.client, disconnect, err = s.connect(interceptors(r.set)...)
	require.NoError(t, err)
	t.Cleanup(disconnect)
	return r
}

func (r *rig) inFlight() int { return r.set.Snapshot().Circuits[0].InFlight }

// receive makes a streaming call and reads it to its end.
func (r *rig) receive(ctx context.Context) error {
	s, err := r.client.Watch(ctx, request)
	for err == nil {
		_, err = s.Recv()
	}
	return err
}

// A turn of calls at once against a dead service: each has one result, and few reach the service.
func TestBurst(t *testing.T) {
	const inFlight = 4
	var hits atomic.Int32
	dead := func() error {
		hits.Add(1)
		return status.Error(codes.Unavailable, "out of order")
	}
	r := newRig(t, service{
		check: func(context.Context) (*health.HealthCheckResponse, error) { return nil, dead() },
		watch: func(health.Health_WatchServer) error { return dead() },
	})
	var answered, refused atomic.Int32
	var turn sync.WaitGroup
	for i := range inFlight {
		turn.Go(func() {
			for range 10 {
				var err error
				if i%2 == 0 {
					err = r.receive(t.Context())
				} else {
					_, err = r.client.Check(t.Context(), request)
				}
				switch {
				case errors.Is(err, toolcircuit.ErrCircuitOpen):
					refused.Add(1)
				case status.Code(err) == codes.Unavailable:
					answered.Add(1)
				}
			}
		})
	}
	turn.Wait()
	require.EqualValues(t, 10*inFlight, answered.Load()+refused.Load())
	require.LessOrEqual(t, hits.Load(), int32(threshold+inFlight-1))
	require.Zero(t, r.inFlight())
}

// A service that does not answer is left at CallTimeout.
func TestHang(t *testing.T) {
	hangs := make(chan struct{})
	r := newRig(t, service{
		check: func(ctx context.Context) (*health.HealthCheckResponse, error) {
			hangs <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		},
		watch: func(w health.Health_WatchServer) error {
			hangs <- struct{}{}
			<-w.Context().Done()
			return nil
		},
	})
	for name, call := range map[string]func() error{
		"unary":  func() error { _, err := r.client.Check(t.Context(), request); return err },
		"stream": func() error { return r.receive(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			go func() {
				<-hangs
				r.now.Add(10 * time.Second)
			}()
			require.ErrorIs(t, call(), toolcircuit.ErrCallTimeout)
			require.Equal(t, toolcircuit.KindTimeout, (<-r.calls).Verdict.Kind)
			require.Zero(t, r.inFlight())
		})
	}
}

// A stream that flows may take longer than CallTimeout; the call is over when it is.
func TestStream(t *testing.T) {
	for name, test := range map[string]struct {
		end  error
		kind toolcircuit.Kind
	}{
		"read to the end": {nil, toolcircuit.KindOK},
		"broken off":      {status.Error(codes.Unavailable, "overloaded"), toolcircuit.KindUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			goOn := make(chan struct{})
			r := newRig(t, service{watch: func(w health.Health_WatchServer) error {
				w.Send(serving)
				<-goOn
				w.Send(serving)
				return test.end
			}})
			s, err := r.client.Watch(t.Context(), request)
			require.NoError(t, err)
			_, err = s.Recv()
			require.NoError(t, err)
			r.now.Add(time.Minute)
			require.Empty(t, r.calls)
			require.Equal(t, 1, r.inFlight())
			close(goOn)
			_, err = s.Recv()
			require.NoError(t, err)
			_, err = s.Recv()
			if test.end == nil {
				require.Equal(t, io.EOF, err)
			} else {
				require.Equal(t, status.Code(test.end), status.Code(err))
			}
			require.Equal(t, test.kind, (<-r.calls).Verdict.Kind)
			require.Zero(t, r.inFlight())
		})
	}
}

// A caller that has enough ends its context, and does the service no wrong.
func TestCallerLeaves(t *testing.T) {
	r := newRig(t, service{watch: func(w health.Health_WatchServer) error {
		w.Send(serving)
		<-w.Context().Done()
		return w.Context().Err()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	s, err := r.client.Watch(ctx, request)
	require.NoError(t, err)
	_, err = s.Recv()
	require.NoError(t, err)
	cancel()
	require.Equal(t, toolcircuit.KindCanceled, (<-r.calls).Verdict.Kind) // without another Recv
	_, err = s.Recv()
	require.Equal(t, codes.Canceled, status.Code(err))
	require.Zero(t, r.inFlight())
}
