package toolcircuit_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

// rig is a circuit under a mock clock, with all it said, for tests that read as tables of
// steps.
type rig struct {
	*testing.T
	*toolcircuit.ToolCircuit
	clock   *clock.Mock
	ctx     context.Context                // of calls; nil: context.Background
	permits map[string]*toolcircuit.Permit // calls under way, by name
	inner   map[string]context.Context     // of their operations
	events  []toolcircuit.Event
	calls   []toolcircuit.Call
	ran     int  // operations of do and of begin
	checks  int  // of a Monitor
	writes  bool // ToolCircuit is the view of a tool with SideEffects
}

// steps are what happens to a rig, one after the other.
type steps []func(*rig)

// script is a named table of steps under a policy of three failures and a minute, changed by
// edit.
type script struct {
	name string
	edit func(*toolcircuit.Policy)
	steps
}

// newRig returns a rig with the options given; its hooks come before those of o.
func newRig(t *testing.T, o toolcircuit.Options) (r *rig) {
	t.Helper()
	onEvent, onCall := o.OnEvent, o.OnCall
	o.OnEvent = func(ctx context.Context, e toolcircuit.Event) {
		r.events = append(r.events, e)
		if onEvent != nil {
			onEvent(ctx, e)
		}
	}
	o.OnCall = func(ctx context.Context, c toolcircuit.Call) {
		r.calls = append(r.calls, c)
		if onCall != nil {
			onCall(ctx, c)
		}
	}
	r = newQuietRig(t, o)
	return r
}

// newQuietRig is newRig without hooks, for calls that are made at once.
func newQuietRig(t *testing.T, o toolcircuit.Options) *rig {
	r := &rig{T: t, clock: clock.NewMock(), permits: map[string]*toolcircuit.Permit{}}
	if o.Clock == nil {
		o.Clock = r.clock
	}
	r.ToolCircuit = toolcircuit.MustNew("search-api", o)
	return r
}

// run takes a rig through steps.
func run(t *testing.T, o toolcircuit.Options, s ...func(*rig)) *rig {
	t.Helper()
	r := newRig(t, o)
	at := 0
	defer func() {
		if t.Failed() {
			t.Logf("in step %d", at)
		}
	}()
	for ; at < len(s); at++ {
		s[at](r)
	}
	return r
}

func play(t *testing.T, scripts []script) {
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) { run(t, policy(s.edit), s.steps...) })
	}
}

// from is where calls come from.
func (r *rig) from() context.Context {
	if r.ctx == nil {
		return context.Background()
	}
	return r.ctx
}

const (
	closed   = toolcircuit.StateClosed
	open     = toolcircuit.StateOpen
	halfOpen = toolcircuit.StateHalfOpen

	opened     = toolcircuit.EventOpened
	halfOpened = toolcircuit.EventHalfOpened
	reclosed   = toolcircuit.EventClosed

	lifted   = toolcircuit.OverrideNone
	shut     = toolcircuit.OverrideOpen
	letAllIn = toolcircuit.OverrideClosed
)

// writes is a tool with SideEffects.
var writes = toolcircuit.Tool{Name: "pay", SideEffects: true}

var (
	errDown    = toolcircuit.Fault(errors.New("down"))
	errInvalid = &toolcircuit.HTTPError{StatusCode: 400}
)

// Policies.

// policy is a policy of three failures and a minute, doubling to ten, changed by edit.
func policy(edit func(*toolcircuit.Policy)) toolcircuit.Options {
	p := toolcircuit.Policy{FailureThreshold: 3, Cooldown: time.Minute, Multiplier: 2}
	if edit != nil {
		edit(&p)
	}
	if p.MaxCooldown == 0 {
		p.MaxCooldown = max(10*time.Minute, p.Cooldown)
	}
	return toolcircuit.Options{Policy: p}
}

// once is a policy that opens at the first failure, changed by edit.
func once(edit func(*toolcircuit.Policy)) toolcircuit.Options {
	return policy(func(p *toolcircuit.Policy) {
		p.FailureThreshold = 1
		if edit != nil {
			edit(p)
		}
	})
}

// rate is a policy that opens by rate alone, over a window of ten seconds.
func rate(rate float64, minCalls int) toolcircuit.Options {
	return policy(func(p *toolcircuit.Policy) {
		p.FailureThreshold, p.FailureRate, p.MinCalls, p.Window = math.MaxInt, rate, minCalls, 10*time.Second
	})
}

