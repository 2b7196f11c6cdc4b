package toolset

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/toolcircuit/toolcircuit"
)

// What zero fields of a Config stand for.
const (
	defaultMaxCircuits = 10_000
	defaultIdleAfter   = time.Hour
	defaultJitter      = 0.1
)

// plan is the Config in force with what operators and adapters have decided. It never changes.
type plan struct {
	config              Config
	maxCircuits         int
	idleAfter           time.Duration
	monitored, excluded names
	tools               map[string]*tool
	dependencies        map[string]*dependency // that the config names
	rest                *dependency            // for all others
	overrides           map[string]toolcircuit.Override
	raised              map[string]*toolcircuit.Tool // by RaiseSideEffects: the view of a tool without an entry
}

// tool is a tool with an entry in the config.
type tool struct {
	*toolcircuit.Tool // the next plan has the same pointer if nothing changes, so that views stay
	dependency        *dependency
	excluded          bool
}

// dependency is what all circuits of one dependency have in common.
type dependency struct {
	Dependency
	name     string // empty for those that the config does not name
	policy   toolcircuit.Policy
	tools    []string                 // with an entry, sorted
	first    *toolcircuit.Tool        // the first of tools, nil if none
	template *toolcircuit.ToolCircuit // as first sees it; the circuits are its twins
	last     atomic.Pointer[member]   // the member found last, if there is only one: with a name and not Scoped
}

// newPlan returns the plan of a valid config. prior is the plan before, nil if there is none.
func newPlan(c Config, root *toolcircuit.ToolCircuit, message func(toolcircuit.Blocked) string, prior *plan) *plan {
	p := &plan{
		config:       c.clone(),
		maxCircuits:  cmp.Or(c.MaxCircuits, defaultMaxCircuits),
		idleAfter:    cmp.Or(c.IdleAfter, defaultIdleAfter),
		monitored:    newNames(c.Monitored),
		excluded:     newNames(c.Excluded),
		tools:        map[string]*tool{},
		dependencies: map[string]*dependency{},
	}
	if prior != nil {
		p.raised = prior.raised
	}
	p.rest = p.newDependency("", Dependency{}, root)
	for name, d := range p.config.Dependencies {
		p.dependencies[name] = p.newDependency(name, d, root)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tools)) {
		p.addTool(name, p.config.Tools[name], message, prior)
	}
	for _, d := range p.dependencies {
		if d.first != nil {
			d.template = d.template.WithTool(*d.first)
		}
	}
	if prior != nil {
		p.overrides = maps.Clone(prior.overrides)
		maps.DeleteFunc(p.overrides, func(name string, _ toolcircuit.Override) bool { return !p.keeps(name, "") })
	}
	return p
}

// withOverride returns p with an operator's decision on a dependency.
func (p *plan) withOverride(name string, o toolcircuit.Override) *plan {
	next := *p
	next.overrides = maps.Clone(p.overrides)
	if next.overrides == nil {
		next.overrides = map[string]toolcircuit.Override{}
	}
	next.overrides[name] = o
	return &next
}

// RaiseSideEffects notes that tools have side effects, which an adapter may read from their
// annotations. It outlives Apply, and nothing takes it back. [Tool].SideEffects in the config
// comes before it. The tools need not be guarded, or not yet. Pass all tools of a list at once.
func (s *Set) RaiseSideEffects(tools ...string) {
	s.inForce()
	s.install(func(prior *plan) *plan {
		raised := prior.withRaised(tools, s.message)
		if raised == prior {
			return prior
		}
		return newPlan(prior.config, s.root, s.message, raised)
	})
}

// dependencyName returns the name of the dependency of a tool, guarded or not.
func (s *Set) dependencyName(tool string) string {
	_, d := s.plan.Load().resolve(tool)
	if d == nil {
		return cmp.Or(tool, s.unguarded.Dependency())
	}
	return cmp.Or(d.name, tool)
}

// withRaised returns p with more tools that have side effects. If p has them all it returns p
// itself.
func (p *plan) withRaised(tools []string, message func(toolcircuit.Blocked) string) *plan {
	next := *p
	next.raised = maps.Clone(p.raised)
	if next.raised == nil {
		next.raised = map[string]*toolcircuit.Tool{}
	}
	for _, name := range tools {
		if next.raised[name] == nil {
			next.raised[name] = &toolcircuit.Tool{Name: name, SideEffects: true, Message: message}
		}
	}
	if len(next.raised) == len(p.raised) {
		return p
	}
	return &next
}

