package toolcircuit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

// Faults reported against breakers inside agent products (A) and read in the source of other
// tool breakers (S). Each test is named after its case. The cases without one here:
//
//	A005 A007 A022            classify_test.go
//	A068 A074 A077 A079 S05   result_test.go
//	A029 A031 A032 A034 A035  toolset, Session: repetition
//	A071 A082 A083            toolset, Session: the end of a turn and its summary
//	A110                      toolset, Session: a repeat is told by its arguments
//	A061 S04                  toolset, Set: settings per tool; Reset by name
//	A088 A089 A091 A092       toolset, Set: what is listed, and the gate of what is not
//	A095                      toolset, Set: eviction; the core has no keys and no registry
//	A076 A113                 the host's: it picks the substitute, Result.Or names it
//	A055 A098 A100 A101       shared state
//
// Partly here: A001 and A014 (the verdicts: classify_test.go), A004 (before a permit is taken: an
// adapter), A017 and A062 (lists, configuration: toolset), A020 and A065 (several instances: shared
// state), A028 and A037 (advice, endTurn: Session), A070 and A103 (each adapter).

// gives is a call that must run and returns v with no error.
func gives(v any) func(*rig) {
	return func(r *rig) {
		r.Helper()
		ran := false
		got, err := toolcircuit.Do(context.Background(), r.ToolCircuit, func(context.Context) (any, error) {
			ran = true
			return v, nil
		})
		require.NoError(r, err)
		require.True(r, ran)
		require.Equal(r, v, got)
	}
}

// walksAway is a call whose caller walks away from it and which then returns err.
func walksAway(err error) func(*rig) {
	return func(r *rig) {
		r.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		_, got := toolcircuit.Do(ctx, r.ToolCircuit, func(context.Context) (string, error) {
			cancel()
			return "", err
		})
		require.Equal(r, err, got)
	}
}

// strict is a Classifier that counts every answer with an HTTP status that is no success, of the
// kind that the rules give it.
var strict = toolcircuit.ForError(func(*toolcircuit.HTTPError) toolcircuit.Verdict {
	return toolcircuit.Verdict{Effect: toolcircuit.EffectCount}
})

// neutral is a Classifier that ignores one error, as one of kind k.
func neutral(target error, k toolcircuit.Kind) toolcircuit.Classifier {
	return func(_ context.Context, o toolcircuit.Outcome) toolcircuit.Verdict {
		if errors.Is(o.Err, target) {
			return toolcircuit.Verdict{Kind: k}
		}
		return toolcircuit.Verdict{}
	}
}

// refusalRead is what a model reads about a call of c that must be refused.
func refusalRead(t testing.TB, c *toolcircuit.ToolCircuit) toolcircuit.Blocked {
	t.Helper()
	result, err := toolcircuit.WrapResult(c, func(context.Context, string) (string, error) {
		t.Error("a refused call ran")
		return "", nil
	})(context.Background(), "")
	require.NoError(t, err)
	require.Equal(t, toolcircuit.StatusBlocked, result.Status)
	require.Nil(t, result.Value)
	return result.Blocked
}

// newQuietRig is newRig without hooks, for calls that are made at once.
func newQuietRig(t *testing.T, o toolcircuit.Options) *rig {
	r := &rig{T: t, clock: clock.NewMock(), permits: map[string]*toolcircuit.Permit{}}
	o.Clock = r.clock
	r.ToolCircuit = toolcircuit.MustNew("search-api", o)
	return r
}

// stampede makes n calls at once, none of which ends before all have asked. It must be called
// inside a synctest bubble.
func stampede(c *toolcircuit.ToolCircuit, n int, err error) (ran int, refusals []*toolcircuit.OpenError) {
	var (
		running sync.WaitGroup
		admits  atomic.Int64
		mu      sync.Mutex
		release = make(chan struct{})
	)
	for range n {
		running.Go(func() {
			_, got := toolcircuit.Do(context.Background(), c, func(context.Context) (string, error) {
				admits.Add(1)
				<-release
				return "", err
			})
			if refusal := new(toolcircuit.OpenError); errors.As(got, &refusal) {
				mu.Lock()
				defer mu.Unlock()
				refusals = append(refusals, refusal)
			}
		})
	}
	synctest.Wait()
	close(release)
	running.Wait()
	return int(admits.Load()), refusals
}

// happened is the types of a rig's events.
func happened(r *rig) (types []toolcircuit.EventType) {
	for _, e := range r.events {
		types = append(types, e.Type)
	}
	return types
}

// Three bad arguments block neither their tool nor its sibling. A strict Classifier trips the
// one tool that has a circuit of its own, and the cause says that it was answered
// (NousResearch/hermes-agent#11113).
func TestA001StrictTripsOneTool(t *testing.T) {
	noHost := &net.DNSError{Err: "no such host", Name: "nowhere.invalid", IsNotFound: true}
	run(t, policy(nil), []step{{calls(3, noHost), closed}, {call(nil), closed}})

	o := policy(nil)
	o.Classify = toolcircuit.ForError(func(*net.DNSError) toolcircuit.Verdict {
		return toolcircuit.Verdict{Effect: toolcircuit.EffectCount}
	})
	r := newRig(t, o)
	sibling := r.Twin("search-api/sibling")
	calls(3, noHost)(r)
	require.Equal(t, toolcircuit.KindNotFound, refusalRead(t, r.ToolCircuit).Cause)
	require.True(t, sibling.Ready())
}

// A gateway that holds a call for a person's confirmation says nothing about the dependency
// (NousResearch/hermes-agent#61555).
func TestA002HoldForConfirmation(t *testing.T) {
	type held struct{}
	o := policy(nil)
	o.Classify = func(_ context.Context, o toolcircuit.Outcome) toolcircuit.Verdict {
		if o.Value == (held{}) {
			return toolcircuit.Verdict{Kind: toolcircuit.KindInterrupt}
		}
		return toolcircuit.Verdict{}
	}
	run(t, o, []step{
		{all(gives(held{}), gives(held{}), gives(held{})), closed},
		{calls(3, errDown), open},
		{add(time.Minute), halfOpen},
		{gives(held{}), halfOpen},
		{gives(held{}), halfOpen},
		{gives("confirmed"), closed},
	})
}

// Arguments that the wrapper cannot bind fail before the tool's body. They are no strike. While
// half-open they do take the slot and give it back at once: a middleware sees bad arguments only in the
// answer (kubeflow/mcp-server#239).
func TestA004ArgumentsNotBound(t *testing.T) {
	errBinding := errors.New(`unknown argument "nmae"`)
	run(t, policy(nil), []step{
		{all(calls(5, errInvalid), calls(5, errBinding)), closed},
		{call(nil), closed},
		{calls(3, errDown), open},
		{add(time.Minute), halfOpen},
		{all(calls(5, errInvalid), calls(5, errBinding)), halfOpen},
		{call(nil), closed},
	})
}

// A caller's mistake takes no member out of a group and does not close the group
// (mcp-hangar/mcp-hangar#1409).
func TestA008CallerErrorInGroup(t *testing.T) {
	r := newRig(t, policy(nil))
	members := []*toolcircuit.ToolCircuit{r.Twin("m0"), r.Twin("m1"), r.Twin("m2")}
	ran := 0
	divide := func(err error) error {
		_, err = toolcircuit.Do(t.Context(), r.ToolCircuit, func(ctx context.Context) (int, error) {
			return toolcircuit.Do(ctx, members[ran%3], func(context.Context) (int, error) {
				ran++
				return 0, err
			})
		})
		return err
	}
	for range 12 {
		require.ErrorIs(t, divide(errInvalid), errInvalid)
	}
	require.NoError(t, divide(nil))
	require.Equal(t, 13, ran)
	for _, c := range append(members, r.ToolCircuit) {
		require.Equal(t, closed, c.State())
		require.Zero(t, c.Snapshot().Streak)
	}
}

