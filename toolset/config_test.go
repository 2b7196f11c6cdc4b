package toolset_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

const fullJSON = `{
	"disabled": true,
	"default": {"failureThreshold": 3, "jitter": 0},
	"dependencies": {"search-api": {"policy": {"cooldown": "10s"}, "maxInFlight": 4, "scoped": true}},
	"tools": {
		"web_search": {"dependency": "search-api", "alternatives": ["cached_search"], "nextActions": ["use_alternative"], "sideEffects": true},
		"cached_search": {"sideEffects": false}
	},
	"monitored": ["fetch_*"],
	"excluded": ["fetch_local"],
	"maxCircuits": 500,
	"idleAfter": "1h30m",
	"hide": "open",
	"hideAtLeast": "1m"
}`

var full = toolset.Config{
	Disabled:     true,
	Default:      &toolcircuit.Policy{FailureThreshold: 3},
	Dependencies: map[string]toolset.Dependency{"search-api": {Policy: &toolcircuit.Policy{FailureThreshold: 3, Cooldown: 10 * time.Second}, MaxInFlight: 4, Scoped: true}},
	Tools: map[string]toolset.Tool{
		"web_search": {
			Dependency:   "search-api",
			Alternatives: []string{"cached_search"},
			NextActions:  []toolcircuit.Action{toolcircuit.ActionUseAlternative},
			SideEffects:  &yes,
		},
		"cached_search": {SideEffects: &no},
	},
	Monitored:   []string{"fetch_*"},
	Excluded:    []string{"fetch_local"},
	MaxCircuits: 500,
	IdleAfter:   90 * time.Minute,
	Hide:        toolset.HideOpen,
	HideAtLeast: time.Minute,
}

func TestLoad(t *testing.T) {
	c, err := toolset.Load(strings.NewReader(fullJSON))
	require.NoError(t, err)
	require.Equal(t, full, c)
	text, err := json.Marshal(c)
	require.NoError(t, err)
	require.JSONEq(t, fullJSON, string(text))

	c, err = toolset.Load(strings.NewReader(`{"default": null, "tools": null, "idleAfter": null}`))
	require.NoError(t, err)
	require.Equal(t, toolset.Config{}, c)
	text, err = json.Marshal(c)
	require.NoError(t, err)
	require.Equal(t, "{}", string(text))

	_, err = toolset.Load(iotest.ErrReader(errors.New("disk")))
	require.ErrorContains(t, err, "disk")
}

