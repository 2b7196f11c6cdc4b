package mcpcircuit_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// N31: the handler of a guarded server has the context of the call: its idempotency key, and
// whether it is the probe.
func TestN31HandlersContext(t *testing.T) {
	r := newRig(t, everything, nil)
	s, tools := newServer("bank", "pay")
	run, err := r.set.Session("run", toolset.Limits{})
	require.NoError(t, err)
	var keys []string
	var probes []bool
	tools["pay"].set(func(ctx context.Context) (*mcp.CallToolResult, error) {
		keys = append(keys, toolset.IdempotencyKey(ctx))
		probes = append(probes, toolcircuit.IsProbe(ctx))
		return nil, nil
	})
	guarded := r.guardServer(s)
	guarded.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler { // outermost
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			return next(toolset.WithSession(ctx, run), method, req)
		}
	})
	session := connect(t, guarded, plainClient(), "")
	healthy(t, session, "pay")
	r.trip("pay")
	r.add(time.Hour)
	healthy(t, session, "pay")
	require.NotEmpty(t, keys[0])
	require.Equal(t, keys[0], keys[1])
	require.Equal(t, []bool{false, true}, probes)
}

// N41: what a circuit within the handler refuses reaches the model as a blocked result, and is
// one refused call of the run.
func TestN41RefusedWithin(t *testing.T) {
	db := toolcircuit.MustNew("db", toolcircuit.Options{})
	db.SetOverride(toolcircuit.OverrideOpen)
	for name, inner := range map[string]func(context.Context, *toolset.Set) error{
		"circuit": func(ctx context.Context, _ *toolset.Set) error {
			_, err := toolcircuit.Do(ctx, db, func(context.Context) (any, error) { return nil, nil })
			return err
		},
		"tool of the Set": func(ctx context.Context, set *toolset.Set) error {
			_, err := toolset.Do(ctx, set, "db", nil, func(context.Context) (any, error) { return nil, nil })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, everything, nil)
			require.NoError(t, r.set.SetOverride("db", toolcircuit.OverrideOpen))
			run, err := r.set.Session("run", toolset.Limits{})
			require.NoError(t, err)
			s, tools := newServer("bank", "search")
			tools["search"].set(func(ctx context.Context) (*mcp.CallToolResult, error) { return nil, inner(ctx, r.set) })
			guarded := r.guardServer(s)
			guarded.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
				return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
					return next(toolset.WithSession(ctx, run), method, req)
				}
			})
			session := connect(t, guarded, plainClient(), "")
			res, err := call(session, "search")
			require.NoError(t, err)
			require.True(t, res.IsError)
			var got toolcircuit.Result[any]
			require.NoError(t, json.Unmarshal([]byte(text(res)), &got), text(res))
			require.Equal(t, toolcircuit.StatusBlocked, got.Status)
			require.Equal(t, "db", got.Dependency)
			require.Equal(t, "search", got.Tool)
			require.Equal(t, "unknown", got.Outcome)
			require.Equal(t, 1, got.BlockedCalls)
			require.Equal(t, toolcircuit.KindRejected, r.kinds("search")[0])
		})
	}
}
