package toolcircuit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

// The catalogue: which test shows that a reported fault is none here. F is reported against
// circuit breakers, A against breakers inside agents, S read in the source of those, R what users
// of agents report, N found by use. A number that is missing belongs to no case, or to a package
// below. FuzzMachine holds every step of the machine against a plain model besides.
//
// The half-open gate
//
//	F01 F02 A049 A050 A107 R25 R34  TestHerdSendsOneProbe
//	F04 A044 S16                    TestStateTable; what the refusal says: TestRefusalSaysAll
//	F05 F07 A002 A043 R41           TestNeutral
//	F08 R40                         TestCallThatDoesNotReturn, TestClassifierMisbehaves
//	F10                             TestProbePastItsLeaseKeepsItsVote
//	F11 A040 A041 A067 R35          TestStateTable; by tools alone: TestDeadDependency
//	F13 S13                         TestRate
//	F16                             TestStateAndDeadlineBecomeVisibleTogether
//	F17                             TestHookThatBlocks
//	F64                             TestOverride
//	A046 A052 S07                   TestPermit, TestEpochs
//	A047                            TestIsProbe
//	A056 A086 S14                   TestStateTable
//	A058                            TestSideEffectsProbeLast, TestOutcomeUnknown
//	A106 R49                        TestMonitor
//	N10                             TestFourAgentsAreBackSoon
//	N16                             TestStragglerAfterMonitor
//	N17                             TestRiding, TestToolThatCallsItsOwnDependencyRecovers
//
// Results from another epoch
//
//	F14 F23 R22                     TestLateFailureMovesReopeningOnlyLater, TestLongestOfConcurrentWaits
//	F19 F20 F22 A053 S08 S10 R38    TestEpochs
//	F25 R32                         TestNoAdmissionAfterTheThreshold
//
// What counts
//
//	F35 F40 R37                     TestNeutral, TestCallerWalkedAway, TestCallTimeout
//	F37 A005                        TestWrappedErrors, TestClassifyChain
//	F38                             TestNilInside
//	F41 A037 S02                    TestRefusalsFeedNothing
//	F43 R08                         TestWrapResult, TestWrapResultLeavesWhatIsTheRuntimes, TestResultOr
//	F44 A103 S01 R19                TestEveryPathOneGate
//	A001 A020 R43                   TestStrictClassifier; the name of a host: TestClassifyRules
//	A004 A011 A013 A014 A017 A019   TestNeutral; who signs in again: TestReset
//	A007                            TestClassifyBlockedResult
//	A008 A026                       TestNestedCircuits
//	A010                            TestNeutral, TestResultOfInnerRefusal
//	A022                            TestHTTPStatus, TestGRPCCode, TestClassifyRules
//	A025                            TestNeutral, TestRetryLoop
//	A028 R31                        TestCountBurstOnce
//	A097                            TestBackupServes
//	A109                            TestAroundTheLimit
//	S11                             TestNeutral, TestLateFailureMovesReopeningOnlyLater, TestRefusalSaysAll
//	R05                             TestNeutral, TestEachFieldOfPolicy
//	R11                             TestPause, TestClassifyRules
//	R14                             TestRetryable, TestNeutral, TestStrictClassifier, TestOverride
//	R17 R20                         TestClassifierOrder, TestClassifyUnclassified
//	N01                             TestHTTP2
//	N02                             TestTransport
//	N03 N04 N05 N06                 TestClassifyChain, package internal/shape, the module sdktest
//	N07                             TestBranches, FuzzClassifyTrees
//	N08                             TestInvalid, TestDetail
//	N09                             TestInvalid
//	N14                             TestDeadlineIsRealTime, TestWait
//	N15                             TestEmbeddedNilResult
//
// Hooks and user functions
//
//	F28                             TestEventsComeInOrder
//	F29 A112                        TestHookThatPanics, TestClassifierMisbehaves
//	F31                             TestClassifierMisbehaves, TestClassifierOrder
//	F32                             TestEvents, TestRate
//	F34                             TestRate
//	A085                            TestEvents, TestEventContext, TestLogValues
//	R46                             TestEvents, TestRefusalSaysAll
//
// Windows, waits and settings
//
//	F49 F56 A016 A023               TestRate, TestWindowSlides
//	F50                             TestWindowSlides
//	F52                             TestRateExactly
//	F53                             TestFailuresAtOnceOpenOnce
//	F55 F71                         TestReadsUnderLoad
//	F58 A038                        TestPolicyValidate, TestPolicyFromJSON, TestPolicyDefaults, TestOptions
//	F59                             TestJitter
//	F61                             TestClockStepsBack, TestWindowSlides, TestRealClockIsMonotonic
//	F62                             TestClockIsInjectedEverywhere
//	F65                             TestSetPolicy, TestReadsUnderLoad
//	F70                             TestCallsRunConcurrently
//	A059                            TestAskedWait
//	A062                            TestOverride, TestTwin, TestOnCall
//	A064                            TestEachFieldOfPolicy, TestLongestWaits
//	A065                            TestCurve
//	A094                            TestTwin
//	R26                             TestWait
//	R52                             TestAbandon
//	N11                             TestUnrelatedOutages
//	N12                             TestManyAgentsComeBackSpread
//	N13                             TestRetryAtAfterTheHostSlept
//	N18                             TestEventCappedOncePerStay
//	N19                             TestPolicyValidate
//	N21                             TestPolicyReturnsWhatWasGiven
//
// What the model and the operator are told
//
//	F46 A074 R23                    TestRefusalSaysAll, TestWaitIsNumeric
//	F47                             TestRetryLoop
//	A068 A080 A104 R01 R02 R04 R28 R44  TestDeadDependency
//	A070                            TestOpenError, TestDeadDependency
//	A073                            TestCauseOfAMixedStreak
//	A077                            TestMessageOfRefusal
//	A079                            TestStartingOrGone
//	S05                             TestEveryFieldFilled
//	R07                             TestEveryCallHasOneAnswer
//	R13 R16                         TestResultJSON, TestRefusalSaysAll
//	R29                             TestSnapshot
//	R53                             TestOutcomeUnknown
//	N20                             the module schematest
//
// Several processes: A020 A055 A065 A098 A100 A101 F73 F74 F76 in shared_test.go, fleet_test.go and
// the modules storetest and redisstore.
//
// Elsewhere: F67 F68 A017 A029 A031 A032 A034 A035 A061 A062 A071 A076 A082 A083 A088 A089 A091 A092
// A095 A110 S04 R10 R47 R50 N22 to N31 and N42 in package toolset, where names, lists and runs are;
// N32 to N41 in the modules of the runtimes.
//
// Replaced by the design:
//
//	F10, A050  several probes at once: there is one, and ProbeSuccesses of them in a row close
//	F25        a count of the calls under way: a closed circuit writes nothing when a call begins;
//	           package toolset limits concurrent calls
//	F26        the call that a probe makes to its own circuit is not refused but rides on it: else a
//	           tool that calls another of its dependency never recovers (N17)
//	F31        the panic of a hook does not reach the caller: the call has happened, and its result
//	           must not be lost
//	F62        to the letter: a context's deadline is real time and is compared with real time (N14)
//	A113       no cycles: two tools may name one another as alternative, as is natural; only oneself is
//	           an error (TestOptions). The host picks the substitute, Result.Or names it
func TestCatalogue(t *testing.T) {
	var tests string
	files := must(os.ReadDir("."))
	for _, f := range files {
		if strings.HasSuffix(f.Name(), "_test.go") {
			text := must(os.ReadFile(f.Name()))
			tests += string(text)
		}
	}
	catalogue := must(os.ReadFile("faults_test.go"))
	for _, name := range regexp.MustCompile(`(Test|Fuzz)[A-Z]\w+`).FindAllString(string(catalogue), -1) {
		require.True(t, strings.Contains(tests, "\nfunc "+name+"("), name)
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

// reconnecting is a client's error while it rebuilds its connection.
type reconnecting struct{ error }

// What says nothing about the dependency moves nothing: neither streak nor window while closed,
// neither state nor slot while half-open. With hooks and without, which is another path.
func TestNeutral(t *testing.T) {
	inner := run(t, once(nil), call(errDown), is(open))
	refusal := try(inner.ToolCircuit, nil)
	var blocked any = toolcircuit.Result[string]{Status: toolcircuit.StatusBlocked}
	type held struct{}
	errStale := errors.New("stale cursor")
	classify := toolcircuit.First(
		toolcircuit.ForError(func(reconnecting) toolcircuit.Verdict { return ignored(toolcircuit.KindUnavailable) }),
		toolcircuit.ForError(func(e *toolcircuit.HTTPError) toolcircuit.Verdict {
			if e.StatusCode == 429 && e.RetryAfter == 0 {
				return ignored(toolcircuit.KindRateLimited)
			}
			return toolcircuit.Verdict{}
		}),
		neutral(errStale, toolcircuit.KindConflict),
		func(_ context.Context, o toolcircuit.Outcome) toolcircuit.Verdict {
			if o.Value == (held{}) {
				return ignored(toolcircuit.KindInterrupt)
			}
			return toolcircuit.Verdict{}
		},
	)
	unclassified := []string{"arguments that a wrapper cannot bind", "a test run that fails"}
	for name, outcome := range map[string]func(*rig){
		"arguments that a wrapper cannot bind":   call(errors.New(`unknown argument "nmae"`)),
		"a test run that fails":                  call(&exec.ExitError{}),
		"invalid arguments":                      call(errInvalid),
		"what is not there":                      call(notFoundErr),
		"a host that does not exist":             call(&net.DNSError{IsNotFound: true}),
		"a wrong key":                            call(&toolcircuit.HTTPError{StatusCode: 401}),
		"a denial":                               call(toolcircuit.Benign(errors.New("denied"))),
		"another layer's trouble":                call(toolcircuit.Benign(errDown)),
		"somebody else's cancel":                 call(fmt.Errorf("search: %w", context.Canceled)),
		"a caller that walks away":               walksAway(context.Canceled),
		"one whose driver says something":        walksAway(errors.New("driver: query interrupted")),
		"one whose connection is cut":            walksAway(&net.OpError{Op: "read", Err: net.ErrClosed}),
		"one beside a fault":                     walksAway(errDown),
		"a refusal inside":                       call(refusal),
		"a refusal beside a fault":               call(errors.Join(errDown, refusal)),
		"a refusal marked a fault":               call(toolcircuit.Fault(errors.Join(refusal, errDown))),
		"a blocked Result":                       gives(toolcircuit.Result[string]{Status: toolcircuit.StatusBlocked}),
		"a blocked Result in a Result":           gives(toolcircuit.Result[any]{Status: toolcircuit.StatusOK, Value: &blocked}),
		"a cache hit":                            gives(toolcircuit.Result[string]{Status: toolcircuit.StatusBlocked}.Or("cached", "cache")),
		"a permit handed back":                   all(begin("a"), release("a")),
		"Classifier: a hold for confirmation":    gives(held{}),
		"Classifier: a client that reconnects":   call(reconnecting{io.ErrUnexpectedEOF}),
		"Classifier: throttled without a wait":   call(&toolcircuit.HTTPError{StatusCode: 429}),
		"Classifier: an error of the tool's own": call(errStale),
	} {
		for _, make := range []func(*testing.T, toolcircuit.Options) *rig{newRig, newQuietRig} {
			t.Run(name, func(t *testing.T) {
				o := policy(func(p *toolcircuit.Policy) { p.FailureRate, p.MinCalls = 1, 4 })
				o.Classify = classify
				r := make(t, o)
				five := all(outcome, outcome, outcome, outcome, outcome)
				all(calls(2, errDown), five, streak(2), holds(2, 2), call(errDown), is(open))(r)
				require.Equal(t, toolcircuit.RuleThreshold, r.Snapshot().Rule)
				all(add(time.Minute), five, openings(1), is(halfOpen), begin("probe"), refused(time.Minute), end("probe", nil))(r)
				require.Equal(t, closed, r.State())
				if slices.Contains(unclassified, name) {
					require.EqualValues(t, 10, r.Snapshot().Unclassified)
				} else {
					require.Zero(t, r.Snapshot().Unclassified)
				}
			})
		}
	}
}

// Fifty calls of twelve tools, with other arguments and in other runs each time, reach a dead
// dependency three times. Each has one answer, which is never an empty success. Ten days later the
// ordinary path alone recovers.
func TestDeadDependency(t *testing.T) {
	r := newRig(t, policy(nil))
	down := true
	search := func(n int) toolcircuit.Result[int] {
		tool := toolcircuit.WrapResult(r.WithTool(toolcircuit.Tool{Name: fmt.Sprint("tool_", n%12)}), func(context.Context, int) (int, error) {
			r.ran++
			if down {
				return 0, errDown
			}
			return n, nil
		})
		result := must(tool(toolcircuit.WithRunID(t.Context(), fmt.Sprint("run-", n)), n))
		require.NotEqual(t, result.Value != nil, result.Reason != "")
		require.Equal(t, result.Value == nil, result.Message != "")
		return result
	}
	for n := range 50 {
		got := search(n)
		if n < 3 {
			require.Equal(t, toolcircuit.StatusFailed, got.Status)
			continue
		}
		require.Equal(t, toolcircuit.StatusBlocked, got.Status)
		require.Equal(t, toolcircuit.ReasonDependencyOpen, got.Reason)
		require.Equal(t, fmt.Sprint("tool_", n%12), got.Tool)
		require.EqualValues(t, 60_000, got.RetryAfterMS)
		require.Equal(t, []bool{false, false}, []bool{*got.Executed, *got.Retryable})
		require.Contains(t, got.Message, "Do not call "+got.Tool+" for 60 s, until 00:01:00 UTC. Answer without it")
		require.Equal(t, []toolcircuit.Action{toolcircuit.ActionAnswerWithout}, got.NextActions)
		require.Empty(t, got.Alternatives)
	}
	require.Equal(t, 3, r.ran)
	require.Equal(t, []toolcircuit.EventType{opened}, happened(r))
	for n := range 10 * 24 {
		add(time.Hour)(r)
		search(n)
		require.NotEqual(t, closed, r.State())
	}
	down = false
	add(10 * time.Minute)(r)
	require.Equal(t, toolcircuit.StatusOK, search(7).Status)
	require.Equal(t, closed, r.State())
}

// A Classifier may count what the rules ignore, or pause for it. The one circuit opens, and says
// what it was; a tenant's or a sibling's own does not. Reset clears it when the cause is mended.
func TestStrictClassifier(t *testing.T) {
	pauses := toolcircuit.ForError(func(*toolcircuit.HTTPError) toolcircuit.Verdict {
		return toolcircuit.Verdict{Effect: toolcircuit.EffectPause, RetryAfter: 24 * time.Hour}
	})
	for _, tt := range []struct {
		classify toolcircuit.Classifier
		status   int
		times    int
		kind     toolcircuit.Kind
		ms       int64
	}{
		{strict, 400, 3, toolcircuit.KindInvalid, 60_000},
		{strict, 403, 3, toolcircuit.KindUnauthorized, 60_000},
		{strict, 404, 3, toolcircuit.KindNotFound, 60_000},
		{pauses, 401, 1, toolcircuit.KindUnauthorized, 600_000}, // MaxRetryAfter
	} {
		o := policy(nil)
		o.Classify = tt.classify
		r := newRig(t, o)
		sibling := r.Twin("search-api/sibling")
		all(calls(tt.times, &toolcircuit.HTTPError{StatusCode: tt.status}), is(open))(r)
		b := refusalRead(t, r.ToolCircuit)
		require.Equal(t, tt.kind, b.Cause)
		require.Equal(t, tt.ms, b.RetryAfterMS)
		require.Equal(t, tt.kind, last(r).Kind)
		require.True(t, sibling.Ready())
		all(reset, call(nil))(r)
	}
}

// Refused calls change no time, no window and no count but their own, and recovery waits for none.
func TestRefusalsFeedNothing(t *testing.T) {
	r := run(t, rate(0.5, 5), calls(5, errDown), is(open))
	for range 10 {
		add(5 * time.Second)(r)
		for range 1000 {
			refused(r.Snapshot().RetryAt.Sub(r.clock.Now()))(r)
		}
	}
	require.EqualValues(t, 10_000, r.Snapshot().Refused)
	require.Len(t, r.calls, 5+10_000)
	require.False(t, r.calls[5].Executed)
	all(openings(1), add(10*time.Second), call(nil), holds(0, 0), is(closed))(r)
}

// What is open, since when, why and until when can be read at any moment.
func TestSnapshot(t *testing.T) {
	r := run(t, policy(nil), add(time.Hour), trip, add(time.Second), refused(59*time.Second), is(open))
	since := r.clock.Now().Add(-time.Second)
	require.Equal(t, toolcircuit.Snapshot{
		Dependency: "search-api", State: open, Since: since, RetryAt: since.Add(time.Minute), Seq: 1, Openings: 1,
		Rule: toolcircuit.RuleThreshold, Cause: toolcircuit.KindUnavailable, Err: errDown, Refused: 1, Policy: filled(r.Policy()),
	}, r.Snapshot())
	text := must(json.Marshal(r.Snapshot()))
	require.Contains(t, string(text), `"window":{"calls":0,"failures":0}`)
}

// Real time is read with its monotonic part, which no step of the wall clock moves.
func TestRealClockIsMonotonic(t *testing.T) {
	c := toolcircuit.MustNew("search-api", once(nil))
	require.Contains(t, c.Snapshot().Since.String(), " m=")
	try(c, errDown)
	var e *toolcircuit.OpenError
	require.ErrorAs(t, try(c, nil), &e)
	require.Contains(t, e.RetryAt.String(), " m=")
}

// No part reads the real clock beside the one that was given. In the bubble a day of real time
// passes after each step, while the given clock stands still, and nothing may change. The one
// exception is a context's deadline: it is real time, so Wait compares it with real time (N14).
func TestClockIsInjectedEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, policy(func(p *toolcircuit.Policy) {
			p.FailureThreshold, p.FailureRate, p.SlowCall, p.CallTimeout = 2, 1, time.Second, time.Minute
		}))
		now := func() string { return string(must(json.Marshal(r.Snapshot()))) }
		day := 24 * time.Hour
		slow := func(r *rig) {
			tell(r, func(ctx context.Context) (int, error) { time.Sleep(day); return 0, ctx.Err() })
		}
		waits := func(limit time.Duration, want error) func(*rig) {
			return func(r *rig) {
				ctx, cancel := context.WithTimeout(context.Background(), limit)
				defer cancel()
				require.ErrorIs(r, r.Wait(ctx), want)
			}
		}
		for i, do := range (steps{
			slow, judged(toolcircuit.KindOK), calls(2, errDown), refused(time.Minute), unready, override(shut), override(lifted),
			func(r *rig) { require.NoError(r, r.SetPolicy(r.Policy())) },
			waits(time.Hour, context.DeadlineExceeded), waits(time.Second, toolcircuit.ErrCircuitOpen),
			add(time.Minute), begin("probe"), refused(2 * time.Minute), end("probe", nil), is(closed), reset,
		}) {
			do(r)
			before := now()
			time.Sleep(day)
			require.Equal(t, before, now(), "after step %d", i)
		}
		require.Equal(t, r.clock.Now(), r.Snapshot().Since)
	})
}

