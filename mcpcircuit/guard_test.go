package mcpcircuit_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/mcpcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// legacy is the last version of the protocol with sessions; without it the newest is spoken.
const legacy = "2025-11-25"

// everything is a config that guards whatever there is, servers too: three failures, a minute.
const everything = `{"default": {"failureThreshold": 3, "cooldown": "1m", "jitter": 0}, "monitored": ["*"]}`

// rig is a Set under a mock clock with the middleware around it.
type rig struct {
	*testing.T
	set   *toolset.Set
	clock *clock.Mock

	mu     sync.Mutex
	events []string // "dependency to"
	calls  []toolcircuit.Call
}

func newRig(t *testing.T, config string, classify toolcircuit.Classifier) *rig {
	t.Helper()
	r := &rig{T: t, clock: clock.NewMock()}
	c, err := toolset.Load(strings.NewReader(config))
	require.NoError(t, err)
	r.set, err = toolset.New(c, toolset.Options{
		Classify: classify,
		Clock:    r.clock,
		OnEvent: func(_ context.Context, e toolcircuit.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, e.Dependency+" "+string(e.To))
		},
		OnCall: func(_ context.Context, c toolcircuit.Call) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.calls = append(r.calls, c)
		},
	})
	require.NoError(t, err)
	return r
}

// add moves the clock on.
func (r *rig) add(d time.Duration) { r.clock.Set(r.clock.Now().Add(d)) }

// after runs do in a goroutine and moves the clock on when that waits, in a bubble.
func (r *rig) after(d time.Duration, do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	synctest.Wait()
	r.add(d)
	<-done
}

func (r *rig) state(name string) toolcircuit.State {
	return r.set.Circuit(context.Background(), name).State()
}

func (r *rig) snapshot(name string) toolcircuit.Snapshot {
	return r.set.Circuit(context.Background(), name).Snapshot()
}

// kinds are what the calls of a dependency met, in order.
func (r *rig) kinds(dependency string) (kinds []toolcircuit.Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		if c.Dependency == dependency {
			kinds = append(kinds, c.Verdict.Kind)
		}
	}
	return kinds
}

func (r *rig) guardServer(s *mcp.Server) *mcp.Server {
	r.guard(mcpcircuit.Options{}).Server(s)
	return s
}

// guard returns a guard that ends with the test.
func (r *rig) guard(o mcpcircuit.Options) *mcpcircuit.Guard {
	g := mcpcircuit.New(r.set, o)
	r.Cleanup(g.Close)
	return g
}

func (r *rig) client(o mcpcircuit.Options) *mcp.Client {
	c := plainClient()
	r.guard(o).Client(c)
	return c
}

// plainClient is a client that hands requests for input on to its caller.
func plainClient() *mcp.Client {
	return mcp.NewClient(&mcp.Implementation{Name: "agent"}, &mcp.ClientOptions{
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
	})
}

// connectGuarded connects to a server with the guard at one end.
func (r *rig) connectGuarded(end string, s *mcp.Server, version string) *mcp.ClientSession {
	r.Helper()
	if end == "server" {
		return connect(r.T, r.guardServer(s), plainClient(), version)
	}
	return connect(r.T, s, r.client(mcpcircuit.Options{}), version)
}

// in is what every tool of the tests takes.
type in struct {
	Query string `json:"query"`
}

// tool is a handler, counted.
type tool struct {
	calls atomic.Int64
	do    atomic.Pointer[func(context.Context) (*mcp.CallToolResult, error)]
}

func (tl *tool) set(do func(context.Context) (*mcp.CallToolResult, error)) { tl.do.Store(&do) }

func (tl *tool) fail(err error) {
	tl.set(func(context.Context) (*mcp.CallToolResult, error) { return nil, err })
}

func (tl *tool) answer(res *mcp.CallToolResult) {
	tl.set(func(context.Context) (*mcp.CallToolResult, error) { return res, nil })
}

// newServer makes a server with typed tools of the names given, all healthy.
func newServer(name string, tools ...string) (*mcp.Server, map[string]*tool) {
	s := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, nil)
	handlers := map[string]*tool{}
	for _, name := range tools {
		handlers[name] = addTool(s, name)
	}
	return s, handlers
}

func addTool(s *mcp.Server, name string) *tool {
	tl := new(tool)
	tl.answer(&mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "fine"}}})
	mcp.AddTool(s, &mcp.Tool{Name: name}, func(ctx context.Context, _ *mcp.CallToolRequest, _ in) (*mcp.CallToolResult, any, error) {
		tl.calls.Add(1)
		res, err := (*tl.do.Load())(ctx)
		return res, nil, err
	})
	return tl
}

