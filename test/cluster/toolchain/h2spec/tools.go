//go:build tools

// Package tools names the command that the tests of HTTP/2 run.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
