package toolset_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// Faults reported against breakers inside agent products (A), read in the source of others
// (S), reported by users of agents (R) and against breakers in general (F). What one circuit
// does by itself is tested beside it; here is what a Set adds. Where the cases are:
//
//	A017 A061 A062 A064 S04   config_test.go and here: lists, settings per tool, names
//	A068 A070 A076 A080 A113  result_test.go: what the model reads
//	A056 A088 A089 A091 A092  visible_test.go: what is listed
//	R38 R47 R49               visible_test.go
//	A094 A095 A097 A104 A106  here: who shares a circuit, and for how long
//	R04 R28 R29 R43 R44       here
//	F67 F68                   here: eviction
//	A058 A085 A103 A107 A112  gate_test.go
//	R07 R08 R26 R32 R53       gate_test.go and result_test.go
//
// Not here: A059 A067 A073 A074 A079 A083 A086 A109 S05 and R01 R02 R05 R11 to R25 R31 R34 to R41
// R46 R52 are one circuit's alone; A065 A098 A100 A101 need a Store; A071 A077 A082 A083 A110 are a
// session's; R10 R16 R50 and the lists of a server are an adapter's.

// rig is a Set under a mock clock, with all it said. Three failures open a circuit, for a
// minute.
type rig struct {
	*testing.T
	*toolset.Set
	ctx    context.Context
	clock  *clock.Mock
	events *[]toolcircuit.Event
	calls  *[]toolcircuit.Call
}

var steady = &toolcircuit.Policy{FailureThreshold: 3, Cooldown: time.Minute}

var yes, no = true, false // for Tool.SideEffects

var errDown = toolcircuit.Fault(errors.New("down"))

// newRig returns a rig with c, whose Default is steady unless it has one, and with the rest of
// o.
func newRig(t *testing.T, c toolset.Config, o toolset.Options) *rig {
	t.Helper()
	if c.Default == nil {
		c.Default = steady
	}
	r := &rig{T: t, ctx: context.Background(), clock: clock.NewMock(), events: new([]toolcircuit.Event), calls: new([]toolcircuit.Call)}
	o.Clock = r.clock
	o.OnEvent = func(_ context.Context, e toolcircuit.Event) { *r.events = append(*r.events, e) }
	if o.OnCall == nil {
		o.OnCall = func(_ context.Context, c toolcircuit.Call) { *r.calls = append(*r.calls, c) }
	}
	s, err := toolset.New(c, o)
	require.NoError(t, err)
	r.Set = s
	return r
}

// in is the rig as callers of that scope use it.
func (r *rig) in(scope string) *rig {
	scoped := *r
	scoped.ctx = toolset.WithScope(r.ctx, scope)
	return &scoped
}

// call is a call that must run and returns err.
func (r *rig) call(tool string, err error) {
	r.Helper()
	ran := 0
	_, got := toolset.Do(r.ctx, r.Set, tool, nil, func(context.Context) (string, error) {
		ran++
		return "value", err
	})
	require.Equal(r, err, got)
	require.Equal(r, 1, ran, "the call must run once")
}

// trip opens the circuit of a tool.
func (r *rig) trip(tool string) {
	r.Helper()
	for range 3 {
		r.call(tool, errDown)
	}
}

// refused is a call that must be refused, and what a model reads about it.
func (r *rig) refused(tool string) toolcircuit.Blocked {
	r.Helper()
	result, err := toolset.WrapResult(r.Set, tool, func(context.Context, string) (string, error) {
		r.Error("a refused call ran")
		return "", nil
	})(r.ctx, "")
	require.NoError(r, err)
	require.Equal(r, toolcircuit.StatusBlocked, result.Status)
	require.Equal(r, tool, result.Tool)
	require.False(r, *result.Executed)
	return result.Blocked
}

func (r *rig) apply(c toolset.Config) {
	r.Helper()
	if c.Default == nil {
		c.Default = steady
	}
	require.NoError(r, r.Apply(c))
}

// circuits is the names of all circuits, with the scopes that have one.
func (r *rig) circuits() (names []string) {
	for _, c := range r.Snapshot().Circuits {
		name := c.Dependency
		if c.Scope != "" {
			name += "/" + c.Scope
		}
		names = append(names, name)
	}
	return names
}

func (r *rig) circuit(dependency string) toolset.CircuitSnapshot {
	r.Helper()
	for _, c := range r.Snapshot().Circuits {
		if c.Dependency == dependency {
			return c
		}
	}
	require.Fail(r, "no circuit", dependency)
	return toolset.CircuitSnapshot{}
}

func TestA017NobodyListedIsNeverRefused(t *testing.T) {
	r := newRig(t, toolset.Config{Monitored: []string{"web_*"}, Excluded: []string{"web_test"}}, toolset.Options{})
	for range 10 {
		r.call("run_tests", errDown)
		r.call("web_test", errDown)
	}
	require.False(t, r.Guards("run_tests"))
	require.False(t, r.Guards("web_test"))
	require.False(t, r.Guards(""))
	require.Nil(t, r.Circuit(r.ctx, "run_tests"))
	require.Empty(t, r.circuits(), "they create no state")
	r.trip("web_search")
	r.refused("web_search")

	r.apply(toolset.Config{Monitored: []string{"*"}})
	require.True(t, r.Guards("run_tests"))
	require.False(t, r.Guards(""))
}

