package toolcircuit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

// What users of agent runtimes report when tools fail (R). Each test is named after its case.
// The cases without one here:
//
//	R13 R16 R23 R53  result_test.go
//	R10 R47 R50      toolset, Set, and mcpcircuit: what is listed, and the gate of what is not
//
// Partly here: R01, R43 and R49 (lists and keys: toolset), R14, R19 and R20 (the verdicts:
// classify_test.go), R19 (the adapter's part: mcpcircuit), R46 (the texts: result_test.go).

// aFew is a tool's answers to a model's calls, one after the other, each of which must be one
// thing only: a value, a reason or an error.
func aFew[Out any](t *testing.T, n int, tool func(context.Context, int) (toolcircuit.Result[Out], error)) (results []toolcircuit.Result[Out]) {
	t.Helper()
	for i := range n {
		result, err := tool(t.Context(), i)
		require.NoError(t, err)
		require.NotEqual(t, result.Value != nil, result.Reason != "")
		results = append(results, result)
	}
	return results
}

// Ten rounds with a dead dependency reach it as often as the threshold says
// (agentscope-ai/agentscope-java#2983).
func TestR01TenRoundsForADeadDependency(t *testing.T) {
	r := newRig(t, policy(nil))
	ran := 0
	search := toolcircuit.WrapResult(r.ToolCircuit, func(context.Context, int) (string, error) {
		ran++
		return "", errDown
	})
	for i, result := range aFew(t, 10, search) {
		if i < 3 {
			require.Equal(t, toolcircuit.StatusFailed, result.Status)
			continue
		}
		require.Equal(t, toolcircuit.StatusBlocked, result.Status)
		require.Equal(t, int64(60_000), result.RetryAfterMS)
	}
	require.Equal(t, 3, ran)
	require.False(t, r.Ready())
}

// A loop cap of fifty does not set what upstream sees, and each text names the time before
// which a repeat is no use (nearai/ironclaw#2240).
func TestR02FiftyEqualCalls(t *testing.T) {
	r := newRig(t, policy(nil))
	ran := 0
	search := toolcircuit.WrapResult(r.WithTool(toolcircuit.Tool{Name: "web_search"}), func(context.Context, int) (string, error) {
		ran++
		return "", errDown
	})
	for _, result := range aFew(t, 50, search)[3:] {
		require.Contains(t, result.Message, "o not call web_search for 60 s, until 00:01:00 UTC")
	}
	require.Equal(t, 3, ran)
}

// Other words in the arguments do not start the count anew
// (esengine/DeepSeek-Reasonix#2474).
func TestR04RewordedArguments(t *testing.T) {
	r := newRig(t, policy(nil))
	var asked []string
	search := toolcircuit.Wrap(r.ToolCircuit, func(_ context.Context, query string) (string, error) {
		asked = append(asked, query)
		return "", errDown
	})
	for _, query := range []string{"go breaker", "golang breaker", "breaker in go", "circuit breaker go", "go"} {
		_, err := search(t.Context(), query)
		require.Error(t, err)
	}
	require.Equal(t, []string{"go breaker", "golang breaker", "breaker in go"}, asked)
}

// Each tool has its own threshold, an informative failure can be neutral, and an open circuit
// answers calls but ends no run (tinyhumansai/openhuman#4024).
func TestR05NotTooEarly(t *testing.T) {
	r := run(t, policy(func(p *toolcircuit.Policy) { p.FailureThreshold = 6 }), []step{
		{calls(5, errDown), closed},
		{call(errDown), open},
	})
	script := toolcircuit.WrapResult(r.ToolCircuit, func(context.Context, int) (string, error) { return "", nil })
	require.Len(t, aFew(t, 20, script), 20)

	errKilled := errors.New("killed after 30s")
	o := policy(nil)
	o.Classify = neutral(errKilled, toolcircuit.KindTimeout)
	r = run(t, o, []step{{calls(10, errKilled), closed}})
	require.Zero(t, r.Snapshot().Unclassified)
}