// byRate is a policy of rate alone: half of at least four calls within 16 seconds, counted in
// slots of one.
func byRate(p *toolcircuit.Policy) {
	p.FailureThreshold = math.MaxInt
	p.FailureRate, p.MinCalls, p.Window = 0.5, 4, 16*time.Second
}

// Steps: calls.

// call is a call that must run and returns err.
func call(err error) func(*rig) {
	return func(r *rig) {
		r.Helper()
		before := r.ran
		_, got := toolcircuit.Do(r.from(), r.ToolCircuit, func(context.Context) (string, error) {
			r.ran++
			return "value", err
		})
		require.Equal(r, err, got)
		require.Equal(r, before+1, r.ran, "the call must run once")
	}
}

// calls is n calls.
func calls(n int, err error) func(*rig) {
	return func(r *rig) {
		r.Helper()
		for range n {
			call(err)(r)
		}
	}
}

// op is an operation that ends with err.
func op(err error) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return "value", err }
}

// try is one call that may be refused.
func try(c *toolcircuit.ToolCircuit, err error) error {
	_, err = toolcircuit.Do(context.Background(), c, op(err))
	return err
}

// tell is a call that runs f and returns what f says.
func tell[T any](r *rig, f func(context.Context) (T, error)) (T, error) {
	return toolcircuit.Do(context.Background(), r.ToolCircuit, f)
}

// gives is a call that must run and returns v with no error.
func gives(v any) func(*rig) {
	return func(r *rig) {
		r.Helper()
		ran := false
		got := must(toolcircuit.Do(context.Background(), r.ToolCircuit, func(context.Context) (any, error) {
			ran = true
			return v, nil
		}))
		require.True(r, ran)
		require.Equal(r, v, got)
	}
}

// walksAway is a call whose caller walks away from it and which then returns err.
func walksAway(err error) func(*rig) {
	return func(r *rig) {
		r.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		_, got := toolcircuit.Do(ctx, r.ToolCircuit, func(context.Context) (string, error) {
			cancel()
			return "", err
		})
		require.Equal(r, err, got)
	}
}

// refused is a call that must be refused for the given time at most. That is what it is told, except
// while a probe holds the slot: a read is then told to wait as long as the probe has run so far.
func refused(wait time.Duration) func(*rig) {
	return func(r *rig) {
		r.Helper()
		_, err := toolcircuit.Do(r.from(), r.ToolCircuit, func(context.Context) (string, error) {
			r.ran++
			r.Error("a refused call ran")
			return "", nil
		})
		require.ErrorIs(r, err, toolcircuit.ErrCircuitOpen)
		var e *toolcircuit.OpenError
		require.ErrorAs(r, err, &e)
		told := wait
		if e.State == halfOpen && !r.writes {
			told = min(wait, max(r.Snapshot().Policy.ProbeTimeout-wait, time.Second))
		}
		require.Equal(r, told, e.RetryAfter())
	}
}

// begin starts calls that end later, by name.
func begin(names ...string) func(*rig) {
	return func(r *rig) {
		r.Helper()
		for _, name := range names {
			p, err := r.Allow(r.from())
			require.NoError(r, err, "call %s", name)
			r.permits[name] = &p
			delete(r.inner, name)
			r.ran++
		}
	}
}

// end ends a call that began.
func end(name string, err error) func(*rig) {
	return func(r *rig) { r.permits[name].Settle(context.Background(), nil, err) }
}

// release hands a call back.
func release(name string) func(*rig) { return func(r *rig) { r.permits[name].Release() } }

// inside runs actions with the context of the operation of a call that began.
func inside(name string, actions ...func(*rig)) func(*rig) {
	return func(r *rig) {
		r.Helper()
		if r.inner == nil {
			r.inner = make(map[string]context.Context)
		}
		if r.inner[name] == nil {
			r.inner[name] = r.permits[name].Context(r.from())
		}
		outer := r.ctx
		r.ctx = r.inner[name]
		all(actions...)(r)
		r.ctx = outer
	}
}

