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

// Policy says when a circuit opens, for how long, and what closes it. It is data: it
// compares with ==, and its JSON has durations as "30s" and leaves out what has its
// default. The zero Policy is the default policy, and so is each zero field.
//
// UnmarshalJSON changes only the fields that are present, so that JSON can be laid over a
// policy that others share.
type Policy struct {
	// FailureThreshold is the number of counted failures in a row that open the circuit.
	// Zero: 5. Use math.MaxInt to open by FailureRate alone.
	FailureThreshold int `json:"failureThreshold"`

	// FailureRate, above 0 and at most 1, also opens the circuit at a counted failure when
	// at least MinCalls healthy or counted calls are within the sliding Window and
	// failures/calls reaches it. Zero: no rate rule, and successes are not even counted.
	// MinCalls is for the closed state only: one failed probe reopens
	// (nodeshift/opossum#276).
	FailureRate float64 `json:"failureRate"`
	// Window is the length of the sliding window of FailureRate, which moves in sixteenths.
	// Zero: 60s; at least 10ms.
	Window time.Duration `json:"window"`
	// MinCalls is the number of calls below which FailureRate says nothing. Zero: 20; at
	// most 524288.
	MinCalls int `json:"minCalls"`

	// SlowCall makes a healthy call that takes longer count as a failure of kind slow; its
	// value is passed on all the same. Zero: off.
	SlowCall time.Duration `json:"slowCall"`

	// CallTimeout is the deadline of each call, after which it counts as a timeout whatever
	// comes back; a late value is passed on. The operation's context ends with
	// context.DeadlineExceeded and a cause of its own, so that circuits around one another
	// never take each other's deadline for theirs. On the real clock the context shows the
	// deadline; with an injected clock it does not, for the network would believe a mock's
	// 1970. Zero: off.
	CallTimeout time.Duration `json:"callTimeout"`
	// IgnoreDeadline makes the end of the caller's own deadline say nothing about the
	// dependency, also where there is no CallTimeout. With CallTimeout it never does.
	IgnoreDeadline bool `json:"ignoreDeadline"`
	// CountUnknown makes errors that no rule and no Classifier knows count.
	CountUnknown bool `json:"countUnknown"`
	// CountBurstOnce makes one observation of one parallel batch: failures of calls that
	// were admitted before the last counted failure was known do not add to the streak.
	// The rate window counts them all.
	CountBurstOnce bool `json:"countBurstOnce"`

	// Cooldown, Multiplier and MaxCooldown give the time from an opening to the next
	// probe: min(Cooldown * Multiplier^(n-1), MaxCooldown), where n is the number of
	// openings in memory. Zero: 30s, 2, and the greater of 10m and Cooldown. With the
	// defaults:
	//
	//	n     1    2   3   4   5   6
	//	wait  30s  1m  2m  4m  8m  10m
	//
	// A Multiplier of 1 is a fixed cooldown. Cooldown is at least 1ms.
	Cooldown    time.Duration `json:"cooldown"`
	Multiplier  float64       `json:"multiplier"`
	MaxCooldown time.Duration `json:"maxCooldown"`
	// Jitter, from 0 to 1, makes each computed wait longer by a part of up to Jitter, so
	// that a fleet does not return at one moment; at the cap it makes room for that below
	// MaxCooldown. It depends on nothing but Options.Seed, the dependency and the epoch.
	// A wait that the dependency asked for has none. Zero: none.
	Jitter float64 `json:"jitter"`
	// BackoffMemory is how long the circuit must stay closed until earlier openings are
	// forgotten, so that a flapping dependency does not start over at the shortest
	// cooldown. Zero: MaxCooldown.
	BackoffMemory time.Duration `json:"backoffMemory"`
	// MaxRetryAfter is the longest wait that a dependency may ask for. Zero: MaxCooldown;
	// at least 1ms.
	MaxRetryAfter time.Duration `json:"maxRetryAfter"`

	// ProbeSuccesses is the number of successes in a row, one probe at a time within one
	// half-open episode, that close the circuit. Zero: 1.
	ProbeSuccesses int `json:"probeSuccesses"`
	// ProbeTimeout is how long a probe keeps its slot; past it the next caller becomes a
	// probe too. Zero: the greater of 60s and twice CallTimeout.
	ProbeTimeout time.Duration `json:"probeTimeout"`
}

// withDefaults returns p with every zero field that has another default filled in.
func (p Policy) withDefaults() Policy {
	setDefault(&p.FailureThreshold, 5)
	setDefault(&p.Window, time.Minute)
	setDefault(&p.MinCalls, 20)
	setDefault(&p.Cooldown, 30*time.Second)
	setDefault(&p.Multiplier, 2)
	setDefault(&p.MaxCooldown, max(10*time.Minute, p.Cooldown))
	setDefault(&p.BackoffMemory, p.MaxCooldown)
	setDefault(&p.MaxRetryAfter, p.MaxCooldown)
	setDefault(&p.ProbeSuccesses, 1)
	setDefault(&p.ProbeTimeout, max(time.Minute, p.CallTimeout, 2*min(p.CallTimeout, math.MaxInt64/2)))
	return p
}

