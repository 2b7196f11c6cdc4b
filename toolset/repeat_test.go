package toolset_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// Arguments that are wrong stay wrong until something has an effect.
func TestInvalidCallIsNotRepeated(t *testing.T) {
	c := guarded
	c.Tools = maps.Clone(guarded.Tools)
	c.Tools["write"] = toolset.Tool{SideEffects: &yes}
	for _, tool := range []string{"a", "free"} {
		a := newAgent(t, c, toolset.Limits{})
		r := a.runs(tool, `{"x":1,"y":[null]}`, nil, errInvalid)
		require.Contains(t, r.Advice, "a repeat cannot mend")
		a.clock.Add(time.Hour)
		a.run.NextTurn()
		a.runs("news", `1`, "x", nil)
		b := a.blocked(tool, `{"y":[null],"x":1.0}`, repeated)
		require.Equal(t, toolcircuit.KindInvalid, b.Cause)
		require.Contains(t, b.Message, "Other arguments and other tools remain usable")
		a.runs(tool, `{"x":2,"y":[null]}`, "x", nil)
		a.runs(tool+"2", `{"x":1,"y":[null]}`, "x", nil)
		a.runs("write", `1`, "done", nil)
		a.runs(tool, `{"x":1,"y":[null]}`, nil, errInvalid)
	}
}

// A failure that a change mends is held until something may have changed, and for Poll.
func TestMendableFailureIsHeldAfterTheFirst(t *testing.T) {
	for status, kind := range map[int]toolcircuit.Kind{
		401: toolcircuit.KindUnauthorized,
		404: toolcircuit.KindNotFound,
		409: toolcircuit.KindConflict,
	} {
		for _, tool := range []string{"a", "free"} {
			failure := &toolcircuit.HTTPError{StatusCode: status}
			a := newAgent(t, guarded, toolset.Limits{Poll: 20 * time.Second})
			r := a.runs(tool, `1`, nil, failure)
			require.Contains(t, r.Advice, "a repeat cannot mend")
			b := a.blocked(tool, `1`, repeated)
			require.Equal(t, kind, b.Cause)
			require.Contains(t, b.Message, "for 20 s, until 00:00:20 UTC")
			a.clock.Add(20*time.Second - 1)
			a.blocked(tool, `1`, repeated)
			a.clock.Add(1)
			a.runs(tool, `1`, nil, failure)
			a.blocked(tool, `1`, repeated)
			a.run.NextTurn()
			a.runs(tool, `1`, nil, failure)
			for i := range 2 {
				a.blocked(tool, `1`, repeated)
				a.runs("news", `1`, i, nil)
				a.runs(tool, `1`, nil, failure)
			}
			a.runs("news", `1`, "more", nil)
			a.blocked(tool, `1`, repeated)
		}
	}
}

// A failure that may pass is refused for a while only: the run must not outlast the outage.
func TestSameFailureIsPaused(t *testing.T) {
	errs := map[string]error{
		"unavailable":    &toolcircuit.HTTPError{StatusCode: 503},
		"timeout":        context.DeadlineExceeded,
		"unknown":        errors.New("boom"),
		"wait under 1 s": toolcircuit.RetryAfter(errDown, 999*time.Millisecond),
	}
	for name, failure := range errs {
		t.Run(name, func(t *testing.T) {
			a := newAgent(t, toolset.Config{}, toolset.Limits{Pause: 30 * time.Second})
			require.Empty(t, a.runs("free", `1`, nil, failure).Advice)
			require.Empty(t, a.runs("free", `1`, nil, failure).Advice)
			require.NotEmpty(t, a.runs("free", `1`, nil, failure).Advice)
			a.blocked("free", `1`, repeated)
			a.clock.Add(30*time.Second - 1)
			a.blocked("free", `1`, repeated)
			a.clock.Add(1)
			a.runs("free", `1`, nil, failure)
			a.blocked("free", `1`, repeated)
			a.clock.Add(time.Minute)
			a.runs("free", `1`, "x", nil)
			a.runs("free", `1`, nil, failure)
			a.runs("free", `1`, "x", nil)
		})
	}
}

func TestRefusalSaysWhenThePauseEnds(t *testing.T) {
	a := newAgent(t, toolset.Config{}, toolset.Limits{Repeats: 1})
	a.runs("free", `1`, nil, errDown)
	a.clock.Add(time.Second)
	_, err := toolset.Do(a.ctx, a.Set, "free", 1, func(context.Context) (int, error) { return 0, nil })
	var e *toolcircuit.OpenError
	require.ErrorAs(t, err, &e)
	require.Equal(t, a.clock.Now().Add(59*time.Second), e.RetryAt)
}