// N38: "*" alone matches every name. In other patterns a * stops at a slash.
func TestN38StarMatchesServerNames(t *testing.T) {
	for _, row := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "search", true},
		{"*", "mcp-servers/everything", true},
		{"*", "a/b/c", true},
		{"*", "", false},
		{"mcp-*", "mcp-servers/everything", false},
		{"mcp-servers/*", "mcp-servers/everything", true},
		{"*/*", "mcp-servers/everything", true},
		{"**", "mcp-servers/everything", false},
	} {
		r := newRig(t, toolset.Config{Monitored: []string{row.pattern}}, toolset.Options{})
		require.Equal(t, row.want, r.Guards(row.name), row)
		if row.want {
			r.trip(row.name)
			r.refused(row.name)
			r.apply(toolset.Config{Monitored: []string{"*"}, Excluded: []string{row.pattern}})
			require.False(t, r.Guards(row.name), row)
		}
	}
}

func TestRaiseSideEffects(t *testing.T) {
	c := toolset.Config{
		Tools: map[string]toolset.Tool{
			"open":   {},
			"read":   {SideEffects: &no},
			"write":  {SideEffects: &yes},
			"shared": {Dependency: "open"},
		},
		Monitored: []string{"any_*"},
	}
	r := newRig(t, c, toolset.Options{Message: func(b toolcircuit.Blocked) string { return "about " + b.Tool }})
	tools := []string{"open", "read", "write", "shared", "any_tool"}
	for _, tool := range []string{"open", "read", "write", "any_tool"} {
		r.trip(tool)
	}
	r.clock.Add(time.Minute)
	ready := func() (names []string) {
		for _, tool := range tools {
			if r.Circuit(r.ctx, tool).Ready() {
				names = append(names, tool)
			}
		}
		return names
	}
	require.Equal(t, []string{"open", "read", "shared", "any_tool"}, ready())
	r.RaiseSideEffects()
	r.RaiseSideEffects("read", "write", "any_tool", "later", "")
	require.Equal(t, []string{"open", "read", "shared"}, ready(), "an explicit false stands")
	r.RaiseSideEffects("open", "read")
	require.Equal(t, []string{"read", "shared"}, ready())
	require.Equal(t, "about any_tool", r.refused("any_tool").Message)
	require.Equal(t, c.Tools, r.Config().Tools, "the config is as it was")
	require.NoError(t, r.SetOverride("write", toolcircuit.OverrideNone))
	r.apply(c)
	require.Equal(t, []string{"read", "shared"}, ready())
	c.Tools["read"], c.Tools["open"] = toolset.Tool{}, toolset.Tool{SideEffects: &no}
	r.apply(c)
	require.Equal(t, []string{"open", "shared"}, ready(), "the config decides again")

	c.Monitored = []string{"later"}
	r.apply(c)
	r.trip("later")
	r.clock.Add(time.Minute)
	require.False(t, r.Circuit(r.ctx, "later").Ready())
}

// A session goes by the same: the success of a raised tool may have mended what failed.
func TestRaisedToolsInASession(t *testing.T) {
	for _, raised := range []bool{false, true} {
		r := newRig(t, toolset.Config{Monitored: []string{"*"}}, toolset.Options{})
		if raised {
			r.RaiseSideEffects("write_file")
		}
		run, err := r.Session("run", toolset.Limits{})
		require.NoError(t, err)
		r.ctx = toolset.WithSession(r.ctx, run)
		invalid := &toolcircuit.HTTPError{StatusCode: 400} // which other news does not free
		r.call("read_file", invalid)
		r.call("write_file", nil)
		ran := false
		toolset.Do(r.ctx, r.Set, "read_file", nil, func(context.Context) (int, error) { ran = true; return 0, nil })
		require.Equal(t, raised, ran)
	}
}

func TestA061SettingsPerTool(t *testing.T) {
	r := newRig(t, toolset.Config{
		Dependencies: map[string]toolset.Dependency{"disk": {Policy: &toolcircuit.Policy{FailureThreshold: 1, Cooldown: time.Second}}},
		Tools:        map[string]toolset.Tool{"read_file": {Dependency: "disk"}},
		Monitored:    []string{"paid_api"},
	}, toolset.Options{})
	r.call("read_file", errDown)
	r.trip("paid_api")
	require.EqualValues(t, 1000, r.refused("read_file").RetryAfterMS)
	require.EqualValues(t, 60_000, r.refused("paid_api").RetryAfterMS)
	r.clock.Add(time.Second)
	r.call("read_file", nil)
	r.refused("paid_api")
}

func TestA062SwitchedOff(t *testing.T) {
	c := toolset.Config{Monitored: []string{"flaky", "other"}}
	r := newRig(t, c, toolset.Options{})
	require.NoError(t, r.SetOverride("flaky", toolcircuit.OverrideClosed))
	r.trip("flaky")
	r.trip("flaky")
	require.Len(t, *r.calls, 6, "a tool let through is heard of all the same")
	r.trip("other")
	r.refused("other")

	c.Disabled = true
	r.apply(c)
	r.call("other", errDown)
	require.False(t, r.Guards("other"))
	c.Disabled = false
	r.apply(c)
	r.refused("other")
}

func TestA094SameNameInTwoAgents(t *testing.T) {
	one := newRig(t, toolset.Config{Monitored: []string{"search"}}, toolset.Options{})
	two := newRig(t, toolset.Config{Monitored: []string{"search"}}, toolset.Options{})
	one.trip("search")
	one.refused("search")
	two.call("search", nil)
}

func TestA095DroppedAgentsLeaveNothing(t *testing.T) {
	r := newRig(t, toolset.Config{
		Dependencies: map[string]toolset.Dependency{"search": {Scoped: true}},
		Monitored:    []string{"search"},
		MaxCircuits:  100,
	}, toolset.Options{})
	r.in("agent 0").trip("search")
	for i := 1; i < 10_000; i++ {
		r.in(fmt.Sprint("agent ", i)).call("search", nil)
	}
	require.Len(t, r.circuits(), 100)
	r.in("agent 10000").call("search", nil)
	r.in("agent 0").refused("search")
}

