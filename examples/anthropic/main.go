// Anthropic runs a tool runner of anthropic-sdk-go through an outage of the API behind one of its tools.
package main

import (
	"context"
	"log"

	"github.com/toolcircuit/toolcircuit/examples/internal/demo"
)

func main() {
	if err := demo.Run(context.Background(), (*demo.Model).Anthropic, start); err != nil {
		log.Fatal(err)
	}
}
