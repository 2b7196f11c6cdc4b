package toolcircuit

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// tell returns b with the default message, or with that of Tool.Message if it returns one.
func tell(c *ToolCircuit, b Blocked, e *OpenError) Blocked {
	text := message(b, e, c.tool)
	if c.tool.Message != nil {
		c.safely(func() { text = cmp.Or(c.tool.Message(b), text) })
	}
	b.Message = text
	return b
}

// message returns the text of b, in under 60 words if each name is one word. It says what
// happened, that nothing was executed, why, until when, what not to do and what to do now. e is
// the refusal. For a failed call it is the refusal that the next call would meet, nil if none.
//
//   - It never invites an immediate retry, because a model accepts (juspay/neurolink#899).
//   - It never forbids anything without an end, because a model obeys for the rest of its session
//     (NousResearch/hermes-agent#56833).
//   - No word in it comes from a dependency.
func message(b Blocked, e *OpenError, t *Tool) string {
	tool, dependency := cmp.Or(b.Tool, "This tool"), cmp.Or(b.Dependency, "its dependency")
	if b.Reason == ReasonCallFailed {
		return failureMessage(b, e, t, tool, dependency)
	}

	what := " was not executed: "
	if b.Outcome == outcomeUnknown {
		what = " stopped part-way, its call not executed: "
	}
	ban := "do not call " + cmp.Or(b.Tool, "it")
	others := "this is temporary; other tools remain usable"
	var why, until, instead string
	switch b.Reason {
	case ReasonManualOpen:
		why = "an operator has switched " + dependency + " off"
		until = "until an operator lifts that"
		others = "other tools remain usable"
	case ReasonBusy:
		why = "every slot for " + dependency + " is taken"
		until = "until a running call has ended"
	case ReasonRepeatedCall:
		until = "with these arguments until a tool has changed something"
		others = "other arguments and other tools remain usable"
		if left := e.RetryAfter(); left > 0 {
			until = "with these arguments " + wait(ceil(left, time.Second), wholeSecond(e.clock.Now().Add(left)))
		}
		switch {
		case b.Cause == "" && e.RetryAt.IsZero():
			why = "copies of the same call to " + dependency + " are still running"
			until = "with these arguments until they have ended"
			instead = "wait for their result"
		case b.Cause == "" || b.Cause.effect() == EffectHeal:
			why = "this run sent the same call to " + dependency + " before, with the same result"
			instead = "use the result you have"
		case b.Cause.effect() == EffectCount, b.Cause == KindUnknown && t.SideEffects: // other arguments do not end an outage, and may pay twice
			why = "this run sent the same call before, and " + dependency + " " + plain(b.Cause)
			others = "other tools remain usable"
			if t.SideEffects && b.Cause != KindRateLimited { // which had no effect
				instead = "check whether an earlier call took effect"
			}
		default:
			why = "this run sent the same call before, and " + dependency + " " + plain(b.Cause)
			instead = cmp.Or(mends[b.Cause], "change the arguments")
		}
	case ReasonBudgetExhausted: // the budget is that of all tools
		switch b.Cause {
		case KindDeadline:
			why = "this run has no time left to call " + dependency
		case KindCanceled:
			why = "this run is over and calls " + dependency + " no more"
		default:
			why = "this run has no call left to " + dependency
		}
		until = "until the next run"
		others = ""
	default:
		why = dependency + " " + plain(b.Cause) + evidence(b, e)
		switch {
		case e.capped && b.State == StateHalfOpen:
			others = "other tools remain usable"
		case e.capped:
			others = "treat it as unavailable for this task; other tools remain usable"
		}
		switch {
		case b.RetryAt == nil:
			ban, until = "it is not known", "for how long"
		case b.State == StateHalfOpen && t.SideEffects: // it is refused before the trial begins, too
			ban = "a trial call goes first; " + ban
		case b.State == StateHalfOpen:
			ban = "one trial call is under way; " + ban
		}
		if b.RetryAt != nil {
			until = wait(seconds(b), *b.RetryAt)
		}
	}
	do := options(b, instead)
	if doubtful(b, t) {
		do = "before you call it again, check what it did"
	}
	return sentences(tool+what+why, others, ban+" "+until, do)
}

// failureMessage is [message] for a failed call.
func failureMessage(b Blocked, e *OpenError, t *Tool, tool, dependency string) string {
	what, why, doubt := " ran and failed: ", dependency+" "+plain(b.Cause), ""
	switch {
	case b.Outcome == outcomeUnknown:
		what, doubt = " failed: ", "whether it took effect is not known"
	case !*b.Executed:
		what, why = " was not executed: ", dependency+" could not be reached"
		if b.Cause == KindInvalid && b.Detail != "" {
			why = "its arguments are invalid"
		}
	}
	manual := e != nil && e.Reason == ReasonManualOpen
	ban := ""
	switch {
	case manual:
		ban = "an operator has switched " + dependency + " off: do not call it until an operator lifts that"
	case b.RetryAt != nil:
		ban = "do not call it " + wait(seconds(b), *b.RetryAt)
	}
	var hope, do string
	mend := "change the arguments"
	if b.Detail != "" && b.Cause == KindInvalid {
		mend += " as detail says"
	}
	switch {
	case doubtful(b, t):
		do = "before you call it again, check whether it did; if you cannot, tell the user"
	case manual:
		do = options(b, "")
	case *b.Retryable && e != nil && e.capped:
		hope, do = "treat it as unavailable for this task", options(b, "")
	case *b.Retryable && ban != "":
		hope, do = "this is temporary", options(b, "")
	case *b.Retryable:
		do = "this may be temporary: go on with other work before you call it once more"
	case b.Cause == KindUnauthorized:
		hope, do = "the same call cannot work until a person sets that right", options(b, "")
	case b.Cause == KindUnknown:
		hope, do = "nothing says whether the same call would work later", options(b, mend)
	default:
		hope, do = "the same call is not likely to work later", options(b, mend)
	}
	return sentences(tool+what+why, doubt, hope, ban, do)
}

