package debugpage_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/debugpage"
	"github.com/toolcircuit/toolcircuit/toolset"
)

var errDown = toolcircuit.Fault(errors.New("down"))

// rig is a Set with a mock clock, and its page.
type rig struct {
	testing.TB
	clock   *clock.Mock
	set     *toolset.Set
	history debugpage.History
	page    http.Handler
}

// newRig returns a Set whose circuits open at the second failure for ten seconds.
func newRig(t testing.TB, c toolset.Config, o debugpage.Options) *rig {
	r := &rig{TB: t, clock: clock.NewMock()}
	if c.Default == nil {
		c.Default = &toolcircuit.Policy{FailureThreshold: 2}
	}
	var err error
	r.set, err = toolset.New(c, toolset.Options{Clock: r.clock, OnEvent: r.history.OnEvent})
	require.NoError(t, err)
	o.Now = r.clock.Now
	r.page = debugpage.Handler(r.set, o)
	return r
}

func (r *rig) call(tool string, err error) { r.callAs("", tool, err) }

func (r *rig) callAs(scope, tool string, err error) {
	toolset.Do(toolset.WithScope(context.Background(), scope), r.set, tool, nil, func(context.Context) (int, error) { return 0, err })
}

// trip opens the circuit of a tool.
func (r *rig) trip(tool string) {
	r.call(tool, errDown)
	r.call(tool, errDown)
}

// get returns the answer to a GET.
func (r *rig) get(path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// sheet is the part of the JSON that tests look at.
type sheet struct {
	Now      time.Time
	Changes  bool
	Disabled bool
	Circuits []struct {
		ID, Dependency, State, Scope, Override string
		Since                                  time.Time
		Seq                                    int
		Threshold                              int
		Timeline                               []struct {
			At    time.Time
			State string
			Seen  bool
		}
	}
	Gone []string
}

// circuits returns the JSON of the page.
func (r *rig) circuits() (s sheet) {
	w := r.get("/circuits")
	require.Equal(r, http.StatusOK, w.Code)
	require.NoError(r, json.Unmarshal(w.Body.Bytes(), &s))
	return s
}

// states returns the state of each dependency.
func (s sheet) states() map[string]string {
	states := map[string]string{}
	for _, c := range s.Circuits {
		states[c.Dependency] = c.State
	}
	return states
}

func TestJSON(t *testing.T) {
	r := newRig(t, toolset.Config{
		Tools: map[string]toolset.Tool{"web_search": {Dependency: "search-api"}, "news": {Dependency: "search-api"}},
		Hide:  toolset.HideOpen,
	}, debugpage.Options{})
	r.clock.Add(time.Minute)
	r.trip("web_search")
	r.call("news", nil)
	r.clock.Add(time.Second)
	w := r.get("/debug/circuits/circuits")
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	id := r.circuits().Circuits[0].ID
	require.Regexp(t, `^[a-z2-7]{16}$`, id)
	require.JSONEq(t, `{
		"now": "1970-01-01T00:01:01Z", "disabled": false, "forgotten": 0, "hookPanics": 0,
		"circuits": [{
			"id": "`+id+`", "dependency": "search-api", "tools": ["news", "web_search"], "hidden": true,
			"state": "open", "since": "1970-01-01T00:01:00Z", "retryAt": "1970-01-01T00:01:10Z", "seq": 1, "openings": 1,
			"rule": "threshold", "cause": "unavailable", "streak": 0, "window": {"calls": 0, "failures": 0},
			"refused": 1, "unclassified": 0, "stale": 0, "hookPanics": 0, "inFlight": 0, "busy": 0,
			"policy": {"failureThreshold": 2}, "threshold": 2,
			"timeline": [{"at": "1970-01-01T00:01:00Z", "state": "open"}]
		}]
	}`, w.Body.String())
}

// The page is found below any prefix.
func TestMounted(t *testing.T) {
	r := newRig(t, toolset.Config{}, debugpage.Options{})
	mux := http.NewServeMux()
	mux.Handle("/debug/circuits/", r.page)
	mux.Handle("/circuits/", r.page)
	mux.Handle("/stripped/", http.StripPrefix("/stripped/", r.page))
	mux.Handle("/bare/", http.StripPrefix("/bare", r.page))
	mux.Handle("/exact", http.StripPrefix("/exact", r.page))
	inner := http.NewServeMux()
	inner.Handle("/circuits/", r.page)
	mux.Handle("/inner/", http.StripPrefix("/inner", inner))
	mux.Handle("GET /of/{tenant}/{path...}", r.page)
	mux.HandleFunc("/foreign/", func(w http.ResponseWriter, req *http.Request) {
		req.Pattern = "" // as under another router
		r.page.ServeHTTP(w, req)
	})
	for path, want := range map[string]struct {
		code    int
		content string // type, or where to
	}{
		"/debug/circuits/":           {200, "text/html; charset=utf-8"},
		"/debug/circuits/page.css":   {200, "text/css; charset=utf-8"},
		"/debug/circuits/page.js":    {200, "text/javascript; charset=utf-8"},
		"/debug/circuits/format.js":  {200, "text/javascript; charset=utf-8"},
		"/debug/circuits/icon.svg":   {200, "image/svg+xml"},
		"/debug/circuits/circuits":   {200, "application/json"},
		"/debug/circuits/index.html": {200, "text/html; charset=utf-8"},
		"/debug/circuits/other":      {404, ""},
		"/debug/circuits/control":    {404, ""},
		"/debug/circuits/page":       {404, ""},
		"/circuits/":                 {200, "text/html; charset=utf-8"},
		"/circuits/circuits":         {200, "application/json"},
		"/stripped/circuits":         {200, "application/json"},
		"/bare/":                     {200, "text/html; charset=utf-8"},
		"/bare/page.css":             {200, "text/css; charset=utf-8"},
		"/exact":                     {308, "./exact/"},
		"/stripped/":                 {200, "text/html; charset=utf-8"},
		"/stripped/page.css":         {200, "text/css; charset=utf-8"},
		"/stripped/events":           {200, "text/event-stream"},
		"/inner/circuits/":           {200, "text/html; charset=utf-8"},
		"/inner/circuits/circuits":   {200, "application/json"},
		"/of/ann/circuits":           {200, "application/json"},
		"/foreign/any/circuits":      {200, "application/json"},

		"/debug/circuits/a/b/circuits": {404, ""},
		"/debug/circuits/circuits/":    {404, ""},
		"/debug/circuits/page/":        {404, ""},
		"/circuits/circuits/":          {404, ""},
		"/circuits/circuits/circuits":  {404, ""},
		"/stripped/a/circuits":         {404, ""},
		"/stripped/circuits/":          {404, ""},
		"/of/ann/b/circuits":           {404, ""},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			w := httptest.NewRecorder()
			ctx, leave := context.WithCancel(context.Background())
			leave() // the stream
			mux.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path+"?q=1", nil))
			require.Equal(t, want.code, w.Code, path)
			switch want.code {
			case 200:
				require.Equal(t, want.content, w.Header().Get("Content-Type"), path)
			case 308:
				require.Equal(t, want.content, w.Header().Get("Location"), path)
			}
		}
	}
}