func TestA097BackupServes(t *testing.T) {
	r := newRig(t, toolset.Config{Tools: map[string]toolset.Tool{
		"primary": {Alternatives: []string{"backup"}},
		"backup":  {},
	}}, toolset.Options{})
	r.trip("primary")
	require.Equal(t, []string{"backup"}, r.refused("primary").Alternatives)
	r.call("backup", nil)
}

func TestA104HelperAgentIsCovered(t *testing.T) {
	r := newRig(t, toolset.Config{Monitored: []string{"read"}}, toolset.Options{})
	ran := 0
	read := toolset.Wrap(r.Set, "read", func(context.Context, string) (string, error) {
		ran++
		return "", errDown
	})
	helper := toolcircuit.WithRunID(r.ctx, "helper")
	for range 40 {
		_, err := read(helper, "file")
		require.Error(t, err)
	}
	require.Equal(t, 3, ran)
	r.refused("read")
	require.Equal(t, "read", (*r.events)[0].Tool, "also without an entry in the config")
}

func TestA106OutOfBandSuccess(t *testing.T) {
	r := newRig(t, toolset.Config{Monitored: []string{"search"}}, toolset.Options{})
	r.trip("search")
	require.NoError(t, r.Reset("search"))
	r.call("search", nil)
}

func TestS04UnknownNames(t *testing.T) {
	r := newRig(t, toolset.Config{
		Dependencies: map[string]toolset.Dependency{"search-api": {Scoped: true}},
		Tools:        map[string]toolset.Tool{"search": {Dependency: "search-api"}},
		Excluded:     []string{"left_alone"},
	}, toolset.Options{})
	for _, name := range []string{"server.search", "search-api", "left_alone", ""} {
		require.ErrorContains(t, r.Reset(name), fmt.Sprintf("Reset: got %q, want a tool that is guarded", name))
		require.ErrorContains(t, r.SetOverride(name, toolcircuit.OverrideOpen), fmt.Sprintf("SetOverride: got %q", name))
	}
	require.ErrorContains(t, r.SetOverride("search", "half"), `got "half"`)

	for _, tenant := range []string{"a", "b"} {
		r.in(tenant).trip("search")
		r.in(tenant).refused("search")
	}
	require.NoError(t, r.Reset("search"), "of all scopes")
	r.in("a").call("search", nil)
	r.in("b").call("search", nil)
}

func TestOverrideReachesEveryScope(t *testing.T) {
	c := toolset.Config{
		Dependencies: map[string]toolset.Dependency{"search": {Scoped: true}},
		Monitored:    []string{"search"},
		MaxCircuits:  1,
	}
	r := newRig(t, c, toolset.Options{})
	r.in("early").call("search", nil)
	require.NoError(t, r.SetOverride("search", toolcircuit.OverrideOpen))
	require.Equal(t, toolcircuit.ReasonManualOpen, r.in("early").refused("search").Reason)
	require.Equal(t, toolcircuit.ReasonManualOpen, r.in("late").refused("search").Reason)
	r.apply(c)
	require.Equal(t, toolcircuit.ReasonManualOpen, r.in("later").refused("search").Reason)
	require.NoError(t, r.SetOverride("search", toolcircuit.OverrideNone))
	r.in("early").call("search", nil)
	r.in("later").call("search", nil)

	require.NoError(t, r.SetOverride("search", toolcircuit.OverrideOpen))
	r.apply(toolset.Config{})
	r.apply(c)
	r.in("early").call("search", nil)
}

func TestR04RewordedArguments(t *testing.T) {
	r := newRig(t, toolset.Config{Monitored: []string{"search"}}, toolset.Options{})
	for i := range 3 {
		_, err := toolset.Do(r.ctx, r.Set, "search", map[string]int{"q": i}, func(context.Context) (int, error) { return 0, errDown })
		require.Equal(t, errDown, err)
	}
	r.refused("search")
}

func TestR28NoAlternativeTripsAllTheSame(t *testing.T) {
	r := newRig(t, toolset.Config{Monitored: []string{"search"}}, toolset.Options{})
	r.trip("search")
	blocked := r.refused("search")
	require.Empty(t, blocked.Alternatives)
	require.Equal(t, []toolcircuit.Action{toolcircuit.ActionAnswerWithout}, blocked.NextActions)
}

func TestR29SnapshotSaysWhatIsOpen(t *testing.T) {
	r := newRig(t, toolset.Config{
		Dependencies: map[string]toolset.Dependency{"search-api": {Scoped: true}},
		Tools: map[string]toolset.Tool{
			"web_search":  {Dependency: "search-api"},
			"news_search": {Dependency: "search-api"},
			"unused":      {},
		},
	}, toolset.Options{})
	r.in("tenant").trip("web_search")
	r.in("tenant").refused("news_search")
	permit, err := r.Allow(r.ctx, "web_search", nil)
	require.NoError(t, err)

	snap := r.Snapshot()
	require.Equal(t, []string{"search-api", "search-api/tenant", "unused"}, r.circuits())
	require.Equal(t, 1, snap.Circuits[0].InFlight)
	down := snap.Circuits[1]
	require.Equal(t, []string{"news_search", "web_search"}, down.Tools)
	require.Equal(t, toolcircuit.StateOpen, down.State)
	require.Equal(t, r.clock.Now().Add(time.Minute), down.RetryAt)
	require.EqualValues(t, 1, down.Refused)
	require.Equal(t, toolcircuit.StateClosed, snap.Circuits[2].State)

	text, err := json.Marshal(snap)
	require.NoError(t, err)
	require.Contains(t, string(text), `"scope":"tenant","tools":["news_search","web_search"],"inFlight":0,"busy":0,"hidden":false`)
	permit.Release()
	require.Equal(t, 0, r.circuit("search-api").InFlight)
}

