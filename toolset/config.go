package toolset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/internal/strict"
)

// Config says which tools of an agent are guarded, and how. It is data: it goes to JSON and back,
// with durations as "30s", and every field is optional. The zero Config guards nothing. The
// example of [Load] has every field.
//
// A tool is guarded if it has an entry in Tools or matches Monitored, and does not match Excluded.
// A circuit never refuses a tool that is not guarded. A [Session] may.
//
// In Go each policy is complete. In JSON a policy has only the fields that it changes: "default"
// changes a policy with a jitter of 0.1, and the policy of a dependency changes "default".
type Config struct {
	// Disabled switches all guarding off. The circuits keep what they know.
	Disabled bool `json:"disabled,omitempty"`
	// Default is the policy of dependencies without one of their own. Nil: Policy{Jitter: 0.1}.
	Default *toolcircuit.Policy `json:"default,omitempty"` // before Dependencies, because UnmarshalJSON needs it first
	// Dependencies has the settings of dependencies, by name. Each must belong to a tool: it is
	// the Dependency of an entry in Tools, or a name that has no entry and matches Monitored.
	Dependencies map[string]Dependency `json:"dependencies,omitempty"`
	// Tools has the settings of tools, by name. A tool without settings only needs to match
	// Monitored.
	Tools map[string]Tool `json:"tools,omitempty"`
	// Monitored lists the tools to guard, Excluded the tools that are neither guarded nor offered
	// as an alternative. An item is a name or a pattern. "*" alone matches every name. Any other
	// pattern is one of [path.Match], where * and ? do not match a slash: "mcp-servers/*" matches
	// mcp-servers/everything, and "mcp-*" does not. A tool without an entry in Tools is its own
	// dependency. A pattern also guards names that a model invents: each makes a circuit, within
	// MaxCircuits.
	Monitored []string `json:"monitored,omitempty"`
	Excluded  []string `json:"excluded,omitempty"`
	// MaxCircuits caps the circuits kept. At the cap a new one evicts an idle, clean circuit if it
	// finds one soon, otherwise a closed one with a streak or openings. Snapshot.Forgotten counts
	// the latter. Circuits that are open, half-open or in use may exceed the cap.
	//
	// An open circuit that nobody calls any more is clean if no probe runs, no override holds, and
	// its wait has been over for as long as its openings would take to fade in a closed one. After
	// that nobody remembers that it was open. If the dependency is still down, the next outage
	// costs FailureThreshold calls instead of one probe.
	//
	// Zero: 10000.
	MaxCircuits int `json:"maxCircuits,omitempty"`
	// IdleAfter is the time between two looks at all circuits. Each new circuit looks at a few of
	// them. A circuit that was not used since the look before and remembers nothing is dropped.
	// Zero: 1h. At least 1ms.
	IdleAfter time.Duration `json:"idleAfter,omitempty"`
	// Hide says which tools [Visible] leaves out. Zero: HideNever.
	Hide Hide `json:"hide,omitempty"`
	// HideAtLeast is the length that a whole opening must have to hide a tool, because each change
	// of the list costs the prompt cache. Zero: every opening hides. At least 1ms.
	HideAtLeast time.Duration `json:"hideAtLeast,omitempty"`
}

// Dependency has the settings of one dependency.
type Dependency struct {
	// Policy is the policy of the dependency's circuits. Nil: Config.Default.
	Policy *toolcircuit.Policy `json:"policy,omitempty"`
	// MaxInFlight caps the calls under way. The next one is refused as busy. Zero: no cap.
	MaxInFlight int `json:"maxInFlight,omitempty"`
	// Scoped gives each scope of [WithScope] its own circuit and MaxInFlight.
	Scoped bool `json:"scoped,omitempty"`
}

// Tool is one tool of an agent.
type Tool struct {
	// Dependency is what the tool calls. Several tools may share one: then they share its circuit.
	// Zero: the tool's own name.
	Dependency string `json:"dependency,omitempty"`
	// Alternatives are other tools that the model may use instead. Two tools may name each other.
	// Each must have an entry in Config.Tools or match one of the lists. The model reads only
	// those that are neither excluded nor blocked at that moment.
	Alternatives []string `json:"alternatives,omitempty"`
	// NextActions are as in [toolcircuit.Tool].
	NextActions []toolcircuit.Action `json:"nextActions,omitempty"`
	// SideEffects keeps the tool from being the probe while another tool can be, and says that it
	// changes the world, for a [Session]. Nil: no, unless [Set.RaiseSideEffects] says yes.
	SideEffects *bool `json:"sideEffects,omitempty"`
}

// Hide says which tools [Visible] leaves out.
type Hide string

// The modes.
const (
	HideNever Hide = "never" // none
	HideOpen  Hide = "open"  // those whose circuit refuses every call for now
)

// Load reads a Config from JSON and checks it. Its error names the place, such as
// tools.web_search.alternatives[1]. Null is like an absent field. These are errors, too: a field
// that Config does not have, a name that is there twice, and a 0 that would be taken for a
// default.
func Load(r io.Reader) (Config, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return Config{}, fmt.Errorf("toolset: config: %w", err)
	}
	c, err := parseConfig(data)
	if err != nil {
		return Config{}, err
	}
	if err := c.validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// UnmarshalJSON sets c to what data says. On an error c is unchanged. It reads as [Load] does, but
// leaves the checks of a whole Config to New and Apply.
func (c *Config) UnmarshalJSON(data []byte) error {
	if string(bytes.TrimSpace(data)) == "null" { // changes nothing, as json.Unmarshaler asks
		return nil
	}
	next, err := parseConfig(data)
	if err == nil {
		*c = next
	}
	return err
}

