// Adk runs an LLM agent of google.golang.org/adk through an outage of the API behind one of its tools.
package main

import (
	"context"
	"log"

	"github.com/toolcircuit/toolcircuit/examples/internal/demo"
)

func main() {
	if err := demo.Run(context.Background(), (*demo.Model).Gemini, start); err != nil {
		log.Fatal(err)
	}
}
