module github.com/toolcircuit/toolcircuit/examples/payment

go 1.25.0

require (
	github.com/cenkalti/backoff/v5 v5.0.3
	github.com/toolcircuit/toolcircuit v0.1.0
)

require github.com/benbjohnson/clock v1.3.5 // indirect

replace github.com/toolcircuit/toolcircuit => ../..
