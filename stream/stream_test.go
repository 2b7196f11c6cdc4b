package stream_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/stream"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// rig is one call with a CallTimeout of a second.
type rig struct {
	t          *testing.T
	now        *clock.Mock
	permit     toolcircuit.Permit
	ctx        context.Context // of the caller
	walkAway   context.CancelCauseFunc
	stream     context.Context
	flows, end func()
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, now: clock.NewMock()}
	c := toolcircuit.MustNew("api", toolcircuit.Options{Clock: r.now, Policy: toolcircuit.Policy{CallTimeout: time.Second}})
	r.ctx, r.walkAway = context.WithCancelCause(t.Context())
	var err error
	r.permit, err = c.Allow(r.ctx)
	require.NoError(t, err)
	r.stream, r.flows, r.end = stream.Context(r.ctx, r.permit.Context)
	return r
}

func (r *rig) pass(d time.Duration) {
	r.now.Add(d)
	synctest.Wait()
}

func (r *rig) settle(err error) toolcircuit.Verdict {
	v, _ := r.permit.Settle(r.ctx, nil, err)
	r.end()
	synctest.Wait()
	require.Error(r.t, r.stream.Err())
	return v
}

func TestContext(t *testing.T) {
	broke := &toolcircuit.HTTPError{StatusCode: 502}
	for name, test := range map[string]struct {
		run  func(*rig) error // returns what the stream ends with
		kind toolcircuit.Kind
	}{
		"it ends in time": {func(*rig) error { return nil }, toolcircuit.KindOK},
		"nothing comes": {func(r *rig) error {
			r.pass(time.Second)
			require.ErrorIs(r.t, context.Cause(r.stream), toolcircuit.ErrCallTimeout)
			return r.stream.Err()
		}, toolcircuit.KindTimeout},
		"the first part comes late": {func(r *rig) error {
			r.pass(time.Second)
			r.flows()
			synctest.Wait()
			require.ErrorIs(r.t, context.Cause(r.stream), toolcircuit.ErrCallTimeout)
			return nil
		}, toolcircuit.KindTimeout},
		"it flows for long": {func(r *rig) error {
			r.flows()
			r.flows()
			r.pass(time.Hour)
			require.NoError(r.t, r.stream.Err())
			return nil
		}, toolcircuit.KindOK},
		"it flows and breaks": {func(r *rig) error {
			r.flows()
			r.pass(time.Hour)
			return broke
		}, toolcircuit.KindUnavailable},
		"the caller walks away before the first part": {func(r *rig) error {
			why := errors.New("enough")
			r.walkAway(why)
			synctest.Wait()
			require.Equal(r.t, why, context.Cause(r.stream))
			return r.stream.Err()
		}, toolcircuit.KindCanceled},
		"the caller walks away after it": {func(r *rig) error {
			why := errors.New("enough")
			r.flows()
			r.walkAway(why)
			synctest.Wait()
			require.Equal(r.t, why, context.Cause(r.stream))
			return r.stream.Err()
		}, toolcircuit.KindCanceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				require.Equal(t, test.kind, r.settle(test.run(r)).Kind)
			})
		})
	}
}

// The caller's own deadline is shown, and ends the stream as what it is.
func TestContextDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, early := range []bool{true, false} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s, flows, end := stream.Context(ctx, func(ctx context.Context) context.Context { return ctx })
			defer end()
			if early {
				flows()
			}
			at, ok := s.Deadline()
			require.True(t, ok)
			require.Equal(t, time.Minute, time.Until(at))
			<-s.Done()
			require.Equal(t, context.DeadlineExceeded, s.Err())
			require.Zero(t, time.Until(at))
		}
	})
}

func TestContextKeepsValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := clock.NewMock()
		c := toolcircuit.MustNew("api", toolcircuit.Options{Clock: now, Policy: toolcircuit.Policy{FailureThreshold: 1}})
		_, err := toolcircuit.Do(t.Context(), c, func(context.Context) (any, error) { return nil, toolcircuit.Fault(errors.New("down")) })
		require.Error(t, err)
		now.Add(time.Hour)
		p, err := c.Allow(t.Context())
		require.NoError(t, err)
		ctx, flows, end := stream.Context(t.Context(), p.Context)
		flows()
		require.True(t, toolcircuit.IsProbe(ctx))
		p.Release()
		end()
	})
}

