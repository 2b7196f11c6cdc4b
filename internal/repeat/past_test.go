package repeat_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/internal/repeat"
)

func TestRules(t *testing.T) {
	for name, run := range map[string]string{
		// What is the same.
		"kinds are compared":                     "a:timeout a:unavailable a:timeout a:unavailable a:unavailable a:unavailable a!failures@60s",
		"texts of unknown errors":                "a:unknown=x a:unknown=y a:unknown=x a:unknown=x a:unknown=x a!failures@60s",
		"a text that nobody can read":            times(20, "a:unknown"),
		"a success between":                      times(20, "a:unavailable a:unavailable a:ok"),
		"other calls between":                    "a:unavailable b:not_found a:unavailable b!final@10s a:unavailable a!failures@60s",
		"no outcome between":                     "a:timeout a:canceled a:interrupt a:rejected a:timeout a: a:timeout a!failures@60s",
		"no outcome alone":                       times(5, "a:canceled a:interrupt a:rejected a:"),
		"slow is an answer":                      "a:ok=x a:slow=x a:ok=x a!answers@60s",
		"duplicate is an answer":                 "a:duplicate a:duplicate a:duplicate a!answers@60s",
		"an answer that equals none":             times(20, "a:ok"),
		"calls at the same time count once":      "a( a( a)timeout a)timeout a:timeout a( a)timeout a!failures@60s",
		"a copy that succeeds mends the failure": "a( a( a)not_found a)ok=x a:not_found a!final@10s",

		// Failures that pass.
		"held for Pause since the latest": "a:timeout 20s a:timeout 20s a:timeout/5s a!failures@105s 60s 0s a:timeout a!failures@165s",
		"not before":                      "a:panic a:deadline a:deadline a:deadline 59999ms a!failures@60s 1ms a:deadline",
		"a turn changes nothing":          "a:unavailable turn a:unavailable turn a:unavailable turn a!failures@60s",
		"after news for Poll only":        "a:timeout a:timeout a:timeout b:ok=1 a!failures@10s 10s a:timeout a!failures@70s",
		"a poll counts from the start":    "a:timeout a:timeout a:timeout/8s a!failures@68s b:ok=1 a!failures@10s",
		"no news: known before":           "b:ok=1 a:timeout a:timeout a:timeout b:ok=1 a!failures@60s",
		"no news: a failure":              "a:timeout a:timeout a:timeout b:not_found a!failures@60s",
		"no news: began before":           "b( a:timeout a:timeout a:timeout b)ok=1 a!failures@60s",
		"news of what is not guarded":     "a:timeout a:timeout a:timeout ~b:ok=1 a!failures@10s",
		"an effect is no cure for others": "a:timeout a:timeout a:timeout *b:duplicate a!failures@10s *b:duplicate 10s a:timeout a!failures@70s",
		"but may be for the unknown":      "a:unknown=x a:unknown=x a:unknown=x *b:ok=1 a:unknown=x a:unknown=x a:unknown=x a!failures@60s",
		"writes do not excuse one another": "*a:unknown=x *b:unknown=x *a:unknown=x *b:unknown=x *a:unknown=x *b:unknown=x " +
			"*a!failures@60s *b!failures@60s",

		// Failures that a change mends.
		"held after the first":        "a:not_found a!final@10s b:conflict b!final@10s c:unauthorized c!final@10s",
		"freed by Poll":               "a:not_found 9s a!final@10s 1s a:not_found 10s a:not_found 10s a:not_found 10s a:not_found a!final@50s",
		"Poll from start to start":    "a:not_found/8s a!final@10s 2s a:not_found/12s a:not_found",
		"freed by news up to Repeats": "a:not_found b:ok=1 a:not_found a!final@10s b:ok=2 a:not_found b:ok=3 a!final@10s",
		"freed by an effect":          "a:not_found *b:ok=1 a:not_found a!final@10s *b:ok=1 a:not_found *b:ok=2 a:not_found *b:ok=3 a:not_found",
		"freed by one in doubt":       "a:not_found *b:timeout a:not_found *b:panic a:not_found *b:canceled a:not_found a!final@10s",
		"not by what had no effect":   "a:not_found *b:invalid *c:not_found *d:conflict *e:unauthorized *f:rate_limited *g:interrupt *h: a!final@10s",
		"an effect during the call":   "a( *b:ok=1 a)not_found a:not_found a!final@10s",
		"freed by a turn, each time":  times(9, "a:unauthorized a!final@10s turn"),
		"a turn clears the count":     "a:conflict b:ok=1 a:conflict b:ok=2 a:conflict turn a:conflict b:ok=3 a:conflict a!final@10s",
		"a turn during the call":      "a( turn a)not_found a:not_found a!final@10s",

		// Arguments that are wrong.
		"held for good":              "a:invalid a!final 1h turn b:ok=1 *c:timeout a!final",
		"freed by an effect alone":   "a:invalid *b:ok=1 a:invalid a!final",
		"also of what is unguarded":  "a:invalid *b:invalid a!final ~c:ok=1 a!final",
		"unless somebody says when":  "a:invalid+5s a!final@5s 5s a:invalid a!final",
		"other arguments are others": "a:invalid b:invalid a!final b!final",

		// Waits.
		"N24 an honoured wait":              times(20, "a:rate_limited+1s 1s"),
		"a wait that is not observed":       times(3, "a:rate_limited+1s 900ms") + "a!failures@2.8s 100ms a:rate_limited",
		"one under a second is none":        times(3, "a:rate_limited+999ms 999ms") + "a!failures@1m1.998s",
		"it ends a hold":                    times(3, "a:unavailable+5s") + "a!failures@5s 5s a:unavailable a:unavailable a:unavailable a!failures@65s",
		"it never makes one longer":         times(3, "a:unavailable+5m") + "a!failures@60s",
		"the longest of one batch":          "a( a( a)not_found+1s a)not_found+5s 3s a!final@5s",
		"that of a circuit":                 times(3, "a:timeout") + "a!failures@60s a^20s a!failures@20s 20s a:timeout a:timeout a:timeout a!failures@80s",
		"N24 it is no step of a round":      times(3, "a:rate_limited+1s 1s b:ok=1"),
		"a circuit that knows no such call": "a^20s a:timeout a:timeout a:timeout a!failures@60s",

		// Answers.
		"fast rounds of one":           "a:ok=1 a:ok=1 a:ok=1 a!answers@60s 59s a!answers@60s 1s a:ok=1",
		"of two":                       times(3, "a:ok=1 b:ok=2") + "a!answers@60s b!answers@60s",
		"of four, one of them twice":   times(3, "a:ok=1 b:ok=2 a:ok=1 c:ok=3") + "a!answers@60s c!answers@60s",
		"of five":                      times(9, "a:ok=1 b:ok=2 c:ok=3 d:ok=4 e:ok=5"),
		"of calls at the same time":    "a( b( a)ok=1 b)ok=2 a( b( b)ok=2 a)ok=1 a( b( a)ok=1 b)ok=2 a!answers@60s b!answers@60s",
		"with a failure in them":       times(3, "*a:ok=1 b:unknown=x") + "*a!answers@60s b:unknown=x b:unknown=x b!failures@60s",
		"an answer that changes":       times(3, "a:ok=1 a:ok=1 a:ok=2"),
		"broken by a new answer":       times(3, "a:ok=1 b:ok=2") + "c:ok=3 a:ok=1 b:ok=2 c:ok=3",
		"not by a known one":           "c:ok=3 a:ok=1 a:ok=1 a:ok=1 c:ok=3 a!answers@60s",
		"nor by what is not guarded":   "a:ok=1 a:ok=1 a:ok=1 ~c:ok=3 a!answers@60s",
		"nor hidden by it":             times(3, "a:ok=1 ~c:ok") + "a!answers@60s",
		"broken by an effect":          times(3, "a:ok=1") + "*b:duplicate a:ok=1 *b:timeout *b:timeout *b:timeout",
		"broken by a turn":             times(9, "a:ok=1 a:ok=1 a:ok=1 a!answers@60s turn"),
		"its own effects break none":   times(3, "*a:ok=1") + "*a!answers@60s",
		"N25 slow ones are polls":      times(20, "a:ok=1 10s"),
		"N25 also while the tool runs": times(20, "a:ok=1/10s"),
		"fast ones":                    times(3, "a:ok=1 9999ms") + "a!answers@1m19.998s",
		"each lap is fast":             "a:ok=1 10s a:ok=1 1s a:ok=1 1s a:ok=1 a!answers@72s",
		"after the hold for Poll":      times(3, "a:ok=1") + "60s a:ok=1 a!answers@70s 10s a:ok=1 10s a:ok=1 1s a!answers@90s",
		"the same of its own effects":  times(3, "*a:ok=1") + "60s *a:ok=1 *a!answers@70s",
		"until the answer changes":     times(3, "a:ok=1") + "60s a:ok=2 a:ok=2 a:ok=2 a!answers@120s",
		"or something else happens":    times(3, "a:ok=1") + "60s a:ok=1 b:ok=2 a:ok=1 a:ok=1 a:ok=1 a!answers@120s",

		// Copies.
		"no more than Copies": times(8, "a(") + "a!copies b( a)ok=1 a(",
		"N28 beside others":   "a:timeout a( a( a!copies a)timeout a!copies a)timeout a( a!copies a)timeout a!failures@60s",
		"A028 batches":        times(8, "a(") + times(8, "a)unknown=x") + "turn a:unknown=x turn a:unknown=x a!failures@60s",
		"old failures":        times(3, "a:timeout") + "60s " + times(8, "a(") + "a!copies",
		"mended failures":     "a:not_found *b:ok=1 " + times(8, "a("),
	} {
		t.Run(name, func(t *testing.T) { play(t, limits, run) })
	}
}

