package mcp

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// Server is what the guard of a client remembers of a server.
type Server struct {
	Name    string
	answers atomic.Uint64 // so far
}

// Circuit returns the server's circuit in set, nil if set does not guard it.
func (s *Server) Circuit(ctx context.Context, set *toolset.Set) *toolcircuit.ToolCircuit {
	if s.Name == "" {
		return nil
	}
	return set.Circuit(ctx, Prefix+s.Name)
}

// Servers are the servers that a guard knows, by name. Those without a name are one server. The zero
// Servers is empty. All methods are safe for concurrent use.
type Servers struct {
	named sync.Map // of *Server

	mu     sync.RWMutex
	homes  map[string]*Server // where a tool was called or listed last, no more than maxHomes
	raised map[string]bool    // tools with side effects by their annotations
}

const maxHomes = 10_000

// Get returns the server of a name.
func (s *Servers) Get(name string) *Server {
	if known, ok := s.named.Load(name); ok {
		return known.(*Server)
	}
	known, _ := s.named.LoadOrStore(name, &Server{Name: name})
	return known.(*Server)
}

// home returns the server that a tool was last seen at, nil if nobody saw it.
func (s *Servers) home(tool string) *Server {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.homes[tool]
}

// Saw notes that a tool was seen at a server.
func (s *Servers) Saw(tool string, at *Server) {
	if s.home(tool) == at {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.homes == nil {
		s.homes = make(map[string]*Server)
	}
	Put(s.homes, tool, at, maxHomes)
}

// Listed notes what a page of a list says: which tools are at a server, unless at is nil, and which have
// side effects by their annotations: neither read-only nor idempotent, as the protocol's defaults are
// too. A tool without annotations says nothing. name returns the Set's name of a tool.
func (s *Servers) Listed(set *toolset.Set, at *Server, page json.RawMessage, name func(string) string) {
	var list struct {
		Tools []struct {
			Name        string `json:"name"`
			Annotations *struct {
				ReadOnly   bool `json:"readOnlyHint"`
				Idempotent bool `json:"idempotentHint"`
			} `json:"annotations"`
		} `json:"tools"`
	}
	_ = json.Unmarshal(page, &list)
	var writes []string
	for _, t := range list.Tools {
		tool := ToolName(name(t.Name))
		if at != nil && tool != "" {
			s.Saw(tool, at)
		}
		if t.Annotations != nil && !t.Annotations.ReadOnly && !t.Annotations.Idempotent {
			writes = append(writes, tool)
		}
	}
	s.Raise(set, writes...)
}

// Raise notes that tools have side effects by their annotations, which holds where the config does
// not say otherwise. Annotations can only add side effects: a server must not make a write look
// harmless.
func (s *Servers) Raise(set *toolset.Set, tools ...string) {
	var news []string
	s.mu.Lock()
	for _, tool := range tools {
		if tool != "" && !s.raised[tool] && len(s.raised) < maxHomes {
			if s.raised == nil {
				s.raised = map[string]bool{}
			}
			s.raised[tool] = true
			news = append(news, tool)
		}
	}
	s.mu.Unlock()
	if len(news) > 0 {
		set.RaiseSideEffects(news...)
	}
}

// writes reports whether a list has said that a tool has side effects.
func (s *Servers) writes(tool string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.raised[tool]
}

// Put puts a value into a map. If the map has limit values, it first drops one.
func Put[K comparable, V any](m map[K]V, key K, value V, limit int) {
	if _, ok := m[key]; !ok && len(m) >= limit {
		for other := range m {
			delete(m, other)
			break
		}
	}
	m[key] = value
}

// elsewhere returns those of tools that are not known to be at a server, nor at another one that
// is down.
func (s *Servers) elsewhere(ctx context.Context, set *toolset.Set, at *Server, tools []string) []string {
	return slices.DeleteFunc(slices.Clone(tools), func(tool string) bool {
		switch home := s.home(tool); home {
		case nil:
			return false
		case at:
			return true
		default:
			c := home.Circuit(ctx, set)
			return c != nil && !c.Ready()
		}
	})
}
