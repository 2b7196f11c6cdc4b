package debugpage_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit/debugpage"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// many returns a Set of n circuits and their tools.
func many(b *testing.B, n int) (*toolset.Set, []string) {
	set, err := toolset.New(toolset.Config{Monitored: []string{"*"}}, toolset.Options{})
	require.NoError(b, err)
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("tool-", i)
		set.Circuit(context.Background(), names[i])
	}
	return set, names
}

// BenchmarkSnapshot is what one look at a Set takes, and the JSON of the page.
func BenchmarkSnapshot(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		set, _ := many(b, n)
		b.Run(fmt.Sprint("circuits=", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				set.Snapshot()
			}
		})
		page := debugpage.Handler(set, debugpage.Options{})
		b.Run(fmt.Sprint("JSON/circuits=", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				page.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/circuits", nil))
			}
		})
	}
}

// BenchmarkCallMeanwhile is what a call pays while others look at its Set without a pause: beside
// no look, beside looks at another Set of the same size, which takes the processors alone, and
// beside looks at its own.
func BenchmarkCallMeanwhile(b *testing.B) {
	const n = 10_000
	op := func(context.Context) (int, error) { return 1, nil }
	set, names := many(b, n)
	other, _ := many(b, n)
	for _, c := range []struct {
		name   string
		looked *toolset.Set
	}{{"no look", nil}, {"looks at another Set", other}, {"looks at this Set", set}} {
		b.Run(c.name, func(b *testing.B) {
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for c.looked != nil {
					select {
					case <-stop:
						return
					default:
						c.looked.Snapshot()
					}
				}
			}()
			ctx := context.Background()
			for i := 0; b.Loop(); i++ {
				toolset.Do(ctx, set, names[i%n], nil, op)
			}
			close(stop)
			<-stopped
		})
	}
}