// Every answer has the headers that keep the page to itself, and no file needs more than they allow.
func TestHeaders(t *testing.T) {
	r := newRig(t, toolset.Config{}, debugpage.Options{})
	for _, path := range []string{"/", "/circuits", "/page.js", "/nowhere"} {
		h := r.get(path).Header()
		require.Contains(t, h.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; style-src 'self';")
		require.NotContains(t, h.Get("Content-Security-Policy"), "unsafe")
		require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
		require.Equal(t, "no-store", h.Get("Cache-Control"))
		require.Equal(t, "same-origin", h.Get("Cross-Origin-Resource-Policy"))
	}
	html := r.get("/").Body.String()
	require.NotContains(t, html, "style=")
	require.NotContains(t, html, "://")
	require.NotRegexp(t, `<script(>| [^>]*>[^<])|\son[a-z]+=`, html)
	for _, path := range []string{"/page.js", "/format.js"} {
		require.NotRegexp(t, `innerHTML|outerHTML|insertAdjacentHTML|eval\(|https?://[^w]`, r.get(path).Body.String())
	}
}

func TestMethods(t *testing.T) {
	r := newRig(t, toolset.Config{}, debugpage.Options{Authorize: func(*http.Request) bool { return true }})
	for path, allowed := range map[string]string{"/": "GET, HEAD", "/circuits": "GET, HEAD", "/events": "GET, HEAD", "/page.js": "GET, HEAD", "/control": "POST"} {
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete} {
			if strings.Contains(allowed, method) {
				continue
			}
			w := httptest.NewRecorder()
			r.page.ServeHTTP(w, httptest.NewRequest(method, path, nil))
			require.Equal(t, http.StatusMethodNotAllowed, w.Code, method+path)
			require.Equal(t, allowed, w.Header().Get("Allow"))
		}
	}
	w := httptest.NewRecorder()
	r.page.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/nowhere", nil))
	require.Equal(t, http.StatusNotFound, w.Code)
}

