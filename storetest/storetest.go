// Package storetest is for those who write a [toolcircuit.Store] and for tests of what uses one:
// Run has the rules that every Store must pass, Memory is a Store with faults.
package storetest

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/toolcircuit/toolcircuit"
)

// Run checks a Store against the rules of [toolcircuit.Store], each in a subtest with its
// explanation. newStore is called at least once for each; the Stores that one t gets must be
// clients of the same records, and those of different ts must not share any keys' records. What a
// Store needs for its end goes into t.Cleanup. Run takes a few seconds of real time. Run
// it with -race.
func Run(t *testing.T, newStore func(t *testing.T) toolcircuit.Store) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) { r.check(t, newStore) })
	}
	t.Run("random requests of several clients", func(t *testing.T) { randomly(t, newStore) })
}

func (r rule) check(t *testing.T, newStore func(t *testing.T) toolcircuit.Store) {
	s := &subject{T: t, Store: newStore(t), newStore: newStore, key: "search-api"}
	defer func() {
		if t.Failed() {
			t.Log("the rule: " + r.why)
		}
	}()
	r.test(s)
}

// rule is one rule: what it is called, why it is one, and how it shows.
type rule struct {
	name, why string
	test      func(*subject)
}

// subject is a Store under test, with the requests that the rules make. Waits are either long,
// which never end during a test, or short, which a nap outlasts.
type subject struct {
	*testing.T
	toolcircuit.Store
	newStore func(t *testing.T) toolcircuit.Store
	key      string
}

const (
	long  = time.Hour
	short = 2 * time.Millisecond
	slack = time.Minute // within which an answer to a long wait must be
)

// nap outlasts what is short.
func nap() { time.Sleep(10 * time.Millisecond) }

// terms are the usual ones: long waits, of which the store does not remember a pause.
func terms() toolcircuit.Terms {
	return toolcircuit.Terms{
		Cooldown:       long,
		MaxCooldown:    8 * long,
		Multiplier:     2,
		MaxRetryAfter:  4 * long,
		ProbeSuccesses: 1,
		Lease:          long,
		Retention:      24 * long,
	}
}

// brief are terms with short waits, so that a probe is due after a nap.
func brief() toolcircuit.Terms {
	t := terms()
	t.Cooldown, t.MaxCooldown, t.Multiplier = short, short, 1
	return t
}

func opening(generation int) toolcircuit.Opening {
	return toolcircuit.Opening{Generation: generation, Cause: toolcircuit.KindTimeout, Failures: 3}
}

func (s *subject) must(v toolcircuit.View, err error) toolcircuit.View {
	s.Helper()
	if err != nil {
		s.Fatalf("got error %v, want a View", err)
	}
	return v
}

func (s *subject) load() toolcircuit.View {
	s.Helper()
	views, err := s.Load(s.Context(), []string{s.key})
	if err != nil || len(views) != 1 {
		s.Fatalf("Load of one key: got %d views and error %v, want 1 and none", len(views), err)
	}
	return views[0]
}

// trip trips the record as it is now.
func (s *subject) trip(t toolcircuit.Terms, o toolcircuit.Opening) toolcircuit.View {
	s.Helper()
	return s.must(s.Trip(s.Context(), s.key, toolcircuit.TripRequest{Terms: t, Opening: o, Epoch: s.load().Epoch}))
}

// due leaves the record open, its wait over.
func (s *subject) due() toolcircuit.View {
	s.Helper()
	v := s.trip(brief(), opening(1))
	nap()
	return v
}

func (s *subject) acquire(f toolcircuit.Fence, edit ...func(*toolcircuit.AcquireRequest)) toolcircuit.View {
	s.Helper()
	a := toolcircuit.AcquireRequest{Terms: terms(), Fence: f}
	for _, e := range edit {
		e(&a)
	}
	return s.must(s.Acquire(s.Context(), s.key, a))
}

func (s *subject) settle(f toolcircuit.Fence, r toolcircuit.ProbeResult, edit ...func(*toolcircuit.Settlement)) toolcircuit.View {
	s.Helper()
	o := toolcircuit.Settlement{Terms: terms(), Result: r}
	if r == toolcircuit.ProbeFailed || r == toolcircuit.ProbePaused {
		o.Opening = opening(0)
	}
	for _, e := range edit {
		e(&o)
	}
	return s.must(s.Settle(s.Context(), s.key, f, o))
}

