package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

const tool = "search-api"

// never is the bound on the p99 of a call that does not wait for the store: microseconds, and what
// a busy machine adds.
const never = 5 * time.Millisecond

// One worker sees an outage, and all stop.
func TestOneOpensAllRefuse(t *testing.T) {
	s, world := startServer(t), newWorld()
	all := newWorkers(t, 8, s.addr(), tool)
	all[0].fail(world, tool)
	agree(t, time.Second, all, tool, toolcircuit.StateOpen)
	before := world.calls(tool)
	for _, w := range all {
		w.call(world, tool)
	}
	require.Equal(t, before, world.calls(tool), "calls after all have heard")
	record := s.record("brk1:{" + tool + "}")
	require.Equal(t, "1", record["g"])
	require.Equal(t, "unavailable", record["c"])
	ttl := s.admin("PTTL", "brk1:{"+tool+"}").(int64)
	require.InDelta(t, (time.Hour + 2*time.Second).Milliseconds(), ttl, 2000, "TTL: what is left and the retention")

	world.set(tool, false)
	d := drive(world, all, 5*time.Millisecond, tool)
	agree(t, 5*time.Second, all, tool, toolcircuit.StateClosed)
	d.end(t)
	require.NotContains(t, s.record("brk1:{"+tool+"}"), "u")
}

// A frozen server: a caller waits for one bounded request at most, and afterwards all agree.
func TestFrozen(t *testing.T) {
	s, world := startServer(t), newWorld()
	all := newWorkers(t, 8, s.addr(), "healthy", "down", "later")
	all[0].fail(world, "down")
	agree(t, time.Second, all, "down", toolcircuit.StateOpen)
	s.freeze()
	d := drive(world, all, 5*time.Millisecond, "healthy", "down", "later")
	time.Sleep(500 * time.Millisecond)
	world.set("later", true)
	time.Sleep(4500 * time.Millisecond)
	s.thaw()
	agree(t, 3*time.Second, all, "later", toolcircuit.StateOpen, toolcircuit.StateHalfOpen)
	world.set("later", false)
	world.set("down", false)
	agree(t, 20*time.Second, all, "later", toolcircuit.StateClosed)
	agree(t, 20*time.Second, all, "down", toolcircuit.StateClosed)
	d.end(t)
	require.Less(t, percentile(d.took["healthy"], 0.99), never, "a healthy tool's call waits for the store")
	for _, name := range []string{"down", "later"} {
		require.Less(t, percentile(d.took[name], 1), 2*opTimeout+slack, "a probe waits for two requests at most")
	}
	for _, w := range all {
		require.Contains(t, w.heard(), toolcircuit.EventStoreError)
		s.eventually(3*time.Second, "the worker says that the store answers", func() bool {
			return slices.Contains(w.heard(), toolcircuit.EventRecovered)
		})
	}
}

// A server that is killed and comes back empty, or with what it has written down.
func TestKilled(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
	}{
		{"back empty", nil},
		{"back with its append-only file", []string{"--appendonly", "yes", "--appendfsync", "always"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, world := startServer(t, c.args...), newWorld()
			long := policy()
			long.Cooldown, long.MaxCooldown = 30*time.Second, 60*time.Second
			var all []*worker
			for range 4 {
				all = append(all, newWorker(t, s.addr(), toolcircuit.FleetOptions{}, long, tool, "healthy"))
				all[len(all)-1].settled(tool)
			}
			time.Sleep(50 * time.Millisecond)
			opened := time.Now()
			all[0].fail(world, tool)
			agree(t, time.Second, all, tool, toolcircuit.StateOpen)
			d := drive(world, all, 5*time.Millisecond, tool, "healthy")
			before := world.calls(tool)
			s.kill()
			time.Sleep(3 * time.Second)
			s.start()
			back := time.Now()
			s.eventually(5*time.Second, "the record is back", func() bool { return s.record("brk1:{" + tool + "}")["u"] != "" })
			t.Logf("the record is back after %v", time.Since(back).Round(time.Millisecond))
			record := s.record("brk1:{" + tool + "}")
			require.Equal(t, "1", record["g"])
			fresh := newWorker(t, s.addr(), toolcircuit.FleetOptions{}, long, tool)
			fresh.settled(tool)
			require.Equal(t, toolcircuit.StateOpen, fresh.tools[tool].State(), "a restarted worker knows")
			left := fresh.tools[tool].Snapshot().RetryAt.Sub(opened)
			require.InDelta(t, long.Cooldown.Seconds(), left.Seconds(), 1, "the wait goes on from the opening")
			d.end(t)
			require.Equal(t, before, world.calls(tool), "calls before the wait is over")
			require.Less(t, percentile(d.took["healthy"], 0.99), never)
		})
	}
}

