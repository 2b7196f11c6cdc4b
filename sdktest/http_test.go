package sdktest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/google/go-github/v88/github"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/slack-go/slack"
	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"
	"google.golang.org/api/googleapi"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestGoogleAPI(t *testing.T) {
	call := func(t *testing.T, url string, hc *http.Client) error { // as the generated clients do
		resp, err := hc.Get(url)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if err := googleapi.CheckResponse(resp); err != nil {
			return err
		}
		_, err = io.ReadAll(resp.Body)
		return err
	}
	checkClient(t, client{
		typ:  "*googleapi.Error",
		call: call,
		body: func(status int) string { return fmt.Sprintf(`{"error":{"code":%d,"message":"no"}}`, status) },
	})
	check(t, []row{
		{typ: "*googleapi.Error", event: "429 with RetryInfo", want: paused(3 * time.Second), fail: func(t *testing.T) error {
			return call(t, answered(t, 429, nil, `{"error":{"code":429,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"3s"}]}}`), &http.Client{})
		}},
		{typ: "*googleapi.Error", event: "503 of a proxy, in HTML", want: unavailable, fail: func(t *testing.T) error {
			return call(t, answered(t, 503, nil, "<html>"), &http.Client{})
		}},
	})
}

func TestConnect(t *testing.T) {
	call := func(t *testing.T, url string, hc *http.Client) error {
		c := connect.NewClient[emptypb.Empty, emptypb.Empty](hc, url+"/service/Method")
		_, err := c.CallUnary(t.Context(), connect.NewRequest(&emptypb.Empty{}))
		return err
	}
	checkClient(t, client{ // Connect has a code for some statuses, from an answer that is not Connect's
		typ:  "*connect.Error",
		call: call,
		differ: map[string]verdict{
			"400": unavailable, // code internal
			"404": invalid,     // code unimplemented
			"409": unknown, "422": unknown, "500": unknown, "501": unknown, "529": unknown,
			"429": unavailable, "429 with Retry-After": unavailable, // and no header
			"503 with Retry-After": unavailable,
			"504":                  unavailable,
		},
		why: map[string]string{
			"409": "code unknown", "422": "code unknown", "500": "code unknown", "501": "code unknown", "529": "code unknown",
		},
	})
	served := func(err *connect.Error) func(t *testing.T) error {
		return func(t *testing.T) error {
			h := connect.NewUnaryHandler("/service/Method", func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
				return nil, err
			})
			return call(t, serve(t, h.ServeHTTP), &http.Client{})
		}
	}
	var rows []row
	for code, want := range map[connect.Code]verdict{
		connect.CodeCanceled: canceled, connect.CodeInvalidArgument: invalid, connect.CodeDeadlineExceeded: timeout,
		connect.CodeNotFound: notFound, connect.CodePermissionDenied: unauthorized, connect.CodeResourceExhausted: rateLimited,
		connect.CodeAborted: conflict, connect.CodeUnimplemented: invalid, connect.CodeInternal: unavailable,
		connect.CodeUnavailable: unavailable, connect.CodeUnauthenticated: unauthorized,
	} {
		rows = append(rows, row{typ: "*connect.Error", event: code.String(), want: want, fail: served(connect.NewError(code, io.EOF))})
	}
	check(t, rows)

	told := connect.NewError(connect.CodeResourceExhausted, io.EOF)
	detail, err := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(2500 * time.Millisecond)})
	require.NoError(t, err)
	told.AddDetail(detail)
	header := connect.NewError(connect.CodeUnavailable, io.EOF)
	header.Meta().Set("Retry-After", "4")
	check(t, []row{
		{typ: "*connect.Error", event: "resource_exhausted with RetryInfo", want: paused(2500 * time.Millisecond), fail: served(told)},
		{typ: "*connect.Error", event: "unavailable with Retry-After", want: waiting(unavailable, 4*time.Second), fail: served(header)},
		{typ: "*connect.Error", event: "unknown", want: unknown, why: "what a server says of an error without a code", fail: served(connect.NewError(connect.CodeUnknown, io.EOF))},
	})
}

func TestAzure(t *testing.T) {
	call := func(t *testing.T, url string, hc *http.Client) error {
		p := runtime.NewPipeline("m", "v1", runtime.PipelineOptions{}, &policy.ClientOptions{Transport: hc, Retry: policy.RetryOptions{MaxRetries: -1}})
		req, err := runtime.NewRequest(t.Context(), http.MethodGet, url)
		require.NoError(t, err)
		resp, err := p.Do(req)
		if err != nil {
			return err
		}
		if !runtime.HasStatusCode(resp, http.StatusOK) {
			return runtime.NewResponseError(resp)
		}
		_, err = runtime.Payload(resp)
		return err
	}
	checkClient(t, client{typ: "*exported.ResponseError", call: call, body: jsonError(`{"error":{"code":"c%s"}}`)})
	check(t, []row{
		{typ: "*exported.ResponseError", event: "503 with X-Ms-Retry-After-Ms", want: waiting(unavailable, 20*time.Millisecond), fail: func(t *testing.T) error {
			return call(t, answered(t, 503, http.Header{"X-Ms-Retry-After-Ms": {"20"}}, ""), &http.Client{})
		}},
		{typ: "*exported.ResponseError", event: "429 with retry-after-ms", want: paused(1500 * time.Millisecond), fail: func(t *testing.T) error {
			return call(t, answered(t, 429, http.Header{"Retry-After-Ms": {"1500"}}, ""), &http.Client{})
		}},
	})
}

