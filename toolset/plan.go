package toolset

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/toolcircuit/toolcircuit"
)

// What zero fields of a Config stand for.
const (
	defaultMaxCircuits = 10_000
	defaultIdleAfter   = time.Hour
	defaultJitter      = 0.1
)

// validate returns an error that says what is wrong with c and where.
func (c Config) validate() error {
	err := c.check()
	if err != nil {
		err = fmt.Errorf("toolset: config: %w", err)
	}
	return err
}

func (c Config) check() error {
	switch c.Hide {
	case "", HideNever, HideOpen:
	default:
		return fmt.Errorf("hide: got %q, want %q or %q", c.Hide, HideNever, HideOpen)
	}
	for name, v := range map[string]int64{
		"maxCircuits": int64(c.MaxCircuits), "idleAfter": int64(c.IdleAfter), "hideAtLeast": int64(c.HideAtLeast),
	} {
		if v < 0 {
			return fmt.Errorf("%s: is negative, want 0 or more", name)
		}
	}
	if _, err := c.policy(""); err != nil {
		return fmt.Errorf("default: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Dependencies)) {
		d, where := c.Dependencies[name], join("dependencies", name)
		if name == "" {
			return fmt.Errorf("%s: want a name", where)
		}
		if d.MaxInFlight < 0 {
			return fmt.Errorf("%s.maxInFlight: got %d, want 0 or more", where, d.MaxInFlight)
		}
		if _, err := c.policy(d.Policy); err != nil {
			return fmt.Errorf("%s.policy: %w", where, err)
		}
	}
	if err := checkNames("monitored", c.Monitored); err != nil {
		return err
	}
	if err := checkNames("excluded", c.Excluded); err != nil {
		return err
	}
	if err := c.checkTools(); err != nil {
		return err
	}
	reached := c.reached()
	for _, name := range slices.Sorted(maps.Keys(c.Dependencies)) {
		if !reached(name) {
			return fmt.Errorf("%s: is no tool's, want the dependency of an entry in tools or a name that monitored matches", join("dependencies", name))
		}
	}
	return nil
}

// reached returns a function that reports whether a dependency is any tool's, excluded ones
// included: they may come back.
func (c Config) reached() func(name string) bool {
	monitored, used := newNames(c.Monitored), map[string]bool{}
	for name, t := range c.Tools {
		used[cmp.Or(t.Dependency, name)] = true
	}
	return func(name string) bool {
		_, listed := c.Tools[name]
		return used[name] || !listed && monitored.match(name)
	}
}

// policy returns the policy of a dependency, checked.
func (c Config) policy(o Overlay) (toolcircuit.Policy, error) {
	p, err := c.Default.over(toolcircuit.Policy{Jitter: defaultJitter})
	if err == nil {
		p, err = o.over(p)
	}
	if err == nil {
		err = p.Validate()
	}
	return p, err
}

// checkNames returns an error if a list is none of different names and patterns.
func checkNames(where string, list []string) error {
	for i, name := range list {
		switch _, err := path.Match(name, ""); {
		case name == "":
			return fmt.Errorf("%s[%d]: want a name", where, i)
		case err != nil:
			return fmt.Errorf("%s[%d]: got %q, want a name or a pattern of path.Match", where, i, name)
		case slices.Contains(list[:i], name):
			return fmt.Errorf("%s[%d]: %q is there twice", where, i, name)
		}
	}
	return nil
}

func (c Config) checkTools() error {
	monitored, excluded := newNames(c.Monitored), newNames(c.Excluded)
	for _, name := range slices.Sorted(maps.Keys(c.Tools)) {
		t, where := c.Tools[name], join("tools", name)
		if name == "" {
			return fmt.Errorf("%s: want a name", where)
		}
		where += ".alternatives"
		if err := checkNames(where, t.Alternatives); err != nil {
			return err
		}
		for i, alternative := range t.Alternatives {
			_, listed := c.Tools[alternative]
			if !listed && !monitored.match(alternative) && !excluded.match(alternative) {
				return fmt.Errorf("%s[%d]: got %q, want a tool that is listed", where, i, alternative)
			}
		}
		for i, a := range t.NextActions {
			switch a {
			case toolcircuit.ActionAnswerWithout, toolcircuit.ActionUseAlternative, toolcircuit.ActionPause, toolcircuit.ActionEscalate:
			default:
				return fmt.Errorf("%s.nextActions[%d]: got %q, want one of toolcircuit's actions", join("tools", name), i, a)
			}
			if slices.Contains(t.NextActions[:i], a) {
				return fmt.Errorf("%s.nextActions[%d]: %q is there twice", join("tools", name), i, a)
			}
		}
	}
	return c.checkCycles()
}

// checkCycles returns an error if a tool is an alternative of one of its alternatives.
func (c Config) checkCycles() error {
	done := map[string]bool{}
	var visit func(name string, way []string) error
	visit = func(name string, way []string) error {
		way = append(way, name)
		for i, next := range c.Tools[name].Alternatives {
			if from := slices.Index(way, next); from >= 0 {
				return fmt.Errorf("%s.alternatives[%d]: leads back: %s", join("tools", name), i,
					strings.Join(append(way[from:], next), " -> "))
			}
			if done[next] {
				continue
			}
			if err := visit(next, way); err != nil {
				return err
			}
		}
		done[name] = true
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tools)) {
		if err := visit(name, nil); err != nil {
			return err
		}
	}
	return nil
}

