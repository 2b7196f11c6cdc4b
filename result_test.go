package toolcircuit_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

// Cases that this file leaves to others: A071 and A037 count the blocked calls of a run, which a
// session does; A070 and R16's flag are an adapter's, which has the runtime's form of a message.

// judgedAs is a failure that judges itself. Its text must never reach a model.
type judgedAs toolcircuit.Verdict

func (judgedAs) Error() string { return "secret: upstream text" }

// failure returns an error of a kind, with its default effect.
func failure(k toolcircuit.Kind) error {
	v := toolcircuit.Verdict{Kind: k}
	switch k {
	case toolcircuit.KindTimeout, toolcircuit.KindUnavailable, toolcircuit.KindRateLimited, toolcircuit.KindSlow,
		toolcircuit.KindPanic, toolcircuit.KindDeadline:
		v.Effect = toolcircuit.EffectCount
	case toolcircuit.KindOK, toolcircuit.KindDuplicate:
		v.Effect = toolcircuit.EffectHeal
	}
	return judgedAs(v)
}

var webSearch = toolcircuit.Tool{Name: "web_search", Alternatives: []string{"cached_search"}}

// desk is a circuit whose operation fails as told, at 14:04:30 UTC on a mock clock.
type desk struct {
	*toolcircuit.ToolCircuit
	t     *testing.T
	clock *clock.Mock
	ran   int
}

func newDesk(t *testing.T, dependency string, tool toolcircuit.Tool, p toolcircuit.Policy) *desk {
	m := clock.NewMock()
	m.Set(time.Date(2026, 11, 29, 14, 4, 30, 0, time.UTC))
	c := toolcircuit.MustNew(dependency, toolcircuit.Options{
		Policy:   p,
		Clock:    m,
		Classify: toolcircuit.ForError(func(e judgedAs) toolcircuit.Verdict { return toolcircuit.Verdict(e) }),
		Tool:     tool,
	})
	return &desk{ToolCircuit: c, t: t, clock: m}
}

// do calls the operation, which returns err.
func (d *desk) do(err error) (int, error) {
	return toolcircuit.Do(d.t.Context(), d.ToolCircuit, func(context.Context) (int, error) {
		d.ran++
		return 7, err
	})
}

// refusal returns what the circuit refuses a call with.
func (d *desk) refusal() *toolcircuit.OpenError {
	d.t.Helper()
	_, err := d.do(nil)
	var e *toolcircuit.OpenError
	require.ErrorAs(d.t, err, &e)
	return e
}

// blocked returns the result of a refused call.
func (d *desk) blocked(err error) toolcircuit.Result[int] {
	d.t.Helper()
	r, err := toolcircuit.ResultOf(d.ToolCircuit, 0, toolcircuit.Verdict{}, err)
	require.NoError(d.t, err)
	require.Equal(d.t, toolcircuit.StatusBlocked, r.Status)
	return r
}

// downSearch is a search-api that has timed out three times, 18 s into its cooldown of 60 s.
func downSearch(t *testing.T, tool toolcircuit.Tool) *desk {
	d := newDesk(t, "search-api", tool, toolcircuit.Policy{FailureThreshold: 3, Cooldown: time.Minute})
	for range 3 {
		d.do(failure(toolcircuit.KindTimeout))
	}
	d.clock.Add(18 * time.Second)
	return d
}

// goneSearch is a search-api at the cap of its cooldown, after two openings, 42 s before 14:07:30 UTC.
func goneSearch(t *testing.T, tool toolcircuit.Tool) *desk {
	d := newDesk(t, "search-api", toolcircuit.Tool{}, toolcircuit.Policy{FailureThreshold: 1, Cooldown: time.Minute, Multiplier: 2, MaxCooldown: 2 * time.Minute})
	d.do(failure(toolcircuit.KindUnavailable))
	d.clock.Add(time.Minute)
	d.do(failure(toolcircuit.KindUnavailable))
	d.clock.Add(78 * time.Second)
	d.ToolCircuit = d.WithTool(tool)
	return d
}

// softly is what WrapResult makes of a call that fails with err.
func softly(t *testing.T, tool toolcircuit.Tool, err error) toolcircuit.Result[int] {
	t.Helper()
	d := newDesk(t, "search-api", tool, toolcircuit.Policy{})
	r := must(toolcircuit.WrapResult(d.ToolCircuit, func(context.Context, string) (int, error) { return 7, err })(t.Context(), ""))
	return r
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	text := must(json.Marshal(v))
	return string(text)
}

func TestResultJSON(t *testing.T) {
	tool := webSearch
	tool.Message = func(toolcircuit.Blocked) string { return "text" }
	d := downSearch(t, tool)
	ok := must(toolcircuit.ResultOf(d.ToolCircuit, struct{}{}, toolcircuit.Verdict{}, nil))
	blocked, manual := d.blocked(d.refusal()), *d.refusal()
	manual.Reason = toolcircuit.ReasonManualOpen

	for _, tt := range []struct {
		name   string
		result any
		want   string
	}{
		{"ok", ok, `{"status":"ok","value":{}}`},
		{"duplicate", softly(t, tool, toolcircuit.Duplicate(errors.New("paid before"))), `{"status":"ok","value":7,"outcome":"duplicate"}`},
		{"blocked", blocked, `{"status":"blocked","reason":"dependency_open","dependency":"search-api","tool":"web_search",` +
			`"state":"open","executed":false,"cause":"timeout","rule":"threshold","failures":3,"retryable":false,` +
			`"retryAfterMs":42000,"retryAt":"2026-11-29T14:05:30Z","nextActions":["use_alternative","answer_without"],` +
			`"alternatives":["cached_search"],"message":"text"}`},
		{"blocked without a time", d.blocked(&manual), `{"status":"blocked","reason":"manual_open","dependency":"search-api",` +
			`"tool":"web_search","state":"open","executed":false,"cause":"timeout","rule":"threshold","failures":3,"retryable":false,` +
			`"nextActions":["use_alternative","answer_without"],"alternatives":["cached_search"],"message":"text"}`},
		{"failed, outcome unknown", softly(t, tool, failure(toolcircuit.KindTimeout)), `{"status":"failed","reason":"call_failed",` +
			`"dependency":"search-api","tool":"web_search","outcome":"unknown","cause":"timeout","retryable":true,"message":"text"}`},
		{"failed, answered", softly(t, tool, failure(toolcircuit.KindInvalid)), `{"status":"failed","reason":"call_failed",` +
			`"dependency":"search-api","tool":"web_search","executed":true,"cause":"invalid","retryable":false,` +
			`"nextActions":["use_alternative","answer_without"],"alternatives":["cached_search"],"message":"text"}`},
		{"failed, told when to come back", softly(t, tool, comeBack), `{"status":"failed","reason":"call_failed",` +
			`"dependency":"search-api","tool":"web_search","executed":true,"cause":"rate_limited","retryable":true,"retryAfterMs":41500,` +
			`"retryAt":"2026-11-29T14:05:12Z","nextActions":["use_alternative","answer_without"],"alternatives":["cached_search"],` +
			`"message":"text"}`},
		{"fallback", blocked.Or(8, "cache"), `{"status":"fallback","value":8,"reason":"dependency_open","message":"text","source":"cache"}`},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, marshal(t, tt.result)) })
	}
}

// comeBack is an answer with a wait that is no whole number of seconds.
var comeBack = &toolcircuit.HTTPError{StatusCode: 429, RetryAfter: 41500 * time.Millisecond}