// Each call gets exactly one answer, whatever came of it
// (kyegomez/swarms#1963).
func TestR07NothingIsSwallowed(t *testing.T) {
	errPlain := errors.New("plain")
	for _, err := range []error{nil, errPlain, errInvalid, errDown, wait(time.Second), io.EOF,
		toolcircuit.Benign(errPlain), toolcircuit.Duplicate(errPlain), context.Canceled, toolcircuit.ErrCircuitOpen,
		errors.Join(errPlain, errDown)} {
		r := newRig(t, policy(nil))
		tool := func(context.Context, int) (string, error) { return "value", err }

		got, gotErr := toolcircuit.Wrap(r.ToolCircuit, tool)(t.Context(), 0)
		require.Equal(t, "value", got)
		require.Equal(t, err, gotErr)
		for _, wrap := range []func(context.Context, int) (toolcircuit.Result[string], error){
			toolcircuit.WrapResult(r.WithTool(toolcircuit.Tool{Name: "a"}), tool),
			toolcircuit.WrapResult(r.WithTool(toolcircuit.Tool{Name: "b"}), tool),
		} {
			r.ToolCircuit.Reset()
			result, gotErr := wrap(t.Context(), 0)
			if gotErr != nil {
				require.Equal(t, err, gotErr)
				require.Zero(t, result)
				continue
			}
			require.NotEqual(t, result.Value != nil, result.Reason != "", "%v: %+v", err, result)
			require.Equal(t, result.Status == toolcircuit.StatusOK, result.Value != nil)
		}
	}
}

// Where an error ends the run, the soft form turns failures and refusals into results and
// leaves what the runtime itself said (cloudwego/eino#258, google/adk-python#742).
func TestR08SoftLeavesControlFlow(t *testing.T) {
	errInterrupt := errors.New("interrupt: ask the user")
	o := policy(nil)
	o.Classify = neutral(errInterrupt, toolcircuit.KindInterrupt)
	r := newRig(t, o)
	err := errInterrupt
	weather := toolcircuit.WrapResult(r.ToolCircuit, func(context.Context, int) (string, error) { return "", err })
	for range 5 {
		_, got := weather(t.Context(), 0)
		require.Equal(t, errInterrupt, got)
	}
	require.Equal(t, closed, r.State())

	err = errDown
	for i, result := range aFew(t, 5, weather) {
		require.Equal(t, i >= 3, result.Status == toolcircuit.StatusBlocked)
	}
	add(time.Minute)(r)
	err = errInterrupt
	_, got := weather(t.Context(), 0)
	require.Equal(t, errInterrupt, got)
	require.True(t, r.Ready(), "an interrupted probe gives the slot back")
}

// Five 429 among fifty parallel queries: the first says when to come back, and nobody asks
// before. It is read from the response, at any depth of the error, and never from a text
// (mckinsey/agents-at-scale-ark#2633).
func TestR11OneRateLimitOfFifty(t *testing.T) {
	resp := &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"7"}}}
	errLimited := fmt.Errorf("mcp: transport: %w", toolcircuit.CheckResponse(resp))
	r := newRig(t, policy(nil))
	names := make([]string, 50)
	for i := range names {
		names[i] = fmt.Sprint("query ", i)
	}
	begin(names...)(r)
	for i, name := range names {
		if i%10 == 3 {
			end(name, errLimited)(r)
		} else {
			end(name, nil)(r)
		}
		require.Equal(t, i >= 3, r.State() == open)
	}
	all(refused(7*time.Second), add(7*time.Second), call(nil))(r)
	require.Equal(t, closed, r.State())
	require.Zero(t, r.Snapshot().Streak)

	run(t, policy(nil), []step{{calls(5, errors.New("429 Too Many Requests, retry after 7")), closed}})
}

