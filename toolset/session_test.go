package toolset_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// What a Session answers of the faults reported against breakers inside agent products (A) and
// by users of agents (R):
//
//	A028 A029 A031 A032 A034 A035 A077 A110  repeat_test.go: the repetition guard
//	R01 R02 R04                              repeat_test.go
//	A002 A017 A043                           repeat_test.go: what it must leave alone
//	R53                                      intention_test.go: one key for all attempts
//	A037 A068 A071 A082 A083 A104            here: refused calls, stop reasons, helpers
//	R44                                      here: a refusal uses up nothing
//
// A110 wants validation errors to pass; here they pass with other arguments only, since the same
// ones cannot become valid. The rest of these parts is one circuit's, a Set's or an adapter's.

// agent is a rig whose calls belong to a run.
type agent struct {
	*rig
	run *toolset.Session
}

var (
	errMissing = &toolcircuit.HTTPError{StatusCode: 404}
	errInvalid = &toolcircuit.HTTPError{StatusCode: 422}
)

func newAgent(t *testing.T, c toolset.Config, l toolset.Limits) *agent {
	t.Helper()
	r := newRig(t, c, toolset.Options{OnCall: func(context.Context, toolcircuit.Call) {}})
	return (&agent{rig: r}).another("run", l)
}

// another is another run on the same Set.
func (a *agent) another(id string, l toolset.Limits) *agent {
	a.Helper()
	run, err := a.Session(id, l)
	require.NoError(a, err)
	r := *a.rig
	r.ctx = toolset.WithSession(context.Background(), run)
	return &agent{&r, run}
}

// ask is a call with JSON as its arguments. It returns what the model reads, and whether the
// tool ran.
func (a *agent) ask(tool, args string, value any, err error) (r toolcircuit.Result[any], ran bool) {
	a.Helper()
	fn := func(context.Context, json.RawMessage) (any, error) {
		ran = true
		return value, err
	}
	r, err = toolset.WrapResult(a.Set, tool, fn)(a.ctx, json.RawMessage(args))
	require.NoError(a, err)
	return r, ran
}

// runs is a call that must run, and returns value and err.
func (a *agent) runs(tool, args string, value any, err error) toolcircuit.Result[any] {
	a.Helper()
	r, ran := a.ask(tool, args, value, err)
	require.True(a, ran, "%s %s: %s", tool, args, r.Message)
	return r
}

// blocked is a call that must be refused for the given reason.
func (a *agent) blocked(tool, args string, reason toolcircuit.Reason) toolcircuit.Blocked {
	a.Helper()
	r, ran := a.ask(tool, args, nil, nil)
	require.False(a, ran, "%s %s", tool, args)
	require.Equal(a, toolcircuit.StatusBlocked, r.Status)
	require.Equal(a, reason, r.Reason)
	require.Equal(a, tool, r.Tool)
	require.False(a, *r.Executed)
	return r.Blocked
}

const (
	open     = toolcircuit.ReasonDependencyOpen
	repeated = toolcircuit.ReasonRepeatedCall
	budget   = toolcircuit.ReasonBudgetExhausted
)

// guarded has two tools with one dependency.
var guarded = toolset.Config{Tools: map[string]toolset.Tool{"a": {Dependency: "api"}, "b": {Dependency: "api"}}}

func TestSessionChecksItsArguments(t *testing.T) {
	r := newRig(t, toolset.Config{}, toolset.Options{})
	for name, l := range map[string]toolset.Limits{
		"Calls":   {Calls: -1},
		"Time":    {Time: -1},
		"Refused": {Refused: -1},
		"Repeats": {Repeats: -1},
		"Pause":   {Pause: -1},
		"Poll":    {Poll: -1},
		"Copies":  {Copies: -1},
		"Memory":  {Memory: -1},
	} {
		_, err := r.Session("run", l)
		require.ErrorContains(t, err, "Limits."+name+": got -1, want 0 or more")
	}
	for name, l := range map[string]toolset.Limits{"Time": {Time: 60}, "Pause": {Pause: 60}, "Poll": {Poll: 60}} { // no unit
		_, err := r.Session("run", l)
		require.ErrorContains(t, err, "Limits."+name+": got 60ns, want 0 or at least 1ms")
	}
	_, err := r.Session("", toolset.Limits{})
	require.ErrorContains(t, err, "runID is empty")
	_, err = r.Session("run", toolset.Limits{
		Calls: math.MaxInt, Time: math.MaxInt64, Refused: math.MaxInt, Repeats: math.MaxInt,
		Pause: math.MaxInt64, Poll: math.MaxInt64, Copies: math.MaxInt, Memory: math.MaxInt,
	})
	require.NoError(t, err)
}

