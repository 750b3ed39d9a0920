{{/* Written from src/kubernetes/injector (`npm run docs`): it adds the same sidecar as the injector. */}}
{{- define "sidegate.lib.container" -}}
name: "sidegate"
image: {{ .image | toJson }}
imagePullPolicy: {{ .imagePullPolicy | toJson }}
{{- if .isNative }}
restartPolicy: "Always"
{{- end }}
args:
  - "run"
  - "--config"
  - "/etc/sidegate/config/gate.yaml"
  - "--listen"
{{- if .isOnAllAddresses }}
  - {{ printf ":%v" .port | toJson }}
{{- end }}
{{- if .isOnPodAddresses }}
  - {{ printf "$(SIDEGATE_POD_IPS):%v" .port | toJson }}
{{- end }}
  - "--admin"
  - {{ printf ":%v" .adminPort | toJson }}
  - "--upstream"
  - {{ printf "http://127.0.0.1:%v" .appPort | toJson }}
{{- range .appProbes }}
  - {{ printf "--app-probe=%v" .appProbe | toJson }}
{{- end }}
{{- if .isOnPodAddresses }}
env:
  - name: "SIDEGATE_POD_IPS"
    valueFrom:
      fieldRef:
        fieldPath: "status.podIPs"
{{- end }}
ports:
  - name: {{ .portName | toJson }}
    containerPort: {{ .port | toJson }}
    protocol: "TCP"
  - name: "sidegate-admin"
    containerPort: {{ .adminPort | toJson }}
    protocol: "TCP"
startupProbe:
  httpGet:
    path: "/readyz"
    port: {{ .adminPort | toJson }}
  initialDelaySeconds: 1
  periodSeconds: 1
  failureThreshold: 30
readinessProbe:
  httpGet:
    path: "/readyz"
    port: {{ .adminPort | toJson }}
  periodSeconds: 5
livenessProbe:
  httpGet:
    path: "/healthz"
    port: {{ .adminPort | toJson }}
  timeoutSeconds: 5
  periodSeconds: 10
  failureThreshold: 6
lifecycle:
  preStop:
    exec:
      command:
        - "/bin/bash"
        - "-c"
        - "exec 3<>/dev/tcp/127.0.0.1/$0 && printf 'GET /prestop?pause=%s HTTP/1.0\\r\\n\\r\\n' $1 >&3 && read -r line <&3 && [[ $line == *' 200 '* ]]"
        - {{ printf "%v" .adminPort | toJson }}
        - {{ printf "%v" .pause | toJson }}
resources:
  requests:
    cpu: {{ .cpuRequest | toJson }}
    memory: {{ .memoryRequest | toJson }}
  limits:
{{- if .cpuLimit }}
    cpu: {{ .cpuLimit | toJson }}
{{- end }}
    memory: {{ .memoryLimit | toJson }}
securityContext:
  runAsNonRoot: true
  runAsUser: 64480
  runAsGroup: 65532
  allowPrivilegeEscalation: false
  capabilities:
    drop:
      - "ALL"
  readOnlyRootFilesystem: true
  seccompProfile:
    type: "RuntimeDefault"
terminationMessagePolicy: "FallbackToLogsOnError"
volumeMounts:
  - name: "sidegate-config"
    mountPath: "/etc/sidegate/config"
    readOnly: true
  - name: "sidegate-no-token"
    mountPath: "/var/run/secrets/kubernetes.io/serviceaccount"
    readOnly: true
{{- range .secrets }}
  - name: {{ printf "sidegate-secret-%v" .number | toJson }}
    mountPath: {{ printf "/etc/sidegate/secrets/%v" .secret | toJson }}
    readOnly: true
{{- end }}
{{- if .queueVolume }}
  - name: {{ .queueVolume | toJson }}
    mountPath: "/var/lib/sidegate"
{{- end }}
{{- end -}}

