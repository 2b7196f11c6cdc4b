package main

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/afex/hystrix-go/hystrix"
	resiliency "github.com/eapache/go-resiliency/breaker"
	rubyist "github.com/rubyist/circuitbreaker"
	"github.com/sony/gobreaker/v2"
	gozero "github.com/zeromicro/go-zero/core/breaker"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/toolset"
)

// inSet is the row of a circuit of a Set, with its place in the Set's table.
const inSet = us + " in a Set"

// memory returns the bytes of heap of one circuit, by row, where n are made. What takes kilobytes
// is made in smaller numbers: what one of them takes does not depend on it.
func memory(n int) map[string]float64 {
	set, err := toolset.New(toolset.Config{Monitored: []string{"*"}, MaxCircuits: math.MaxInt}, toolset.Options{})
	if err != nil {
		panic(err)
	}
	bytes := map[string]float64{}
	for _, m := range []struct {
		row  string
		n    int
		make func(name string) any
	}{
		{us, n, func(name string) any { return toolcircuit.MustNew(name, toolcircuit.Options{}) }},
		{rated, n, func(name string) any { return toolcircuit.MustNew(name, toolcircuit.Options{Policy: rate}) }},
		{inSet, n, func(name string) any { return set.Circuit(context.Background(), name) }},
		{"gobreaker", n, func(name string) any {
			return gobreaker.NewCircuitBreaker[int](gobreaker.Settings{Name: name})
		}},
		{"gobreaker window", n, func(name string) any {
			s := sonyRate
			s.Name = name
			return gobreaker.NewCircuitBreaker[int](s)
		}},
		{"failsafe-go permit", n, func(string) any { return failsafeBreaker().Build() }},
		{"failsafe-go rate", n, func(string) any { return failsafeRated().Build() }},
		{"eapache", n, func(string) any { return resiliency.New(5, 1, time.Minute) }},
		{"rubyist", n, func(string) any { return rubyist.NewConsecutiveBreaker(5) }},
		{"go-zero", n / 10, func(name string) any { return gozero.NewBreaker(gozero.WithName(name)) }},
		{"hystrix-go", n / 100, func(name string) any {
			c, _, err := hystrix.GetCircuit(name)
			if err != nil {
				panic(err)
			}
			return c
		}},
	} {
		names, kept := make([]string, m.n), make([]any, m.n)
		for i := range names {
			names[i] = fmt.Sprint("dependency-", i)
		}
		before := heap()
		for i, name := range names {
			kept[i] = m.make(name)
		}
		bytes[m.row] = float64(heap()-before) / float64(m.n)
		runtime.KeepAlive(kept)
	}
	return bytes
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers held
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
