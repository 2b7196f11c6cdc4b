package repeat_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit/internal/repeat"
)

// model is the rules of repeats in the way that is plainly right: it writes down all that happens
// and reads all of it again for each question.
type model struct {
	repeat.Limits
	now   int // number of the next thing that happens
	calls []*past
	turns []int
	waits []asking // of circuits
}

// past is a call of a run. Of what has not happened the number is -1.
type past struct {
	id              string
	guarded, writes bool
	began, ended    int
	start, end      time.Time
	kind, print     string // an empty print equals none
	wait            time.Time
	honoured        bool
}

type asking struct {
	id    string
	at    int
	until time.Time
}

func (m *model) tick() int { m.now++; return m.now }

func (c *past) answers() bool { return c.ended >= 0 && (c.kind == "ok" || c.kind == "duplicate") }
func (c *past) fails() bool {
	return c.ended >= 0 && !c.answers() && !slices.Contains([]string{"", "canceled", "interrupt", "rejected"}, c.kind)
}

// inOrder returns the calls that have ended, in the order of their ends.
func (m *model) inOrder() (calls []*past) {
	for _, c := range m.calls {
		if c.ended >= 0 {
			calls = append(calls, c)
		}
	}
	slices.SortFunc(calls, func(a, b *past) int { return a.ended - b.ended })
	return calls
}

// counted returns the outcomes of guarded calls that count: of calls at the same time the first.
func (m *model) counted() (calls []*past) {
	for _, c := range m.inOrder() {
		known := slices.ContainsFunc(calls, func(o *past) bool { return o.id == c.id && o.ended > c.began })
		if c.guarded && (c.answers() || c.fails()) && !known {
			calls = append(calls, c)
		}
	}
	return calls
}

func (m *model) latest(id string) (latest *past) {
	for _, c := range m.counted() {
		if c.id == id {
			latest = c
		}
	}
	return latest
}

// between reports what happened between two moments.
func (m *model) between(from, to int) (effect, doubt, turn bool) {
	for _, c := range m.calls {
		if !c.writes || c.ended <= from || c.ended >= to {
			continue
		}
		switch c.kind {
		case "ok", "duplicate":
			effect = true
		case "timeout", "unavailable", "unknown", "panic", "canceled", "rejected":
			doubt = true
		}
	}
	turn = slices.ContainsFunc(m.turns, func(at int) bool { return at > from && at < to })
	return
}

func mendable(kind string) bool {
	return kind == "not_found" || kind == "conflict" || kind == "unauthorized"
}

// changed reports whether what happened makes a failure of that kind say nothing any more.
func (m *model) changed(kind string, from, to int) bool {
	effect, doubt, turn := m.between(from, to)
	switch {
	case mendable(kind):
		return effect || doubt || turn
	case kind == "invalid" || kind == "unknown":
		return effect
	}
	return false
}

// row returns the failures in a row that a call fails with now, the latest first.
func (m *model) row(id string) (row []*past) {
	cleared := -1
	for _, c := range m.calls {
		if c.guarded && c.id == id && c.answers() {
			cleared = max(cleared, c.ended)
		}
	}
	counted := m.counted()
	slices.Reverse(counted)
	for _, c := range counted {
		if c.id != id {
			continue
		}
		if !c.fails() || c.ended <= cleared {
			break
		}
		if len(row) > 0 {
			later := row[len(row)-1]
			if later.honoured || c.kind != later.kind || c.print != later.print || c.print == "" || m.changed(c.kind, c.began, later.began) {
				break
			}
		}
		row = append(row, c)
	}
	return row
}

// asked returns until when a call was asked to wait.
func (m *model) asked(id string) (until time.Time, ok bool) {
	latest := m.latest(id)
	type event struct {
		at    int
		until time.Time
		how   string
	}
	var events []event
	for _, c := range m.calls {
		if !c.guarded || c.id != id || c.ended < 0 {
			continue
		}
		switch {
		case c.answers():
			events = append(events, event{c.ended, time.Time{}, "none"})
		case c.fails() && slices.Contains(m.counted(), c):
			events = append(events, event{c.ended, c.wait, "new"})
		case c.fails():
			events = append(events, event{c.ended, c.wait, "longer"})
		}
	}
	for _, w := range m.waits {
		if w.id == id {
			events = append(events, event{w.at, w.until, "circuit"})
		}
	}
	slices.SortFunc(events, func(a, b event) int { return a.at - b.at })
	failing := false
	for _, e := range events {
		switch e.how {
		case "none":
			until, failing = time.Time{}, false
		case "new":
			until, failing = e.until, true
		case "circuit":
			until = e.until
		case "longer":
			if failing && e.until.After(until) {
				until = e.until
			}
		}
	}
	return until, !until.IsZero() && (latest == nil || until.Sub(latest.end) >= time.Second)
}

