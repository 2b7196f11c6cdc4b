// Package debugpage shows the circuits of a Set live: an HTML page, the same as JSON, and a stream
// of server-sent events.
//
//	http.Handle("/debug/circuits/", debugpage.Handler(set, debugpage.Options{}))
//
// Mount the handler at any pattern that ends in a slash, with or without [http.StripPrefix]. Below
// it are the page itself, circuits (JSON) and events (the stream).
//
// The page shows names of dependencies and tools, states, kinds, numbers and times. It has no text
// of an error, no argument, no result and no run id, and a scope's label only if Options.ShowScopes
// says so. Who may read it is the caller's to decide: put the handler behind your own
// authentication, or serve it on loopback alone.
package debugpage

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
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
	// called concurrently. Nil: no controls.
	Authorize func(*http.Request) bool
	// ShowScopes shows the labels of scopes. False: a short code in place of each, which is the
	// same in all dependencies until the process ends.
	ShowScopes bool
	// Now is the clock of the Set, for the countdowns. Nil: time.Now.
	Now func() time.Time
	// Done ends the streams when it is closed. Close it in [http.Server.RegisterOnShutdown], so
	// that Shutdown does not wait for viewers. Nil: each lasts until its viewer leaves.
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

	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	method := http.MethodGet
	var serve http.HandlerFunc
	switch {
	case r.URL.Path == "": // behind StripPrefix, without the slash
		serve = func(w http.ResponseWriter, r *http.Request) {
			h.Set("Location", "./"+path.Base(strings.SplitN(r.RequestURI, "?", 2)[0])+"/")
			w.WriteHeader(http.StatusPermanentRedirect)
		}
	case name == "circuits":
		serve = p.circuits
	case name == "events":
		serve = p.events
	case name == "control" && p.options.Authorize != nil:
		method, serve = http.MethodPost, p.control
	default:
		serve = file(name)
	}
	if r.Method != method && !(r.Method == http.MethodHead && method == http.MethodGet) {
		h.Set("Allow", method)
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	serve(w, r)
}

// types are those of the files, by ending. Those that the system knows may be others.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// file serves a file of the page.
func file(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if name == "" {
			name = "index.html"
		}
		data, err := files.ReadFile("page/" + name)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", types[path.Ext(name)])
		w.Write(data)
	}
}

// circuits serves what the page shows as JSON.
func (p *page) circuits(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(p.look())
}

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
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	dependency, action := r.PostFormValue("dependency"), r.PostFormValue("action")
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
	for _, tool := range p.toolsOf(dependency) {
		if act(tool) == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
	http.Error(w, fmt.Sprintf("dependency: got %q, want one that is guarded", dependency), http.StatusNotFound)
}

// toolsOf returns tools of a dependency, by one of which the Set knows it if that is guarded.
func (p *page) toolsOf(dependency string) []string {
	for _, c := range p.set.Snapshot().Circuits {
		if c.Dependency == dependency {
			return append(c.Tools, dependency)
		}
	}
	return nil
}