func TestR43TenantsDoNotShare(t *testing.T) {
	r := newRig(t, toolset.Config{
		Dependencies: map[string]toolset.Dependency{"scoped": {Scoped: true}},
		Monitored:    []string{"scoped", "shared"},
		Hide:         toolset.HideOpen,
	}, toolset.Options{})
	for _, tool := range []string{"scoped", "shared"} {
		r.in("a").trip(tool)
		r.in("a").refused(tool)
	}
	r.in("b").call("scoped", nil)
	r.in("b").refused("shared")
	list := []string{"scoped", "shared", "free"}
	require.Equal(t, []string{"free"}, r.in("a").visible(list...))
	require.Equal(t, []string{"scoped", "free"}, r.in("b").visible(list...))

	text, err := json.Marshal(r.in("a").refused("scoped"))
	require.NoError(t, err)
	require.NotContains(t, string(text), `"a"`)
	for _, e := range *r.events {
		require.NotContains(t, e.Dependency, "/")
	}
	require.Equal(t, []string{"scoped/a", "scoped/b", "shared"}, r.circuits(), "no scope multiplies what is not scoped")
}

func TestR44TwelveToolsOneServer(t *testing.T) {
	tools := map[string]toolset.Tool{}
	for i := range 12 {
		tools[fmt.Sprint("tool", i)] = toolset.Tool{Dependency: "server"}
	}
	r := newRig(t, toolset.Config{Tools: tools, Monitored: []string{"server"}}, toolset.Options{})
	for i := range 3 {
		r.call(fmt.Sprint("tool", i), errDown)
	}
	for name := range tools {
		require.Equal(t, "server", r.refused(name).Dependency)
	}
	r.refused("server")
	names := map[string]bool{}
	for _, c := range *r.calls {
		names[c.Tool] = true
	}
	require.Len(t, names, 13, "each hears its own name")
}

func TestF67BoundedAndTheSameWhileInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 1000
		s, err := toolset.New(toolset.Config{Monitored: []string{"key-*", "held"}, MaxCircuits: bound}, toolset.Options{Clock: clock.NewMock()})
		require.NoError(t, err)
		ctx := context.Background()
		permit, err := s.Allow(ctx, "held", nil)
		require.NoError(t, err)
		held := s.Circuit(ctx, "held").Snapshot()

		var running sync.WaitGroup
		for g := range 64 {
			running.Go(func() {
				for i := range 500 {
					key := fmt.Sprintf("key-%d-%d", g, i)
					_, err := toolset.Do(ctx, s, key, nil, func(context.Context) (int, error) { return 0, nil })
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		running.Wait()
		require.Len(t, s.Snapshot().Circuits, bound)
		permit.Settle(ctx, nil, errDown)
		after := s.Circuit(ctx, "held").Snapshot()
		require.Equal(t, held.Streak+1, after.Streak)
	})
}

func TestF67EqualKeysShareOneCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := toolset.New(toolset.Config{Default: steady, Monitored: []string{"key-*"}}, toolset.Options{Clock: clock.NewMock()})
		require.NoError(t, err)
		ctx := context.Background()
		for i := range 100 {
			key := fmt.Sprint("key-", i)
			var running sync.WaitGroup
			for range 3 {
				running.Go(func() {
					toolset.Do(ctx, s, key, nil, func(context.Context) (int, error) { return 0, errDown })
				})
			}
			running.Wait()
			require.Equal(t, toolcircuit.StateOpen, s.Circuit(ctx, key).State(), "each of the three must count on the same circuit")
		}
	})
}

func TestF68EvictionForgetsNoTrouble(t *testing.T) {
	r := newRig(t, toolset.Config{
		Default:     &toolcircuit.Policy{FailureThreshold: 3, Cooldown: 3 * time.Hour, MaxCooldown: 6 * time.Hour},
		Monitored:   []string{"*"},
		MaxCircuits: 10,
	}, toolset.Options{})
	flood := func() {
		for i := range 100 {
			r.call(fmt.Sprint("key ", i), nil)
		}
	}
	r.trip("open")
	r.call("streak", errDown)
	r.trip("half-open")
	r.trip("recovered")
	require.NoError(t, r.SetOverride("off", toolcircuit.OverrideOpen))
	flood()
	require.Len(t, r.circuits(), 10)
	r.clock.Add(30 * time.Minute)
	flood()
	require.EqualValues(t, 150*60_000, r.refused("open").RetryAfterMS)
	require.Equal(t, 1, r.circuit("streak").Streak)
	require.Equal(t, toolcircuit.ReasonManualOpen, r.refused("off").Reason)

	r.clock.Add(150 * time.Minute)
	probe, err := r.Allow(r.ctx, "half-open", nil)
	require.NoError(t, err)
	require.True(t, probe.Probe())
	r.call("recovered", nil)
	flood()
	r.refused("half-open")
	require.Equal(t, 1, r.circuit("recovered").Openings, "a flapping dependency must not start over")
	probe.Release()
}

// Whatever an outcome left behind keeps a circuit, also where no streak tells of it.
func TestF68TroubleWithoutAStreak(t *testing.T) {
	for name, trouble := range map[string]func(*rig){
		"paused": func(r *rig) { r.call("key", toolcircuit.RetryAfter(errDown, 5*time.Minute)) },
		"rate":   func(r *rig) { r.call("key", errDown); r.call("key", nil) },
	} {
		r := newRig(t, toolset.Config{
			Default:     &toolcircuit.Policy{FailureThreshold: 3, FailureRate: 0.5},
			Monitored:   []string{"*"},
			MaxCircuits: 2,
		}, toolset.Options{})
		trouble(r)
		before := r.circuit("key")
		r.call("other 1", nil)
		r.call("other 2", nil)
		require.Equal(t, before, r.circuit("key"), name)
	}
}

