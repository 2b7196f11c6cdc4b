package toolset_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
		"cached_search": {}
	},
	"monitored": ["fetch_*"],
	"excluded": ["fetch_local"],
	"maxCircuits": 500,
	"idleAfter": "1h30m0s",
	"hide": "open",
	"hideAtLeast": "1m0s"
}`

var full = toolset.Config{
	Disabled:     true,
	Default:      `{"failureThreshold":3,"jitter":0}`,
	Dependencies: map[string]toolset.Dependency{"search-api": {Policy: `{"cooldown":"10s"}`, MaxInFlight: 4, Scoped: true}},
	Tools: map[string]toolset.Tool{
		"web_search": {
			Dependency:   "search-api",
			Alternatives: []string{"cached_search"},
			NextActions:  []toolcircuit.Action{toolcircuit.ActionUseAlternative},
			SideEffects:  true,
		},
		"cached_search": {},
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
		`[]`:                               `config: got [], want an object`,
		`null`:                             `config: got null, want an object`,
		`{"hide": "open"`:                  `unexpected end of JSON input`,
		`{} {}`:                            `after top-level value`,
		`{"hidden": "open"}`:               `config: hidden: unknown field`,
		`{"hide": "open", "hide": "open"}`: `config: hide: is there twice`,
		`{"hide": "always"}`:               `config: hide: got "always", want "never" or "open"`,
		`{"hide": 1}`:                      `config: hide: got 1, want a string`,
		`{"disabled": "yes"}`:              `config: disabled: got "yes", want true or false`,
		`{"maxCircuits": 1.5}`:             `config: maxCircuits: got 1.5, want a whole number`,
		`{"maxCircuits": 0}`:               `config: maxCircuits: got 0, want a value`,
		`{"maxCircuits": -1}`:              `config: maxCircuits: is negative`,
		`{"idleAfter": "0s"}`:              `config: idleAfter: got 0, want a value`,
		`{"idleAfter": 30}`:                `config: idleAfter: got 30, want a duration such as "30s"`,
		`{"hideAtLeast": "-1s"}`:           `config: hideAtLeast: is negative`,
		`{"monitored": "a"}`:               `config: monitored: got "a", want a list`,
		`{"monitored": ["a", ""]}`:         `config: monitored[1]: want a name`,
		`{"monitored": ["a", "a"]}`:        `config: monitored[1]: "a" is there twice`,
		`{"excluded": ["[a"]}`:             `config: excluded[0]: got "[a", want a name or a pattern of path.Match`,
		`{"excluded": [1]}`:                `config: excluded[0]: got 1, want a string`,
		`{"default": []}`:                  `config: default: toolcircuit: policy: got [`,
		`{"default": {"coolDown": "1s"}}`:  `config: default: toolcircuit: policy: unknown field "coolDown"`,
		`{"default": {"cooldown": "0s"}}`:  `config: default: toolcircuit: policy: cooldown: got 0`,
		`{"default": {"jitter": 2}}`:       `config: default: toolcircuit: Policy.Jitter: got 2`,
		`{"dependencies": {"": {}}}`:       `config: dependencies[""]: want a name`,
		`{"dependencies": {"a": {"policy": {"cooldown": "x"}}}}`:                                      `config: dependencies.a.policy: toolcircuit: policy: cooldown: got "x"`,
		`{"dependencies": {"a": {"policy": {"cooldown": "1h"}}}, "default": {"maxCooldown": "1m"}}`:   `config: dependencies.a.policy: toolcircuit: Policy.MaxCooldown: got 1m0s`,
		`{"dependencies": {"a": {"maxInFlight": -1}}}`:                                                `config: dependencies.a.maxInFlight: got -1, want 0 or more`,
		`{"dependencies": {"a": {}, "a": {}}}`:                                                        `config: dependencies.a: is there twice`,
		`{"dependencies": {"a.b": {"scope": true}}}`:                                                  `config: dependencies["a.b"].scope: unknown field`,
		`{"dependencies": {"a": null}}`:                                                               `config: dependencies.a: got null, want an object`,
		`{"dependencies": {"serach-api": {}}, "tools": {"web_search": {"dependency": "search-api"}}}`: `config: dependencies.serach-api: is no tool's, want`,
		`{"dependencies": {"a": {}}, "tools": {"a": {"dependency": "b"}}, "monitored": ["*"]}`:        `config: dependencies.a: is no tool's, want`,
		`{"dependencies": {"mcp:b": {}}, "monitored": ["mcp:a"]}`:                                     `config: dependencies.mcp:b: is no tool's, want`,
		`{"monitored": [null]}`:                                                                       `config: monitored[0]: want a name`,
		`{"tools": {"a": null}}`:                                                                      `config: tools.a: got null, want an object`,
		`{"tools": {"": {}}}`:                                                                         `config: tools[""]: want a name`,
		`{"tools": {"a": {}, "a": {}}}`:                                                               `config: tools.a: is there twice`,
		`{"tools": {"a": {"alternatives": ["b"]}}}`:                                                   `config: tools.a.alternatives[0]: got "b", want a tool that is listed`,
		`{"tools": {"a": {"alternatives": ["b", "b"]}, "b": {}}}`:                                     `config: tools.a.alternatives[1]: "b" is there twice`,
		`{"tools": {"a": {"alternatives": ["a"]}}}`:                                                   `config: tools.a.alternatives[0]: leads back: a -> a`,
		`{"tools": {"a": {"alternatives": ["b"]}, "b": {"alternatives": ["a"]}}}`:                     `config: tools.b.alternatives[0]: leads back: a -> b -> a`,
		`{"tools": {"a": {"alternatives": ["b"]}, "b": {"alternatives": ["d", "c"]}, "c": {"alternatives": ["d", "b"]}, "d": {}}}`: `config: tools.c.alternatives[1]: leads back: b -> c -> b`,
		`{"tools": {"a": {"nextActions": ["retry"]}}}`:          `config: tools.a.nextActions[0]: got "retry", want one of toolcircuit's actions`,
		`{"tools": {"a": {"nextActions": ["pause", "pause"]}}}`: `config: tools.a.nextActions[1]: "pause" is there twice`,
	} {
		_, err := toolset.Load(strings.NewReader(text))
		require.ErrorContains(t, err, want, text)
		require.ErrorContains(t, err, "toolset: config: ", text)
	}
}

