package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"

	"github.com/toolcircuit/toolcircuit"
)

func main() {
	circuit := toolcircuit.MustNew("search-api", toolcircuit.Options{ // one per dependency
		Policy: toolcircuit.Policy{FailureThreshold: 3}, // when it opens and closes
	})
	search := toolcircuit.WrapResult(circuit, func(ctx context.Context, query string) (string, error) {
		resp := &http.Response{StatusCode: 503}    // in place of your call of the API
		return "", toolcircuit.CheckResponse(resp) // or the error of the API's client, as it is
	})
	for range 4 { // the fourth call does not run
		result, _ := search(context.Background(), "Go 1.26")
		json.NewEncoder(os.Stdout).Encode(result) // what the model reads
	}
}