// N42: circuits that an outage opened and that nobody calls any more do not stay for good.
func TestN42AbandonedOpenCircuitsGo(t *testing.T) {
	const bound = 100
	r := newRig(t, toolset.Config{
		Dependencies: map[string]toolset.Dependency{"api": {Scoped: true}},
		Tools:        map[string]toolset.Tool{"search": {Dependency: "api"}},
		MaxCircuits:  bound,
	}, toolset.Options{})
	for i := range 3000 {
		r.in(fmt.Sprint("tenant ", i)).trip("search")
	}
	r.clock.Add(2*time.Minute - 1) // the wait, and as long again until the opening has faded
	for i := range 500 {
		r.in(fmt.Sprint("early ", i)).call("search", nil)
	}
	require.GreaterOrEqual(t, len(r.circuits()), 3000)
	r.clock.Add(1)
	for i := range 500 {
		r.in(fmt.Sprint("late ", i)).call("search", nil)
	}
	require.Len(t, r.circuits(), bound)
	require.Zero(t, r.Snapshot().Forgotten, "nothing was in memory any more")
	r.in("tenant 0").trip("search") // the price: a threshold of calls, where a probe is one
	r.in("tenant 0").refused("search")
}

func TestN42WhenAnOpenCircuitGoes(t *testing.T) {
	full := func(r *rig) {
		for i := range 200 {
			r.call(fmt.Sprint("other ", i), nil)
		}
	}
	kept := func(r *rig) bool { return slices.Contains(r.circuits(), "key") }
	for name, row := range map[string]struct {
		policy toolcircuit.Policy
		open   func(*rig)
		goes   time.Duration // after its last opening, 0: never
	}{
		"opened once": {toolcircuit.Policy{}, func(r *rig) { r.call("key", errDown) }, 2 * time.Minute},
		"opened three times": {toolcircuit.Policy{}, func(r *rig) {
			r.call("key", errDown)
			r.clock.Add(time.Minute)
			r.call("key", errDown)
			r.clock.Add(2 * time.Minute)
			r.call("key", errDown)
		}, 4*time.Minute + (1+2+4)*time.Minute},
		"at the cap": {toolcircuit.Policy{MaxCooldown: 90 * time.Second}, func(r *rig) {
			r.call("key", errDown)
			r.clock.Add(time.Minute)
			r.call("key", errDown)
			r.clock.Add(90 * time.Second)
			r.call("key", errDown)
		}, (90 + 60 + 90 + 90) * time.Second},
		"jitter":            {toolcircuit.Policy{Jitter: 0.5}, func(r *rig) { r.call("key", errDown) }, 150 * time.Second},
		"jitter at the cap": {toolcircuit.Policy{Jitter: 1, MaxCooldown: 90 * time.Second}, func(r *rig) { r.call("key", errDown) }, 150 * time.Second},
		"probe out beside the Set": {toolcircuit.Policy{ProbeTimeout: time.Hour}, func(r *rig) {
			r.call("key", errDown)
			r.clock.Add(time.Minute)
			permit, err := r.Circuit(r.ctx, "key").Allow(r.ctx)
			require.NoError(t, err)
			t.Cleanup(permit.Release)
		}, time.Hour},
		"asked": {toolcircuit.Policy{}, func(r *rig) {
			r.call("key", &toolcircuit.HTTPError{StatusCode: 429, RetryAfter: 5 * time.Minute})
		}, 5 * time.Minute},
		"overridden": {toolcircuit.Policy{}, func(r *rig) {
			r.call("key", errDown)
			r.Circuit(r.ctx, "key").SetOverride(toolcircuit.OverrideClosed)
		}, 0},
		"probe out": {toolcircuit.Policy{}, func(r *rig) {
			r.call("key", errDown)
			r.clock.Add(time.Minute)
			require.True(t, r.begin("key").Probe())
		}, 0},
	} {
		p := row.policy
		p.FailureThreshold, p.Cooldown, p.Multiplier = 1, time.Minute, 2
		if p.MaxCooldown == 0 {
			p.MaxCooldown = time.Hour
		}
		p.MaxRetryAfter = time.Hour
		r := newRig(t, toolset.Config{Default: &p, Monitored: []string{"*"}, MaxCircuits: 4}, toolset.Options{})
		row.open(r)
		if row.goes == 0 {
			r.clock.Add(100 * time.Hour)
			full(r)
			require.True(t, kept(r), name)
			continue
		}
		r.clock.Add(row.goes - 1)
		full(r)
		require.True(t, kept(r), name)
		r.clock.Add(1)
		full(r)
		require.False(t, kept(r), name)
	}
}

