//go:build tools

// Package tools names the commands that the tests of the chart run.
package tools

import (
	_ "helm.sh/helm/v3/cmd/helm"
	_ "helm.sh/helm/v4/cmd/helm"
)