// The wait that a refusal names is one on the Set's clock.
func TestRefusalGoesByTheClockOfTheSet(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	a.runs("a", `1`, nil, errMissing)
	a.clock.Add(time.Second)
	_, err := a.Allow(a.ctx, "a", json.RawMessage(`1`))
	var refusal *toolcircuit.OpenError
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, 9*time.Second, refusal.RetryAfter())
	a.clock.Add(10 * time.Second)
	require.Zero(t, refusal.RetryAfter())
}

func TestA002HoldsAreNoFailures(t *testing.T) {
	hold := errors.New("held for confirmation")
	r := newRig(t, guarded, toolset.Options{Classify: func(_ context.Context, o toolcircuit.Outcome) toolcircuit.Verdict {
		if o.Err == hold {
			return toolcircuit.Verdict{Kind: toolcircuit.KindInterrupt}
		}
		return toolcircuit.Verdict{}
	}})
	a := (&agent{rig: r}).another("run", toolset.Limits{})
	for _, err := range []error{hold, context.Canceled} {
		for range 10 {
			_, got := toolset.Do(a.ctx, a.Set, "a", 1, func(context.Context) (int, error) { return 0, err })
			require.Equal(t, err, got)
		}
	}
	a.runs("a", `1`, "x", nil)
}

func TestA017ExcludedToolsMayRepeat(t *testing.T) {
	a := newAgent(t, toolset.Config{Excluded: []string{"test_*"}}, toolset.Limits{})
	for range 10 {
		a.runs("test_all", `{}`, nil, errors.New("3 tests failed"))
	}
}

func TestA028FanOutCountsOnce(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{Repeats: 2})
	fanOut := func(n int, err error) (advised int) {
		var permits []*toolset.Permit
		for range n {
			permits = append(permits, a.begin1("a"))
		}
		for _, p := range permits {
			v, err := p.Settle(a.ctx, nil, err)
			r, err := toolset.ResultOf[any](a.ctx, a.Set, "a", nil, v, err)
			require.NoError(t, err)
			if r.Advice != "" {
				advised++
			}
		}
		return advised
	}
	failure := errors.New("not now")
	require.Zero(t, fanOut(8, failure))
	a.run.NextTurn()
	require.Equal(t, 1, fanOut(1, failure), "the second, over two turns")
	a.blocked("a", `1`, repeated)
	a.clock.Add(time.Minute)
	require.Zero(t, fanOut(8, failure), "one advice per turn")
	a.run.NextTurn()
	a.clock.Add(time.Minute)
	require.Equal(t, 1, fanOut(8, failure))
}

// begin1 is a call with 1 as its arguments that goes on until its permit ends.
func (a *agent) begin1(tool string) *toolset.Permit {
	a.Helper()
	p, err := a.Allow(a.ctx, tool, 1)
	require.NoError(a, err)
	return &p
}

func TestA029OnlyTheSameFailureRepeats(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	for _, text := range []string{"command missing", "file missing", "permission denied", "command missing"} {
		a.runs("shell", `1`, nil, errors.New(text))
	}
	for range 2 {
		a.runs("shell", `1`, nil, errors.New("command missing"))
	}
	require.Equal(t, toolcircuit.KindUnknown, a.blocked("shell", `1`, repeated).Cause)
}

// Neither other calls nor other results between them make the same failures fewer.
func TestSameFailureAmongOtherCalls(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	for i := range 3 {
		a.runs("free", `1`, nil, errors.New("boom"))
		a.runs("free", `2`, i, nil)
		a.runs("other", fmt.Sprint(i), "x", nil)
	}
	a.blocked("free", `1`, repeated)
	a.runs("free", `2`, "x", nil)
}

func TestA031SearchBurst(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	for i := range 16 {
		a.runs("search", fmt.Sprintf(`{"target":%d}`, i), "found", nil)
	}
}

// panicky cannot be written as JSON.
type panicky struct{}

func (panicky) MarshalJSON() ([]byte, error) { panic("json") }

func TestA032UnknownArguments(t *testing.T) {
	for name, args := range map[string]any{
		"unknown": toolset.Unknown,
		"channel": make(chan int),
		"panics":  panicky{},
		"no JSON": json.RawMessage(`{"a":`),
		"twice":   json.RawMessage(`{"a":1,"a":1}`),
	} {
		a := newAgent(t, guarded, toolset.Limits{})
		for range 20 {
			_, err := toolset.Do(a.ctx, a.Set, "free", args, func(context.Context) (int, error) { return 0, errMissing })
			require.Equal(t, errMissing, err, name)
		}
	}
	key := func(tool string, args any) any { panic("key") }
	a := newAgent(t, guarded, toolset.Limits{Key: key})
	for range 20 {
		a.runs("free", `1`, nil, errMissing)
	}
}

// round makes calls in turn, each with the result that value gives it, until one is refused.
// It returns how many ran.
func (a *agent) round(size int, value func(call, lap int) any) int {
	for i := range 100 {
		call := i % size
		if _, ran := a.ask("tool", fmt.Sprint(call), value(call, i/size), nil); !ran {
			return i
		}
	}
	return 100
}