func TestMessageOfRefusal(t *testing.T) {
	type edit = func(*toolcircuit.OpenError)
	none := func(*toolcircuit.OpenError) {}
	only := func(e toolcircuit.OpenError) edit { return func(old *toolcircuit.OpenError) { *old = e } }
	reason := func(r toolcircuit.Reason, cause toolcircuit.Kind) edit {
		return func(e *toolcircuit.OpenError) { e.Reason, e.Cause = r, cause }
	}
	rule := func(r toolcircuit.Rule, failures int) edit {
		return func(e *toolcircuit.OpenError) { e.Rule, e.Failures = r, failures }
	}
	probing := func(e *toolcircuit.OpenError) { e.State = toolcircuit.StateHalfOpen }
	actions := func(a ...toolcircuit.Action) toolcircuit.Tool {
		return toolcircuit.Tool{Name: "web_search", NextActions: a}
	}
	const (
		not   = "web_search was not executed: "
		down  = not + "search-api did not answer in time"
		inRow = " (3 failures in a row)."
		temp  = " This is temporary; other tools remain usable."
		until = temp + " Do not call web_search for 42 s, until 14:05:30 UTC."
		do    = " Use cached_search, or answer without it and say what is missing."
		or    = ", or use cached_search, or answer without it and say what is missing."
		alone = " Answer without it and say what is missing."

		gone   = not + "search-api was unreachable or broken and stayed down through "
		gaveUp = " Treat it as unavailable for this task; other tools remain usable. Do not call"
		atCap  = " web_search for 42 s, until 14:07:30 UTC. Tell the user, or use cached_search."
		manual = not + "an operator has switched search-api off. Other tools remain usable." +
			" Do not call web_search until an operator lifts that."
		others = " Other arguments and other tools remain usable. Do not call web_search with these arguments "
		known  = others + "for 42 s, until 14:05:30 UTC."
		over   = " Do not call web_search until the next run."
		spent  = not + "this run has no call left to search-api." + over
		noName = "This tool was not executed: search-api did not answer in time" + inRow + temp +
			" Do not call it for 42 s, until 14:05:30 UTC."
	)
	for _, tt := range []struct {
		name string
		from func(*testing.T, toolcircuit.Tool) *desk
		tool toolcircuit.Tool
		edit edit
		want string
	}{
		{"threshold", downSearch, webSearch, none, down + inRow + until + do},
		{"one failure", downSearch, webSearch, rule(toolcircuit.RuleThreshold, 1), down + " (1 failure)." + until + do},
		{"no failures", downSearch, webSearch, rule(toolcircuit.RuleThreshold, 0), down + "." + until + do},
		{"rate", downSearch, webSearch, rule(toolcircuit.RuleRate, 12), down + " (12 failures)." + until + do},
		{"threshold and rate", downSearch, webSearch, rule(toolcircuit.RuleThresholdRate, 12), down + " (12 failures)." + until + do},
		{"pause", downSearch, webSearch, rule(toolcircuit.RulePause, 1), down + "." + until + do},
		{"probe", downSearch, webSearch, rule(toolcircuit.RuleProbe, 1), down + " (a trial call failed)." + until + do},
		{"half-open", downSearch, webSearch, probing,
			down + inRow + temp + " One trial call is under way; do not call web_search for 42 s, until 14:05:30 UTC." + do},
		{"half-open with side effects", downSearch, writes, func(e *toolcircuit.OpenError) {
			e.State, e.RetryAt = toolcircuit.StateHalfOpen, e.RetryAt.Add(-time.Minute) // its own wait is longer
		}, "pay was not executed: search-api did not answer in time" + inRow + temp +
			" A trial call goes first; do not call pay for 42 s, until 14:05:30 UTC." + alone},
		{"capped", goneSearch, webSearch, none, gone + "2 openings." + gaveUp + atCap},
		{"capped at once", goneSearch, webSearch, func(e *toolcircuit.OpenError) { e.Openings = 1 }, gone + "1 opening." + gaveUp + atCap},
		{"capped and half-open", goneSearch, webSearch, probing,
			gone + "2 openings. Other tools remain usable. One trial call is under way; do not call" + atCap},
		{"no end known", downSearch, webSearch, func(e *toolcircuit.OpenError) { e.RetryAt = time.Time{} },
			down + inRow + temp + " It is not known for how long." + do},
		{"zero except the dependency", downSearch, webSearch, only(toolcircuit.OpenError{Dependency: "search-api"}),
			not + "search-api failed." + temp + " It is not known for how long." + do},
		{"manual", downSearch, webSearch, reason(toolcircuit.ReasonManualOpen, ""), manual + do},
		{"manual at the cap", goneSearch, webSearch, reason(toolcircuit.ReasonManualOpen, ""), manual + do},
		{"busy", downSearch, webSearch, reason(toolcircuit.ReasonBusy, ""), not + "every slot for search-api is taken." + temp +
			" Do not call web_search until a running call has ended. Go on with other work first, or use cached_search."},
		{"copies", downSearch, webSearch, only(toolcircuit.OpenError{Reason: toolcircuit.ReasonRepeatedCall}),
			not + "copies of the same call to search-api are still running." + others + "until they have ended. Wait for their result" + or},
		{"repeated after a success", downSearch, webSearch, reason(toolcircuit.ReasonRepeatedCall, toolcircuit.KindOK),
			not + "this run sent the same call to search-api before, with the same result." + known + " Use the result you have" + or},
		{"repeated after a failure", downSearch, webSearch, reason(toolcircuit.ReasonRepeatedCall, toolcircuit.KindNotFound),
			not + "this run sent the same call before, and search-api found no such thing." + known + " Look for what there is" + or},
		{"repeated in an outage", downSearch, writes, reason(toolcircuit.ReasonRepeatedCall, toolcircuit.KindTimeout),
			"pay was not executed: this run sent the same call before, and search-api did not answer in time. Other tools remain usable." +
				" Do not call pay with these arguments for 102 s, until 14:06:30 UTC." +
				" Check whether an earlier call took effect, or answer without it and say what is missing."},
		{"repeated in doubt", downSearch, writes, reason(toolcircuit.ReasonRepeatedCall, toolcircuit.KindUnknown),
			"pay was not executed: this run sent the same call before, and search-api failed for unknown reasons. Other tools remain usable." +
				" Do not call pay with these arguments for 102 s, until 14:06:30 UTC." +
				" Check whether an earlier call took effect, or answer without it and say what is missing."},
		{"repeated against a limit", downSearch, writes, reason(toolcircuit.ReasonRepeatedCall, toolcircuit.KindRateLimited),
			"pay was not executed: this run sent the same call before, and search-api limited the rate of calls. Other tools remain usable." +
				" Do not call pay with these arguments for 102 s, until 14:06:30 UTC." + alone},
		{"repeated for good", downSearch, webSearch,
			only(toolcircuit.OpenError{Reason: toolcircuit.ReasonRepeatedCall, Cause: toolcircuit.KindInvalid}),
			not + "this run sent the same call before, and search-api found the arguments invalid." + others +
				"until a tool has changed something. Change the arguments" + or},
		{"out of time", downSearch, webSearch, reason(toolcircuit.ReasonBudgetExhausted, toolcircuit.KindDeadline),
			not + "this run has no time left to call search-api." + over + alone},
		{"the run is closed", downSearch, webSearch, reason(toolcircuit.ReasonBudgetExhausted, toolcircuit.KindCanceled),
			not + "this run is over and calls search-api no more." + over + alone},
		{"budget", downSearch, webSearch, reason(toolcircuit.ReasonBudgetExhausted, ""), spent + alone},
		{"budget and the tool's own actions", downSearch, actions(toolcircuit.ActionUseAlternative, toolcircuit.ActionEscalate),
			reason(toolcircuit.ReasonBudgetExhausted, ""), spent + " Tell the user."},
		{"a tool without a name", downSearch, toolcircuit.Tool{}, none, noName + alone},
		{"alternatives of a tool without a name", downSearch, toolcircuit.Tool{Alternatives: []string{"cached_search"}}, none, noName + do},
		{"actions of a tool without a name", downSearch, toolcircuit.Tool{NextActions: []toolcircuit.Action{toolcircuit.ActionEscalate}},
			none, noName + " Tell the user."},
		{"the tool's own actions", downSearch, actions(toolcircuit.ActionPause, toolcircuit.ActionUseAlternative), none,
			down + inRow + until + " Go on with other work first, or use another tool."},
		{"several alternatives", downSearch, toolcircuit.Tool{Name: "web_search", Alternatives: []string{"a", "b", "c"}}, none,
			down + inRow + until + " Use a or b, or answer without it and say what is missing."},
		{"an inner dependency", downSearch, webSearch, func(e *toolcircuit.OpenError) { e.Dependency = "mail-api" },
			"web_search stopped part-way, its call not executed: mail-api did not answer in time" + inRow + until + do},
		{"an inner dependency behind side effects", downSearch, writes,
			func(e *toolcircuit.OpenError) { e.Dependency, e.RetryAt = "mail-api", e.RetryAt.Add(-time.Minute) },
			"pay stopped part-way, its call not executed: mail-api did not answer in time" + inRow + temp +
				" Do not call pay for 42 s, until 14:05:30 UTC. Before you call it again, check what it did."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := tt.from(t, tt.tool)
			e := *d.refusal()
			tt.edit(&e)
			assert.Equal(t, tt.want, d.blocked(&e).Message)
		})
	}
}

