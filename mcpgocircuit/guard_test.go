package mcpgocircuit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/mcpgocircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

const (
	closed   = toolcircuit.StateClosed
	open     = toolcircuit.StateOpen
	halfOpen = toolcircuit.StateHalfOpen
)

var (
	errDown = toolcircuit.Fault(errors.New("down"))
	fine    = mcp.NewToolResultText("fine")
)

// rig is a Set under a mock clock.
type rig struct {
	*testing.T
	*toolset.Set
	clock *clock.Mock
}

// newRig returns a rig that guards all tools: three failures open a circuit for 60 seconds,
// and hide its tools. More is JSON that changes the config.
func newRig(t *testing.T, more string, o toolset.Options) *rig {
	t.Helper()
	fields := map[string]json.RawMessage{
		"monitored": json.RawMessage(`["*"]`),
		"default":   json.RawMessage(`{"failureThreshold":3,"cooldown":"60s","jitter":0}`),
		"hide":      json.RawMessage(`"open"`),
	}
	if more != "" {
		require.NoError(t, json.Unmarshal([]byte(more), &fields))
	}
	text, err := json.Marshal(fields)
	require.NoError(t, err)
	config, err := toolset.Load(strings.NewReader(string(text)))
	require.NoError(t, err)
	r := &rig{T: t, clock: clock.NewMock()}
	o.Clock = r.clock
	r.Set, err = toolset.New(config, o)
	require.NoError(t, err)
	return r
}

func (r *rig) state(tool string) toolcircuit.State {
	return r.Circuit(r.Context(), tool).State()
}

// trip opens the circuit of a tool.
func (r *rig) trip(tool string) {
	r.Helper()
	for range 3 {
		_, err := guarded(r.Set, returns(nil, errDown))(r.Context(), request(tool))
		require.ErrorIs(r, err, errDown)
	}
	require.Equal(r, open, r.state(tool))
}

func guarded(set *toolset.Set, next server.ToolHandlerFunc) server.ToolHandlerFunc {
	return mcpgocircuit.New(set, mcpgocircuit.Options{}).Middleware(next)
}

func returns(res *mcp.CallToolResult, err error) server.ToolHandlerFunc {
	return func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) { return res, err }
}

func request(tool string) mcp.CallToolRequest {
	return mcp.CallToolRequest{Params: mcp.CallToolParams{Name: tool}}
}

// tools are the handlers of a server, by name.
type tools map[string]server.ToolHandlerFunc

// newServer returns a server whose tools set guards; nil guards none.
func newServer(t testing.TB, set *toolset.Set, tools tools, o ...server.ServerOption) *server.MCPServer {
	s := server.NewMCPServer("test", "1", o...)
	if set != nil {
		guard := mcpgocircuit.New(set, mcpgocircuit.Options{})
		t.Cleanup(guard.Close)
		guard.Server(s)
	}
	for name, handler := range tools {
		s.AddTool(mcp.NewTool(name, mcp.WithString("q")), handler)
	}
	return s
}

// connect returns a client of the server in this process.
func connect(t *testing.T, s *server.MCPServer, version string) *client.Client {
	t.Helper()
	c, err := client.NewInProcessClient(s)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	require.NoError(t, start(t.Context(), c, version))
	return c
}

func hello(version string) mcp.InitializeRequest {
	return mcp.InitializeRequest{Params: mcp.InitializeParams{ProtocolVersion: version, ClientInfo: mcp.Implementation{Name: "agent", Version: "1"}}}
}

func start(ctx context.Context, c *client.Client, version string) error {
	if err := c.Start(ctx); err != nil {
		return err
	}
	_, err := c.Initialize(ctx, hello(version))
	return err
}

// list returns the names that a client is shown.
func list(t *testing.T, c *client.Client) []string {
	t.Helper()
	return listAs(t.Context(), t, c)
}

