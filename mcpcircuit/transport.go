package mcpcircuit

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcircuit/toolcircuit"
)

// Transport returns base, which if nil is [http.DefaultTransport], for the HTTP client of an
// [mcp.StreamableClientTransport]. The SDK makes a text of the status of a response and drops
// its Retry-After; this RoundTripper keeps both for [Guard], so that a circuit judges by code,
// and notes a response that broke off.
//
// A request without a response counts as not having reached the server. If that is not so, as
// where base found no token, let the error be [toolcircuit.Benign].
//
// It hands the statuses 408 and 529 on as 503, for the SDK gives a session up for good after
// any failure but 429, 500, 502, 503 and 504. The circuit sees the true status.
func Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return transport{base}
}

type transport struct{ base http.RoundTripper }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	h, _ := req.Context().Value(hintKey{}).(*hint)
	seen := toolcircuit.CheckResponse(resp)
	if resp.StatusCode == http.StatusNotFound && req.Header.Get("Mcp-Session-Id") != "" {
		seen = mcp.ErrSessionMissing // also where the SDK sees no more than the error in the body
	}
	h.note(seen)
	switch {
	case seen == nil && h != nil:
		resp.Body = body{resp.Body, h}
	case resp.StatusCode == http.StatusRequestTimeout, resp.StatusCode == statusOverloaded:
		passed := *resp
		passed.StatusCode = http.StatusServiceUnavailable
		passed.Status = "503 " + http.StatusText(http.StatusServiceUnavailable)
		resp = &passed
	}
	return resp, nil
}

const statusOverloaded = 529 // in no RFC: providers of models send it

// body notes how a response ended. If there was no answer in it by then, it broke off.
type body struct {
	io.ReadCloser
	hint *hint
}

func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.hint.noteEnd(io.ErrUnexpectedEOF)
	} else if err != nil {
		b.hint.noteEnd(err)
	}
	return n, err
}

// hint is what the transport of one call knows and the SDK's error does not. A nil hint takes
// no notes.
type hint struct {
	mu  sync.Mutex
	err error // of the last response
}

type hintKey struct{}

func withHint(ctx context.Context, h *hint) context.Context {
	return context.WithValue(ctx, hintKey{}, h)
}

func (h *hint) note(err error) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

// noteEnd notes how a response ended, unless a later one has failed.
func (h *hint) noteEnd(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = cmp.Or(h.err, err)
}

// gone are the errors of a connection or session that is no more, whatever else they wrap.
var gone = []error{mcp.ErrSessionMissing, mcp.ErrConnectionClosed, io.EOF, io.ErrClosedPipe, fs.ErrClosed}

// codeRejected is the code of the SDK's own error for a request that its transport could not
// deliver. A server's answer with the same code passes for none, and counts for nothing.
const codeRejected = -32005

// lost returns nil if err, which is not nil, is an answer of the server. Else it returns err with
// what the transport knows.
func (h *hint) lost(err error) error {
	h.mu.Lock()
	known := h.err
	h.mu.Unlock()
	var answer *jsonrpc.Error
	if errors.As(err, &answer) && answer.Code != codeRejected && known != mcp.ErrSessionMissing {
		return nil
	}
	var unsent *url.Error
	if known == nil && errors.As(err, &unsent) && counts(unsent.Err) {
		known = io.ErrUnexpectedEOF // no response; net/http's own errors for that have no type
	}
	if known != nil {
		err = &transportError{err, known}
	}
	for _, target := range gone {
		if errors.Is(err, target) {
			return toolcircuit.Fault(err)
		}
	}
	return err
}

// countsUnknown judges errors alone.
var countsUnknown = toolcircuit.MustNew("transport", toolcircuit.Options{
	Policy: toolcircuit.Policy{FailureThreshold: math.MaxInt, CountUnknown: true},
})

// counts reports whether err counts where unknown errors do: not if a RoundTripper says that its
// error means nothing.
func counts(err error) bool {
	p, _ := countsUnknown.Allow(context.Background())
	v, _ := p.Settle(context.Background(), nil, err)
	return v.Effect == toolcircuit.EffectCount
}

// transportError is an error of the SDK with what it left out.
type transportError struct {
	error
	known error
}

func (e *transportError) Unwrap() []error { return []error{e.error, e.known} }
