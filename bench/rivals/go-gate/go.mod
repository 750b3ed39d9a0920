module sidegate.dev/bench/go-gate

go 1.26

require (
	github.com/redis/go-redis/v9 v9.22.0
	github.com/standard-webhooks/standard-webhooks/libraries v0.0.1
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sys v0.30.0 // indirect
)
