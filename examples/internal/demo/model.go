// Package demo is what the examples share: language models that follow a script behind servers that
// speak the wire formats of their vendors, an API that dies and recovers, and the story of its outage.
package demo

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
)

// Model is a scripted language model. Each of its methods returns a handler that speaks the wire
// format of one vendor, whole and streamed.
type Model struct {
	// Next returns what the model says to its n-th request, from 1. It is called by one request at
	// a time.
	Next func(n int, asked Asked) Says

	mu sync.Mutex
	n  int
}

// Asked is a request to a model.
type Asked struct {
	Tools     []string // on offer
	Forbidden bool     // to call any; also if none is on offer
	Results   []Result // of the calls that the model made last
}

// Result is the result of a call, as the model reads it.
type Result struct {
	ID, Text string
	IsError  bool // where the format has a flag for that
}

// Says is the answer of a model: text, or calls.
type Says struct {
	Text  string
	Calls []Call
	// Fail writes an answer of another kind, such as a status 529. Nil: none.
	Fail http.HandlerFunc
	// Break ends a stream after the first part with the vendor's error for an overload.
	Break bool
	// Between is called after the first part of a stream. Nil: nothing.
	Between func()
}

// Call is a call of a tool for a city.
type Call struct{ Tool, City string }

func (c Call) arguments() json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"city":%q}`, c.City))
}

// ID returns the id of the i-th call in the answer to the n-th request.
func ID(n, i int) string { return fmt.Sprintf("call_%d_%d", n, i) }

// next returns the number of a request and what the model says to it.
func (m *Model) next(asked Asked) (int, Says) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n++
	asked.Forbidden = asked.Forbidden || len(asked.Tools) == 0
	return m.n, m.Next(m.n, asked)
}

// Serve starts a server with a handler of a model.
func Serve(handler http.Handler) *httptest.Server { return httptest.NewServer(handler) }

// decode reads a request, or answers that it is wrong.
func decode(w http.ResponseWriter, r *http.Request, request any) bool {
	err := json.NewDecoder(r.Body).Decode(request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return err == nil
}

func encode(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(answer)
}

// events is a stream of server-sent events.
type events struct {
	w     http.ResponseWriter
	begun bool
}

// send sends one event. An empty name sends none.
func (e *events) send(name string, data any) {
	if !e.begun {
		e.w.Header().Set("Content-Type", "text/event-stream")
		e.begun = true
	}
	text, ok := data.(string)
	if !ok {
		raw, err := json.Marshal(data)
		if err != nil {
			panic(err)
		}
		text = string(raw)
	}
	if name != "" {
		fmt.Fprintf(e.w, "event: %s\n", name)
	}
	fmt.Fprintf(e.w, "data: %s\n\n", text)
	e.w.(http.Flusher).Flush()
}

// halves returns text in two parts, the first of which is not empty.
func halves(text string) (string, string) {
	half := (len(text) + 1) / 2
	return text[:half], text[half:]
}

// object is a JSON object.
type object = map[string]any

// textOf returns the text of a content that is a string or a list of parts.
func textOf(content json.RawMessage) (text string) {
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct{ Text string }
	json.Unmarshal(content, &parts)
	for _, p := range parts {
		text += p.Text
	}
	return text
}
