{{/*
Guarantees and limits of the two validating policies.

They check the final pod, after every webhook, inside the API server. They depend on no injector, certificate or network, so they
also work while the injector is down, was deleted, or was never called.

Guaranteed: a pod starts only if its container `sidegate` is the sidecar (_sidecar.tpl). Its command, arguments, environment, mounts,
ports, probes, hooks, security context and volumes are those that the injector creates for the annotations of the pod, and its image is
allowed. No other container has its ports, port names, user or volumes, and no init container starts before a native sidecar, except
those of admission.allowedInitContainers. A plain container has no port that the app used. The sidecar must keep running beside the
app: as an init container with restartPolicy Always (a field that older webhooks may drop), or in a pod with that policy.
Labels and annotations prove nothing, because anyone can copy those of an injected pod. A pod with a container of that name is
therefore checked without the label, too. No other container declares a port named `sidegate`. No container shares the sidecar's
process namespace. Containers of a running pod cannot be added or removed, but three updates are checked:
- the label `sidegate.dev/inject` on a pod that runs without the sidecar (it would count as protected),
- another image for the sidecar,
- an ephemeral container in the sidecar's process namespace, or with its user or volumes.

All other updates are allowed, also for pods that are older than the policy: a Job's controller must be able to remove its finalizer
from them.

Not checked:
- The contents of the sidecar's config, the choice of the app's container and port, and the targets of Services. Users who can write
  the pods, ConfigMaps and Services of a namespace decide that, as they decide on the app itself.
- Ephemeral containers, exec and the proxy subresources. They bypass the sidecar, so restrict the rights on pods/ephemeralcontainers,
  pods/exec, pods/attach, pods/portforward, pods/proxy, services/proxy and nodes/proxy.
- The app's own port. Other pods can connect to it at the pod's address unless the app listens on loopback or a NetworkPolicy
  prevents it.
- Pods without the label outside of enforced namespaces. Restrict the rights on namespaces, which carry the label that enforces.
- hostIPC: the sidecar has neither shared memory nor message queues.

Mirror pods are excluded. The kubelet deletes a mirror pod without a matching static pod, so the annotation cannot bypass the check.
*/}}
{{- define "sidegate.policyMatchConditions" -}}
- name: not-a-mirror-pod
  expression: "!('kubernetes.io/config.mirror' in object.metadata.?annotations.orValue({}))"
{{- end -}}

{{/* True for an update that gives a sidecar another image. */}}
{{- define "sidegate.policyImageChanged" -}}
object.spec.containers.exists(c, c.name == 'sidegate' && !oldObject.spec.containers.exists(o, o.name == c.name && o.image == c.image)) ||
object.spec.?initContainers.orValue([]).exists(c, c.name == 'sidegate' &&
!oldObject.spec.?initContainers.orValue([]).exists(o, o.name == c.name && o.image == c.image))
{{- end -}}

{{/* Variables that all validations use. */}}
{{- define "sidegate.policyVariables" -}}
- name: pod
  expression: >-
    'Pod ' + request.namespace + '/' + object.metadata.?name.orValue(object.metadata.?generateName.orValue('') + '…')
- name: initContainers
  expression: object.spec.?initContainers.orValue([])
- name: isNative
  expression: variables.initContainers.exists(c, c.name == 'sidegate' && c.?restartPolicy.orValue('') == 'Always')
- name: isContainer
  expression: object.spec.containers.exists(c, c.name == 'sidegate')
- name: endsEarly
  expression: variables.initContainers.exists(c, c.name == 'sidegate' && c.?restartPolicy.orValue('') != 'Always')
{{- if not (include "sidegate.isAnyImage" .) }}
- name: allowedImages
  expression: {{ include "sidegate.allowedImages" . | squote }}
{{- end }}
{{ include "sidegate.sidecarVariables" . }}
{{- end -}}

{{/* Validations of an existing sidecar. */}}
{{- define "sidegate.policySidecarValidations" -}}
- expression: '!variables.endsEarly'
  messageExpression: >-
    variables.pod + ' has an init container `sidegate` without `restartPolicy: Always`: it would end before the app starts. '
    + 'Another webhook may have dropped the field; update it, or set the annotation sidegate.dev/sidecar: container.'
  reason: Forbidden
{{- if not (include "sidegate.isAnyImage" .) }}
# Only a tag or a digest may follow a repository, not a longer path: `sidegate:5000/x` is another host. An entry with a tag allows no digest,
# because the container runtime ignores the tag of an image that has one.
- expression: >-
    variables.sidecars.all(c, variables.allowedImages.exists(from, c.image == from ||
    (!from.contains('@') && from.lastIndexOf(':') <= from.lastIndexOf('/') &&
    (c.image.startsWith(from + ':') || c.image.startsWith(from + '@')) && !c.image.substring(size(from)).contains('/'))))
  messageExpression: >-
    variables.pod + ' has a container `sidegate` from ' + variables.sidecars.map(c, c.image).join(', ')
    + ', which is not an allowed image (allowed: ' + variables.allowedImages.join(', ')
    + '). If it comes from another registry, such as a mirror, or has another version, add its repository to admission.allowedImages.'
  reason: Forbidden
{{- end }}
{{ include "sidegate.sidecarValidations" . }}
{{- end -}}

{{/* Resources that the policies check on updates: subresources that change containers. */}}
{{- define "sidegate.policyResources" -}}
[pods, pods/ephemeralcontainers, pods/resize]
{{- end -}}

{{/* Images that sidecars may have, as JSON: the chart's own with tag or digest, and those of values. */}}
{{- define "sidegate.allowedImages" -}}
{{- concat (list (include "sidegate.sidecarImage" .) (include "sidegate.image" .)) (default list .Values.admission.allowedImages) | uniq | toJson -}}
{{- end -}}

{{/* Not empty if any image is allowed. */}}
{{- define "sidegate.isAnyImage" -}}
{{- if has "*" (default list .Values.admission.allowedImages) }}true{{ end -}}
{{- end -}}

{{/* Rules that `sidegate doctor` compares sidecars with. */}}
{{- define "sidegate.rulesAnnotation" -}}
sidegate.dev/sidecar-rules: {{ dict "allowedImages" (include "sidegate.allowedImages" . | fromJsonArray) "allowedEnv" .Values.admission.allowedEnv "allowedMounts" (default list .Values.admission.allowedMounts) "allowedInitContainers" (default list .Values.admission.allowedInitContainers) | toJson | squote }}
{{- end -}}

{{/*
`helm uninstall` keeps the policies and their bindings. Otherwise the next restart of a labeled pod would start its app without the sidecar, on the
port that its Service targets. A new policy takes about a second to have an effect, so Argo CD applies them before all other objects.
*/}}
{{- define "sidegate.policyAnnotations" -}}
helm.sh/resource-policy: keep
argocd.argoproj.io/sync-wave: "-1"
{{- end -}}

{{/* Why no sidecar was added, and where to look: within a text in CEL. The policy that injects leaves its reason in an annotation. */}}
{{- define "sidegate.policyNotAdded" -}}
{{- $name := include "sidegate.fullname" . -}}
{{- if eq .Values.admission.mode "policy" -}}
' + object.metadata.?annotations.orValue({})[?'sidegate.dev/denied'].orValue('this namespace has no injection. See `kubectl get mutatingadmissionpolicies {{ $name }}-inject`') + '
{{- else -}}
no injector responded, this namespace has no injection, or the chart was uninstalled, which keeps this policy. See `kubectl -n {{ include "sidegate.namespace" . }} get pods -l app.kubernetes.io/component=injector`
{{- end -}}
{{- end -}}
