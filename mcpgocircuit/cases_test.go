package mcpgocircuit_test

// The fault cases that concern the Model Context Protocol, by their numbers.
//
//	A001 isError of a live server                     TestA001AnswersOfALiveServer
//	A002 a hold as the probe's answer                 TestA002HoldFreesTheProbe
//	A004 arguments that do not bind                   TestA004InvalidArguments
//	A005 one 404 in two wrappings                     TestA005NotFoundInAnyWrapping
//	A007 the word error in a good result              TestA007WordsCountForNothing
//	A008 A011 refusals and denials on purpose         as A001
//	A010 a hook in front of the tool                  TestA010HookInFront
//	A013 reconnecting                                 TestA013Reconnecting
//	A014 throttled                                    the core; here TestR11OneRateLimitIsEnough
//	A016 failure rates                                the core
//	A017 a tool that nobody listed                    TestA017UnlistedTool
//	A019 the user disconnects                         TestA019ClientClosedByItsUser
//	A020 a wrong key                                  TestA020WrongKey
//	A022 not supported                                TestA022NotSupported
//	A040 A041 recovery on the ordinary path           TestA041RecoveryByOrdinaryCalls
//	A043 a neutral probe                              TestA043NeutralProbe
//	A044 A046 A052 permits that nobody ends           none can be left: a call ends its own; results here are no streams
//	A047 a probe on a dead session                    TestA047ServerDiesAndComesBack
//	A049 A107 a stampede at the end of the cooldown   TestA049FiftyCallsOneProbe
//	A050 several probes                               declined: ProbeSuccesses asks for several in a row
//	A053 A055 late results, replicas                  the core
//	A056 a tool that is shown and not called          TestA056ListingTakesNothing
//	A058 a write as the probe                         toolset
//	A088 A089 a list that never changes               TestA088HideNever
//	A091 R50 visibility is of now                     TestA091ListFollowsTheClock
//	A092 R47 a hidden tool is called                  TestA092HiddenToolIsCalled
//	A094 two servers, one name                        TestA094OneNameOnTwoServers
//	A095 A097 A098 A100 A101 A106 A113                toolset and the core: keys, fallbacks, shared state, Reset
//	A103 both paths share one gate                    TestA103ParityOfServerAndClient
//	A104 a helper agent                               TestA104HelperSharesTheCircuit
//	A109 A110 slow calls, equal calls                 the core, toolset
//	A112 a Classifier that panics                     TestA112ClassifierPanics
//	R08 R13 R16 R46 what the model reads              TestR16EitherChannelIsEnough, TestWhatTheModelReads
//	R10 listing while a server is down                TestListWhileTheServerIsDown; a server's own list never fails
//	R11 one 429                                       TestR11OneRateLimitIsEnough
//	R14 transient or permanent                        as A020
//	R17 isError and transport errors                  TestR17IsErrorAndTransportErrors
//	R19 isError counts where the policy says so       TestR19IsErrorCounts
//	R20 a rate limit inside a result                  TestR20RateLimitInsideAResult
//	R49 connected, and nothing is offered             toolset: Guards, Snapshot; the core: Monitor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// NousResearch/hermes-agent#11113
func TestA001AnswersOfALiveServer(t *testing.T) {
	r := newRig(t, "", toolset.Options{})
	c := connect(t, newServer(t, nil, tools{"open": returns(mcp.NewToolResultError("cannot resolve host"), nil)}), "")
	call := guarded(r.Set, c.CallTool)
	for range 10 {
		res, err := call(t.Context(), request("open"))
		require.NoError(t, err)
		require.Equal(t, "cannot resolve host", text(t, res))
	}
	require.EqualValues(t, 10, r.Circuit(t.Context(), "open").Snapshot().Unclassified, "why it never opens")
}

// NousResearch/hermes-agent#61555
func TestA002HoldFreesTheProbe(t *testing.T) {
	r := newRig(t, "", toolset.Options{})
	r.trip("pay")
	r.clock.Add(time.Minute)
	hold := server.NewInputRequestBuilder("").Elicit("confirm", mcp.ElicitationParams{Message: "Pay?"}).ToolResult()
	for range 5 {
		res, err := guarded(r.Set, returns(hold, nil))(t.Context(), request("pay"))
		require.NoError(t, err)
		require.Same(t, hold, res)
		require.Equal(t, halfOpen, r.state("pay"))
	}
	_, err := guarded(r.Set, returns(fine, nil))(t.Context(), request("pay"))
	require.NoError(t, err)
	require.Equal(t, closed, r.state("pay"))
}