// A wait of a day and more names the day, for the time alone would be the next day's.
func TestMessageOfLongWait(t *testing.T) {
	d := newDesk(t, "search-api", webSearch, toolcircuit.Policy{MaxRetryAfter: 48 * time.Hour})
	d.do(toolcircuit.RetryAfter(errors.New("maintenance"), 25*time.Hour))
	assert.Contains(t, d.blocked(d.refusal()).Message, "for 90000 s, until 2026-11-30 15:04:30 UTC.")
}

func TestMessageOfFailure(t *testing.T) {
	const (
		unclear = " Whether it took effect is not known."
		later   = " This may be temporary: go on with other work before you call it once more."
		do      = " Change the arguments, or use cached_search, or answer without it and say what is missing."
		never   = " The same call is not likely to work later." + do
		unknown = "search-api failed for unknown reasons."
		check   = " Before you call it again, check whether it did; if you cannot, tell the user."
	)
	for _, tt := range []struct {
		tool toolcircuit.Tool
		err  error
		want string
	}{
		{webSearch, failure(toolcircuit.KindTimeout), "web_search failed: search-api did not answer in time." + unclear + later},
		{webSearch, failure(toolcircuit.KindUnavailable), "web_search failed: search-api was unreachable or broken." + unclear + later},
		{webSearch, failure(toolcircuit.KindSlow), "web_search failed: search-api answered too slowly." + unclear + later},
		{webSearch, failure(toolcircuit.KindPanic), "web_search failed: search-api was called by code that crashed." + unclear + never},
		{webSearch, failure(toolcircuit.KindUnknown),
			"web_search failed: " + unknown + unclear + " Nothing says whether the same call would work later." + do},
		{webSearch, failure(toolcircuit.KindRateLimited), "web_search ran and failed: search-api limited the rate of calls." + later},
		{webSearch, failure(toolcircuit.KindInvalid), "web_search ran and failed: search-api found the arguments invalid." + never},
		{webSearch, failure(toolcircuit.KindNotFound), "web_search ran and failed: search-api found no such thing." + never},
		{webSearch, failure(toolcircuit.KindConflict), "web_search ran and failed: search-api reported a conflict." + never},
		{webSearch, failure(toolcircuit.KindOK),
			"web_search ran and failed: " + unknown + " Nothing says whether the same call would work later." + do},
		{webSearch, failure(toolcircuit.KindUnauthorized), "web_search ran and failed: search-api refused access." +
			" The same call cannot work until a person sets that right. Tell the user, or use cached_search."},
		{webSearch, comeBack, "web_search ran and failed: search-api limited the rate of calls. This is temporary." +
			" Do not call it for 42 s, until 14:05:12 UTC. Use cached_search, or answer without it and say what is missing."},
		{writes, failure(toolcircuit.KindTimeout), "pay failed: search-api did not answer in time." + unclear + check},
		{writes, failure(toolcircuit.KindUnknown), "pay failed: " + unknown + unclear + check},
		{writes, failure(toolcircuit.KindRateLimited), "pay ran and failed: search-api limited the rate of calls." + later},
		{toolcircuit.Tool{}, failure(toolcircuit.KindTimeout), "This tool failed: search-api did not answer in time." + unclear + later},
	} {
		r := softly(t, tt.tool, tt.err)
		assert.Equal(t, toolcircuit.StatusFailed, r.Status)
		assert.Equal(t, tt.want, r.Message)
	}
}

// unwanted is what no text may hold: holes, broken grammar, a dependency's words, an invitation.
var unwanted = regexp.MustCompile(`%!|  |\.\.|[:,;(]\.|\(\)| 1 [a-z]+s\b|secret|retry|try again`)

// Every combination keeps the rules that a text for a model is held to.
func TestEveryFieldFilled(t *testing.T) {
	tools := []toolcircuit.Tool{
		{},
		webSearch,
		{Name: "web_search", Alternatives: []string{"a", "b", "c"}, NextActions: []toolcircuit.Action{toolcircuit.ActionAnswerWithout, toolcircuit.ActionUseAlternative}},
		{Name: "web_search", NextActions: []toolcircuit.Action{toolcircuit.ActionUseAlternative, toolcircuit.ActionPause, toolcircuit.ActionEscalate}},
		{Name: "web_search", SideEffects: true},
		{SideEffects: true, Alternatives: []string{"a", "b"}},
	}
	kinds := append([]toolcircuit.Kind{""}, kinds...)
	rules := []toolcircuit.Rule{"", toolcircuit.RuleThreshold, toolcircuit.RuleRate, toolcircuit.RuleThresholdRate,
		toolcircuit.RulePause, toolcircuit.RuleProbe, toolcircuit.RuleReset, "fleet"}
	reasons := []toolcircuit.Reason{toolcircuit.ReasonDependencyOpen, toolcircuit.ReasonManualOpen,
		toolcircuit.ReasonBusy, toolcircuit.ReasonRepeatedCall, toolcircuit.ReasonBudgetExhausted}
	timed := regexp.MustCompile(`for \d+ s, until 14:\d\d:[0-5]0 UTC`)

	messages := map[string]bool{}
	keeps := func(b toolcircuit.Blocked, rules map[string]bool) {
		for rule, kept := range rules {
			assert.True(t, kept, "%s: %+v", rule, b)
		}
		messages[b.Message] = true
	}
	refusal := func(d *desk, e *toolcircuit.OpenError) {
		b := d.blocked(e).Blocked
		m := b.Message
		hasTime := b.RetryAfterMS > 0 && !b.RetryAt.IsZero() && timed.MatchString(m)
		keeps(b, map[string]bool{
			"names the tool":             strings.HasPrefix(m, cmp.Or(b.Tool, "This tool")+" "),
			"names the dependency":       strings.Contains(m, b.Dependency),
			"says nothing ran":           strings.Contains(m, " not executed"),
			"has an end":                 strings.Contains(m, "until "),
			"has a time where there is":  hasTime == (b.Reason == toolcircuit.ReasonDependencyOpen),
			"in a row":                   !strings.Contains(m, "in a row") || b.Rule == toolcircuit.RuleThreshold && b.Failures > 1,
			"is no retryable":            !*b.Retryable,
			"has a next action":          len(b.NextActions) > 0,
			"was not executed, or maybe": (b.Executed == nil) == (b.Outcome == "unknown"),
		})
	}
	for _, from := range []func(*testing.T, toolcircuit.Tool) *desk{downSearch, goneSearch} {
		for _, tool := range tools {
			d := from(t, tool)
			base := *d.refusal()
			for _, base.Reason = range reasons {
				for _, base.State = range []toolcircuit.State{toolcircuit.StateOpen, toolcircuit.StateHalfOpen} {
					for _, base.Dependency = range []string{"search-api", "mail-api"} {
						for _, base.Cause = range kinds {
							e := base
							refusal(d, &e)
						}
						for _, base.Rule = range rules {
							for n := range 3 {
								e := base
								e.Failures, e.Openings = n, n
								refusal(d, &e)
							}
						}
					}
				}
			}
		}
	}
	for _, tool := range tools {
		for _, kind := range kinds {
			for _, err := range []error{
				judgedAs{Effect: toolcircuit.EffectCount, Kind: kind},
				judgedAs{Effect: toolcircuit.EffectPause, Kind: kind, RetryAfter: time.Minute},
				toolcircuit.Invalid(judgedAs{Kind: kind}), &net.OpError{Op: "dial", Err: judgedAs{Kind: kind}},
			} {
				for _, p := range []toolcircuit.Policy{{}, {FailureThreshold: 1, Cooldown: time.Minute}} {
					d := newDesk(t, "search-api", tool, p)
					_, r, err := d.settled(err)
					if err != nil || r.Status != toolcircuit.StatusFailed {
						continue
					}
					m := r.Message
					keeps(r.Blocked, map[string]bool{
						"names the tool":           strings.HasPrefix(m, cmp.Or(r.Tool, "This tool")+" "),
						"says what happened":       strings.Contains(m, "search-api ") || strings.Contains(m, "its arguments are invalid"),
						"nothing ran":              strings.Contains(m, " was not executed: ") == (r.Executed != nil && !*r.Executed),
						"it ran":                   strings.Contains(m, " ran and failed: ") == (r.Executed != nil && *r.Executed),
						"nobody knows":             strings.Contains(m, "not known") == (r.Executed == nil) && (r.Executed == nil) == (r.Outcome == "unknown"),
						"until when":               timed.MatchString(m) == (r.RetryAfterMS > 0) && (r.RetryAfterMS > 0) == (r.RetryAt != nil),
						"no hope for the hopeless": !strings.Contains(m, "temporary") || *r.Retryable,
						"the other circuit's":      !strings.Contains(m, "in a row"),
					})
				}
			}
		}
	}
	for m := range messages {
		assert.Less(t, len(strings.Fields(m)), 60, m)
		assert.True(t, strings.HasSuffix(m, "."), m)
		assert.NotRegexp(t, unwanted, m)
	}
}

