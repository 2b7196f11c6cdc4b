package toolset_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

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
		Tools: map[string]toolset.Tool{"pay": {SideEffects: &yes}, "balance": {Dependency: "pay"}},
		Hide:  toolset.HideOpen,
	}, toolset.Options{})
	r.trip("pay")
	require.Equal(t, []string{"free"}, r.visible("pay", "balance", "free"))
	r.clock.Add(time.Minute)
	require.Equal(t, []string{"pay", "balance", "free"}, r.visible("pay", "balance", "free"))
}

// adapter keeps a list of tools as one would: it makes the list anew when a watcher says so and
// when its timer fires.
type adapter struct {
	*rig
	tools []string
	woken bool
	timer time.Duration // 0: not set
	list  []string
}

func newAdapter(r *rig, tools ...string) *adapter {
	a := &adapter{rig: r, tools: tools}
	stop := r.Watch(func() { a.woken = true })
	r.Cleanup(stop)
	a.renew()
	return a
}

func (a *adapter) renew() {
	a.woken = false
	a.timer = a.NextChange()
	a.list = a.visible(a.tools...)
}

// after checks that the list is the right one after something was done.
func (a *adapter) after(what string) {
	a.Helper()
	if a.woken {
		a.renew()
	}
	require.Equal(a, a.visible(a.tools...), a.list, what)
}

// pass lets time pass, up to the timer at a time.
func (a *adapter) pass(d time.Duration) {
	a.Helper()
	for d > 0 {
		step := d
		if a.timer > 0 && a.timer < step {
			step = a.timer
		}
		a.clock.Add(step)
		if d -= step; step == a.timer {
			a.renew()
		} else if a.timer > 0 {
			a.timer -= step
		}
		a.after("time passed")
	}
}

func TestN39WatchTellsWhenToolsGoAndAreDueBack(t *testing.T) {
	r := newRig(t, hiding, toolset.Options{})
	a := newAdapter(r, "a", "b")
	require.Zero(t, a.timer)
	r.trip("a")
	require.True(t, a.woken)
	a.after("opened")
	require.Equal(t, []string{"b"}, a.list)
	require.Equal(t, time.Minute, a.timer)
	r.clock.Add(20 * time.Second)
	require.Equal(t, 40*time.Second, r.NextChange())
	r.trip("b")
	require.Equal(t, 40*time.Second, r.NextChange(), "the first of the two")
	a.timer = 40 * time.Second
	a.pass(40 * time.Second)
	require.Equal(t, []string{"a"}, a.list)
	require.Equal(t, 20*time.Second, a.timer, "now for the other")
	a.pass(20 * time.Second)
	require.Equal(t, []string{"a", "b"}, a.list)
	require.Zero(t, a.timer)

	require.NoError(t, r.SetOverride("a", toolcircuit.OverrideOpen))
	a.after("switched off")
	require.Equal(t, []string{"b"}, a.list)
	require.Zero(t, a.timer, "only an operator ends it")
	require.NoError(t, r.SetOverride("a", toolcircuit.OverrideNone))
	a.after("switched on")
	r.call("a", errDown)
	a.after("the probe failed")
	require.Equal(t, []string{"b"}, a.list)
	require.NoError(t, r.Reset("a"))
	a.after("reset")
	require.Equal(t, []string{"a", "b"}, a.list)
}

// Whatever happens in whatever scope, a watcher's list is right.
func TestWatchMissesNothing(t *testing.T) {
	config := func(n int) toolset.Config {
		c := toolset.Config{
			Dependencies: map[string]toolset.Dependency{"c": {Scoped: true}},
			Tools:        map[string]toolset.Tool{"d": {Dependency: "a", SideEffects: &yes}},
			Monitored:    []string{"a", "b", "c"},
			MaxCircuits:  3,
			Hide:         toolset.HideOpen,
			Disabled:     n == 0,
		}
		switch n {
		case 1:
			c.Hide = toolset.HideNever
		case 2:
			c.HideAtLeast = 2 * time.Minute
		}
		return c
	}
	random := rand.New(rand.NewPCG(1, 2))
	all := newRig(t, config(3), toolset.Options{})
	tools := []string{"a", "b", "c", "d", "free"}
	adapters := []*adapter{newAdapter(all, tools...), newAdapter(all.in("x"), tools...), newAdapter(all.in("y"), tools...)}
	told := 0
	for range 1500 {
		a, tool := adapters[random.IntN(3)], tools[random.IntN(4)]
		before := a.list
		switch random.IntN(12) {
		case 0, 1:
			pass := time.Duration(random.IntN(90)) * time.Second
			for pass > 0 { // the clock is everybody's
				step := pass
				for _, a := range adapters {
					if a.timer > 0 {
						step = min(step, a.timer)
					}
				}
				all.clock.Add(step)
				for _, a := range adapters {
					if a.timer == step {
						a.renew()
					} else if a.timer > 0 {
						a.timer -= step
					}
				}
				pass -= step
			}
		case 2:
			all.apply(config(random.IntN(8)))
		case 3:
			all.SetOverride(tool, []toolcircuit.Override{toolcircuit.OverrideOpen, toolcircuit.OverrideClosed, toolcircuit.OverrideNone}[random.IntN(3)])
		case 4:
			all.Reset(tool)
		default:
			err := []error{nil, errDown, errDown, errDown, toolcircuit.RetryAfter(errDown, 3*time.Minute)}[random.IntN(5)]
			toolset.Do(a.ctx, a.Set, tool, nil, func(context.Context) (int, error) { return 0, err })
		}
		for _, a := range adapters {
			a.after(tool)
		}
		if fmt.Sprint(before) != fmt.Sprint(a.list) {
			told++
		}
	}
	require.Greater(t, told, 50, "the lists must change")
}

