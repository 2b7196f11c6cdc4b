package main

import (
	_ "embed"
	"testing"

	"github.com/toolcircuit/toolcircuit/examples/internal/demotest"
)

//go:embed agent.go
var source string

//go:embed glue.go
var glue string

func TestAgent(t *testing.T) { demotest.Test(t, runtime) }

func TestLines(t *testing.T) {
	demotest.Code(t, glue, 32)
	demotest.Lines(t, source, 3, "guard(", "offer(")
}

func Example() {
	main()
	// Output:
	// The weather API is dead.
	// model: offered climate, forecast
	// model: offered climate; reads failed; reads failed; reads failed
	// model: offered climate; reads blocked
	//   {"alternatives":["climate"],"blockedCalls":1,"cause":"unavailable","dependency":"weather-api","executed":false,"failures":3,"message":"forecast was not executed: weather-api was unreachable or broken (3 failures in a row). This is temporary; other tools remain usable. Do not call forecast for 30 s, until 12:00:30 UTC. Use climate, or answer without it and say what is missing.","nextActions":["use_alternative","answer_without"],"reason":"dependency_open","retryAfterMs":30000,"retryAt":"2026-05-04T12:00:30Z","retryable":false,"rule":"threshold","state":"open","status":"blocked","tool":"forecast"}
	// model: offered nothing, may call none; reads blocked
	//   {"alternatives":["climate"],"blockedCalls":2,"cause":"unavailable","dependency":"weather-api","endTurn":true,"executed":false,"failures":3,"message":"forecast was not executed: weather-api was unreachable or broken (3 failures in a row). This is temporary; other tools remain usable. Do not call forecast for 30 s, until 12:00:30 UTC. Use climate, or answer without it and say what is missing.","nextActions":["use_alternative","answer_without"],"reason":"dependency_open","retryAfterMs":30000,"retryAt":"2026-05-04T12:00:30Z","retryable":false,"rule":"threshold","state":"open","status":"blocked","tool":"forecast"}
	// The agent answers: The weather service cannot be reached now.
	//
	// It is back, and the cooldown is over.
	// model: offered climate, forecast
	// model: offered climate, forecast; reads ok
	// The agent answers: It will be sunny.
	//
	// Calls that reached the API: 4
}
