package debugpage

import (
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"
)

const (
	every        = time.Second      // between two looks at the Set
	heartbeat    = 15 * time.Second // between two messages, also if nothing has changed
	writeTimeout = 10 * time.Second // within which a viewer takes a message
)

// hub looks at the Set for all viewers at once. While there are any it owns a goroutine.
type hub struct {
	look func() sheet

	mu      sync.Mutex
	viewers int
	latest  *edition      // nil without viewers
	stop    chan struct{} // ends the goroutine
}

// edition is what viewers are told at one moment. It never changes.
type edition struct {
	number  int
	sheet   sheet
	changes []byte        // the message for who has the edition before
	whole   func() []byte // the message for everyone else, made once when it is needed
	next    chan struct{} // closed when there is a later one
}

func (e *edition) after(changes []byte, s sheet) *edition {
	return &edition{
		number:  e.number + 1,
		sheet:   s,
		changes: changes,
		whole:   sync.OnceValue(func() []byte { return message("", s) }),
		next:    make(chan struct{}),
	}
}

// join returns the latest edition to a new viewer, who must leave in the end.
func (h *hub) join() *edition {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.viewers == 0 {
		h.latest = new(edition).after(nil, h.look())
		h.stop = make(chan struct{})
		go h.run(h.stop)
	}
	h.viewers++
	return h.latest
}

func (h *hub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.viewers--; h.viewers == 0 {
		close(h.stop)
		h.latest = nil
	}
}

// current returns the latest edition to a viewer.
func (h *hub) current() *edition {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.latest
}

func (h *hub) run(stop chan struct{}) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for quiet := every; ; quiet += every {
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
		if h.publish(stop, quiet >= heartbeat) {
			quiet = 0
		}
	}
}

// publish looks again, and makes an edition if anything has changed or it must. It reports
// whether it did.
func (h *hub) publish(stop chan struct{}, must bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-stop:
		return false
	default:
	}
	s := h.look()
	changes, changed := s.since(h.latest.sheet)
	if !changed && !must {
		return false
	}
	before := h.latest
	h.latest = before.after(message("", changes), s)
	close(before.next)
	return true
}

// message returns an event of a stream.
func message(event string, data any) []byte {
	text, err := json.Marshal(data)
	if err != nil {
		panic("debugpage: " + err.Error())
	}
	var m []byte
	if event != "" {
		m = append(m, "event: "+event+"\n"...)
	}
	m = append(m, "data: "...)
	m = append(m, text...)
	return append(m, "\n\n"...)
}

// events serves the stream.
func (p *page) events(w http.ResponseWriter, r *http.Request) {
	out := http.NewResponseController(w)
	send := func(m []byte) error {
		out.SetWriteDeadline(time.Now().Add(writeTimeout)) // where there is none, TCP decides how long a viewer may take
		if len(m) > 0 {
			if _, err := w.Write(m); err != nil {
				return err
			}
		}
		return out.Flush()
	}
	defer out.SetWriteDeadline(time.Time{})
	controls := p.options.Authorize != nil && p.options.Authorize(r)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx passes each message on at once
	err := send(nil)
	if errors.Is(err, http.ErrNotSupported) {
		http.Error(w, "events: a middleware of this server hides Flush, which a stream needs", http.StatusInternalServerError)
	}
	if err != nil || r.Method == http.MethodHead {
		return
	}
	e := p.hub.join()
	defer p.hub.leave()
	err = send(message("controls", controls))
	if err == nil {
		err = send(e.whole())
	}
	for err == nil {
		select {
		case <-r.Context().Done():
			return
		case <-p.options.Done:
			return
		case <-e.next:
		}
		seen := e.number
		e = p.hub.current()
		if e.number == seen+1 {
			err = send(e.changes)
		} else {
			err = send(e.whole())
		}
	}
}