func TestGitHub(t *testing.T) {
	dial := func(t *testing.T, url string, hc *http.Client) *github.Client {
		base := url + "/"
		c, err := github.NewClient(github.WithHTTPClient(hc), github.WithURLs(&base, &base))
		require.NoError(t, err)
		return c
	}
	get := func(t *testing.T, c *github.Client) error {
		_, _, err := c.Repositories.Get(t.Context(), "o", "r")
		return err
	}
	call := func(t *testing.T, url string, hc *http.Client) error { return get(t, dial(t, url, hc)) }
	checkClient(t, client{typ: "*github.ErrorResponse", call: call, body: jsonError(`{"message":"m%s"}`)})

	date := time.Now().UTC().Truncate(time.Second)
	spent := http.Header{
		"X-Ratelimit-Limit": {"60"}, "X-Ratelimit-Remaining": {"0"},
		"X-Ratelimit-Reset": {strconv.FormatInt(date.Add(time.Hour).Unix(), 10)},
		"Date":              {date.Format(http.TimeFormat)},
	}
	secondary := `{"message":"wait","documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`
	check(t, []row{
		{typ: "*github.RateLimitError", event: "403, the rate is spent", want: paused(time.Hour), fail: func(t *testing.T) error {
			return call(t, answered(t, 403, spent, `{"message":"limit"}`), &http.Client{})
		}},
		{typ: "*github.RateLimitError", event: "the rate is spent, says the client itself", want: rateLimited, fail: func(t *testing.T) error {
			c := dial(t, answered(t, 403, spent, `{"message":"limit"}`), &http.Client{})
			require.Error(t, get(t, c))
			return get(t, c)
		}},
		{typ: "*github.AbuseRateLimitError", event: "403, secondary limit with Retry-After", want: paused(9 * time.Second), fail: func(t *testing.T) error {
			return call(t, answered(t, 403, http.Header{"Retry-After": {"9"}}, strings.Replace(secondary, "#about-secondary-rate-limits", "#secondary-rate-limits", 1)), &http.Client{})
		}},
		{typ: "*github.AbuseRateLimitError", event: "403, secondary limit without a time", want: unauthorized, fail: func(t *testing.T) error {
			return call(t, answered(t, 403, nil, strings.Replace(secondary, "#about-secondary-rate-limits", "#secondary-rate-limits", 1)), &http.Client{})
		}},
		{typ: "*github.ErrorResponse", event: "451", want: invalid, fail: func(t *testing.T) error {
			return call(t, answered(t, 451, nil, `{"message":"gone"}`), &http.Client{})
		}},
		{typ: "*github.AcceptedError", event: "202, come back later", want: unknown, why: "a success that is not ready yet", fail: func(t *testing.T) error {
			return call(t, answered(t, 202, nil, ""), &http.Client{})
		}},
	})
}

func TestOAuth2(t *testing.T) {
	call := func(t *testing.T, url string, hc *http.Client) error {
		c := &oauth2.Config{ClientID: "c", Endpoint: oauth2.Endpoint{TokenURL: url, AuthStyle: oauth2.AuthStyleInParams}}
		_, err := c.Exchange(context.WithValue(t.Context(), oauth2.HTTPClient, hc), "code")
		return err
	}
	checkClient(t, client{
		typ:    "*oauth2.RetrieveError",
		call:   call,
		body:   jsonError(`{"error":"e%s"}`),
		differ: map[string]verdict{"answer cut off": unknown},
		why:    map[string]string{"answer cut off": "the SDK makes a text of the error of the body"},
	})
	check(t, []row{
		{typ: "*oauth2.RetrieveError", event: "a tool's own request, whose token is refused", want: unauthorized, fail: func(t *testing.T) error {
			c := &oauth2.Config{ClientID: "c", Endpoint: oauth2.Endpoint{TokenURL: answered(t, 401, nil, ""), AuthStyle: oauth2.AuthStyleInParams}}
			hc := c.Client(t.Context(), &oauth2.Token{RefreshToken: "r"})
			_, err := hc.Get("http://" + closedPort(t))
			return err
		}},
		{typ: "*oauth2.RetrieveError", event: "200 with an error", want: unknown, why: "status 200 says nothing, and the word in it is text", fail: func(t *testing.T) error {
			return call(t, answered(t, 200, http.Header{"Content-Type": {"application/json"}}, `{"error":"slow_down"}`), &http.Client{})
		}},
	})
}

