package repeat

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// hit is a row of a result as tools return it.
type hit struct {
	Title string   `json:"title"`
	URL   string   `json:"url"`
	Score float64  `json:"score"`
	Tags  []string `json:"tags"`
	Rank  int      `json:"rank"`
}

// hits returns rows that encode to about size bytes.
func hits(size int) (rows []hit) {
	for encoded := 0; encoded < size; encoded += 105 {
		rows = append(rows, hit{"A circuit breaker", "https://go.dev/doc", 0.25, []string{"go", "tools"}, len(rows)})
	}
	return rows
}

// BenchmarkFingerprint measures fingerprints beside json.Marshal of the same value.
func BenchmarkFingerprint(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"100B", 100}, {"1KB", 1000}, {"100KB", 100_000}, {"10MB", 10_000_000}} {
		rows := hits(size.bytes)
		encoded, err := json.Marshal(rows)
		if err != nil {
			b.Fatal(err)
		}
		var tree any
		if err := json.Unmarshal(encoded, &tree); err != nil {
			b.Fatal(err)
		}
		for _, value := range []struct {
			name string
			of   any
		}{
			{"structs", rows},
			{"maps", tree},
			{"text", json.RawMessage(encoded)}, // with keys out of order
			{"prose", map[string]string{"text": strings.Repeat("All work and no play. ", size.bytes/22)}},
		} {
			for _, way := range []struct {
				name string
				do   func(any) bool
			}{
				{"Marshal", func(v any) bool { _, err := json.Marshal(v); return err == nil }},
				{"Result", func(v any) bool { return Result(v) != Digest{} }},
				{"Arguments", func(v any) bool { return Arguments(v, "run", "", "tool") != Digest{} }},
			} {
				b.Run(fmt.Sprintf("%s/%s/%s", size.name, value.name, way.name), func(b *testing.B) {
					b.SetBytes(int64(len(encoded)))
					b.ReportAllocs()
					for b.Loop() {
						if !way.do(value.of) {
							b.Fatal("no fingerprint")
						}
					}
				})
			}
		}
	}
}
