package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/redisstore"
)

const (
	workerEnv = "FLEET_WORKER" // the number of a worker
	storeEnv  = "FLEET_STORE"  // where the store is
	apiEnv    = "FLEET_API"    // and the API
)

// work is one worker: it makes a call every 20 ms until its standard input ends.
func work(number string) {
	n, err := strconv.Atoi(number)
	if err != nil {
		log.Fatal(err)
	}
	tell := func(what, format string, args ...any) {
		line, _ := json.Marshal(report{n, what, fmt.Sprintf(format, args...)})
		os.Stdout.Write(append(line, '\n'))
	}
	circuit := toolcircuit.MustNew("search-api", toolcircuit.Options{
		Policy: toolcircuit.Policy{
			FailureThreshold: 3,
			CallTimeout:      time.Second,
			Cooldown:         1500 * time.Millisecond,
			Multiplier:       2,
		},
		OnEvent: func(_ context.Context, e toolcircuit.Event) {
			switch {
			case e.Type == toolcircuit.EventOpened && e.From == toolcircuit.StateClosed && e.Rule == toolcircuit.RuleFleet:
				tell("stops", "it has heard that the API is %s", e.Kind)
			case e.Type == toolcircuit.EventOpened && e.From == toolcircuit.StateClosed:
				tell("stops", "%d of its calls in a row have failed", e.Failures)
			case e.Type == toolcircuit.EventClosed:
				if e.Rule == toolcircuit.RuleProbe {
					tell("probes", "the API answers")
				}
				tell("goes on", "the circuit is closed")
			case e.Type == toolcircuit.EventOpened && e.Rule == toolcircuit.RuleProbe:
				tell("probes", "the API is %s", e.Kind)
			}
		},
	})

	// The lines that make it a fleet.
	store, err := redisstore.New(&redis.Options{Addr: os.Getenv(storeEnv)}, redisstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fleet, err := toolcircuit.NewFleet(store, toolcircuit.FleetOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if err := fleet.Join(circuit, "search-api"); err != nil {
		log.Fatal(err)
	}

	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	url := os.Getenv(apiEnv)
	search := toolcircuit.Wrap(circuit, get)
	_, err = search(context.Background(), url)
	if refused := (*toolcircuit.OpenError)(nil); errors.As(err, &refused) {
		tell("knew", "its first call is refused, for %.1f s more", refused.RetryAfter().Seconds())
	} else {
		time.Sleep(100 * time.Millisecond) // the subscription stands by now
		tell("ready", "")
	}
	for range time.Tick(20 * time.Millisecond) {
		search(context.Background(), url)
	}
}

func get(ctx context.Context, url string) (struct{}, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return struct{}{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return struct{}{}, err
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return struct{}{}, toolcircuit.CheckResponse(resp)
}