// paths are the ways to make a call. Each returns what the operation did, or the refusal where
// it is an error.
var paths = map[string]func(*rig, func(context.Context) (any, error)) (any, error){
	"Do": func(r *rig, op func(context.Context) (any, error)) (any, error) {
		return toolcircuit.Do(r.from(), r.ToolCircuit, op)
	},
	"Do of another tool": func(r *rig, op func(context.Context) (any, error)) (any, error) {
		return toolcircuit.Do(r.from(), r.WithTool(toolcircuit.Tool{Name: "other"}), op)
	},
	"Wrap": func(r *rig, op func(context.Context) (any, error)) (any, error) {
		return toolcircuit.Wrap(r.ToolCircuit, func(ctx context.Context, _ int) (any, error) { return op(ctx) })(r.from(), 1)
	},
	"DoResult": func(r *rig, op func(context.Context) (any, error)) (any, error) {
		return valueOf(toolcircuit.DoResult(r.from(), r.ToolCircuit, op))
	},
	"WrapResult": func(r *rig, op func(context.Context) (any, error)) (any, error) {
		return valueOf(toolcircuit.WrapResult(r.ToolCircuit, func(ctx context.Context, _ int) (any, error) { return op(ctx) })(r.from(), 1))
	},
	"Allow": func(r *rig, op func(context.Context) (any, error)) (any, error) {
		p, err := r.Allow(r.from())
		if err != nil {
			return nil, err
		}
		defer func() { p.Settle(context.Background(), nil, toolcircuit.ErrNoReturn) }()
		value, err := op(p.Context(r.from()))
		_, err = p.Settle(r.from(), value, err)
		return value, err
	},
}

func valueOf(result toolcircuit.Result[any], err error) (any, error) {
	if result.Value == nil {
		return nil, err
	}
	return *result.Value, err
}

// Steps: what else happens.

// all runs several actions as one step.
func all(actions ...func(*rig)) func(*rig) {
	return func(r *rig) {
		r.Helper()
		for _, a := range actions {
			a(r)
		}
	}
}

// add moves the clock on.
func add(d time.Duration) func(*rig) { return func(r *rig) { r.clock.Set(r.clock.Now().Add(d)) } }

// untilDue passes the time until a probe may go.
func untilDue(r *rig) { r.clock.Set(r.Snapshot().RetryAt) }

func override(o toolcircuit.Override) func(*rig) { return func(r *rig) { r.SetOverride(o) } }

// manual is a call that an operator's override must refuse.
func manual(r *rig) {
	r.Helper()
	unready(r)
	_, err := r.Allow(r.from())
	var e *toolcircuit.OpenError
	require.ErrorAs(r, err, &e)
	require.Equal(r, toolcircuit.ReasonManualOpen, e.Reason)
	require.Equal(r, open, e.State)
	require.Zero(r, e.RetryAt)
	require.Zero(r, e.RetryAfter())
	require.Zero(r, lastCall(r).RetryAt)
}

func reset(r *rig) { r.ToolCircuit.Reset() }

// set puts another policy in force: that of scripts, changed by edit.
func set(edit func(*toolcircuit.Policy)) func(*rig) {
	return func(r *rig) {
		r.Helper()
		require.NoError(r, r.SetPolicy(policy(edit).Policy))
	}
}

// as runs steps through another tool's view of the circuit.
func as(tool toolcircuit.Tool, actions ...func(*rig)) func(*rig) {
	return func(r *rig) {
		r.Helper()
		mine := r.ToolCircuit
		r.ToolCircuit, r.writes = mine.WithTool(tool), tool.SideEffects
		all(actions...)(r)
		r.ToolCircuit, r.writes = mine, false
	}
}

var (
	trip    = calls(3, errDown)           // opens under the policy of scripts, from a streak of 0
	cooled  = all(trip, add(time.Minute)) // and lets its first cooldown pass
	probing = all(cooled, begin("probe")) // and takes the slot
)

// outage is an outage of n openings with a probe as soon as each is due, and the recovery.
func outage(n int) func(*rig) {
	return func(r *rig) {
		r.Helper()
		trip(r)
		for range n - 1 {
			all(untilDue, call(errDown))(r)
		}
		all(untilDue, openings(n), call(nil))(r)
	}
}

// wait is an error with which the dependency asks for a pause.
func wait(d time.Duration) error { return toolcircuit.RetryAfter(errors.New("later"), d) }

// asked is a failure that counts and with which the dependency asks for a pause.
func asked(d time.Duration) error {
	return &toolcircuit.HTTPError{StatusCode: 503, RetryAfter: d}
}

// Checks.