func TestLoadSaysWhere(t *testing.T) {
	for text, want := range map[string]string{
		``:                                 `unexpected end of JSON input`,
		`[]`:                               `config: got [], want a JSON object`,
		`null`:                             `config: got null, want a JSON object`,
		`{"hide": "open"`:                  `unexpected end of JSON input`,
		`{} {}`:                            `after top-level value`,
		`{"hidden": "open"}`:               `config: hidden: unknown field`,
		`{"hide": "open", "hide": "open"}`: `config: hide: is there twice`,
		`{"hide": "always"}`:               `config: hide: got "always", want "never" or "open"`,
		`{"hide": 1}`:                      `config: hide: got 1, want a string`,
		`{"disabled": "yes"}`:              `config: disabled: got "yes", want true or false`,
		`{"maxCircuits": 1.5}`:             `config: maxCircuits: got 1.5, want a whole number`,
		`{"maxCircuits": 0}`:               `config: maxCircuits: got 0, want a value`,
		`{"maxCircuits": -1}`:              `config: maxCircuits: got -1, want 0 or more`,
		`{"idleAfter": "0s"}`:              `config: idleAfter: got 0, want a value`,
		`{"idleAfter": 30}`:                `config: idleAfter: got 30, want a duration such as "30s"`,
		`{"hideAtLeast": "-1s"}`:           `config: hideAtLeast: got -1s, want 0 or more`,
		`{"monitored": "a"}`:               `config: monitored: got "a", want a list`,
		`{"monitored": ["a", ""]}`:         `config: monitored[1]: got "", want a name`,
		`{"monitored": ["a", "a"]}`:        `config: monitored[1]: got "a" twice, want each name once`,
		`{"excluded": ["[a"]}`:             `config: excluded[0]: got "[a", want a name or a pattern of path.Match`,
		`{"excluded": [1]}`:                `config: excluded[0]: got 1, want a string`,
		`{"default": []}`:                  `config: default: got [], want a JSON object`,
		`{"default": {"coolDown": "1s"}}`:  `config: default.coolDown: unknown field`,
		`{"default": {"cool down": "1s"}}`: `config: default["cool down"]: unknown field`,
		`{"default": {"cooldown": "0s"}}`:  `config: default.cooldown: got 0, want a value`,
		`{"default": {"jitter": 2}}`:       `config: default.jitter: got 2, want a part from 0 to 1`,
		`{"dependencies": {"": {}}}`:       `config: dependencies[""]: got "", want a name`,
		`{"dependencies": {"a": {"policy": {"cooldown": "x"}}}}`:                                      `config: dependencies.a.policy.cooldown: got "x", want a duration such as "30s"`,
		`{"dependencies": {"a": {"policy": {"cooldown": "1h"}}}, "default": {"maxCooldown": "1m"}}`:   `config: dependencies.a.policy.maxCooldown: got 1m0s, want at least Cooldown, 1h0m0s`,
		`{"dependencies": {"a": {"maxInFlight": -1}}}`:                                                `config: dependencies.a.maxInFlight: got -1, want 0 or more`,
		`{"dependencies": {"a": {}, "a": {}}}`:                                                        `config: dependencies.a: is there twice`,
		`{"dependencies": {"a.b": {"scope": true}}}`:                                                  `config: dependencies["a.b"].scope: unknown field`,
		`{"dependencies": {"a": null}}`:                                                               `config: dependencies.a: got null, want a JSON object`,
		`{"dependencies": {"serach-api": {}}, "tools": {"web_search": {"dependency": "search-api"}}}`: `config: dependencies.serach-api: is no tool's, want`,
		`{"dependencies": {"a": {}}, "tools": {"a": {"dependency": "b"}}, "monitored": ["*"]}`:        `config: dependencies.a: is no tool's, want`,
		`{"dependencies": {"mcp:b": {}}, "monitored": ["mcp:a"]}`:                                     `config: dependencies.mcp:b: is no tool's, want`,
		`{"monitored": [null]}`:                                                                       `config: monitored[0]: got null, want a string`,
		`{"tools": {"a": null}}`:                                                                      `config: tools.a: got null, want a JSON object`,
		`{"tools": {"": {}}}`:                                                                         `config: tools[""]: got "", want a name`,
		`{"tools": {"a": {}, "a": {}}}`:                                                               `config: tools.a: is there twice`,
		`{"tools": {"a": {"alternatives": ["b"]}}}`:                                                   `config: tools.a.alternatives[0]: got "b", want a tool that is listed`,
		`{"tools": {"a": {"alternatives": ["b", "b"]}, "b": {}}}`:                                     `config: tools.a.alternatives[1]: got "b" twice, want each name once`,
		`{"tools": {"a": {"alternatives": ["a"]}}}`:                                                   `config: tools.a.alternatives[0]: got "a", want another tool`,
		`{"dependencies": {"db": {"policy": {"jitter": null, "jitter": 0}}}}`:                         `config: dependencies.db.policy.jitter: is there twice`,
		`{"dependencies": {"db": {"policy": 3}}}`:                                                     `config: dependencies.db.policy: got 3, want a JSON object`,
		`{"tools": {"a": {"nextActions": ["retry"]}}}`:                                                `config: tools.a.nextActions[0]: got "retry", want one of toolcircuit's actions`,
		`{"tools": {"a": {"nextActions": ["pause", "pause"]}}}`:                                       `config: tools.a.nextActions[1]: got "pause" twice, want each action once`,
	} {
		_, err := toolset.Load(strings.NewReader(text))
		require.ErrorContains(t, err, want, text)
		require.ErrorContains(t, err, "toolset: config: ", text)
	}
}

