package otelcircuit_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/otelcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

var errDown = toolcircuit.Fault(errors.New("down"))

// rig is a meter that is read by hand, and a clock.
type rig struct {
	testing.TB
	reader  *sdkmetric.ManualReader
	options otelcircuit.Options
	clock   *clock.Mock
}

func newRig(t testing.TB) *rig {
	r := &rig{TB: t, reader: sdkmetric.NewManualReader(), clock: clock.NewMock()}
	r.options.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))
	return r
}

// collect returns one line per series, sorted, of the metrics of that name, or of all.
func (r *rig) collect(names ...string) (lines []string) {
	r.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(r, r.reader.Collect(context.Background(), &all))
	for _, scope := range all.ScopeMetrics {
		require.Equal(r, "github.com/toolcircuit/toolcircuit/otelcircuit", scope.Scope.Name)
		for _, m := range scope.Metrics {
			if len(names) > 0 && !slices.Contains(names, m.Name) {
				continue
			}
			add := func(set attribute.Set, value any) {
				var parts string
				for _, kv := range set.ToSlice() {
					require.True(r, utf8.ValidString(kv.Value.AsString()), kv)
					parts += " " + string(kv.Key) + "=" + kv.Value.AsString()
				}
				lines = append(lines, fmt.Sprint(m.Name, parts, ": ", value, " ", m.Unit))
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				require.True(r, data.IsMonotonic)
				for _, p := range data.DataPoints {
					add(p.Attributes, p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, fmt.Sprint(p.Count, " in ", p.Sum))
				}
			default:
				require.Failf(r, "an instrument of another kind", "%T", data)
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// takes returns an operation that takes d and ends with err.
func (r *rig) takes(d time.Duration, err error) func(context.Context) (int, error) {
	return func(context.Context) (int, error) {
		r.clock.Add(d)
		return 1, err
	}
}

// circuit returns a circuit that opens at the second failure.
func (r *rig) circuit(o toolcircuit.Options) *toolcircuit.ToolCircuit {
	o.Policy = toolcircuit.Policy{FailureThreshold: 2}
	o.Clock = r.clock
	c, err := otelcircuit.New("search-api", o, r.options)
	require.NoError(r, err)
	return c
}

// set returns a Set that opens at the first failure, and monitors every tool unless c says which.
func (r *rig) set(c toolset.Config, o toolset.Options) *toolset.Set {
	c.Default = &toolcircuit.Policy{FailureThreshold: 1}
	if c.Monitored == nil {
		c.Monitored = []string{"*"}
	}
	o.Clock = r.clock
	s, err := otelcircuit.NewSet(c, o, r.options)
	require.NoError(r, err)
	return s
}

func TestOutage(t *testing.T) {
	r := newRig(t)
	r.options.Durations = true
	c := r.circuit(toolcircuit.Options{Tool: toolcircuit.Tool{Name: "web_search"}})
	ctx := context.Background()
	dead, cancel := context.WithCancel(ctx)
	cancel()

	toolcircuit.Do(ctx, c, r.takes(time.Second, nil))
	toolcircuit.Do(ctx, c, r.takes(time.Second, nil))
	toolcircuit.Do(ctx, c, r.takes(time.Second, errors.New("nobody knows")))
	toolcircuit.Do(dead, c, r.takes(time.Second, nil))
	toolcircuit.Do(ctx, c, r.takes(30*time.Second, errDown))
	toolcircuit.Do(ctx, c, r.takes(30*time.Second, errDown))
	for range 3 {
		toolcircuit.Do(ctx, c, r.takes(time.Second, nil))
	}
	c.SetOverride(toolcircuit.OverrideOpen)
	toolcircuit.Do(ctx, c.WithTool(toolcircuit.Tool{Name: "news"}), r.takes(time.Second, nil))
	require.Equal(t, []string{
		"toolcircuit.call.duration error.type=unavailable gen_ai.tool.name=web_search toolcircuit.dependency=search-api toolcircuit.kind=unavailable: 2 in 60 s",
		"toolcircuit.call.duration error.type=unknown gen_ai.tool.name=web_search toolcircuit.dependency=search-api toolcircuit.kind=unknown: 1 in 1 s",
		"toolcircuit.call.duration gen_ai.tool.name=web_search toolcircuit.dependency=search-api toolcircuit.kind=ok: 2 in 2 s",
		"toolcircuit.calls error.type=canceled gen_ai.tool.name=web_search toolcircuit.dependency=search-api toolcircuit.kind=canceled: 1 {call}",
		"toolcircuit.calls error.type=unavailable gen_ai.tool.name=web_search toolcircuit.dependency=search-api toolcircuit.kind=unavailable: 2 {call}",
		"toolcircuit.calls error.type=unknown gen_ai.tool.name=web_search toolcircuit.dependency=search-api toolcircuit.kind=unknown: 1 {call}",
		"toolcircuit.calls gen_ai.tool.name=web_search toolcircuit.dependency=search-api toolcircuit.kind=ok: 2 {call}",
		"toolcircuit.circuit.override toolcircuit.dependency=search-api toolcircuit.override=open: 1 {circuit}",
		"toolcircuit.circuit.state toolcircuit.dependency=search-api toolcircuit.state=closed: 0 {circuit}",
		"toolcircuit.circuit.state toolcircuit.dependency=search-api toolcircuit.state=half_open: 0 {circuit}",
		"toolcircuit.circuit.state toolcircuit.dependency=search-api toolcircuit.state=open: 1 {circuit}",
		"toolcircuit.refusals gen_ai.tool.name=news toolcircuit.dependency=search-api toolcircuit.reason=manual_open: 1 {call}",
		"toolcircuit.refusals gen_ai.tool.name=web_search toolcircuit.dependency=search-api toolcircuit.reason=dependency_open: 3 {call}",
		"toolcircuit.transitions error.type=unavailable toolcircuit.dependency=search-api toolcircuit.rule=threshold toolcircuit.transition=opened: 1 {transition}",
		"toolcircuit.transitions toolcircuit.dependency=search-api toolcircuit.transition=overridden: 1 {transition}",
	}, r.collect())

	c.SetOverride(toolcircuit.OverrideNone)
	r.clock.Add(10 * time.Second)
	toolcircuit.Do(ctx, c, r.takes(time.Second, nil))
	require.Equal(t, []string{
		"toolcircuit.circuit.state toolcircuit.dependency=search-api toolcircuit.state=closed: 1 {circuit}",
		"toolcircuit.circuit.state toolcircuit.dependency=search-api toolcircuit.state=half_open: 0 {circuit}",
		"toolcircuit.circuit.state toolcircuit.dependency=search-api toolcircuit.state=open: 0 {circuit}",
		"toolcircuit.transitions error.type=unavailable toolcircuit.dependency=search-api toolcircuit.rule=threshold toolcircuit.transition=opened: 1 {transition}",
		"toolcircuit.transitions toolcircuit.dependency=search-api toolcircuit.rule=probe toolcircuit.transition=closed: 1 {transition}",
		"toolcircuit.transitions toolcircuit.dependency=search-api toolcircuit.transition=half_opened: 1 {transition}",
		"toolcircuit.transitions toolcircuit.dependency=search-api toolcircuit.transition=overridden: 2 {transition}",
	}, r.collect("toolcircuit.circuit.state", "toolcircuit.circuit.override", "toolcircuit.transitions"))
	runtime.KeepAlive(c)
}

// A call that returns no error has no error.type, whatever its kind, nor has a healthy one.
func TestErrorType(t *testing.T) {
	r := newRig(t)
	c, err := otelcircuit.New("search-api", toolcircuit.Options{
		Clock:  r.clock,
		Policy: toolcircuit.Policy{SlowCall: time.Second},
	}, r.options)
	require.NoError(t, err)
	toolcircuit.Do(context.Background(), c, r.takes(2*time.Second, nil))
	toolcircuit.Do(context.Background(), c, r.takes(0, toolcircuit.Duplicate(errDown)))
	require.Equal(t, []string{
		"toolcircuit.calls toolcircuit.dependency=search-api toolcircuit.kind=duplicate: 1 {call}",
		"toolcircuit.calls toolcircuit.dependency=search-api toolcircuit.kind=slow: 1 {call}",
	}, r.collect("toolcircuit.calls"))
}

// A Monitor's check during the cooldown is no call.
func TestMonitorChecksAreNoCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		early := 0
		c := r.circuit(toolcircuit.Options{OnCall: func(_ context.Context, c toolcircuit.Call) {
			if c.Early {
				early++
			}
		}})
		for range 2 {
			toolcircuit.Do(context.Background(), c, r.takes(0, errDown))
		}
		ctx, cancel := context.WithCancel(context.Background())
		go c.Monitor(ctx, time.Second, func(context.Context) error { return errDown })
		for range 3 {
			synctest.Wait()
			r.clock.Add(time.Second)
		}
		synctest.Wait()
		require.Equal(t, 3, early)
		require.Equal(t, []string{
			"toolcircuit.calls error.type=unavailable toolcircuit.dependency=search-api toolcircuit.kind=unavailable: 2 {call}",
		}, r.collect("toolcircuit.calls"))
		cancel()
	})
}

// Both hooks of the user's are called after the measurement, also if they panic.
func TestHooksOfTheUser(t *testing.T) {
	r := newRig(t)
	var heard []string
	c := r.circuit(toolcircuit.Options{
		OnCall: func(_ context.Context, c toolcircuit.Call) {
			heard = append(heard, string(c.Verdict.Kind), fmt.Sprint(len(r.collect("toolcircuit.calls"))))
			panic("a bug")
		},
		OnEvent: func(_ context.Context, e toolcircuit.Event) {
			heard = append(heard, string(e.Type), fmt.Sprint(len(r.collect("toolcircuit.transitions"))))
			panic("a bug")
		},
	})
	toolcircuit.Do(context.Background(), c, r.takes(0, errDown))
	toolcircuit.Do(context.Background(), c, r.takes(0, errDown))
	require.Equal(t, []string{"unavailable", "1", "opened", "1", "unavailable", "1"}, heard)
	require.EqualValues(t, 3, c.Snapshot().HookPanics)
}

// A meter that panics costs neither the call nor the user's hooks.
func TestMeterPanics(t *testing.T) {
	heard := 0
	c, err := otelcircuit.New("search-api", toolcircuit.Options{
		OnCall: func(context.Context, toolcircuit.Call) { heard++ },
	}, otelcircuit.Options{MeterProvider: broken{}})
	require.NoError(t, err)
	value, err := toolcircuit.Do(context.Background(), c, func(context.Context) (int, error) { return 7, nil })
	require.NoError(t, err)
	require.Equal(t, 7, value)
	require.Equal(t, 1, heard)
	require.EqualValues(t, 1, c.Snapshot().HookPanics)
}

// broken is a provider whose counters panic.
type broken struct{ metricnoop.MeterProvider }

func (broken) Meter(string, ...metric.MeterOption) metric.Meter { return brokenMeter{} }

type brokenMeter struct{ metricnoop.Meter }

func (brokenMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return brokenCounter{}, nil
}

type brokenCounter struct{ metricnoop.Int64Counter }

func (brokenCounter) Add(context.Context, int64, ...metric.AddOption) { panic("a bug of the SDK") }

func TestSet(t *testing.T) {
	r := newRig(t)
	s := r.set(toolset.Config{
		Dependencies: map[string]toolset.Dependency{"search-api": {Scoped: true, MaxInFlight: 1}},
		Tools:        map[string]toolset.Tool{"web_search": {Dependency: "search-api"}, "news": {Dependency: "search-api"}},
	}, toolset.Options{})
	ann, bob := toolset.WithScope(context.Background(), "ann"), toolset.WithScope(context.Background(), "bob")
	toolset.Do(ann, s, "web_search", nil, r.takes(0, errDown))
	toolset.Do(bob, s, "news", nil, func(ctx context.Context) (int, error) {
		return toolset.Do(bob, s, "web_search", nil, r.takes(0, nil))
	})
	toolset.Do(ann, s, "news", nil, r.takes(0, nil))
	toolset.Do(ann, s, "weather", nil, r.takes(0, nil))
	require.Equal(t, []string{
		"toolcircuit.calls error.type=rejected gen_ai.tool.name=news toolcircuit.dependency=search-api toolcircuit.kind=rejected: 1 {call}",
		"toolcircuit.calls error.type=unavailable gen_ai.tool.name=web_search toolcircuit.dependency=search-api toolcircuit.kind=unavailable: 1 {call}",
		"toolcircuit.calls gen_ai.tool.name=weather toolcircuit.dependency=weather toolcircuit.kind=ok: 1 {call}",
		"toolcircuit.circuit.state toolcircuit.dependency=search-api toolcircuit.state=closed: 1 {circuit}", // bob's
		"toolcircuit.circuit.state toolcircuit.dependency=search-api toolcircuit.state=half_open: 0 {circuit}",
		"toolcircuit.circuit.state toolcircuit.dependency=search-api toolcircuit.state=open: 1 {circuit}", // ann's
		"toolcircuit.circuit.state toolcircuit.dependency=weather toolcircuit.state=closed: 1 {circuit}",
		"toolcircuit.circuit.state toolcircuit.dependency=weather toolcircuit.state=half_open: 0 {circuit}",
		"toolcircuit.circuit.state toolcircuit.dependency=weather toolcircuit.state=open: 0 {circuit}",
		"toolcircuit.refusals gen_ai.tool.name=news toolcircuit.dependency=search-api toolcircuit.reason=dependency_open: 1 {call}",
		"toolcircuit.refusals gen_ai.tool.name=web_search toolcircuit.dependency=search-api toolcircuit.reason=busy: 1 {call}",
		"toolcircuit.transitions error.type=unavailable toolcircuit.dependency=search-api toolcircuit.rule=threshold toolcircuit.transition=opened: 1 {transition}",
	}, r.collect())

	require.NoError(t, s.Apply(toolset.Config{Monitored: []string{"weather"}}))
	require.Equal(t, []string{
		"toolcircuit.circuit.state toolcircuit.dependency=weather toolcircuit.state=closed: 1 {circuit}",
		"toolcircuit.circuit.state toolcircuit.dependency=weather toolcircuit.state=half_open: 0 {circuit}",
		"toolcircuit.circuit.state toolcircuit.dependency=weather toolcircuit.state=open: 0 {circuit}",
	}, r.collect("toolcircuit.circuit.state"), "the series of circuits that are gone")
	runtime.KeepAlive(s)
}

// Names that nobody listed are shown up to a bound.
func TestUnlistedNames(t *testing.T) {
	r := newRig(t)
	r.options.MaxUnlisted = 3
	listed := toolset.Config{Tools: map[string]toolset.Tool{"web_search": {Dependency: "search-api"}}}
	s := r.set(listed, toolset.Options{})
	call := func(name string) { toolset.Do(context.Background(), s, name, nil, r.takes(0, nil)) }
	for i := range 1000 {
		call(fmt.Sprint("invented-", i))
	}
	call("web_search")
	require.Equal(t, []string{
		"toolcircuit.calls gen_ai.tool.name=_OTHER toolcircuit.dependency=_OTHER toolcircuit.kind=ok: 997 {call}",
		"toolcircuit.calls gen_ai.tool.name=invented-0 toolcircuit.dependency=invented-0 toolcircuit.kind=ok: 1 {call}",
		"toolcircuit.calls gen_ai.tool.name=invented-1 toolcircuit.dependency=invented-1 toolcircuit.kind=ok: 1 {call}",
		"toolcircuit.calls gen_ai.tool.name=invented-2 toolcircuit.dependency=invented-2 toolcircuit.kind=ok: 1 {call}",
		"toolcircuit.calls gen_ai.tool.name=web_search toolcircuit.dependency=search-api toolcircuit.kind=ok: 1 {call}",
	}, r.collect("toolcircuit.calls"))
	require.Len(t, r.collect("toolcircuit.circuit.state"), 3*5)

	listed.Tools["invented-999"] = toolset.Tool{}
	listed.Monitored = []string{"*"}
	require.NoError(t, s.Apply(listed))
	call("invented-999")
	require.Contains(t, r.collect("toolcircuit.calls"), "toolcircuit.calls gen_ai.tool.name=invented-999 toolcircuit.dependency=invented-999 toolcircuit.kind=ok: 1 {call}")
}

// A name that Monitored has literally is listed, a name that matches a pattern there is not.
func TestMonitoredNames(t *testing.T) {
	r := newRig(t)
	r.options.MaxUnlisted = 1
	s := r.set(toolset.Config{Monitored: []string{"alpha", "beta", "gamma", "x-*"}}, toolset.Options{})
	for _, tool := range []string{"x-1", "x-2", "alpha", "beta", "gamma"} {
		toolset.Do(context.Background(), s, tool, nil, r.takes(0, nil))
	}
	require.Equal(t, []string{
		"toolcircuit.calls gen_ai.tool.name=_OTHER toolcircuit.dependency=_OTHER toolcircuit.kind=ok: 1 {call}",
		"toolcircuit.calls gen_ai.tool.name=alpha toolcircuit.dependency=alpha toolcircuit.kind=ok: 1 {call}",
		"toolcircuit.calls gen_ai.tool.name=beta toolcircuit.dependency=beta toolcircuit.kind=ok: 1 {call}",
		"toolcircuit.calls gen_ai.tool.name=gamma toolcircuit.dependency=gamma toolcircuit.kind=ok: 1 {call}",
		"toolcircuit.calls gen_ai.tool.name=x-1 toolcircuit.dependency=x-1 toolcircuit.kind=ok: 1 {call}",
	}, r.collect("toolcircuit.calls"))
}

// What is not UTF-8 in a name is replaced. Two names that then are the same share their series.
func TestNamesAreUTF8(t *testing.T) {
	r := newRig(t)
	s := r.set(toolset.Config{}, toolset.Options{})
	start, events := spans()
	ctx, end := start("a call")
	for _, tool := range []string{"bad\xff", "bad\xfe"} {
		toolset.Do(ctx, s, tool, nil, r.takes(0, errDown))
		toolset.Do(ctx, s, tool, nil, r.takes(0, nil))
	}
	end()
	require.Equal(t, []string{
		"toolcircuit.calls error.type=unavailable gen_ai.tool.name=bad\uFFFD toolcircuit.dependency=bad\uFFFD toolcircuit.kind=unavailable: 2 {call}",
		"toolcircuit.refusals gen_ai.tool.name=bad\uFFFD toolcircuit.dependency=bad\uFFFD toolcircuit.reason=dependency_open: 2 {call}",
		"toolcircuit.transitions error.type=unavailable toolcircuit.dependency=bad\uFFFD toolcircuit.rule=threshold toolcircuit.transition=opened: 2 {transition}",
	}, r.collect("toolcircuit.calls", "toolcircuit.refusals", "toolcircuit.transitions"))
	require.Len(t, r.collect("toolcircuit.circuit.state"), 3)
	for _, e := range events() {
		require.True(t, utf8.ValidString(e), e)
	}

	c, err := otelcircuit.New("worse\xff", toolcircuit.Options{}, r.options)
	require.NoError(t, err)
	require.Len(t, r.collect("toolcircuit.circuit.state"), 6)
	runtime.KeepAlive(s)
	runtime.KeepAlive(c)
}

// Permits that are handed back, and tools that are not guarded, are no calls.
func TestNoCalls(t *testing.T) {
	r := newRig(t)
	c := r.circuit(toolcircuit.Options{})
	p, err := c.Allow(context.Background())
	require.NoError(t, err)
	p.Release()
	s := r.set(toolset.Config{Monitored: []string{"weather"}}, toolset.Options{})
	toolset.Do(context.Background(), s, "mail", nil, r.takes(0, nil))
	require.NoError(t, s.Apply(toolset.Config{Disabled: true, Monitored: []string{"weather"}}))
	toolset.Do(context.Background(), s, "weather", nil, r.takes(0, nil))
	require.Empty(t, r.collect("toolcircuit.calls", "toolcircuit.refusals"))
}

// Calls and collections at once lose nothing.
func TestConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := r.set(toolset.Config{}, toolset.Options{})
		for i := range 8 {
			go func() {
				for j := range 160 {
					toolset.Do(context.Background(), s, fmt.Sprint("tool-", (i+j)%16), nil, func(context.Context) (int, error) { return 1, nil })
				}
			}()
		}
		go func() {
			for range 20 {
				r.collect()
			}
		}()
		synctest.Wait()
		var want []string
		for i := range 16 {
			name := fmt.Sprint("tool-", i)
			want = append(want, fmt.Sprintf("toolcircuit.calls gen_ai.tool.name=%s toolcircuit.dependency=%[1]s toolcircuit.kind=ok: 80 {call}", name))
		}
		slices.Sort(want)
		require.Equal(t, want, r.collect("toolcircuit.calls"))
	})
}

