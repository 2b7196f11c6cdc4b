package repeat

import (
	"cmp"
	"time"
)

// A call may be repeated only after something that could change its outcome. Otherwise it is held:
//
//	kind                               held after                 until
//	answer                             Repeats fast rounds        Pause, news of a guarded call, effect or doubt, turn
//	invalid                            the first                  effect
//	not_found, conflict, unauthorized  the first                  Poll, news below Repeats, effect or doubt, turn
//	unknown                            Repeats in a row           Pause, after news Poll, effect
//	the others                         Repeats in a row           Pause, after news or an effect Poll
//
// If the dependency or its circuit asks for a wait of a second or more, any call is free once that
// is over, and its outcome counts from one. An answer that comes again after the hold of its round
// is held for Poll. News is a new answer to a call that began after the outcome was known. Poll
// counts from start to start, Pause from the latest outcome.

// Reason says why a call is refused.
type Reason int

// The reasons.
const (
	Copies   Reason = iota + 1 // copies of the call are under way; until they have ended
	Failures                   // it fails again and again; until RetryAt at the latest
	Final                      // a repeat cannot correct its failure; until a change, or RetryAt
	Answers                    // it gives the same answers again and again; until RetryAt at the latest
)

// Refusal says why a call must not begin.
type Refusal struct {
	Reason  Reason
	Kind    string    // of the failure; empty under Copies and Answers
	RetryAt time.Time // until when, unless something ends it before; zero if no time is known
}

// minWait is the shortest wait that counts as asked for (amd/gaia#3908 waits a second each).
const minWait = time.Second

// refusal returns why a call must not begin, or nil.
func (p *Past) refusal(r *record, now time.Time) *Refusal {
	if r.running >= p.limits.Copies {
		return &Refusal{Reason: Copies}
	}
	// Known failures and copies under way stay below Repeats together. A failure older than Pause
	// says nothing about a batch.
	if known := p.known(r, now); r.running > 0 && known > 0 && known+r.running >= p.limits.Repeats &&
		now.Sub(r.at) < p.limits.Pause {
		return &Refusal{Reason: Copies}
	}
	return p.hold(r, now)
}

// hold returns why a call would repeat itself to no avail, or nil.
func (p *Past) hold(r *record, now time.Time) *Refusal {
	if r.honours(now) {
		return nil
	}
	f, l := p.failed(r), p.looped(r)
	if f != nil && l != nil && (f.RetryAt.IsZero() || f.RetryAt.After(l.RetryAt)) {
		l = nil // the hold that ends last decides
	}
	h := cmp.Or(l, f)
	if h == nil || !h.RetryAt.IsZero() && !now.Before(h.RetryAt) {
		return nil
	}
	if w := r.wait; r.asked() && (h.RetryAt.IsZero() || w.Before(h.RetryAt)) {
		h.RetryAt = w
	}
	if !h.RetryAt.IsZero() {
		h.RetryAt = now.Add(h.RetryAt.Sub(now)) // in the wall time of now, also if the host slept
	}
	return h
}

// failed returns the hold on a call that fails, even if its time is over, or nil.
func (p *Past) failed(r *record) *Refusal {
	f := &r.failure
	if f.times == 0 || !f.standsIn(p.epoch) {
		return nil
	}
	poll := f.start.Add(p.limits.Poll)
	news := p.news > f.known
	switch class(f.kind) {
	case kindInvalid:
		return &Refusal{Reason: Final, Kind: f.kind}
	case kindNotFound:
		if news && f.times < p.limits.Repeats {
			return nil
		}
		return &Refusal{Reason: Final, Kind: f.kind, RetryAt: poll}
	}
	if f.times < p.limits.Repeats {
		return nil
	}
	end := r.at.Add(p.limits.Pause)
	if (news || f.before.effects != p.epoch.effects) && poll.Before(end) {
		end = poll
	}
	return &Refusal{Reason: Failures, Kind: f.kind, RetryAt: end}
}

// looped returns the hold on a call that belongs to a round, even if its time is over, or nil.
func (p *Past) looped(r *record) *Refusal {
	l := &r.loop
	if !p.standing(l, p.epoch) {
		return nil
	}
	end := l.at.Add(p.limits.Pause)
	if poll := l.start.Add(p.limits.Poll); (l.again || p.limits.Repeats == 1) && poll.Before(end) {
		end = poll // one call alone has no pace
	}
	return &Refusal{Reason: Answers, RetryAt: end}
}

// standing reports whether a loop still holds in epoch e: since then there was no news of a
// guarded call, no effect, none in doubt and no turn.
func (p *Past) standing(l *loop, e epoch) bool {
	return !l.at.IsZero() && l.after == e && p.guarded <= l.known
}

// known returns how many failures in a row count for a call that begins now.
func (p *Past) known(r *record, now time.Time) int {
	if r.honours(now) || !r.failure.standsIn(p.epoch) {
		return 0
	}
	return r.failure.times
}

// class returns one kind for all kinds with the same rule, "" for the others.
func class(kind string) string {
	switch kind {
	case kindConflict, kindUnauthorized:
		return kindNotFound
	case kindInvalid, kindNotFound, kindUnknown:
		return kind
	}
	return ""
}

// standsIn reports whether f counts for a call in an epoch. An effect in doubt ends only the kinds
// of not_found. Otherwise failing writes would excuse one another.
func (f *failure) standsIn(e epoch) bool {
	switch class(f.kind) {
	case kindNotFound:
		return f.before == e
	case kindInvalid, kindUnknown:
		return f.before.effects == e.effects
	}
	return true
}

// asked reports whether somebody asked for a wait before the next call.
func (r *record) asked() bool { return !r.wait.IsZero() && r.wait.Sub(r.at) >= minWait }

// honours reports whether a call that begins now has waited as asked.
func (r *record) honours(now time.Time) bool { return r.asked() && !now.Before(r.wait) }