// causes says what a dependency did, by the kind of the failure.
var causes = map[Kind]string{
	KindTimeout:      "did not answer in time",
	KindDeadline:     "did not answer by the deadline",
	KindUnavailable:  "was unreachable or broken",
	KindRateLimited:  "limited the rate of calls",
	KindSlow:         "answered too slowly",
	KindPanic:        "was called by code that crashed",
	KindUnauthorized: "refused access",
	KindInvalid:      "found the arguments invalid",
	KindNotFound:     "found no such thing",
	KindConflict:     "reported a conflict",
	KindUnknown:      "failed for unknown reasons",
}

// mends says what can correct a failure, if not other arguments.
var mends = map[Kind]string{
	KindUnauthorized: "let the user sign in",
	KindNotFound:     "look for what there is",
	KindConflict:     "look at the present state",
}

// plain returns what a dependency did to cause kind k.
func plain(k Kind) string { return cmp.Or(causes[k], "failed") }

// evidence returns what the circuit has counted. Only the threshold counts "in a row".
func evidence(b Blocked, e *OpenError) string {
	switch {
	case e.capped:
		return " and stayed down through " + count(e.Openings, "opening")
	case b.Rule == RuleProbe:
		return " (a trial call failed)"
	case b.Rule == RulePause, b.Failures < 1:
		return ""
	case b.Rule == RuleThreshold && b.Failures > 1:
		return " (" + count(b.Failures, "failure") + " in a row)"
	}
	return " (" + count(b.Failures, "failure") + ")"
}

// options returns a sentence on what to do instead of the call: first, if it is not empty, then
// the two best of b's NextActions.
func options(b Blocked, first string) string {
	var steps []string
	if first != "" {
		steps = append(steps, first)
	}
	for _, a := range b.NextActions[:min(2, len(b.NextActions))] {
		switch a {
		case ActionAnswerWithout:
			steps = append(steps, "answer without it and say what is missing")
		case ActionUseAlternative:
			others := strings.Join(b.Alternatives[:min(2, len(b.Alternatives))], " or ")
			steps = append(steps, "use "+cmp.Or(others, "another tool"))
		case ActionPause:
			steps = append(steps, "go on with other work first")
		case ActionEscalate:
			steps = append(steps, "tell the user")
		}
	}
	return strings.Join(steps, ", or ")
}

// wait returns for how many seconds, and until when, something lasts. From a day on it includes
// the date.
func wait(seconds int64, until time.Time) string {
	layout := "15:04:05 MST"
	if seconds >= 24*60*60 {
		layout = "2006-01-02 " + layout
	}
	return fmt.Sprintf("for %d s, until %s", seconds, until.Format(layout))
}

// seconds returns b's RetryAfterMS in seconds, rounded up.
func seconds(b Blocked) int64 { return (b.RetryAfterMS + 999) / 1000 }

// count returns n and noun, which is plural unless n is 1.
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprint(n, " ", noun)
}

// sentences makes a sentence of each text that is not empty. It keeps the first letter of the
// first, because that may be a name.
func sentences(first string, more ...string) string {
	text := first + "."
	for _, s := range more {
		if s != "" {
			text += " " + strings.ToUpper(s[:1]) + s[1:] + "."
		}
	}
	return text
}

// stayAway writes into b that the tool must not be called for d. RetryAt counts from now, because
// the wall clock may have jumped since the circuit opened (freenet/freenet-core#2976).
func (b *Blocked) stayAway(now time.Time, d time.Duration) {
	b.RetryAfterMS = max(ceil(d, time.Millisecond), 1)
	b.RetryAt = ptr(wholeSecond(now.Add(d)))
}

// hint returns how long a model is told to wait: e's RetryAfter. If that was computed, a part of
// up to the share Jitter of the full wait is added, because models that obey would otherwise
// return at one moment. While a probe runs the full wait is not known, and the share is that of
// RetryAfter.
func (c *ToolCircuit) hint(e *OpenError) time.Duration {
	left, full := e.RetryAfter(), e.wait
	if left == 0 || e.jitter == 0 {
		return left
	}
	if e.trial {
		full = left
	}
	more := time.Duration(e.jitter * c.spread() * float64(full))
	return left + min(more, math.MaxInt64-left)
}

// spread returns a number in [0, 1) that depends on the circuit and on how often it was called.
// Steps of the golden ratio lie evenly, however many there are.
func (c *circuit) spread() float64 {
	n := c.salt() + c.hints.Add(1)*0x9E3779B97F4A7C15
	return float64(n>>11) / (1 << 53)
}

// detail writes into b what the tool tells the model about err.
func (c *ToolCircuit) detail(b *Blocked, err error) {
	if b.Cause == KindInvalid {
		c.safely(func() { b.Detail, _ = invalidText(err) }) // methods of err may panic
	}
	if c.tool.Detail != nil {
		c.safely(func() { b.Detail = cmp.Or(c.tool.Detail(err), b.Detail) })
	}
	b.Detail = cut(strings.ToValidUTF8(b.Detail, "\uFFFD"), 500)
}

// cut returns the longest beginning of text that has whole runes and at most n bytes.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// ceil returns d in units, rounded up.
func ceil(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// wholeSecond returns t in UTC, rounded up to the second.
func wholeSecond(t time.Time) time.Time { return t.UTC().Add(time.Second - 1).Truncate(time.Second) }
