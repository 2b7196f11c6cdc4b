package mcpcircuit_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/mcpcircuit"
)

// valve is the end of a pipe that stops being read.
type valve struct {
	net.Conn
	mu   sync.Mutex
	open chan struct{} // closed while it is read
}

func (v *valve) shut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open = make(chan struct{})
}

func (v *valve) Read(p []byte) (int, error) {
	n, err := v.Conn.Read(p)
	v.mu.Lock()
	open := v.open
	v.mu.Unlock()
	<-open
	return n, err
}

// N37: a server that has stopped reading holds a call up no longer than its CallTimeout, and its
// siblings neither. What waited for others was not sent.
func TestN37FullPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := newReal(t, strings.Replace(everything, `"1m"`, `"1m", "callTimeout": "1s"`, 1))
		s, tools := newServer("files", "read", "write")
		near, far := net.Pipe()
		v := &valve{Conn: far, open: make(chan struct{})}
		close(v.open)
		_, err := s.Connect(t.Context(), &mcp.IOTransport{Reader: v, Writer: far}, nil)
		require.NoError(t, err)
		guard := mcpcircuit.New(set, mcpcircuit.Options{})
		defer guard.Close()
		c := plainClient()
		guard.Client(c)
		session, err := c.Connect(t.Context(), mcpcircuit.Stdio(&mcp.IOTransport{Reader: near, Writer: near}), &mcp.ClientSessionOptions{ProtocolVersion: legacy})
		require.NoError(t, err)
		healthy(t, session, "read")
		time.Sleep(time.Second) // for the server to go back to reading

		v.shut()
		start := time.Now()
		var calls sync.WaitGroup
		for _, name := range []string{"read", "read", "write"} {
			calls.Go(func() {
				_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: in{strings.Repeat("x", 1<<20)}})
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
			time.Sleep(time.Millisecond)
		}
		calls.Wait()
		require.Equal(t, time.Second+2*time.Millisecond, time.Since(start))
		synctest.Wait()
		require.Equal(t, toolcircuit.KindTimeout, set.Circuit(t.Context(), "mcp:files").Snapshot().Cause)
		require.Equal(t, 1, set.Circuit(t.Context(), "read").Snapshot().Streak, "one was being sent, the other was not")
		require.Zero(t, set.Circuit(t.Context(), "write").Snapshot().Streak)
		require.Equal(t, "mcp:files", blocked(t, session, "write").Dependency)

		close(v.open)
		synctest.Wait()
		require.Zero(t, tools["write"].calls.Load())
		far.Close()
		session.Close()
	})
}
