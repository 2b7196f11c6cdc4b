package toolset_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// soft is what a model reads of a call that returns err, in a runtime which errors would end.
func (r *rig) soft(tool string, err error) (toolcircuit.Result[string], error) {
	return toolset.WrapResult(r.Set, tool, func(context.Context, string) (string, error) { return "value", err })(r.ctx, "")
}

func TestResultInEachStatus(t *testing.T) {
	r := newRig(t, narrow, toolset.Options{})
	for _, tool := range []string{"a", "free"} {
		ok, err := toolset.ResultOf(r.ctx, r.Set, tool, "value", toolcircuit.Verdict{}, nil)
		require.NoError(t, err)
		require.Equal(t, toolcircuit.StatusOK, ok.Status)
		require.Equal(t, "value", *ok.Value)
		require.Zero(t, ok.Blocked)

		again, err := r.soft(tool, toolcircuit.Duplicate(errors.New("paid")))
		require.NoError(t, err)
		require.Equal(t, "duplicate", again.Outcome)

		_, err = toolset.ResultOf(r.ctx, r.Set, tool, "", toolcircuit.Verdict{}, errDown)
		require.Equal(t, errDown, err, "nobody judged it")
		down := toolcircuit.Verdict{Effect: toolcircuit.EffectCount, Kind: toolcircuit.KindUnavailable}
		failed, err := toolset.ResultOf(r.ctx, r.Set, tool, "", down, errDown)
		require.NoError(t, err)
		require.Equal(t, toolcircuit.StatusFailed, failed.Status)
		require.Equal(t, tool, failed.Tool)
		require.Equal(t, toolcircuit.KindUnavailable, failed.Cause)
	}
	require.Empty(t, r.Snapshot().Circuits[0].Streak, "a result is no call")
	require.Len(t, *r.calls, 1, "nor does a tool that is not guarded tell a hook")
}

func TestA068WhatABlockedModelReads(t *testing.T) {
	r := newRig(t, narrow, toolset.Options{})
	r.trip("a")
	for range 395 {
		require.EqualValues(t, 60_000, r.refused("a").RetryAfterMS, "a refusal moves no deadline")
	}
	require.EqualValues(t, 395, r.circuit("api").Refused)
}

func TestA070TypedErrorAndResult(t *testing.T) {
	r := newRig(t, narrow, toolset.Options{})
	r.trip("a")
	_, err := toolset.Do(r.ctx, r.Set, "a", nil, func(context.Context) (int, error) { return 0, nil })
	var e *toolcircuit.OpenError
	require.ErrorAs(t, err, &e)
	require.Equal(t, time.Minute, e.RetryAfter())
	_, err = toolset.WrapResult(r.Set, "a", func(context.Context, int) (int, error) { return 0, nil })(r.ctx, 0)
	require.NoError(t, err)
}

func TestA076NoDeniedAlternative(t *testing.T) {
	c := toolset.Config{
		Tools: map[string]toolset.Tool{
			"search": {Alternatives: []string{"shell", "cache"}},
			"cache":  {},
		},
		Excluded: []string{"sh*"},
	}
	r := newRig(t, c, toolset.Options{})
	r.trip("search")
	blocked := r.refused("search")
	require.Equal(t, []string{"cache"}, blocked.Alternatives)
	require.NotContains(t, blocked.Message, "shell")
	c.Excluded = append(c.Excluded, "cache")
	r.apply(c)
	blocked = r.refused("search")
	require.Empty(t, blocked.Alternatives)
	require.Equal(t, []toolcircuit.Action{toolcircuit.ActionAnswerWithout}, blocked.NextActions)
}

func TestA080SoftFailureIsNoEmptySuccess(t *testing.T) {
	r := newRig(t, narrow, toolset.Options{})
	for range 3 {
		result, err := r.soft("a", errDown)
		require.NoError(t, err)
		require.Equal(t, toolcircuit.StatusFailed, result.Status)
		require.Nil(t, result.Value)
	}
	result, err := r.soft("a", nil)
	require.NoError(t, err)
	require.Equal(t, toolcircuit.StatusBlocked, result.Status)
	require.Len(t, *r.events, 1)
	require.Equal(t, toolcircuit.StateOpen, r.circuit("api").State)
}

func TestA113AlternativesThatAreBlocked(t *testing.T) {
	r := newRig(t, toolset.Config{
		Dependencies: map[string]toolset.Dependency{"narrow": {MaxInFlight: 1}, "tenants": {Scoped: true}},
		Tools: map[string]toolset.Tool{
			"search":  {Alternatives: []string{"backup", "narrow", "off", "tenants", "sibling"}},
			"backup":  {},
			"sibling": {Dependency: "search"},
		},
		Monitored: []string{"narrow", "off", "tenants"},
	}, toolset.Options{})
	r.trip("search")
	require.Equal(t, []string{"backup", "narrow", "off", "tenants"}, r.refused("search").Alternatives)
	r.trip("backup")
	require.NoError(t, r.SetOverride("off", toolcircuit.OverrideOpen))
	running := r.begin("narrow")
	r.in("one").trip("tenants")
	require.Empty(t, r.in("one").refused("search").Alternatives)
	require.Equal(t, []string{"tenants"}, r.in("two").refused("search").Alternatives)
	running.Release()
	require.Equal(t, []string{"narrow"}, r.in("one").refused("search").Alternatives)
	r.clock.Add(time.Minute)
	r.call("search", errDown)
	require.Equal(t, []string{"backup", "narrow", "tenants"}, r.in("one").refused("search").Alternatives, "a cooldown that is over blocks nobody")
}

