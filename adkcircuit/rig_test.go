package adkcircuit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"
	"google.golang.org/adk/agent"
	"google.golang.org/adk/agent/llmagent"
	"google.golang.org/adk/model"
	"google.golang.org/adk/runner"
	"google.golang.org/adk/session"
	"google.golang.org/adk/tool"
	"google.golang.org/adk/tool/functiontool"
	"google.golang.org/genai"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/adkcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

const (
	threshold   = 3
	callTimeout = 10 * time.Second
	cooldown    = time.Minute
)

var errDown = &toolcircuit.HTTPError{StatusCode: 503}

type query struct {
	Q string `json:"q"`
}

// search is what the tool web_search does.
type search func(tool.Context) (map[string]any, error)

// asked is a request to a scripted model.
type asked struct {
	tools     []string
	forbidden bool
	read      []*genai.FunctionResponse
}

// script is a model that answers what it is told to.
type script struct {
	next  func(n int, a asked) []*genai.Part
	asked *[]asked
}

func (script) Name() string                       { return "gemini-3-script" }
func (script) GetGoogleLLMVariant() genai.Backend { return genai.BackendVertexAI }
func text(s string) []*genai.Part                 { return []*genai.Part{genai.NewPartFromText(s)} }

func (m script) GenerateContent(_ context.Context, req *model.LLMRequest, stream bool) iter.Seq2[*model.LLMResponse, error] {
	return func(yield func(*model.LLMResponse, error) bool) {
		var a asked
		for _, t := range req.Config.Tools {
			for _, f := range t.FunctionDeclarations {
				a.tools = append(a.tools, f.Name)
			}
		}
		if c := req.Config.ToolConfig; c != nil {
			a.forbidden = c.FunctionCallingConfig.Mode == genai.FunctionCallingConfigModeNone
		}
		for _, p := range req.Contents[len(req.Contents)-1].Parts {
			if p.FunctionResponse != nil {
				a.read = append(a.read, p.FunctionResponse)
			}
		}
		*m.asked = append(*m.asked, a)
		parts := m.next(len(*m.asked), a)
		if stream && !yield(&model.LLMResponse{Content: genai.NewContentFromParts(parts[:1], genai.RoleModel), Partial: true}, nil) {
			return
		}
		yield(&model.LLMResponse{Content: genai.NewContentFromParts(parts, genai.RoleModel), TurnComplete: true}, nil)
	}
}

// calls returns n calls of web_search.
func calls(turn, n int) (parts []*genai.Part) {
	for i := range n {
		p := genai.NewPartFromFunctionCall("web_search", map[string]any{"q": fmt.Sprintf("%d-%d", turn, i)})
		p.FunctionCall.ID = fmt.Sprintf("call-%d-%d", turn, i)
		parts = append(parts, p)
	}
	return parts
}

// parsed returns the Result that a function response holds.
func parsed(t *testing.T, f *genai.FunctionResponse) (r toolcircuit.Result[any]) {
	t.Helper()
	raw, err := json.Marshal(f.Response)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &r))
	return r
}

// rig is an agent with one tool beside another that needs nobody.
type rig struct {
	*testing.T
	now    *clock.Mock
	set    *toolset.Set
	runner *runner.Runner
	mode   agent.StreamingMode
	asked  []asked

	mu    sync.Mutex
	calls []toolcircuit.Call
}

// adapt puts tools, which are not guarded, into the config of an agent. Nil: guarded, as its Tools.
type adapt func(set *toolset.Set, tools []tool.Tool, c *llmagent.Config)

// run runs f with an agent in a bubble, with and without streaming.
func run(t *testing.T, do search, next func(n int, a asked) []*genai.Part, adapt adapt, f func(*rig)) {
	t.Helper()
	for name, mode := range map[string]agent.StreamingMode{"whole": agent.StreamingModeNone, "streamed": agent.StreamingModeSSE} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &rig{T: t, now: clock.NewMock(), mode: mode}
				var err error
				r.set, err = toolset.New(toolset.Config{
					Tools:   map[string]toolset.Tool{"web_search": {Dependency: "search-api"}, "notes": {}},
					Default: &toolcircuit.Policy{FailureThreshold: threshold, CallTimeout: callTimeout, Cooldown: cooldown},
					Hide:    toolset.HideOpen,
				}, toolset.Options{Clock: r.now, OnCall: func(_ context.Context, c toolcircuit.Call) {
					r.mu.Lock()
					defer r.mu.Unlock()
					r.calls = append(r.calls, c)
				}})
				require.NoError(t, err)
				tools := []tool.Tool{
					function(t, "web_search", do),
					function(t, "notes", func(tool.Context) (map[string]any, error) { return map[string]any{"notes": 0}, nil }),
				}
				config := llmagent.Config{
					Name:  "agent",
					Model: adkcircuit.Model(r.set, script{next, &r.asked}),
				}
				if adapt != nil {
					adapt(r.set, tools, &config)
				} else {
					config.Tools = adkcircuit.Guard(r.set, tools...)
				}
				a, err := llmagent.New(config)
				require.NoError(t, err)
				r.runner, err = runner.New(runner.Config{AppName: "app", Agent: a, SessionService: session.InMemoryService(), AutoCreateSession: true})
				require.NoError(t, err)
				f(r)
			})
		})
	}
}

func function(t *testing.T, name string, do search) tool.Tool {
	f, err := functiontool.New(functiontool.Config{Name: name, Description: "a tool"},
		func(ctx tool.Context, _ query) (map[string]any, error) { return do(ctx) })
	require.NoError(t, err)
	return f
}

// ask returns what the agent answers, and all events.
func (r *rig) ask(ctx context.Context, message *genai.Content) (answer string, events []*session.Event, err error) {
	for e, err := range r.runner.Run(ctx, "user", "session", message, agent.RunConfig{StreamingMode: r.mode}) {
		if err != nil {
			return "", events, err
		}
		events = append(events, e)
		if e.Content != nil && !e.Partial && e.IsFinalResponse() {
			for _, p := range e.Content.Parts {
				answer += p.Text
			}
		}
	}
	return answer, events, nil
}

func question() *genai.Content { return genai.NewContentFromText("what is new?", genai.RoleUser) }

// whenIdle calls f as soon as all else waits. What it returns waits for f.
func (r *rig) whenIdle(f func()) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		synctest.Wait()
		f()
	}()
	return func() { <-done }
}
