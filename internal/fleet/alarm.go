package fleet

import (
	"sync"
	"time"
)

// Alarm is a time that can be moved. The zero Alarm is over. All methods are safe for concurrent
// use.
type Alarm struct {
	mu sync.Mutex
	at time.Time
}

// Set moves the alarm to a time from now.
func (a *Alarm) Set(in time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = time.Now().Add(in)
}

// Left returns what is left until the alarm, negative if it is over.
func (a *Alarm) Left() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Until(a.at)
}