func listAs(ctx context.Context, t *testing.T, c *client.Client) (names []string) {
	t.Helper()
	page, err := c.ListTools(ctx, mcp.ListToolsRequest{})
	require.NoError(t, err)
	for _, tool := range page.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// text returns the text of a result, which must be its only content.
func text(t *testing.T, res *mcp.CallToolResult) string {
	t.Helper()
	require.NotNil(t, res)
	require.Len(t, res.Content, 1)
	content, ok := mcp.AsTextContent(res.Content[0])
	require.True(t, ok)
	return content.Text
}

// requireBlocked checks that a call was answered with a blocked result, and returns that as
// its text has it.
func requireBlocked(t *testing.T, res *mcp.CallToolResult, err error) (r toolcircuit.Result[any]) {
	t.Helper()
	require.NoError(t, err)
	require.True(t, res.IsError)
	require.Nil(t, res.StructuredContent)
	require.NoError(t, json.Unmarshal([]byte(text(t, res)), &r))
	require.Equal(t, toolcircuit.StatusBlocked, r.Status)
	copied, err := json.Marshal(res.Meta.AdditionalFields[mcpgocircuit.MetaKey])
	require.NoError(t, err)
	require.JSONEq(t, text(t, res), string(copied))
	return r
}

func TestWhatTheModelReads(t *testing.T) {
	r := newRig(t, `{"tools":{"search":{"dependency":"search-api","alternatives":["cached"]}}}`, toolset.Options{})
	c := connect(t, newServer(t, r.Set, tools{"search": returns(nil, errDown)}), "")
	for range 3 {
		_, err := c.CallTool(t.Context(), request("search"))
		require.ErrorIs(t, err, mcp.ErrInternalError, "what a handler returns is the SDK's to send")
	}
	res, err := c.CallTool(t.Context(), request("search"))
	blocked := requireBlocked(t, res, err)
	require.Equal(t, int64(60_000), blocked.RetryAfterMS)
	require.JSONEq(t, `{"status":"blocked","reason":"dependency_open","dependency":"search-api","tool":"search","state":"open",
		"executed":false,"cause":"unavailable","rule":"threshold","failures":3,"retryable":false,
		"retryAfterMs":60000,"retryAt":"1970-01-01T00:01:00Z","nextActions":["use_alternative","answer_without"],"alternatives":["cached"],
		"message":"search was not executed: search-api was unreachable or broken (3 failures in a row). This is temporary; other tools remain usable. Do not call search for 60 s, until 00:01:00 UTC. Use cached, or answer without it and say what is missing."}`,
		text(t, res))
}

func TestWhatCounts(t *testing.T) {
	isError := mcp.NewToolResultError("no such host")
	input := func(requests mcp.InputRequests) *mcp.CallToolResult {
		return &mcp.CallToolResult{
			Result:               mcp.Result{ResultType: mcp.ResultTypeInputRequired},
			MultiRoundTripResult: mcp.MultiRoundTripResult{InputRequests: requests},
		}
	}
	structured := func(r toolcircuit.Result[string]) *mcp.CallToolResult { return mcp.NewToolResultStructuredOnly(r) }
	foreign := mcp.NewToolResultError("{}")
	foreign.Meta = mcp.NewMetaFromMap(map[string]any{mcpgocircuit.MetaKey: map[string]any{"status": "blocked"}})
	for name, tc := range map[string]struct {
		res    *mcp.CallToolResult
		err    error
		kind   toolcircuit.Kind
		effect toolcircuit.Effect
	}{
		"result":              {fine, nil, toolcircuit.KindOK, toolcircuit.EffectHeal},
		"isError":             {isError, nil, toolcircuit.KindUnknown, toolcircuit.EffectCount},
		"no result":           {nil, nil, toolcircuit.KindUnknown, toolcircuit.EffectCount},
		"result and error":    {fine, errDown, toolcircuit.KindUnavailable, toolcircuit.EffectCount},
		"asks for input":      {input(mcp.InputRequests{"a": mcp.NewRootsInputRequest()}), nil, toolcircuit.KindUnknown, toolcircuit.EffectIgnore},
		"sheds load":          {input(nil), nil, toolcircuit.KindRateLimited, toolcircuit.EffectCount},
		"blocked elsewhere":   {foreign, nil, toolcircuit.KindRejected, toolcircuit.EffectIgnore},
		"inner Result blocks": {structured(toolcircuit.Result[string]{Status: toolcircuit.StatusBlocked}), nil, toolcircuit.KindRejected, toolcircuit.EffectIgnore},
		"inner Result failed": {structured(toolcircuit.Result[string]{Status: toolcircuit.StatusFailed, Blocked: toolcircuit.Blocked{Cause: toolcircuit.KindTimeout}}), nil, toolcircuit.KindTimeout, toolcircuit.EffectCount},
		"inner Result is ok":  {structured(toolcircuit.Result[string]{Status: toolcircuit.StatusOK}), nil, toolcircuit.KindOK, toolcircuit.EffectHeal},

		"by type":              {nil, fmt.Errorf("search: %w", &toolcircuit.HTTPError{StatusCode: 503}), toolcircuit.KindUnavailable, toolcircuit.EffectCount},
		"canceled":             {nil, context.Canceled, toolcircuit.KindCanceled, toolcircuit.EffectIgnore},
		"interrupted":          {nil, mcp.ErrRequestInterrupted, toolcircuit.KindCanceled, toolcircuit.EffectIgnore},
		"invalid params":       {nil, fmt.Errorf("%w: q", mcp.ErrInvalidParams), toolcircuit.KindInvalid, toolcircuit.EffectIgnore},
		"capability":           {nil, mcp.MissingRequiredClientCapabilityError{Capability: "roots"}, toolcircuit.KindInvalid, toolcircuit.EffectIgnore},
		"version":              {nil, mcp.UnsupportedProtocolVersionError{Version: "1"}, toolcircuit.KindInvalid, toolcircuit.EffectIgnore},
		"internal error":       {nil, fmt.Errorf("%w: database is down", mcp.ErrInternalError), toolcircuit.KindUnknown, toolcircuit.EffectCount},
		"elicitation":          {nil, mcp.URLElicitationRequiredError{}, toolcircuit.KindUnknown, toolcircuit.EffectIgnore},
		"mark beats the rules": {nil, toolcircuit.Fault(mcp.ErrInvalidParams), toolcircuit.KindUnavailable, toolcircuit.EffectCount},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []toolcircuit.Call
			r := newRig(t, `{"default":{"countUnknown":true}}`, toolset.Options{OnCall: func(_ context.Context, c toolcircuit.Call) { seen = append(seen, c) }})
			res, err := guarded(r.Set, returns(tc.res, tc.err))(t.Context(), request("search"))
			require.Same(t, tc.res, res, "what a call returned is passed on")
			require.Equal(t, tc.err, err)
			require.Len(t, seen, 1)
			require.Equal(t, toolcircuit.Verdict{Effect: tc.effect, Kind: tc.kind}, seen[0].Verdict)
		})
	}
}