// connect connects a client and a server within the process.
func connect(t *testing.T, s *mcp.Server, c *mcp.Client, version string) *mcp.ClientSession {
	t.Helper()
	near, far := mcp.NewInMemoryTransports()
	_, err := s.Connect(context.Background(), far, nil)
	require.NoError(t, err)
	session, err := c.Connect(context.Background(), near, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	t.Cleanup(func() { session.Close() })
	return session
}

func call(s *mcp.ClientSession, name string) (*mcp.CallToolResult, error) {
	return s.CallTool(context.Background(), &mcp.CallToolParams{Name: name, Arguments: in{"x"}})
}

// healthy requires a call to run and to be answered well.
func healthy(t *testing.T, s *mcp.ClientSession, name string) {
	t.Helper()
	res, err := call(s, name)
	require.NoError(t, err)
	require.False(t, res.IsError, "%s: %s", name, text(res))
}

func text(res *mcp.CallToolResult) string {
	if len(res.Content) == 0 {
		return ""
	}
	return res.Content[0].(*mcp.TextContent).Text
}

// blocked requires a call to be refused with a normal result, and returns what it says.
func blocked(t *testing.T, s *mcp.ClientSession, name string) toolcircuit.Result[any] {
	t.Helper()
	res, err := call(s, name)
	require.NoError(t, err, "a refusal is no error of the protocol")
	require.True(t, res.IsError)
	require.Nil(t, res.StructuredContent)
	var r toolcircuit.Result[any]
	require.NoError(t, json.Unmarshal([]byte(text(res)), &r))
	require.Equal(t, toolcircuit.StatusBlocked, r.Status)
	copied, err := json.Marshal(res.Meta[mcpcircuit.MetaKey])
	require.NoError(t, err)
	require.JSONEq(t, text(res), string(copied))
	return r
}

var errBackend = toolcircuit.Fault(errors.New("backend is down"))

// Both ends, both versions of the protocol: after three failures the fourth call is refused with
// all that the model needs, and after the cooldown the tool is back.
func TestGuardBlocksAndRecovers(t *testing.T) {
	for _, version := range []string{"", legacy} {
		for _, end := range []string{"server", "client"} {
			t.Run(end+version, func(t *testing.T) {
				config := `{"default": {"failureThreshold": 3, "cooldown": "1m", "jitter": 0, "countUnknown": true},
					"tools": {"search": {"dependency": "search-api", "alternatives": ["cached"]}, "cached": {}}, "monitored": ["*"]}`
				r := newRig(t, config, nil)
				s, tools := newServer("web", "search", "cached")
				session := r.connectGuarded(end, s, version)

				tools["search"].fail(errBackend)
				for range 3 {
					res, err := call(session, "search")
					require.NoError(t, err)
					require.True(t, res.IsError)
					require.Equal(t, "backend is down", text(res))
				}
				r.add(18 * time.Second)
				got := blocked(t, session, "search")
				require.Equal(t, toolcircuit.ReasonDependencyOpen, got.Reason)
				require.Equal(t, "search-api", got.Dependency)
				require.Equal(t, "search", got.Tool)
				require.False(t, *got.Executed)
				require.EqualValues(t, 42_000, got.RetryAfterMS)
				require.Equal(t, []string{"cached"}, got.Alternatives)
				require.EqualValues(t, 3, tools["search"].calls.Load())
				healthy(t, session, "cached")

				tools["search"].answer(nil)
				r.add(42 * time.Second)
				healthy(t, session, "search")
				require.Equal(t, toolcircuit.StateClosed, r.state("search"))
			})
		}
	}
}

// What the package doc says first: a client cannot tell a dead backend from a wrong argument,
// unless it is told that it may.
func TestClientDefaultsDoNotTripOnIsError(t *testing.T) {
	count := func(*mcpcircuit.ToolError) toolcircuit.Verdict {
		return toolcircuit.Verdict{Effect: toolcircuit.EffectCount, Kind: toolcircuit.KindUnavailable}
	}
	for name, tt := range map[string]struct {
		config   string
		classify toolcircuit.Classifier
		want     toolcircuit.State
	}{
		"default":      {everything, nil, toolcircuit.StateClosed},
		"countUnknown": {strings.Replace(everything, `"1m"`, `"1m", "countUnknown": true`, 1), nil, toolcircuit.StateOpen},
		"Classifier":   {everything, toolcircuit.ForError(count), toolcircuit.StateOpen},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tt.config, tt.classify)
			s, tools := newServer("web", "search")
			session := connect(t, s, r.client(mcpcircuit.Options{}), "")
			tools["search"].fail(errBackend)
			for range 3 {
				_, err := call(session, "search")
				require.NoError(t, err)
			}
			require.Equal(t, tt.want, r.state("search"))
			require.Equal(t, toolcircuit.StateClosed, r.state("mcp:web"), "an answer proves the server reachable")
		})
	}
}

