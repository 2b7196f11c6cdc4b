package redisstore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

// A Sentinel makes the replica the master when the master dies: what was replicated is known, and
// openings go on.
func TestFailover(t *testing.T) {
	master, world := startServer(t), newWorld()
	replica := startServer(t, "--replicaof", "127.0.0.1 "+master.port)
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	require.NoError(t, os.WriteFile(config, []byte(strings.Join([]string{
		"sentinel monitor circuits 127.0.0.1 " + master.port + " 1",
		"sentinel down-after-milliseconds circuits 500",
		"sentinel failover-timeout circuits 5000",
	}, "\n")), 0o600))
	sentinel := startServer(t, config, "--sentinel")
	role := func(s *server) string { return fmt.Sprint(s.admin("ROLE").([]any)[0]) }
	replica.eventually(20*time.Second, "the replica has what the master has", func() bool {
		return strings.Contains(master.admin("INFO", "replication").(string), "state=online")
	})
	sentinel.eventually(20*time.Second, "the sentinel knows the replica", func() bool {
		return strings.Contains(sentinel.admin("INFO", "sentinel").(string), "slaves=1")
	})

	long := policy()
	long.Cooldown, long.MaxCooldown = time.Minute, time.Minute
	var all []*worker
	client := redis.FailoverOptions{MasterName: "circuits", SentinelAddrs: []string{sentinel.addr()}}
	for range 3 {
		w := newWorkerOn(t, open(t, client, pings), toolcircuit.FleetOptions{}, toolcircuit.Options{Policy: long}, tool, "another")
		w.settled(tool)
		w.settled("another")
		all = append(all, w)
	}
	time.Sleep(200 * time.Millisecond)
	all[0].fail(world, tool)
	agree(t, time.Second, all, tool, toolcircuit.StateOpen)
	replica.eventually(5*time.Second, "the opening is replicated", func() bool { return replica.record("brk1:{" + tool + "}")["g"] == "1" })
	master.kill()
	replica.eventually(30*time.Second, "the replica is the master", func() bool { return role(replica) == "master" })
	fresh := newWorkerOn(t, open(t, client, pings), toolcircuit.FleetOptions{}, toolcircuit.Options{Policy: long}, tool)
	replica.eventually(5*time.Second, "a fresh worker knows of the opening", func() bool {
		fresh.settled(tool)
		return fresh.tools[tool].State() == toolcircuit.StateOpen
	})
	all[0].fail(world, "another")
	replica.eventually(10*time.Second, "all know of the second opening", func() bool {
		know := 0
		for _, w := range all {
			w.settled("another") // a circuit that nobody calls is not polled, but its next call loads the record
			if w.tools["another"].State() == toolcircuit.StateOpen {
				know++
			}
		}
		return know == len(all)
	})
	replica.eventually(5*time.Second, "the new master has it", func() bool { return replica.record("brk1:{another}")["g"] == "1" })
}
