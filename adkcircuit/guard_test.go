package adkcircuit_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/adk/agent"
	"google.golang.org/adk/agent/llmagent"
	"google.golang.org/adk/model"
	"google.golang.org/adk/session"
	"google.golang.org/adk/tool"
	"google.golang.org/adk/tool/toolconfirmation"
	"google.golang.org/genai"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/adkcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// list is a toolset.
type list []tool.Tool

func (list) Name() string                                       { return "list" }
func (l list) Tools(agent.ReadonlyContext) ([]tool.Tool, error) { return l, nil }

// A dependency dies: a turn of calls at once, then turns of one. Few calls reach it, each has one
// result, the model is shown what it can use, and the tool comes back by itself.
func TestOutage(t *testing.T) {
	const inFlight = 5
	for name, adapt := range map[string]adapt{
		"tools": func(set *toolset.Set, tools []tool.Tool, c *llmagent.Config) {
			c.Tools = adkcircuit.Guard(set, tools...)
		},
		"toolset": func(set *toolset.Set, tools []tool.Tool, c *llmagent.Config) {
			c.Toolsets = []tool.Toolset{adkcircuit.Toolset(set, list(tools))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var hits, told atomic.Int32
			var up atomic.Bool
			do := func(tool.Context) (map[string]any, error) {
				hits.Add(1)
				if !up.Load() {
					return nil, errDown
				}
				return map[string]any{"found": "news"}, nil
			}
			next := func(n int, _ asked) []*genai.Part {
				switch {
				case n == 1:
					return calls(n, inFlight)
				case n < 4:
					return calls(n, 1)
				}
				return text("done")
			}
			run(t, do, next, func(set *toolset.Set, tools []tool.Tool, c *llmagent.Config) {
				hits.Store(0)
				told.Store(0)
				up.Store(false)
				adapt(set, tools, c)
				c.AfterToolCallbacks = []llmagent.AfterToolCallback{
					func(_ tool.Context, _ tool.Tool, _, result map[string]any, err error) (map[string]any, error) {
						if result["status"] == "blocked" && err == nil {
							told.Add(1)
						}
						return nil, nil
					},
				}
			}, func(r *rig) {
				answer, _, err := r.ask(r.Context(), question())
				require.NoError(r, err)
				require.Equal(r, "done", answer)
				require.LessOrEqual(r, hits.Load(), int32(threshold+inFlight-1))
				require.Len(r, r.asked, 4)
				require.Equal(r, []string{"web_search", "notes"}, r.asked[0].tools)
				require.Len(r, r.asked[1].read, inFlight)
				ids := map[string]bool{}
				for i, a := range r.asked[1:] {
					require.Equal(r, []string{"notes"}, a.tools)
					for _, f := range a.read {
						ids[f.ID] = true
						if i > 0 { // a late call of the hidden tool
							require.Equal(r, toolcircuit.StatusBlocked, parsed(r.T, f).Status)
							require.Positive(r, parsed(r.T, f).RetryAfterMS)
						}
					}
				}
				require.Len(r, ids, inFlight+2)
				require.Len(r, r.calls, inFlight+2)
				require.EqualValues(r, len(r.calls)-int(hits.Load()), told.Load()) // the after-callback hears of all

				up.Store(true)
				r.now.Add(cooldown)
				r.asked = nil
				_, _, err = r.ask(r.Context(), question())
				require.NoError(r, err)
				require.Contains(r, r.asked[0].tools, "web_search")
				require.Equal(r, "news", r.asked[3].read[0].Response["found"])
				require.Equal(r, toolcircuit.StateClosed, r.set.Circuit(r.Context(), "web_search").State())
			})
		})
	}
}

// once calls the tool and then answers.
func once(n int, _ asked) []*genai.Part {
	if n == 1 {
		return calls(n, 1)
	}
	return text("done")
}