// is checks the state.
func is(want toolcircuit.State) func(*rig) {
	return func(r *rig) {
		r.Helper()
		require.Equal(r, want, r.State())
	}
}

func ready(r *rig)   { r.Helper(); require.True(r, r.Ready()) }
func unready(r *rig) { r.Helper(); require.False(r, r.Ready()) }

// heardOf checks the number of events.
func heardOf(n int) func(*rig) { return func(r *rig) { r.Helper(); require.Len(r, r.events, n) } }

// judged checks the kind of the last call.
func judged(k toolcircuit.Kind) func(*rig) {
	return func(r *rig) { r.Helper(); require.Equal(r, k, lastCall(r).Verdict.Kind) }
}

// probe checks whether a call that began is the probe.
func probe(name string, want bool) func(*rig) {
	return func(r *rig) { r.Helper(); require.Equal(r, want, r.permits[name].Probe(), name) }
}

type snap = toolcircuit.Snapshot

// reads checks a part of what the circuit says of itself.
func reads[T any](want T, part func(snap) T) func(*rig) {
	return func(r *rig) {
		r.Helper()
		require.Equal(r, want, part(r.Snapshot()))
	}
}

func openings(n int) func(*rig) { return reads(n, func(s snap) int { return s.Openings }) }
func streak(n int) func(*rig)   { return reads(n, func(s snap) int { return s.Streak }) }
func seq(n uint64) func(*rig)   { return reads(n, func(s snap) uint64 { return s.Seq }) }
func stale(n uint64) func(*rig) { return reads(n, func(s snap) uint64 { return s.Stale }) }

// holds checks what the window holds.
func holds(failures, calls int) func(*rig) {
	return reads(toolcircuit.Window{Calls: calls, Failures: failures}, func(s snap) toolcircuit.Window { return s.Window })
}

// happened is the types of a rig's events.
func happened(r *rig) (types []toolcircuit.EventType) {
	for _, e := range r.events {
		types = append(types, e.Type)
	}
	return types
}

func last(r *rig) toolcircuit.Event    { return r.events[len(r.events)-1] }
func lastCall(r *rig) toolcircuit.Call { return r.calls[len(r.calls)-1] }

// refusalRead is what a model reads about a call of c that must be refused.
func refusalRead(t testing.TB, c *toolcircuit.ToolCircuit) toolcircuit.Blocked {
	t.Helper()
	result := must(toolcircuit.WrapResult(c, func(context.Context, string) (string, error) {
		t.Error("a refused call ran")
		return "", nil
	})(context.Background(), ""))
	require.Equal(t, toolcircuit.StatusBlocked, result.Status)
	require.Nil(t, result.Value)
	return result.Blocked
}

// must is v of what may not fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// allow is the permit of a call that must be let in.
func allow(t *testing.T, c *toolcircuit.ToolCircuit) *toolcircuit.Permit {
	t.Helper()
	p, err := c.Allow(t.Context())
	require.NoError(t, err)
	return &p
}

// Goroutines.

// together runs f in n goroutines that start as one, and returns when all have ended.
func together(n int, f func(i int)) {
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		group.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	group.Wait()
}

// quits runs f in a goroutine of its own and returns what it panicked with, and whether it
// came to its end.
func quits(f func()) (panicked any, returned bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		f()
		returned = true
	}()
	<-done
	return panicked, returned
}

// sleeper is a goroutine in Wait or Monitor: what it returned, once it has.
type sleeper struct {
	cancel   context.CancelFunc
	err      error
	returned bool
}

// sleep starts f in a goroutine and lets it come to rest.
func sleep(ctx context.Context, f func(context.Context) error) *sleeper {
	ctx, cancel := context.WithCancel(ctx)
	s := &sleeper{cancel: cancel}
	go func() {
		s.err = f(ctx)
		s.returned = true
	}()
	synctest.Wait()
	return s
}

// pass moves the clock on and lets all come to rest. A mock runs each timer once on its way,
// and what that wakes sees the clock where it ends; so it goes in steps of a second.
func pass(d time.Duration) func(*rig) {
	return func(r *rig) {
		for ; d > time.Second; d -= time.Second {
			add(time.Second)(r)
			synctest.Wait()
		}
		add(d)(r)
		synctest.Wait()
	}
}

// bubbles runs tests in bubbles of their own.
func bubbles(t *testing.T, tests map[string]func(t *testing.T)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

func endedContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
