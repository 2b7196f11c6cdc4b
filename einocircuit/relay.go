package einocircuit

import (
	"context"
	"io"
	"runtime/debug"

	"github.com/cloudwego/eino/schema"

	"github.com/toolcircuit/toolcircuit"
)

// relay returns a stream with the parts of from, which settles c at its end. say makes a part of a
// text. A nil stream is handed on, as without a guard.
//
// Two goroutines work for it, because from may hang whatever its context says. Both end with the call. If
// from hangs, the one that reads it ends when from gives something.
func relay[T any](c *call, from *schema.StreamReader[T], say func(text string) T) *schema.StreamReader[T] {
	if from == nil {
		c.over(nil, nil)
		return nil
	}
	to, w := schema.Pipe[T](0)
	parts, done := make(chan received[T]), make(chan struct{})
	go read(from, parts, done)
	go func() {
		defer w.Close()
		defer close(done)
		// A reader that neither reads nor closes holds up the loop, not the permit.
		defer context.AfterFunc(c.inner, func() { c.over(nil, context.Cause(c.inner)) })()
		flowed, err := pass(c, parts, w)
		if p, panicked := err.(*toolcircuit.PanicError); panicked {
			c.over(nil, toolcircuit.ErrNoReturn)
			w.Send(*new(T), p)
			return
		}
		told, err := c.over(nil, err)
		last, err := answer(*new(T), func(text string) T {
			if flowed {
				text = "\n" + text
			}
			return say(text)
		}, told, err)
		if told != nil || err != nil {
			w.Send(last, err)
		}
	}()
	return to
}

// pass sends parts to w until they end, w is closed by its reader, or the context of the call ends. It
// returns whether there was any, and the error that they ended with.
func pass[T any](c *call, parts <-chan received[T], w *schema.StreamWriter[T]) (flowed bool, err error) {
	for {
		select {
		case r := <-parts:
			switch {
			case r.err == io.EOF:
				return flowed, nil
			case r.err != nil:
				return flowed, r.err
			}
			flowed = true
			c.flows()
			if w.Send(r.part, nil) {
				return flowed, nil
			}
		case <-c.inner.Done():
			return flowed, context.Cause(c.inner)
		}
	}
}

// received is what a stream gave.
type received[T any] struct {
	part T
	err  error
}

// read hands on what from gives until that is an error or done is closed.
func read[T any](from *schema.StreamReader[T], parts chan<- received[T], done <-chan struct{}) {
	defer from.Close()
	for r := (received[T]{}); r.err == nil; {
		r = receive(from)
		select {
		case parts <- r:
		case <-done:
			return
		}
	}
}

// receive returns the next part. A panic of a converter is an error, since here it would end the
// program.
func receive[T any](from *schema.StreamReader[T]) (r received[T]) {
	defer func() {
		if v := recover(); v != nil {
			r.err = &toolcircuit.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	r.part, r.err = from.Recv()
	return r
}
