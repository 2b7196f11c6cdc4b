package mcptest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
)

// npm installs the published servers and the official client, once. Without npm the test is
// skipped, which is an error in CI.
func npm(t *testing.T) {
	t.Helper()
	if err := installed(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

var installed = sync.OnceValue(func() error {
	for _, command := range []string{"node", "npm"} {
		if _, err := exec.LookPath(command); err != nil {
			return fmt.Errorf("the published servers need %s: %w", command, err)
		}
	}
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		return err
	}
	const mark = "node_modules/.installed" // with the lock that was installed
	if was, err := os.ReadFile(mark); err == nil && string(was) == string(lock) {
		return nil
	}
	if out, err := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund").CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w: %s", err, out)
	}
	return os.WriteFile(mark, lock, 0o600)
})

func published(name string) string {
	return filepath.Join("node_modules", "@modelcontextprotocol", name, "dist", "index.js")
}

// legacy is the version that the published servers speak.
const legacy = "2025-11-25"

// Through a guard that has nothing to do, everything is as without one: results, errors, lists.
func TestPassThrough(t *testing.T) {
	npm(t)
	type step struct {
		tool string
		args map[string]any
	}
	for name, tt := range map[string]struct {
		argv  func(dir string) []string
		env   func(dir string) []string
		steps func(dir string) []step
	}{
		"server-everything": {
			func(string) []string { return []string{"node", published("server-everything"), "stdio"} },
			nil,
			func(string) []step {
				return []step{
					{"echo", map[string]any{"message": "hello"}},
					{"echo", map[string]any{"message": strings.Repeat("x", 1<<20)}},
					{"echo", map[string]any{}},
					{"echo", map[string]any{"message": 7}},
					{"get-sum", map[string]any{"a": 2, "b": 3}},
					{"get-sum", map[string]any{"a": "two"}},
					{"get-tiny-image", nil},
					{"get-annotated-message", map[string]any{"messageType": "error", "includeImage": true}},
					{"get-structured-content", map[string]any{"location": "New York"}},
					{"get-structured-content", map[string]any{"location": "nowhere"}},
					{"get-resource-links", map[string]any{"count": 3}},
					{"get-resource-reference", map[string]any{"resourceType": "Text", "resourceId": 1}},
					{"trigger-long-running-operation", map[string]any{"duration": 0.2, "steps": 2}},
					{"no-such-tool", nil},
				}
			},
		},
		"server-filesystem": {
			func(dir string) []string { return []string{"node", published("server-filesystem"), dir} },
			nil,
			func(dir string) []step {
				at := func(name string) map[string]any { return map[string]any{"path": filepath.Join(dir, name)} }
				return []step{
					{"list_allowed_directories", nil},
					{"write_file", map[string]any{"path": filepath.Join(dir, "a"), "content": "one\ntwo\n"}},
					{"read_text_file", at("a")},
					{"read_text_file", at("missing")},
					{"read_text_file", map[string]any{"path": "/etc/passwd"}},
					{"read_text_file", map[string]any{}},
					{"edit_file", map[string]any{"path": filepath.Join(dir, "a"), "edits": []any{map[string]any{"oldText": "one", "newText": "1"}}}},
					{"create_directory", at("d")},
					{"list_directory", at("")},
					{"directory_tree", at("")},
					{"search_files", map[string]any{"path": dir, "pattern": "a"}},
					{"move_file", map[string]any{"source": filepath.Join(dir, "a"), "destination": filepath.Join(dir, "b")}},
					{"read_multiple_files", map[string]any{"paths": []string{filepath.Join(dir, "b"), filepath.Join(dir, "a")}}},
				}
			},
		},
		"server-memory": {
			func(string) []string { return []string{"node", published("server-memory")} },
			func(dir string) []string { return []string{"MEMORY_FILE_PATH=" + filepath.Join(dir, "memory.jsonl")} },
			func(string) []step {
				bob := map[string]any{"name": "bob", "entityType": "person", "observations": []string{"likes tea"}}
				return []step{
					{"read_graph", nil},
					{"create_entities", map[string]any{"entities": []any{bob}}},
					{"create_entities", map[string]any{"entities": "bob"}},
					{"add_observations", map[string]any{"observations": []any{map[string]any{"entityName": "bob", "contents": []string{"dislikes milk"}}}}},
					{"add_observations", map[string]any{"observations": []any{map[string]any{"entityName": "eve", "contents": []string{"?"}}}}},
					{"search_nodes", map[string]any{"query": "tea"}},
					{"open_nodes", map[string]any{"names": []string{"bob"}}},
					{"delete_entities", map[string]any{"entityNames": []string{"bob"}}},
					{"read_graph", nil},
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for adapter := range adapters {
				t.Run(adapter, func(t *testing.T) {
					set, _ := newSet(t, guarded)
					dir := filepath.Join(t.TempDir(), "work")
					same := 0
					run := func(guard bool) (came []string) {
						require.NoError(t, os.RemoveAll(dir))
						require.NoError(t, os.Mkdir(dir, 0o700))
						s := server{command: func() *exec.Cmd {
							cmd := exec.Command(tt.argv(dir)[0], tt.argv(dir)[1:]...)
							cmd.Env = os.Environ()
							if tt.env != nil {
								cmd.Env = append(cmd.Env, tt.env(dir)...)
							}
							return cmd
						}}
						use := set
						if !guard {
							use = nil
						}
						h := open(t, adapter, use, s, legacy)
						names, err := h.List(t.Context())
						came = append(came, fmt.Sprint(names, err))
						for _, step := range tt.steps(dir) {
							r, err := h.Call(t.Context(), step.tool, step.args)
							came = append(came, clock.ReplaceAllString(fmt.Sprint(r.raw, err), "now"))
						}
						return came
					}
					without, with := run(false), run(true)
					for i := range without {
						require.Equal(t, without[i], with[i], "step %d", i)
						same++
					}
					t.Logf("%d steps unchanged", same)
				})
			}
		})
	}
}

// clock is the time of day in what a server says.
var clock = regexp.MustCompile(`\d+:\d\d:\d\d [AP]M`)

// The published server in processes: killed while idle, killed in mid-call, stopped.
func TestPublishedServerOverStdio(t *testing.T) {
	npm(t)
	for adapter := range adapters {
		t.Run(adapter, func(t *testing.T) {
			set, seen := newSet(t, strings.Replace(guarded, `"30s"`, `"30s", "callTimeout": "5s"`, 1))
			p := &processes{T: t, argv: []string{"node", published("server-everything"), "stdio"}}
			h := open(t, adapter, set, server{command: p.command}, legacy)
			works := func() time.Duration {
				start := time.Now()
				r, err := echo(t.Context(), h, "a")
				require.NoError(t, err)
				require.Equal(t, "Echo: a", r.text)
				return time.Since(start).Round(time.Millisecond)
			}
			works()
			p.kill(h)
			t.Logf("killed while idle: no call lost, the next took %v", works())

			done := make(chan error, 1)
			go func() {
				_, err := h.Call(t.Context(), "trigger-long-running-operation", map[string]any{"duration": 60, "steps": 5})
				done <- err
			}()
			time.Sleep(500 * time.Millisecond)
			p.kill(h)
			err := <-done
			require.Error(t, err)
			_, kinds := seen.of("trigger-long-running-operation")
			t.Logf("killed in mid-call: 1 call lost (%v), settled as %v, the next took %v", err, kinds, works())

			p.signal(syscall.SIGSTOP)
			start := time.Now()
			_, err = echo(t.Context(), h, "b")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			t.Logf("stopped: left after %v", time.Since(start).Round(time.Millisecond))
			p.signal(syscall.SIGCONT)
			t.Logf("continued: the next took %v", works())
		})
	}
}

// Servers in other languages tell of wrong arguments in a result with isError, like of any failure.
func TestWrongArgumentsOfAPublishedServer(t *testing.T) {
	npm(t)
	for config, want := range map[string]toolcircuit.State{
		`{"monitored": ["*"]}`: toolcircuit.StateClosed,
		`{"monitored": ["*"], "default": {"countUnknown": true}}`: toolcircuit.StateOpen,
	} {
		set, _ := newSet(t, config)
		p := &processes{T: t, argv: []string{"node", published("server-everything"), "stdio"}}
		h := open(t, "go-sdk", set, server{command: p.command}, legacy)
		for range 5 {
			r, err := h.Call(t.Context(), "echo", map[string]any{"message": 7})
			require.NoError(t, err)
			require.True(t, r.isError)
		}
		require.Equal(t, want, set.Circuit(t.Context(), "echo").State(), "the default threshold is 5")
	}
}

// The published server behind HTTP: restarted it answers 400 for the sessions of before.
func TestPublishedServerOverHTTP(t *testing.T) {
	npm(t)
	for adapter := range adapters {
		t.Run(adapter, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			port := l.Addr().(*net.TCPAddr).Port
			require.NoError(t, l.Close())
			url := fmt.Sprintf("http://127.0.0.1:%d/mcp", port)
			var cmd *exec.Cmd
			start := func() {
				cmd = exec.Command("node", published("server-everything"), "streamableHttp")
				cmd.Env = append(os.Environ(), fmt.Sprintf("PORT=%d", port))
				require.NoError(t, cmd.Start())
				require.True(t, eventually(time.Minute, func() bool {
					resp, err := http.Get(url)
					if err == nil {
						resp.Body.Close()
					}
					return err == nil
				}))
			}
			kill := func() {
				cmd.Process.Kill()
				cmd.Wait()
			}
			start()
			t.Cleanup(func() { kill() })
			set, seen := newSet(t, strings.Replace(guarded, `"30s"`, `"1s"`, 1))
			h := open(t, adapter, set, server{url: url}, legacy)
			_, err = echo(t.Context(), h, "a")
			require.NoError(t, err)
			for range 2 {
				kill()
				start()
				h.Sees(0)
				at := time.Now()
				r, err := echo(t.Context(), h, "a")
				require.NoError(t, err)
				require.Equal(t, "Echo: a", r.text)
				t.Logf("restarted: no call lost, the next took %v", time.Since(at).Round(time.Millisecond))
			}
			kill()
			blocked := 0
			for range 10 {
				if r, err := echo(t.Context(), h, "b"); err == nil {
					b, ok := r.blocked()
					require.True(t, ok)
					require.Equal(t, "mcp:fake", b.Dependency)
					blocked++
				}
			}
			start()
			at := time.Now()
			require.True(t, eventually(time.Minute, func() bool {
				r, err := echo(t.Context(), h, "c")
				return err == nil && r.text == "Echo: c"
			}))
			back := time.Since(at)
			_, kinds := seen.of("echo")
			t.Logf("down: %d of 10 calls sent, %d blocked; back %v after it was up (cooldown 1s); settled as %v",
				10-blocked, blocked, back.Round(time.Millisecond), kinds)
			require.Less(t, back, 10*time.Second)
		})
	}
}

