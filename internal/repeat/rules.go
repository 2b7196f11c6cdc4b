package repeat

import (
	"cmp"
	"time"
)

// A call may be repeated only while something happened that could change its answer: time at the
// pace of a poll, a wait that was asked for and observed, news, an effect, or a turn.
//
//	kind                               held                       freed by
//	answer                             Repeats fast rounds        Pause, news of a guarded call, effect, turn
//	invalid                            after the first            effect
//	not_found, conflict, unauthorized  after the first            Poll, news up to Repeats, effect or doubt, turn
//	unknown                            Repeats in a row           Pause, after news Poll, effect
//	the others                         Repeats in a row           Pause, after news or an effect Poll
//
// A wait of a second or more that the dependency or its circuit asked for frees any call when it
// is over, and what comes of that call starts at one. An answer that comes again after the hold of
// its round is held for Poll. News is a new answer to a call that began after the outcome was
// known. Poll counts from start to start, Pause from the latest outcome.

// Reason says why a call is refused, and so what ends that.
type Reason int

// The reasons.
const (
	Copies   Reason = iota + 1 // copies of the call are under way; ends when they have ended
	Failures                   // it fails again and again; ends at RetryAt at the latest
	Final                      // a repeat by itself cannot mend its failure; ends by a change, or at RetryAt
	Answers                    // it gives the same answers again and again; ends at RetryAt at the latest
)

// Refusal says why a call must not begin.
type Refusal struct {
	Reason  Reason
	Kind    string    // of the failure; empty under Copies and Answers
	RetryAt time.Time // when it ends unless something ends it before; zero: no time is known
}

// minWait is the shortest wait that counts as one (amd/gaia#3908 waits a second each).
const minWait = time.Second

// refusal returns why a call must not begin, nil if it may.
func (p *Past) refusal(r *record, now time.Time) *Refusal {
	if r.running >= p.limits.Copies {
		return &Refusal{Reason: Copies}
	}
	// Failures known and failures to come stay under Repeats together. An old failure says nothing
	// about a batch.
	if known := p.known(r, now); r.running > 0 && known > 0 && known+r.running >= p.limits.Repeats &&
		now.Sub(r.at) < p.limits.Pause {
		return &Refusal{Reason: Copies}
	}
	return p.hold(r, now)
}

// hold returns why a call would repeat itself to no avail, nil if it would not.
func (p *Past) hold(r *record, now time.Time) *Refusal {
	if r.honours(now) {
		return nil
	}
	f, l := p.failed(r), p.looped(r)
	if f != nil && l != nil && (f.RetryAt.IsZero() || f.RetryAt.After(l.RetryAt)) {
		l = nil // the one that ends last
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

// failed returns the hold on a call that fails, also if it is over, nil if there is none.
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

// looped returns the hold on a call that belongs to a round, also if it is over, nil if there is
// none.
func (p *Past) looped(r *record) *Refusal {
	l := &r.loop
	if !p.standing(l, p.epoch) {
		return nil
	}
	end := l.at.Add(p.limits.Pause)
	if poll := l.start.Add(p.limits.Poll); (l.again || p.limits.Repeats == 1) && poll.Before(end) {
		end = poll // a single call has no pace
	}
	return &Refusal{Reason: Answers, RetryAt: end}
}

// standing reports whether nothing but time has happened to a loop by an epoch.
func (p *Past) standing(l *loop, e epoch) bool {
	return !l.at.IsZero() && l.after == e && p.guarded <= l.known
}

// known returns how many failures in a row say something about a call that begins now.
func (p *Past) known(r *record, now time.Time) int {
	if r.honours(now) || !r.failure.standsIn(p.epoch) {
		return 0
	}
	return r.failure.times
}

// class returns the kind that stands for all kinds with the same rule.
func class(kind string) string {
	switch kind {
	case kindConflict, kindUnauthorized:
		return kindNotFound
	case kindInvalid, kindNotFound, kindUnknown:
		return kind
	}
	return ""
}

// standsIn reports whether f says something about a call in an epoch. An effect in doubt mends no
// other failures, or failing writes would excuse one another.
func (f *failure) standsIn(e epoch) bool {
	switch class(f.kind) {
	case kindNotFound:
		return f.before == e
	case kindInvalid, kindUnknown:
		return f.before.effects == e.effects
	}
	return true
}

// asked reports whether somebody asked to wait before the next call.
func (r *record) asked() bool { return !r.wait.IsZero() && r.wait.Sub(r.at) >= minWait }

// honours reports whether a call that begins now has waited as asked.
func (r *record) honours(now time.Time) bool { return r.asked() && !now.Before(r.wait) }