// A server that is emptied: whoever asks first after the cooldown makes the record anew, and there
// is one probe.
func TestEmptied(t *testing.T) {
	s, world := startServer(t), newWorld()
	var all []*worker
	for range 8 {
		w := newWorker(t, s.addr(), toolcircuit.FleetOptions{Poll: time.Minute}, policy(), tool)
		w.settled(tool)
		all = append(all, w)
	}
	time.Sleep(50 * time.Millisecond)
	all[0].fail(world, tool)
	agree(t, time.Second, all, tool, toolcircuit.StateOpen)
	s.admin("FLUSHALL")
	agree(t, 5*time.Second, all, tool, toolcircuit.StateHalfOpen)
	before := world.calls(tool)
	probes := contend(t, all, 8, tool, nil)
	require.Equal(t, 1, probes)
	require.Equal(t, before, world.calls(tool))
}

// contend makes many callers ask for a probe at once, and settles the ones that are let in with
// err once all have asked. It returns how many were let in.
func contend(t *testing.T, all []*worker, callers int, tool string, err error) int {
	t.Helper()
	answers := make(chan *toolcircuit.Permit)
	for _, w := range all {
		for range callers {
			go func() {
				p, err := w.tools[tool].Allow(context.Background())
				if err != nil {
					answers <- nil
					return
				}
				answers <- &p
			}()
		}
	}
	var in []*toolcircuit.Permit
	for range len(all) * callers {
		if p := <-answers; p != nil {
			in = append(in, p)
		}
	}
	for _, p := range in {
		p.Settle(context.Background(), nil, err)
	}
	return len(in)
}

// Connections that break again and again while a tool opens and recovers.
func TestReset(t *testing.T) {
	s, world := startServer(t), newWorld()
	r := startRelay(t, s.addr())
	all := newWorkers(t, 8, r.addr(), tool, "healthy")
	d := drive(world, all, 5*time.Millisecond, tool, "healthy")
	for i := range 50 {
		if i == 10 {
			world.set(tool, true)
		}
		if i == 35 {
			world.set(tool, false)
		}
		r.reset()
		time.Sleep(100 * time.Millisecond)
	}
	agree(t, 10*time.Second, all, tool, toolcircuit.StateClosed)
	world.set(tool, true)
	agree(t, 2*time.Second, all, tool, toolcircuit.StateOpen, toolcircuit.StateHalfOpen)
	d.end(t)
	require.Less(t, percentile(d.took["healthy"], 0.99), never)
}

// A subscription whose connection is silent gives no error. The poll covers it, and the worker
// subscribes anew by itself.
func TestSilentSubscription(t *testing.T) {
	s, world := startServer(t), newWorld()
	r := startRelay(t, s.addr())
	deaf := newWorker(t, r.addr(), toolcircuit.FleetOptions{Poll: time.Second}, policy(), tool, "another")
	well := newWorkers(t, 1, s.addr(), tool, "another")
	s.eventually(5*time.Second, "it listens", func() bool { return r.subscriptions() == 1 })
	time.Sleep(50 * time.Millisecond)
	deaf.settled(tool)
	require.Equal(t, 1, r.silence(true))
	silent := time.Now()
	well[0].fail(world, tool)
	agree(t, 3*time.Second, []*worker{deaf}, tool, toolcircuit.StateOpen)
	s.eventually(5*time.Second, "it listens again", func() bool { return r.subscriptions() == 1 })
	t.Logf("it listens again after %v", time.Since(silent).Round(time.Millisecond))
	time.Sleep(100 * time.Millisecond)
	deaf.settled("another")
	well[0].fail(world, "another")
	agree(t, 500*time.Millisecond, []*worker{deaf}, "another", toolcircuit.StateOpen)
}

