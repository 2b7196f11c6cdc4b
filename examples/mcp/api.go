package main

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
)

// weatherAPI is what the tool depends on.
type weatherAPI struct {
	*httptest.Server
	down  atomic.Bool
	calls atomic.Int64
}

func startAPI() *weatherAPI {
	api := new(weatherAPI)
	api.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		api.calls.Add(1)
		if api.down.Load() {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
		}
	}))
	return api
}
