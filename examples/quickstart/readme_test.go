package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

// TestReadme holds the code blocks of the README against what is compiled and run here.
func TestReadme(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		return string(text)
	}
	blocks := map[string][]string{}
	fence := regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")
	for _, m := range fence.FindAllStringSubmatch(read("../../README.md"), -1) {
		blocks[m[1]] = append(blocks[m[1]], m[2])
	}

	require.Equal(t, read("../first/main.go"), blocks["go"][0])
	sources := []string{
		read("../../toolset/example_test.go"),
		read("../../toolset/example_test.go"),
		read("../../mcpcircuit/example_test.go"),
		read("../../fleet_test.go"),
		read("../../otelcircuit/example_test.go"),
		read("../first/main_test.go"),
	}
	require.Len(t, blocks["go"], 1+len(sources))
	for i, compiled := range sources {
		for line := range strings.Lines(blocks["go"][1+i]) {
			code, _, _ := strings.Cut(line, "//")
			require.Contains(t, compiled, strings.TrimSpace(code))
		}
	}

	require.Len(t, blocks["json"], 1)
	var blocked bytes.Buffer
	require.NoError(t, json.Compact(&blocked, []byte(blocks["json"][0])))
	require.Equal(t, refusal(t), blocked.String())
}

// refusal is what a model reads after three timeouts.
func refusal(t *testing.T) string {
	mock := clock.NewMock()
	mock.Set(time.Date(2026, time.November, 29, 14, 4, 48, 0, time.UTC))
	circuit := toolcircuit.MustNew("search-api", toolcircuit.Options{
		Policy: toolcircuit.Policy{FailureThreshold: 3, Cooldown: 42 * time.Second},
		Clock:  mock,
		Tool:   toolcircuit.Tool{Name: "web_search", Alternatives: []string{"cached_search"}},
	})
	tool := toolcircuit.WrapResult(circuit, func(context.Context, string) (string, error) {
		return "", context.DeadlineExceeded
	})
	for range 3 {
		_, err := tool(context.Background(), "")
		require.NoError(t, err)
	}
	result, err := tool(context.Background(), "")
	require.NoError(t, err)
	text, err := json.Marshal(result)
	require.NoError(t, err)
	return string(text)
}
