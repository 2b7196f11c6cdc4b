package debugpage

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// sheet is what the page shows, or what has changed since the sheet before.
type sheet struct {
	Now        time.Time `json:"now"`
	Changes    bool      `json:"changes,omitempty"` // rows that are the same are left out
	Disabled   bool      `json:"disabled"`
	Forgotten  uint64    `json:"forgotten"`
	HookPanics uint64    `json:"hookPanics"`
	Circuits   []row     `json:"circuits"`
	Gone       []string  `json:"gone,omitempty"` // the ids of rows that are no more
}

// row is one circuit on the page.
type row struct {
	ID string `json:"id"`
	toolset.CircuitSnapshot
	Policy    json.RawMessage `json:"policy"`    // in place of that of the snapshot, whose JSON takes long to make
	Threshold int             `json:"threshold"` // Policy.FailureThreshold, also if it is the default
	Timeline  []point         `json:"timeline"`
}

// same reports whether r and other look the same.
func (r row) same(other row) bool {
	return r.Snapshot == other.Snapshot &&
		r.Scope == other.Scope && r.InFlight == other.InFlight && r.Busy == other.Busy && r.Hidden == other.Hidden &&
		slices.Equal(r.Tools, other.Tools) && slices.Equal(r.Timeline, other.Timeline)
}

// looker looks at a Set, and remembers what it has shown.
type looker struct {
	options Options
	set     *toolset.Set
	codes   codes

	mu    sync.Mutex
	shown map[circuit]row // at the latest look
}

// look returns what the page shows now.
func (l *looker) look() sheet {
	l.mu.Lock()
	defer l.mu.Unlock()
	snap := l.set.Snapshot()
	s := sheet{
		Now:        l.options.Now().UTC(),
		Disabled:   snap.Disabled,
		Forgotten:  snap.Forgotten,
		HookPanics: snap.HookPanics,
		Circuits:   make([]row, 0, len(snap.Circuits)),
	}
	scoped := map[string]bool{}
	for _, c := range snap.Circuits {
		scoped[c.Dependency] = scoped[c.Dependency] || c.Scope != ""
	}
	heard := l.options.History.heard(scoped)
	policies := map[toolcircuit.Policy]json.RawMessage{} // most circuits share one
	shown := make(map[circuit]row, len(snap.Circuits))
	for _, c := range snap.Circuits {
		c.Err = nil // it is not shown, and two errors need not be comparable
		of := circuit{c.Dependency, c.Scope}
		before, known := l.shown[of]
		if !known {
			before.ID, before.Scope = l.codes.of(of.dependency, of.scope), l.scope(of.scope)
		}
		if policies[c.Policy] == nil {
			policies[c.Policy], _ = json.Marshal(c.Policy) // one in force is valid
		}
		r := row{
			ID:              before.ID,
			CircuitSnapshot: c,
			Policy:          policies[c.Policy],
			Threshold:       c.Policy.FailureThreshold,
			Timeline:        timeline(before.Timeline, heard[of], c.Snapshot, s.Now),
		}
		r.Scope = before.Scope
		r.Since = r.Timeline[len(r.Timeline)-1].At
		shown[of] = r
		s.Circuits = append(s.Circuits, r)
	}
	l.shown = shown
	return s
}

// scope returns a scope's label as the page shows it.
func (l *looker) scope(label string) string {
	if label == "" || l.options.ShowScopes {
		return label
	}
	return l.codes.of(label)[:8]
}

// since returns what has changed in s since the sheet before, and whether anything has.
func (s sheet) since(before sheet) (changes sheet, changed bool) {
	old := make(map[string]row, len(before.Circuits))
	for _, r := range before.Circuits {
		old[r.ID] = r
	}
	changes = s
	changes.Changes = true
	changes.Circuits = []row{}
	for _, r := range s.Circuits {
		if o, ok := old[r.ID]; !ok || !r.same(o) {
			changes.Circuits = append(changes.Circuits, r)
		}
		delete(old, r.ID)
	}
	for id := range old {
		changes.Gone = append(changes.Gone, id)
	}
	slices.Sort(changes.Gone)
	return changes, len(changes.Circuits) > 0 || len(changes.Gone) > 0 ||
		s.Disabled != before.Disabled || s.Forgotten != before.Forgotten || s.HookPanics != before.HookPanics
}

// codes stand for what must not be shown. Nobody can tell from a code what it stands for, not
// even by trying.
type codes struct{ key []byte }

func newCodes() codes {
	key := make([]byte, sha256.Size)
	rand.Read(key)
	return codes{key}
}

// of returns the code of some texts: 16 letters and digits.
func (c codes) of(texts ...string) string {
	h := hmac.New(sha256.New, c.key)
	for _, t := range texts {
		fmt.Fprintf(h, "%d:%s", len(t), t)
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)[:10]))
}
