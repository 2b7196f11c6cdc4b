// Package redisstore keeps the circuits of a [toolcircuit.Fleet] on Redis or Valkey.
//
// A closed circuit and one that refuses never ask the server. What the server is asked, and what
// happens when it does not answer, says the README of this package.
package redisstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/toolcircuit/toolcircuit"
)

// Store is a [toolcircuit.Store] on a Redis or Valkey server, a cluster, or what Sentinels watch.
// Make one with New or NewFromClient. All methods are safe for concurrent use.
//
// Every time is read on the server's clock. Workers on one server share a record iff they have the
// same Prefix, the same database and the same key.
type Store struct {
	client  redis.UniversalClient
	own     bool // Close closes the client
	prefix  string
	channel string
	ping    time.Duration

	mu       sync.Mutex
	closed   context.Context // ends with Close
	close    context.CancelFunc
	watching sync.WaitGroup // grows under mu, until closed
}

var (
	_ toolcircuit.Store    = (*Store)(nil)
	_ toolcircuit.Resetter = (*Store)(nil)
)

// Options are the options of a Store. The zero value is usable.
type Options struct {
	// Prefix begins the name of each key and of the channel. Give it one per application where
	// several share a server. The version of the format follows it, so that versions that do not
	// understand each other do not meet.
	Prefix string
	// Ping is the time between two PINGs that prove that the subscription is alive. After two
	// without an answer it is made anew. Zero: 2s.
	Ping time.Duration
}

// version is that of the records and of the events.
const version = "brk1:"

// limit bounds every wait of a client that New makes. The context of a request usually ends
// sooner.
const limit = time.Second

// New returns a Store on a client of its own, made from a copy of the client's options: address,
// TLS, user and password are used as they are. These are not, because a server that does not answer
// must not hold up a call: each time-out is at most 1s, a context's deadline counts, nothing is
// retried, at most 8 connections are open besides the subscription, and only masters are asked.
// The protocol is RESP2. New does not connect.
//
// An error names the field of o, what it got and what it wants.
func New[C redis.Options | redis.ClusterOptions | redis.FailoverOptions](client *C, o Options) (*Store, error) {
	if client == nil {
		return nil, errors.New("redisstore: New: the client's options are nil")
	}
	s, err := newStore(o)
	if err != nil {
		return nil, err
	}
	s.own = true
	database := 0
	copied := *client
	switch c := any(&copied).(type) {
	case *redis.Options:
		bound(&c.DialTimeout, &c.ReadTimeout, &c.WriteTimeout, &c.PoolTimeout)
		c.ContextTimeoutEnabled, c.MaxRetries, c.DialerRetries = true, -1, 1
		c.Protocol, c.DisableIdentity = 2, true
		c.MaintNotificationsConfig = noMaintenance()
		c.PoolSize, c.MinIdleConns, c.MaxActiveConns = poolSize, 0, 0
		if c.DB < 0 {
			return nil, fmt.Errorf("redisstore: New: Options.DB: got %d, want 0 or more", c.DB)
		}
		s.client, database = redis.NewClient(c), c.DB
	case *redis.ClusterOptions:
		bound(&c.DialTimeout, &c.ReadTimeout, &c.WriteTimeout, &c.PoolTimeout)
		c.ContextTimeoutEnabled, c.MaxRetries, c.DialerRetries = true, -1, 1
		c.Protocol, c.DisableIdentity = 2, true
		c.MaintNotificationsConfig = noMaintenance()
		c.PoolSize, c.MinIdleConns, c.MaxActiveConns = poolSize, 0, 0
		c.ReadOnly, c.RouteByLatency, c.RouteRandomly = false, false, false
		if len(c.Addrs) == 0 && c.ClusterSlots == nil {
			return nil, errors.New("redisstore: New: ClusterOptions.Addrs: got none, want at least one node")
		}
		s.client = redis.NewClusterClient(c)
	case *redis.FailoverOptions:
		bound(&c.DialTimeout, &c.ReadTimeout, &c.WriteTimeout, &c.PoolTimeout)
		c.ContextTimeoutEnabled, c.MaxRetries, c.DialerRetries = true, -1, 1
		c.Protocol, c.DisableIdentity = 2, true
		c.PoolSize, c.MinIdleConns, c.MaxActiveConns = poolSize, 0, 0
		c.ReplicaOnly, c.RouteByLatency, c.RouteRandomly = false, false, false
		switch {
		case c.MasterName == "":
			return nil, errors.New("redisstore: New: FailoverOptions.MasterName: got none, want the name that the Sentinels know")
		case len(c.SentinelAddrs) == 0:
			return nil, errors.New("redisstore: New: FailoverOptions.SentinelAddrs: got none, want at least one Sentinel")
		case c.DB < 0:
			return nil, fmt.Errorf("redisstore: New: FailoverOptions.DB: got %d, want 0 or more", c.DB)
		}
		s.client, database = redis.NewFailoverClient(c), c.DB
	}
	s.listensIn(database)
	return s, nil
}

