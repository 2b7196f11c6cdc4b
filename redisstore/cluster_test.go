package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/redisstore"
	"github.com/toolcircuit/toolcircuit/storetest"
)

const slots = 16384

// startCluster starts a cluster of three masters.
func startCluster(t testing.TB) (nodes [3]*server, client redis.ClusterOptions) {
	t.Helper()
	for i := range nodes {
		s := startServer(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
		s.admin("CLUSTER", "SET-CONFIG-EPOCH", i+1)
		own := []any{"CLUSTER", "ADDSLOTS"}
		for slot := i * slots / 3; slot < (i+1)*slots/3; slot++ {
			own = append(own, slot)
		}
		s.admin(own...)
		nodes[i] = s
		client.Addrs = append(client.Addrs, s.addr())
		if i > 0 {
			s.admin("CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
		}
	}
	for _, s := range nodes {
		s.eventually(20*time.Second, "the cluster is whole", func() bool {
			info := s.admin("CLUSTER", "INFO").(string)
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3")
		})
	}
	return nodes, client
}

// clusterPort returns a free port whose number has room for that of the cluster's bus above it.
func clusterPort(t testing.TB) string {
	t.Helper()
	for {
		port := freePort(t)
		if n, err := strconv.Atoi(port); err != nil || n > 55535 {
			continue
		} else if l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", n+10000)); err == nil {
			l.Close()
			return port
		}
	}
}

func TestCluster(t *testing.T) {
	nodes, client := startCluster(t)
	t.Run("store", func(t *testing.T) {
		var made atomic.Int64
		prefixes := map[*testing.T]string{}
		storetest.Run(t, func(t *testing.T) toolcircuit.Store {
			if prefixes[t] == "" { // one cluster, records of its own for each
				prefixes[t] = fmt.Sprint("test ", made.Add(1), ":")
			}
			return open(t, client, redisstore.Options{Prefix: prefixes[t]})
		})
	})
	t.Run("one probe", func(t *testing.T) {
		oneProbe(t, 20, func() *redisstore.Store { return open(t, client, redisstore.Options{Prefix: "probe:"}) })
	})
	t.Run("one opens, all refuse", func(t *testing.T) {
		world := newWorld()
		tools := []string{"a", "b", "c", "d", "e", "f"} // on all nodes
		var all []*worker
		for range 4 {
			w := newWorkerOn(t, open(t, client, pings), toolcircuit.FleetOptions{}, toolcircuit.Options{Policy: policy()}, tools...)
			for _, tool := range tools {
				w.settled(tool)
			}
			all = append(all, w)
		}
		time.Sleep(200 * time.Millisecond)
		on := map[int]bool{}
		for _, tool := range tools {
			all[0].fail(world, tool)
			// If the news is lost, or the opening is told late, the others know at their next poll.
			agree(t, 6*time.Second, all, tool, toolcircuit.StateOpen, toolcircuit.StateHalfOpen)
			slot := nodes[0].admin("CLUSTER", "KEYSLOT", "brk1:{"+tool+"}").(int64)
			on[int(slot*3/slots)] = true
			world.set(tool, false)
		}
		require.Len(t, on, 3, "nodes that the tools are on")
		d := drive(world, all, 5*time.Millisecond, tools...)
		for _, tool := range tools {
			agree(t, 10*time.Second, all, tool, toolcircuit.StateClosed)
		}
		d.end(t)
	})
	t.Run("a node is gone", func(t *testing.T) {
		world := newWorld()
		tools := []string{"a", "b", "c", "d", "e", "f"}
		w := newWorkerOn(t, open(t, client, pings), toolcircuit.FleetOptions{}, toolcircuit.Options{Policy: policy()}, tools...)
		for _, tool := range tools {
			w.settled(tool)
		}
		nodes[2].freeze()
		defer nodes[2].thaw()
		d := drive(world, []*worker{w}, 5*time.Millisecond, tools...)
		time.Sleep(500 * time.Millisecond)
		for _, tool := range tools {
			world.set(tool, true)
		}
		for _, tool := range tools {
			agree(t, time.Second, []*worker{w}, tool, toolcircuit.StateOpen)
			world.set(tool, false)
		}
		for _, tool := range tools {
			agree(t, 10*time.Second, []*worker{w}, tool, toolcircuit.StateClosed)
		}
		d.end(t)
		for _, tool := range tools {
			require.Less(t, percentile(d.took[tool], 1), 2*opTimeout+slack)
		}
	})
}

// All in one pipeline, whatever node they are on, and also after all have forgotten the script.
func TestClusterLoad(t *testing.T) {
	nodes, client := startCluster(t)
	s := open(t, client, redisstore.Options{})
	var keys []string
	for i := range 60 {
		keys = append(keys, fmt.Sprint("tool ", i))
		_, err := s.Trip(context.Background(), keys[i], toolcircuit.TripRequest{Terms: probeTerms(), Opening: toolcircuit.Opening{Generation: i + 1}})
		require.NoError(t, err)
	}
	nodes[1].admin("SCRIPT", "FLUSH")
	views, err := s.Load(context.Background(), keys)
	require.NoError(t, err)
	for i, v := range views {
		require.Equal(t, i+1, v.Generation)
	}
}
