package redisstore_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/redisstore"
)

// probeTerms have a cooldown that contenders do not wait for long, and a lease that is long against
// the stalls of a busy machine.
func probeTerms() toolcircuit.Terms {
	return toolcircuit.Terms{
		Cooldown: 3 * time.Millisecond, MaxCooldown: 3 * time.Millisecond, Multiplier: 1, MaxRetryAfter: time.Minute,
		ProbeSuccesses: 1, Lease: probeLease, Retention: time.Minute,
	}
}

const probeLease = 200 * time.Millisecond

// kind is what happens in a round: the probe succeeds, it fails once, or its holder dies.
type kind int

func kindOf(round int) kind { return [10]kind{0, 0, 0, 0, 0, 0, 0, 1, 1, 2}[round%10] }

// due reports whether so many grants are as many as they must be. A holder that stalls past its
// lease, which a busy machine may make it, loses the probe to another.
func (k kind) due(grants, stalls int64) bool {
	want := min(int64(k)+1, 2)
	return want <= grants && grants <= want+stalls
}

// round is what its contenders know of each other.
type round struct {
	key string
	kind
	granted func() int // counts a grant, and returns the count
	stalled func()     // counts a holder that stalled past its lease, after which another grant is due

	mu         sync.Mutex
	until      time.Time // the holder's lease does not end before
	settled    bool
	overlaps   int
	unanswered int
	dead       toolcircuit.Fence
}

// contend asks for the probe again and again until the record is closed. It returns how often it
// asked.
func (r *round) contend(ctx context.Context, s toolcircuit.Store) (asks int, err error) {
	for {
		fence, began := toolcircuit.Fence(rand.Text()), time.Now()
		v, err := s.Acquire(ctx, r.key, toolcircuit.AcquireRequest{Terms: probeTerms(), Fence: fence})
		asks++
		switch {
		case ctx.Err() != nil:
			return asks, ctx.Err()
		case err != nil: // a machine without time; asking again is safe
			r.mu.Lock()
			r.unanswered++
			r.mu.Unlock()
		case v.Fence == fence && time.Since(began) >= probeLease: // it knows that its lease is over
			r.stalled()
		case v.Fence == fence:
			r.probe(ctx, s, fence, began)
		case v.Epoch > 0 && !v.Open:
			return asks, nil
		default: // on purpose a little too early
			time.Sleep(max(min(v.Remaining, v.LeaseRemaining+v.Remaining)-time.Millisecond, 100*time.Microsecond))
		}
	}
}

// probe is what a contender does that has the probe.
func (r *round) probe(ctx context.Context, s toolcircuit.Store, fence toolcircuit.Fence, began time.Time) {
	n := r.granted()
	r.mu.Lock()
	if !r.settled && time.Now().Before(r.until) {
		r.overlaps++
	}
	r.until, r.settled = began.Add(probeLease), false
	dies := r.kind == 2 && n == 1
	if dies {
		r.dead = fence
	} else {
		r.settled = true // before the store lets in the next
	}
	r.mu.Unlock()
	if dies {
		return
	}
	o := toolcircuit.Settlement{Terms: probeTerms(), Result: toolcircuit.ProbeOK}
	if r.kind == 1 && n == 1 {
		o.Result = toolcircuit.ProbeFailed
	}
	for {
		if _, err := s.Settle(ctx, r.key, fence, o); err == nil || ctx.Err() != nil {
			break
		}
	}
	if time.Since(began) > probeLease {
		r.stalled()
	}
}

// open opens the record of a round. After no answer it asks again, which is safe: the second finds
// the record open.
func (r *round) open(ctx context.Context, s toolcircuit.Store) (err error) {
	for range 10 {
		if _, err = s.Trip(ctx, r.key, toolcircuit.TripRequest{Terms: probeTerms(), Opening: toolcircuit.Opening{Generation: 1}}); err == nil {
			break
		}
	}
	return err
}

// Of 64 contenders exactly one has the probe, and one more for each holder that fails or dies.
func TestOneProbe(t *testing.T) {
	s := startServer(t)
	oneProbe(t, rounds, func() *redisstore.Store { return open(t, redis.Options{Addr: s.addr()}, redisstore.Options{}) })
}

