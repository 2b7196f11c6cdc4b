package toolset

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/internal/strict"
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
	for _, f := range []struct {
		name string
		got  any
		bad  bool
	}{
		{"maxCircuits", c.MaxCircuits, c.MaxCircuits < 0},
		{"idleAfter", c.IdleAfter, c.IdleAfter < 0},
		{"hideAtLeast", c.HideAtLeast, c.HideAtLeast < 0},
	} {
		if f.bad {
			return fmt.Errorf("%s: got %v, want 0 or more", f.name, f.got)
		}
		if d, ok := f.got.(time.Duration); ok && noUnit(d) {
			return fmt.Errorf("%s: got %v, want 0 or at least 1ms", f.name, d)
		}
	}
	if err := checkPolicy("default", c.Default); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Dependencies)) {
		d, where := c.Dependencies[name], strict.Join("dependencies", name)
		if name == "" {
			return fmt.Errorf("%s: got \"\", want a name", where)
		}
		if d.MaxInFlight < 0 {
			return fmt.Errorf("%s.maxInFlight: got %d, want 0 or more", where, d.MaxInFlight)
		}
		if err := checkPolicy(where+".policy", d.Policy); err != nil {
			return err
		}
	}
	if err := checkPatterns("monitored", c.Monitored); err != nil {
		return err
	}
	if err := checkPatterns("excluded", c.Excluded); err != nil {
		return err
	}
	if err := c.checkTools(); err != nil {
		return err
	}
	reached := c.reached()
	for _, name := range slices.Sorted(maps.Keys(c.Dependencies)) {
		if !reached(name) {
			return fmt.Errorf("%s: is no tool's, want the dependency of an entry in tools or a name that monitored matches", strict.Join("dependencies", name))
		}
	}
	return nil
}

// noUnit reports whether d is so short that its unit was forgotten.
func noUnit(d time.Duration) bool { return 0 < d && d < time.Millisecond }

// reached returns a function that reports whether a dependency belongs to any tool. Excluded tools
// count, because they may come back.
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

// listed returns a function that reports whether a tool has an entry in Tools or matches one of
// the lists, so that it may be an alternative.
func (c Config) listed() func(name string) bool {
	monitored, excluded := newNames(c.Monitored), newNames(c.Excluded)
	return func(name string) bool {
		_, entry := c.Tools[name]
		return entry || monitored.match(name) || excluded.match(name)
	}
}

// checkPolicy returns [toolcircuit.Policy.Validate]'s error with the path in the config. A nil
// policy is valid.
func checkPolicy(where string, p *toolcircuit.Policy) error {
	if p == nil {
		return nil
	}
	err := p.Validate()
	if err == nil {
		return nil
	}
	if field, ok := strings.CutPrefix(err.Error(), "toolcircuit: Policy."); ok {
		return fmt.Errorf("%s.%s%s", where, strings.ToLower(field[:1]), field[1:])
	}
	return fmt.Errorf("%s: %w", where, err)
}

// checkPatterns returns an error for an item of a list that is no name or pattern, or is there
// twice.
func checkPatterns(where string, list []string) error {
	for i, item := range list {
		if _, err := path.Match(item, ""); err != nil {
			return fmt.Errorf("%s[%d]: got %q, want a name or a pattern of path.Match", where, i, item)
		}
	}
	return checkNames(where, list)
}

// checkNames returns an error for an item of a list that is empty or is there twice.
func checkNames(where string, list []string) error {
	for i, name := range list {
		switch {
		case name == "":
			return fmt.Errorf("%s[%d]: got \"\", want a name", where, i)
		case slices.Contains(list[:i], name):
			return fmt.Errorf("%s[%d]: got %q twice, want each name once", where, i, name)
		}
	}
	return nil
}

func (c Config) checkTools() error {
	listed := c.listed()
	for _, name := range slices.Sorted(maps.Keys(c.Tools)) {
		t, where := c.Tools[name], strict.Join("tools", name)
		if name == "" {
			return fmt.Errorf("%s: got \"\", want a name", where)
		}
		where += ".alternatives"
		if err := checkNames(where, t.Alternatives); err != nil {
			return err
		}
		for i, alternative := range t.Alternatives {
			if alternative == name {
				return fmt.Errorf("%s[%d]: got %q, want another tool", where, i, alternative)
			}
			if !listed(alternative) {
				return fmt.Errorf("%s[%d]: got %q, want a tool that is listed", where, i, alternative)
			}
		}
		for i, a := range t.NextActions {
			switch a {
			case toolcircuit.ActionAnswerWithout, toolcircuit.ActionUseAlternative, toolcircuit.ActionPause, toolcircuit.ActionEscalate:
			default:
				return fmt.Errorf("%s.nextActions[%d]: got %q, want one of toolcircuit's actions", strict.Join("tools", name), i, a)
			}
			if slices.Contains(t.NextActions[:i], a) {
				return fmt.Errorf("%s.nextActions[%d]: got %q twice, want each action once", strict.Join("tools", name), i, a)
			}
		}
	}
	return nil
}

// names is a list of names and patterns.
type names struct {
	all      bool // the pattern "*" is there
	exact    map[string]bool
	patterns []string
}

func newNames(list []string) names {
	n := names{exact: map[string]bool{}}
	for _, item := range list {
		switch {
		case item == "*":
			n.all = true
		case strings.ContainsAny(item, `*?[\`):
			n.patterns = append(n.patterns, item)
		default:
			n.exact[item] = true
		}
	}
	return n
}

func (n names) match(name string) bool {
	return n.all || n.exact[name] || slices.ContainsFunc(n.patterns, func(p string) bool {
		ok, _ := path.Match(p, name)
		return ok
	})
}