func TestA034Rounds(t *testing.T) {
	same := func(call, _ int) any { return call }
	changes := func(call, lap int) any { return call + lap }
	for size := 1; size <= 4; size++ {
		require.Equal(t, 3*size, newAgent(t, guarded, toolset.Limits{}).round(size, same), size)
		require.Equal(t, 2*size, newAgent(t, guarded, toolset.Limits{Repeats: 2}).round(size, same), size)
		require.Equal(t, 100, newAgent(t, guarded, toolset.Limits{}).round(size, changes), size)
	}
	require.Equal(t, 100, newAgent(t, guarded, toolset.Limits{}).round(5, same), "too long to be one")

	a := newAgent(t, guarded, toolset.Limits{})
	for i := range 10 { // other calls in between
		a.runs("a", `1`, "x", nil)
		a.runs("b", fmt.Sprint(i), "x", nil)
	}
	a.runs("a", `1`, "x", nil)
	a.runs("a", `1`, "x", nil)

	unread := func(int, int) any { return make(chan int) }
	require.Equal(t, 100, newAgent(t, guarded, toolset.Limits{}).round(1, unread), "results that nobody can compare")
	require.Equal(t, 100, newAgent(t, guarded, toolset.Limits{}).round(1, func(int, int) any { return nil }))
}

func TestA035SecondToolCannotRestartTheCount(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	for range 3 {
		a.runs("a", `1`, "ping", nil)
		a.runs("b", `1`, "pong", nil)
	}
	for range 3 {
		b := a.blocked("b", `1`, repeated)
		require.Empty(t, b.Cause)
		require.Contains(t, b.Message, "Use the result you have")
		a.blocked("a", `1`, repeated)
	}
	require.True(t, a.blocked("b", `1`, repeated).EndTurn)
	a.runs("b", `2`, "pong", nil) // another call breaks the round
	a.runs("a", `1`, "ping", nil)
}

func TestRoundOfCallsAtTheSameTime(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	for i := range 3 {
		first, second := "a", "b"
		if i == 1 {
			first, second = second, first
		}
		one, two := a.begin1(first), a.begin1(second)
		one.Settle(a.ctx, first, nil)
		two.Settle(a.ctx, second, nil)
	}
	a.blocked("a", `1`, repeated)
	a.blocked("b", `1`, repeated)
}

func TestPollingGoesOnAfterAPause(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	for range 3 {
		a.runs("status", `1`, "pending", nil)
	}
	for range 10 {
		a.blocked("status", `1`, repeated)
		a.clock.Add(time.Minute)
		a.runs("status", `1`, "pending", nil)
	}
	poll := func(tool string, args any) any {
		if tool == "status" {
			return toolset.Unknown
		}
		return args
	}
	b := a.another("poll", toolset.Limits{Key: poll})
	for range 20 {
		b.runs("status", `1`, "pending", nil)
	}
}

// N25: a slow loop is a poll, also where the tool itself waits.
func TestN25PollsAreNeverHeld(t *testing.T) {
	for _, pace := range []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second} {
		a := newAgent(t, guarded, toolset.Limits{})
		for range 20 {
			a.runs("status", `1`, "still running", nil)
			a.clock.Add(pace)
		}
		for range 20 {
			a.waits("wait", pace, "still running")
		}
		for range 20 {
			a.runs("get", `1`, nil, errMissing)
			a.clock.Add(pace)
		}
	}
	a := newAgent(t, guarded, toolset.Limits{Poll: time.Second})
	for range 20 {
		a.runs("status", `1`, "still running", nil)
		a.clock.Add(time.Second)
	}
}

// waits is a call that must run and takes so long.
func (a *agent) waits(tool string, d time.Duration, value any) {
	a.Helper()
	_, err := toolset.Do(a.ctx, a.Set, tool, 1, func(context.Context) (any, error) {
		a.clock.Add(d)
		return value, nil
	})
	require.NoError(a, err)
}

// N24: a wait that the dependency asked for, and got, makes another call of a repeat.
func TestN24HonouredWaitIsNoRepeat(t *testing.T) {
	limited := toolcircuit.RetryAfter(&toolcircuit.HTTPError{StatusCode: 429}, time.Second)
	for _, tool := range []string{"free", "a"} {
		a := newAgent(t, guarded, toolset.Limits{})
		for range 20 {
			a.runs(tool, `1`, nil, limited)
			a.clock.Add(time.Second)
		}
	}
}

