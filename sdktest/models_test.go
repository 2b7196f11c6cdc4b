package sdktest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	anthropicstream "github.com/anthropics/anthropic-sdk-go/packages/ssestream"
	openaioption "github.com/openai/openai-go/v3/option"
	openaistream "github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/stretchr/testify/require"
	"google.golang.org/genai"
)

// of returns a new value of what f takes. The types that make a request are in internal packages of
// an SDK, whose other packages take more than a minute to compile.
func of[C any](f func(*C) error) *C { return new(C) }

// openAI makes one request with openai-go.
func openAI(t *testing.T, url string, hc *http.Client) error {
	config := of(openaioption.WithMaxRetries(0).Apply)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "chat/completions", nil)
	require.NoError(t, err)
	config.Context, config.Request = t.Context(), req
	require.NoError(t, config.Apply(openaioption.WithAPIKey("k"), openaioption.WithBaseURL(url), openaioption.WithHTTPClient(hc)))
	var completion map[string]any
	config.ResponseBodyInto = &completion
	return config.Execute()
}

func TestOpenAI(t *testing.T) {
	checkClient(t, client{
		typ:  "*apierror.Error",
		call: openAI,
		body: jsonError(`{"error":{"message":"no","type":"x","code":"c%s"}}`),
	})
	check(t, []row{
		{typ: "*apierror.Error", event: "429 with Retry-After-Ms", want: paused(1500 * time.Millisecond), fail: func(t *testing.T) error {
			return openAI(t, answered(t, 429, http.Header{"Retry-After-Ms": {"1500"}}, `{"error":{}}`), &http.Client{})
		}},
		{typ: "*apierror.Error", event: "429 with a date", want: paused(30 * time.Second), fail: func(t *testing.T) error {
			return openAI(t, answered(t, 429, http.Header{
				"Date": {"Sun, 06 Nov 1994 08:49:37 GMT"}, "Retry-After": {"Sun, 06 Nov 1994 08:50:07 GMT"},
			}, `{"error":{}}`), &http.Client{})
		}},
		{typ: "*apierror.Error", event: "502 of a proxy, in HTML", want: unavailable, fail: func(t *testing.T) error {
			return openAI(t, answered(t, 502, http.Header{"Content-Type": {"text/html"}}, "<html>no</html>"), &http.Client{})
		}},
		{typ: "*apierror.Error", event: "503 without a body", want: unavailable, fail: func(t *testing.T) error {
			return openAI(t, answered(t, 503, nil, ""), &http.Client{})
		}},
		{typ: "*ssestream.StreamError", event: "error in mid-stream", want: unknown, why: "what it says is in JSON, without a list: see ExampleForError_openai", fail: func(t *testing.T) error {
			s := openAIStream(t, `{"error":{"message":"overloaded","type":"server_error","code":"server_error"}}`)
			require.False(t, s.Next())
			return s.Err()
		}},
		{event: "connection closed in mid-stream", want: unavailable, fail: func(t *testing.T) error {
			resp, err := http.Get(hijacked(t, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99\r\n\r\ndata: {\"a", false))
			require.NoError(t, err)
			s := openaistream.NewStream[map[string]any](openaistream.NewDecoder(resp), nil)
			require.False(t, s.Next())
			return s.Err()
		}},
	})
}

// openAIStream returns openai-go's stream of one event.
func openAIStream(t *testing.T, data string) *openaistream.Stream[map[string]any] {
	resp, err := http.Get(answered(t, 200, http.Header{"Content-Type": {"text/event-stream"}}, "data: "+data+"\n\n"))
	require.NoError(t, err)
	return openaistream.NewStream[map[string]any](openaistream.NewDecoder(resp), nil)
}

// The Responses API says by an event that an answer failed in mid-stream. The SDK makes no error of it, so
// a tool that reads such an event returns an error of its own.
func TestOpenAIResponses(t *testing.T) {
	for _, data := range []string{
		`{"type":"error","code":"server_error","message":"no","sequence_number":1}`,
		`{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"no"}}}`,
	} {
		s := openAIStream(t, data)
		require.True(t, s.Next(), data)
		require.False(t, s.Next(), data)
		require.NoError(t, s.Err(), data)
	}
}

// claude makes one request with anthropic-sdk-go.
func claude(t *testing.T, url string, hc *http.Client) error {
	config := of(anthropicoption.WithMaxRetries(0).Apply)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "v1/messages", nil)
	require.NoError(t, err)
	config.Context, config.Request = t.Context(), req
	require.NoError(t, config.Apply(anthropicoption.WithAPIKey("k"), anthropicoption.WithBaseURL(url), anthropicoption.WithHTTPClient(hc)))
	var message map[string]any
	config.ResponseBodyInto = &message
	return config.Execute()
}

