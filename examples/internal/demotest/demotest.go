// Package demotest holds the examples of agent runtimes to what they must show.
package demotest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/examples/internal/demo"
	"github.com/toolcircuit/toolcircuit/toolset"
)

const (
	threshold = 3
	inFlight  = 5
	cooldown  = 30 * time.Second
)

// rig is an agent and what its model was asked.
type rig struct {
	*testing.T
	now     *clock.Mock
	set     *toolset.Set
	weather *demo.Weather
	agent   demo.Ask
	runs    int

	mu    sync.Mutex
	asked []demo.Asked
	next  func(n int, asked demo.Asked) demo.Says
	calls []toolcircuit.Call
}

// forecasts returns n calls at once.
func forecasts(n int) (says demo.Says) {
	for i := range n {
		says.Calls = append(says.Calls, demo.Call{Tool: "forecast", City: fmt.Sprintf("city %d", i)})
	}
	return says
}

// steps returns the script of a model that says one thing after another, and the last again.
func steps(all ...demo.Says) func(int, demo.Asked) demo.Says {
	return func(n int, _ demo.Asked) demo.Says { return all[min(n, len(all))-1] }
}

// script gives the model another script, and begins to record anew.
func (r *rig) script(next func(n int, asked demo.Asked) demo.Says) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next, r.asked, r.calls = next, nil, nil
}

func newRig(t *testing.T, rt demo.Runtime, stream bool) *rig {
	r := &rig{T: t, now: clock.NewMock(), weather: demo.NewWeather()}
	t.Cleanup(r.weather.Close)
	config, err := toolset.Load(strings.NewReader(demo.Config))
	require.NoError(t, err)
	r.set, err = toolset.New(config, toolset.Options{Clock: r.now, Classify: rt.Classify, OnCall: func(_ context.Context, c toolcircuit.Call) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls = append(r.calls, c)
	}})
	require.NoError(t, err)
	model := demo.Serve(rt.Wire(&demo.Model{Next: func(_ int, asked demo.Asked) demo.Says {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked = append(r.asked, asked)
		return r.next(len(r.asked), asked)
	}}))
	t.Cleanup(model.Close)
	r.agent, err = rt.Start(t.Context(), demo.Rig{URL: model.URL, Set: r.set, Weather: r.weather, Stream: stream})
	require.NoError(t, err)
	return r
}

// ask has the agent answer, in a session of its own that ends the turn after some refused calls. It
// returns why the session is to stop, too.
func (r *rig) ask(ctx context.Context, refused int) (answer string, stop toolset.StopReason, err error) {
	r.runs++
	session, err := r.set.Session(fmt.Sprint("run-", r.runs), toolset.Limits{Refused: refused})
	require.NoError(r, err)
	defer session.Close()
	answer, err = r.agent(ctx, session, "?")
	return answer, session.StopReason().Reason, err
}

// Test holds an example to what each must show. Outcomes of the model that only some runtimes can
// have, such as interrupts, are for the example's own tests.
func Test(t *testing.T, rt demo.Runtime) {
	for mode, stream := range map[string]bool{"whole": false, "streamed": true} {
		for name, test := range map[string]func(*rig){
			"outage": outage, "hang": hang, "end of the turn": endTurn, "canceled": canceled, "long answer": long,
		} {
			t.Run(mode+" "+name, func(t *testing.T) { test(newRig(t, rt, stream)) })
		}
	}
}

// outage: calls of one turn at once against a dead dependency are few and have one result each. A
// late call of the hidden tool is refused, and the tool comes back by itself.
func outage(r *rig) {
	r.weather.Down.Store(true)
	r.script(steps(forecasts(inFlight), forecasts(1), forecasts(1), demo.Says{Text: "done"}))
	answer, _, err := r.ask(r.Context(), 100)
	require.NoError(r, err)
	require.Equal(r, "done", answer)
	require.LessOrEqual(r, r.weather.Hits.Load(), int32(threshold+inFlight-1))
	require.Len(r, r.calls, inFlight+2)
	require.Len(r, r.asked, 4)
	require.ElementsMatch(r, []string{"forecast", "climate"}, r.asked[0].Tools)
	require.Len(r, r.asked[1].Results, inFlight)
	ids := map[string]bool{}
	for i, asked := range r.asked[1:] {
		require.Equal(r, []string{"climate"}, asked.Tools)
		for _, result := range asked.Results {
			ids[result.ID] = true
			want := []toolcircuit.Status{toolcircuit.StatusBlocked}
			if i == 0 {
				want = append(want, toolcircuit.StatusFailed)
			}
			require.Contains(r, want, result.Status(), result.Text)
		}
	}
	if r.asked[1].Results[0].ID != "" { // which not every format has
		require.Len(r, ids, inFlight+2)
	}

	r.weather.Down.Store(false)
	r.now.Add(cooldown)
	r.script(steps(forecasts(1), demo.Says{Text: "done"}))
	_, _, err = r.ask(r.Context(), 100)
	require.NoError(r, err)
	require.ElementsMatch(r, []string{"forecast", "climate"}, r.asked[0].Tools)
	require.Contains(r, r.asked[1].Results[0].Text, "sunny")
	require.Equal(r, toolcircuit.StateClosed, r.set.Circuit(r.Context(), "forecast").State())
}

