package repeat_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit/internal/repeat"
)

// TestReports plays what was reported of loops that nobody stopped, and of guards that cried wolf.
// A lap is played so many times; # in it is the number of the lap. Refused are the calls that a
// model makes all the same, so a refusal costs it the time until its next call and no more.
func TestReports(t *testing.T) {
	for name, row := range map[string]struct {
		lap     string
		laps    int
		refused int
		why     string
	}{
		// Polls. N25; the report about each 30 s is of jobs with a status call.
		"poll each 5 s":                {"status?ok=running 5s", 20, 14, "three fast ones hold it for Pause, then one in Poll"},
		"poll each 10 s":               {"status?ok=running 10s", 20, 0, "the pace of a poll"},
		"poll each 20 s":               {"status?ok=running 20s", 20, 0, "the pace of a poll"},
		"poll each 30 s":               {"status?ok=running 30s", 20, 0, "the pace of a poll"},
		"a tool that waits by itself":  {"status?ok=running/10s", 20, 0, "from start to start it is a poll"},
		"a progress bar":               {"status?ok=# 1s", 60, 0, "each answer is new"},
		"wait until it exists":         {"get?not_found 10s", 20, 0, "the pace of a poll"},
		"wait for it at 5 s":           {"get?not_found 5s", 20, 10, "every other one is too early"},
		"wait for it without a pause":  {"get?not_found 1s", 60, 54, "one in Poll"},
		"N27 the result has a pid":     {"run?ok=pid-# 1s", 121, 0, "each answer is new: ResultKey takes the pid out"},
		"N27 and the key takes it out": {"run?ok=done 1s", 121, 112, "three, and after Pause one in Poll"},

		// Loops.
		"A034 A-B at 1 s":       {"a?ok=1 1s b?ok=2 1s", 20, 34, "three laps, then Pause"},
		"A034 A-B at 4 s":       {"a?ok=1 4s b?ok=2 4s", 20, 24, "each call comes twice in Poll: three laps, then Pause, then each in Poll"},
		"A034 A-B at 8 s":       {"a?ok=1 8s b?ok=2 8s", 20, 0, "each call has the pace of a poll"},
		"A034 A-B-C-D at 1 s":   {"a?ok=1 1s b?ok=2 1s c?ok=3 1s d?ok=4 1s", 20, 64, "three laps, then Pause, then each in Poll"},
		"A034 A-B-C-D at 4 s":   {"a?ok=1 4s b?ok=2 4s c?ok=3 4s d?ok=4 4s", 20, 0, "each call has the pace of a poll"},
		"A034 A-B-C-D at 8 s":   {"a?ok=1 8s b?ok=2 8s c?ok=3 8s d?ok=4 8s", 20, 0, "each call has the pace of a poll"},
		"A034 the control":      {"a?ok=1 b?ok=#", 20, 0, "there is news in each lap"},
		"A035 ping-pong":        {"ping?ok=1 pong?ok=2", 20, 34, "both calls are held, so that none restarts the count"},
		"A031 a burst":          {"search-#?ok=found", 16, 0, "other arguments are other calls"},
		"pagination":            {"page-#?ok=rows 1s", 40, 0, "other arguments are other calls"},
		"R02 the same failure":  {"a?unknown=boom", 50, 47, "three"},
		"R02 at 2 s":            {"a?unavailable 2s", 50, 46, "three, and one a minute later"},
		"A082 an invented tool": {"none?unknown=no-such-tool", 754, 751, "three"},
		"A029 other failures":   {"sh?unknown=# 1s", 20, 0, "each failure is new"},
		"A110 a failing write":  {"*w?unknown=locked 30s", 6, 2, "the fourth is 30 s after the third, the fifth a minute"},
		"a failure at a pace":   {"a?timeout/30s 30s", 6, 2, "Pause counts from the outcome, and a refusal moves nothing"},

		// Work that looks like a loop.
		"edit and test":                {"*edit-#?ok=done 4s test?unknown=3-failed 4s", 20, 0, "each edit is an effect"},
		"edit and test, as answers":    {"*edit-#?ok=done 4s test?ok=3-failed 4s", 20, 0, "each edit breaks the round"},
		"the same edit and test":       {"*edit?ok=done 4s test?unknown=3-failed 4s", 20, 17, "the edit is held as an answer, then the test as a failure; then each edit that comes in Poll lets it be"},
		"N26 read, write, read":        {"read-#?not_found *write-#?ok=done read-#?ok=text", 9, 0, "an effect"},
		"N26 the write says no effect": {"read?not_found write-#?ok=done", 3, 0, "news, up to Repeats"},
		"look around for it":           {"read?not_found ls-#?ok=names 1s", 12, 9, "news three times, then one in Poll"},
		"a service that is restarted":  {"*restart-#?ok=done 12s get?unavailable 1s", 20, 0, "after an effect Poll is enough"},
		"scroll down":                  {"*scroll?ok=done", 20, 17, "Config.Excluded or a Key of Unknown is for such tools"},

		// Waits and people.
		"N24 an honoured 429":           {"a?rate_limited+1s 1s", 20, 0, "a wait that was asked for"},
		"a 429 that is not honoured":    {"a?rate_limited+10s 1s", 20, 14, "three in a row, then until the wait is over"},
		"A002 approvals":                {"pay?interrupt", 20, 0, "no outcome"},
		"cancellations":                 {"a?canceled", 20, 0, "no outcome"},
		"N30 sign-in, a turn each":      {"a?unauthorized turn", 9, 0, "the user may have signed in"},
		"no sign-in":                    {"a?unauthorized 1s", 20, 18, "one in Poll"},
		"a turn each 5 s, not found":    {"turn a?not_found 5s", 20, 0, "new input from outside may have changed it"},
		"a turn each 5 s, same answer":  {"turn a?ok=1 5s", 20, 0, "somebody asks"},
		"a turn each 5 s, a dead thing": {"turn a?unavailable 5s", 20, 16, "nothing that a user says mends an outage"},
		"a turn each 5 s, wrong":        {"turn a?invalid 5s", 20, 19, "the arguments are as wrong as before"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, limits)
			for i := range row.laps {
				r.play(strings.ReplaceAll(row.lap, "#", fmt.Sprint(i)))
			}
			require.Equal(t, row.refused, r.refused, "%d ran: %s", r.ran, row.why)
		})
	}
}

func TestReportsOfCallsAtTheSameTime(t *testing.T) {
	for name, row := range map[string]struct {
		calls, batch int
		outcome      string
		ran          int
	}{
		"9 at once":              {9, 9, "ok=1", 8},
		"N28 20, 7 at a time":    {20, 7, "unknown=x", 7 + 2 + 1},
		"N28 20, 8 at a time":    {20, 8, "unknown=x", 8 + 2 + 1},
		"N28 100, 8 at a time":   {100, 8, "timeout", 8 + 2 + 1},
		"A028 8 and 1 and 1":     {8, 8, "unknown=x", 8},
		"20 not found, 8 a time": {20, 8, "not_found", 8},
		"20 invalid, 8 a time":   {20, 8, "invalid", 8},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, limits)
			for done := 0; done < row.calls; done += row.batch {
				var running []*repeat.Call
				for range min(row.batch, row.calls-done) {
					if c := r.call("a"); r.past.Begin(c, r.now) == nil {
						running = append(running, c)
						r.ran++
					}
				}
				for _, c := range running {
					r.end(c, row.outcome)
				}
			}
			require.Equal(t, row.ran, r.ran)
		})
	}
}
