package fleet_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit/internal/fleet"
)

// A loop runs until Stop, whatever happens in it.
func TestLoops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, runs := fleet.NewLoops(), 0
		l.Go(func(ctx context.Context) {
			switch runs++; runs {
			case 1:
			case 2:
				panic("dropped")
			case 3:
				runtime.Goexit()
			default:
				<-ctx.Done()
			}
		})
		synctest.Wait()
		require.Equal(t, 4, runs)
		<-l.Stop()
		require.Equal(t, 4, runs)
	})
}

func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, began := fleet.NewLoops(), time.Now()
		var at []time.Duration
		l.Turns(func(context.Context) time.Duration { at = append(at, time.Since(began)); return time.Minute })
		time.Sleep(90 * time.Second)
		l.Wake()
		time.Sleep(59 * time.Second)
		l.Wake()
		time.Sleep(61 * time.Second)
		<-l.Stop()
		require.Equal(t, []time.Duration{0, 60 * time.Second, 90 * time.Second, 149 * time.Second, 209 * time.Second}, at)
	})
}

func TestAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a fleet.Alarm
		require.LessOrEqual(t, a.Left(), time.Duration(0))
		a.Set(time.Second)
		require.Equal(t, time.Second, a.Left())
		time.Sleep(3 * time.Second)
		require.Equal(t, -2*time.Second, a.Left())
	})
}

func TestStrays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s fleet.Strays[string, int]
		is := func(want ...string) {
			t.Helper()
			require.ElementsMatch(t, want, slices.Collect(maps.Keys(s.Due())))
		}
		is()
		s.Add("a", 1, time.Now().Add(time.Minute))
		s.Add("b", 2, time.Now().Add(time.Hour))
		require.Equal(t, map[string]int{"a": 1, "b": 2}, s.Due())
		require.False(t, s.Seen("a"), "it is due already")
		require.False(t, s.Seen("c"))
		s.Asked("a")
		s.Asked("b")
		is()
		require.True(t, s.Seen("a"))
		time.Sleep(2 * time.Minute)
		is("a") // which nobody could ask back in time
		s.Asked("a")
		is()
		require.False(t, s.Seen("a"), "its time is over")
		require.True(t, s.Seen("b"))
		is("b")
	})
}

// member is a member of a Roster.
type member struct {
	key  string
	lost bool
}

func (m *member) Key() string { return m.key }
func (m *member) Lost() bool  { return m.lost }

func TestRoster(t *testing.T) {
	r := fleet.NewRoster[*member]()
	require.Nil(t, r.Get("a"))
	require.Nil(t, r.Any())
	a, b, again := &member{key: "a"}, &member{key: "b"}, &member{key: "a"}
	r.Mark(a, true, true)
	require.Empty(t, r.Active(), "it is not in")
	require.NoError(t, r.Enter(a))
	require.NoError(t, r.Enter(b))
	require.EqualError(t, r.Enter(again), `the key "a" is another circuit's`)
	require.Same(t, a, r.Get("a"))
	require.Len(t, r.Any(), 1)

	require.Equal(t, []*member{a, b}, r.New())
	require.Empty(t, r.New())
	r.Renew([]*member{b})
	require.Equal(t, []*member{b}, r.New())

	r.Mark(a, true, true)
	r.Mark(b, true, false)
	require.ElementsMatch(t, []*member{a, b}, r.Active())
	require.Equal(t, []*member{a}, r.Busy())
	r.Mark(a, false, false)
	r.Mark(a, false, false)
	require.Equal(t, []*member{b}, r.Active())
	require.Empty(t, r.Busy())

	r.Mark(a, true, true)
	a.lost = true
	require.NoError(t, r.Enter(again), "the key is free")
	r.Drop(a)
	require.Same(t, again, r.Get("a"), "it has the key now")
	require.Equal(t, []*member{b}, r.Active())
	r.Mark(b, true, true)
	r.Drop(b)
	require.Nil(t, r.Get("b"))
	require.Empty(t, r.Active())
	require.Empty(t, r.Busy())

	require.False(t, r.Closed())
	members, open := r.Close()
	require.True(t, open)
	require.Equal(t, []*member{again}, members)
	require.True(t, r.Closed())
	members, open = r.Close()
	require.False(t, open)
	require.Empty(t, members)
	require.EqualError(t, r.Enter(b), "the Fleet is closed")
	r.Mark(again, true, true)
	require.Empty(t, r.Active())
	require.Nil(t, r.Get("a"))
}

// Members that are lost do not fill the memory.
func TestRosterSweeps(t *testing.T) {
	r := fleet.NewRoster[*member]()
	for i := range 1000 {
		m := &member{key: fmt.Sprint(i)}
		require.NoError(t, r.Enter(m))
		r.Mark(m, true, true)
		m.lost = i%10 > 0
	}
	require.Less(t, len(r.Active()), 400)
	members, _ := r.Close()
	require.Less(t, len(members), 400)
	require.GreaterOrEqual(t, len(members), 100)
}