// What a tool's circuit makes of each answer, at each end where it can be told.
func TestAnswers(t *testing.T) {
	rateLimited := &toolcircuit.HTTPError{StatusCode: 429}
	for name, tt := range map[string]struct {
		do             func(context.Context) (*mcp.CallToolResult, error)
		server, client toolcircuit.Kind
	}{
		"healthy":          {func(context.Context) (*mcp.CallToolResult, error) { return nil, nil }, "ok", "ok"},
		"error by type":    {func(context.Context) (*mcp.CallToolResult, error) { return nil, rateLimited }, "rate_limited", "unknown"},
		"error of no type": {func(context.Context) (*mcp.CallToolResult, error) { return nil, errors.New("x") }, "unknown", "unknown"},
		"own isError":      {func(context.Context) (*mcp.CallToolResult, error) { return &mcp.CallToolResult{IsError: true}, nil }, "unknown", "unknown"},
		"refused within":   {func(context.Context) (*mcp.CallToolResult, error) { return nil, toolcircuit.ErrCircuitOpen }, "rejected", "rejected"},
		"asks for input": {func(context.Context) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": &mcp.ElicitParams{Message: "sure?"}}}, nil
		}, "unknown", "unknown"},
		"sheds load": {func(context.Context) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{}}, nil
		}, "rate_limited", "rate_limited"},
		"asks for a URL": {func(context.Context) (*mcp.CallToolResult, error) {
			return nil, mcp.URLElicitationRequiredError(nil)
		}, "unknown", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			seen := newRig(t, everything, nil)
			sent := newRig(t, everything, nil)
			s, tools := newServer("web", "search")
			session := connect(t, seen.guardServer(s), sent.client(mcpcircuit.Options{}), "")
			tools["search"].set(tt.do)
			call(session, "search")
			require.Equal(t, []toolcircuit.Kind{tt.server}, seen.kinds("search"))
			require.Equal(t, []toolcircuit.Kind{tt.client}, sent.kinds("search"))
			require.Equal(t, []toolcircuit.Kind{"ok"}, sent.kinds("mcp:web"))
			if strings.HasPrefix(name, "asks") {
				require.Zero(t, seen.snapshot("search").Unclassified, "no failure, even with countUnknown")
				require.Zero(t, sent.snapshot("search").Unclassified, "no failure, even with countUnknown")
			}
		})
	}
}

// A server whose own circuit refuses is alive, and its refusal says nothing new.
func TestRefusalOfTheServersCircuitIsNotAFailure(t *testing.T) {
	theirs := newRig(t, strings.Replace(everything, "3", "1", 1), nil)
	ours := newRig(t, strings.Replace(everything, `"1m"`, `"1m", "countUnknown": true`, 1), nil)
	s, tools := newServer("web", "search")
	session := connect(t, theirs.guardServer(s), ours.client(mcpcircuit.Options{}), "")
	tools["search"].fail(errBackend)
	call(session, "search")
	for range 5 {
		require.Equal(t, "search", blocked(t, session, "search").Dependency)
	}
	require.Equal(t, []toolcircuit.Kind{"unknown", "rejected", "rejected", "rejected", "rejected", "rejected"}, ours.kinds("search"))
	require.Equal(t, toolcircuit.StateClosed, ours.state("search"))
}

// A handler may return no result at all, which arrives as an interface that holds a nil pointer.
// In the newest version of the protocol the SDK itself would panic on it.
func TestNilResult(t *testing.T) {
	newNil := func() *mcp.Server {
		s, _ := newServer("web")
		s.AddTool(&mcp.Tool{Name: "search", InputSchema: map[string]any{"type": "object"}},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, nil })
		return s
	}
	for _, version := range []string{"", legacy} {
		r := newRig(t, everything, nil)
		_, err := call(r.connectGuarded("server", newNil(), version), "search")
		require.ErrorContains(t, err, "the tool returned no result")
		require.Equal(t, []toolcircuit.Kind{"unknown"}, r.kinds("search"))
	}
	r := newRig(t, everything, nil)
	healthy(t, r.connectGuarded("client", newNil(), legacy), "search")
}