func TestAlternativesThatAreListed(t *testing.T) {
	for _, text := range []string{
		`{"tools": {"a": {"alternatives": ["b"]}}, "monitored": ["b"]}`,
		`{"tools": {"a": {"alternatives": ["b["]}, "b[": {}}}`, // a name, not a pattern
		`{"tools": {"a": {"alternatives": ["b"]}}, "monitored": ["*"]}`,
		`{"tools": {"a": {"alternatives": ["b"]}}, "excluded": ["b"]}`,
		`{"tools": {"a": {"alternatives": ["b", "c"]}, "b": {"alternatives": ["c"]}, "c": {}}}`,
		`{"tools": {"a": {"alternatives": ["b"]}, "b": {"alternatives": ["c"]}, "c": {"alternatives": ["a"]}}}`,
	} {
		_, err := toolset.Load(strings.NewReader(text))
		require.NoError(t, err, text)
	}
}

func TestDependenciesThatAreReached(t *testing.T) {
	for _, text := range []string{
		`{"dependencies": {"a": {}}, "monitored": ["a"]}`,
		`{"dependencies": {"a": {}}, "monitored": ["*"]}`,
		`{"dependencies": {"mcp:a": {}}, "monitored": ["mcp:*"]}`,
		`{"dependencies": {"a": {}}, "tools": {"a": {}}}`,
		`{"dependencies": {"a": {}}, "tools": {"a": {"dependency": "b"}, "b": {"dependency": "a"}}}`,
		`{"dependencies": {"a": {}}, "tools": {"b": {"dependency": "a"}}, "excluded": ["*"]}`,
	} {
		_, err := toolset.Load(strings.NewReader(text))
		require.NoError(t, err, text)
	}
}

// A113 asks for alternatives without cycles, so that a substitute is never followed in a circle.
// Nothing follows them: a model is offered those that are ready, and two tools that stand in for
// each other are natural.
func TestA113AlternativesMayPointAtEachOther(t *testing.T) {
	r := newRig(t, toolset.Config{Tools: map[string]toolset.Tool{
		"a": {Alternatives: []string{"b"}},
		"b": {Alternatives: []string{"a"}},
	}}, toolset.Options{})
	r.trip("a")
	require.Equal(t, []string{"b"}, r.refused("a").Alternatives)
	r.trip("b")
	require.Empty(t, r.refused("a").Alternatives)
	require.Empty(t, r.refused("b").Alternatives)
}

func TestNewChecksWhatGoCodeWrote(t *testing.T) {
	for want, c := range map[string]toolset.Config{
		"default.cooldown: got -1ns, want":              {Default: &toolcircuit.Policy{Cooldown: -1}},
		"dependencies.a.policy.jitter: got NaN, want":   {Dependencies: map[string]toolset.Dependency{"a": {Policy: &toolcircuit.Policy{Jitter: math.NaN()}}}},
		`tools.a.alternatives[0]: got "", want`:         {Tools: map[string]toolset.Tool{"a": {Alternatives: []string{""}}}},
		"maxCircuits: got -1, want":                     {MaxCircuits: -1},
		"idleAfter: got 60ns, want 0 or at least 1ms":   {IdleAfter: 60}, // no unit
		"hideAtLeast: got 60ns, want 0 or at least 1ms": {HideAtLeast: 60},
		"idleAfter: got -1ns, want":                     {IdleAfter: -1},
	} {
		_, err := toolset.New(c, toolset.Options{})
		require.ErrorContains(t, err, want)
	}
	var none *clock.Mock
	_, err := toolset.New(toolset.Config{}, toolset.Options{Clock: none})
	require.ErrorContains(t, err, "Clock")
}

// effective returns the policies in force under a config, by tool.
func effective(t *testing.T, c toolset.Config, tools ...string) map[string]toolcircuit.Policy {
	t.Helper()
	s, err := toolset.New(c, toolset.Options{})
	require.NoError(t, err)
	policies := map[string]toolcircuit.Policy{}
	for _, tool := range tools {
		policies[tool] = s.Circuit(context.Background(), tool).Snapshot().Policy
	}
	return policies
}

