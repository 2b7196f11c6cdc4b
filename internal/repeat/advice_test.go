package repeat_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit/internal/repeat"
)

func TestAdvice(t *testing.T) {
	for name, c := range map[string]struct{ run, want string }{
		"answers": {times(3, "a:ok=1"), "This or an earlier call of a gave the same result again and again. Repeated at once with the same arguments " +
			"it will be refused, for at most 60 s, until 14:01:00 UTC. Other arguments and other tools remain usable. " +
			"Use the result you have. To wait for a change, leave 10s between calls."},
		"invalid": {"a:invalid", "This or an earlier call of a failed in a way that a repeat cannot mend by itself: the arguments are invalid. " +
			"Repeated at once with the same arguments it will be refused, until a tool has changed something. " +
			"Other arguments and other tools remain usable. Change the arguments."},
		"not found": {"a:not_found", "This or an earlier call of a failed in a way that a repeat cannot mend by itself: there is no such thing. " +
			"Repeated at once with the same arguments it will be refused, for at most 10 s, until 14:00:10 UTC. " +
			"Other arguments and other tools remain usable. Look for what there is, or create it first."},
		"conflict": {"a:conflict", "This or an earlier call of a failed in a way that a repeat cannot mend by itself: it conflicts with the present state. " +
			"Repeated at once with the same arguments it will be refused, for at most 10 s, until 14:00:10 UTC. " +
			"Other arguments and other tools remain usable. Look at that state, then change the arguments."},
		"unauthorized": {"a:unauthorized", "This or an earlier call of a failed in a way that a repeat cannot mend by itself: access was refused. " +
			"Repeated at once with the same arguments it will be refused, for at most 10 s, until 14:00:10 UTC. " +
			"Other arguments and other tools remain usable. Tell the user, who may have to sign in."},
		"an outage": {times(3, "a:unavailable"), "This or an earlier call of a failed in the same way, in a row: 3. " +
			"Repeated at once with the same arguments it will be refused, for at most 60 s, until 14:01:00 UTC. " +
			"Other tools remain usable. Go on without it for now."},
		"unknown": {times(3, "a:unknown=x"), "This or an earlier call of a failed in the same way, in a row: 3. " +
			"Repeated at once with the same arguments it will be refused, for at most 60 s, until 14:01:00 UTC. " +
			"Other arguments and other tools remain usable. Change the arguments or try another way."},
		"a wait": {times(3, "a:rate_limited+2500ms"), "This or an earlier call of a failed in the same way, in a row: 3. " +
			"Repeated at once with the same arguments it will be refused, for at most 3 s, until 14:00:03 UTC. " +
			"Other arguments and other tools remain usable. Go on with other work for now."},
		"a write in doubt": {times(3, "*a:timeout"), "This or an earlier call of a failed in the same way, in a row: 3. " +
			"Repeated at once with the same arguments it will be refused, for at most 60 s, until 14:01:00 UTC. " +
			"Other tools remain usable. Check whether an earlier call took effect."},
		"a write that failed for unknown reasons": {times(3, "*a:unknown=x"), "This or an earlier call of a failed in the same way, in a row: 3. " +
			"Repeated at once with the same arguments it will be refused, for at most 60 s, until 14:01:00 UTC. " +
			"Other tools remain usable. Check whether an earlier call took effect."},
		"other outcomes since": {"a:not_found *b:invalid", "This or an earlier call of a failed in a way that a repeat cannot mend by itself: there is no such thing. " +
			"Repeated at once with the same arguments it will be refused, for at most 10 s, until 14:00:10 UTC. " +
			"Other arguments and other tools remain usable. Look for what there is, or create it first."},

		"nothing is held":         {"a:ok=1 a:timeout a:timeout b:invalid", ""},
		"no more":                 {"a:not_found 10s", ""},
		"not after news":          {"a:not_found b:ok=1", ""},
		"not after an effect":     {"a:invalid *b:ok=1", ""},
		"of another turn":         {"a:invalid turn", ""},
		"a copy that succeeds":    {"a( a( a)invalid a)ok=1", ""},
		"once a turn for a call":  {"a:invalid advise *b:ok=1 a:invalid", ""},
		"not for what is dropped": {"a:ok=1 a:ok=1 a:ok=1 b:ok=2", ""},
	} {
		r := newRig(t, limits)
		before, after, _ := strings.Cut(c.run, "advise")
		r.play(before)
		if after != "" {
			require.NotEmpty(t, r.past.AdviseTool("a", "", r.now), name)
			r.play(after)
		}
		got := r.past.AdviseTool("a", "", r.now)
		require.Equal(t, c.want, got, name)
		require.Less(t, len(strings.Fields(got)), 60, name)
		require.Empty(t, r.past.AdviseTool("a", "", r.now), "it comes once")
		require.Empty(t, r.past.AdviseTool("c", "", r.now))
	}
}

func TestAdviceInEachTurn(t *testing.T) {
	r := newRig(t, limits)
	for range 3 {
		r.play("a?invalid turn a!final *b:ok=1 a:invalid")
		require.NotEmpty(t, r.past.AdviseTool("a", "", r.now))
		r.play("turn *b:duplicate")
	}
}

// The result of a call takes the advice about that call, or one about a call of the same tool that
// went the same way.
func TestAdviceIsOfTheCall(t *testing.T) {
	calls := map[string]string{"p1:not_found": "no such thing", "p2:unauthorized": "access was refused", "p3:invalid": "invalid"}
	play := func() *rig {
		r := newRig(t, limits)
		for call := range calls {
			name, kind, _ := strings.Cut(call, ":")
			c := r.call(name)
			c.Tool = "p"
			require.Nil(t, r.past.Begin(c, r.now))
			r.end(c, kind)
		}
		return r
	}
	exact, kinds := play(), play()
	require.Empty(t, kinds.past.AdviseTool("p", "ok", kinds.now))
	require.Empty(t, kinds.past.AdviseTool("p", "conflict", kinds.now))
	require.Empty(t, exact.past.Advise(exact.call("p4").ID, exact.now))
	require.Empty(t, exact.past.Advise(repeat.Digest{}, exact.now))
	for call, want := range calls {
		name, kind, _ := strings.Cut(call, ":")
		require.Contains(t, exact.past.Advise(exact.call(name).ID, exact.now), want)
		require.Empty(t, exact.past.Advise(exact.call(name).ID, exact.now), "it comes once")
		require.Contains(t, kinds.past.AdviseTool("p", kind, kinds.now), want)
	}

	r := newRig(t, limits)
	r.play(times(3, "p:ok=1"))
	require.Empty(t, r.past.AdviseTool("p", "not_found", r.now))
	require.NotEmpty(t, r.past.AdviseTool("p", "slow", r.now), "which is an answer")
}

func TestAdviceForDaysHasTheDate(t *testing.T) {
	l := limits
	l.Pause = 48 * time.Hour
	r := newRig(t, l)
	r.play(times(3, "a:unknown=x"))
	until := r.now.UTC().Add(l.Pause).Format("until 2006-01-02 15:04:05 UTC")
	require.Contains(t, r.past.AdviseTool("a", "", r.now), "for at most 172800 s, "+until+".")
}

func TestAdviceIsBounded(t *testing.T) {
	l := limits
	l.Memory = 2
	r := newRig(t, l)
	r.play("a:invalid b:invalid c:invalid")
	require.Empty(t, r.past.AdviseTool("a", "", r.now), "a is forgotten")
	require.NotEmpty(t, r.past.AdviseTool("b", "", r.now))
}
