package main

import (
	"context"
	"encoding/json"
	"os"

	"github.com/toolcircuit/toolcircuit"
)

func main() {
	circuit := toolcircuit.MustNew("search-api", toolcircuit.Options{}) // one per dependency
	search := toolcircuit.WrapResult(circuit, func(ctx context.Context, query string) (string, error) {
		return "", &toolcircuit.HTTPError{StatusCode: 503} // your call of the API, and the error of its client
	})
	for range 6 { // the sixth call does not run
		result, _ := search(context.Background(), "Go 1.26")
		json.NewEncoder(os.Stdout).Encode(result) // what the model reads
	}
}
