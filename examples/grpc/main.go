// Grpc gives a gRPC client a circuit by two interceptors. Its service dies and recovers.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
	"google.golang.org/grpc/codes"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

func run(ctx context.Context) error {
	now := clock.NewMock() // so that nobody has to wait
	set, err := toolset.New(toolset.Config{
		Monitored: []string{"*"},
		Default:   &toolcircuit.Policy{FailureThreshold: 3, Cooldown: 30 * time.Second},
	}, toolset.Options{Clock: now})
	if err != nil {
		return err
	}
	var down atomic.Bool
	down.Store(true)
	answer := func() (*health.HealthCheckResponse, error) {
		if down.Load() {
			return nil, status.Error(codes.Unavailable, "out of order")
		}
		return &health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}, nil
	}
	client, disconnect, err := service{
		check: func(context.Context) (*health.HealthCheckResponse, error) { return answer() },
		watch: func(w health.Health_WatchServer) error {
			a, err := answer()
			if err != nil {
				return err
			}
			return w.Send(a)
		},
	}.connect(interceptors(set)...)
	if err != nil {
		return err
	}
	defer disconnect()

	for range 3 {
		check(ctx, client)
	}
	check(ctx, client)
	watch(ctx, client)
	down.Store(false)
	now.Add(30 * time.Second)
	watch(ctx, client)
	check(ctx, client)
	return nil
}

// check makes a unary call.
func check(ctx context.Context, client health.HealthClient) {
	answer, err := client.Check(ctx, &health.HealthCheckRequest{})
	tell("unary", answer, err)
}

// watch makes a streaming call and reads its first message and its end.
func watch(ctx context.Context, client health.HealthClient) {
	s, err := client.Watch(ctx, &health.HealthCheckRequest{})
	if err != nil {
		tell("stream", nil, err)
		return
	}
	answer, err := s.Recv()
	tell("stream", answer, err)
	if err == nil {
		s.Recv()
	}
}

func tell(call string, answer *health.HealthCheckResponse, err error) {
	var refusal *toolcircuit.OpenError
	switch {
	case errors.As(err, &refusal):
		fmt.Printf("%s: not sent, the circuit is %s for %v\n", call, refusal.State, refusal.RetryAfter())
	case err != nil:
		fmt.Printf("%s: %s\n", call, status.Code(err))
	default:
		fmt.Printf("%s: %s\n", call, answer.Status)
	}
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
