package toolset

import (
	"context"
	"encoding/hex"
	"errors"

	"github.com/toolcircuit/toolcircuit/internal/repeat"
)

// Unknown stands for arguments that nobody knows. They equal no others, not even another Unknown.
var Unknown any = unknown{}

type unknown struct{}

// MarshalJSON fails, so that a value that holds Unknown equals nothing either.
func (unknown) MarshalJSON() ([]byte, error) { return nil, errUnknown }

var errUnknown = errors.New("toolset: Unknown equals nothing")

type (
	intentionKey struct{}
	callKey      struct{}
)

// WithIntention returns a context for all attempts at one effect, such as one payment. They have
// id as their [IdempotencyKey], in every process and run. An intention is one effect: a tool with
// several effects gives each its own id. For a [Session], equal calls with different intentions
// are different calls. An empty id removes the intention.
func WithIntention(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, intentionKey{}, id)
}

// IdempotencyKey returns a key that an operation may send to its dependency, for instance as the
// header Idempotency-Key, so that an effect which is tried again happens once. Every attempt has
// the same key:
//
//   - the id of [WithIntention], if ctx has one
//   - otherwise, inside the operation of a call under a [Session], a hash of the run, the scope,
//     the tool and the arguments as [Limits.Key] gives them
//
// It returns "" if there is neither, if the arguments equal no others, and in a call inside the
// operation that has no session or is another Set's. A tool that must not pay twice should refuse
// to run on "".
//
// Two equal payments in one run, both of them meant, need two intentions. Otherwise the second is
// taken for another attempt at the first. An operation has only the key of its intention if its
// context is a runtime's own type, or if it runs after [Set.Allow] without [Permit.Context]. In the
// latter case a call inside another one has the key of that one.
//
// All processes with the same version of this module make the same key. Another version may make
// another, so settle what is in doubt before an upgrade, or use an intention.
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

// callIn returns the call in whose operation ctx is, nil if it is in none.
func callIn(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// in returns the context for the operation of c. If c is nil it hides the outer call, whose key
// does not belong to this operation.
func (c *call) in(ctx context.Context) context.Context {
	if c == nil && callIn(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, callKey{}, c)
}
