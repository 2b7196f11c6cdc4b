//go:build long

package redisstore_test

import "time"

const (
	rounds        = 10_000
	processRounds = 2_000
	soakTime      = 10 * time.Minute
)