// news reports whether a call that began after a moment answered something new before another.
func (m *model) news(since, until int, guarded bool) bool {
	seen := map[string]bool{}
	for _, c := range m.inOrder() {
		if !c.answers() || c.ended > until {
			continue
		}
		key := c.id + " " + c.print
		fresh := c.print == "" || !seen[key]
		seen[key] = true
		if fresh && c.began > since && (c.guarded || !guarded) {
			return true
		}
	}
	return false
}

// refused returns why a call must not begin, "" if it may, and when that ends.
func (m *model) refused(id string, now time.Time) (reason string, end time.Time) {
	running := 0
	for _, c := range m.calls {
		if c.guarded && c.id == id && c.ended < 0 {
			running++
		}
	}
	until, asked := m.asked(id)
	honoured := asked && !now.Before(until)
	row := m.row(id)
	if len(row) > 0 && m.changed(row[0].kind, row[0].began, m.now+1) {
		row = nil
	}
	known := len(row)
	if honoured || known > 0 && now.Sub(row[0].end) >= m.Pause {
		known = 0
	}
	if running >= m.Copies || running > 0 && known > 0 && known+running >= m.Repeats {
		return "copies", time.Time{}
	}
	if honoured {
		return "", time.Time{}
	}
	if len(row) > 0 {
		reason, end = m.failing(row)
	}
	if r, e := m.looping(id); r != "" && (reason == "" || !end.IsZero() && !end.After(e)) {
		reason, end = r, e
	}
	switch {
	case reason == "" || !end.IsZero() && !now.Before(end):
		return "", time.Time{}
	case asked && (end.IsZero() || until.Before(end)):
		end = until
	}
	return reason, end
}

func (m *model) failing(row []*past) (string, time.Time) {
	last := row[0]
	poll, pause := last.start.Add(m.Poll), last.end.Add(m.Pause)
	news := m.news(last.ended, m.now, false)
	effect, _, _ := m.between(last.began, m.now+1)
	switch {
	case last.kind == "invalid":
		return "final", time.Time{}
	case mendable(last.kind):
		if news && len(row) < m.Repeats {
			return "", time.Time{}
		}
		return "final", poll
	case len(row) < m.Repeats:
		return "", time.Time{}
	case (news || effect) && poll.Before(pause):
		return "failures", poll
	}
	return "failures", pause
}

// looping returns the hold on a call that is in a round.
func (m *model) looping(id string) (string, time.Time) {
	at, member, again := m.looped(id, m.counted())
	if at == nil {
		return "", time.Time{}
	}
	effect, doubt, turn := m.between(at.ended, m.now+1)
	if effect || doubt || turn || m.news(at.ended, m.now, true) {
		return "", time.Time{}
	}
	end := at.end.Add(m.Pause)
	if poll := member.start.Add(m.Poll); (again || m.Repeats == 1) && poll.Before(end) {
		end = poll
	}
	return "answers", end
}

// looped returns the outcome by which a call was found to be in a round, and that of the call
// itself, nil if it was not. Again: the round was found before, and the answer has come again.
func (m *model) looped(id string, counted []*past) (at, member *past, again bool) {
	for n := len(counted); n > 0; n-- { // the latest outcome first
		at = counted[n-1]
		lap := m.round(counted[:n])
		slices.Reverse(lap)
		if i := slices.IndexFunc(lap, func(c *past) bool { return c.id == id && c.answers() }); i >= 0 {
			return at, lap[i], false
		}
		if at.id != id {
			continue
		}
		before, member, _ := m.looped(id, counted[:n-1])
		if before == nil || !at.answers() || at.honoured || at.print != member.print {
			return nil, nil, false
		}
		effect, doubt, turn := m.between(before.ended, at.began)
		if effect || doubt || turn || m.news(before.ended, at.ended, true) {
			return nil, nil, false
		}
		return at, at, true
	}
	return nil, nil, false
}

