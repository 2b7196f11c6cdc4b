package toolcircuit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/storetest"
)

// FuzzFleet drives four workers of one store by random steps: calls and their outcomes, time, faults of
// the store for one worker or all, restarts. It holds them against the promises:
//
//   - no call waits longer than twice OpTimeout, and none gets an error of the store;
//   - epochs only rise;
//   - while nothing is wrong with the store, one probe is out at a time, and none before the
//     cooldown is over; a worker that was started anew knows what the others know;
//   - when all is well again, all workers agree and close, and they all hear of the next opening.
//
// TOOLCIRCUIT_SEEDS is the number of random seeds.
func FuzzFleet(f *testing.F) {
	seeds := 60
	if n, err := strconv.Atoi(os.Getenv("TOOLCIRCUIT_SEEDS")); err == nil {
		seeds = n
	}
	for seed := range seeds {
		f.Add(uint64(seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64) { // not the steps, which no minimizing makes fewer
		rng := rand.New(rand.NewPCG(seed, 1))
		data := make([]byte, 100+rng.IntN(400))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		synctest.Test(t, func(t *testing.T) { newDrive(t).run(data) })
	})
}

// drive is one run.
type drive struct {
	*testing.T
	store   *storetest.Memory
	workers []*driven
	epoch   uint64
	clean   bool // nothing was ever wrong with the store
	log     []string
}

// driven is a worker, with its calls under way.
type driven struct {
	*worker
	calls []*underWay
}

type underWay struct {
	*toolcircuit.Permit
	began time.Time
}

const opTimeout = 50 * time.Millisecond

func newDrive(t *testing.T) *drive {
	d := &drive{T: t, store: storetest.NewMemory(), clean: true}
	t.Cleanup(func() {
		if t.Failed() {
			for _, line := range d.log {
				t.Log(line)
			}
		}
	})
	for range 4 {
		d.workers = append(d.workers, &driven{worker: d.start()})
	}
	return d
}

func (d *drive) start() *worker {
	p := fleetPolicy
	p.ProbeTimeout, p.ProbeSuccesses, p.Jitter = 5*time.Second, 2, 0.2
	w := newWorker(d.T, d.store.Peer(), p, fleetOptions)
	synctest.Wait()
	return w
}

func (d *drive) tell(format string, args ...any) {
	d.log = append(d.log, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

// run takes the steps, and then lets all be well.
func (d *drive) run(data []byte) {
	for len(data) >= 3 {
		d.step(data[0], data[1], data[2])
		data = data[3:]
		synctest.Wait()
		d.check()
	}
	d.heal()
	for _, w := range d.workers {
		for _, c := range w.calls {
			c.Release()
		}
	}
	for range 2000 { // 500 s, which outlasts every wait
		for _, w := range d.workers {
			d.call(w, nil)
		}
		time.Sleep(250 * time.Millisecond)
	}
	for i, w := range d.workers {
		require.Equal(d, closed, w.State(), "worker %d is stuck", i)
		require.Equal(d, toolcircuit.SharedOK, w.Snapshot().Shared)
	}
	require.False(d, d.store.Record(key).Open, "the record is stuck: %+v", d.store.Record(key))
	for range 3 {
		d.call(d.workers[1], errDown)
	}
	synctest.Wait()
	for i, w := range d.workers {
		require.Equal(d, open, w.State(), "worker %d has not heard", i)
	}
}

// heal ends all faults.
func (d *drive) heal() {
	for _, w := range d.workers {
		w.store.Set(storetest.Fault{})
		w.store.Deafen(false)
	}
}

var (
	outcomes = []error{nil, nil, errDown, errDown, errDown, errInvalid, asked(3 * time.Second), wait(4 * time.Second), context.Canceled}
	faulty   = []storetest.Fault{
		{Err: errors.New("store")}, {Panic: "store"}, {Frozen: true}, {LoseAnswer: true},
		{Delay: 20 * time.Millisecond}, {Delay: 200 * time.Millisecond}, {},
	}
)

func (d *drive) step(what, who, how byte) {
	w := d.workers[int(who)%len(d.workers)]
	switch what % 16 {
	case 0, 1, 2, 3:
		err := outcomes[int(how)%len(outcomes)]
		d.tell("worker %d calls: %v", int(who)%4, err)
		d.call(w, err)
	case 4, 5:
		d.tell("worker %d begins a call", int(who)%4)
		if p := d.allow(w); p != nil {
			w.calls = append(w.calls, &underWay{p, time.Now()})
		}
	case 6, 7:
		if len(w.calls) > 0 {
			i := int(how) % len(w.calls)
			c := w.calls[i]
			w.calls = append(w.calls[:i], w.calls[i+1:]...)
			err := outcomes[int(what/16)%len(outcomes)]
			d.tell("worker %d ends a call: %v", int(who)%4, err)
			d.within(opTimeout, func() { settle(c.Permit, err) })
		}
	case 8, 9, 10:
		pause := []time.Duration{time.Millisecond, 10 * time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second, 9 * time.Second}[int(how)%6]
		d.tell("%v pass", pause)
		time.Sleep(pause)
	case 11, 12:
		if who%2 == 0 && d.clean { // half of the runs stay clean
			return
		}
		d.clean = false
		fault := faulty[int(how)%len(faulty)]
		methods := [][]storetest.Method{nil, {storetest.Load}, {storetest.Trip}, {storetest.Acquire}, {storetest.Settle}, {storetest.Watch}}[int(how/16)%6]
		d.tell("worker %d: %+v on %v", int(who)%4, fault, methods)
		w.store.Set(fault, methods...)
	case 13:
		d.tell("all is well")
		d.heal()
	case 14:
		if d.clean && how%4 > 0 {
			return
		}
		d.clean = false
		switch how % 5 {
		case 0:
			d.tell("the store is emptied")
			d.store.Empty()
			d.epoch = 0
		case 1:
			d.tell("the store's clock steps")
			d.store.Step(time.Duration(int8(how)) * 100 * time.Millisecond)
		case 2:
			d.tell("worker %d is deaf", int(who)%4)
			w.store.Deafen(true)
		case 3:
			d.tell("reset by worker %d", int(who)%4)
			d.within(opTimeout, w.Reset)
		case 4:
			d.tell("worker %d leaves and joins", int(who)%4)
			w.fleet.Leave(w.ToolCircuit)
			require.NoError(d, w.fleet.Join(w.ToolCircuit, key))
		}
	case 15:
		d.tell("worker %d is started anew", int(who)%4)
		d.within(opTimeout, func() { require.NoError(d, w.fleet.Close(context.Background())) })
		d.workers[int(who)%4] = &driven{worker: d.start()}
		if before := d.store.Record(key); d.clean && before.Open && before.Remaining > 0 {
			require.ErrorIs(d, d.workers[int(who)%4].call(nil), toolcircuit.ErrCircuitOpen, "a restarted worker must know")
		}
	}
}

// within checks that f takes no longer than that.
func (d *drive) within(most time.Duration, f func()) {
	began := time.Now()
	f()
	require.LessOrEqual(d, time.Since(began), most, "a call waits too long")
}

// allow asks for a call, which may be refused.
func (d *drive) allow(w *driven) *toolcircuit.Permit {
	record := d.store.Record(key)
	var p toolcircuit.Permit
	var err error
	d.within(2*opTimeout, func() { p, err = w.Allow(context.Background()) })
	if err != nil {
		require.ErrorIs(d, err, toolcircuit.ErrCircuitOpen)
		return nil
	}
	if p.Probe() && d.clean {
		require.Zero(d, record.Remaining, "a probe before the cooldown is over")
		for _, other := range d.workers {
			for _, c := range other.calls {
				require.False(d, c.Probe() && time.Since(c.began) < 5*time.Second && record.Fence != "", "a second probe")
			}
		}
	}
	return &p
}

// call makes a call that returns err, if it may.
func (d *drive) call(w *driven, err error) {
	if p := d.allow(w); p != nil {
		d.within(opTimeout, func() { settle(p, err) })
	}
}

// check looks at the record after a step.
func (d *drive) check() {
	v := d.store.Record(key)
	if v.Epoch != 0 {
		require.GreaterOrEqual(d, v.Epoch, d.epoch, "epochs only rise")
		d.epoch = v.Epoch
	}
}
