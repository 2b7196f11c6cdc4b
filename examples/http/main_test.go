package main

func Example() {
	main()
	// Output:
	// http://search.example/: 503 Service Unavailable, "results"
	// http://search.example/: 503 Service Unavailable, "results"
	// http://search.example/: 503 Service Unavailable, "results"
	// http://search.example/: not sent, the circuit is open for 30s
	// http://mail.example/: 200 OK, "no mail"
	// http://search.example/: 200 OK, "results"
}
