package main

import (
	"context"

	"google.golang.org/adk/agent"
	"google.golang.org/adk/agent/llmagent"
	"google.golang.org/adk/model/gemini"
	"google.golang.org/adk/runner"
	"google.golang.org/adk/session"
	"google.golang.org/adk/tool"
	"google.golang.org/adk/tool/functiontool"
	"google.golang.org/genai"

	"github.com/toolcircuit/toolcircuit/adkcircuit"
	"github.com/toolcircuit/toolcircuit/examples/internal/demo"
	"github.com/toolcircuit/toolcircuit/toolset"
)

type place struct {
	City string `json:"city"`
}

type weather struct {
	Weather string `json:"weather"`
}

// start makes an LLM agent. The two lines with adkcircuit are all that circuits need, and the one with
// toolset a session. The client of genai v1.40.0, which ADK has, repeats no request. Where a later one
// can, leave that off: it would wait inside the request, where nobody sees that the provider is down
// (examples/llm counts that).
func start(ctx context.Context, rig demo.Rig) (demo.Ask, error) {
	var tools []tool.Tool
	for _, of := range rig.Tools() {
		t, err := functiontool.New(functiontool.Config{Name: of.Name, Description: of.Description},
			func(ctx tool.Context, p place) (weather, error) {
				text, err := of.Do(ctx, p.City) // which CallTimeout ends
				return weather{text}, err
			})
		if err != nil {
			return nil, err
		}
		tools = append(tools, t)
	}
	model, err := gemini.NewModel(ctx, "gemini-3-flash", &genai.ClientConfig{
		APIKey:      "key",
		Backend:     genai.BackendGeminiAPI,
		HTTPOptions: genai.HTTPOptions{BaseURL: rig.URL},
	})
	if err != nil {
		return nil, err
	}
	of, err := llmagent.New(llmagent.Config{
		Name:  "weather",
		Model: adkcircuit.Model(rig.Set, model),
		Tools: adkcircuit.Guard(rig.Set, tools...),
	})
	if err != nil {
		return nil, err
	}
	mode := agent.RunConfig{StreamingMode: agent.StreamingModeNone}
	if rig.Stream {
		mode.StreamingMode = agent.StreamingModeSSE
	}
	return func(ctx context.Context, limits *toolset.Session, question string) (answer string, err error) {
		ctx = toolset.WithSession(ctx, limits)
		runner, err := runner.New(runner.Config{AppName: "demo", Agent: of, SessionService: session.InMemoryService(), AutoCreateSession: true})
		if err != nil {
			return "", err
		}
		for e, err := range runner.Run(ctx, "user", "session", genai.NewContentFromText(question, genai.RoleUser), mode) {
			if err != nil {
				return "", err
			}
			if e.Content == nil || e.Partial || !e.IsFinalResponse() {
				continue
			}
			for _, p := range e.Content.Parts {
				answer += p.Text
			}
		}
		return answer, nil
	}, nil
}
