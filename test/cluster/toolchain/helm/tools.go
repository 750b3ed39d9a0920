//go:build tools

// Package tools names the command that the chart tests run.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
