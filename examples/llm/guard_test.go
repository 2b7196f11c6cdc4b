package main

import (
	"context"
	"iter"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/examples/internal/demo"
	"github.com/toolcircuit/toolcircuit/toolset"
)

const (
	threshold   = 3
	callTimeout = 20 * time.Second
)

// rig is two providers and their circuits.
type rig struct {
	*testing.T
	now      *clock.Mock
	set      *toolset.Set
	one, two *server
	claude   model
	gpt      model
	calls    chan toolcircuit.Call
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, now: clock.NewMock(), calls: make(chan toolcircuit.Call, 100)}
	var err error
	r.set, err = newSet(toolset.Options{Clock: r.now, OnCall: func(_ context.Context, c toolcircuit.Call) { r.calls <- c }})
	require.NoError(t, err)
	r.one, r.two = serve((*demo.Model).Anthropic), serve((*demo.Model).OpenAI)
	t.Cleanup(r.one.Close)
	t.Cleanup(r.two.Close)
	r.one.answers("one")
	r.two.answers("two")
	r.claude, r.gpt = newClaude(r.set, r.one.URL, sonnet, 0), newGPT(r.set, r.two.URL, mini)
	return r
}

// whole reads an answer to its end.
func whole(answer iter.Seq2[string, error]) (text string, err error) {
	for part, failure := range answer {
		text, err = text+part, failure
	}
	return text, err
}

func (r *rig) ask(m model) (string, error) { return whole(m(r.Context(), "?")) }

func (r *rig) state(name string) toolcircuit.State { return r.set.Circuit(r.Context(), name).State() }

func (r *rig) inFlight() (n int) {
	for _, c := range r.set.Snapshot().Circuits {
		n += c.InFlight
	}
	return n
}

// open opens the circuit of the first.
func (r *rig) open() {
	r.one.fails(529, nil)
	for range threshold {
		r.ask(r.claude)
	}
	require.Equal(r, toolcircuit.StateOpen, r.state(sonnet))
	r.one.hits.Store(0)
}

// Each model of each provider has a circuit of its own.
func TestCircuitPerModel(t *testing.T) {
	r := newRig(t)
	r.open()
	r.one.answers("haiku")
	text, err := r.ask(newClaude(r.set, r.one.URL, "anthropic/claude-haiku", 0))
	require.NoError(t, err)
	require.Equal(t, "haiku", text)
	_, err = r.ask(r.claude)
	require.ErrorIs(t, err, toolcircuit.ErrCircuitOpen)
	text, err = r.ask(r.gpt)
	require.NoError(t, err)
	require.Equal(t, "two", text)
}

// While the circuit of the first is open the second answers, and the first is not asked. It is asked again
// when the cooldown is over.
func TestSecond(t *testing.T) {
	r := newRig(t)
	llm := first(r.claude, r.gpt)
	r.open()
	r.one.answers("one")
	text, err := r.ask(llm)
	require.NoError(t, err)
	require.Equal(t, "two", text)
	require.Zero(t, r.one.hits.Load())
	r.now.Add(30 * time.Second)
	text, err = r.ask(llm)
	require.NoError(t, err)
	require.Equal(t, "one", text)
}

// The second is asked after a failure that it need not have, too, and after no other. Where both fail the
// error has both.
func TestSecondAfterFailure(t *testing.T) {
	for status, goesOver := range map[int]bool{529: true, 429: true, 400: false, 401: false} {
		r := newRig(t)
		r.one.fails(status, nil)
		text, err := r.ask(first(r.claude, r.gpt))
		require.Equal(t, goesOver, err == nil, status)
		require.Equal(t, goesOver, text == "two", status)
	}
	r := newRig(t)
	r.open()
	r.two.fails(http.StatusServiceUnavailable, nil)
	_, err := r.ask(first(r.claude, r.gpt))
	require.ErrorIs(t, err, toolcircuit.ErrCircuitOpen)
	var failure *openai.Error
	require.ErrorAs(t, err, &failure)
}

// A wait that a provider asks for is kept, whichever status says it.
func TestRetryAfter(t *testing.T) {
	wait := http.Header{"Retry-After": {"120"}}
	for status, until := range map[int]int{http.StatusTooManyRequests: 1, 529: threshold} { // requests until it opens
		r := newRig(t)
		r.one.fails(status, wait)
		for range until {
			require.Equal(t, toolcircuit.StateClosed, r.state(sonnet))
			r.ask(r.claude)
		}
		_, err := r.ask(r.claude)
		var refusal *toolcircuit.OpenError
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, 2*time.Minute, refusal.RetryAfter())
		r.now.Add(2 * time.Minute)
		r.one.answers("one")
		_, err = r.ask(r.claude)
		require.NoError(t, err)
	}
}