func TestPoliciesInGoAreComplete(t *testing.T) {
	c := toolset.Config{
		Default:      &toolcircuit.Policy{CallTimeout: time.Second},
		Dependencies: map[string]toolset.Dependency{"a": {Policy: &toolcircuit.Policy{FailureThreshold: 7}}, "b": {}},
		Monitored:    []string{"a", "b", "c"},
	}
	r := newRig(t, c, toolset.Options{})
	require.Equal(t, toolcircuit.Policy{FailureThreshold: 7}, r.Circuit(r.ctx, "a").Policy())
	require.Equal(t, toolcircuit.Policy{CallTimeout: time.Second}, r.Circuit(r.ctx, "b").Policy())
	require.Equal(t, toolcircuit.Policy{CallTimeout: time.Second}, r.Circuit(r.ctx, "c").Policy())

	c.Default = nil
	s, err := toolset.New(c, toolset.Options{})
	require.NoError(t, err)
	require.Equal(t, toolcircuit.Policy{Jitter: 0.1}, s.Circuit(r.ctx, "c").Policy())
}

func TestPoliciesInJSONAreLaidOverOneAnother(t *testing.T) {
	for _, text := range []string{
		`{"default": {"callTimeout": "30s", "cooldown": "10s"}, "monitored": ["a", "b", "c"],
			"dependencies": {"a": {"policy": {"callTimeout": "0s", "jitter": 0}}, "b": {"policy": {"cooldown": "20s", "jitter": null}}}}`,
		`{"dependencies": {"b": {"policy": {"cooldown": "20s"}}, "a": {"policy": {"jitter": 0, "callTimeout": "0s"}}},
			"monitored": ["a", "b", "c"], "default": {"cooldown": "10s", "callTimeout": "30s"}}`,
	} {
		c, err := toolset.Load(strings.NewReader(text))
		require.NoError(t, err)
		require.Equal(t, toolcircuit.Policy{CallTimeout: 30 * time.Second, Cooldown: 10 * time.Second, Jitter: 0.1}, *c.Default)
		require.Equal(t, toolcircuit.Policy{Cooldown: 10 * time.Second}, *c.Dependencies["a"].Policy)
		require.Equal(t, toolcircuit.Policy{CallTimeout: 30 * time.Second, Cooldown: 20 * time.Second, Jitter: 0.1}, *c.Dependencies["b"].Policy)
	}
}

// No null in a file changes anything, and a Config in a larger one may be null.
func TestNullIsLikeAbsent(t *testing.T) {
	c := full
	require.NoError(t, json.Unmarshal([]byte("null"), &c))
	require.Equal(t, full, c)
	require.ErrorContains(t, json.Unmarshal([]byte(`{"hide": 1}`), &c), "toolset: config: hide: got 1")
	require.Equal(t, full, c, "it is as it was after an error")
	require.NoError(t, json.Unmarshal([]byte(`{"excluded": ["b"]}`), &c))
	require.Equal(t, toolset.Config{Excluded: []string{"b"}}, c)
	c, err := toolset.Load(strings.NewReader(`{"dependencies": {"a": {"policy": null, "maxInFlight": null}}, "tools": {"a": {"alternatives": null}}}`))
	require.NoError(t, err)
	require.Equal(t, toolset.Config{Dependencies: map[string]toolset.Dependency{"a": {}}, Tools: map[string]toolset.Tool{"a": {}}}, c)
}

func TestPoliciesAsWritten(t *testing.T) {
	dependency := func(p *toolcircuit.Policy) map[string]toolset.Dependency {
		return map[string]toolset.Dependency{"a": {Policy: p}}
	}
	for _, row := range []struct {
		config toolset.Config
		want   string
	}{
		{toolset.Config{}, `{}`},
		{toolset.Config{Default: &toolcircuit.Policy{}}, `{"default":{"jitter":0}}`},
		{toolset.Config{Default: &toolcircuit.Policy{Jitter: 0.1}}, `{"default":{}}`},
		{toolset.Config{Dependencies: dependency(nil)}, `{"dependencies":{"a":{}}}`},
		{toolset.Config{Dependencies: dependency(&toolcircuit.Policy{})}, `{"dependencies":{"a":{"policy":{"jitter":0}}}}`},
		{
			toolset.Config{Default: &toolcircuit.Policy{FailureThreshold: 3, CallTimeout: time.Second, CountUnknown: true}, Dependencies: dependency(&toolcircuit.Policy{Window: 90 * time.Second})},
			`{"default":{"failureThreshold":3,"callTimeout":"1s","countUnknown":true,"jitter":0},` +
				`"dependencies":{"a":{"policy":{"failureThreshold":5,"window":"1m30s","callTimeout":"0s","countUnknown":false}}}}`,
		},
	} {
		text, err := json.Marshal(row.config)
		require.NoError(t, err)
		require.JSONEq(t, row.want, string(text))
	}
	for want, c := range map[string]toolset.Config{
		"default.jitter: got 2, want":              {Default: &toolcircuit.Policy{Jitter: 2}},
		"dependencies.a.policy.multiplier: got -1": {Dependencies: dependency(&toolcircuit.Policy{Multiplier: -1})},
	} {
		_, err := json.Marshal(c)
		require.ErrorContains(t, err, "toolset: config: "+want)
	}
}