// A permission check inside the wrapped call has troubles of its own: marked Benign or behind
// a circuit of its own they are not the tool's, and the blocked result names the check. A panic
// has no owner that a circuit could tell, so it counts: the check has to recover its own
// (arjun-techjays/bos#16).
func TestA010OtherLayer(t *testing.T) {
	r := run(t, policy(nil), []step{
		{calls(4, toolcircuit.Benign(errDown)), closed},
	})
	permissions := r.Twin("permissions-db")
	guarded := toolcircuit.WrapResult(r.ToolCircuit, func(ctx context.Context, _ string) (string, error) {
		_, err := toolcircuit.Do(ctx, permissions, func(context.Context) (string, error) { return "", errDown })
		if !errors.Is(err, toolcircuit.ErrCircuitOpen) {
			err = toolcircuit.Benign(err)
		}
		return "", fmt.Errorf("permission check: %w", err)
	})
	for range 3 {
		result, err := guarded(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, toolcircuit.StatusFailed, result.Status)
	}
	require.Equal(t, open, permissions.State())
	for range 5 {
		result, err := guarded(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, "permissions-db", result.Dependency)
		require.NotContains(t, result.Message, "search-api")
	}
	require.Equal(t, closed, r.State())
	require.Zero(t, r.Snapshot().Streak)
}

// A security check that denies works. When its own dependency is down there is no way past it
// (moltis-org/moltis#547).
func TestA011DenialIsNoFailure(t *testing.T) {
	errDenied := toolcircuit.Benign(errors.New("denied"))
	r := run(t, policy(nil), []step{
		{calls(4, errDenied), closed},
		{calls(3, errDown), open},
	})
	allowed, err := toolcircuit.Do(t.Context(), r.ToolCircuit, func(context.Context) (bool, error) { return true, nil })
	require.ErrorIs(t, err, toolcircuit.ErrCircuitOpen)
	require.False(t, allowed)
}

// reconnecting is a client's error while it rebuilds its connection.
type reconnecting struct{}

func (reconnecting) Error() string { return "not connected" }
func (reconnecting) Unwrap() error { return io.ErrUnexpectedEOF }

// What a client says while it reconnects can be made neutral, in one rule
// (NousResearch/hermes-agent#52405).
func TestA013Reconnecting(t *testing.T) {
	o := policy(nil)
	run(t, o, []step{{calls(3, reconnecting{}), open}})

	o.Classify = toolcircuit.ForError(func(reconnecting) toolcircuit.Verdict {
		return toolcircuit.Verdict{Kind: toolcircuit.KindUnavailable}
	})
	run(t, o, []step{
		{calls(5, reconnecting{}), closed},
		{all(add(300*time.Millisecond), call(nil)), closed},
	})
}

// A 429 that says how long is a pause, not a strike. One that does not say counts, as the
// dependency gives nothing else to go by; who knows better names it with a Classifier, and
// then it is neither failure nor success (MikkoParkkola/mcp-gateway#475).
func TestA014ThrottledStreak(t *testing.T) {
	errThrottled := &toolcircuit.HTTPError{StatusCode: 429}
	o := policy(nil)
	run(t, o, []step{{calls(3, errThrottled), open}})

	o.Classify = toolcircuit.ForError(func(e *toolcircuit.HTTPError) toolcircuit.Verdict {
		if e.StatusCode == 429 && e.RetryAfter == 0 {
			return toolcircuit.Verdict{Kind: toolcircuit.KindRateLimited}
		}
		return toolcircuit.Verdict{}
	})
	r := run(t, o, []step{
		{calls(2, errDown), closed},
		{calls(10, errThrottled), closed},
	})
	require.Equal(t, 2, r.Snapshot().Streak)
	run(t, o, []step{
		{call(nil), closed},
		{call(&toolcircuit.HTTPError{StatusCode: 429, RetryAfter: 7 * time.Second}), open},
		{refused(7 * time.Second), open},
		{all(add(7*time.Second), call(nil)), closed},
	})
}

// Only a rate with enough calls behind it trips, and the event tells a missing program from a
// dependency that is down (adolfousier/opencrabs#889).
func TestA016RateNeedsSamples(t *testing.T) {
	o := policy(func(p *toolcircuit.Policy) {
		p.FailureThreshold, p.FailureRate, p.MinCalls = math.MaxInt, 0.5, 20
	})
	o.Classify = func(_ context.Context, o toolcircuit.Outcome) toolcircuit.Verdict {
		if errors.Is(o.Err, exec.ErrNotFound) {
			return toolcircuit.Verdict{Effect: toolcircuit.EffectCount, Kind: toolcircuit.KindNotFound}
		}
		return toolcircuit.Verdict{}
	}
	missing := &exec.Error{Name: "rg", Err: exec.ErrNotFound}
	r := run(t, o, []step{
		{calls(5, nil), closed},
		{calls(14, missing), closed},
		{call(missing), open},
	})
	e := r.events[0]
	require.Equal(t, toolcircuit.RuleRate, e.Rule)
	require.Equal(t, toolcircuit.KindNotFound, e.Kind)
	require.Equal(t, []int{15, 20}, []int{e.Failures, e.Calls})

	r = newRig(t, o) // 8% of many
	for range 100 {
		all(calls(23, nil), calls(2, errDown))(r)
	}
	require.Equal(t, closed, r.State())
	run(t, o, []step{{calls(3, errDown), closed}}) // three calls in all
}

// A test runner that is expected to fail is not refused by default
// (cniska/acolyte#287).
func TestA017FailingTestsAreWork(t *testing.T) {
	r := run(t, toolcircuit.Options{}, []step{{calls(10, &exec.ExitError{}), closed}})
	require.Equal(t, uint64(10), r.Snapshot().Unclassified)
}

// A user who signs out ends connections on purpose, and new credentials can close the circuit
// where they arrive, also through another view of it (danny-avila/LibreChat#13645).
func TestA019SignOut(t *testing.T) {
	hangUp := &net.OpError{Op: "read", Net: "tcp", Err: net.ErrClosed}
	run(t, policy(nil), []step{
		{all(walksAway(hangUp), walksAway(hangUp), walksAway(hangUp), walksAway(hangUp), walksAway(hangUp)), closed},
		{calls(5, toolcircuit.Benign(hangUp)), closed},
		{calls(3, errDown), open},
		{func(r *rig) { r.WithTool(toolcircuit.Tool{Name: "sign_in"}).Reset() }, closed},
		{call(nil), closed},
	})
}

// A wrong key never blocks by default, so that the first call after the fix goes out. Where a
// Classifier counts it, the cause says so and Reset clears it
// (NousResearch/hermes-agent#11128).
func TestA020KeyFixed(t *testing.T) {
	errKey := &toolcircuit.HTTPError{StatusCode: 403}
	run(t, policy(nil), []step{{calls(10, errKey), closed}})

	o := policy(nil)
	o.Classify = strict
	r := run(t, o, []step{{calls(3, errKey), open}})
	require.Equal(t, toolcircuit.KindUnauthorized, refusalRead(t, r.ToolCircuit).Cause)
	reset(r)
	call(nil)(r)
}

// Two failures and a success, over and over, never make three in a row. The rate sees them, and
// both rules can be on (Illospace/illospace#508).
func TestA023FlakyNeedsTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, policy(nil))
		for range 45 {
			all(calls(2, errDown), call(nil), add(time.Minute))(r)
		}
		require.Equal(t, closed, r.State())

		r = newRig(t, policy(func(p *toolcircuit.Policy) {
			p.FailureRate, p.Window, p.MinCalls = 0.6, 5*time.Minute, 7
		}))
		all(calls(2, errDown), call(nil), add(time.Minute), calls(2, errDown), call(nil), add(time.Minute))(r)
		require.Equal(t, closed, r.State())
		call(errDown)(r)
		require.Equal(t, open, r.State())
		require.Equal(t, toolcircuit.RuleRate, r.events[0].Rule)
	})
}

