package toolcircuit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

// TestEachFieldOfPolicy changes one field and nothing else, and sees a script end otherwise.
func TestEachFieldOfPolicy(t *testing.T) {
	unknown := errors.New("?")
	// until tells how many calls with err open the circuit.
	until := func(err error) func(*rig) any {
		return func(r *rig) any {
			for n := range 10 {
				if r.State() == open {
					return n
				}
				call(err)(r)
			}
			return "never"
		}
	}
	// waits tells how long the first openings last.
	waits := func(r *rig) any {
		var waits []time.Duration
		for len(waits) < 4 {
			for r.State() != open {
				call(errDown)(r)
			}
			at := r.Snapshot().RetryAt
			waits = append(waits, at.Sub(r.clock.Now()))
			r.clock.Set(at)
		}
		return waits
	}
	after := func(do ...func(*rig)) func(*rig) any {
		return func(r *rig) any { all(do...)(r); return r.State() }
	}
	expired := func(r *rig) any { // the caller's deadline ends a call
		ctx, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
		defer cancel()
		all(begin("a", "b", "c"))(r)
		for _, p := range r.permits {
			p.Settle(ctx, nil, context.DeadlineExceeded)
		}
		return r.State()
	}
	minutes := func(n ...time.Duration) (d []time.Duration) {
		for _, n := range n {
			d = append(d, n*time.Minute)
		}
		return d
	}

	rows := []struct {
		field   string
		base    func(*toolcircuit.Policy) // what the field needs beside it
		edit    func(*toolcircuit.Policy)
		outcome func(*rig) any
		before  any
		after   any
	}{
		{"FailureThreshold", nil, func(p *toolcircuit.Policy) { p.FailureThreshold = 7 }, until(errDown), 3, 7},
		{"FailureRate", nil, func(p *toolcircuit.Policy) { p.FailureRate = 0.1 },
			after(calls(18, nil), calls(2, errDown)), closed, open},
		{"Window", byRate, func(p *toolcircuit.Policy) { p.Window = time.Hour },
			after(calls(2, errDown), add(time.Minute), calls(2, errDown)), closed, open},
		{"MinCalls", byRate, func(p *toolcircuit.Policy) { p.MinCalls = 8 }, until(errDown), 4, 8},
		{"SlowCall", nil, func(p *toolcircuit.Policy) { p.SlowCall = time.Second },
			after(begin("a", "b", "c"), add(time.Second+1), end("a", nil), end("b", nil), end("c", nil)), closed, open},
		{"CallTimeout", nil, func(p *toolcircuit.Policy) { p.CallTimeout = time.Second },
			after(begin("a", "b", "c"), add(time.Second), end("a", nil), end("b", nil), end("c", nil)), closed, open},
		{"IgnoreDeadline", nil, func(p *toolcircuit.Policy) { p.IgnoreDeadline = true }, expired, open, closed},
		{"CountUnknown", nil, func(p *toolcircuit.Policy) { p.CountUnknown = true }, until(unknown), "never", 3},
		{"CountBurstOnce", nil, func(p *toolcircuit.Policy) { p.CountBurstOnce = true },
			after(begin("a", "b", "c"), end("a", errDown), end("b", errDown), end("c", errDown)), open, closed},
		{"Cooldown", nil, func(p *toolcircuit.Policy) { p.Cooldown = 2 * time.Minute }, waits, minutes(1, 2, 4, 8), minutes(2, 4, 8, 10)},
		{"Multiplier", nil, func(p *toolcircuit.Policy) { p.Multiplier = 3 }, waits, minutes(1, 2, 4, 8), minutes(1, 3, 9, 10)},
		{"MaxCooldown", nil, func(p *toolcircuit.Policy) { p.MaxCooldown = 3 * time.Minute }, waits, minutes(1, 2, 4, 8), minutes(1, 2, 3, 3)},
		{"Jitter", nil, func(p *toolcircuit.Policy) { p.Jitter = 1 },
			func(r *rig) any { return fmt.Sprint(waits(r)) == fmt.Sprint(minutes(1, 2, 4, 8)) }, true, false},
		{"MaxRetryAfter", nil, func(p *toolcircuit.Policy) { p.MaxRetryAfter = time.Second },
			after(call(wait(time.Minute)), add(time.Second)), open, halfOpen},
		{"ProbeSuccesses", nil, func(p *toolcircuit.Policy) { p.ProbeSuccesses = 2 }, after(cooled, call(nil)), closed, halfOpen},
		{"ProbeTimeout", nil, func(p *toolcircuit.Policy) { p.ProbeTimeout = time.Hour },
			func(r *rig) any { all(probing, add(time.Minute))(r); return r.Ready() }, true, false},
	}
	var fields []string
	for _, row := range rows {
		fields = append(fields, row.field)
		t.Run(row.field, func(t *testing.T) {
			base := policy(row.base)
			base.Seed = 1
			edited := base
			row.edit(&edited.Policy)
			require.Equal(t, []string{row.field}, differences(base.Policy, edited.Policy))
			require.Equal(t, row.before, row.outcome(newRig(t, base)))
			require.Equal(t, row.after, row.outcome(newRig(t, edited)))
		})
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[toolcircuit.Policy]()) {
		require.Contains(t, fields, f.Name)
	}
}

