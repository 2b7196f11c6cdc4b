package einocircuit

import (
	"context"
	"slices"

	"github.com/cloudwego/eino/components"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/schema"

	"github.com/toolcircuit/toolcircuit/internal/adapter"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// Model returns a chat model that offers m only the tools that [toolset.Visible] shows. It asks anew at
// each call, so a tool comes back by itself. The ToolsNode still knows a hidden tool, and Guard refuses a
// call of it. Bind no tools to m before. A nil argument panics.
//
// When the [toolset.Session] of the context says that the turn should end, m is asked with
// [schema.ToolChoiceForbidden], and tool calls in its answer are dropped. So an agent ends with an
// answer and not at its step limit. If nothing else is in the answer, it says that the run stops.
func Model(set *toolset.Set, m model.ToolCallingChatModel) model.ToolCallingChatModel {
	if set == nil || m == nil {
		panic("einocircuit: Model: the set or the model is nil")
	}
	return &chatModel{set: set, bare: m, bound: m}
}

type chatModel struct {
	set   *toolset.Set
	bare  model.ToolCallingChatModel // as it was given
	bound model.ToolCallingChatModel // with tools
	tools []*schema.ToolInfo         // all of them
}

func (m *chatModel) WithTools(tools []*schema.ToolInfo) (model.ToolCallingChatModel, error) {
	bound, err := m.bare.WithTools(tools)
	if err != nil {
		return nil, err
	}
	return &chatModel{set: m.set, bare: m.bare, bound: bound, tools: slices.Clone(tools)}, nil
}

func (m *chatModel) Generate(ctx context.Context, in []*schema.Message, opts ...model.Option) (*schema.Message, error) {
	inner, opts, ends, err := m.choose(ctx, opts)
	if err != nil {
		return nil, err
	}
	out, err := inner.Generate(ctx, in, opts...)
	if err != nil || !ends {
		return out, err
	}
	return new(final).of(out)
}

func (m *chatModel) Stream(ctx context.Context, in []*schema.Message, opts ...model.Option) (*schema.StreamReader[*schema.Message], error) {
	inner, opts, ends, err := m.choose(ctx, opts)
	if err != nil {
		return nil, err
	}
	out, err := inner.Stream(ctx, in, opts...)
	if err != nil || !ends {
		return out, err
	}
	return schema.StreamReaderWithConvert(out, new(final).of), nil
}

// choose returns the model and the options of one call, and whether it ends the run. Tools in opts
// replace those that were bound.
func (m *chatModel) choose(ctx context.Context, opts []model.Option) (inner model.ToolCallingChatModel, own []model.Option, ends bool, err error) {
	all, inner, own := m.tools, m.bound, slices.Clip(opts)
	given := model.GetCommonOptions(nil, opts...).Tools
	if given != nil {
		all = given
	}
	if len(all) == 0 {
		return inner, own, false, nil
	}
	shown := toolset.Visible(ctx, m.set, all, func(t *schema.ToolInfo) string { return t.Name })
	switch {
	case len(shown) == len(all):
	case given != nil:
		own = append(own, model.WithTools(shown))
	default:
		inner, err = m.bare.WithTools(shown)
	}
	if ends = adapter.EndTurn(ctx, m.set, all[0].Name); ends {
		own = append(own, model.WithToolChoice(schema.ToolChoiceForbidden))
	}
	return inner, own, ends, err
}

// final makes the last answer of a run.
type final struct{ said bool }

// of returns m, or a part of it, without tool calls. In place of the first it says why, unless m has
// said something.
func (f *final) of(m *schema.Message) (*schema.Message, error) {
	f.said = f.said || m.Content != ""
	if len(m.ToolCalls) == 0 {
		return m, nil
	}
	own := *m
	own.ToolCalls = nil
	if !f.said {
		own.Content, f.said = adapter.Stopped, true
	}
	return &own, nil
}

// GetType and IsCallbacksEnabled say what the model itself does.
func (m *chatModel) GetType() string {
	name, _ := components.GetType(m.bare)
	return name
}

func (m *chatModel) IsCallbacksEnabled() bool { return components.IsCallbacksEnabled(m.bare) }
