// Command pod-security judges pods by the Pod Security Standards, with the checks of the API server. It reads a JSON list of pods and the
// level as its argument, and writes a JSON list: for each pod, the reasons against it by the version of the standards.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// The newest version of this module; `latest` is the same.
const newestMinor = 36

func main() {
	if err := run(api.Level(os.Args[1])); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(level api.Level) error {
	var pods []corev1.Pod
	if err := json.NewDecoder(os.Stdin).Decode(&pods); err != nil {
		return err
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return err
	}
	judged := make([]map[string]string, len(pods))
	for i := range pods {
		judged[i] = map[string]string{}
		for minor := 0; minor <= newestMinor; minor++ {
			version := api.LevelVersion{Level: level, Version: api.MajorMinorVersion(1, minor)}
			result := policy.AggregateCheckResults(evaluator.EvaluatePod(version, &pods[i].ObjectMeta, &pods[i].Spec))
			if !result.Allowed {
				judged[i][version.Version.String()] = result.ForbiddenDetail()
			}
		}
	}
	return json.NewEncoder(os.Stdout).Encode(judged)
}
