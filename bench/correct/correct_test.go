package main

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// This library holds in every situation. Where a peer is known not to, the situation can tell.
func TestSituations(t *testing.T) {
	reset = makeReset()
	require.Error(t, reset)
	require.GreaterOrEqual(t, len(situations), 25)
	for _, s := range situations {
		t.Run(s.text, func(t *testing.T) {
			code := in(t, libraries[0], s, false)
			if s.told != byDefault && code != holds {
				code = in(t, libraries[0], s, true)
			}
			require.Equal(t, holds, code)
		})
	}
}

func TestSituationsCanFail(t *testing.T) {
	reset = makeReset()
	never := library{name: "never opens", listens: true, clock: true, make: func(config) *breaker {
		bare := func(ctx context.Context, op func(context.Context) error) error { return op(ctx) }
		return &breaker{call: bare, open: func() bool { return false }, names: func(string) {}}
	}}
	passes := map[string]bool{
		"one failure in ten opens nothing":                           true,
		"a panic arrives with its value and its stack":               true,
		"the refusal of an inner circuit is no failure of the outer": true,
		"cancelled users count for nothing":                          true,
		"also inside an error of their own":                          true,
		"the caller's mistakes count for nothing":                    true,
		"a hundred thousand invented names leave less than 16 MB":    true,
	}
	for _, s := range situations {
		if passes[s.text] || s.clock {
			continue
		}
		require.Equal(t, fails, in(t, never, s, false), s.text)
	}
}

func in(t *testing.T, l library, s situation, told bool) (code int) {
	synctest.Test(t, func(*testing.T) { code = judge(l, s, told) })
	return code
}
