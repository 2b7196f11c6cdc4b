package toolset

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/toolcircuit/toolcircuit"
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