// Random outages of few circuits, so that each new one looks at all: none goes before its
// openings have faded, and a new one leaves no more than MaxCircuits, or those that must stay and
// itself.
func TestEvictionBound(t *testing.T) {
	const bound = 8
	policy := toolcircuit.Policy{FailureThreshold: 1, Cooldown: 10 * time.Second, Multiplier: 2, MaxCooldown: time.Minute}
	random := rand.New(rand.NewPCG(3, 4))
	r := newRig(t, toolset.Config{Default: &policy, Monitored: []string{"*"}, MaxCircuits: bound}, toolset.Options{})
	stays := map[string]time.Time{} // until when an open circuit must stay
	under := map[string]bool{}      // a call is under way
	created, over := 0, 0
	for range 2500 {
		name := fmt.Sprint("key ", random.IntN(30))
		before := r.circuits()
		switch random.IntN(10) {
		case 0, 1, 2:
			r.clock.Add(time.Duration(random.IntN(40_000)) * time.Millisecond)
			continue
		case 3:
			if permit, err := r.Allow(r.ctx, name, nil); err == nil && len(under) < 3 && !under[name] {
				under[name] = true
				r.Cleanup(permit.Release)
			} else {
				permit.Release()
			}
		default:
			err := []error{nil, errDown}[random.IntN(2)]
			toolset.Do(r.ctx, r.Set, name, nil, func(context.Context) (int, error) { return 0, err })
		}
		now := r.clock.Now()
		delete(stays, name)
		if c := r.circuit(name); c.State != toolcircuit.StateClosed {
			next, last, fade := policy.Cooldown, time.Duration(0), time.Duration(0)
			for range c.Openings {
				last, next = next, min(2*next, policy.MaxCooldown)
				fade += last
			}
			stays[name] = c.Since.Add(last + fade)
		}
		must := map[string]bool{name: true}
		for name := range under {
			must[name] = true
		}
		for name, until := range stays {
			if now.Before(until) {
				must[name] = true
			}
		}
		after := r.circuits()
		for name := range must {
			require.Contains(t, after, name)
		}
		if !slices.Contains(before, name) {
			created++
			require.LessOrEqual(t, len(after), max(bound, len(must)))
			if len(must) > bound {
				over++
			}
		}
	}
	require.Greater(t, created, 300)
	require.Greater(t, over, 50, "the bound must be exceeded now and then")
}

func TestUsedCircuitsHaveASecondChance(t *testing.T) {
	r := newRig(t, toolset.Config{Monitored: []string{"*"}, MaxCircuits: 10}, toolset.Options{})
	r.call("used", errors.New("unknown to all"))
	for i := range 1000 {
		r.call(fmt.Sprint("key ", i), nil)
		r.call("used", nil)
	}
	require.EqualValues(t, 1, r.circuit("used").Unclassified, "it must be the same circuit")
	require.Len(t, r.circuits(), 10)
}

func TestIdleCircuitsGo(t *testing.T) {
	r := newRig(t, toolset.Config{Monitored: []string{"*"}, IdleAfter: time.Hour}, toolset.Options{})
	r.call("streak", errDown)
	for _, name := range []string{"idle", "used", "used"} {
		r.call(name, nil)
	}
	r.clock.Add(time.Hour - 1)
	r.call("new 1", nil)
	require.Equal(t, []string{"idle", "new 1", "streak", "used"}, r.circuits())
	r.clock.Add(1)
	r.call("new 2", nil)
	require.Equal(t, []string{"new 2", "streak", "used"}, r.circuits())
	r.clock.Add(time.Hour)
	r.call("new 3", nil)
	require.Equal(t, []string{"new 3", "streak"}, r.circuits())
}

func TestMaximumHoldsForClosedCircuits(t *testing.T) {
	const bound = 10
	r := newRig(t, toolset.Config{Monitored: []string{"*"}, MaxCircuits: bound}, toolset.Options{})
	for i := range 4000 {
		r.call(fmt.Sprint("streak ", i), errDown)
	}
	require.Equal(t, bound, len(r.circuits()))
	require.EqualValues(t, 4000-bound, r.Snapshot().Forgotten)

	for i := range 2000 {
		r.trip(fmt.Sprint("open ", i))
	}
	require.GreaterOrEqual(t, len(r.circuits()), 2000, "open ones may exceed it")
	for i := range 2000 {
		r.refused(fmt.Sprint("open ", i))
	}
	r.clock.Add(time.Minute)
	for i := range 2000 {
		r.call(fmt.Sprint("open ", i), nil)
	}
	for i := range 1000 {
		r.call(fmt.Sprint("new ", i), nil)
	}
	require.Equal(t, bound, len(r.circuits()), "and no more when they have closed")
}

// What has nothing to remember goes before a streak, and what is in use after what is not.
func TestWhoGoesFirst(t *testing.T) {
	r := newRig(t, toolset.Config{
		Default:     &toolcircuit.Policy{FailureThreshold: 1000},
		Monitored:   []string{"*"},
		MaxCircuits: 10,
	}, toolset.Options{})
	for i := range 9 {
		r.call(fmt.Sprint("streak ", i), errDown)
	}
	for range 2 {
		r.call("clean", nil)
	}
	r.call("new", errDown)
	require.NotContains(t, r.circuits(), "clean")
	require.Zero(t, r.Snapshot().Forgotten)
	for i := range 100 {
		r.call("streak 0", errDown)
		r.call(fmt.Sprint("other ", i), errDown)
	}
	require.Equal(t, 101, r.circuit("streak 0").Streak)
	require.EqualValues(t, 100, r.Snapshot().Forgotten)
	for _, name := range r.circuits() {
		r.call(name, errDown)
	}
	r.call("last", errDown)
	require.EqualValues(t, 101, r.Snapshot().Forgotten, "also if all are in use")
	require.Len(t, r.circuits(), 10)
}

// readings is a clock that counts how often it is read, which eviction does for each circuit
// that may have something to remember.
type readings struct {
	clock.Clock
	n int
}

func (r *readings) Now() time.Time                   { r.n++; return r.Clock.Now() }
func (r *readings) Since(at time.Time) time.Duration { r.n++; return r.Clock.Since(at) }

