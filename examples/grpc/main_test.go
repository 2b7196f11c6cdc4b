package main

func Example() {
	main()
	// Output:
	// unary: Unavailable
	// unary: Unavailable
	// unary: Unavailable
	// unary: not sent, the circuit is open for 30s
	// stream: not sent, the circuit is open for 30s
	// stream: SERVING
	// unary: SERVING
}