// kubeflow/mcp-server#239
func TestA004InvalidArguments(t *testing.T) {
	r := newRig(t, `{"default":{"failureThreshold":3,"cooldown":"60s","jitter":0,"countUnknown":true}}`, toolset.Options{})
	handler, ran := counting(returns(fine, nil))
	s := newServer(t, r.Set, nil, server.WithInputSchemaValidation())
	s.AddTool(mcp.NewTool("execute", mcp.WithString("name", mcp.Required())), handler)
	c := connect(t, s, "")
	wrong, right := request("execute"), request("execute")
	wrong.Params.Arguments = map[string]any{"nmae": "x"}
	right.Params.Arguments = map[string]any{"name": "x"}
	misspell := func(state toolcircuit.State) {
		for range 5 {
			res, err := c.CallTool(t.Context(), wrong)
			require.NoError(t, err)
			require.True(t, res.IsError)
			require.Equal(t, state, r.state("execute"))
		}
	}
	misspell(closed)
	r.trip("execute")
	r.clock.Add(time.Minute)
	misspell(halfOpen)
	require.Equal(t, toolcircuit.RuleThreshold, r.Circuit(t.Context(), "execute").Snapshot().Rule, "no probe has gone out")
	require.Zero(t, ran.Load())
	_, err := c.CallTool(t.Context(), right)
	require.NoError(t, err)
	require.Equal(t, closed, r.state("execute"))
}

// kubeflow/mcp-server#247
func TestA005NotFoundInAnyWrapping(t *testing.T) {
	for _, err := range []error{
		fmt.Errorf("page 7: %w", mcp.ErrResourceNotFound),
		fmt.Errorf("sdk: %w", errors.Join(errors.New("call failed"), &toolcircuit.HTTPError{StatusCode: 404})),
	} {
		r := newRig(t, `{"default":{"failureThreshold":3,"countUnknown":true}}`, toolset.Options{})
		c := connect(t, newServer(t, r.Set, tools{"read": returns(nil, err)}), "")
		for range 5 {
			_, err := c.CallTool(t.Context(), request("read"))
			require.ErrorIs(t, err, mcp.ErrInternalError)
		}
		require.Equal(t, closed, r.state("read"))
	}
}

// frankbria/ralph-claude-code#2
func TestA007WordsCountForNothing(t *testing.T) {
	r := newRig(t, `{"default":{"failureThreshold":3,"countUnknown":true}}`, toolset.Options{})
	c := connect(t, newServer(t, r.Set, tools{"check": returns(mcp.NewToolResultText(`{"error":false,"errors":[]}`), nil)}), "")
	for range 20 {
		_, err := c.CallTool(t.Context(), request("check"))
		require.NoError(t, err)
	}
	require.Zero(t, r.Circuit(t.Context(), "check").Snapshot().Streak)
}

// arjun-techjays/bos#16
func TestA010HookInFront(t *testing.T) {
	r := newRig(t, "", toolset.Options{})
	permission := func(server.ToolHandlerFunc) server.ToolHandlerFunc { return returns(nil, errDown) }
	c := connect(t, newServer(t, r.Set, tools{"read": returns(fine, nil)}, server.WithToolHandlerMiddleware(permission)), "")
	for range 5 {
		_, err := c.CallTool(t.Context(), request("read"))
		require.Error(t, err)
	}
	require.Equal(t, closed, r.state("read"))
}

// NousResearch/hermes-agent#52405
func TestA013Reconnecting(t *testing.T) {
	r := newRig(t, "", toolset.Options{})
	reconnecting := toolcircuit.Benign(errors.New("not connected"))
	for range 5 {
		_, err := guarded(r.Set, returns(nil, reconnecting))(t.Context(), request("read"))
		require.Equal(t, reconnecting, err)
	}
	require.Equal(t, closed, r.state("read"))
}

// cniska/acolyte#287
func TestA017UnlistedTool(t *testing.T) {
	r := newRig(t, `{"monitored":["search"]}`, toolset.Options{})
	c := connect(t, newServer(t, r.Set, tools{"test": returns(nil, errDown)}), "")
	for range 10 {
		_, err := c.CallTool(t.Context(), request("test"))
		require.ErrorIs(t, err, mcp.ErrInternalError)
	}
	_, err := c.CallTool(t.Context(), request("invented"))
	require.ErrorIs(t, err, mcp.ErrInvalidParams)
	require.Nil(t, r.Circuit(t.Context(), "invented"))
}

