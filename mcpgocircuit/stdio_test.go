package mcpgocircuit_test

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/mcpgocircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// scripts are servers that a Conn starts, and all commands that it was given.
type scripts struct {
	*mcpgocircuit.Stdio
	mu   sync.Mutex
	cmds []*exec.Cmd
}

// newScripts returns a connection whose processes run one script after the other, and the last of
// them again and again.
func newScripts(t *testing.T, run ...string) *scripts {
	s := new(scripts)
	guard := mcpgocircuit.New(newRig(t, "", toolset.Options{}).Set, mcpgocircuit.Options{})
	t.Cleanup(guard.Close)
	s.Stdio = guard.Stdio("fake", func() (*exec.Cmd, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		cmd := exec.Command("sh", "-c", run[min(len(s.cmds), len(run)-1)])
		s.cmds = append(s.cmds, cmd)
		return cmd, nil
	})
	return s
}

// ended requires that every process that was started has been waited for.
func (s *scripts) ended(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cmd := range s.cmds {
		if cmd.Process != nil {
			require.NotNil(t, cmd.ProcessState, cmd)
		}
	}
}

// eventually polls the real clock: a real process and its goroutines know no other.
func eventually(t *testing.T, within time.Duration, done func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			t.Fatalf("not within %v:\n%s", within, buf[:runtime.Stack(buf, true)])
		}
	}
}

// over reports whether the process has ended and was waited for.
func over(cmd *exec.Cmd) bool { return cmd.Process.Signal(syscall.Signal(0)) != nil }

// Whatever a process does, Close leaves neither it nor a goroutine.
func TestCloseEndsTheProcess(t *testing.T) {
	for name, tt := range map[string]struct {
		script string
		before func(*exec.Cmd)
		within time.Duration // on a busy machine
	}{
		"ends with its input":       {`cat >/dev/null`, nil, 2 * time.Second},
		"has ended":                 {`exit 3`, func(cmd *exec.Cmd) { eventually(t, 5*time.Second, func() bool { return over(cmd) }) }, 2 * time.Second},
		"is ending":                 {`exec sleep 60`, func(cmd *exec.Cmd) { cmd.Process.Kill() }, 2 * time.Second},
		"has a child with its pipe": {`sleep 5 & exit`, nil, 2 * time.Second},
		"writes to the end":         {`yes '{"jsonrpc":"2.0","method":"x"}' & cat >/dev/null; kill $!`, nil, 2 * time.Second},
		"ends by SIGTERM":           {`exec sleep 60`, nil, 4 * time.Second},
		"ignores SIGTERM":           {`trap "" TERM; exec sleep 60`, nil, 6 * time.Second},
		"is stopped":                {`exec cat`, func(cmd *exec.Cmd) { cmd.Process.Signal(syscall.SIGSTOP) }, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			s := newScripts(t, tt.script)
			require.NoError(t, s.Start(t.Context()))
			if tt.before != nil {
				tt.before(s.cmds[0])
			}
			start := time.Now()
			require.NoError(t, s.Close())
			require.Less(t, time.Since(start), tt.within)
			s.ended(t)
			require.NoError(t, s.Close(), "again")
			eventually(t, 5*time.Second, func() bool { return runtime.NumGoroutine() <= before+1 }) // the announcer's
		})
	}
}

// A process may die, and another take its place, at any moment of Close.
func TestCloseBesideRenewal(t *testing.T) {
	for range 100 {
		s := newScripts(t, `read line; exit`)
		require.NoError(t, s.Start(t.Context()))
		var load sync.WaitGroup
		for id := range 3 {
			load.Go(func() {
				for range 3 {
					s.SendRequest(t.Context(), transport.JSONRPCRequest{JSONRPC: "2.0", ID: mcp.NewRequestId(int64(id)), Method: "x"})
				}
			})
		}
		s.Close()
		s.ended(t)
		load.Wait()
		s.ended(t)
	}
}