// The cause tells a server that refused everything from one that may not be reachable, in
// whatever order these came, and the last error is kept
func TestCauseOfAMixedStreak(t *testing.T) {
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
	r := run(t, o, call(io.ErrUnexpectedEOF), call(nil), is(closed), calls(3, errInvalid), is(open))
	require.Equal(t, toolcircuit.KindInvalid, refusalRead(t, r.ToolCircuit).Cause)
}

// The primary of a pair does not block the group while the backup serves. When none is left the
// group answers that it is blocked, and its own circuit has nothing to add
func TestBackupServes(t *testing.T) {
	r := newRig(t, policy(nil))
	primary, backup := r.Twin("primary"), r.Twin("backup")
	group := toolcircuit.WrapResult(r.ToolCircuit, func(ctx context.Context, _ string) (string, error) {
		if got, err := toolcircuit.Do(ctx, primary, op(errDown)); err == nil {
			return got, nil
		}
		return toolcircuit.Do(ctx, backup, func(context.Context) (string, error) { return "backup", nil })
	})
	for range 10 {
		require.Equal(t, "backup", *must(group(t.Context(), "")).Value)
	}
	require.Equal(t, open, primary.State())
	is(closed)(r)

	backup.SetOverride(toolcircuit.OverrideOpen)
	for range 10 {
		result := must(group(t.Context(), ""))
		require.Equal(t, toolcircuit.StatusBlocked, result.Status)
		require.Equal(t, "backup", result.Dependency)
	}
	is(closed)(r)
}

// A dependency that takes 15 or 21 seconds around a limit of 20 does not flap: slowness has a
// rule of its own, one lucky answer does not close, and a caller's own deadline is not the
// dependency's failure (stacklok/toolhive#5861).
func TestAroundTheLimit(t *testing.T) {
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

		for rule, edit := range map[toolcircuit.Rule]func(*toolcircuit.Policy){
			toolcircuit.RuleThreshold: func(p *toolcircuit.Policy) { p.SlowCall = 10 * time.Second },
			toolcircuit.RuleRate: func(p *toolcircuit.Policy) {
				p.FailureRate, p.MinCalls, p.Window, p.ProbeSuccesses = 0.5, 4, 5*time.Minute, 2
			},
		} {
			r := hour(t, edit)
			require.Equal(t, rule, r.events[0].Rule)
			require.NotContains(t, happened(r), toolcircuit.EventClosed)
			require.Less(t, len(r.events), 20)
		}
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