// All connections are silent, or slow.
func TestSilentAndSlowConnections(t *testing.T) {
	for _, c := range []struct {
		name       string
		begin, end func(*relay)
	}{
		{"silent", func(r *relay) { r.silence(false) }, func(r *relay) { r.speak() }},
		{"slow", func(r *relay) { r.setDelay(300 * time.Millisecond) }, func(r *relay) { r.setDelay(0) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, world := startServer(t), newWorld()
			r := startRelay(t, s.addr())
			all := newWorkers(t, 4, r.addr(), tool, "healthy")
			d := drive(world, all, 5*time.Millisecond, tool, "healthy")
			c.begin(r)
			time.Sleep(500 * time.Millisecond)
			world.set(tool, true)
			time.Sleep(2500 * time.Millisecond)
			c.end(r)
			agree(t, 4*time.Second, all, tool, toolcircuit.StateOpen, toolcircuit.StateHalfOpen)
			world.set(tool, false)
			agree(t, 20*time.Second, all, tool, toolcircuit.StateClosed)
			d.end(t)
			require.Less(t, percentile(d.took["healthy"], 0.99), never)
			require.Less(t, percentile(d.took[tool], 1), 2*opTimeout+slack)
		})
	}
}

// What a server answers besides what it was asked.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name       string
		begin, end func(*server)
		heals      bool // within the same request
	}{
		{"NOSCRIPT", func(s *server) { s.admin("SCRIPT", "FLUSH") }, nil, true},
		{"WRONGTYPE",
			func(s *server) { s.admin("DEL", "brk1:{"+tool+"}"); s.admin("LPUSH", "brk1:{"+tool+"}", "x") },
			func(s *server) { s.admin("DEL", "brk1:{"+tool+"}") }, false},
		{"NOPERM",
			func(s *server) { s.admin("ACL", "SETUSER", "circuits", "-hset", "-hmget") },
			func(s *server) { s.admin("ACL", "SETUSER", "circuits", "+hset", "+hmget") }, false},
		{"OOM",
			func(s *server) { s.admin("CONFIG", "SET", "maxmemory", "1") },
			func(s *server) { s.admin("CONFIG", "SET", "maxmemory", "0") }, false},
		{"READONLY",
			func(s *server) { s.admin("REPLICAOF", "127.0.0.1", "1") },
			func(s *server) { s.admin("REPLICAOF", "NO", "ONE") }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, world := startServer(t), newWorld()
			s.admin(append([]any{"ACL", "SETUSER"}, rights...)...)
			var all []*worker
			for range 3 {
				w := newWorkerOn(t, open(t, optionsOf(s), pings), toolcircuit.FleetOptions{}, toolcircuit.Options{Policy: policy()}, tool, "healthy")
				w.settled(tool)
				w.settled("healthy")
				all = append(all, w)
			}
			time.Sleep(50 * time.Millisecond)
			c.begin(s)
			d := drive(world, all[:1], 5*time.Millisecond, "healthy")
			if c.heals {
				all[0].fail(world, tool)
				agree(t, time.Second, all, tool, toolcircuit.StateOpen)
				d.end(t)
				require.Empty(t, all[0].heard())
				return
			}
			all[0].fail(world, tool)
			s.eventually(10*time.Second, "the worker says that the store is given up on", func() bool {
				all[0].call(world, tool)
				time.Sleep(5 * time.Millisecond)
				return slices.Contains(all[0].heard(), toolcircuit.EventStoreError)
			})
			c.end(s)
			s.eventually(10*time.Second, "the worker says that the store answers", func() bool {
				all[0].call(world, tool)
				time.Sleep(5 * time.Millisecond)
				return slices.Contains(all[0].heard(), toolcircuit.EventRecovered)
			})
			agree(t, 5*time.Second, all, tool, toolcircuit.StateOpen, toolcircuit.StateHalfOpen)
			d.end(t)
			require.Less(t, percentile(d.took["healthy"], 0.99), never)
			require.Equal(t, []toolcircuit.EventType{toolcircuit.EventStoreError, toolcircuit.EventRecovered}, all[0].heard())
		})
	}
}

