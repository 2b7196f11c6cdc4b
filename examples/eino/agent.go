package main

import (
	"context"
	"io"

	"github.com/cloudwego/eino-ext/components/model/openai"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/components/tool/utils"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/flow/agent/react"
	"github.com/cloudwego/eino/schema"

	"github.com/toolcircuit/toolcircuit/einocircuit"
	"github.com/toolcircuit/toolcircuit/examples/internal/demo"
	"github.com/toolcircuit/toolcircuit/toolset"
)

type place struct {
	City string `json:"city" jsonschema:"required"`
}

// start makes a ReAct agent. The two lines with einocircuit are all that circuits need, and the one with
// toolset a session. The client of the model repeats no request. Leave off adk's ModelRetryConfig: its
// retries wait inside the run, where nobody sees that the provider is down (examples/llm counts that).
func start(ctx context.Context, rig demo.Rig) (demo.Ask, error) {
	var tools []tool.BaseTool
	for _, of := range rig.Tools() {
		t, err := utils.InferTool(of.Name, of.Description,
			func(ctx context.Context, p place) (string, error) { return of.Do(ctx, p.City) })
		if err != nil {
			return nil, err
		}
		tools = append(tools, t)
	}
	model, err := openai.NewChatModel(ctx, &openai.ChatModelConfig{BaseURL: rig.URL, APIKey: "key", Model: "gpt"})
	if err != nil {
		return nil, err
	}
	agent, err := react.NewAgent(ctx, &react.AgentConfig{
		ToolCallingModel: einocircuit.Model(rig.Set, model),
		ToolsConfig: compose.ToolsNodeConfig{
			Tools:               tools,
			ToolCallMiddlewares: []compose.ToolMiddleware{einocircuit.Guard(rig.Set)},
		},
		MaxStep: 100,
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, session *toolset.Session, question string) (string, error) {
		ctx = toolset.WithSession(ctx, session)
		messages := []*schema.Message{schema.UserMessage(question)}
		if !rig.Stream {
			answer, err := agent.Generate(ctx, messages)
			if err != nil {
				return "", err
			}
			return answer.Content, nil
		}
		answer, err := agent.Stream(ctx, messages)
		if err != nil {
			return "", err
		}
		defer answer.Close()
		text := ""
		for {
			part, err := answer.Recv()
			switch {
			case err == io.EOF:
				return text, nil
			case err != nil:
				return "", err
			}
			text += part.Content
		}
	}, nil
}
