package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// server is a redis-server of a test's own, on a free port of the loopback.
type server struct {
	t    testing.TB
	port string
	dir  string
	args []string
	cmd  *exec.Cmd
}

// startServer starts a redis-server, which ends with the test. It keeps nothing on disk unless
// args say so.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("redis-server is not on PATH, and CI must have it")
		}
		t.Skip("redis-server is not on PATH")
	}
	port := freePort
	if slices.Contains(args, "--cluster-enabled") {
		port = clusterPort
	}
	s := &server{t: t, port: port(t), dir: t.TempDir(), args: args}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

func (s *server) addr() string { return "127.0.0.1:" + s.port }

// start starts the process, and waits until it answers.
func (s *server) start() {
	s.t.Helper()
	args := slices.Concat(s.args, []string{"--bind", "127.0.0.1", "--port", s.port, "--dir", s.dir, "--loglevel", "warning"})
	if !slices.Contains(args, "--sentinel") {
		args = append(args, "--save", "")
	}
	s.cmd = exec.Command("redis-server", args...)
	require.NoError(s.t, s.cmd.Start())
	client := redis.NewClient(&redis.Options{Addr: s.addr(), ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	s.eventually(10*time.Second, "redis-server listens", func() bool {
		c, err := net.Dial("tcp", s.addr())
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	s.eventually(10*time.Second, "redis-server answers", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := client.Ping(ctx).Result()
		return err == nil || redis.HasErrorPrefix(err, "NOAUTH")
	})
}

// kill ends the process as a crash does.
func (s *server) kill() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.cmd = nil
	}
}

// freeze stops the process: connections stay, nothing answers. thaw lets it go on.
func (s *server) freeze() { require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGSTOP)) }
func (s *server) thaw()   { require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGCONT)) }

// admin sends a command from outside.
func (s *server) admin(args ...any) any {
	s.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.addr(), Protocol: 2, DisableIdentity: true})
	defer client.Close()
	answer, err := client.Do(context.Background(), args...).Result()
	if err != redis.Nil {
		require.NoError(s.t, err, fmt.Sprint(args...))
	}
	return answer
}

// record returns the fields of a key.
func (s *server) record(key string) map[string]string {
	s.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.addr(), Protocol: 2, DisableIdentity: true})
	defer client.Close()
	fields, err := client.HGetAll(context.Background(), key).Result()
	require.NoError(s.t, err)
	return fields
}

func (s *server) eventually(within time.Duration, what string, is func() bool) {
	s.t.Helper()
	eventually(s.t, within, what, is)
}

// eventually waits until something is so.
func eventually(t testing.TB, within time.Duration, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// percentile returns what the share p of the durations do not exceed, 0 for none.
func percentile(all []time.Duration, p float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(int(p*float64(len(all))), len(all)-1)]
}