// Order of a stack: a cache goes outside the circuit; inside, a hit proves nothing and has to
// say so. A retry goes outside, so that each attempt is seen and a refusal ends it; inside, a
// call that got through in the end is one success (agentscope-ai/agentscope-java#2984).
func TestA025CacheAndRetry(t *testing.T) {
	hit := toolcircuit.Result[string]{Status: toolcircuit.StatusBlocked}.Or("cached", "cache")
	r := run(t, policy(nil), []step{
		{calls(2, errDown), closed},
		{gives(hit), closed},
		{call(errDown), open},
		{all(add(time.Minute), gives(hit)), halfOpen},
		{call(nil), closed},
	})

	attempts := 0
	flaky := func() error {
		if attempts++; attempts < 3 {
			return errDown
		}
		return nil
	}
	_, err := toolcircuit.Do(t.Context(), r.ToolCircuit, func(context.Context) (string, error) {
		for flaky() != nil {
		}
		return "", nil
	})
	require.NoError(t, err)
	require.Zero(t, r.Snapshot().Streak)
	require.Len(t, r.calls, 7, "the retry inside is one call more than 6")

	attempts = 0
	for err = errDown; toolcircuit.Retryable(err) && attempts < 10; attempts++ {
		_, err = toolcircuit.Do(t.Context(), r.ToolCircuit, func(context.Context) (string, error) { return "", errDown })
	}
	require.ErrorIs(t, err, toolcircuit.ErrCircuitOpen)
	require.Equal(t, 4, attempts, "three and the refusal")
}

// One script is one observation, whatever its requests met and in which order
// (cynative/cynative#296).
func TestA026ScriptIsOneCall(t *testing.T) {
	script := func(outcomes ...error) func(*rig) {
		return func(r *rig) {
			inner := r.Twin("inner")
			_, err := toolcircuit.Do(context.Background(), r.ToolCircuit, func(ctx context.Context) (string, error) {
				var errs error
				for _, err := range outcomes {
					_, err = toolcircuit.Do(ctx, inner, func(context.Context) (string, error) { return "", err })
					errs = errors.Join(errs, err)
				}
				return "", errs
			})
			require.Error(r, err)
		}
	}
	refusals := make([]error, 10)
	for i := range refusals {
		refusals[i] = errInvalid
	}
	r := run(t, policy(nil), []step{
		{script(refusals...), closed},
		{script(append([]error{nil}, refusals...)...), closed},
		{script(append(refusals, nil)...), closed},
	})
	require.Zero(t, r.Snapshot().Streak)

	r = run(t, policy(nil), []step{{script(errDown, errDown), closed}})
	require.Equal(t, 1, r.Snapshot().Streak)
	r = run(t, policy(nil), []step{{script(errDown, errDown, errDown, errDown), closed}})
	require.Zero(t, r.Snapshot().Streak, "the inner circuit opened and answered, which is no strike for the outer")
}

// A batch of parallel failures adds one, and so does the next turn
// (Gitlawb/openclaude#2048).
func TestA028TurnsAddUp(t *testing.T) {
	r := run(t, policy(func(p *toolcircuit.Policy) { p.CountBurstOnce = true }), []step{
		{begin("1", "2", "3", "4", "5", "6", "7", "8"), closed},
		{all(end("1", errDown), end("2", errDown), end("3", errDown), end("4", errDown)), closed},
		{all(end("5", errDown), end("6", errDown), end("7", errDown), end("8", errDown)), closed},
	})
	require.Equal(t, 1, r.Snapshot().Streak)
	all(begin("9"), end("9", errDown))(r)
	require.Equal(t, 2, r.Snapshot().Streak)
}

// Blocked calls are counted though they return early (openclaw/openclaw#127701).
func TestA037BlockedCallsAreCounted(t *testing.T) {
	r := run(t, policy(nil), []step{{calls(3, errDown), open}})
	for n := range uint64(5) {
		require.Equal(t, n, r.Snapshot().Refused)
		refused(time.Minute)(r)
	}
	require.Equal(t, uint64(5), r.Snapshot().Refused)
	require.Len(t, r.calls, 8)
	require.False(t, r.calls[7].Executed)
}

// A contradictory setting is an error that names it, and none means to block everything
// (Bike4Mind/bike4mind#758).
func TestA038SettingsAreChecked(t *testing.T) {
	for field, p := range map[string]toolcircuit.Policy{
		"FailureThreshold": {FailureThreshold: -1},
		"Cooldown":         {Cooldown: -time.Second},
		"MaxCooldown":      {Cooldown: time.Minute, MaxCooldown: time.Second},
		"ProbeTimeout":     {CallTimeout: time.Minute, ProbeTimeout: time.Second},
	} {
		_, err := toolcircuit.New("search-api", toolcircuit.Options{Policy: p})
		require.ErrorContains(t, err, "Policy."+field+":")
	}
	var p toolcircuit.Policy
	require.ErrorContains(t, p.UnmarshalJSON([]byte(`{"failureThreshold":0}`)), "failureThreshold")
	run(t, toolcircuit.Options{}, []step{{calls(4, errDown), closed}}) // zero is the default
}

// Time and one ordinary call are all that recovery needs
// (NousResearch/hermes-agent#13474).
func TestA040RecoversWithoutRestart(t *testing.T) {
	r := run(t, policy(nil), []step{
		{calls(3, errDown), open},
		{all(add(time.Minute), call(nil)), closed},
		{calls(2, nil), closed},
	})
	require.Equal(t, []toolcircuit.EventType{toolcircuit.EventOpened, toolcircuit.EventHalfOpened, toolcircuit.EventClosed}, happened(r))
}

// An hour of the normal path alone, half of it down
// (Lexus2016/hermes-agent-evolution#2423).
func TestA041OrdinaryPathRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, policy(nil))
		ran := 0
		search := toolcircuit.WrapResult(r.ToolCircuit, func(_ context.Context, minute int) (int, error) {
			ran++
			if minute < 30 {
				return 0, errDown
			}
			return minute, nil
		})
		for minute := range 60 {
			result, err := search(t.Context(), minute)
			if minute >= 40 { // at most MaxCooldown later
				require.NoError(t, err)
				require.Equal(t, toolcircuit.StatusOK, result.Status)
			}
			add(time.Minute)(r)
		}
		require.Equal(t, closed, r.State())
		require.Less(t, ran, 40)
	})
}

// A neutral answer to a probe gives the slot back each time and leaves the streak alone
// (kubeflow/mcp-server#221).
func TestA043NeutralProbe(t *testing.T) {
	r := run(t, policy(nil), []step{
		{calls(3, errDown), open},
		{add(time.Minute), halfOpen},
		{calls(10, &toolcircuit.HTTPError{StatusCode: 404}), halfOpen},
	})
	require.Equal(t, 1, r.Snapshot().Openings)
	require.True(t, r.calls[len(r.calls)-1].Probe)
	call(nil)(r)
	require.Equal(t, closed, r.State())
}

// A probe that nobody settles holds the slot for its lease and no longer. That a probe is out is
// told by the state half_open beside reason dependency_open (decocms/studio#5322).
func TestA044ProbeDropped(t *testing.T) {
	r := run(t, policy(nil), []step{
		{calls(3, errDown), open},
		{all(add(time.Minute), begin("dropped")), halfOpen},
		{all(add(59*time.Second), refused(time.Second)), halfOpen},
	})
	b := refusalRead(t, r.ToolCircuit)
	require.Equal(t, toolcircuit.ReasonDependencyOpen, b.Reason)
	require.Equal(t, halfOpen, b.State)
	require.Equal(t, int64(1000), b.RetryAfterMS)
	require.Equal(t, r.clock.Now().Add(time.Second), r.Snapshot().RetryAt, "the leak can be seen")

	all(add(time.Second), begin("next"))(r)
	require.True(t, r.permits["next"].Probe())
	end("next", nil)(r)
	require.Equal(t, closed, r.State())
}