func TestResultOf(t *testing.T) {
	d := downSearch(t, webSearch)
	plain := errors.New("no such city")

	r, err := toolcircuit.ResultOf(d.ToolCircuit, 0, toolcircuit.Verdict{}, nil)
	require.NoError(t, err)
	require.NotNil(t, r.Value, "a zero value is a value")
	assert.Zero(t, *r.Value)
	assert.Zero(t, r.Blocked)

	r, err = toolcircuit.ResultOf(d.ToolCircuit, 7, toolcircuit.Verdict{}, plain)
	assert.Equal(t, plain, err, "nobody judged it")
	assert.Zero(t, r)

	deep := fmt.Errorf("agent: %w", errors.Join(plain, fmt.Errorf("tool: %w", d.refusal())))
	assert.Equal(t, d.blocked(d.refusal()), d.blocked(deep))
	assert.Equal(t, d.blocked(d.refusal()), d.blocked(nested(999, d.refusal())), "as deep as errors are looked at")

	r = must(toolcircuit.ResultOf(d.ToolCircuit, 7, toolcircuit.Verdict{Kind: toolcircuit.KindUnknown}, plain))
	assert.Equal(t, toolcircuit.StatusFailed, r.Status, "judged, so it ran")

	paid := fmt.Errorf("agent: %w", toolcircuit.Duplicate(plain))
	r = must(toolcircuit.ResultOf(d.ToolCircuit, 7, healed(toolcircuit.KindDuplicate), paid))
	assert.Equal(t, toolcircuit.StatusOK, r.Status)
	assert.Equal(t, 7, *r.Value)
	assert.Equal(t, "duplicate", r.Outcome)

	assert.Equal(t, toolcircuit.StatusBlocked, d.blocked(toolcircuit.Duplicate(d.refusal())).Status, "a refusal had no effect")
}

// The sentinel alone is a refusal of which nothing is known.
func TestResultOfSentinel(t *testing.T) {
	d := newDesk(t, "search-api", webSearch, toolcircuit.Policy{})
	var none *toolcircuit.OpenError
	for _, err := range []error{toolcircuit.ErrCircuitOpen, errors.Join(none, toolcircuit.ErrCircuitOpen)} {
		b := d.blocked(err).Blocked
		assert.Equal(t, toolcircuit.ReasonDependencyOpen, b.Reason)
		assert.Equal(t, "search-api", b.Dependency)
		assert.Equal(t, "web_search", b.Tool)
		assert.False(t, *b.Executed)
		assert.Zero(t, b.RetryAfterMS)
		assert.Contains(t, b.Message, "It is not known for how long.")
	}
}

// An inner refusal names the inner dependency, and does not claim that the tool did nothing.
func TestResultOfInnerRefusal(t *testing.T) {
	inner := downSearch(t, webSearch)
	shop := newDesk(t, "shop-api", toolcircuit.Tool{Name: "checkout", Alternatives: []string{"invoice"}}, toolcircuit.Policy{})
	_, err := toolcircuit.Do(t.Context(), shop.ToolCircuit, func(context.Context) (int, error) { return inner.do(nil) })
	b := shop.blocked(err).Blocked
	assert.Equal(t, "search-api", b.Dependency)
	assert.Equal(t, "checkout", b.Tool)
	assert.Equal(t, []string{"invoice"}, b.Alternatives)
	assert.Nil(t, b.Executed)
	assert.Equal(t, "unknown", b.Outcome)
	assert.EqualValues(t, 42_000, b.RetryAfterMS)
	assert.NotContains(t, b.Message, "shop-api")
	assert.Equal(t, toolcircuit.StateClosed, shop.State())
}

func TestResultOfOwnsItsSlices(t *testing.T) {
	tool := toolcircuit.Tool{Name: "web_search", Alternatives: []string{"a", "b"}, NextActions: []toolcircuit.Action{toolcircuit.ActionPause, toolcircuit.ActionAnswerWithout}}
	spoil := func(r toolcircuit.Result[int]) {
		r.NextActions[0], r.Alternatives[0] = "x", "x"
		_, _ = append(r.NextActions[:1], "y"), append(r.Alternatives[:1], "y")
	}
	for _, from := range []func(*testing.T, toolcircuit.Tool) *desk{downSearch, goneSearch} {
		d := from(t, tool)
		want := marshal(t, d.blocked(d.refusal()))
		spoil(d.blocked(d.refusal()))
		assert.Equal(t, want, marshal(t, d.blocked(d.refusal())))
	}
	d := newDesk(t, "search-api", tool, toolcircuit.Policy{})
	soft := toolcircuit.WrapResult(d.ToolCircuit, func(context.Context, int) (int, error) { return 0, failure(toolcircuit.KindInvalid) })
	want := must(soft(t.Context(), 0))
	text := marshal(t, want)
	spoil(want)
	again := must(soft(t.Context(), 0))
	assert.Equal(t, text, marshal(t, again))
}

func TestToolMessage(t *testing.T) {
	standard := downSearch(t, webSearch)
	want := standard.blocked(standard.refusal())
	tool := webSearch
	var seen toolcircuit.Blocked
	for _, tt := range []struct {
		name    string
		message func(toolcircuit.Blocked) string
		want    string
		panics  int
	}{
		{"its own text", func(b toolcircuit.Blocked) string { seen = b; return "own" }, "own", 0},
		{"no text", func(toolcircuit.Blocked) string { return "" }, want.Message, 0},
		{"a panic", func(toolcircuit.Blocked) string { panic("bug") }, want.Message, 1},
	} {
		tool.Message = tt.message
		d := downSearch(t, tool)
		assert.Equal(t, tt.want, d.blocked(d.refusal()).Message, tt.name)
		assert.EqualValues(t, tt.panics, d.Snapshot().HookPanics, tt.name)
	}
	want.Message = ""
	assert.Equal(t, want.Blocked, seen)

	tool.Message = func(b toolcircuit.Blocked) string { return string(b.Reason) }
	assert.Equal(t, "call_failed", softly(t, tool, failure(toolcircuit.KindTimeout)).Message, "failed results too")
}

// N08: what the tool itself says to the model.
func TestDetail(t *testing.T) {
	wrong := toolcircuit.Invalid(errors.New("date must be YYYY-MM-DD"))
	says := func(detail func(error) string) toolcircuit.Tool {
		return toolcircuit.Tool{Name: "web_search", Detail: detail}
	}
	for _, tt := range []struct {
		name   string
		tool   toolcircuit.Tool
		err    error
		want   string
		panics int
	}{
		{"Invalid", webSearch, wrong, "date must be YYYY-MM-DD", 0},
		{"Invalid inside", webSearch, fmt.Errorf("search: %w", wrong), "date must be YYYY-MM-DD", 0},
		{"Invalid beside a failure that counts", webSearch, errors.Join(wrong, errDown), "", 0},
		{"Invalid beside what a Classifier decides", webSearch, errors.Join(wrong, failure(toolcircuit.KindTimeout)), "", 0},
		{"no mark", webSearch, errors.New("secret: upstream text"), "", 0},
		{"Detail", says(func(err error) string { return "said of " + err.Error() }), errDown, "said of down", 0},
		{"Detail of a tool without a name", toolcircuit.Tool{Detail: func(error) string { return "own" }}, errDown, "own", 0},
		{"Detail before Invalid", says(func(error) string { return "own" }), wrong, "own", 0},
		{"Detail that says nothing", says(func(error) string { return "" }), wrong, "date must be YYYY-MM-DD", 0},
		{"Detail that panics", says(func(error) string { panic("bug") }), wrong, "date must be YYYY-MM-DD", 1},
		{"at most 500 bytes", says(func(error) string { return strings.Repeat("x", 501) }), errDown, strings.Repeat("x", 500), 0},
		{"cut between runes", says(func(error) string { return "x" + strings.Repeat("é", 250) }), errDown, "x" + strings.Repeat("é", 249), 0},
		{"cut in Invalid, too", webSearch, toolcircuit.Invalid(errors.New(strings.Repeat("世", 200))), strings.Repeat("世", 166), 0},
		{"no text at all", says(func(error) string { return "a\xffb" }), errDown, "a\uFFFDb", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDesk(t, "search-api", tt.tool, toolcircuit.Policy{})
			v, r, err := d.settled(tt.err)
			require.NoError(t, err)
			assert.Equal(t, tt.want, r.Detail)
			assert.NotContains(t, r.Message, "YYYY")
			assert.Equal(t, v.Kind == toolcircuit.KindInvalid, r.Executed != nil)
			assert.NotContains(t, marshal(t, r), "secret")
			assert.EqualValues(t, tt.panics, d.Snapshot().HookPanics)
		})
	}

	d := downSearch(t, says(func(error) string { return "own" }))
	assert.Empty(t, d.blocked(d.refusal()).Detail, "nothing failed")
	text := marshal(t, toolcircuit.Result[int]{Blocked: toolcircuit.Blocked{EndTurn: true, Detail: "d", Message: "m"}})
	assert.Contains(t, text, `"endTurn":true,"detail":"d","message":"m"`)
}

