package sdktest

import (
	"bufio"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func TestMongo(t *testing.T) {
	command := func(labels ...string) func(t *testing.T) error {
		return func(t *testing.T) error { return mongo.CommandError{Code: 1, Message: "no", Labels: labels} }
	}
	check(t, []row{
		{typ: "topology.ServerSelectionError", event: "nobody listens", want: timeout, fail: func(t *testing.T) error {
			c, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + closedPort(t)).SetServerSelectionTimeout(100 * time.Millisecond))
			require.NoError(t, err)
			defer c.Disconnect(context.Background())
			return c.Database("d").RunCommand(t.Context(), bson.D{{Key: "ping", Value: 1}}).Err()
		}},
		{typ: "mongo.CommandError", event: "network error", fail: command("NetworkError"), want: unavailable},
		{typ: "mongo.CommandError", event: "network error that the driver calls overload", fail: command("SystemOverloadedError", "RetryableError", "NetworkError"), want: unavailable},
		{typ: "mongo.CommandError", event: "write that can be retried", fail: command("RetryableWriteError"), want: unavailable},
		{typ: "mongo.CommandError", event: "overloaded server", fail: command("SystemOverloadedError", "RetryableError"), want: rateLimited},
		{typ: "mongo.CommandError", event: "server's own limit of time", fail: command("ExceededTimeLimitError"), want: timeout},
		{typ: "mongo.CommandError", event: "without a label", fail: command(), want: unknown, why: "the code is MongoDB's own, and has no shape"},
		{typ: "mongo.WriteException", event: "write that can be retried", fail: func(t *testing.T) error {
			return mongo.WriteException{Labels: []string{"RetryableWriteError"}}
		}, want: unavailable},
		{typ: "mongo.WriteException", event: "duplicate key", fail: func(t *testing.T) error {
			return mongo.WriteException{WriteErrors: mongo.WriteErrors{{Code: 11000}}}
		}, want: unknown, why: "the code is MongoDB's own, and has no shape"},
	})
}

// redisServer answers each command with a line.
func redisServer(t *testing.T, reply string) (address string) {
	return tcp(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if line[0] != '*' { // a command is an array: its elements are read on the way
				continue
			}
			_, _ = io.WriteString(c, reply)
		}
	})
}

func redisGet(t *testing.T, address string) error {
	c := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1, Protocol: 2, DisableIdentity: true, DialerRetries: 1})
	defer c.Close()
	return c.Get(t.Context(), "k").Err()
}

func TestRedis(t *testing.T) {
	check(t, []row{
		{event: "connection refused", want: unavailable, fail: func(t *testing.T) error { return redisGet(t, closedPort(t)) }},
		{event: "connection closed", want: unknown, why: "a plain io.EOF may be the end of a file", fail: func(t *testing.T) error {
			return redisGet(t, tcp(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) }))
		}},
		{typ: "*proto.LoadingError", event: "LOADING", want: unknown, why: "a type without a code: see ExampleForError_redis", fail: func(t *testing.T) error {
			return redisGet(t, redisServer(t, "-LOADING Redis is loading the dataset in memory\r\n"))
		}},
		{typ: "proto.RedisError", event: "redis.Nil", want: unknown, why: "an answer, which few tools return as an error", fail: func(t *testing.T) error {
			return redisGet(t, redisServer(t, "$-1\r\n"))
		}},
	})
}

func TestNATS(t *testing.T) {
	check(t, []row{
		{event: "no server", want: unknown, why: "a sentinel of its own: see Example_nats", fail: func(t *testing.T) error {
			_, err := nats.Connect("nats://" + closedPort(t))
			return err
		}},
		{event: "no responders", want: unknown, why: "a sentinel of its own: see Example_nats", fail: func(t *testing.T) error { return nats.ErrNoResponders }},
		{event: "timeout of a request", want: unknown, why: "a sentinel of its own, which is no net.Error: see Example_nats", fail: func(t *testing.T) error { return nats.ErrTimeout }},
	})
}
