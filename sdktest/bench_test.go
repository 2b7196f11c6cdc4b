package sdktest

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-github/v88/github"
	"github.com/jackc/pgx/v5/pgconn"
	"google.golang.org/genai"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/toolcircuit/toolcircuit"
)

// Read it against the first, which no rule knows.
func BenchmarkClassify(b *testing.B) {
	header := http.Header{"Content-Type": {"application/json"}, "Date": {"Sun, 06 Nov 1994 08:49:37 GMT"}, "Retry-After": {"7"}}
	for _, bench := range []struct {
		name string
		err  error
	}{
		{"unknown", fmt.Errorf("no")},
		{"github", &github.ErrorResponse{Response: &http.Response{StatusCode: 429, Header: header}}},
		{"genai", genai.APIError{Code: 503, Status: "UNAVAILABLE"}},
		{"grpc", status.Error(codes.Unavailable, "no")},
		{"pgx", &pgconn.PgError{Code: "57P01"}},
		{"kubernetes", apierrors.NewTooManyRequests("no", 5)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				toolcircuit.Classify(b.Context(), toolcircuit.Outcome{Err: bench.err})
			}
		})
	}
}