func TestSessionNamesTheRun(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	require.Equal(t, "run", toolcircuit.RunID(a.ctx))
	own := toolset.WithSession(toolcircuit.WithRunID(context.Background(), "own"), a.run)
	require.Equal(t, "own", toolcircuit.RunID(own))
}

func TestBudgetOfCalls(t *testing.T) {
	var stops []toolset.Stop
	a := newAgent(t, guarded, toolset.Limits{Calls: 3, OnStop: func(_ context.Context, s toolset.Stop) { stops = append(stops, s) }})
	a.runs("a", `1`, "x", nil)
	a.runs("b", `2`, nil, errMissing)
	a.runs("free", `3`, "x", nil)
	require.Zero(t, a.run.StopReason())
	for _, tool := range []string{"a", "free"} {
		b := a.blocked(tool, `4`, budget)
		require.Zero(t, b.RetryAfterMS)
		require.Contains(t, b.Message, "until the next run")
		require.True(t, b.EndTurn)
	}
	want := toolset.Stop{Reason: toolset.StopBudgetExhausted, Tool: "a", Count: 1, First: a.clock.Now(), Last: a.clock.Now()}
	require.Equal(t, []toolset.Stop{want}, stops)
	a.run.NextTurn()
	want.Count = 2
	require.Equal(t, want, a.run.StopReason(), "the budget is the run's")
	require.Zero(t, a.circuit("api").Streak)
}

// The tools of a run have one budget, so none of them is offered in place of another.
func TestBudgetOffersNoAlternative(t *testing.T) {
	c := toolset.Config{Tools: map[string]toolset.Tool{
		"search": {Alternatives: []string{"cache"}},
		"fetch":  {Alternatives: []string{"cache"}, NextActions: []toolcircuit.Action{toolcircuit.ActionUseAlternative, toolcircuit.ActionEscalate}},
		"cache":  {},
	}}
	answer, escalate := []toolcircuit.Action{toolcircuit.ActionAnswerWithout}, []toolcircuit.Action{toolcircuit.ActionEscalate}
	for name, use := range map[string]func(*agent){
		"this run has no call left": func(a *agent) {
			require.Empty(t, a.runs("search", `1`, nil, errMissing).Alternatives, "the last call")
		},
		"this run has no time left": func(a *agent) {
			require.NotEmpty(t, a.another("other", toolset.Limits{}).runs("search", `1`, nil, errMissing).Alternatives)
			a.clock.Add(time.Minute)
		},
		"this run is over": func(a *agent) { a.run.Close() },
	} {
		a := newAgent(t, c, toolset.Limits{Calls: 1, Time: time.Minute})
		use(a)
		for tool, want := range map[string][]toolcircuit.Action{"search": answer, "fetch": escalate} {
			b := a.blocked(tool, `2`, budget)
			require.Equal(t, want, b.NextActions, name)
			require.Empty(t, b.Alternatives, name)
			require.Contains(t, b.Message, name)
			require.NotContains(t, b.Message, "cache")
			require.True(t, b.EndTurn, name)
		}
	}
}

// A call that is refused after all gives back what it held of the budget.
func TestBudgetGivenBackIsNotExhausted(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{Calls: 1})
	p := a.begin("a")
	a.blocked("b", `2`, budget)
	require.Equal(t, toolset.StopBudgetExhausted, a.run.StopReason().Reason)
	p.Release()
	require.Zero(t, a.run.StopReason())
	a.runs("b", `2`, "x", nil)
	a.blocked("b", `3`, budget)
	require.Equal(t, toolset.StopBudgetExhausted, a.run.StopReason().Reason)
}

func TestNilSession(t *testing.T) {
	var none *toolset.Session
	for _, method := range []func(){none.NextTurn, none.Close, func() { none.StopReason() }} {
		require.PanicsWithValue(t, "toolset: the Session is nil; make one with Set.Session", method)
	}
}

