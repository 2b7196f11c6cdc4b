package main

func Example() {
	main()
	// Output:
	// all services answer
	//   weather: {"status":"ok","value":"sunny in Paris"}
	//   detect_language: {"status":"ok","value":"fr"}
	//   search: {"status":"ok","value":["everything about gophers"]}
	//   send_mail: {"status":"ok","value":"sent"}
	// all services go down: the calls that meet it fail
	//   weather: {"status":"fallback","value":"sunny in Paris","reason":"call_failed","message":"weather failed: weather-api was unreachable or broken. Whether it took effect is not known. This is temporary. Do not call it for 30 s, until 00:00:30 UTC. Answer without it and say what is missing.","source":"last good value"}
	//   detect_language: {"status":"fallback","value":"en","reason":"call_failed","message":"detect_language failed: language-api was unreachable or broken. Whether it took effect is not known. This is temporary. Do not call it for 30 s, until 00:00:30 UTC. Answer without it and say what is missing.","source":"default"}
	//   search: {"status":"fallback","value":["gophers dig","gophers write Go"],"reason":"call_failed","message":"search failed: search-api was unreachable or broken. Whether it took effect is not known. This is temporary. Do not call it for 30 s, until 00:00:30 UTC. Answer without it and say what is missing.","source":"local notes"}
	//   send_mail: {"status":"failed","reason":"call_failed","dependency":"mail-server","tool":"send_mail","outcome":"unknown","cause":"unavailable","retryable":false,"retryAfterMs":60000,"retryAt":"1970-01-01T00:01:00Z","nextActions":["escalate"],"message":"send_mail failed: mail-server was unreachable or broken. Whether it took effect is not known. Do not call it for 60 s, until 00:01:00 UTC. Before you call it again, check whether it did; if you cannot, tell the user."}
	// the circuits are open: no service gets a call
	//   weather: {"status":"fallback","value":"sunny in Paris","reason":"dependency_open","message":"weather was not executed: weather-api was unreachable or broken (1 failure). This is temporary; other tools remain usable. Do not call weather for 30 s, until 00:00:30 UTC. Answer without it and say what is missing.","source":"last good value"}
	//   detect_language: {"status":"fallback","value":"en","reason":"dependency_open","message":"detect_language was not executed: language-api was unreachable or broken (1 failure). This is temporary; other tools remain usable. Do not call detect_language for 30 s, until 00:00:30 UTC. Answer without it and say what is missing.","source":"default"}
	//   search: {"status":"fallback","value":["gophers dig","gophers write Go"],"reason":"dependency_open","message":"search was not executed: search-api was unreachable or broken (1 failure). This is temporary; other tools remain usable. Do not call search for 30 s, until 00:00:30 UTC. Answer without it and say what is missing.","source":"local notes"}
	//   send_mail: {"status":"fallback","value":"queued as number 1","reason":"dependency_open","message":"send_mail was not executed: mail-server was unreachable or broken (1 failure). This is temporary; other tools remain usable. Do not call send_mail for 60 s, until 00:01:00 UTC. Answer without it and say what is missing.","source":"queue"}
	// the services are back, and the cooldown is over
	//   send_mail, from the queue: {"status":"ok","value":"sent"}
	//   weather: {"status":"ok","value":"sunny in Paris"}
	//   detect_language: {"status":"ok","value":"fr"}
	//   search: {"status":"ok","value":["everything about gophers"]}
	//   send_mail: {"status":"ok","value":"sent"}
}
