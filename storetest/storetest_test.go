package storetest_test

import (
	"testing"

	"github.com/toolcircuit/toolcircuit"
	"github.com/toolcircuit/toolcircuit/storetest"
)

func TestMemory(t *testing.T) {
	shared := map[*testing.T]*storetest.Memory{}
	storetest.Run(t, func(t *testing.T) toolcircuit.Store {
		if shared[t] == nil {
			shared[t] = storetest.NewMemory()
			return shared[t]
		}
		return shared[t].Peer()
	})
}
