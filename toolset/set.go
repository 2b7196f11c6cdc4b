// Package toolset holds the circuits of a whole agent, by the names of its tools.
//
//	set, err := toolset.New(toolset.Config{Monitored: []string{"*"}}, toolset.Options{})
//	...
//	search := toolset.WrapResult(set, "web_search", webSearch)
//
// A [Config] says what is guarded and how. It is data, and [Set.Apply] changes it at run time.
//
//   - [Do], [Wrap], [DoResult] and [WrapResult] enclose a call
//   - [Set.Allow] is for runtimes and adapters that none of them can enclose, and [ResultOf]
//     returns what the model reads then
//   - a [Session] limits one run
//   - [Visible] returns the tools that a model should be shown now, and [Set.Watch] tells when
//     that changes
package toolset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/internal/hook"
)

// Options are the options of a Set besides its Config. The zero value is usable.
type Options struct {
	// Classify, Clock, Seed, OnEvent and OnCall are as in [toolcircuit.Options], for all circuits.
	// OnCall is also called for calls refused as busy or by a [Session]. A hook gets a scope only
	// by its context, see [Scope].
	Classify toolcircuit.Classifier
	Clock    clock.Clock
	Seed     uint64
	OnEvent  func(context.Context, toolcircuit.Event)
	OnCall   func(context.Context, toolcircuit.Call)
	// Message is as in [toolcircuit.Tool], for all tools.
	Message func(toolcircuit.Blocked) string
	// Fleet shares the circuits with other workers. Nil: nothing is shared. A circuit joins when
	// it is made and leaves when the Set drops it. Its key is the name of the dependency and, in a
	// scope, a hash of the label. Reset acts in all workers, but only on circuits that this Set has.
	// An override acts only in this one. Give each Set its own Fleet: a circuit goes on alone if
	// another Set has its key in the same Fleet.
	Fleet *toolcircuit.Fleet
}

// Set is the circuits of an agent. Make one with New. It looks up tool and circuit at each call,
// so a caller never holds anything out of date. A Set owns no goroutine. All methods are safe for
// concurrent use.
type Set struct {
	clock      clock.Clock
	onEvent    func(context.Context, toolcircuit.Event)
	onCall     func(context.Context, toolcircuit.Call)
	message    func(toolcircuit.Blocked) string
	classifies bool                     // Options.Classify is set, so it reads values
	root       *toolcircuit.ToolCircuit // all circuits are its twins
	fleet      *toolcircuit.Fleet       // nil: nothing is shared
	unguarded  *toolcircuit.ToolCircuit // without hooks; its twins judge the calls of tools that are not guarded

	plan     atomic.Pointer[plan]
	circuits *table
	watchers atomic.Pointer[[]*watcher]

	mu      sync.Mutex // held to change circuits, never while a hook runs
	cursor  int        // the bucket that eviction looked at last
	swept   time.Time  // when it last began to look for idle ones in all buckets
	unswept int        // how many of these buckets are left

	forgotten, hookPanics atomic.Uint64
}

// New returns a Set that follows c, or an error that says what is wrong and where. It copies both
// arguments.
func New(c Config, o Options) (*Set, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if o.Fleet != nil && hook.Closed(o.Fleet) {
		return nil, errors.New("toolset: New: Options.Fleet is closed")
	}
	s := &Set{
		clock:      o.Clock,
		onEvent:    o.OnEvent,
		onCall:     o.OnCall,
		message:    o.Message,
		fleet:      o.Fleet,
		classifies: o.Classify != nil,
		circuits:   newTable(),
	}
	if o.Clock == nil {
		s.clock = clock.New()
	}
	options := toolcircuit.Options{
		Classify: o.Classify,
		Clock:    o.Clock,
		Seed:     o.Seed,
		OnEvent:  s.event,
	}
	if o.OnCall != nil {
		options.OnCall = s.named
	}
	var err error
	if s.root, err = toolcircuit.New("toolset", options); err != nil {
		return nil, fmt.Errorf("toolset: New: %w", err)
	}
	if o.OnEvent == nil {
		hook.Untimed(s.root)
	}
	options.OnEvent, options.OnCall = nil, nil
	if s.unguarded, err = toolcircuit.New("toolset", options); err != nil {
		return nil, fmt.Errorf("toolset: New: %w", err)
	}
	s.swept = s.clock.Now()
	s.plan.Store(newPlan(c, s.root, s.message, nil))
	return s, nil
}

