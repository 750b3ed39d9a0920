{{/*
Not empty if there is a self-test. Before Kubernetes 1.29 a sidecar keeps running after its app, so the pod of the test would never complete. With a
selector it is unknown which namespace gets sidecars, and in another one the pod would be denied: the values must name one.
*/}}
{{- define "sidegate.selfTest" -}}
{{- $isKnown := or .Values.selfTest.namespace (not .Values.admission.namespaceSelector) -}}
{{- if and .Values.selfTest.enabled $isKnown (semverCompare ">=1.29.0-0" .Capabilities.KubeVersion.Version) -}}
yes
{{- end -}}
{{- end -}}

{{/* The namespace of the self-test: that of the release, where `helm test --logs` looks, unless no sidecar is injected there. */}}
{{- define "sidegate.selfTestNamespace" -}}
{{- $own := .Release.Namespace -}}
{{- default (ternary "default" $own (has $own .Values.admission.excludedNamespaces)) .Values.selfTest.namespace -}}
{{- end -}}

{{/* Annotations of a pod of the self-test. */}}
{{- define "sidegate.selfTestSettings" -}}
sidegate.dev/config: {{ include "sidegate.fullname" . }}-self-test
sidegate.dev/secrets: {{ include "sidegate.fullname" . }}-self-test
# Regardless of values: only a native sidecar stops with its app, so that the pod completes.
sidegate.dev/sidecar: native
sidegate.dev/interception: service
sidegate.dev/app-container: self-test
sidegate.dev/app-port: "8080"
sidegate.dev/port: "8480"
sidegate.dev/admin-port: "8481"
sidegate.dev/pre-stop: 0s
{{- end -}}

{{/* The pod of the self-test. Its container is both the app behind the sidecar and the sender. */}}
{{- define "sidegate.selfTestSpec" -}}
restartPolicy: Never
automountServiceAccountToken: false
enableServiceLinks: false
activeDeadlineSeconds: 240
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 4 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
containers:
  - name: self-test
    image: {{ include "sidegate.image" . | quote }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args:
      - self-test
      - --gate
      - http://127.0.0.1:8480/self-test
      - --app
      - 127.0.0.1:8080
      - --secret-file
      - /etc/sidegate/self-test/signing-secret
    resources:
      requests:
        cpu: 50m
        memory: 64Mi
      limits:
        memory: 192Mi
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop:
          - ALL
    terminationMessagePolicy: FallbackToLogsOnError
    volumeMounts:
      - name: self-test
        mountPath: /etc/sidegate/self-test
        readOnly: true
volumes:
  - name: self-test
    secret:
      secretName: {{ include "sidegate.fullname" . }}-self-test
{{- end -}}