// A revoked key is answered as it is by default. It may also open for as long as a pause can be,
// or until a person has acted, and the result says which
// (bug-ops/zeph#1340).
func TestR14RevokedKey(t *testing.T) {
	errRevoked := &toolcircuit.HTTPError{StatusCode: 401}
	run(t, policy(nil), []step{{calls(10, errRevoked), closed}})

	o := policy(nil)
	o.Classify = toolcircuit.ForError(func(*toolcircuit.HTTPError) toolcircuit.Verdict {
		return toolcircuit.Verdict{Effect: toolcircuit.EffectPause, RetryAfter: 24 * time.Hour}
	})
	r := run(t, o, []step{{call(errRevoked), open}})
	b := refusalRead(t, r.ToolCircuit)
	require.Equal(t, toolcircuit.KindUnauthorized, b.Cause)
	require.Equal(t, int64(600_000), b.RetryAfterMS, "MaxRetryAfter")

	r = run(t, policy(nil), []step{{override(toolcircuit.OverrideOpen), closed}, {refused(0), closed}})
	b = refusalRead(t, r.ToolCircuit)
	require.Equal(t, toolcircuit.ReasonManualOpen, b.Reason)
	require.Zero(t, b.RetryAfterMS)
	require.Zero(t, b.RetryAt)
}

// A tool's own error and a transport's come apart: the Classifier sees value and error
// (langchain-ai/langchain-mcp-adapters#332).
func TestR17ValueAndError(t *testing.T) {
	type reply struct{ isError bool }
	o := policy(nil)
	run(t, o, []step{{all(gives(reply{true}), gives(reply{true}), gives(reply{true})), closed}}) // healthy to the rules

	o.Classify = func(_ context.Context, o toolcircuit.Outcome) toolcircuit.Verdict {
		if v, ok := o.Value.(reply); ok && o.Err == nil && v.isError {
			return toolcircuit.Verdict{Kind: toolcircuit.KindUnknown}
		}
		return toolcircuit.Verdict{}
	}
	for countUnknown, state := range map[bool]toolcircuit.State{false: closed, true: open} {
		o.Policy.CountUnknown = countUnknown
		r := run(t, o, []step{{all(gives(reply{true}), gives(reply{true}), gives(reply{true})), state}})
		require.Equal(t, uint64(3), r.Snapshot().Unclassified)
	}
	run(t, o, []step{{calls(3, io.ErrUnexpectedEOF), open}})
}

// A result that says it failed is no success, neither in the streak nor for a probe, and comes
// through unchanged (juspay/neurolink#1619).
func TestR19NoSuccessForAProbe(t *testing.T) {
	type reply struct{ success bool }
	o := policy(nil)
	o.Classify = func(_ context.Context, o toolcircuit.Outcome) toolcircuit.Verdict {
		if o.Value == (reply{}) {
			return toolcircuit.Verdict{Effect: toolcircuit.EffectCount}
		}
		return toolcircuit.Verdict{}
	}
	run(t, o, []step{
		{all(gives(reply{}), gives(reply{})), closed},
		{gives(reply{}), open},
		{all(add(time.Minute), gives(reply{})), open},
		{all(add(2*time.Minute), gives(reply{true})), closed},
	})
}

// A rate limit inside a successful payload opens the circuit for as long as it asks
// (panoramicdata/Meraki.Api#389).
func TestR20OpensForThatLong(t *testing.T) {
	type reply struct{ tryAgainIn time.Duration }
	o := policy(nil)
	o.Classify = func(_ context.Context, o toolcircuit.Outcome) toolcircuit.Verdict {
		if v, ok := o.Value.(reply); ok && v.tryAgainIn > 0 {
			return toolcircuit.Verdict{Effect: toolcircuit.EffectPause, RetryAfter: v.tryAgainIn}
		}
		return toolcircuit.Verdict{}
	}
	r := run(t, o, []step{
		{gives(reply{9 * time.Second}), open},
		{refused(9 * time.Second), open},
	})
	require.Equal(t, toolcircuit.KindRateLimited, refusalRead(t, r.ToolCircuit).Cause)
	all(add(9*time.Second), gives(reply{}))(r)
	require.Equal(t, closed, r.State())
}