// What is not there is left to the SDK.
func TestNilRequests(t *testing.T) {
	r := newRig(t, everything, nil)
	for name, req := range map[string]mcp.Request{
		"nothing":            nil,
		"no request":         (*mcp.CallToolRequest)(nil),
		"no parameters":      &mcp.CallToolRequest{},
		"nil parameters":     &mcp.ClientRequest[mcp.Params]{Session: new(mcp.ClientSession), Params: (*mcp.CallToolParams)(nil)},
		"no session":         &mcp.ClientRequest[mcp.Params]{Params: &mcp.CallToolParams{Name: "search"}},
		"none to be sent on": (*mcp.ClientRequest[mcp.Params])(nil),
	} {
		t.Run(name, func(t *testing.T) {
			for _, method := range []string{"tools/call", "tools/list"} {
				reached := false
				handler := r.guard(mcpcircuit.Options{}).Middleware(func(_ context.Context, _ string, got mcp.Request) (mcp.Result, error) {
					reached = true
					require.Equal(t, req, got)
					return nil, mcp.ErrConnectionClosed
				})
				handler(context.Background(), method, req)
				require.True(t, reached)
			}
		})
	}
}

// A server that offers a tool with the name of another server's circuit does not get at that.
func TestToolNamedLikeAServer(t *testing.T) {
	for _, end := range []string{"server", "client"} {
		r := newRig(t, strings.Replace(hiding, `"1m"`, `"1m", "countUnknown": true`, 1), nil)
		s, tools := newServer("evil", "mcp:good", "other")
		session := r.connectGuarded(end, s, "")
		tools["mcp:good"].fail(errBackend)
		for range 5 {
			res, err := call(session, "mcp:good")
			require.NoError(t, err)
			require.Equal(t, "backend is down", text(res))
		}
		require.Equal(t, closed, r.state("mcp:good"))
		require.NoError(t, r.set.SetOverride("mcp:good", toolcircuit.OverrideOpen))
		require.Equal(t, []string{"mcp:good", "other"}, listed(t, session))
	}
}

// The SDK does not recover the panic of a tool. If somebody else does, the call has failed, and
// the slot is free again.
func TestPanicOfATool(t *testing.T) {
	r := newRig(t, everything, nil)
	s, tools := newServer("web", "search")
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return r.guard(mcpcircuit.Options{}).Middleware(next)
	})
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
			defer func() {
				if v := recover(); v != nil {
					err = errors.New("recovered")
				}
			}()
			return next(ctx, method, req)
		}
	})
	session := connect(t, s, plainClient(), "")
	tools["search"].fail(errBackend)
	for range 3 {
		call(session, "search")
	}
	r.add(time.Minute)
	tools["search"].set(func(context.Context) (*mcp.CallToolResult, error) { panic("x") })
	_, err := call(session, "search")
	require.ErrorContains(t, err, "recovered")
	require.Equal(t, open, r.state("search"))
	require.Equal(t, toolcircuit.KindPanic, r.snapshot("search").Cause)
	r.add(2 * time.Minute)
	tools["search"].answer(nil)
	healthy(t, session, "search")
	require.Equal(t, toolcircuit.StateClosed, r.state("search"))
}

// A typed handler that returns blocked results of its own: as its Out they keep their place in
// structuredContent and hold to the schema that the SDK infers, in each status. A result with
// IsError that the handler makes itself would not: the SDK writes Out over it.
func TestResultAsOut(t *testing.T) {
	type hits struct {
		Titles []string `json:"titles"`
	}
	c := toolcircuit.MustNew("search-api", toolcircuit.Options{Policy: toolcircuit.Policy{FailureThreshold: 1}})
	steps := []struct {
		err  error
		want toolcircuit.Status
	}{
		{nil, toolcircuit.StatusOK},
		{errBackend, toolcircuit.StatusFailed},
		{nil, toolcircuit.StatusBlocked},
		{nil, toolcircuit.StatusFallback},
	}
	step := 0
	search := toolcircuit.WrapResult(c, func(context.Context, in) (hits, error) {
		return hits{[]string{"a"}}, steps[step].err
	})
	s, _ := newServer("web")
	mcp.AddTool(s, &mcp.Tool{Name: "search"}, func(ctx context.Context, _ *mcp.CallToolRequest, q in) (*mcp.CallToolResult, toolcircuit.Result[hits], error) {
		r, err := search(ctx, q)
		if steps[step].want == toolcircuit.StatusFallback {
			r = r.Or(hits{[]string{"old"}}, "cache")
		}
		return nil, r, err
	})
	mcp.AddTool(s, &mcp.Tool{Name: "own"}, func(context.Context, *mcp.CallToolRequest, in) (*mcp.CallToolResult, toolcircuit.Result[hits], error) {
		return &mcp.CallToolResult{IsError: true, StructuredContent: map[string]any{"status": "blocked"}}, toolcircuit.Result[hits]{}, nil
	})
	session := connect(t, s, plainClient(), "")
	for step = range steps {
		res, err := call(session, "search")
		require.NoError(t, err)
		require.False(t, res.IsError, text(res))
		require.Equal(t, string(steps[step].want), res.StructuredContent.(map[string]any)["status"])
		structured, err := json.Marshal(res.StructuredContent)
		require.NoError(t, err)
		require.JSONEq(t, text(res), string(structured), "either channel alone is enough")
	}
	res, err := call(session, "own")
	require.NoError(t, err)
	require.Empty(t, res.StructuredContent.(map[string]any)["status"], "if this fails, the SDK has changed")
}