// A probe that turns out not to be needed goes back: by Release, or by Do whatever its
// operation returns (openabdev/openab#969).
func TestA046ProbeNotUsed(t *testing.T) {
	errCached := toolcircuit.Benign(errors.New("answered from the cached connection"))
	run(t, policy(nil), []step{
		{calls(3, errDown), open},
		{all(add(time.Minute), begin("fast"), release("fast")), halfOpen},
		{all(begin("fast"), release("fast"), release("fast")), halfOpen},
		{call(errCached), halfOpen},
		{begin("forgotten"), halfOpen},
		{refused(time.Minute), halfOpen},
		{all(add(time.Minute), call(nil)), closed},
	})
}

// Whoever makes the probe can tell, and renew a client that would fail for ever
// (openabdev/openab#969).
func TestA047ProbeCanRefresh(t *testing.T) {
	r := run(t, policy(nil), []step{
		{calls(3, errDown), open},
		{add(time.Minute), halfOpen},
		{call(errDown), open}, // the dead client
		{add(2 * time.Minute), halfOpen},
	})
	dead := true
	search := toolcircuit.Wrap(r.ToolCircuit, func(ctx context.Context, _ string) (string, error) {
		if toolcircuit.IsProbe(ctx) {
			dead = false
		}
		if dead {
			return "", errDown
		}
		return "fresh", nil
	})
	got, err := search(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, "fresh", got)
	require.Equal(t, closed, r.State())

	begin("ordinary")(r)
	require.False(t, r.permits["ordinary"].Probe())
	_, err = toolcircuit.Do(t.Context(), r.ToolCircuit, func(ctx context.Context) (string, error) {
		require.False(t, toolcircuit.IsProbe(ctx))
		return "", nil
	})
	require.NoError(t, err)
}

// Of 50 callers that wait for the end of the cooldown, one goes
// (juspay/neurolink#866).
func TestA049OneProbeOfFifty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQuietRig(t, policy(nil))
		all(calls(3, errDown), add(time.Minute))(r)
		ran, refusals := stampede(r.ToolCircuit, 50, nil)
		require.Equal(t, 1, ran)
		require.Len(t, refusals, 49)
		for _, e := range refusals {
			require.Equal(t, halfOpen, e.State)
			require.Equal(t, time.Minute, e.RetryAt.Sub(r.clock.Now()))
			require.Equal(t, time.Second, e.RetryAfter(), "the probe may end long before its lease")
		}
		require.Equal(t, closed, r.State())
	})
}

// Several concurrent probes are not on offer: one goes at a time, and closing asks for as many
// successes in a row as the policy says (rmusser01/tldw_server#2128).
func TestA050SeveralProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQuietRig(t, policy(func(p *toolcircuit.Policy) { p.ProbeSuccesses = 3 }))
		all(calls(3, errDown), add(time.Minute))(r)
		for _, state := range []toolcircuit.State{halfOpen, halfOpen, closed} {
			ran, refusals := stampede(r.ToolCircuit, 10, nil)
			require.Equal(t, 1, ran)
			require.Len(t, refusals, 9)
			require.Equal(t, state, r.State())
		}
	})
}

// A stream that is closed frees the slot at once, one that is forgotten after the lease, and
// neither is an outcome (NVIDIA/NeMo-Agent-Toolkit#2158).
func TestA052StreamAbandoned(t *testing.T) {
	r := run(t, policy(nil), []step{
		{calls(3, errDown), open},
		{all(add(time.Minute), begin("closed early"), release("closed early")), halfOpen},
		{all(begin("forgotten"), refused(time.Minute)), halfOpen},
		{all(add(time.Minute), begin("third")), halfOpen},
	})
	require.Equal(t, 1, r.Snapshot().Openings)
	require.Len(t, r.calls, 4, "three calls and a refusal")
	end("third", nil)(r)
	require.Equal(t, closed, r.State())
}

// The probe of one outage decides nothing in the next (kubeflow/mcp-server#222).
func TestA053ProbeOfAnOlderOutage(t *testing.T) {
	r := run(t, policy(nil), []step{
		{calls(3, errDown), open},
		{all(add(time.Minute), begin("slow")), halfOpen},
		{all(add(time.Minute), call(errDown)), open},
		{end("slow", nil), open},
		{refused(2 * time.Minute), open},
		{all(add(2*time.Minute), begin("own")), halfOpen},
		{end("own", errDown), open},
	})
	require.Equal(t, uint64(1), r.Snapshot().Stale)

	run(t, policy(nil), []step{
		{calls(3, errDown), open},
		{all(add(time.Minute), begin("slow")), halfOpen},
		{all(add(time.Minute), call(errDown)), open},
		{all(add(2*time.Minute), begin("own")), halfOpen},
		{end("slow", nil), halfOpen},
		{refused(time.Minute), halfOpen},
		{end("own", nil), closed},
	})
}

// Asking whether a tool is usable takes nothing: the first call is the probe
// (agentscope-ai/agentscope-java#3024).
func TestA056ListingTakesNoProbe(t *testing.T) {
	r := run(t, policy(nil), []step{
		{calls(3, errDown), open},
		{add(time.Minute), halfOpen},
	})
	for range 5 {
		require.True(t, r.Ready())
		require.NoError(t, r.Wait(t.Context()))
		require.Equal(t, halfOpen, r.Snapshot().State)
	}
	begin("first")(r)
	require.True(t, r.permits["first"].Probe())
	require.False(t, r.Ready())
}

// A tool that writes leaves the probe to one that reads. When a write times out nobody knows
// what it did, and nothing is done again (agentic-community/mcp-gateway-registry#1668).
func TestA058WritesDoNotProbe(t *testing.T) {
	r := run(t, policy(nil), []step{{calls(3, errDown), open}})
	writes := r.WithTool(toolcircuit.Tool{Name: "refund", SideEffects: true})
	charged := 0
	refund := toolcircuit.WrapResult(writes, func(context.Context, string) (string, error) {
		charged++
		return "", os.ErrDeadlineExceeded
	})
	add(time.Minute)(r)
	require.False(t, writes.Ready())
	result, err := refund(t.Context(), "order 1")
	require.NoError(t, err)
	require.Equal(t, toolcircuit.StatusBlocked, result.Status)
	require.Equal(t, int64(60_000), result.RetryAfterMS)
	require.Zero(t, charged)

	call(nil)(r) // the read
	require.Equal(t, closed, r.State())
	result, err = refund(t.Context(), "order 1")
	require.NoError(t, err)
	require.Equal(t, toolcircuit.StatusFailed, result.Status)
	require.Equal(t, "unknown", result.Outcome)
	require.Nil(t, result.Executed)
	require.False(t, *result.Retryable)
	require.Equal(t, 1, charged)
}

// Where nobody else probes, or every other probe says nothing, a write is the probe after one
// further cooldown (agentic-community/mcp-gateway-registry#1668).
func TestA058WritesProbeAtLast(t *testing.T) {
	writes := func(r *rig) *toolcircuit.ToolCircuit {
		return r.WithTool(toolcircuit.Tool{Name: "refund", SideEffects: true})
	}
	r := run(t, policy(nil), []step{
		{calls(3, errDown), open},
		{add(2*time.Minute - 1), halfOpen},
	})
	require.False(t, writes(r).Ready())
	add(1)(r)
	require.True(t, writes(r).Ready())

	r = run(t, policy(nil), []step{
		{calls(3, errDown), open},
		{all(add(time.Minute), call(errInvalid), add(59*time.Second), call(errInvalid)), halfOpen},
	})
	require.False(t, writes(r).Ready())
	add(time.Second)(r)
	p, err := writes(r).Allow(t.Context())
	require.NoError(t, err)
	require.True(t, p.Probe())
	p.Settle(t.Context(), nil, nil)
	require.Equal(t, closed, r.State())
}

