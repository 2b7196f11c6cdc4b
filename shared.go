package toolcircuit

import (
	"context"
	"time"
)

// Store keeps one record per key for the circuits of many workers. It shares transitions, never
// calls: a circuit asks it when it opens, is probed or closes, and once at first use. [Fleet]
// does the asking. Package storetest has the suite that a Store must pass.
//
// Each method is one atomic step on one record, on the Store's own clock. Only durations cross
// the interface, so that the workers' clocks need not agree. Each method answers with the View
// that results, changed or not: a request that comes too late is no error. An error means that
// the request may or may not have been carried out; asking again is always safe. A method
// heeds its context and returns soon after that ends. All methods are safe for concurrent use.
//
// A change gives the record a new Epoch: the microseconds since 1970, but at least one more than
// before and than the Epoch in the request. So a store that lost its last writes does not give an
// epoch twice. A change also tells Watch. Renewing a lease is no change.
//
// A record is dropped Terms.Retention after what it says is over: the cooldown or the lease of an
// open one, the last change of a closed one.
type Store interface {
	// Load returns the Views of the keys, in their order: the zero View where there is no record.
	Load(ctx context.Context, keys []string) ([]View, error)

	// Trip opens a record that is closed and has the request's Epoch. Its generation fades by
	// [Terms.Fade] first, and then rises by one, except for a Pause. A missing record opens with
	// Opening.Generation.
	//
	// If the record is open and cools, Trip can only move the end of the wait later: to Wait
	// from now if the dependency Asked for that, otherwise to what the curve gives from the
	// opening if an asked wait has replaced it. Any other record stays as it is: a closed one of
	// another Epoch because the failures are older than its closing, one that is probed or due
	// because only a probe decides there.
	Trip(ctx context.Context, key string, t TripRequest) (View, error)

	// Acquire claims the probe of an open record whose wait and lease are over, or renews the
	// lease of the Fence that has it. The claim is granted iff the View has the request's Fence.
	// Early skips the rest of a wait that the dependency did not ask for. A missing record is
	// made of Lost first, with its wait over; without Lost the answer is the zero View.
	Acquire(ctx context.Context, key string, a AcquireRequest) (View, error)

	// Settle ends the probe of a Fence. If the record has another Fence, or none, it stays as it
	// is: the holder has lost its lease to another.
	Settle(ctx context.Context, key string, f Fence, o Settlement) (View, error)

	// Watch calls changed with each change that any worker makes, and resync when changes may
	// have been missed: at least once as soon as it listens, and after each interruption. A store
	// that cannot push calls resync from time to time. Neither function blocks, and both may be
	// called from any goroutine, but not after Watch has returned. Watch returns when ctx ends or it can listen no
	// longer; the Fleet then calls it again. Delivery is at most once and in any order.
	Watch(ctx context.Context, changed func(key string, v View), resync func()) error
}

// Resetter is a Store that can close a record from outside, in a new Epoch greater than that of
// the request, with generation 0 and without a Fence. On a Store without it
// [ToolCircuit.Reset] stays local, and the next change in the fleet undoes it.
type Resetter interface {
	Reset(ctx context.Context, key string, r ResetRequest) (View, error)
}

// View is a record as it is when the Store answers. The zero View is that of a key without a
// record, which counts as closed.
type View struct {
	Open       bool
	Generation int           // openings in memory; of a closed record as it closed, before it fades
	Epoch      uint64        // rises with each change
	Remaining  time.Duration // until a probe may go; 0 once that is over, and when closed
	// LeaseRemaining is until another may claim the probe; 0 if none is out, or its lease is over.
	LeaseRemaining time.Duration
	Fence          Fence         // that has the probe, also when its lease is over
	Asked          bool          // the dependency itself asked for the wait
	Cause          Kind          // of the opening
	Failures       int           // that the opening rule counted
	Age            time.Duration // since the record opened or, if closed, since it closed
}

// Fence names one claim of a probe. The worker draws it at random and never uses it again. "" is
// none.
type Fence string

// Terms are what the policy of the asking circuit and its Fleet set for one request. They are
// valid and complete. A Store on a clock that stepped back cuts what a record says to these
// before it carries out a request: a wait to MaxRetryAfter from now if it was asked for, otherwise
// to MaxCooldown, and a lease to Lease.
type Terms struct {
	Cooldown, MaxCooldown time.Duration // as in Policy
	Multiplier, Jitter    float64       // as in Policy
	Draw                  float64       // the share of Jitter that this request gets, from 0 up to 1
	MaxRetryAfter         time.Duration // cap on a wait that the dependency asked for
	ProbeSuccesses        int           // in a row that close the record
	Lease                 time.Duration // of a probe, from now
	Retention             time.Duration
}

// Curve is the wait before the probe after an opening that gives the record this generation, if
// the dependency asks for none: min(Cooldown * Multiplier^(generation-1), MaxCooldown), longer by
// Jitter*Draw of it. At the cap it makes room for that below MaxCooldown.
func (t Terms) Curve(generation int) time.Duration {
	return t.rules().spread(generation, t.Draw)
}

// Fade returns what is left of a generation after the record has been closed for that long: it
// falls by one after the wait, without jitter, that the curve gives for it, and so on.
func (t Terms) Fade(generation int, closed time.Duration) int {
	began := time.Unix(0, 0)
	s := state{rules: t.rules(), State: StateClosed, openings: generation, calm: began}
	return s.openingsAt(began.Add(closed))
}

func (t Terms) rules() *rules {
	return &rules{Policy: Policy{Cooldown: t.Cooldown, MaxCooldown: t.MaxCooldown, Multiplier: t.Multiplier, Jitter: t.Jitter}}
}

// Opening is what a worker knows of an opening.
type Opening struct {
	Generation int           // with this opening
	Wait       time.Duration // from now; 0: what [Terms.Curve] gives. At least 1ms is kept of an asked one
	Asked      bool          // the dependency itself asked for Wait
	Age        time.Duration // since the opening, which may be told late
	Cause      Kind
	Failures   int
}

// TripRequest says that a worker has opened its circuit, or that a failure from before the
// opening asks for a longer wait.
type TripRequest struct {
	Terms
	Opening
	Epoch uint64 // of the record in which the failures happened
	Pause bool   // the dependency asked for a pause, so the generation does not rise
}

// AcquireRequest claims or renews a probe.
type AcquireRequest struct {
	Terms
	Fence Fence
	Early bool     // a Monitor has seen the dependency answer during the cooldown
	Epoch uint64   // the latest that the worker knows; a record that is made anew gets a greater one
	Lost  *Opening // what a missing record is made of; nil: the worker knows of no opening
}

// Settlement is how a probe ended.
type Settlement struct {
	Terms
	Result  ProbeResult
	Opening // of ProbeFailed and ProbePaused; Generation is the record's affair
}

// ProbeResult is the result of a probe.
type ProbeResult string

const (
	// ProbeOK closes the record, or after fewer than ProbeSuccesses in a row frees the probe.
	ProbeOK ProbeResult = "ok"
	// ProbeFailed opens the record anew, with the next generation.
	ProbeFailed ProbeResult = "failed"
	// ProbePaused opens it anew for the wait that the dependency asked for, with the same
	// generation.
	ProbePaused ProbeResult = "paused"
	// ProbeAbandoned says nothing about the dependency: the next to ask gets the probe.
	ProbeAbandoned ProbeResult = "abandoned"
)

// ResetRequest closes a record.
type ResetRequest struct {
	Terms
	Epoch uint64 // the latest that the worker knows
}
