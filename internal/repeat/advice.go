package repeat

import (
	"fmt"
	"slices"
	"time"
)

// warning is advice that is not in a result yet.
type warning struct {
	tool  string
	about *record
}

// warn keeps the advice about a call until a result takes it.
func (p *Past) warn(tool string, r *record) {
	if len(p.advice) == p.limits.Memory {
		p.advice = slices.Delete(p.advice, 0, 1)
	}
	p.advice = append(p.advice, warning{tool, r})
}

// Advise returns the advice for the model that belongs into the result of a call, in under 60
// words, or "". It returns advice at most once per call and turn (Gitlawb/openclaude#2048), and
// only while the call would be refused. The advice is about the tool of the call only
// (NousResearch/hermes-agent#28592).
func (p *Past) Advise(id Digest, now time.Time) string {
	return p.take(now, func(w warning, _ *Refusal) bool { return w.about.id == id })
}

// AdviseTool is Advise for a result of which only the tool and the kind of the outcome are known.
// An empty kind is not known. The advice is about a call of that tool with an outcome of that
// kind, so it is true in the result of any such call.
func (p *Past) AdviseTool(tool, kind string, now time.Time) string {
	every := kind == ""
	if o := (step{kind: kind}); o.answers() || kind == kindSlow {
		kind = "" // as in a Refusal
	}
	return p.take(now, func(w warning, h *Refusal) bool { return w.tool == tool && (every || h.Kind == kind) })
}

// take returns the latest advice that match accepts and whose call would be refused now, or "". It
// drops that advice, and on the way all advice whose call would not be refused.
func (p *Past) take(now time.Time, match func(warning, *Refusal) bool) (text string) {
	for i := len(p.advice) - 1; i >= 0 && text == ""; i-- {
		w := p.advice[i]
		h := p.hold(w.about, now)
		if h != nil && !match(w, h) {
			continue
		}
		p.advice = slices.Delete(p.advice, i, i+1)
		if h != nil {
			text = p.advise(w, h, now)
		}
	}
	return text
}

// advise returns the text of the advice.
func (p *Past) advise(w warning, h *Refusal, now time.Time) string {
	until := "until a tool has changed something"
	if !h.RetryAt.IsZero() {
		left := (h.RetryAt.Sub(now) + time.Second - 1) / time.Second
		layout := "15:04:05 MST"
		if left >= 24*60*60 {
			layout = "2006-01-02 " + layout
		}
		until = fmt.Sprintf("for at most %d s, until %s", left, h.RetryAt.UTC().Add(time.Second-1).Format(layout))
	}
	what, usable, do := p.explain(h, w.about)
	return fmt.Sprintf("This or an earlier call of %s %s. Repeated at once with the same arguments it will be refused, %s. %s remain usable. %s",
		w.tool, what, until, usable, do)
}

// explain returns what the call did, what stays usable and what helps.
func (p *Past) explain(h *Refusal, r *record) (what, usable, do string) {
	usable = "Other arguments and other tools"
	switch h.Reason {
	case Answers:
		return "gave the same result again and again", usable,
			fmt.Sprintf("Use the result you have. To wait for a change, leave %v between calls.", p.limits.Poll)
	case Final:
		what = "failed in a way that a repeat cannot mend by itself: "
	default:
		what = fmt.Sprintf("failed in the same way, in a row: %d", r.failure.times)
	}
	switch h.Kind {
	case kindInvalid:
		return what + "the arguments are invalid", usable, "Change the arguments."
	case kindNotFound:
		return what + "there is no such thing", usable, "Look for what there is, or create it first."
	case kindConflict:
		return what + "it conflicts with the present state", usable, "Look at that state, then change the arguments."
	case kindUnauthorized:
		return what + "access was refused", usable, "Tell the user, who may have to sign in."
	case kindUnknown:
		do = "Change the arguments or try another way."
	case kindRateLimited:
		do = "Go on with other work for now."
	default:
		usable, do = "Other tools", "Go on without it for now."
	}
	if r.writes { // other arguments may pay twice
		usable, do = "Other tools", "Check whether an earlier call took effect."
	}
	return what, usable, do
}