func TestMakingOneCostsTheSameAmongMany(t *testing.T) {
	for _, idle := range []bool{false, true} {
		mock := clock.NewMock()
		c := &readings{Clock: mock}
		s, err := toolset.New(toolset.Config{
			Dependencies: map[string]toolset.Dependency{"api": {Scoped: true}},
			Tools:        map[string]toolset.Tool{"search": {Dependency: "api"}},
		}, toolset.Options{Clock: c})
		require.NoError(t, err)
		tenant := func(name string, i int) {
			ctx := toolset.WithScope(context.Background(), fmt.Sprint(name, i))
			toolset.Do(ctx, s, "search", nil, func(context.Context) (int, error) { return 0, errDown })
		}
		for i := range 10_000 {
			tenant("old ", i)
		}
		if idle {
			mock.Add(time.Hour)
		}
		c.n = 0
		for i := range 100 {
			tenant("new ", i)
		}
		require.Less(t, c.n, 100*100)
		require.Equal(t, 10_000, len(s.Snapshot().Circuits))
	}
}

func TestApplyKeepsStateAndActsAtOnce(t *testing.T) {
	c := toolset.Config{Monitored: []string{"search", "gone"}}
	r := newRig(t, c, toolset.Options{})
	r.trip("search")
	r.trip("gone")
	c.Monitored = []string{"search"}
	c.Default = &toolcircuit.Policy{Cooldown: 10 * time.Second}
	r.apply(c)
	require.Equal(t, []string{"search"}, r.circuits())
	require.EqualValues(t, 10_000, r.refused("search").RetryAfterMS)
	r.call("gone", errDown)

	before := r.Config()
	require.ErrorContains(t, r.Apply(toolset.Config{Monitored: []string{"["}}), "monitored[0]")
	require.Equal(t, before, r.Config())
	r.refused("search")

	c.Monitored = []string{"search", "gone"}
	r.apply(c)
	r.call("gone", nil)
	require.Zero(t, r.circuit("gone").Openings)
}

func TestApplyLetsScopesGo(t *testing.T) {
	c := toolset.Config{Dependencies: map[string]toolset.Dependency{"a": {Scoped: true}}, Monitored: []string{"a"}}
	r := newRig(t, c, toolset.Options{})
	r.in("tenant").trip("a")
	c.Dependencies = nil
	r.apply(c)
	require.Empty(t, r.circuits())
	r.in("tenant").call("a", nil)
	require.Equal(t, []string{"a"}, r.circuits())
}

func TestApplyChangesViews(t *testing.T) {
	r := newRig(t, toolset.Config{Tools: map[string]toolset.Tool{"a": {}, "b": {}, "c": {Dependency: "a"}}}, toolset.Options{})
	r.trip("a")
	require.Empty(t, r.refused("a").Alternatives)
	r.refused("c")
	r.apply(toolset.Config{Tools: map[string]toolset.Tool{"a": {Alternatives: []string{"b"}, SideEffects: &yes}, "b": {}, "c": {Dependency: "a", Alternatives: []string{"b"}}}})
	require.Equal(t, []string{"b"}, r.refused("a").Alternatives)
	require.Equal(t, []string{"b"}, r.refused("c").Alternatives)
	r.clock.Add(time.Minute)
	r.refused("a")
	r.call("c", nil)
}

// A circuit that comes back has forgotten its state, and not the calls under way on it.
func TestApplyCountsWhatIsUnderWay(t *testing.T) {
	c := toolset.Config{
		Dependencies: map[string]toolset.Dependency{"api": {MaxInFlight: 1}},
		Tools:        map[string]toolset.Tool{"a": {Dependency: "api"}},
	}
	for name, without := range map[string]toolset.Config{
		"removed":  {},
		"excluded": {Dependencies: c.Dependencies, Tools: c.Tools, Excluded: []string{"a"}},
	} {
		r := newRig(t, c, toolset.Options{})
		permit := r.begin("a")
		for range 3 {
			require.Equal(t, toolcircuit.ReasonBusy, r.refused("a").Reason)
		}
		require.Equal(t, 3, r.circuit("api").Busy)
		r.Circuit(r.ctx, "a").SetOverride(toolcircuit.OverrideOpen)

		r.apply(without)
		require.Equal(t, 1, r.circuit("api").InFlight, name)
		r.call("a", nil)
		r.apply(c)
		require.Equal(t, toolcircuit.ReasonBusy, r.refused("a").Reason, name)
		permit.Settle(r.ctx, nil, errDown)
		require.Zero(t, r.circuit("api").Streak, "it was called in another life")
		r.call("a", nil)

		permit = r.begin("a")
		r.apply(without)
		permit.Release()
		require.Empty(t, r.circuits(), name)
	}
}

func TestPreparedWhileDisabled(t *testing.T) {
	c := toolset.Config{Monitored: []string{"a", "b"}, Hide: toolset.HideOpen}
	r := newRig(t, c, toolset.Options{})
	r.trip("a")
	c.Disabled = true
	r.apply(c)
	require.False(t, r.circuit("a").Hidden, "nothing is hidden")
	require.NoError(t, r.SetOverride("b", toolcircuit.OverrideOpen))
	require.NoError(t, r.Reset("a"))
	require.ErrorContains(t, r.Reset("c"), "want a tool that is guarded")
	r.call("b", nil)
	require.Equal(t, []string{"a", "b"}, r.visible("a", "b"))
	c.Disabled = false
	r.apply(c)
	r.call("a", nil)
	require.Equal(t, toolcircuit.ReasonManualOpen, r.refused("b").Reason)
}

