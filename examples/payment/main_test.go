package main

func Example() {
	main()
	// Output:
	// The bank pays and drops the answer. The second attempt has the same key.
	//   attempts 2, too early 0, keys 1, effects 1
	//   {"status":"ok","value":{"number":1},"outcome":"duplicate"}
	// The bank pays and drops every answer. The fourth attempt is refused, which does not make the others undone.
	//   attempts 3, too early 0, keys 1, effects 1
	//   {"status":"failed","reason":"call_failed","dependency":"bank","tool":"pay","outcome":"unknown","cause":"unavailable","retryable":false,"nextActions":["escalate"],"message":"pay failed: bank was unreachable or broken. Whether it took effect is not known. Before you call it again, check whether it did; if you cannot, tell the user.","advice":"This or an earlier call of pay failed in the same way, in a row: 3. Repeated at once with the same arguments it will be refused, for at most 60 s, until <time> UTC. Other tools remain usable. Check whether an earlier call took effect."}
	// The bank is busy and asks for a second of patience.
	//   attempts 2, too early 0, keys 1, effects 1
	//   {"status":"ok","value":{"number":3}}
	// The bank asks for a minute, which is more than there is.
	//   attempts 1, too early 0, keys 1, effects 0
	//   {"status":"failed","reason":"call_failed","dependency":"bank","tool":"pay","outcome":"unknown","cause":"unavailable","retryable":false,"retryAfterMs":60000,"retryAt":"<time>Z","nextActions":["escalate"],"message":"pay failed: bank was unreachable or broken. Whether it took effect is not known. Do not call it for 60 s, until <time> UTC. Before you call it again, check whether it did; if you cannot, tell the user."}
	// There is no such account, so nothing is tried again.
	//   attempts 1, too early 0, keys 1, effects 0
	//   {"status":"failed","reason":"call_failed","dependency":"bank","tool":"pay","executed":true,"cause":"not_found","retryable":false,"nextActions":["answer_without"],"message":"pay ran and failed: bank found no such thing. The same call is not likely to work later. Change the arguments, or answer without it and say what is missing.","advice":"This or an earlier call of pay failed in a way that a repeat cannot mend by itself: there is no such thing. Repeated at once with the same arguments it will be refused, for at most 10 s, until <time> UTC. Other arguments and other tools remain usable. Look for what there is, or create it first."}
	// The model tries the same call again, and is refused.
	//   attempts 0, too early 0, keys 0, effects 0
	//   {"status":"blocked","reason":"repeated_call","dependency":"bank","tool":"pay","executed":false,"cause":"not_found","retryable":false,"nextActions":["answer_without"],"blockedCalls":2,"message":"pay was not executed: this run sent the same call before, and bank found no such thing. Other arguments and other tools remain usable. Do not call pay with these arguments for 10 s, until <time> UTC. Look for what there is, or answer without it and say what is missing."}
}
