package adkcircuit

import (
	"context"
	"time"

	"google.golang.org/adk/tool"
)

// toolContext is the context of a tool that ends with another, which is derived from it.
type toolContext struct {
	tool.Context
	inner context.Context
}

func (c *toolContext) Deadline() (time.Time, bool) { return c.inner.Deadline() }
func (c *toolContext) Done() <-chan struct{}       { return c.inner.Done() }
func (c *toolContext) Err() error                  { return c.inner.Err() }
func (c *toolContext) Value(key any) any           { return c.inner.Value(key) }
