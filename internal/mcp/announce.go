package mcp

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/toolcircuit/toolcircuit/toolset"
)

// Announcer calls functions when a Set hides tools, and when the tools are due back. A server's
// own circuit hides none. The end of a cooldown needs no call to be noticed. Make one with
// NewAnnouncer. All methods are safe for concurrent use.
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

// Add adds a function to be called until remove is called. tell must not block. The first Add starts
// the Announcer's goroutine.
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
		if a.base.Err() == nil {
			tell()
		}
	}
}

// hidden returns the circuits whose tools are hidden now, by dependency and scope. It leaves out those
// of servers alone: a list asks them, and would change them again and again if it were announced.
func (a *Announcer) hidden() map[[2]string]bool {
	hidden := map[[2]string]bool{}
	for _, c := range a.set.Snapshot().Circuits {
		tools := c.Tools
		if len(tools) == 0 {
			tools = []string{c.Dependency}
		}
		if c.Hidden && slices.ContainsFunc(tools, func(tool string) bool { return ToolName(tool) != "" }) {
			hidden[[2]string{c.Dependency, c.Scope}] = true
		}
	}
	return hidden
}

// Bell calls a function that may block, in a goroutine of its own. Rings that come while it runs are
// one more call after it. The zero Bell is ready. It is safe for concurrent use.
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
