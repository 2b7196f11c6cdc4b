package debugpage_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/debugpage"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// lines returns the timeline of each circuit, with times in seconds.
func (r *rig) lines() (all []string) {
	for _, c := range r.circuits().Circuits {
		line := c.Dependency
		if c.Scope != "" {
			line += "/" + c.Scope
		}
		for _, p := range c.Timeline {
			line += fmt.Sprint(" ", p.At.Unix(), ":", p.State)
			if p.Seen {
				line += "?"
			}
		}
		last := c.Timeline[len(c.Timeline)-1]
		require.Equal(r, c.Since, last.At, "since when, at every place")
		require.Equal(r, c.State, last.State)
		all = append(all, line)
	}
	return all
}

// withHistory is newRig with the History of the rig.
func withHistory(t *testing.T, c toolset.Config) *rig {
	r := newRig(t, c, debugpage.Options{})
	r.page = debugpage.Handler(r.set, debugpage.Options{History: &r.history, Now: r.clock.Now, ShowScopes: true})
	return r
}

var weather = toolset.Config{Monitored: []string{"weather"}}

// outage takes the circuit of a tool through an opening and a recovery.
func (r *rig) outage(tool string) {
	r.trip(tool)
	r.clock.Add(10 * time.Second)
	r.call(tool, nil)
	r.clock.Add(time.Second)
}

// With a History a timeline has what happened while nobody watched, and that once.
func TestHistory(t *testing.T) {
	r := withHistory(t, weather)
	r.outage("weather")
	for range 3 {
		require.Equal(t, []string{"weather 0:open 10:half_open 10:closed"}, r.lines())
	}
	r.trip("weather")
	for range 3 {
		require.Equal(t, []string{"weather 0:open 10:half_open 10:closed 11:open"}, r.lines())
	}
	require.NoError(t, r.set.Reset("weather"))
	require.Equal(t, []string{"weather 0:open 10:half_open 10:closed 11:open 11:closed"}, r.lines())
}

// Without one it has what was seen.
func TestNoHistory(t *testing.T) {
	r := newRig(t, weather, debugpage.Options{})
	r.clock.Add(time.Second)
	r.trip("weather")
	require.Equal(t, []string{"weather 1:open"}, r.lines())
	r.clock.Add(10 * time.Second)
	require.Equal(t, []string{"weather 1:open 11:half_open"}, r.lines())
	r.call("weather", nil)
	require.Equal(t, []string{"weather 1:open 11:half_open 11:closed"}, r.lines())
}

// A circuit is half-open since the end of its wait, before the probe and during it, whoever was
// looking when.
func TestHalfOpenSince(t *testing.T) {
	for name, r := range map[string]*rig{"with a History": withHistory(t, weather), "without one": newRig(t, weather, debugpage.Options{})} {
		t.Run(name, func(t *testing.T) {
			r.trip("weather")
			r.lines()
			r.clock.Add(10 * time.Second)
			for range 3 {
				require.Equal(t, []string{"weather 0:open 10:half_open"}, r.lines())
				r.clock.Add(2 * time.Second)
			}
			toolset.Do(context.Background(), r.set, "weather", nil, func(context.Context) (int, error) {
				require.Equal(t, []string{"weather 0:open 10:half_open"}, r.lines(), "the probe is running")
				r.clock.Add(time.Second)
				return 0, errDown
			})
			require.Equal(t, []string{"weather 0:open 10:half_open 17:open"}, r.lines())
			r.clock.Add(time.Minute)
			require.NoError(t, r.set.Reset("weather"))
			want := "weather 0:open 10:half_open 17:open 29:half_open 77:closed" // after 12.5 s
			require.Equal(t, []string{want}, r.lines())
			if name == "with a History" {
				r.page = debugpage.Handler(r.set, debugpage.Options{History: &r.history, Now: r.clock.Now})
				require.Equal(t, []string{want}, r.lines(), "of one who never looked")
			}
		})
	}
}

// A wait that a late failure makes longer is still a wait.
func TestLongerWait(t *testing.T) {
	r := withHistory(t, weather)
	late, err := r.set.Allow(context.Background(), "weather", nil)
	require.NoError(t, err)
	r.trip("weather")
	r.clock.Add(11 * time.Second)
	require.Equal(t, []string{"weather 0:open 10:half_open"}, r.lines())
	late.Settle(context.Background(), nil, toolcircuit.RetryAfter(errDown, 20*time.Second))
	require.Equal(t, []string{"weather 0:open"}, r.lines())
	r.clock.Add(21 * time.Second)
	require.Equal(t, []string{"weather 0:open 31:half_open"}, r.lines())
}

