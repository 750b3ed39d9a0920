{{/* The chart's name, for labels. */}}
{{- define "sidegate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Prefix of the names of all objects: at most 43 characters, which leaves room for `-injector` and suffixes of controllers,
   and without dots, which names of Services must not contain. */}}
{{- define "sidegate.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | replace "." "-" | trunc 43 | trimSuffix "-" -}}
{{- end -}}

{{/* The namespace of all objects that have one. */}}
{{- define "sidegate.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* Labels of selectors. They must never change, because selectors are immutable. */}}
{{- define "sidegate.selectorLabels" -}}
app.kubernetes.io/name: {{ include "sidegate.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* Labels of every object, except app.kubernetes.io/component and the labels in values. */}}
{{- define "sidegate.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "sidegate.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: sidegate
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* Selects the namespaces where sidecars are injected, as YAML. */}}
{{- define "sidegate.injectedNamespaces" -}}
{{- $selector := deepCopy (default dict .Values.admission.namespaceSelector) -}}
{{- $expressions := default list $selector.matchExpressions -}}
{{- with .Values.admission.excludedNamespaces -}}
{{- $expressions = append $expressions (dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" .) -}}
{{- end -}}
{{- set $selector "matchExpressions" $expressions | toYaml -}}
{{- end -}}

{{/* The image that a released chart names by digest in Chart.yaml (scripts/package-charts.ts); empty in a checkout. */}}
{{- define "sidegate.releasedImage" -}}
{{- with index (default dict .Chart.Annotations) "artifacthub.io/images" -}}
{{- (first (fromYamlArray .)).image -}}
{{- end -}}
{{- end -}}

{{/* The image, by digest if one is given. A mirror may have another digest for the same tag, so the released one applies only to its repository. */}}
{{- define "sidegate.image" -}}
{{- $released := include "sidegate.releasedImage" . -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else if and (not .tag) (hasPrefix (printf "%s@" .repository) $released) -}}
{{- $released -}}
{{- else -}}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The name of the injector's objects. */}}
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

{{/* `true` if the chart runs the controller that holds the CA's key. */}}
{{- define "sidegate.hasRotation" -}}
{{- if and (eq .Values.admission.mode "webhook") (eq .Values.certificate.mode "self-signed") -}}true{{- end -}}
{{- end -}}

{{/* The name of the rotation controller's objects. */}}
{{- define "sidegate.rotationName" -}}
{{- printf "%s-rotation" (include "sidegate.fullname" .) -}}
{{- end -}}

{{/* The rotation controller's ServiceAccount. */}}
{{- define "sidegate.rotationServiceAccountName" -}}
{{- default (include "sidegate.rotationName" .) .Values.rotation.serviceAccount.name -}}
{{- end -}}

{{/* The name of the objects of the central sending side. */}}
{{- define "sidegate.deliverName" -}}
{{- printf "%s-deliver" (include "sidegate.fullname" .) -}}
{{- end -}}

{{/* Its namespace. */}}
{{- define "sidegate.deliverNamespace" -}}
{{- default (include "sidegate.namespace" .) .Values.deliver.namespace -}}
{{- end -}}

{{/* Its ServiceAccount. */}}
{{- define "sidegate.deliverServiceAccountName" -}}
{{- default (include "sidegate.deliverName" .) .Values.deliver.serviceAccount.name -}}
{{- end -}}

{{/* Namespaces where the injector may read ConfigMaps: `*` for all. */}}
{{- define "sidegate.configNamespaces" -}}
{{- if kindIs "bool" .Values.rbac.readConfigs -}}
{{- ternary (list "*") list .Values.rbac.readConfigs | toJson -}}
{{- else -}}
{{- uniq .Values.rbac.readConfigs | toJson -}}
{{- end -}}
{{- end -}}

{{/* RBAC rules for warnings about configs: a missing or invalid config, several replicas without a shared Redis. */}}
{{- define "sidegate.configRules" -}}
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get]
- apiGroups: [apps]
  resources: [replicasets, statefulsets]
  verbs: [get]
{{- end -}}

{{/* The Secret with the certificate that the injector serves, which the rotation controller writes. */}}
{{- define "sidegate.serverSecret" -}}
{{- printf "%s-tls" (include "sidegate.injectorName" .) -}}
{{- end -}}

{{/* The Secret of the webhook's certificate: with self-signed, that of the CA and its key. */}}
{{- define "sidegate.certificateSecret" -}}
{{- if eq .Values.certificate.mode "existing-secret" -}}
{{- .Values.certificate.existingSecret -}}
{{- else if eq .Values.certificate.mode "cert-manager" -}}
{{- printf "%s-certificate" (include "sidegate.injectorName" .) -}}
{{- else -}}
{{- printf "%s-ca" (include "sidegate.injectorName" .) -}}
{{- end -}}
{{- end -}}

{{/* The sidecars' image. */}}
{{- define "sidegate.sidecarImage" -}}
{{- default (include "sidegate.image" .) .Values.sidecar.image -}}
{{- end -}}

{{/* injector.yaml: the defaults of sidecars, and the server. */}}
{{- define "sidegate.injectorConfig" -}}
sidecar:
  image: {{ include "sidegate.sidecarImage" . | quote }}
  imagePullPolicy: {{ .Values.sidecar.imagePullPolicy }}
  imagePullSecrets: {{ default list .Values.sidecar.imagePullSecrets | toJson }}
  allowedImages: {{ include "sidegate.allowedImages" . }}
  allowedEnv: {{ .Values.admission.allowedEnv | toJson }}
  allowedMounts: {{ default list .Values.admission.allowedMounts | toJson }}
  allowedInitContainers: {{ default list .Values.admission.allowedInitContainers | toJson }}
  interception: {{ .Values.sidecar.interception | quote }}
  mode: {{ .Values.sidecar.mode }}
  port: {{ .Values.sidecar.port }}
  adminPort: {{ .Values.sidecar.adminPort }}
  movedPort: {{ .Values.sidecar.movedPort }}
  resources:
    {{- toYaml .Values.sidecar.resources | nindent 4 }}
  preStop: {{ .Values.sidecar.preStop }}
server:
  address: ":{{ .Values.injector.port }}"
  adminAddress: ":{{ .Values.injector.adminPort }}"
  certificate:
    {{- if include "sidegate.hasRotation" . }}
    secret:
      namespace: {{ include "sidegate.namespace" . | quote }}
      name: {{ include "sidegate.serverSecret" . | quote }}
    {{- else }}
    directory: /etc/sidegate-tls
    {{- end }}
    webhook: {{ include "sidegate.injectorName" . | quote }}
  {{- with .Values.injector.clientAuth }}
  {{- if ne .mode "none" }}
  clientAuth:
    mode: {{ .mode }}
    caFile: /etc/sidegate-client-ca/ca.crt
    allowedNames: {{ toJson .allowedNames }}
  {{- end }}
  {{- end }}
  perClient:
    {{- toYaml .Values.injector.perClient | nindent 4 }}
  excludedNamespaces:
    {{- toYaml .Values.admission.excludedNamespaces | nindent 4 }}
{{- if include "sidegate.hasRotation" . }}
rotation:
  namespace: {{ include "sidegate.namespace" . | quote }}
  caSecret: {{ include "sidegate.certificateSecret" . | quote }}
  serverSecret: {{ include "sidegate.serverSecret" . | quote }}
  service: {{ include "sidegate.injectorName" . | quote }}
  webhook: {{ include "sidegate.injectorName" . | quote }}
{{- end }}
log:
  level: {{ .Values.injector.logLevel }}
{{- end -}}

{{/*
Labels of one part: `dict "root" $ "component" "injector"`, and `more` for labels that its values add. The chart's labels take
precedence, because selectors use them; then those of the part.
*/}}
{{- define "sidegate.componentLabels" -}}
{{- $own := include "sidegate.labels" .root | fromYaml -}}
{{- merge (dict "app.kubernetes.io/component" .component) $own (default dict .more) (default dict .root.Values.commonLabels) | toYaml -}}
{{- end -}}

{{/* Topology spread constraints of one part: `own`, otherwise over nodes and zones. */}}
{{- define "sidegate.spread" -}}
{{- if .own -}}
{{- toYaml .own -}}
{{- else -}}
{{- $labels := include "sidegate.selectorLabels" .root | fromYaml | merge (dict "app.kubernetes.io/component" .component) -}}
{{- $constraints := list -}}
{{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" -}}
{{- $constraints = append $constraints (dict "maxSkew" 1 "topologyKey" $key "whenUnsatisfiable" "ScheduleAnyway" "labelSelector" (dict "matchLabels" $labels)) -}}
{{- end -}}
{{- toYaml $constraints -}}
{{- end -}}
{{- end -}}

{{/* Egress of a NetworkPolicy: DNS, and the TCP ports of the list. */}}
{{- define "sidegate.egress" -}}
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
    {{- range . }}
    - port: {{ . }}
      protocol: TCP
    {{- end }}
{{- end -}}
