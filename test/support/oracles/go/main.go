// Signs and verifies deliveries by the senders' Go libraries: a question a line in JSON on stdin, an answer a line on stdout.
// The questions and answers are those of ../sign.py.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/PagerDuty/go-pagerduty/webhookv3"
	"github.com/google/go-github/v75/github"
	"github.com/slack-go/slack"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stripe/stripe-go/v82/webhook"
	svix "github.com/svix/svix-webhooks/go"
)

type question struct {
	Preset    string            `json:"preset"`
	Action    string            `json:"action"`
	Secret    string            `json:"secret"`
	Method    string            `json:"method"`
	URL       string            `json:"url"`
	Headers   map[string]string `json:"headers"`
	Body      []byte            `json:"body"`
	ID        string            `json:"id"`
	Timestamp int64             `json:"timestamp"`
}

type answer struct {
	Headers map[string]string `json:"headers,omitempty"`
	OK      *bool             `json:"ok,omitempty"`
	Error   string            `json:"error,omitempty"`
}

type library interface {
	Sign(id string, moment time.Time, body []byte) (string, error)
	Verify(body []byte, headers http.Header) error
}

func (ask question) moment() time.Time { return time.UnixMilli(ask.Timestamp) }

func (ask question) header() http.Header {
	header := http.Header{}
	for name, value := range ask.Headers {
		header.Set(name, value)
	}
	return header
}

func (ask question) request() (*http.Request, error) {
	request, err := http.NewRequest(ask.Method, ask.URL, bytes.NewReader(ask.Body))
	if err == nil {
		request.Header = ask.header()
	}
	return request, err
}

func (ask question) library() (library, string, error) {
	if ask.Preset == "svix" {
		made, err := svix.NewWebhook(ask.Secret)
		return made, "svix", err
	}
	made, err := standardwebhooks.NewWebhook(ask.Secret)
	return made, "webhook", err
}

func sign(ask question) (map[string]string, error) {
	switch ask.Preset {
	case "standard-webhooks", "svix":
		made, prefix, err := ask.library()
		if err != nil {
			return nil, err
		}
		signature, err := made.Sign(ask.ID, ask.moment(), ask.Body)
		return map[string]string{
			prefix + "-id":        ask.ID,
			prefix + "-timestamp": fmt.Sprint(ask.Timestamp / 1000),
			prefix + "-signature": signature,
		}, err
	case "stripe":
		payload := webhook.UnsignedPayload{Payload: ask.Body, Secret: ask.Secret, Timestamp: time.Unix(ask.Timestamp/1000, 0)}
		return map[string]string{"stripe-signature": webhook.GenerateTestSignedPayload(&payload).Header}, nil
	}
	return nil, fmt.Errorf("no signer of %s", ask.Preset)
}

func verify(ask question) (bool, error) {
	switch ask.Preset {
	case "standard-webhooks", "svix":
		made, _, err := ask.library()
		if err != nil {
			return false, err
		}
		return made.Verify(ask.Body, ask.header()) == nil, nil
	case "stripe":
		return webhook.ValidatePayload(ask.Body, ask.Headers["stripe-signature"], ask.Secret) == nil, nil
	case "slack":
		verifier, err := slack.NewSecretsVerifier(ask.header(), ask.Secret)
		if err != nil {
			return false, nil
		}
		_, err = verifier.Write(ask.Body)
		return err == nil && verifier.Ensure() == nil, nil
	case "pagerduty":
		request, err := ask.request()
		if err != nil {
			return false, err
		}
		return webhookv3.VerifySignature(request, ask.Secret) == nil, nil
	case "github":
		signature := ask.Headers["x-hub-signature-256"]
		return github.ValidateSignature(signature, ask.Body, []byte(ask.Secret)) == nil, nil
	}
	return false, fmt.Errorf("no verifier of %s", ask.Preset)
}

func reply(line []byte) answer {
	var ask question
	if err := json.Unmarshal(line, &ask); err != nil {
		return answer{Error: err.Error()}
	}
	if strings.EqualFold(ask.Action, "sign") {
		headers, err := sign(ask)
		if err != nil {
			return answer{Error: err.Error()}
		}
		return answer{Headers: headers}
	}
	ok, err := verify(ask)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{OK: &ok}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		if err := answers.Encode(reply(lines.Bytes())); err != nil {
			os.Exit(1)
		}
	}
}
