// Eino runs a ReAct agent of cloudwego/eino through an outage of the API behind one of its tools.
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
