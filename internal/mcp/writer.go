package mcp

import (
	"context"
	"sync"
)

// Writer is the turn to write to a pipe, which takes one message at a time and blocks while it is
// full. Make one with NewWriter. All methods are safe for concurrent use.
type Writer struct {
	turn   chan struct{} // holds a token while a message is being written
	closed chan struct{}
	once   sync.Once
}

// NewWriter returns the turn to write to a pipe.
func NewWriter() *Writer {
	return &Writer{turn: make(chan struct{}, 1), closed: make(chan struct{})}
}

// Do waits for its turn, calls send in a goroutine of its own, and returns what send returns, or ctx's
// error if ctx ends first. The turn ends when send calls written or returns. A message whose turn did
// not come was not sent; a message that was begun goes on and may still be delivered. Do notes which
// in the [Hint] of ctx. After Close it returns closed.
func (w *Writer) Do(ctx context.Context, closed error, send func(written func()) error) error {
	h := HintOf(ctx)
	select {
	case w.turn <- struct{}{}:
	case <-w.closed:
		return closed
	case <-ctx.Done():
		h.Unsent()
		return ctx.Err()
	}
	h.Sent()
	var once sync.Once
	end := func() { once.Do(func() { <-w.turn }) }
	done := make(chan error, 1)
	go func() {
		defer end()
		err := send(func() { h.Written(); end() })
		if err == nil {
			h.Written()
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends the wait of all that wait for their turn. A message that is being written ends with the
// pipe.
func (w *Writer) Close() { w.once.Do(func() { close(w.closed) }) }