func TestHang(t *testing.T) {
	hang := func(ctx tool.Context) (map[string]any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	run(t, hang, once, nil, func(r *rig) {
		defer r.whenIdle(func() { r.now.Add(callTimeout) })()
		answer, _, err := r.ask(r.Context(), question())
		require.NoError(r, err)
		require.Equal(r, "done", answer)
		require.Equal(r, toolcircuit.KindTimeout, parsed(r.T, r.asked[1].read[0]).Cause)
	})
	run(t, hang, once, nil, func(r *rig) {
		ctx, cancel := context.WithCancel(r.Context())
		defer r.whenIdle(cancel)()
		_, _, _ = r.ask(ctx, question())
		require.Equal(r, toolcircuit.KindCanceled, r.calls[0].Verdict.Kind)
	})
}

// What a tool is given is real under tool.Context, whose own methods still work.
func TestContext(t *testing.T) {
	var key string
	run(t, func(ctx tool.Context) (map[string]any, error) {
		key = toolset.IdempotencyKey(ctx)
		require.Equal(t, "agent", ctx.AgentName())
		require.NotNil(t, ctx.Actions())
		return map[string]any{}, ctx.State().Set("seen", ctx.FunctionCallID())
	}, once, nil, func(r *rig) {
		s, err := r.set.Session("run", toolset.Limits{})
		require.NoError(r, err)
		_, events, err := r.ask(toolset.WithSession(r.Context(), s), question())
		require.NoError(r, err)
		require.NotEmpty(r, key)
		require.True(r, slices.ContainsFunc(events, func(e *session.Event) bool { return e.Actions.StateDelta["seen"] == "call-1-0" }))
		require.Equal(r, "run", r.calls[0].RunID)
	})
}

// A confirmation reaches the user and comes back to the tool. It counts for nothing: a probe's place
// is free again.
func TestConfirmation(t *testing.T) {
	around := func(set *toolset.Set, tools []tool.Tool, c *llmagent.Config) {
		c.Toolsets = []tool.Toolset{tool.WithConfirmation(list(adkcircuit.Guard(set, tools...)), true, nil)}
	}
	within := func(set *toolset.Set, tools []tool.Tool, c *llmagent.Config) {
		c.Toolsets = []tool.Toolset{adkcircuit.Toolset(set, tool.WithConfirmation(list(tools), true, nil))}
	}
	for name, test := range map[string]struct {
		adapt adapt
		asks  bool // the tool itself
		kinds []toolcircuit.Kind
	}{
		"around the guard": {around, false, []toolcircuit.Kind{toolcircuit.KindOK}},
		"within the guard": {within, false, []toolcircuit.Kind{toolcircuit.KindInterrupt, toolcircuit.KindOK}},
		"by the tool":      {nil, true, []toolcircuit.Kind{toolcircuit.KindInterrupt, toolcircuit.KindOK}},
	} {
		for _, approved := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				runs := 0
				run(t, func(ctx tool.Context) (map[string]any, error) {
					if c := ctx.ToolConfirmation(); test.asks && c == nil {
						return map[string]any{"asked": true}, ctx.RequestConfirmation("may I?", nil)
					} else if test.asks && !c.Confirmed {
						return nil, tool.ErrConfirmationRejected
					}
					runs++
					return map[string]any{"found": "news"}, nil
				}, once, test.adapt, func(r *rig) {
					runs = 0
					_, events, err := r.ask(r.Context(), question())
					require.NoError(r, err)
					require.Zero(r, runs)
					var request *genai.FunctionCall
					for _, e := range events {
						for _, p := range e.Content.Parts {
							if p.FunctionCall != nil && p.FunctionCall.Name == toolconfirmation.FunctionCallName {
								request = p.FunctionCall
							}
						}
					}
					require.NotNil(r, request)
					_, _, err = r.ask(r.Context(), genai.NewContentFromParts([]*genai.Part{{FunctionResponse: &genai.FunctionResponse{
						ID: request.ID, Name: request.Name, Response: map[string]any{"confirmed": approved},
					}}}, genai.RoleUser))
					require.NoError(r, err)
					require.Equal(r, approved, runs == 1)
					var kinds []toolcircuit.Kind
					for _, c := range r.calls {
						kinds = append(kinds, c.Verdict.Kind)
					}
					want := test.kinds
					if !approved {
						want = append([]toolcircuit.Kind(nil), want...)
						want[len(want)-1] = toolcircuit.KindInterrupt
						if name == "around the guard" {
							want = nil
						}
					}
					require.Equal(r, want, kinds)
				})
			})
		}
	}
}

