// Llm gives the providers of language models a circuit for each model. While that of the first is open,
// the second answers.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/benbjohnson/clock"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/examples/internal/demo"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// The names of the models, and of their circuits.
const (
	sonnet = "anthropic/claude-sonnet"
	mini   = "openai/gpt-mini"
)

// newClaude and newGPT return models of the servers. The SDKs' own retries are off: they wait inside the
// request, so that the circuit sees one slow call in place of several that failed.
func newClaude(set *toolset.Set, url, name string, retries int) model {
	client := anthropic.NewClient(anthropicoption.WithBaseURL(url), anthropicoption.WithAPIKey("key"), anthropicoption.WithMaxRetries(retries))
	return guard(set, name, claude(client, name))
}

func newGPT(set *toolset.Set, url, name string) model {
	client := openai.NewClient(openaioption.WithBaseURL(url), openaioption.WithAPIKey("key"), openaioption.WithMaxRetries(0))
	return guard(set, name, gpt(client, name))
}

// newSet returns the circuits of all models, made as they are asked.
func newSet(o toolset.Options) (*toolset.Set, error) {
	return toolset.New(toolset.Config{
		Monitored: []string{"*"},
		Default:   &toolcircuit.Policy{FailureThreshold: 3, Cooldown: 30 * time.Second, CallTimeout: 20 * time.Second},
	}, o)
}

func run(ctx context.Context) error {
	now := clock.NewMock() // so that nobody has to wait
	set, err := newSet(toolset.Options{Clock: now, OnCall: tell})
	if err != nil {
		return err
	}
	one, two := serve((*demo.Model).Anthropic), serve((*demo.Model).OpenAI)
	defer one.Close()
	defer two.Close()
	llm := first(newClaude(set, one.URL, sonnet, 0), newGPT(set, two.URL, mini))

	one.answers("It will be sunny.")
	two.answers("Sunny, says the other.")
	ask(ctx, "Both are well.", llm)
	one.fails(529, nil)
	for range 3 {
		ask(ctx, "The first is overloaded, status 529.", llm)
	}
	ask(ctx, "Its circuit is open.", llm)
	now.Add(30 * time.Second)
	one.fails(http.StatusTooManyRequests, http.Header{"Retry-After": {"120"}})
	ask(ctx, "The cooldown is over. It asks for 120 s, status 429.", llm)
	now.Add(119 * time.Second)
	one.answers("It will be sunny.")
	ask(ctx, "119 s later.", llm)
	now.Add(time.Second)
	ask(ctx, "One more second later.", llm)
	one.breaks()
	ask(ctx, "It is overloaded in the middle of its answer.", llm)

	one.fails(529, http.Header{"Retry-After-Ms": {"1"}})
	one.hits.Store(0)
	ask(ctx, "The same with the two retries of the SDK.", newClaude(set, one.URL, sonnet, 2))
	fmt.Printf("Requests that the circuit took for one: %d\n", one.hits.Load())
	return nil
}

// ask prints who is asked, and the answer.
func ask(ctx context.Context, when string, llm model) {
	fmt.Println(when)
	answer := ""
	for part, err := range llm(ctx, "How will the weather be?") {
		switch {
		case err == nil:
			answer += part
		case answer == "":
			answer = "(no answer)"
		default:
			answer += "(and no more)"
		}
	}
	fmt.Printf("  %s\n\n", answer)
}

// tell prints what a request met.
func tell(_ context.Context, c toolcircuit.Call) {
	if c.Executed {
		fmt.Printf("  %s: %s\n", c.Dependency, c.Verdict.Kind)
	} else {
		fmt.Printf("  %s: not asked\n", c.Dependency)
	}
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