func setDefault[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// Validate returns an error that names the first field that is negative, not a number or
// in contradiction to another, with what it holds and what it should. The zero Policy is
// valid.
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
		{p.Cooldown >= ms, "Cooldown", p.Cooldown, "at least 1ms"},
		{p.Multiplier >= 1, "Multiplier", p.Multiplier, "at least 1"},
		{p.MaxCooldown >= p.Cooldown, "MaxCooldown", p.MaxCooldown, fmt.Sprint("at least Cooldown, ", p.Cooldown)},
		{p.Jitter <= 1, "Jitter", p.Jitter, "a part from 0 to 1"},
		{p.MaxRetryAfter >= ms, "MaxRetryAfter", p.MaxRetryAfter, "at least 1ms"},
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

// fieldsOf ranges over the fields of p, each with its place in p.
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

// MarshalJSON writes the fields that differ from their default, in the order of Policy. A policy
// that is not valid is an error.
func (p Policy) MarshalJSON() ([]byte, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	p = p.withDefaults()
	absent := p // what each field would be if the text left it out
	for f, v := range fieldsOf(&absent) {
		without := p
		reflect.ValueOf(&without).Elem().FieldByIndex(f.Index).SetZero()
		v.Set(reflect.ValueOf(without.withDefaults()).FieldByIndex(f.Index))
	}
	return strict.Encode(p, absent)
}

// UnmarshalJSON lays the fields that data has over p; p is unchanged on an error. A field that
// is null is like one that is absent. A field that Policy does not have, or has twice, is an
// error, and so is 0 for a field whose default is not 0: a 0 that someone typed must not be
// taken for one left out.
func (p *Policy) UnmarshalJSON(data []byte) error {
	if string(bytes.TrimSpace(data)) == "null" { // changes nothing, as json.Unmarshaler has it
		return nil
	}
	next := *p
	if err := strict.Decode(data, &next, Policy{}.withDefaults(), nil); err != nil {
		return fmt.Errorf("toolcircuit: policy: %w", err)
	}
	*p = next
	return nil
}

// rules are a policy in force.
type rules struct {
	Policy         // with the defaults filled in
	given   Policy // as it was set
	watched bool   // a call needs the time of its start
	first   *state // of a circuit that starts under these rules
}

func (st *settings) newRules(p Policy) *rules {
	r := &rules{Policy: p.withDefaults(), given: p}
	r.watched = p.SlowCall > 0 || p.CallTimeout > 0 || st.classify != nil || st.onEvent != nil || st.onCall != nil
	r.first = state{rules: r, State: StateClosed, since: st.clock.Now()}.publish(0, "", nil)
	return r
}

// Policy returns the policy in force as it was given: a field that has its default is zero. To
// change a policy, edit what Policy returns and hand it to SetPolicy. Snapshot has the policy
// with the defaults filled in.
func (c *ToolCircuit) Policy() Policy { return c.made().state.Load().given }

// SetPolicy puts another policy in force, or returns Validate's error and changes nothing.
// The state stays and the change acts at once: a lower FailureThreshold opens at the next
// counted failure, a new Window starts empty, the wait of an open circuit and the lease of
// a running probe are those of the new policy, from where they began.
func (c *ToolCircuit) SetPolicy(p Policy) error {
	if err := p.Validate(); err != nil {
		return err
	}
	r := c.made().newRules(p)
	c.step(context.Background(), 0, func(s state, in input) (state, bool) { return s.withRules(in, r), true })
	return nil
}

// Override is an operator's decision that stands above the state.
type Override string

// The overrides.
const (
	OverrideNone   Override = ""       // the state decides
	OverrideOpen   Override = "open"   // all calls are refused, with reason manual_open
	OverrideClosed Override = "closed" // all calls run, and none is recorded
)

// SetOverride puts a manual decision above the state, or lifts it with OverrideNone. What is
// beneath goes on: a cooldown runs, and calls admitted before are recorded. A value that is
// none of the three panics.
func (c *ToolCircuit) SetOverride(o Override) {
	switch o {
	case OverrideNone, OverrideOpen, OverrideClosed:
	default:
		panic(fmt.Sprintf("toolcircuit: SetOverride: got %q, want OverrideNone, OverrideOpen or OverrideClosed", o))
	}
	c.step(context.Background(), 0, func(s state, _ input) (state, bool) {
		changed := s.override != o
		s.override = o
		return s, changed
	})
}

// Reset closes the circuit in a new epoch, also if it is closed: what calls under way will
// bring is stale. The streak and the openings are forgotten, an override stays.
func (c *ToolCircuit) Reset() {
	c.step(context.Background(), 0, func(s state, in input) (state, bool) { return s.reset(in), true })
}
