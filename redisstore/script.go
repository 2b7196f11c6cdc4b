package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/toolcircuit/toolcircuit"
)

// Each script is one atomic step on one key. All have the same beginning.
var (
	//go:embed head.lua
	head string
	//go:embed load.lua
	loadBody string
	//go:embed trip.lua
	tripBody string
	//go:embed acquire.lua
	acquireBody string
	//go:embed settle.lua
	settleBody string

	load    = redis.NewScript(head + loadBody)
	trip    = redis.NewScript(head + tripBody)
	acquire = redis.NewScript(head + acquireBody)
	settle  = redis.NewScript(head + settleBody)
)

// request is what a script is sent, in the order in which head.lua reads it.
type request struct {
	toolcircuit.Terms
	toolcircuit.Opening
	epoch  uint64
	fence  toolcircuit.Fence
	action string // what the script is to do, beyond its name
}

// run sends a request on one record. A server that does not have the script gets it whole.
func (s *Store) run(ctx context.Context, script *redis.Script, key string, q request) (toolcircuit.View, error) {
	if !s.made() {
		return toolcircuit.View{}, errUnmade
	}
	if q.epoch >= 1<<53 { // more than Lua counts; no server has given it before the year 2255
		q.epoch = 0
	}
	answer, err := script.Run(ctx, s.client, []string{s.record(key)},
		s.channel, key, escape(q.fence), q.action, escape(q.Cause),
		milliseconds(q.Cooldown), milliseconds(q.MaxCooldown), q.Multiplier, q.Jitter, q.Draw,
		milliseconds(q.MaxRetryAfter), q.ProbeSuccesses, milliseconds(q.Lease), milliseconds(q.Retention),
		q.epoch, q.Generation, milliseconds(q.Wait), q.Asked, milliseconds(q.Age), q.Failures).Text()
	if err != nil {
		return toolcircuit.View{}, err
	}
	return parseView(answer)
}

// Load is [toolcircuit.Store]'s. A key that holds something other than a hash has no record.
func (s *Store) Load(ctx context.Context, keys []string) ([]toolcircuit.View, error) {
	if !s.made() {
		return nil, errUnmade
	}
	views := make([]toolcircuit.View, len(keys))
	if len(keys) == 0 {
		return views, nil
	}
	all := make([]int, len(keys))
	for i := range all {
		all[i] = i
	}
	unknown, err := s.loadSome(ctx, load.EvalSha, keys, all, views)
	if err == nil && len(unknown) > 0 {
		unknown, err = s.loadSome(ctx, load.Eval, keys, unknown, views)
	}
	if err == nil && len(unknown) > 0 {
		err = errors.New("redisstore: the server does not keep scripts")
	}
	return views, err
}

// loadSome loads the records of some of the keys in one pipeline. It returns those whose server
// does not know the script.
func (s *Store) loadSome(ctx context.Context, eval func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd, keys []string, some []int, views []toolcircuit.View) (unknown []int, err error) {
	pipe := s.client.Pipeline()
	answers := make([]*redis.Cmd, len(some))
	for i, n := range some {
		answers[i] = eval(ctx, pipe, []string{s.record(keys[n])})
	}
	pipe.Exec(ctx) // each answer has its own error
	for i, n := range some {
		answer, err := answers[i].Text()
		switch {
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			unknown = append(unknown, n)
			continue
		case err != nil && strings.Contains(err.Error(), "WRONGTYPE"): // inside the script's own error
			continue
		case err != nil:
			return nil, err
		}
		if views[n], err = parseView(answer); err != nil {
			return nil, err
		}
	}
	return unknown, nil
}

// Trip is [toolcircuit.Store]'s.
func (s *Store) Trip(ctx context.Context, key string, t toolcircuit.TripRequest) (toolcircuit.View, error) {
	q := request{Terms: t.Terms, Opening: t.Opening, epoch: t.Epoch}
	if t.Pause {
		q.action = "pause"
	}
	return s.run(ctx, trip, key, q)
}

// Acquire is [toolcircuit.Store]'s.
func (s *Store) Acquire(ctx context.Context, key string, a toolcircuit.AcquireRequest) (toolcircuit.View, error) {
	q := request{Terms: a.Terms, epoch: a.Epoch, fence: a.Fence}
	if a.Early {
		q.action = "early "
	}
	if a.Lost != nil {
		q.action += "lost"
		q.Opening = *a.Lost
	}
	return s.run(ctx, acquire, key, q)
}

// Settle is [toolcircuit.Store]'s.
func (s *Store) Settle(ctx context.Context, key string, f toolcircuit.Fence, o toolcircuit.Settlement) (toolcircuit.View, error) {
	return s.run(ctx, settle, key, request{Terms: o.Terms, Opening: o.Opening, fence: f, action: string(o.Result)})
}

// Reset is [toolcircuit.Resetter]'s.
func (s *Store) Reset(ctx context.Context, key string, r toolcircuit.ResetRequest) (toolcircuit.View, error) {
	return s.run(ctx, settle, key, request{Terms: r.Terms, epoch: r.Epoch, action: "reset"})
}

// parseView reads what view in head.lua writes.
func parseView(answer string) (v toolcircuit.View, err error) {
	fields := strings.Split(answer, " ")
	if len(fields) != viewFields {
		return v, fmt.Errorf("redisstore: a view has %d fields, want %d: %.100q", len(fields), viewFields, answer)
	}
	number := func(field string) (n float64) {
		n, e := strconv.ParseFloat(field, 64)
		if e != nil || math.IsNaN(n) {
			err = fmt.Errorf("redisstore: a view has the number %.20q: %.100q", field, answer)
		}
		return n
	}
	duration := func(field string) time.Duration {
		return time.Duration(min(number(field)*float64(time.Millisecond), 1<<62))
	}
	text := func(field string) string {
		s, e := url.QueryUnescape(field)
		if e != nil {
			err = fmt.Errorf("redisstore: a view has the text %.20q: %.100q", field, answer)
		}
		return s
	}
	v = toolcircuit.View{
		Open:           fields[0] == "1",
		Generation:     int(min(number(fields[1]), math.MaxInt32)),
		Remaining:      duration(fields[3]),
		LeaseRemaining: duration(fields[4]),
		Asked:          fields[5] == "1",
		Failures:       int(min(number(fields[6]), math.MaxInt32)),
		Age:            duration(fields[7]),
		Cause:          toolcircuit.Kind(text(fields[8])),
		Fence:          toolcircuit.Fence(text(fields[9])),
	}
	epoch, e := strconv.ParseUint(fields[2], 10, 64)
	if e != nil {
		err = fmt.Errorf("redisstore: a view has the epoch %.20q: %.100q", fields[2], answer)
	}
	v.Epoch = epoch
	if err != nil {
		return toolcircuit.View{}, err
	}
	return v, nil
}

const viewFields = 10

// escape writes a text without spaces, so that it can be one field of a view.
func escape[S ~string](s S) string { return url.QueryEscape(string(s)) }

func milliseconds(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 3, 64)
}
