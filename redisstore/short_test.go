//go:build !long

package redisstore_test

import "time"

// How long the longest tests are. With the build tag long they are what a release is shown by.
const (
	rounds        = 100
	processRounds = 40
	soakTime      = 30 * time.Second
)
