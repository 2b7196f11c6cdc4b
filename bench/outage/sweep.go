package main

import (
	"fmt"
	"time"

	"github.com/toolcircuit/toolcircuit"
)

// variants are this library's defaults, each changed in one or two fields, beside gobreaker's.
func variants() []choice {
	all := []choice{choices[2]}
	add := func(name string, p toolcircuit.Policy) {
		all = append(all, choice{name, own, func(_ *trace, seed uint64) policy { return single(seed, p) }})
	}
	add(ownName, toolcircuit.Policy{})
	for _, n := range []int{3, 4, 6, 8} {
		add(fmt.Sprint("threshold ", n), toolcircuit.Policy{FailureThreshold: n})
	}
	for _, d := range []time.Duration{5 * time.Second, 15 * time.Second, 20 * time.Second, 30 * time.Second} {
		add(fmt.Sprint("cooldown ", d), toolcircuit.Policy{Cooldown: d})
	}
	for _, m := range []float64{1, 1.1, 1.2, 1.35, 1.5, 2} {
		add(fmt.Sprint("multiplier ", m), toolcircuit.Policy{Multiplier: m})
	}
	for _, d := range []time.Duration{time.Minute, 2 * time.Minute, 10 * time.Minute} {
		add(fmt.Sprint("cap ", d), toolcircuit.Policy{MaxCooldown: d})
	}
	for _, j := range []float64{0.1, 0.25} {
		add(fmt.Sprint("jitter ", j), toolcircuit.Policy{Jitter: j})
	}
	add("two successes", toolcircuit.Policy{ProbeSuccesses: 2})
	add("burst once", toolcircuit.Policy{CountBurstOnce: true})
	add("rate 0.5", toolcircuit.Policy{FailureRate: 0.5})
	add("old: 30s x2 10m", toolcircuit.Policy{Cooldown: 30 * time.Second, Multiplier: 2, MaxCooldown: 10 * time.Minute})
	add("15s x1.25 5m", toolcircuit.Policy{Cooldown: 15 * time.Second})
	add("10s x1.5 2m", toolcircuit.Policy{Multiplier: 1.5, MaxCooldown: 2 * time.Minute})
	return all
}
