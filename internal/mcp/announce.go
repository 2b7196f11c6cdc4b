package mcp

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/toolcircuit/toolcircuit/toolset"
)

// Announcer tells who shows the tools of a Set when that hides some of them, and when they are
// back: also at the moment that a cooldown is over, with no call made. Make one with NewAnnouncer.
// All methods are safe for concurrent use.
type Announcer struct {
	set  *toolset.Set
	base context.Context

	mu      sync.Mutex
	started bool
	tells   map[int]func()
	next    int
}

// NewAnnouncer returns an Announcer that ends with base.
func NewAnnouncer(base context.Context, set *toolset.Set) *Announcer {
	return &Announcer{set: set, base: base}
}

// Add adds one who is to be told, until remove is called. tell must not block. The first one starts
// the one goroutine.
func (a *Announcer) Add(tell func()) (remove func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.started {
		a.started, a.tells = true, map[int]func(){}
		go a.run()
	}
	id := a.next
	a.next++
	a.tells[id] = tell
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.tells, id)
	}
}

func (a *Announcer) run() {
	wake := make(chan struct{}, 1)
	defer a.set.Watch(func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})()
	shown := a.hidden()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := a.set.NextChange() // before looking, so that nothing comes back in between unnoticed
		if now := a.hidden(); !maps.Equal(now, shown) {
			shown = now
			a.tell()
		}
		if wait == 0 {
			wait = time.Hour
		}
		timer.Reset(wait)
		select {
		case <-wake:
		case <-timer.C:
		case <-a.base.Done():
			return
		}
	}
}

func (a *Announcer) tell() {
	a.mu.Lock()
	tells := slices.Collect(maps.Values(a.tells))
	a.mu.Unlock()
	for _, tell := range tells {
		tell()
	}
}

// hidden returns the circuits whose tools are hidden now, by dependency and scope.
func (a *Announcer) hidden() map[[2]string]bool {
	hidden := map[[2]string]bool{}
	for _, c := range a.set.Snapshot().Circuits {
		if c.Hidden {
			hidden[[2]string{c.Dependency, c.Scope}] = true
		}
	}
	return hidden
}

// Bell calls a function of a user's, which may block, in a goroutine of its own: once for any
// number of rings that come while it runs. The zero Bell is ready.
type Bell struct {
	mu             sync.Mutex
	running, again bool
}

// Ring calls f soon.
func (b *Bell) Ring(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running {
		b.again = true
		return
	}
	b.running = true
	go func() {
		for {
			f()
			b.mu.Lock()
			if !b.again {
				b.running = false
				b.mu.Unlock()
				return
			}
			b.again = false
			b.mu.Unlock()
		}
	}()
}