// A wait beyond MaxRetryAfter is told as that, and is over then. A tool that is not guarded has the
// default policy's.
func TestHonouredWaitIsTheOneThatWasTold(t *testing.T) {
	c := guarded
	c.Default = &toolcircuit.Policy{MaxRetryAfter: 2 * time.Second}
	for tool, told := range map[string]time.Duration{"a": 2 * time.Second, "free": 10 * time.Minute} {
		a := newAgent(t, c, toolset.Limits{Pause: time.Hour})
		for range 6 {
			r := a.runs(tool, `1`, nil, &toolcircuit.HTTPError{StatusCode: 429, RetryAfter: time.Hour})
			require.Equal(t, told.Milliseconds(), r.RetryAfterMS)
			require.Empty(t, r.Advice)
			a.clock.Add(told)
		}
	}
}

// The end that a circuit names is the end: a call that observed it is not refused by the session.
func TestWaitOfACircuitIsTheEnd(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{Pause: time.Hour})
	for range 3 {
		a.runs("a", `1`, nil, errDown)
	}
	for range 3 {
		b := a.blocked("a", `1`, open)
		a.clock.Add(time.Duration(b.RetryAfterMS) * time.Millisecond)
		a.runs("a", `1`, nil, errDown)
	}

	a = newAgent(t, guarded, toolset.Limits{Pause: time.Hour}) // it is told with a failure, too
	a.trip("b")
	a.clock.Add(time.Minute)
	for range 5 {
		r := a.runs("a", `1`, nil, errDown)
		require.NotZero(t, r.RetryAfterMS)
		a.clock.Add(time.Duration(r.RetryAfterMS) * time.Millisecond)
	}

	a = newAgent(t, guarded, toolset.Limits{Pause: time.Hour}) // and of a circuit that others opened
	for range 3 {
		a.runs("a", `1`, nil, errors.New("unknown"))
	}
	a.trip("b")
	a.blocked("a", `1`, open)
	a.clock.Add(time.Minute)
	a.runs("a", `1`, nil, errors.New("unknown"))

	b := a.another("other", toolset.Limits{Pause: time.Hour})
	for range 3 {
		b.runs("free", `1`, nil, errDown)
		b.runs("b2", `1`, nil, errors.New("unknown"))
	}
	b.clock.Add(time.Minute)
	b.blocked("free", `1`, repeated)
}

// A circuit that is not ready refuses first, and says what is wrong.
func TestCircuitRefusesFirst(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{Refused: 100})
	a.runs("a", `1`, nil, errInvalid)
	a.blocked("a", `1`, repeated)
	a.trip("b")
	a.blocked("a", `1`, open)
	require.NoError(t, a.SetOverride("a", toolcircuit.OverrideOpen))
	a.blocked("a", `1`, toolcircuit.ReasonManualOpen)
	require.NoError(t, a.SetOverride("a", toolcircuit.OverrideNone))
	a.blocked("a", `1`, open)
	require.NoError(t, a.Reset("a"))
	a.blocked("a", `1`, repeated)

	a.apply(toolset.Config{Monitored: []string{"new"}})
	require.NoError(t, a.SetOverride("new", toolcircuit.OverrideOpen)) // before there is a circuit
	a.blocked("new", `1`, toolcircuit.ReasonManualOpen)
}

// N27: results that differ by a process id or a duration alone.
func TestN27ResultKey(t *testing.T) {
	type result struct {
		Text string
		PID  int
	}
	fast := func(l toolset.Limits) (ran int) {
		a := newAgent(t, guarded, l)
		for i := range 121 {
			if _, executed := a.ask("exec", `1`, result{"up to date", i}, nil); executed {
				ran++
			}
		}
		return ran
	}
	require.Equal(t, 121, fast(toolset.Limits{}))
	require.Equal(t, 3, fast(toolset.Limits{ResultKey: func(tool string, r any) any {
		require.Equal(t, "exec", tool)
		return r.(result).Text
	}}))
	for name, key := range map[string]func(string, any) any{
		"panics":  func(string, any) any { panic("key") },
		"unknown": func(string, any) any { return toolset.Unknown },
		"nil":     func(string, any) any { return nil },
	} {
		require.Equal(t, 121, fast(toolset.Limits{ResultKey: key}), name)
	}
}

// N28: of many identical calls that fail, a batch and Repeats reach the tool.
func TestN28ManyAtATime(t *testing.T) {
	for batch, want := range map[int]int{7: 10, 8: 11} {
		a := newAgent(t, guarded, toolset.Limits{})
		ran := 0
		for left := 20; left > 0; left -= batch {
			var permits []*toolset.Permit
			for range min(batch, left) {
				if p, err := a.Allow(a.ctx, "free", 1); err == nil {
					permits = append(permits, &p)
				}
			}
			ran += len(permits)
			for _, p := range permits {
				p.Settle(a.ctx, nil, errors.New("boom"))
			}
		}
		require.Equal(t, want, ran)
	}
}

// N30: the user signs in, at once or after failed turns.
func TestN30SignIn(t *testing.T) {
	denied := &toolcircuit.HTTPError{StatusCode: 401}
	for failed := 1; failed <= 4; failed++ {
		a := newAgent(t, guarded, toolset.Limits{})
		for range failed {
			a.runs("a", `1`, nil, denied)
			a.blocked("a", `1`, repeated)
			a.run.NextTurn()
		}
		a.runs("a", `1`, "in", nil)
	}
}

