package otelcircuit_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/otelcircuit"
)

// BenchmarkDo compares calls of a circuit without hooks, with hooks that do nothing, and under
// the meter of the SDK, read by hand.
func BenchmarkDo(b *testing.B) {
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	tool := toolcircuit.Tool{Name: "web_search"}
	circuits := []struct {
		name string
		make func() (*toolcircuit.ToolCircuit, error)
	}{
		{"off", func() (*toolcircuit.ToolCircuit, error) {
			return toolcircuit.New("search-api", toolcircuit.Options{Tool: tool})
		}},
		{"empty hooks", func() (*toolcircuit.ToolCircuit, error) {
			return toolcircuit.New("search-api", toolcircuit.Options{
				Tool:    tool,
				OnEvent: func(context.Context, toolcircuit.Event) {},
				OnCall:  func(context.Context, toolcircuit.Call) {},
			})
		}},
		{"on", func() (*toolcircuit.ToolCircuit, error) {
			return otelcircuit.New("search-api", toolcircuit.Options{Tool: tool}, otelcircuit.Options{MeterProvider: provider})
		}},
		{"on with durations", func() (*toolcircuit.ToolCircuit, error) {
			return otelcircuit.New("search-api", toolcircuit.Options{Tool: tool}, otelcircuit.Options{MeterProvider: provider, Durations: true})
		}},
	}
	op := func(context.Context) (int, error) { return 1, nil }
	for _, state := range []string{"closed", "refused"} {
		for _, c := range circuits {
			b.Run(state+"/"+c.name, func(b *testing.B) {
				circuit, err := c.make()
				require.NoError(b, err)
				if state == "refused" {
					circuit.SetOverride(toolcircuit.OverrideOpen)
				}
				ctx := context.Background()
				b.ReportAllocs()
				for b.Loop() {
					toolcircuit.Do(ctx, circuit, op)
				}
			})
		}
	}
}
