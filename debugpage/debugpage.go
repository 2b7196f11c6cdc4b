// Package debugpage shows the circuits of a Set live: an HTML page, the same as JSON, and a stream
// of server-sent events.
//
//	http.Handle("/debug/circuits/", debugpage.Handler(set, debugpage.Options{}))
//
// Mount the handler at any pattern of an [http.ServeMux] that ends in a slash, with or without
// [http.StripPrefix]. Below it are the page itself, circuits (JSON), events (the stream) and, if
// Options.Authorize is set, control. Under a router that sets no Request.Pattern the last element
// of a path alone decides, whatever is before it.
//
// The stream needs a ResponseWriter that can flush. A middleware that wraps it must have a Flush or
// an Unwrap method, and [http.TimeoutHandler] must not be around the page. Otherwise events answers
// 500 with that reason, which the page shows.
//
// The page shows names of dependencies and tools, states, kinds, numbers and times. It has no text
// of an error, no argument, no result and no run id, and a scope's label only if Options.ShowScopes
// says so. A timeline is empty where nothing is known.
//
// Who may read it is the caller's to decide: put the handler behind your own authentication, or
// serve it on loopback alone. On loopback check the Host of each request, too, as
// examples/dashboard does. Otherwise any site that the operator visits can read the page, and use
// its controls, through a name of its own that it points at 127.0.0.1 (DNS rebinding).
//
// # Controls
//
// A POST to control takes a form (application/x-www-form-urlencoded, up to 64 KiB) of two fields:
// id is that of a circuit in the JSON, and action is one of
//
//	open    force open
//	closed  let all calls through
//	none    lift the override
//	reset   Set.Reset
//
// It acts on every circuit of the dependency, and answers 204. Any other answer says in plain text
// what is wrong.
//
//	curl -d id=k3xq6vdnbt5awz2m -d action=open http://127.0.0.1:8080/debug/circuits/control
package debugpage

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// Options change what the page shows and does. The zero value shows the present, read-only.
type Options struct {
	// History has the transitions for the timelines. Nil: they show only those that happen while
	// somebody watches.
	History *History
	// Authorize switches the controls on: force open, let through, reset. It reports whether a
	// request may use them. It is asked for each stream, to know whether the page shows
	// them, and for each use, after the check that the request comes from this page. It may be
	// called concurrently. A panic in it reaches the server, and nothing is carried out. Nil: no
	// controls.
	Authorize func(*http.Request) bool
	// ShowScopes shows the labels of scopes. False: a short code in place of each, which is the
	// same in all dependencies until the process ends.
	ShowScopes bool
	// Now is the clock of the Set, for the countdowns. Nil: time.Now.
	Now func() time.Time
	// Done ends the streams when it is closed, so that [http.Server.Shutdown] does not wait for
	// viewers. Make it that of a context whose cancel is called at shutdown:
	//
	//	ctx, cancel := context.WithCancel(context.Background())
	//	... debugpage.Options{Done: ctx.Done()} ...
	//	server.RegisterOnShutdown(cancel)
	//
	// Nil: each stream lasts until its viewer leaves.
	Done <-chan struct{}
}

// Handler returns the page of a Set. It is read-only unless Options.Authorize is set. It owns one
// goroutine while somebody watches, whatever the number of viewers, and none otherwise. A nil Set
// panics.
//
// All viewers share one look at the Set per second. A slow one skips what it missed, and one that
// takes nothing for ten seconds is dropped. Each request for the JSON is a look of its own.
func Handler(set *toolset.Set, o Options) http.Handler {
	if set == nil {
		panic("debugpage: Handler: the Set is nil")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &page{looker: looker{options: o, set: set, codes: newCodes()}}
	p.hub.look = p.look
	return p
}

// page is the handler.
type page struct {
	looker
	hub hub
}

//go:embed page
var files embed.FS

// policy is the page's Content-Security-Policy: nothing from elsewhere, nothing inline, no markup
// made of text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")

	allow := []string{http.MethodGet, http.MethodHead}
	var serve http.HandlerFunc
	switch name := below(r); {
	case name == "" && unslashed(r) != "":
		serve = func(w http.ResponseWriter, r *http.Request) {
			h.Set("Location", "./"+unslashed(r)+"/")
			w.WriteHeader(http.StatusPermanentRedirect)
		}
	case name == "circuits":
		serve = p.circuits
	case name == "events":
		serve = p.events
	case name == "control" && p.options.Authorize != nil:
		allow, serve = []string{http.MethodPost}, p.control
	default:
		serve = file(name)
	}
	switch {
	case serve == nil:
		http.NotFound(w, r)
	case !slices.Contains(allow, r.Method):
		h.Set("Allow", strings.Join(allow, ", "))
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	default:
		serve(w, r)
	}
}

