// Http gives an HTTP client a circuit per host. One of two hosts dies and recovers; the other never
// notices.
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

func run() error {
	now := clock.NewMock() // so that nobody has to wait
	set, err := toolset.New(toolset.Config{
		Monitored: []string{"*"},
		Default:   &toolcircuit.Policy{FailureThreshold: 3, Cooldown: 30 * time.Second},
	}, toolset.Options{Clock: now})
	if err != nil {
		return err
	}
	var down atomic.Bool
	down.Store(true)
	servers := newHosts(map[string]http.HandlerFunc{
		"search.example": func(w http.ResponseWriter, _ *http.Request) {
			if down.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			fmt.Fprint(w, "results")
		},
		"mail.example": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "no mail") },
	})
	defer servers.close()
	client := &http.Client{Transport: transport{set, toolcircuit.Transport(servers.transport())}}

	for range 4 {
		if err := get(client, "http://search.example/"); err != nil {
			return err
		}
	}
	if err := get(client, "http://mail.example/"); err != nil {
		return err
	}
	down.Store(false)
	now.Add(30 * time.Second)
	return get(client, "http://search.example/")
}

// get prints what came of a request.
func get(client *http.Client, url string) error {
	resp, err := client.Get(url)
	var refusal *toolcircuit.OpenError
	switch {
	case errors.As(err, &refusal):
		fmt.Printf("%s: not sent, the circuit is %s for %v\n", url, refusal.State, refusal.RetryAfter())
		return nil
	case err != nil:
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Printf("%s: %s, %q\n", url, resp.Status, body)
	return err
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
