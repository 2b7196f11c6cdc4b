package storetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/toolcircuit/toolcircuit"
)

// randomly sends random requests of several clients, one after another, and compares each answer
// with that of a model. All times are long or short; after each request that begins a short one
// comes a nap, so that the model needs no clock: short is over, long is not.
//
// TOOLCIRCUIT_STORETEST_ROUNDS is the number of rounds, 10 by default. TOOLCIRCUIT_STORETEST_SEED
// repeats the rounds of a failed run.
func randomly(t *testing.T, newStore func(t *testing.T) toolcircuit.Store) {
	seed := setting("TOOLCIRCUIT_STORETEST_SEED", int(rand.Int32()))
	rng := rand.New(rand.NewPCG(uint64(seed), 0))
	clients := []toolcircuit.Store{newStore(t), newStore(t), newStore(t)}
	var log []string
	defer func() {
		if t.Failed() {
			t.Logf("seed %d; the requests on this key:\n%s", seed, strings.Join(log, "\n"))
		}
	}()
	for round := range setting("TOOLCIRCUIT_STORETEST_ROUNDS", 10) {
		m := model{key: fmt.Sprint("random ", round)}
		log = nil
		for range 40 {
			s := &subject{T: t, Store: clients[rng.IntN(len(clients))], key: m.key}
			m.next(s, rng, func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) })
			nap()
		}
	}
}

