package mcp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/toolcircuit/toolcircuit"
)

// Hint is what the transport knows of the delivery of one request, where the SDK's error does not say
// it. A nil Hint takes no notes. All methods are safe for concurrent use.
type Hint struct {
	// Shield says which statuses [Transport] keeps from an SDK that would give its session up.
	Shield Shield

	mu       sync.Mutex
	sent     bool // some of it may have reached the server
	unsent   bool // it waited in vain for its turn
	written  bool // all of it
	answered bool
	http     bool // it went to the HTTP client's transport
	over     bool // it was not sent, and must not be any more
	session  bool // with the id of a session
	status   int  // of its last response, 0: none yet
	refusal  error
	code     int64 // of the JSON-RPC error in a response with a status from 400 on
	coded    bool
	end      error // how the body of its last response ended
}

// Shield says which statuses are kept from the SDK.
type Shield uint8

const (
	ShieldNone Shield = iota
	ShieldCall        // those that end a session, except 401 and 403, which OAuth needs
	ShieldPing        // all that end a session
)

type hintKey struct{}

// WithHint returns a context for one request that h is to know of. A nil h hides the one in ctx.
func WithHint(ctx context.Context, h *Hint) context.Context {
	return context.WithValue(ctx, hintKey{}, h)
}

// HintOf returns the Hint of the request that ctx belongs to, nil if there is none.
func HintOf(ctx context.Context) *Hint {
	h, _ := ctx.Value(hintKey{}).(*Hint)
	return h
}

// Sent notes that the request is being sent: from now on it may reach the server.
func (h *Hint) Sent() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent = true
}

// Written notes that all of the request was sent.
func (h *Hint) Written() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.written = true
}

// Answered notes that an answer has come, which may be an error of JSON-RPC.
func (h *Hint) Answered() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answered = true
}

// Unsent notes that the request waited for its turn until its context ended.
func (h *Hint) Unsent() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unsent = !h.sent
}

// Signs are what an SDK's error says by itself.
type Signs struct {
	Answer   bool // the server answered with an error of JSON-RPC
	Rejected bool // the transport's own error, or an answer with the same code
	Closed   bool // the connection or session is no more
	Unsent   bool // it was closed before anything was sent
	Ended    bool // by the host, which is done with it
	Tracked  bool // nothing is sent of which the Hint does not know
	HTTP     bool // nothing is sent except by [Transport]
}

// Reading is what the error of a request means for its delivery.
type Reading struct {
	Err      error // as the rules should see it
	Answered bool  // the server is there
	Gone     bool  // the session that it went out on is no more
	Unsent   bool  // it was surely not executed
	Doubtful bool  // a 400: Gone if the session is to blame, and then not executed
	Missing  bool  // a 404: Gone
	Stuck    bool  // the server did not even read it in time
	Barred   bool  // it was surely not executed for want of a connection or a token
}

// Read returns what an error of a request means, by the transport first and by the SDK second.
// Only a response to the request itself, or the SDK, says that it was not executed. ctx is that
// of the request.
func (h *Hint) Read(ctx context.Context, err error, s Signs) Reading {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		return Reading{Answered: true}
	}
	if text, ok := strings.CutSuffix(err.Error(), http.StatusText(http.StatusServiceUnavailable)); ok && h.status >= 400 && h.status != http.StatusServiceUnavailable {
		err = &renamed{err, text + h.refusal.Error()}
	}
	barred := h.status == 0 && (h.http && !h.sent || s.HTTP && !h.http)
	switch {
	case h.missing():
		return Reading{Err: Lost(err), Gone: true, Unsent: true, Missing: true}
	case h.doubts():
		return Reading{Err: &With{Err: err, Known: h.refusal}, Answered: true, Doubtful: true}
	case h.status >= 400:
		noToken := (h.status == 401 || h.status == 403) && (s.Rejected || ctx.Err() != nil) // the SDK asked for one
		return Reading{Err: &With{Err: err, Known: h.refusal}, Answered: h.coded || serves(h.status), Barred: noToken}
	case ctx.Err() != nil && barred:
		h.over = true
		return Reading{Err: err, Barred: true}
	case ctx.Err() != nil:
		return Reading{Err: err, Unsent: h.unsent || s.Tracked && !h.sent, Stuck: h.unsent || h.sent && !h.http && !h.written}
	case s.Answer, h.answered, s.Rejected && h.status > 0:
		return Reading{Err: err, Answered: true}
	case s.Ended && !h.sent && !h.http:
		return Reading{Err: err, Unsent: true}
	case s.Closed && !h.http && !(s.HTTP && s.Rejected):
		return Reading{Err: Lost(err), Gone: true, Unsent: s.Unsent && !h.sent}
	case h.status > 0 && h.end != nil:
		return Reading{Err: &With{Err: err, Known: h.end}}
	case h.http || s.Rejected || isURL(err):
		h.over = barred
		return Reading{Err: Unanswered(err), Barred: barred}
	}
	return Reading{Err: err, Barred: barred}
}

// missing reports whether the server does not know the session, doubts whether it may mean that.
func (h *Hint) missing() bool { return h.status == 404 && h.session }

func (h *Hint) doubts() bool {
	return h.status == 400 && h.session && !(h.coded && (h.code == codeMethodNotFound || h.code == codeInvalidParams))
}

func (h *Hint) doubtful() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.missing() || h.doubts()
}

func (h *Hint) byHTTP() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.http
}

// Served reports whether a response proves that the server is there.
func (h *Hint) Served() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status > 0 && (h.coded || serves(h.status))
}

// serves reports whether a status proves that the server is there, whatever it makes of the
// request.
func serves(status int) bool {
	return status < 500 && status != 408 && status != 429 || status == 501
}

// renamed is the error of an SDK that was handed another status than the true one.
type renamed struct {
	error
	text string
}

func (e *renamed) Error() string { return e.text }
func (e *renamed) Unwrap() error { return e.error }

func isURL(err error) bool {
	var e *url.Error
	return errors.As(err, &e)
}

// Lost returns err as the error of a call on a session that is gone. Its kind is always unavailable.
func Lost(err error) error { return lost{err} }

type lost struct{ error }

func (e lost) Unwrap() error        { return e.error }
func (e lost) Is(target error) bool { return target == io.ErrUnexpectedEOF }

// Unanswered returns err as the error of a request that got no answer: unavailable, except if the
// rules know its kind, or a marker in it says that it counts for nothing.
func Unanswered(err error) error {
	p, _ := toolcircuit.MustNew("mcp", judging).Allow(context.Background()) // one for each: a Retry-After opens it
	if v, _ := p.Settle(context.Background(), nil, err); v.Kind == toolcircuit.KindUnknown && v.Effect == toolcircuit.EffectCount {
		return lost{err}
	}
	return err
}

// judging counts unknown errors, and none that a marker makes harmless.
var judging = toolcircuit.Options{Policy: toolcircuit.Policy{CountUnknown: true}}

// Blameless returns the error of a lost call for the tool's circuit, where the server's takes the
// blame. It has the same kind and counts for nothing.
func Blameless(err error) error { return toolcircuit.Benign(err) }
