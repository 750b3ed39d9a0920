{{/*
Every helper takes one mapping: the settings, with the names of the annotations in camelCase. It is the chart's author who
writes the pod here, so what the injector would change in the app (its variable, its port's name, its probes) is the author's, too;
helpers give what belongs there.
*/}}

{{/* The container as an item of initContainers; empty with `sidecar: container`. */}}
{{- define "sidegate.initContainer" -}}
{{- $values := include "sidegate.lib.values" . | fromJson -}}
{{- if $values.isNative -}}
{{- include "sidegate.lib.item" $values -}}
{{- end -}}
{{- end -}}

{{/* The container as an item of containers; empty but with `sidecar: container`. */}}
{{- define "sidegate.sidecar" -}}
{{- $values := include "sidegate.lib.values" . | fromJson -}}
{{- if not $values.isNative -}}
{{- include "sidegate.lib.item" $values -}}
{{- end -}}
{{- end -}}

{{/* Items of volumes. */}}
{{- define "sidegate.volumes" -}}
{{- include "sidegate.lib.values" . | fromJson | include "sidegate.lib.volumes" | trim -}}
{{- end -}}

{{/* Items of imagePullSecrets. */}}
{{- define "sidegate.imagePullSecrets" -}}
{{- include "sidegate.lib.check" . -}}
{{- range include "sidegate.lib.names" .imagePullSecrets | fromJsonArray }}
- name: {{ . }}
{{- end }}
{{- end -}}

{{/* Labels of the pod: the policies, the monitors and `sidegate doctor` find it by them. */}}
{{- define "sidegate.podLabels" -}}
sidegate.dev/inject: "true"
sidegate.dev/injected: "true"
{{- end -}}

{{/* Annotations of the pod: what was done to it. */}}
{{- define "sidegate.podAnnotations" -}}
{{- $values := include "sidegate.lib.values" . | fromJson -}}
{{- $takeover := include "sidegate.lib.takeover" . -}}
{{- $kind := ternary "native" "container" $values.isNative -}}
{{- $version := include "sidegate.lib.version" . | trim -}}
sidegate.dev/status: {{ printf "{\"version\":%q,\"takeover\":%q,\"sidecar\":%q,\"hash\":\"library\"}" $version $takeover $kind | squote }}
{{- end -}}

{{/* The app's lifecycle: it serves on while its pod leaves the Service's endpoints; empty with `preStop: 0s`. */}}
{{- define "sidegate.lifecycle" -}}
{{- $seconds := include "sidegate.lib.preStopSeconds" . | int -}}
{{- if $seconds -}}
preStop:
  sleep:
    seconds: {{ $seconds }}
{{- end -}}
{{- end -}}

{{/* The pod's terminationGracePeriodSeconds: what the app needs, and what its lifecycle adds. */}}
{{- define "sidegate.gracePeriodSeconds" -}}
{{- add (default 30 .gracePeriodSeconds) (include "sidegate.lib.preStopSeconds" . | int) -}}
{{- end -}}

{{/* Items of the app's env: the variable that takeover `same-port:VARIABLE` or `env:VARIABLE` names. */}}
{{- define "sidegate.appEnv" -}}
{{- $values := include "sidegate.lib.values" . | fromJson -}}
{{- $parts := splitList ":" (default "service" .takeover) -}}
{{- $variable := ternary (index $parts (sub (len $parts) 1 | int)) "" (eq (len $parts) 2) -}}
{{- if eq (first $parts) "env" -}}
- name: {{ default "PORT" $variable }}
  value: {{ $values.appPort | quote }}
{{- else if $variable -}}
- name: {{ $variable }}
  value: "127.0.0.1"
{{- end -}}
{{- end -}}

{{/* Where the app listens, for probes of it: another port than its own with takeover `env`. */}}
{{- define "sidegate.appPort" -}}
{{- (include "sidegate.lib.values" . | fromJson).appPort -}}
{{- end -}}

{{/* With takeover `same-port`: the body of a probe that the sidecar asks in the kubelet's place: `list $settings "web" "livez"`. */}}
{{- define "sidegate.appProbe" -}}
{{- $settings := index . 0 -}}
{{- $container := index . 1 -}}
{{- $kind := index . 2 -}}
{{- $values := include "sidegate.lib.values" $settings | fromJson -}}
{{- if not (hasKey (index (default dict $settings.appProbes) $container | default dict) $kind) -}}
{{- fail (printf "\n\nsidegate: the probe %s/%s is not in the setting appProbes, so the sidecar would not know what to ask." $container $kind) -}}
{{- end -}}
httpGet:
  path: /app-health/{{ $container }}/{{ $kind }}
  port: {{ $values.adminPort }}
{{- end -}}

{{/* The port of a Service: `name`, `port`, … follow in the author's own words; by number, as names of native sidecars are unknown to Services before Kubernetes 1.33. */}}
{{- define "sidegate.servicePort" -}}
targetPort: {{ (include "sidegate.lib.values" . | fromJson).port }}
protocol: TCP
{{- end -}}

{{/* The rest of a NetworkPolicy's spec, after its podSelector: only the sidecar's ports can be reached. */}}
{{- define "sidegate.networkPolicy" -}}
{{- $values := include "sidegate.lib.values" . | fromJson -}}
policyTypes:
  - Ingress
ingress:
  - ports:
      - port: {{ $values.port }}
        protocol: TCP
      - port: {{ $values.adminPort }}
        protocol: TCP
{{- end -}}

{{/* One container as a list's item. */}}
{{- define "sidegate.lib.item" -}}
- {{ include "sidegate.lib.container" . | trim | indent 2 | trim }}
{{- end -}}