func TestAnthropic(t *testing.T) {
	checkClient(t, client{
		typ:  "*apierror.Error",
		call: claude,
		body: jsonError(`{"type":"error","error":{"type":"t%s","message":"no"}}`),
	})
	stream := func(kind string) func(t *testing.T) error {
		return func(t *testing.T) error {
			resp, err := http.Get(answered(t, 200, http.Header{"Content-Type": {"text/event-stream"}},
				fmt.Sprintf("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":%q,\"message\":\"no\"}}\n\n", kind)))
			require.NoError(t, err)
			s := anthropicstream.NewStream[map[string]any](anthropicstream.NewDecoder(resp), nil)
			require.False(t, s.Next())
			return s.Err()
		}
	}
	check(t, []row{
		{typ: "*apierror.Error", event: "502 of a proxy, in HTML", want: unavailable, fail: func(t *testing.T) error {
			return claude(t, answered(t, 502, http.Header{"Content-Type": {"text/html"}}, "<html>no</html>"), &http.Client{})
		}},
		{typ: "*apierror.Error", event: "529 with Retry-After", want: waiting(unavailable, 9*time.Second), fail: func(t *testing.T) error {
			return claude(t, answered(t, 529, http.Header{"Retry-After": {"9"}}, `{"error":{"type":"overloaded_error"}}`), &http.Client{})
		}},
		{typ: "*apierror.Error", event: "overloaded in mid-stream, status 200", fail: stream("overloaded_error"), want: unavailable},
		{typ: "*apierror.Error", event: "api_error in mid-stream, status 200", fail: stream("api_error"), want: unavailable},
		{typ: "*apierror.Error", event: "rate limit in mid-stream, status 200", fail: stream("rate_limit_error"), want: rateLimited},
		{typ: "*apierror.Error", event: "timeout in mid-stream, status 200", fail: stream("timeout_error"), want: timeout},
		{typ: "*apierror.Error", event: "another error in mid-stream", fail: stream("new_error"), want: unknown, why: "a type that is not on Anthropic's list of transient ones"},
	})
}

func TestGenAI(t *testing.T) {
	generate := func(t *testing.T, url string, hc *http.Client) error {
		c, err := genai.NewClient(t.Context(), &genai.ClientConfig{
			APIKey: "k", Backend: genai.BackendGeminiAPI, HTTPClient: hc, HTTPOptions: genai.HTTPOptions{BaseURL: url},
		})
		require.NoError(t, err)
		_, err = c.Models.GenerateContent(t.Context(), "m", genai.Text("hi"), nil)
		return err
	}
	checkClient(t, client{
		typ:  "genai.APIError",
		call: generate,
		body: func(status int) string {
			return fmt.Sprintf(`{"error":{"code":%d,"message":"no","status":"UNAVAILABLE"}}`, status)
		},
		differ: map[string]verdict{ // the error has no header
			"429 with Retry-After": rateLimited,
			"503 with Retry-After": unavailable,
		},
	})
	check(t, []row{
		{typ: "genai.APIError", event: "429 with RetryInfo", want: paused(34 * time.Second), fail: func(t *testing.T) error {
			return generate(t, answered(t, 429, nil, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[
				{"@type":"type.googleapis.com/google.rpc.Help"},
				{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34s"}]}}`), &http.Client{})
		}},
		{typ: "genai.APIError", event: "503 of a proxy, in HTML", want: unavailable, fail: func(t *testing.T) error {
			return generate(t, answered(t, 503, nil, "<html>no</html>"), &http.Client{})
		}},
		{typ: "genai.APIError", event: "503 of a proxy, without a body", want: unavailable, fail: func(t *testing.T) error {
			return generate(t, answered(t, 503, nil, ""), &http.Client{})
		}},
		{typ: "genai.APIError", event: "429 beside a cancelled branch", want: rateLimited, fail: func(t *testing.T) error {
			return errors.Join(context.Canceled, generate(t, answered(t, 429, nil, ""), &http.Client{}))
		}},
	})
}
