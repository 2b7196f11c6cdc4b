package mcpcircuit

import (
	"runtime"
	"sync"
	"weak"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessions knows which session took a dead one's place, and what each has listed. A session is
// forgotten when the host has let it go. The zero value is empty.
type sessions struct {
	mu    sync.RWMutex
	known map[weak.Pointer[mcp.ClientSession]]*session
}

// session is what is known of a session that the host uses.
type session struct {
	heir  *mcp.ClientSession // in its place, nil: it is not dead
	pages map[pageKey][]byte // as JSON, no more than maxPages
}

// of returns what is known of s, which may grow. The caller holds x.mu.
func (x *sessions) of(s *mcp.ClientSession) *session {
	key := weak.Make(s)
	if known := x.known[key]; known != nil {
		return known
	}
	if x.known == nil {
		x.known = make(map[weak.Pointer[mcp.ClientSession]]*session)
	}
	known := &session{pages: make(map[pageKey][]byte)}
	x.known[key] = known
	runtime.AddCleanup(s, x.forget, key)
	return known
}

func (x *sessions) forget(key weak.Pointer[mcp.ClientSession]) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.known, key)
}

// live returns the session to use where the host uses s.
func (x *sessions) live(s *mcp.ClientSession) *mcp.ClientSession {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if len(x.known) == 0 {
		return s
	}
	if known := x.known[weak.Make(s)]; known != nil && known.heir != nil {
		return known.heir
	}
	return s
}

// replace puts heir in the place of dead and of all that dead has stood for.
func (x *sessions) replace(dead, heir *mcp.ClientSession) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.of(heir).heir = nil // it may come back
	for _, known := range x.known {
		if known.heir == dead {
			known.heir = heir
		}
	}
	x.of(dead).heir = heir
}

// remember keeps a page that s has listed.
func (x *sessions) remember(s *mcp.ClientSession, key pageKey, page []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	put(x.of(s).pages, key, page, maxPages)
}

// last returns the page as s has listed it last, nil if it has not.
func (x *sessions) last(s *mcp.ClientSession, key pageKey) []byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.of(s).pages[key]
}
