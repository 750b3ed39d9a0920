{{/*
What the two validating policies hold, and what they do not.

They judge the pod as it ends up, after every webhook, inside the API server: no injector, certificate or network has a
part in it, so they also hold while the injector is away, was deleted, or was never asked.

Held: a pod starts only with a container `sidegate` that is the sidecar (_sidecar.tpl): its command, arguments, environment, mounts,
ports, probes, hooks and security context are those that the injector makes, and its image is allowed. It must stay beside the
app: as an init container with restartPolicy Always, which older webhooks of others drop, else in a pod with that policy. Labels and
annotations do not count as proof, since anyone can copy those of an injected pod; so a pod with a container of that name is judged
without the label, too. No other container declares a port named `sidegate`. No container shares the sidecar's process namespace.
Containers of a running pod cannot be added or removed, but three updates are judged: the label `sidegate.dev/inject` on a pod
that runs without the sidecar (it would be counted as protected), another image for the sidecar, and an ephemeral container in the
sidecar's process namespace. All other updates pass, also of pods that are older than the policy: a Job's controller must be
able to remove its finalizer from them.

Not checked: what the sidecar's config allows, which container and port are the app's, and where Services lead. Users who can write
the pods, ConfigMaps and Services of a namespace decide that, as they decide on the app itself. Ephemeral containers, exec and the
proxy subresources: they reach the app past the sidecar, so they are a matter of the rights on
pods/ephemeralcontainers, pods/exec, pods/attach, pods/portforward, pods/proxy, services/proxy and nodes/proxy. The app's own port,
which other pods may reach by the pod's address unless the app listens on loopback or a NetworkPolicy says otherwise. And a pod
without the label outside of enforced namespaces; that label of the namespace is a matter of the rights on namespaces. hostIPC is
not denied: the sidecar has neither shared memory nor message queues.

Mirror pods are left out. The kubelet deletes one that shows no static pod of its own, so the annotation is no way around.
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

{{/* What every validation goes by. */}}
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

{{/* Validations on a sidecar that is there. */}}
{{- define "sidegate.policySidecarValidations" -}}
- expression: '!variables.endsEarly'
  messageExpression: >-
    variables.pod + ' has an init container `sidegate` without `restartPolicy: Always`: it would end before the app starts. '
    + 'Another webhook may have dropped the field; update it, or set the annotation sidegate.dev/sidecar: container.'
  reason: Forbidden
{{- if not (include "sidegate.isAnyImage" .) }}
# What follows the repository is a tag or a digest, never more of a path: `sidegate:5000/x` is another host.
- expression: >-
    variables.sidecars.all(c, variables.allowedImages.exists(from, c.image == from ||
    ((c.image.startsWith(from + ':') || c.image.startsWith(from + '@')) && !c.image.substring(size(from)).contains('/'))))
  messageExpression: >-
    variables.pod + ' has a container `sidegate` from ' + variables.sidecars.map(c, c.image).join(', ')
    + ', which is none of the images that are allowed: ' + variables.allowedImages.join(', ')
    + '. If it comes from another registry, such as a mirror, or is of another version, add its repository to admission.allowedImages.'
  reason: Forbidden
{{- end }}
{{ include "sidegate.sidecarValidations" . }}
{{- end -}}

{{/* What the policies look at on updates: subresources by which containers change. */}}
{{- define "sidegate.policyResources" -}}
[pods, pods/ephemeralcontainers, pods/resize]
{{- end -}}

{{/* Images that sidecars may have, as JSON: the chart's own with tag or digest, and those of values. */}}
{{- define "sidegate.allowedImages" -}}
{{- concat (list (include "sidegate.sidecarImage" .) (include "sidegate.image" .)) (default list .Values.admission.allowedImages) | uniq | toJson -}}
{{- end -}}

{{/* Not empty where any image is allowed. */}}
{{- define "sidegate.isAnyImage" -}}
{{- if has "*" (default list .Values.admission.allowedImages) }}true{{ end -}}
{{- end -}}

{{/* What `sidegate doctor` compares sidecars with. */}}
{{- define "sidegate.rulesAnnotation" -}}
sidegate.dev/sidecar-rules: {{ dict "allowedImages" (include "sidegate.allowedImages" . | fromJsonArray) "allowedEnv" .Values.admission.allowedEnv "allowedMounts" (default list .Values.admission.allowedMounts) | toJson | squote }}
{{- end -}}

{{/* Where to look when no sidecar was added. */}}
{{- define "sidegate.policyHint" -}}
{{- if eq .Values.admission.mode "policy" -}}
See `kubectl get mutatingadmissionpolicies {{ include "sidegate.fullname" . }}-inject`
{{- else -}}
See `kubectl -n {{ include "sidegate.namespace" . }} get pods -l app.kubernetes.io/component=injector`
{{- end -}}
{{- end -}}