// stacklok/toolhive#6339
func TestA022NotSupported(t *testing.T) {
	r := newRig(t, `{"default":{"failureThreshold":3,"countUnknown":true}}`, toolset.Options{})
	c := connect(t, newServer(t, nil, nil, server.WithPromptCapabilities(true)), "")
	for range 5 {
		_, err := guarded(r.Set, c.CallTool)(t.Context(), request("search"))
		require.ErrorIs(t, err, mcp.ErrMethodNotFound)
	}
	require.Equal(t, closed, r.state("search"))
}

// Lexus2016/hermes-agent-evolution#2423
func TestA041RecoveryByOrdinaryCalls(t *testing.T) {
	r, err := newRig(t, "", toolset.Options{}), errDown
	c := connect(t, newServer(t, r.Set, tools{"search": func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return fine, err
	}}), "")
	for range 3 {
		c.CallTool(t.Context(), request("search"))
	}
	err = nil
	for range 59 {
		r.clock.Add(time.Second)
		res, err := c.CallTool(t.Context(), request("search"))
		requireBlocked(t, res, err)
	}
	r.clock.Add(time.Second)
	res, callErr := c.CallTool(t.Context(), request("search"))
	require.NoError(t, callErr)
	require.Equal(t, "fine", text(t, res))
	require.Equal(t, closed, r.state("search"))
}

// kubeflow/mcp-server#221
func TestA043NeutralProbe(t *testing.T) {
	r := newRig(t, "", toolset.Options{})
	r.trip("read")
	r.clock.Add(time.Minute)
	c := connect(t, newServer(t, r.Set, tools{"read": returns(nil, mcp.ErrResourceNotFound)}), "")
	for range 5 {
		_, err := c.CallTool(t.Context(), request("read"))
		require.ErrorIs(t, err, mcp.ErrInternalError)
		require.Equal(t, halfOpen, r.state("read"))
	}
}

// juspay/neurolink#866, danny-avila/LibreChat#12162
func TestA049FiftyCallsOneProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", toolset.Options{})
		release := make(chan struct{})
		handler, ran := counting(func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-release
			return fine, nil
		})
		c := connect(t, newServer(t, r.Set, tools{"search": handler}), "")
		r.trip("search")
		r.clock.Add(time.Minute)
		answers := make(chan *mcp.CallToolResult, 50)
		for range 50 {
			go func() {
				res, err := c.CallTool(t.Context(), request("search"))
				if err == nil {
					answers <- res
				}
			}()
		}
		synctest.Wait()
		require.EqualValues(t, 1, ran.Load())
		require.Len(t, answers, 49)
		for range 49 {
			blocked := requireBlocked(t, <-answers, nil)
			require.Equal(t, halfOpen, blocked.State)
			require.Positive(t, blocked.RetryAfterMS)
		}
		close(release)
		require.Equal(t, "fine", text(t, <-answers))
		require.Equal(t, closed, r.state("search"))
	})
}

// agentscope-ai/agentscope-java#3024
func TestA056ListingTakesNothing(t *testing.T) {
	r := newRig(t, "", toolset.Options{})
	c := connect(t, newServer(t, r.Set, tools{"fetch": returns(fine, nil), "search": returns(fine, nil)}), "")
	r.trip("search")
	r.clock.Add(time.Minute)
	for range 5 {
		require.Equal(t, []string{"fetch", "search"}, list(t, c))
		require.Equal(t, toolcircuit.RuleThreshold, r.Circuit(t.Context(), "search").Snapshot().Rule)
	}
	_, err := c.CallTool(t.Context(), request("search"))
	require.NoError(t, err)
	require.Equal(t, toolcircuit.RuleProbe, r.Circuit(t.Context(), "search").Snapshot().Rule)
}

// anthropics/claude-code#92033, pydantic/pydantic-ai#6985
func TestA088HideNever(t *testing.T) {
	r := newRig(t, `{"hide":"never"}`, toolset.Options{})
	c := connect(t, newServer(t, r.Set, tools{"fetch": returns(fine, nil), "search": returns(fine, nil)}), "")
	r.trip("search")
	require.Equal(t, []string{"fetch", "search"}, list(t, c))
	res, err := c.CallTool(t.Context(), request("search"))
	requireBlocked(t, res, err)
}

