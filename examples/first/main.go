package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"

	"github.com/toolcircuit/toolcircuit"
)

func main() { // one circuit per dependency
	circuit := toolcircuit.MustNew("search-api", toolcircuit.Options{Policy: toolcircuit.Policy{FailureThreshold: 3}})
	search := toolcircuit.WrapResult(circuit, func(ctx context.Context, query string) (string, error) {
		return "", toolcircuit.CheckResponse(&http.Response{StatusCode: 503}) // your call; or its client's error, as it is
	})
	for range 4 { // the fourth call does not run
		result, _ := search(context.Background(), "Go 1.26")
		json.NewEncoder(os.Stdout).Encode(result) // what the model reads
	}
}
