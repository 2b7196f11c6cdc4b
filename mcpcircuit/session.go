package mcpcircuit

//lint:file-ignore SA1019 a session that is renewed keeps its log level while the SDK has one

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	shared "github.com/toolcircuit/toolcircuit/internal/mcp"
)

// sessions knows the sessions that the host uses, what each has listed, and which took a dead
// one's place. A session is forgotten when the host has let it go.
type sessions struct {
	newLine func(weak.Pointer[mcp.ClientSession], *session) *shared.Line[*mcp.ClientSession]

	mu     sync.Mutex
	closed bool
	known  map[weak.Pointer[mcp.ClientSession]]*session
}

// session is what is known of a session that the host uses. The line's first session is nil and
// stands for the host's own, which must not be kept from being forgotten.
type session struct {
	own      weak.Pointer[mcp.ClientSession] // the host's
	line     *shared.Line[*mcp.ClientSession]
	receiver *receiver // of its client, nil if that is not known
	bell     shared.Bell
	unpinged atomic.Bool // its last ping failed: the SDK's keepalive may have closed it

	standing shared.Standing[mcp.Params]

	mu    sync.Mutex
	pages map[pageKey][]byte // as JSON, no more than maxPages
}

// of returns what is known of s. The host may use a session that took another's place: it is on the
// same line.
func (x *sessions) of(s *mcp.ClientSession, r *receiver) *session {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := weak.Make(s)
	if known := x.known[key]; known != nil {
		return known
	}
	known := &session{own: key, receiver: r, pages: make(map[pageKey][]byte)}
	known.line = x.newLine(key, known)
	if x.closed {
		known.line.Close()
	}
	x.put(s, known)
	return known
}

// find returns what is known of s, nil if nothing is.
func (x *sessions) find(s *mcp.ClientSession) *session {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.known[weak.Make(s)]
}

func (x *sessions) put(s *mcp.ClientSession, known *session) {
	key := weak.Make(s)
	if x.known == nil {
		x.known = make(map[weak.Pointer[mcp.ClientSession]]*session)
	}
	x.known[key] = known
	runtime.AddCleanup(s, x.forget, key)
}

// forget drops a session that the host has let go, and with it the line that it was the first of.
func (x *sessions) forget(key weak.Pointer[mcp.ClientSession]) {
	x.mu.Lock()
	defer x.mu.Unlock()
	known := x.known[key]
	delete(x.known, key)
	if known == nil || known.own != key { // one that took its place
		return
	}
	for other, k := range x.known {
		if k == known {
			delete(x.known, other)
		}
	}
}

// close ends all lines and closes the sessions that are not the host's.
func (x *sessions) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	for _, known := range x.known {
		if heir, ok := known.line.Close(); ok {
			go heir.Close()
		}
	}
}

// newLine returns the line of the host's session of a key.
func (g *Guard) newLine(own weak.Pointer[mcp.ClientSession], known *session) *shared.Line[*mcp.ClientSession] {
	line := shared.NewLine[*mcp.ClientSession](nil)
	line.Timeout = g.ReconnectTimeout
	line.Retire = func(s *mcp.ClientSession) {
		if s == nil {
			s = own.Value()
		}
		if s != nil {
			s.Close()
		}
	}
	if g.Reconnect != nil {
		line.Renew = func(ctx context.Context, dead *mcp.ClientSession, gen int) (*mcp.ClientSession, error) {
			if dead == nil {
				if dead = own.Value(); dead == nil {
					return nil, errors.New("mcpcircuit: the host has let the session go")
				}
			}
			return g.renew(ctx, known, dead, gen+1)
		}
	}
	return line
}

// renew returns a session in the place of a dead one, with the same log level and subscriptions. gen is
// its generation.
func (g *Guard) renew(ctx context.Context, known *session, dead *mcp.ClientSession, gen int) (_ *mcp.ClientSession, err error) {
	heir, err := g.Reconnect(ctx, dead)
	switch {
	case err != nil:
		return nil, err
	case heir == nil:
		return nil, errors.New("mcpcircuit: Reconnect returned no session")
	case heir == dead:
		return nil, errors.New("mcpcircuit: Reconnect returned the dead session")
	}
	defer func() {
		if err != nil {
			go heir.Close()
		}
	}()
	if ctx.Err() != nil { // it comes too late
		return nil, ctx.Err()
	}
	was, is := dead.InitializeResult(), heir.InitializeResult()
	if was != nil && is != nil && was.ProtocolVersion != is.ProtocolVersion {
		return nil, fmt.Errorf("mcpcircuit: Reconnect returned a session of protocol version %s, want %s", is.ProtocolVersion, was.ProtocolVersion)
	}
	if err := repeat(ctx, heir, known.standing.All(gen)); err != nil {
		return nil, err
	}
	g.sessions.mu.Lock()
	defer g.sessions.mu.Unlock()
	g.sessions.put(heir, known)
	known.listChanged() // which may be another by now
	return heir, nil
}

// repeat tells a new session what the dead one was told. What the server refuses by now is left out.
func repeat(ctx context.Context, heir *mcp.ClientSession, told []mcp.Params) (err error) {
	for _, params := range told {
		switch p := params.(type) {
		case *mcp.SetLoggingLevelParams:
			err = heir.SetLoggingLevel(ctx, p)
		case *mcp.SubscribeParams:
			err = heir.Subscribe(ctx, p)
		}
		if err != nil && !signs(err).Answer {
			return err
		}
	}
	return nil
}

// uriIn returns the URI of a subscription or of its end.
func uriIn(params mcp.Params) string {
	switch p := params.(type) {
	case *mcp.SubscribeParams:
		if p != nil {
			return p.URI
		}
	case *mcp.UnsubscribeParams:
		if p != nil {
			return p.URI
		}
	}
	return ""
}

// remember keeps a page that s has listed.
func (s *session) remember(key pageKey, page []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shared.Put(s.pages, key, page, maxPages)
}

// last returns the page as s has listed it last, nil if it has not.
func (s *session) last(key pageKey) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pages[key]
}
