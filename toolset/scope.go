package toolset

import "context"

type scopeKey struct{}

// WithScope returns a context whose calls use circuits of their own where a dependency is
// Scoped: one per label, such as a tenant. No model and no metric gets to see the label.
func WithScope(ctx context.Context, label string) context.Context {
	return context.WithValue(ctx, scopeKey{}, label)
}

// Scope returns the label that ctx carries, or "". A nil ctx panics.
func Scope(ctx context.Context) string {
	if ctx == nil {
		panic("toolset: Scope: ctx is nil")
	}
	label, _ := ctx.Value(scopeKey{}).(string)
	return label
}
