package repeat

import (
	"fmt"
	"time"
)

// warn keeps an advice about a call until a result of its tool takes it.
func (p *Past) warn(tool string, r *record) {
	if p.advice == nil {
		p.advice = map[Digest]*record{}
	}
	if len(p.advice) < p.limits.Memory {
		p.advice[digestOf([]byte(tool))] = r
	}
}

// Advise returns the advice about a tool for the model, in under 60 words, or "". It comes at most
// once per call and turn (Gitlawb/openclaude#2048), and only while the call would be refused. It
// limits itself to that tool (NousResearch/hermes-agent#28592), and is true in the result of any
// of its calls.
func (p *Past) Advise(tool string, now time.Time) string {
	if len(p.advice) == 0 {
		return ""
	}
	key := digestOf([]byte(tool))
	r := p.advice[key]
	if r == nil {
		return ""
	}
	delete(p.advice, key)
	h := p.hold(r, now)
	if h == nil {
		return ""
	}
	until := "until a tool has changed something"
	if !h.RetryAt.IsZero() {
		left := (h.RetryAt.Sub(now) + time.Second - 1) / time.Second
		end := h.RetryAt.UTC().Add(time.Second - 1)
		until = fmt.Sprintf("for at most %d s, until %s", left, end.Format("15:04:05 MST"))
	}
	what, usable, do := p.explain(h, r)
	return fmt.Sprintf("This or an earlier call of %s %s. Repeated at once with the same arguments it will be refused, %s. %s remain usable. %s",
		tool, what, until, usable, do)
}

// explain returns what a call did, what remains usable and what would help.
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
	if r.writes {
		do = "Check whether an earlier call took effect."
	}
	return what, usable, do
}