// A probe that requests a confirmation decides nothing, and the next call is the probe.
func TestConfirmationOfProbe(t *testing.T) {
	var r *rig
	run(t, func(ctx tool.Context) (map[string]any, error) {
		if len(r.calls) < threshold {
			return nil, errDown
		}
		require.True(t, toolcircuit.IsProbe(ctx))
		return nil, ctx.RequestConfirmation("may I?", nil)
	}, func(n int, _ asked) []*genai.Part {
		if len(r.calls) < threshold || r.set.Circuit(t.Context(), "web_search").State() == toolcircuit.StateHalfOpen {
			return calls(n, 1)
		}
		return text("done")
	}, nil, func(own *rig) {
		r = own
		_, _, err := r.ask(r.Context(), question())
		require.NoError(r, err)
		r.now.Add(cooldown)
		for range 2 {
			_, _, err = r.ask(r.Context(), question())
			require.NoError(r, err)
			last := r.calls[len(r.calls)-1]
			require.True(r, last.Probe)
			require.Equal(r, toolcircuit.KindInterrupt, last.Verdict.Kind)
			require.Equal(r, toolcircuit.StateHalfOpen, r.set.Circuit(r.Context(), "web_search").State())
		}
		require.Len(r, r.calls, threshold+2)
	})
}

// A model that never stops calling tools is given an answer when the session says endTurn.
func TestEndTurn(t *testing.T) {
	for name, test := range map[string]struct {
		last []*genai.Part // of a model that must not call tools
		want string
	}{
		"obeys":                {text("search is down"), "search is down"},
		"stubborn":             {calls(99, 2), "I stop here: the tools that this needs cannot be called now."},
		"stubborn, with words": {append(text("once more"), calls(99, 1)...), "once more"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(tool.Context) (map[string]any, error) { return nil, errDown }, func(n int, a asked) []*genai.Part {
				if a.forbidden {
					return test.last
				}
				return calls(n, 1)
			}, nil, func(r *rig) {
				s, err := r.set.Session("run", toolset.Limits{Refused: 3})
				require.NoError(r, err)
				answer, _, err := r.ask(toolset.WithSession(r.Context(), s), question())
				require.NoError(r, err)
				require.Equal(r, test.want, answer)
				require.Len(r, r.asked, threshold+3+1)
				require.True(r, parsed(r.T, r.asked[len(r.asked)-1].read[0]).EndTurn)
			})
		})
	}
}

// A tool that the provider runs is left as it is, and the request of the agent too.
func TestOthers(t *testing.T) {
	run(t, nil, func(int, asked) []*genai.Part { return text("done") }, nil, func(r *rig) {
		provided := searchTool{}
		require.Equal(r, []tool.Tool{provided}, adkcircuit.Guard(r.set, provided))
		require.NoError(r, r.set.SetOverride("web_search", toolcircuit.OverrideOpen))
		m := adkcircuit.Model(r.set, script{func(int, asked) []*genai.Part { return text("") }, &r.asked})
		require.Equal(r, genai.BackendVertexAI, m.(interface{ GetGoogleLLMVariant() genai.Backend }).GetGoogleLLMVariant())
		req := &model.LLMRequest{Contents: []*genai.Content{question()}, Config: &genai.GenerateContentConfig{Tools: []*genai.Tool{
			{GoogleSearch: &genai.GoogleSearch{}},
			{FunctionDeclarations: []*genai.FunctionDeclaration{{Name: "web_search"}}},
			{FunctionDeclarations: []*genai.FunctionDeclaration{{Name: "notes"}}},
		}}}
		for range m.GenerateContent(r.Context(), req, false) {
		}
		require.Equal(r, []string{"notes"}, r.asked[0].tools)
		require.Len(r, req.Config.Tools, 3)
		require.Len(r, req.Config.Tools[1].FunctionDeclarations, 1)
	})
}

type searchTool struct{}

func (searchTool) Name() string        { return "google_search" }
func (searchTool) Description() string { return "" }
func (searchTool) IsLongRunning() bool { return false }