// What is in force is the same after JSON, whichever of Default and the policy over it sets a
// field, or leaves it at 0 for the core's default.
func TestPoliciesSurviveJSON(t *testing.T) {
	values := map[reflect.Kind][]any{
		reflect.Int:     {0, 3, 7},
		reflect.Float64: {0.0, 1.0, 0.5},
		reflect.Bool:    {false, true},
		reflect.Int64:   {time.Duration(0), time.Hour, 2 * time.Hour},
	}
	for i := range reflect.TypeFor[toolcircuit.Policy]().NumField() {
		field := reflect.TypeFor[toolcircuit.Policy]().Field(i)
		var policies []*toolcircuit.Policy
		for _, v := range values[field.Type.Kind()] {
			p := new(toolcircuit.Policy)
			reflect.ValueOf(p).Elem().Field(i).Set(reflect.ValueOf(v))
			if p.Validate() == nil {
				policies = append(policies, p)
			}
		}
		require.GreaterOrEqual(t, len(policies), 2, field.Name)
		for _, base := range append(policies, nil) {
			for _, over := range append(policies, nil) {
				c := toolset.Config{
					Default:      base,
					Dependencies: map[string]toolset.Dependency{"a": {Policy: over}},
					Monitored:    []string{"a", "b"},
				}
				text, err := json.Marshal(c)
				require.NoError(t, err)
				back, err := toolset.Load(strings.NewReader(string(text)))
				require.NoError(t, err, "%s", text)
				require.Equal(t, effective(t, c, "a", "b"), effective(t, back, "a", "b"), "%s", text)
			}
		}
	}
}

func TestWithEnv(t *testing.T) {
	base := toolset.Config{
		Monitored:    []string{"a", "c"},
		Excluded:     []string{"b"},
		Dependencies: map[string]toolset.Dependency{"c": {MaxInFlight: 1}},
	}
	with := func(change func(*toolset.Config)) toolset.Config {
		c := base
		change(&c)
		return c
	}
	for name, c := range map[string]struct {
		env  []string
		want toolset.Config
	}{
		"nothing":  {nil, base},
		"others":   {[]string{"PATH=/bin", "", "=C:", "TOOLCIRCUITS=1", "X_TOOLCIRCUIT_DISABLED=1", "toolcircuit_disabled=1"}, base},
		"empty":    {[]string{"TOOLCIRCUIT_DISABLED="}, base},
		"disabled": {[]string{"TOOLCIRCUIT_DISABLED=1"}, with(func(c *toolset.Config) { c.Disabled = true })},
		"last":     {[]string{"TOOLCIRCUIT_DISABLED=1", "TOOLCIRCUIT_DISABLED="}, base},
		"excluded": {[]string{"TOOLCIRCUIT_EXCLUDED=a=b,,c"}, with(func(c *toolset.Config) { c.Excluded = []string{"a=b", "c"} })},
		"lists": {[]string{"TOOLCIRCUIT_MONITORED=x, y_*", "TOOLCIRCUIT_EXCLUDED="}, with(func(c *toolset.Config) {
			c.Monitored, c.Excluded = []string{"x", "y_*"}, nil
			c.Dependencies = map[string]toolset.Dependency{} // none of them is c
		})},
	} {
		got, err := base.WithEnv(c.env)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}

	require.Contains(t, base.Dependencies, "c", "the config itself stays")
	_, err := toolset.Config{Dependencies: base.Dependencies}.WithEnv([]string{"TOOLCIRCUIT_MONITORED=x"})
	require.ErrorContains(t, err, "dependencies.c: is no tool's", "it was none's before")
}

