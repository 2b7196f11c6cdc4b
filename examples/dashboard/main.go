// Dashboard shows ten simulated dependencies, which fail and recover, on a live page.
//
//	go run ./examples/dashboard
//
// Open the address that it prints. With -once it ends after two seconds.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/debugpage"
	"github.com/toolcircuit/toolcircuit/toolset"
)

const prefix = "/debug/circuits/"

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "where the page is; any free port of loopback by default")
	once := flag.Bool("once", false, "end after two seconds")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *once {
		ctx, stop = context.WithTimeout(ctx, 2*time.Second)
		defer stop()
	}
	if err := run(ctx, *addr); err != nil {
		log.Fatal(err)
	}
}

// run serves the page until ctx ends.
func run(ctx context.Context, addr string) error {
	var history debugpage.History
	logEvents := toolcircuit.LogEvents(slog.New(slog.NewTextHandler(os.Stdout, nil)))
	set, err := toolset.New(config(), toolset.Options{
		OnEvent: func(ctx context.Context, e toolcircuit.Event) {
			history.OnEvent(ctx, e)
			logEvents(ctx, e)
		},
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	done := make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle(prefix, debugpage.Handler(set, debugpage.Options{
		History:   &history,
		Authorize: func(*http.Request) bool { return true }, // because it is on loopback, and nothing real is behind it
		Done:      done,
	}))
	server := &http.Server{Handler: mux}
	server.RegisterOnShutdown(func() { close(done) })
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	url := fmt.Sprint("http://", listener.Addr(), prefix)
	fmt.Println("the page is at", url)

	for i, d := range dependencies {
		go d.use(ctx, set, i)
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	if err := report(url + "circuits"); err != nil {
		return err
	}
	return server.Shutdown(context.Background())
}

// report prints what the page has to say at the end.
func report(url string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var seen struct {
		Circuits []struct{ Dependency, State, Cause string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&seen); err != nil {
		return err
	}
	for _, c := range seen.Circuits {
		fmt.Printf("%-16s %-10s %s\n", c.Dependency, c.State, c.Cause)
	}
	if len(seen.Circuits) < len(dependencies) {
		return errors.New("a dependency is not on the page")
	}
	return nil
}
