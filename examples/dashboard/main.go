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
	"net/url"
	"os"
	"os/signal"
	"time"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/debugpage"
	"github.com/toolcircuit/toolcircuit/toolset"
)

const prefix = "/debug/circuits/"

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "where the page is, on loopback; any free port by default")
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
	server := newServer(set, &history)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	page := fmt.Sprint("http://", listener.Addr(), prefix)
	fmt.Println("the page is at", page)

	for i, d := range dependencies {
		go d.use(ctx, set, i)
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	if err := report(page + "circuits"); err != nil {
		return err
	}
	return server.Shutdown(context.Background())
}

// newServer returns the server of the page.
func newServer(set *toolset.Set, history *debugpage.History) *http.Server {
	ctx, cancel := context.WithCancel(context.Background())
	mux := http.NewServeMux()
	mux.Handle(prefix, debugpage.Handler(set, debugpage.Options{
		History:   history,
		Authorize: func(*http.Request) bool { return true }, // because it is on loopback, and nothing real is behind it
		Done:      ctx.Done(),
	}))
	server := &http.Server{Handler: onLoopback(mux)}
	server.RegisterOnShutdown(cancel)
	return server
}

// onLoopback refuses requests that were not made to a name of loopback. Another site can point a
// name of its own at 127.0.0.1, and the browser would let it read the page (DNS rebinding).
func onLoopback(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := url.URL{Host: r.Host}
		if name := asked.Hostname(); name != "localhost" && !net.ParseIP(name).IsLoopback() {
			http.Error(w, "this page is on loopback alone", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// report prints what the page has to say at the end.
func report(address string) error {
	resp, err := http.Get(address)
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