// N22: a Classifier that switches on the dependency is asked once, with the facts, and the session
// goes by its verdict.
func TestN22ClassifierIsAskedOnce(t *testing.T) {
	var asked []string
	r := newRig(t, guarded, toolset.Options{Classify: func(_ context.Context, o toolcircuit.Outcome) toolcircuit.Verdict {
		asked = append(asked, o.Dependency)
		if o.Dependency == "api" {
			return toolcircuit.Verdict{Kind: toolcircuit.KindNotFound}
		}
		return toolcircuit.Verdict{}
	}})
	a := (&agent{rig: r}).another("run", toolset.Limits{})
	a.runs("a", `1`, nil, errors.New("no rows"))
	require.Equal(t, toolcircuit.KindNotFound, a.blocked("a", `1`, repeated).Cause)
	require.Equal(t, []string{"api"}, asked)
}

// Without a session nothing reads arguments and results.
func TestNothingIsReadWithoutASession(t *testing.T) {
	r := newRig(t, guarded, toolset.Options{})
	for _, ctx := range []context.Context{r.ctx, toolset.WithSession(r.ctx, nil)} {
		_, err := toolset.Do(ctx, r.Set, "a", exiting{}, func(context.Context) (any, error) { return exiting{}, nil })
		require.NoError(t, err)
	}
}

func TestA077Advice(t *testing.T) {
	for name, give := range map[string]func(a *agent) toolcircuit.Result[any]{
		"for good": func(a *agent) toolcircuit.Result[any] { return a.runs("web_search", `1`, nil, errMissing) },
		"again and again": func(a *agent) (r toolcircuit.Result[any]) {
			for range 3 {
				require.Empty(t, r.Advice)
				r = a.runs("web_search", `1`, nil, errors.New("boom"))
			}
			return r
		},
		"in a round": func(a *agent) (r toolcircuit.Result[any]) {
			for range 3 {
				require.Empty(t, r.Advice)
				a.runs("lookup", `1`, "same", nil)
				r = a.runs("web_search", `1`, "same", nil)
			}
			return r
		},
	} {
		a := newAgent(t, guarded, toolset.Limits{})
		r := give(a)
		require.Contains(t, r.Advice, "This or an earlier call of web_search ", name)
		require.Contains(t, r.Advice, "ther tools remain usable", name)
		require.Less(t, len(strings.Fields(r.Advice)), 60, name)
		require.NotContains(t, r.Advice, "lookup", name)
		require.Empty(t, a.runs("web_search", `2`, "new", nil).Advice, "it comes once")
	}
}

// Results may be made in another order than the calls ended.
func TestAdviceIsTrueInAnotherResult(t *testing.T) {
	for _, failure := range []error{errMissing, errInvalid} {
		a := newAgent(t, guarded, toolset.Limits{})
		_, err := toolset.Do(a.ctx, a.Set, "free", 1, func(context.Context) (int, error) { return 0, failure })
		require.Equal(t, failure, err)
		require.Contains(t, a.runs("free", `2`, nil, failure).Advice, "This or an earlier call of free failed")
	}
}

// Calls at the same time each have the advice that is about them, and an answer has none.
func TestAdviceIsOfTheCall(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	errs := []error{errMissing, &toolcircuit.HTTPError{StatusCode: 401}, nil}
	permits, verdicts := make([]toolset.Permit, len(errs)), make([]toolcircuit.Verdict, len(errs))
	for i := range errs {
		var err error
		permits[i], err = a.Allow(a.ctx, "p", i)
		require.NoError(t, err)
	}
	for i, want := range errs {
		var err error
		verdicts[i], err = permits[i].Settle(a.ctx, "x", want)
		require.Equal(t, want, err)
	}
	for i, want := range map[int]string{2: "", 0: "no such thing", 1: "access was refused"} {
		r, err := toolset.ResultOf[any](a.ctx, a.Set, "p", "x", verdicts[i], errs[i])
		require.NoError(t, err)
		if want == "" {
			require.Empty(t, r.Advice)
		}
		require.Contains(t, r.Advice, want)
	}
}

// A warning of a refusal that will not come is none.
func TestAdviceIsDroppedOnceTheCallMayBeRepeated(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	_, err := toolset.Do(a.ctx, a.Set, "free", 1, func(context.Context) (int, error) { return 0, errMissing })
	require.Equal(t, errMissing, err)
	require.Empty(t, a.runs("free", `2`, "x", nil).Advice)
	a.runs("free", `1`, nil, errMissing)
}