func TestBudgetOfTime(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{Time: time.Minute})
	a.clock.Add(time.Minute - 1)
	a.runs("a", `1`, "x", nil)
	a.clock.Add(1)
	b := a.blocked("a", `2`, budget)
	require.Equal(t, toolcircuit.KindDeadline, b.Cause)
	require.Equal(t, toolset.StopDeadline, a.run.StopReason().Reason)
}

// suspended is a clock of a host that slept: wall time went on, monotonic time did not.
type suspended struct {
	*clock.Mock
	now time.Time
}

func (s *suspended) Now() time.Time { return s.now }

// sleep moves the wall time on, and the monotonic time back by what that took along.
func (s *suspended) sleep(t *testing.T, d time.Duration) {
	awake := s.now
	s.now = s.now.Add(d)
	*(*int64)(unsafe.Add(unsafe.Pointer(&s.now), 8)) -= int64(d) // time.Time.ext
	require.Zero(t, s.now.Sub(awake))
	require.Equal(t, d, s.now.Round(0).Sub(awake.Round(0)))
}

func TestBudgetOfTimeIsWallTime(t *testing.T) {
	c := &suspended{Mock: clock.NewMock(), now: time.Now()}
	s, err := toolset.New(guarded, toolset.Options{Clock: c})
	require.NoError(t, err)
	run, err := s.Session("run", toolset.Limits{Time: time.Hour})
	require.NoError(t, err)
	ctx := toolset.WithSession(context.Background(), run)
	call := func(tool string, err error) error {
		_, err = toolset.Do(ctx, s, tool, 1, func(context.Context) (int, error) { return 0, err })
		return err
	}
	require.Equal(t, errMissing, call("a", errMissing))
	c.sleep(t, time.Hour-1)
	var refusal *toolcircuit.OpenError
	require.ErrorAs(t, call("a", nil), &refusal)
	require.Equal(t, repeated, refusal.Reason)
	require.Equal(t, c.now.Add(10*time.Second).String(), refusal.RetryAt.String(), "in the time that the model reads on a clock")
	require.NoError(t, call("b", nil))
	c.sleep(t, 1)
	require.ErrorAs(t, call("b", nil), &refusal)
	require.Equal(t, budget, refusal.Reason)
	require.Equal(t, toolset.StopDeadline, run.StopReason().Reason)
}

// A refusal uses up nothing else, and neither does a permit that is handed back.
func TestR44RefusalUsesUpNothing(t *testing.T) {
	c := guarded
	c.Dependencies = map[string]toolset.Dependency{"api": {MaxInFlight: 1}}
	a := newAgent(t, c, toolset.Limits{Calls: 5})
	a.runs("a", `1`, nil, errMissing) // 1
	a.blocked("a", `1`, repeated)
	one := a.begin("a") // 2
	a.blocked("a", `2`, toolcircuit.ReasonBusy)
	one.Release() // 1
	a.trip("a")   // 4
	a.blocked("a", `3`, open)
	a.runs("free", `4`, "x", nil) // 5
	a.blocked("free", `5`, budget)
	require.Equal(t, 4, a.run.StopReason().Count)

	a = newAgent(t, guarded, toolset.Limits{Calls: 4})
	a.trip("a")
	a.clock.Add(time.Minute)
	a.runs("b", `1`, nil, errMissing) // takes the probe and hands it back
	a.blocked("b", `1`, budget)
	fresh := a.another("fresh", toolset.Limits{})
	fresh.runs("b", `1`, "x", nil)
	require.Equal(t, toolcircuit.StateClosed, a.circuit("api").State)
}

func TestRepeatTakesNoProbe(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	a.runs("a", `1`, nil, errInvalid)
	a.trip("b")
	a.clock.Add(time.Minute)
	a.blocked("a", `1`, repeated)
	require.Equal(t, toolcircuit.StateHalfOpen, a.circuit("api").State)
	require.Equal(t, toolcircuit.EventOpened, (*a.events)[len(*a.events)-1].Type, "nobody became the probe")
	a.runs("a", `2`, "x", nil)
}

func TestBudgetsHoldUnderConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, guarded, toolset.Limits{Calls: 20})
		var ran, refused atomic.Int32
		var running sync.WaitGroup
		for i := range 100 {
			running.Go(func() {
				_, err := toolset.Do(a.ctx, a.Set, "a", i, func(context.Context) (int, error) {
					ran.Add(1)
					runtime.Gosched()
					return 0, nil
				})
				if errors.Is(err, toolcircuit.ErrCircuitOpen) {
					refused.Add(1)
				}
			})
		}
		running.Wait()
		require.EqualValues(t, 20, ran.Load())
		require.EqualValues(t, 80, refused.Load())
		require.Equal(t, 80, a.run.StopReason().Count)
	})
}

func TestA037BlockedCallsAreCounted(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{Refused: 4})
	a.trip("a")
	for i := range 5 {
		b := a.blocked("a", fmt.Sprint(i), open)
		require.Equal(t, i+1, b.BlockedCalls)
		require.Equal(t, i+1 >= 4, b.EndTurn)
	}
	r := a.runs("free", `1`, "x", nil)
	require.Zero(t, r.BlockedCalls)
	require.False(t, r.EndTurn, "a result that is a value says nothing else")
}

func TestA068EndTurnAndADeadlineThatStays(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	a.trip("a")
	for i := range 395 {
		b := a.blocked("a", `1`, open)
		require.EqualValues(t, 60_000, b.RetryAfterMS)
		require.Equal(t, i >= 4, b.EndTurn)
	}
	a.clock.Add(time.Minute)
	a.runs("a", `1`, "x", nil)
}

func TestA071StopIsHeardOncePerTurn(t *testing.T) {
	var stops []toolset.Stop
	var a *agent
	a = newAgent(t, guarded, toolset.Limits{OnStop: func(ctx context.Context, s toolset.Stop) {
		require.Equal(t, s, a.run.StopReason(), "no lock is held")
		require.Equal(t, "run", toolcircuit.RunID(ctx))
		stops = append(stops, s)
		panic("host")
	}})
	a.trip("a")
	began := a.clock.Now()
	for range 50 {
		a.blocked("b", `1`, open)
		a.clock.Add(time.Millisecond)
	}
	require.Equal(t, []toolset.Stop{{
		Reason: toolset.StopBlockedTooOften, Tool: "b", Kind: toolcircuit.KindUnavailable,
		Count: 5, First: began, Last: began.Add(4 * time.Millisecond),
	}}, stops)
	require.EqualValues(t, 1, a.Set.Snapshot().HookPanics)
	require.Equal(t, 50, a.run.StopReason().Count)
	require.Equal(t, began.Add(49*time.Millisecond), a.run.StopReason().Last)

	a.run.NextTurn()
	require.Zero(t, a.run.StopReason())
	b := a.blocked("a", `1`, open)
	require.Equal(t, 1, b.BlockedCalls)
	require.False(t, b.EndTurn)
	for range 50 {
		a.blocked("a", `1`, open)
	}
	require.Len(t, stops, 2)
}

func TestA082UnknownToolIsStopped(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	ran := 0
	var last toolcircuit.Result[any]
	for range 754 {
		r, executed := a.ask("no_such_tool", `{}`, nil, errors.New("no such tool"))
		if executed {
			ran++
		}
		last = r
	}
	require.Equal(t, 3, ran)
	require.True(t, last.EndTurn)
	require.Equal(t, repeated, last.Reason)
	require.Equal(t, 751, last.BlockedCalls)
	require.Len(t, a.Set.Snapshot().Circuits, 1, "an invented name makes no circuit")
}

func TestA083SummaryForTheHost(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{Refused: 3})
	a.runs("a", `{"path":"x"}`, nil, errMissing)
	first := a.clock.Now()
	for range 4 {
		a.blocked("a", `{"path":"x"}`, repeated)
		a.clock.Add(time.Second)
	}
	stop := a.run.StopReason()
	require.Equal(t, toolset.Stop{
		Reason: toolset.StopRepeatedCall, Tool: "a", Kind: toolcircuit.KindNotFound,
		Count: 4, First: first, Last: first.Add(3 * time.Second),
	}, stop)
	text, err := json.Marshal(stop)
	require.NoError(t, err)
	require.JSONEq(t, `{"reason":"repeated_call","tool":"a","kind":"not_found","count":4,
		"first":"1970-01-01T00:00:00Z","last":"1970-01-01T00:00:03Z"}`, string(text))
}