// named is the OnCall of all circuits. It adds the name of a tool without an entry in the config,
// which is that of its dependency.
func (s *Set) named(ctx context.Context, c toolcircuit.Call) {
	c.Tool = cmp.Or(c.Tool, c.Dependency)
	s.onCall(ctx, c)
}

// Config returns the config in force.
func (s *Set) Config() Config { return s.inForce().config.clone() }

// inForce returns the plan in force.
func (s *Set) inForce() *plan {
	if s != nil {
		if p := s.plan.Load(); p != nil {
			return p
		}
	}
	panic("toolset: the Set is nil; make one with New")
}

// Apply puts another config in force, or returns an error like New's and changes nothing. The
// circuits keep their state, and the change acts at once, also on open ones. The wait of an open
// circuit in a Fleet is the fleet's and stays as it is. A circuit that no
// longer belongs to a tool is dropped. If a later config brings it back, it knows nothing except
// the calls that are still under way. With Disabled no circuit is dropped.
func (s *Set) Apply(c Config) error {
	if err := c.validate(); err != nil {
		return err
	}
	s.install(func(prior *plan) *plan { return newPlan(c, s.root, s.message, prior) })
	for _, m := range s.letGo() {
		m.circuit.Reset()
	}
	s.align(func(*member) bool { return true })
	s.tell()
	return nil
}

// install puts the plan in force that next returns for the plan before.
func (s *Set) install(next func(prior *plan) *plan) {
	for {
		prior := s.inForce()
		if s.plan.CompareAndSwap(prior, next(prior)) {
			return
		}
	}
}

// letGo drops the circuits that belong to no tool of the plan, and the views of all others. It
// returns those with calls under way. They stay, because MaxInFlight must still count these calls.
func (s *Set) letGo() (inUse []*member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plan.Load()
	for m := range s.circuits.all {
		m.views.Store(nil)
		switch {
		case p.keeps(m.circuit.Dependency(), m.scope):
			s.join(m)
		case m.retire():
			s.remove(m)
		default:
			s.part(m)
			inUse = append(inUse, m)
		}
	}
	return inUse
}

// join makes a member share its state with the Fleet, unless another circuit has its key. The
// caller holds s.mu, as for part and remove.
func (s *Set) join(m *member) {
	if s.fleet != nil {
		_ = s.fleet.Join(m.circuit, m.key().shared()) // Snapshot.Shared says whether it has joined
	}
}

// part makes a member leave the Fleet.
func (s *Set) part(m *member) {
	if s.fleet != nil {
		s.fleet.Leave(m.circuit)
	}
}

// remove drops a member that has retired.
func (s *Set) remove(m *member) {
	s.circuits.remove(m)
	s.part(m)
}

// align gives members the policy and the override of the plan. It holds no lock, because hooks run
// meanwhile. Whoever changes the plan calls align after that, and each goes on until it has used
// the latest plan.
func (s *Set) align(which func(*member) bool) {
	for _, m := range s.members(which) {
		for {
			p := s.plan.Load()
			p.align(m.circuit)
			if p == s.plan.Load() {
				break
			}
		}
	}
}

func (p *plan) align(c *toolcircuit.ToolCircuit) {
	if d := p.dependency(c.Dependency()); c.Policy() != d.template.Policy() {
		if err := c.SetPolicy(d.policy); err != nil {
			panic("toolset: a validated policy is not valid: " + err.Error())
		}
	}
	c.SetOverride(p.overrides[c.Dependency()])
}

// members returns the members for which which is true.
func (s *Set) members(which func(*member) bool) (found []*member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for m := range s.circuits.all {
		if which(m) {
			found = append(found, m)
		}
	}
	return found
}

// existing returns the dependency of a tool, "" if it is not guarded, and the member for its
// calls, nil if there is none yet.
func (s *Set) existing(ctx context.Context, p *plan, tool string) (dependency string, m *member) {
	_, d := p.resolve(tool)
	if d == nil {
		return "", nil
	}
	k := keyOf(ctx, tool, d)
	return k.dependency, s.circuits.find(k)
}