func TestAdviceForAnOutageIsNotToChangeTheArguments(t *testing.T) {
	for _, failure := range []error{context.DeadlineExceeded, errDown} {
		a := newAgent(t, guarded, toolset.Limits{Repeats: 1})
		advice := a.runs("free", `1`, nil, failure).Advice
		require.NotContains(t, advice, "Change the arguments")
		require.Contains(t, advice, "Go on without it for now")
	}
}

func TestAdviceIsOfTheTurn(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	_, err := toolset.Do(a.ctx, a.Set, "free", 1, func(context.Context) (int, error) { return 0, errMissing })
	require.Equal(t, errMissing, err)
	a.run.NextTurn()
	require.Empty(t, a.runs("free", `2`, "x", nil).Advice)
}

func TestA110OnlyTheExactRepeatIsPaused(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	for range 3 {
		a.runs("write", `{"id":1}`, nil, errors.New("locked"))
		a.clock.Add(20 * time.Second)
	}
	a.blocked("write", `{"id":1}`, repeated)
	a.runs("write", `{"id":2}`, nil, errors.New("locked"))
	a.runs("write", `{"id":"x"}`, nil, &toolcircuit.HTTPError{StatusCode: 422})
	a.runs("write", `{"id":"y"}`, nil, &toolcircuit.HTTPError{StatusCode: 422})
	a.another("another user", toolset.Limits{}).runs("write", `{"id":1}`, "x", nil)
	a.clock.Add(time.Minute)
	a.runs("write", `{"id":1}`, "x", nil)
}

func TestR01TenRoundsForOneDeadDependency(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	ran := 0
	for range 10 {
		if _, executed := a.ask("a", `{"q":"x"}`, nil, errDown); executed {
			ran++
		}
	}
	require.Equal(t, 3, ran)
}

func TestR02FiftyIdenticalCalls(t *testing.T) {
	for _, tool := range []string{"a", "free"} {
		a := newAgent(t, guarded, toolset.Limits{})
		ran := 0
		for range 50 {
			r, executed := a.ask(tool, `{"q":"x"}`, nil, errors.New("no rule knows it"))
			if executed {
				ran++
			} else {
				require.Contains(t, r.Message, "with these arguments for 60 s, until 00:01:00 UTC")
			}
		}
		require.Equal(t, 3, ran)
	}
}

func TestR04KeyDropsFreeText(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	for i := range 3 {
		a.runs("a", fmt.Sprintf(`{"q":"x","why":"try %d"}`, i), nil, errDown)
	}
	a.blocked("a", `{"q":"x","why":"once more"}`, open) // the circuit does not look at arguments

	withoutWhy := func(_ string, args any) any {
		var q struct{ Q string }
		if err := json.Unmarshal(args.(json.RawMessage), &q); err != nil {
			return toolset.Unknown
		}
		return q
	}
	b := a.another("with a key", toolset.Limits{Key: withoutWhy})
	b.runs("free", `{"q":"x","why":"because"}`, nil, errMissing)
	b.blocked("free", `{"q":"x","why":"I insist"}`, repeated)
	b.runs("free", `{"q":"y","why":"because"}`, nil, errMissing)
}

// N26: what was not found may be there once something has been written.
func TestSideEffectsLetFailuresBeTriedAgain(t *testing.T) {
	c := toolset.Config{Tools: map[string]toolset.Tool{"write_file": {SideEffects: &yes}, "read_file": {}}}
	a := newAgent(t, c, toolset.Limits{})
	a.runs("read_file", `"x"`, nil, errMissing)
	a.runs("write_file", `"x"`, nil, errInvalid)
	a.blocked("read_file", `"x"`, repeated)
	for i := range 5 {
		a.runs("write_file", fmt.Sprint(i), "done", nil)
		a.runs("read_file", `"x"`, nil, errMissing)
		a.blocked("read_file", `"x"`, repeated)
	}
	for i := range 5 {
		a.runs("read_file", `"y"`, nil, errors.New("locked"))
		a.runs("read_file", `"y"`, nil, errors.New("locked"))
		a.runs("write_file", fmt.Sprint(-i), "done", nil)
	}
}

// An effect mends no outage, but the call may be made at the pace of a poll.
func TestSideEffectsMendNoOutage(t *testing.T) {
	c := toolset.Config{Tools: map[string]toolset.Tool{"write_file": {SideEffects: &yes}}}
	a := newAgent(t, c, toolset.Limits{})
	for range 3 {
		a.runs("read_file", `"x"`, nil, errDown)
	}
	a.runs("write_file", `1`, "done", nil)
	require.Contains(t, a.blocked("read_file", `"x"`, repeated).Message, "for 10 s")
	a.clock.Add(10 * time.Second)
	a.runs("read_file", `"x"`, nil, errDown)
	require.Contains(t, a.blocked("read_file", `"x"`, repeated).Message, "for 60 s")
}

