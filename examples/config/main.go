// Config loads the settings of an agent's tools from a file and reloads it while the agent
// runs: a changed cooldown, a mistake that is refused, a tool that is left alone, and the
// environment's last word.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/benbjohnson/clock"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

//go:embed config.json
var shipped string

// load reads the file and lets the environment have the last word.
func load(file string) (toolset.Config, error) {
	f, err := os.Open(file)
	if err != nil {
		return toolset.Config{}, err
	}
	defer f.Close()
	c, err := toolset.Load(f)
	if err != nil {
		return toolset.Config{}, err
	}
	return c.WithEnv(environ)
}

// reload is what a program would do on SIGHUP.
func reload(set *toolset.Set, file string) {
	c, err := load(file)
	if err == nil {
		err = set.Apply(c)
	}
	if err != nil {
		fmt.Println("  not reloaded:", err)
		return
	}
	fmt.Println("  reloaded")
}

func main() {
	dir, err := os.MkdirTemp("", "config")
	check(err)
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "config.json")
	text := shipped
	edit := func(what string, oldnew ...string) {
		fmt.Println("the file changes:", what)
		text = strings.NewReplacer(oldnew...).Replace(text)
		check(os.WriteFile(file, []byte(text), 0o600))
	}

	edit("it is there")
	c, err := load(file)
	check(err)
	// A program leaves Clock alone; here the output is to be the same each time.
	set, err := toolset.New(c, toolset.Options{Clock: clock.NewMock()})
	check(err)
	search := toolset.WrapResult(set, "web_search", func(context.Context, string) (string, error) {
		return "", toolcircuit.Fault(errors.New("no route to the search server"))
	})
	for range 3 {
		search(context.Background(), "gophers")
	}
	show(set, search)

	edit("a shorter cooldown for all", `"60s"`, `"10s"`)
	reload(set, file)
	show(set, search)

	edit("a mistake", `["cached_search"]`, `["cashed_search"]`)
	reload(set, file)
	show(set, search)

	edit("the mistake is gone, and web_search is left alone", `"cashed_search"`, `"cached_search"`, `"excluded": []`, `"excluded": ["web_*"]`)
	reload(set, file)
	show(set, search)

	fmt.Println("the environment switches all circuits off")
	environ = append(environ, "TOOLCIRCUIT_DISABLED=true")
	reload(set, file)
	show(set, search)
}

// show prints what a call of web_search meets and which tools the model is shown.
func show(set *toolset.Set, search func(context.Context, string) (toolcircuit.Result[string], error)) {
	ctx := context.Background()
	r, err := search(ctx, "gophers")
	check(err)
	switch r.Status {
	case toolcircuit.StatusBlocked:
		fmt.Printf("  web_search is blocked for %d s, instead: %v\n", r.RetryAfterMS/1000, r.Alternatives)
	default:
		fmt.Println("  web_search ran:", r.Status, r.Cause)
	}
	tools := []string{"web_search", "news_search", "cached_search", "fetch_page"}
	fmt.Println("  the model is shown", toolset.Visible(ctx, set, tools, func(name string) string { return name }))
}

// environ stands for os.Environ(), which a program passes to WithEnv.
var environ = []string{"LANG=C"}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