// A wait that the dependency asks for stands in for the policy's, to the second
// (can1357/oh-my-pi#1253).
func TestA059WaitAsAsked(t *testing.T) {
	r := run(t, policy(func(p *toolcircuit.Policy) { p.Cooldown, p.Jitter = 5*time.Minute, 1 }), []step{
		{call(wait(42 * time.Second)), open},
		{refused(42 * time.Second), open},
	})
	require.Equal(t, int64(42_000), refusalRead(t, r.ToolCircuit).RetryAfterMS)
	all(add(42*time.Second), call(nil))(r)
	require.Equal(t, closed, r.State())
}

// A circuit can be switched off, and a threshold changed, for one dependency alone. Its calls
// are still heard (NousResearch/hermes-agent#90071).
func TestA062SwitchedOff(t *testing.T) {
	r := newRig(t, policy(nil))
	other, patient := r.Twin("other"), r.Twin("patient")
	p := patient.Policy()
	p.FailureThreshold = 10
	require.NoError(t, patient.SetPolicy(p))
	down := func(context.Context) (string, error) { return "", errDown }

	all(override(toolcircuit.OverrideClosed), calls(20, errDown))(r)
	require.Len(t, r.calls, 20)
	for range 3 {
		_, err := toolcircuit.Do(t.Context(), other, down)
		require.ErrorIs(t, err, errDown)
	}
	for range 9 {
		_, err := toolcircuit.Do(t.Context(), patient, down)
		require.ErrorIs(t, err, errDown)
	}
	require.Equal(t, []toolcircuit.State{closed, open, closed}, []toolcircuit.State{r.State(), other.State(), patient.State()})
	_, _ = toolcircuit.Do(t.Context(), patient, down)
	require.Equal(t, open, patient.State())
}

// No field of Policy is read by nobody: for each one there is a difference that only it makes
// (MikkoParkkola/mcp-gateway#475).
func TestA064EveryFieldActs(t *testing.T) {
	state := func(actions ...func(*rig)) func(*rig) any {
		return func(r *rig) any {
			all(actions...)(r)
			return r.State()
		}
	}
	cooldown := func(actions ...func(*rig)) func(*rig) any {
		return func(r *rig) any {
			all(actions...)(r)
			return r.Snapshot().RetryAt.Sub(r.clock.Now())
		}
	}
	lasting := func(d time.Duration, err error) func(*rig) { return all(begin("long"), add(d), end("long", err)) }
	thrice := func(a func(*rig)) func(*rig) { return all(a, a, a) }
	expired, cancel := context.WithTimeout(t.Context(), -1)
	defer cancel()
	outOfTime := all(begin("late"), func(r *rig) { r.permits["late"].Settle(expired, nil, context.DeadlineExceeded) })
	rate := func(p *toolcircuit.Policy) { p.FailureRate, p.MinCalls = 0.5, 4 }
	none := func(*toolcircuit.Policy) {}

	rows := map[string]struct {
		base, edit    func(*toolcircuit.Policy)
		see           func(*rig) any
		without, with any
	}{
		"FailureThreshold": {none, func(p *toolcircuit.Policy) { p.FailureThreshold = 2 },
			state(calls(2, errDown)), closed, open},
		"FailureRate": {func(p *toolcircuit.Policy) { p.MinCalls = 4 }, func(p *toolcircuit.Policy) { p.FailureRate = 0.5 },
			state(calls(2, nil), calls(2, errDown)), closed, open},
		"Window": {rate, func(p *toolcircuit.Policy) { p.Window = 10 * time.Second },
			state(calls(2, nil), call(errDown), add(30*time.Second), call(errDown)), open, closed},
		"MinCalls": {rate, func(p *toolcircuit.Policy) { p.MinCalls = 2 },
			state(call(nil), call(errDown)), closed, open},
		"SlowCall": {none, func(p *toolcircuit.Policy) { p.SlowCall = time.Second },
			state(thrice(lasting(2*time.Second, nil))), closed, open},
		"CallTimeout": {none, func(p *toolcircuit.Policy) { p.CallTimeout = time.Second },
			state(thrice(lasting(2*time.Second, errInvalid))), closed, open},
		"IgnoreDeadline": {none, func(p *toolcircuit.Policy) { p.IgnoreDeadline = true },
			state(thrice(outOfTime)), open, closed},
		"CountUnknown": {none, func(p *toolcircuit.Policy) { p.CountUnknown = true },
			state(calls(3, errors.New("?"))), closed, open},
		"CountBurstOnce": {none, func(p *toolcircuit.Policy) { p.CountBurstOnce = true },
			state(begin("1", "2", "3"), end("1", errDown), end("2", errDown), end("3", errDown)), open, closed},
		"Cooldown": {none, func(p *toolcircuit.Policy) { p.Cooldown = 2 * time.Minute },
			cooldown(calls(3, errDown)), time.Minute, 2 * time.Minute},
		"Multiplier": {none, func(p *toolcircuit.Policy) { p.Multiplier = 3 },
			cooldown(calls(3, errDown), add(time.Minute), call(errDown)), 2 * time.Minute, 3 * time.Minute},
		"MaxCooldown": {none, func(p *toolcircuit.Policy) { p.MaxCooldown = 90 * time.Second },
			cooldown(calls(3, errDown), add(time.Minute), call(errDown)), 2 * time.Minute, 90 * time.Second},
		"Jitter": {none, func(p *toolcircuit.Policy) { p.Jitter = 1 },
			func(r *rig) any { return cooldown(calls(3, errDown))(r) == time.Minute }, true, false},
		"MaxRetryAfter": {none, func(p *toolcircuit.Policy) { p.MaxRetryAfter = time.Second },
			cooldown(call(wait(time.Hour))), 10 * time.Minute, time.Second},
		"ProbeSuccesses": {none, func(p *toolcircuit.Policy) { p.ProbeSuccesses = 2 },
			state(calls(3, errDown), add(time.Minute), call(nil)), closed, halfOpen},
		"ProbeTimeout": {none, func(p *toolcircuit.Policy) { p.ProbeTimeout = time.Second },
			cooldown(calls(3, errDown), add(time.Minute), begin("probe")), time.Minute, time.Second},
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[toolcircuit.Policy]()) {
		t.Run(field.Name, func(t *testing.T) {
			row, ok := rows[field.Name]
			require.True(t, ok, "a field without a row")
			o := policy(row.base)
			o.Seed = 1
			require.Equal(t, row.without, row.see(newRig(t, o)))
			row.edit(&o.Policy)
			require.Equal(t, row.with, row.see(newRig(t, o)))
		})
	}
}

// No field does the opposite at its greatest value: a cooldown as long as can be lets nobody
// through, neither with jitter nor for a write (MikkoParkkola/mcp-gateway#475).
func TestA064CooldownForEver(t *testing.T) {
	for _, jitter := range []float64{0, 1} {
		r := run(t, policy(func(p *toolcircuit.Policy) { p.Cooldown, p.Jitter = math.MaxInt64, jitter }), []step{
			{calls(3, errDown), open},
			{add(24 * time.Hour), open},
		})
		require.False(t, r.Ready())
		require.False(t, r.WithTool(toolcircuit.Tool{Name: "refund", SideEffects: true}).Ready())
	}
}

// Three hours of outage cost a handful of probes, and two events each
// (Abilityai/trinity#631).
func TestA065LongOutageIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, policy(func(p *toolcircuit.Policy) { p.Cooldown = 30 * time.Second }), []step{{calls(3, errDown), open}})
		probes := 0
		for range 3 * 60 * 2 {
			add(30 * time.Second)(r)
			_, err := toolcircuit.Do(t.Context(), r.ToolCircuit, func(context.Context) (string, error) {
				probes++
				return "", errDown
			})
			require.Error(t, err)
		}
		require.Equal(t, 4+17, probes, "after 30s, 1m, 2m, 4m, 8m, and then every ten minutes")
		require.Len(t, r.events, 1+2*probes)
	})
}