func TestR07EachCallHasOneResult(t *testing.T) {
	r := newRig(t, narrow, toolset.Options{})
	var statuses []toolcircuit.Status
	for _, err := range []error{nil, errDown, errDown, errDown, nil} {
		result, err := r.soft("a", err)
		require.NoError(t, err)
		statuses = append(statuses, result.Status)
	}
	require.Equal(t, []toolcircuit.Status{"ok", "failed", "failed", "failed", "blocked"}, statuses)
}

func TestR08SoftLeavesControlFlow(t *testing.T) {
	stop := errors.New("wait for the user")
	r := newRig(t, narrow, toolset.Options{Classify: func(_ context.Context, o toolcircuit.Outcome) toolcircuit.Verdict {
		if errors.Is(o.Err, stop) {
			return toolcircuit.Verdict{Kind: toolcircuit.KindInterrupt}
		}
		return toolcircuit.Verdict{}
	}})
	for _, want := range []error{stop, context.Canceled} {
		_, err := r.soft("a", want)
		require.Equal(t, want, err)
	}
	ctx, cancel := context.WithCancel(r.ctx)
	_, err := toolset.WrapResult(r.Set, "a", func(context.Context, int) (int, error) {
		cancel()
		return 0, errDown
	})(ctx, 0)
	require.Equal(t, errDown, err, "after the end of its context it is the runtime's")
	require.Zero(t, r.circuit("api").Streak)
	require.Panics(t, func() {
		toolset.WrapResult(r.Set, "a", func(context.Context, int) (int, error) { panic("tool") })(r.ctx, 0)
	})
}

func TestR53TimeoutOfAWriteIsNotRepeated(t *testing.T) {
	r := newRig(t, toolset.Config{Tools: map[string]toolset.Tool{"pay": {SideEffects: &yes}}}, toolset.Options{})
	ran := 0
	result, err := toolset.WrapResult(r.Set, "pay", func(context.Context, int) (int, error) {
		ran++
		return 0, context.DeadlineExceeded
	})(r.ctx, 0)
	require.NoError(t, err)
	require.Equal(t, 1, ran)
	require.Equal(t, "unknown", result.Outcome)
	require.Nil(t, result.Executed)
	require.False(t, *result.Retryable)
	require.Equal(t, []toolcircuit.Action{toolcircuit.ActionEscalate}, result.NextActions)
}

// A tool changes the world also while no circuit guards it.
func TestWriteInDoubtThatIsNotGuarded(t *testing.T) {
	pay := map[string]toolset.Tool{"pay": {SideEffects: &yes}}
	for name, c := range map[string]toolset.Config{
		"disabled": {Tools: pay, Disabled: true},
		"excluded": {Tools: pay, Excluded: []string{"pay"}},
		"raised":   {},
	} {
		a := newAgent(t, c, toolset.Limits{Repeats: 1})
		if name == "raised" {
			a.RaiseSideEffects("pay")
		}
		result := a.runs("pay", `1`, nil, context.DeadlineExceeded)
		require.Equal(t, "unknown", result.Outcome, name)
		require.False(t, *result.Retryable, name)
		require.Equal(t, []toolcircuit.Action{toolcircuit.ActionEscalate}, result.NextActions, name)
		require.Contains(t, result.Message, "Before you call it again, check whether it did", name)
		if name == "raised" { // a session leaves the others alone
			require.Contains(t, a.blocked("pay", `1`, repeated).Message, "Check whether an earlier call took effect", name)
		}
	}
}

func TestResultOfARefusalInside(t *testing.T) {
	r := newRig(t, narrow, toolset.Options{})
	inner := toolcircuit.MustNew("inner", toolcircuit.Options{})
	inner.SetOverride(toolcircuit.OverrideOpen)
	for _, tool := range []string{"a", "free"} {
		_, err := toolset.Do(r.ctx, r.Set, tool, nil, func(ctx context.Context) (string, error) {
			return toolcircuit.Do(ctx, inner, func(context.Context) (string, error) { return "", nil })
		})
		result, err := toolset.ResultOf(r.ctx, r.Set, tool, "", toolcircuit.Verdict{}, err)
		require.NoError(t, err)
		require.Equal(t, "inner", result.Dependency)
		require.Equal(t, tool, result.Tool)
		require.Nil(t, result.Executed)
	}
}

func TestMessageIsForAllTools(t *testing.T) {
	c := narrow
	c.Monitored = []string{"c"}
	r := newRig(t, c, toolset.Options{Message: func(b toolcircuit.Blocked) string { return b.Tool + " is away" }})
	for _, tool := range []string{"a", "c"} {
		r.trip(tool)
		require.Equal(t, tool+" is away", r.refused(tool).Message)
	}
	failed, err := r.soft("free", errDown)
	require.NoError(t, err)
	require.Equal(t, "free is away", failed.Message)
}

func TestConfiguredActionsAndKeys(t *testing.T) {
	r := newRig(t, toolset.Config{Tools: map[string]toolset.Tool{
		"pay": {Dependency: "bank", NextActions: []toolcircuit.Action{toolcircuit.ActionEscalate}},
	}}, toolset.Options{})
	r.trip("pay")
	text, err := json.Marshal(r.refused("pay"))
	require.NoError(t, err)
	require.Contains(t, string(text), `"dependency":"bank","tool":"pay","state":"open","executed":false`)
	require.Contains(t, string(text), `"nextActions":["escalate"]`)
}
