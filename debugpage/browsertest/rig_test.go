// Package browsertest tests the page of debugpage in a real Chromium. It is a module of its own,
// which nobody imports.
//
// It needs chromium, and axe-core from npm:
//
//	apt-get install chromium nodejs npm
//	npm ci --ignore-scripts
//
// Where one is missing the tests are skipped. With CI=true that is an error.
package browsertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/debugpage"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// missing ends a test that needs what is not installed.
func missing(t testing.TB, what string) {
	if os.Getenv("CI") == "true" {
		t.Fatal("not installed: " + what)
	}
	t.Skip("not installed: " + what)
}

var browser = sync.OnceValues(func() (context.Context, error) {
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		return nil, exec.ErrNotFound
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.Env("TZ=UTC", "LANG=en_US.UTF-8"),
		chromedp.Flag("font-render-hinting", "none"),
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // which root cannot have
	}
	ctx, _ := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ = chromedp.NewContext(ctx)
	stop = func() { chromedp.Cancel(ctx) }
	return ctx, chromedp.Do(ctx)
})

var stop = func() {}

func TestMain(m *testing.M) {
	code := m.Run()
	stop() // ends the browser
	os.Exit(code)
}

// rig is a Set, its page, and a tab that shows it.
type rig struct {
	testing.TB
	ctx     context.Context
	clock   *clock.Mock
	set     *toolset.Set
	history debugpage.History
	url     string
	flushes atomic.Bool // the server can

	mu       sync.Mutex
	problems []string // that the browser reported
}

// start of the clock of each rig.
var start = time.Date(2026, 11, 29, 14, 5, 0, 0, time.UTC)

func newRig(t testing.TB, c toolset.Config, o debugpage.Options) *rig {
	parent, err := browser()
	if errors.Is(err, exec.ErrNotFound) {
		missing(t, "chromium")
	}
	require.NoError(t, err)
	r := &rig{TB: t, clock: clock.NewMock()}
	r.clock.Set(start)
	if c.Default == nil {
		c.Default = &toolcircuit.Policy{FailureThreshold: 3, Cooldown: 45 * time.Second}
	}
	r.set, err = toolset.New(c, toolset.Options{Clock: r.clock, OnEvent: r.history.OnEvent})
	require.NoError(t, err)
	o.Now, o.History = r.clock.Now, &r.history
	mux := http.NewServeMux()
	r.flushes.Store(true)
	handler := debugpage.Handler(r.set, o)
	mux.HandleFunc("/debug/circuits/", func(w http.ResponseWriter, req *http.Request) {
		if !r.flushes.Load() {
			w = struct{ http.ResponseWriter }{w}
		}
		handler.ServeHTTP(w, req)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	r.url = server.URL + "/debug/circuits/"

	ctx, cancel := chromedp.NewContext(parent)
	t.Cleanup(cancel) // closes the tab before the server
	r.ctx, cancel = context.WithTimeout(ctx, time.Minute)
	t.Cleanup(cancel)
	r.do()
	require.NoError(t, chromedp.Listen(r.ctx, r.hear))
	t.Cleanup(func() {
		require.Empty(t, r.reported(), "what the browser reported")
	})
	_, err = chromedp.Call(r.ctx, log.Enable, cdp.Empty{})
	require.NoError(t, err)
	_, err = chromedp.Call(r.ctx, network.Enable, network.EnableParams{})
	require.NoError(t, err)
	return r
}

// hear notes what must not happen on the page.
func (r *rig) hear(event any) {
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		r.problem("console: %s %+v", e.Type, e.Args)
	case *runtime.EventExceptionThrown:
		r.problem("exception: %+v", e.ExceptionDetails)
	case *log.EventEntryAdded:
		r.problem("log: %s %s", e.Entry.Level, e.Entry.Text)
	case *page.EventJavascriptDialogOpening:
		r.problem("a dialog: %s", e.Message)
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, r.url) {
			r.problem("a request to %s", e.Request.URL)
		}
	}
}

