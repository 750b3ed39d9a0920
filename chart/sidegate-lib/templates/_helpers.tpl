{{/*
Every helper takes one object: the settings, with the names of the annotations in camelCase. The chart's author writes the pod, and
therefore also makes the changes to the app that the injector would make (its variable, its port name, its probes); helpers render
them.
*/}}

{{/* The container as an item of initContainers; empty with `sidecar: container`. */}}
{{- define "sidegate.initContainer" -}}
{{- $values := include "sidegate.lib.values" . | fromJson -}}
{{- if $values.isNative -}}
{{- include "sidegate.lib.item" $values -}}
{{- end -}}
{{- end -}}

{{/* The container as an item of containers; empty without `sidecar: container`. */}}
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
- name: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Labels of the pod: the policies, the monitors and `sidegate doctor` find it by them. */}}
{{- define "sidegate.podLabels" -}}
sidegate.dev/inject: "true"
sidegate.dev/injected: "true"
{{- end -}}

{{/* Annotations of the pod: the status of the injection. */}}
{{- define "sidegate.podAnnotations" -}}
{{- $values := include "sidegate.lib.values" . | fromJson -}}
{{- $mode := include "sidegate.lib.interceptionMode" . -}}
{{- $kind := ternary "native" "container" $values.isNative -}}
{{- $version := include "sidegate.lib.version" . | trim -}}
sidegate.dev/status: {{ printf "{\"version\":%q,\"takeover\":%q,\"sidecar\":%q,\"hash\":\"library\"}" $version $mode $kind | squote }}
{{- end -}}

{{/* The app's lifecycle: it keeps running while its pod is removed from the endpoints. Empty with `preStop: 0s`. */}}
{{- define "sidegate.lifecycle" -}}
{{- $seconds := include "sidegate.lib.preStopSeconds" . | int -}}
{{- if $seconds -}}
preStop:
  sleep:
    seconds: {{ $seconds }}
{{- end -}}
{{- end -}}

{{/* The pod's terminationGracePeriodSeconds: the time that the app needs, plus the delay of its lifecycle. */}}
{{- define "sidegate.gracePeriodSeconds" -}}
{{- add (default 30 .gracePeriodSeconds) (include "sidegate.lib.preStopSeconds" . | int) -}}
{{- end -}}

{{/* Items of the app's env: the variable of `same-port:VARIABLE` or `env:VARIABLE`. */}}
{{- define "sidegate.appEnv" -}}
{{- $values := include "sidegate.lib.values" . | fromJson -}}
{{- $parts := splitList ":" (include "sidegate.lib.interception" .) -}}
{{- $variable := ternary (index $parts (sub (len $parts) 1 | int)) "" (eq (len $parts) 2) -}}
{{- if eq (first $parts) "env" -}}
- name: {{ default "PORT" $variable | quote }}
  value: {{ $values.appPort | quote }}
{{- else if $variable -}}
- name: {{ $variable | quote }}
  value: "127.0.0.1"
{{- end -}}
{{- end -}}

{{/* The port that the app listens on, for probes. With `interception: env` it is not the app's usual port. */}}
{{- define "sidegate.appPort" -}}
{{- (include "sidegate.lib.values" . | fromJson).appPort -}}
{{- end -}}

{{/* With `interception: same-port`: the body of a probe that the sidecar forwards to the app: `list $settings "web" "livez"`. Its path names the URL that the sidecar asks, and the policies compare the two. */}}
{{- define "sidegate.appProbe" -}}
{{- $settings := index . 0 -}}
{{- $container := index . 1 -}}
{{- $kind := index . 2 -}}
{{- $values := include "sidegate.lib.values" $settings | fromJson -}}
{{- $probes := index (default dict $settings.appProbes) $container | default dict -}}
{{- if not (hasKey $probes $kind) -}}
{{- fail (printf "\n\nsidegate: the probe %s/%s is not in the setting appProbes, so the sidecar would not know what to ask." $container $kind) -}}
{{- end -}}
httpGet:
  path: {{ printf "/app-health/%s/%s?%s" $container $kind (index $probes $kind) | quote }}
  port: {{ $values.adminPort }}
{{- end -}}

{{/* targetPort and protocol of a Service's port; the author adds `name` and `port`. By number, because Services do not resolve port names of native sidecars before Kubernetes 1.33. */}}
{{- define "sidegate.servicePort" -}}
targetPort: {{ (include "sidegate.lib.values" . | fromJson).port }}
protocol: TCP
{{- end -}}

{{/* A NetworkPolicy's spec without its podSelector: allows ingress only to the sidecar's ports. */}}
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

{{/* The container as an item of a list. */}}
{{- define "sidegate.lib.item" -}}
- {{ include "sidegate.lib.container" . | trim | indent 2 | trim }}
{{- end -}}

