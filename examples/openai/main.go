// Openai runs a loop of one's own, with openai-go, through an outage of the API behind one of its tools.
package main

import (
	"context"
	"log"

	"github.com/toolcircuit/toolcircuit/examples/internal/demo"
)

func main() {
	if err := demo.Run(context.Background(), (*demo.Model).OpenAI, start); err != nil {
		log.Fatal(err)
	}
}