// round returns the last lap of the round that the outcomes of this turn end in.
func (m *model) round(counted []*past) []*past {
	last := counted[len(counted)-1]
	var steps []*past
	for _, c := range counted {
		if _, _, turn := m.between(c.ended, last.ended); !turn {
			steps = append(steps, c)
		}
	}
	for size := 1; size <= 4; size++ {
		if size*m.Repeats > len(steps) {
			return nil
		}
		tail := steps[len(steps)-size*m.Repeats:]
		laps := map[string]bool{}
		for i := 0; i < len(tail); i += size {
			var names []string
			for _, c := range tail[i : i+size] {
				if c.print == "" || c.honoured {
					names = append(names, "none", string(rune(c.ended)))
				}
				names = append(names, c.id+" "+c.kind+" "+c.print)
			}
			slices.Sort(names)
			laps[strings.Join(names, ",")] = true
		}
		if len(laps) == 1 && m.fast(tail) && !slices.ContainsFunc(tail, func(c *past) bool { return c.print == "" || c.honoured }) {
			return slices.Clone(tail[len(tail)-size:])
		}
	}
	return nil
}

func (m *model) fast(steps []*past) bool {
	starts := map[string]time.Time{}
	for _, c := range steps {
		if before, ok := starts[c.id]; ok && c.start.Sub(before) >= m.Poll {
			return false
		}
		starts[c.id] = c.start
	}
	return true
}

var (
	names    = []string{"a", "b", "*w", "*v", "~u", "~*x"}
	outcomes = []string{
		"ok=1", "ok=2", "ok", "duplicate", "slow=1", "not_found", "conflict", "unauthorized", "invalid", "timeout", "unavailable",
		"rate_limited", "panic", "unknown=x", "unknown=y", "unknown", "canceled", "interrupt", "rejected", "", "timeout", "not_found",
	}
	pauses = []time.Duration{
		time.Millisecond, 999 * time.Millisecond, time.Second, 3 * time.Second, 9999 * time.Millisecond, 10 * time.Second,
		20 * time.Second, 59999 * time.Millisecond, time.Minute, time.Hour,
	}
	asks = []time.Duration{0, 0, 0, 0, 500 * time.Millisecond, time.Second, 5 * time.Second, 2 * time.Minute}
)

func FuzzRules(f *testing.F) {
	for _, seed := range []string{
		"\x02\x00abcdefghijklmnop", "\x01\x01\x00\x05\x00\x05\x00\x05\x00\x05", strings.Repeat("\x00\x00\x00", 20),
		"\x02\x01" + strings.Repeat("\x08\x00\x01\x09\x07\x02", 9), strings.Repeat("\x02\x30\x13\x04\x05", 20),
	} {
		f.Add([]byte(seed))
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		script := make([]byte, random.IntN(300))
		for i := range script {
			script[i] = byte(random.Uint32())
		}
		f.Add(script)
	}
	f.Fuzz(runScript)
}

func runScript(t *testing.T, script []byte) {
	if len(script) > 300 {
		script = script[:300] // the model is slow
	}
	next := func(n int) int {
		if len(script) == 0 {
			return 0
		}
		b := script[0]
		script = script[1:]
		return int(b) % n
	}
	l := limits
	l.Repeats = 1 + next(4)
	l.Copies = []int{8, 2}[next(2)]
	l.Pause = []time.Duration{time.Minute, 5 * time.Second}[next(2)]
	g := &pair{T: t, p: repeat.New(l), m: &model{Limits: l}, now: began}
	for len(script) > 0 {
		switch next(12) {
		case 0, 1, 2, 3, 4:
			if c := g.begin(names[next(len(names))]); c != nil {
				g.end(c, outcomes[next(len(outcomes))], asks[next(len(asks))])
			}
		case 5, 6:
			g.begin(names[next(len(names))])
		case 7:
			if len(g.running) > 0 {
				g.end(g.running[next(len(g.running))], outcomes[next(len(outcomes))], asks[next(len(asks))])
			}
		case 8, 9:
			g.now = g.now.Add(pauses[next(len(pauses))])
		case 10:
			g.m.turns = append(g.m.turns, g.m.tick())
			g.p.NextTurn()
		case 11:
			g.ask(names[next(len(names))], asks[next(len(asks))])
		}
		g.compare()
	}
	g.bounded()
}

// pair is a Past and the model of it.
type pair struct {
	*testing.T
	p       *repeat.Past
	m       *model
	now     time.Time
	running []*both
}

type both struct {
	call *repeat.Call
	past *past
}

func idOf(name string) repeat.Digest { return repeat.Arguments(nil, name) }

