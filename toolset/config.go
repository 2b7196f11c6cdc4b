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

// Config says which tools of an agent are guarded, and how. It is data: JSON both ways,
// durations as "30s", every field optional. The zero Config guards nothing. The example of
// [Load] has every field.
//
// A tool is guarded if it has an entry in Tools or matches Monitored, and does not match
// Excluded. A tool that nobody listed is never refused.
//
// In Go each policy is complete. In JSON a policy has only the fields that it changes: "default"
// is laid over a policy with a jitter of 0.1, and the policy of a dependency over "default".
type Config struct {
	// Disabled switches all guarding off. What the circuits know stays.
	Disabled bool `json:"disabled,omitempty"`
	// Default is the policy of dependencies without one of their own. Nil: Policy{Jitter: 0.1}.
	Default *toolcircuit.Policy `json:"default,omitempty"` // before Dependencies, since UnmarshalJSON needs it first
	// Dependencies have settings of their own, by name. Each must be some tool's: the Dependency
	// of an entry in Tools, or a name that has no entry and matches Monitored.
	Dependencies map[string]Dependency `json:"dependencies,omitempty"`
	// Tools are the tools that need more than a name, by name.
	Tools map[string]Tool `json:"tools,omitempty"`
	// Monitored lists tools to guard, Excluded those to leave alone and never to offer: names
	// or patterns. "*" alone matches every name. Any other pattern is one of [path.Match], where
	// * and ? match no slash: "mcp-servers/*" matches mcp-servers/everything, and "mcp-*" does
	// not. A tool without an entry in Tools is its own dependency. A pattern also guards names
	// that a model invents: each makes a circuit, within MaxCircuits.
	Monitored []string `json:"monitored,omitempty"`
	Excluded  []string `json:"excluded,omitempty"`
	// MaxCircuits caps the circuits kept. At the cap a new one evicts an idle, clean circuit if
	// it finds one soon, otherwise a closed one with a streak or openings, which
	// Snapshot.Forgotten counts. Circuits that are open, half-open or in use may exceed the cap.
	//
	// An open circuit that nobody calls any more is clean once its wait has been over for as
	// long as its openings would take to fade in a closed one, with no probe out and no
	// override. What goes with it is the memory that it was open: if the dependency is still
	// down, the next outage takes FailureThreshold calls to see, where a probe takes one.
	//
	// Zero: 10000.
	MaxCircuits int `json:"maxCircuits,omitempty"`
	// IdleAfter is the time from one look at all circuits to the next. Each new circuit looks
	// at a few. Those that were not used since the last look and have nothing to remember go.
	// Zero: 1h.
	IdleAfter time.Duration `json:"idleAfter,omitempty"`
	// Hide says which tools [Visible] leaves out. Zero: HideNever.
	Hide Hide `json:"hide,omitempty"`
	// HideAtLeast is the length of a whole opening below which it hides nothing, because each
	// change of the list costs the prompt cache. Zero: hide in any.
	HideAtLeast time.Duration `json:"hideAtLeast,omitempty"`
}

// Dependency has the settings of one dependency.
type Dependency struct {
	// Policy is the policy of its circuits. Nil: Config.Default.
	Policy *toolcircuit.Policy `json:"policy,omitempty"`
	// MaxInFlight is the number of calls above which the next is refused as busy. Zero: no
	// bound.
	MaxInFlight int `json:"maxInFlight,omitempty"`
	// Scoped gives each scope of [WithScope] a circuit and a MaxInFlight of its own.
	Scoped bool `json:"scoped,omitempty"`
}

// Tool is one tool of an agent.
type Tool struct {
	// Dependency is what the tool calls. Several tools may share one: the first trip blocks
	// them all. Zero: the tool's own name.
	Dependency string `json:"dependency,omitempty"`
	// Alternatives are other tools that can stand in, and may name this one in turn. Each must
	// have an entry in Config.Tools or match one of the lists. A model is offered those that are
	// neither excluded nor blocked when it reads of them.
	Alternatives []string `json:"alternatives,omitempty"`
	// NextActions are as in [toolcircuit.Tool].
	NextActions []toolcircuit.Action `json:"nextActions,omitempty"`
	// SideEffects keeps the tool from being the probe while another can be. Nil: no, unless
	// [Set.RaiseSideEffects] says otherwise.
	SideEffects *bool `json:"sideEffects,omitempty"`
}

// Hide says which tools [Visible] leaves out.
type Hide string

// The modes.
const (
	HideNever Hide = "never" // none
	HideOpen  Hide = "open"  // those whose circuit refuses every call for now
)

// Load reads a Config from JSON and checks it. An error says where, as in
// tools.web_search.alternatives[1]. A field that Config does not have is an error, and so is a
// name that is there twice, or a 0 that would be taken for a default. A field that is null is
// like one that is absent.
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

// UnmarshalJSON makes c what data says, and leaves it as it is on an error. It finds what
// Load finds in data alone; the rest is for New and Apply to find.
func (c *Config) UnmarshalJSON(data []byte) error {
	if string(bytes.TrimSpace(data)) == "null" { // changes nothing, as json.Unmarshaler has it
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

// base returns the policy of dependencies without one of their own. It is also what the JSON of
// a policy is laid over.
func (c Config) base() toolcircuit.Policy {
	if c.Default != nil {
		return *c.Default
	}
	return toolcircuit.Policy{Jitter: defaultJitter}
}

// MarshalJSON writes the fields that are not zero, and of a policy those in which it differs from
// what it is laid over. A policy that is not valid is an error.
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

// overlay returns the JSON that makes p of base, nil for a nil p. A 0 that stands for a default
// of the core is written as that default where base has another value, since an absent field
// would take that.
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

// WithEnv returns c with what the environment changes. Environ has the form of [os.Environ].
//
//	TOOLCIRCUIT_DISABLED   a boolean of strconv.ParseBool
//	TOOLCIRCUIT_MONITORED  names or patterns, separated by commas, in place of the list
//	TOOLCIRCUIT_EXCLUDED   the same
//
// A variable that is empty is like one that is not set, except that it empties a list. Of a
// variable that is there twice the last counts. Settings of dependencies and alternatives of tools
// that only the replaced list reached go with it. Any other variable with this prefix is an error, so that a misspelt
// one does not go unnoticed. An error names the variable.
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
		if err := checkNames(name, *list); err != nil {
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
