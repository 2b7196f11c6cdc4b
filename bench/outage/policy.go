package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	resiliency "github.com/eapache/go-resiliency/breaker"
	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	rubyist "github.com/rubyist/circuitbreaker"
	"github.com/sony/gobreaker/v2"
	gozero "github.com/zeromicro/go-zero/core/breaker"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/core/stat"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// policy is what stands between the agents and the dependency, shared by all agents of a run.
type policy interface {
	// call runs op at most once, unless the policy retries. The agent's goroutine has the slot.
	call(ctx context.Context, a *agent, slot int, op func(context.Context) error) reply
	// probing reports, inside of op, whether the circuit was not closed when it let op through.
	probing(ctx context.Context) bool
	// hidden reports whether the agent is not offered the tool now.
	hidden(a *agent) bool
}

// choice is one policy to try.
type choice struct {
	name string
	kind kind
	make func(t *trace, seed uint64) policy
}

type kind int

const (
	plain kind = iota // no circuit
	peer
	own
)

// gobreakerName is the policy that the bars compare with.
const gobreakerName = "gobreaker"

// ownName is this library as it comes.
const ownName = "toolcircuit"

// choices are the policies in the order in which they are reported. Of each peer the first is
// what it does by default, the second what its documentation shows: its own example, errors that
// are the caller's left out by the hook that is there for that, and a Retry-After where it can
// be handed over. eapache/go-resiliency and rubyist/circuitbreaker have no default threshold.
//
// hystrix-go is not here: its goroutines never end, which simulated time does not allow.
var choices = []choice{
	{"none", plain, func(*trace, uint64) policy { return bare{} }},
	{"backoff alone", plain, func(_ *trace, seed uint64) policy {
		return backoff{rand.New(rand.NewPCG(seed, 1<<33))}
	}},

	{gobreakerName, peer, func(*trace, uint64) policy { return sony(gobreaker.Settings{}) }},
	{gobreakerName + " advised", peer, func(*trace, uint64) policy {
		return sony(gobreaker.Settings{
			ReadyToTrip: func(c gobreaker.Counts) bool {
				return c.Requests >= 3 && float64(c.TotalFailures)/float64(c.Requests) >= 0.6
			},
			IsExcluded:   func(err error) bool { return errors.Is(err, context.Canceled) },
			IsSuccessful: func(err error) bool { return err == nil || mistaken(err) },
		})
	}},
	{"failsafe-go", peer, func(*trace, uint64) policy {
		return failsafely(circuitbreaker.NewWithDefaults[any]())
	}},
	{"failsafe-go advised", peer, func(*trace, uint64) policy {
		return failsafely(circuitbreaker.NewBuilder[any]().
			HandleIf(func(_ any, err error) bool { return err != nil && !caller(err) }).
			WithFailureThreshold(5).WithSuccessThreshold(2).
			WithDelay(time.Minute).
			WithDelayFunc(func(e failsafe.ExecutionAttempt[any]) time.Duration {
				if after := retryAfter(e.LastError()); after > 0 {
					return after
				}
				return -1
			}).Build())
	}},
	{"eapache advised", peer, func(*trace, uint64) policy {
		b := resiliency.New(3, 1, 5*time.Second)
		return closure{
			run: func(ctx context.Context, op func(context.Context) error) error {
				return b.Run(func() error { return op(ctx) })
			},
			trial: func() bool { return b.GetState() != resiliency.Closed },
		}
	}},
	{"rubyist consecutive", peer, func(_ *trace, seed uint64) policy {
		return rubyists(seed, rubyist.ConsecutiveTripFunc(10))
	}},
	{"rubyist rate", peer, func(_ *trace, seed uint64) policy {
		return rubyists(seed, rubyist.RateTripFunc(0.95, 100))
	}},
	{"go-zero", peer, func(*trace, uint64) policy {
		b := gozero.NewBreaker(gozero.WithName("search"))
		return closure{run: func(ctx context.Context, op func(context.Context) error) error {
			return b.DoCtx(ctx, func() error { return op(ctx) })
		}}
	}},
	{"go-zero advised", peer, func(*trace, uint64) policy {
		b := gozero.NewBreaker(gozero.WithName("search"))
		return closure{run: func(ctx context.Context, op func(context.Context) error) error {
			return b.DoWithAcceptableCtx(ctx, func() error { return op(ctx) },
				func(err error) bool { return err == nil || caller(err) })
		}}
	}},

	{ownName, own, func(_ *trace, seed uint64) policy { return single(seed, toolcircuit.Policy{}) }},
	{ownName + " calibrated", own, func(t *trace, seed uint64) policy {
		return single(seed, toolcircuit.Policy{
			FailureThreshold: 3,
			FailureRate:      0.5,
			CallTimeout:      3 * t.Latency[1].Duration,
			Jitter:           0.1,
		})
	}},
	{ownName + " Set, hides", own, func(t *trace, seed uint64) policy { return newSet(seed, nil) }},
	{ownName + " Session", own, func(t *trace, seed uint64) policy {
		return newSet(seed, make([]*toolset.Session, t.Agents))
	}},
}

