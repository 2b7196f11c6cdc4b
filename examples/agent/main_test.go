package main

func Example() {
	main()
	// Output:
	// WITHOUT A CIRCUIT
	// question: Go 1.26
	//   web_search: {"error":"HTTP status 504 Gateway Timeout"}
	//   web_search: {"error":"HTTP status 504 Gateway Timeout"}
	//   web_search: {"error":"HTTP status 504 Gateway Timeout"}
	//   web_search: {"error":"HTTP status 504 Gateway Timeout"}
	//   cached_search: {"value":"cached results for Go 1.26"}
	//   answer: cached results for Go 1.26
	// question: RFC 9110
	//   web_search: {"error":"HTTP status 504 Gateway Timeout"}
	//   web_search: {"error":"HTTP status 504 Gateway Timeout"}
	//   web_search: {"error":"HTTP status 504 Gateway Timeout"}
	//   web_search: {"error":"HTTP status 504 Gateway Timeout"}
	//   cached_search: {"value":"cached results for RFC 9110"}
	//   answer: cached results for RFC 9110
	// question: Erlang
	//   web_search: {"error":"HTTP status 504 Gateway Timeout"}
	//   web_search: {"error":"HTTP status 504 Gateway Timeout"}
	//   web_search: {"error":"HTTP status 504 Gateway Timeout"}
	//   web_search: {"error":"HTTP status 504 Gateway Timeout"}
	//   cached_search: {"value":"cached results for Erlang"}
	//   answer: cached results for Erlang
	// question: Rust
	//   web_search: {"value":"live results for Rust"}
	//   answer: live results for Rust
	//
	// WITH A CIRCUIT
	// question: Go 1.26
	//   web_search: {"status":"failed","reason":"call_failed","dependency":"search-api","tool":"web_search","outcome":"unknown","cause":"timeout","retryable":true,"message":"web_search failed: search-api did not answer in time. Whether it took effect is not known. This may be temporary: go on with other work before you call it once more."}
	//   web_search: {"status":"failed","reason":"call_failed","dependency":"search-api","tool":"web_search","outcome":"unknown","cause":"timeout","retryable":true,"message":"web_search failed: search-api did not answer in time. Whether it took effect is not known. This may be temporary: go on with other work before you call it once more."}
	//   web_search: {"status":"failed","reason":"call_failed","dependency":"search-api","tool":"web_search","outcome":"unknown","cause":"timeout","retryable":true,"retryAfterMs":300000,"retryAt":"1970-01-01T00:06:30Z","nextActions":["use_alternative","answer_without"],"alternatives":["cached_search"],"message":"web_search failed: search-api did not answer in time. Whether it took effect is not known. This is temporary. Do not call it for 300 s, until 00:06:30 UTC. Use cached_search, or answer without it and say what is missing."}
	//   web_search: {"status":"blocked","reason":"dependency_open","dependency":"search-api","tool":"web_search","state":"open","executed":false,"cause":"timeout","rule":"threshold","failures":3,"retryable":false,"retryAfterMs":300000,"retryAt":"1970-01-01T00:06:30Z","nextActions":["use_alternative","answer_without"],"alternatives":["cached_search"],"message":"web_search was not executed: search-api did not answer in time (3 failures in a row). This is temporary; other tools remain usable. Do not call web_search for 300 s, until 00:06:30 UTC. Use cached_search, or answer without it and say what is missing."}
	//   cached_search: {"value":"cached results for Go 1.26"}
	//   answer: cached results for Go 1.26
	// question: RFC 9110
	//   web_search: {"status":"blocked","reason":"dependency_open","dependency":"search-api","tool":"web_search","state":"open","executed":false,"cause":"timeout","rule":"threshold","failures":3,"retryable":false,"retryAfterMs":300000,"retryAt":"1970-01-01T00:06:30Z","nextActions":["use_alternative","answer_without"],"alternatives":["cached_search"],"message":"web_search was not executed: search-api did not answer in time (3 failures in a row). This is temporary; other tools remain usable. Do not call web_search for 300 s, until 00:06:30 UTC. Use cached_search, or answer without it and say what is missing."}
	//   cached_search: {"value":"cached results for RFC 9110"}
	//   answer: cached results for RFC 9110
	// question: Erlang
	//   web_search: {"status":"blocked","reason":"dependency_open","dependency":"search-api","tool":"web_search","state":"open","executed":false,"cause":"timeout","rule":"threshold","failures":3,"retryable":false,"retryAfterMs":300000,"retryAt":"1970-01-01T00:06:30Z","nextActions":["use_alternative","answer_without"],"alternatives":["cached_search"],"message":"web_search was not executed: search-api did not answer in time (3 failures in a row). This is temporary; other tools remain usable. Do not call web_search for 300 s, until 00:06:30 UTC. Use cached_search, or answer without it and say what is missing."}
	//   cached_search: {"value":"cached results for Erlang"}
	//   answer: cached results for Erlang
	// question: Rust
	//   web_search: {"status":"ok","value":"live results for Rust"}
	//   answer: live results for Rust
	//
	// COMPARED
	//                              without  with
	// model turns                  20       14
	// calls to the dead dependency 12       3
	// time spent waiting for it    6m0s     1m30s
}
