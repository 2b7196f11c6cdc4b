package mcpgocircuit

import (
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/mark3labs/mcp-go/client/transport"

	"github.com/toolcircuit/toolcircuit"
)

// Transport returns base, which if nil is [http.DefaultTransport], for the HTTP client of a
// client's transport:
//
//	hc := &http.Client{Transport: mcpgocircuit.Transport(nil)}
//	c, err := client.NewStreamableHttpClient(url, transport.WithHTTPBasicClient(hc))
//
// The SDK makes a text of the status of a response and drops its Retry-After; this RoundTripper
// keeps both for [Guard], so that a circuit judges by code, and notes a response that broke
// off. It changes no request and no response.
func Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return roundTripper{base}
}

type roundTripper struct{ base http.RoundTripper }

func (t roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(req)
	h, ok := req.Context().Value(hintKey{}).(*hint)
	if !ok {
		return resp, err
	}
	if err != nil {
		h.note(nil) // the SDK passes it on
		return resp, err
	}
	h.note(toolcircuit.CheckResponse(resp))
	resp.Body = &body{resp.Body, h}
	return resp, nil
}

// body notes how a response ended. If there was no answer in it by then, it broke off.
type body struct {
	io.ReadCloser
	hint *hint
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.hint.end(io.ErrUnexpectedEOF)
	} else if err != nil {
		b.hint.end(err)
	}
	return n, err
}

type hintKey struct{}

// hint is what the RoundTripper knows of a call, and the SDK's error may not.
type hint struct {
	mu     sync.Mutex
	status error // of the last response, nil below 400
	broken error // how its body ended
}

func (h *hint) note(status error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status, h.broken = status, nil
}

func (h *hint) end(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = err
}

// of returns what the hint has to say about the error of its call, nil if nothing.
func (h *hint) of(err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var unanswered *transport.Error
	if h.status == nil && errors.As(err, &unanswered) {
		return h.broken
	}
	return h.status
}