// tsClient is the official client, connected to a URL.
type tsClient struct {
	*testing.T
	in    io.WriteCloser
	lines chan map[string]any
}

func newTSClient(t *testing.T, url string) *tsClient {
	t.Helper()
	npm(t)
	cmd := exec.Command("node", "client.mjs", url)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	c := &tsClient{T: t, in: in, lines: make(chan map[string]any, 100)}
	go func() {
		defer close(c.lines)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
			var line map[string]any
			if json.Unmarshal(lines.Bytes(), &line) == nil {
				c.lines <- line
			}
		}
	}()
	t.Cleanup(func() {
		in.Close()
		time.AfterFunc(5*time.Second, func() { cmd.Process.Kill() })
		cmd.Wait()
	})
	require.Equal(t, true, c.next()["ready"])
	return c
}

// next returns the next line that the client writes.
func (c *tsClient) next() map[string]any {
	c.Helper()
	select {
	case line := <-c.lines:
		return line
	case <-time.After(time.Minute):
		c.Fatal("the client says nothing")
		return nil
	}
}

func (c *tsClient) do(what map[string]any) map[string]any {
	c.Helper()
	c.send(what)
	return c.next()
}

func (c *tsClient) send(what map[string]any) {
	c.Helper()
	text, err := json.Marshal(what)
	require.NoError(c, err)
	_, err = c.in.Write(append(text, '\n'))
	require.NoError(c, err)
}