const poolSize = 8

// bound cuts time-outs to limit. Zero is the client's default, and below zero there is none.
func bound(timeouts ...*time.Duration) {
	for _, t := range timeouts {
		if *t <= 0 || *t > limit {
			*t = limit
		}
	}
}

func noMaintenance() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// NewFromClient returns a Store on a *redis.Client or a *redis.ClusterClient that others may use,
// too. The client must have ContextTimeoutEnabled: without it a server that does not answer holds
// up a call for the client's ReadTimeout. MaxRetries -1 is best. Close leaves the client open.
//
// An error names the argument or field, what it got and what it wants.
func NewFromClient(client redis.UniversalClient, o Options) (*Store, error) {
	if v := reflect.ValueOf(client); client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("redisstore: NewFromClient: the client is nil")
	}
	heeds, database := false, 0
	switch c := client.(type) {
	case *redis.Client:
		heeds, database = c.Options().ContextTimeoutEnabled, c.Options().DB
	case *redis.ClusterClient:
		heeds = c.Options().ContextTimeoutEnabled
	default: // a Ring would hear events of one shard only
		return nil, fmt.Errorf("redisstore: NewFromClient: got a %T, want a *redis.Client or a *redis.ClusterClient", client)
	}
	if !heeds {
		return nil, errors.New("redisstore: NewFromClient: the client ignores a context's deadline; set ContextTimeoutEnabled: true in its options, or give the options to New")
	}
	s, err := newStore(o)
	if err != nil {
		return nil, err
	}
	s.client = client
	s.listensIn(database)
	return s, nil
}

func newStore(o Options) (*Store, error) {
	if o.Ping < 0 || o.Ping > 0 && o.Ping < time.Millisecond {
		return nil, fmt.Errorf("redisstore: Options.Ping: got %v, want at least 1ms, or 0 for the default", o.Ping)
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		return nil, fmt.Errorf("redisstore: Options.Prefix: got %q, want no braces, which choose a cluster's slot", o.Prefix)
	}
	s := &Store{ping: cmp.Or(o.Ping, 2*time.Second), prefix: o.Prefix + version}
	s.closed, s.close = context.WithCancel(context.Background())
	return s, nil
}

// listensIn names the channel, which a server's databases share, after the database.
func (s *Store) listensIn(database int) {
	s.channel = s.prefix + "ev"
	if database > 0 {
		s.channel += strconv.Itoa(database)
	}
}

var errUnmade = errors.New("redisstore: the Store is nil; make one with New or NewFromClient")

func (s *Store) made() bool { return s != nil && s.client != nil }

// Close ends every Watch, waits for it, and closes a client that New made. Requests fail then.
func (s *Store) Close() error {
	if !s.made() {
		return errUnmade
	}
	s.mu.Lock()
	s.close()
	s.mu.Unlock()
	s.watching.Wait()
	if s.own {
		return s.client.Close()
	}
	return nil
}

// record is the name of a key's record: the key in braces, which choose the slot in a cluster.
// Braces within it, percent signs and control characters are escaped. What is longer than 200
// bytes is replaced by its hash.
func (s *Store) record(key string) string {
	if len(key) > 200 {
		return fmt.Sprintf("%s{%%sha256:%x}", s.prefix, sha256.Sum256([]byte(key)))
	}
	var b strings.Builder
	b.WriteString(s.prefix + "{")
	for i := range len(key) {
		if c := key[i]; c < ' ' || c == 0x7f || c == '{' || c == '}' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	b.WriteByte('}')
	return b.String()
}