// provider returns the server and the model of that name.
func (r *rig) provider(name string) (*server, model) {
	if name == sonnet {
		return r.one, r.claude
	}
	return r.two, r.gpt
}

// A streaming answer may take longer than CallTimeout once it flows. The call is over when it is.
func TestStream(t *testing.T) {
	for _, name := range []string{sonnet, mini} {
		for how, test := range map[string]struct {
			says demo.Says
			kind toolcircuit.Kind
		}{
			"ends":                 {demo.Says{Text: "whole"}, toolcircuit.KindOK},
			"is overloaded":        {demo.Says{Text: "whole", Break: true}, toolcircuit.KindUnavailable},
			"loses its connection": {demo.Says{Text: "whole"}, toolcircuit.KindUnavailable},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				r := newRig(t)
				server, model := r.provider(name)
				goOn := make(chan struct{})
				test.says.Between = func() {
					<-goOn
					if how == "loses its connection" {
						panic(http.ErrAbortHandler)
					}
				}
				server.says.Store(&test.says)
				parts := 0
				var err error
				for _, err = range model(r.Context(), "?") {
					if parts++; parts == 1 {
						r.now.Add(10 * callTimeout)
						require.Empty(r, r.calls)
						require.Equal(r, 1, r.inFlight())
						close(goOn)
					}
				}
				require.Equal(r, 2, parts)
				require.Equal(r, test.kind == toolcircuit.KindOK, err == nil, "%v", err)
				require.Equal(r, test.kind, (<-r.calls).Verdict.Kind)
				require.Zero(r, r.inFlight())
			})
		}
	}
}

// Answers that break open the circuit like others that fail. Their readers get no second answer.
func TestBreaks(t *testing.T) {
	for _, name := range []string{sonnet, mini} {
		r := newRig(t)
		server, model := r.provider(name)
		server.breaks()
		for range threshold {
			text, err := r.ask(first(model, func(context.Context, string) iter.Seq2[string, error] { panic("asked") }))
			require.Error(t, err)
			require.NotEmpty(t, text)
		}
		require.Equal(t, toolcircuit.StateOpen, r.state(name))
	}
}

// An answer that ends too early has an error also where its connection is closed in order.
func TestEndsEarly(t *testing.T) {
	for _, name := range []string{sonnet, mini} {
		r := newRig(t)
		server, model := r.provider(name)
		server.says.Store(&demo.Says{Fail: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
		}})
		_, err := r.ask(model)
		require.Error(t, err)
		require.Equal(t, toolcircuit.KindUnavailable, (<-r.calls).Verdict.Kind)
	}
}

// A provider that hangs is left at CallTimeout, and the second answers.
func TestHang(t *testing.T) {
	r := newRig(t)
	r.one.says.Store(&demo.Says{Fail: func(_ http.ResponseWriter, req *http.Request) {
		r.now.Add(callTimeout)
		<-req.Context().Done()
	}})
	text, err := r.ask(first(r.claude, r.gpt))
	require.NoError(t, err)
	require.Equal(t, "two", text)
	require.Equal(t, toolcircuit.KindTimeout, (<-r.calls).Verdict.Kind)
}

// A reader that leaves does the provider no wrong, in whatever way it leaves.
func TestReaderLeaves(t *testing.T) {
	for how, test := range map[string]struct {
		leave func(cancel func()) bool // whether to read on
		kind  toolcircuit.Kind
	}{
		"break":  {func(func()) bool { return false }, toolcircuit.KindOK},
		"panic":  {func(func()) bool { panic("of the reader") }, toolcircuit.KindOK},
		"cancel": {func(cancel func()) bool { cancel(); return true }, toolcircuit.KindCanceled},
	} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t)
			left := make(chan struct{})
			defer close(left)
			r.one.says.Store(&demo.Says{Text: "whole", Between: func() { <-left }})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			func() {
				defer func() { recover() }()
				for range r.claude(ctx, "?") {
					if !test.leave(cancel) {
						break
					}
				}
			}()
			require.Equal(t, test.kind, (<-r.calls).Verdict.Kind)
			require.Zero(t, r.inFlight())
		})
	}
}

// Agents that ask at once a provider that is down: each has one answer, and few requests reach it.
func TestBurst(t *testing.T) {
	const inFlight = 5
	r := newRig(t)
	r.one.fails(529, nil)
	var answered atomic.Int32
	var agents sync.WaitGroup
	for range inFlight {
		agents.Go(func() {
			for range 10 {
				if text, err := r.ask(first(r.claude, r.gpt)); err == nil && text == "two" {
					answered.Add(1)
				}
			}
		})
	}
	agents.Wait()
	require.EqualValues(t, 10*inFlight, answered.Load())
	require.LessOrEqual(t, r.one.hits.Load(), int32(threshold+inFlight-1))
	require.EqualValues(t, 10*inFlight, r.two.hits.Load())
	require.Zero(t, r.inFlight())
}
