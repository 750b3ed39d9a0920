{{/* Whole seconds of a duration in seconds or minutes. */}}
{{- define "sidegate.wholeSeconds" -}}
{{- if hasSuffix "m" . -}}{{ mul 60 (trimSuffix "m" . | int) }}{{- else -}}{{ trimSuffix "s" . | int }}{{- end -}}
{{- end -}}

{{/* The hash of the sidecar's defaults, as the injector has it (src/kubernetes/injector/status.ts): `sidegate doctor` compares it. */}}
{{- define "sidegate.defaultsHash" -}}
{{- $image := include "sidegate.sidecarImage" . -}}
{{- $mode := .Values.sidecar.interception -}}
{{- with .Values.sidecar -}}
{{- $interception := ternary "env:PORT" $mode (eq $mode "env") -}}
{{- $ports := list (.port | int) (.adminPort | int) (.movedPort | int) -}}
{{- $resources := list .resources.requests.cpu .resources.requests.memory (default "" .resources.limits.cpu) .resources.limits.memory -}}
{{- $head := list $image .imagePullPolicy (join "," .imagePullSecrets) $interception .mode -}}
{{- concat $head $ports $resources (list (include "sidegate.wholeSeconds" .preStop)) | join "\n" | sha256sum | trunc 12 -}}
{{- end -}}
{{- end -}}
