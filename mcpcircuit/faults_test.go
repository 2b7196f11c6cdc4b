package mcpcircuit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/mcpcircuit"
)

// Faults that users of breakers and agents reported, as far as they are about tools behind MCP.
// What needs no MCP is tested with the core and with toolset.
//
//	case  report                                      test
//	A001  NousResearch/hermes-agent#11113             TestA001OneToolsErrorsAreItsOwn
//	A002  NousResearch/hermes-agent#61555             TestA002HeldForConfirmation
//	A004  kubeflow/mcp-server#239                     TestA004MisspeltArguments; the slot is taken, and comes back at once
//	A005  kubeflow/mcp-server#247                     TestA005WrappedNotFound
//	A007  frankbria/ralph-claude-code#2               TestA007TheWordError
//	A008  mcp-hangar/mcp-hangar#1409                  TestA008EveryMemberRefuses
//	A010  arjun-techjays/bos#16                       TestA010HookFails
//	A013  NousResearch/hermes-agent#52405             TestA013Reconnecting
//	A014  MikkoParkkola/mcp-gateway#475               TestRetryAfter; without a wait a throttled call counts
//	A019  danny-avila/LibreChat#13645                 TestA019SignedOutAndIn
//	A022  stacklok/toolhive#6339                      TestA022Unsupported
//	A041  Lexus2016/hermes-agent-evolution#2423       TestGuardBlocksAndRecovers
//	A043  kubeflow/mcp-server#221                     TestA043NeutralProbe
//	A047  openabdev/openab#969                        TestServerKilledAndRestarted
//	A049  juspay/neurolink#866                        TestFiftyCallsAtTheEndOfTheCooldown
//	A050  rmusser01/tldw_server#2128                  declined: one probe at a time, see TestSeveralPings
//	A056  agentscope-ai/agentscope-java#3024          TestHiding: listing takes no probe
//	A058  agentic-community/mcp-gateway-registry#1668 TestFiftyCallsAtTheEndOfTheCooldown: a ping is the probe, no tool
//	A088  anthropics/claude-code#92033                TestA088ListThatNeverChanges
//	A091  stacklok/toolhive#3760                      TestHiding
//	A092  Govorunb/gary#48                            TestHiding
//	A094  MervinPraison/PraisonAI#3130                TestSeveralServers
//	A106  NousResearch/hermes-agent#47216             TestListingWhileTheServerIsDown: listing heals
//	A107  danny-avila/LibreChat#12162                 TestA107OneRebuild, TestSessionLost
//	R08   cloudwego/eino#258                          TestGuardBlocksAndRecovers: a refusal is a result
//	R10   google/adk-python#5025                      TestListingWhileTheServerIsDown, TestR10EventNamesTheServer
//	R11   mckinsey/agents-at-scale-ark#2633           TestRetryAfter
//	R13   timothy-agent/timothy#646                   TestGuardBlocksAndRecovers
//	R14   bug-ops/zeph#1340                           TestAnswers, TestStatuses
//	R16   openai/openai-agents-python#4224            TestResultAsOut, TestGuardBlocksAndRecovers: text and copy are equal
//	R17   langchain-ai/langchain-mcp-adapters#332     TestClientDefaultsDoNotTripOnIsError, TestConnectionLost
//	R19   juspay/neurolink#1619                       TestR19IsErrorIsNoSuccess
//	R20   panoramicdata/Meraki.Api#389                TestR20RateLimitInAPayload
//	R44   aws-samples/sample-citadel#94               TestServerKilledAndRestarted
//	R46   amd/gaia#2160                               TestR46RefusalHasAnEnd
//	R47   NousResearch/hermes-agent#65436             TestHiding
//	R49   maximhq/bifrost#4314                        TestListingWhileTheServerIsDown, TestHalfAList
//	R50   maximhq/bifrost#6885                        TestTTL
//	R52   modelcontextprotocol/python-sdk#1577        TestHangingServer
//	N31   payments over MCP                           TestN31HandlersContext
//	N32   lost calls                                  TestN32LostCallIsACall
//	N33   agigante80/actual-mcp-server#188            TestN33SessionForgotten, TestN33WriteIsNotSentAgain, TestN33BadRequestIsTheCallsOwn
//	N34   charmbracelet/crush#758, google/adk-go#505  TestN34NextCallRenews
//	N35   npx servers                                 TestN35SlowStart
//	N36   gateways that refuse a ping                 TestN36PingRefused
//	N37   a stopped server on a pipe                  TestN37FullPipe
//	N39   tools/list in an outage                     TestN39ChangesAreAnnounced
//	N40   two tenants, one session                    TestN40ListsAreNotCached
//	N41   refusals within a handler                   TestN41RefusedWithin
//
// Left to the host: A053 and A055 (shared state), A097 (failover between servers).

