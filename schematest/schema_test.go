// Package schematest holds what a model reads against the schema that github.com/google/jsonschema-go
// infers from its type, as the MCP go-sdk does. It is a module of its own so that the core does not
// require that package.
package schematest

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

type hits struct {
	Title string   `json:"title"`
	Score *float64 `json:"score,omitempty"`
	Tags  []string `json:"tags"`
}

func TestResultValidates(t *testing.T) {
	t.Run("struct", func(t *testing.T) {
		validate(t, hits{}, hits{Title: "Oslo", Score: new(float64), Tags: []string{"no"}})
	})
	t.Run("string", func(t *testing.T) { validate(t, "", "rain") })
	t.Run("int", func(t *testing.T) { validate(t, 0, 7) })
	t.Run("bool", func(t *testing.T) { validate(t, false, true) })
	t.Run("map", func(t *testing.T) { validate(t, nil, map[string]int{}, map[string]int{"a": 1}) })
	t.Run("pointer", func(t *testing.T) { validate(t, nil, &hits{Title: "Oslo"}) })
	t.Run("slice", func(t *testing.T) { validate(t, nil, []hits{}, []hits{{Title: "Oslo"}}) })
	t.Run("time", func(t *testing.T) { validate(t, time.Time{}, time.Unix(0, 0)) })
	t.Run("any", func(t *testing.T) { validate[any](t, nil, "rain", 7, []any{}, map[string]any{"a": nil}) })
	t.Run("result", func(t *testing.T) {
		validate(t, toolcircuit.Result[hits]{}, toolcircuit.Result[hits]{Status: toolcircuit.StatusOK, Value: new(hits)})
	})
}

// validate holds a Result in each status, with each of values, against the schema of its type.
func validate[T any](t *testing.T, values ...T) {
	schema, err := jsonschema.For[toolcircuit.Result[T]](nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"status"}, schema.Required)
	resolved, err := schema.Resolve(nil)
	require.NoError(t, err)
	for _, value := range values {
		for name, r := range results(t, value) {
			text, err := json.Marshal(r)
			require.NoError(t, err)
			var instance any
			require.NoError(t, json.Unmarshal(text, &instance))
			assert.NoError(t, resolved.Validate(instance), "%s: %s", name, text)
		}
	}
	assert.Error(t, resolved.Validate(map[string]any{"status": "ok", "surprise": 1}), "the schema is closed")
}

// results returns a Result for each status, and blocked for each reason, with every key set somewhere.
func results[T any](t *testing.T, value T) map[string]toolcircuit.Result[T] {
	tool := toolcircuit.Tool{Name: "web_search", Alternatives: []string{"cached_search"}}
	mock := clock.NewMock()
	c := toolcircuit.MustNew("search-api", toolcircuit.Options{
		Policy: toolcircuit.Policy{FailureThreshold: 1, Cooldown: time.Minute},
		Clock:  mock,
		Tool:   tool,
	})
	down := func(context.Context, struct{}) (T, error) {
		return value, toolcircuit.RetryAfter(&toolcircuit.HTTPError{StatusCode: 503}, 30*time.Second)
	}
	out := map[string]toolcircuit.Result[T]{}
	add := func(name string, want toolcircuit.Status, r toolcircuit.Result[T], err error) {
		require.NoError(t, err)
		require.Equal(t, want, r.Status, name)
		out[name] = r
	}

	r, err := toolcircuit.ResultOf(c, value, toolcircuit.Verdict{}, nil)
	r.Advice = "the same call again"
	add("ok", toolcircuit.StatusOK, r, err)
	r, err = toolcircuit.ResultOf(c, value, toolcircuit.Verdict{Kind: toolcircuit.KindDuplicate}, toolcircuit.Duplicate(errors.New("paid before")))
	add("duplicate", toolcircuit.StatusOK, r, err)
	r, err = toolcircuit.WrapResult(c, down)(t.Context(), struct{}{})
	add("failed", toolcircuit.StatusFailed, r, err)
	add("fallback of failed", toolcircuit.StatusFallback, r.Or(value, "cache"), err)

	mock.Add(500 * time.Millisecond)
	r, err = toolcircuit.WrapResult(c, down)(t.Context(), struct{}{})
	r.BlockedCalls, r.EndTurn = 3, true
	add("blocked", toolcircuit.StatusBlocked, r, err)
	add("fallback", toolcircuit.StatusFallback, r.Or(value, "cache"), err)
	for _, reason := range []toolcircuit.Reason{toolcircuit.ReasonManualOpen, toolcircuit.ReasonBusy,
		toolcircuit.ReasonRepeatedCall, toolcircuit.ReasonBudgetExhausted} {
		r, err = toolcircuit.ResultOf(c, value, toolcircuit.Verdict{}, &toolcircuit.OpenError{Dependency: "search-api", Reason: reason})
		add(string(reason), toolcircuit.StatusBlocked, r, err)
	}
	r, err = toolcircuit.ResultOf(c, value, toolcircuit.Verdict{}, &toolcircuit.OpenError{Dependency: "mail-api"})
	add("inner", toolcircuit.StatusBlocked, r, err)
	return out
}
