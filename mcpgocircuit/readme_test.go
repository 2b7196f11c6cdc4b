package mcpgocircuit_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadme holds the code of the README against the examples, which are compiled and, where they
// have an output, run.
func TestReadme(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		return string(text)
	}
	compiled := read("example_test.go")
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(read("README.md"), -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		for line := range strings.Lines(block[1]) {
			code, _, _ := strings.Cut(line, " // ")
			require.Contains(t, compiled, strings.TrimSpace(code))
		}
	}
}