// While open, a later failure moves the reopening later and never earlier, in any order
// (BerriAI/litellm#40130).
func TestR22LongerWaitWins(t *testing.T) {
	errPlain429 := &toolcircuit.HTTPError{StatusCode: 429}
	run(t, policy(nil), []step{
		{begin("1s", "none", "5m", "2s", "ok"), closed},
		{all(end("1s", wait(time.Second)), refused(time.Second)), open},
		{all(end("none", errPlain429), refused(time.Minute)), open},
		{all(end("5m", wait(5*time.Minute)), refused(5*time.Minute)), open},
		{all(end("2s", wait(2*time.Second)), end("ok", nil), refused(5*time.Minute)), open},
		{all(add(5*time.Minute), call(nil)), closed},
	})

	synctest.Test(t, func(t *testing.T) {
		r := newQuietRig(t, policy(nil))
		var settled sync.WaitGroup
		start := make(chan struct{})
		for n := range time.Duration(50) {
			p, err := r.Allow(t.Context())
			require.NoError(t, err)
			settled.Go(func() {
				<-start
				p.Settle(t.Context(), nil, wait((n+1)*time.Second))
			})
		}
		close(start)
		settled.Wait()
		refused(50 * time.Second)(r)
	})
}

// What a failure of the streak asked for holds for the opening that a later one brings about,
// unless a success came between them (BerriAI/litellm#40130).
func TestR22EarlierAskStands(t *testing.T) {
	busy := &toolcircuit.HTTPError{StatusCode: 503, RetryAfter: 5 * time.Minute}
	run(t, policy(nil), []step{
		{all(call(busy), add(time.Minute), calls(2, errDown)), open},
		{refused(4 * time.Minute), open},
	})
	run(t, policy(nil), []step{
		{all(call(busy), call(nil), calls(3, errDown)), open},
		{refused(time.Minute), open},
	})
}

// Computed waits are spread over a fleet and a given one is kept; of five agents on one circuit
// one goes first (Astro-Han/pawwork#1348).
func TestR25NotOnOneBeat(t *testing.T) {
	waits := map[time.Duration]bool{}
	for seed := range uint64(5) {
		o := policy(func(p *toolcircuit.Policy) { p.Jitter = 0.5 })
		o.Seed = seed + 1
		r := run(t, o, []step{{calls(3, errDown), open}})
		w := r.Snapshot().RetryAt.Sub(r.clock.Now())
		require.GreaterOrEqual(t, w, time.Minute)
		require.LessOrEqual(t, w, 90*time.Second)
		waits[w] = true
		run(t, o, []step{{call(wait(2 * time.Second)), open}, {refused(2 * time.Second), open}})
	}
	require.Len(t, waits, 5)

	synctest.Test(t, func(t *testing.T) {
		r := newQuietRig(t, policy(nil))
		all(call(wait(2*time.Second)), add(2*time.Second))(r)
		ran, refusals := stampede(r.ToolCircuit, 5, nil)
		require.Equal(t, 1, ran)
		require.Len(t, refusals, 4)
	})
}

// A caller that would rather wait than fail says for how long, by its context. What is too
// long is refused at once, and so are bad arguments answered
// (langfuse/langfuse#16058).
func TestR26ShortWaitsAreWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQuietRig(t, policy(nil))
		r.clock.Set(time.Now()) // a context's deadline is real time
		all(calls(4, errInvalid), call(wait(20*time.Second)))(r)
		waitFor := func(d time.Duration) <-chan error {
			answer := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), d)
				defer cancel()
				answer <- r.Wait(ctx)
			}()
			synctest.Wait()
			return answer
		}
		require.ErrorIs(t, <-waitFor(10*time.Second), toolcircuit.ErrCircuitOpen)

		patient := waitFor(time.Minute)
		r.clock.Add(19 * time.Second)
		require.Empty(t, patient)
		r.clock.Add(time.Second)
		require.NoError(t, <-patient)
		call(nil)(r)
		require.Equal(t, closed, r.State())
	})
}

