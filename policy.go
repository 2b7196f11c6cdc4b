package toolcircuit

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/toolcircuit/toolcircuit/internal/strict"
	"github.com/toolcircuit/toolcircuit/internal/window"
)

// Policy says when a circuit opens, for how long, and what closes it. The zero Policy is the
// default policy, and each zero field has its default.
//
// A Policy is data and compares with ==. Its JSON writes durations as "30s" and leaves out the
// fields that have their default. UnmarshalJSON sets only the fields that are present, so that
// JSON can change a part of a shared policy.
type Policy struct {
	// FailureThreshold is the number of counted failures in a row that open the circuit. Zero: 5.
	// Use math.MaxInt to open by FailureRate alone.
	FailureThreshold int `json:"failureThreshold"`

	// FailureRate opens the circuit, too: at a counted failure, if the sliding Window has at least
	// MinCalls healthy or counted calls and failures/calls is at least FailureRate. At most 1.
	// Zero: off, and successes are not counted. It is for the closed state only: one failed probe
	// reopens (nodeshift/opossum#276).
	FailureRate float64 `json:"failureRate"`
	// Window is the length of the sliding window of FailureRate. It moves in steps of a sixteenth.
	// Zero: 60s. At least 10ms.
	Window time.Duration `json:"window"`
	// MinCalls is the least number of calls for which FailureRate applies. Zero: 20. At most
	// 524288.
	MinCalls int `json:"minCalls"`

	// SlowCall makes a healthy call that takes longer a failure of kind slow. The caller still
	// gets its value. Zero: off. At least 1ms.
	SlowCall time.Duration `json:"slowCall"`

	// CallTimeout is the deadline of each call. A call that takes longer counts as a timeout,
	// whatever it returns. The caller still gets a late value. Keep it below the callers'
	// deadlines. A hang that a caller's deadline ends first does not count. Zero: off. At least
	// 1ms.
	//
	// The operation's context ends with context.DeadlineExceeded and a cause of its own, so that
	// circuits inside one another tell their deadlines apart. With the real clock the context
	// shows the deadline. With an injected clock it does not, because the network would take a
	// mock's 1970 for real time.
	CallTimeout time.Duration `json:"callTimeout"`
	// IgnoreDeadline ignores a call that the caller's own deadline ends. With CallTimeout such a
	// call is always ignored.
	IgnoreDeadline bool `json:"ignoreDeadline"`
	// CountUnknown counts an error that no rule and no Classifier knows.
	CountUnknown bool `json:"countUnknown"`
	// CountBurstOnce counts the failures of a parallel batch once: a failure of a call that was
	// admitted before the latest counted failure adds nothing to the streak. The Window of
	// FailureRate counts every failure.
	CountBurstOnce bool `json:"countBurstOnce"`

	// Cooldown, Multiplier and MaxCooldown give the wait from an opening to the next probe:
	// min(Cooldown * Multiplier^(n-1), MaxCooldown), where n is the number of openings in memory.
	// Zero: 10s, 1.25, and the greater of 5m and Cooldown. With the defaults:
	//
	//	n     1    2      3      4      5      10     15     16     17
	//	wait  10s  12.5s  15.6s  19.5s  24.4s  1m14s  3m47s  4m44s  5m
	//
	// With a growth of a quarter, the wait after a recovery is less than about a quarter of the
	// outage. A Multiplier of 1 gives a fixed cooldown. Cooldown is at least 1ms.
	//
	// A circuit remembers its openings after it has closed, so that a flapping dependency does not
	// start again at the shortest wait. They fade while it stays closed: the latest is forgotten
	// after the wait that the formula gives for it, then the one before it. So it forgets an
	// outage in about the time that the outage lasted. An opening by rule pause adds none.
	Cooldown    time.Duration `json:"cooldown"`
	Multiplier  float64       `json:"multiplier"`
	MaxCooldown time.Duration `json:"maxCooldown"`
	// Jitter makes each computed wait longer by a part of up to Jitter, from 0 to 1, so that
	// callers do not return at one moment. The result is at most MaxCooldown: close to it, the
	// wait before jitter is shorter. Jitter depends only on Options.Seed, the dependency, the
	// epoch and, in a [Fleet], the worker. A wait that the dependency asked for has none. Zero:
	// none.
	Jitter float64 `json:"jitter"`
	// MaxRetryAfter caps the wait that the dependency asks for, from the time when it asks. Zero:
	// the greater of 10m and MaxCooldown. At least 1ms.
	MaxRetryAfter time.Duration `json:"maxRetryAfter"`

	// ProbeSuccesses is the number of probes that must succeed, one after the other, to close the
	// circuit. One that fails opens it again. Zero: 1.
	ProbeSuccesses int `json:"probeSuccesses"`
	// ProbeTimeout is how long a probe keeps its slot. After that the next caller becomes a probe,
	// too. Zero: the greater of 60s and twice CallTimeout. At least 1ms and CallTimeout.
	ProbeTimeout time.Duration `json:"probeTimeout"`
}