// names is a list of names and patterns.
type names struct {
	exact    map[string]bool
	patterns []string
}

func newNames(list []string) names {
	n := names{exact: map[string]bool{}}
	for _, item := range list {
		if strings.ContainsAny(item, `*?[\`) {
			n.patterns = append(n.patterns, item)
		} else {
			n.exact[item] = true
		}
	}
	return n
}

func (n names) match(name string) bool {
	return n.exact[name] || slices.ContainsFunc(n.patterns, func(p string) bool {
		ok, _ := path.Match(p, name)
		return ok
	})
}

// plan is a Config in force and what operators decided beside it. It never changes.
type plan struct {
	config              Config
	maxCircuits         int
	idleAfter           time.Duration
	monitored, excluded names
	tools               map[string]*tool
	dependencies        map[string]*dependency // that the config names
	rest                *dependency            // stands for all others
	overrides           map[string]toolcircuit.Override
}

// tool is a tool with an entry in the config.
type tool struct {
	*toolcircuit.Tool // the same in the next plan if nothing changes, so that views of it can stay
	dependency        *dependency
	excluded          bool
}

// dependency is what all circuits of one dependency have in common.
type dependency struct {
	Dependency
	name     string // empty for those that the config does not name
	policy   toolcircuit.Policy
	tools    []string                 // with an entry, sorted
	first    *toolcircuit.Tool        // of these; nil if none
	template *toolcircuit.ToolCircuit // as first sees it; its twins are the circuits
}

// newPlan returns the plan of a config that has been validated. Prior is the plan before, nil
// if there was none.
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
	p.rest = p.newDependency("", Dependency{}, root)
	for name, d := range p.config.Dependencies {
		p.dependencies[name] = p.newDependency(name, d, root)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tools)) {
		p.addTool(name, p.config.Tools[name], message, prior)
	}
	for _, d := range p.dependencies {
		if d.first != nil {
			d.template = d.template.For(*d.first)
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

func (p *plan) newDependency(name string, d Dependency, root *toolcircuit.ToolCircuit) *dependency {
	policy, err := p.config.policy(d.Policy)
	if p.rest != nil && policy == p.rest.policy {
		return &dependency{name: name, Dependency: d, policy: policy, template: p.rest.template}
	}
	template := root.Twin(root.Dependency())
	if err = errors.Join(err, template.SetPolicy(policy)); err != nil {
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
			SideEffects:  c.SideEffects,
			Message:      message,
		},
		dependency: d,
		excluded:   p.excluded.match(name),
	}
	if prior != nil && prior.tools[name] != nil && reflect.DeepEqual(prior.config.Tools[name], c) {
		t.Tool = prior.tools[name].Tool
	}
	d.tools = append(d.tools, name)
	if d.first == nil {
		d.first = t.Tool
	}
	p.tools[name] = t
}

// resolve returns how a tool is guarded: as what, nil if it has no entry, and the settings of
// its dependency, nil if it is not guarded.
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
	return nil, p.dependency(name)
}

// dependency returns the settings of a dependency.
func (p *plan) dependency(name string) *dependency {
	if d := p.dependencies[name]; d != nil {
		return d
	}
	return p.rest
}

// keeps reports whether a circuit is still any tool's.
func (p *plan) keeps(name, scope string) bool {
	d := p.dependency(name)
	if scope != "" && !d.Scoped {
		return false
	}
	used := slices.ContainsFunc(d.tools, func(tool string) bool { return !p.tools[tool].excluded })
	return used || p.tools[name] == nil && p.monitored.match(name) && !p.excluded.match(name)
}

// clone returns a copy that shares nothing.
func (c Config) clone() Config {
	c.Dependencies = maps.Clone(c.Dependencies)
	c.Tools = maps.Clone(c.Tools)
	for name, t := range c.Tools {
		t.Alternatives = slices.Clone(t.Alternatives)
		t.NextActions = slices.Clone(t.NextActions)
		c.Tools[name] = t
	}
	c.Monitored = slices.Clone(c.Monitored)
	c.Excluded = slices.Clone(c.Excluded)
	return c
}