// A tool that nothing can stand in for trips like any other, and the result says what is left
// (BerriAI/litellm#8668).
func TestR28LoneTarget(t *testing.T) {
	r := run(t, policy(nil), []step{
		{calls(3, errDown), open},
		{refused(time.Minute), open},
	})
	b := refusalRead(t, r.ToolCircuit)
	require.Empty(t, b.Alternatives)
	require.Equal(t, []toolcircuit.Action{toolcircuit.ActionAnswerWithout}, b.NextActions)
}

// What is open, since when, why and until when can be read at any moment; time makes a probe
// due and a success alone closes (BerriAI/litellm#25504).
func TestR29WhatIsOpen(t *testing.T) {
	r := run(t, policy(nil), []step{
		{add(time.Hour), closed},
		{calls(3, errDown), open},
		{all(add(time.Second), refused(59*time.Second)), open},
	})
	opened := r.clock.Now().Add(-time.Second)
	require.Equal(t, toolcircuit.Snapshot{
		Dependency: "search-api",
		State:      open,
		Since:      opened,
		RetryAt:    opened.Add(time.Minute),
		Seq:        1,
		Openings:   1,
		Rule:       toolcircuit.RuleThreshold,
		Cause:      toolcircuit.KindUnavailable,
		Err:        errDown,
		Refused:    1,
		Policy:     filled(t, r.Policy()),
	}, r.Snapshot())
	add(59 * time.Second)(r)
	require.Equal(t, halfOpen, r.Snapshot().State)
	require.Zero(t, r.Snapshot().RetryAt)
	call(nil)(r)
	require.Equal(t, closed, r.Snapshot().State)
	require.Zero(t, r.Snapshot().Err)

	synctest.Test(t, func(t *testing.T) {
		r := newQuietRig(t, policy(func(p *toolcircuit.Policy) { p.FailureRate = 0.5 }))
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				for range 100 {
					if s := r.Snapshot(); (s.State == open) != !s.RetryAt.IsZero() {
						t.Errorf("torn: %+v", s)
					}
				}
			})
		}
		for range 100 {
			all(calls(3, errDown), reset)(r)
		}
		readers.Wait()
	})
}

// Eight reads that fail on one hiccup are one observation where the policy says so
// (tailcallhq/forgecode#1319).
func TestR31BurstCountsOnce(t *testing.T) {
	names := []string{"1", "2", "3", "4", "5", "6", "7", "8"}
	hiccup := func(r *rig) {
		begin(names...)(r)
		for _, name := range names {
			end(name, errDown)(r)
		}
	}
	once := func(p *toolcircuit.Policy) { p.CountBurstOnce = true }
	run(t, policy(nil), []step{{hiccup, open}})
	run(t, policy(once), []step{
		{hiccup, closed},
		{hiccup, closed},
		{call(nil), closed},
		{hiccup, closed},
		{hiccup, closed},
		{hiccup, open},
	})
	run(t, policy(once), []step{ // one after the other is no burst
		{calls(2, errDown), closed},
		{call(errDown), open},
	})
}