// An operator who narrows a list needs no other change to the config.
func TestWithEnvDropsAlternativesOutOfReach(t *testing.T) {
	base := toolset.Config{
		Monitored: []string{"*"},
		Excluded:  []string{"off"},
		Tools: map[string]toolset.Tool{
			"search": {Alternatives: []string{"cache", "fetch", "map", "off"}},
			"fetch":  {Alternatives: []string{"map"}},
		},
	}
	for monitored, want := range map[string][]string{
		"":         {"fetch", "off"},
		"fetch":    {"fetch", "off"},
		"x,cache":  {"cache", "fetch", "off"},
		"c*, m*":   {"cache", "fetch", "map", "off"},
		"* ,cache": {"cache", "fetch", "map", "off"},
	} {
		c, err := base.WithEnv([]string{"TOOLCIRCUIT_MONITORED=" + monitored})
		require.NoError(t, err, monitored)
		require.Equal(t, want, c.Tools["search"].Alternatives, monitored)
		_, err = toolset.New(c, toolset.Options{})
		require.NoError(t, err, monitored)
	}
	require.Len(t, base.Tools["search"].Alternatives, 4, "the config itself stays")
	c, err := base.WithEnv([]string{"TOOLCIRCUIT_EXCLUDED=", "TOOLCIRCUIT_MONITORED=x"})
	require.NoError(t, err)
	require.Equal(t, []string{"fetch"}, c.Tools["search"].Alternatives)

	base.Monitored = []string{"a"}
	_, err = base.WithEnv([]string{"TOOLCIRCUIT_MONITORED=a"})
	require.ErrorContains(t, err, "tools.fetch.alternatives[0]", "nothing reached it before")
}

func TestWithEnvNamesTheVariable(t *testing.T) {
	for variable, want := range map[string]string{
		"TOOLCIRCUIT_DISABLED=maybe":    `TOOLCIRCUIT_DISABLED: got "maybe", want true or false`,
		"TOOLCIRCUIT_MONITORED=a,[,b":   `TOOLCIRCUIT_MONITORED[1]: got "[", want a name or a pattern`,
		"TOOLCIRCUIT_EXCLUDED=a,b,a":    `TOOLCIRCUIT_EXCLUDED[2]: got "a" twice`,
		"TOOLCIRCUIT_EXCLUDED= ":        `TOOLCIRCUIT_EXCLUDED[0]: got "", want a name`,
		"TOOLCIRCUIT_COOLDOWN=10s":      `TOOLCIRCUIT_COOLDOWN: unknown variable, want TOOLCIRCUIT_DISABLED, TOOLCIRCUIT_MONITORED or TOOLCIRCUIT_EXCLUDED`,
		"TOOLCIRCUIT_DISABLE=":          `TOOLCIRCUIT_DISABLE: unknown variable`,
		"TOOLCIRCUIT_Disabled=true":     `TOOLCIRCUIT_Disabled: unknown variable`,
		"TOOLCIRCUIT_=":                 `TOOLCIRCUIT_: unknown variable`,
		"TOOLCIRCUIT_DISABLED_TOOLS=ab": `TOOLCIRCUIT_DISABLED_TOOLS: unknown variable`,
	} {
		got, err := full.WithEnv([]string{variable})
		require.ErrorContains(t, err, "toolset: "+want)
		require.Zero(t, got)
	}
	_, err := toolset.Config{MaxCircuits: -1}.WithEnv(nil)
	require.ErrorContains(t, err, "toolset: config with the environment: maxCircuits")
}