// Neither a call nor a refusal makes garbage once its series is there.
func TestAllocations(t *testing.T) {
	r := newRig(t)
	r.options.Durations = true
	c := r.circuit(toolcircuit.Options{})
	op := func(context.Context) (int, error) { return 1, nil }
	for _, o := range []toolcircuit.Override{toolcircuit.OverrideNone, toolcircuit.OverrideOpen} {
		c.SetOverride(o)
		require.Zero(t, testing.AllocsPerRun(100, func() { toolcircuit.Do(context.Background(), c, op) }))
	}
}

// Without a provider it is the global one, also if that comes later.
func TestGlobalProvider(t *testing.T) {
	r := newRig(t)
	before := otel.GetMeterProvider()
	defer otel.SetMeterProvider(before)
	provider := r.options.MeterProvider
	r.options.MeterProvider = nil
	c := r.circuit(toolcircuit.Options{})
	otel.SetMeterProvider(provider)
	toolcircuit.Do(context.Background(), c, r.takes(0, nil))
	require.Len(t, r.collect(), 4)
	runtime.KeepAlive(c)
}

func TestErrors(t *testing.T) {
	r := newRig(t)
	r.options.MeterProvider = (*sdkmetric.MeterProvider)(nil)
	for want, err := range map[string]error{
		"otelcircuit: Options.MeterProvider: got a nil *metric.MeterProvider, want a provider, or nil for the global one": second(otelcircuit.New("search-api", toolcircuit.Options{}, r.options)),
		"otelcircuit: Options.MaxUnlisted: got -1, want 0 (100) or more":                                                  second(otelcircuit.New("search-api", toolcircuit.Options{}, otelcircuit.Options{MaxUnlisted: -1})),
		"toolcircuit: New: dependency is empty":                                                                           second(otelcircuit.New("", toolcircuit.Options{}, otelcircuit.Options{})),
		"otelcircuit: no callbacks":                                                                                       second(otelcircuit.New("search-api", toolcircuit.Options{}, otelcircuit.Options{MeterProvider: refusing{}})),
		"otelcircuit: no counters":                                                                                        second(otelcircuit.NewSet(toolset.Config{}, toolset.Options{}, otelcircuit.Options{MeterProvider: refusing{counters: true}})),
	} {
		require.EqualError(t, err, want)
	}
	_, err := otelcircuit.NewSet(toolset.Config{MaxCircuits: -1}, toolset.Options{}, otelcircuit.Options{})
	require.ErrorContains(t, err, "maxCircuits")
}

func second[T any](_ T, err error) error { return err }

// refusing is a provider whose instruments are errors.
type refusing struct {
	metricnoop.MeterProvider
	counters bool
}

func (p refusing) Meter(string, ...metric.MeterOption) metric.Meter {
	return refusingMeter{refusing: p}
}

type refusingMeter struct {
	metricnoop.Meter
	refusing refusing
}

func (m refusingMeter) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	if m.refusing.counters && name == "toolcircuit.calls" {
		return nil, errors.New("no counters")
	}
	return metricnoop.Int64Counter{}, nil
}

func (refusingMeter) RegisterCallback(metric.Callback, ...metric.Observable) (metric.Registration, error) {
	return nil, errors.New("no callbacks")
}
