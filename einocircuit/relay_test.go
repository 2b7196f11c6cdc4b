package einocircuit_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/einocircuit"
)

// streamer is a streaming tool whose parts the test sends.
type streamer struct {
	named
	parts chan string
	fails chan error
	ctx   context.Context // of the latest call
	sent  chan bool       // whether the reader had gone
}

func (s *streamer) StreamableRun(ctx context.Context, _ string, _ ...tool.Option) (*schema.StreamReader[string], error) {
	s.ctx = ctx
	r, w := schema.Pipe[string](0)
	go func() {
		defer w.Close()
		for {
			select {
			case part, ok := <-s.parts:
				if !ok {
					return
				}
				gone := w.Send(part, nil)
				s.sent <- gone
				if gone {
					return
				}
			case err := <-s.fails:
				w.Send("", err)
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return r, nil
}

// enhancedStreamer is a streamer of the other kind.
type enhancedStreamer struct{ *streamer }

func (s enhancedStreamer) StreamableRun(ctx context.Context, _ *schema.ToolArgument, _ ...tool.Option) (*schema.StreamReader[*schema.ToolResult], error) {
	r, err := s.streamer.StreamableRun(ctx, "")
	return schema.StreamReaderWithConvert(r, func(text string) (*schema.ToolResult, error) { return result(text), nil }), err
}

// flow runs f with a stream that a tools node has opened, for both kinds of streams.
func flow(t *testing.T, f func(r *rig, s *streamer, out *schema.StreamReader[[]*schema.Message], end func())) {
	t.Helper()
	for kind, of := range map[string]func(*streamer) tool.BaseTool{
		"plain":    func(s *streamer) tool.BaseTool { return s },
		"enhanced": func(s *streamer) tool.BaseTool { return enhancedStreamer{s} },
	} {
		t.Run(kind, func(t *testing.T) {
			run(t, kinds["invokable"], nil, nil, func(r *rig) {
				s := &streamer{named: "web_search", parts: make(chan string), fails: make(chan error), sent: make(chan bool, 10)}
				node, err := compose.NewToolNode(r.Context(), &compose.ToolsNodeConfig{
					Tools:               []tool.BaseTool{of(s)},
					ToolCallMiddlewares: []compose.ToolMiddleware{einocircuit.Guard(r.set)},
				})
				require.NoError(r, err)
				ctx, end := context.WithCancel(r.Context())
				defer end()
				out, err := node.Stream(ctx, calls(1, 1))
				require.NoError(r, err)
				f(r, s, out, end)
				synctest.Wait()
				require.Error(r, s.ctx.Err())
				require.Zero(r, r.set.Snapshot().Circuits[1].InFlight)
			})
		})
	}
}

// recv returns the next part.
func recv(out *schema.StreamReader[[]*schema.Message]) (string, error) {
	messages, err := out.Recv()
	if err != nil {
		return "", err
	}
	return text(messages[0]), nil
}

// A stream that flows may take longer than CallTimeout. The call is over when it is.
func TestStream(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*streamer)
		kind toolcircuit.Kind
	}{
		"ends":               {func(s *streamer) { close(s.parts) }, toolcircuit.KindOK},
		"breaks":             {func(s *streamer) { s.fails <- errDown }, toolcircuit.KindUnavailable},
		"is unknown to fail": {func(s *streamer) { s.fails <- errors.New("?") }, toolcircuit.KindUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			flow(t, func(r *rig, s *streamer, out *schema.StreamReader[[]*schema.Message], _ func()) {
				defer out.Close()
				s.parts <- "a"
				part, err := recv(out)
				require.NoError(r, err)
				require.Equal(r, "a", part)
				r.now.Add(10 * callTimeout)
				synctest.Wait()
				require.NoError(r, s.ctx.Err())
				require.Empty(r, r.calls)
				go func() {
					s.parts <- "b"
					test.end(s)
				}()
				part, err = recv(out)
				require.NoError(r, err)
				require.Equal(r, "b", part)
				part, err = recv(out)
				if test.kind != toolcircuit.KindOK {
					require.NoError(r, err)
					require.True(r, strings.HasPrefix(part, "\n{"), part)
					require.Equal(r, toolcircuit.StatusFailed, parsed(r.T, schema.ToolMessage(part, "")).Status)
					_, err = recv(out)
				}
				require.Equal(r, io.EOF, err)
				synctest.Wait()
				require.Equal(r, test.kind, r.calls[0].Verdict.Kind)
			})
		})
	}
}

// A reader that closes the stream ends the call, and the tool hears of it.
func TestStreamClosed(t *testing.T) {
	flow(t, func(r *rig, s *streamer, out *schema.StreamReader[[]*schema.Message], _ func()) {
		s.parts <- "a"
		_, err := recv(out)
		require.NoError(r, err)
		out.Close()
		s.parts <- "b"
		synctest.Wait()
		require.Equal(r, toolcircuit.KindOK, r.calls[0].Verdict.Kind)
	})
}

// A reader that neither reads nor closes holds nobody's place once the run is over.
func TestStreamOfAnEndedRun(t *testing.T) {
	flow(t, func(r *rig, s *streamer, out *schema.StreamReader[[]*schema.Message], end func()) {
		defer out.Close()
		s.parts <- "a"
		s.parts <- "b"
		synctest.Wait()
		require.Empty(r, r.calls)
		end()
		synctest.Wait()
		require.Equal(r, toolcircuit.KindCanceled, r.calls[0].Verdict.Kind)
		require.Zero(r, r.set.Snapshot().Circuits[1].InFlight)
	})
}

// A converter that panics ends the run, not the program.
func TestStreamPanics(t *testing.T) {
	run(t, func(search) tool.BaseTool { return panicking{"web_search"} }, nil, once, func(r *rig) {
		_, err := ways["stream"](r.Context(), r)
		require.ErrorContains(r, err, "boom")
		require.Equal(r, toolcircuit.KindPanic, r.calls[0].Verdict.Kind)
	})
}

// A tool that returns no stream does not end the program, and holds nobody's place.
func TestStreamNil(t *testing.T) {
	run(t, kinds["invokable"], nil, nil, func(r *rig) {
		endpoint := einocircuit.Guard(r.set).Streamable(func(context.Context, *compose.ToolInput) (*compose.StreamToolOutput, error) {
			return &compose.StreamToolOutput{}, nil
		})
		out, err := endpoint(r.Context(), &compose.ToolInput{Name: "web_search"})
		require.NoError(r, err)
		require.Nil(r, out.Result)
		synctest.Wait()
		require.Len(r, r.calls, 1)
		require.Zero(r, r.set.Snapshot().Circuits[0].InFlight)
	})
}

type panicking struct{ named }

func (panicking) StreamableRun(context.Context, string, ...tool.Option) (*schema.StreamReader[string], error) {
	return schema.StreamReaderWithConvert(schema.StreamReaderFromArray([]string{"a"}), func(string) (string, error) { panic("boom") }), nil
}