// differences returns the names of the fields in which two policies differ.
func differences(a, b toolcircuit.Policy) (names []string) {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range va.NumField() {
		if !va.Field(i).Equal(vb.Field(i)) {
			names = append(names, va.Type().Field(i).Name)
		}
	}
	return names
}

func TestPolicyDefaults(t *testing.T) {
	want := toolcircuit.Policy{
		FailureThreshold: 5, Window: time.Minute, MinCalls: 20, Cooldown: 10 * time.Second, Multiplier: 1.25, MaxCooldown: 5 * time.Minute,
		MaxRetryAfter: 10 * time.Minute, ProbeSuccesses: 1, ProbeTimeout: time.Minute,
	}
	require.Equal(t, want, filled(toolcircuit.Policy{}))
	require.Equal(t, want, filled(want), "all fields given")
	run(t, toolcircuit.Options{}, calls(100, nil), calls(4, errDown), is(closed), call(errDown), is(open))

	p := filled(toolcircuit.Policy{Cooldown: time.Hour})
	require.Equal(t, time.Hour, p.MaxCooldown)
	require.Equal(t, time.Hour, p.MaxRetryAfter)
	require.Equal(t, 2*time.Minute, filled(toolcircuit.Policy{CallTimeout: time.Minute}).ProbeTimeout)
	require.Equal(t, time.Minute, filled(toolcircuit.Policy{CallTimeout: time.Second}).ProbeTimeout)
	require.Positive(t, filled(toolcircuit.Policy{CallTimeout: math.MaxInt64 - 1, ProbeTimeout: math.MaxInt64}).ProbeTimeout)
}