func oneProbe(t *testing.T, rounds int, newStore func() *redisstore.Store) {
	var stores []*redisstore.Store
	for range 8 {
		stores = append(stores, newStore())
	}
	ctx := t.Context()
	var asks atomic.Int64
	late, stalled, unanswered := 0, int64(0), 0
	for n := range rounds {
		var grants, stalls atomic.Int64
		r := &round{key: fmt.Sprint("round ", n), kind: kindOf(n)}
		r.granted, r.stalled = func() int { return int(grants.Add(1)) }, func() { stalls.Add(1) }
		require.NoError(t, r.open(ctx, stores[0]))
		var over sync.WaitGroup
		for i := range 64 {
			over.Go(func() {
				n, err := r.contend(ctx, stores[i%len(stores)])
				asks.Add(int64(n))
				if err != nil {
					t.Error(err)
				}
			})
		}
		over.Wait()
		require.True(t, r.due(grants.Load(), stalls.Load()), "%d grants in round %d, of kind %d, with %d stalls", grants.Load(), n, r.kind, stalls.Load())
		stalled += stalls.Load()
		unanswered += r.unanswered
		require.Zero(t, r.overlaps, "overlapping probes in round %d", n)
		if r.dead != "" {
			var v toolcircuit.View
			eventually(t, 30*time.Second, "the late verdict is answered", func() bool {
				var err error
				v, err = stores[1].Settle(ctx, r.key, r.dead, toolcircuit.Settlement{Terms: probeTerms(), Result: toolcircuit.ProbeFailed})
				return err == nil
			})
			require.False(t, v.Open, "the late verdict of a dead holder is taken")
			late++
		}
		if n%1000 == 999 {
			t.Logf("%d rounds so far, %d late verdicts refused", n+1, late)
		}
	}
	t.Logf("%d rounds, %d asks, each with the due grants; 0 overlaps; %d late verdicts refused; %d holders stalled past their lease, %d asks were not answered", rounds, asks.Load(), late, stalled, unanswered)
}

// Eight processes contend, of eight goroutines each.
func TestOneProbeOfProcesses(t *testing.T) {
	s := startServer(t)
	store := open(t, redis.Options{Addr: s.addr()}, redisstore.Options{})
	var all []*exec.Cmd
	for range 8 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), contenderEnv+"="+s.addr(), fmt.Sprint(roundsEnv, "=", processRounds))
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { cmd.Process.Kill() })
		all = append(all, cmd)
	}
	ctx := t.Context()
	client := redis.NewClient(&redis.Options{Addr: s.addr()})
	defer client.Close()
	stalled := int64(0)
	for n := range processRounds {
		r := &round{key: fmt.Sprint("round ", n), kind: kindOf(n)}
		require.NoError(t, r.open(ctx, store))
		eventually(t, 30*time.Second, "the round is closed", func() bool {
			views, err := store.Load(ctx, []string{r.key})
			return err == nil && !views[0].Open
		})
		var grants, stalls int64
		eventually(t, time.Second, "the due grants of the round", func() bool { // a stalled holder may still have to say so
			grants, _ = client.Get(ctx, "grants of "+r.key).Int64()
			stalls, _ = client.Get(ctx, "stalls of "+r.key).Int64()
			return r.due(grants, stalls)
		})
		stalled += stalls
	}
	for _, cmd := range all {
		require.NoError(t, cmd.Wait())
	}
	t.Logf("%d rounds, each with the due grants; %d holders stalled past their lease", processRounds, stalled)
}

const (
	contenderEnv = "REDISSTORE_CONTENDER" // the server of a process that contends
	roundsEnv    = "REDISSTORE_ROUNDS"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(contenderEnv); addr != "" {
		if err := contender(addr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// contender is a process of TestOneProbeOfProcesses.
func contender(addr string) error {
	rounds := 0
	if err := json.Unmarshal([]byte(os.Getenv(roundsEnv)), &rounds); err != nil {
		return err
	}
	store, err := redisstore.New(&redis.Options{Addr: addr}, redisstore.Options{})
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	failed := make(chan error, 8)
	for range 8 {
		go func() {
			for n := range rounds {
				r := &round{key: fmt.Sprint("round ", n), kind: kindOf(n)}
				count := func(what string) int {
					n, err := client.Incr(context.Background(), what+" of "+r.key).Result()
					if err != nil {
						panic(err)
					}
					return int(n)
				}
				r.granted, r.stalled = func() int { return count("grants") }, func() { count("stalls") }
				if _, err := r.contend(context.Background(), store); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	for range 8 {
		if err := <-failed; err != nil {
			return err
		}
	}
	return store.Close()
}
