package otelcircuit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/toolcircuit/toolcircuit"
)

// scope is the instrumentation scope of the meter.
const scope = "github.com/toolcircuit/toolcircuit/otelcircuit"

// The attributes. Those without our prefix are of OpenTelemetry's semantic conventions.
const (
	keyDependency = attribute.Key("toolcircuit.dependency")
	keyTool       = attribute.Key("gen_ai.tool.name")
	keyKind       = attribute.Key("toolcircuit.kind")
	keyErrorType  = attribute.Key("error.type")
	keyReason     = attribute.Key("toolcircuit.reason")
	keyTransition = attribute.Key("toolcircuit.transition")
	keyRule       = attribute.Key("toolcircuit.rule")
	keyState      = attribute.Key("toolcircuit.state")
	keyOverride   = attribute.Key("toolcircuit.override")
	keyRetryAt    = attribute.Key("toolcircuit.retry_at")
)

// buckets are the boundaries of the histogram, in seconds: those of the semantic conventions for
// HTTP, and longer ones for slow tools.
var buckets = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120}

// meter measures one circuit, or those of one Set.
type meter struct {
	calls, refusals, transitions metric.Int64Counter
	durations                    metric.Float64Histogram // nil: not asked for
	provider                     metric.MeterProvider
	under                        metric.Meter
	names                        *names

	mu     sync.RWMutex
	series map[met]*series // of calls and refusals
}

// met is what a call met, as far as the metrics tell.
type met struct {
	dependency, tool string
	kind             toolcircuit.Kind
	failed           bool               // the caller got an error, of a dependency that is not healthy
	reason           toolcircuit.Reason // of a refused call
}

// series is the attributes of met, ready for use, so that a call makes no garbage.
type series struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func newMeter(t Options) (*meter, error) {
	provider, err := t.provider()
	if err != nil {
		return nil, err
	}
	m := &meter{
		provider: provider,
		under:    provider.Meter(scope),
		names:    newNames(cmp.Or(t.MaxUnlisted, defaultMaxUnlisted)),
		series:   map[met]*series{},
	}
	errs := make([]error, 4)
	m.calls, errs[0] = m.under.Int64Counter("toolcircuit.calls", metric.WithUnit("{call}"),
		metric.WithDescription("Calls that were not refused, by how they were judged."))
	m.refusals, errs[1] = m.under.Int64Counter("toolcircuit.refusals", metric.WithUnit("{call}"),
		metric.WithDescription("Calls that were refused and not executed."))
	m.transitions, errs[2] = m.under.Int64Counter("toolcircuit.transitions", metric.WithUnit("{transition}"),
		metric.WithDescription("Changes of a circuit's state or override."))
	if t.Durations {
		m.durations, errs[3] = m.under.Float64Histogram("toolcircuit.call.duration", metric.WithUnit("s"),
			metric.WithDescription("How long calls took that were executed."),
			metric.WithExplicitBucketBoundaries(buckets...))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("otelcircuit: %w", err)
	}
	return m, nil
}

// onCall returns the hook that measures calls and then calls next, if there is one.
func (m *meter) onCall(next func(context.Context, toolcircuit.Call)) func(context.Context, toolcircuit.Call) {
	return func(ctx context.Context, c toolcircuit.Call) {
		if next != nil {
			defer next(ctx, c) // also if the SDK of the user panics
		}
		m.call(ctx, c)
	}
}

func (m *meter) call(ctx context.Context, c toolcircuit.Call) {
	if c.Early { // no call of the circuit
		return
	}
	if c.Reason != "" {
		m.refusals.Add(ctx, 1, m.of(met{dependency: c.Dependency, tool: c.Tool, reason: c.Reason}).add...)
		m.spanRefused(ctx, c)
		return
	}
	failed := c.Err != nil && c.Verdict.Effect != toolcircuit.EffectHeal
	s := m.of(met{dependency: c.Dependency, tool: c.Tool, kind: c.Verdict.Kind, failed: failed})
	m.calls.Add(ctx, 1, s.add...)
	if m.durations != nil && c.Executed {
		m.durations.Record(ctx, c.Elapsed.Seconds(), s.record...)
	}
}

// onEvent returns the hook that counts transitions and then calls next, if there is one.
func (m *meter) onEvent(next func(context.Context, toolcircuit.Event)) func(context.Context, toolcircuit.Event) {
	return func(ctx context.Context, e toolcircuit.Event) {
		if next != nil {
			defer next(ctx, e) // also if the SDK of the user panics
		}
		attributes := m.about(e)
		m.transitions.Add(ctx, 1, metric.WithAttributes(attributes...))
		m.spanChanged(ctx, e, attributes)
	}
}

// about returns what metrics and spans have in common on a transition.
func (m *meter) about(e toolcircuit.Event) []attribute.KeyValue {
	return present(
		keyDependency.String(m.names.bounded(e.Dependency)),
		keyTransition.String(string(e.Type)),
		keyRule.String(string(e.Rule)),
		keyErrorType.String(string(e.Kind)),
	)
}

// present returns the attributes that have a value.
func present(all ...attribute.KeyValue) (some []attribute.KeyValue) {
	for _, a := range all {
		if a.Value.AsString() != "" {
			some = append(some, a)
		}
	}
	return some
}

// of returns the series for k.
func (m *meter) of(k met) *series {
	m.mu.RLock()
	s := m.series[k]
	m.mu.RUnlock()
	if s != nil {
		return s
	}
	k.dependency, k.tool = m.names.bounded(k.dependency), m.names.bounded(k.tool)
	m.mu.Lock()
	defer m.mu.Unlock()
	if s = m.series[k]; s == nil {
		s = k.series()
		m.series[k] = s
	}
	return s
}

func (k met) series() *series {
	attributes := []attribute.KeyValue{
		keyDependency.String(k.dependency),
		keyTool.String(k.tool),
		keyKind.String(string(k.kind)),
		keyReason.String(string(k.reason)),
	}
	if k.failed {
		attributes = append(attributes, keyErrorType.String(string(k.kind)))
	}
	set := metric.WithAttributeSet(attribute.NewSet(present(attributes...)...))
	return &series{[]metric.AddOption{set}, []metric.RecordOption{set}}
}
