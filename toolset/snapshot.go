package toolset

import (
	"cmp"
	"slices"

	"github.com/toolcircuit/toolcircuit"
)

// Snapshot is what a Set was at about one moment: the circuits are read one after the other.
type Snapshot struct {
	Disabled bool              `json:"disabled"`
	Circuits []CircuitSnapshot `json:"circuits"` // by dependency and scope; of listed tools also before their first call
	// Forgotten counts the closed circuits that MaxCircuits evicted with a streak, failures or
	// openings in memory.
	Forgotten  uint64 `json:"forgotten"`
	HookPanics uint64 `json:"hookPanics"` // recovered panics of Watch, Limits.OnStop, and OnCall for a refusal that no circuit made
}

// CircuitSnapshot is the circuit of a dependency or of one scope of it.
type CircuitSnapshot struct {
	toolcircuit.Snapshot
	Scope    string   `json:"scope,omitempty"`
	Tools    []string `json:"tools,omitempty"` // with an entry in the config; if there are none, the tool has the dependency's name
	InFlight int      `json:"inFlight"`        // calls under way
	Busy     int      `json:"busy"`            // calls refused because of MaxInFlight
	Hidden   bool     `json:"hidden"`          // Visible leaves its tools out
}

// Snapshot returns what the Set is now. It changes nothing.
func (s *Set) Snapshot() Snapshot {
	p := s.inForce()
	snap := Snapshot{
		Disabled:   p.config.Disabled,
		Circuits:   []CircuitSnapshot{}, // as JSON a list, not null
		Forgotten:  s.forgotten.Load(),
		HookPanics: s.hookPanics.Load(),
	}
	seen := map[*dependency]bool{}
	inUse := func(m *member) bool { return m.calls.Load() > 0 || p.keeps(m.circuit.Dependency(), m.scope) }
	for _, m := range s.members(inUse) {
		d := p.dependency(m.circuit.Dependency())
		seen[d] = true
		snap.Circuits = append(snap.Circuits, CircuitSnapshot{
			Snapshot: m.circuit.Snapshot(),
			Scope:    m.scope,
			Tools:    slices.Clone(d.tools),
			InFlight: max(int(m.calls.Load()), 0),
			Busy:     m.refused(),
			Hidden:   p.hides(m.circuit.Dependency(), m),
		})
	}
	for name, d := range p.dependencies {
		if len(d.tools) > 0 && !seen[d] && p.keeps(name, "") {
			c := CircuitSnapshot{Snapshot: d.template.Snapshot(), Tools: slices.Clone(d.tools)}
			c.Dependency, c.Override, c.Hidden = name, p.overrides[name], p.hides(name, nil)
			snap.Circuits = append(snap.Circuits, c)
		}
	}
	slices.SortFunc(snap.Circuits, func(a, b CircuitSnapshot) int {
		return cmp.Or(cmp.Compare(a.Dependency, b.Dependency), cmp.Compare(a.Scope, b.Scope))
	})
	return snap
}