// The model is told to check whether a write took effect, so it must be able to.
func TestEffectInDoubtCanBeChecked(t *testing.T) {
	c := toolset.Config{Tools: map[string]toolset.Tool{"create": {SideEffects: &yes}, "get": {}}}
	for name, failure := range map[string]error{
		"timeout":     context.DeadlineExceeded,
		"unavailable": errDown,
		"unknown":     errors.New("boom"),
	} {
		a := newAgent(t, c, toolset.Limits{})
		a.runs("get", `1`, nil, errMissing)
		require.Equal(t, "unknown", a.runs("create", `1`, nil, failure).Outcome, name)
		a.runs("get", `1`, nil, errMissing)
		a.blocked("get", `1`, repeated)
		a.runs("create", `1`, nil, failure)
		a.runs("create", `1`, nil, failure)
		reason := open // which is told first
		if name == "unknown" {
			reason = repeated
		}
		a.blocked("create", `1`, reason)
	}
	for name, create := range map[string]func(context.Context) (int, error){
		"panic":    func(context.Context) (int, error) { panic("create") },
		"canceled": func(context.Context) (int, error) { return 0, context.Canceled },
	} {
		a := newAgent(t, c, toolset.Limits{})
		a.runs("get", `1`, nil, errMissing)
		func() {
			defer func() { recover() }()
			toolset.Do(a.ctx, a.Set, "create", 1, create)
		}()
		_, ran := a.ask("get", `1`, "there", nil)
		require.True(t, ran, name)
	}
}

// Writes that fail among others must not excuse one another.
func TestEffectsInDoubtDoNotRestartTheCount(t *testing.T) {
	a := newAgent(t, toolset.Config{Tools: map[string]toolset.Tool{"pay": {SideEffects: &yes}}}, toolset.Limits{})
	for range 3 {
		for i := range 6 {
			a.runs("pay", fmt.Sprint(i), nil, errors.New("boom"))
		}
	}
	for i := range 6 {
		a.blocked("pay", fmt.Sprint(i), repeated)
	}
}

func TestDuplicateLetsFailuresBeTriedAgain(t *testing.T) {
	a := newAgent(t, toolset.Config{Tools: map[string]toolset.Tool{"create": {SideEffects: &yes}}}, toolset.Limits{})
	for range 3 {
		a.runs("get", `1`, nil, errors.New("locked"))
	}
	a.blocked("get", `1`, repeated)
	a.runs("create", `1`, "x", toolcircuit.Duplicate(errors.New("exists")))
	a.runs("get", `1`, "there", nil)
}

func TestReadThatBeganBeforeTheWriteIsNotHeldAgainstTheRun(t *testing.T) {
	a := newAgent(t, toolset.Config{Tools: map[string]toolset.Tool{"create": {SideEffects: &yes}}}, toolset.Limits{})
	early := a.begin1("get")
	a.runs("create", `1`, "x", nil)
	early.Settle(a.ctx, nil, errMissing)
	a.runs("get", `1`, "there", nil)
}

func TestExcludedAndUnknownCallsHideNoRound(t *testing.T) {
	for _, between := range []string{"think", "note"} {
		a := newAgent(t, toolset.Config{Excluded: []string{"think"}}, toolset.Limits{Key: func(tool string, args any) any {
			if tool == "note" {
				return toolset.Unknown
			}
			return args
		}})
		for i := range 3 {
			a.runs("search", `1`, "none", nil)
			a.runs(between, `1`, i, nil)
		}
		a.blocked("search", `1`, repeated)
		a.runs(between, `1`, 0, nil)
	}
}

func TestCopiesUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, guarded, toolset.Limits{}) // Copies is 8
		answered := make(chan struct{})
		var running sync.WaitGroup
		var mu sync.Mutex
		ran, refused := 0, 0
		for range 64 {
			running.Go(func() {
				_, err := toolset.Do(a.ctx, a.Set, "a", 1, func(context.Context) (string, error) {
					<-answered
					return "x", nil
				})
				mu.Lock()
				defer mu.Unlock()
				var e *toolcircuit.OpenError
				switch {
				case err == nil:
					ran++
				case errors.As(err, &e) && e.Reason == toolcircuit.ReasonRepeatedCall:
					refused++
				}
			})
		}
		synctest.Wait()
		a.runs("a", `2`, "x", nil)
		close(answered)
		running.Wait()
		require.Equal(t, []int{8, 56}, []int{ran, refused})
		a.runs("a", `1`, "x", nil)
	})
}

func TestCopyThatSucceedsMendsTheOthersFailure(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	one, two := a.begin1("free"), a.begin1("free")
	one.Settle(a.ctx, nil, errMissing)
	two.Settle(a.ctx, "x", nil)
	a.runs("free", `1`, nil, errMissing)
	a.blocked("free", `1`, repeated)
}