func TestAlternativesThatAreListed(t *testing.T) {
	for _, text := range []string{
		`{"tools": {"a": {"alternatives": ["b"]}}, "monitored": ["b"]}`,
		`{"tools": {"a": {"alternatives": ["b"]}}, "monitored": ["*"]}`,
		`{"tools": {"a": {"alternatives": ["b"]}}, "excluded": ["b"]}`,
		`{"tools": {"a": {"alternatives": ["b", "c"]}, "b": {"alternatives": ["c"]}, "c": {}}}`,
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

func TestManyWaysWithoutACycle(t *testing.T) {
	tools := map[string]toolset.Tool{"0": {}, "0b": {}}
	for i := range 60 {
		below := []string{fmt.Sprint(i), fmt.Sprint(i, "b")}
		tools[fmt.Sprint(i+1)] = toolset.Tool{Alternatives: below}
		tools[fmt.Sprint(i+1, "b")] = toolset.Tool{Alternatives: below}
	}
	_, err := toolset.New(toolset.Config{Tools: tools}, toolset.Options{})
	require.NoError(t, err)
}

func TestNewChecksWhatGoCodeWrote(t *testing.T) {
	for want, c := range map[string]toolset.Config{
		"default: ":                     {Default: "cooldown"},
		"dependencies.a.policy: ":       {Dependencies: map[string]toolset.Dependency{"a": {Policy: `{"x": 1}`}}},
		"tools.a.alternatives[0]: want": {Tools: map[string]toolset.Tool{"a": {Alternatives: []string{""}}}},
		"maxCircuits":                   {MaxCircuits: -1},
		"idleAfter":                     {IdleAfter: -1},
	} {
		_, err := toolset.New(c, toolset.Options{})
		require.ErrorContains(t, err, want)
	}
	var none *clock.Mock
	_, err := toolset.New(toolset.Config{}, toolset.Options{Clock: none})
	require.ErrorContains(t, err, "Clock")
}

func TestOverlayOf(t *testing.T) {
	p := toolcircuit.Policy{FailureThreshold: math.MaxInt, FailureRate: 0.5, Cooldown: 90 * time.Second, CountUnknown: true}
	o := toolset.OverlayOf(p)
	require.Equal(t, toolset.Overlay(fmt.Sprintf(`{"failureThreshold":%d,"failureRate":0.5,"countUnknown":true,"cooldown":"1m30s"}`, math.MaxInt)), o)
	require.Equal(t, toolset.Overlay("{}"), toolset.OverlayOf(toolcircuit.Policy{}))

	r := newRig(t, toolset.Config{Default: o, Monitored: []string{"a"}}, toolset.Options{})
	got := r.Circuit(r.ctx, "a").Policy()
	require.Equal(t, 0.1, got.Jitter, "what is absent stays")
	require.Equal(t, 90*time.Second, got.Cooldown)

	_, err := toolset.New(toolset.Config{Default: toolset.OverlayOf(toolcircuit.Policy{Jitter: math.NaN()})}, toolset.Options{})
	require.Error(t, err)
}

func TestOverlaysAreLaidOverOneAnother(t *testing.T) {
	r := newRig(t, toolset.Config{
		Default: `{"callTimeout": "30s", "cooldown": "10s"}`,
		Dependencies: map[string]toolset.Dependency{
			"a": {Policy: `{"callTimeout": "0s", "jitter": 0}`},
			"b": {Policy: `{"cooldown": "20s"}`},
		},
		Monitored: []string{"a", "b", "c"},
	}, toolset.Options{})
	for tool, want := range map[string]toolcircuit.Policy{
		"a": {Cooldown: 10 * time.Second},
		"b": {CallTimeout: 30 * time.Second, Cooldown: 20 * time.Second, Jitter: 0.1},
		"c": {CallTimeout: 30 * time.Second, Cooldown: 10 * time.Second, Jitter: 0.1},
	} {
		got := r.Circuit(r.ctx, tool).Policy()
		require.Equal(t, want, toolcircuit.Policy{CallTimeout: got.CallTimeout, Cooldown: got.Cooldown, Jitter: got.Jitter}, tool)
	}
}

// environ is a lookup for WithEnv.
type environ map[string]string

func (e environ) lookup(name string) (string, bool) {
	text, set := e[name]
	return text, set
}

func TestWithEnv(t *testing.T) {
	base := toolset.Config{
		Default:      `{"cooldown":"10s"}`,
		Monitored:    []string{"a", "c"},
		Excluded:     []string{"b"},
		Dependencies: map[string]toolset.Dependency{"c": {Policy: `{"cooldown": "20s"}`}},
	}
	with := func(change func(*toolset.Config)) toolset.Config {
		c := base
		change(&c)
		return c
	}
	for name, c := range map[string]struct {
		env  environ
		want toolset.Config
	}{
		"nothing":  {environ{}, base},
		"empty":    {environ{"TOOLCIRCUIT_DISABLED": "", "TOOLCIRCUIT_COOLDOWN": ""}, base},
		"disabled": {environ{"TOOLCIRCUIT_DISABLED": "1"}, with(func(c *toolset.Config) { c.Disabled = true })},
		"lists": {environ{"TOOLCIRCUIT_MONITORED": "x, y_*", "TOOLCIRCUIT_EXCLUDED": ""}, with(func(c *toolset.Config) {
			c.Monitored, c.Excluded = []string{"x", "y_*"}, nil
			c.Dependencies = map[string]toolset.Dependency{} // none of them is c
		})},
		"policy": {environ{
			"TOOLCIRCUIT_FAILURE_THRESHOLD": "7",
			"TOOLCIRCUIT_JITTER":            "0",
			"TOOLCIRCUIT_COUNT_UNKNOWN":     "true",
			"TOOLCIRCUIT_MAX_COOLDOWN":      "1h",
		}, with(func(c *toolset.Config) {
			c.Default = `{"cooldown":"10s","countUnknown":true,"failureThreshold":7,"jitter":0,"maxCooldown":"1h"}`
		})},
	} {
		got, err := base.WithEnv(c.env.lookup)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}

	require.Contains(t, base.Dependencies, "c", "the config itself stays")
	_, err := toolset.Config{Dependencies: base.Dependencies}.WithEnv(environ{"TOOLCIRCUIT_MONITORED": "x"}.lookup)
	require.ErrorContains(t, err, "dependencies.c: is no tool's", "it was none's before")

	c, err := base.WithEnv(environ{"TOOLCIRCUIT_CALL_TIMEOUT": "5s", "TOOLCIRCUIT_MONITORED": "c"}.lookup)
	require.NoError(t, err)
	r := newRig(t, c, toolset.Options{})
	p := r.Circuit(r.ctx, "c").Policy()
	require.Equal(t, 5*time.Second, p.CallTimeout, "a change of the default reaches what is laid over it")
	require.Equal(t, 20*time.Second, p.Cooldown)
}

func TestWithEnvNamesTheVariable(t *testing.T) {
	for name, text := range map[string]string{
		"DISABLED":          "maybe",
		"FAILURE_THRESHOLD": "many",
		"COOLDOWN":          "30",
		"JITTER":            `{`,
		"CALL_TIMEOUT":      " null ",
		"COUNT_UNKNOWN":     "null",
		"MULTIPLIER":        "0",
	} {
		_, err := full.WithEnv(environ{"TOOLCIRCUIT_" + name: text}.lookup)
		require.ErrorContains(t, err, "toolset: TOOLCIRCUIT_"+name+": ")
	}
	_, err := full.WithEnv(environ{"TOOLCIRCUIT_MONITORED": "a,[,b"}.lookup)
	require.ErrorContains(t, err, "monitored[1]")
	_, err = toolset.Config{Default: "{"}.WithEnv(environ{}.lookup)
	require.ErrorContains(t, err, "default")
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
			func(c *toolset.Config) { c.Default = `{"failureThreshold": 9}` },
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
				c.Dependencies = map[string]toolset.Dependency{"a": {Policy: `{"failureThreshold": 5}`}}
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
			func(c *toolset.Config) { c.Tools = map[string]toolset.Tool{"a": {SideEffects: true}} },
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
	s, err := toolset.New(toolset.Config{Default: `{"failureThreshold": 1, "jitter": 1}`, Monitored: []string{"a"}}, toolset.Options{
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
		r := newRig(t, toolset.Config{Default: `{"failureThreshold": 1, "jitter": 1}`, Monitored: []string{"a"}}, toolset.Options{Seed: seed})
		r.call("a", errDown)
		c := r.circuit("a")
		waits[c.RetryAt.Sub(c.Since)] = true
	}
	require.Len(t, waits, 2)
}

func FuzzConfig(f *testing.F) {
	f.Add(fullJSON)
	f.Add(`{"tools": {"a": {"alternatives": ["b"]}}, "monitored": ["b*"]}`)
	f.Add(`{"default": {"cooldown": "1ms"}, "idleAfter": "1ns"}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := toolset.Load(strings.NewReader(text))
		if err != nil {
			require.Zero(t, c)
			return
		}
		_, err = toolset.New(c, toolset.Options{})
		require.NoError(t, err)
		written, err := json.Marshal(c)
		require.NoError(t, err)
		again, err := toolset.Load(strings.NewReader(string(written)))
		require.NoError(t, err, "%s", written)
		rewritten, err := json.Marshal(again)
		require.NoError(t, err)
		require.Equal(t, string(written), string(rewritten))
	})
}
