package main

func Example() {
	main()
	// Output:
	// the file changes: it is there
	//   web_search is blocked for 60 s, instead: [cached_search]
	//   the model is shown [cached_search fetch_page]
	// the file changes: a shorter cooldown for all
	//   reloaded
	//   web_search is blocked for 10 s, instead: [cached_search]
	//   the model is shown [cached_search fetch_page]
	// the file changes: a mistake
	//   not reloaded: toolset: config: tools.web_search.alternatives[0]: got "cashed_search", want a tool that is listed
	//   web_search is blocked for 10 s, instead: [cached_search]
	//   the model is shown [cached_search fetch_page]
	// the file changes: the mistake is gone, and web_search is left alone
	//   reloaded
	//   web_search ran: failed unavailable
	//   the model is shown [web_search cached_search fetch_page]
	// the environment switches all circuits off
	//   reloaded
	//   web_search ran: failed unavailable
	//   the model is shown [web_search news_search cached_search fetch_page]
}