// A probe that is cancelled is given back, and one that panics is settled.
func TestProbesThatEndOtherwise(t *testing.T) {
	s, world := startServer(t), newWorld()
	brief := policy()
	brief.Cooldown, brief.MaxCooldown = 300*time.Millisecond, time.Second
	var all []*worker
	for range 2 {
		w := newWorker(t, s.addr(), toolcircuit.FleetOptions{}, brief, tool)
		w.settled(tool)
		all = append(all, w)
	}
	time.Sleep(50 * time.Millisecond)
	all[0].fail(world, tool)
	agree(t, time.Second, all, tool, toolcircuit.StateOpen)
	agree(t, time.Second, all, tool, toolcircuit.StateHalfOpen)
	ctx, cancel := context.WithCancel(context.Background())
	_, err := toolcircuit.Do(ctx, all[0].tools[tool], func(context.Context) (int, error) {
		ran, _ := all[1].call(world, tool)
		require.False(t, ran, "a second probe")
		cancel()
		return 0, ctx.Err()
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "1", s.record("brk1:{" + tool + "}")["g"])
	s.eventually(time.Second, "the next caller probes", func() bool {
		ran, _ := all[1].call(world, tool)
		return ran
	})
	require.Equal(t, "2", s.record("brk1:{" + tool + "}")["g"])
	agree(t, 2*time.Second, all, tool, toolcircuit.StateHalfOpen)
	require.Panics(t, func() {
		toolcircuit.Do(context.Background(), all[0].tools[tool], func(context.Context) (int, error) { panic("a bug") })
	})
	record := s.record("brk1:{" + tool + "}")
	require.Equal(t, "3", record["g"])
	require.Equal(t, "panic", record["c"])
}

// Failures from before the closing, told after it, open nothing.
func TestLateFailures(t *testing.T) {
	s, world := startServer(t), newWorld()
	brief := policy()
	brief.Cooldown, brief.MaxCooldown = 300*time.Millisecond, time.Second
	var all []*worker
	for range 2 {
		w := newWorker(t, s.addr(), toolcircuit.FleetOptions{}, brief, tool)
		w.settled(tool)
		all = append(all, w)
	}
	time.Sleep(50 * time.Millisecond)
	var late []*toolcircuit.Permit
	for range 20 {
		p, err := all[1].tools[tool].Allow(context.Background())
		require.NoError(t, err)
		late = append(late, &p)
	}
	all[0].fail(world, tool)
	world.set(tool, false)
	agree(t, time.Second, all, tool, toolcircuit.StateHalfOpen)
	ran, _ := all[0].call(world, tool)
	require.True(t, ran)
	agree(t, time.Second, all, tool, toolcircuit.StateClosed)
	for _, p := range late {
		p.Settle(context.Background(), nil, errDown)
	}
	time.Sleep(100 * time.Millisecond)
	agree(t, 0, all, tool, toolcircuit.StateClosed)
	all[1].fail(world, tool)
	agree(t, time.Second, all, tool, toolcircuit.StateOpen)
}

// A tool that flaps waits longer each time. Once it has been healthy for the retention, which is
// longer than its openings take to fade, its record is gone and it begins anew.
func TestFlapping(t *testing.T) {
	s, world := startServer(t), newWorld()
	brief := policy()
	brief.Cooldown, brief.MaxCooldown, brief.MaxRetryAfter = 300*time.Millisecond, 1200*time.Millisecond, 1200*time.Millisecond
	var all []*worker
	for range 2 {
		w := newWorker(t, s.addr(), toolcircuit.FleetOptions{Retention: 5 * time.Second}, brief, tool)
		w.settled(tool)
		all = append(all, w)
	}
	time.Sleep(50 * time.Millisecond)
	key := "brk1:{" + tool + "}"
	cooldown := func() float64 { // ms
		s.eventually(3*time.Second, "the opening is told", func() bool { return s.record(key)["u"] != "" })
		record := s.record(key)
		opened, err := strconv.ParseFloat(record["o"], 64)
		require.NoError(t, err)
		until, err := strconv.ParseFloat(record["u"], 64)
		require.NoError(t, err)
		return until - opened
	}
	for i, want := range []int{300, 600, 1200, 1200, 1200} {
		all[i%2].fail(world, tool)
		require.InDelta(t, want, cooldown(), 50, "ms in opening %d", i+1) // it was told a little later
		require.Equal(t, strconv.Itoa(i+1), s.record(key)["g"])
		world.set(tool, false)
		agree(t, 5*time.Second, all, tool, toolcircuit.StateHalfOpen)
		ran, _ := all[(i+1)%2].call(world, tool)
		require.True(t, ran)
		agree(t, time.Second, all, tool, toolcircuit.StateClosed)
	}
	s.eventually(8*time.Second, "the record is gone", func() bool { return len(s.record(key)) == 0 })
	all[1].fail(world, tool)
	require.Equal(t, "1", s.record(key)["g"])
	require.InDelta(t, 300, cooldown(), 50)
}

// Two versions of the format on one server do not meet.
func TestRollingUpgrade(t *testing.T) {
	s, world := startServer(t), newWorld()
	all := newWorkers(t, 2, s.addr(), tool)
	s.admin("HSET", "brk2:{"+tool+"}", "g", 7)
	for i, payload := range []string{"2 1 9 9999999999999999 1000 0 0 1 0 timeout " + tool, "", "1", "1 ", "x", "1 1 9 nan 1000 0 0 1 0 0 timeout  " + tool, fmt.Sprint("1 1 9 ", 1<<60)} {
		s.admin("PUBLISH", "brk1:ev", payload)
		s.admin("PUBLISH", "brk2:ev", fmt.Sprint(i))
	}
	time.Sleep(100 * time.Millisecond)
	agree(t, 0, all, tool, toolcircuit.StateClosed)
	all[0].fail(world, tool)
	agree(t, time.Second, all, tool, toolcircuit.StateOpen)
	require.Equal(t, map[string]string{"g": "7"}, s.record("brk2:{"+tool+"}"))
}

// A holder that cannot be heard of loses its lease. Another probes, and the late success of the
// first is refused.
func TestStalledHolder(t *testing.T) {
	s, world := startServer(t), newWorld()
	r := startRelay(t, s.addr())
	brief := policy()
	brief.Cooldown, brief.MaxCooldown = 300*time.Millisecond, 10*time.Second
	cut := newWorker(t, r.addr(), toolcircuit.FleetOptions{}, brief, tool)
	well := newWorker(t, s.addr(), toolcircuit.FleetOptions{}, brief, tool)
	all := []*worker{cut, well}
	for _, w := range all {
		w.settled(tool)
	}
	time.Sleep(50 * time.Millisecond)
	well.fail(world, tool)
	agree(t, time.Second, all, tool, toolcircuit.StateOpen)
	agree(t, time.Second, all, tool, toolcircuit.StateHalfOpen)
	p, err := cut.tools[tool].Allow(context.Background())
	require.NoError(t, err)
	held := time.Now()
	r.silence(false)
	s.eventually(5*time.Second, "another probes", func() bool {
		ran, _ := well.call(world, tool)
		return ran
	})
	require.Greater(t, time.Since(held), 900*time.Millisecond, "the lease of the first")
	require.Equal(t, "2", s.record("brk1:{" + tool + "}")["g"])
	_, err = p.Settle(context.Background(), 1, nil)
	require.NoError(t, err)
	require.NotEqual(t, toolcircuit.StateClosed, cut.tools[tool].State(), "the holder has no vote after its lease")
	r.speak()
	s.eventually(5*time.Second, "the first knows of the second opening", func() bool { return cut.tools[tool].Snapshot().Openings == 2 })
	require.Equal(t, "2", s.record("brk1:{" + tool + "}")["g"])
	require.NotEmpty(t, s.record("brk1:{" + tool + "}")["u"])
}

// A record that is lost while its probe runs: the verdict is not.
func TestDeletedWhileProbed(t *testing.T) {
	s, world := startServer(t), newWorld()
	brief := policy()
	brief.Cooldown, brief.MaxCooldown = 300*time.Millisecond, 10*time.Second
	var all []*worker
	for range 2 {
		w := newWorker(t, s.addr(), toolcircuit.FleetOptions{}, brief, tool)
		w.settled(tool)
		all = append(all, w)
	}
	time.Sleep(50 * time.Millisecond)
	all[0].fail(world, tool)
	agree(t, time.Second, all, tool, toolcircuit.StateOpen)
	agree(t, time.Second, all, tool, toolcircuit.StateHalfOpen)
	p, err := all[0].tools[tool].Allow(context.Background())
	require.NoError(t, err)
	s.admin("FLUSHALL")
	p.Settle(context.Background(), nil, errDown)
	agree(t, 5*time.Second, all, tool, toolcircuit.StateOpen)
	require.Equal(t, "2", s.record("brk1:{" + tool + "}")["g"])
}

// Databases have channels of their own, because a server has one set of channels for all.
func TestDatabases(t *testing.T) {
	s, world := startServer(t), newWorld()
	var all []*worker
	for _, database := range []int{0, 3, 3} {
		w := newWorkerOn(t, open(t, redis.Options{Addr: s.addr(), DB: database}, pings), toolcircuit.FleetOptions{}, toolcircuit.Options{Policy: policy()}, tool)
		w.settled(tool)
		all = append(all, w)
	}
	time.Sleep(50 * time.Millisecond)
	all[1].fail(world, tool)
	agree(t, time.Second, all[1:], tool, toolcircuit.StateOpen)
	agree(t, 0, all[:1], tool, toolcircuit.StateClosed)
}
