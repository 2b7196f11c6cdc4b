package toolset_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

func (r *rig) visible(tools ...string) []string {
	return toolset.Visible(r.ctx, r.Set, tools, func(name string) string { return name })
}

var hiding = toolset.Config{Monitored: []string{"a", "b"}, Hide: toolset.HideOpen}

func TestVisibleIsAPureFilter(t *testing.T) {
	r := newRig(t, hiding, toolset.Options{})
	list := []string{"b", "a", "free", "b"}
	got := r.visible(list...)
	require.Equal(t, list, got)
	require.Empty(t, r.circuits(), "a list creates nothing")
	got[0] = "x"
	require.Equal(t, "b", list[0], "what is returned is a copy")
	r.trip("b")
	require.Equal(t, []string{"a", "free"}, r.visible(list...))
	require.Equal(t, []string{"b", "a", "free", "b"}, list)
	require.Empty(t, r.visible())
}

func TestA056ListingTakesNoProbe(t *testing.T) {
	r := newRig(t, hiding, toolset.Options{})
	r.trip("a")
	r.clock.Add(time.Minute)
	for range 5 {
		require.Equal(t, []string{"a", "b"}, r.visible("a", "b"))
		r.Snapshot()
	}
	probe, err := r.Allow(r.ctx, "a", nil)
	require.NoError(t, err)
	require.True(t, probe.Probe())
	require.Equal(t, []string{"a", "b"}, r.visible("a", "b"), "half-open hides nothing")
	r.refused("a")
	probe.Settle(r.ctx, nil, nil)
	r.call("a", nil)
}

func TestA088FlappingAndTheList(t *testing.T) {
	for mode, want := range map[string]int{"never": 1, "open": 2, "at least": 1} {
		c := toolset.Config{Monitored: []string{"a", "b"}, Default: &toolcircuit.Policy{FailureThreshold: 1, Cooldown: 30 * time.Second, Multiplier: 1}}
		switch mode {
		case "open":
			c.Hide = toolset.HideOpen
		case "at least":
			c.Hide, c.HideAtLeast = toolset.HideOpen, time.Minute
		}
		r := newRig(t, c, toolset.Options{})
		lists := map[string]bool{}
		for range 30 {
			r.call("a", errDown)
			lists[fmt.Sprint(r.visible("a", "b"))] = true
			r.clock.Add(30 * time.Second)
			r.call("a", nil)
			lists[fmt.Sprint(r.visible("a", "b"))] = true
		}
		require.Len(t, lists, want, mode)
	}
}

func TestHideAtLeastIsForTheWholeOpening(t *testing.T) {
	c := hiding
	c.HideAtLeast = time.Minute
	r := newRig(t, c, toolset.Options{})
	r.trip("a")
	for range 59 {
		require.Equal(t, []string{"b"}, r.visible("a", "b"))
		r.clock.Add(time.Second)
	}
	require.Equal(t, []string{"b"}, r.visible("a", "b"), "one second is left, of sixty")
	r.clock.Add(time.Second)
	require.Equal(t, []string{"a", "b"}, r.visible("a", "b"))
}

func TestA089NeverHides(t *testing.T) {
	for _, hide := range []toolset.Hide{"", toolset.HideNever} {
		c := hiding
		c.Hide = hide
		r := newRig(t, c, toolset.Options{})
		r.trip("a")
		require.Equal(t, []string{"a", "b"}, r.visible("a", "b"))
		r.refused("a")
	}
}

func TestA091BackInTheListByTimeAlone(t *testing.T) {
	r := newRig(t, hiding, toolset.Options{})
	r.trip("a")
	require.Equal(t, []string{"b"}, r.visible("a", "b"))
	r.clock.Add(time.Minute - 1)
	require.Equal(t, []string{"b"}, r.visible("a", "b"))
	r.clock.Add(1)
	require.Equal(t, []string{"a", "b"}, r.visible("a", "b"))
}

func TestA092HiddenToolIsCalledAllTheSame(t *testing.T) {
	r := newRig(t, hiding, toolset.Options{})
	r.trip("a")
	require.Equal(t, []string{"b"}, r.visible("a", "b"))
	blocked := r.refused("a")
	require.Equal(t, toolcircuit.ReasonDependencyOpen, blocked.Reason)
	require.EqualValues(t, 60_000, blocked.RetryAfterMS)
}

func TestR49HiddenIsNotUnknown(t *testing.T) {
	r := newRig(t, hiding, toolset.Options{})
	r.trip("a")
	r.call("b", nil)
	require.True(t, r.circuit("a").Hidden)
	require.False(t, r.circuit("b").Hidden)
	require.Equal(t, []string{"a", "b"}, r.circuits(), "nobody knows of any other")
	r.clock.Add(time.Minute)
	require.False(t, r.circuit("a").Hidden)
}

func TestVisibleWithOverrides(t *testing.T) {
	r := newRig(t, hiding, toolset.Options{})
	r.call("a", nil)
	require.NoError(t, r.SetOverride("a", toolcircuit.OverrideOpen))
	require.Equal(t, []string{"b"}, r.visible("a", "b"))
	require.NoError(t, r.SetOverride("a", toolcircuit.OverrideNone))
	r.trip("a")
	require.NoError(t, r.SetOverride("a", toolcircuit.OverrideClosed))
	require.Equal(t, []string{"a", "b"}, r.visible("a", "b"))
}

func TestSwitchedOffBeforeItsFirstCall(t *testing.T) {
	r := newRig(t, hiding, toolset.Options{})
	require.NoError(t, r.SetOverride("a", toolcircuit.OverrideOpen))
	require.Equal(t, []string{"b"}, r.visible("a", "b"))
	require.Equal(t, toolcircuit.ReasonManualOpen, r.refused("a").Reason)
}

func TestAllHiddenIsAllShown(t *testing.T) {
	r := newRig(t, hiding, toolset.Options{})
	r.trip("a")
	r.trip("b")
	require.Equal(t, []string{"b", "a"}, r.visible("b", "a"))
	require.Equal(t, []string{"free"}, r.visible("a", "free"))
}

func TestSideEffectsDoNotHideLonger(t *testing.T) {
	r := newRig(t, toolset.Config{
		Tools: map[string]toolset.Tool{"pay": {SideEffects: true}, "balance": {Dependency: "pay"}},
		Hide:  toolset.HideOpen,
	}, toolset.Options{})
	r.trip("pay")
	require.Equal(t, []string{"free"}, r.visible("pay", "balance", "free"))
	r.clock.Add(time.Minute)
	require.Equal(t, []string{"pay", "balance", "free"}, r.visible("pay", "balance", "free"))
}