func (r *rig) problem(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// reported returns what the browser has reported, and forgets it.
func (r *rig) reported() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.problems
	r.problems = nil
	return all
}

func (r *rig) do(steps ...chromedp.Action[chromedp.Void]) {
	r.Helper()
	require.NoError(r, chromedp.Do(r.ctx, steps...))
}

// open shows the page, in a window of that width.
func (r *rig) open(width int64, scheme string) {
	r.Helper()
	r.load(width, scheme)
	r.until(`document.getElementById("link").textContent === "live" && rows.size > 0`)
}

// load is open for a page that need not become live.
func (r *rig) load(width int64, scheme string) {
	r.Helper()
	_, err := chromedp.Call(r.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme},
		{Name: "prefers-reduced-motion", Value: "reduce"},
	}})
	require.NoError(r, err)
	r.do(chromedp.EmulateViewport(width, 800), chromedp.Navigate(r.url))
}

// until waits until an expression is true on the page.
func (r *rig) until(expression string) {
	r.Helper()
	_, err := chromedp.Run(r.ctx, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(15*time.Second)))
	if err != nil {
		require.NoErrorf(r, err, "%s; the page says: %s", expression, r.text("body"))
	}
}

// eval returns what an expression is on the page.
func eval[T any](r *rig, expression string) T {
	r.Helper()
	value, err := chromedp.Run(r.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(r, err, expression)
	return value
}

// text returns what an element shows.
func (r *rig) text(selector string) string {
	r.Helper()
	return eval[string](r, fmt.Sprintf("document.querySelector(%q).innerText", selector))
}

// row returns what the row of a dependency shows.
func (r *rig) row(dependency string) string {
	r.Helper()
	return eval[string](r, rowText(dependency))
}

// click presses the button of that name, the first that is shown.
func (r *rig) click(name string) {
	r.Helper()
	const script = `[...document.querySelectorAll("button")].find((b) => b.checkVisibility() && (b.ariaLabel || b.innerText) === %q).click()`
	_, err := chromedp.Run(r.ctx, chromedp.Evaluate[chromedp.Void](fmt.Sprintf(script, name)))
	require.NoError(r, err, name)
}

// shows waits until the row of a dependency has some text.
func (r *rig) shows(dependency, text string) {
	r.Helper()
	r.until(fmt.Sprintf("(%s).includes(%q)", rowText(dependency), text))
}

func rowText(dependency string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#rows tr")].find((e) => e.querySelector(".name").innerText === %q)?.innerText ?? ""`, dependency)
}

// call makes one call of a tool, which takes some time.
func (r *rig) call(ctx context.Context, tool string, took time.Duration, err error) {
	toolset.Do(ctx, r.set, tool, nil, func(context.Context) (int, error) {
		r.clock.Add(took)
		return 0, err
	})
}

// fail makes n calls of a tool fail with err.
func (r *rig) fail(tool string, n int, err error) {
	for range n {
		r.call(context.Background(), tool, 0, err)
	}
}

var errDown = toolcircuit.Fault(errors.New("down"))

// violation is a finding of axe.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML, FailureSummary string }
}

// accessible checks that axe finds nothing serious.
func (r *rig) accessible() {
	r.Helper()
	source, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		missing(r, "axe-core: npm ci --ignore-scripts")
	}
	_, err = chromedp.Run(r.ctx, chromedp.Evaluate[chromedp.Void](string(source)))
	require.NoError(r, err)
	var found []violation
	require.NoError(r, json.Unmarshal([]byte(eval[string](r, `axe.run().then((r) => JSON.stringify(r.violations))`)), &found))
	for _, v := range found {
		if v.Impact == "serious" || v.Impact == "critical" {
			r.Errorf("%s: %s: %s: %+v", v.Impact, v.ID, v.Help, v.Nodes)
		} else {
			r.Logf("%s: %s: %s: %+v", v.Impact, v.ID, v.Help, v.Nodes)
		}
	}
}
