package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	require.NoError(t, run(ctx, "127.0.0.1:0"))
	require.Error(t, run(ctx, "127.0.0.1:-1"))
}

// The config guards the tools that the program calls.
func TestConfig(t *testing.T) {
	require.Len(t, dependencies, 10)
	c := config()
	for _, d := range dependencies {
		for _, tool := range d.tools {
			require.Equal(t, d.name, c.Tools[tool].Dependency)
		}
	}
}
