package toolset

import "context"

type scopeKey struct{}

// WithScope returns a context whose calls use the circuits of a scope, such as a tenant, if their
// dependency is Scoped. Each label has circuits of its own. No model and no metric gets the label.
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
