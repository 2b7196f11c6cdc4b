package redisstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/toolcircuit/toolcircuit"
)

// Watch is [toolcircuit.Store]'s. It proves with a PING from time to time that its connection is
// alive, because a silent one gives no error. A subscription that stood and was lost is made anew
// at once; Watch returns the error of one that could not be made. It also returns when the Store
// is closed.
func (s *Store) Watch(ctx context.Context, changed func(key string, v toolcircuit.View), resync func()) error {
	if !s.made() {
		return errUnmade
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closed, cancel)()
	if err := s.enter(); err != nil {
		return err
	}
	defer s.watching.Done()
	for {
		stood, err := s.listen(ctx, changed, resync)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !stood:
			return err
		}
		select {
		case <-time.After(s.ping / 20): // so that a server that ends it at once is not called in a loop
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// enter makes Close wait for one Watch more.
func (s *Store) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Err() != nil {
		return errors.New("redisstore: Watch: the Store is closed")
	}
	s.watching.Add(1)
	return nil
}

// listen subscribes and hands on what arrives, until the connection is lost or nothing has arrived
// for two intervals. It reports whether the subscription stood.
func (s *Store) listen(ctx context.Context, changed func(key string, v toolcircuit.View), resync func()) (stood bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	subscription := s.client.Subscribe(ctx, s.channel)
	defer subscription.Close()
	defer context.AfterFunc(ctx, func() { subscription.Close() })() // ends a read
	done := make(chan struct{})
	defer func() { cancel(); <-done }()
	go func() {
		defer close(done)
		s.keepAlive(ctx, subscription)
	}()
	for {
		message, err := subscription.ReceiveTimeout(ctx, 2*s.ping)
		if err != nil {
			return stood, err
		}
		switch m := message.(type) {
		case *redis.Subscription:
			stood = true
			resync()
		case *redis.Message:
			if key, v, ok := parseEvent(m.Payload); ok {
				changed(key, v)
			}
		}
	}
}

// keepAlive sends a PING in each interval, so that a subscription that is alive is never silent.
func (s *Store) keepAlive(ctx context.Context, subscription *redis.PubSub) {
	ticker := time.NewTicker(s.ping)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			subscription.Ping(ctx) // the answer, or none, arrives in listen
		case <-ctx.Done():
			return
		}
	}
}

// parseEvent reads what change in head.lua publishes: the number of the format, a view and the
// key. Events of another format are not understood; a poll finds what they tell.
func parseEvent(payload string) (key string, v toolcircuit.View, ok bool) {
	rest, known := strings.CutPrefix(payload, "1 ")
	fields := strings.SplitN(rest, " ", viewFields+1)
	if !known || len(fields) != viewFields+1 {
		return "", v, false
	}
	key = fields[viewFields]
	v, err := parseView(strings.TrimSuffix(rest, " "+key))
	return key, v, err == nil
}