// stacklok/toolhive#3760, maximhq/bifrost#6885
func TestA091ListFollowsTheClock(t *testing.T) {
	r := newRig(t, "", toolset.Options{})
	c := connect(t, newServer(t, r.Set, tools{"alpha": returns(fine, nil), "fetch": returns(fine, nil), "search": returns(fine, nil)}), "")
	require.Equal(t, []string{"alpha", "fetch", "search"}, list(t, c))
	r.trip("fetch")
	require.Equal(t, []string{"alpha", "search"}, list(t, c))
	r.trip("alpha")
	require.Equal(t, []string{"search"}, list(t, c))
	r.trip("search")
	stale := list(t, c)
	require.Equal(t, []string{"alpha", "fetch", "search"}, stale, "never an empty list")
	r.clock.Add(time.Minute)
	require.Equal(t, []string{"alpha", "fetch", "search"}, list(t, c))
	for _, tool := range stale { // whoever kept an old list loses nothing
		res, err := c.CallTool(t.Context(), request(tool))
		require.NoError(t, err)
		require.Equal(t, "fine", text(t, res))
	}
}

// Govorunb/gary#48, NousResearch/hermes-agent#65436
func TestA092HiddenToolIsCalled(t *testing.T) {
	r := newRig(t, "", toolset.Options{})
	c := connect(t, newServer(t, r.Set, tools{"fetch": returns(fine, nil), "search": returns(fine, nil)}), "")
	r.trip("search")
	require.Equal(t, []string{"fetch"}, list(t, c))
	res, err := c.CallTool(t.Context(), request("search"))
	require.Equal(t, "search", requireBlocked(t, res, err).Tool)
}

// MervinPraison/PraisonAI#3130
func TestA094OneNameOnTwoServers(t *testing.T) {
	r := newRig(t, "", toolset.Options{})
	of := func(prefix string, c *client.Client) server.ToolHandlerFunc {
		return guarded(r.Set, func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			req.Params.Name = strings.TrimPrefix(req.Params.Name, prefix)
			return c.CallTool(ctx, req)
		})
	}
	one := of("one.", connect(t, newServer(t, nil, tools{"search": returns(nil, errDown)}), ""))
	two := of("two.", connect(t, newServer(t, nil, tools{"search": returns(fine, nil)}), ""))
	r.trip("one.search")
	res, err := one(t.Context(), request("one.search"))
	requireBlocked(t, res, err)
	res, err = two(t.Context(), request("two.search"))
	require.NoError(t, err)
	require.Equal(t, "fine", text(t, res))
}

// MervinPraison/PraisonAI#4000
func TestA103ParityOfServerAndClient(t *testing.T) {
	for _, err := range []error{errDown, &toolcircuit.HTTPError{StatusCode: 503}} {
		r := newRig(t, "", toolset.Options{})
		handler, served := counting(returns(nil, err))
		next, sent := counting(returns(nil, err))
		atServer := connect(t, newServer(t, r.Set, tools{"search": handler}), "").CallTool
		atClient := guarded(r.Set, next)
		ways := []func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error){atServer, atClient}
		for i := range 3 {
			_, err := ways[i%2](t.Context(), request("search"))
			require.Error(t, err)
		}
		require.Equal(t, open, r.state("search"), "both count on one circuit")
		var read []string
		for _, way := range ways {
			res, err := way(t.Context(), request("search"))
			requireBlocked(t, res, err)
			read = append(read, text(t, res))
		}
		require.Equal(t, read[0], read[1])
		require.EqualValues(t, 2, served.Load())
		require.EqualValues(t, 1, sent.Load())
	}
}

// can1357/oh-my-pi#9491
func TestA104HelperSharesTheCircuit(t *testing.T) {
	r := newRig(t, "", toolset.Options{})
	handler, ran := counting(returns(nil, errDown))
	s := newServer(t, r.Set, tools{"read": handler})
	main, helper := connect(t, s, ""), connect(t, s, "")
	for range 40 {
		helper.CallTool(t.Context(), request("read"))
	}
	res, err := main.CallTool(t.Context(), request("read"))
	requireBlocked(t, res, err)
	require.EqualValues(t, 3, ran.Load())
}

