package fleet

import (
	"maps"
	"sync"
	"time"
)

// Strays are things that somebody else may hold by mistake. Each is to be asked back at once, and
// again whenever it is seen there, until its time is over. The zero Strays has none. All methods
// are safe for concurrent use.
type Strays[K comparable, V any] struct {
	mu  sync.Mutex
	all map[K]stray[V]
}

type stray[V any] struct {
	value V
	due   bool
	until time.Time
}

// Add adds a stray that is due.
func (s *Strays[K, V]) Add(key K, v V, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[K]stray[V]{}
	}
	s.all[key] = stray[V]{v, true, until}
}

// Seen reports whether key is a stray that is due because of that.
func (s *Strays[K, V]) Seen(key K) bool { return s.mark(key, true) }

// Asked notes that a stray was asked back.
func (s *Strays[K, V]) Asked(key K) { s.mark(key, false) }

func (s *Strays[K, V]) mark(key K, due bool) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.all[key]
	if !ok || one.due == due {
		return false
	}
	one.due = due
	s.all[key] = one
	return true
}

// Due returns the strays to be asked back now. It forgets the others whose time is over.
func (s *Strays[K, V]) Due() map[K]V {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := map[K]V{}
	maps.DeleteFunc(s.all, func(key K, one stray[V]) bool {
		if one.due {
			due[key] = one.value
		}
		return !one.due && time.Now().After(one.until)
	})
	return due
}