func (g *pair) begin(name string) *both {
	b := &both{
		call: &repeat.Call{ID: idOf(name), Tool: name, Guarded: name[0] != '~', Writes: strings.Contains(name, "*")},
		past: &past{id: name, ended: -1, start: g.now},
	}
	b.past.guarded, b.past.writes = b.call.Guarded, b.call.Writes
	reason, end := "", time.Time{}
	if b.past.guarded {
		reason, end = g.m.refused(name, g.now)
		until, asked := g.m.asked(name)
		b.past.honoured = asked && !g.now.Before(until)
	}
	refusal := g.p.Begin(b.call, g.now)
	g.same(reason, end, refusal)
	if refusal != nil {
		return nil
	}
	b.past.began = g.m.tick()
	g.m.calls = append(g.m.calls, b.past)
	g.running = append(g.running, b)
	return b
}

func (g *pair) end(b *both, outcome string, asked time.Duration) {
	kind, print, printed := strings.Cut(outcome, "=")
	o := repeat.Outcome{Kind: kind}
	if printed {
		o.Print = repeat.Result(print)
	}
	if asked > 0 {
		o.Wait = g.now.Add(asked)
	}
	g.running = slices.DeleteFunc(g.running, func(other *both) bool { return other == b })
	g.p.End(b.call, o, g.now)
	if kind == "slow" {
		kind = "ok"
	}
	if kind != "ok" && kind != "unknown" {
		print = kind
	}
	c := b.past
	c.ended, c.end, c.kind, c.print, c.wait = g.m.tick(), g.now, kind, print, o.Wait
}

// ask is a circuit that refuses a call and names an end. It asks nothing of a call that is not held
// against the run.
func (g *pair) ask(name string, wait time.Duration) {
	reason, _ := g.m.refused(name, g.now)
	if name[0] == '~' || wait == 0 || len(g.m.row(name)) == 0 && reason != "answers" {
		return
	}
	g.p.Wait(idOf(name), g.now.Add(wait))
	g.m.waits = append(g.m.waits, asking{name, g.m.tick(), g.now.Add(wait)})
}

func (g *pair) same(reason string, end time.Time, refusal *repeat.Refusal) {
	g.Helper()
	if refusal == nil {
		require.Empty(g, reason)
		return
	}
	require.Equal(g, reason, map[repeat.Reason]string{
		repeat.Copies: "copies", repeat.Failures: "failures", repeat.Final: "final", repeat.Answers: "answers",
	}[refusal.Reason])
	require.Equal(g, end, refusal.RetryAt)
}

// compare asks both about every call, and whether the end that is named is the end.
func (g *pair) compare() {
	for _, name := range names {
		if name[0] == '~' {
			continue
		}
		refusal := g.p.Peek(idOf(name), g.now)
		reason, end := g.m.refused(name, g.now)
		g.same(reason, end, refusal)
		if refusal == nil {
			continue
		}
		require.True(g, slices.ContainsFunc(g.m.calls, func(c *past) bool { return c.id == name }), "a first call is refused")
		switch {
		case !refusal.RetryAt.IsZero():
			require.True(g, refusal.RetryAt.After(g.now))
			require.NotNil(g, g.p.Peek(idOf(name), refusal.RetryAt.Add(-1)), "it ends before the end")
			require.Nil(g, g.p.Peek(idOf(name), refusal.RetryAt), "it does not end at the end")
		case refusal.Reason != repeat.Copies:
			require.NotNil(g, g.p.Peek(idOf(name), g.now.Add(24*time.Hour)), "it has an end and does not name it")
		}
	}
}

// bounded checks that no more identical calls fail within Pause than a batch and what Repeats
// allows, unless something happened that may change the answer.
func (g *pair) bounded() {
	for _, first := range g.m.calls {
		if !first.fails() || !first.guarded || first.print == "" || mendable(first.kind) && g.m.Poll < g.m.Pause {
			continue
		}
		n := 0
		for _, c := range g.m.calls {
			if c.id == first.id && c.kind == first.kind && c.print == first.print && c.began >= first.began && c.start.Sub(first.start) < g.m.Pause {
				effect, doubt, turn := g.m.between(first.began, c.began)
				asked := slices.ContainsFunc(g.m.waits, func(w asking) bool { return w.id == c.id }) ||
					slices.ContainsFunc(g.m.calls, func(o *past) bool { return o.id == c.id && !o.wait.IsZero() })
				mended := slices.ContainsFunc(g.m.calls, func(o *past) bool { return o.id == c.id && (o.kind != c.kind || o.print != c.print) })
				if !effect && !doubt && !turn && !asked && !mended && !g.m.news(first.began, g.m.now, false) {
					n++
				}
			}
		}
		require.LessOrEqual(g, n, g.m.Copies+g.m.Repeats*(g.m.Repeats-1)/2)
	}
}