func (s *subject) equal(what string, got, want any) {
	s.Helper()
	if got != want {
		s.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// left checks a time that is left of a long one.
func (s *subject) left(what string, got, want time.Duration) {
	s.Helper()
	if got > want || got < want-slack {
		s.Fatalf("%s: got %v, want %v or a little less", what, got, want)
	}
}

// newer checks that a change has given a greater epoch, and same that there was none.
func (s *subject) newer(now, before toolcircuit.View) {
	s.Helper()
	if now.Epoch <= before.Epoch {
		s.Fatalf("epoch: got %d, want more than the %d before the change", now.Epoch, before.Epoch)
	}
}

func (s *subject) same(now, before toolcircuit.View) {
	s.Helper()
	s.equal("epoch after a request that changes nothing", now.Epoch, before.Epoch)
	s.equal("open", now.Open, before.Open)
	s.equal("generation", now.Generation, before.Generation)
	s.equal("fence", now.Fence, before.Fence)
}

func with(edit func(*toolcircuit.Terms)) toolcircuit.Terms {
	t := terms()
	edit(&t)
	return t
}

var rules = []rule{
	{"nothing known", "A key without a record is closed, and reading or asking for a probe does not make one.", func(s *subject) {
		s.equal("view", s.load(), toolcircuit.View{})
		s.equal("answer to Acquire", s.acquire("a"), toolcircuit.View{})
		s.equal("answer to Settle", s.settle("a", toolcircuit.ProbeFailed), toolcircuit.View{})
		s.equal("view", s.load(), toolcircuit.View{})
	}},
	{"load keeps the order of keys", "A Fleet matches Views to keys by their place.", func(s *subject) {
		s.trip(terms(), opening(2))
		views, err := s.Load(s.Context(), []string{"none", s.key, "", s.key, "none too"})
		if err != nil || len(views) != 5 {
			s.Fatalf("got %d views and error %v, want 5 and none", len(views), err)
		}
		for i, v := range views {
			s.equal(fmt.Sprintf("views[%d].Open", i), v.Open, i == 1 || i == 3)
		}
		views, err = s.Load(s.Context(), nil)
		if err != nil || len(views) != 0 {
			s.Fatalf("Load of no keys: got %d views and error %v, want none", len(views), err)
		}
	}},
	{"any key", "A key is any text that is not empty; no two share a record.", func(s *subject) {
		keys := []string{"a", "A", "a ", "{a}", "{", "}", "{}", "%", "%7B", "a:b", "a*", "ä", "\x00", "\xff", "a\nb", strings.Repeat("k", 5000), strings.Repeat("k", 5001)}
		for i, key := range keys {
			s.key = key
			s.equal(fmt.Sprintf("%.20q open before", key), s.load().Open, false)
			s.trip(terms(), opening(i+1))
		}
		for i, key := range keys {
			s.key = key
			s.equal(fmt.Sprintf("%.20q generation", key), s.load().Generation, i+1)
		}
	}},
	{"trip opens", "The answer and every later View tell what the worker that saw it told.", func(s *subject) {
		for _, v := range []toolcircuit.View{s.trip(terms(), opening(1)), s.load()} {
			s.equal("open", v.Open, true)
			s.equal("generation", v.Generation, 1)
			s.left("remaining", v.Remaining, long)
			s.equal("lease remaining", v.LeaseRemaining, time.Duration(0))
			s.equal("fence", v.Fence, toolcircuit.Fence(""))
			s.equal("asked", v.Asked, false)
			s.equal("cause", v.Cause, toolcircuit.KindTimeout)
			s.equal("failures", v.Failures, 3)
			if v.Age < 0 || v.Age > slack {
				s.Fatalf("age: got %v, want about 0", v.Age)
			}
		}
	}},
	{"epochs are times", "An epoch is at least the microseconds since 1970 and one more than in the request, so that none is given twice after writes were lost. One of 2^53 or more in a request counts as none.", func(s *subject) {
		v := s.trip(terms(), opening(1))
		if y := time.Unix(0, 0).AddDate(20, 0, 0); v.Epoch < uint64(y.UnixMicro()) {
			s.Fatalf("epoch: got %d, want microseconds since 1970, more than %d", v.Epoch, y.UnixMicro())
		}
		ahead := v.Epoch + uint64(long.Microseconds())
		s.key = "another"
		v = s.must(s.Trip(s.Context(), s.key, toolcircuit.TripRequest{Terms: terms(), Opening: opening(1), Epoch: ahead}))
		s.newer(v, toolcircuit.View{Epoch: ahead})
		s.newer(s.trip(terms(), toolcircuit.Opening{Wait: 2 * long, Asked: true}), v)
		s.key = "a third"
		v = s.acquire("a", func(a *toolcircuit.AcquireRequest) { a.Epoch, a.Lost = ahead, new(toolcircuit.Opening) })
		s.newer(v, toolcircuit.View{Epoch: ahead})
		for i, far := range []uint64{1 << 53, math.MaxUint64} {
			s.key = fmt.Sprint("far ", i)
			v = s.must(s.Trip(s.Context(), s.key, toolcircuit.TripRequest{Terms: terms(), Opening: opening(1), Epoch: far}))
			s.equal("open", v.Open, true)
			s.equal("epoch from the far future", v.Epoch < 1<<53, true)
		}
	}},
	{"trip: the curve", "The wait is min(Cooldown * Multiplier^(generation-1), MaxCooldown), with the share of jitter that the worker drew.", func(s *subject) {
		for i, c := range []struct {
			generation   int
			jitter, draw float64
		}{
			{0, 0, 0}, {1, 0, 0}, {2, 0, 0}, {3, 0, 0}, {4, 0, 0}, {5, 0, 0}, {100_000, 0, 0},
			{1, 0.5, 0}, {1, 0.5, 0.5}, {3, 1, 0.999}, {4, 0.2, 0.1}, {9, 0.2, 0.9}, {9, 1, 0},
		} {
			s.key = fmt.Sprint("key ", i)
			terms := with(func(t *toolcircuit.Terms) { t.Jitter, t.Draw = c.jitter, c.draw })
			v := s.trip(terms, opening(c.generation))
			s.left(fmt.Sprintf("%+v: remaining", c), v.Remaining, terms.Curve(c.generation))
			s.equal("generation", v.Generation, c.generation)
		}
	}},
	{"trip: an asked wait", "A wait that the dependency asks for stands in for the curve, shorter or longer, up to MaxRetryAfter and without jitter.", func(s *subject) {
		for i, c := range []struct{ wait, want time.Duration }{
			{2 * time.Minute, 2 * time.Minute}, {3 * long, 3 * long}, {9 * long, 4 * long},
		} {
			s.key = fmt.Sprint("key ", i)
			o := opening(1)
			o.Wait, o.Asked = c.wait, true
			v := s.trip(with(func(t *toolcircuit.Terms) { t.Jitter, t.Draw = 1, 0.9 }), o)
			s.left("remaining", v.Remaining, c.want)
			s.equal("asked", v.Asked, true)
			s.equal("generation", v.Generation, 1)
		}
	}},
	{"trip: a pause", "A pause opens for what was asked, and is no generation.", func(s *subject) {
		s.due()
		s.acquire("a")
		closed := s.settle("a", toolcircuit.ProbeOK)
		o := opening(7)
		o.Wait, o.Asked = 2*long, true
		v := s.must(s.Trip(s.Context(), s.key, toolcircuit.TripRequest{Terms: terms(), Opening: o, Epoch: closed.Epoch, Pause: true}))
		s.newer(v, closed)
		s.equal("generation", v.Generation, 1)
		s.left("remaining", v.Remaining, 2*long)
	}},
	{"trip: told late", "An opening that is told late or put back after the record was lost keeps its age, its generation and what is left of its wait.", func(s *subject) {
		o := opening(3)
		o.Wait, o.Age = 2*long, long
		v := s.trip(terms(), o)
		s.equal("generation", v.Generation, 3)
		s.left("remaining", v.Remaining, 2*long)
		s.equal("asked", v.Asked, false)
		if v.Age < long || v.Age > long+slack {
			s.Fatalf("age: got %v, want %v", v.Age, long)
		}
		s.key = "another"
		o.Wait = 100 * long
		s.left("remaining, at most MaxCooldown", s.trip(terms(), o).Remaining, 8*long)
	}},
	{"a wait that is over", "What is told when its wait is over has a wait of 1ms and does not begin a new one.", func(s *subject) {
		over := opening(2)
		over.Wait, over.Age = time.Millisecond, long
		tripped := s.trip(terms(), over)
		s.key = "failed"
		s.due()
		s.acquire("a")
		settled := s.settle("a", toolcircuit.ProbeFailed, func(o *toolcircuit.Settlement) { o.Opening = over })
		for _, v := range []toolcircuit.View{tripped, settled} {
			s.equal("open", v.Open, true)
			s.equal("generation", v.Generation, 2)
			if v.Remaining > time.Millisecond || v.Age < long {
				s.Fatalf("remaining %v and age %v, want at most 1ms and at least %v", v.Remaining, v.Age, long)
			}
		}
		nap()
		s.equal("fence", s.acquire("b").Fence, toolcircuit.Fence("b"))
	}},
	{"trip: old failures", "Failures from before the last closing must not open the record again.", func(s *subject) {
		opened := s.due()
		s.acquire("a")
		closed := s.settle("a", toolcircuit.ProbeOK)
		s.equal("open after the probe", closed.Open, false)
		for _, epoch := range []uint64{0, opened.Epoch, closed.Epoch - 1, 1 << 53} {
			v := s.must(s.Trip(s.Context(), s.key, toolcircuit.TripRequest{Terms: terms(), Opening: opening(5), Epoch: epoch}))
			s.same(v, closed)
		}
		v := s.must(s.Trip(s.Context(), s.key, toolcircuit.TripRequest{Terms: terms(), Opening: opening(5), Epoch: closed.Epoch}))
		s.equal("open", v.Open, true)
		s.equal("generation", v.Generation, 2)
	}},
	{"trip: a record that fell back", "A store that lost its last writes has an older closed record than the workers. Their next opening must still be shared.", func(s *subject) {
		s.due()
		s.acquire("a")
		ahead := s.settle("a", toolcircuit.ProbeOK).Epoch + uint64(long.Microseconds())
		v := s.must(s.Trip(s.Context(), s.key, toolcircuit.TripRequest{Terms: terms(), Opening: opening(5), Epoch: ahead}))
		s.newer(v, toolcircuit.View{Epoch: ahead})
		s.equal("open", v.Open, true)
		s.equal("generation", v.Generation, 2)
	}},
	{"trip: later, never earlier", "While a record cools, a late failure can only prolong the wait: by what it asks for, or from an asked wait to the curve.", func(s *subject) {
		opened := s.trip(terms(), opening(1))
		v := s.trip(terms(), opening(1))
		s.same(v, opened)
		v = s.trip(with(func(t *toolcircuit.Terms) { t.Cooldown = 3 * long }), opening(1)) // by the curve
		s.same(v, opened)
		v = s.trip(terms(), toolcircuit.Opening{Wait: time.Minute, Asked: true})
		s.same(v, opened)
		v = s.trip(terms(), toolcircuit.Opening{Wait: 2 * long, Asked: true})
		s.newer(v, opened)
		s.left("remaining", v.Remaining, 2*long)
		s.equal("asked", v.Asked, true)
		s.equal("generation", v.Generation, 1)
		s.equal("cause", v.Cause, toolcircuit.KindTimeout)
		longer := v
		s.same(s.trip(terms(), opening(1)), longer)

		s.key = "asked"
		asked := s.trip(terms(), toolcircuit.Opening{Generation: 1, Wait: 2 * time.Minute, Asked: true})
		v = s.trip(terms(), opening(1))
		s.newer(v, asked)
		s.left("remaining", v.Remaining, long)
		s.equal("asked", v.Asked, false)
	}},
	{"trip: not while due or probed", "When the wait is over only a probe decides.", func(s *subject) {
		s.due()
		before := s.load()
		s.same(s.trip(terms(), toolcircuit.Opening{Generation: 9, Wait: long, Asked: true}), before)
		probed := s.acquire("a")
		s.same(s.trip(terms(), toolcircuit.Opening{Generation: 9, Wait: long, Asked: true}), probed)
	}},
	{"acquire: one at a time", "One claim is granted when the wait is over, and everybody sees whose.", func(s *subject) {
		opened := s.trip(terms(), opening(1))
		s.same(s.acquire("early"), opened)
		s.key = "due"
		due := s.due()
		v := s.acquire("a")
		s.newer(v, due)
		s.equal("fence", v.Fence, toolcircuit.Fence("a"))
		s.left("lease remaining", v.LeaseRemaining, long)
		s.equal("remaining", v.Remaining, time.Duration(0))
		s.equal("open", v.Open, true)
		s.same(s.acquire("b"), v)
		s.equal("fence that others see", s.load().Fence, toolcircuit.Fence("a"))
	}},
	{"acquire: the lease is that of the request", "The worker knows how long its calls take.", func(s *subject) {
		s.due()
		v := s.acquire("a", func(a *toolcircuit.AcquireRequest) { a.Lease = 3 * long })
		s.left("lease remaining", v.LeaseRemaining, 3*long)
	}},
	{"acquire: again is a renewal", "Asking again with the same fence is safe after a lost answer, and renews the lease. It is no change.", func(s *subject) {
		s.due()
		granted := s.acquire("a", func(a *toolcircuit.AcquireRequest) { a.Lease = 10 * time.Minute })
		v := s.acquire("a")
		s.same(v, granted)
		s.left("lease remaining", v.LeaseRemaining, long)
	}},
	{"acquire: a dead holder", "When a lease ends without a verdict the next to ask gets the probe, and the late verdict of the dead one is refused.", func(s *subject) {
		s.due()
		first := s.acquire("a", func(a *toolcircuit.AcquireRequest) { a.Lease = short })
		nap()
		s.equal("lease remaining", s.load().LeaseRemaining, time.Duration(0))
		second := s.acquire("b")
		s.newer(second, first)
		s.equal("fence", second.Fence, toolcircuit.Fence("b"))
		for _, late := range []toolcircuit.ProbeResult{toolcircuit.ProbeOK, toolcircuit.ProbeFailed, toolcircuit.ProbePaused, toolcircuit.ProbeAbandoned} {
			s.same(s.settle("a", late), second)
		}
		s.same(s.acquire("a"), second)
	}},
	{"acquire: late but first", "A holder whose lease is over keeps the probe until another claims it.", func(s *subject) {
		s.due()
		s.acquire("a", func(a *toolcircuit.AcquireRequest) { a.Lease = short })
		nap()
		s.equal("open after the late success", s.settle("a", toolcircuit.ProbeOK).Open, false)
	}},
	{"acquire: a closed record", "There is nothing to probe.", func(s *subject) {
		s.due()
		s.acquire("a")
		closed := s.settle("a", toolcircuit.ProbeOK)
		s.same(s.acquire("b"), closed)
		s.same(s.acquire("b", func(a *toolcircuit.AcquireRequest) { a.Lost = &toolcircuit.Opening{Generation: 3} }), closed)
	}},
	{"acquire: a lost record", "After the store was emptied, the first worker that knows of the opening and asks for its probe gets it; the next find the record.", func(s *subject) {
		lost := func(a *toolcircuit.AcquireRequest) {
			o := opening(3)
			o.Age = long
			a.Lost, a.Epoch = &o, 7
		}
		v := s.acquire("a", lost)
		s.equal("open", v.Open, true)
		s.equal("fence", v.Fence, toolcircuit.Fence("a"))
		s.equal("generation", v.Generation, 3)
		s.equal("cause", v.Cause, toolcircuit.KindTimeout)
		s.equal("failures", v.Failures, 3)
		s.equal("remaining", v.Remaining, time.Duration(0))
		s.left("lease remaining", v.LeaseRemaining, long)
		if v.Age < long || v.Age > long+slack {
			s.Fatalf("age: got %v, want %v", v.Age, long)
		}
		s.same(s.acquire("b", lost), v)
		v = s.settle("a", toolcircuit.ProbeFailed)
		s.equal("generation", v.Generation, 4)
	}},
	{"acquire: early", "A worker that has seen the dependency answer may skip what is left of a wait, except one that the dependency asked for.", func(s *subject) {
		early := func(a *toolcircuit.AcquireRequest) { a.Early = true }
		opened := s.trip(terms(), opening(1))
		v := s.acquire("a", early)
		s.newer(v, opened)
		s.equal("fence", v.Fence, toolcircuit.Fence("a"))
		s.equal("remaining", v.Remaining, time.Duration(0))
		s.same(s.acquire("b", early), v)

		s.key = "asked"
		asked := s.trip(terms(), toolcircuit.Opening{Generation: 1, Wait: long, Asked: true})
		s.same(s.acquire("a", early), asked)
	}},
	{"settle: ok closes", "The generation outlives the closing.", func(s *subject) {
		s.trip(brief(), opening(4))
		nap()
		probed := s.acquire("a")
		for _, v := range []toolcircuit.View{s.settle("a", toolcircuit.ProbeOK), s.load()} {
			s.newer(v, probed)
			s.equal("open", v.Open, false)
			s.equal("generation", v.Generation, 4)
			s.equal("fence", v.Fence, toolcircuit.Fence(""))
			s.equal("lease remaining", v.LeaseRemaining, time.Duration(0))
			s.equal("remaining", v.Remaining, time.Duration(0))
			if v.Age < 0 || v.Age > slack {
				s.Fatalf("age: got %v, want the time since the closing", v.Age)
			}
		}
	}},
	{"settle: failed opens anew", "A failed probe is the next opening.", func(s *subject) {
		s.due()
		probed := s.acquire("a")
		v := s.settle("a", toolcircuit.ProbeFailed, func(o *toolcircuit.Settlement) { o.Cause, o.Failures = toolcircuit.KindUnavailable, 1 })
		s.newer(v, probed)
		s.equal("open", v.Open, true)
		s.equal("generation", v.Generation, 2)
		s.left("remaining", v.Remaining, 2*long)
		s.equal("fence", v.Fence, toolcircuit.Fence(""))
		s.equal("cause", v.Cause, toolcircuit.KindUnavailable)
		s.equal("failures", v.Failures, 1)
		s.same(s.acquire("b"), v)
	}},
	{"settle: failed with an asked wait", "That wait stands in for the curve. A verdict that is told late has what is left of its wait.", func(s *subject) {
		s.due()
		s.acquire("a")
		v := s.settle("a", toolcircuit.ProbeFailed, func(o *toolcircuit.Settlement) { o.Wait, o.Asked = 3*long, true })
		s.equal("generation", v.Generation, 2)
		s.equal("asked", v.Asked, true)
		s.left("remaining", v.Remaining, 3*long)

		s.key = "late"
		s.due()
		s.acquire("a")
		v = s.settle("a", toolcircuit.ProbeFailed, func(o *toolcircuit.Settlement) { o.Wait = long })
		s.equal("asked", v.Asked, false)
		s.left("remaining", v.Remaining, long)
	}},
	{"settle: paused", "A pause is no failure: it opens for what was asked, with the same generation.", func(s *subject) {
		s.due()
		s.acquire("a")
		v := s.settle("a", toolcircuit.ProbePaused, func(o *toolcircuit.Settlement) { o.Wait, o.Asked = long, true })
		s.equal("open", v.Open, true)
		s.equal("generation", v.Generation, 1)
		s.equal("asked", v.Asked, true)
		s.left("remaining", v.Remaining, long)
	}},
	{"settle: abandoned gives back", "A probe that says nothing is given back, and the next to ask has it at once.", func(s *subject) {
		s.due()
		probed := s.acquire("a")
		v := s.settle("a", toolcircuit.ProbeAbandoned)
		s.newer(v, probed)
		s.equal("open", v.Open, true)
		s.equal("generation", v.Generation, 1)
		s.equal("fence", v.Fence, toolcircuit.Fence(""))
		s.equal("lease remaining", v.LeaseRemaining, time.Duration(0))
		s.same(s.settle("a", toolcircuit.ProbeOK), v)
		s.equal("fence", s.acquire("b").Fence, toolcircuit.Fence("b"))
	}},
	{"settle: several successes", "ProbeSuccesses in a row close the record, whoever makes them. A failure begins again, an abandoned probe does not.", func(s *subject) {
		three := func(o *toolcircuit.Settlement) { o.ProbeSuccesses = 3 }
		probe := func(f toolcircuit.Fence, r toolcircuit.ProbeResult, t toolcircuit.Terms) toolcircuit.View {
			s.Helper()
			s.equal("fence", s.acquire(f).Fence, f)
			return s.settle(f, r, func(o *toolcircuit.Settlement) { o.Terms = t; three(o) })
		}
		s.due()
		v := probe("a", toolcircuit.ProbeOK, terms())
		s.equal("open after 1", v.Open, true)
		s.equal("remaining after 1", v.Remaining, time.Duration(0))
		s.equal("fence after 1", v.Fence, toolcircuit.Fence(""))
		probe("b", toolcircuit.ProbeOK, terms())
		probe("c", toolcircuit.ProbeAbandoned, terms())
		s.equal("open after 3", probe("d", toolcircuit.ProbeOK, terms()).Open, false)

		s.key = "again"
		s.due()
		probe("a", toolcircuit.ProbeOK, terms())
		probe("b", toolcircuit.ProbeOK, terms())
		probe("c", toolcircuit.ProbeFailed, brief())
		nap()
		probe("d", toolcircuit.ProbeOK, terms())
		s.equal("open after 2 anew", probe("e", toolcircuit.ProbeOK, terms()).Open, true)
		s.equal("open after 3 anew", probe("f", toolcircuit.ProbeOK, terms()).Open, false)
	}},
	{"settle: no fence", "The empty Fence is nobody's.", func(s *subject) {
		s.due()
		before := s.load()
		s.same(s.settle("", toolcircuit.ProbeOK), before)
	}},
	{"generations fade", "A closed record forgets its openings one by one, each after the wait that the curve of the asking worker gives for it, without jitter.", func(s *subject) {
		for i, c := range []struct {
			t    toolcircuit.Terms
			want int
		}{
			{terms(), 4}, // long waits: none is forgotten
			{brief(), 1}, // short ones: all are
		} {
			s.key = fmt.Sprint("key ", i)
			s.trip(brief(), opening(3))
			nap()
			s.acquire("a")
			s.settle("a", toolcircuit.ProbeOK)
			nap()
			s.equal("generation while closed", s.load().Generation, 3)
			s.equal("generation of the next opening", s.trip(c.t, opening(1)).Generation, c.want)
		}
		s.key = "some"
		s.trip(brief(), opening(50))
		nap()
		s.acquire("a")
		before := time.Now()
		s.settle("a", toolcircuit.ProbeOK)
		after := time.Now()
		time.Sleep(100 * time.Millisecond)
		fading := with(func(t *toolcircuit.Terms) {
			t.Cooldown, t.MaxCooldown, t.Multiplier, t.Jitter, t.Draw = 10*time.Millisecond, long, 1.01, 1, 0.9
		})
		least := time.Since(after) - time.Millisecond
		got := s.trip(fading, opening(1)).Generation
		most := time.Since(before) + time.Millisecond
		if got > fading.Fade(50, least)+1 || got < fading.Fade(50, most)+1 {
			s.Fatalf("generation after %v to %v closed: got %d, want %d to %d", least, most, got, fading.Fade(50, most)+1, fading.Fade(50, least)+1)
		}
	}},
	{"terms cut what is too long", "A record from before the store's clock stepped back is cut to the terms: an asked wait to MaxRetryAfter, another to MaxCooldown, a lease to Lease.", func(s *subject) {
		s.trip(terms(), opening(4)) // for 8 h
		tight := func(a *toolcircuit.AcquireRequest) {
			a.Cooldown, a.MaxCooldown, a.Lease, a.MaxRetryAfter = time.Minute, 10*time.Minute, time.Minute, 30*time.Minute
		}
		s.left("remaining", s.acquire("a", tight).Remaining, 10*time.Minute)
		s.key = "asked"
		s.trip(terms(), toolcircuit.Opening{Generation: 1, Wait: 2 * long, Asked: true})
		s.left("remaining of an asked wait", s.acquire("a", tight).Remaining, 30*time.Minute)
		s.key = "leased"
		s.due()
		s.acquire("a")
		s.left("lease remaining", s.acquire("b", tight).LeaseRemaining, time.Minute)
	}},
	{"retention", "A record is dropped Retention after its wait, its lease or its closing, so that old ones cost nothing.", func(s *subject) {
		forgetful := brief()
		forgetful.Retention = 50 * time.Millisecond
		gone := func(what string) {
			s.Helper()
			for end := time.Now().Add(10 * time.Second); s.load() != (toolcircuit.View{}); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					s.Fatalf("%s: the record is still there after 10s, want it dropped after 50ms", what)
				}
			}
		}
		v := s.trip(forgetful, opening(1))
		gone("open")
		s.newer(s.trip(forgetful, opening(1)), v)
		nap()
		s.acquire("a", func(a *toolcircuit.AcquireRequest) { a.Terms = forgetful; a.Lease = short })
		gone("probed")
		s.trip(forgetful, opening(1))
		nap()
		s.acquire("a", func(a *toolcircuit.AcquireRequest) { a.Retention = long })
		s.settle("a", toolcircuit.ProbeOK, func(o *toolcircuit.Settlement) { o.Terms = forgetful })
		gone("closed")
	}},
	{"a context that has ended", "A Store heeds its context: what is asked under an ended one fails and changes nothing, and Watch returns.", func(s *subject) {
		s.due()
		before := s.load()
		ctx, cancel := context.WithCancel(s.Context())
		cancel()
		_, errs := s.Load(ctx, []string{s.key})
		_, errTrip := s.Trip(ctx, "another", toolcircuit.TripRequest{Terms: terms(), Opening: opening(1)})
		_, errAcquire := s.Acquire(ctx, s.key, toolcircuit.AcquireRequest{Terms: terms(), Fence: "a"})
		_, errSettle := s.Settle(ctx, s.key, "a", toolcircuit.Settlement{Terms: terms(), Result: toolcircuit.ProbeOK})
		for name, err := range map[string]error{"Load": errs, "Trip": errTrip, "Acquire": errAcquire, "Settle": errSettle} {
			if err == nil {
				s.Errorf("%s under a context that has ended: got no error, want one", name)
			}
		}
		s.same(s.load(), before)
		s.key = "another"
		s.equal("view of a key tripped under it", s.load(), toolcircuit.View{})
		done := make(chan error, 1)
		go func() { done <- s.Watch(ctx, func(string, toolcircuit.View) {}, func() {}) }()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			s.Fatal("Watch has not returned 10s after its context ended")
		}
	}},
	{"watch", "Every client hears of every change, with its View, or is told to load again.", watches},
	{"reset", "A Store that is a Resetter closes a record in a greater epoch, for good: nobody's fence counts any more and nothing is remembered.", func(s *subject) {
		r, ok := s.Store.(toolcircuit.Resetter)
		if !ok {
			s.Skip("the Store is no toolcircuit.Resetter")
		}
		s.trip(brief(), opening(5))
		nap()
		probed := s.acquire("a")
		v := s.must(r.Reset(s.Context(), s.key, toolcircuit.ResetRequest{Terms: terms(), Epoch: probed.Epoch + uint64(long.Microseconds())}))
		s.newer(v, toolcircuit.View{Epoch: probed.Epoch + uint64(long.Microseconds())})
		s.equal("open", v.Open, false)
		s.equal("generation", v.Generation, 0)
		s.equal("fence", v.Fence, toolcircuit.Fence(""))
		s.same(s.settle("a", toolcircuit.ProbeFailed), v)
		s.equal("generation of the next opening", s.trip(terms(), opening(9)).Generation, 1)
		s.key = "none"
		v = s.must(r.Reset(s.Context(), s.key, toolcircuit.ResetRequest{Terms: terms(), Epoch: 7}))
		s.newer(v, toolcircuit.View{Epoch: 7})
		s.equal("open", v.Open, false)
	}},
}