// The session of a cancelled call lives on, and nothing is counted at any level.
func TestCancelledCallsAreNeutral(t *testing.T) {
	r := newRig(t, everything, nil)
	s, tools := newServer("web", "search")
	session := connect(t, s, r.client(mcpcircuit.Options{}), "")
	for range 5 {
		ctx, cancel := context.WithCancel(context.Background())
		tools["search"].set(func(inner context.Context) (*mcp.CallToolResult, error) {
			cancel()
			<-inner.Done() // the cancellation arrives
			return nil, inner.Err()
		})
		_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "search", Arguments: in{}})
		require.ErrorIs(t, err, context.Canceled)
	}
	tools["search"].answer(nil)
	healthy(t, session, "search")
	require.Zero(t, r.snapshot("search").Streak)
	require.Zero(t, r.snapshot("mcp:web").Streak)
}

// A tool that nobody listed is never refused, whatever happens to it or to its server.
func TestUnguardedToolsPass(t *testing.T) {
	r := newRig(t, `{"default": {"failureThreshold": 1}, "tools": {"search": {}}, "monitored": ["mcp:*"]}`, nil)
	s, tools := newServer("web", "search", "other")
	session := connect(t, r.guardServer(s), r.client(mcpcircuit.Options{}), "")
	r.set.Circuit(context.Background(), "mcp:web").SetOverride(toolcircuit.OverrideOpen)
	tools["other"].fail(errBackend)
	for range 3 {
		res, err := call(session, "other")
		require.NoError(t, err)
		require.Equal(t, "backend is down", text(res))
	}
	require.Equal(t, toolcircuit.ReasonManualOpen, blocked(t, session, "search").Reason)
	require.NoError(t, session.Ping(context.Background(), nil), "other methods pass")
}

func TestNilPanics(t *testing.T) {
	var zero mcpcircuit.Guard
	guard := newRig(t, everything, nil).guard(mcpcircuit.Options{})
	for want, f := range map[string]func(){
		"New: set is nil":                                 func() { mcpcircuit.New(nil, mcpcircuit.Options{}) },
		"Guard.Server: s is nil":                          func() { guard.Server(nil) },
		"Guard.Client: c is nil":                          func() { guard.Client(nil) },
		"Guard.Middleware: next is nil":                   func() { guard.Middleware(nil) },
		"Stdio: t is nil":                                 func() { mcpcircuit.Stdio(nil) },
		"Guard.Server: the Guard was not made by New":     func() { zero.Server(mcp.NewServer(&mcp.Implementation{}, nil)) },
		"Guard.Client: the Guard was not made by New":     func() { zero.Client(plainClient()) },
		"Guard.Middleware: the Guard was not made by New": func() { zero.Middleware(nil) },
		"Guard.Close: the Guard was not made by New":      zero.Close,
	} {
		require.PanicsWithValue(t, "mcpcircuit: "+want, f)
	}
}

// A server's policy takes a callTimeout back that the default sets.
func TestNoCallTimeoutForAServer(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^"dependencies": .*mcp:weather.*$`).Find(readme)
	r := newRig(t, `{"default": {"callTimeout": "10s", "slowCall": "5s"}, "monitored": ["*"], `+string(line)+`}`, nil)
	for name, want := range map[string]time.Duration{"mcp:weather": 0, "forecast": 10 * time.Second} {
		p := r.set.Circuit(t.Context(), name).Policy()
		require.Equal(t, want, p.CallTimeout, name)
		require.Equal(t, want/2, p.SlowCall, name)
	}
}
