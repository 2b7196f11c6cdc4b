package redisstore_test

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/redisstore"
)

// A server that freezes, dies and comes back, and connections that break, at random: no two probes
// have a lease at once, no error of the store reaches a caller, and afterwards all agree. The server
// writes down what it has acknowledged: one that forgets a lease may give it out again.
func TestSoak(t *testing.T) {
	s, world := startServer(t, "--appendonly", "yes", "--appendfsync", "always"), newWorld()
	r := startRelay(t, s.addr())
	all := newWorkers(t, 4, r.addr(), tool, "healthy")
	d := drive(world, all, 10*time.Millisecond, tool, "healthy")
	stop := make(chan struct{})
	var over sync.WaitGroup

	h := &holder{}
	var asks, grants, errs atomic.Int64
	for range 8 {
		store := open(t, redis.Options{Addr: r.addr()}, redisstore.Options{})
		over.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
				granted, err := h.ask(ctx, store, n)
				cancel()
				asks.Add(1)
				if granted {
					grants.Add(1)
				}
				if err != nil {
					errs.Add(1)
				}
			}
		})
	}

	faults := map[string]int{}
	for end := time.Now().Add(soakTime); time.Now().Before(end); {
		world.set(tool, mathrand.N(2) == 0)
		pause := time.Duration(50+mathrand.N(450)) * time.Millisecond
		switch mathrand.N(4) {
		case 0:
			faults["freeze"]++
			s.freeze()
			time.Sleep(pause)
			s.thaw()
		case 1:
			faults["kill"]++
			s.kill()
			time.Sleep(pause)
			s.start()
		case 2:
			faults["reset"]++
			r.reset()
		case 3:
			faults["silence"]++
			r.silence(false)
			time.Sleep(pause)
			r.speak()
		}
		time.Sleep(pause)
	}
	close(stop)
	over.Wait()
	world.set(tool, false)
	agree(t, 20*time.Second, all, tool, toolcircuit.StateClosed)
	world.set(tool, true)
	agree(t, 5*time.Second, all, tool, toolcircuit.StateOpen, toolcircuit.StateHalfOpen)
	d.end(t)
	t.Logf("%v of %v; %d asks, %d grants, %d unanswered, %d overlaps", soakTime, faults, asks.Load(), grants.Load(), errs.Load(), h.overlaps)
	if h.overlaps > 0 {
		t.Errorf("%d probes began while another had its lease", h.overlaps)
	}
	if grants.Load() < int64(soakTime/time.Second) {
		t.Errorf("only %d probes", grants.Load())
	}
	if p99 := percentile(d.took["healthy"], 0.99); p99 > never {
		t.Errorf("a healthy tool's call takes %v at p99", p99)
	}
}

// holder is who has the probe of the soak's record, as far as its contenders know.
type holder struct {
	sync.Mutex
	fence    toolcircuit.Fence
	until    time.Time // its lease does not end before
	overlaps int
}

// ask asks for the probe, opens the record if it is closed, and ends a probe that it gets in one
// way or another, or not at all.
func (h *holder) ask(ctx context.Context, s toolcircuit.Store, n int) (granted bool, err error) {
	const key = "soak"
	fence, began := toolcircuit.Fence(rand.Text()), time.Now()
	v, err := s.Acquire(ctx, key, toolcircuit.AcquireRequest{Terms: probeTerms(), Fence: fence})
	switch {
	case err != nil:
		return false, err
	case !v.Open:
		_, err = s.Trip(ctx, key, toolcircuit.TripRequest{Terms: probeTerms(), Opening: toolcircuit.Opening{Generation: 1}, Epoch: v.Epoch})
		return false, err
	case v.Fence != fence || time.Since(began) >= probeLease: // or it knows that its lease is over
		return false, nil
	}
	h.Lock()
	if h.fence != "" && time.Now().Before(h.until) {
		h.overlaps++
	}
	h.fence, h.until = fence, began.Add(probeLease)
	h.Unlock()
	time.Sleep(time.Duration(mathrand.N(20)) * time.Millisecond)
	results := []toolcircuit.ProbeResult{toolcircuit.ProbeOK, toolcircuit.ProbeFailed, toolcircuit.ProbeAbandoned, ""}
	result := results[n%len(results)]
	if result == "" { // it dies
		return true, nil
	}
	h.Lock()
	if h.fence == fence {
		h.fence = "" // before the store lets in the next
	}
	h.Unlock()
	if _, err := s.Settle(ctx, key, fence, toolcircuit.Settlement{Terms: probeTerms(), Result: result}); err != nil {
		return true, fmt.Errorf("settle: %w", err)
	}
	return true, nil
}