// A refusal within a tool reaches the model as what it is, too.
func TestInnerRefusal(t *testing.T) {
	r := newRig(t, "", toolset.Options{})
	r.trip("database")
	c := connect(t, newServer(t, r.Set, tools{"search": func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return toolset.Do(ctx, r.Set, "database", nil, func(context.Context) (*mcp.CallToolResult, error) { return fine, nil })
	}}), "")
	for range 5 {
		res, err := c.CallTool(t.Context(), request("search"))
		blocked := requireBlocked(t, res, err)
		require.Equal(t, "database", blocked.Dependency)
		require.Equal(t, "unknown", blocked.Outcome)
	}
	require.Equal(t, closed, r.state("search"))
}

// The type of an error is lost where NewStructuredToolHandler makes a text of it. A Result as
// the handler's output keeps it, and fits the schema in each status.
func TestResultAsOutput(t *testing.T) {
	type Args struct{}
	type Hits struct {
		N int `json:"n"`
	}
	r, fail := newRig(t, "", toolset.Options{}), errDown
	handler := func(ctx context.Context, _ mcp.CallToolRequest, _ Args) (toolcircuit.Result[Hits], error) {
		return toolset.ResultOf(ctx, r.Set, "search", Hits{1}, toolcircuit.Classify(ctx, toolcircuit.Outcome{Err: fail}), fail)
	}
	s := newServer(t, r.Set, nil, server.WithOutputSchemaValidation())
	s.AddTool(mcp.NewTool("search", mcp.WithOutputSchema[toolcircuit.Result[Hits]]()), mcp.NewStructuredToolHandler(handler))
	c := connect(t, s, "")
	status := func() any {
		res, err := c.CallTool(t.Context(), request("search"))
		require.NoError(t, err)
		if res.IsError {
			return requireBlocked(t, res, err).Status
		}
		return toolcircuit.Status(res.StructuredContent.(map[string]any)["status"].(string))
	}
	for range 3 {
		require.Equal(t, toolcircuit.StatusFailed, status())
	}
	require.Equal(t, toolcircuit.StatusBlocked, status(), "without structured content no schema is broken")
	r.clock.Add(time.Minute)
	fail = nil
	require.Equal(t, toolcircuit.StatusOK, status())
	require.Equal(t, closed, r.state("search"))
}

