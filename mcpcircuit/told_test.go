package mcpcircuit_test

//lint:file-ignore SA1019 a session that is renewed keeps its log level while the SDK has one

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	shared "github.com/toolcircuit/toolcircuit/internal/mcp"
	"github.com/toolcircuit/toolcircuit/mcpcircuit"
)

// told is what each session of a server was told, in order.
type told struct {
	mu   sync.Mutex
	by   map[mcp.Session][]string
	last mcp.Session // that was told anything
}

// server returns a server that notes what it is told of the log level and of subscriptions.
func (x *told) server(tools ...string) *mcp.Server {
	x.by = map[mcp.Session][]string{}
	s := mcp.NewServer(&mcp.Implementation{Name: "web"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	for _, name := range tools {
		addTool(s, name)
	}
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			what := ""
			switch p := req.GetParams().(type) {
			case *mcp.SetLoggingLevelParams:
				what = string(p.Level)
			case *mcp.SubscribeParams:
				what = "+" + p.URI
			case *mcp.UnsubscribeParams:
				what = "-" + p.URI
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			if x.last = req.GetSession(); what != "" {
				x.by[x.last] = append(x.by[x.last], what)
			}
			return next(ctx, method, req)
		}
	})
	return s
}

// now returns what the last session was told.
func (x *told) now() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.by[x.last])
}

// What a session was told the next one is told, too.
func TestLevelAndSubscriptionsAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, _ := newRenewing(t, everything, legacy)
		all := new(told)
		x.server = all.server("search")
		session, ctx := x.session(), t.Context()
		require.NoError(t, session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "debug"}))
		for _, uri := range []string{"file:///a", "file:///b"} {
			require.NoError(t, session.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}))
		}
		require.NoError(t, session.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: "file:///b"}))
		for range 2 {
			x.kill()
			synctest.Wait()
			healthy(t, session, "search")
			require.Equal(t, []string{"debug", "+file:///a"}, all.now())
		}
	})
}

// What the server refuses by now is left out, and the session goes on.
func TestRefusedWhenRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, _ := newRenewing(t, everything, legacy)
		all := new(told)
		x.server = all.server("search")
		session := x.session()
		require.NoError(t, session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "file:///a"}))
		x.server, _ = newServer("web", "search") // knows no subscriptions
		x.kill()
		synctest.Wait()
		healthy(t, session, "search")
	})
}

// What a session answered while the next one was already being told is not lost.
func TestToldDuringARenewal(t *testing.T) {
	for _, method := range []string{shared.SetLevel, shared.Subscribe, shared.Unsubscribe} {
		synctest.Test(t, func(t *testing.T) {
			x, _ := newRenewing(t, everything, legacy)
			all := new(told)
			x.server = all.server("search")
			var session *mcp.ClientSession
			var during atomic.Bool
			x.client = plainClient()
			x.client.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
				return func(ctx context.Context, is string, req mcp.Request) (mcp.Result, error) {
					res, err := next(ctx, is, req)
					if is == method && during.CompareAndSwap(true, false) { // answered, and not noted yet
						x.kill()
						synctest.Wait()
						healthy(t, session, "search")
					}
					return res, err
				}
			})
			x.guard(mcpcircuit.Options{Reconnect: func(ctx context.Context, _ *mcp.ClientSession) (*mcp.ClientSession, error) {
				return x.connect(ctx)
			}}).Client(x.client)
			session = x.session()
			ctx := t.Context()
			require.NoError(t, session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "info"}))
			require.NoError(t, session.Subscribe(ctx, &mcp.SubscribeParams{URI: "file:///a"}))
			during.Store(true)
			want := []string{"info", "+file:///a"}
			switch method {
			case shared.SetLevel:
				require.NoError(t, session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "debug"}))
				want = append(want, "debug")
			case shared.Subscribe:
				require.NoError(t, session.Subscribe(ctx, &mcp.SubscribeParams{URI: "file:///b"}))
				want = append(want, "+file:///b")
			case shared.Unsubscribe:
				require.NoError(t, session.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: "file:///a"}))
				want = append(want, "-file:///a")
			}
			require.False(t, during.Load())
			require.Equal(t, want, all.now())
		})
	}
}

// Under load, with a server that is killed again and again, each session is told each thing once, and
// the last knows all.
func TestToldUnderLoad(t *testing.T) {
	x, _ := newRenewing(t, everything, legacy)
	all := new(told)
	x.server = all.server("search")
	session, ctx := x.session(), t.Context()
	var load sync.WaitGroup
	renewed := func() {
		x.kill()
		eventually(t, func() bool {
			x.add(time.Second) // what was opened meanwhile closes
			res, err := call(session, "search")
			return err == nil && !res.IsError
		})
	}
	until := func(do func() error) {
		for do() != nil {
			time.Sleep(time.Millisecond) // or 40 loops leave the renewal no processor; sockets know no fake clock
		}
	}
	want := []string{"debug"}
	for i := range 40 {
		uri := fmt.Sprint(i)
		if i%4 != 0 {
			want = append(want, "+"+uri)
		}
		load.Go(func() {
			until(func() error { return session.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}) })
			if i%4 == 0 {
				until(func() error { return session.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: uri}) })
			}
			until(func() error { return session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "debug"}) })
		})
	}
	for range 10 {
		renewed()
	}
	load.Wait()
	before := len(all.by)
	renewed()
	require.Equal(t, before+1, len(all.by))
	require.ElementsMatch(t, want, all.now())
	for _, told := range all.by {
		told = slices.DeleteFunc(slices.Clone(told), func(what string) bool { return what == "debug" })
		slices.Sort(told)
		require.Equal(t, len(told), len(slices.Compact(told)), told)
	}
}
