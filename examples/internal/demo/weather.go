package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"

	"github.com/toolcircuit/toolcircuit"
)

// Weather is the API that the tool forecast depends on, with its client.
type Weather struct {
	Hits  atomic.Int32 // requests that reached it
	Down  atomic.Bool  // it answers 503
	Hangs atomic.Bool  // it does not answer

	Hung   chan struct{} // gets a value for each request that it does not answer
	server *httptest.Server
	client *http.Client
}

// NewWeather starts the API.
func NewWeather() *Weather {
	w := &Weather{Hung: make(chan struct{}, 100)}
	w.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.Hits.Add(1)
		switch {
		case w.Hangs.Load():
			w.Hung <- struct{}{}
			<-r.Context().Done()
		case w.Down.Load():
			http.Error(rw, "out of order", http.StatusServiceUnavailable)
		default:
			fmt.Fprintf(rw, "%s: sunny, 21 degrees", r.URL.Query().Get("city"))
		}
	}))
	w.client = &http.Client{Transport: toolcircuit.Transport(new(http.Transport))}
	return w
}

// Close ends the API.
func (w *Weather) Close() {
	w.client.CloseIdleConnections()
	w.server.Close()
}

// Forecast asks the API.
func (w *Weather) Forecast(ctx context.Context, city string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.server.URL+"?city="+url.QueryEscape(city), nil)
	if err != nil {
		return "", err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if err := toolcircuit.CheckResponse(resp); err != nil {
		return "", err
	}
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// Climate needs nobody.
func Climate(_ context.Context, city string) (string, error) {
	return city + " in an average year: cloudy, 18 degrees", nil
}
