{{/*
What the two validating policies hold, and what they do not.

They judge the pod as it ends up, after every webhook, inside the API server: no injector, certificate or network has a
part in it, so they also hold while the injector is away, was deleted, or was never asked.

Held: a pod starts only with a container `sidegate` that stays beside the app. As an init container it must have
restartPolicy Always: older webhooks of others drop that field on the way, and the pod would wait for ever or run on
without its gate. Labels and annotations do not count as proof, since anyone may copy those of an injected pod. Containers of a
running pod cannot be added or taken away, but two updates matter: the label `sidegate.dev/inject` on a pod that runs
without the sidecar (it would be counted as protected), and another image for the sidecar. All other updates pass, also of
pods that are older than the policy: a Job's controller must be able to take its finalizer off them.

Not held: what the container `sidegate` is, unless admission.allowedImages names where it comes from, and what its config lets
through: whoever may create pods and ConfigMaps in a namespace decides that, as they decide on the app itself. Ephemeral
containers and exec: they share the pod's network and reach the app past the sidecar, so they are a matter of the rights on
pods/ephemeralcontainers, pods/exec and pods/portforward. The app's own port, which other pods may reach by the pod's address unless
the app listens on loopback or a NetworkPolicy says otherwise. And a pod without the label outside of enforced namespaces;
that label of the namespace is a matter of the rights on namespaces.

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
{{- if .Values.admission.allowedImages }}
- name: allowedImages
  expression: {{ .Values.admission.allowedImages | toJson | squote }}
- name: images
  expression: >-
    variables.initContainers.filter(c, c.name == 'sidegate').map(c, c.image) +
    object.spec.containers.filter(c, c.name == 'sidegate').map(c, c.image)
{{- end }}
{{- end -}}

{{/* Validations on a sidecar that is there. */}}
{{- define "sidegate.policySidecarValidations" -}}
- expression: '!variables.endsEarly'
  messageExpression: >-
    variables.pod + ' has an init container `sidegate` without `restartPolicy: Always`: it would end before the app starts. '
    + 'Another webhook may have dropped the field; update it, or set the annotation sidegate.dev/sidecar: container.'
  reason: Forbidden
{{- if .Values.admission.allowedImages }}
# What follows the repository is a tag or a digest, never more of a path: `sidegate:5000/x` is another host.
- expression: >-
    variables.images.all(image, variables.allowedImages.exists(from, image == from ||
    ((image.startsWith(from + ':') || image.startsWith(from + '@')) && !image.substring(size(from)).contains('/'))))
  messageExpression: >-
    variables.pod + ' has a container `sidegate` from ' + variables.images.join(', ')
    + ', which is none of the repositories that admission.allowedImages names. The name `sidegate` is the sidecar’s own.'
  reason: Forbidden
{{- end }}
{{- end -}}

{{/* Where to look when no sidecar was added. */}}
{{- define "sidegate.policyHint" -}}
{{- if eq .Values.admission.mode "policy" -}}
See `kubectl get mutatingadmissionpolicies {{ include "sidegate.fullname" . }}-inject`
{{- else -}}
See `kubectl -n {{ include "sidegate.namespace" . }} get pods -l app.kubernetes.io/component=injector`
{{- end -}}
{{- end -}}
