package browsertest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/debugpage"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// label is what a screen reader hears of the first row's timeline.
const label = `document.querySelector("#rows svg").ariaLabel`

// fact returns a script for what the dialog lists under a name.
func fact(name string) string {
	return `([...document.querySelectorAll("#facts div")].find((e) => e.firstChild.innerText === "` + name + `")?.lastChild.innerText ?? "")`
}

// A stream that has been silent is live again with its next message.
func TestLiveAgain(t *testing.T) {
	r := newRig(t, two, debugpage.Options{})
	r.open(1280, "light")
	eval[int](r, `heard = Date.now() - 44_000`)
	r.until(`document.getElementById("link").innerText.startsWith("no news for 4")`)
	r.fail("forecast", 3, errDown)
	r.shows("weather", "open")
	r.until(`document.getElementById("link").innerText === "live" && document.getElementById("link").dataset.link === "live"`)
}

// A server that cannot stream is no riddle. The browser notes each 500 as an error.
func TestReasonWithoutStream(t *testing.T) {
	r := newRig(t, two, debugpage.Options{})
	r.flushes.Store(false)
	r.load(360, "light")
	r.until(`document.getElementById("reason").innerText === "500 events: a middleware of this server hides Flush, which a stream needs"`)
	r.picture("reason")
	r.accessible()
	r.uncut()
	require.Equal(t, "connection lost, trying again", r.text("#link"))
	r.flushes.Store(true)
	r.until(`document.getElementById("link").innerText === "live" && !document.getElementById("reason").checkVisibility()`)
	for _, problem := range r.reported() {
		require.Contains(t, problem, "500")
	}
}

// A dialog whose circuit goes says so, has no controls any more, and is back with its circuit.
func TestDialogOfACircuitThatGoes(t *testing.T) {
	r := newRig(t, two, debugpage.Options{Authorize: anyone})
	config := r.set.Config()
	r.open(1280, "light")
	r.click("weather")
	r.until(`document.getElementById("controls").checkVisibility()`)
	require.False(t, eval[bool](r, `document.getElementById("gone").checkVisibility()`))
	require.NoError(t, r.set.Apply(toolset.Config{}))
	r.until(`document.getElementById("gone").checkVisibility() && !document.getElementById("controls").checkVisibility()`)
	require.Equal(t, "weather", r.text("#name"))
	r.picture("gone")
	r.accessible()
	require.NoError(t, r.set.Apply(config))
	r.fail("forecast", 1, nil)
	r.until(`!document.getElementById("gone").checkVisibility() && document.getElementById("controls").checkVisibility()`)
}

// The dialog ages and counts down as the row does, and leaves a selection alone.
func TestDialogCountdown(t *testing.T) {
	r := newRig(t, two, debugpage.Options{})
	r.fail("forecast", 3, errDown)
	r.open(1280, "light")
	r.click("weather")
	r.until(`/^0:\d\d, at 14:05:45$/.test(` + fact("Tries again in") + `)`)
	eval[bool](r, `window.same = document.querySelector("#facts dd"), true`)
	for _, name := range []string{"Tries again in", "Since"} {
		before := eval[string](r, fact(name))
		r.until(fmt.Sprintf("%s !== %q", fact(name), before))
	}
	require.True(t, eval[bool](r, `same === document.querySelector("#facts dd")`))
}

// A circuit is half-open since the end of its wait, in the row, its timeline and the dialog.
func TestHalfOpenAgrees(t *testing.T) {
	r := newRig(t, two, debugpage.Options{})
	r.fail("forecast", 3, errDown)
	r.open(1280, "light")
	r.shows("weather", "open")
	r.clock.Add(56 * time.Second)
	r.shows("weather", "half-open")
	r.until("(" + rowText("weather") + `).includes("for 11 s")`)
	r.click("weather")
	require.Contains(t, eval[string](r, label), "half-open since 14:05:45")
	require.Regexp(t, `^14:05:45, 1\d s$`, eval[string](r, fact("Since")))
	require.InDelta(t, 45, eval[float64](r, `document.querySelector("#rows svg .open").width.baseVal.value`), 1)
	require.InDelta(t, 11, eval[float64](r, `document.querySelector("#rows svg .half_open").width.baseVal.value`), 6)
	require.Equal(t, "14:05:45\thalf-open\n14:05:00\topen", eval[string](r,
		`[...document.querySelectorAll("#transitions li")].map((e) => e.children[0].innerText + "\t" + e.children[1].innerText).join("\n")`))

	half := make(chan error)
	defer close(half)
	go toolset.Do(context.Background(), r.set, "forecast", nil, func(context.Context) (int, error) { return 0, <-half })
	r.shows("weather", "the probe is running")
	require.Contains(t, eval[string](r, label), "half-open since 14:05:45")
	half <- errors.New("no rule knows this")
}

// What nobody knows is not shown: what was before the first thing heard, since when a circuit is
// half-open whose opening nobody saw, and since when it is overridden.
func TestUnknown(t *testing.T) {
	r := newRig(t, two, debugpage.Options{})
	r.fail("forecast", 3, errDown)
	r.clock.Add(5 * time.Second)
	r.open(1280, "light")
	require.Equal(t, 0, eval[int](r, `document.querySelectorAll("#rows tr:first-child svg .closed").length`))
	require.Equal(t, "opened 1 time in the last 10 minutes, open since 14:05:00", eval[string](r, label))

	require.NoError(t, r.set.SetOverride("forecast", toolcircuit.OverrideClosed))
	r.shows("weather", "lets all through")
	require.NotContains(t, r.row("weather"), "for ")
	r.until(label + ` === "opened 1 time in the last 10 minutes, lets all through"`)
	r.click("weather")
	require.Empty(t, eval[string](r, fact("Since")))
}

func TestHalfOpenSeenLate(t *testing.T) {
	r := newRig(t, two, debugpage.Options{})
	r.fail("forecast", 3, errDown)
	r.history = debugpage.History{} // as without one
	r.clock.Add(time.Minute)
	r.open(1280, "light")
	r.shows("weather", "for at least ")
	require.Equal(t, "no known opening in the last 10 minutes, half-open since 14:06:00 or before", eval[string](r, label))
	r.click("weather")
	require.Contains(t, r.text("#transitions"), "or before")
}

// A name that cannot be seen, or not be sent as it is, shows, and its circuit can be controlled.
func TestOddNames(t *testing.T) {
	r := newRig(t, toolset.Config{Monitored: []string{"*"}}, debugpage.Options{Authorize: anyone})
	r.fail("bad\xff", 1, nil)
	r.fail(" \u200b", 1, nil)
	r.open(1280, "light")
	for _, name := range []string{"bad\uFFFD", "(blank)"} {
		r.click(name)
		r.until(`document.getElementById("controls").checkVisibility()`)
		r.click("Force open")
		r.shows(name, "forced open")
		r.click("Close")
	}
	for _, c := range r.set.Snapshot().Circuits {
		require.Equal(t, toolcircuit.OverrideOpen, c.Override)
	}
}