// A request that comes when the process is known to have ended, however early, goes out on another.
func TestEndedBeforeItsFirstRequest(t *testing.T) {
	for range 20 {
		s := newScripts(t, `exit`, `while read line; do echo '{"jsonrpc":"2.0","id":1,"result":{}}'; done`)
		require.NoError(t, s.Start(t.Context()))
		pid := s.cmds[0].Process.Pid
		eventually(t, time.Minute, func() bool { return syscall.Kill(pid, 0) != nil })
		res, err := s.SendRequest(t.Context(), transport.JSONRPCRequest{JSONRPC: "2.0", ID: mcp.NewRequestId(int64(1)), Method: "x"})
		require.NoError(t, err)
		require.Equal(t, "{}", string(res.Result))
		require.NoError(t, s.Close())
		s.ended(t)
	}
}

// A connection that was closed starts nothing.
func TestCloseBeforeStart(t *testing.T) {
	s := newScripts(t, `cat`)
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Start(t.Context()), transport.ErrTransportClosed)
	for _, cmd := range s.cmds {
		require.Nil(t, cmd.Process)
	}
}

// Calls to a server that reads no more time out by name, also those whose turn to be written never
// came.
func TestTimeoutOfStuckCalls(t *testing.T) {
	const calls = 6
	r := newRig(t, `{"default":{"failureThreshold":9,"callTimeout":"1s"}}`, toolset.Options{})
	guard := mcpgocircuit.New(r.Set, mcpgocircuit.Options{})
	defer guard.Close()
	var cmd *exec.Cmd
	conn := guard.Stdio("fake", func() (*exec.Cmd, error) {
		cmd = exec.Command("sh", "-c", `read line
			echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"`+mcp.LATEST_LEGACY_PROTOCOL_VERSION+`","capabilities":{},"serverInfo":{"name":"fake","version":"1"}}}'
			read line; exec sleep 60`)
		return cmd, nil
	})
	c := client.NewClient(conn)
	defer c.Close()
	defer func() { cmd.Process.Kill() }()
	require.NoError(t, start(t.Context(), c, mcp.LATEST_LEGACY_PROTOCOL_VERSION))
	big := request("search")
	big.Params.Arguments = strings.Repeat("x", 1<<18) // more than a pipe holds
	errs := make(chan error)
	for range calls {
		go func() {
			_, err := conn.Guard(c.CallTool)(t.Context(), big)
			errs <- err
		}()
	}
	eventually(t, time.Minute, func() bool {
		return slices.ContainsFunc(r.Set.Snapshot().Circuits, func(c toolset.CircuitSnapshot) bool { return c.Dependency == "search" && c.InFlight == calls })
	})
	r.clock.Add(time.Second)
	for range calls {
		err := <-errs
		var late *toolcircuit.CallTimeoutError
		require.ErrorAs(t, err, &late)
		require.Equal(t, "search", late.Dependency)
		require.ErrorContains(t, err, "search did not answer within 1s")
	}
}

// A call that was not sent in time says whose time was over: its own, also if its caller leaves then,
// or that of a call around it.
func TestTimeoutBeforeSending(t *testing.T) {
	r := newRig(t, `{"default":{"callTimeout":"2s"},"dependencies":{"search":{"policy":{"callTimeout":"1s"}}}}`, toolset.Options{})
	guard := mcpgocircuit.New(r.Set, mcpgocircuit.Options{})
	defer guard.Close()
	conn := guard.Stdio("fake", func() (*exec.Cmd, error) { return exec.Command("cat"), nil })
	require.NoError(t, conn.Start(t.Context()))
	defer conn.Close()
	ctx, leave := context.WithCancel(t.Context())
	call := conn.Guard(func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r.clock.Add(time.Second)
		if req.Params.Name == "fetch" {
			r.clock.Add(500 * time.Millisecond)
		}
		<-ctx.Done()
		leave()
		return nil, ctx.Err()
	})
	var late *toolcircuit.CallTimeoutError
	_, err := call(ctx, request("search"))
	require.ErrorAs(t, err, &late)
	require.Equal(t, "search", late.Dependency)

	_, _ = toolset.Do(t.Context(), r.Set, "around", nil, func(ctx context.Context) (*mcp.CallToolResult, error) {
		r.clock.Add(500 * time.Millisecond)
		_, err := call(ctx, request("fetch"))
		require.Error(t, err)
		require.False(t, errors.As(err, &late), err)
		return nil, err
	})
	require.Equal(t, "search", late.Dependency)
}
