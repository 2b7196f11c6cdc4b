// Fallback shows four things to give a model in place of a blocked tool: the last good value,
// a default, a reduced function, and a place in a queue. Each is Result.Or with a source, so
// that the model reads what it got and why.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// down says whether the services behind the tools are away.
var down bool

// service answers for all of them.
func service(answer string) (string, error) {
	if down {
		return "", toolcircuit.Fault(errors.New("connection refused"))
	}
	return answer, nil
}

type agent struct {
	set      *toolset.Set
	forecast map[string]string // the last good ones, by city
	outbox   []string          // mails to send later
}

// weather falls back to the last good value.
func (a *agent) weather(ctx context.Context, city string) (toolcircuit.Result[string], error) {
	get := func(context.Context, string) (string, error) { return service("sunny in " + city) }
	r, err := toolset.WrapResult(a.set, "weather", get)(ctx, city)
	if r.Status == toolcircuit.StatusOK {
		a.forecast[city] = *r.Value
	}
	if last, ok := a.forecast[city]; ok {
		r = r.Or(last, "last good value")
	}
	return r, err
}

// language falls back to a default.
func (a *agent) language(ctx context.Context, text string) (toolcircuit.Result[string], error) {
	get := func(context.Context, string) (string, error) { return service("fr") }
	r, err := toolset.WrapResult(a.set, "detect_language", get)(ctx, text)
	return r.Or("en", "default"), err
}

// notes is what the reduced search can search.
var notes = []string{"gophers dig", "gophers write Go", "crabs write Rust"}

// search falls back to a reduced function: the local notes, without the web.
func (a *agent) search(ctx context.Context, word string) (toolcircuit.Result[[]string], error) {
	get := func(context.Context, string) ([]string, error) {
		hit, err := service("everything about " + word)
		return []string{hit}, err
	}
	r, err := toolset.WrapResult(a.set, "search", get)(ctx, word)
	var local []string
	for _, n := range notes {
		if strings.Contains(n, word) {
			local = append(local, n)
		}
	}
	return r.Or(local, "local notes"), err
}

// sendMail falls back to a queue, except for a mail that may have gone out: that one is not to
// be sent again, so its failure goes to the model as it is.
func (a *agent) sendMail(ctx context.Context, mail string) (toolcircuit.Result[string], error) {
	r, err := toolset.DoResult(ctx, a.set, "send_mail", mail, func(context.Context) (string, error) { return service("sent") })
	if r.Status == toolcircuit.StatusBlocked {
		a.outbox = append(a.outbox, mail)
		r = r.Or(fmt.Sprint("queued as number ", len(a.outbox)), "queue")
	}
	return r, err
}

// flush sends what is in the queue, once the circuit lets it.
func (a *agent) flush(ctx context.Context) {
	waiting := a.outbox
	a.outbox = nil
	for _, mail := range waiting {
		r, err := a.sendMail(ctx, mail) // which queues it again if it is blocked
		show("send_mail, from the queue", r, err)
	}
}

func main() {
	mock := clock.NewMock() // so that the output is the same each time
	sideEffects := true
	set, err := toolset.New(toolset.Config{
		Default: &toolcircuit.Policy{FailureThreshold: 1, Cooldown: 30 * time.Second},
		Tools: map[string]toolset.Tool{
			"weather":         {Dependency: "weather-api"},
			"detect_language": {Dependency: "language-api"},
			"search":          {Dependency: "search-api"},
			"send_mail":       {Dependency: "mail-server", SideEffects: &sideEffects},
		},
	}, toolset.Options{Clock: mock})
	if err != nil {
		log.Fatal(err)
	}
	a := &agent{set: set, forecast: map[string]string{}}

	fmt.Println("all services answer")
	a.call()
	fmt.Println("all services go down: the calls that meet it fail")
	down = true
	a.call()
	fmt.Println("the circuits are open: no service gets a call")
	a.call()
	fmt.Println("the services are back, and the cooldown is over")
	down = false
	mock.Add(time.Minute) // a tool with side effects waits for one cooldown more
	a.flush(context.Background())
	a.call()
}

// call calls each tool once and prints what the model reads.
func (a *agent) call() {
	ctx := context.Background()
	weather, err := a.weather(ctx, "Paris")
	show("weather", weather, err)
	language, err := a.language(ctx, "bonjour")
	show("detect_language", language, err)
	hits, err := a.search(ctx, "gophers")
	show("search", hits, err)
	mail, err := a.sendMail(ctx, "hello")
	show("send_mail", mail, err)
}

func show[T any](tool string, r toolcircuit.Result[T], err error) {
	if err != nil {
		fmt.Printf("  %s: error: %v\n", tool, err)
		return
	}
	text, err := json.Marshal(r)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("  %s: %s\n", tool, text)
}
