package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

const threshold = 3

// rig is a client of one host.
type rig struct {
	t      *testing.T
	now    *clock.Mock
	set    *toolset.Set
	client *http.Client
	calls  chan toolcircuit.Call
}

func newRig(t *testing.T, handler http.HandlerFunc) *rig {
	r := &rig{t: t, now: clock.NewMock(), calls: make(chan toolcircuit.Call, 100)}
	var err error
	r.set, err = toolset.New(toolset.Config{
		Monitored: []string{"*"},
		Default:   &toolcircuit.Policy{FailureThreshold: threshold, CallTimeout: 10 * time.Second},
	}, toolset.Options{Clock: r.now, OnCall: func(_ context.Context, c toolcircuit.Call) { r.calls <- c }})
	require.NoError(t, err)
	servers := newHosts(map[string]http.HandlerFunc{"api": handler})
	t.Cleanup(servers.close)
	r.client = &http.Client{Transport: transport{r.set, toolcircuit.Transport(servers.transport())}}
	t.Cleanup(r.client.CloseIdleConnections)
	return r
}

func (r *rig) get(ctx context.Context) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api/", nil)
	require.NoError(r.t, err)
	return r.client.Do(req)
}

func (r *rig) inFlight() int { return r.set.Snapshot().Circuits[0].InFlight }

// A turn of calls at once against a dead host: each has one result, and few reach the host.
func TestBurst(t *testing.T) {
	const inFlight = 4
	var hits atomic.Int32
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	var answered, refused atomic.Int32
	var turn sync.WaitGroup
	for range inFlight {
		turn.Go(func() {
			for range 10 {
				resp, err := r.get(t.Context())
				switch {
				case errors.Is(err, toolcircuit.ErrCircuitOpen):
					refused.Add(1)
				case err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusServiceUnavailable:
					answered.Add(1)
				}
			}
		})
	}
	turn.Wait()
	require.EqualValues(t, 10*inFlight, answered.Load()+refused.Load())
	require.Equal(t, hits.Load(), answered.Load())
	require.LessOrEqual(t, hits.Load(), int32(threshold+inFlight-1))
	require.Zero(t, r.inFlight())
}

// A host that does not answer, before the header or before the body, is left at CallTimeout.
func TestHang(t *testing.T) {
	for name, header := range map[string]bool{"no header": false, "no body": true} {
		t.Run(name, func(t *testing.T) {
			hangs := make(chan struct{})
			r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
				if header {
					w.(http.Flusher).Flush()
				}
				close(hangs)
				<-req.Context().Done()
			})
			got := make(chan struct{})
			if !header {
				close(got)
			}
			go func() {
				<-hangs
				<-got
				r.now.Add(10 * time.Second)
			}()
			resp, err := r.get(t.Context())
			if header {
				require.NoError(t, err)
				close(got)
				_, err = io.ReadAll(resp.Body)
				require.NoError(t, resp.Body.Close())
			}
			require.ErrorIs(t, err, toolcircuit.ErrCallTimeout)
			require.Equal(t, toolcircuit.KindTimeout, (<-r.calls).Verdict.Kind)
			require.Zero(t, r.inFlight())
		})
	}
}

// A body that flows may take longer than CallTimeout; the call is over when it is.
func TestStream(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(http.ResponseWriter)
		kind toolcircuit.Kind
	}{
		"read to the end": {func(w http.ResponseWriter) {}, toolcircuit.KindOK},
		"broken off":      {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, toolcircuit.KindUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			goOn := make(chan struct{})
			r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, "first,")
				w.(http.Flusher).Flush()
				<-goOn
				io.WriteString(w, "second")
				w.(http.Flusher).Flush()
				test.end(w)
			})
			resp, err := r.get(t.Context())
			require.NoError(t, err)
			defer resp.Body.Close()
			_, err = io.ReadFull(resp.Body, make([]byte, len("first,")))
			require.NoError(t, err)
			r.now.Add(time.Minute)
			require.Empty(t, r.calls)
			require.Equal(t, 1, r.inFlight())
			close(goOn)
			rest, err := io.ReadAll(resp.Body)
			require.Equal(t, "second", string(rest))
			require.Equal(t, test.kind == toolcircuit.KindOK, err == nil)
			require.Equal(t, test.kind, (<-r.calls).Verdict.Kind)
			require.Zero(t, r.inFlight())
		})
	}
}

// A reader that has enough, or that walks away, does the host no wrong.
func TestReaderLeaves(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		io.WriteString(w, "first")
		w.(http.Flusher).Flush()
		<-req.Context().Done()
	})
	resp, err := r.get(t.Context())
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, toolcircuit.KindOK, (<-r.calls).Verdict.Kind)

	ctx, cancel := context.WithCancel(t.Context())
	resp, err = r.get(ctx)
	require.NoError(t, err)
	cancel()
	_, err = io.ReadAll(resp.Body)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, toolcircuit.KindCanceled, (<-r.calls).Verdict.Kind)
	require.Zero(t, r.inFlight())
}

// An answer without a body is over at once, however late its reader closes it.
func TestNoBody(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	resp, err := r.get(t.Context())
	require.NoError(t, err)
	require.Equal(t, toolcircuit.KindOK, (<-r.calls).Verdict.Kind)
	r.now.Add(time.Minute)
	require.NoError(t, resp.Body.Close())
	require.Zero(t, r.inFlight())
}

// A panic of the transport inside passes, counts, and leaves nothing in flight. A host that hangs up
// counts.
func TestNoAnswer(t *testing.T) {
	r := newRig(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err := r.get(t.Context())
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, toolcircuit.KindUnavailable, (<-r.calls).Verdict.Kind)

	r.client.Transport = transport{r.set, panicking{}}
	require.PanicsWithValue(t, "out of order", func() { r.get(t.Context()) })
	require.Equal(t, toolcircuit.KindPanic, (<-r.calls).Verdict.Kind)
	require.Zero(t, r.inFlight())
}

type panicking struct{}

func (panicking) RoundTrip(*http.Request) (*http.Response, error) { panic("out of order") }

// The body of a failure can still be read, and that of a refused request is closed.
func TestBodies(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
		w.(http.Flusher).Flush()
		io.WriteString(w, "slow down")
	})
	resp, err := r.get(t.Context())
	require.NoError(t, err)
	require.Equal(t, toolcircuit.KindRateLimited, (<-r.calls).Verdict.Kind)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "slow down", string(text))
	require.NoError(t, resp.Body.Close())

	sent := &closer{Reader: strings.NewReader("data")}
	_, err = r.client.Post("http://api/", "text/plain", sent)
	var refusal *toolcircuit.OpenError
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, time.Minute, refusal.RetryAfter())
	require.True(t, sent.closed)
}

type closer struct {
	io.Reader
	closed bool
}

func (c *closer) Close() error {
	c.closed = true
	return nil
}