func TestCallThatDoesNotReturn(t *testing.T) {
	for name, leave := range map[string]func(){"panic": func() { panic("tool") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAgent(t, guarded, toolset.Limits{Copies: 1})
				for range 3 {
					var running sync.WaitGroup
					running.Go(func() {
						defer func() { recover() }()
						toolset.Do(a.ctx, a.Set, "free", 1, func(context.Context) (int, error) { leave(); return 0, nil })
					})
					running.Wait()
				}
				require.Equal(t, toolcircuit.KindPanic, a.blocked("free", `1`, repeated).Cause)
			})
		})
	}
}

// exiting ends the goroutine of whoever reads it.
type exiting struct{}

func (exiting) Error() string                { runtime.Goexit(); return "" }
func (exiting) MarshalJSON() ([]byte, error) { runtime.Goexit(); return nil, nil }

// sick panics when it is read.
type sick struct{}

func (sick) Error() string { panic("error") }

func TestCodeOfTheUserThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := false
		r := newRig(t, guarded, toolset.Options{
			OnCall: func(context.Context, toolcircuit.Call) {},
			Classify: func(context.Context, toolcircuit.Outcome) toolcircuit.Verdict {
				if ends {
					runtime.Goexit()
				}
				return toolcircuit.Verdict{}
			},
		})
		a := (&agent{rig: r}).another("run", toolset.Limits{Copies: 1})
		fail := func(tool string, err error) {
			var running sync.WaitGroup
			running.Go(func() {
				toolset.Do(a.ctx, a.Set, tool, 1, func(context.Context) (int, error) { return 0, err })
			})
			running.Wait()
		}
		for range 4 {
			fail("free", exiting{})
			fail("other", sick{})
		}
		ends = true
		for range 3 {
			fail("b", errors.New("x"))
			fail("third", errors.New("x"))
		}
		ends = false
		for _, tool := range []string{"free", "other"} {
			a.runs(tool, `1`, "x", nil) // no copy is thought to be under way
		}
		require.Equal(t, toolcircuit.KindPanic, a.blocked("b", `1`, open).Cause)
		require.Equal(t, toolcircuit.KindPanic, a.blocked("third", `1`, repeated).Cause)
	})
}

type handle struct{ rows int }

func TestResultsThatJSONCannotTellApart(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	for i := range 10 {
		a.runs("free", `1`, &handle{i}, nil)
	}
}

func TestArgumentsThatTheToolChanges(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	call := func() error {
		args := map[string]any{"path": "x"}
		_, err := toolset.Do(a.ctx, a.Set, "free", args, func(context.Context) (int, error) {
			args["path"] = "changed"
			return 0, errMissing
		})
		return err
	}
	require.Equal(t, errMissing, call())
	require.ErrorIs(t, call(), toolcircuit.ErrCircuitOpen)
}

func TestMemoryForgetsTheOldest(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{Memory: 2, Refused: 100})
	a.runs("free", `1`, nil, errInvalid)
	a.runs("free", `2`, nil, errInvalid)
	a.blocked("free", `1`, repeated)
	a.runs("free", `3`, nil, errInvalid)
	a.blocked("free", `2`, repeated)
	a.runs("free", `1`, nil, errInvalid)
	a.blocked("free", `3`, repeated)
	a.runs("free", `2`, nil, errInvalid)
}

func TestMemoryKeepsWhatFailedLast(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{Memory: 2})
	boom := errors.New("boom")
	a.runs("free", `1`, nil, boom)
	a.runs("free", `2`, nil, errInvalid)
	a.runs("free", `1`, nil, boom)
	a.runs("free", `3`, nil, errInvalid) // 2 goes
	a.runs("free", `1`, nil, boom)
	a.blocked("free", `1`, repeated)

	b := a.another("what succeeds takes no room", toolset.Limits{Memory: 2})
	b.runs("free", `1`, nil, errInvalid)
	b.runs("free", `2`, nil, boom)
	b.runs("free", `2`, "x", nil)
	b.runs("free", `3`, nil, errInvalid)
	b.blocked("free", `1`, repeated)
}

func TestResultThatSaysItFailed(t *testing.T) {
	r := newRig(t, guarded, toolset.Options{Classify: func(_ context.Context, o toolcircuit.Outcome) toolcircuit.Verdict {
		if o.Value == "no such file" {
			return toolcircuit.Verdict{Kind: toolcircuit.KindNotFound}
		}
		return toolcircuit.Verdict{}
	}})
	a := (&agent{rig: r}).another("run", toolset.Limits{})
	a.runs("a", `1`, "no such file", nil)
	require.Equal(t, toolcircuit.KindNotFound, a.blocked("a", `1`, repeated).Cause)
}

func TestScopesDoNotRepeatOneAnother(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	in := func(scope string) *agent { return &agent{a.rig.in(scope), a.run} }
	in("one").runs("free", `1`, nil, errMissing)
	in("two").runs("free", `1`, nil, errMissing)
	in("one").blocked("free", `1`, repeated)
}
