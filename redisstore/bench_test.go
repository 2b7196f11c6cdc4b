package redisstore_test

import (
	"context"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

// A successful call of a closed circuit, beside sony/gobreaker's distributed breaker, which locks
// and reads and writes its state in the store at each call. The ratio is the last line's metric.
func BenchmarkClosed(b *testing.B) {
	s := startServer(b)
	var ours, theirs float64
	b.Run("toolcircuit", func(b *testing.B) {
		w := newWorker(b, s.addr(), toolcircuit.FleetOptions{}, policy(), tool)
		w.settled(tool)
		ctx := context.Background()
		op := func(context.Context) (int, error) { return 1, nil }
		b.ReportAllocs()
		for b.Loop() {
			if _, err := toolcircuit.Do(ctx, w.tools[tool], op); err != nil {
				b.Fatal(err)
			}
		}
		ours = float64(b.Elapsed()) / float64(b.N)
	})
	b.Run("gobreaker", func(b *testing.B) {
		client := redis.NewClient(&redis.Options{Addr: s.addr()})
		defer client.Close()
		breaker, err := gobreaker.NewDistributedCircuitBreaker[int](&sharedData{client}, gobreaker.Settings{Name: tool})
		require.NoError(b, err)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := breaker.Execute(func() (int, error) { return 1, nil }); err != nil {
				b.Fatal(err)
			}
		}
		theirs = float64(b.Elapsed()) / float64(b.N)
	})
	b.Run("ratio", func(b *testing.B) {
		for b.Loop() {
		}
		b.ReportMetric(theirs/ours, "times")
	})
}

// sharedData is the least that gobreaker's breaker needs of a store.
type sharedData struct{ *redis.Client }

func (s *sharedData) Lock(name string) error {
	for {
		ok, err := s.SetNX(context.Background(), name, 1, 10*time.Second).Result()
		if ok || err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}
func (s *sharedData) Unlock(name string) error { return s.Del(context.Background(), name).Err() }
func (s *sharedData) GetData(name string) ([]byte, error) {
	data, err := s.Get(context.Background(), name).Bytes()
	if err == redis.Nil {
		err = nil
	}
	return data, err
}
func (s *sharedData) SetData(name string, data []byte) error {
	return s.Set(context.Background(), name, data, 0).Err()
}

// From the failure that opens one worker's circuit to the moment when the last of eight others
// refuses.
func BenchmarkSpread(b *testing.B) {
	s, world := startServer(b), newWorld()
	all := newWorkers(b, 9, s.addr(), tool)
	var spread []time.Duration
	for b.Loop() {
		all[0].fail(world, tool)
		began := time.Now()
		for _, w := range all {
			for w.tools[tool].State() == toolcircuit.StateClosed {
				time.Sleep(20 * time.Microsecond)
			}
		}
		spread = append(spread, time.Since(began))
		b.StopTimer()
		all[0].tools[tool].Reset()
		for _, w := range all {
			eventually(b, 5*time.Second, "closed again", func() bool { return w.tools[tool].State() == toolcircuit.StateClosed })
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(percentile(spread, 0.5).Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(percentile(spread, 0.99).Microseconds())/1000, "p99-ms")
}

// The call path of a closed circuit sends nothing: neither do a thousand calls, nor refusals.
func TestCallsAskNothing(t *testing.T) {
	s, world := startServer(t), newWorld()
	w := newWorker(t, s.addr(), toolcircuit.FleetOptions{Poll: time.Hour}, policy(), tool, "down")
	w.settled(tool)
	w.settled("down")
	w.fail(world, "down")
	time.Sleep(100 * time.Millisecond)
	scripts := func() (n int) {
		for _, m := range regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`).FindAllStringSubmatch(s.admin("INFO", "commandstats").(string), -1) {
			calls, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			n += calls
		}
		return n
	}
	before := scripts()
	require.NotZero(t, before)
	for range 1000 {
		w.call(world, tool)
		w.call(world, "down")
	}
	require.Equal(t, before, scripts(), "commands of 1000 closed and 1000 refused calls")
}
