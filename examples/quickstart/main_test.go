package main

func Example() {
	main()
	// Output:
	// (waits are rounded up to the second, <time> stands for a point in time)
	// call 1: the server answers 200, the circuit is closed, the model reads
	//   {"status":"ok","value":"three results"}
	// call 2: the server answers 503, the circuit is closed, the model reads
	//   {"status":"failed","reason":"call_failed","dependency":"search-api","tool":"web_search","outcome":"unknown","cause":"unavailable","retryable":true,"message":"web_search failed: search-api was unreachable or broken. Whether it took effect is not known. This may be temporary: go on with other work before you call it once more."}
	// call 3: the server answers 503, the circuit is closed, the model reads
	//   {"status":"failed","reason":"call_failed","dependency":"search-api","tool":"web_search","outcome":"unknown","cause":"unavailable","retryable":true,"message":"web_search failed: search-api was unreachable or broken. Whether it took effect is not known. This may be temporary: go on with other work before you call it once more."}
	// call 4: the server hangs, the circuit is open, the model reads
	//   {"status":"failed","reason":"call_failed","dependency":"search-api","tool":"web_search","outcome":"unknown","cause":"timeout","retryable":true,"retryAfterMs":2000,"retryAt":"<time>Z","nextActions":["use_alternative","answer_without"],"alternatives":["cached_search"],"message":"web_search failed: search-api did not answer in time. Whether it took effect is not known. This is temporary. Do not call it for 2 s, until <time> UTC. Use cached_search, or answer without it and say what is missing."}
	// call 5: the server sees nothing, the circuit is open, the model reads
	//   {"status":"blocked","reason":"dependency_open","dependency":"search-api","tool":"web_search","state":"open","executed":false,"cause":"timeout","rule":"threshold","failures":3,"retryable":false,"retryAfterMs":2000,"retryAt":"<time>Z","nextActions":["use_alternative","answer_without"],"alternatives":["cached_search"],"message":"web_search was not executed: search-api did not answer in time (3 failures in a row). This is temporary; other tools remain usable. Do not call web_search for 2 s, until <time> UTC. Use cached_search, or answer without it and say what is missing."}
	// call 6: the server sees nothing, the circuit is open, the model reads
	//   {"status":"blocked","reason":"dependency_open","dependency":"search-api","tool":"web_search","state":"open","executed":false,"cause":"timeout","rule":"threshold","failures":3,"retryable":false,"retryAfterMs":2000,"retryAt":"<time>Z","nextActions":["use_alternative","answer_without"],"alternatives":["cached_search"],"message":"web_search was not executed: search-api did not answer in time (3 failures in a row). This is temporary; other tools remain usable. Do not call web_search for 2 s, until <time> UTC. Use cached_search, or answer without it and say what is missing."}
	// the cooldown is over: the circuit is half_open
	// call 7: the server answers 200, the circuit is closed, the model reads
	//   {"status":"ok","value":"three results"}
	// call 8: the server answers 200, the circuit is closed, the model reads
	//   {"status":"ok","value":"three results"}
}