// With threshold T and P calls under way the dependency sees T+P-1 calls and no more
// (anthropics/claude-code#72672).
func TestR32UpstreamIsBounded(t *testing.T) {
	const threshold, parallel = 3, 10
	r := newRig(t, policy(nil))
	calls(threshold-1, errDown)(r)
	names := make([]string, parallel)
	for i := range names {
		names[i] = fmt.Sprint("call ", i)
	}
	begin(names...)(r)
	for _, name := range names {
		end(name, errDown)(r)
		refused(time.Minute)(r)
	}
	require.Equal(t, threshold+parallel-1, r.ran)

	synctest.Test(t, func(t *testing.T) {
		r := newQuietRig(t, policy(nil))
		ran, refusals := stampede(r.ToolCircuit, 100, errDown)
		require.Equal(t, 100, ran, "all were under way before the first failure was known")
		require.Empty(t, refusals)
		ran, refusals = stampede(r.ToolCircuit, 1000, errDown)
		require.Zero(t, ran)
		require.Len(t, refusals, 1000)
	})
}

// Of a thousand callers one recovers the dependency, and knows that it does
// (MoonshotAI/kimi-code#1991).
func TestR34OneRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQuietRig(t, policy(nil))
		all(calls(3, errDown), add(time.Minute))(r)
		var (
			callers    sync.WaitGroup
			mu         sync.Mutex
			reconnects int
		)
		release := make(chan struct{})
		for range 1000 {
			callers.Go(func() {
				_, _ = toolcircuit.Do(t.Context(), r.ToolCircuit, func(ctx context.Context) (string, error) {
					if toolcircuit.IsProbe(ctx) {
						mu.Lock()
						reconnects++
						mu.Unlock()
					}
					<-release
					return "", nil
				})
			})
		}
		synctest.Wait()
		require.Equal(t, uint64(999), r.Snapshot().Refused)
		close(release)
		callers.Wait()
		require.Equal(t, 1, reconnects)
		require.Equal(t, closed, r.State())
	})
}

// Time alone makes a probe due, without a call, a goroutine or a new session
// (Lexus2016/hermes-agent-evolution#2440).
func TestR35TimeAlone(t *testing.T) {
	r := run(t, policy(func(p *toolcircuit.Policy) { p.FailureThreshold = 5 }), []step{
		{calls(5, errDown), open},
		{add(time.Minute - 1), open},
		{add(1), halfOpen},
		{add(24 * time.Hour), halfOpen},
	})
	require.True(t, r.Ready())
	call(nil)(r)
	require.Equal(t, closed, r.State())
}

// A caller that walks away says nothing about the dependency, whatever error the driver makes
// of it; a probe that is cancelled frees its slot; the circuit's own timeout is a failure
// (tsouza/cerberus#738).
func TestR37CancellationIsNeutral(t *testing.T) {
	errHidden := errors.New("driver: query interrupted")
	r := run(t, policy(func(p *toolcircuit.Policy) { p.CountUnknown = true }), []step{
		{all(walksAway(context.Canceled), walksAway(errHidden), walksAway(errDown), walksAway(io.ErrUnexpectedEOF)), closed},
		{calls(3, errDown), open},
		{all(add(time.Minute), walksAway(errHidden)), halfOpen},
		{walksAway(context.Canceled), halfOpen},
		{call(nil), closed},
	})
	require.Zero(t, r.Snapshot().Unclassified)

	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, policy(func(p *toolcircuit.Policy) { p.CallTimeout = time.Second }))
		for range 3 {
			_, err := toolcircuit.Do(t.Context(), r.ToolCircuit, func(ctx context.Context) (string, error) {
				r.clock.Add(time.Second)
				return "", ctx.Err()
			})
			require.ErrorIs(t, err, toolcircuit.ErrCallTimeout)
		}
		require.Equal(t, open, r.State())
		require.Equal(t, toolcircuit.KindTimeout, r.events[0].Kind)
	})
}

// A slow call of the time before neither ends an outage nor begins a new one
// (agentscope-ai/agentscope-java#3023, #3024).
func TestR38OldCallsDecideNothing(t *testing.T) {
	r := run(t, policy(nil), []step{
		{begin("ok", "bad", "ok after", "bad after"), closed},
		{calls(3, errDown), open},
		{end("ok", nil), open},
		{refused(time.Minute), open},
		{all(add(time.Minute), call(nil)), closed},
		{calls(2, errDown), closed},
		{end("ok after", nil), closed},
		{end("bad after", errDown), closed},
	})
	require.Equal(t, 2, r.Snapshot().Streak)
	require.Equal(t, uint64(3), r.Snapshot().Stale)
}

