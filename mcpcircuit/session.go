package mcpcircuit

import (
	"runtime"
	"sync"
	"weak"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessions knows which session took a dead one's place. A dead session is forgotten when the
// host has let it go. The zero value is empty.
type sessions struct {
	mu    sync.RWMutex
	heirs map[weak.Pointer[mcp.ClientSession]]*mcp.ClientSession // none is dead
}

// live returns the session to use where the host uses s.
func (x *sessions) live(s *mcp.ClientSession) *mcp.ClientSession {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if len(x.heirs) == 0 {
		return s
	}
	if heir, ok := x.heirs[weak.Make(s)]; ok {
		return heir
	}
	return s
}

// replace puts heir in the place of dead and of all that dead has stood for.
func (x *sessions) replace(dead, heir *mcp.ClientSession) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.heirs == nil {
		x.heirs = make(map[weak.Pointer[mcp.ClientSession]]*mcp.ClientSession)
	}
	delete(x.heirs, weak.Make(heir)) // it may come back
	for old, its := range x.heirs {
		if its == dead {
			x.heirs[old] = heir
		}
	}
	key := weak.Make(dead)
	x.heirs[key] = heir
	runtime.AddCleanup(dead, x.forget, key)
}

func (x *sessions) forget(key weak.Pointer[mcp.ClientSession]) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.heirs, key)
}
