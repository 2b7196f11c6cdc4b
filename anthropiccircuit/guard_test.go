package anthropiccircuit_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/toolrunner"
	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/anthropiccircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

type content = anthropic.BetaToolResultBlockParamContentUnion

func says(text string) content { return content{OfText: &anthropic.BetaTextBlockParam{Text: text}} }

// rig is one guarded tool.
type rig struct {
	*testing.T
	now  *clock.Mock
	set  *toolset.Set
	last toolcircuit.Call
	tool anthropic.BetaTool
}

var errAsks = errors.New("may I?")

// interrupts is a Classifier that knows errAsks.
func interrupts(_ context.Context, o toolcircuit.Outcome) (v toolcircuit.Verdict) {
	if errors.Is(o.Err, errAsks) {
		v.Kind = toolcircuit.KindInterrupt
	}
	return v
}

// run runs f with a tool that does what do does, in a bubble.
func run(t *testing.T, do func(ctx context.Context) (content, error), f func(*rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, now: clock.NewMock()}
		var err error
		r.set, err = toolset.New(toolset.Config{
			Tools:   map[string]toolset.Tool{"search": {Dependency: "search-api"}},
			Default: &toolcircuit.Policy{FailureThreshold: 2, CallTimeout: time.Second, Cooldown: time.Minute},
		}, toolset.Options{Clock: r.now, OnCall: func(_ context.Context, c toolcircuit.Call) { r.last = c }, Classify: interrupts})
		require.NoError(t, err)
		tool, err := toolrunner.NewBetaToolFromJSONSchema("search", "searches",
			func(ctx context.Context, _ struct{}) (content, error) { return do(ctx) })
		require.NoError(t, err)
		r.tool = anthropiccircuit.Guard(r.set, tool)[0]
		require.Equal(t, "search", r.tool.Name())
		require.Equal(t, tool.InputSchema(), r.tool.InputSchema())
		f(r)
	})
}

// execute calls the tool. It returns what the model reads, and fails unless that is one result.
func (r *rig) execute(ctx context.Context) (value string, told toolcircuit.Result[any], err error) {
	blocks, err := r.tool.Execute(ctx, json.RawMessage(`{}`))
	if err == nil {
		require.Len(r, blocks, 1)
		return blocks[0].OfText.Text, told, nil
	}
	if strings.HasPrefix(err.Error(), "{") {
		require.NoError(r, json.Unmarshal([]byte(err.Error()), &told))
	}
	return "", told, err
}

func TestGuard(t *testing.T) {
	fail := error(&toolcircuit.HTTPError{StatusCode: 503})
	var seen context.Context
	run(t, func(ctx context.Context) (content, error) {
		seen = ctx
		return says("found"), fail
	}, func(r *rig) {
		for range 2 {
			_, told, err := r.execute(r.Context())
			require.Equal(r, toolcircuit.StatusFailed, told.Status)
			require.NotErrorIs(r, err, toolcircuit.ErrCircuitOpen)
		}
		_, told, err := r.execute(r.Context())
		require.Equal(r, toolcircuit.StatusBlocked, told.Status)
		require.EqualValues(r, time.Minute.Milliseconds(), told.RetryAfterMS)
		require.ErrorIs(r, err, toolcircuit.ErrCircuitOpen)

		fail = nil
		r.now.Add(time.Minute)
		session, err := r.set.Session("run", toolset.Limits{})
		require.NoError(r, err)
		value, _, err := r.execute(toolset.WithSession(r.Context(), session))
		require.NoError(r, err)
		require.Equal(r, "found", value)
		require.True(r, toolcircuit.IsProbe(seen))
		require.NotEmpty(r, toolset.IdempotencyKey(seen))
		require.Equal(r, toolcircuit.StateClosed, r.set.Circuit(r.Context(), "search").State())
	})
}

func TestGuardHang(t *testing.T) {
	run(t, func(ctx context.Context) (content, error) {
		<-ctx.Done()
		return content{}, ctx.Err()
	}, func(r *rig) {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			synctest.Wait()
			r.now.Add(time.Second)
		}()
		_, told, _ := r.execute(r.Context())
		require.Equal(r, toolcircuit.KindTimeout, told.Cause)
		<-ended

		ctx, cancel := context.WithCancel(r.Context())
		go func() {
			synctest.Wait()
			cancel()
		}()
		_, told, err := r.execute(ctx)
		require.Empty(r, told)
		require.ErrorIs(r, err, context.Canceled)
		require.Equal(r, toolcircuit.KindCanceled, r.last.Verdict.Kind)
	})
}

// An interrupt, which a Classifier names, is handed on as it is. It counts for nothing: a probe's place is
// free again.
func TestGuardInterrupt(t *testing.T) {
	fail := error(&toolcircuit.HTTPError{StatusCode: 503})
	run(t, func(context.Context) (content, error) { return content{}, fail }, func(r *rig) {
		for range 2 {
			r.execute(r.Context())
		}
		fail = errAsks
		r.now.Add(time.Minute)
		for range 2 {
			_, _, err := r.execute(r.Context())
			require.Equal(r, errAsks, err)
			require.True(r, r.last.Probe)
			require.Equal(r, toolcircuit.KindInterrupt, r.last.Verdict.Kind)
		}
	})
}

func TestGuardPanic(t *testing.T) {
	run(t, func(context.Context) (content, error) { panic("boom") }, func(r *rig) {
		require.PanicsWithValue(r, "boom", func() { r.execute(r.Context()) })
		require.Equal(r, toolcircuit.KindPanic, r.last.Verdict.Kind)
	})
}

// What no rule knows is told, and does not count.
func TestGuardUnknown(t *testing.T) {
	run(t, func(context.Context) (content, error) { return content{}, errors.New("?") }, func(r *rig) {
		for range 5 {
			_, told, _ := r.execute(r.Context())
			require.Equal(r, toolcircuit.KindUnknown, told.Cause)
		}
	})
}
