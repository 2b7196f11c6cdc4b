package debugpage_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit/debugpage"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// viewer takes a stream. It is an http.ResponseWriter whose writes block while it is busy.
type viewer struct {
	header http.Header
	cancel func()
	busy   chan struct{} // closed unless it takes nothing
	data   []string      // of each message, in order
	ended  bool
}

func (v *viewer) Header() http.Header { return v.header }
func (v *viewer) WriteHeader(int)     {}
func (v *viewer) Flush()              {}

func (v *viewer) Write(m []byte) (int, error) {
	<-v.busy
	v.data = append(v.data, string(m))
	return len(m), nil
}

// sheets returns the messages with rows since it was last asked.
func (v *viewer) sheets(t testing.TB) (all []sheet) {
	for _, m := range v.data {
		require.True(t, strings.HasSuffix(m, "\n\n"), m)
		if text, ok := strings.CutPrefix(m, "data: "); ok {
			var s sheet
			require.NoError(t, json.Unmarshal([]byte(text), &s))
			all = append(all, s)
		}
	}
	v.data = nil
	return all
}

var idle = func() chan struct{} { c := make(chan struct{}); close(c); return c }

// watch starts a viewer.
func (r *rig) watch() *viewer {
	ctx, cancel := context.WithCancel(context.Background())
	v := &viewer{header: http.Header{}, cancel: cancel, busy: idle()}
	go func() {
		r.page.ServeHTTP(v, httptest.NewRequest(http.MethodGet, "/events", nil).WithContext(ctx))
		v.ended = true
	}()
	synctest.Wait()
	return v
}

// tick lets a second pass, and some more so that what happens at its end is done.
func tick() {
	time.Sleep(time.Second)
	synctest.Wait()
}

var twoTools = toolset.Config{Monitored: []string{"weather", "mail"}}

func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, twoTools, debugpage.Options{})
		r.call("weather", nil)
		v := r.watch()
		require.Equal(t, "text/event-stream", v.header.Get("Content-Type"))
		require.Equal(t, "event: controls\ndata: false\n\n", v.data[0])
		whole := v.sheets(t)
		require.Len(t, whole, 1)
		require.False(t, whole[0].Changes)
		require.Equal(t, map[string]string{"weather": "closed"}, whole[0].states())

		tick()
		require.Empty(t, v.sheets(t), "nothing has changed")

		r.call("mail", nil)
		r.trip("weather")
		tick()
		changes := v.sheets(t)
		require.Len(t, changes, 1)
		require.True(t, changes[0].Changes)
		require.Equal(t, map[string]string{"weather": "open", "mail": "closed"}, changes[0].states())

		r.trip("mail")
		tick()
		require.Equal(t, map[string]string{"mail": "open"}, v.sheets(t)[0].states(), "only what has changed")

		late := r.watch()
		require.Equal(t, map[string]string{"weather": "open", "mail": "open"}, late.sheets(t)[0].states())

		require.NoError(t, r.set.Apply(toolset.Config{Monitored: []string{"mail"}}))
		tick()
		for _, v := range []*viewer{v, late} {
			gone := v.sheets(t)
			require.Len(t, gone, 1)
			require.Len(t, gone[0].Gone, 1)
			require.Equal(t, whole[0].Circuits[0].ID, gone[0].Gone[0])
		}

		r.clock.Add(11 * time.Second)
		tick()
		require.Equal(t, map[string]string{"mail": "half_open"}, v.sheets(t)[0].states(), "time alone changes a state")

		v.cancel()
		synctest.Wait()
		require.True(t, v.ended)
		require.False(t, late.ended)
		late.cancel()
	}) // which fails if a goroutine is left
}

// A message comes now and then, so that both ends notice when the other has gone.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, twoTools, debugpage.Options{})
		r.call("weather", nil)
		v := r.watch()
		v.sheets(t)
		for range 3 {
			for range 14 {
				tick()
				require.Empty(t, v.data)
			}
			r.clock.Add(time.Minute)
			tick()
			require.Equal(t, 0, len(v.sheets(t)[0].Circuits))
		}
		v.cancel()
	})
}

// A slow viewer gets everything at once when it takes something again. The others wait for nobody.
func TestSlowViewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, twoTools, debugpage.Options{})
		r.call("weather", nil)
		r.call("mail", nil)
		slow, fast := r.watch(), r.watch()
		slow.sheets(t)
		fast.sheets(t)
		slow.busy = make(chan struct{})
		r.trip("weather")
		tick() // slow is stuck in this message
		for range 5 {
			r.trip("mail")
			tick()
			require.NoError(t, r.set.Reset("mail"))
			tick()
		}
		require.Len(t, fast.sheets(t), 11)
		require.Empty(t, slow.data)
		close(slow.busy)
		synctest.Wait()
		got := slow.sheets(t)
		require.Len(t, got, 2)
		require.True(t, got[0].Changes)
		require.False(t, got[1].Changes)
		require.Equal(t, map[string]string{"weather": "open", "mail": "closed"}, got[1].states())
		slow.cancel()
		fast.cancel()
	})
}

