package redisstore_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/redisstore"
)

// After Close nothing is left: no goroutine, no connection, whatever state the server was in.
func TestCloseLeaksNothing(t *testing.T) {
	s := startServer(t)
	connections := func() int {
		return strings.Count(s.admin("CLIENT", "LIST").(string), "\n")
	}
	before := connections()
	goroutines := runtime.NumGoroutine()
	for _, frozen := range []bool{false, true} {
		for range 3 {
			store, err := redisstore.New(&redis.Options{Addr: s.addr()}, pings)
			require.NoError(t, err)
			fleet, err := toolcircuit.NewFleet(store, toolcircuit.FleetOptions{})
			require.NoError(t, err)
			c := toolcircuit.MustNew(tool, toolcircuit.Options{Policy: policy()})
			require.NoError(t, fleet.Join(c, tool))
			watched := make(chan error, 1)
			listens := make(chan struct{}, 1)
			go func() {
				watched <- store.Watch(context.Background(), func(string, toolcircuit.View) {}, func() { listens <- struct{}{} })
			}()
			<-listens
			if frozen {
				s.freeze()
			}
			toolcircuit.Do(t.Context(), c, func(context.Context) (int, error) { return 0, errDown })
			began := time.Now()
			require.NoError(t, store.Close()) // with a Watch under way, and before the Fleet
			require.NoError(t, fleet.Close(t.Context()))
			require.Less(t, time.Since(began), 3*time.Second)
			require.ErrorIs(t, <-watched, context.Canceled)
			require.Error(t, store.Watch(t.Context(), nil, nil))
			if frozen {
				s.thaw()
			}
		}
	}
	s.eventually(5*time.Second, "the connections are closed", func() bool { return connections() <= before })
	s.eventually(5*time.Second, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= goroutines })
}

// A thousand requests that fail leave no goroutine and no connection behind.
func TestErrorsLeakNothing(t *testing.T) {
	s := startServer(t)
	store := open(t, redis.Options{Addr: s.addr()}, redisstore.Options{})
	s.admin("LPUSH", "brk1:{"+tool+"}", "x")
	ask := func() error {
		_, err := store.Acquire(t.Context(), tool, toolcircuit.AcquireRequest{Terms: probeTerms(), Fence: "a"})
		return err
	}
	require.ErrorContains(t, ask(), "WRONGTYPE")
	goroutines := runtime.NumGoroutine()
	for range 1000 {
		require.Error(t, ask())
	}
	s.kill()
	for range 20 {
		require.Error(t, ask())
	}
	s.start()
	s.eventually(5*time.Second, "it answers again", func() bool { return ask() == nil })
	s.eventually(5*time.Second, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= goroutines+2 })
	require.LessOrEqual(t, strings.Count(s.admin("CLIENT", "LIST").(string), "\n"), 10)
}
