package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if n := os.Getenv(workerEnv); n != "" {
		work(n)
		return
	}
	os.Exit(m.Run())
}

func TestRun(t *testing.T) {
	for _, c := range []struct{ name, path string }{
		{"with what is on PATH", os.Getenv("PATH")},
		{"with miniredis", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("PATH", c.path)
			var out bytes.Buffer
			err := run(&out)
			t.Log("\n" + out.String())
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{
				`worker \d stops: 3 of its calls in a row have failed`,
				`worker \d stops: it has heard that the API is unavailable`,
				`worker \d knew: its first call is refused, for [0-3]\.\d s more`,
				`one call, the probe, has reached it: 1\n`,
				`all workers call the API again`,
			} {
				if !regexp.MustCompile(want).MatchString(out.String()) {
					t.Errorf("nothing printed is like %q", want)
				}
			}
			for want, n := range map[string]int{" probes: the API is unavailable": 1, " probes: the API answers": 1, " stops: ": workers + 1, " goes on: ": workers} {
				if got := strings.Count(out.String(), want); got != n {
					t.Errorf("%q: printed %d times, want %d", want, got, n)
				}
			}
		})
	}
}