// watches checks that two clients hear what a third does.
func watches(s *subject) {
	ctx, cancel := context.WithCancel(s.Context())
	type news struct {
		key  string
		view toolcircuit.View
	}
	const clients = 2
	heard, done := make(chan news, 1000), make(chan error, clients)
	synced := make([]chan struct{}, clients)
	for i := range clients {
		client := s.newStore(s.T)
		synced[i] = make(chan struct{}, 1000)
		resync := func() {
			select {
			case synced[i] <- struct{}{}:
			default:
			}
		}
		go func() {
			done <- client.Watch(ctx, func(key string, v toolcircuit.View) { heard <- news{key, v} }, resync)
		}()
	}
	patience := time.After(10 * time.Second)
	for i := range clients {
		select {
		case <-synced[i]:
		case err := <-done:
			s.Fatalf("Watch returned %v before its context ended", err)
		case <-patience:
			s.Fatal("Watch has not called resync within 10s, want it as soon as it listens")
		}
	}
	expect := func(what string, want toolcircuit.View) {
		s.Helper()
		for left := clients; left > 0; {
			select {
			case n := <-heard:
				if n.key != s.key || n.view.Epoch != want.Epoch {
					continue
				}
				left--
				s.same(n.view, want)
				s.equal(what+": cause", n.view.Cause, want.Cause)
				s.equal(what+": asked", n.view.Asked, want.Asked)
				s.left(what+": remaining", n.view.Remaining, want.Remaining)
				s.left(what+": lease remaining", n.view.LeaseRemaining, want.LeaseRemaining)
			case <-synced[0]:
				left--
			case <-synced[1]:
				left--
			case <-patience:
				s.Fatalf("%s: heard nothing of it within 10s", what)
			}
		}
	}
	expect("opening", s.trip(brief(), opening(1)))
	nap()
	expect("grant", s.acquire("a"))
	expect("abandon", s.settle("a", toolcircuit.ProbeAbandoned))
	s.acquire("b")
	expect("failure", s.settle("b", toolcircuit.ProbeFailed))
	expect("longer wait", s.trip(terms(), toolcircuit.Opening{Wait: 3 * long, Asked: true}))
	cancel()
	for range clients {
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			s.Fatal("Watch has not returned 10s after its context ended")
		}
	}
}
