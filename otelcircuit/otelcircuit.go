// Package otelcircuit puts circuits under OpenTelemetry: metrics of calls, refusals, transitions
// and states, and events on the spans of the calls. One line in place of the core's own:
//
//	circuit, err := otelcircuit.New("search-api", toolcircuit.Options{}, otelcircuit.Options{})
//	set, err := otelcircuit.NewSet(config, toolset.Options{}, otelcircuit.Options{})
//
// The metrics:
//
//	name                          instrument, unit          attributes
//	toolcircuit.calls             counter, {call}           dependency, tool, kind, error.type
//	toolcircuit.refusals          counter, {call}           dependency, tool, reason
//	toolcircuit.transitions       counter, {transition}     dependency, transition, rule, error.type
//	toolcircuit.circuit.state     async gauge, {circuit}    dependency, state
//	toolcircuit.circuit.override  async gauge, {circuit}    dependency, override
//	toolcircuit.call.duration     histogram, s              dependency, tool, kind, error.type
//
// The attributes:
//
//	name                    values
//	toolcircuit.dependency  the name of the dependency, or _OTHER
//	gen_ai.tool.name        the name of the tool, or _OTHER; absent if the circuit has none
//	toolcircuit.kind        how the call was judged: a toolcircuit.Kind
//	error.type              the kind again where the call returned an error and did not count as healthy; of opened, the kind of its cause
//	toolcircuit.reason      why the call was refused: a toolcircuit.Reason
//	toolcircuit.transition  opened, half_opened, closed, overridden
//	toolcircuit.rule        what caused it: a toolcircuit.Rule; absent if no rule did
//	toolcircuit.state       closed, open, half_open
//	toolcircuit.override    open, closed
//
// A call is counted once, in calls or in refusals. Refused calls have no duration. In neither are:
//
//   - a Monitor's check during a cooldown,
//   - a call whose permit was handed back with Release, or never settled,
//   - a call of a tool that the Set does not guard, and every call while the Set is disabled.
//
// The state has three series per dependency, each 0 or 1. Where a dependency has several circuits,
// one per scope or in several Sets under one provider, 1 says that at least one of them is in that
// state. The override has a series, 1, only while one is set. Both are read from Snapshot when the
// metrics are collected, which moves no circuit. The series of a circuit that its Set no longer
// has end at once. Those of a circuit or a Set that nobody holds any more end when it is garbage
// collected: the meter keeps neither alive. A Twin of a circuit made here is counted, since it has
// the same hooks, but has no series of its state and override.
//
// Every attribute has few values. Scopes, run ids, arguments and texts of errors are never among
// them, in metrics or on spans. Names that a model invents are capped, see Options.MaxUnlisted.
// What is not valid UTF-8 in a name becomes U+FFFD.
//
// A span in the context of a call gets an event for each refusal (toolcircuit.refused) and for
// each transition that the call causes (toolcircuit.opened and so on), with the attributes above
// and, where a time ends the refusals, toolcircuit.retry_at in UTC as of RFC 3339.
package otelcircuit

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"weak"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// Options say what is measured, and where it goes. The zero value is usable.
type Options struct {
	// MeterProvider makes the meter. Nil: the global one of package otel, also if that is set
	// later. Set it before the first circuit: those made before and those made after count as under
	// two providers, and the SDK shows the state of one where both have the dependency.
	MeterProvider metric.MeterProvider
	// Durations adds the histogram toolcircuit.call.duration.
	Durations bool
	// MaxUnlisted caps the names of dependencies and tools that metrics and spans show beside those
	// that the config lists. A Set with a pattern among Monitored has such names, since a model
	// may invent them. The first that come are shown for as long as the hooks are in use, the
	// others share the name _OTHER for good. Zero: 100. Negative is an error.
	MaxUnlisted int
}

const defaultMaxUnlisted = 100

// New is [toolcircuit.New] for a circuit under a meter. The hooks of o are called, too, each after
// the measurement. An error is that of toolcircuit.New, of the meter, or of a field of t.
func New(dependency string, o toolcircuit.Options, t Options) (*toolcircuit.ToolCircuit, error) {
	m, err := newMeter(t)
	if err != nil {
		return nil, err
	}
	tool := o.Tool.Name
	m.names.listed = func() []string { return []string{dependency, tool} }
	o.OnEvent, o.OnCall = m.onEvent(o.OnEvent), m.onCall(o.OnCall)
	c, err := toolcircuit.New(dependency, o)
	if err != nil {
		return nil, err
	}
	held := weak.Make(c)
	return observe(m, c, func() []toolcircuit.Snapshot {
		if c := held.Value(); c != nil {
			return []toolcircuit.Snapshot{c.Snapshot()}
		}
		return nil
	})
}

// NewSet is [toolset.New] for a Set under a meter. The hooks of o are called, too, each after the
// measurement. An error is that of toolset.New, of the meter, or of a field of t.
func NewSet(c toolset.Config, o toolset.Options, t Options) (*toolset.Set, error) {
	m, err := newMeter(t)
	if err != nil {
		return nil, err
	}
	o.OnEvent, o.OnCall = m.onEvent(o.OnEvent), m.onCall(o.OnCall)
	s, err := toolset.New(c, o)
	if err != nil {
		return nil, err
	}
	held := weak.Make(s)
	m.names.listed = func() []string {
		if s := held.Value(); s != nil {
			return listed(s.Config())
		}
		return nil
	}
	s.Watch(func() { m.names.changed.Store(true) })
	return observe(m, s, func() (snaps []toolcircuit.Snapshot) {
		if s := held.Value(); s != nil {
			for _, c := range s.Snapshot().Circuits {
				snaps = append(snaps, c.Snapshot)
			}
		}
		return snaps
	})
}

// listed returns the names that a config has. A pattern among them is no tool's name.
func listed(c toolset.Config) []string {
	names := slices.Clone(c.Monitored)
	for name := range c.Dependencies {
		names = append(names, name)
	}
	for name, t := range c.Tools {
		names = append(names, name, t.Dependency)
	}
	return names
}

// observe returns owner, with the gauges of what read returns under the meter for as long as it is
// in use. Neither m nor read may keep owner alive.
func observe[T any](m *meter, owner *T, read func() []toolcircuit.Snapshot) (*T, error) {
	hide, err := m.show(read)
	if err != nil {
		return nil, err
	}
	runtime.AddCleanup(owner, func(hide func()) { hide() }, hide)
	return owner, nil
}

// provider returns the provider that t names.
func (t Options) provider() (metric.MeterProvider, error) {
	if t.MaxUnlisted < 0 {
		return nil, fmt.Errorf("otelcircuit: Options.MaxUnlisted: got %d, want 0 (%d) or more", t.MaxUnlisted, defaultMaxUnlisted)
	}
	if t.MeterProvider == nil {
		return otel.GetMeterProvider(), nil
	}
	if v := reflect.ValueOf(t.MeterProvider); v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("otelcircuit: Options.MeterProvider: got a nil %T, want a provider, or nil for the global one", t.MeterProvider)
	}
	return t.MeterProvider, nil
}