{{- define "sidegate.lib.volumes" -}}
- name: "sidegate-config"
  configMap:
    name: {{ .config | toJson }}
- name: "sidegate-no-token"
  emptyDir:
    sizeLimit: "1Mi"
{{- range .secrets }}
- name: {{ printf "sidegate-secret-%v" .number | toJson }}
  secret:
    secretName: {{ .secret | toJson }}
{{- end }}
{{- end -}}

{{- define "sidegate.lib.version" -}}
0.1.0
{{- end -}}

{{/* Fails with an explanation on unknown and malformed settings. */}}
{{- define "sidegate.lib.check" -}}
{{- if not (kindIs "map" .) -}}
{{- fail "\n\nsidegate: a helper was given no settings: pass an object with config, image and appPort, such as .Values.sidegate." -}}
{{- end -}}
{{- $known := list "config" "secrets" "queueVolume" "interception" "appPort" "port" "adminPort" "sidecar" "image" "imagePullSecrets" "cpuRequest" "memoryRequest" "cpuLimit" "memoryLimit" "preStop" "imagePullPolicy" "movedPort" "portName" "gracePeriodSeconds" "appProbes" -}}
{{- range $key := keys . | sortAlpha -}}
{{- if not (has $key $known) -}}
{{- fail (printf "\n\nsidegate: the setting %s is unknown; the known ones are config, secrets, queueVolume, interception, appPort, port, adminPort, sidecar, image, imagePullSecrets, cpuRequest, memoryRequest, cpuLimit, memoryLimit, preStop, imagePullPolicy, movedPort, portName, gracePeriodSeconds, appProbes." $key) -}}
{{- end -}}
{{- end -}}
{{- include "sidegate.lib.form" (list . "config" "^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*$" "a name of lower-case letters, digits, dots and dashes" "web-gate" "" "") -}}
{{- include "sidegate.lib.form" (list . "secrets" "^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*(?: *, *[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*)*$" "names of lower-case letters, digits, dots and dashes, separated by commas" "stripe-webhook, web-users" "" "^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*$") -}}
{{- include "sidegate.lib.form" (list . "queueVolume" "^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$" "a volume name: at most 63 lower-case letters, digits and dashes, not that of a volume of the sidecar" "queue" "^(?:sidegate-config|sidegate-no-token|sidegate-secret-.*)$" "") -}}
{{- include "sidegate.lib.form" (list . "interception" "^(?:service|rename|(?:same-port|env)(?::[A-Za-z_][A-Za-z0-9_]{0,127})?)$" "service, rename, same-port, same-port:VARIABLE, env or env:VARIABLE" "same-port:HOST" "" "") -}}
{{- include "sidegate.lib.form" (list . "appPort" "^(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$" "a port from 1 to 65535" "3000" "" "") -}}
{{- include "sidegate.lib.form" (list . "port" "^(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$" "a port from 1 to 65535" "8480" "" "") -}}
{{- include "sidegate.lib.form" (list . "adminPort" "^(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$" "a port from 1 to 65535" "8481" "" "") -}}
{{- include "sidegate.lib.form" (list . "sidecar" "^(?:native|container)$" "native or container" "container" "" "") -}}
{{- include "sidegate.lib.form" (list . "image" "^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}$" "an image reference without blanks" "registry.example/sidegate:1.0.0" "" "") -}}
{{- include "sidegate.lib.form" (list . "imagePullSecrets" "^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*(?: *, *[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*)*$" "names of lower-case letters, digits, dots and dashes, separated by commas" "registry-login" "" "^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*$") -}}
{{- include "sidegate.lib.form" (list . "cpuRequest" "^(?:[1-9][0-9]{0,5}m|[1-9][0-9]{0,3}(?:\\.[0-9]{1,3})?|0\\.(?:[1-9][0-9]{0,2}|0[1-9][0-9]?|00[1-9]))$" "cores, as 50m or 0.5" "100m" "" "") -}}
{{- include "sidegate.lib.form" (list . "memoryRequest" "^[1-9][0-9]{0,5}(?:Mi|Gi|M|G)$" "memory in Mi, Gi, M or G" "128Mi" "" "") -}}
{{- include "sidegate.lib.form" (list . "cpuLimit" "^(?:[1-9][0-9]{0,5}m|[1-9][0-9]{0,3}(?:\\.[0-9]{1,3})?|0\\.(?:[1-9][0-9]{0,2}|0[1-9][0-9]?|00[1-9]))$" "cores, as 50m or 0.5" "1" "" "") -}}
{{- include "sidegate.lib.form" (list . "memoryLimit" "^[1-9][0-9]{0,5}(?:Mi|Gi|M|G)$" "memory in Mi, Gi, M or G" "256Mi" "" "") -}}
{{- include "sidegate.lib.form" (list . "preStop" "^(?:(?:[0-9]|[1-9][0-9]|[1-5][0-9]{2}|600)s|(?:[1-9]|10)m)$" "a duration in whole seconds (s) or minutes (m), at most 10m" "10s" "" "") -}}
{{- include "sidegate.lib.form" (list . "imagePullPolicy" "^(?:Always|IfNotPresent|Never)$" "Always, IfNotPresent or Never" "Always" "" "") -}}
{{- include "sidegate.lib.form" (list . "movedPort" "^(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$" "a port from 1 to 65535" "8482" "" "") -}}
{{- include "sidegate.lib.form" (list . "portName" "^[a-z0-9](?:[-a-z0-9]{0,13}[a-z0-9])?$" "a port name: at most 15 lower-case letters, digits and dashes, with a letter, and not sidegate or sidegate-admin" "http" "^(?:[-0-9]*|.*--.*|sidegate|sidegate-admin)$" "") -}}
{{- include "sidegate.lib.form" (list . "gracePeriodSeconds" "^[1-9][0-9]{0,4}$" "whole seconds from 1 to 99999" "45" "" "") -}}
{{- include "sidegate.lib.checkProbes" . -}}
{{- end -}}