// crewAIInc/crewAI#6298
func TestA112ClassifierPanics(t *testing.T) {
	r := newRig(t, "", toolset.Options{Classify: func(context.Context, toolcircuit.Outcome) toolcircuit.Verdict { panic("bad rule") }})
	c := connect(t, newServer(t, r.Set, tools{"search": returns(fine, nil)}), "")
	for range 3 {
		res, err := c.CallTool(t.Context(), request("search"))
		require.NoError(t, err)
		require.Equal(t, "fine", text(t, res))
	}
	require.Equal(t, toolcircuit.KindPanic, r.Circuit(t.Context(), "search").Snapshot().Cause)
	r.clock.Add(time.Minute)
	_, err := c.CallTool(t.Context(), request("search"))
	require.NoError(t, err, "the slot of the probe was free")
	require.Equal(t, open, r.state("search"))
}

// openai/openai-agents-python#4224
func TestR16EitherChannelIsEnough(t *testing.T) {
	r := newRig(t, "", toolset.Options{})
	s := newServer(t, r.Set, nil, server.WithOutputSchemaValidation())
	s.AddTool(mcp.NewTool("search", mcp.WithOutputSchema[struct {
		Hits []string `json:"hits"`
	}]()), returns(fine, nil))
	c := connect(t, s, "")
	r.trip("search")
	res, err := c.CallTool(t.Context(), request("search"))
	blocked := requireBlocked(t, res, err) // text and copy are the same
	require.Contains(t, blocked.Message, "was not executed")
	require.Contains(t, blocked.Message, "for 60 s, until 00:01:00 UTC")
}

// langchain-ai/langchain-mcp-adapters#332
func TestR17IsErrorAndTransportErrors(t *testing.T) {
	var seen []string
	r := newRig(t, "", toolset.Options{Classify: func(_ context.Context, o toolcircuit.Outcome) toolcircuit.Verdict {
		seen = append(seen, fmt.Sprintf("%T %T", o.Value, o.Err))
		return toolcircuit.Verdict{}
	}})
	s := newServer(t, nil, tools{"search": returns(mcp.NewToolResultError("no"), nil)})
	c := connect(t, s, "")
	call := guarded(r.Set, c.CallTool)
	_, err := call(t.Context(), request("search"))
	require.NoError(t, err)
	_, err = guarded(r.Set, returns(nil, nil))(t.Context(), request("search"))
	require.NoError(t, err)
	require.Equal(t, []string{"*mcp.CallToolResult *mcpgocircuit.ToolError", "<nil> *errors.errorString"}, seen, "no Classifier sees a nil result")
}

// juspay/neurolink#1619
func TestR19IsErrorCounts(t *testing.T) {
	r := newRig(t, `{"dependencies":{"search":{"policy":{"countUnknown":true}}}}`, toolset.Options{})
	handler, ran := counting(returns(mcp.NewToolResultError("backend is down"), nil))
	c := connect(t, newServer(t, nil, tools{"search": handler, "open": handler}), "")
	call := guarded(r.Set, c.CallTool)
	for range 5 {
		call(t.Context(), request("search"))
		call(t.Context(), request("open"))
	}
	require.EqualValues(t, 3+5, ran.Load())
	require.Equal(t, open, r.state("search"))
	require.Equal(t, closed, r.state("open"))
}

// panoramicdata/Meraki.Api#389
func TestR20RateLimitInsideAResult(t *testing.T) {
	limited := func(_ context.Context, o toolcircuit.Outcome) toolcircuit.Verdict {
		res, ok := o.Value.(*mcp.CallToolResult)
		if !ok || res.Meta == nil || res.Meta.AdditionalFields["retryAfter"] == nil {
			return toolcircuit.Verdict{}
		}
		wait := time.Duration(res.Meta.AdditionalFields["retryAfter"].(float64)) * time.Second
		return toolcircuit.Verdict{Effect: toolcircuit.EffectPause, Kind: toolcircuit.KindRateLimited, RetryAfter: wait}
	}
	r := newRig(t, "", toolset.Options{Classify: limited})
	later := mcp.NewToolResultText("try again later")
	later.Meta = mcp.NewMetaFromMap(map[string]any{"retryAfter": 7.0})
	c := connect(t, newServer(t, nil, tools{"devices": returns(later, nil)}), "")
	call := guarded(r.Set, c.CallTool)
	res, err := call(t.Context(), request("devices"))
	require.NoError(t, err)
	require.Equal(t, "try again later", text(t, res))
	res, err = call(t.Context(), request("devices"))
	require.Equal(t, int64(7000), requireBlocked(t, res, err).RetryAfterMS)
}
