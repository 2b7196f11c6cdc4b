package toolcircuit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/toolcircuit/toolcircuit"
)

// The benchmarks call with a closure that captures and a context that can be cancelled, for
// that is what callers have. Read them as ratios to the closure and the deferred one, which
// are the floor: go test -run '^$' -bench . -benchmem -count 6 | benchstat -

// inputs are what the closures capture; outside of the functions, so that nothing is known
// about them at compile time.
var inputs = [4]int{3, 1, 4, 1}

//go:noinline
func bareCall(ctx context.Context, in *[4]int) (int, error) {
	op := func(ctx context.Context) (int, error) { return in[0] + in[1], ctx.Err() }
	return op(ctx)
}

//go:noinline
func deferredCall(ctx context.Context, op func(context.Context) (int, error)) (n int, err error) {
	err = errBench
	defer func() {
		if err == errBench {
			inputs[3]++
		}
	}()
	return op(ctx)
}

var errBench = errors.New("bench")

// alone runs a call in one goroutine, crowd in 32.
func alone(b *testing.B, call func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		call(ctx)
	}
}

func crowd(b *testing.B, call func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.ReportAllocs()
	b.SetParallelism(32 / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			call(ctx)
		}
	})
}

// benchCalls are the calls that are measured, by name, each made by a function of its own so
// that nothing is inlined into the loop but what a caller would get inlined.
func benchDo(c *toolcircuit.ToolCircuit, fail error) func(context.Context) {
	in := &inputs
	return func(ctx context.Context) {
		n := in[2]
		toolcircuit.Do(ctx, c, func(context.Context) (int, error) { return in[0] + n, fail })
	}
}

func newBench(o toolcircuit.Options) *toolcircuit.ToolCircuit {
	return toolcircuit.MustNew("search-api", o)
}

func tripped(o toolcircuit.Options) *toolcircuit.ToolCircuit {
	c := newBench(o)
	c.SetPolicy(toolcircuit.Policy{FailureThreshold: 1, Cooldown: time.Hour})
	toolcircuit.Do(context.Background(), c, func(context.Context) (int, error) {
		return 0, toolcircuit.Fault(errBench)
	})
	return c
}

func BenchmarkCall(b *testing.B) {
	type hooks = toolcircuit.Options
	never := toolcircuit.Policy{FailureThreshold: math.MaxInt}
	in := &inputs
	for _, bench := range []struct {
		name string
		call func(context.Context)
	}{
		{"floor/closure", func(ctx context.Context) { bareCall(ctx, in) }},
		{"floor/defer", func(ctx context.Context) {
			n := in[2]
			deferredCall(ctx, func(context.Context) (int, error) { return in[0] + n, nil })
		}},
		{"closed", benchDo(newBench(hooks{}), nil)},
		{"closed/wrap", func() func(context.Context) {
			tool := toolcircuit.Wrap(newBench(hooks{}), func(_ context.Context, n int) (int, error) { return in[0] + n, nil })
			return func(ctx context.Context) { tool(ctx, in[2]) }
		}()},
		{"closed/result", func() func(context.Context) {
			tool := toolcircuit.WrapResult(newBench(hooks{}), func(_ context.Context, n int) (int, error) { return in[0] + n, nil })
			return func(ctx context.Context) { tool(ctx, in[2]) }
		}()},
		{"closed/two-step", func() func(context.Context) {
			c := newBench(hooks{})
			return func(ctx context.Context) {
				p, err := c.Allow(ctx)
				if err == nil {
					defer p.Release()
					n := in[2]
					op := func(context.Context) (int, error) { return in[0] + n, nil }
					_, err := op(ctx)
					p.Settle(ctx, nil, err)
				}
			}
		}()},
		{"closed/window", benchDo(newBench(hooks{Policy: toolcircuit.Policy{FailureRate: 0.5}}), nil)},
		{"closed/classifier", benchDo(newBench(hooks{Classify: func(context.Context, toolcircuit.Outcome) toolcircuit.Verdict {
			return toolcircuit.Verdict{}
		}}), nil)},
		{"closed/hooks", benchDo(newBench(hooks{
			OnEvent: func(context.Context, toolcircuit.Event) {},
			OnCall:  func(context.Context, toolcircuit.Call) {},
		}), nil)},
		{"closed/failure", benchDo(newBench(hooks{Policy: never}), toolcircuit.Fault(errBench))},
		{"refused", benchDo(tripped(hooks{}), nil)},
	} {
		b.Run(bench.name+"/alone", func(b *testing.B) { alone(b, bench.call) })
		b.Run(bench.name+"/crowd", func(b *testing.B) { crowd(b, bench.call) })
	}
}

// BenchmarkMemory makes 100,000 circuits per round and reports the bytes of one.
func BenchmarkMemory(b *testing.B) {
	const n = 100_000
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("dependency-", i)
	}
	first := newBench(toolcircuit.Options{})
	for _, bench := range []struct {
		name string
		make func(dependency string) *toolcircuit.ToolCircuit
	}{
		{"new", func(d string) *toolcircuit.ToolCircuit { return toolcircuit.MustNew(d, toolcircuit.Options{}) }},
		{"twin", first.Twin},
	} {
		b.Run(bench.name, func(b *testing.B) {
			circuits := make([]*toolcircuit.ToolCircuit, n)
			for b.Loop() {
				clear(circuits)
				before := heap()
				for i, name := range names {
					circuits[i] = bench.make(name)
				}
				b.ReportMetric(float64(heap()-before)/n, "B/circuit")
			}
			runtime.KeepAlive(circuits)
		})
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
