package main

func Example() {
	main()
	// Output:
	// The API works.
	// forecast, isError false: Tomorrow: sunny, 21 degrees.
	//
	// It dies.
	// forecast, isError true: HTTP status 503 Service Unavailable
	// forecast, isError true: HTTP status 503 Service Unavailable
	// forecast, isError true: HTTP status 503 Service Unavailable
	//
	// The circuit is open: the tool is not run any more.
	// forecast, isError true: {"status":"blocked","reason":"dependency_open","dependency":"weather-api","tool":"forecast","state":"open","executed":false,"cause":"unavailable","rule":"threshold","failures":3,"retryable":false,"retryAfterMs":30000,"retryAt":"2026-05-04T12:00:30Z","nextActions":["use_alternative","answer_without"],"alternatives":["climate"],"message":"forecast was not executed: weather-api was unreachable or broken (3 failures in a row). This is temporary; other tools remain usable. Do not call forecast for 30 s, until 12:00:30 UTC. Use climate, or answer without it and say what is missing."}
	//
	// The list goes without it.
	// tools: climate
	//
	// So the model does as it was told.
	// climate, isError false: On average: cloudy, 18 degrees.
	//
	// The API recovers; the cooldown is over.
	// forecast, isError false: Tomorrow: sunny, 21 degrees.
	// tools: climate, forecast
	//
	// Calls that reached the API: 5
}
