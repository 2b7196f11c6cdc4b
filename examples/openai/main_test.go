package main

import (
	_ "embed"
	"testing"

	"github.com/toolcircuit/toolcircuit/examples/internal/demotest"
)

//go:embed agent.go
var source string

func TestAgent(t *testing.T) { demotest.Test(t, runtime) }

func TestLines(t *testing.T) { demotest.Lines(t, source, 9, "StopReason", "ends", `"none"`) }

func Example() {
	main()
	// Output:
	// The weather API is dead.
	// model: offered climate, forecast
	// model: offered climate; reads failed; reads failed; reads failed
	// model: offered climate; reads blocked
	//   {"status":"blocked","reason":"dependency_open","dependency":"weather-api","tool":"forecast","state":"open","executed":false,"cause":"unavailable","rule":"threshold","failures":3,"retryable":false,"retryAfterMs":30000,"retryAt":"2026-05-04T12:00:30Z","nextActions":["use_alternative","answer_without"],"alternatives":["climate"],"blockedCalls":1,"message":"forecast was not executed: weather-api was unreachable or broken (3 failures in a row). This is temporary; other tools remain usable. Do not call forecast for 30 s, until 12:00:30 UTC. Use climate, or answer without it and say what is missing."}
	// model: offered climate, may call none; reads blocked
	//   {"status":"blocked","reason":"dependency_open","dependency":"weather-api","tool":"forecast","state":"open","executed":false,"cause":"unavailable","rule":"threshold","failures":3,"retryable":false,"retryAfterMs":30000,"retryAt":"2026-05-04T12:00:30Z","nextActions":["use_alternative","answer_without"],"alternatives":["climate"],"blockedCalls":2,"endTurn":true,"message":"forecast was not executed: weather-api was unreachable or broken (3 failures in a row). This is temporary; other tools remain usable. Do not call forecast for 30 s, until 12:00:30 UTC. Use climate, or answer without it and say what is missing."}
	// The agent answers: The weather service cannot be reached now.
	//
	// It is back, and the cooldown is over.
	// model: offered climate, forecast
	// model: offered climate, forecast; reads ok
	// The agent answers: It will be sunny.
	//
	// Calls that reached the API: 4
}
