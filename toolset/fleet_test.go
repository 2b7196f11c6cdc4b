package toolset_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/storetest"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// process is a process with a Set that shares its circuits.
type process struct {
	*toolset.Set
	fleet *toolcircuit.Fleet
	store *storetest.Memory
}

func newProcess(t *testing.T, store *storetest.Memory, c toolset.Config) *process {
	t.Helper()
	p := &process{store: store.Peer()}
	var err error
	p.fleet, err = toolcircuit.NewFleet(p.store, toolcircuit.FleetOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.fleet.Close(context.Background())) })
	p.Set, err = toolset.New(c, toolset.Options{Fleet: p.fleet})
	require.NoError(t, err)
	return p
}

// call makes a call of a tool in a scope, and reports whether it ran.
func (p *process) call(tool, scope string, fail error) bool {
	ran := false
	toolset.Do(toolset.WithScope(context.Background(), scope), p.Set, tool, nil, func(context.Context) (int, error) {
		ran = true
		return 0, fail
	})
	return ran
}

// shared returns what a circuit says of its state being shared.
func (p *process) shared(t *testing.T, dependency string) toolcircuit.Shared {
	t.Helper()
	for _, c := range p.Snapshot().Circuits {
		if c.Dependency == dependency {
			return c.Shared
		}
	}
	t.Fatal("no circuit of ", dependency)
	return ""
}

func TestFleet(t *testing.T) {
	threshold := toolcircuit.Policy{FailureThreshold: 2, Cooldown: 2 * time.Second}
	config := toolset.Config{
		Monitored:    []string{"*"},
		Default:      &threshold,
		Dependencies: map[string]toolset.Dependency{"mail": {Scoped: true}},
		Tools:        map[string]toolset.Tool{"send": {Dependency: "mail"}, "search": {Dependency: "search-api"}},
	}
	down := toolcircuit.Fault(fmt.Errorf("down"))
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		a, b := newProcess(t, store, config), newProcess(t, store, config)
		a.call("search", "", down)
		a.call("search", "", down)
		require.False(t, b.call("search", "", nil), "a circuit that is new here knows what the fleet knows")
		require.True(t, store.Record("search-api").Open)

		a.call("send", "tenant", down)
		a.call("send", "tenant", down)
		require.False(t, b.call("send", "tenant", nil))
		require.True(t, b.call("send", "other", nil))
		require.Zero(t, store.Record("mail"))

		require.NoError(t, b.Reset("send"))
		synctest.Wait()
		require.True(t, a.call("send", "tenant", nil), "a Reset acts in all workers")
		require.NoError(t, b.SetOverride("send", toolcircuit.OverrideOpen))
		require.False(t, b.call("send", "tenant", nil))
		require.True(t, a.call("send", "tenant", nil), "an override is local")

		// A circuit that is let go leaves, with a call under way, too, and does not reset the fleet.
		p, err := b.Allow(context.Background(), "unlisted", nil)
		require.NoError(t, err)
		require.Equal(t, toolcircuit.SharedOK, b.shared(t, "unlisted"))
		a.call("unlisted", "", down)
		a.call("unlisted", "", down)
		fewer := config
		fewer.Monitored = nil
		require.NoError(t, b.Apply(fewer))
		require.True(t, store.Record("unlisted").Open)
		require.Equal(t, toolcircuit.SharedNot, b.shared(t, "unlisted"))
		require.NoError(t, b.Apply(config))
		require.Equal(t, toolcircuit.SharedOK, b.shared(t, "unlisted"))
		require.False(t, b.call("unlisted", "", nil))
		p.Release()
		require.NoError(t, b.Apply(fewer))
		require.NoError(t, b.Apply(config))
		require.False(t, b.call("unlisted", "", nil))
	})
}

func TestFleetClosed(t *testing.T) {
	fleet, err := toolcircuit.NewFleet(storetest.NewMemory(), toolcircuit.FleetOptions{})
	require.NoError(t, err)
	require.NoError(t, fleet.Close(context.Background()))
	_, err = toolset.New(toolset.Config{}, toolset.Options{Fleet: fleet})
	require.EqualError(t, err, "toolset: New: Options.Fleet is closed")
}

// Circuits that eviction lets go of leave, and come again.
func TestFleetEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		p := newProcess(t, store, toolset.Config{Monitored: []string{"*"}, MaxCircuits: 20})
		for round := range 3 {
			for i := range 100 {
				tool := fmt.Sprint("tool-", i)
				require.True(t, p.call(tool, "", nil))
				require.Equal(t, toolcircuit.SharedOK, p.shared(t, tool), "round %d", round)
			}
		}
		require.LessOrEqual(t, len(p.Snapshot().Circuits), 20)
	})
}

// Two Sets that share a Fleet do not share a circuit: the second goes on alone, and says so.
func TestFleetOfTwoSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newProcess(t, storetest.NewMemory(), toolset.Config{Monitored: []string{"*"}})
		second, err := toolset.New(toolset.Config{Monitored: []string{"*"}}, toolset.Options{Fleet: a.fleet})
		require.NoError(t, err)
		b := &process{Set: second}
		a.call("search", "", nil)
		b.call("search", "", nil)
		require.Equal(t, toolcircuit.SharedOK, a.shared(t, "search"))
		require.Equal(t, toolcircuit.SharedNot, b.shared(t, "search"))
	})
}
