package otelcircuit

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolcircuit/toolcircuit"
)

// spanRefused puts a refusal on the span of ctx, if there is one.
func spanRefused(ctx context.Context, c toolcircuit.Call) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("toolcircuit.refused", trace.WithAttributes(present(
			keyDependency.String(c.Dependency),
			keyTool.String(c.Tool),
			keyReason.String(string(c.Reason)),
			keyState.String(string(c.State)),
			retryAt(c.RetryAt),
		)...))
	}
}

// spanChanged puts a transition on the span of ctx, if there is one.
func spanChanged(ctx context.Context, e toolcircuit.Event) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("toolcircuit."+string(e.Type), trace.WithAttributes(append(about(e), present(
			keyDependency.String(e.Dependency),
			keyTool.String(e.Tool),
			keyState.String(string(e.To)),
			keyOverride.String(string(e.Override)),
			retryAt(e.RetryAt),
		)...)...))
	}
}

func retryAt(t time.Time) attribute.KeyValue {
	if t.IsZero() {
		return keyRetryAt.String("")
	}
	return keyRetryAt.String(t.UTC().Format(time.RFC3339))
}
