package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/toolcircuit/toolcircuit"
)

// tool answers a query with the JSON that the model reads.
type tool func(query string) []byte

// plain is a tool without a circuit.
func plain(f func(context.Context, string) (string, error)) tool {
	return func(query string) []byte {
		value, err := f(context.Background(), query)
		return text(map[string]string{"value": value}, err)
	}
}

// guarded is a tool with a circuit.
func guarded(f func(context.Context, string) (toolcircuit.Result[string], error)) tool {
	return func(query string) []byte { return text(f(context.Background(), query)) }
}

// text is the JSON of an answer or, as agent runtimes have it, of an error.
func text(answer any, err error) []byte {
	if err != nil {
		answer = map[string]string{"error": err.Error()}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	return text
}

// action is the model's next step: a call of a tool or, without one, the answer.
type action struct {
	tool, input string
	answer      string
}

// model stands in for a language model: it knows nothing but the question and what its tools
// answered. It searches the web, tries four times if that fails and then looks for another
// tool. Where a result says that the call was blocked, it does what the result proposes.
func model(question string, answers [][]byte) action {
	if len(answers) == 0 {
		return action{tool: "web_search", input: question}
	}
	var last struct {
		Value        string
		Status       toolcircuit.Status
		Alternatives []string
	}
	if err := json.Unmarshal(answers[len(answers)-1], &last); err != nil {
		panic(err)
	}
	switch {
	case last.Value != "":
		return action{answer: last.Value}
	case last.Status == toolcircuit.StatusBlocked && len(last.Alternatives) > 0:
		return action{tool: last.Alternatives[0], input: question}
	case len(answers) < 4:
		return action{tool: "web_search", input: question}
	}
	return action{tool: "cached_search", input: question}
}

// run is the agent's loop: the model acts and reads what came of it until it answers. It
// returns the number of the model's turns.
func run(question string, tools map[string]tool) (turns int) {
	fmt.Printf("question: %s\n", question)
	var answers [][]byte
	for {
		turns++
		next := model(question, answers)
		if next.tool == "" {
			fmt.Printf("  answer: %s\n", next.answer)
			return turns
		}
		answer := tools[next.tool](next.input)
		fmt.Printf("  %s: %s\n", next.tool, answer)
		answers = append(answers, answer)
	}
}