// A Stop that outlives the turn counts the refused calls of the turn, as results do.
func TestStopCountsOneTurn(t *testing.T) {
	a := newAgent(t, toolset.Config{}, toolset.Limits{Calls: 1})
	a.runs("a", `1`, nil, nil)
	for range 3 {
		a.blocked("a", `2`, budget)
	}
	require.Equal(t, 3, a.run.StopReason().Count)
	a.clock.Add(time.Hour)
	a.run.NextTurn()
	for n := 1; n <= 2; n++ {
		require.Equal(t, n, a.blocked("b", `2`, budget).BlockedCalls)
		require.Equal(t, toolset.Stop{
			Reason: toolset.StopBudgetExhausted, Tool: "a",
			Count: n, First: a.clock.Now().Add(time.Second * time.Duration(1-n)), Last: a.clock.Now(),
		}, a.run.StopReason())
		a.clock.Add(time.Second)
	}
}

func TestA104HelpersAreCovered(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	ran, last := 0, toolcircuit.Result[any]{}
	_, err := toolset.Do(a.ctx, a.Set, "helper", `task`, func(ctx context.Context) (any, error) {
		helper := *a.rig
		helper.ctx = ctx
		for range 40 {
			r, executed := (&agent{&helper, a.run}).ask("read", `{"path":"x"}`, nil, errMissing)
			if executed {
				ran++
			}
			last = r
		}
		return nil, nil
	})
	require.NoError(t, err)
	require.Equal(t, 1, ran)
	require.Equal(t, 39, last.BlockedCalls)
	require.True(t, last.EndTurn)

	alone := *a.rig // a helper without the session of its parent
	alone.ctx = toolset.WithSession(a.ctx, nil)
	(&agent{&alone, nil}).runs("read", `{"path":"x"}`, nil, errMissing)
}

// One call of a model is one refused call, however deep the refusal was.
func TestRefusalWithinATool(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	a.trip("a")
	_, err := toolset.Do(a.ctx, a.Set, "outer", 1, func(ctx context.Context) (any, error) {
		return toolset.Do(ctx, a.Set, "a", 1, func(context.Context) (any, error) { return nil, nil })
	})
	require.ErrorIs(t, err, toolcircuit.ErrCircuitOpen)
	require.Equal(t, 2, a.blocked("a", `1`, open).BlockedCalls)

	r, ran := a.ask("remote", `1`, nil, toolcircuit.ErrCircuitOpen) // by a circuit somewhere else
	require.True(t, ran)
	require.Equal(t, 3, r.BlockedCalls)
}

// The same where no context says that the inner call is made inside the outer one, and at any
// depth.
func TestRefusalDeepInsideATool(t *testing.T) {
	for name, pass := range map[string]func(a *agent, ctx context.Context) context.Context{
		"with the context of the operation": func(_ *agent, ctx context.Context) context.Context { return ctx },
		"with that of the run":              func(a *agent, _ context.Context) context.Context { return a.ctx },
	} {
		a := newAgent(t, guarded, toolset.Limits{})
		a.trip("a")
		var call func(ctx context.Context, depth int) (any, error)
		call = func(ctx context.Context, depth int) (any, error) {
			tool := fmt.Sprint("outer", depth)
			if depth == 0 {
				tool = "a"
			}
			return toolset.Do(pass(a, ctx), a.Set, tool, depth, func(ctx context.Context) (any, error) { return call(ctx, depth-1) })
		}
		for n := 1; n <= 4; n++ {
			_, err := call(a.ctx, n)
			require.ErrorIs(t, err, toolcircuit.ErrCircuitOpen)
			require.Equal(t, 2*n, a.blocked("a", `1`, open).BlockedCalls, name)
		}
		r, ran := a.ask("remote", `1`, nil, toolcircuit.ErrCircuitOpen) // by a circuit somewhere else
		require.True(t, ran)
		require.Equal(t, 9, r.BlockedCalls)
	}
}

