package browsertest

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit/debugpage"
	"github.com/toolcircuit/toolcircuit/toolset"
)

var two = toolset.Config{Tools: map[string]toolset.Tool{"web_search": {Dependency: "search-api"}, "forecast": {Dependency: "weather"}}}

// A change of state appears without a reload, and a screen reader is told.
func TestChangeAppears(t *testing.T) {
	r := newRig(t, two, debugpage.Options{})
	r.open(1280, "light")
	require.Contains(t, r.row("weather"), "closed")
	eval[bool](r, `window.same = true`)
	r.fail("forecast", 3, errDown)
	r.shows("weather", "open")
	r.shows("weather", "unavailable")
	r.until(`document.getElementById("news").innerText === "weather is open"`)
	require.Equal(t, "weather", r.text("#rows tr:first-child .name"), "what is open goes to the top")
	require.Equal(t, "1 open: Circuits", eval[string](r, "document.title"))
	r.clock.Add(45 * time.Second)
	r.shows("weather", "half-open")
	r.call(context.Background(), "forecast", 0, nil)
	r.shows("weather", "closed")
	require.NoError(t, r.set.Apply(toolset.Config{Monitored: []string{"forecast"}}))
	r.until(`document.querySelectorAll("#rows tr").length === 0`)
	require.True(t, eval[bool](r, `window.same`), "the page was not loaded again")
}

// The countdown runs between messages, with the clock of the Set.
func TestCountdown(t *testing.T) {
	r := newRig(t, two, debugpage.Options{})
	r.fail("forecast", 3, errDown)
	r.open(1280, "light")
	r.shows("weather", "at 14:05:45")
	const count = `document.querySelector("#rows tr .count").innerText`
	require.Regexp(t, `^0:4\d$`, eval[string](r, count))
	r.until(count + ` === "0:42"`)
	r.until(count + ` === "0:41"`)
	r.clock.Add(30 * time.Second)
	r.call(context.Background(), "forecast", 0, nil) // is refused, which makes a message
	r.until(count + ` === "0:14"`)
}

// What operators do on the page happens, and shows.
func TestControls(t *testing.T) {
	r := newRig(t, two, debugpage.Options{Authorize: anyone})
	r.open(1280, "light")
	r.click("weather")
	r.click("Force open")
	r.until(`document.getElementById("outcome").innerText === "Force open: done"`)
	r.shows("weather", "forced open")
	require.Equal(t, "open", string(r.set.Snapshot().Circuits[1].Override))
	r.click("Let all through")
	r.shows("weather", "lets all through")
	r.until(`document.querySelector('[data-action="none"]').checkVisibility()`)
	r.click("Lift the override")
	r.until(`!document.querySelector('[data-action="none"]').checkVisibility()`)
	require.Empty(t, r.set.Snapshot().Circuits[1].Override)
	r.fail("forecast", 3, errDown)
	r.shows("weather", "open")
	r.click("Reset")
	r.shows("weather", "closed")
	require.Equal(t, "closed", string(r.set.Snapshot().Circuits[1].State))
}

// They are absent where they are off, or not for this viewer.
func TestNoControls(t *testing.T) {
	for name, o := range map[string]debugpage.Options{
		"off":            {},
		"not authorized": {Authorize: func(*http.Request) bool { return false }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, two, o)
			r.open(1280, "light")
			r.click("weather")
			r.until(`document.getElementById("facts").innerText.includes("closed")`)
			require.Equal(t, []string{"✕"}, eval[[]string](r, `[...document.querySelectorAll("dialog button")].filter((b) => b.checkVisibility()).map((b) => b.innerText)`))
		})
	}
}

// An action that is refused says so. The browser notes the 403 as an error.
func TestControlRefused(t *testing.T) {
	allowed := make(chan bool, 1)
	allowed <- true
	r := newRig(t, two, debugpage.Options{Authorize: func(*http.Request) bool {
		select {
		case <-allowed:
			return true
		default:
			return false
		}
	}})
	r.open(1280, "light")
	r.click("weather")
	r.click("Force open")
	r.until(`document.getElementById("outcome").innerText === "Force open: not authorized"`)
	require.Len(t, r.reported(), 1)
	require.Empty(t, r.set.Snapshot().Circuits[1].Override)
}

