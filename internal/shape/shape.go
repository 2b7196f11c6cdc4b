// Package shape reads what an SDK's error says about itself, by the shape of its type: a status, a
// code or a word, and how long to wait. It imports no SDK, knows nothing of circuits and never
// reads the text of an error.
package shape

import (
	"net/http"
	"reflect"
	"sync"
	"time"
)

// Said is what one error says, without what it wraps. At most one of Status, GRPC and Kind is set.
// The zero Said is no opinion.
type Said struct {
	Status    int           // an HTTP status from 400 to 599
	Header    http.Header   // of the answer that Status or GRPC comes from, nil if unknown
	GRPC      uint32        // a gRPC status code that is neither OK (0) nor UNKNOWN (2)
	Kind      string        // "unavailable", "timeout", "rate_limited", "unauthorized", "invalid" or "conflict"
	Wait      time.Duration // the wait asked for outside of Header, 0 if none
	Throttled bool          // the caller is throttled, whatever the status of the answer
}

func (s Said) opinion() bool { return s.Status != 0 || s.GRPC != 0 || s.Kind != "" }

// Of returns what err says. err must not be nil. A method of err that panics says nothing. Safe
// for concurrent use.
func Of(err error) (s Said) {
	t := reflect.TypeOf(err)
	found, ok := plans.Load(t)
	if !ok {
		found, _ = plans.LoadOrStore(t, planOf(t))
	}
	p := found.(*plan)
	for _, read := range p.opinions {
		if s = ask(read, err); s.opinion() {
			break
		}
	}
	for _, read := range p.besides {
		s = s.merge(ask(read, err))
	}
	return s
}

// merge returns s with its empty fields taken from next.
func (s Said) merge(next Said) Said {
	wait, throttled := max(s.Wait, next.Wait), s.Throttled || next.Throttled
	if !s.opinion() {
		s = next
	}
	s.Wait, s.Throttled = wait, throttled
	return s
}

// reader reads the errors of the one type that it was made for.
type reader func(err error) Said

// ask calls read. If a method of err panics, err says nothing.
func ask(read reader, err error) (s Said) {
	defer func() {
		if recover() != nil {
			s = Said{}
		}
	}()
	return read(err)
}

// plan has the readers of a type.
type plan struct{ opinions, besides []reader }

// plans has the plan of each type that has occurred, so that each type is looked at once.
var plans sync.Map // reflect.Type to *plan

func planOf(t reflect.Type) *plan {
	p := new(plan)
	for _, row := range table {
		if read := row(t); read != nil {
			p.opinions = append(p.opinions, read)
		}
	}
	for _, row := range besides {
		if read := row(t); read != nil {
			p.besides = append(p.besides, read)
		}
	}
	return p
}
