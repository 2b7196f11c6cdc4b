package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit/debugpage"
	"github.com/toolcircuit/toolcircuit/toolset"
)

func TestRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	require.NoError(t, run(ctx, "127.0.0.1:0"))
	require.Error(t, run(ctx, "127.0.0.1:-1"))
}

// The config guards the tools that the program calls.
func TestConfig(t *testing.T) {
	require.Len(t, dependencies, 10)
	c := config()
	for _, d := range dependencies {
		for _, tool := range d.tools {
			require.Equal(t, d.name, c.Tools[tool].Dependency)
		}
	}
}

// Shutdown does not wait for viewers, and may be called again.
func TestShutdown(t *testing.T) {
	set, err := toolset.New(config(), toolset.Options{})
	require.NoError(t, err)
	server := newServer(set, new(debugpage.History))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go server.Serve(listener)
	viewer, err := http.Get(fmt.Sprint("http://", listener.Addr(), prefix, "events"))
	require.NoError(t, err)
	defer viewer.Body.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for range 2 {
		require.NoError(t, server.Shutdown(ctx))
	}
	_, err = io.ReadAll(viewer.Body)
	require.NoError(t, err, "the stream has ended well")
}

// Only names of loopback reach the page.
func TestHost(t *testing.T) {
	set, err := toolset.New(config(), toolset.Options{})
	require.NoError(t, err)
	page := newServer(set, new(debugpage.History)).Handler
	for host, want := range map[string]int{
		"127.0.0.1": 200, "127.0.0.1:8080": 200, "localhost": 200, "localhost:8080": 200, "[::1]:8080": 200, "[::1]": 200,
		"evil.example": 421, "evil.example:8080": 421, "localhost.evil.example": 421, "192.0.2.1:8080": 421, "": 421,
	} {
		r := httptest.NewRequest(http.MethodGet, prefix+"circuits", nil)
		r.Host = host
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		require.Equal(t, want, w.Code, host)
	}
}