// keyOf returns the key of the circuit that a call goes through.
func keyOf(ctx context.Context, tool string, d *dependency) key {
	k := key{dependency: cmp.Or(d.name, tool)}
	if d.Scoped {
		k.scope = Scope(ctx)
	}
	return k
}

// create returns the member for a tool's calls, and makes it if there is none. It returns nil if
// the tool is no longer guarded.
func (s *Set) create(ctx context.Context, tool string) *member {
	for {
		p := s.plan.Load()
		_, d := p.resolve(tool)
		if d == nil {
			return nil
		}
		k := keyOf(ctx, tool, d)
		now := s.clock.Now()
		m := &member{circuit: d.template.Twin(k.dependency), own: d.first, scope: k.scope}
		m.circuit.SetOverride(p.overrides[k.dependency]) // before the lock, because it calls hooks
		s.mu.Lock()
		if p == s.plan.Load() {
			if other := s.circuits.find(k); other != nil {
				m = other
			} else {
				s.makeRoom(now, p)
				s.join(m)
				s.circuits.insert(m)
			}
			s.mu.Unlock()
			return m
		}
		s.mu.Unlock()
	}
}

// Guards reports whether calls of a tool go through a circuit.
func (s *Set) Guards(tool string) bool {
	_, d := s.inForce().resolve(tool)
	return d != nil
}

// Circuit returns the circuit that a call of a tool under ctx uses, as that tool sees it, or nil
// if the tool is not guarded. Use it at once: Apply or eviction may replace it.
func (s *Set) Circuit(ctx context.Context, tool string) *toolcircuit.ToolCircuit {
	t, _, m := s.lookup(ctx, tool)
	if m == nil {
		return nil
	}
	return m.as(t)
}

// lookup returns the member for a call, and makes it if there is none. It also returns the tool
// and the dependency from the config. The member is nil if the tool is not guarded.
func (s *Set) lookup(ctx context.Context, tool string) (*toolcircuit.Tool, *dependency, *member) {
	t, d := s.inForce().resolve(tool)
	if d == nil {
		return nil, nil, nil
	}
	if m := d.last.Load(); m != nil && !m.left() {
		m.touch()
		return t, d, m
	}
	m := s.circuits.find(keyOf(ctx, tool, d))
	if m != nil {
		m.touch()
	} else if m = s.create(ctx, tool); m == nil {
		return nil, nil, nil
	}
	if d.name != "" && !d.Scoped {
		d.last.Store(m)
	}
	return t, d, m
}

// Reset closes the circuit of a tool's dependency in all scopes, as
// [toolcircuit.ToolCircuit.Reset] does. It does not reach the scopes that this Set has not
// used, nor a name that it has not called, also if a Fleet's store has a record of them. A tool
// that is not guarded is an error, unless that is because of Config.Disabled alone.
func (s *Set) Reset(tool string) error {
	name, err := s.dependencyOf("Reset", tool)
	for _, m := range s.members(func(m *member) bool { return err == nil && m.circuit.Dependency() == name }) {
		m.circuit.Reset()
	}
	return err
}

// SetOverride makes an operator's decision on a tool's dependency, in all present and future
// scopes. It stays after Apply while a tool that is not excluded has that dependency. A tool that
// is not guarded is an error, unless that is because of Config.Disabled alone: then the decision
// acts when Disabled ends.
func (s *Set) SetOverride(tool string, o toolcircuit.Override) error {
	switch o {
	case toolcircuit.OverrideNone, toolcircuit.OverrideOpen, toolcircuit.OverrideClosed:
	default:
		return fmt.Errorf("toolset: SetOverride: got %q, want OverrideNone, OverrideOpen or OverrideClosed", o)
	}
	name, err := s.dependencyOf("SetOverride", tool)
	if err != nil {
		return err
	}
	s.install(func(prior *plan) *plan { return prior.withOverride(name, o) })
	s.align(func(m *member) bool { return m.circuit.Dependency() == name })
	s.tell()
	return nil
}

// dependencyOf returns the dependency of a tool that is guarded, or would be without Disabled.
func (s *Set) dependencyOf(method, tool string) (string, error) {
	_, d := s.inForce().find(tool)
	if d == nil {
		return "", fmt.Errorf("toolset: %s: got %q, want a tool that is guarded", method, tool)
	}
	return cmp.Or(d.name, tool), nil
}
