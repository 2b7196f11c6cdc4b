package main

import (
	"context"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// trips opens at the first failure.
func trips(gobreaker.Counts) bool { return true }

var sonyRate = gobreaker.Settings{
	Interval:     time.Minute,
	BucketPeriod: time.Minute / 15,
	ReadyToTrip: func(c gobreaker.Counts) bool {
		return c.Requests >= 20 && float64(c.TotalFailures)/float64(c.Requests) >= 0.5
	},
}

// executor is what the two closure forms have in common.
type executor interface {
	Execute(func() (int, error)) (int, error)
}

//go:noinline
func execute(cb executor) call {
	return func(context.Context) {
		n := in[2]
		cb.Execute(func() (int, error) { return in[0] + n, nil })
	}
}

//go:noinline
func sonyDo(cb *gobreaker.CircuitBreaker[int]) call {
	return func(context.Context) {
		n := in[2]
		cb.Execute(func() (int, error) { return in[0] + n, nil })
	}
}

//go:noinline
func sonyFailing(cb *gobreaker.CircuitBreaker[int]) call {
	fail := every(errSick)
	return func(context.Context) {
		n := in[2]
		cb.Execute(func() (int, error) { return in[0] + n, fail() })
	}
}

func sonyTripped(s gobreaker.Settings, timeout time.Duration) *gobreaker.CircuitBreaker[int] {
	s.ReadyToTrip, s.Timeout = trips, timeout
	cb := gobreaker.NewCircuitBreaker[int](s)
	cb.Execute(func() (int, error) { return 0, errSick })
	return cb
}

//go:noinline
func sonyTwoStepDo(cb *gobreaker.TwoStepCircuitBreaker[int]) call {
	return func(ctx context.Context) {
		done, err := cb.Allow()
		if err != nil {
			return
		}
		n := in[2]
		_, err = bare(ctx, func(context.Context) (int, error) { return in[0] + n, nil })
		done(err)
	}
}

func sonyClosed() call { return sonyDo(gobreaker.NewCircuitBreaker[int](gobreaker.Settings{})) }
func sonyMixed() call  { return sonyFailing(gobreaker.NewCircuitBreaker[int](gobreaker.Settings{})) }
func sonyRefused() call {
	return sonyDo(sonyTripped(gobreaker.Settings{}, long))
}
func sonyHalf() call {
	cb := sonyTripped(gobreaker.Settings{}, short)
	past(short)
	held(func(op func()) { cb.Execute(func() (int, error) { op(); return 0, nil }) })
	return sonyDo(cb)
}
func sonyTwoStep() call {
	return sonyTwoStepDo(gobreaker.NewTwoStepCircuitBreaker[int](gobreaker.Settings{}))
}
func sonyTwoStepRefused() call {
	cb := gobreaker.NewTwoStepCircuitBreaker[int](gobreaker.Settings{ReadyToTrip: trips, Timeout: long})
	done, _ := cb.Allow()
	done(errSick)
	return sonyTwoStepDo(cb)
}
func sonyWindow() call        { return sonyDo(gobreaker.NewCircuitBreaker[int](sonyRate)) }
func sonyWindowMixed() call   { return sonyFailing(gobreaker.NewCircuitBreaker[int](sonyRate)) }
func sonyWindowRefused() call { return sonyDo(sonyTripped(sonyRate, long)) }

// memoryStore is the cheapest store that the distributed form can have: one in this process.
type memoryStore struct {
	lock sync.Mutex
	data sync.Map
}

func (s *memoryStore) Lock(string) error   { s.lock.Lock(); return nil }
func (s *memoryStore) Unlock(string) error { s.lock.Unlock(); return nil }
func (s *memoryStore) GetData(name string) ([]byte, error) {
	data, _ := s.data.Load(name)
	bytes, _ := data.([]byte)
	return bytes, nil
}
func (s *memoryStore) SetData(name string, data []byte) error {
	s.data.Store(name, data)
	return nil
}

func distributed(s gobreaker.Settings) *gobreaker.DistributedCircuitBreaker[int] {
	cb, err := gobreaker.NewDistributedCircuitBreaker[int](new(memoryStore), s)
	if err != nil {
		panic(err)
	}
	return cb
}

func sonyDistributed() call { return execute(distributed(gobreaker.Settings{})) }

//go:noinline
func sonyDistributedMixed() call {
	cb, fail := distributed(gobreaker.Settings{}), every(errSick)
	return func(context.Context) {
		n := in[2]
		cb.Execute(func() (int, error) { return in[0] + n, fail() })
	}
}
func sonyDistributedRefused() call {
	cb := distributed(gobreaker.Settings{ReadyToTrip: trips, Timeout: long})
	cb.Execute(func() (int, error) { return 0, errSick })
	return execute(cb)
}
