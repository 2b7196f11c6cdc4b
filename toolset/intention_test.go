package toolset_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// keyOf returns the key of a call.
func (a *agent) keyOf(ctx context.Context, tool string, args any) (key string) {
	a.Helper()
	toolset.Do(ctx, a.Set, tool, args, func(ctx context.Context) (int, error) {
		key = toolset.IdempotencyKey(ctx)
		return 0, nil
	})
	return key
}

func TestKeyIsOnePerRunToolAndArguments(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	key := a.keyOf(a.ctx, "a", json.RawMessage(`{"to":"x","sum":10}`))
	require.Len(t, key, 32)
	require.Equal(t, key, a.keyOf(a.ctx, "a", json.RawMessage(`{"sum":1e1,"to":"x"}`)))
	require.Equal(t, key, a.keyOf(a.ctx, "a", map[string]any{"to": "x", "sum": 10}))
	require.Equal(t, key, a.keyOf(a.another("run", toolset.Limits{}).ctx, "a", json.RawMessage(`{"sum":10,"to":"x"}`)),
		"a run that was resumed")

	others := map[string]string{
		"tool":      a.keyOf(a.ctx, "b", json.RawMessage(`{"to":"x","sum":10}`)),
		"arguments": a.keyOf(a.ctx, "a", json.RawMessage(`{"to":"x","sum":11}`)),
		"run":       a.keyOf(a.another("run2", toolset.Limits{}).ctx, "a", json.RawMessage(`{"to":"x","sum":10}`)),
		"scope":     a.keyOf(toolset.WithScope(a.ctx, "tenant"), "a", json.RawMessage(`{"to":"x","sum":10}`)),
	}
	for name, other := range others {
		require.Len(t, other, 32, name)
		require.NotEqual(t, key, other, name)
	}
	require.Empty(t, a.keyOf(a.ctx, "a", toolset.Unknown))
	require.Empty(t, a.keyOf(context.Background(), "a", 1), "no session")
	require.Empty(t, toolset.IdempotencyKey(a.ctx), "no operation")
}

func TestIntentionIsTheKey(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{Repeats: 100})
	one := toolset.WithIntention(a.ctx, "order-1")
	require.Equal(t, "order-1", a.keyOf(one, "a", 1))
	require.Equal(t, "order-1", a.keyOf(one, "b", toolset.Unknown))
	require.Equal(t, "order-1", a.keyOf(toolset.WithIntention(context.Background(), "order-1"), "a", 1), "also without a session")
	require.Equal(t, "order-2", a.keyOf(toolset.WithIntention(one, "order-2"), "a", 1))
	require.Equal(t, a.keyOf(a.ctx, "a", 1), a.keyOf(toolset.WithIntention(one, ""), "a", 1))
}

// Two equal payments, both meant, need two intentions; without any they are one.
func TestTwoEqualPayments(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	require.Equal(t, a.keyOf(a.ctx, "pay", 10), a.keyOf(a.ctx, "pay", 10))
	first, second := toolset.WithIntention(a.ctx, "first"), toolset.WithIntention(a.ctx, "second")
	require.NotEqual(t, a.keyOf(first, "pay", 10), a.keyOf(second, "pay", 10))
}

// Equal calls with an intention each are different calls, so none of them is held as a repeat.
func TestManyEqualPayments(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	pay := func(id string) error {
		_, err := toolset.Do(toolset.WithIntention(a.ctx, id), a.Set, "pay", 10, func(context.Context) (string, error) { return "paid", nil })
		return err
	}
	for i := range 20 {
		require.NoError(t, pay(fmt.Sprint("order-", i)))
	}
	for range 3 {
		require.NoError(t, pay("order-1"))
	}
	require.ErrorIs(t, pay("order-1"), toolcircuit.ErrCircuitOpen, "one intention is one call")
	require.NoError(t, pay("order-2"))
}

func TestR53EveryAttemptHasTheSameKey(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	seen := map[string]int{}
	pay := toolset.WrapResult(a.Set, "pay", func(ctx context.Context, sum int) (int, error) {
		for range 2 { // a retry within
			seen[toolset.IdempotencyKey(ctx)]++
		}
		return 0, context.DeadlineExceeded
	})
	for range 2 { // a retry around
		r, err := pay(a.ctx, 10)
		require.NoError(t, err)
		require.Equal(t, "unknown", r.Outcome)
	}
	require.Len(t, seen, 1)
	for key, n := range seen {
		require.NotEmpty(t, key)
		require.Equal(t, 4, n)
	}
}

func TestKeyOfNestedCalls(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	outer := a.keyOf(a.ctx, "outer", 1)
	inner := a.keyOf(a.ctx, "inner", 1)
	toolset.Do(a.ctx, a.Set, "outer", 1, func(ctx context.Context) (int, error) {
		require.Equal(t, inner, a.keyOf(ctx, "inner", 1))
		require.Equal(t, outer, toolset.IdempotencyKey(ctx))
		return 0, nil
	})
}

// A call without a session, or of another Set, is no attempt at the effect of the call around it.
func TestKeyOfTheCallAroundIsHidden(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	other := newAgent(t, guarded, toolset.Limits{})
	toolset.Do(a.ctx, a.Set, "outer", 1, func(ctx context.Context) (int, error) {
		require.Empty(t, a.keyOf(toolset.WithSession(ctx, nil), "inner", 1))
		require.Empty(t, other.keyOf(ctx, "inner", 1))
		require.Equal(t, "x", other.keyOf(toolset.WithIntention(ctx, "x"), "inner", 1))
		p, err := other.Allow(ctx, "inner", 1)
		require.NoError(t, err)
		require.Empty(t, toolset.IdempotencyKey(p.Context(ctx)))
		p.Release()
		require.NotEmpty(t, toolset.IdempotencyKey(ctx))
		return 0, nil
	})
}

func TestKeyInTwoSteps(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	for _, tool := range []string{"a", "free"} {
		p, err := a.Allow(a.ctx, tool, 1)
		require.NoError(t, err)
		require.Empty(t, toolset.IdempotencyKey(a.ctx))
		key := toolset.IdempotencyKey(p.Context(a.ctx))
		p.Settle(a.ctx, "x", nil)
		require.Equal(t, a.keyOf(a.ctx, tool, 1), key)
	}
	plain := newRig(t, guarded, toolset.Options{})
	require.Equal(t, plain.ctx, plain.begin("a").Context(plain.ctx))
	var zero toolset.Permit
	require.Equal(t, a.ctx, zero.Context(a.ctx))
}

// The key protects from double effects, whatever else is switched off.
func TestKeyWhenNothingIsGuarded(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	key := a.keyOf(a.ctx, "a", 1)
	c := guarded
	c.Excluded = []string{"a"}
	a.apply(c)
	require.Equal(t, key, a.keyOf(a.ctx, "a", 1))
	c.Disabled = true
	a.apply(c)
	require.Equal(t, key, a.keyOf(a.ctx, "a", 1))
}

func TestKeyOfARefusedCallIsNotUsedUp(t *testing.T) {
	a := newAgent(t, guarded, toolset.Limits{})
	key := a.keyOf(a.ctx, "a", 7)
	a.trip("a")
	_, err := toolset.Do(a.ctx, a.Set, "a", 7, func(context.Context) (int, error) { return 0, errors.New("ran") })
	require.ErrorIs(t, err, toolcircuit.ErrCircuitOpen)
	require.NoError(t, a.Reset("a"))
	require.Equal(t, key, a.keyOf(a.ctx, "a", 7))
}