// settled is the result of a call in two steps.
func (d *desk) settled(err error) (toolcircuit.Verdict, toolcircuit.Result[int], error) {
	d.t.Helper()
	p, refusal := d.Allow(d.t.Context())
	require.NoError(d.t, refusal)
	v, err := p.Settle(d.t.Context(), nil, err)
	r, err := toolcircuit.ResultOf(d.ToolCircuit, 0, v, err)
	return v, r, err
}

// What certainly did not happen is told so: mistakes that the tool found itself, and calls for which
// no connection could be made. Of errors that a tool joins, all must agree.
func TestExecutedOrNot(t *testing.T) {
	refused := dial(os.NewSyscallError("connect", syscall.ECONNREFUSED))
	reset := &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	noHost := dial(&net.DNSError{Err: "server misbehaving", IsTemporary: true})
	slow := dial(os.ErrDeadlineExceeded)
	limited, missing := &toolcircuit.HTTPError{StatusCode: 429, RetryAfter: 9 * time.Second}, notFoundErr
	bad, plain := toolcircuit.Invalid(errors.New("secret")), errors.New("x")
	yes, no := true, false
	const (
		later   = " This may be temporary: go on with other work before you call it once more."
		mend    = " The same call is not likely to work later. Change the arguments as detail says, or "
		unsent  = "pay was not executed: search-api could not be reached." + later
		mistake = "pay was not executed: its arguments are invalid." + mend + "answer without it and say what is missing."
		lost    = "pay failed: search-api was unreachable or broken. Whether it took effect is not known." +
			" Before you call it again, check whether it did; if you cannot, tell the user."
	)
	for name, tt := range map[string]struct {
		errs     []error // in both orders
		executed *bool
		message  string
	}{
		"invalid":                          {[]error{bad}, &no, mistake},
		"refused":                          {[]error{refused}, &no, unsent},
		"refused, by an HTTP client":       {[]error{get(refused)}, &no, unsent},
		"refused, by a proxy":              {[]error{&net.OpError{Op: "proxyconnect", Err: refused}}, &no, unsent},
		"refused, the number alone":        {[]error{fmt.Errorf("pay: %w", syscall.ECONNREFUSED)}, &no, unsent},
		"no address":                       {[]error{noHost}, &no, unsent},
		"a name without an address":        {[]error{&net.DNSError{Err: "no such host", Name: "dep", IsNotFound: true}}, &no, ""},
		"no connection in time":            {[]error{slow}, &no, unsent},
		"refused twice":                    {[]error{refused, fmt.Errorf("again: %w", slow)}, &no, unsent},
		"refused after a lost connection":  {[]error{reset, refused}, nil, lost},
		"a lost connection":                {[]error{reset}, nil, lost},
		"no answer, then a limit":          {[]error{reset, limited}, nil, ""},
		"two answers":                      {[]error{limited, missing}, &yes, ""},
		"an answer beside what is unknown": {[]error{missing, plain}, nil, ""},
		"invalid beside what is unknown":   {[]error{bad, plain}, nil, ""},
		"invalid beside an answer":         {[]error{bad, &toolcircuit.HTTPError{StatusCode: 409}}, nil, ""},
		"refused beside an answer":         {[]error{refused, missing}, nil, ""},
		"invalid twice":                    {[]error{bad, bad}, &no, mistake},
		"refused, and invalid":             {[]error{refused, bad}, &no, ""},
	} {
		for _, errs := range orders(tt.errs) {
			r := softly(t, writes, fmt.Errorf("attempts: %w", errors.Join(errs...)))
			assert.Equal(t, tt.executed, r.Executed, "%s: %s", name, r.Message)
			assert.Equal(t, tt.executed == nil, r.Outcome == "unknown", name)
			if tt.message != "" {
				assert.Equal(t, tt.message, r.Message, name)
			}
			if tt.executed == nil {
				assert.False(t, *r.Retryable, name)
				assert.Equal(t, []toolcircuit.Action{toolcircuit.ActionEscalate}, r.NextActions, name)
			}
		}
	}
	assert.Equal(t, "web_search was not executed: its arguments are invalid."+mend+
		"use cached_search, or answer without it and say what is missing.", softly(t, webSearch, bad).Message)
	assert.Equal(t, "web_search was not executed: search-api could not be reached."+later, softly(t, webSearch, refused).Message)
	var none *net.OpError
	for _, err := range []error{fmt.Errorf("pay: %w", none), itself{}} { // itself is without end
		softly(t, writes, err)
	}
}

// itself is an error that wraps itself.
type itself struct{}

func (itself) Error() string   { return "itself" }
func (e itself) Unwrap() error { return e }

func TestResultOr(t *testing.T) {
	d := downSearch(t, webSearch)
	blocked := d.blocked(d.refusal())
	blocked.BlockedCalls, blocked.EndTurn, blocked.Advice = 3, true, "advice"

	got := blocked.Or(9, "cache")
	assert.Equal(t, toolcircuit.StatusFallback, got.Status)
	assert.Equal(t, 9, *got.Value)
	assert.Equal(t, "cache", got.Source)
	assert.Equal(t, "advice", got.Advice)
	assert.Equal(t, toolcircuit.Blocked{
		Reason: toolcircuit.ReasonDependencyOpen, BlockedCalls: 3, EndTurn: true, Message: blocked.Message,
	}, got.Blocked)
	assert.Equal(t, got, got.Or(1, "other"), "the first fallback stays")

	failed := softly(t, webSearch, failure(toolcircuit.KindTimeout))
	assert.Equal(t, toolcircuit.ReasonCallFailed, failed.Or(9, "cache").Reason)

	ok := must(toolcircuit.ResultOf(d.ToolCircuit, 7, toolcircuit.Verdict{}, nil))
	assert.Equal(t, ok, ok.Or(9, "cache"))
}

func TestWrapResult(t *testing.T) {
	d := newDesk(t, "search-api", webSearch, toolcircuit.Policy{FailureThreshold: 1})
	var result error
	search := toolcircuit.WrapResult(d.ToolCircuit, func(_ context.Context, q string) (string, error) { return "hits of " + q, result })
	mistake := failure(toolcircuit.KindInvalid)
	for i, tt := range []struct {
		err  error
		want toolcircuit.Status // blocked is for refusals
	}{
		{nil, toolcircuit.StatusOK}, {mistake, toolcircuit.StatusFailed}, {mistake, toolcircuit.StatusFailed},
		{errDown, toolcircuit.StatusFailed}, {nil, toolcircuit.StatusBlocked},
	} {
		result = tt.err
		r := must(search(t.Context(), "go"))
		assert.Equal(t, tt.want, r.Status, "call %d", i)
		if tt.want == toolcircuit.StatusOK {
			assert.Equal(t, "hits of go", *r.Value)
		} else {
			assert.Nil(t, r.Value, "call %d", i)
		}
	}
}