func TestWatchIsQuietWhereNothingHides(t *testing.T) {
	r := newRig(t, toolset.Config{Monitored: []string{"a"}}, toolset.Options{})
	a := newAdapter(r, "a")
	r.trip("a")
	require.False(t, a.woken)
	require.Zero(t, r.NextChange())
}

func TestWatchUntilStop(t *testing.T) {
	r := newRig(t, hiding, toolset.Options{})
	var first, second int
	stop := r.Watch(func() { first++; r.visible("a"); r.NextChange() })
	stopToo := r.Watch(func() { second++ })
	r.trip("a")
	require.Equal(t, []int{1, 1}, []int{first, second})
	stop()
	stop()
	require.NoError(t, r.Reset("a"))
	require.Equal(t, []int{1, 2}, []int{first, second})
	stopToo()
	r.trip("a")
	require.Equal(t, []int{1, 2}, []int{first, second})

	var once func()
	once = r.Watch(func() { once() })
	r.Watch(func() { second++ })
	require.NoError(t, r.Reset("a"))
	require.Equal(t, 3, second, "a watcher may stop itself, and the next is still told")
	require.Contains(t, panicText(func() { r.Watch(nil) }), "changed is nil")
}

// A watcher or an OnEvent that panics or ends the goroutine costs nobody else the news.
func TestWatcherThatFails(t *testing.T) {
	s, err := toolset.New(hiding, toolset.Options{OnEvent: func(context.Context, toolcircuit.Event) { panic("OnEvent") }})
	require.NoError(t, err)
	heard := 0
	s.Watch(func() { heard++ })
	for range 5 {
		toolset.Do(context.Background(), s, "a", nil, func(context.Context) (int, error) { return 0, errDown })
	}
	require.Equal(t, 1, heard)

	r := newRig(t, hiding, toolset.Options{})
	told := 0
	r.Watch(func() { panic("watcher") })
	r.Watch(func() { told++ })
	r.trip("a")
	require.Equal(t, 1, told)
	require.Len(t, *r.events, 1)
	require.EqualValues(t, 1, r.Snapshot().HookPanics)

	r = newRig(t, hiding, toolset.Options{})
	r.Watch(runtime.Goexit)
	r.Watch(func() { told++ })
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 3 {
			toolset.Do(r.ctx, r.Set, "a", nil, func(context.Context) (int, error) { return 0, errDown })
		}
	}()
	<-done
	require.Equal(t, 2, told)
	require.Len(t, *r.events, 1)
	r.refused("a")
}

func TestBlockedWatcherHoldsUpOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, hiding, toolset.Options{})
		block := make(chan struct{})
		stop := r.Watch(func() { <-block })
		returned := false
		go func() {
			r.trip("a")
			returned = true
		}()
		synctest.Wait()
		require.False(t, returned)
		stop()
		r.refused("a")
		r.call("b", nil)
		r.trip("b")
		require.Equal(t, time.Minute, r.NextChange())
		close(block)
		synctest.Wait()
		require.True(t, returned)
	})
}

// A healthy call of a closed circuit reads no clock, watched or not.
func TestWatchCostsCallsNothing(t *testing.T) {
	c := &readings{Clock: clock.NewMock()}
	s, err := toolset.New(hiding, toolset.Options{Clock: c})
	require.NoError(t, err)
	defer s.Watch(func() {})()
	ctx := context.Background()
	s.Circuit(ctx, "a")
	c.n = 0
	for range 10 {
		toolset.Do(ctx, s, "a", nil, func(context.Context) (int, error) { return 0, nil })
	}
	require.Zero(t, c.n)
}
