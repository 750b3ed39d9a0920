module sidegate.test/oracles

go 1.26

require (
	github.com/PagerDuty/go-pagerduty v1.8.0
	github.com/google/go-github/v75 v75.0.0
	github.com/slack-go/slack v0.34.0
	github.com/standard-webhooks/standard-webhooks/libraries v0.0.1
	github.com/stripe/stripe-go/v82 v82.5.1
	github.com/svix/svix-webhooks v1.44.0
)

require (
	github.com/google/go-querystring v1.1.0 // indirect
	github.com/gorilla/websocket v1.5.3 // indirect
	gopkg.in/validator.v2 v2.0.1 // indirect
)