// Every transition is reached by moving the clock, and no goroutine stays behind: the bubble
// could not end with one (SolaceProducts/solace-broker-mcp#205).
func TestA067ClockAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, policy(nil), []step{
			{calls(3, errDown), open},
			{all(add(time.Minute), call(errDown)), open},
			{all(add(2*time.Minute), call(nil)), closed},
			{call(wait(time.Second)), open},
			{all(add(time.Second), call(wait(time.Second))), open},
			{reset, closed},
			{calls(3, errDown), open},
			{override(toolcircuit.OverrideOpen), open},
			{override(toolcircuit.OverrideNone), open},
			{reset, closed},
		})
		require.Equal(t, []toolcircuit.EventType{
			toolcircuit.EventOpened, toolcircuit.EventHalfOpened,
			toolcircuit.EventOpened, toolcircuit.EventHalfOpened,
			toolcircuit.EventClosed,
			toolcircuit.EventOpened, toolcircuit.EventHalfOpened,
			toolcircuit.EventOpened, toolcircuit.EventClosed,
			toolcircuit.EventOpened, toolcircuit.EventOverridden, toolcircuit.EventOverridden, toolcircuit.EventClosed,
		}, happened(r))
	})
}

// Go code gets a typed error, a model a result and no error
// (openclaw/openclaw#76032).
func TestA070TypedErrorAndResult(t *testing.T) {
	r := run(t, policy(nil), []step{{calls(3, errDown), open}})
	_, err := r.Allow(t.Context())
	var refusal *toolcircuit.OpenError
	require.ErrorAs(t, fmt.Errorf("tool: %w", err), &refusal)
	require.Equal(t, time.Minute, refusal.RetryAfter())
	require.Equal(t, "search-api", refusalRead(t, r.ToolCircuit).Dependency)
}

// The cause tells a server that refused everything from one that may not be reachable, in
// whatever order these came, and the last error is kept
// (NousResearch/hermes-agent#109245).
func TestA073CauseOfAMixedStreak(t *testing.T) {
	o := policy(nil)
	o.Classify = strict
	texts := map[toolcircuit.Kind]string{}
	for _, tt := range []struct {
		streak []error
		cause  toolcircuit.Kind
	}{
		{[]error{errInvalid, errInvalid, errInvalid}, toolcircuit.KindInvalid},
		{[]error{errInvalid, errInvalid, io.ErrUnexpectedEOF}, toolcircuit.KindUnavailable},
		{[]error{errInvalid, io.ErrUnexpectedEOF, errInvalid}, toolcircuit.KindUnavailable},
		{[]error{io.ErrUnexpectedEOF, errInvalid, errInvalid}, toolcircuit.KindUnavailable},
		{[]error{io.ErrUnexpectedEOF, errInvalid, os.ErrDeadlineExceeded}, toolcircuit.KindTimeout},
	} {
		r := newRig(t, o)
		for _, err := range tt.streak {
			call(err)(r)
		}
		b := refusalRead(t, r.ToolCircuit)
		require.Equal(t, tt.cause, b.Cause)
		require.Equal(t, tt.streak[2], r.Snapshot().Err)
		texts[tt.cause] = b.Message
	}
	require.NotEqual(t, texts[toolcircuit.KindInvalid], texts[toolcircuit.KindUnavailable])
	require.NotEqual(t, texts[toolcircuit.KindTimeout], texts[toolcircuit.KindUnavailable])

	// A success between them forgets the silence.
	r := run(t, o, []step{
		{all(call(io.ErrUnexpectedEOF), call(nil)), closed},
		{calls(3, errInvalid), open},
	})
	require.Equal(t, toolcircuit.KindInvalid, refusalRead(t, r.ToolCircuit).Cause)
}

// Ten days of failing softly show: to the operator in an event and the state, to the model in
// each result, which is never an empty success (TencentCloud/TencentDB-Agent-Memory#1133).
func TestA080SoftFailureShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, policy(nil))
		recall := toolcircuit.WrapResult(r.ToolCircuit, func(context.Context, string) (string, error) { return "", errDown })
		seen := map[toolcircuit.Status]int{}
		for range 10 * 24 * 12 {
			result, err := recall(t.Context(), "")
			require.NoError(t, err)
			require.Nil(t, result.Value)
			require.NotEmpty(t, result.Message)
			seen[result.Status]++
			add(5 * time.Minute)(r)
		}
		require.Len(t, seen, 2)
		require.Positive(t, seen[toolcircuit.StatusFailed])
		require.Positive(t, seen[toolcircuit.StatusBlocked])
		require.Equal(t, toolcircuit.EventOpened, r.events[0].Type)
		require.NotEqual(t, closed, r.State())
	})
}

// An event explains a trip afterwards; its log has neither arguments nor what the error said
// (MikkoParkkola/mcp-gateway#270).
func TestA085EventExplains(t *testing.T) {
	r := run(t, policy(nil), []step{{calls(2, errDown), closed}})
	errSecret := toolcircuit.Fault(errors.New("token=hunter2"))
	_, err := toolcircuit.Do(toolcircuit.WithRunID(t.Context(), "run-7"), r.ToolCircuit, func(context.Context) (string, error) {
		add(3 * time.Second)(r)
		return "", errSecret
	})
	require.Equal(t, errSecret, err)
	now := r.clock.Now()
	require.Equal(t, []toolcircuit.Event{{
		Type:       toolcircuit.EventOpened,
		Dependency: "search-api",
		From:       closed,
		To:         open,
		Seq:        1,
		Openings:   1,
		At:         now,
		RetryAt:    now.Add(time.Minute),
		Rule:       toolcircuit.RuleThreshold,
		Kind:       toolcircuit.KindUnavailable,
		Failures:   3,
		Calls:      3,
		Elapsed:    3 * time.Second,
		RunID:      "run-7",
		Err:        errSecret,
	}}, r.events)

	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("circuit", "event", r.events[0], "call", r.calls[2])
	for _, want := range []string{"search-api", "closed -> open", "threshold", "unavailable", "run-7", "3s"} {
		require.Contains(t, log.String(), want)
	}
	require.NotContains(t, log.String(), "hunter2")
}

// Reading at the end of a cooldown moves nothing, however often
// (SolaceProducts/solace-broker-mcp#414).
func TestA086ReadingIsPure(t *testing.T) {
	r := run(t, policy(nil), []step{
		{calls(3, errDown), open},
		{add(time.Minute - 1), open},
	})
	read := func(state toolcircuit.State) {
		before := r.Snapshot()
		for range 1000 {
			require.Equal(t, state, r.State())
			require.Equal(t, state == halfOpen, r.Ready())
			require.Equal(t, before, r.Snapshot())
		}
	}
	read(open)
	add(1)(r)
	read(halfOpen)
	require.Len(t, r.events, 1)
	begin("probe")(r)
	require.True(t, r.permits["probe"].Probe())
}

// Circuits are told apart by what they are, not by their name
// (MervinPraison/PraisonAI#3130).
func TestA094SameNameTwice(t *testing.T) {
	one := run(t, policy(nil), []step{{calls(3, errDown), open}})
	run(t, policy(nil), []step{{calls(2, errDown), closed}, {call(nil), closed}})
	require.Equal(t, closed, one.Twin(one.Dependency()).State())
}

