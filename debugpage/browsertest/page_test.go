package browsertest

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/debugpage"
	"github.com/toolcircuit/toolcircuit/toolset"
)

var (
	screenshots = flag.String("screenshots", "", "a directory to write pictures of the page to")
	update      = flag.Bool("update", false, "make the picture of the README anew")
)

// agent is the config of the Set in the pictures.
func agent() toolset.Config {
	return toolset.Config{
		Dependencies: map[string]toolset.Dependency{
			"search-api":   {MaxInFlight: 8},
			"vector-store": {Scoped: true},
			"weather-api":  {Policy: &toolcircuit.Policy{FailureRate: 0.5, MinCalls: 10, Cooldown: 2 * time.Minute}},
		},
		Tools: map[string]toolset.Tool{
			"web_search":  {Dependency: "search-api"},
			"news_search": {Dependency: "search-api"},
			"recall":      {Dependency: "vector-store"},
			"forecast":    {Dependency: "weather-api"},
			"refund":      {Dependency: "payments"},
			"run_query":   {Dependency: "postgres"},
			"open_issue":  {Dependency: "github"},
			"read_file":   {Dependency: "github"},
			"find_slot":   {Dependency: "calendar"},
		},
		Hide: toolset.HideOpen,
	}
}

// live makes the circuits of agent look as on a bad day.
func (r *rig) live() {
	ann := toolset.WithScope(context.Background(), "ann")
	for range 40 {
		r.call(context.Background(), "forecast", time.Second, nil)
	}
	r.fail("refund", 3, errDown)
	r.call(ann, "recall", 0, nil)
	r.clock.Add(45 * time.Second)
	r.fail("refund", 1, errDown)
	r.fail("web_search", 3, &toolcircuit.HTTPError{StatusCode: http.StatusServiceUnavailable})
	r.clock.Add(time.Minute)
	r.fail("refund", 1, nil)
	r.fail("web_search", 1, errDown)
	for range 30 {
		r.call(context.Background(), "forecast", time.Second, toolcircuit.Fault(context.DeadlineExceeded))
	}
	r.clock.Add(2 * time.Minute)
	r.fail("web_search", 1, errDown)
	r.fail("run_query", 5, fmt.Errorf("no rule knows this"))
	r.fail("find_slot", 2, errDown)
	for range 3 {
		r.call(ann, "recall", 0, errDown)
	}
	r.call(toolset.WithScope(context.Background(), "bob"), "recall", 0, nil)
	r.clock.Add(10 * time.Second)
	r.fail("news_search", 128, nil)
	r.fail("open_issue", 1, &toolcircuit.HTTPError{StatusCode: http.StatusTooManyRequests, RetryAfter: 9 * time.Minute})
	r.call(ann, "recall", 0, nil)
	require.NoError(r, r.set.SetOverride("refund", toolcircuit.OverrideOpen))
	r.fail("refund", 2, nil)
	r.clock.Add(5 * time.Second)
}

// picture writes a picture of the whole page, if that is asked for.
func (r *rig) picture(name string) {
	if *screenshots == "" {
		return
	}
	shot, err := chromedp.Run(r.ctx, chromedp.FullScreenshot(100))
	require.NoError(r, err)
	require.NoError(r, os.WriteFile(filepath.Join(*screenshots, name+".png"), shot, 0o644))
}

// Light and dark, wide and narrow: axe finds nothing serious, and nothing is cut off.
func TestLooks(t *testing.T) {
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{360, 768, 1030, 1280} {
			t.Run(fmt.Sprint(scheme, width), func(t *testing.T) {
				r := newRig(t, agent(), debugpage.Options{Authorize: anyone})
				r.live()
				r.open(width, scheme)
				r.picture(fmt.Sprint(scheme, width))
				r.accessible()
				r.uncut()
				r.click("search-api")
				r.picture(fmt.Sprint(scheme, width, "detail"))
				r.accessible()
				r.uncut()
			})
		}
	}
}

// uncut checks that nothing reaches beyond the window or its own box.
func (r *rig) uncut() {
	r.Helper()
	require.Empty(r, eval[[]string](r, `[...document.querySelectorAll("body *")]
		.filter((e) => e.checkVisibility() && !e.closest(".unseen, .skip, thead, svg, .track"))
		.filter((e) => {
			const box = e.getBoundingClientRect();
			const clipped = getComputedStyle(e).overflowX !== "visible" && e.scrollWidth > e.clientWidth + 1;
			return clipped || box.left < -1 || box.right > document.documentElement.clientWidth + 1;
		})
		.map((e) => e.outerHTML.slice(0, 200))`))
	require.LessOrEqual(r, eval[int](r, `document.documentElement.scrollWidth`), eval[int](r, `document.documentElement.clientWidth`))
}

func anyone(*http.Request) bool { return true }

// The picture of the README shows the page as it is wide, and is small. With -update it is made
// anew.
func TestPicture(t *testing.T) {
	const file, width = "../page.png", 1100
	if *update {
		r := newRig(t, agent(), debugpage.Options{ShowScopes: true})
		r.live()
		r.open(width, "light")
		eval[string](r, `document.getElementById("host").textContent = "agents.example"`)
		shot, err := chromedp.Run(r.ctx, chromedp.FullScreenshot(100))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, shot, 0o644))
	}
	data, err := os.ReadFile(file)
	require.NoError(t, err, "go test -run TestPicture -update")
	require.Less(t, len(data), 150_000)
	picture, err := png.DecodeConfig(bytes.NewReader(data))
	require.NoError(t, err)
	require.Equal(t, width, picture.Width)
}
