package toolcircuit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
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
	writes  bool // ToolCircuit is the view of a tool with SideEffects
}

// step is one thing that happens to a rig, and what its circuit is afterwards.
type step struct {
	do    func(*rig)
	state toolcircuit.State
}

const (
	closed   = toolcircuit.StateClosed
	open     = toolcircuit.StateOpen
	halfOpen = toolcircuit.StateHalfOpen
)

var (
	errDown    = toolcircuit.Fault(errors.New("down"))
	errInvalid = &toolcircuit.HTTPError{StatusCode: 400}
)

// newRig returns a rig with the options given; its hooks come before those of o.
func newRig(t *testing.T, o toolcircuit.Options) *rig {
	t.Helper()
	r := &rig{T: t, clock: clock.NewMock(), permits: map[string]*toolcircuit.Permit{}}
	if o.Clock == nil {
		o.Clock = r.clock
	}
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
	c, err := toolcircuit.New("search-api", o)
	require.NoError(t, err)
	r.ToolCircuit = c
	return r
}

// run takes a rig through steps.
func run(t *testing.T, o toolcircuit.Options, steps []step) *rig {
	t.Helper()
	r := newRig(t, o)
	for i, s := range steps {
		s.do(r)
		require.Equal(t, s.state, r.State(), "after step %d", i)
	}
	return r
}

// from is where calls come from.
func (r *rig) from() context.Context {
	if r.ctx == nil {
		return context.Background()
	}
	return r.ctx
}

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

// refused is a call that must be refused, for that long at most. That is what it is told, except
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

// add moves the clock on.
func add(d time.Duration) func(*rig) { return func(r *rig) { r.clock.Set(r.clock.Now().Add(d)) } }

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

func override(o toolcircuit.Override) func(*rig) { return func(r *rig) { r.SetOverride(o) } }

func reset(r *rig) { r.ToolCircuit.Reset() }

// wait is an error with which the dependency asks for a pause.
func wait(d time.Duration) error { return toolcircuit.RetryAfter(errors.New("later"), d) }

// all runs several actions as one step.
func all(actions ...func(*rig)) func(*rig) {
	return func(r *rig) {
		r.Helper()
		for _, a := range actions {
			a(r)
		}
	}
}

func ExampleDo() {
	c := toolcircuit.MustNew("search-api", toolcircuit.Options{Policy: toolcircuit.Policy{FailureThreshold: 1}})
	for range 2 {
		_, err := toolcircuit.Do(context.Background(), c, func(context.Context) (string, error) {
			fmt.Println("called")
			return "", toolcircuit.Fault(errors.New("no answer"))
		})
		fmt.Println(err)
	}
	// Output:
	// called
	// no answer
	// toolcircuit: search-api: dependency_open
}