{{/* `list $settings $name $pattern $expected $example $except $item`: fails if the setting has another format, or that of `$except`. With `$item`, it may also be a list of texts of that format. */}}
{{- define "sidegate.lib.form" -}}
{{- $settings := index . 0 -}}
{{- $name := index . 1 -}}
{{- $except := index . 5 -}}
{{- $item := index . 6 -}}
{{- if hasKey $settings $name -}}
{{- $value := index $settings $name -}}
{{- $isList := and (ne $item "") (kindIs "slice" $value) -}}
{{- $texts := ternary $value (list $value) $isList -}}
{{- range $text := $texts -}}
{{- $isForm := regexMatch (ternary $item (index $ 2) $isList) (toString $text) -}}
{{- if or (not $isForm) (and $isList (not (kindIs "string" $text))) (and $except (regexMatch $except (toString $text))) -}}
{{- fail (printf "\n\nsidegate: the setting %s %s %q: expected %s, for example %s." $name (ternary "has the item" "is" $isList) (toString $text) (index $ 3) (index $ 4)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Names as a JSON list, from a list or from text with commas. */}}
{{- define "sidegate.lib.names" -}}
{{- $names := list -}}
{{- range ternary . (splitList "," (toString (default "" .))) (kindIs "slice" .) -}}
{{- if trim . -}}{{- $names = append $names (trim .) -}}{{- end -}}
{{- end -}}
{{- uniq $names | toJson -}}
{{- end -}}

{{/* The interception mode, with the app's variable if there is one. */}}
{{- define "sidegate.lib.interception" -}}
{{- default "service" .interception -}}
{{- end -}}

{{/* The interception mode without the app's variable. */}}
{{- define "sidegate.lib.interceptionMode" -}}
{{- include "sidegate.lib.interception" . | splitList ":" | first -}}
{{- end -}}

{{/* preStop in seconds. */}}
{{- define "sidegate.lib.preStopSeconds" -}}
{{- include "sidegate.lib.check" . -}}
{{- $text := default "5s" .preStop | toString -}}
{{- mul (regexFind "^[0-9]+" $text | int) (ternary 60 1 (hasSuffix "m" $text)) -}}
{{- end -}}

{{/* The values of the container and its volumes, as JSON, from validated settings. */}}
{{- define "sidegate.lib.values" -}}
{{- include "sidegate.lib.check" . -}}
{{- range $name := list "config" "image" "appPort" -}}
{{- if not (index $ $name) -}}
{{- fail (printf "\n\nsidegate: the setting %s is missing." $name) -}}
{{- end -}}
{{- end -}}
{{- $mode := include "sidegate.lib.interceptionMode" . -}}
{{- $takesPort := has $mode (list "same-port" "env") -}}
{{- if and $takesPort (eq (default "auto" .sidecar) "container") -}}
{{- fail (printf "\n\nsidegate: interception=%s needs a native sidecar, because the app could bind the port before a plain container does. Remove the setting sidecar, or set interception=service or interception=rename." $mode) -}}
{{- end -}}
{{- $appPort := int .appPort -}}
{{- if and $takesPort .port (ne (int .port) $appPort) -}}
{{- fail (printf "\n\nsidegate: port is %d, but with interception=%s the sidecar listens on the app's port %d. Remove the setting port." (int .port) $mode $appPort) -}}
{{- end -}}
{{- if and (eq $mode "rename") (not .portName) -}}
{{- fail "\n\nsidegate: interception=rename needs the setting portName: the name of the app's port that the Service refers to. Give the app's port another name." -}}
{{- end -}}
{{- if and .appProbes (ne $mode "same-port") -}}
{{- fail (printf "\n\nsidegate: appProbes need interception=same-port. With %s the kubelet can probe the app directly: remove appProbes." $mode) -}}
{{- end -}}
{{- $port := ternary $appPort (int (default 8480 .port)) $takesPort -}}
{{- $adminPort := int (default 8481 .adminPort) -}}
{{- $upstream := ternary (int (default 8482 .movedPort)) $appPort (eq $mode "env") -}}
{{- if or (eq $port $adminPort) (eq $adminPort $upstream) (and (eq $port $upstream) (ne $mode "same-port")) -}}
{{- fail (printf "\n\nsidegate: two of the ports %d (sidecar), %d (health and metrics) and %d (app) must differ." $port $adminPort $upstream) -}}
{{- end -}}
{{- $secrets := list -}}
{{- range $index, $secret := include "sidegate.lib.names" .secrets | fromJsonArray -}}
{{- $secrets = append $secrets (dict "secret" $secret "number" (add1 $index)) -}}
{{- end -}}
{{- $probes := list -}}
{{- range $container, $kinds := default dict .appProbes -}}
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
  "imagePullPolicy" (toString (default "IfNotPresent" .imagePullPolicy))
  "isNative" $isNative
  "isOnPodAddresses" (eq $mode "same-port")
  "isOnAllAddresses" (ne $mode "same-port")
  "port" $port
  "adminPort" $adminPort
  "portName" (ternary (toString .portName) "sidegate" (eq $mode "rename"))
  "appPort" $upstream
  "config" (toString .config)
  "secrets" $secrets
  "appProbes" $probes
  "cpuRequest" (toString (default "50m" .cpuRequest))
  "memoryRequest" (toString (default "96Mi" .memoryRequest))
  "memoryLimit" (toString (default "192Mi" .memoryLimit))
  "pause" (ternary 0 $preStop $isNative) -}}
{{- if .queueVolume -}}{{- $_ := set $values "queueVolume" (toString .queueVolume) -}}{{- end -}}
{{- if .cpuLimit -}}{{- $_ := set $values "cpuLimit" (toString .cpuLimit) -}}{{- end -}}
{{- $values | toJson -}}
{{- end -}}