func TestWrapResultLeavesWhatIsTheRuntimes(t *testing.T) {
	d := newDesk(t, "search-api", webSearch, toolcircuit.Policy{})
	var fails func() error
	soft := toolcircuit.WrapResult(d.ToolCircuit, func(context.Context, string) (int, error) { return 7, fails() })
	for _, kind := range []toolcircuit.Kind{toolcircuit.KindCanceled, toolcircuit.KindDeadline, toolcircuit.KindInterrupt} {
		fails = func() error { return failure(kind) }
		r, err := soft(t.Context(), "")
		assert.Equal(t, failure(kind), err)
		assert.Zero(t, r)
	}
	fails = func() error { panic("bug") }
	_, err := soft(endedContext(), "")
	assert.Equal(t, context.Canceled, err, "nothing ran")
	assert.PanicsWithValue(t, "bug", func() { soft(t.Context(), "") })
}

func TestOpenError(t *testing.T) {
	d := downSearch(t, webSearch)
	e := d.refusal()
	assert.EqualError(t, e, "toolcircuit: search-api: dependency_open")
	assert.EqualError(t, &toolcircuit.OpenError{Dependency: "x", Reason: toolcircuit.ReasonBusy}, "toolcircuit: x: busy")
	assert.ErrorIs(t, fmt.Errorf("agent: %w", e), toolcircuit.ErrCircuitOpen)
	assert.NotErrorIs(t, e, context.DeadlineExceeded)
	assert.NoError(t, errors.Unwrap(e))
	_, timeout := error(e).(interface{ Timeout() bool })
	assert.False(t, timeout)

	assert.Same(t, e, d.refusal(), "one for all that the state refuses")
	assert.Equal(t, 42*time.Second, e.RetryAfter())
	d.clock.Set(d.clock.Now().Add(-time.Hour))
	assert.Equal(t, time.Minute, e.RetryAfter(), "never above the full wait")
	d.clock.Set(e.RetryAt)
	assert.Zero(t, e.RetryAfter())
	d.clock.Add(time.Hour)
	assert.Zero(t, e.RetryAfter(), "never negative")
	assert.Zero(t, new(toolcircuit.OpenError).RetryAfter())
}

// An OpenError that no circuit made reads the real clock.
func TestOpenErrorWithoutClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &toolcircuit.OpenError{RetryAt: time.Now().Add(time.Minute)}
		time.Sleep(18 * time.Second)
		assert.Equal(t, 42*time.Second, e.RetryAfter())
	})
}

// A dependency that has just gone is told from one that stays away. A first opening is the former, also
// where MaxCooldown is no more than Cooldown.
func TestStartingOrGone(t *testing.T) {
	first := newDesk(t, "search-api", webSearch, toolcircuit.Policy{FailureThreshold: 1, Cooldown: time.Minute, MaxCooldown: time.Minute})
	first.do(errDown)
	for _, d := range []*desk{downSearch(t, webSearch), first} {
		b := d.blocked(d.refusal())
		assert.Contains(t, b.Message, "This is temporary")
		assert.NotContains(t, b.NextActions, toolcircuit.ActionEscalate)
	}
	gone := goneSearch(t, webSearch)
	for range 10 {
		g := gone.blocked(gone.refusal())
		assert.Contains(t, g.Message, "unavailable for this task")
		assert.NotContains(t, g.Message, "temporary")
		assert.Equal(t, []toolcircuit.Action{toolcircuit.ActionEscalate, toolcircuit.ActionUseAlternative, toolcircuit.ActionAnswerWithout}, g.NextActions)
	}
}

func TestWaitIsNumeric(t *testing.T) {
	d := downSearch(t, webSearch)
	e := d.refusal()
	for _, tt := range []struct {
		left time.Duration
		ms   int64
		text string
	}{
		{41*time.Second + 1, 41_001, "for 42 s, until 14:05:30 UTC"},
		{41 * time.Second, 41_000, "for 41 s, until 14:05:30 UTC"},
		{time.Nanosecond, 1, "for 1 s, until 14:05:30 UTC"},
		{0, 1, "for 1 s, until 14:05:30 UTC"}, // over between the refusal and the result
		{-time.Second, 1, "for 1 s, until 14:05:31 UTC"},
	} {
		d.clock.Set(e.RetryAt.Add(-tt.left))
		r := d.blocked(e)
		assert.Equal(t, tt.ms, r.RetryAfterMS)
		assert.Contains(t, r.Message, tt.text)
	}
	d.clock.Set(e.RetryAt.In(time.FixedZone("CET", 3600)).Add(-time.Minute + 1))
	assert.Equal(t, e.RetryAt, *d.blocked(e).RetryAt, "UTC, rounded up to the second")
}

// A payment that timed out may have happened. The model is told to look, not to pay again.
func TestOutcomeUnknown(t *testing.T) {
	pay := writes
	pay.Alternatives = []string{"invoice"}
	for _, kind := range []toolcircuit.Kind{toolcircuit.KindTimeout, toolcircuit.KindUnavailable, toolcircuit.KindUnknown,
		toolcircuit.KindInvalid, toolcircuit.KindRateLimited, toolcircuit.KindUnauthorized} {
		r := softly(t, pay, failure(kind))
		assert.Equal(t, kind == toolcircuit.KindRateLimited, *r.Retryable, kind)
		assert.Equal(t, r.Outcome == "unknown", strings.Contains(r.Message, "check whether it did"), kind)
		if r.Outcome == "unknown" {
			assert.Nil(t, r.Executed)
			assert.Equal(t, []toolcircuit.Action{toolcircuit.ActionEscalate}, r.NextActions)
			assert.Empty(t, r.Alternatives, "another way to pay could pay twice")
		} else {
			assert.True(t, *r.Executed)
		}
	}
	blocked := downSearch(t, pay)
	assert.Contains(t, blocked.blocked(blocked.refusal()).Message, "pay was not executed")

	benign := softly(t, webSearch, toolcircuit.Benign(&toolcircuit.HTTPError{StatusCode: 503}))
	assert.False(t, *benign.Retryable, "as Retryable says")
}

// From the opening to the recovery a refusal and its result say the same, all of it, with the time
// that ends it where one does. The first success takes nothing along.
func TestRefusalSaysAll(t *testing.T) {
	d := downSearch(t, webSearch)
	check := func(state toolcircuit.State, reason toolcircuit.Reason, wait time.Duration) {
		t.Helper()
		e := d.refusal()
		r := d.blocked(e)
		want := []any{"search-api", state, reason, toolcircuit.KindTimeout}
		assert.Equal(t, want, []any{e.Dependency, e.State, e.Reason, e.Cause})
		assert.Equal(t, want, []any{r.Dependency, r.State, r.Reason, r.Cause})
		assert.Equal(t, wait, e.RetryAfter())
		assert.Equal(t, wait.Milliseconds(), r.RetryAfterMS)
		assert.Equal(t, wait == 0, r.RetryAt == nil)
		var back toolcircuit.Result[int]
		require.NoError(t, json.Unmarshal([]byte(marshal(t, r)), &back))
		assert.Equal(t, r, back)
		assert.False(t, *r.Executed)
		assert.False(t, *r.Retryable)
		assert.NotContains(t, r.NextActions, toolcircuit.ActionPause)
		assert.Contains(t, r.Message, "web_search was not executed", "the text alone says so, too")
	}
	check(toolcircuit.StateOpen, toolcircuit.ReasonDependencyOpen, 42*time.Second)

	d.clock.Add(42 * time.Second)
	allow(t, d.ToolCircuit) // the probe, which never comes back
	check(toolcircuit.StateHalfOpen, toolcircuit.ReasonDependencyOpen, time.Second)

	d.clock.Add(time.Minute)
	allow(t, d.ToolCircuit) // past the lease the next one probes
	check(toolcircuit.StateHalfOpen, toolcircuit.ReasonDependencyOpen, time.Second)

	d.SetOverride(toolcircuit.OverrideOpen)
	check(toolcircuit.StateOpen, toolcircuit.ReasonManualOpen, 0)

	d.SetOverride(toolcircuit.OverrideNone)
	d.clock.Add(time.Minute)
	r := must(toolcircuit.DoResult(t.Context(), d.ToolCircuit, func(context.Context) (int, error) { return 7, nil }))
	assert.Equal(t, toolcircuit.StatusOK, r.Status)
	assert.Zero(t, r.Blocked)
}

// A retry outside of the circuit ends with the first refusal.
func TestRetryLoop(t *testing.T) {
	r := newRig(t, policy(nil))
	attempts, err := 0, errDown
	for ; toolcircuit.Retryable(err) && attempts < 10; attempts++ {
		err = try(r.ToolCircuit, errDown)
	}
	require.ErrorIs(t, err, toolcircuit.ErrCircuitOpen)
	require.Equal(t, []int{4, 3}, []int{attempts, len(r.calls) - 1})
}