// sideEffects reports whether a tool, guarded or not, has side effects.
func (p *plan) sideEffects(name string) bool {
	if given := p.config.Tools[name].SideEffects; given != nil {
		return *given
	}
	return p.raised[name] != nil
}

func (p *plan) newDependency(name string, d Dependency, root *toolcircuit.ToolCircuit) *dependency {
	policy := p.config.base()
	if d.Policy != nil {
		policy = *d.Policy
	}
	if p.rest != nil && policy == p.rest.policy {
		return &dependency{name: name, Dependency: d, policy: policy, template: p.rest.template}
	}
	template := root.Twin(root.Dependency())
	if err := template.SetPolicy(policy); err != nil {
		panic("toolset: a validated config is not valid: " + err.Error())
	}
	return &dependency{name: name, Dependency: d, policy: policy, template: template}
}

func (p *plan) addTool(name string, c Tool, message func(toolcircuit.Blocked) string, prior *plan) {
	d := p.dependencies[cmp.Or(c.Dependency, name)]
	if d == nil {
		d = &dependency{name: cmp.Or(c.Dependency, name), policy: p.rest.policy, template: p.rest.template}
		p.dependencies[d.name] = d
	}
	t := &tool{
		Tool: &toolcircuit.Tool{
			Name:         name,
			Alternatives: c.Alternatives,
			NextActions:  c.NextActions,
			SideEffects:  p.sideEffects(name),
			Message:      message,
		},
		dependency: d,
		excluded:   p.excluded.match(name),
	}
	if prior != nil && prior.tools[name] != nil && reflect.DeepEqual(prior.config.Tools[name], c) &&
		prior.tools[name].SideEffects == t.SideEffects {
		t.Tool = prior.tools[name].Tool
	}
	d.tools = append(d.tools, name)
	if d.first == nil {
		d.first = t.Tool
	}
	p.tools[name] = t
}

// resolve returns the view of a tool, nil if only its name is known, and the settings of its
// dependency, nil if the tool is not guarded.
func (p *plan) resolve(name string) (*toolcircuit.Tool, *dependency) {
	if p.config.Disabled {
		return nil, nil
	}
	return p.find(name)
}

// find is resolve as if the Set were not Disabled.
func (p *plan) find(name string) (*toolcircuit.Tool, *dependency) {
	if t := p.tools[name]; t != nil {
		if t.excluded {
			return nil, nil
		}
		return t.Tool, t.dependency
	}
	if name == "" || !p.monitored.match(name) || p.excluded.match(name) {
		return nil, nil
	}
	return p.raised[name], p.dependency(name)
}

// dependency returns the settings of a dependency.
func (p *plan) dependency(name string) *dependency {
	if d := p.dependencies[name]; d != nil {
		return d
	}
	return p.rest
}

// keeps reports whether a circuit still belongs to a tool.
func (p *plan) keeps(name, scope string) bool {
	d := p.dependency(name)
	if scope != "" && !d.Scoped {
		return false
	}
	used := slices.ContainsFunc(d.tools, func(tool string) bool { return !p.tools[tool].excluded })
	return used || p.tools[name] == nil && p.monitored.match(name) && !p.excluded.match(name)
}

// clone returns a deep copy.
func (c Config) clone() Config {
	c.Default = clone(c.Default)
	c.Dependencies = maps.Clone(c.Dependencies)
	for name, d := range c.Dependencies {
		d.Policy = clone(d.Policy)
		c.Dependencies[name] = d
	}
	c.Tools = maps.Clone(c.Tools)
	for name, t := range c.Tools {
		t.Alternatives = slices.Clone(t.Alternatives)
		t.NextActions = slices.Clone(t.NextActions)
		t.SideEffects = clone(t.SideEffects)
		c.Tools[name] = t
	}
	c.Monitored = slices.Clone(c.Monitored)
	c.Excluded = slices.Clone(c.Excluded)
	return c
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