func TestPolicyValidate(t *testing.T) {
	const natural = "a finite value that is not negative"
	for _, tt := range []struct {
		policy toolcircuit.Policy
		want   string
	}{
		{toolcircuit.Policy{FailureThreshold: -1}, "FailureThreshold: got -1, want " + natural},
		{toolcircuit.Policy{FailureRate: -0.5}, "FailureRate: got -0.5, want " + natural},
		{toolcircuit.Policy{FailureRate: math.NaN()}, "FailureRate: got NaN, want " + natural},
		{toolcircuit.Policy{FailureRate: math.Inf(1)}, "FailureRate: got +Inf, want " + natural},
		{toolcircuit.Policy{FailureRate: 1.5}, "FailureRate: got 1.5, want a rate from 0 (off) to 1"},
		{toolcircuit.Policy{Window: -time.Second}, "Window: got -1s, want " + natural},
		{toolcircuit.Policy{Window: 10*time.Millisecond - 1}, "Window: got 9.999999ms, want at least 10ms"},
		{toolcircuit.Policy{MinCalls: -1}, "MinCalls: got -1, want " + natural},
		{toolcircuit.Policy{MinCalls: 1<<19 + 1}, "MinCalls: got 524289, want at most 524288"},
		{toolcircuit.Policy{SlowCall: -1}, "SlowCall: got -1ns, want " + natural},
		{toolcircuit.Policy{SlowCall: time.Second, CallTimeout: time.Second}, "SlowCall: got 1s, want less than CallTimeout, 1s"},
		{toolcircuit.Policy{SlowCall: time.Millisecond - 1}, "SlowCall: got 999.999µs, want 0 (off) or at least 1ms"},
		{toolcircuit.Policy{CallTimeout: -1}, "CallTimeout: got -1ns, want " + natural},
		{toolcircuit.Policy{CallTimeout: 60}, "CallTimeout: got 60ns, want 0 (off) or at least 1ms"},
		{toolcircuit.Policy{Cooldown: -time.Minute}, "Cooldown: got -1m0s, want " + natural},
		{toolcircuit.Policy{Cooldown: time.Millisecond - 1}, "Cooldown: got 999.999µs, want at least 1ms"},
		{toolcircuit.Policy{Multiplier: -2}, "Multiplier: got -2, want " + natural},
		{toolcircuit.Policy{Multiplier: math.NaN()}, "Multiplier: got NaN, want " + natural},
		{toolcircuit.Policy{Multiplier: math.Inf(1)}, "Multiplier: got +Inf, want " + natural},
		{toolcircuit.Policy{Multiplier: 0.99}, "Multiplier: got 0.99, want at least 1"},
		{toolcircuit.Policy{MaxCooldown: -1}, "MaxCooldown: got -1ns, want " + natural},
		{toolcircuit.Policy{MaxCooldown: time.Second}, "MaxCooldown: got 1s, want at least Cooldown, 10s"},
		{toolcircuit.Policy{Jitter: -0.1}, "Jitter: got -0.1, want " + natural},
		{toolcircuit.Policy{Jitter: math.NaN()}, "Jitter: got NaN, want " + natural},
		{toolcircuit.Policy{Jitter: 1.1}, "Jitter: got 1.1, want a part from 0 to 1"},
		{toolcircuit.Policy{MaxRetryAfter: -1}, "MaxRetryAfter: got -1ns, want " + natural},
		{toolcircuit.Policy{MaxRetryAfter: 1}, "MaxRetryAfter: got 1ns, want at least 1ms"},
		{toolcircuit.Policy{ProbeSuccesses: -1}, "ProbeSuccesses: got -1, want " + natural},
		{toolcircuit.Policy{ProbeTimeout: -1}, "ProbeTimeout: got -1ns, want " + natural},
		{toolcircuit.Policy{ProbeTimeout: 60}, "ProbeTimeout: got 60ns, want at least 1ms"}, // N19
		{toolcircuit.Policy{ProbeTimeout: time.Millisecond - 1}, "ProbeTimeout: got 999.999µs, want at least 1ms"},
		{toolcircuit.Policy{ProbeTimeout: time.Second, CallTimeout: time.Minute}, "ProbeTimeout: got 1s, want at least CallTimeout, 1m0s"},
	} {
		want := "toolcircuit: Policy." + tt.want
		require.EqualError(t, tt.policy.Validate(), want)
		_, err := toolcircuit.New("search-api", toolcircuit.Options{Policy: tt.policy})
		require.EqualError(t, err, want)
		_, err = json.Marshal(tt.policy)
		require.ErrorContains(t, err, want)
		r := newRig(t, toolcircuit.Options{})
		require.EqualError(t, r.SetPolicy(tt.policy), want)
	}
	for _, good := range []toolcircuit.Policy{ // the limits themselves
		{},
		{FailureThreshold: math.MaxInt, FailureRate: 1, Window: 10 * time.Millisecond, MinCalls: 1 << 19},
		{SlowCall: time.Second - 1, CallTimeout: time.Second, ProbeTimeout: time.Second},
		{SlowCall: time.Hour},
		{Cooldown: time.Millisecond, MaxCooldown: time.Millisecond, Multiplier: 1, Jitter: 1, MaxRetryAfter: time.Millisecond},
		{SlowCall: time.Millisecond, CallTimeout: 2 * time.Millisecond, ProbeTimeout: 2 * time.Millisecond},
		{ProbeTimeout: time.Millisecond, CallTimeout: time.Millisecond},
		{Cooldown: math.MaxInt64, Multiplier: math.MaxFloat64},
	} {
		require.NoError(t, good.Validate())
	}
}

