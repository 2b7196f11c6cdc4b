package mcp

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// visit is the right to send one request, and the session to send it on.
type visit[S comparable] struct {
	entry   toolset.Permit // of the server's circuit
	session S
	gen     int
	late    bool // the entry is settled when a ping has told
}

// leave gives the entry back, unless it was settled or is to be.
func (v *visit[S]) leave() {
	if !v.late {
		v.entry.Release()
	}
}

// enter waits for a session and takes the server's permit to send on it, which is no probe. Where a
// probe is due it makes one. counted says that a refusal is one of the run's.
func (x *Exchange[S, R]) enter(ctx context.Context, timeout time.Duration, counted bool) (*visit[S], error) {
	for {
		v := new(visit[S])
		if x.Circuit != nil {
			if err := x.allow(ctx, v, counted); err != nil {
				return nil, err
			}
		}
		var dead bool
		v.session, v.gen, dead = x.Line.Now()
		dead = dead && x.renews()
		if !dead && !v.entry.Probe() {
			return v, nil
		}
		if dead {
			if err := x.renew(ctx, v, counted); err != nil {
				return nil, err
			}
		} else if err := x.probe(ctx, v, timeout); errors.Is(err, toolcircuit.ErrCircuitOpen) {
			return nil, err
		}
		if !v.entry.Probe() {
			return v, nil
		}
	}
}

// allow asks the server's circuit. A run counts the call already, but not that the server's circuit
// refuses it.
func (x *Exchange[S, R]) allow(ctx context.Context, v *visit[S], counted bool) (err error) {
	name := Prefix + x.Server.Name
	if counted && !x.Circuit.Ready() {
		permit, err := x.Set.Allow(ctx, name, toolset.Unknown)
		if err != nil {
			return err
		}
		permit.Release()
	}
	v.entry, err = x.Set.Allow(toolset.WithSession(ctx, nil), name, toolset.Unknown)
	return err
}

// renew waits for another session in the place of a dead one. For as long as Line.Timeout failed
// attempts open the circuit only until the next one is due, or for as long as a Retry-After asks;
// after that each is a failure of the server.
func (x *Exchange[S, R]) renew(ctx context.Context, v *visit[S], counted bool) (err error) {
	v.session, v.gen, err = x.Line.Await(ctx, v.entry.Probe())
	switch {
	case err == nil:
		if v.entry.Probe() {
			v.entry.Settle(ctx, nil, nil)
		}
		return nil
	case ctx.Err() != nil, errors.Is(err, ErrClosed):
		v.entry.Release()
		return err
	case errors.Is(err, toolcircuit.ErrCircuitOpen): // of a circuit around Reconnect
		v.entry.Settle(ctx, nil, err)
		return err
	case x.Circuit == nil:
		return &unrenewed{err, true}
	}
	var attempt *failure
	news := errors.As(err, &attempt) && attempt.news(x.Circuit)
	meaning := toolcircuit.Classify(ctx, toolcircuit.Outcome{Err: err})
	own := meaning.Kind == toolcircuit.KindUnauthorized
	switch wait, early := x.Line.Pause(); {
	case !news && !v.entry.Probe(): // one attempt is one outcome, however many wait for it
		v.entry.Release()
	case own: // it answered, and whoever calls has to do something
		v.entry.Settle(ctx, nil, nil)
	case early:
		v.entry.Settle(ctx, nil, toolcircuit.RetryAfter(Unanswered(err), max(wait, meaning.RetryAfter)))
	default:
		v.entry.Settle(ctx, nil, toolcircuit.Fault(Unanswered(err)))
	}
	if own {
		return &unrenewed{err, true}
	}
	again := new(visit[S])
	if refusal := x.allow(ctx, again, counted); refusal != nil {
		return refusal
	}
	again.entry.Release()
	return &unrenewed{err, false}
}

// unrenewed is the error of a call for which there is no session, where no circuit refuses it.
type unrenewed struct {
	error
	own bool // the call's own: nothing more is to be said
}

func (e *unrenewed) Unwrap() error { return e.error }

// paused returns the refusal of a dependency that failed with err and is tried again after wait, whose
// circuit may be closed.
func paused(dependency string, err error, wait time.Duration) error {
	ctx := context.Background()
	c := toolcircuit.MustNew(dependency, toolcircuit.Options{})
	p, _ := c.Allow(ctx)
	p.Settle(ctx, nil, toolcircuit.RetryAfter(Unanswered(err), wait))
	_, err = c.Allow(ctx)
	return err
}

// probe finds out whether the server is back.
func (x *Exchange[S, R]) probe(ctx context.Context, v *visit[S], timeout time.Duration) (err error) {
	err = toolcircuit.ErrNoReturn
	defer func() { v.entry.Settle(ctx, nil, err) }()
	inner, cancel := x.pingTimeout(ctx, timeout)
	defer cancel()
	if err = x.ping(inner, v); err != nil {
		err = toolcircuit.Fault(err)
	}
	if _, gen, dead := x.Line.Now(); err != nil && dead && gen == v.gen && x.renews() {
		v.entry.Release() // the next round renews it
	}
	return err
}

// pingTimeout bounds a ping: its caller waits for it no longer than for an answer.
func (x *Exchange[S, R]) pingTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	p := x.Circuit.Snapshot().Policy
	d := cmp.Or(p.CallTimeout, p.ProbeTimeout)
	ctx, cancel := context.WithTimeout(ctx, min(d, cmp.Or(timeout, d)))
	stop := context.AfterFunc(x.Base, cancel)
	return ctx, func() { stop(); cancel() }
}

// ping returns nil if the server is there, whatever it answers. That the session is gone a ping
// learns from the SDK alone: a gateway may refuse a ping and let calls through.
func (x *Exchange[S, R]) ping(ctx context.Context, v *visit[S]) error {
	h := &Hint{Shield: ShieldPing}
	err := x.Ping(WithHint(ctx, h), v.session)
	if err == nil || h.Served() {
		return nil
	}
	r := h.Read(ctx, err, x.Signs(err))
	if r.Gone {
		x.Line.Gone(v.gen)
	}
	if r.Answered {
		return nil
	}
	return r.Err
}
