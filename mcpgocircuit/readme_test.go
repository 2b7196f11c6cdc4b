package mcpgocircuit_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadme holds the code of the README against the examples, which are compiled and, where they
// have an output, run: each line of a block comes after the one before it.
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
		rest := compiled
		for line := range strings.Lines(block[1]) {
			code, _, _ := strings.Cut(line, " // ")
			_, after, found := strings.Cut(rest, strings.TrimSpace(code))
			require.True(t, found, line)
			rest = after
		}
	}
}
