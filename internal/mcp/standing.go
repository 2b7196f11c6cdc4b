package mcp

import (
	"maps"
	"slices"
	"sync"
)

// Standing is what a client has asked for that a new session must be told again: the log level, and the
// subscriptions to resources, by requests of type R. The zero Standing is empty. All methods are safe
// for concurrent use.
type Standing[R any] struct {
	mu    sync.Mutex
	gen   int // of the session for which All was called last
	level []R // one or none
	uris  map[string]R
}

// maxStanding is the number of subscriptions that are repeated.
const maxStanding = 1000

// Note notes a request that the session of a generation has answered. If All was called for a later one
// before, that one was not told: Note returns false, and the request must be sent again. Requests of
// other methods are not noted.
func (s *Standing[R]) Note(gen int, method, uri string, req R) bool {
	if method != SetLevel && method != Subscribe && method != Unsubscribe {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if gen < s.gen {
		return false
	}
	switch method {
	case SetLevel:
		s.level = []R{req}
	case Subscribe:
		if s.uris == nil {
			s.uris = map[string]R{}
		}
		Put(s.uris, uri, req, maxStanding)
	case Unsubscribe:
		delete(s.uris, uri)
	}
	return true
}

// All returns what the session of a generation, which is not in use yet, must be told.
func (s *Standing[R]) All(gen int) []R {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gen = max(s.gen, gen)
	return slices.AppendSeq(slices.Clone(s.level), maps.Values(s.uris))
}