// Names are texts, whatever they hold.
func TestNamesAreText(t *testing.T) {
	const evil = `<script>alert(1)</script>`
	const image = `"><img src=x onerror=alert(2)>`
	r := newRig(t, toolset.Config{
		Dependencies: map[string]toolset.Dependency{evil: {Scoped: true}},
		Tools:        map[string]toolset.Tool{image: {Dependency: evil}},
	}, debugpage.Options{ShowScopes: true, Authorize: anyone})
	r.call(toolset.WithScope(context.Background(), `<svg onload=alert(3)>`), image, 0, errDown)
	r.open(1280, "light")
	require.Equal(t, evil, r.text("#rows .name"))
	require.Contains(t, r.row(evil), image)
	require.Contains(t, r.row(evil), "scope <svg onload=alert(3)>")
	r.click(evil)
	r.until(`document.getElementById("tools").innerText.includes("onerror")`)
	r.click("Force open")
	r.shows(evil, "forced open")
	require.Zero(t, eval[int](r, `document.querySelectorAll("main script, main img, dialog img, svg svg").length`))
}

// Everything can be done with the keyboard, and the focus stays where it was when rows move.
func TestKeyboard(t *testing.T) {
	r := newRig(t, two, debugpage.Options{Authorize: anyone})
	r.open(1280, "light")
	var visited []string
	for range 9 {
		r.do(chromedp.KeyEvent(kb.Tab))
		visited = append(visited, eval[string](r, `(e => e.id || e.dataset.filter || e.innerText || e.tagName)(document.activeElement)`))
	}
	require.Equal(t, []string{"Skip to the circuits", "all", "open", "half_open", "closed", "forced", "search", "search-api", "weather"}, visited)
	r.fail("forecast", 3, errDown)
	r.shows("weather", "open")
	require.Equal(t, "weather", r.text("#rows tr:first-child .name"))
	require.Equal(t, "weather", eval[string](r, `document.activeElement.innerText`), "the focus moves with its row")
	r.do(chromedp.KeyEvent(kb.Enter))
	r.until(`document.getElementById("detail").open && document.getElementById("detail").contains(document.activeElement)`)
	r.do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(" "))
	r.shows("weather", "forced open")
	r.do(chromedp.KeyEvent(kb.Escape))
	r.until(`!document.getElementById("detail").open`)
	require.Equal(t, "weather", eval[string](r, `document.activeElement.innerText`))
}

// Among a thousand circuits one is found by name, tool or cause, or by its state.
func TestSearch(t *testing.T) {
	c := toolset.Config{Tools: map[string]toolset.Tool{}}
	for i := range 1000 {
		c.Tools[fmt.Sprintf("tool-%03d", i)] = toolset.Tool{Dependency: fmt.Sprintf("dependency-%03d", i)}
	}
	r := newRig(t, c, debugpage.Options{})
	r.fail("tool-777", 3, errDown)
	r.open(1280, "light")
	rows := func() int { return eval[int](r, `document.querySelectorAll("#rows tr").length`) }
	find := func(text string) {
		eval[bool](r, fmt.Sprintf(`{const s = document.getElementById("search"); s.value = %q; s.dispatchEvent(new Event("input"))}`, text))
	}
	require.Equal(t, 300, rows())
	require.Equal(t, "dependency-777", r.text("#rows tr:first-child .name"))
	require.Equal(t, "300 of 1,000 are shown.", r.text("#shown"))
	r.click("Show more")
	require.Equal(t, 600, rows())
	find("tool-12")
	require.Equal(t, 10, rows())
	find("Unavail")
	require.Equal(t, 1, rows())
	find("nothing of the kind")
	require.Equal(t, 0, rows())
	require.Equal(t, "No circuit matches.", r.text("#empty"))
	find("")
	r.click("1\nopen")
	require.Equal(t, 1, rows())
	require.Equal(t, "true", eval[string](r, `document.querySelector('[data-filter="open"]').ariaPressed`))
}
