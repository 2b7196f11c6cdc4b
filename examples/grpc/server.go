package main

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"
)

// service is a gRPC service in memory. It is the standard one of health checks, because that has both
// a unary and a streaming method.
type service struct {
	health.UnimplementedHealthServer
	check func(context.Context) (*health.HealthCheckResponse, error)
	watch func(health.Health_WatchServer) error
}

func (s service) Check(ctx context.Context, _ *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	return s.check(ctx)
}

func (s service) Watch(_ *health.HealthCheckRequest, w health.Health_WatchServer) error {
	return s.watch(w)
}

// connect starts s and returns a client of it. close ends both.
func (s service) connect(opts ...grpc.DialOption) (client health.HealthClient, close func(), err error) {
	near := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	health.RegisterHealthServer(server, s)
	go server.Serve(near)
	conn, err := grpc.NewClient("passthrough:///search-api", append(opts,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return near.DialContext(ctx) }),
	)...)
	if err != nil {
		server.Stop()
		return nil, nil, err
	}
	return health.NewHealthClient(conn), func() { conn.Close(); server.Stop() }, nil
}
