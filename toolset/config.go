package toolset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/toolcircuit/toolcircuit"
)

// Config says which tools of an agent are guarded, and how. It is data: JSON both ways,
// durations as "30s", every field optional. The zero Config guards nothing. The example of
// [Load] has every field.
//
// A tool is guarded if it has an entry in Tools or matches Monitored, and does not match
// Excluded. A tool that nobody listed is never refused.
type Config struct {
	// Disabled switches all guarding off. What the circuits know stays.
	Disabled bool `json:"disabled,omitempty"`
	// Default is the policy of dependencies without one of their own, laid over the default
	// policy of the core with a Jitter of 0.1.
	Default Overlay `json:"default,omitempty"`
	// Dependencies have settings of their own, by name. Each must be some tool's: the Dependency
	// of an entry in Tools, or a name that has no entry and matches Monitored.
	Dependencies map[string]Dependency `json:"dependencies,omitempty"`
	// Tools are the tools that need more than a name, by name.
	Tools map[string]Tool `json:"tools,omitempty"`
	// Monitored lists tools to guard, Excluded those to leave alone and never to offer: names
	// or patterns of [path.Match], whose * does not reach beyond a slash. A tool without an
	// entry in Tools is its own dependency. A pattern also guards names that a model invents:
	// each makes a circuit, within MaxCircuits.
	Monitored []string `json:"monitored,omitempty"`
	Excluded  []string `json:"excluded,omitempty"`
	// MaxCircuits is the number of circuits above which a new one makes one go: of the few
	// that it looks at, one that has nothing to remember, else a closed one with a streak or
	// openings, which Snapshot.Forgotten counts. Circuits that are open, half-open or in use
	// may exceed it. Zero: 10000.
	MaxCircuits int `json:"maxCircuits,omitempty"`
	// IdleAfter is the time from one look at all circuits to the next, a few at a time whenever
	// another is made: those that were not used again since the last look and have nothing to
	// remember go. Zero: 1h.
	IdleAfter time.Duration `json:"idleAfter,omitempty"`
	// Hide says which tools [Visible] leaves out. Zero: HideNever.
	Hide Hide `json:"hide,omitempty"`
	// HideAtLeast is the length of a whole opening below which it hides nothing, for each
	// change of the list costs the prompt cache. Zero: hide in any.
	HideAtLeast time.Duration `json:"hideAtLeast,omitempty"`
}

// Dependency has the settings of one dependency.
type Dependency struct {
	// Policy is laid over Config.Default.
	Policy Overlay `json:"policy,omitempty"`
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
	// Alternatives are tools that can stand in. Each must have an entry in Config.Tools or
	// match one of the lists, and none may lead back here. A model is offered those that are
	// neither excluded nor blocked when it reads of them.
	Alternatives []string `json:"alternatives,omitempty"`
	// NextActions are as in [toolcircuit.Tool].
	NextActions []toolcircuit.Action `json:"nextActions,omitempty"`
	// SideEffects keeps the tool from being the probe while another can be.
	SideEffects bool `json:"sideEffects,omitempty"`
}

// Hide says which tools [Visible] leaves out.
type Hide string

// The modes.
const (
	HideNever Hide = "never" // none
	HideOpen  Hide = "open"  // those whose circuit refuses every call for now
)

// Overlay is a JSON object with the fields of a [toolcircuit.Policy] that it changes, such as
// {"cooldown": "10s", "jitter": 0}. A field that is absent stays as it is below, and one that
// is zero becomes zero. The empty Overlay changes nothing.
type Overlay string

// OverlayOf returns the Overlay of p's fields that are not zero.
func OverlayOf(p toolcircuit.Policy) Overlay {
	var fields []string
	for v, i := reflect.ValueOf(p), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			continue
		}
		value := v.Field(i).Interface()
		if d, ok := value.(time.Duration); ok {
			value = strconv.Quote(d.String())
		}
		fields = append(fields, fmt.Sprintf("%q:%v", v.Type().Field(i).Tag.Get("json"), value))
	}
	return Overlay("{" + strings.Join(fields, ",") + "}")
}

// over returns p with o laid over it.
func (o Overlay) over(p toolcircuit.Policy) (toolcircuit.Policy, error) {
	if o == "" {
		return p, nil
	}
	err := p.UnmarshalJSON([]byte(o))
	return p, err
}

