package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// startStore starts a redis-server if there is one on PATH, otherwise miniredis in this process.
func startStore() (addr, name string, stop func(), err error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		m, err := miniredis.Run()
		if err != nil {
			return "", "", nil, err
		}
		ticker := time.NewTicker(100 * time.Millisecond)
		go func() {
			for range ticker.C {
				m.FastForward(100 * time.Millisecond) // its keys do not expire by themselves
			}
		}()
		return m.Addr(), "miniredis in this process", func() { ticker.Stop(); m.Close() }, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", nil, err
	}
	addr = l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	l.Close()
	cmd := exec.Command(path, "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", os.TempDir())
	if err := cmd.Start(); err != nil {
		return "", "", nil, err
	}
	stop = func() { cmd.Process.Kill(); cmd.Wait() }
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return addr, "redis-server", stop, nil
		}
		if time.Now().After(end) {
			stop()
			return "", "", nil, errors.New("redis-server does not listen")
		}
	}
}

// fleet is the worker processes and what they report.
type fleet struct {
	out        io.Writer
	store, api string
	began      time.Time
	processes  [workers + 1]*exec.Cmd
	reports    chan report
}

// report is one line that a worker prints for this program.
type report struct {
	Worker       int
	What, Detail string
}

func (f *fleet) start(n int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), workerEnv+"="+strconv.Itoa(n), storeEnv+"="+f.store, apiEnv+"="+f.api)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // a worker ends when this program does
		return err
	}
	lines, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	f.processes[n] = cmd
	go func() {
		for s := bufio.NewScanner(lines); s.Scan(); {
			var r report
			if json.Unmarshal(s.Bytes(), &r) == nil {
				f.reports <- r
			}
		}
	}()
	return nil
}

func (f *fleet) kill(n int) {
	if cmd := f.processes[n]; cmd != nil {
		cmd.Process.Kill()
		cmd.Wait()
	}
}

func (f *fleet) stop() {
	go func() { // what they still say
		for range f.reports {
		}
	}()
	for n := range f.processes {
		f.kill(n)
	}
}

// expect prints what the workers report, until that many have reported what. It returns the last.
func (f *fleet) expect(what string, n int) (worker int, err error) {
	patience := time.After(10 * time.Second)
	for n > 0 {
		select {
		case r := <-f.reports:
			if r.What == what {
				n, worker = n-1, r.Worker
			}
			if r.What != "ready" {
				f.say("worker %d %s: %s", r.Worker, r.What, r.Detail)
			}
		case <-patience:
			return 0, fmt.Errorf("%d workers have not said %q within 10 s", n, what)
		}
	}
	return worker, nil
}

func (f *fleet) say(format string, args ...any) {
	fmt.Fprintf(f.out, "%5.2f s  "+format+"\n", append([]any{time.Since(f.began).Seconds()}, args...)...)
}