// below returns the path below the pattern at which the handler is mounted. Where that is not at
// the beginning of the path, it has been stripped.
func below(r *http.Request) string {
	path := strings.TrimPrefix(r.URL.Path, "/")
	_, pattern, known := strings.Cut(r.Pattern, "/") // behind a method and a host
	if !known {
		return path[strings.LastIndexByte(path, '/')+1:]
	}
	for rest := path; ; {
		want, patternRest, more := strings.Cut(pattern, "/")
		if !more {
			return rest
		}
		got, pathRest, more := strings.Cut(rest, "/")
		if !more || got != want && !strings.HasPrefix(want, "{") {
			return path
		}
		pattern, rest = patternRest, pathRest
	}
}

// unslashed returns the last element of a path that was asked for without a slash at its end, of
// which StripPrefix has left nothing. Otherwise it returns "".
func unslashed(r *http.Request) string {
	asked, _, _ := strings.Cut(r.RequestURI, "?")
	if r.URL.Path != "" {
		return ""
	}
	return asked[strings.LastIndexByte(asked, '/')+1:]
}

// types are those of the files, by ending. Those that the system knows may be others.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// file serves a file of the page. It returns nil if there is no such file.
func file(name string) http.HandlerFunc {
	if name == "" {
		name = "index.html"
	}
	data, err := files.ReadFile("page/" + name)
	if err != nil {
		return nil
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", types[path.Ext(name)])
		w.Write(data)
	}
}

// circuits serves what the page shows as JSON.
func (p *page) circuits(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(p.look())
}

// maxForm caps the form of a control, in bytes.
const maxForm = 64 << 10

// control carries out what an operator decided on a dependency.
func (p *page) control(w http.ResponseWriter, r *http.Request) {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	if !p.options.Authorize(r) {
		http.Error(w, "not authorized", http.StatusForbidden)
		return
	}
	const form = "application/x-www-form-urlencoded"
	if got, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); got != form {
		http.Error(w, fmt.Sprintf("Content-Type: got %q, want %s", got, form), http.StatusUnsupportedMediaType)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		code, more := http.StatusBadRequest, ""
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			code, more = http.StatusRequestEntityTooLarge, fmt.Sprintf(", want at most %d bytes", maxForm)
		}
		http.Error(w, fmt.Sprint("the form: ", err, more), code)
		return
	}
	id, action := r.PostForm.Get("id"), r.PostForm.Get("action")
	var act func(tool string) error
	switch action {
	case "open", "closed":
		act = func(tool string) error { return p.set.SetOverride(tool, toolcircuit.Override(action)) }
	case "none":
		act = func(tool string) error { return p.set.SetOverride(tool, toolcircuit.OverrideNone) }
	case "reset":
		act = p.set.Reset
	default:
		http.Error(w, fmt.Sprintf("action: got %q, want open, closed, none or reset", action), http.StatusBadRequest)
		return
	}
	for _, tool := range p.toolsOf(id) {
		if act(tool) == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
	http.Error(w, fmt.Sprintf("id: got %q, want that of a circuit whose tools are guarded", id), http.StatusNotFound)
}

// toolsOf returns tools of the dependency of a circuit, by one of which the Set knows it if that is
// guarded. The circuit goes by its id, since JSON cannot carry every name.
func (p *page) toolsOf(id string) []string {
	for _, c := range p.set.Snapshot().Circuits {
		if p.codes.of(c.Dependency, c.Scope) == id {
			return append(c.Tools, c.Dependency)
		}
	}
	return nil
}