// counted is a clock that counts how often it is read.
type counted struct {
	*clock.Mock
	read atomic.Int64
}

func (c *counted) Now() time.Time {
	c.read.Add(1)
	return c.Mock.Now()
}

// A thousand viewers of a thousand circuits look at each circuit once a second, some of them slow.
// Nobody looks when nobody watches.
func TestManyViewers(t *testing.T) {
	const n = 1000
	synctest.Test(t, func(t *testing.T) {
		clock := &counted{Mock: clock.NewMock()}
		set, err := toolset.New(toolset.Config{Monitored: []string{"*"}}, toolset.Options{Clock: clock})
		require.NoError(t, err)
		r := &rig{TB: t, clock: clock.Mock, set: set, page: debugpage.Handler(set, debugpage.Options{Now: clock.Mock.Now})}
		for i := range n {
			r.call(fmt.Sprint("tool-", i), nil)
		}
		clock.read.Store(0)
		var viewers []*viewer
		for range n {
			viewers = append(viewers, r.watch())
		}
		require.EqualValues(t, n, clock.read.Load(), "the first one looks")
		for _, v := range viewers[:100] {
			v.busy = make(chan struct{})
		}
		for i := range 10 {
			r.callAs("", "tool-7", errDown)
			clock.read.Store(0)
			tick()
			require.EqualValues(t, n, clock.read.Load())
			last := viewers[n-1].sheets(t)
			if i == 0 {
				last = last[1:]
			}
			require.Len(t, last, 1)
			require.Len(t, last[0].Circuits, 1)
		}
		for _, v := range viewers {
			v.cancel()
		}
		for _, v := range viewers[:100] {
			close(v.busy)
		}
		synctest.Wait()
		clock.read.Store(0)
		tick()
		tick()
		require.Zero(t, clock.read.Load())
		again := r.watch()
		require.Len(t, again.sheets(t)[0].Circuits, n)
		again.cancel()
	})
}

// Done ends the streams, so that a server can shut down.
func TestDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		r := newRig(t, twoTools, debugpage.Options{Done: done})
		v := r.watch()
		close(done)
		synctest.Wait()
		require.True(t, v.ended)
	})
}

// Without Flush there is no stream, and the answer says why.
func TestNoFlush(t *testing.T) {
	r := newRig(t, twoTools, debugpage.Options{})
	for name, h := range map[string]http.Handler{
		"a middleware without Unwrap": http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			r.page.ServeHTTP(struct{ http.ResponseWriter }{w}, req)
		}),
		"a TimeoutHandler": http.TimeoutHandler(r.page, time.Minute, ""),
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, "/events", nil))
			require.Equal(t, http.StatusInternalServerError, w.Code, name)
			require.Equal(t, "text/plain; charset=utf-8", w.Header().Get("Content-Type"))
			require.Equal(t, "events: a middleware of this server hides Flush, which a stream needs\n", w.Body.String())
		}
	}
}

// Whether the page shows controls is decided for each viewer.
func TestStreamControls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		allowed := true
		r := newRig(t, twoTools, debugpage.Options{Authorize: func(*http.Request) bool { return allowed }})
		v := r.watch()
		require.Equal(t, "event: controls\ndata: true\n\n", v.data[0])
		v.cancel()
		allowed = false
		v = r.watch()
		require.Equal(t, "event: controls\ndata: false\n\n", v.data[0])
		v.cancel()
	})
}

// listener hands out the server's ends of pipes, whose deadlines are in the bubble's time.
type listener chan net.Conn

func (l listener) Accept() (net.Conn, error) {
	if conn, ok := <-l; ok {
		return conn, nil
	}
	return nil, errors.New("closed")
}
func (l listener) Close() error   { return nil }
func (l listener) Addr() net.Addr { return &net.TCPAddr{} }

// A viewer that takes nothing for ten seconds is dropped by a real server, also if that has a
// WriteTimeout, and one that takes what comes stays.
func TestVanishedViewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, twoTools, debugpage.Options{})
		r.call("weather", nil)
		l := make(listener)
		var left atomic.Int32
		server := &http.Server{WriteTimeout: 3 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			defer left.Add(1)
			r.page.ServeHTTP(w, req)
		})}
		go server.Serve(l)
		connect := func() *bufio.Reader {
			near, far := net.Pipe()
			l <- far
			_, err := near.Write([]byte("GET /events HTTP/1.1\r\nHost: x\r\n\r\n"))
			require.NoError(t, err)
			return bufio.NewReader(near)
		}
		connect() // and reads nothing
		reader := connect()
		read := 0
		go func() {
			for {
				line, err := reader.ReadString('\n')
				if err != nil {
					return
				}
				if strings.HasPrefix(line, "data: {") {
					read++
				}
			}
		}()
		for i := range 9 {
			synctest.Wait()
			require.Equal(t, 1+i, read)
			r.call("weather", errDown)
			require.NoError(t, r.set.Reset("weather"))
			tick()
		}
		require.Zero(t, left.Load())
		tick()
		tick()
		require.EqualValues(t, 1, left.Load())
		close(l)
		require.NoError(t, server.Close())
	})
}