// mistaken reports whether an error is a mistake of the caller.
func mistaken(err error) bool {
	var e *statusError
	return errors.As(err, &e) && e.StatusCode < 500 && e.StatusCode != http.StatusTooManyRequests
}

// caller reports whether an error says nothing of the dependency.
func caller(err error) bool { return mistaken(err) || errors.Is(err, context.Canceled) }

// bare is no policy.
type bare struct{}

func (bare) probing(context.Context) bool { return false }
func (bare) hidden(*agent) bool           { return false }
func (bare) call(ctx context.Context, _ *agent, _ int, op func(context.Context) error) reply {
	return replyOf(op(ctx))
}

// replyOf is the reply of a policy that hands on errors.
func replyOf(err error) reply { return reply{ok: err == nil, err: err} }

// backoff repeats a failed call up to three times, after 0.5, 0.75 and 1.125 s give or take half,
// or after the Retry-After if that is longer, as far as the deadline allows.
type backoff struct{ rng *rand.Rand }

func (backoff) probing(context.Context) bool { return false }
func (backoff) hidden(*agent) bool           { return false }
func (b backoff) call(ctx context.Context, a *agent, slot int, op func(context.Context) error) reply {
	wait := 500 * time.Millisecond
	for range 3 {
		err := op(ctx)
		if err == nil || caller(err) {
			return replyOf(err)
		}
		a.mu.Lock()
		pause := time.Duration(float64(wait) * (0.5 + b.rng.Float64()))
		a.mu.Unlock()
		pause = max(pause, retryAfter(err))
		if deadline, _ := ctx.Deadline(); time.Until(deadline) <= pause || !sleep(ctx, slot, pause) {
			return replyOf(err)
		}
		wait = wait * 3 / 2
	}
	return replyOf(op(ctx))
}

// closure is a peer that runs a call inside of a function.
type closure struct {
	run   func(ctx context.Context, op func(context.Context) error) error
	trial func() bool // nil: it has no half-open state
}

func (c closure) probing(context.Context) bool { return c.trial != nil && c.trial() }
func (c closure) hidden(*agent) bool           { return false }
func (c closure) call(ctx context.Context, _ *agent, _ int, op func(context.Context) error) reply {
	return replyOf(c.run(ctx, op))
}

func sony(s gobreaker.Settings) policy {
	cb := gobreaker.NewCircuitBreaker[struct{}](s)
	return closure{
		run: func(ctx context.Context, op func(context.Context) error) error {
			_, err := cb.Execute(func() (struct{}, error) { return struct{}{}, op(ctx) })
			return err
		},
		trial: func() bool { return cb.State() != gobreaker.StateClosed },
	}
}

func failsafely(cb circuitbreaker.CircuitBreaker[any]) policy {
	e := failsafe.With[any](cb)
	return closure{
		run: func(ctx context.Context, op func(context.Context) error) error {
			return e.WithContext(ctx).Run(func() error { return op(ctx) })
		},
		trial: func() bool { return !cb.IsClosed() },
	}
}

