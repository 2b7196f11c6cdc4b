package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// What a response means for the delivery of its request, and what the SDK sees of it.
func TestResponses(t *testing.T) {
	rpc := func(code int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"error":{"code":%d,"message":"no"}}`, code)
	}
	for _, tt := range []struct {
		status  int
		body    string
		session bool
		kind    toolcircuit.Kind
		want    string // of Answered, Gone, Unsent, Doubtful
		sdk     int    // the status that it sees in a call
		ping    int    // and in a ping
	}{
		{400, "no", false, "invalid", "answered", 503, 503},
		{400, "no", true, "invalid", "answered doubtful", 503, 503},
		{400, rpc(-32000), true, "invalid", "answered doubtful", 503, 503},
		{400, rpc(-32602), true, "invalid", "answered", 400, 400},
		{400, rpc(-32601), true, "invalid", "answered", 400, 400},
		{400, rpc(-32000), false, "invalid", "answered", 400, 400},
		{401, "no", true, "unauthorized", "answered", 401, 503},
		{403, "no", true, "unauthorized", "answered", 403, 503},
		{404, "no", false, "not_found", "answered", 503, 503},
		{404, "no", true, "unavailable", "gone unsent", 503, 503},
		{404, rpc(-32001), true, "unavailable", "gone unsent", 503, 503},
		{405, "no", true, "invalid", "answered", 503, 503},
		{408, "no", true, "timeout", "", 503, 503},
		{410, "no", true, "not_found", "answered", 503, 503},
		{429, "no", true, "rate_limited", "", 429, 429},
		{500, "no", true, "unavailable", "", 500, 500},
		{501, "no", true, "invalid", "answered", 503, 503},
		{503, "no", true, "unavailable", "", 503, 503},
		{503, rpc(-32000), true, "unavailable", "answered", 503, 503},
		{529, "no", true, "unavailable", "", 503, 503},
	} {
		name := fmt.Sprint(tt.status, " ", tt.session, " ", tt.body)
		for _, shield := range []Shield{ShieldCall, ShieldPing} {
			h := &Hint{Shield: shield}
			ctx := WithHint(t.Context(), h)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost", nil)
			require.NoError(t, err)
			if tt.session {
				req.Header.Set("Mcp-Session-Id", "1")
			}
			resp, err := Transport(roundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: tt.status, Body: io.NopCloser(strings.NewReader(tt.body))}, nil
			}), true).RoundTrip(req)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, tt.body, string(body), "it can still be read")
			if shield == ShieldPing {
				require.Equal(t, tt.ping, resp.StatusCode, name)
				continue
			}
			require.Equal(t, tt.sdk, resp.StatusCode, name)
			r := h.Read(ctx, errors.New("no"), Signs{})
			var is []string
			for what, yes := range map[string]bool{"answered": r.Answered, "gone": r.Gone, "unsent": r.Unsent, "doubtful": r.Doubtful} {
				if yes {
					is = append(is, what)
				}
			}
			require.ElementsMatch(t, strings.Fields(tt.want), is, name)
			require.Equal(t, tt.kind, toolcircuit.Classify(t.Context(), toolcircuit.Outcome{Err: r.Err}).Kind, name)
		}
	}
}

// What is not a response to the request itself says nothing about whether it was executed.
func TestReadWithoutResponse(t *testing.T) {
	closed := errors.New("closed")
	for name, tt := range map[string]struct {
		prepare func(*Hint)
		signs   Signs
		want    Reading
	}{
		"closed before it was sent": {func(*Hint) {}, Signs{Closed: true, Unsent: true}, Reading{Err: Lost(closed), Gone: true, Unsent: true}},
		"closed when it was sent":   {(*Hint).Sent, Signs{Closed: true, Unsent: true}, Reading{Err: Lost(closed), Gone: true}},
		"end of the pipe":           {(*Hint).Sent, Signs{Closed: true}, Reading{Err: Lost(closed), Gone: true}},
		"answer":                    {(*Hint).Answered, Signs{}, Reading{Err: closed, Answered: true}},
		"rejected, nothing known":   {func(*Hint) {}, Signs{Rejected: true}, Reading{Err: Lost(closed)}},
		"somebody else's error":     {func(*Hint) {}, Signs{}, Reading{Err: closed}},
		"closed, over HTTP":         {func(*Hint) {}, Signs{HTTP: true, Closed: true, Unsent: true}, Reading{Err: Lost(closed), Gone: true, Unsent: true}},
		"no token":                  {func(*Hint) {}, Signs{HTTP: true, Rejected: true, Closed: true}, Reading{Err: Lost(closed), Barred: true}},
		"unknown, over HTTP":        {func(*Hint) {}, Signs{HTTP: true}, Reading{Err: closed, Barred: true}},
		"no connection":             {func(h *Hint) { post(h) }, Signs{}, Reading{Err: Lost(closed), Barred: true}},
		"cut off":                   {func(h *Hint) { _, _ = io.ReadAll(post(h)) }, Signs{}, Reading{Err: Lost(closed)}},
	} {
		t.Run(name, func(t *testing.T) {
			h := new(Hint)
			tt.prepare(h)
			require.Equal(t, tt.want, h.Read(t.Context(), closed, tt.signs))
		})
	}
}

// post notes an HTTP request, and returns the body that its transport reads.
func post(h *Hint) io.Reader {
	req, err := http.NewRequest(http.MethodPost, "http://localhost", strings.NewReader("call"))
	if err != nil {
		panic(err)
	}
	return h.request(req).Body
}

// What was read as not sent is not sent later.
func TestNotSentLater(t *testing.T) {
	h := new(Hint)
	body := post(h)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, Reading{Err: ctx.Err(), Barred: true}, h.Read(ctx, ctx.Err(), Signs{}))
	text, err := io.ReadAll(body)
	require.Error(t, err)
	require.Empty(t, text)
}

// A pipe takes a message at a time. Who waits, and who is being sent, leaves with the context.
func TestWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, full, closed := NewWriter(), make(chan struct{}), errors.New("closed")
		var sent []string
		write := func(name string, wait bool) func(func()) error {
			return func(func()) error {
				sent = append(sent, name)
				if wait {
					<-full
				}
				return nil
			}
		}
		first, second := new(Hint), new(Hint)
		within := func(h *Hint, d time.Duration) context.Context {
			ctx, cancel := context.WithTimeout(WithHint(t.Context(), h), d)
			t.Cleanup(cancel)
			return ctx
		}
		start := time.Now()
		ctx := within(first, time.Second)
		require.ErrorIs(t, w.Do(ctx, closed, write("first", true)), context.DeadlineExceeded)
		require.Equal(t, Reading{Err: ctx.Err(), Stuck: true}, first.Read(ctx, ctx.Err(), Signs{}))
		ctx = within(second, time.Second)
		require.ErrorIs(t, w.Do(ctx, closed, write("second", false)), context.DeadlineExceeded)
		require.Equal(t, Reading{Err: ctx.Err(), Unsent: true, Stuck: true}, second.Read(ctx, ctx.Err(), Signs{}))
		require.Equal(t, 2*time.Second, time.Since(start))
		close(full)
		synctest.Wait()
		require.NoError(t, w.Do(t.Context(), closed, write("third", false)))
		require.Equal(t, []string{"first", "third"}, sent)

		var order []string // a turn may end before what is sent is answered
		answer := make(chan struct{})
		go w.Do(t.Context(), closed, func(written func()) error {
			order = append(order, "one")
			written()
			<-answer
			return nil
		})
		synctest.Wait()
		require.NoError(t, w.Do(t.Context(), closed, func(func()) error { order = append(order, "two"); return nil }))
		close(answer)
		require.Equal(t, []string{"one", "two"}, order)

		w.Close()
		synctest.Wait()
	})
}

// An error is judged for itself: one with a Retry-After changes nothing for the next.
func TestUnanswered(t *testing.T) {
	kind := func(err error) toolcircuit.Kind {
		return toolcircuit.Classify(context.Background(), toolcircuit.Outcome{Err: Unanswered(err)}).Kind
	}
	require.EqualValues(t, "rate_limited", kind(&toolcircuit.HTTPError{StatusCode: 429, RetryAfter: time.Minute}))
	require.EqualValues(t, "unavailable", kind(errors.New("no such thing")))
	require.EqualValues(t, "unknown", kind(toolcircuit.Benign(errors.New("no such thing"))))
	require.EqualValues(t, "unauthorized", kind(&toolcircuit.HTTPError{StatusCode: 401}))
}
