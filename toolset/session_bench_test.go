package toolset_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit/toolset"
)

// BenchmarkSession is a guarded call without a session and with one, whose work is to compare
// arguments and results.
func BenchmarkSession(b *testing.B) {
	type query struct {
		Text  string   `json:"text"`
		Sites []string `json:"sites"`
		Limit int      `json:"limit"`
	}
	s, err := toolset.New(guarded, toolset.Options{})
	require.NoError(b, err)
	run, err := s.Session("run", toolset.Limits{})
	require.NoError(b, err)
	without := context.Background()
	with := toolset.WithSession(without, run)
	i := 0
	op := func(context.Context) (int, error) { return i, nil }
	var small any = query{Text: "circuit breaker", Sites: []string{"go.dev", "pkg.go.dev"}, Limit: 10}
	texts := make([]any, 1000) // the calls differ, and come again after a while
	for i := range texts {
		texts[i] = json.RawMessage(fmt.Appendf(nil, `{"limit":%d,"text":"circuit breaker","sites":["go.dev","pkg.go.dev"]}`, i))
	}
	for _, bench := range []struct {
		name string
		ctx  context.Context
		args func() any
	}{
		{"without", without, func() any { return small }},
		{"with/arguments=unknown", with, func() any { return toolset.Unknown }},
		{"with/arguments=struct", with, func() any { return small }},
		{"with/arguments=text", with, func() any { return texts[i%len(texts)] }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for i = 0; b.Loop(); i++ {
				if _, err := toolset.Do(bench.ctx, s, "a", bench.args(), op); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
