{{/* Not empty if there is a self-test. Before Kubernetes 1.29 a sidecar keeps running after its app, so the pod of the test would never complete. */}}
{{- define "sidegate.selfTest" -}}
{{- if and .Values.selfTest.enabled (semverCompare ">=1.29.0-0" .Capabilities.KubeVersion.Version) -}}
yes
{{- end -}}
{{- end -}}

{{/* The namespace of the self-test: that of the release, where `helm test --logs` looks, unless no sidecar is injected there. */}}
{{- define "sidegate.selfTestNamespace" -}}
{{- $own := .Release.Namespace -}}
{{- default (ternary "default" $own (has $own .Values.admission.excludedNamespaces)) .Values.selfTest.namespace -}}
{{- end -}}
