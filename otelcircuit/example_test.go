package otelcircuit_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/debugpage"
	"github.com/toolcircuit/toolcircuit/otelcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// Metrics, logs and a page for one Set.
func Example() {
	config := toolset.Config{Monitored: []string{"*"}}
	logger := slog.New(slog.NewTextHandler(os.Stdout, nil))

	o := toolset.Options{OnEvent: toolcircuit.LogEvents(logger), OnCall: toolcircuit.LogCalls(logger)}
	set, err := otelcircuit.NewSet(config, o, otelcircuit.Options{})
	if err != nil {
		panic(err)
	}
	http.Handle("/debug/circuits/", debugpage.Handler(set, debugpage.Options{}))

	fmt.Println(set.Guards("web_search"))
	// Output: true
}