func TestPolicyJSON(t *testing.T) {
	for _, tt := range []struct {
		policy toolcircuit.Policy
		want   string
	}{
		{toolcircuit.Policy{}, `{}`},
		{filled(toolcircuit.Policy{}), `{}`},
		{toolcircuit.Policy{Cooldown: time.Hour, MaxCooldown: time.Hour}, `{"cooldown":"1h"}`},
		{toolcircuit.Policy{MaxCooldown: time.Hour, MaxRetryAfter: time.Hour}, `{"maxCooldown":"1h"}`},
		{toolcircuit.Policy{CallTimeout: time.Minute, ProbeTimeout: time.Minute}, `{"callTimeout":"1m","probeTimeout":"1m"}`},
		{toolcircuit.Policy{
			FailureThreshold: 3, FailureRate: 0.5, Window: 90 * time.Second, MinCalls: 10, SlowCall: 1500 * time.Millisecond,
			CallTimeout: 20 * time.Second, IgnoreDeadline: true, CountUnknown: true, CountBurstOnce: true, Cooldown: time.Minute,
			Multiplier: 1.5, MaxCooldown: time.Hour, Jitter: 0.1, MaxRetryAfter: 10*time.Hour + time.Minute,
			ProbeSuccesses: 2, ProbeTimeout: 30 * time.Second,
		}, `{"failureThreshold":3,"failureRate":0.5,"window":"1m30s","minCalls":10,"slowCall":"1.5s",` +
			`"callTimeout":"20s","ignoreDeadline":true,"countUnknown":true,"countBurstOnce":true,"cooldown":"1m",` +
			`"multiplier":1.5,"maxCooldown":"1h","jitter":0.1,"maxRetryAfter":"10h1m",` +
			`"probeSuccesses":2,"probeTimeout":"30s"}`},
	} {
		got := must(json.Marshal(tt.policy))
		require.Equal(t, tt.want, string(got))
		var back toolcircuit.Policy
		require.NoError(t, json.Unmarshal(got, &back))
		require.Equal(t, filled(tt.policy), filled(back))
	}
}

// filled returns p with its defaults.
func filled(p toolcircuit.Policy) toolcircuit.Policy {
	return toolcircuit.MustNew("search-api", toolcircuit.Options{Policy: p}).Snapshot().Policy
}