// What is refused inside one call says nothing about another at the same time.
func TestRefusalsInsideCallsAtTheSameTime(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	a.trip("a")
	one, two := a.begin1("one"), a.begin1("two")
	_, refusal := toolset.Do(one.Context(a.ctx), a.Set, "a", 1, func(context.Context) (int, error) { return 0, nil })
	one.Settle(a.ctx, nil, refusal)
	two.Settle(a.ctx, nil, toolcircuit.ErrCircuitOpen) // by a circuit somewhere else
	require.Equal(t, 3, a.blocked("a", `1`, open).BlockedCalls)
}

// A tool that answers with the blocked result of a call inside it is one refused call, too.
func TestBlockedResultWithinATool(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	a.trip("a")
	inner := toolset.WrapResult(a.Set, "a", func(context.Context, int) (int, error) { return 0, nil })
	for n := 1; n <= 3; n++ {
		_, err := toolset.Do(a.ctx, a.Set, "outer", n, func(ctx context.Context) (toolcircuit.Result[int], error) { return inner(ctx, 1) })
		require.NoError(t, err)
		require.Equal(t, 2*n, a.blocked("a", `1`, open).BlockedCalls)
	}
}

// A refusal inside a call counts once in each run: in that of the refused call and, as a refused
// call of the tool around it, in every other.
func TestRefusalInsideAnotherRun(t *testing.T) {
	main := newAgent(t, toolset.Config{}, toolset.Limits{})
	for name, helper := range map[string]*agent{
		"of the same Set": main.another("helper", toolset.Limits{}),
		"of another Set":  newAgent(t, toolset.Config{}, toolset.Limits{}),
	} {
		main := main.another(name, toolset.Limits{})
		for _, back := range []bool{false, true} { // the innermost tool is one of the main run
			main.run.NextTurn()
			helper.run.NextTurn()
			innermost := helper
			if back {
				innermost = main
			}
			for n := 1; n <= 6; n++ {
				r, err := toolset.DoResult(main.ctx, main.Set, "ask_helper", toolset.Unknown, func(ctx context.Context) (int, error) {
					ctx = toolset.WithSession(ctx, helper.run)
					return toolset.Do(ctx, helper.Set, "helper", toolset.Unknown, func(ctx context.Context) (int, error) {
						ctx = toolset.WithSession(ctx, innermost.run)
						return toolset.Do(ctx, innermost.Set, "remote", toolset.Unknown, func(context.Context) (int, error) {
							return 0, toolcircuit.ErrCircuitOpen
						})
					})
				})
				require.NoError(t, err)
				require.Equal(t, toolcircuit.StatusBlocked, r.Status)
				require.Equal(t, n, r.BlockedCalls, "%s, %t", name, back)
			}
			require.Equal(t, toolset.StopBlockedTooOften, main.run.StopReason().Reason, "%s, %t", name, back)
			require.Equal(t, 6, main.run.StopReason().Count, "%s, %t", name, back)
			require.Equal(t, 6, helper.run.StopReason().Count, "%s, %t", name, back)
		}
	}
}

func TestSessionsShareNothing(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{Calls: 2})
	a.runs("a", `1`, nil, errMissing)
	a.blocked("a", `1`, repeated)
	b := a.another("other", toolset.Limits{Calls: 2})
	b.runs("a", `1`, nil, errMissing)
	require.Equal(t, 1, b.blocked("a", `1`, repeated).BlockedCalls)

	elsewhere := newRig(t, guarded, toolset.Options{}) // a session of one Set is none of another
	elsewhere.ctx = a.ctx
	for range 10 {
		elsewhere.call("a", errMissing)
	}
	a.runs("a", `2`, "x", nil)
}

func TestClosedSession(t *testing.T) {
	stops := 0
	a := newAgent(t, guarded, toolset.Limits{OnStop: func(context.Context, toolset.Stop) { stops++ }})
	a.runs("a", `1`, nil, errMissing)
	late, given := a.begin1("b"), a.begin1("free")
	a.run.Close()
	a.run.Close()
	late.Settle(a.ctx, nil, errDown)
	given.Release()
	for range 10 {
		b := a.blocked("a", `1`, budget)
		require.True(t, b.EndTurn)
		a.run.NextTurn()
	}
	require.Equal(t, 1, a.circuit("api").Streak, "the circuit hears of a late result")
	require.Zero(t, stops)
	require.Zero(t, a.run.StopReason())
}

