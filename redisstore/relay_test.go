package redisstore_test

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// relay stands between clients and a server, and can do to connections what a network does.
type relay struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	links map[*link]struct{}
	delay time.Duration
	mute  bool // new connections are silent, too
}

// link is one connection through a relay.
type link struct {
	client, server net.Conn
	subscription   bool          // a SUBSCRIBE has gone through
	silent         chan struct{} // closed: nothing goes through any more, and nothing is said
	once           sync.Once
}

func startRelay(t testing.TB, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{listener: l, to: to, links: map[*link]struct{}{}}
	t.Cleanup(func() { l.Close(); r.reset() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go r.carry(client)
		}
	}()
	return r
}

func (r *relay) addr() string { return r.listener.Addr().String() }

func (r *relay) carry(client net.Conn) {
	server, err := net.Dial("tcp", r.to)
	if err != nil {
		client.Close()
		return
	}
	l := &link{client: client, server: server, silent: make(chan struct{})}
	r.mu.Lock()
	r.links[l] = struct{}{}
	if r.mute {
		l.silence()
	}
	r.mu.Unlock()
	var both sync.WaitGroup
	both.Add(2)
	go func() { defer both.Done(); r.pump(l, server, client) }()
	go func() { defer both.Done(); r.pump(l, client, server) }()
	both.Wait()
	r.mu.Lock()
	delete(r.links, l)
	r.mu.Unlock()
}

// pump carries what one end says to the other, until either is gone.
func (r *relay) pump(l *link, to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		r.mu.Lock()
		if bytes.Contains(bytes.ToLower(buffer[:n]), []byte("\r\nsubscribe\r\n")) {
			l.subscription = true
		}
		delay := r.delay
		r.mu.Unlock()
		time.Sleep(delay)
		select {
		case <-l.silent:
			io.Copy(io.Discard, from) // until the other end gives up
			return
		default:
		}
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}

func (l *link) silence() { l.once.Do(func() { close(l.silent) }) }

// reset breaks all connections.
func (r *relay) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		for _, c := range []net.Conn{l.client, l.server} {
			if tcp, ok := c.(*net.TCPConn); ok {
				tcp.SetLinger(0)
			}
			c.Close()
		}
	}
}

// silence lets nothing more through, on the connections that are subscriptions or on all, new ones
// included. It returns how many there were.
func (r *relay) silence(subscriptionsOnly bool) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mute = !subscriptionsOnly
	for l := range r.links {
		if l.subscription || !subscriptionsOnly {
			l.silence()
			n++
		}
	}
	return n
}

// subscriptions returns how many subscriptions go through that are not silent.
func (r *relay) subscriptions() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		select {
		case <-l.silent:
		default:
			if l.subscription {
				n++
			}
		}
	}
	return n
}

// speak ends silence: what was silent is lost, and new connections are not silent.
func (r *relay) speak() {
	r.mu.Lock()
	r.mute = false
	r.mu.Unlock()
	r.reset()
}

func (r *relay) setDelay(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = d
}
