{{/* The chart's name, for labels. */}}
{{- define "sidegate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* What the names of all objects begin with: at most 43 characters, so that `-injector` and what controllers add still fit. */}}
{{- define "sidegate.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 43 | trimSuffix "-" -}}
{{- end -}}

{{/* The namespace of all objects that have one. */}}
{{- define "sidegate.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* What a selector goes by: never changed, as selectors are immutable. */}}
{{- define "sidegate.selectorLabels" -}}
app.kubernetes.io/name: {{ include "sidegate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of every object; each adds its own app.kubernetes.io/component. */}}
{{- define "sidegate.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "sidegate.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: sidegate
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The image, by digest where one is given. */}}
{{- define "sidegate.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The name of everything that is the injector's. */}}
{{- define "sidegate.injectorName" -}}
{{- printf "%s-injector" (include "sidegate.fullname" .) -}}
{{- end -}}

{{/* The injector's ServiceAccount. */}}
{{- define "sidegate.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "sidegate.injectorName" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The Secret that holds the webhook's certificate. */}}
{{- define "sidegate.certificateSecret" -}}
{{- if eq .Values.certificate.mode "existing-secret" -}}
{{- .Values.certificate.existingSecret -}}
{{- else -}}
{{- printf "%s-certificate" (include "sidegate.injectorName" .) -}}
{{- end -}}
{{- end -}}
