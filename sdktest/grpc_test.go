package sdktest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
)

// rpc makes one call to a server that answers with err.
func rpc(t *testing.T, ctx context.Context, err error) error {
	l := bufconn.Listen(1 << 16)
	s := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return err }))
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return invoke(t, ctx, func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) })
}

func invoke(t *testing.T, ctx context.Context, dial func(context.Context, string) (net.Conn, error)) error {
	c, err := grpc.NewClient("passthrough:dep", grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c.Invoke(ctx, "/service/Method", &emptypb.Empty{}, &emptypb.Empty{})
}

func TestGRPC(t *testing.T) {
	const typ = "*status.Error"
	var rows []row
	for code, want := range map[codes.Code]verdict{
		codes.Canceled: canceled, codes.InvalidArgument: invalid, codes.DeadlineExceeded: timeout, codes.NotFound: notFound,
		codes.AlreadyExists: conflict, codes.PermissionDenied: unauthorized, codes.ResourceExhausted: rateLimited,
		codes.FailedPrecondition: invalid, codes.Aborted: conflict, codes.OutOfRange: invalid, codes.Unimplemented: invalid,
		codes.Internal: unavailable, codes.Unavailable: unavailable, codes.DataLoss: unavailable, codes.Unauthenticated: unauthorized,
	} {
		rows = append(rows, row{typ: typ, event: code.String(), want: want, fail: func(t *testing.T) error {
			return rpc(t, t.Context(), status.Error(code, "no"))
		}})
	}
	told := func(code codes.Code) error {
		s, err := status.New(code, "no").WithDetails(&errdetails.Help{}, &errdetails.RetryInfo{RetryDelay: durationpb.New(2500 * time.Millisecond)})
		require.NoError(t, err)
		return s.Err()
	}
	check(t, append(rows, []row{
		{typ: typ, event: "Unknown", want: unknown, why: "what a server says of an error without a code", fail: func(t *testing.T) error {
			return rpc(t, t.Context(), errors.New("no"))
		}},
		{typ: typ, event: "beyond the list", want: unknown, why: "not a code of gRPC", fail: func(t *testing.T) error {
			return rpc(t, t.Context(), status.Error(99, "no"))
		}},
		{typ: typ, event: "ResourceExhausted with RetryInfo", want: paused(2500 * time.Millisecond), fail: func(t *testing.T) error {
			return rpc(t, t.Context(), told(codes.ResourceExhausted))
		}},
		{typ: typ, event: "Unavailable with RetryInfo", want: waiting(unavailable, 2500*time.Millisecond), fail: func(t *testing.T) error {
			return rpc(t, t.Context(), told(codes.Unavailable))
		}},
		{typ: typ, event: "InvalidArgument with RetryInfo", want: invalid, fail: func(t *testing.T) error {
			return rpc(t, t.Context(), told(codes.InvalidArgument))
		}},
		{typ: typ, event: "Unavailable, wrapped", want: unavailable, fail: func(t *testing.T) error {
			return fmt.Errorf("search: %w", rpc(t, t.Context(), status.Error(codes.Unavailable, "no")))
		}},
		{typ: typ, event: "Unavailable beside NotFound", want: unavailable, fail: func(t *testing.T) error {
			return errors.Join(rpc(t, t.Context(), status.Error(codes.NotFound, "no")), rpc(t, t.Context(), status.Error(codes.Unavailable, "no")))
		}},
		{typ: typ, event: "nobody listens", want: unavailable, fail: func(t *testing.T) error {
			return invoke(t, t.Context(), func(ctx context.Context, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", closedPort(t))
			})
		}},
		{typ: typ, event: "server hangs up", want: unavailable, fail: func(t *testing.T) error {
			address := tcp(t, func(c net.Conn) { _, _ = io.ReadFull(c, make([]byte, 24)) })
			return invoke(t, t.Context(), func(ctx context.Context, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", address)
			})
		}},
		{typ: typ, event: "deadline of an attempt", want: timeout, fail: func(t *testing.T) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			<-ctx.Done()
			return rpc(t, ctx, nil)
		}},
		{typ: typ, event: "cancelled attempt", want: canceled, fail: func(t *testing.T) error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return rpc(t, ctx, nil)
		}},
	}...))
}