// hang: a call that hangs ends at CallTimeout, and counts.
func hang(r *rig) {
	r.weather.Hangs.Store(true)
	r.script(steps(forecasts(threshold), demo.Says{Text: "done"}))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range threshold {
			<-r.weather.Hung
		}
		r.now.Add(10 * time.Second)
	}()
	_, _, err := r.ask(r.Context(), 100)
	<-ended
	require.NoError(r, err)
	require.Len(r, r.asked[1].Results, threshold)
	for _, c := range r.calls {
		require.Equal(r, toolcircuit.KindTimeout, c.Verdict.Kind)
	}
	require.Equal(r, toolcircuit.StateOpen, r.set.Circuit(r.Context(), "forecast").State())
}

// long: an answer of the model that flows is not cut, however long it takes beside CallTimeout.
func long(r *rig) {
	r.script(steps(forecasts(1), demo.Says{Text: "It takes its time.", Between: func() { r.now.Add(time.Hour) }}))
	answer, _, err := r.ask(r.Context(), 100)
	require.NoError(r, err)
	require.Equal(r, "It takes its time.", answer)
}

// endTurn: a run whose session ends the turn ends with an answer, whatever its model does.
func endTurn(r *rig) {
	r.weather.Down.Store(true)
	for _, stubborn := range []bool{false, true} {
		r.script(func(n int, asked demo.Asked) demo.Says {
			switch {
			case n > 50:
				return demo.Says{Text: "too late"}
			case asked.Forbidden && !stubborn:
				return demo.Says{Text: "done"}
			}
			return forecasts(1)
		})
		answer, stop, err := r.ask(r.Context(), 2)
		require.NoError(r, err)
		require.NotEmpty(r, answer)
		require.NotEqual(r, "too late", answer)
		if !stubborn {
			require.Equal(r, "done", answer)
		}
		require.LessOrEqual(r, len(r.asked), threshold+2+2)
		require.Equal(r, toolset.StopBlockedTooOften, stop)
	}
}

// canceled: a run that its caller ends counts for nothing, and returns an error.
func canceled(r *rig) {
	r.weather.Hangs.Store(true)
	r.script(steps(forecasts(1), demo.Says{Text: "done"}))
	ctx, cancel := context.WithCancel(r.Context())
	go func() {
		<-r.weather.Hung
		cancel()
	}()
	_, _, err := r.ask(ctx, 100)
	require.Error(r, err)
	require.Equal(r, toolcircuit.KindCanceled, r.calls[0].Verdict.Kind)
}

// Lines fails unless that many lines in the functions of a file are there for circuits alone: those that
// mention them, or one of words.
func Lines(t *testing.T, source string, want int, words ...string) {
	t.Helper()
	words = append(words, "circuit.", "toolset.")
	var found []string
	for line := range strings.Lines(source) {
		code, _, _ := strings.Cut(line, "//")
		mentions := func(word string) bool { return strings.Contains(code, word) }
		if !strings.HasPrefix(code, "func ") && !mentions("return func") && slices.ContainsFunc(words, mentions) {
			found = append(found, strings.TrimSpace(code))
		}
	}
	require.Len(t, found, want, "%s", strings.Join(found, "\n"))
}

// Code fails unless a file has that many lines of code below its imports.
func Code(t *testing.T, source string, want int) {
	t.Helper()
	_, body, _ := strings.Cut(source, "\n)\n")
	n := 0
	for line := range strings.Lines(body) {
		if code, _, _ := strings.Cut(line, "//"); strings.TrimSpace(code) != "" {
			n++
		}
	}
	require.Equal(t, want, n)
}