func TestNoSet(t *testing.T) {
	ctx := context.Background()
	name := func(tool string) string { return tool }
	for _, s := range []*toolset.Set{nil, {}} {
		for method, call := range map[string]func(){
			"Config":      func() { s.Config() },
			"Apply":       func() { s.Apply(toolset.Config{}) },
			"Guards":      func() { s.Guards("a") },
			"Circuit":     func() { s.Circuit(ctx, "a") },
			"Reset":       func() { s.Reset("a") },
			"SetOverride": func() { s.SetOverride("a", toolcircuit.OverrideOpen) },
			"Snapshot":    func() { s.Snapshot() },
			"Watch":       func() { s.Watch(func() {}) },
			"NextChange":  func() { s.NextChange() },
			"Raise":       func() { s.RaiseSideEffects("a") },
			"Allow":       func() { s.Allow(ctx, "a", nil) },
			"Visible":     func() { toolset.Visible(ctx, s, []string{"a"}, name) },
		} {
			require.Contains(t, panicText(call), "the Set", method)
		}
	}
	s, err := toolset.New(toolset.Config{}, toolset.Options{})
	require.NoError(t, err)
	require.Contains(t, panicText(func() { toolset.Visible[string](ctx, s, nil, nil) }), "name is nil")
}

// panicText returns what f panics with, if that is a text.
func panicText(f func()) (text string) {
	defer func() { text, _ = recover().(string) }()
	f()
	return ""
}

// A Set is reloaded in a loop while calls, lists and operators use it. What is checked is that
// a call is never lost: each runs or is refused, and no slot stays taken.
func TestReloadUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := func(i int) toolset.Config {
			c := toolset.Config{
				Default:      &toolcircuit.Policy{FailureThreshold: 1 + i%3},
				Dependencies: map[string]toolset.Dependency{"api": {Scoped: i%2 == 0, MaxInFlight: 1 + i%5}},
				Tools:        map[string]toolset.Tool{"a": {Dependency: "api", Alternatives: []string{"b"}}, "b": {}},
				Monitored:    []string{"t*"},
				MaxCircuits:  4,
				Hide:         toolset.HideOpen,
			}
			if i%4 == 0 {
				c.Tools["c"] = toolset.Tool{Dependency: "api", SideEffects: &yes}
			}
			return c
		}
		var s *toolset.Set
		s, err := toolset.New(config(0), toolset.Options{
			OnEvent: func(ctx context.Context, e toolcircuit.Event) { s.Snapshot() },
			OnCall:  func(ctx context.Context, c toolcircuit.Call) { s.Guards(c.Tool) },
		})
		require.NoError(t, err)
		names := []string{"a", "b", "c", "t1", "t2", "t3", "t4", "free"}
		done := make(chan struct{})
		var load, reload sync.WaitGroup
		for g := range 4 {
			load.Go(func() {
				ctx := toolset.WithScope(context.Background(), fmt.Sprint(g%3))
				for i := range 500 {
					name := names[(g+i)%len(names)]
					ran := false
					_, err := toolset.Do(ctx, s, name, nil, func(context.Context) (int, error) {
						ran = true
						if i%3 == 0 {
							return 0, errDown
						}
						return 0, nil
					})
					if ran == errors.Is(err, toolcircuit.ErrCircuitOpen) {
						t.Errorf("%s: ran: %v, error: %v", name, ran, err)
					}
					toolset.Visible(ctx, s, names, func(name string) string { return name })
					toolset.ResultOf(ctx, s, name, 0, toolcircuit.Verdict{}, err)
				}
			})
		}
		reload.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				stop := s.Watch(func() { s.NextChange() })
				if err := s.Apply(config(i)); err != nil {
					t.Error(err)
				}
				s.SetOverride(names[i%3], []toolcircuit.Override{toolcircuit.OverrideNone, toolcircuit.OverrideOpen}[i%2])
				s.Reset(names[i%5])
				s.RaiseSideEffects(names[i%8])
				stop()
			}
		})
		load.Wait()
		close(done)
		reload.Wait()
		for _, c := range s.Snapshot().Circuits {
			require.Zero(t, c.InFlight, c.Dependency)
		}
		require.NoError(t, s.Apply(config(4)))
		for _, name := range names[:3] {
			require.NoError(t, s.SetOverride(name, toolcircuit.OverrideNone))
			require.NoError(t, s.Reset(name))
			require.True(t, s.Circuit(context.Background(), name).Ready())
			require.Equal(t, 2, s.Circuit(context.Background(), name).Policy().FailureThreshold)
		}
	})
}

func TestConfigIsACopy(t *testing.T) {
	c := toolset.Config{
		Default:      &toolcircuit.Policy{FailureThreshold: 3},
		Dependencies: map[string]toolset.Dependency{"b": {Policy: &toolcircuit.Policy{FailureThreshold: 3}}},
		Tools:        map[string]toolset.Tool{"b": {Alternatives: []string{"a"}, SideEffects: new(bool)}},
		Monitored:    []string{"a"},
	}
	r := newRig(t, c, toolset.Options{})
	require.Equal(t, c, r.Config())
	for _, c := range []toolset.Config{c, r.Config()} {
		c.Default.FailureThreshold = 9
		c.Dependencies["b"].Policy.FailureThreshold = 9
		c.Dependencies["a"] = toolset.Dependency{}
		c.Monitored[0] = "x"
		c.Tools["b"].Alternatives[0] = "x"
		*c.Tools["b"].SideEffects = true
		c.Tools["c"] = toolset.Tool{}
	}
	got := r.Config()
	require.Equal(t, 3, got.Default.FailureThreshold)
	require.Equal(t, 3, got.Dependencies["b"].Policy.FailureThreshold)
	require.Equal(t, []string{"a"}, got.Monitored)
	require.False(t, *got.Tools["b"].SideEffects)
	require.Len(t, got.Tools, 1)
	require.Len(t, got.Dependencies, 1)
	r.trip("b")
	require.Equal(t, []string{"a"}, r.refused("b").Alternatives)
}

func TestSnapshotOfNothing(t *testing.T) {
	text, err := json.Marshal(newRig(t, toolset.Config{}, toolset.Options{}).Snapshot())
	require.NoError(t, err)
	require.Contains(t, string(text), `"circuits":[]`)
}
