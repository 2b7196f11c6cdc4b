package adkcircuit

import (
	"context"
	"iter"
	"reflect"
	"slices"

	"google.golang.org/adk/model"
	"google.golang.org/genai"

	"github.com/toolcircuit/toolcircuit/internal/adapter"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// Model returns a model that offers m only the tools that [toolset.Visible] shows. It asks anew at each
// request, so a tool comes back by itself. The agent still knows a hidden tool, and Guard refuses a call
// of it. A nil argument panics.
//
// When the [toolset.Session] of the context says that the turn should end, m may call no function, and
// calls in its answer are dropped. So a run ends with an answer. If nothing else is in the answer, it says
// that the run stops.
func Model(set *toolset.Set, m model.LLM) model.LLM {
	if set == nil || m == nil {
		panic("adkcircuit: Model: the set or the model is nil")
	}
	return &guardedModel{m, set}
}

type guardedModel struct {
	model.LLM
	set *toolset.Set
}

// GetGoogleLLMVariant is what ADK asks a model of Google's.
func (m *guardedModel) GetGoogleLLMVariant() genai.Backend {
	if g, ok := m.LLM.(interface{ GetGoogleLLMVariant() genai.Backend }); ok {
		return g.GetGoogleLLMVariant()
	}
	return genai.BackendUnspecified
}

func (m *guardedModel) GenerateContent(ctx context.Context, req *model.LLMRequest, stream bool) iter.Seq2[*model.LLMResponse, error] {
	own, ends := m.request(ctx, req)
	answers := m.LLM.GenerateContent(ctx, own, stream)
	if !ends {
		return answers
	}
	return func(yield func(*model.LLMResponse, error) bool) {
		for a, err := range answers {
			if !yield(final(a), err) {
				return
			}
		}
	}
}

// request returns what is asked of the model in place of req, and whether that ends the run.
func (m *guardedModel) request(ctx context.Context, req *model.LLMRequest) (own *model.LLMRequest, ends bool) {
	var all []string
	if req.Config != nil {
		for _, t := range req.Config.Tools {
			if t != nil {
				for _, f := range t.FunctionDeclarations {
					all = append(all, f.Name)
				}
			}
		}
	}
	if len(all) == 0 {
		return req, false
	}
	copied, config := *req, *req.Config
	copied.Config = &config
	shown := toolset.Visible(ctx, m.set, all, func(name string) string { return name })
	config.Tools = nil
	for _, t := range req.Config.Tools {
		if t != nil && t.FunctionDeclarations != nil {
			some := *t
			some.FunctionDeclarations = slices.DeleteFunc(slices.Clone(t.FunctionDeclarations),
				func(f *genai.FunctionDeclaration) bool { return !slices.Contains(shown, f.Name) })
			if len(some.FunctionDeclarations) == 0 {
				some.FunctionDeclarations = nil
			}
			if reflect.ValueOf(some).IsZero() { // which a provider may refuse
				continue
			}
			t = &some
		}
		config.Tools = append(config.Tools, t)
	}
	if ends = adapter.EndTurn(ctx, m.set, all[0]); ends {
		tools := genai.ToolConfig{}
		if config.ToolConfig != nil {
			tools = *config.ToolConfig
		}
		tools.FunctionCallingConfig = &genai.FunctionCallingConfig{Mode: genai.FunctionCallingConfigModeNone}
		config.ToolConfig = &tools
	}
	return &copied, ends
}

// final returns a without function calls. A whole answer that says nothing else says why.
func final(a *model.LLMResponse) *model.LLMResponse {
	isCall := func(p *genai.Part) bool { return p != nil && p.FunctionCall != nil }
	if a == nil || a.Content == nil || !slices.ContainsFunc(a.Content.Parts, isCall) {
		return a
	}
	own, content := *a, *a.Content
	own.Content = &content
	content.Parts = slices.DeleteFunc(slices.Clone(content.Parts), isCall)
	says := func(p *genai.Part) bool { return p != nil && p.Text != "" && !p.Thought }
	if !a.Partial && !slices.ContainsFunc(content.Parts, says) {
		content.Parts = append(content.Parts, genai.NewPartFromText(adapter.Stopped))
	}
	return &own
}