{{/* Fails with an explanation on probes that the sidecar cannot request. */}}
{{- define "sidegate.lib.checkProbes" -}}
{{- $probes := default dict .appProbes -}}
{{- if not (kindIs "map" $probes) -}}
{{- fail (printf "\n\nsidegate: the setting appProbes is %q: expected URLs by container and kind, for example { web: { livez: \"http://127.0.0.1:3000/healthz\" } }." (toString $probes)) -}}
{{- end -}}
{{- range $container, $kinds := $probes -}}
{{- if not (and (kindIs "map" $kinds) (regexMatch "^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$" $container)) -}}
{{- fail (printf "\n\nsidegate: the setting appProbes has %q: %q: expected the name of a container with URLs by kind, for example { web: { livez: \"http://127.0.0.1:3000/healthz\" } }." $container (toString $kinds)) -}}
{{- end -}}
{{- range $kind, $url := $kinds -}}
{{- if not (has $kind (list "livez" "readyz" "startupz")) -}}
{{- fail (printf "\n\nsidegate: the setting appProbes has %s/%s; the known ones are livez, readyz and startupz. Anyone who reaches the admin port could trigger a hook: use exec or sleep." $container $kind) -}}
{{- end -}}
{{- $own := printf "^[a-z]+://127[.]0[.]0[.]1:%d(?:/|$)" (int (default 8481 $.adminPort)) -}}
{{- if or (not (kindIs "string" $url)) (not (regexMatch "^(?:tcp|https?)://127[.]0[.]0[.]1:(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])(?:/[!-~]*)?$" (toString $url))) (regexMatch $own (toString $url)) -}}
{{- fail (printf "\n\nsidegate: the setting appProbes has %s/%s: %q: expected a URL of a port of the app at 127.0.0.1, without blanks, for example http://127.0.0.1:3000/healthz or tcp://127.0.0.1:3000." $container $kind (toString $url)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
