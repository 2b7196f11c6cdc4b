package otelcircuit

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolcircuit/toolcircuit"
)

// spanRefused puts a refusal on the span of ctx, if there is one.
func (m *meter) spanRefused(ctx context.Context, c toolcircuit.Call) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("toolcircuit.refused", trace.WithAttributes(present(
			keyDependency.String(m.names.bounded(c.Dependency)),
			keyTool.String(m.names.bounded(c.Tool)),
			keyReason.String(string(c.Reason)),
			keyState.String(string(c.State)),
			retryAt(c.RetryAt),
		)...))
	}
}

// spanChanged puts a transition on the span of ctx, if there is one. It may append to about, what
// the metrics say of it.
func (m *meter) spanChanged(ctx context.Context, e toolcircuit.Event, about []attribute.KeyValue) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("toolcircuit."+string(e.Type), trace.WithAttributes(append(about, present(
			keyTool.String(m.names.bounded(e.Tool)),
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