// post asks for an action on the circuit of that id.
func (r *rig) post(id, action string, header ...string) *httptest.ResponseRecorder {
	form := url.Values{"id": {id}, "action": {action}}
	req := httptest.NewRequest(http.MethodPost, "http://ops.example/debug/circuits/control", strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	r.page.ServeHTTP(w, req)
	return w
}

func TestControls(t *testing.T) {
	c := toolset.Config{
		Dependencies: map[string]toolset.Dependency{"search-api": {Scoped: true}},
		Tools: map[string]toolset.Tool{
			"a_search":   {Dependency: "search-api"}, // excluded
			"web_search": {Dependency: "search-api"},
			"only":       {Dependency: "hidden-api"}, // excluded
		},
		Excluded:  []string{"a_search", "only"},
		Monitored: []string{"weather"},
	}
	operator := func(r *http.Request) bool { return r.Header.Get("Authorization") == "operator" }
	r := newRig(t, c, debugpage.Options{Authorize: operator})
	for _, scope := range []string{"ann", "bob"} {
		r.callAs(scope, "web_search", errDown)
		r.callAs(scope, "web_search", errDown)
	}
	r.call("weather", nil)
	ids := map[string]string{}
	for _, c := range r.circuits().Circuits {
		ids[c.Dependency] = c.ID
	}
	do := func(dependency, action string, header ...string) (int, string) {
		w := r.post(cmp.Or(ids[dependency], dependency), action, append(header, "Authorization", "operator")...)
		return w.Code, strings.TrimSpace(w.Body.String())
	}
	overrides := func() (all []string) {
		for _, c := range r.set.Snapshot().Circuits {
			all = append(all, string(c.State)+string(c.Override))
		}
		return all
	}
	for _, step := range []struct {
		dependency, action string
		header             []string
		code               int
		body               string
		want               []string
	}{
		{"search-api", "open", nil, 204, "", []string{"openopen", "openopen", "closed"}},
		{"search-api", "closed", nil, 204, "", []string{"openclosed", "openclosed", "closed"}},
		{"search-api", "reset", nil, 204, "", []string{"closedclosed", "closedclosed", "closed"}},
		{"search-api", "none", nil, 204, "", []string{"closed", "closed", "closed"}},
		{"weather", "open", []string{"Sec-Fetch-Site", "same-origin", "Origin", "http://ops.example"}, 204, "", []string{"closed", "closed", "closedopen"}},
		{"weather", "none", []string{"Sec-Fetch-Site", "cross-site"}, 403, "cross-origin request detected from Sec-Fetch-Site header", []string{"closed", "closed", "closedopen"}},
		{"weather", "none", []string{"Origin", "https://evil.example"}, 403, "cross-origin request detected, and/or browser is out of date: Sec-Fetch-Site is missing, and Origin does not match Host", []string{"closed", "closed", "closedopen"}},
		{"weather", "", nil, 400, `action: got "", want open, closed, none or reset`, []string{"closed", "closed", "closedopen"}},
		{"weather", "explode", nil, 400, `action: got "explode", want open, closed, none or reset`, []string{"closed", "closed", "closedopen"}},
		{"<script>", "open", nil, 404, `id: got "<script>", want that of a circuit whose tools are guarded`, []string{"closed", "closed", "closedopen"}},
		{"hidden-api", "open", nil, 404, `id: got "hidden-api", want that of a circuit whose tools are guarded`, []string{"closed", "closed", "closedopen"}},
		{"", "open", nil, 404, `id: got "", want that of a circuit whose tools are guarded`, []string{"closed", "closed", "closedopen"}},
	} {
		code, body := do(step.dependency, step.action, step.header...)
		require.Equal(t, step.code, code, body)
		require.Equal(t, step.body, body)
		require.Equal(t, step.want, overrides())
	}

	w := r.post("weather", "none", "Authorization", "visitor")
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Equal(t, "not authorized", strings.TrimSpace(w.Body.String()))
	require.Equal(t, []string{"closed", "closed", "closedopen"}, overrides())
}

// Nothing but the form counts, so that no link can carry an action out. One that is no such form is
// told so.
func TestForm(t *testing.T) {
	r := newRig(t, toolset.Config{Monitored: []string{"weather"}}, debugpage.Options{Authorize: func(*http.Request) bool { return true }})
	r.call("weather", nil)
	id := r.circuits().Circuits[0].ID
	const form = "application/x-www-form-urlencoded"
	for want, c := range map[string]struct {
		code int
		kind string
		body io.Reader
	}{
		`action: got "", want open, closed, none or reset`:                             {400, form, nil},
		`Content-Type: got "", want application/x-www-form-urlencoded`:                 {415, "", strings.NewReader("action=open&id=" + id)},
		`Content-Type: got "application/json", want application/x-www-form-urlencoded`: {415, "application/json; charset=utf-8", strings.NewReader("{}")},
		`the form: http: request body too large, want at most 65536 bytes`:             {413, form + "; charset=utf-8", io.LimitReader(endless{}, 1<<20)},
		`the form: invalid URL escape "%zz"`:                                           {400, form, strings.NewReader("action=%zz")},
	} {
		w := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodPost, "/control?action=open&id="+id, c.body)
		req.Header.Set("Content-Type", c.kind)
		r.page.ServeHTTP(w, req)
		require.Equal(t, c.code, w.Code)
		require.Equal(t, want, strings.TrimSpace(w.Body.String()))
	}
	require.Empty(t, r.circuits().Circuits[0].Override)
}