func TestPolicyFromJSON(t *testing.T) {
	base := toolcircuit.Policy{FailureThreshold: 7, Cooldown: time.Minute, CountUnknown: true}
	for _, tt := range []struct {
		json string
		edit func(*toolcircuit.Policy) // what becomes of base
		err  string                    // or why not
	}{
		{`{}`, func(*toolcircuit.Policy) {}, ""},
		{`null`, func(*toolcircuit.Policy) {}, ""},
		{`{"cooldown":"2m"}`, func(p *toolcircuit.Policy) { p.Cooldown = 2 * time.Minute }, ""},
		{`{"cooldown":null}`, func(*toolcircuit.Policy) {}, ""},
		{`{"jitter":0,"failureRate":0,"slowCall":"0s","callTimeout":"0s"}`, func(*toolcircuit.Policy) {}, ""},
		{`{"countUnknown":false}`, func(p *toolcircuit.Policy) { p.CountUnknown = false }, ""},
		{`{"probeSuccesses":-1}`, func(p *toolcircuit.Policy) { p.ProbeSuccesses = -1 }, ""}, // Validate's affair
		{`{"failureThreshold":0}`, nil, `failureThreshold: got 0, want a value, or no such field for the default`},
		{`{"window":"0s"}`, nil, `window: got 0,`},
		{`{"minCalls":0}`, nil, `minCalls: got 0,`},
		{`{"cooldown":"0"}`, nil, `cooldown: got 0,`},
		{`{"multiplier":0.0}`, nil, `multiplier: got 0,`},
		{`{"maxCooldown":"0s"}`, nil, `maxCooldown: got 0,`},
		{`{"backoffMemory":"1m"}`, nil, `backoffMemory: unknown field`},
		{`{"maxRetryAfter":"0s"}`, nil, `maxRetryAfter: got 0,`},
		{`{"probeSuccesses":0}`, nil, `probeSuccesses: got 0,`},
		{`{"probeTimeout":"0s"}`, nil, `probeTimeout: got 0,`},
		{`{"cooldown":"2m","coolDown":"3m"}`, nil, `coolDown: unknown field`},
		{`{"cooldown":"2m","cooldown":"3m"}`, nil, `cooldown: is there twice`},
		{`{"cooldown":null,"cooldown":"1s"}`, nil, `cooldown: is there twice`},
		{`{"cooldown":null,"cooldown":null}`, nil, `cooldown: is there twice`},
		{`{"multiplier":-0}`, nil, `multiplier: got `},
		{`{"multiplier":-0.0}`, nil, `multiplier: got `},
		{`{"failureRate":NaN}`, nil, ``},
		{`{"failureRate":"NaN"}`, nil, `failureRate: got "NaN", want a number`},
		{`{"failureRate":1e999}`, nil, `failureRate: got 1e999`},
		{`{"failureThreshold":1e30}`, nil, `failureThreshold: got 1e30`},
		{`{"minCalls":9223372036854775808}`, nil, `minCalls: got 9223372036854775808`},
		{`{"cooldown":"9223372036855s"}`, nil, `cooldown: got "9223372036855s"`},
		{`{"cooldown":30}`, nil, `cooldown: got 30, want a duration such as "30s"`},
		{`{"cooldown":"30"}`, nil, `cooldown: got "30", want a duration such as "30s"`},
		{`{"cooldown":{}}`, nil, `cooldown: got {}, want a duration such as "30s"`},
		{`{"failureThreshold":"5"}`, nil, `failureThreshold: got "5", want a whole number`},
		{`{"failureThreshold":1.5}`, nil, `failureThreshold: got 1.5, want a whole number`},
		{`{"failureRate":true}`, nil, `failureRate: got true, want a number`},
		{`{"countUnknown":1}`, nil, `countUnknown: got 1, want true or false`},
		{`[]`, nil, `got [], want a JSON object`},
		{`"30s"`, nil, `got "30s", want a JSON object`},
		{`{"cooldown":"2m"} {}`, nil, ``},
		{`{"cooldown":"2m"`, nil, ``},
		{`{"cooldown":`, nil, ``},
		{`{"cooldown"`, nil, ``},
		{`{`, nil, ``},
		{``, nil, ``},
		{`{"cooldown":"2m",}`, nil, ``},
	} {
		p := base
		err := p.UnmarshalJSON([]byte(tt.json))
		if tt.edit == nil {
			require.ErrorContains(t, err, "toolcircuit: policy: "+tt.err, tt.json)
			require.Equal(t, base, p, "it is as it was after %s", tt.json)
			continue
		}
		require.NoError(t, err, tt.json)
		want := base
		tt.edit(&want)
		require.Equal(t, want, p, tt.json)
	}
}

