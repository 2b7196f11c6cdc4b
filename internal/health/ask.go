package health

import (
	"context"
	"errors"
	"time"
)

// ErrNoAnswer is the error of a request that the store has not returned from.
var ErrNoAnswer = errors.New("toolcircuit: the store did not return")

// grace is how long a store may take to notice that its context has ended.
const grace = 5 * time.Millisecond

// Ask sends one request under the timeout of h, and notes how it ended. It waits a little longer at
// most, because the request has a goroutine of its own: a store may ignore its context. While one
// of a class is stuck in the store, Ask sends no other of that class. A panic and runtime.Goexit in
// the store are errors.
func Ask[T any](ctx context.Context, h *Health, class Class, send func(context.Context) (T, error)) (answer T, err error) {
	defer func() { h.Note(class, err) }()
	if h.hasStuck(class) {
		return answer, ErrNoAnswer
	}
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	type reply struct {
		answer T
		err    error
	}
	replied := make(chan reply, 1)
	go func() {
		r := reply{err: ErrNoAnswer}
		defer func() {
			if p := recover(); p != nil {
				r.err = h.panicked(p)
			}
			replied <- r
		}()
		r.answer, r.err = send(ctx)
	}()
	select {
	case r := <-replied:
		return r.answer, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-replied:
		return r.answer, r.err
	case <-time.After(grace):
	}
	h.setStuck(class, 1)
	go func() { <-replied; h.setStuck(class, -1) }()
	return answer, ErrNoAnswer
}

func (h *Health) hasStuck(class Class) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stuck[class] > 0
}

func (h *Health) setStuck(class Class, by int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stuck[class] += by
}

// Chunk returns how many keys a Load may have, so that the store can answer within the timeout.
func (h *Health) Chunk() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.chunk
}

// Loaded notes how long a Load of so many keys took, and whether it was answered. A full one that
// was quick doubles Chunk, and one without an answer halves it.
func (h *Health) Loaded(keys int, took time.Duration, answered bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !answered:
		h.chunk = max(keys/2, 1)
	case took < h.timeout/4 && keys == h.chunk:
		h.chunk = min(2*keys, 256)
	}
}