{{/* `list $settings $name $pattern $expected $example`: fails where the setting is there and has another form. */}}
{{- define "sidegate.lib.form" -}}
{{- $settings := index . 0 -}}
{{- $name := index . 1 -}}
{{- if hasKey $settings $name -}}
{{- $value := index $settings $name -}}
{{- $text := ternary (join "," $value) (toString $value) (kindIs "slice" $value) -}}
{{- if not (or (regexMatch (index . 2) $text) (and (kindIs "slice" $value) (not $value))) -}}
{{- fail (printf "\n\nsidegate: the setting %s is %q: expected %s, for example %s." $name $text (index . 3) (index . 4)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Names as a JSON list, whether they came as a list or as text with commas. */}}
{{- define "sidegate.lib.names" -}}
{{- $names := list -}}
{{- range ternary . (splitList "," (toString (default "" .))) (kindIs "slice" .) -}}
{{- if trim . -}}{{- $names = append $names (trim .) -}}{{- end -}}
{{- end -}}
{{- uniq $names | toJson -}}
{{- end -}}

{{/* The takeover without the app's variable. */}}
{{- define "sidegate.lib.takeover" -}}
{{- default "service" .takeover | splitList ":" | first -}}
{{- end -}}

{{/* preStop in seconds. */}}
{{- define "sidegate.lib.preStopSeconds" -}}
{{- include "sidegate.lib.check" . -}}
{{- $text := default "5s" .preStop | toString -}}
{{- mul (regexFind "^[0-9]+" $text | int) (ternary 60 1 (hasSuffix "m" $text)) -}}
{{- end -}}

{{/* What the container and its volumes are filled with, as JSON, from checked settings. */}}
{{- define "sidegate.lib.values" -}}
{{- include "sidegate.lib.check" . -}}
{{- range $name := list "config" "image" "appPort" -}}
{{- if not (index $ $name) -}}
{{- fail (printf "\n\nsidegate: the setting %s is missing." $name) -}}
{{- end -}}
{{- end -}}
{{- $takeover := include "sidegate.lib.takeover" . -}}
{{- $takesPort := has $takeover (list "same-port" "env") -}}
{{- if and $takesPort (eq (default "auto" .sidecar) "container") -}}
{{- fail (printf "\n\nsidegate: takeover %s requires a native sidecar, because the app could take the port before a plain container does: leave sidecar out, or use takeover service or rename." $takeover) -}}
{{- end -}}
{{- $appPort := int .appPort -}}
{{- if and $takesPort .port (ne (int .port) $appPort) -}}
{{- fail (printf "\n\nsidegate: port is %d, but with takeover %s the sidecar takes the app's port %d: leave port out." (int .port) $takeover $appPort) -}}
{{- end -}}
{{- if and (eq $takeover "rename") (not .portName) -}}
{{- fail "\n\nsidegate: takeover rename needs the setting portName, the name of the app's port that the Service goes by; give the app's own port another name." -}}
{{- end -}}
{{- if and .appProbes (ne $takeover "same-port") -}}
{{- fail (printf "\n\nsidegate: appProbes belong to takeover same-port; with %s the kubelet reaches the app by itself." $takeover) -}}
{{- end -}}
{{- $port := ternary $appPort (int (default 8480 .port)) $takesPort -}}
{{- $adminPort := int (default 8481 .adminPort) -}}
{{- $upstream := ternary (int (default 8482 .movedPort)) $appPort (eq $takeover "env") -}}
{{- if or (eq $port $adminPort) (eq $adminPort $upstream) (and (eq $port $upstream) (ne $takeover "same-port")) -}}
{{- fail (printf "\n\nsidegate: two of the ports %d (sidecar), %d (health and metrics) and %d (app) are one and the same." $port $adminPort $upstream) -}}
{{- end -}}
{{- $secrets := list -}}
{{- range $index, $secret := include "sidegate.lib.names" .secrets | fromJsonArray -}}
{{- $secrets = append $secrets (dict "secret" $secret "number" (add1 $index)) -}}
{{- end -}}
{{- $probes := list -}}
{{- range $container, $kinds := default dict .appProbes -}}
{{- range $kind := keys $kinds | sortAlpha -}}
{{- if not (has $kind (list "livez" "readyz" "startupz")) -}}
{{- fail (printf "\n\nsidegate: appProbes has %s/%s; known are livez, readyz and startupz. A hook that the sidecar asks could be set off by anyone: use exec or sleep." $container $kind) -}}
{{- end -}}
{{- end -}}
{{- range $kind := list "livez" "readyz" "startupz" -}}
{{- with index $kinds $kind -}}
{{- $probes = append $probes (dict "appProbe" (printf "%s/%s=%s" $container $kind (replace "$" "$$" .))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $isNative := ne (default "native" .sidecar) "container" -}}
{{- $preStop := include "sidegate.lib.preStopSeconds" . | int -}}
{{- $values := dict
  "image" (toString .image)
  "imagePullPolicy" (default "IfNotPresent" .imagePullPolicy)
  "isNative" $isNative
  "isOnPodAddresses" (eq $takeover "same-port")
  "isOnAllAddresses" (ne $takeover "same-port")
  "port" $port
  "adminPort" $adminPort
  "portName" (ternary .portName "sidegate" (eq $takeover "rename"))
  "appPort" $upstream
  "config" .config
  "secrets" $secrets
  "appProbes" $probes
  "cpuRequest" (toString (default "50m" .cpuRequest))
  "memoryRequest" (toString (default "96Mi" .memoryRequest))
  "memoryLimit" (toString (default "192Mi" .memoryLimit))
  "pause" (ternary 0 $preStop $isNative) -}}
{{- if .cpuLimit -}}{{- $_ := set $values "cpuLimit" (toString .cpuLimit) -}}{{- end -}}
{{- $values | toJson -}}
{{- end -}}
