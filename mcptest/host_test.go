// Package mcptest tests both adapters for the Model Context Protocol with one table: against
// servers made for it and, where npm is there, against published servers and the official client.
package mcptest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	mcpgo "github.com/mark3labs/mcp-go/mcp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/mcpcircuit"
	"github.com/toolcircuit/toolcircuit/mcpgocircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// The versions of the protocol that both SDKs speak: with sessions, and without.
var versions = []string{"2025-11-25", "2026-07-28"}

// reply is what a host gets for a call.
type reply struct {
	text    string
	isError bool
	raw     string // the whole result as JSON, without _meta
}

// blocked returns what a model reads of a refused call, false if it was not refused.
func (r reply) blocked() (b toolcircuit.Result[any], ok bool) {
	err := json.Unmarshal([]byte(r.text), &b)
	return b, r.isError && err == nil && b.Status == toolcircuit.StatusBlocked
}

// host is a client of one server, with a guard if it has a Set.
type host interface {
	Call(ctx context.Context, tool string, args map[string]any) (reply, error)
	List(ctx context.Context) ([]string, error)
	// Sees waits until the host has seen the end of a server, of the process with that id if it
	// is one.
	Sees(pid int)
	Close()
}

// server is what a host connects to: a process to start, or a URL.
type server struct {
	command func() *exec.Cmd
	url     string
}

// adapters make hosts. A nil set means no guard.
var adapters = map[string]func(ctx context.Context, set *toolset.Set, s server, version string) (host, error){
	"go-sdk": newGoSDK,
	"mcp-go": newMCPGo,
}

// each runs a test for both adapters and both versions.
func each(t *testing.T, test func(t *testing.T, adapter, version string)) {
	for adapter := range adapters {
		for _, version := range versions {
			t.Run(adapter+" "+version, func(t *testing.T) { test(t, adapter, version) })
		}
	}
}

// open connects a host, which ends with the test.
func open(t *testing.T, adapter string, set *toolset.Set, s server, version string) host {
	t.Helper()
	h, err := adapters[adapter](t.Context(), set, s, version)
	require.NoError(t, err)
	t.Cleanup(h.Close)
	return h
}

type goSDK struct {
	guard   *mcpcircuit.Guard
	session *mcp.ClientSession
	last    atomic.Pointer[mcp.ClientSession] // that took its place
	pool    *http.Transport
}

func newGoSDK(ctx context.Context, set *toolset.Set, s server, version string) (host, error) {
	h := &goSDK{pool: &http.Transport{}}
	c := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil)
	connect := func(ctx context.Context) (*mcp.ClientSession, error) {
		var t mcp.Transport = &mcp.StreamableClientTransport{
			Endpoint:             s.url,
			HTTPClient:           &http.Client{Transport: mcpcircuit.Transport(h.pool)},
			DisableStandaloneSSE: true,
		}
		if s.command != nil {
			t = mcpcircuit.Stdio(&mcp.CommandTransport{Command: s.command(), TerminateDuration: time.Second})
		}
		session, err := c.Connect(ctx, t, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err == nil {
			h.last.Store(session)
		}
		return session, err
	}
	if set != nil {
		h.guard = mcpcircuit.New(set, mcpcircuit.Options{
			Server: func(*mcp.ClientSession) string { return "fake" },
			Reconnect: func(ctx context.Context, _ *mcp.ClientSession) (*mcp.ClientSession, error) {
				return connect(ctx)
			},
		})
		h.guard.Client(c)
	}
	var err error
	h.session, err = connect(ctx)
	return h, err
}

func (h *goSDK) Call(ctx context.Context, tool string, args map[string]any) (reply, error) {
	res, err := h.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return reply{}, err
	}
	r := reply{isError: res.IsError}
	if len(res.Content) > 0 {
		if text, ok := res.Content[0].(*mcp.TextContent); ok {
			r.text = text.Text
		}
	}
	res.Meta = nil
	raw, err := json.Marshal(res)
	r.raw = string(raw)
	return r, err
}

func (h *goSDK) List(ctx context.Context) (names []string, err error) {
	for tool, err := range h.session.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		names = append(names, tool.Name)
	}
	return names, nil
}

