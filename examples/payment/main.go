// Payment retries a payment that must happen once: only what may help is tried again, all
// attempts have one key, the bank's wishes are obeyed, the model cannot repeat what failed for
// good, and it reads of the last attempt that ran, whatever refused the next.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"regexp"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// patience is how long a call of the tool may take, waits included.
const patience = 5 * time.Second

// client makes a connection for each attempt, or net/http would make some attempts by itself: it
// takes a request with an Idempotency-Key for one that may be repeated.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// send is one attempt.
func send(ctx context.Context, url string, p payment) (receipt, error) {
	key := toolset.IdempotencyKey(ctx)
	if key == "" {
		return receipt{}, errors.New("no idempotency key: a second attempt could pay twice")
	}
	body, err := json.Marshal(p)
	if err != nil {
		return receipt{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return receipt{}, err
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := client.Do(req)
	if err != nil {
		return receipt{}, err
	}
	defer resp.Body.Close()
	err = toolcircuit.CheckResponse(resp)
	if resp.StatusCode == http.StatusConflict { // this bank says so of a key that it has seen
		err = toolcircuit.Duplicate(err)
	} else if err != nil {
		return receipt{}, err
	}
	var made receipt
	return made, errors.Join(err, json.NewDecoder(resp.Body).Decode(&made))
}

// instruct tells the retry what to do after err: first judge, then try again. The time that the
// bank asks for counts against the patience.
func instruct(err error) error {
	var answer *toolcircuit.HTTPError
	switch {
	case !toolcircuit.Retryable(err):
		return backoff.Permanent(err)
	case errors.As(err, &answer) && answer.RetryAfter > 0:
		return errors.Join(err, &backoff.RetryAfterError{Duration: answer.RetryAfter})
	}
	return err
}

// payTool returns the tool: a retry around the circuit and the session, and around all that what
// the model reads.
func payTool(set *toolset.Set, url string) func(context.Context, payment) (toolcircuit.Result[receipt], error) {
	return func(ctx context.Context, p payment) (toolcircuit.Result[receipt], error) {
		patient, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		var verdict toolcircuit.Verdict // on the last attempt that ran
		var last error                  // of that attempt
		made, err := backoff.Retry(patient, func() (receipt, error) {
			if err := set.Circuit(ctx, "pay").Wait(patient); err != nil {
				return receipt{}, backoff.Permanent(err)
			}
			permit, err := set.Allow(patient, "pay", p)
			if err != nil {
				return receipt{}, instruct(err)
			}
			defer permit.Release()
			made, err := send(permit.Context(patient), url, p)
			verdict, last = permit.Settle(patient, made, err)
			return made, instruct(last)
		}, backoff.WithBackOff(backoff.NewConstantBackOff(10*time.Millisecond)), backoff.WithMaxElapsedTime(patience))
		if err != nil && last != nil { // a refusal would say that nothing was executed
			err = last
		}
		return toolset.ResultOf(ctx, set, "pay", made, verdict, err)
	}
}

// moment is a point in time, with its day or without. It is left out, so that the output is always the same.
var moment = regexp.MustCompile(`(\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\d`)

func main() {
	b, url, shut, err := open()
	check(err)
	defer shut()
	sideEffects := true
	set, err := toolset.New(toolset.Config{
		Default: &toolcircuit.Policy{Cooldown: 500 * time.Millisecond},
		Tools:   map[string]toolset.Tool{"pay": {Dependency: "bank", SideEffects: &sideEffects}},
	}, toolset.Options{})
	check(err)
	run, err := set.Session("run-1", toolset.Limits{})
	check(err)
	defer run.Close()
	ctx := toolset.WithSession(context.Background(), run)

	pay := payTool(set, url)
	show := func(what string, p payment) {
		seen := b.watch(p.To)
		r, err := pay(ctx, p)
		check(err)
		text, err := json.Marshal(r)
		check(err)
		b.mu.Lock()
		defer b.mu.Unlock()
		fmt.Printf("%s\n  attempts %d, too early %d, keys %d, effects %d\n  %s\n", what,
			seen.attempts, seen.early, len(seen.keys), seen.effects, moment.ReplaceAll(text, []byte("<time>")))
	}
	show("The bank pays and drops the answer. The second attempt has the same key.", payment{"shop", 1000})
	show("The bank pays and drops every answer. The fourth attempt is refused, which does not make the others undone.", payment{"lost", 700})
	show("The bank is busy and asks for a second of patience.", payment{"busy", 500})
	show("The bank asks for a minute, which is more than there is.", payment{"closed", 500})
	show("There is no such account, so nothing is tried again.", payment{"nobody", 500})
	show("The model tries the same call again, and is refused.", payment{"nobody", 500})
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