// withDefaults returns p with the default in each zero field.
func (p Policy) withDefaults() Policy {
	setDefault(&p.FailureThreshold, 5)
	setDefault(&p.Window, time.Minute)
	setDefault(&p.MinCalls, 20)
	setDefault(&p.Cooldown, 10*time.Second)
	setDefault(&p.Multiplier, 1.25)
	setDefault(&p.MaxCooldown, max(5*time.Minute, p.Cooldown))
	setDefault(&p.MaxRetryAfter, max(10*time.Minute, p.MaxCooldown))
	setDefault(&p.ProbeSuccesses, 1)
	setDefault(&p.ProbeTimeout, max(time.Minute, p.CallTimeout, 2*min(p.CallTimeout, math.MaxInt64/2)))
	return p
}

func setDefault[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// Validate returns an error for the first field that is not valid, with its value and what it
// should be. A field is not valid if it is negative, not a finite number, outside its bounds or in
// contradiction to another field. The zero Policy is valid.
func (p Policy) Validate() error {
	for name, v := range fieldsOf(&p) {
		bad := false
		switch v := v.Addr().Interface().(type) {
		case *int:
			bad = *v < 0
		case *time.Duration:
			bad = *v < 0
		case *float64:
			bad = !(*v >= 0) || math.IsInf(*v, 1)
		}
		if bad {
			return fieldError(name.Name, v.Interface(), "a finite value that is not negative")
		}
	}
	p = p.withDefaults()
	const ms = time.Millisecond
	for _, c := range []struct {
		ok   bool
		name string
		got  any
		want string
	}{
		{p.FailureRate <= 1, "FailureRate", p.FailureRate, "a rate from 0 (off) to 1"},
		{p.Window >= 10*ms, "Window", p.Window, "at least 10ms"},
		{p.MinCalls <= window.MaxMinCalls, "MinCalls", p.MinCalls, fmt.Sprint("at most ", window.MaxMinCalls)},
		{p.SlowCall == 0 || p.SlowCall >= ms, "SlowCall", p.SlowCall, "0 (off) or at least 1ms"},
		{p.CallTimeout == 0 || p.CallTimeout >= ms, "CallTimeout", p.CallTimeout, "0 (off) or at least 1ms"},
		{p.Cooldown >= ms, "Cooldown", p.Cooldown, "at least 1ms"},
		{p.Multiplier >= 1, "Multiplier", p.Multiplier, "at least 1"},
		{p.MaxCooldown >= p.Cooldown, "MaxCooldown", p.MaxCooldown, fmt.Sprint("at least Cooldown, ", p.Cooldown)},
		{p.Jitter <= 1, "Jitter", p.Jitter, "a part from 0 to 1"},
		{p.MaxRetryAfter >= ms, "MaxRetryAfter", p.MaxRetryAfter, "at least 1ms"},
		{p.ProbeTimeout >= ms, "ProbeTimeout", p.ProbeTimeout, "at least 1ms"},
		{p.ProbeTimeout >= p.CallTimeout, "ProbeTimeout", p.ProbeTimeout, fmt.Sprint("at least CallTimeout, ", p.CallTimeout)},
		{p.SlowCall < p.CallTimeout || p.SlowCall == 0 || p.CallTimeout == 0, "SlowCall", p.SlowCall, fmt.Sprint("less than CallTimeout, ", p.CallTimeout)},
	} {
		if !c.ok {
			return fieldError(c.name, c.got, c.want)
		}
	}
	return nil
}

func fieldError(name string, got any, want string) error {
	return fmt.Errorf("toolcircuit: Policy.%s: got %v, want %s", name, got, want)
}

// fieldsOf ranges over the fields of p, each with its addressable value.
func fieldsOf(p *Policy) func(yield func(reflect.StructField, reflect.Value) bool) {
	return func(yield func(reflect.StructField, reflect.Value) bool) {
		v := reflect.ValueOf(p).Elem()
		for i := range v.NumField() {
			if !yield(v.Type().Field(i), v.Field(i)) {
				return
			}
		}
	}
}

// MarshalJSON writes the fields that differ from their default, in the order of Policy. It returns
// Validate's error.
func (p Policy) MarshalJSON() ([]byte, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	p = p.withDefaults()
	absent := p // each field as it is if the JSON leaves it out
	for f, v := range fieldsOf(&absent) {
		without := p
		reflect.ValueOf(&without).Elem().FieldByIndex(f.Index).SetZero()
		v.Set(reflect.ValueOf(without.withDefaults()).FieldByIndex(f.Index))
	}
	return strict.Encode(p, absent)
}

// UnmarshalJSON sets the fields of p that data has. On an error p is unchanged. Null is like an
// absent field. These are errors: a field that Policy does not have, a field that is there twice,
// and 0 for a field whose default is not 0, because it would be taken for an absent field.
func (p *Policy) UnmarshalJSON(data []byte) error {
	if string(bytes.TrimSpace(data)) == "null" { // changes nothing, as json.Unmarshaler asks
		return nil
	}
	next := *p
	if err := strict.Decode(data, &next, Policy{}.withDefaults(), nil); err != nil {
		return fmt.Errorf("toolcircuit: policy: %w", err)
	}
	*p = next
	return nil
}

// rules are a Policy in force, with what follows from it. They have nothing to do with the rules
// of Classify.
type rules struct {
	Policy         // with the defaults filled in
	first   *state // the first state of a circuit with this policy
	unset   uint32 // one bit for each field that was given as zero; a second Policy would be most of a circuit's memory
	watched bool   // each call needs to know how long it took: for the policy, the Classifier or OnCall
	timed   bool   // each call notes when it begins, also if only OnEvent needs that
}

func (st *settings) newRules(p Policy) *rules {
	r := &rules{Policy: p.withDefaults()}
	bit := uint32(1)
	for _, v := range fieldsOf(&p) {
		if v.IsZero() {
			r.unset |= bit
		}
		bit <<= 1
	}
	r.watched = p.SlowCall > 0 || p.CallTimeout > 0 || st.classify != nil || st.onCall != nil
	r.timed = r.watched || st.onEvent != nil && !st.untimed
	r.first = state{rules: r, State: StateClosed, since: st.clock.Now()}.publish(0, "", nil)
	return r
}

// Policy returns the policy in force as it was given: a field that has its default is zero. To
// change a policy, edit what Policy returns and pass it to SetPolicy. Snapshot has the policy with
// the defaults filled in.
func (c *ToolCircuit) Policy() Policy {
	r := c.made().state.Load().rules
	p, bit := r.Policy, uint32(1)
	for _, v := range fieldsOf(&p) {
		if r.unset&bit != 0 {
			v.SetZero()
		}
		bit <<= 1
	}
	return p
}

// SetPolicy puts another policy in force, or returns Validate's error and changes nothing. The
// state stays, and the change acts at once:
//
//   - a lower FailureThreshold opens at the next counted failure
//   - a window of another length starts empty
//   - the wait of an open circuit and the lease of a running probe get their new length, from the
//     time when they began. In a [Fleet] a wait or a lease that the store has stays as it is until
//     the next opening or probe
func (c *ToolCircuit) SetPolicy(p Policy) error {
	if err := p.Validate(); err != nil {
		return err
	}
	r := c.made().newRules(p)
	c.step(context.Background(), time.Time{}, func(s state, in input) (state, bool) { return s.withRules(in, r), true })
	return nil
}

// Override is an operator's decision that comes before the state.
type Override string

// The overrides.
const (
	OverrideNone   Override = ""       // the state decides
	OverrideOpen   Override = "open"   // all calls are refused, with reason manual_open
	OverrideClosed Override = "closed" // all calls run, and none is recorded
)

// SetOverride makes an operator's decision, or ends it with OverrideNone. The state below goes on:
// a cooldown runs, and calls admitted before are recorded. Any other value panics.
func (c *ToolCircuit) SetOverride(o Override) {
	switch o {
	case OverrideNone, OverrideOpen, OverrideClosed:
	default:
		panic(fmt.Sprintf("toolcircuit: SetOverride: got %q, want OverrideNone, OverrideOpen or OverrideClosed", o))
	}
	c.step(context.Background(), time.Time{}, func(s state, _ input) (state, bool) {
		changed := s.override != o
		s.override = o
		return s, changed
	})
}

// Reset closes the circuit in a new epoch, also if it is closed. It forgets the streak and the
// openings, and outcomes of calls under way are stale. An override stays.
func (c *ToolCircuit) Reset() {
	c.step(context.Background(), time.Time{}, func(s state, in input) (state, bool) {
		return s.reset(in).owes(&debt{kind: owedReset}), true
	})
}
