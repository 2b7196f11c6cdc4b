package repeat_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit/internal/repeat"
)

// limits are the defaults of toolset.Limits.
var limits = repeat.Limits{Repeats: 3, Pause: time.Minute, Poll: 10 * time.Second, Copies: 8, Memory: 1000}

var began = time.Date(2026, 11, 29, 14, 0, 0, 0, time.UTC)

// rig plays a run. A run is a text of steps:
//
//	5s                    time passes
//	turn                  the next turn begins
//	get:not_found         the call get runs and ends with that kind
//	get:ok=x              with the answer x; also the text x of unknown
//	get:ok                with an answer that equals no other
//	get:timeout/30s       after that time
//	get:rate_limited+2s   the dependency asks to wait so long
//	get?ok=x              like get:ok=x, but the call may be refused
//	get!failures@60s      the call is refused for that reason until so long after the start
//	get!copies            the call is refused, and no time ends that
//	get(                  a copy of get begins
//	get)ok=x              the oldest of these ends
//	get^20s               a circuit refuses get and says: come back in so long
//
// A call that begins with * is of a tool with side effects, one with ~ is not guarded.
type rig struct {
	*testing.T
	past         *repeat.Past
	now          time.Time
	open         map[string][]*repeat.Call
	ran, refused int
}

func newRig(t *testing.T, l repeat.Limits) *rig {
	return &rig{T: t, past: repeat.New(l), now: began, open: map[string][]*repeat.Call{}}
}

func play(t *testing.T, l repeat.Limits, run string) *rig {
	r := newRig(t, l)
	r.play(run)
	return r
}

func (r *rig) play(run string) {
	r.Helper()
	steps := strings.Fields(run)
	for i := range steps {
		r.step(steps[max(0, i-100) : i+1])
	}
}

// step plays the last of steps.
func (r *rig) step(steps []string) {
	r.Helper()
	step := steps[len(steps)-1]
	if d, err := time.ParseDuration(step); err == nil {
		r.now = r.now.Add(d)
		return
	}
	if step == "turn" {
		r.past.NextTurn()
		return
	}
	at := strings.IndexAny(step, ":?!()^")
	require.Positive(r, at, step)
	name, rest := step[:at], step[at+1:]
	call := r.call(name)
	switch step[at] {
	case '^':
		r.past.Wait(call.ID, r.now.Add(duration(r.T, rest)))
	case '!':
		refusal := r.past.Begin(call, r.now)
		require.NotNil(r, refusal, "must be refused: %s", steps)
		require.Equal(r, rest, r.describe(refusal), "%s", steps)
	case ')':
		call, r.open[name] = r.open[name][0], r.open[name][1:]
		r.end(call, rest)
	default:
		refusal := r.past.Begin(call, r.now)
		if refusal != nil {
			require.Equal(r, "?", step[at:at+1], "must run: %s: %s", steps, r.describe(refusal))
			r.refused++
			return
		}
		r.ran++
		if step[at] == '(' {
			r.open[name] = append(r.open[name], call)
			return
		}
		r.end(call, rest)
	}
}

func (r *rig) call(name string) *repeat.Call {
	c := &repeat.Call{ID: repeat.Arguments(nil, name), Tool: strings.Trim(name, "*~"), Guarded: true}
	switch name[0] {
	case '*':
		c.Writes = true
	case '~':
		c.Guarded = false
	}
	return c
}

// end ends a call with an outcome as it stands in a step.
func (r *rig) end(c *repeat.Call, text string) {
	text, asked, _ := strings.Cut(text, "+")
	text, took, _ := strings.Cut(text, "/")
	kind, print, printed := strings.Cut(text, "=")
	o := repeat.Outcome{Kind: kind}
	if printed {
		o.Print = repeat.Result(print)
	}
	if took != "" {
		r.now = r.now.Add(duration(r.T, took))
	}
	if asked != "" {
		o.Wait = r.now.Add(duration(r.T, asked))
	}
	r.past.End(c, o, r.now)
}

func (r *rig) describe(refusal *repeat.Refusal) string {
	text := map[repeat.Reason]string{
		repeat.Copies: "copies", repeat.Failures: "failures", repeat.Final: "final", repeat.Answers: "answers",
	}[refusal.Reason]
	if !refusal.RetryAt.IsZero() {
		text += "@" + short(refusal.RetryAt.Sub(began))
	}
	return text
}

// short writes a duration as steps do.
func short(d time.Duration) string {
	if d%time.Second == 0 {
		return strings.TrimSuffix((d/time.Second*time.Nanosecond).String(), "ns") + "s"
	}
	return d.String()
}

func duration(t *testing.T, text string) time.Duration {
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	return d
}

// times returns a run n times over.
func times(n int, run string) string { return strings.Repeat(run+" ", n) }