// Each row changes one field alone, and something behaves differently.
func TestA064EveryFieldActs(t *testing.T) {
	rows := map[string]struct {
		config  toolset.Config
		change  func(*toolset.Config)
		observe func(*rig) any
		before  any
		after   any
	}{
		"Config.Disabled": {
			toolset.Config{Monitored: []string{"a"}},
			func(c *toolset.Config) { c.Disabled = true },
			func(r *rig) any { return r.Guards("a") }, true, false,
		},
		"Config.Default": {
			toolset.Config{Monitored: []string{"a"}},
			func(c *toolset.Config) { c.Default = &toolcircuit.Policy{FailureThreshold: 9} },
			func(r *rig) any { return r.failures("a") }, 3, 9,
		},
		"Config.Monitored": {
			toolset.Config{},
			func(c *toolset.Config) { c.Monitored = []string{"a*"} },
			func(r *rig) any { return r.Guards("ab") }, false, true,
		},
		"Config.Excluded": {
			toolset.Config{Tools: map[string]toolset.Tool{"ab": {}}},
			func(c *toolset.Config) { c.Excluded = []string{"a*"} },
			func(r *rig) any { return r.Guards("ab") }, true, false,
		},
		"Config.MaxCircuits": {
			toolset.Config{Monitored: []string{"*"}},
			func(c *toolset.Config) { c.MaxCircuits = 2 },
			func(r *rig) any {
				for _, name := range []string{"a", "b", "c", "d"} {
					r.call(name, nil)
				}
				return len(r.circuits())
			}, 4, 2,
		},
		"Config.IdleAfter": {
			toolset.Config{Monitored: []string{"*"}},
			func(c *toolset.Config) { c.IdleAfter = time.Minute },
			func(r *rig) any {
				for _, name := range []string{"a", "b", "c", "d"} {
					r.call(name, nil)
					r.clock.Add(time.Minute)
				}
				return len(r.circuits())
			}, 4, 1,
		},
		"Config.Hide": {
			toolset.Config{Monitored: []string{"a"}},
			func(c *toolset.Config) { c.Hide = toolset.HideOpen },
			func(r *rig) any { r.trip("a"); return len(r.visible("a", "b")) }, 2, 1,
		},
		"Config.HideAtLeast": {
			toolset.Config{Monitored: []string{"a"}, Hide: toolset.HideOpen},
			func(c *toolset.Config) { c.HideAtLeast = time.Minute + 1 },
			func(r *rig) any { r.trip("a"); return len(r.visible("a", "b")) }, 1, 2,
		},
		"Config.Dependencies": {}, "Config.Tools": {}, // by their fields
		"Dependency.Policy": {
			toolset.Config{Monitored: []string{"a"}},
			func(c *toolset.Config) {
				c.Dependencies = map[string]toolset.Dependency{"a": {Policy: &toolcircuit.Policy{FailureThreshold: 5}}}
			},
			func(r *rig) any { return r.failures("a") }, 3, 5,
		},
		"Dependency.MaxInFlight": {
			toolset.Config{Monitored: []string{"a"}},
			func(c *toolset.Config) { c.Dependencies = map[string]toolset.Dependency{"a": {MaxInFlight: 1}} },
			func(r *rig) any {
				r.begin("a")
				_, err := r.Allow(r.ctx, "a", nil)
				return err == nil
			}, true, false,
		},
		"Dependency.Scoped": {
			toolset.Config{Monitored: []string{"a"}},
			func(c *toolset.Config) { c.Dependencies = map[string]toolset.Dependency{"a": {Scoped: true}} },
			func(r *rig) any { r.in("x").call("a", nil); return r.circuits()[0] }, "a", "a/x",
		},
		"Tool.Dependency": {
			toolset.Config{Tools: map[string]toolset.Tool{"a": {}}},
			func(c *toolset.Config) { c.Tools = map[string]toolset.Tool{"a": {Dependency: "api"}} },
			func(r *rig) any { r.trip("a"); return r.refused("a").Dependency }, "a", "api",
		},
		"Tool.Alternatives": {
			toolset.Config{Monitored: []string{"b"}, Tools: map[string]toolset.Tool{"a": {}}},
			func(c *toolset.Config) { c.Tools = map[string]toolset.Tool{"a": {Alternatives: []string{"b"}}} },
			func(r *rig) any { r.trip("a"); return len(r.refused("a").Alternatives) }, 0, 1,
		},
		"Tool.NextActions": {
			toolset.Config{Tools: map[string]toolset.Tool{"a": {}}},
			func(c *toolset.Config) {
				c.Tools = map[string]toolset.Tool{"a": {NextActions: []toolcircuit.Action{toolcircuit.ActionEscalate}}}
			},
			func(r *rig) any { r.trip("a"); return r.refused("a").NextActions[0] },
			toolcircuit.ActionAnswerWithout, toolcircuit.ActionEscalate,
		},
		"Tool.SideEffects": {
			toolset.Config{Tools: map[string]toolset.Tool{"a": {}}},
			func(c *toolset.Config) { c.Tools = map[string]toolset.Tool{"a": {SideEffects: &yes}} },
			func(r *rig) any { r.trip("a"); r.clock.Add(time.Minute); return r.Circuit(r.ctx, "a").Ready() }, true, false,
		},
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[toolset.Config](), reflect.TypeFor[toolset.Dependency](), reflect.TypeFor[toolset.Tool]()} {
		for _, field := range reflect.VisibleFields(typ) {
			require.Contains(t, rows, typ.Name()+"."+field.Name)
		}
	}
	for name, row := range rows {
		if row.observe == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			require.Equal(t, row.before, row.observe(newRig(t, row.config, toolset.Options{})), "before")
			changed := row.config
			row.change(&changed)
			require.Equal(t, row.after, row.observe(newRig(t, changed, toolset.Options{})), "after")

			reloaded := newRig(t, row.config, toolset.Options{})
			reloaded.apply(changed)
			require.Equal(t, row.after, row.observe(reloaded), "after Apply")
		})
	}
}

