package einocircuit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/flow/agent/react"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/einocircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

const (
	threshold   = 3
	callTimeout = 10 * time.Second
	cooldown    = time.Minute
)

// search is what the tool web_search does, in whatever kind of tool it is.
type search func(ctx context.Context) (string, error)

// named is a tool without a method to run it.
type named string

func (n named) Info(context.Context) (*schema.ToolInfo, error) {
	return &schema.ToolInfo{Name: string(n), Desc: "a tool"}, nil
}

type invokable struct {
	named
	do search
}

func (t invokable) InvokableRun(ctx context.Context, _ string, _ ...tool.Option) (string, error) {
	return t.do(ctx)
}

type enhanced struct {
	named
	do search
}

func (t enhanced) InvokableRun(ctx context.Context, _ *schema.ToolArgument, _ ...tool.Option) (*schema.ToolResult, error) {
	text, err := t.do(ctx)
	return result(text), err
}

type streamable struct {
	named
	do search
}

func (t streamable) StreamableRun(ctx context.Context, _ string, _ ...tool.Option) (*schema.StreamReader[string], error) {
	return pipe(ctx, t.do, func(text string) string { return text }), nil
}

type enhancedStreamable struct {
	named
	do search
}

func (t enhancedStreamable) StreamableRun(ctx context.Context, _ *schema.ToolArgument, _ ...tool.Option) (*schema.StreamReader[*schema.ToolResult], error) {
	return pipe(ctx, t.do, result), nil
}

func result(text string) *schema.ToolResult {
	return &schema.ToolResult{Parts: []schema.ToolOutputPart{{Type: schema.ToolPartTypeText, Text: text}}}
}

// pipe streams what do returns in two parts.
func pipe[T any](ctx context.Context, do search, say func(string) T) *schema.StreamReader[T] {
	r, w := schema.Pipe[T](0)
	go func() {
		defer w.Close()
		text, err := do(ctx)
		if err != nil {
			w.Send(say(""), err)
			return
		}
		_ = w.Send(say(text[:1]), nil) || w.Send(say(text[1:]), nil)
	}()
	return r
}

// kinds are the four kinds of tools.
var kinds = map[string]func(search) tool.BaseTool{
	"invokable":           func(do search) tool.BaseTool { return invokable{"web_search", do} },
	"enhanced":            func(do search) tool.BaseTool { return enhanced{"web_search", do} },
	"streamable":          func(do search) tool.BaseTool { return streamable{"web_search", do} },
	"enhanced streamable": func(do search) tool.BaseTool { return enhancedStreamable{"web_search", do} },
}

// turn is what a scripted model is asked.
type turn struct {
	tools     []string
	forbidden bool
	read      []*schema.Message // the results of the latest calls
}

// script is a chat model that answers what it is told to.
type script struct {
	next  func(n int, t turn) *schema.Message
	tools []*schema.ToolInfo
	turns *[]turn
}

func (m script) WithTools(tools []*schema.ToolInfo) (model.ToolCallingChatModel, error) {
	m.tools = tools
	return m, nil
}

func (m script) Generate(_ context.Context, in []*schema.Message, opts ...model.Option) (*schema.Message, error) {
	o := model.GetCommonOptions(&model.Options{Tools: m.tools}, opts...)
	t := turn{forbidden: o.ToolChoice != nil && *o.ToolChoice == schema.ToolChoiceForbidden}
	for _, info := range o.Tools {
		t.tools = append(t.tools, info.Name)
	}
	for _, message := range slices.Backward(in) {
		if message.Role != schema.Tool {
			break
		}
		t.read = append(t.read, message)
	}
	slices.Reverse(t.read)
	*m.turns = append(*m.turns, t)
	return m.next(len(*m.turns), t), nil
}

func (m script) Stream(ctx context.Context, in []*schema.Message, opts ...model.Option) (*schema.StreamReader[*schema.Message], error) {
	message, err := m.Generate(ctx, in, opts...)
	return schema.StreamReaderFromArray([]*schema.Message{message}), err
}

// calls is a message with n calls of web_search.
func calls(turn, n int) *schema.Message {
	m := schema.AssistantMessage("", nil)
	for i := range n {
		m.ToolCalls = append(m.ToolCalls, schema.ToolCall{
			ID:       fmt.Sprintf("call-%d-%d", turn, i),
			Function: schema.FunctionCall{Name: "web_search", Arguments: fmt.Sprintf(`{"q":"%d-%d"}`, turn, i)},
		})
	}
	return m
}

func says(text string) *schema.Message { return schema.AssistantMessage(text, nil) }

// text returns what a tool's message says.
func text(m *schema.Message) string {
	b := new(strings.Builder)
	b.WriteString(m.Content)
	for _, p := range m.UserInputMultiContent {
		b.WriteString(p.Text)
	}
	return b.String()
}

// parsed returns the Result that a tool's message says.
func parsed(t *testing.T, m *schema.Message) (r toolcircuit.Result[any]) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text(m)), &r), text(m))
	return r
}

// rig is an agent with one tool beside another that needs nobody.
type rig struct {
	*testing.T
	now   *clock.Mock
	set   *toolset.Set
	agent *react.Agent
	turns []turn

	mu    sync.Mutex
	calls []toolcircuit.Call
}

// run runs f with an agent in a bubble.
func run(t *testing.T, makeTool func(search) tool.BaseTool, do search, next func(n int, t turn) *schema.Message, f func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, now: clock.NewMock()}
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
		r.agent, err = react.NewAgent(t.Context(), &react.AgentConfig{
			ToolCallingModel: einocircuit.Model(r.set, script{next: next, turns: &r.turns}),
			ToolsConfig: compose.ToolsNodeConfig{
				Tools: []tool.BaseTool{
					makeTool(do),
					invokable{"notes", func(context.Context) (string, error) { return "none", nil }},
				},
				ToolCallMiddlewares: []compose.ToolMiddleware{einocircuit.Guard(r.set)},
			},
			MaxStep: 40,
		})
		require.NoError(t, err)
		f(r)
	})
}

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

// ways are the two ways to run an agent.
var ways = map[string]func(context.Context, *rig) (*schema.Message, error){
	"generate": func(ctx context.Context, r *rig) (*schema.Message, error) {
		return r.agent.Generate(ctx, []*schema.Message{schema.UserMessage("what is new?")})
	},
	"stream": func(ctx context.Context, r *rig) (*schema.Message, error) {
		s, err := r.agent.Stream(ctx, []*schema.Message{schema.UserMessage("what is new?")})
		if err != nil {
			return nil, err
		}
		defer s.Close()
		var parts []*schema.Message
		for {
			part, err := s.Recv()
			switch {
			case err == io.EOF:
				return schema.ConcatMessages(parts)
			case err != nil:
				return nil, err
			}
			parts = append(parts, part)
		}
	},
}

// each runs f for both ways and all kinds of tools.
func each(t *testing.T, f func(t *testing.T, way func(context.Context, *rig) (*schema.Message, error), makeTool func(search) tool.BaseTool)) {
	for way := range ways {
		for kind := range kinds {
			t.Run(way+" "+kind, func(t *testing.T) { f(t, ways[way], kinds[kind]) })
		}
	}
}