func (h *goSDK) Sees(pid int) {
	if pid > 0 {
		h.last.Load().Wait()
	}
	h.pool.CloseIdleConnections()
}

func (h *goSDK) Close() {
	if h.guard != nil {
		h.guard.Close()
	}
	h.session.Close()
	h.pool.CloseIdleConnections()
}

type mcpGo struct {
	guard *mcpgocircuit.Guard
	c     *client.Client
	call  func(context.Context, mcpgo.CallToolRequest) (*mcpgo.CallToolResult, error)
	pool  *http.Transport
}

func newMCPGo(ctx context.Context, set *toolset.Set, s server, version string) (host, error) {
	h := &mcpGo{pool: &http.Transport{}}
	dial := func() (transport.Interface, error) {
		return transport.NewStreamableHTTP(s.url, transport.WithHTTPBasicClient(&http.Client{Transport: mcpgocircuit.Transport(h.pool)}))
	}
	switch {
	case set == nil && s.command != nil:
		cmd := s.command()
		h.c = client.NewClient(transport.NewStdio(cmd.Path, cmd.Env, cmd.Args[1:]...))
	case set == nil:
		t, err := dial()
		if err != nil {
			return nil, err
		}
		h.c = client.NewClient(t)
	case s.command != nil:
		h.guard = mcpgocircuit.New(set, mcpgocircuit.Options{})
		conn := h.guard.Stdio("fake", func() (*exec.Cmd, error) { return s.command(), nil })
		h.c = client.NewClient(conn)
		h.call = conn.Guard(h.c.CallTool)
	default:
		h.guard = mcpgocircuit.New(set, mcpgocircuit.Options{})
		conn := h.guard.HTTP("fake", dial)
		h.c = client.NewClient(conn)
		h.call = conn.Guard(h.c.CallTool)
	}
	if h.call == nil {
		h.call = h.c.CallTool
	}
	if err := h.c.Start(context.WithoutCancel(ctx)); err != nil {
		return h, err
	}
	_, err := h.c.Initialize(ctx, mcpgo.InitializeRequest{Params: mcpgo.InitializeParams{
		ProtocolVersion: version, ClientInfo: mcpgo.Implementation{Name: "host", Version: "1"},
	}})
	return h, err
}

func (h *mcpGo) Call(ctx context.Context, tool string, args map[string]any) (reply, error) {
	res, err := h.call(ctx, mcpgo.CallToolRequest{Params: mcpgo.CallToolParams{Name: tool, Arguments: args}})
	if err != nil {
		return reply{}, err
	}
	r := reply{isError: res.IsError}
	if len(res.Content) > 0 {
		if text, ok := mcpgo.AsTextContent(res.Content[0]); ok {
			r.text = text.Text
		}
	}
	res.Meta = nil
	raw, err := json.Marshal(res)
	r.raw = string(raw)
	return r, err
}

func (h *mcpGo) List(ctx context.Context) (names []string, err error) {
	all, err := h.c.ListTools(ctx, mcpgo.ListToolsRequest{})
	if err != nil {
		return nil, err
	}
	for _, tool := range all.Tools {
		names = append(names, tool.Name)
	}
	return names, nil
}

func (h *mcpGo) Sees(pid int) {
	if pid > 0 { // which it waits for
		eventually(time.Minute, func() bool { return !isChild(pid) })
	}
	h.pool.CloseIdleConnections()
}

func (h *mcpGo) Close() {
	if h.guard != nil {
		h.guard.Close()
	}
	h.c.Close()
	h.pool.CloseIdleConnections()
}

// newSet returns a Set that guards everything under a policy, and what its calls met.
func newSet(t *testing.T, config string) (*toolset.Set, *calls) {
	t.Helper()
	c, err := toolset.Load(strings.NewReader(config))
	require.NoError(t, err)
	seen := &calls{}
	set, err := toolset.New(c, toolset.Options{OnCall: seen.add})
	require.NoError(t, err)
	return set, seen
}

// calls counts what calls met, by dependency.
type calls struct {
	mu       sync.Mutex
	executed map[string]int
	kinds    map[string][]toolcircuit.Kind
}