// FuzzPolicyJSON takes what comes in and is valid out and in again.
func FuzzPolicyJSON(f *testing.F) {
	f.Add([]byte(`{"failureThreshold":3,"failureRate":0.5,"window":"1m30s","cooldown":"1h","callTimeout":"20s"}`))
	f.Add([]byte(`{"multiplier":1e308,"jitter":-0,"maxCooldown":"2562047h47m16.854775807s","window":null}`))
	f.Add([]byte(`{"cooldown":"1h","maxCooldown":"1h","maxRetryAfter":"1h","probeTimeout":"1ns"}`))
	f.Add([]byte(`{"cooldown":"1m","cooldown":null} {}`))
	f.Add([]byte(`[{"cooldown":0}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p toolcircuit.Policy
		if err := p.UnmarshalJSON(data); err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "toolcircuit: policy: "))
			require.Zero(t, p)
			return
		}
		out, err := json.Marshal(p)
		if invalid := p.Validate(); invalid != nil {
			require.ErrorContains(t, err, invalid.Error())
			return
		}
		require.NoError(t, err)
		var back toolcircuit.Policy
		require.NoError(t, json.Unmarshal(out, &back))
		require.Equal(t, filled(p), filled(back))
		again := must(json.Marshal(back))
		require.Equal(t, string(out), string(again))
	})
}

func TestOptions(t *testing.T) {
	var none *clock.Mock
	for _, tt := range []struct {
		dependency string
		o          toolcircuit.Options
		want       string
	}{
		{"", toolcircuit.Options{}, "toolcircuit: New: dependency is empty"},
		{"a", toolcircuit.Options{Policy: toolcircuit.Policy{Jitter: 2}}, "toolcircuit: Policy.Jitter: got 2, want a part from 0 to 1"},
		{"a", toolcircuit.Options{Clock: none}, "toolcircuit: Options.Clock: got a nil *clock.Mock, want a clock, or no value for the real one"},
		{"a", toolcircuit.Options{Tool: toolcircuit.Tool{NextActions: []toolcircuit.Action{toolcircuit.ActionPause, "retry"}}},
			`toolcircuit: Options.Tool.NextActions[1]: got "retry", want one of ["answer_without" "use_alternative" "pause" "escalate"]`},
		{"a", toolcircuit.Options{Tool: toolcircuit.Tool{Name: "b", Alternatives: []string{"c", ""}}},
			`toolcircuit: Options.Tool.Alternatives[1]: got "", want the name of another tool`},
		{"a", toolcircuit.Options{Tool: toolcircuit.Tool{Name: "b", Alternatives: []string{"b"}}},
			`toolcircuit: Options.Tool.Alternatives[0]: got "b", want the name of another tool`},
	} {
		c, err := toolcircuit.New(tt.dependency, tt.o)
		require.EqualError(t, err, tt.want)
		require.Nil(t, c)
		require.PanicsWithError(t, tt.want, func() { toolcircuit.MustNew(tt.dependency, tt.o) })
	}

	c := toolcircuit.MustNew("a", toolcircuit.Options{})
	require.PanicsWithValue(t, "toolcircuit: Twin: dependency is empty", func() { c.Twin("") })
	require.PanicsWithValue(t, `toolcircuit: WithTool: Tool.Alternatives[0]: got "", want the name of another tool`,
		func() { c.WithTool(toolcircuit.Tool{Alternatives: []string{""}}) })
	require.PanicsWithValue(t, `toolcircuit: SetOverride: got "shut", want OverrideNone, OverrideOpen or OverrideClosed`,
		func() { c.SetOverride("shut") })
	require.EqualError(t, c.Monitor(context.Background(), -1, func(context.Context) error { return nil }),
		"toolcircuit: Monitor: every: got -1ns, want 0 or more")
}

func TestOptionsAreCopied(t *testing.T) {
	alternatives, actions := []string{"cached_search"}, []toolcircuit.Action{toolcircuit.ActionPause}
	tool := toolcircuit.Tool{Name: "web_search", Alternatives: alternatives, NextActions: actions}
	o := toolcircuit.Options{Policy: toolcircuit.Policy{FailureThreshold: 1}, Tool: tool}
	c := toolcircuit.MustNew("search-api", o)
	views := []*toolcircuit.ToolCircuit{c, c.WithTool(tool)}
	alternatives[0], actions[0] = "", "retry"
	try(c, errDown)
	for _, view := range views {
		_, err := toolcircuit.Do(context.Background(), view, func(context.Context) (int, error) { return 0, nil })
		got := must(toolcircuit.ResultOf(view, 0, toolcircuit.Verdict{}, err))
		require.Equal(t, []string{"cached_search"}, got.Alternatives)
		require.Equal(t, []toolcircuit.Action{toolcircuit.ActionPause}, got.NextActions)
	}
}

func TestZeroSeedIsDrawn(t *testing.T) {
	waits := map[time.Duration]bool{}
	for range 8 {
		r := run(t, policy(func(p *toolcircuit.Policy) { p.Jitter = 1 }), trip)
		waits[r.Snapshot().RetryAt.Sub(r.clock.Now())] = true
	}
	require.Greater(t, len(waits), 1)
}

// N21: what Policy returns can be edited and put back.
func TestPolicyReturnsWhatWasGiven(t *testing.T) {
	r := newRig(t, toolcircuit.Options{})
	require.Zero(t, r.Policy())
	p := r.Policy()
	p.Cooldown = 20 * time.Minute // above the default MaxCooldown, which follows
	require.NoError(t, r.SetPolicy(p))
	require.Equal(t, p, r.Policy())
	require.Equal(t, 20*time.Minute, r.Snapshot().Policy.MaxCooldown)
}
