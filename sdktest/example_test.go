package sdktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/go-github/v88/github"
	"github.com/nats-io/nats.go"
	openaistream "github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/redis/go-redis/v9"

	"github.com/toolcircuit/toolcircuit"
)

// go-github's errors have a shape, so no rule is needed. One of your own overrides it, here for a
// 404 that means an outage; the header goes along, because the wait is in it.
func ExampleForError_github() {
	classify := toolcircuit.ForError(func(e *github.ErrorResponse) toolcircuit.Verdict {
		if e.Response.StatusCode == http.StatusNotFound {
			return toolcircuit.Verdict{Effect: toolcircuit.EffectCount, Kind: toolcircuit.KindUnavailable}
		}
		return toolcircuit.HTTPStatus(e.Response.StatusCode, e.Response.Header)
	})
	err := &github.ErrorResponse{Response: &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"30"}}}}
	v := classify(context.Background(), toolcircuit.Outcome{Err: err})
	fmt.Println(v.Effect, v.Kind, v.RetryAfter)
	v = toolcircuit.Classify(context.Background(), toolcircuit.Outcome{Err: err})
	fmt.Println(v.Effect, v.Kind, v.RetryAfter)
	// Output:
	// pause rate_limited 30s
	// pause rate_limited 30s
}

// go-redis has a type for what the server answers, and functions that tell one answer from another.
func ExampleForError_redis() {
	classify := toolcircuit.ForError(func(e redis.Error) toolcircuit.Verdict {
		switch {
		case redis.IsLoadingError(e), redis.IsClusterDownError(e), redis.IsMasterDownError(e), redis.IsOOMError(e):
			return toolcircuit.Verdict{Effect: toolcircuit.EffectCount, Kind: toolcircuit.KindUnavailable}
		case redis.IsMaxClientsError(e):
			return toolcircuit.Verdict{Effect: toolcircuit.EffectCount, Kind: toolcircuit.KindRateLimited}
		case redis.IsAuthError(e), redis.IsPermissionError(e):
			return toolcircuit.Verdict{Kind: toolcircuit.KindUnauthorized}
		case e == redis.Nil:
			return toolcircuit.Verdict{Kind: toolcircuit.KindNotFound}
		}
		return toolcircuit.Verdict{}
	})
	v := classify(context.Background(), toolcircuit.Outcome{Err: fmt.Errorf("cache: %w", redis.Nil)})
	fmt.Println(v.Effect, v.Kind)
	// Output: ignore not_found
}

// openai-go has a type for an error in mid-stream, when the status was 200. What it says is in the JSON of
// the event.
func ExampleForError_openai() {
	classify := toolcircuit.ForError(func(e *openaistream.StreamError) toolcircuit.Verdict {
		var data struct{ Error struct{ Type string } }
		if json.Unmarshal(e.Event.Data, &data) == nil && data.Error.Type == "invalid_request_error" {
			return toolcircuit.Verdict{Kind: toolcircuit.KindInvalid}
		}
		return toolcircuit.Verdict{Effect: toolcircuit.EffectCount, Kind: toolcircuit.KindUnavailable}
	})
	err := &openaistream.StreamError{Event: openaistream.Event{Data: []byte(`{"error":{"type":"server_error"}}`)}}
	v := classify(context.Background(), toolcircuit.Outcome{Err: err})
	fmt.Println(v.Effect, v.Kind)
	// Output: count unavailable
}

// The errors of nats.go are single values without a type of their own.
func Example_nats() {
	classify := func(_ context.Context, o toolcircuit.Outcome) toolcircuit.Verdict {
		for _, lost := range []error{nats.ErrNoServers, nats.ErrNoResponders, nats.ErrDisconnected, nats.ErrStaleConnection, nats.ErrConnectionReconnecting} {
			if errors.Is(o.Err, lost) {
				return toolcircuit.Verdict{Effect: toolcircuit.EffectCount, Kind: toolcircuit.KindUnavailable}
			}
		}
		if errors.Is(o.Err, nats.ErrTimeout) {
			return toolcircuit.Verdict{Effect: toolcircuit.EffectCount, Kind: toolcircuit.KindTimeout}
		}
		return toolcircuit.Verdict{}
	}
	circuit := toolcircuit.MustNew("orders", toolcircuit.Options{
		Classify: classify,
		Policy:   toolcircuit.Policy{FailureThreshold: 1, Cooldown: time.Minute},
	})
	_, err := toolcircuit.Do(context.Background(), circuit, func(context.Context) (int, error) {
		return 0, fmt.Errorf("ask for the order: %w", nats.ErrNoResponders)
	})
	fmt.Println(err, circuit.State())
	// Output: ask for the order: nats: no responders available for request open
}
