// Fleet is eight worker processes that share one circuit through Redis. The API that they call dies
// and recovers; printed is when each worker stopped, which one probed, and that a worker that was
// killed and started again knew.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"time"
)

const workers = 8

func main() {
	if n := os.Getenv(workerEnv); n != "" { // the program starts itself
		work(n)
		return
	}
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// api is what the workers call.
type api struct {
	down   atomic.Bool
	failed atomic.Int64 // calls while it was down
}

func (a *api) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if a.down.Load() {
		a.failed.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func run(out io.Writer) error {
	store, name, stop, err := startStore()
	if err != nil {
		return err
	}
	defer stop()
	a := new(api)
	server := httptest.NewServer(a)
	defer server.Close()
	fmt.Fprintf(out, "The store is %s. %d workers, each a process, call the API every 20 ms.\n\n", name, workers)

	f := &fleet{out: out, store: store, api: server.URL, reports: make(chan report)}
	defer f.stop()
	for n := 1; n <= workers; n++ {
		if err := f.start(n); err != nil {
			return err
		}
	}
	if _, err := f.expect("ready", workers); err != nil {
		return err
	}

	f.began = time.Now()
	f.say("the API dies")
	a.down.Store(true)
	if _, err := f.expect("stops", workers); err != nil {
		return err
	}
	f.say("%d calls have failed, and no worker calls the API any more", a.failed.Swap(0))

	prober, err := f.expect("probes", 1)
	if err != nil {
		return err
	}
	victim := prober%workers + 1 // a dead prober would keep the probe until its lease ends
	f.say("worker %d is killed and started again", victim)
	f.kill(victim)
	if err := f.start(victim); err != nil {
		return err
	}
	if _, err := f.expect("knew", 1); err != nil {
		return err
	}
	f.say("the API recovers; one call, the probe, has reached it: %d", a.failed.Load())
	a.down.Store(false)
	if _, err := f.expect("goes on", workers); err != nil {
		return err
	}
	f.say("all workers call the API again")
	return nil
}