func rubyists(seed uint64, trip rubyist.TripFunc) policy {
	b := rubyist.NewBreakerWithOptions(&rubyist.Options{BackOff: newCurve(seed), ShouldTrip: trip})
	return closure{
		run: func(ctx context.Context, op func(context.Context) error) error {
			return b.CallContext(ctx, func() error { return op(ctx) }, 0)
		},
		trial: b.Tripped,
	}
}

// curve is rubyist's default: 0.5 s, growing by half to a minute, give or take half. Its own draws
// from the process's random numbers, which would make each run another.
type curve struct {
	rng  *rand.Rand
	next time.Duration
}

func newCurve(seed uint64) *curve {
	c := &curve{rng: rand.New(rand.NewPCG(seed, 1<<34))}
	c.Reset()
	return c
}

func (c *curve) Reset() { c.next = 500 * time.Millisecond }

func (c *curve) NextBackOff() time.Duration {
	wait := time.Duration(float64(c.next) * (0.5 + c.rng.Float64()))
	c.next = min(c.next*3/2, time.Minute)
	return wait
}

func init() { // go-zero's logs
	stat.SetReporter(nil)
	logx.Disable()
}

// circuit is this library, one circuit as a model uses it.
type circuit struct{ *toolcircuit.ToolCircuit }

func single(seed uint64, p toolcircuit.Policy) policy {
	return circuit{toolcircuit.MustNew("search", toolcircuit.Options{Policy: p, Seed: seed})}
}

func (circuit) probing(ctx context.Context) bool { return toolcircuit.IsProbe(ctx) }
func (circuit) hidden(*agent) bool               { return false }
func (c circuit) call(ctx context.Context, _ *agent, _ int, op func(context.Context) error) reply {
	return result(toolcircuit.DoResult(ctx, c.ToolCircuit, nothing(op)))
}

// nothing makes an operation of one without a value.
func nothing(op func(context.Context) error) func(context.Context) (struct{}, error) {
	return func(ctx context.Context) (struct{}, error) { return struct{}{}, op(ctx) }
}

// result is the reply of this library: the model reads a Result, not the error.
func result(r toolcircuit.Result[struct{}], err error) reply {
	if err != nil {
		return replyOf(err)
	}
	return reply{
		ok:   r.Status == toolcircuit.StatusOK,
		hint: time.Duration(r.RetryAfterMS) * time.Millisecond,
	}
}

// set is this library with the circuits in a Set that hides the tool, or with a session for each
// agent.
type set struct {
	*toolset.Set
	sessions []*toolset.Session // nil: the tool is hidden instead
}

func newSet(seed uint64, sessions []*toolset.Session) policy {
	c := toolset.Config{Monitored: []string{"search"}}
	if sessions == nil {
		// A second tool, because a Set never hides the last one.
		c.Monitored, c.Hide = append(c.Monitored, "other"), toolset.HideOpen
	}
	s, err := toolset.New(c, toolset.Options{Seed: seed})
	if err != nil {
		panic(err)
	}
	return &set{s, sessions}
}

func (s *set) probing(ctx context.Context) bool { return toolcircuit.IsProbe(ctx) }

func (s *set) hidden(*agent) bool {
	if s.sessions != nil {
		return false
	}
	shown := toolset.Visible(context.Background(), s.Set, []string{"search", "other"},
		func(name string) string { return name })
	return shown[0] != "search"
}

func (s *set) call(ctx context.Context, a *agent, slot int, op func(context.Context) error) reply {
	r, err := toolset.DoResult(s.in(ctx, a), s.Set, "search", []int{a.step, slot}, nothing(op))
	if r.EndTurn {
		s.sessions[a.id].NextTurn() // the agent answers its user, who asks again later
	}
	return result(r, err)
}

// in returns ctx with the agent's session.
func (s *set) in(ctx context.Context, a *agent) context.Context {
	if s.sessions == nil {
		return ctx
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.sessions[a.id] == nil {
		r, err := s.Session(fmt.Sprint("agent-", a.id), toolset.Limits{})
		if err != nil {
			panic(err)
		}
		s.sessions[a.id] = r
	}
	return toolset.WithSession(ctx, s.sessions[a.id])
}