// Whatever the user's code does in a call or beside it, the slot comes back, the failure counts
// and what the tool gave reaches its caller. A tool's own panic passes through
// (routecraftjs/routecraft#460).
func TestR40CallbackThrows(t *testing.T) {
	panics := func(r *rig) {
		require.PanicsWithValue(r, "tool", func() {
			_, _ = toolcircuit.Do(context.Background(), r.ToolCircuit, func(context.Context) (string, error) { panic("tool") })
		})
	}
	goexits := func(r *rig) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = toolcircuit.Do(context.Background(), r.ToolCircuit, func(context.Context) (string, error) {
				runtime.Goexit()
				return "", nil
			})
		}()
		<-done
	}
	synctest.Test(t, func(t *testing.T) {
		for _, throws := range []func(*rig){panics, goexits} {
			r := run(t, policy(nil), []step{
				{all(throws, throws), closed},
				{throws, open},
				{all(add(time.Minute), throws), open},
				{refused(2 * time.Minute), open},
				{all(add(2*time.Minute), call(nil)), closed},
			})
			require.Equal(t, toolcircuit.KindPanic, r.events[0].Kind)
			require.Zero(t, r.Snapshot().HookPanics)
		}
	})

	o := policy(nil)
	o.Classify = func(context.Context, toolcircuit.Outcome) toolcircuit.Verdict { panic("isFailure") }
	o.Tool = toolcircuit.Tool{Name: "web_search", Message: func(toolcircuit.Blocked) string { panic("formatter") }}
	r := run(t, o, []step{
		{calls(3, io.ErrUnexpectedEOF), open},
		{all(add(time.Minute), call(io.ErrUnexpectedEOF)), open},
	})
	require.NotEmpty(t, refusalRead(t, r.ToolCircuit).Message)
	require.Equal(t, uint64(5), r.Snapshot().HookPanics)
}

// What is no failure while closed is none while half-open
// (smallrye/smallrye-fault-tolerance#320, App-vNext/Polly#311).
func TestR41NeutralInEveryState(t *testing.T) {
	errStale := errors.New("stale cursor")
	o := policy(nil)
	o.Classify = neutral(errStale, toolcircuit.KindConflict)
	for _, neutral := range []error{errStale, errInvalid, errors.New("?"), context.Canceled, toolcircuit.ErrCircuitOpen,
		toolcircuit.Benign(errDown), &toolcircuit.HTTPError{StatusCode: 404}} {
		run(t, o, []step{
			{calls(5, neutral), closed},
			{calls(3, errDown), open},
			{all(add(time.Minute), calls(5, neutral)), halfOpen},
			{call(nil), closed},
		})
	}
}

// A tenant's own circuit keeps its troubles from the others
// (agentscope-ai/agentscope-java#2983).
func TestR43TenantsApart(t *testing.T) {
	o := policy(nil)
	o.Classify = strict
	shared := newRig(t, o)
	tenants := map[string]*toolcircuit.ToolCircuit{"a": shared.Twin("mail/a"), "b": shared.Twin("mail/b")}
	for range 3 {
		_, err := toolcircuit.Do(t.Context(), tenants["a"], func(context.Context) (string, error) {
			return "", &toolcircuit.HTTPError{StatusCode: 401}
		})
		require.Error(t, err)
	}
	require.Equal(t, toolcircuit.KindUnauthorized, refusalRead(t, tenants["a"]).Cause)
	require.Equal(t, []bool{false, true, true}, []bool{tenants["a"].Ready(), tenants["b"].Ready(), shared.Ready()})
}