var strict = strings.Replace(everything, `"1m"`, `"1m", "countUnknown": true`, 1)

func TestA001OneToolsErrorsAreItsOwn(t *testing.T) {
	for config, want := range map[string]toolcircuit.State{everything: closed, strict: open} {
		r := newRig(t, config, nil)
		s, tools := newServer("browser", "open", "back")
		session := r.connectGuarded("client", s, "")
		tools["open"].fail(errors.New("no such host"))
		for range 3 {
			_, err := call(session, "open")
			require.NoError(t, err)
		}
		require.Equal(t, want, r.state("open"))
		if want == open {
			require.Equal(t, toolcircuit.KindUnknown, blocked(t, session, "open").Cause, "rejected, not unreachable")
		} else {
			tools["open"].answer(nil)
			healthy(t, session, "open")
		}
		healthy(t, session, "back")
	}
}

func TestA002HeldForConfirmation(t *testing.T) {
	for _, end := range []string{"server", "client"} {
		r := newRig(t, strict, nil)
		s, tools := newServer("shop", "buy")
		session := r.connectGuarded(end, s, "")
		r.trip("buy")
		r.add(time.Minute)
		tools["buy"].answer(&mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"ok?": &mcp.ElicitParams{Message: "sure?"}}})
		for range 5 {
			res, err := call(session, "buy")
			require.NoError(t, err)
			require.True(t, res.NeedsInput())
			require.Equal(t, halfOpen, r.state("buy"))
		}
		tools["buy"].answer(nil)
		healthy(t, session, "buy")
		require.Equal(t, closed, r.state("buy"))
	}
}

func TestA004MisspeltArguments(t *testing.T) {
	r := newRig(t, everything, nil)
	s, tools := newServer("kubeflow", "execute")
	session := r.connectGuarded("server", s, "")
	misspelt := func() {
		for range 5 {
			res, err := session.CallTool(context.Background(), &mcp.CallToolParams{Name: "execute", Arguments: map[string]any{"qery": "x"}})
			require.NoError(t, err)
			require.Contains(t, text(res), "qery")
		}
	}
	misspelt()
	healthy(t, session, "execute")
	r.trip("execute")
	r.add(time.Minute)
	misspelt()
	healthy(t, session, "execute")
	require.EqualValues(t, 2, tools["execute"].calls.Load())
}

func TestA005WrappedNotFound(t *testing.T) {
	r := newRig(t, strict, nil)
	s, tools := newServer("kubeflow", "get", "describe")
	session := r.connectGuarded("server", s, "")
	notFound := &toolcircuit.HTTPError{StatusCode: 404}
	tools["get"].fail(notFound)
	tools["describe"].fail(fmt.Errorf("sdk: %w", notFound))
	for range 5 {
		call(session, "get")
		call(session, "describe")
	}
	require.Equal(t, closed, r.state("get"))
	require.Equal(t, closed, r.state("describe"))
}

