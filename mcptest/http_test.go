package mcptest

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// site is an HTTP server that can be killed and started again at the same address, where it knows
// no session of before.
type site struct {
	*testing.T
	addr string
	work func(context.Context, string) error // what the tool does with an id
	// trouble, if set, answers calls of tools in the server's place where it returns true.
	trouble atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
	reached atomic.Int64 // calls of tools

	mu    sync.Mutex
	http  *http.Server
	clean func() // ends what the server has left behind
}

func newSite(t *testing.T) *site {
	s := &site{T: t, addr: "127.0.0.1:0"}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *site) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var l net.Listener
	var err error
	if !eventually(time.Minute, func() bool { l, err = net.Listen("tcp", s.addr); return err == nil }) {
		s.Errorf("listen: %v", err)
		return
	}
	s.addr = l.Addr().String()
	tools := mcp.NewServer(&mcp.Implementation{Name: "fake", Version: "1"}, nil)
	mcp.AddTool(tools, &mcp.Tool{Name: "work"}, func(ctx context.Context, _ *mcp.CallToolRequest, in struct {
		ID string `json:"id"`
		MS int    `json:"ms,omitempty"`
	}) (*mcp.CallToolResult, any, error) {
		if s.work != nil {
			if err := s.work(ctx, in.ID); err != nil {
				return nil, nil, err
			}
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.ID}}}, nil, nil
	})
	var gate sync.Mutex
	var shut bool
	var handling sync.WaitGroup
	s.clean = func() {
		gate.Lock()
		shut = true
		gate.Unlock()
		handling.Wait() // one that is ending may still begin a session
		for session := range tools.Sessions() {
			session.Close()
		}
	}
	sessions := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return tools }, nil)
	stateless := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return tools }, &mcp.StreamableHTTPOptions{Stateless: true})
	s.http = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		gate.Lock()
		if shut {
			gate.Unlock()
			panic(http.ErrAbortHandler)
		}
		handling.Add(1)
		gate.Unlock()
		defer handling.Done()
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		req.Body = io.NopCloser(strings.NewReader(string(body)))
		if strings.Contains(string(body), `"tools/call"`) {
			s.reached.Add(1)
			if trouble := s.trouble.Load(); trouble != nil && (*trouble)(w, req) {
				return
			}
		}
		if strings.Contains(string(body), "2026-07-28") || req.Header.Get("Mcp-Protocol-Version") == "2026-07-28" {
			stateless.ServeHTTP(w, req)
			return
		}
		sessions.ServeHTTP(w, req)
	})}
	go s.http.Serve(l)
}

func (s *site) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.http.Close()
	go s.clean()
}

func (s *site) restart() {
	s.kill()
	s.start()
}

func (s *site) url() string { return "http://" + s.addr }

func work(ctx context.Context, h host, id string) (reply, error) {
	return h.Call(ctx, "work", map[string]any{"id": id})
}

// N33: a server that was restarted costs no call.
func TestRestarted(t *testing.T) {
	each(t, func(t *testing.T, adapter, version string) {
		set, seen := newSet(t, guarded)
		s := newSite(t)
		h := open(t, adapter, set, server{url: s.url()}, version)
		for range 3 {
			r, err := work(t.Context(), h, "a")
			require.NoError(t, err)
			require.Equal(t, "a", r.text)
			s.restart()
			h.Sees(0)
		}
		n, kinds := seen.of("work")
		require.Equal(t, 3, n)
		require.NotContains(t, kinds, "unavailable")
		t.Logf("restarted twice between calls: %d calls, %d requests, none lost", n, s.reached.Load())
	})
}

// What answers cost: calls that reached the server in ten, what the model reads, and how soon it is
// back.
func TestTroubleOverHTTP(t *testing.T) {
	status := func(code int, header ...string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			http.Error(w, "trouble", code)
			return true
		}
	}
	aborts := func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	for name, tt := range map[string]struct {
		trouble func(http.ResponseWriter, *http.Request) bool
		reached int64  // in ten calls, at most
		reads   string // when it is blocked, "" if it never is
	}{
		"400":                 {status(400), 20, ""}, // each once more on another session
		"401":                 {status(401), 10, ""},
		"403":                 {status(403), 10, ""},
		"404":                 {status(404), 10, "unreachable"},
		"429, Retry-After 1":  {status(429, "Retry-After", "1"), 1, "rate of calls"},
		"500":                 {status(500), 3, "unreachable"},
		"503, Retry-After 1":  {status(503, "Retry-After", "1"), 3, "unreachable"},
		"response broken off": {aborts, 3, "unreachable"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, adapter, version string) {
				set, _ := newSet(t, strings.Replace(guarded, `"30s"`, `"1s"`, 1))
				s := newSite(t)
				h := open(t, adapter, set, server{url: s.url()}, version)
				_, err := work(t.Context(), h, "a")
				require.NoError(t, err)
				before := s.reached.Load()
				s.trouble.Store(&tt.trouble)
				read := ""
				start := time.Now()
				for range 10 {
					r, err := work(t.Context(), h, "b")
					if err == nil {
						b, ok := r.blocked()
						require.True(t, ok, r.text)
						require.False(t, *b.Executed)
						read = b.Message
					}
				}
				reached, more := s.reached.Load()-before, int64(time.Since(start).Seconds()) // probes, on a busy machine
				s.trouble.Store(nil)
				start = time.Now()
				require.True(t, eventually(time.Minute, func() bool {
					r, err := work(t.Context(), h, "c")
					return err == nil && r.text == "c"
				}))
				back := time.Since(start)
				t.Logf("%s: %d of 10 calls reached the server; back after %v; read: %s", name, reached, back.Round(time.Millisecond), read)
				if version == versions[1] && (name == "400" || name == "404") { // no session: it is the call's own
					require.EqualValues(t, 10, reached)
					require.Empty(t, read)
					return
				}
				require.LessOrEqual(t, reached, tt.reached+more)
				require.Less(t, back, 5*time.Second)
				if tt.reads == "" {
					require.Empty(t, read)
				} else {
					require.Contains(t, read, tt.reads)
				}
			})
		})
	}
}

// An error of authorization is the caller's, and its siblings under way are not touched by it where
// the SDK lets them be.
func TestSiblingsOfATroubledCall(t *testing.T) {
	for _, code := range []int{400, 404, 410} {
		each(t, func(t *testing.T, adapter, version string) {
			set, seen := newSet(t, guarded)
			s := newSite(t)
			entered, leave := make(chan struct{}), make(chan struct{})
			s.work = func(_ context.Context, id string) error {
				if id == "sibling" {
					close(entered)
					<-leave
				}
				return nil
			}
			h := open(t, adapter, set, server{url: s.url()}, version)
			done := make(chan error, 1)
			go func() {
				r, err := work(t.Context(), h, "sibling")
				if err == nil && r.text != "sibling" {
					t.Errorf("got %q", r.text)
				}
				done <- err
			}()
			<-entered
			trouble := func(w http.ResponseWriter, _ *http.Request) bool {
				http.Error(w, "trouble", code)
				return true
			}
			s.trouble.Store(&trouble)
			_, _ = work(t.Context(), h, "troubled")
			s.trouble.Store(nil)
			close(leave)
			require.NoError(t, <-done, "it ran and was answered")
			n, _ := seen.of("work")
			require.Equal(t, 2, n)
		})
	}
}
