{{/* Not empty where there is a self-test. Below Kubernetes 1.29 a sidecar outlives its app, and the test's pod would never end. */}}
{{- define "sidegate.selfTest" -}}
{{- if and .Values.selfTest.enabled (semverCompare ">=1.29.0-0" .Capabilities.KubeVersion.Version) -}}
yes
{{- end -}}
{{- end -}}
