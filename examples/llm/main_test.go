package main

func Example() {
	main()
	// Output:
	// Both are well.
	//   anthropic/claude-sonnet: ok
	//   It will be sunny.
	//
	// The first is overloaded, status 529.
	//   anthropic/claude-sonnet: unavailable
	//   openai/gpt-mini: ok
	//   Sunny, says the other.
	//
	// The first is overloaded, status 529.
	//   anthropic/claude-sonnet: unavailable
	//   openai/gpt-mini: ok
	//   Sunny, says the other.
	//
	// The first is overloaded, status 529.
	//   anthropic/claude-sonnet: unavailable
	//   openai/gpt-mini: ok
	//   Sunny, says the other.
	//
	// Its circuit is open.
	//   anthropic/claude-sonnet: not asked
	//   openai/gpt-mini: ok
	//   Sunny, says the other.
	//
	// The cooldown is over. It asks for 120 s, status 429.
	//   anthropic/claude-sonnet: rate_limited
	//   openai/gpt-mini: ok
	//   Sunny, says the other.
	//
	// 119 s later.
	//   anthropic/claude-sonnet: not asked
	//   openai/gpt-mini: ok
	//   Sunny, says the other.
	//
	// One more second later.
	//   anthropic/claude-sonnet: ok
	//   It will be sunny.
	//
	// It is overloaded in the middle of its answer.
	//   anthropic/claude-sonnet: unavailable
	//   It will be (and no more)
	//
	// The same with the two retries of the SDK.
	//   anthropic/claude-sonnet: unavailable
	//   (no answer)
	//
	// Requests that the circuit took for one: 3
}