// A panic counts, gives the slot back and goes on its way.
func TestPanicInTool(t *testing.T) {
	r := newRig(t, "", toolset.Options{})
	r.trip("search")
	r.clock.Add(time.Minute)
	c := connect(t, newServer(t, r.Set, tools{"search": func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		panic("boom")
	}}), "")
	require.PanicsWithValue(t, "boom", func() { c.CallTool(t.Context(), request("search")) })
	snap := r.Circuit(t.Context(), "search").Snapshot()
	require.Equal(t, open, snap.State)
	require.Equal(t, toolcircuit.KindPanic, snap.Cause)

	recovering := connect(t, newServer(t, r.Set, tools{"search": returns(fine, nil), "bad": func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		panic("boom")
	}}, server.WithRecovery()), "")
	for range 3 {
		_, err := recovering.CallTool(t.Context(), request("bad"))
		require.ErrorIs(t, err, mcp.ErrInternalError)
	}
	require.Equal(t, toolcircuit.KindPanic, r.Circuit(t.Context(), "bad").Snapshot().Cause)
	r.clock.Add(10 * time.Minute)
	res, err := recovering.CallTool(t.Context(), request("search"))
	require.NoError(t, err)
	require.Equal(t, "fine", text(t, res))
}

// A call as a task goes through the same circuit. The SDK ends its context as soon as the
// client knows that the task has begun, which must not pass for a caller that walked away.
func TestTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", toolset.Options{})
		r.trip("search")
		handler, ran := counting(func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return fine, ctx.Err()
		})
		s := newServer(t, r.Set, nil, server.WithTaskCapabilities(true, true, true))
		s.AddTool(mcp.NewTool("search", mcp.WithTaskSupport(mcp.TaskSupportOptional)), handler)
		c := connect(t, s, mcp.LATEST_LEGACY_PROTOCOL_VERSION)
		begin := func() {
			req := request("search")
			req.Params.Task = &mcp.TaskParams{}
			c.CallTool(t.Context(), req) // the SDK's client takes the answer, a task, for a bad result
			synctest.Wait()
		}
		begin()
		require.Zero(t, ran.Load())
		require.EqualValues(t, 1, r.Circuit(t.Context(), "search").Snapshot().Refused)
		r.clock.Add(time.Minute)
		begin()
		require.EqualValues(t, 1, ran.Load())
		require.Equal(t, closed, r.state("search"))
	})
}

func TestHangingToolBesideHealthySiblings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, `{"default":{"failureThreshold":3,"cooldown":"60s","callTimeout":"5s"}}`, toolset.Options{})
		c := connect(t, newServer(t, r.Set, tools{
			"healthy": returns(fine, nil),
			"hanging": func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
		}), "")
		for range 3 {
			done := make(chan error)
			go func() {
				_, err := c.CallTool(t.Context(), request("hanging"))
				done <- err
			}()
			synctest.Wait()
			res, err := c.CallTool(t.Context(), request("healthy"))
			require.NoError(t, err)
			require.Equal(t, "fine", text(t, res))
			r.clock.Add(5 * time.Second)
			require.Error(t, <-done)
		}
		res, err := c.CallTool(t.Context(), request("hanging"))
		require.Equal(t, toolcircuit.KindTimeout, requireBlocked(t, res, err).Cause)
		res, err = c.CallTool(t.Context(), request("healthy"))
		require.NoError(t, err)
		require.Equal(t, "fine", text(t, res))
	})
}