// MarshalJSON returns o itself.
func (o Overlay) MarshalJSON() ([]byte, error) {
	if o == "" {
		return []byte("{}"), nil
	}
	return []byte(o), nil
}

// UnmarshalJSON takes data as it is, if it is what Overlay says.
func (o *Overlay) UnmarshalJSON(data []byte) error {
	if _, err := Overlay(data).over(toolcircuit.Policy{}); err != nil {
		return err
	}
	var text bytes.Buffer
	if err := json.Compact(&text, data); err != nil {
		return err
	}
	*o = Overlay(text.String())
	return nil
}

// Load reads a Config from JSON and checks it. An error says where, as in
// tools.web_search.alternatives[1]. A field that Config does not have is an error, and so is a
// name that is there twice, or a 0 that would be taken for a default. A field that is null is
// like one that is absent.
func Load(r io.Reader) (Config, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return Config{}, fmt.Errorf("toolset: config: %w", err)
	}
	var c Config
	if err := c.UnmarshalJSON(data); err != nil {
		return Config{}, err
	}
	if err := c.validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// envPrefix begins the names of all variables.
const envPrefix = "TOOLCIRCUIT_"

// WithEnv returns c with what the environment changes; lookup is os.LookupEnv, as a rule.
//
//	TOOLCIRCUIT_DISABLED           a boolean of strconv.ParseBool
//	TOOLCIRCUIT_MONITORED          names or patterns, separated by commas, in place of the list
//	TOOLCIRCUIT_EXCLUDED           the same
//	TOOLCIRCUIT_FAILURE_THRESHOLD  a field of the default policy, as are all others,
//	TOOLCIRCUIT_COOLDOWN           written as in JSON: 3, 0.5, true, 30s
//
// A variable that is set and empty is like one that is not set, but for the lists, which it
// empties. Settings of dependencies that were there for the replaced list alone go with it. An
// error names the variable.
func (c Config) WithEnv(lookup func(string) (string, bool)) (Config, error) {
	before := c.reached()
	if text, _ := lookup(envPrefix + "DISABLED"); text != "" {
		disabled, err := strconv.ParseBool(text)
		if err != nil {
			return Config{}, fmt.Errorf("toolset: %sDISABLED: got %q, want true or false", envPrefix, text)
		}
		c.Disabled = disabled
	}
	for name, list := range map[string]*[]string{"MONITORED": &c.Monitored, "EXCLUDED": &c.Excluded} {
		if text, set := lookup(envPrefix + name); set {
			*list = nil
			for _, item := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
				*list = append(*list, strings.TrimSpace(item))
			}
		}
	}
	now := c.reached()
	c.Dependencies = maps.Clone(c.Dependencies)
	maps.DeleteFunc(c.Dependencies, func(name string, _ Dependency) bool { return before(name) && !now(name) })
	overlay := map[string]json.RawMessage{}
	if c.Default != "" {
		if err := json.Unmarshal([]byte(c.Default), &overlay); err != nil {
			return Config{}, fmt.Errorf("toolset: config: default: %w", err)
		}
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[toolcircuit.Policy]()) {
		name := field.Tag.Get("json")
		text, _ := lookup(envName(name))
		if text == "" {
			continue
		}
		value := json.RawMessage(text)
		if !json.Valid(value) || string(bytes.TrimSpace(value)) == "null" {
			value, _ = json.Marshal(text)
		}
		overlay[name] = value
		if err := new(Overlay).UnmarshalJSON(fmt.Appendf(nil, "{%q:%s}", name, value)); err != nil {
			return Config{}, fmt.Errorf("toolset: %s: %w", envName(name), err)
		}
	}
	if len(overlay) > 0 {
		text, err := json.Marshal(overlay)
		if err != nil {
			return Config{}, fmt.Errorf("toolset: config: default: %w", err)
		}
		c.Default = Overlay(text)
	}
	if err := c.check(); err != nil {
		return Config{}, fmt.Errorf("toolset: config with the environment: %w", err)
	}
	return c, nil
}

// envName returns the variable for a JSON name: TOOLCIRCUIT_MAX_COOLDOWN for maxCooldown.
func envName(name string) string {
	var b strings.Builder
	b.WriteString(envPrefix)
	for _, r := range name {
		if 'A' <= r && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToUpper(b.String())
}
