package demo

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// Wire is the format that a model speaks, such as [Model.OpenAI].
type Wire func(*Model) http.Handler

// Rig is what an agent is made of.
type Rig struct {
	URL     string // of the model
	Set     *toolset.Set
	Weather *Weather
	Stream  bool // whether the model is to stream its answers
}

// Tool is a tool of the agent, as it is without circuits.
type Tool struct {
	Name, Description string
	Do                func(ctx context.Context, city string) (string, error)
}

// Tools returns the tools of the agent.
func (r Rig) Tools() []Tool {
	return []Tool{
		{"forecast", "Tomorrow's weather in a city", r.Weather.Forecast},
		{"climate", "The weather of an average year in a city", Climate},
	}
}

// Runtime is a runtime of agents.
type Runtime struct {
	Wire     Wire
	Start    func(context.Context, Rig) (Ask, error) // makes an agent with the rig's tools, which answers questions
	Classify toolcircuit.Classifier                  // for the Set; nil: none
}

// Ask has an agent answer a question, in a turn of a session.
type Ask func(ctx context.Context, session *toolset.Session, question string) (answer string, err error)

// Config is that of the agent's tools.
const Config = `{
	"default": {"failureThreshold": 3, "cooldown": "30s", "callTimeout": "10s", "jitter": 0},
	"hide": "open",
	"tools": {
		"forecast": {"dependency": "weather-api", "alternatives": ["climate"]},
		"climate": {}
	}
}`

// Run tells the story of an outage. The agent's model is stubborn: it calls forecast again and
// again, whatever it reads, until it is not allowed to.
func (rt Runtime) Run(ctx context.Context) error {
	now := clock.NewMock() // so that nobody has to wait
	now.Set(time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC))
	config, err := toolset.Load(strings.NewReader(Config))
	if err != nil {
		return err
	}
	set, err := toolset.New(config, toolset.Options{Clock: now, Classify: rt.Classify})
	if err != nil {
		return err
	}
	weather := NewWeather()
	defer weather.Close()
	model := Serve(rt.Wire(&Model{Next: stubborn}))
	defer model.Close()
	ask, err := rt.Start(ctx, Rig{URL: model.URL, Set: set, Weather: weather, Stream: true})
	if err != nil {
		return err
	}

	session, err := set.Session("run-1", toolset.Limits{Refused: 2})
	if err != nil {
		return err
	}
	defer session.Close()
	for _, part := range []struct {
		what string
		prep func()
	}{
		{"The weather API is dead.", func() { weather.Down.Store(true) }},
		{"It is back, and the cooldown is over.", func() { weather.Down.Store(false); now.Add(30 * time.Second) }},
	} {
		fmt.Println(part.what)
		part.prep()
		session.NextTurn()
		answer, err := ask(ctx, session, "How will the weather be?")
		if err != nil {
			return err
		}
		fmt.Printf("The agent answers: %s\n\n", answer)
	}
	fmt.Printf("Calls that reached the API: %d\n", weather.Hits.Load())
	return nil
}

// stubborn prints what it is asked.
func stubborn(n int, asked Asked) Says {
	slices.Sort(asked.Tools) // some runtimes shuffle them
	fmt.Printf("model: offered %s", cmp.Or(strings.Join(asked.Tools, ", "), "nothing"))
	if asked.Forbidden {
		fmt.Print(", may call none")
	}
	sunny := false
	for _, r := range asked.Results {
		fmt.Printf("; reads %s", cmp.Or(string(r.Status()), r.Text))
		if r.IsError {
			fmt.Print(" (is_error)")
		}
		sunny = sunny || strings.Contains(r.Text, "sunny")
	}
	fmt.Println()
	for _, r := range asked.Results {
		if r.Status() == toolcircuit.StatusBlocked {
			fmt.Printf("  %s\n", r.Text)
		}
	}
	switch {
	case sunny:
		return Says{Text: "It will be sunny."}
	case asked.Forbidden:
		return Says{Text: "The weather service cannot be reached now."}
	case n == 1:
		return Says{Calls: []Call{{"forecast", "Bern"}, {"forecast", "Oslo"}, {"forecast", "Rome"}}}
	}
	return Says{Calls: []Call{{"forecast", "Bern"}}}
}

// Status returns the status of a [toolcircuit.Result], "" of another text. Some runtimes write its
// keys in another order, or with words around it.
func (r Result) Status() toolcircuit.Status {
	_, rest, _ := strings.Cut(r.Text, `"status":"`)
	status, _, _ := strings.Cut(rest, `"`)
	return toolcircuit.Status(status)
}