func TestDisabledSetRefusesNothing(t *testing.T) {
	c := guarded
	c.Disabled = true
	a := newAgent(t, c, toolset.Limits{Calls: 1})
	for range 5 {
		a.runs("a", `1`, nil, errMissing)
	}
	a.apply(guarded)
	a.runs("a", `1`, nil, errMissing)
	a.blocked("a", `1`, budget)
}

func TestOnCallHearsOfRefusals(t *testing.T) {
	var calls []toolcircuit.Call
	r := newRig(t, guarded, toolset.Options{OnCall: func(_ context.Context, c toolcircuit.Call) { calls = append(calls, c) }})
	a := (&agent{rig: r}).another("run", toolset.Limits{Repeats: 1})
	a.runs("a", `1`, nil, errDown)
	a.blocked("a", `1`, repeated)
	require.Equal(t, r.clock.Now().Add(time.Minute), calls[1].RetryAt)
	require.Len(t, calls, 2)
	require.False(t, calls[1].Executed)
	require.Equal(t, "api", calls[1].Dependency)
	require.Equal(t, "a", calls[1].Tool)
	require.Equal(t, "run", calls[1].RunID)
	require.Equal(t, toolcircuit.KindRejected, calls[1].Verdict.Kind)
}

func TestContextThatIsOver(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{Calls: 3})
	a.runs("a", `1`, nil, errMissing)
	over, cancel := context.WithCancel(a.ctx)
	cancel()
	for range 10 {
		_, err := toolset.Do(over, a.Set, "a", json.RawMessage(`1`), func(context.Context) (int, error) { return 0, nil })
		require.Equal(t, context.Canceled, err)
	}
	a.runs("a", `2`, "x", nil)
	a.runs("a", `3`, "x", nil)
	require.Equal(t, 1, a.blocked("a", `4`, budget).BlockedCalls, "the end of a context is no refusal")
}

func TestNextTurnWhileCallsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, guarded, toolset.Limits{})
		var running sync.WaitGroup
		for i := range 8 {
			running.Go(func() {
				for range 100 {
					toolset.WrapResult(a.Set, "free", func(context.Context, int) (int, error) {
						runtime.Gosched()
						return 0, errInvalid
					})(a.ctx, i)
					a.run.StopReason()
				}
			})
			running.Go(func() {
				for range 100 {
					a.run.NextTurn()
					runtime.Gosched()
				}
			})
		}
		running.Wait()
		a.run.NextTurn()
		require.Equal(t, 1, a.blocked("free", `1`, repeated).BlockedCalls)
	})
}

// What a session keeps is bounded, however many different calls it sees.
func TestMemoryOfASession(t *testing.T) {
	const n = 20_000
	call := func(a *agent, tool string, args any, err error) {
		toolset.Do(a.ctx, a.Set, tool, args, func(context.Context) (int, error) { return 0, err })
	}
	for name, call := range map[string]func(a *agent, i int){
		"healthy":       func(a *agent, i int) { call(a, "free", i, nil) },
		"unknown tools": func(a *agent, i int) { call(a, fmt.Sprint("tool-", i), nil, errMissing) },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t, guarded, toolset.Limits{})
			before := heap()
			for i := range n {
				call(a, i)
			}
			used := heap() - before
			t.Logf("%d bytes after %d calls", used, n)
			require.Less(t, used, int64(1<<20))
			a.run.Close()
			require.Less(t, heap()-before, int64(64<<10), "a finished session leaves nothing")
			runtime.KeepAlive(a)
		})
	}
}

// A result says endTurn while StopReason has a reason: a loop that looks at either ends.
func TestEndTurnIsStopReason(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{Calls: 1, Refused: 2})
	p := a.begin("a")
	for range 3 {
		require.True(t, a.blocked("a", `2`, budget).EndTurn)
	}
	p.Release() // which gives the call back
	require.Zero(t, a.run.StopReason())
	refused, err := toolset.ResultOf(a.ctx, a.Set, "a", 0, toolcircuit.Verdict{}, error(&toolcircuit.OpenError{Reason: toolcircuit.ReasonBusy}))
	require.NoError(t, err)
	require.False(t, refused.EndTurn)
}
