package toolset_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"testing"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// many returns a Set of n circuits, each in use, and the names of its tools.
func many(tb testing.TB, n int) (*toolset.Set, []string) {
	names := make([]string, n)
	tools := map[string]toolset.Tool{}
	for i := range names {
		names[i] = fmt.Sprintf("tool-%06d", i)
		tools[names[i]] = toolset.Tool{}
	}
	s, err := toolset.New(toolset.Config{Tools: tools, MaxCircuits: n}, toolset.Options{})
	require.NoError(tb, err)
	for _, name := range names {
		s.Circuit(context.Background(), name)
	}
	return s, names
}

func BenchmarkAllow(b *testing.B) {
	for _, n := range []int{1, 100_000} {
		b.Run(fmt.Sprint("circuits=", n), func(b *testing.B) {
			s, names := many(b, n)
			ctx := context.Background()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				p, err := s.Allow(ctx, names[i%n], nil)
				if err != nil {
					b.Fatal(err)
				}
				p.Settle(ctx, nil, nil)
			}
		})
	}
}

func BenchmarkAllowParallel(b *testing.B) {
	const n = 100_000
	s, names := many(b, n)
	ctx := context.Background()
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			p, err := s.Allow(ctx, names[i%n], nil)
			if err != nil {
				b.Error(err)
			}
			p.Settle(ctx, nil, nil)
		}
	})
}

func BenchmarkDo(b *testing.B) {
	s, names := many(b, 1)
	c := s.Circuit(context.Background(), names[0])
	ctx := context.Background()
	op := func(context.Context) (int, error) { return 1, nil }
	b.Run("core", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			toolcircuit.Do(ctx, c, op)
		}
	})
	b.Run("set", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			toolset.Do(ctx, s, names[0], nil, op)
		}
	})
	b.Run("unguarded", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			toolset.Do(ctx, s, "other", nil, op)
		}
	})
}

// What the first call of another tenant costs, whose dependency is failing, without a
// maximum and where 10,000 circuits fill the Set: healthy ones, and such with a streak.
func BenchmarkFirstCall(b *testing.B) {
	fail := func(context.Context) (int, error) { return 0, errDown }
	for name, c := range map[string]struct {
		bound int
		full  error
	}{"below": {bound: math.MaxInt}, "full": {}, "full of streaks": {full: errDown}} {
		b.Run(name, func(b *testing.B) {
			s, err := toolset.New(toolset.Config{
				Dependencies: map[string]toolset.Dependency{"search": {Scoped: true}},
				Monitored:    []string{"search"},
				MaxCircuits:  c.bound,
			}, toolset.Options{})
			require.NoError(b, err)
			tenant := func(i int) context.Context { return toolset.WithScope(context.Background(), strconv.Itoa(i)) }
			for i := range 10_000 {
				toolset.Do(tenant(-i), s, "search", nil, func(context.Context) (int, error) { return 0, c.full })
			}
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				toolset.Do(tenant(i), s, "search", nil, fail)
			}
		})
	}
}

func BenchmarkVisible(b *testing.B) {
	for _, open := range []int{0, 50} {
		b.Run(fmt.Sprint("open=", open), func(b *testing.B) {
			s, err := toolset.New(toolset.Config{
				Default:   &toolcircuit.Policy{FailureThreshold: 1},
				Monitored: []string{"tool-*"},
				Hide:      toolset.HideOpen,
			}, toolset.Options{Clock: clock.NewMock()})
			require.NoError(b, err)
			ctx := context.Background()
			var names []string
			for i := range 100 {
				names = append(names, fmt.Sprintf("tool-%06d", i))
				toolset.Do(ctx, s, names[i], nil, func(context.Context) (int, error) {
					if i < open {
						return 0, errDown
					}
					return 0, nil
				})
			}
			b.ReportAllocs()
			for b.Loop() {
				toolset.Visible(ctx, s, names, func(name string) string { return name })
			}
		})
	}
}

// heap returns the bytes in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A circuit in a Set takes at most 192 bytes, 112 of which are the core's.
func TestBytesPerCircuit(t *testing.T) {
	const n = 100_000
	labels := make([]string, n)
	for i := range labels {
		labels[i] = fmt.Sprintf("label-%06d", i)
	}
	for name, circuit := range map[string]func(s *toolset.Set, label string){
		"by name": func(s *toolset.Set, label string) { s.Circuit(context.Background(), label) },
		"by scope": func(s *toolset.Set, label string) {
			s.Circuit(toolset.WithScope(context.Background(), label), "search")
		},
	} {
		s, err := toolset.New(toolset.Config{
			Dependencies: map[string]toolset.Dependency{"search-api": {Scoped: true}},
			Tools:        map[string]toolset.Tool{"search": {Dependency: "search-api"}},
			Monitored:    []string{"label-*"},
			MaxCircuits:  n,
		}, toolset.Options{})
		require.NoError(t, err)
		before := heap()
		for _, l := range labels {
			circuit(s, l)
		}
		each := (heap() - before) / n
		t.Logf("%s: %d bytes per circuit", name, each)
		require.LessOrEqual(t, each, int64(192))
		require.Greater(t, each, int64(112))
		runtime.KeepAlive(s)
	}
}
