package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/toolcircuit/toolcircuit"
)

// newServer starts a server on loopback that works, answers 503 twice, hangs once and works
// again. It tells seen about each request before it answers.
func newServer(seen chan<- string) *httptest.Server {
	var requests atomic.Int32
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch requests.Add(1) {
		case 2, 3:
			seen <- "answers 503"
			w.WriteHeader(http.StatusServiceUnavailable)
		case 4:
			seen <- "hangs"
			<-r.Context().Done()
		default:
			seen <- "answers 200"
			fmt.Fprint(w, "three results")
		}
	}))
}

// demonstrate makes eight calls of tool and prints what the server, the circuit and the model
// see of each.
func demonstrate(circuit *toolcircuit.ToolCircuit, tool func(context.Context, string) (toolcircuit.Result[string], error)) {
	seen := make(chan string, 1)
	server := newServer(seen)
	defer server.Close()

	fmt.Println("(waits are rounded up to the second, <time> stands for a point in time)")
	ctx := context.Background()
	for call := 1; call <= 8; call++ {
		if call == 7 {
			if err := circuit.Wait(ctx); err != nil {
				log.Fatal(err)
			}
			fmt.Printf("the cooldown is over: the circuit is %s\n", circuit.State())
		}
		result, err := tool(ctx, server.URL)
		if err != nil { // only what belongs to the runtime, such as a canceled context
			log.Fatal(err)
		}
		saw := "sees nothing"
		select {
		case saw = <-seen:
		default:
		}
		fmt.Printf("call %d: the server %s, the circuit is %s, the model reads\n  %s\n", call, saw, circuit.State(), steady(result))
	}
}

var moment = regexp.MustCompile(`(\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\d`)

// steady returns the JSON of r without what differs from run to run.
func steady(r toolcircuit.Result[string]) string {
	wait := time.Duration(r.RetryAfterMS) * time.Millisecond
	r.RetryAfterMS = (wait + time.Second - 1).Truncate(time.Second).Milliseconds()
	text, err := json.Marshal(r)
	if err != nil {
		log.Fatal(err)
	}
	return moment.ReplaceAllString(string(text), "<time>")
}