// A Monitor's answer ends the wait when it is seen.
func TestShorterWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := withHistory(t, weather)
		r.trip("weather")
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		checks, answer := 0, make(chan error)
		go r.set.Circuit(ctx, "weather").Monitor(ctx, time.Second, func(context.Context) error {
			if checks++; checks == 1 {
				return nil
			}
			return <-answer
		})
		synctest.Wait()
		r.clock.Add(time.Second)
		synctest.Wait()
		for range 2 {
			require.Equal(t, []string{"weather 0:open 1:half_open"}, r.lines())
			r.clock.Add(time.Second)
		}
		answer <- nil
		synctest.Wait()
		require.Equal(t, []string{"weather 0:open 1:half_open 3:closed"}, r.lines())
	})
}

// When nobody knows since when it is half-open, the line says since when that was seen.
func TestHalfOpenUnseen(t *testing.T) {
	r := newRig(t, weather, debugpage.Options{})
	r.trip("weather")
	r.clock.Add(15 * time.Second)
	require.Equal(t, []string{"weather 15:half_open?"}, r.lines())
	r.clock.Add(5 * time.Second)
	require.Equal(t, []string{"weather 15:half_open?"}, r.lines())
	r.call("weather", nil)
	require.Equal(t, []string{"weather 15:half_open? 20:closed"}, r.lines())
}

// An override is no change of state.
func TestHistoryOfOverrides(t *testing.T) {
	r := withHistory(t, weather)
	r.call("weather", nil)
	require.NoError(t, r.set.SetOverride("weather", "open"))
	r.clock.Add(time.Second)
	require.NoError(t, r.set.SetOverride("weather", ""))
	require.Equal(t, []string{"weather 0:closed"}, r.lines())
}

// A timeline belongs to its scope where there is one, and to all calls where there is none.
func TestHistoryOfScopes(t *testing.T) {
	r := withHistory(t, toolset.Config{
		Dependencies: map[string]toolset.Dependency{"search": {Scoped: true}},
		Monitored:    []string{"search", "mail"},
	})
	for _, tool := range []string{"search", "mail"} {
		r.callAs("ann", tool, errDown)
		r.callAs("ann", tool, errDown)
		r.callAs("bob", tool, nil)
	}
	r.clock.Add(10 * time.Second)
	r.callAs("bob", "mail", nil)
	require.Equal(t, []string{"mail 0:open 10:half_open 10:closed", "search/ann 0:open 10:half_open", "search/bob 0:closed"}, r.lines())
}

// A circuit that was let go and comes back begins anew.
func TestHistoryOfASuccessor(t *testing.T) {
	r := withHistory(t, weather)
	r.outage("weather")
	require.Equal(t, []string{"weather 0:open 10:half_open 10:closed"}, r.lines())
	require.NoError(t, r.set.Apply(toolset.Config{}))
	require.Empty(t, r.lines())
	r.clock.Add(time.Minute)
	require.NoError(t, r.set.Apply(weather))
	r.call("weather", nil)
	r.clock.Add(time.Second)
	got := r.lines()
	require.Len(t, got, 1)
	require.True(t, strings.HasSuffix(got[0], ":closed"), got[0])
}

// A page shows the latest 32 of a circuit, and a History keeps the latest 4096 of all.
func TestHistoryIsBounded(t *testing.T) {
	r := withHistory(t, toolset.Config{Monitored: []string{"weather", "mail"}})
	r.trip("mail")
	for range 20 {
		r.trip("weather")
		require.NoError(t, r.set.Reset("weather"))
		r.clock.Add(time.Second)
	}
	require.Equal(t, []string{
		"mail 0:open 10:half_open",
		"weather 4:open 4:closed 5:open 5:closed 6:open 6:closed 7:open 7:closed 8:open 8:closed 9:open 9:closed" +
			" 10:open 10:closed 11:open 11:closed 12:open 12:closed 13:open 13:closed 14:open 14:closed" +
			" 15:open 15:closed 16:open 16:closed 17:open 17:closed 18:open 18:closed 19:open 19:closed",
	}, r.lines())
	for range 3000 {
		r.trip("weather")
		require.NoError(t, r.set.Reset("weather"))
	}
	r.page = debugpage.Handler(r.set, debugpage.Options{History: &r.history, Now: r.clock.Now})
	require.Equal(t, "mail 20:half_open?", r.lines()[0], "what the snapshot still has")
	require.NoError(t, r.set.Reset("mail"))
	r.page = debugpage.Handler(r.set, debugpage.Options{History: &r.history})
	require.Equal(t, "mail 20:closed", r.lines()[0])
}