func TestRepeatsIsOne(t *testing.T) {
	l := limits
	l.Repeats = 1
	play(t, l, "a:timeout a!failures@60s b:not_found c:ok=1 b!final@10s")
	play(t, l, "a:ok=1/2s a!answers@10s 8s a:ok=1 "+times(20, "10s a:ok=1"))
	play(t, l, times(8, "a(")+"a)timeout a!copies")
}

// Of two holds the one that ends last is named.
func TestTwoHolds(t *testing.T) {
	flapping := times(2, "a:ok=1 a:not_found ~n:ok") + "a:ok=1 a:not_found "
	play(t, limits, flapping+"a!answers@60s 10s a!answers@60s")
	l := limits
	l.Pause = 5 * time.Second
	play(t, l, flapping+"a!final@10s 5s a!final@10s 5s a:ok=1")
}

func TestManyRepeats(t *testing.T) {
	l := limits
	l.Repeats = 1001
	play(t, l, times(3000, "a:ok=1")+times(1001, "b:timeout")+"b!failures@60s")
	l.Repeats = 1000
	play(t, l, times(1000, "a:ok=1 b:ok=2")+"a!answers@60s b!answers@60s")
}

// The same call, other tools or scopes aside, is what Arguments says.
func TestZeroDigestsAreNeverRefused(t *testing.T) {
	p := repeat.New(limits)
	for range 20 {
		c := &repeat.Call{Tool: "a", Guarded: true}
		require.Nil(t, p.Begin(c, began))
		p.End(c, repeat.Outcome{Kind: "invalid"}, began)
	}
	p.Wait(repeat.Digest{}, began)
}