func TestA007TheWordError(t *testing.T) {
	r := newRig(t, strict, nil)
	s, tools := newServer("web", "search")
	session := connect(t, r.guardServer(s), r.client(mcpcircuit.Options{}), "")
	tools["search"].answer(&mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: `{"error": null, "success": false}`}}})
	for range 20 {
		healthy(t, session, "search")
	}
}

func TestA008EveryMemberRefuses(t *testing.T) {
	r := newRig(t, strict, nil)
	client := r.client(mcpcircuit.Options{Name: func(string, string) string { return "divide" }})
	var members []*mcp.ClientSession
	for i := range 3 {
		s, tools := newServer(fmt.Sprint("member", i), "divide")
		tools["divide"].fail(&jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "division by zero"})
		members = append(members, connect(t, s, client, ""))
	}
	for range 3 {
		for _, m := range members {
			lost(t, m, "divide")
		}
	}
	require.Equal(t, closed, r.state("divide"))
	require.Equal(t, toolcircuit.KindInvalid, r.kinds("divide")[0])
	for i := range members {
		require.Equal(t, closed, r.state(fmt.Sprint("mcp:member", i)))
	}
}

func TestA010HookFails(t *testing.T) {
	r := newRig(t, everything, nil)
	s, _ := newServer("web", "search")
	c := plainClient()
	hook := new(line)
	c.AddSendingMiddleware(hook.middleware) // inside the guard
	r.guard(mcpcircuit.Options{}).Client(c)
	session := connect(t, s, c, "")
	hook.cut(errors.New("permissions unavailable"))
	for range 5 {
		lost(t, session, "search")
	}
	hook.mend()
	healthy(t, session, "search")
}

func TestA013Reconnecting(t *testing.T) {
	r := newRig(t, strict, nil)
	s, _ := newServer("web", "search")
	l := new(line)
	session := connect(t, s, l.client(r, mcpcircuit.Options{}), "")
	l.cut(toolcircuit.Benign(errors.New("not connected, reconnecting")))
	for range 5 {
		lost(t, session, "search")
	}
	l.mend()
	healthy(t, session, "search")
}

func TestA019SignedOutAndIn(t *testing.T) {
	r := newRig(t, everything, nil)
	client := r.client(mcpcircuit.Options{})
	for range 5 {
		s, _ := newServer("web", "search")
		session := connect(t, s, client, "")
		healthy(t, session, "search")
		session.Close()
	}
	require.Zero(t, r.snapshot("mcp:web").Streak)
}

func TestA022Unsupported(t *testing.T) {
	for _, code := range []int64{jsonrpc.CodeMethodNotFound, jsonrpc.CodeInvalidRequest, mcp.CodeMissingRequiredClientCapabilities} {
		r := newRig(t, strict, nil)
		s, tools := newServer("web", "search")
		session := r.connectGuarded("client", s, "")
		tools["search"].fail(&jsonrpc.Error{Code: code, Message: "not supported"})
		for range 5 {
			lost(t, session, "search")
		}
		require.Equal(t, toolcircuit.KindInvalid, r.kinds("search")[4])
		require.Equal(t, []toolcircuit.Kind{"ok", "ok", "ok", "ok", "ok"}, r.kinds("mcp:web"))
	}
}

func TestA043NeutralProbe(t *testing.T) {
	r := newRig(t, everything, nil)
	s, tools := newServer("web", "search")
	session := r.connectGuarded("server", s, "")
	r.trip("search")
	r.add(time.Minute)
	tools["search"].fail(&toolcircuit.HTTPError{StatusCode: 404})
	for range 5 {
		res, err := call(session, "search")
		require.NoError(t, err)
		require.NotContains(t, text(res), "blocked")
	}
	tools["search"].answer(nil)
	healthy(t, session, "search")
	require.Equal(t, closed, r.state("search"))
}