// Twelve tools of one server trip together, and the refusal comes before the call uses anything
// up (aws-samples/sample-citadel#94).
func TestR44TwelveToolsOneServer(t *testing.T) {
	r := newRig(t, policy(nil))
	approvals := 12
	for n := range 12 {
		name := fmt.Sprint("tool_", n)
		tool := toolcircuit.WrapResult(r.WithTool(toolcircuit.Tool{Name: name}), func(context.Context, int) (string, error) {
			approvals--
			return "", errDown
		})
		result, err := tool(t.Context(), 0)
		require.NoError(t, err)
		if n < 3 {
			require.Equal(t, toolcircuit.StatusFailed, result.Status)
			continue
		}
		require.Equal(t, name, result.Tool)
		require.Equal(t, toolcircuit.ReasonDependencyOpen, result.Reason)
	}
	require.Equal(t, 9, approvals)
}

// The end of an outage is an event, for a note to the model or a new offer of the tool
// (amd/gaia#2160).
func TestR46RecoveryIsAnEvent(t *testing.T) {
	r := run(t, policy(nil), []step{
		{calls(3, errDown), open},
		{all(add(time.Minute), call(nil)), closed},
	})
	last := r.events[len(r.events)-1]
	require.Equal(t, toolcircuit.EventClosed, last.Type)
	require.Equal(t, toolcircuit.RuleProbe, last.Rule)
	require.Equal(t, r.clock.Now(), last.At)
	require.Zero(t, last.RetryAt)
}

// A probe can be a list or a ping instead of a live call, so that a server which answers "no
// such method" to it is known to be back (maximhq/bifrost#4314).
func TestR49ProbeByPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, policy(nil), []step{{calls(3, errDown), open}})
		pings := 0
		answer := errDown
		ctx, stop := context.WithCancel(t.Context())
		var monitor sync.WaitGroup
		monitor.Go(func() {
			_ = r.Monitor(ctx, 0, func(ctx context.Context) error {
				require.True(r, toolcircuit.IsProbe(ctx))
				pings++
				return answer
			})
		})
		synctest.Wait()
		for _, tt := range []struct {
			wait   time.Duration
			answer error
			pings  int
			state  toolcircuit.State
		}{
			{59 * time.Second, errDown, 0, open},
			{time.Second, errDown, 1, open},
			{time.Minute, errDown, 1, open},
			{time.Minute, &toolcircuit.HTTPError{StatusCode: 501}, 2, closed},
			{time.Hour, errDown, 2, closed},
		} {
			answer = tt.answer
			r.clock.Add(tt.wait)
			synctest.Wait()
			require.Equal(t, tt.pings, pings)
			require.Equal(t, tt.state, r.State())
		}
		stop()
		monitor.Wait()
	})
}

// A tool that ignores its context is left at the deadline: one failure, and what it brings
// later is dropped (modelcontextprotocol/python-sdk#1577).
func TestR52CallNeverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, policy(func(p *toolcircuit.Policy) { p.CallTimeout = 30 * time.Second }))
		dead := make(chan struct{})
		search := toolcircuit.Wrap(r.ToolCircuit, toolcircuit.Abandon(func(context.Context, int) (string, error) {
			<-dead
			return "late", nil
		}))
		type answer struct {
			value string
			err   error
		}
		answers := make(chan answer, 1)
		go func() {
			value, err := search(t.Context(), 0)
			answers <- answer{value, err}
		}()
		synctest.Wait()
		r.clock.Add(30*time.Second - 1)
		synctest.Wait()
		require.Empty(t, answers)
		r.clock.Add(1)
		got := <-answers
		require.Empty(t, got.value)
		require.ErrorIs(t, got.err, toolcircuit.ErrCallTimeout)
		require.Equal(t, 1, r.Snapshot().Streak)

		close(dead)
		synctest.Wait()
		require.Equal(t, 1, r.Snapshot().Streak)
		require.Len(t, r.calls, 1)
	})
}