func TestMemoryForgetsTheOldest(t *testing.T) {
	l := limits
	l.Memory = 2
	play(t, l, "a:invalid b:invalid a!final c:invalid b!final a:invalid c!final b:invalid")
	play(t, l, "a:unknown=x b:invalid a:unknown=x c:invalid a:unknown=x a!failures@60s") // b goes
	play(t, l, "a:invalid b:timeout b:ok=1 c:invalid a!final")                           // what succeeds takes no room
	play(t, l, times(9, "a:not_found b:ok=1 b:ok=2 b:ok=3 10s"))                         // an answer that is forgotten is new
	play(t, l, times(3, "a:ok=1")+"b:invalid c:invalid a:ok=1")
}

// Kinds are those of toolcircuit, so that each has its rule.
func TestKinds(t *testing.T) {
	for kind, want := range map[toolcircuit.Kind]string{
		toolcircuit.KindTimeout:      "failures@60s",
		toolcircuit.KindDeadline:     "failures@60s",
		toolcircuit.KindUnavailable:  "failures@60s",
		toolcircuit.KindRateLimited:  "failures@60s",
		toolcircuit.KindPanic:        "failures@60s",
		toolcircuit.KindUnknown:      "failures@60s",
		toolcircuit.KindUnauthorized: "final@10s",
		toolcircuit.KindNotFound:     "final@10s",
		toolcircuit.KindConflict:     "final@10s",
		toolcircuit.KindInvalid:      "final",
		toolcircuit.KindOK:           "answers@60s",
		toolcircuit.KindSlow:         "answers@60s",
		toolcircuit.KindDuplicate:    "answers@60s",
	} {
		r := newRig(t, limits)
		r.play(times(3, "a?"+string(kind)+"=x") + "a!" + want)
	}
	for _, kind := range []toolcircuit.Kind{toolcircuit.KindCanceled, toolcircuit.KindInterrupt, toolcircuit.KindRejected} {
		play(t, limits, times(20, "a:"+string(kind)))
	}
}

// A clock may step back.
func TestTimeThatStepsBack(t *testing.T) {
	play(t, limits, "a:timeout a:timeout a:timeout -1h a!failures@60s 1h 60s a:timeout")
}

func TestBegunCallsAreForgotten(t *testing.T) {
	r := newRig(t, limits)
	for i := range 20_000 {
		r.now = r.now.Add(time.Millisecond)
		c := &repeat.Call{ID: repeat.Arguments(i, "a"), Tool: "a", Guarded: true}
		require.Nil(t, r.past.Begin(c, r.now))
		r.past.End(c, repeat.Outcome{Kind: "ok", Print: repeat.Result(i)}, r.now)
	}
	require.Less(t, r.past.Size(), 3*limits.Memory)
}