func TestA088ListThatNeverChanges(t *testing.T) {
	r := newRig(t, everything, nil)
	s, _ := newServer("web", "a", "b")
	session := connect(t, r.guardServer(s), r.client(mcpcircuit.Options{}), "")
	var first []byte
	for i := range 60 {
		page, err := session.ListTools(context.Background(), nil)
		require.NoError(t, err)
		list, err := json.Marshal(page)
		require.NoError(t, err)
		if i == 0 {
			first = list
		}
		require.Equal(t, string(first), string(list))
		if i%2 == 0 {
			r.trip("a")
		} else {
			require.NoError(t, r.set.Reset("a"))
		}
	}
}

func TestA107OneRebuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := newRig(t, everything, nil), new(line)
		s, _ := newServer("web", "a", "b", "c", "d")
		var rebuilds atomic.Int64
		session := connect(t, s, l.client(r, mcpcircuit.Options{
			Reconnect: func(context.Context, *mcp.ClientSession) (*mcp.ClientSession, error) {
				rebuilds.Add(1)
				time.Sleep(time.Second)
				return nil, errors.New("still down")
			},
		}), "")
		l.cut(mcp.ErrConnectionClosed)
		var wg sync.WaitGroup
		var refused atomic.Int64
		for i := range 400 {
			wg.Go(func() {
				res, err := call(session, string(rune('a'+i%4)))
				var b toolcircuit.Result[any]
				if err == nil && json.Unmarshal([]byte(text(res)), &b) == nil && b.RetryAfterMS > 0 {
					refused.Add(1)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, rebuilds.Load())
		require.EqualValues(t, 400, refused.Load())
	})
}

func TestR10EventNamesTheServer(t *testing.T) {
	r, l := newRig(t, everything, nil), new(line)
	s, _ := newServer("web", "search")
	session := connect(t, s, l.client(r, mcpcircuit.Options{}), legacy)
	l.cut(mcp.ErrConnectionClosed)
	for range 4 {
		require.Empty(t, listed(t, session))
	}
	require.Equal(t, []string{"mcp:web open"}, r.events)
}

func TestR19IsErrorIsNoSuccess(t *testing.T) {
	r := newRig(t, strict, nil)
	s, tools := newServer("web", "search")
	session := r.connectGuarded("client", s, "")
	tools["search"].answer(&mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: "payload"}}})
	for range 3 {
		res, err := call(session, "search")
		require.NoError(t, err)
		require.Equal(t, "payload", text(res))
	}
	require.Equal(t, "payload", r.snapshot("search").Err.Error())
	blocked(t, session, "search")
}

func TestR20RateLimitInAPayload(t *testing.T) {
	type limit struct {
		RetryAfter int `json:"retryAfter"`
	}
	r := newRig(t, everything, func(_ context.Context, o toolcircuit.Outcome) toolcircuit.Verdict {
		res, ok := o.Value.(*mcp.CallToolResult)
		if !ok || len(res.Content) == 0 {
			return toolcircuit.Verdict{}
		}
		var l limit
		if json.Unmarshal([]byte(text(res)), &l) != nil || l.RetryAfter == 0 {
			return toolcircuit.Verdict{}
		}
		return toolcircuit.Verdict{Effect: toolcircuit.EffectPause, Kind: toolcircuit.KindRateLimited, RetryAfter: time.Duration(l.RetryAfter) * time.Second}
	})
	s, tools := newServer("web", "search")
	session := r.connectGuarded("client", s, "")
	healthy(t, session, "search")
	tools["search"].answer(&mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: `{"retryAfter": 7}`}}})
	healthy(t, session, "search")
	require.EqualValues(t, 7000, blocked(t, session, "search").RetryAfterMS)
}

func TestR46RefusalHasAnEnd(t *testing.T) {
	r := newRig(t, everything, nil)
	s, _ := newServer("web", "search")
	session := r.connectGuarded("server", s, "")
	r.trip("search")
	got := blocked(t, session, "search")
	require.Equal(t, r.clock.Now().Add(time.Minute).UTC(), *got.RetryAt)
	require.Contains(t, got.Message, "for 60 s, until 00:01:00 UTC")
	require.Contains(t, got.Message, "temporary")
}