// failures is how many in a row open the circuit of a tool.
func (r *rig) failures(tool string) (n int) {
	for r.Circuit(r.ctx, tool).State() == toolcircuit.StateClosed {
		r.call(tool, errDown)
		n++
	}
	return n
}

func TestEveryOptionActs(t *testing.T) {
	seen := map[string]bool{}
	s, err := toolset.New(toolset.Config{Default: &toolcircuit.Policy{FailureThreshold: 1, Jitter: 1}, Monitored: []string{"a"}}, toolset.Options{
		Seed: 7,
		Classify: func(context.Context, toolcircuit.Outcome) toolcircuit.Verdict {
			seen["Classify"] = true
			return toolcircuit.Verdict{}
		},
		OnEvent: func(context.Context, toolcircuit.Event) { seen["OnEvent"] = true },
		OnCall:  func(context.Context, toolcircuit.Call) { seen["OnCall"] = true },
		Message: func(toolcircuit.Blocked) string { seen["Message"] = true; return "" },
	})
	require.NoError(t, err)
	r := &rig{T: t, Set: s, ctx: context.Background()}
	r.call("a", errors.New("unknown to all"))
	r.call("a", errDown)
	r.refused("a")
	require.Len(t, seen, 4)

	waits := map[time.Duration]bool{}
	for _, seed := range []uint64{7, 7, 8} {
		r := newRig(t, toolset.Config{Default: &toolcircuit.Policy{FailureThreshold: 1, Jitter: 1}, Monitored: []string{"a"}}, toolset.Options{Seed: seed})
		r.call("a", errDown)
		c := r.circuit("a")
		waits[c.RetryAt.Sub(c.Since)] = true
	}
	require.Len(t, waits, 2)
}

// FuzzConfig takes what comes in out and in again: the text is the same, and so is what is in
// force.
func FuzzConfig(f *testing.F) {
	f.Add(fullJSON)
	f.Add(`{"tools": {"a": {"alternatives": ["b"]}}, "monitored": ["b*"]}`)
	f.Add(`{"default": {"cooldown": "1ms"}, "idleAfter": "1ns"}`)
	f.Add(`{"dependencies": {"a": {"policy": {"callTimeout": "0s"}}}, "monitored": ["*"], "default": {"callTimeout": "1h", "jitter": -0}}`)
	f.Add(`{"dependencies": {"a": {"policy": {}}, "a\n": {"policy": null}}, "tools": {"a": {}, "a\n": {}}, "default": null}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := toolset.Load(strings.NewReader(text))
		if err != nil {
			require.Zero(t, c)
			return
		}
		written, err := json.Marshal(c)
		require.NoError(t, err)
		again, err := toolset.Load(strings.NewReader(string(written)))
		require.NoError(t, err, "%s", written)
		rewritten, err := json.Marshal(again)
		require.NoError(t, err)
		require.Equal(t, string(written), string(rewritten))
		inForce := func(c toolset.Config) toolset.Snapshot {
			s, err := toolset.New(c, toolset.Options{Clock: clock.NewMock()})
			require.NoError(t, err)
			return s.Snapshot()
		}
		require.Equal(t, inForce(c), inForce(again), "%s", written)
	})
}
