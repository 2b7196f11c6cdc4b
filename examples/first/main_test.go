package main

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

// flaky is a tool that fails while it is down, and counts its calls.
type flaky struct {
	down  bool
	calls int
}

func (f *flaky) search(context.Context, string) (string, error) {
	f.calls++
	if f.down {
		return "", &toolcircuit.HTTPError{StatusCode: 503}
	}
	return "three results", nil
}

// With a mock clock nothing waits.
func TestToolWithMockClock(t *testing.T) {
	mock, tool := clock.NewMock(), &flaky{down: true}
	circuit := toolcircuit.MustNew("search-api", toolcircuit.Options{Clock: mock})
	search := toolcircuit.Wrap(circuit, tool.search)
	for range 9 {
		search(t.Context(), "Go 1.26")
	}
	require.Equal(t, 5, tool.calls) // the other four were refused

	tool.down = false
	mock.Add(10 * time.Second) // the default Cooldown
	_, err := search(t.Context(), "Go 1.26")
	require.NoError(t, err)
	require.Equal(t, toolcircuit.StateClosed, circuit.State())
}

// In a bubble of testing/synctest the real clock is the bubble's, and so are CallTimeout and Wait.
func TestToolInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		circuit := toolcircuit.MustNew("search-api", toolcircuit.Options{
			Policy: toolcircuit.Policy{FailureThreshold: 1, CallTimeout: time.Second},
		})
		search := toolcircuit.Wrap(circuit, func(ctx context.Context, query string) (string, error) {
			<-ctx.Done() // hangs
			return "", ctx.Err()
		})
		search(t.Context(), "Go 1.26")
		_, err := search(t.Context(), "Go 1.26")
		require.ErrorIs(t, err, toolcircuit.ErrCircuitOpen)
		require.NoError(t, circuit.Wait(t.Context())) // takes no real time
	})
}

// The program prints three failures and one refusal.
func TestFirst(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	stdout := os.Stdout
	os.Stdout = w
	main() // prints less than a pipe holds
	os.Stdout = stdout
	require.NoError(t, w.Close())
	var read []toolcircuit.Status
	for lines := json.NewDecoder(r); lines.More(); {
		var result toolcircuit.Result[string]
		require.NoError(t, lines.Decode(&result))
		read = append(read, result.Status)
	}
	failed, blocked := toolcircuit.StatusFailed, toolcircuit.StatusBlocked
	require.Equal(t, []toolcircuit.Status{failed, failed, failed, blocked}, read)
}