// The primary of a pair does not block the group while the backup serves. When none is left the
// group answers that it is blocked, and its own circuit has nothing to add
// (mcp-hangar/mcp-hangar#426).
func TestA097BackupServes(t *testing.T) {
	r := newRig(t, policy(nil))
	primary, backup := r.Twin("primary"), r.Twin("backup")
	group := toolcircuit.WrapResult(r.ToolCircuit, func(ctx context.Context, _ string) (string, error) {
		got, err := toolcircuit.Do(ctx, primary, func(context.Context) (string, error) { return "", errDown })
		if err == nil {
			return got, nil
		}
		return toolcircuit.Do(ctx, backup, func(context.Context) (string, error) { return "backup", nil })
	})
	for range 10 {
		result, err := group(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, "backup", *result.Value)
	}
	require.Equal(t, open, primary.State())
	require.Equal(t, closed, r.State())

	backup.SetOverride(toolcircuit.OverrideOpen)
	for range 10 {
		result, err := group(t.Context(), "")
		require.NoError(t, err)
		require.Equal(t, toolcircuit.StatusBlocked, result.Status)
		require.Equal(t, "backup", result.Dependency)
	}
	require.Equal(t, closed, r.State())
}

// All ways to make a call share one gate, in each direction
// (MervinPraison/PraisonAI#4000).
func TestA103EveryPathOneGate(t *testing.T) {
	type path func(c *toolcircuit.ToolCircuit, err error) (ran bool)
	ctx := t.Context()
	fails := func(ran *bool) func(context.Context, error) (string, error) {
		return func(_ context.Context, err error) (string, error) {
			*ran = true
			return "", err
		}
	}
	paths := map[string]path{
		"Do": func(c *toolcircuit.ToolCircuit, err error) (ran bool) {
			_, _ = toolcircuit.Do(ctx, c, func(ctx context.Context) (string, error) { return fails(&ran)(ctx, err) })
			return ran
		},
		"Wrap": func(c *toolcircuit.ToolCircuit, err error) (ran bool) {
			_, _ = toolcircuit.Wrap(c, fails(&ran))(ctx, err)
			return ran
		},
		"WrapResult": func(c *toolcircuit.ToolCircuit, err error) (ran bool) {
			_, _ = toolcircuit.WrapResult(c, fails(&ran))(ctx, err)
			return ran
		},
		"DoResult": func(c *toolcircuit.ToolCircuit, err error) (ran bool) {
			_, _ = toolcircuit.DoResult(ctx, c, func(ctx context.Context) (string, error) { return fails(&ran)(ctx, err) })
			return ran
		},
		"Allow": func(c *toolcircuit.ToolCircuit, err error) bool {
			p, refusal := c.Allow(ctx)
			p.Settle(ctx, nil, err)
			return refusal == nil
		},
		"WithTool": func(c *toolcircuit.ToolCircuit, err error) bool {
			p, refusal := c.WithTool(toolcircuit.Tool{Name: "other"}).Allow(ctx)
			p.Settle(ctx, nil, err)
			return refusal == nil
		},
	}
	for tripper, trip := range paths {
		for caller, call := range paths {
			r := newRig(t, policy(nil))
			for range 3 {
				require.True(t, trip(r.ToolCircuit, errDown), tripper)
			}
			require.Equal(t, open, r.State(), tripper)
			require.False(t, call(r.ToolCircuit, nil), "%s after %s", caller, tripper)
			r.clock.Set(r.clock.Now().Add(time.Minute))
			require.True(t, call(r.ToolCircuit, nil), "%s after %s", caller, tripper)
			require.Equal(t, closed, r.State(), "%s after %s", caller, tripper)
		}
	}
}

// The circuit is the tool's, whoever calls it (can1357/oh-my-pi#9491).
func TestA104HelperAgent(t *testing.T) {
	r := newRig(t, policy(nil))
	ran := 0
	read := toolcircuit.Wrap(r.ToolCircuit, func(context.Context, string) (string, error) {
		ran++
		return "", errDown
	})
	for n := range 40 {
		_, err := read(toolcircuit.WithRunID(t.Context(), fmt.Sprint("helper-", n%2)), "file")
		require.Error(t, err)
	}
	require.Equal(t, 3, ran)
	_, err := read(toolcircuit.WithRunID(t.Context(), "main"), "file")
	require.ErrorIs(t, err, toolcircuit.ErrCircuitOpen)
}

// A check beside the calls closes the circuit, and so does Reset
// (NousResearch/hermes-agent#47216).
func TestA106OutOfBandSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, policy(nil), []step{{calls(3, errDown), open}})
		health := errDown
		ctx, stop := context.WithCancel(t.Context())
		var monitor sync.WaitGroup
		monitor.Go(func() {
			_ = r.Monitor(ctx, 10*time.Second, func(context.Context) error { return health })
		})
		synctest.Wait()
		r.clock.Add(10 * time.Second)
		synctest.Wait()
		require.Equal(t, open, r.State())
		health = nil
		r.clock.Add(10 * time.Second)
		synctest.Wait()
		require.Equal(t, closed, r.State())
		stop()
		monitor.Wait()

		all(calls(3, errDown), reset, call(nil))(r)
		require.Equal(t, closed, r.State())
	})
}

// Of 400 that ask at once for a dependency that is back, one rebuilds; the others are told when
// (danny-avila/LibreChat#12162).
func TestA107OneRebuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events atomic.Int64
		o := policy(nil)
		o.OnEvent = func(context.Context, toolcircuit.Event) { events.Add(1) }
		r := newQuietRig(t, o)
		all(calls(3, errDown), add(time.Minute))(r)
		ran, refusals := stampede(r.ToolCircuit, 400, errDown)
		require.Equal(t, 1, ran)
		require.Len(t, refusals, 399)
		for _, e := range refusals {
			require.Positive(t, e.RetryAfter())
		}
		require.Equal(t, int64(3), events.Load(), "opened, half_opened, opened")
	})
}

// A dependency that takes 15 or 21 seconds around a limit of 20 does not flap: slowness has a
// rule of its own, one lucky answer does not close, and a caller's own deadline is not the
// dependency's failure (stacklok/toolhive#5861).
func TestA109AroundTheLimit(t *testing.T) {
	hour := func(t *testing.T, edit func(*toolcircuit.Policy)) *rig {
		r := newRig(t, policy(func(p *toolcircuit.Policy) {
			p.CallTimeout = 20 * time.Second
			edit(p)
		}))
		start := r.clock.Now()
		for n := 0; r.clock.Since(start) < time.Hour; n++ {
			_, err := toolcircuit.Do(t.Context(), r.ToolCircuit, func(ctx context.Context) (string, error) {
				r.clock.Add(time.Duration(15+6*(n%2)) * time.Second)
				return "", ctx.Err()
			})
			if errors.Is(err, toolcircuit.ErrCircuitOpen) {
				r.clock.Add(time.Second)
			}
		}
		return r
	}
	synctest.Test(t, func(t *testing.T) {
		r := hour(t, func(*toolcircuit.Policy) {})
		require.Empty(t, r.events, "never three in a row")

		r = hour(t, func(p *toolcircuit.Policy) { p.SlowCall = 10 * time.Second })
		require.NotContains(t, happened(r), toolcircuit.EventClosed)
		require.Less(t, len(r.events), 20)

		r = hour(t, func(p *toolcircuit.Policy) {
			p.FailureRate, p.MinCalls, p.Window, p.ProbeSuccesses = 0.5, 4, 5*time.Minute, 2
		})
		require.Equal(t, toolcircuit.RuleRate, r.events[0].Rule)
		require.NotContains(t, happened(r), toolcircuit.EventClosed)
		require.Less(t, len(r.events), 20)
	})

	expired, cancel := context.WithTimeout(t.Context(), -1)
	defer cancel()
	for limit, state := range map[time.Duration]toolcircuit.State{0: open, 20 * time.Second: closed} {
		r := newRig(t, policy(func(p *toolcircuit.Policy) { p.CallTimeout = limit }))
		for range 3 {
			begin("call")(r)
			r.permits["call"].Settle(expired, nil, context.DeadlineExceeded)
		}
		require.Equal(t, state, r.State())
	}
}

