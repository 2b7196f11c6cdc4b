package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/toolcircuit/toolcircuit"
)

// Transport returns a RoundTripper that sends by base, and notes each response in the [Hint] of its
// request. A nil base is [http.DefaultTransport]. The SDKs turn a status into a text and drop its
// Retry-After.
//
// With shield it hands on 503 in place of a status that would make the SDK give its session up. The
// Hint's Shield says for which statuses; 408 and 529 are always among them. A response that holds the
// answer to its request is handed on as it is, because it ends no session.
func Transport(base http.RoundTripper, shield bool) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return transport{base, shield}
}

type transport struct {
	base   http.RoundTripper
	shield bool
}

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	h := HintOf(req.Context())
	if req.Method != http.MethodPost || strings.HasPrefix(req.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		h = nil // a stream that goes on, whose POST may have been executed, or a request for a token
	}
	resp, err := t.base.RoundTrip(h.request(req))
	if err != nil {
		return resp, err
	}
	if h == nil {
		return t.shielded(resp, ShieldNone), nil
	}
	if resp.StatusCode < 400 {
		h.respond(resp, 0, false)
		resp.Body = body{resp.Body, h}
		return resp, nil
	}
	code, coded, answers := peek(resp)
	if h.respond(resp, code, coded); answers && !h.doubtful() {
		return resp, nil
	}
	return t.shielded(resp, h.Shield), nil
}

// shielded returns what the SDK should see of a response.
func (t transport) shielded(resp *http.Response, by Shield) *http.Response {
	if !t.shield {
		return resp
	}
	switch code := resp.StatusCode; code {
	case 429, 500, 502, 503, 504: // which end no session
		return resp
	case 408, 529:
	case 401, 403:
		if by != ShieldPing {
			return resp
		}
	default:
		if code < 400 || by == ShieldNone {
			return resp
		}
	}
	passed := *resp
	passed.StatusCode = http.StatusServiceUnavailable
	passed.Status = "503 " + http.StatusText(http.StatusServiceUnavailable)
	return &passed
}

// maxPeek is how much of a refusal is read to find an error of JSON-RPC in it.
const maxPeek = 1 << 20

// peek returns the code of the JSON-RPC error in a response, whose body can still be read, and
// whether it answers a request.
func peek(resp *http.Response) (code int64, coded, answers bool) {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxPeek))
	rest := io.Reader(resp.Body)
	if err != nil {
		rest = failing{err}
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), rest), resp.Body}
	var message struct {
		Version string `json:"jsonrpc"`
		ID      any    `json:"id"`
		Error   *struct {
			Code int64 `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(text, &message) != nil || message.Version != "2.0" || message.Error == nil {
		return 0, false, false
	}
	return message.Error.Code, true, message.ID != nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// request notes that the request goes to the transport. It returns the request to send, which is sent
// when its body is read.
func (h *Hint) request(req *http.Request) *http.Request {
	if h == nil {
		return req
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.http, h.session = true, req.Header.Get("Mcp-Session-Id") != ""
	h.status, h.refusal, h.coded, h.end, h.answered = 0, nil, false, nil, false
	if req.Body == nil || req.Body == http.NoBody {
		h.sent = true
		return req
	}
	own := *req
	own.Body = outgoing{req.Body, h}
	if again := req.GetBody; again != nil {
		own.GetBody = func() (io.ReadCloser, error) {
			b, err := again()
			return outgoing{b, h}, err
		}
	}
	return &own
}

// outgoing is the body of a request. Without it the server has no message.
type outgoing struct {
	io.ReadCloser
	hint *Hint
}

// Read notes that the request is sent, unless its caller has been told that it was not.
func (o outgoing) Read(p []byte) (int, error) {
	o.hint.mu.Lock()
	over := o.hint.over
	o.hint.sent = o.hint.sent || !over
	o.hint.mu.Unlock()
	if over {
		return 0, http.ErrBodyReadAfterClose
	}
	return o.ReadCloser.Read(p)
}

// respond notes a response.
func (h *Hint) respond(resp *http.Response, code int64, coded bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status, h.refusal, h.code, h.coded = resp.StatusCode, toolcircuit.CheckResponse(resp), code, coded
}

// body notes how a response ended. If there was no answer in it by then, it broke off.
type body struct {
	io.ReadCloser
	hint *Hint
}

func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.hint.mu.Lock()
		defer b.hint.mu.Unlock()
		if b.hint.end = err; errors.Is(err, io.EOF) {
			b.hint.end = io.ErrUnexpectedEOF
		}
	}
	return n, err
}
