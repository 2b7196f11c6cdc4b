package redisstore_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/redisstore"
	"github.com/toolcircuit/toolcircuit/storetest"
)

// open returns a Store of its own client that is closed with the test.
func open[C redis.Options | redis.ClusterOptions | redis.FailoverOptions](t testing.TB, client C, o redisstore.Options) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(&client, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestStoreOnMiniredis(t *testing.T) {
	storetest.Run(t, func(t *testing.T) toolcircuit.Store {
		return open(t, redis.Options{Addr: miniOf(t).Addr()}, redisstore.Options{})
	})
}

func TestStoreOnARedisServer(t *testing.T) {
	servers := map[*testing.T]*server{}
	storetest.Run(t, func(t *testing.T) toolcircuit.Store {
		if servers[t] == nil {
			servers[t] = startServer(t)
		}
		return open(t, redis.Options{Addr: servers[t].addr()}, redisstore.Options{})
	})
}

// All options of one server: a user with only the rights that the README lists.
func TestStoreUnderTheACL(t *testing.T) {
	servers := map[*testing.T]*server{}
	storetest.Run(t, func(t *testing.T) toolcircuit.Store {
		if servers[t] == nil {
			servers[t] = startServer(t)
			servers[t].admin(append([]any{"ACL", "SETUSER"}, rights...)...)
		}
		return open(t, redis.Options{Addr: servers[t].addr(), Username: "circuits", Password: "secret"}, redisstore.Options{})
	})
}

var rights = []any{
	"circuits", "on", ">secret", "resetkeys", "resetchannels", "-@all", "~brk1:*", "&brk1:ev",
	"+evalsha", "+eval", "+hmget", "+hset", "+hdel", "+pexpire", "+time", "+publish", "+subscribe", "+ping", "+hello",
}

func TestNewFromClient(t *testing.T) {
	var none *redis.Client
	heeding := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	for _, c := range []struct {
		name   string
		client redis.UniversalClient
		want   string
	}{
		{"nil", nil, "the client is nil"},
		{"typed nil", none, "the client is nil"},
		{"deadlines ignored", redis.NewClient(&redis.Options{}), "set ContextTimeoutEnabled: true"},
		{"deadlines ignored by a cluster's", redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}), "set ContextTimeoutEnabled: true"},
		{"ring", redis.NewRing(&redis.RingOptions{}), "got a *redis.Ring"},
		{"heeding", heeding, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := redisstore.NewFromClient(c.client, redisstore.Options{})
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			require.NoError(t, s.Close())
			require.NoError(t, heeding.Close(), "Close must leave the client open")
		})
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		o    redisstore.Options
		want string
	}{
		{redisstore.Options{Ping: -1}, "Options.Ping: got -1ns, want at least 1ms"},
		{redisstore.Options{Ping: 1}, "Options.Ping: got 1ns, want at least 1ms"},
		{redisstore.Options{Prefix: "{a}"}, "Options.Prefix: got \"{a}\", want no braces"},
	} {
		_, err := redisstore.New(&redis.Options{}, c.o)
		require.ErrorContains(t, err, c.want)
	}
	_, err := redisstore.New((*redis.Options)(nil), redisstore.Options{})
	require.ErrorContains(t, err, "options are nil")
	_, err = redisstore.New(&redis.Options{DB: -1}, redisstore.Options{})
	require.ErrorContains(t, err, "Options.DB: got -1, want 0 or more")
	_, err = redisstore.New(&redis.ClusterOptions{}, redisstore.Options{})
	require.ErrorContains(t, err, "ClusterOptions.Addrs: got none")
	_, err = redisstore.New(&redis.FailoverOptions{SentinelAddrs: []string{"a:1"}}, redisstore.Options{})
	require.ErrorContains(t, err, "FailoverOptions.MasterName: got none")
	_, err = redisstore.New(&redis.FailoverOptions{MasterName: "m"}, redisstore.Options{})
	require.ErrorContains(t, err, "FailoverOptions.SentinelAddrs: got none")
	_, err = redisstore.New(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"a:1"}, DB: -1}, redisstore.Options{})
	require.ErrorContains(t, err, "FailoverOptions.DB: got -1")
}

func TestZeroStore(t *testing.T) {
	const text = "redisstore: the Store is nil; make one with New or NewFromClient"
	var s redisstore.Store
	_, err := s.Load(t.Context(), nil)
	require.EqualError(t, err, text)
	_, err = s.Trip(t.Context(), "key", toolcircuit.TripRequest{})
	require.EqualError(t, err, text)
	require.EqualError(t, s.Watch(t.Context(), nil, nil), text)
	require.EqualError(t, s.Close(), text)
}

var minis = map[*testing.T]*miniredis.Miniredis{}

// miniOf returns the miniredis of a test. Its keys expire as time goes by.
func miniOf(t *testing.T) *miniredis.Miniredis {
	if minis[t] != nil {
		return minis[t]
	}
	m := miniredis.RunT(t)
	minis[t] = m
	done := make(chan struct{})
	t.Cleanup(func() { close(done); delete(minis, t) })
	go func() {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				m.FastForward(10 * time.Millisecond)
			}
		}
	}()
	return m
}
