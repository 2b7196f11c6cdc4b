package main

import (
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"time"
)

// payment is what the tool asks the bank for, receipt what it gets.
type payment struct {
	To    string `json:"to"`
	Cents int    `json:"cents"`
}

type receipt struct {
	Number int `json:"number"`
}

// bank makes each payment once per Idempotency-Key, and is not always easy to deal with.
type bank struct {
	mu     sync.Mutex
	paid   map[string]receipt // by key
	payees map[string]*record
}

// record is what the bank saw of the payments to one payee since it began to watch.
type record struct {
	attempts, effects int
	keys              map[string]bool
	notBefore         time.Time // as Retry-After said
	early             int       // attempts that came sooner
}

func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var p payment
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, "no payment", http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	seen := b.payees[p.To]
	seen.attempts++
	seen.keys[key] = true
	if time.Now().Before(seen.notBefore) {
		seen.early++
	}
	first := seen.attempts == 1

	switch {
	case p.To == "nobody":
		http.Error(w, "no such account", http.StatusNotFound)
		return
	case p.To == "busy" && first:
		seen.notBefore = time.Now().Add(time.Second)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests", http.StatusTooManyRequests)
		return
	case p.To == "closed":
		w.Header().Set("Retry-After", "60")
		http.Error(w, "back in a minute", http.StatusServiceUnavailable)
		return
	}
	made, again := b.paid[key]
	if !again {
		seen.effects++
		made = receipt{Number: len(b.paid) + 1}
		b.paid[key] = made
	}
	if p.To == "shop" && first || p.To == "lost" {
		panic(http.ErrAbortHandler) // the payment is made, the answer is lost
	}
	if again {
		w.WriteHeader(http.StatusConflict)
	}
	json.NewEncoder(w).Encode(made)
}

// watch returns a new record of the payments to one payee.
func (b *bank) watch(payee string) *record {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.payees[payee] = &record{keys: map[string]bool{}}
	return b.payees[payee]
}

// open starts a bank and returns its address.
func open() (b *bank, url string, shut func() error, err error) {
	b = &bank{paid: map[string]receipt{}, payees: map[string]*record{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", nil, err
	}
	server := &http.Server{Handler: b}
	go server.Serve(listener)
	return b, "http://" + listener.Addr().String(), server.Close, nil
}