// A hook that panics takes nothing from the call: the permit is settled, the lock free, the
// panic to be seen. A Classifier's counts, a listener's does not (crewAIInc/crewAI#6298).
func TestA112PanicInAHook(t *testing.T) {
	broken := false
	hooks := policy(nil)
	hooks.OnEvent = func(context.Context, toolcircuit.Event) { panic("listener") }
	hooks.OnCall = func(context.Context, toolcircuit.Call) { panic("listener") }
	r := run(t, hooks, []step{
		{calls(2, errDown), closed},
		{call(nil), closed},
		{calls(3, errDown), open},
		{all(refused(time.Minute), add(time.Minute), call(nil)), closed},
	})
	require.Equal(t, uint64(8+3), r.Snapshot().HookPanics)

	o := policy(nil)
	o.Classify = func(context.Context, toolcircuit.Outcome) toolcircuit.Verdict {
		if broken {
			panic("classifier")
		}
		return toolcircuit.Verdict{}
	}
	setBroken := func(b bool) func(*rig) { return func(*rig) { broken = b } }
	r = run(t, o, []step{
		{all(setBroken(true), call(nil), call(errInvalid)), closed},
		{call(nil), open},
		{all(add(time.Minute), call(nil)), open},
		{refused(2 * time.Minute), open},
		{all(setBroken(false), add(2*time.Minute), call(nil)), closed},
	})
	require.Equal(t, uint64(4), r.Snapshot().HookPanics)
	require.Equal(t, toolcircuit.KindPanic, r.events[0].Kind)
}

// A failure told by the value is one observation, and no success first
// (juspay/neurolink, utils/errorHandling.ts).
func TestS01FailingValueIsOneFailure(t *testing.T) {
	failed := toolcircuit.Result[string]{Status: toolcircuit.StatusFailed}
	failed.Cause = toolcircuit.KindTimeout
	r := run(t, policy(nil), []step{
		{all(gives(failed), gives(failed)), closed},
		{gives(failed), open},
	})
	require.Len(t, r.calls, 3)

	o := policy(nil)
	o.Classify = func(_ context.Context, o toolcircuit.Outcome) toolcircuit.Verdict {
		if o.Value == false {
			return toolcircuit.Verdict{Effect: toolcircuit.EffectCount}
		}
		return toolcircuit.Verdict{}
	}
	run(t, o, []step{
		{all(gives(false), gives(false)), closed},
		{all(gives(true), gives(false), gives(false)), closed},
		{gives(false), open},
	})
}

// A blocked call changes no time and no count (juspay/neurolink, mcp/mcpCircuitBreaker.ts).
func TestS02BlockedCallsChangeNothing(t *testing.T) {
	r := run(t, policy(nil), []step{
		{calls(3, errDown), open},
		{all(add(30*time.Second), refused(30*time.Second)), open},
		{all(add(29*time.Second), refused(time.Second), refused(time.Second)), open},
	})
	require.Equal(t, 1, r.Snapshot().Openings)
	all(add(time.Second), call(nil))(r)
	require.Equal(t, closed, r.State())
}

// Only the probe that has the slot can give it back
// (NVIDIA/NeMo-Agent-Toolkit, circuit_breaker_middleware.py).
func TestS07OnlyTheHolderFreesTheSlot(t *testing.T) {
	run(t, policy(nil), []step{
		{begin("released", "canceled", "invalid"), closed},
		{calls(3, errDown), open},
		{all(add(time.Minute), begin("first")), halfOpen},
		{all(release("released"), end("canceled", context.Canceled), end("invalid", errInvalid)), halfOpen},
		{refused(time.Minute), halfOpen},
		{all(add(time.Minute), begin("second")), halfOpen},
		{all(release("first"), refused(time.Minute)), halfOpen},
		{release("second"), halfOpen},
		{call(nil), closed},
	})
}

// What was admitted before the trip leaves no trace in or after the probe's success
// (IBM/mcp-context-forge, plugins/circuit_breaker).
func TestS08LateFailureDuringTheProbe(t *testing.T) {
	r := run(t, policy(nil), []step{
		{begin("down", "asks", "well"), closed},
		{calls(3, errDown), open},
		{all(add(time.Minute), begin("probe")), halfOpen},
		{all(end("down", errDown), end("asks", wait(time.Hour)), end("well", nil)), halfOpen},
		{end("probe", nil), closed},
		{calls(2, errDown), closed},
		{call(nil), closed},
	})
	require.Equal(t, uint64(3), r.Snapshot().Stale)
}

// After the cooldown and before the probe an old result decides nothing either
// (agentscope-ai/agentscope-java#2984).
func TestS10LateResultBeforeTheProbe(t *testing.T) {
	r := run(t, policy(nil), []step{
		{begin("well", "down"), closed},
		{calls(3, errDown), open},
		{add(time.Minute), halfOpen},
		{end("well", nil), halfOpen},
		{end("down", errDown), halfOpen},
	})
	require.True(t, r.Ready())
	require.Len(t, r.events, 1)
	call(nil)(r)
	require.Equal(t, closed, r.State())
}

// Cancellation is neutral, a late failure while open does not lengthen the backoff, and a
// blocked result is no success (gogo's port of LangChain).
func TestS11CancelLateAndBlocked(t *testing.T) {
	r := run(t, policy(nil), []step{
		{all(walksAway(context.Canceled), walksAway(errDown), calls(3, context.Canceled)), closed},
		{begin("late"), closed},
		{calls(3, errDown), open},
		{all(add(30*time.Second), end("late", errDown)), open},
		{refused(30 * time.Second), open},
	})
	require.Equal(t, 1, r.Snapshot().Openings)
	require.False(t, *refusalRead(t, r.ToolCircuit).Executed)

	outer := run(t, policy(nil), []step{{calls(2, errDown), closed}})
	gives(toolcircuit.Result[string]{Status: toolcircuit.StatusBlocked})(outer)
	require.Equal(t, 2, outer.Snapshot().Streak)
}

// A failed probe reopens, however few the calls and however long the cooldown beside the window
// (MervinPraison/PraisonAI, tools/circuit_breaker.py).
func TestS13FailedProbeReopens(t *testing.T) {
	run(t, policy(func(p *toolcircuit.Policy) {
		p.FailureThreshold, p.FailureRate, p.MinCalls, p.Window = math.MaxInt, 0.5, 4, 10*time.Second
	}), []step{
		{all(calls(2, nil), calls(2, errDown)), open},
		{all(add(time.Minute), call(errDown)), open},
		{refused(2 * time.Minute), open},
		{all(add(2*time.Minute), call(errDown)), open},
		{refused(4 * time.Minute), open},
	})
}

// The call that finds the cooldown over is the probe, and a late failure does not restamp the
// opening (developer-mesh, ToolCircuitBreaker).
func TestS14TransitionCallRuns(t *testing.T) {
	r := run(t, policy(nil), []step{
		{begin("late"), closed},
		{calls(3, errDown), open},
		{all(add(40*time.Second), end("late", errDown), refused(20*time.Second)), open},
		{add(20 * time.Second), halfOpen},
		{call(nil), closed},
	})
	require.True(t, r.calls[len(r.calls)-1].Probe)
}

// Probes may be lost one after the other: each has a lease (buzhou).
func TestS16EveryProbeLost(t *testing.T) {
	r := run(t, policy(nil), []step{{calls(3, errDown), open}})
	for n := range 5 {
		all(add(time.Minute), begin(fmt.Sprint("lost ", n)), refused(time.Minute))(r)
	}
	all(add(time.Minute), call(nil))(r)
	require.Equal(t, closed, r.State())
}

// A first opening is not yet the cap, also where MaxCooldown is no more than Cooldown.
func TestA079FirstOpeningIsTemporary(t *testing.T) {
	r := run(t, policy(func(p *toolcircuit.Policy) { p.MaxCooldown = time.Minute }), []step{{calls(3, errDown), open}})
	b := refusalRead(t, r.ToolCircuit)
	require.Contains(t, b.Message, "temporary")
	require.NotContains(t, b.NextActions, toolcircuit.ActionEscalate)
}