func TestSlack(t *testing.T) {
	call := func(t *testing.T, url string, hc *http.Client) error {
		_, err := slack.New("t", slack.OptionAPIURL(url+"/"), slack.OptionHTTPClient(hc)).AuthTestContext(t.Context())
		return err
	}
	checkClient(t, client{
		typ:  "slack.StatusCodeError",
		call: call,
		skip: map[string]bool{"429": true, "429 with Retry-After": true},
		differ: map[string]verdict{
			"503 with Retry-After": unavailable, // the error has no header
		},
	})
	check(t, []row{
		{typ: "*slack.RateLimitedError", event: "429 with Retry-After", want: paused(7 * time.Second), fail: func(t *testing.T) error {
			return call(t, answered(t, 429, http.Header{"Retry-After": {"7"}}, ""), &http.Client{})
		}},
		{typ: "slack.StatusCodeError", event: "429 without Retry-After", want: rateLimited, fail: func(t *testing.T) error {
			return call(t, answered(t, 429, nil, ""), &http.Client{})
		}},
		{typ: "slack.SlackErrorResponse", event: "200 with an error", want: unknown, why: "a word that Slack chose, without a status", fail: func(t *testing.T) error {
			return call(t, answered(t, 200, nil, `{"ok":false,"error":"channel_not_found"}`), &http.Client{})
		}},
	})
}

func TestMinIO(t *testing.T) {
	call := func(t *testing.T, address string, hc *http.Client) error {
		u, err := url.Parse(address)
		require.NoError(t, err)
		rt := hc.Transport
		if rt == nil {
			rt = &http.Transport{ResponseHeaderTimeout: hc.Timeout}
		}
		c, err := minio.New(u.Host, &minio.Options{
			Creds: credentials.NewStaticV4("k", "s", ""), Secure: u.Scheme == "https", Transport: rt, Region: "r", MaxRetries: 1,
		})
		require.NoError(t, err)
		o, err := c.GetObject(t.Context(), "bucket", "object", minio.GetObjectOptions{})
		if err != nil {
			return err
		}
		defer o.Close()
		_, err = io.ReadAll(o)
		return err
	}
	checkClient(t, client{
		typ:  "minio.ErrorResponse",
		call: call,
		body: jsonError(`<Error><Code>C%s</Code></Error>`),
		differ: map[string]verdict{ // the error has no header
			"429 with Retry-After":                rateLimited,
			"503 with Retry-After":                unavailable,
			"connection closed without an answer": unknown,
		},
		why:  map[string]string{"connection closed without an answer": "the SDK puts a text of its own in place of io.EOF"},
		skip: map[string]bool{"answer cut off": true}, // an object needs headers, see below
	})
	check(t, []row{{event: "object cut off", want: unavailable, fail: func(t *testing.T) error {
		return call(t, hijacked(t, "HTTP/1.1 200 OK\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nEtag: \"e\"\r\nContent-Length: 99\r\n\r\nhalf", false), &http.Client{})
	}}})
}

// Errors of the Kubernetes API as its clients make them from an answer.
func TestKubernetes(t *testing.T) {
	resource := schema.GroupResource{Resource: "pods"}
	answer := func(status, seconds int) func(t *testing.T) error {
		return func(t *testing.T) error {
			return apierrors.NewGenericServerResponse(status, "get", resource, "p", "no", seconds, true)
		}
	}
	made := func(err error) func(t *testing.T) error { return func(t *testing.T) error { return err } }
	rows := []row{
		{event: "429 with Retry-After", fail: answer(429, 9), want: paused(9 * time.Second)},
		{event: "503 with Retry-After", fail: answer(503, 2), want: waiting(unavailable, 2*time.Second)},
		{event: "TooManyRequests", fail: made(apierrors.NewTooManyRequests("no", 5)), want: paused(5 * time.Second)},
		{event: "ServerTimeout", fail: made(apierrors.NewServerTimeout(resource, "get", 2)), want: waiting(unavailable, 2*time.Second)},
		{event: "Timeout", fail: made(apierrors.NewTimeoutError("no", 2)), want: waiting(timeout, 2*time.Second)},
		{event: "InternalError", fail: made(apierrors.NewInternalError(io.EOF)), want: unavailable},
		{event: "NotFound, wrapped", fail: made(fmt.Errorf("get: %w", apierrors.NewNotFound(resource, "p"))), want: notFound},
		{event: "Invalid", fail: made(apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil)), want: invalid},
		{event: "status without a code", fail: made(&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure}}), want: unknown, why: "nothing is in it"},
	}
	for _, a := range answers {
		if a.header == nil && a.status != 422 {
			rows = append(rows, row{event: a.event, fail: answer(a.status, 0), want: a.want})
		}
	}
	for i := range rows {
		rows[i].typ = "*errors.StatusError"
	}
	check(t, rows)
}