// A circuit can be controlled whatever the bytes of its name.
func TestControlsOfAnyName(t *testing.T) {
	names := []string{"bad\xff", "bad\xfe", " "}
	r := newRig(t, toolset.Config{Monitored: []string{"*"}}, debugpage.Options{Authorize: func(*http.Request) bool { return true }})
	for _, name := range names {
		r.call(name, nil)
	}
	ids := map[string]bool{}
	for _, c := range r.circuits().Circuits {
		require.Equal(t, http.StatusNoContent, r.post(c.ID, "open").Code)
		ids[c.ID] = true
	}
	require.Len(t, ids, len(names))
	for _, c := range r.set.Snapshot().Circuits {
		require.Equal(t, toolcircuit.OverrideOpen, c.Override, c.Dependency)
	}
}

// A panic of Authorize carries nothing out.
func TestAuthorizePanics(t *testing.T) {
	r := newRig(t, toolset.Config{Monitored: []string{"weather"}}, debugpage.Options{Authorize: func(*http.Request) bool { panic("a bug") }})
	r.call("weather", nil)
	id := r.circuits().Circuits[0].ID
	require.Panics(t, func() { r.post(id, "open") })
	require.Panics(t, func() { r.get("/events") })
	require.Empty(t, r.circuits().Circuits[0].Override)
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// A scope is a code, the same everywhere on a page and another on the next; its label is shown on
// demand.
func TestScopes(t *testing.T) {
	c := toolset.Config{
		Dependencies: map[string]toolset.Dependency{"search": {Scoped: true}, "mail": {Scoped: true}},
		Monitored:    []string{"search", "mail"},
	}
	scopes := func(o debugpage.Options) (all []string) {
		r := newRig(t, c, o)
		for _, scope := range []string{"ann", "bob", ""} {
			r.callAs(scope, "search", nil)
			r.callAs(scope, "mail", nil)
		}
		for _, c := range r.circuits().Circuits {
			all = append(all, c.Scope)
		}
		require.Len(t, all, 6)
		require.Equal(t, all[:3], all[3:], "of mail and of search")
		return all[:3]
	}
	require.Equal(t, []string{"", "ann", "bob"}, scopes(debugpage.Options{ShowScopes: true}))
	first, second := scopes(debugpage.Options{}), scopes(debugpage.Options{})
	require.Empty(t, first[0])
	require.Regexp(t, `^[a-z2-7]{8}$`, first[1])
	require.NotEqual(t, first[1], first[2])
	require.NotEqual(t, first[1], second[1])
}

func TestHandlerWithoutSet(t *testing.T) {
	require.PanicsWithValue(t, "debugpage: Handler: the Set is nil", func() { debugpage.Handler(nil, debugpage.Options{}) })
}