func TestOpen(t *testing.T) {
	broke := &toolcircuit.HTTPError{StatusCode: 502}
	// opened is the context of the stream, leave what its caller has enough by.
	type opened func(ctx context.Context, c *stream.Call, leave context.CancelFunc)
	for name, test := range map[string]struct {
		open func() error
		then opened
		kind toolcircuit.Kind
	}{
		"it ends": {nil, func(_ context.Context, c *stream.Call, _ context.CancelFunc) {
			require.NoError(t, c.Part(nil))
			require.Equal(t, io.EOF, c.Part(io.EOF))
			require.Equal(t, broke, c.Part(broke)) // which nobody counts
		}, toolcircuit.KindOK},
		"it flows for long and breaks": {nil, func(_ context.Context, c *stream.Call, _ context.CancelFunc) {
			require.NoError(t, c.Part(nil))
			time.Sleep(time.Hour)
			require.Equal(t, broke, c.Part(broke))
		}, toolcircuit.KindUnavailable},
		"nothing comes": {nil, func(ctx context.Context, c *stream.Call, _ context.CancelFunc) {
			<-ctx.Done()
			require.ErrorIs(t, c.Part(ctx.Err()), toolcircuit.ErrCallTimeout)
		}, toolcircuit.KindTimeout},
		"its reader has enough": {nil, func(_ context.Context, c *stream.Call, _ context.CancelFunc) {
			require.NoError(t, c.End(nil))
		}, toolcircuit.KindOK},
		"its caller leaves, and nobody reads": {nil, func(_ context.Context, _ *stream.Call, leave context.CancelFunc) {
			leave()
		}, toolcircuit.KindCanceled},
		"it is a failure that takes long to read": {nil, func(ctx context.Context, c *stream.Call, _ context.CancelFunc) {
			c.Judge(broke, false)
			time.Sleep(time.Hour)
			require.NoError(t, ctx.Err())
			require.NoError(t, c.End(nil))
		}, toolcircuit.KindUnavailable},
		"it is empty, and its reader is slow": {nil, func(ctx context.Context, c *stream.Call, _ context.CancelFunc) {
			c.Judge(nil, true)
			time.Sleep(time.Hour)
			require.NoError(t, c.End(nil))
		}, toolcircuit.KindOK},
		"it does not open":         {func() error { return broke }, nil, toolcircuit.KindUnavailable},
		"it does not open, by EOF": {func() error { return io.EOF }, nil, toolcircuit.KindUnknown},
		"its opening panics":       {func() error { panic("") }, nil, toolcircuit.KindPanic},
		"its opening calls Goexit": {func() error { runtime.Goexit(); return nil }, nil, toolcircuit.KindPanic},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := make(chan toolcircuit.Call, 2)
				set, err := toolset.New(toolset.Config{Monitored: []string{"*"}, Default: &toolcircuit.Policy{CallTimeout: time.Second}},
					toolset.Options{OnCall: func(_ context.Context, c toolcircuit.Call) { calls <- c }})
				require.NoError(t, err)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				var inner context.Context
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { recover() }()
					_, c, err := stream.Open(ctx, set, "api", toolset.Unknown, func(ctx context.Context) (any, error) {
						if inner = ctx; test.open != nil {
							return nil, test.open()
						}
						return nil, nil
					})
					if err == nil {
						test.then(inner, c, leave)
					}
				}()
				require.Equal(t, test.kind, (<-calls).Verdict.Kind)
				<-done
				synctest.Wait()
				require.Error(t, inner.Err()) // nothing is left behind
				require.Empty(t, calls)
				require.Zero(t, set.Snapshot().Circuits[0].InFlight)
			})
		})
	}
}

func TestOpenRefused(t *testing.T) {
	set, err := toolset.New(toolset.Config{Monitored: []string{"*"}}, toolset.Options{})
	require.NoError(t, err)
	set.Circuit(t.Context(), "api").SetOverride(toolcircuit.OverrideOpen)
	_, c, err := stream.Open(t.Context(), set, "api", toolset.Unknown, func(context.Context) (any, error) {
		t.Error("opened")
		return nil, nil
	})
	require.ErrorIs(t, err, toolcircuit.ErrCircuitOpen)
	require.Nil(t, c)
}

func TestOpenNil(t *testing.T) {
	set, err := toolset.New(toolset.Config{}, toolset.Options{})
	require.NoError(t, err)
	open := func(context.Context) (any, error) { return nil, nil }
	var none context.Context
	require.PanicsWithValue(t, "stream: Open: open is nil", func() { stream.Open[any](t.Context(), set, "api", nil, nil) })
	require.Panics(t, func() { stream.Open(t.Context(), nil, "api", nil, open) })
	require.Panics(t, func() { stream.Open(none, set, "api", nil, open) })
}
