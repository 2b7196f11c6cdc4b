// Genkit runs firebase/genkit through an outage of the API behind one of its tools.
package main

import (
	"context"
	"log"

	"github.com/toolcircuit/toolcircuit/examples/internal/demo"
)

var runtime = demo.Runtime{Wire: (*demo.Model).OpenAI, Start: start, Classify: interrupts}

func main() {
	if err := runtime.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