// suspended is a clock of a host that slept: the wall clock has moved on, and what is measured has
// not.
type suspended struct {
	*clock.Mock
	slept time.Duration
}

func (s *suspended) Now() time.Time                  { return s.Mock.Now().Add(s.slept) }
func (s *suspended) Since(t time.Time) time.Duration { return s.Mock.Now().Sub(t) }
func (s *suspended) Until(t time.Time) time.Duration { return t.Sub(s.Mock.Now()) }

// N13: the circuit is open for ten minutes and the host sleeps for eight hours.
func TestRetryAtAfterTheHostSlept(t *testing.T) {
	host := &suspended{Mock: clock.NewMock()}
	host.Set(time.Date(2026, 11, 29, 14, 4, 30, 0, time.UTC))
	c := toolcircuit.MustNew("search-api", toolcircuit.Options{
		Clock: host, Policy: toolcircuit.Policy{FailureThreshold: 1, Cooldown: 10 * time.Minute}, Tool: webSearch,
	})
	search := toolcircuit.WrapResult(c, func(context.Context, int) (int, error) { return 0, errDown })
	for _, status := range []toolcircuit.Status{toolcircuit.StatusFailed, toolcircuit.StatusBlocked} {
		r := must(search(t.Context(), 1))
		assert.Equal(t, status, r.Status)
		assert.EqualValues(t, 600_000, r.RetryAfterMS)
		assert.Equal(t, time.Date(2026, 11, 29, 14, 14, 30, 0, time.UTC), *r.RetryAt)
		assert.Equal(t, webSearch.Alternatives, r.Alternatives)
		assert.Regexp(t, "[Dd]o not call (it|web_search) for 600 s, until 14:14:30 UTC. Use cached_search", r.Message)
	}
	host.slept = 8 * time.Hour
	host.Add(500 * time.Millisecond)
	r := must(search(t.Context(), 1))
	assert.EqualValues(t, 599_500, r.RetryAfterMS)
	assert.Equal(t, time.Date(2026, 11, 29, 22, 14, 30, 0, time.UTC), *r.RetryAt)
	assert.Contains(t, r.Message, "for 600 s, until 22:14:30 UTC")
}

// While a probe is under way a model is told to wait as long as it has run so far, never the lease.
func TestHintWhileProbing(t *testing.T) {
	d := downSearch(t, webSearch)
	d.clock.Add(42 * time.Second)
	probe := allow(t, d.ToolCircuit)
	end := d.clock.Now().Add(time.Minute)
	for _, tt := range []struct{ ran, told time.Duration }{
		{0, time.Second},
		{500 * time.Millisecond, time.Second},
		{time.Second + 1, time.Second + 1},
		{8500 * time.Millisecond, 8500 * time.Millisecond},
		{30 * time.Second, 30 * time.Second},
		{45 * time.Second, 15 * time.Second}, // to the end of the lease
		{time.Minute - 1, 1},
	} {
		d.clock.Set(end.Add(tt.ran - time.Minute))
		e := d.refusal()
		assert.Equal(t, tt.told, e.RetryAfter())
		assert.Equal(t, end, e.RetryAt, "the bound")
		r := d.blocked(e)
		assert.Equal(t, (tt.told + time.Millisecond - 1).Milliseconds(), r.RetryAfterMS)
		assert.Equal(t, d.clock.Now().Add(tt.told+time.Second-1).Truncate(time.Second), *r.RetryAt)
	}
	d.clock.Set(end.Add(-time.Hour))
	assert.Equal(t, time.Second, d.refusal().RetryAfter(), "a clock that stepped back")

	d.clock.Set(end.Add(-10 * time.Second))
	write := &desk{ToolCircuit: d.WithTool(writes), t: t, clock: d.clock}
	assert.Equal(t, 10*time.Second, write.refusal().RetryAfter(), "a write waits for its turn")
	probe.Release()
}

// agents starts n agents that obey what they read, until each was served, and returns when they
// were. An agent comes back when sleep says so.
func agents(c *toolcircuit.ToolCircuit, n int, start time.Duration, op func(context.Context, int) (int, error), sleep func(toolcircuit.Blocked)) (served []time.Time) {
	tool := toolcircuit.WrapResult(c, op)
	var mu sync.Mutex
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			time.Sleep(start * time.Duration(i) / time.Duration(n))
			for {
				r, err := tool(context.Background(), i)
				if err != nil {
					panic(err)
				}
				if r.Status == toolcircuit.StatusOK {
					break
				}
				sleep(r.Blocked)
			}
			mu.Lock()
			defer mu.Unlock()
			served = append(served, time.Now())
		})
	}
	group.Wait()
	return served
}

// N10: four obedient agents wait for one dependency, and the probe succeeds in half a second. Told the
// lease, three of them stayed away for a minute.
func TestFourAgentsAreBackSoon(t *testing.T) {
	for _, jitter := range []float64{0, 0.1} {
		synctest.Test(t, func(t *testing.T) {
			c := toolcircuit.MustNew("search-api", toolcircuit.Options{
				Policy: toolcircuit.Policy{FailureThreshold: 1, Cooldown: 30 * time.Second, Jitter: jitter},
			})
			down := time.Now().Add(20 * time.Second)
			served := agents(c, 4, 0, func(context.Context, int) (int, error) {
				if time.Now().Before(down) {
					return 0, errDown
				}
				time.Sleep(500 * time.Millisecond)
				return 7, nil
			}, func(b toolcircuit.Blocked) { time.Sleep(time.Duration(b.RetryAfterMS) * time.Millisecond) })
			t.Logf("Jitter %v: the last %v after the first", jitter, served[3].Sub(served[0]))
			require.LessOrEqual(t, served[3].Sub(served[0]), 3*time.Second)
		})
	}
}

// N12: 200 agents are refused in the course of a wait of five minutes and sleep until exactly the
// moment that they were told. Without a spread all are there in the same second.
func TestManyAgentsComeBackSpread(t *testing.T) {
	peak := func(jitter float64) (most int) {
		synctest.Test(t, func(t *testing.T) {
			c := toolcircuit.MustNew("search-api", toolcircuit.Options{
				Policy: toolcircuit.Policy{FailureThreshold: 1, Cooldown: 5 * time.Minute, Jitter: jitter}, Seed: 1,
			})
			try(c, errDown)
			calls := make(map[int64]int) // each second
			var mu sync.Mutex
			served := agents(c, 200, 4*time.Minute, func(context.Context, int) (int, error) {
				mu.Lock()
				calls[time.Now().Unix()]++
				mu.Unlock()
				time.Sleep(200 * time.Millisecond)
				return 7, nil
			}, func(b toolcircuit.Blocked) { time.Sleep(time.Until(*b.RetryAt)) })
			for _, n := range calls {
				most = max(most, n)
			}
			t.Logf("Jitter %v: at most %d calls in a second, the last %v after the first", jitter, most, served[199].Sub(served[0]))
		})
		return most
	}
	require.Greater(t, peak(0), 150)
	require.LessOrEqual(t, peak(0.1), 15)
}

