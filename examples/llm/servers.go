package main

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	"github.com/toolcircuit/toolcircuit/examples/internal/demo"
)

// server is a provider that says what it is told to.
type server struct {
	*httptest.Server
	says atomic.Pointer[demo.Says]
	hits atomic.Int32 // requests that reached it
}

func serve(wire demo.Wire) *server {
	s := new(server)
	s.Server = demo.Serve(wire(&demo.Model{Next: func(int, demo.Asked) demo.Says {
		s.hits.Add(1)
		return *s.says.Load()
	}}))
	return s
}

// answers makes the server answer with a text.
func (s *server) answers(text string) { s.says.Store(&demo.Says{Text: text}) }

// breaks makes the server break off in the middle of its answers, with its error for an overload.
func (s *server) breaks() { s.says.Store(&demo.Says{Text: "It will be cloudy, or", Break: true}) }

// fails makes the server answer with a status.
func (s *server) fails(status int, header http.Header) {
	s.says.Store(&demo.Says{Fail: func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
	}})
}