func parseConfig(data []byte) (c Config, err error) {
	err = strict.Decode(data, &c, Config{MaxCircuits: defaultMaxCircuits, IdleAfter: defaultIdleAfter}, func(pointer any) {
		if p, ok := pointer.(**toolcircuit.Policy); ok {
			base := c.base()
			*p = &base
		}
	})
	if err != nil {
		err = fmt.Errorf("toolset: config: %w", err)
	}
	return c, err
}

// base returns the policy of dependencies without one of their own. The JSON of a policy changes
// it.
func (c Config) base() toolcircuit.Policy {
	if c.Default != nil {
		return *c.Default
	}
	return toolcircuit.Policy{Jitter: defaultJitter}
}

// MarshalJSON writes the fields that are not zero. Of a policy it writes the fields that differ
// from the policy that it changes. A policy that is not valid is an error.
func (c Config) MarshalJSON() ([]byte, error) {
	type config Config
	type dependency Dependency
	type written struct {
		dependency
		Policy json.RawMessage `json:"policy,omitempty"`
	}
	out := struct {
		config
		Default      json.RawMessage    `json:"default,omitempty"`
		Dependencies map[string]written `json:"dependencies,omitempty"`
		IdleAfter    string             `json:"idleAfter,omitempty"`
		HideAtLeast  string             `json:"hideAtLeast,omitempty"`
	}{config: config(c), Dependencies: map[string]written{}}
	var err error
	if out.Default, err = overlay("default", c.Default, Config{}.base()); err != nil {
		return nil, err
	}
	for name, d := range c.Dependencies {
		text, err := overlay(strict.Join("dependencies", name)+".policy", d.Policy, c.base())
		if err != nil {
			return nil, err
		}
		out.Dependencies[name] = written{dependency(d), text}
	}
	if c.IdleAfter != 0 {
		out.IdleAfter = strict.Duration(c.IdleAfter)
	}
	if c.HideAtLeast != 0 {
		out.HideAtLeast = strict.Duration(c.HideAtLeast)
	}
	return json.Marshal(out)
}

// overlay returns the JSON that changes base to p, nil for a nil p. A field that is 0 in p and not
// in base is written with the core's default, because an absent field would take base's value.
func overlay(where string, p *toolcircuit.Policy, base toolcircuit.Policy) (json.RawMessage, error) {
	if p == nil {
		return nil, nil
	}
	if err := checkPolicy(where, p); err != nil {
		return nil, fmt.Errorf("toolset: config: %w", err)
	}
	full := toolcircuit.MustNew("policy", toolcircuit.Options{Policy: *p}).Snapshot().Policy
	written := *p
	for v, i := reflect.ValueOf(&written).Elem(), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() && !reflect.ValueOf(base).Field(i).IsZero() {
			v.Field(i).Set(reflect.ValueOf(full).Field(i))
		}
	}
	return strict.Encode(written, base)
}

// The variables of WithEnv.
const (
	envPrefix    = "TOOLCIRCUIT_"
	envDisabled  = envPrefix + "DISABLED"
	envMonitored = envPrefix + "MONITORED"
	envExcluded  = envPrefix + "EXCLUDED"
)

// WithEnv returns c as the environment changes it. environ has the form of [os.Environ].
//
//	TOOLCIRCUIT_DISABLED   a boolean of strconv.ParseBool
//	TOOLCIRCUIT_MONITORED  names or patterns, separated by commas, in place of the list
//	TOOLCIRCUIT_EXCLUDED   the same
//
// An empty list variable empties its list. An empty TOOLCIRCUIT_DISABLED changes nothing. If a
// variable is there twice, the last one counts. If a list is replaced, the settings of
// dependencies and the alternatives that only the old list matched are dropped.
//
// Any other variable with this prefix is an error, so that a misspelt one does not go unnoticed.
// An error names the variable.
func (c Config) WithEnv(environ []string) (Config, error) {
	before, listed := c.reached(), c.listed()
	set := map[string]string{}
	for _, variable := range environ {
		name, text, _ := strings.Cut(variable, "=")
		switch name {
		case envDisabled, envMonitored, envExcluded:
			set[name] = text
		default:
			if strings.HasPrefix(name, envPrefix) {
				return Config{}, fmt.Errorf("toolset: %s: unknown variable, want %s, %s or %s", name, envDisabled, envMonitored, envExcluded)
			}
		}
	}
	if text := set[envDisabled]; text != "" {
		disabled, err := strconv.ParseBool(text)
		if err != nil {
			return Config{}, fmt.Errorf("toolset: %s: got %q, want true or false", envDisabled, text)
		}
		c.Disabled = disabled
	}
	for name, list := range map[string]*[]string{envMonitored: &c.Monitored, envExcluded: &c.Excluded} {
		text, there := set[name]
		if !there {
			continue
		}
		*list = nil
		for _, item := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
			*list = append(*list, strings.TrimSpace(item))
		}
		if err := checkPatterns(name, *list); err != nil {
			return Config{}, fmt.Errorf("toolset: %w", err)
		}
	}
	now := c.reached()
	c.Dependencies = maps.Clone(c.Dependencies)
	maps.DeleteFunc(c.Dependencies, func(name string, _ Dependency) bool { return before(name) && !now(name) })
	still := c.listed()
	c.Tools = maps.Clone(c.Tools)
	for name, t := range c.Tools {
		t.Alternatives = slices.DeleteFunc(slices.Clone(t.Alternatives), func(other string) bool { return listed(other) && !still(other) })
		c.Tools[name] = t
	}
	if err := c.check(); err != nil {
		return Config{}, fmt.Errorf("toolset: config with the environment: %w", err)
	}
	return c, nil
}