// A computed wait is told longer by up to the share Jitter of the full wait, each time by another, and
// never shorter. A wait that the dependency asked for is told as it is.
func TestSpreadOfHints(t *testing.T) {
	const full = time.Minute
	made := func(seed uint64, jitter float64, err error) *desk {
		d := newDesk(t, "search-api", webSearch, toolcircuit.Policy{})
		d.ToolCircuit = toolcircuit.MustNew("search-api", toolcircuit.Options{
			Clock: d.clock, Seed: seed, Tool: webSearch,
			Policy: toolcircuit.Policy{FailureThreshold: 1, Cooldown: full, MaxCooldown: full, Jitter: jitter},
		})
		d.do(err)
		return d
	}
	told := func(d *desk, n int) (ms []int64) {
		for range n {
			ms = append(ms, d.blocked(d.refusal()).RetryAfterMS)
		}
		return ms
	}
	d := made(1, 0.25, errDown)
	e := d.refusal()
	d.clock.Add(10 * time.Second)
	all := told(d, 100)
	assert.Equal(t, full-10*time.Second, e.RetryAfter(), "the refusal itself is not spread")
	slices.Sort(all)
	assert.GreaterOrEqual(t, all[0], int64(50_000))
	assert.LessOrEqual(t, all[99], int64(65_000))
	for i := range all[1:] {
		assert.Less(t, all[i+1]-all[i], int64(15_000/40), "evenly")
	}
	failed := must(toolcircuit.ResultOf(d.ToolCircuit, 0, toolcircuit.Classify(t.Context(), toolcircuit.Outcome{Err: errDown}), errDown))
	assert.Greater(t, failed.RetryAfterMS, int64(50_000), "a failed result is spread, too")
	again := made(1, 0.25, errDown)
	again.clock.Add(10 * time.Second)
	assert.ElementsMatch(t, all, told(again, 100), "one Seed, the same hints")
	other := made(2, 0.25, errDown)
	other.clock.Add(10 * time.Second)
	assert.NotEqual(t, told(again, 1), told(other, 1))

	before := made(1, 0.25, errDown) // and a minute that a failure before the opening asked for
	before.Reset()
	require.NoError(t, before.SetPolicy(toolcircuit.Policy{FailureThreshold: 2, Cooldown: time.Second, Jitter: 0.25}))
	before.do(asked(full))
	before.do(errDown)
	for name, d := range map[string]*desk{
		"no Jitter": made(1, 0, errDown), "asked for": made(1, 0.25, asked(full)), "asked for before": before,
	} {
		assert.Equal(t, []int64{60_000, 60_000}, told(d, 2), name)
	}

	// Half-open: the share of the hint, not that of the lease.
	d.clock.Set(e.RetryAt)
	probe := allow(t, d.ToolCircuit)
	defer probe.Release()
	d.clock.Add(4 * time.Second)
	for _, ms := range told(d, 20) {
		assert.GreaterOrEqual(t, ms, int64(4_000))
		assert.LessOrEqual(t, ms, int64(5_001))
	}
}

func ExampleWrapResult() {
	down := &toolcircuit.HTTPError{StatusCode: 503}
	search := toolcircuit.WrapResult(
		toolcircuit.MustNew("search-api", toolcircuit.Options{
			Policy: toolcircuit.Policy{FailureThreshold: 3},
			Tool:   toolcircuit.Tool{Name: "web_search", Alternatives: []string{"cached_search"}},
		}),
		func(context.Context, string) (string, error) { return "", down },
	)
	for range 4 {
		r, err := search(context.Background(), "weather in Oslo")
		fmt.Println(err, r.Status, r.Reason, r.Cause, r.NextActions)
	}
	// Output:
	// <nil> failed call_failed unavailable []
	// <nil> failed call_failed unavailable []
	// <nil> failed call_failed unavailable [use_alternative answer_without]
	// <nil> blocked dependency_open unavailable [use_alternative answer_without]
}

func ExampleResult_Or() {
	c := toolcircuit.MustNew("search-api", toolcircuit.Options{})
	c.SetOverride(toolcircuit.OverrideOpen)
	search := toolcircuit.WrapResult(c, func(context.Context, string) (string, error) { return "fresh", nil })

	r, _ := search(context.Background(), "weather in Oslo")
	r = r.Or("yesterday's", "cache")
	fmt.Println(r.Status, *r.Value, r.Source, r.Reason)
	// Output: fallback yesterday's cache manual_open
}

// A failure under a circuit that an operator has switched off meanwhile names no time, as a refusal
// does not.
func TestFailureUnderTheKillSwitch(t *testing.T) {
	const (
		off = " An operator has switched search-api off: do not call it until an operator lifts that."
		do  = off + " Use cached_search, or answer without it and say what is missing."
	)
	for _, tt := range []struct {
		tool toolcircuit.Tool
		err  error
		want string
	}{
		{webSearch, comeBack, "web_search ran and failed: search-api limited the rate of calls." + do},
		{webSearch, errInvalid, "web_search ran and failed: search-api found the arguments invalid." + do},
		{writes, errDown, "pay failed: search-api was unreachable or broken. Whether it took effect is not known." + off +
			" Before you call it again, check whether it did; if you cannot, tell the user."},
	} {
		d := newDesk(t, "search-api", tt.tool, toolcircuit.Policy{})
		r := must(toolcircuit.DoResult(t.Context(), d.ToolCircuit, func(context.Context) (int, error) {
			d.SetOverride(toolcircuit.OverrideOpen)
			return 0, tt.err
		}))
		assert.Equal(t, tt.want, r.Message)
		assert.Zero(t, r.RetryAfterMS)
		assert.Nil(t, r.RetryAt)
	}
}

// A dependency that asks for a wait gets it, also from a model whose circuit is closed, but no
// more than the policy allows.
func TestFailureWithAWait(t *testing.T) {
	for wait, want := range map[time.Duration]int64{5 * time.Second: 5_000, 24 * time.Hour: 600_000} {
		r := softly(t, webSearch, asked(wait))
		assert.Equal(t, want, r.RetryAfterMS)
		assert.Equal(t, []toolcircuit.Action{toolcircuit.ActionPause}, r.NextActions)
		assert.Contains(t, r.Message, "Go on with other work first.")
	}
}

// A tool that is wrapped twice, or returns a Result itself: what is blocked within is not ok.
func TestResultOfAResult(t *testing.T) {
	d := downSearch(t, webSearch)
	inner := toolcircuit.WrapResult(d.ToolCircuit, func(context.Context, int) (int, error) { return 7, nil })
	outer := toolcircuit.WrapResult(toolcircuit.MustNew("b", toolcircuit.Options{}), inner)
	r := must(outer(t.Context(), 1))
	want := must(inner(t.Context(), 1))
	assert.Equal(t, toolcircuit.StatusBlocked, r.Status)
	assert.Nil(t, r.Value)
	assert.Equal(t, want.Blocked, r.Blocked)
	d.clock.Add(time.Hour)
	r = must(outer(t.Context(), 1))
	assert.Equal(t, toolcircuit.StatusOK, r.Status)
	assert.Equal(t, 7, *r.Value.Value)
}

// Each call gets exactly one answer, whatever came of it
func TestEveryCallHasOneAnswer(t *testing.T) {
	errPlain := errors.New("plain")
	for _, err := range []error{nil, errPlain, errInvalid, errDown, wait(time.Second), io.EOF,
		toolcircuit.Benign(errPlain), toolcircuit.Duplicate(errPlain), context.Canceled, toolcircuit.ErrCircuitOpen,
		errors.Join(errPlain, errDown)} {
		r := newRig(t, policy(nil))
		tool := func(context.Context, int) (string, error) { return "value", err }

		got, gotErr := toolcircuit.Wrap(r.ToolCircuit, tool)(t.Context(), 0)
		require.Equal(t, "value", got)
		require.Equal(t, err, gotErr)
		result, gotErr := toolcircuit.WrapResult(r.ToolCircuit, tool)(t.Context(), 0)
		if gotErr != nil {
			require.Equal(t, err, gotErr)
			require.Zero(t, result)
			continue
		}
		require.NotEqual(t, result.Value != nil, result.Reason != "", "%v: %+v", err, result)
		require.Equal(t, result.Status == toolcircuit.StatusOK, result.Value != nil)
	}
}

// A duplicate that took longer than SlowCall counts as slow and stays ok: a model that reads of a
// failure pays again.
func TestSlowDuplicate(t *testing.T) {
	r := newRig(t, once(func(p *toolcircuit.Policy) { p.SlowCall = time.Second }))
	result, err := toolcircuit.DoResult(t.Context(), r.ToolCircuit, func(context.Context) (string, error) {
		add(2 * time.Second)(r)
		return "receipt", fmt.Errorf("pay: %w", toolcircuit.Duplicate(errOpaque))
	})
	require.NoError(t, err)
	require.Equal(t, toolcircuit.StatusOK, result.Status)
	require.Equal(t, "duplicate", result.Outcome)
	require.Equal(t, "receipt", *result.Value)
	require.Equal(t, toolcircuit.KindSlow, last(r).Kind)
}

// Whoever reads the circuit after the host slept sees what its calls meet.
func TestSnapshotAfterTheHostSlept(t *testing.T) {
	host := &suspended{Mock: clock.NewMock()}
	c := toolcircuit.MustNew("search-api", toolcircuit.Options{
		Clock: host, Policy: toolcircuit.Policy{FailureThreshold: 1, Cooldown: 10 * time.Minute},
	})
	require.Error(t, try(c, errDown))
	host.slept = 8 * time.Hour
	host.Add(time.Minute)
	require.False(t, c.Ready())
	require.Equal(t, open, c.State())
	require.Equal(t, open, c.Snapshot().State)
	require.Equal(t, host.Now().Add(9*time.Minute), c.Snapshot().RetryAt)
}
