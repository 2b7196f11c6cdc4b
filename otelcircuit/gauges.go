package otelcircuit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/toolcircuit/toolcircuit"
)

// gauges shows the circuits of all meters under one provider. There is one for each provider in
// use, because an SDK that hears of a series from two callbacks keeps the last value alone.
type gauges struct {
	state, override metric.Int64ObservableGauge
	callback        metric.Registration

	mu    sync.Mutex
	shown map[*meter]func() []toolcircuit.Snapshot
}

// inUse has the gauges by provider. No callback takes its lock, since an SDK calls back with a
// lock held that registering takes, too.
var inUse = struct {
	sync.Mutex
	gauges map[any]*gauges
}{gauges: map[any]*gauges{}}

// show makes the gauges of m's provider show what read returns at each collection, until hide is
// called.
func (m *meter) show(read func() []toolcircuit.Snapshot) (hide func(), err error) {
	var key any = m.provider
	if !reflect.ValueOf(key).Comparable() {
		key = m
	}
	inUse.Lock()
	defer inUse.Unlock()
	g := inUse.gauges[key]
	if g == nil {
		if g, err = newGauges(m.under); err != nil {
			return nil, err
		}
		inUse.gauges[key] = g
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shown[m] = read
	return func() {
		inUse.Lock()
		defer inUse.Unlock()
		if g.hide(m) {
			delete(inUse.gauges, key)
			_ = g.callback.Unregister()
		}
	}, nil
}

// hide reports whether m was the last one.
func (g *gauges) hide(m *meter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.shown, m)
	return len(g.shown) == 0
}

func newGauges(under metric.Meter) (*gauges, error) {
	g := &gauges{shown: map[*meter]func() []toolcircuit.Snapshot{}}
	errs := make([]error, 2)
	g.state, errs[0] = under.Int64ObservableGauge("toolcircuit.circuit.state", metric.WithUnit("{circuit}"),
		metric.WithDescription("1 for the state that a circuit of the dependency is in, 0 for the others."))
	g.override, errs[1] = under.Int64ObservableGauge("toolcircuit.circuit.override", metric.WithUnit("{circuit}"),
		metric.WithDescription("1 while an operator's override stands above the state."))
	err := errors.Join(errs...)
	if err == nil {
		g.callback, err = under.RegisterCallback(g.observe, g.state, g.override)
	}
	if err != nil {
		return nil, fmt.Errorf("otelcircuit: %w", err)
	}
	return g, nil
}

// observe observes the circuits of each dependency as one: it is in each state that one of them
// is in.
func (g *gauges) observe(_ context.Context, o metric.Observer) error {
	g.mu.Lock()
	shown := maps.Clone(g.shown)
	g.mu.Unlock()
	type series struct {
		dependency string
		key        attribute.Key
		of         string
	}
	seen := map[series]int64{}
	for m, read := range shown {
		for _, c := range read() {
			name := m.names.bounded(c.Dependency)
			for _, s := range []toolcircuit.State{toolcircuit.StateClosed, toolcircuit.StateOpen, toolcircuit.StateHalfOpen} {
				seen[series{name, keyState, string(s)}] |= 0
			}
			seen[series{name, keyState, string(c.State)}] = 1
			if c.Override != toolcircuit.OverrideNone {
				seen[series{name, keyOverride, string(c.Override)}] = 1
			}
		}
	}
	for s, n := range seen {
		gauge := g.state
		if s.key == keyOverride {
			gauge = g.override
		}
		o.ObserveInt64(gauge, n, metric.WithAttributes(keyDependency.String(s.dependency), s.key.String(s.of)))
	}
	return nil
}