func setting(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// model is a record as the rules say it is.
type model struct {
	key        string
	epoch      uint64 // 0: there is no record
	open       bool
	generation int
	cools      bool // the wait is a long one
	wait       time.Duration
	asked      bool
	cause      toolcircuit.Kind
	failures   int
	successes  int
	fence      toolcircuit.Fence
	leased     bool // the lease is a long one
	fences     []toolcircuit.Fence
}

// next sends one request and checks the answer.
func (m *model) next(s *subject, rng *rand.Rand, tell func(format string, args ...any)) {
	t := terms()
	t.ProbeSuccesses = 1 + rng.IntN(2)
	if rng.IntN(2) == 0 && m.generation <= 3 { // more would not fade within a nap
		t.Cooldown, t.Multiplier = short, 1
	}
	o := toolcircuit.Opening{
		Generation: rng.IntN(4),
		Asked:      rng.IntN(3) == 0,
		Cause:      []toolcircuit.Kind{toolcircuit.KindTimeout, toolcircuit.KindUnavailable, toolcircuit.KindSlow}[rng.IntN(3)],
		Failures:   1 + rng.IntN(5),
	}
	if o.Asked {
		o.Wait = []time.Duration{short, long, 2 * long}[rng.IntN(3)]
	}
	switch rng.IntN(8) {
	case 0:
		tell("Load")
		m.check(s, s.load(), false)
	case 1, 2, 3:
		q := toolcircuit.TripRequest{Terms: t, Opening: o, Epoch: m.epoch, Pause: o.Asked && rng.IntN(2) == 0}
		switch rng.IntN(8) {
		case 0, 1:
			q.Epoch-- // from 0 to the far future, which counts as none
		case 2:
			q.Epoch++ // of a change that the store has lost
		}
		tell("Trip %+v", q)
		m.check(s, s.must(s.Trip(s.Context(), m.key, q)), m.trip(q))
	case 4, 5:
		q := toolcircuit.AcquireRequest{Terms: t, Fence: m.pick(rng), Early: rng.IntN(4) == 0, Epoch: m.epoch}
		if !m.leased { // otherwise it would cut the lease
			q.Lease = []time.Duration{short, long}[rng.IntN(2)]
		}
		if rng.IntN(3) == 0 {
			q.Lost = &o
		}
		tell("Acquire %+v", q)
		changed := m.acquire(q)
		m.check(s, s.must(s.Acquire(s.Context(), m.key, q)), changed)
	default:
		f := m.pick(rng)
		q := toolcircuit.Settlement{Terms: t}
		q.Result = []toolcircuit.ProbeResult{toolcircuit.ProbeOK, toolcircuit.ProbeFailed, toolcircuit.ProbePaused, toolcircuit.ProbeAbandoned}[rng.IntN(4)]
		if q.Result == toolcircuit.ProbePaused {
			o.Asked, o.Wait = true, max(o.Wait, short)
		}
		q.Opening = o
		tell("Settle %q %+v", f, q)
		m.check(s, s.must(s.Settle(s.Context(), m.key, f, q)), m.settle(f, q))
	}
}

// pick returns a fence: mostly that of the holder or a new one, sometimes an old one.
func (m *model) pick(rng *rand.Rand) toolcircuit.Fence {
	switch n := rng.IntN(6); {
	case n < 3 && m.fence != "":
		return m.fence
	case n < 4 && len(m.fences) > 0:
		return m.fences[rng.IntN(len(m.fences))]
	}
	m.fences = append(m.fences, toolcircuit.Fence(fmt.Sprint("fence ", len(m.fences))))
	return m.fences[len(m.fences)-1]
}

// check compares an answer with the model, and takes the epoch over.
func (m *model) check(s *subject, v toolcircuit.View, changed bool) {
	s.Helper()
	if m.epoch == 0 && !changed {
		s.equal("view", v, toolcircuit.View{})
		return
	}
	if changed {
		s.newer(v, toolcircuit.View{Epoch: m.epoch})
		m.epoch = v.Epoch
	}
	s.equal("epoch", v.Epoch, m.epoch)
	s.equal("open", v.Open, m.open)
	s.equal("generation", v.Generation, m.generation)
	s.equal("fence", v.Fence, m.fence)
	s.equal("asked", v.Asked, m.asked)
	s.equal("cause", v.Cause, m.cause)
	s.equal("failures", v.Failures, m.failures)
	switch {
	case m.open && m.cools:
		s.left("remaining", v.Remaining, m.wait)
	case v.Remaining > short:
		s.Errorf("remaining: got %v, want 0", v.Remaining)
	}
	switch {
	case m.leased:
		s.left("lease remaining", v.LeaseRemaining, long)
	case v.LeaseRemaining > short:
		s.Errorf("lease remaining: got %v, want 0", v.LeaseRemaining)
	}
}

func (m *model) trip(q toolcircuit.TripRequest) (changed bool) {
	switch {
	case m.epoch == 0:
		m.generation = q.Generation
	case m.open && m.cools && !m.leased:
		switch curve := q.Curve(m.generation); {
		case q.Asked && q.Wait >= m.wait: // it is later by the nap
			m.wait, m.asked = q.Wait, true
			return true
		case !q.Asked && m.asked && curve > m.wait:
			m.wait, m.asked = curve, false
			return true
		}
		return false
	case m.open || q.Epoch < m.epoch:
		return false
	default:
		if q.Cooldown == short {
			m.generation = 0
		}
		if !q.Pause {
			m.generation++
		}
	}
	m.reopen(q.Terms, q.Opening)
	return true
}

func (m *model) acquire(q toolcircuit.AcquireRequest) (changed bool) {
	switch {
	case m.fence != "" && m.fence == q.Fence:
		m.leased = q.Lease == long
		return false
	case m.epoch == 0 && q.Lost != nil:
		m.generation = q.Lost.Generation
		m.reopen(q.Terms, *q.Lost)
	case !m.open, m.leased, m.cools && (m.asked || !q.Early):
		return false
	}
	m.cools = false
	m.fence, m.leased = q.Fence, q.Lease == long
	return true
}

func (m *model) settle(f toolcircuit.Fence, q toolcircuit.Settlement) (changed bool) {
	if m.fence != f {
		return false
	}
	m.fence, m.leased = "", false
	switch q.Result {
	case toolcircuit.ProbeOK:
		if m.successes++; m.successes >= q.ProbeSuccesses {
			*m = model{key: m.key, epoch: m.epoch, generation: m.generation, fences: m.fences}
		}
	case toolcircuit.ProbeFailed:
		m.generation++
		m.reopen(q.Terms, q.Opening)
	case toolcircuit.ProbePaused:
		m.reopen(q.Terms, q.Opening)
	}
	return true
}

func (m *model) reopen(t toolcircuit.Terms, o toolcircuit.Opening) {
	m.open, m.successes, m.asked = true, 0, o.Asked
	m.cause, m.failures = o.Cause, o.Failures
	if m.wait = t.Curve(m.generation); o.Asked {
		m.wait = o.Wait
	}
	m.cools = m.wait > short
}