// What a modern client may keep is gone with the opening.
func TestHiddenListIsNotCached(t *testing.T) {
	r := newRig(t, "", toolset.Options{})
	s := newServer(t, r.Set, tools{"fetch": returns(fine, nil), "search": returns(fine, nil)}, server.WithCacheHints(3_600_000, mcp.CacheScopePublic))
	modern, legacy := connect(t, s, ""), connect(t, s, mcp.LATEST_LEGACY_PROTOCOL_VERSION)
	ttl := func(c *client.Client) (int64, bool) {
		page, err := c.ListTools(t.Context(), mcp.ListToolsRequest{})
		require.NoError(t, err)
		return page.TTL()
	}
	for _, want := range []int64{3_600_000, 0, 3_600_000} {
		got, ok := ttl(modern)
		require.True(t, ok)
		require.Equal(t, want, got)
		_, ok = ttl(legacy)
		require.False(t, ok)
		if want != 0 && r.state("search") == closed {
			r.trip("search")
		} else {
			r.clock.Add(time.Minute)
		}
	}
}

// Pages have no gap where tools are hidden, and two tenants on one session see each their own list.
func TestPagesOfTwoTenants(t *testing.T) {
	for _, version := range versions {
		r := newRig(t, `{"dependencies": {"c": {"scoped": true}}, "tools": {"c": {}}}`, toolset.Options{})
		all := tools{}
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			all[name] = returns(fine, nil)
		}
		c := connect(t, newServer(t, r.Set, all, server.WithPaginationLimit(2)), version)
		us, them := toolset.WithScope(t.Context(), "us"), toolset.WithScope(t.Context(), "them")
		for range 3 {
			p, err := r.Allow(us, "c", nil)
			require.NoError(t, err)
			p.Settle(us, nil, &toolcircuit.HTTPError{StatusCode: 503})
		}
		for range 2 {
			require.Equal(t, []string{"a", "b", "d", "e"}, listAs(us, t, c))
			require.Equal(t, []string{"a", "b", "c", "d", "e"}, listAs(them, t, c))
		}
		r.clock.Add(time.Minute)
		require.Equal(t, []string{"a", "b", "c", "d", "e"}, listAs(us, t, c))
	}
}

// A handler that returns nothing proves nothing.
func TestNilResult(t *testing.T) {
	r := newRig(t, `{"dependencies":{"strict":{"policy":{"countUnknown":true}}}}`, toolset.Options{})
	c := connect(t, newServer(t, r.Set, tools{"search": returns(nil, nil), "strict": returns(nil, nil)}), "")
	for range 3 {
		for _, tool := range []string{"search", "strict"} {
			_, err := c.CallTool(t.Context(), request(tool))
			require.ErrorIs(t, err, mcp.ErrInternalError)
		}
	}
	require.Equal(t, closed, r.state("search"))
	require.Equal(t, open, r.state("strict"))
}

func TestNilArguments(t *testing.T) {
	require.PanicsWithValue(t, "mcpgocircuit: New: set is nil", func() { mcpgocircuit.New(nil, mcpgocircuit.Options{}) })
	set := newRig(t, "", toolset.Options{}).Set
	require.PanicsWithValue(t, "mcpgocircuit: Guard.Middleware: the handler is nil", func() { guarded(set, nil) })
	guard := mcpgocircuit.New(set, mcpgocircuit.Options{})
	defer guard.Close()
	require.PanicsWithValue(t, "mcpgocircuit: Guard.Server: the server is nil", func() { guard.Server(nil) })
	for _, none := range []*mcpgocircuit.Guard{nil, {}} {
		require.PanicsWithValue(t, "mcpgocircuit: Guard.Close: the Guard was not made by New", none.Close)
		require.PanicsWithValue(t, "mcpgocircuit: Guard.HTTP: the Guard was not made by New", func() { none.HTTP("", nil) })
	}
}

// counting returns a handler and how often it ran.
func counting(next server.ToolHandlerFunc) (server.ToolHandlerFunc, *atomic.Int64) {
	n := new(atomic.Int64)
	return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		n.Add(1)
		return next(ctx, req)
	}, n
}
