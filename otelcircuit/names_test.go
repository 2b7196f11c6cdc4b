package otelcircuit

import (
	"testing"

	"github.com/stretchr/testify/require"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0" // the last one that has gen_ai
)

// The attributes that are not ours are called as the semantic conventions have them.
func TestSemanticConventions(t *testing.T) {
	require.Equal(t, semconv.GenAIToolNameKey, keyTool)
	require.Equal(t, semconv.ErrorTypeKey, keyErrorType)
	require.Equal(t, semconv.ErrorTypeOther.Value.AsString(), other)
}