func (c *calls) add(_ context.Context, call toolcircuit.Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.executed == nil {
		c.executed, c.kinds = map[string]int{}, map[string][]toolcircuit.Kind{}
	}
	if call.Executed {
		c.executed[call.Dependency]++
	}
	c.kinds[call.Dependency] = append(c.kinds[call.Dependency], call.Verdict.Kind)
}

func (c *calls) of(dependency string) (executed int, kinds []toolcircuit.Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.executed[dependency], append([]toolcircuit.Kind(nil), c.kinds[dependency]...)
}

// processes are the servers that a command has started.
type processes struct {
	*testing.T
	argv []string
	fail func() bool // whether the next cannot be started; nil: never

	mu   sync.Mutex
	n    int
	pids []int
	told chan struct{} // closed when the id of the last is known
}

// command returns a command that tells its process id before it becomes the server: the SDK that
// starts it does not.
func (p *processes) command() *exec.Cmd {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	if p.fail != nil && p.fail() {
		return exec.Command(p.argv[0] + " is not there")
	}
	path := filepath.Join(p.TempDir(), "pid")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		p.Error(err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR, 0) // which does not wait for the other end
	if err != nil {
		p.Error(err)
	}
	told := make(chan struct{})
	p.told = told
	go func() {
		defer close(told)
		defer pipe.Close()
		_ = pipe.SetReadDeadline(time.Now().Add(10 * time.Second))
		var pid int
		if _, err := fmt.Fscanln(pipe, &pid); err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.pids = append(p.pids, pid)
		}
	}()
	return exec.Command("sh", append([]string{"-c", `echo $$ >"$0"; exec "$@"`, path}, p.argv...)...)
}

// signal sends a signal to the last process that was started, which may be over, and returns its id.
func (p *processes) signal(s syscall.Signal) (pid int) {
	p.mu.Lock()
	told := p.told
	p.mu.Unlock()
	<-told
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pids) == 0 {
		return 0
	}
	pid = p.pids[len(p.pids)-1]
	if isChild(pid) {
		_ = syscall.Kill(pid, s)
	}
	return pid
}

// kill kills the last process, and waits until the host has seen it.
func (p *processes) kill(h host) { h.Sees(p.signal(syscall.SIGKILL)) }

// ended requires that all processes have ended, and were waited for.
func (p *processes) ended() {
	p.mu.Lock()
	pids := slices.Clone(p.pids)
	p.mu.Unlock()
	if !eventually(20*time.Second, func() bool { return !slices.ContainsFunc(pids, isChild) }) {
		p.Error("a process was left behind")
	}
}

// isChild reports whether a process is one of this one's children, or was and is not waited for.
func isChild(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH)
	}
	var state string
	var parent int
	_, after, _ := strings.Cut(string(text), ") ")
	_, _ = fmt.Sscan(after, &state, &parent)
	return parent == os.Getpid()
}

func (p *processes) started() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// fakeServer returns the path of the server made for these tests, which is built once.
var fakeServer = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "mcptest")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "fakeserver")
	out, err := exec.Command("go", "build", "-o", path, "./fakeserver").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := fakeServer(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// newFake returns the server, and the file of what it has executed.
func newFake(t *testing.T) (p *processes, log string) {
	t.Helper()
	path, err := fakeServer()
	require.NoError(t, err)
	log = filepath.Join(t.TempDir(), "log")
	return &processes{T: t, argv: []string{path, log}}, log
}

// executed counts the lines of a log.
func executed(t *testing.T, log string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(log)
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(t, err)
	}
	times := map[string]int{}
	for line := range strings.Lines(string(text)) {
		times[strings.TrimSpace(line)]++
	}
	return times
}

// settled requires that no more goroutines run than before, after what ends by itself has ended.
func settled(t *testing.T, before int) {
	t.Helper()
	if !eventually(20*time.Second, func() bool { return runtime.NumGoroutine() <= before }) {
		buf := make([]byte, 1<<20)
		t.Fatalf("%d goroutines, want %d:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
	}
}

func eventually(within time.Duration, done func() bool) bool {
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if done() {
			return true
		}
	}
	return done()
}
