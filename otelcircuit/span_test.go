package otelcircuit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// spans returns a tracer whose spans are kept, and the events on those that have ended.
func spans() (start func(name string) (ctx context.Context, end func()), events func() []string) {
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
	start = func(name string) (context.Context, func()) {
		ctx, span := tracer.Start(context.Background(), name)
		return ctx, func() { span.End() }
	}
	events = func() (lines []string) {
		for _, span := range recorder.Ended() {
			for _, e := range span.Events() {
				line := span.Name() + ": " + e.Name
				for _, a := range e.Attributes {
					line += fmt.Sprint(" ", a.Key, "=", a.Value.AsString())
				}
				lines = append(lines, line)
			}
		}
		return lines
	}
	return start, events
}

func TestSpanEvents(t *testing.T) {
	r := newRig(t)
	c := r.circuit(toolcircuit.Options{Tool: toolcircuit.Tool{Name: "web_search"}})
	start, events := spans()
	call := func(name string, err error) {
		ctx, end := start(name)
		defer end()
		toolcircuit.Do(ctx, c, r.takes(0, err))
	}
	call("first", errDown)
	call("second", errDown)
	call("third", nil)
	r.clock.Add(10 * time.Second)
	call("fourth", nil)
	c.SetOverride(toolcircuit.OverrideOpen) // no span
	call("fifth", nil)
	require.Equal(t, []string{
		"second: toolcircuit.opened toolcircuit.dependency=search-api toolcircuit.transition=opened toolcircuit.rule=threshold error.type=unavailable gen_ai.tool.name=web_search toolcircuit.state=open toolcircuit.retry_at=1970-01-01T00:00:10Z",
		"third: toolcircuit.refused toolcircuit.dependency=search-api gen_ai.tool.name=web_search toolcircuit.reason=dependency_open toolcircuit.state=open toolcircuit.retry_at=1970-01-01T00:00:10Z",
		"fourth: toolcircuit.half_opened toolcircuit.dependency=search-api toolcircuit.transition=half_opened gen_ai.tool.name=web_search toolcircuit.state=half_open",
		"fourth: toolcircuit.closed toolcircuit.dependency=search-api toolcircuit.transition=closed toolcircuit.rule=probe gen_ai.tool.name=web_search toolcircuit.state=closed",
		"fifth: toolcircuit.refused toolcircuit.dependency=search-api gen_ai.tool.name=web_search toolcircuit.reason=manual_open toolcircuit.state=open",
	}, events())
}

// Names on spans are capped as those of the metrics are.
func TestSpanNames(t *testing.T) {
	r := newRig(t)
	r.options.MaxUnlisted = 1
	s := r.set(toolset.Config{}, toolset.Options{})
	start, events := spans()
	for _, tool := range []string{"first", "second"} {
		ctx, end := start("a call")
		toolset.Do(ctx, s, tool, nil, r.takes(0, errDown))
		toolset.Do(ctx, s, tool, nil, r.takes(0, nil))
		end()
	}
	require.Equal(t, []string{
		"a call: toolcircuit.opened toolcircuit.dependency=first toolcircuit.transition=opened toolcircuit.rule=threshold error.type=unavailable gen_ai.tool.name=first toolcircuit.state=open toolcircuit.retry_at=1970-01-01T00:00:10Z",
		"a call: toolcircuit.refused toolcircuit.dependency=first gen_ai.tool.name=first toolcircuit.reason=dependency_open toolcircuit.state=open toolcircuit.retry_at=1970-01-01T00:00:10Z",
		"a call: toolcircuit.opened toolcircuit.dependency=_OTHER toolcircuit.transition=opened toolcircuit.rule=threshold error.type=unavailable gen_ai.tool.name=_OTHER toolcircuit.state=open toolcircuit.retry_at=1970-01-01T00:00:10Z",
		"a call: toolcircuit.refused toolcircuit.dependency=_OTHER gen_ai.tool.name=_OTHER toolcircuit.reason=dependency_open toolcircuit.state=open toolcircuit.retry_at=1970-01-01T00:00:10Z",
	}, events())
}
