//go:build tools

// Package tools names the command that checks the workflows.
package tools

import _ "github.com/rhysd/actionlint/cmd/actionlint"
