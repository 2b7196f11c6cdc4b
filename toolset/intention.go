package toolset

import (
	"context"
	"encoding/hex"
	"errors"

	"github.com/toolcircuit/toolcircuit/internal/repeat"
)

// Unknown stands for arguments that nobody knows. They are equal to none, not even to one
// another.
var Unknown any = unknown{}

type unknown struct{}

// MarshalJSON fails, so that what holds Unknown equals nothing either.
func (unknown) MarshalJSON() ([]byte, error) { return nil, errUnknown }

var errUnknown = errors.New("toolset: Unknown equals nothing")

type (
	intentionKey struct{}
	callKey      struct{}
)

// WithIntention returns a context for the attempts at one effect, such as one payment, so that
// all of them have id as their [IdempotencyKey], in whatever process or run. An intention is
// one effect: a tool that has several gives each an id of its own. To a [Session] equal calls with
// different intentions are different calls. An empty id takes the intention out.
func WithIntention(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, intentionKey{}, id)
}

// IdempotencyKey returns what an operation may send to its dependency so that an effect which
// is tried again happens once, for instance as the header Idempotency-Key: one key per
// intention, the same in every attempt. That is the id of [WithIntention] or, inside the
// operation of a call under a [Session], one made of the run, the scope, the tool and the
// arguments as [Limits.Key] gives them. It returns "" if there is neither, also where the
// arguments are never the same, and in a call within the operation that has no session or is
// another Set's. A tool that must not pay twice should refuse to run on "".
//
// All processes with one version of this module make the same key. Another version may make
// another, so settle what is in doubt before an upgrade, or use an intention.
//
// So two equal payments in one run, both of them meant, need two intentions: the second would
// be taken for another attempt at the first. An operation whose context is a runtime's own
// type, and one between [Set.Allow] and Settle without [Permit.Context], has an intention only.
func IdempotencyKey(ctx context.Context) string {
	if ctx == nil {
		panic("toolset: IdempotencyKey: ctx is nil")
	}
	if id := intention(ctx); id != "" {
		return id
	}
	if c := callIn(ctx); c != nil && c.ID != (repeat.Digest{}) {
		return hex.EncodeToString(c.ID[:])
	}
	return ""
}

// intention returns the id of the intention that ctx carries, or "".
func intention(ctx context.Context) string {
	id, _ := ctx.Value(intentionKey{}).(string)
	return id
}

// callIn returns the call inside whose operation ctx is, nil if in none.
func callIn(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// in returns the context of the operation of c. A nil c hides the call around it, whose key is
// not that of this operation.
func (c *call) in(ctx context.Context) context.Context {
	if c == nil && callIn(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, callKey{}, c)
}
