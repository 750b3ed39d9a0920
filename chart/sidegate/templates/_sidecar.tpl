{{/*
Written from src/kubernetes/injector (`npm run docs`): what a container `sidegate` must contain. Every field is compared with what the injector
creates, and unknown fields are denied. Values that differ between pods are read at a place where each is alone; a forged value then differs at the
other places.
*/}}
{{- define "sidegate.sidecarVariables" -}}
- name: sidecars
  expression: >-
    variables.initContainers.filter(c, c.name == 'sidegate') + object.spec.containers.filter(c, c.name == 'sidegate')
- name: sidecar
  expression: >-
    size(variables.sidecars) == 0 ? dyn({}) : dyn(variables.sidecars[0])
- name: isInit
  expression: >-
    variables.initContainers.exists(c, c.name == 'sidegate')
- name: allowedEnv
  expression: >-
    {{ .Values.admission.allowedEnv | toJson }}
- name: allowedMounts
  expression: >-
    {{ default list .Values.admission.allowedMounts | toJson }}
- name: args
  expression: >-
    variables.sidecar.?args.orValue([])
- name: ports
  expression: >-
    variables.sidecar.?ports.orValue([])
- name: port
  expression: >-
    size(variables.ports) > 0 ? variables.ports[0].?containerPort.orValue(0) : 0
- name: portName
  expression: >-
    size(variables.ports) > 0 ? variables.ports[0].?name.orValue('') : ''
- name: adminPort
  expression: >-
    size(variables.ports) > 1 ? variables.ports[1].?containerPort.orValue(0) : 0
- name: upstreams
  expression: >-
    variables.args.filter(a, a.startsWith('http://127.0.0.1:')).map(a, a.replace('http://127.0.0.1:', '', 1))
- name: appPort
  expression: >-
    size(variables.upstreams) > 0 && variables.upstreams[0].matches(r'^(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$') ? variables.upstreams[0] : '0'
- name: isOnPodAddresses
  expression: >-
    variables.args.exists(a, a.startsWith('$(SIDEGATE_POD_IPS):'))
- name: queueMounts
  expression: >-
    variables.sidecar.?volumeMounts.orValue([]).filter(m, m.mountPath == '/var/lib/sidegate')
- name: queueVolume
  expression: >-
    size(variables.queueMounts) == 0 ? '' : variables.queueMounts[0].name
- name: pauseText
  expression: >-
    string(variables.sidecar.?lifecycle.?preStop.?exec.?command[?4].orValue(''))
- name: pauseRest
  expression: >-
    variables.pauseText.startsWith('') ? variables.pauseText.replace('', '', 1) : ''
- name: pause
  expression: >-
    variables.pauseRest.matches(r'^[0-9]{1,4}$') ? variables.pauseRest : '0'
- name: unknownFields
  expression: >-
    variables.sidecar.filter(k, !(k in ['name', 'image', 'imagePullPolicy', 'restartPolicy', 'args', 'env', 'ports', 'startupProbe', 'readinessProbe', 'livenessProbe', 'lifecycle', 'resources', 'securityContext', 'terminationMessagePolicy', 'volumeMounts', 'terminationMessagePath', 'resizePolicy']))
- name: differs_restartPolicy
  expression: >-
    (variables.isInit ? variables.sidecar.?restartPolicy.orValue(dyn(null)) == dyn('Always') : !variables.sidecar.?restartPolicy.hasValue()) ? [] : ['restartPolicy']
- name: differs_args
  expression: >-
    variables.sidecar.?args.orValue(dyn(null)) == dyn([dyn('run'), dyn('--config'), dyn('/etc/sidegate/config/gate.yaml'), dyn('--listen')] + (!variables.isOnPodAddresses ? [dyn(':' + string(variables.port))] : []) + (variables.isOnPodAddresses ? [dyn('$(SIDEGATE_POD_IPS):' + string(variables.port))] : []) + [dyn('--admin'), dyn(':' + string(variables.adminPort)), dyn('--upstream'), dyn('http://127.0.0.1:' + variables.appPort)] + variables.args.filter(a, a.startsWith('--app-probe=')).map(entry, dyn('--app-probe=' + entry.replace('--app-probe=', '', 1)))) ? [] : ['args']
- name: differs_env
  expression: >-
    variables.sidecar.?env.orValue([]).filter(e, !(e.name in variables.allowedEnv)) == (variables.isOnPodAddresses ? dyn([dyn({'name': dyn('SIDEGATE_POD_IPS'), 'valueFrom': dyn({'fieldRef': dyn({'apiVersion': dyn('v1'), 'fieldPath': dyn('status.podIPs')})})})]) : dyn([])).filter(e, !(e.name in variables.allowedEnv)) ? [] : ['env'] + variables.sidecar.?env.orValue([]).filter(e, !(e.name in variables.allowedEnv)).map(e, 'env ' + e.name)
- name: differs_ports
  expression: >-
    variables.sidecar.?ports.orValue(dyn(null)) == dyn([dyn({'name': dyn(variables.portName), 'containerPort': dyn(variables.port), 'protocol': dyn('TCP')}), dyn({'name': dyn('sidegate-admin'), 'containerPort': dyn(variables.adminPort), 'protocol': dyn('TCP')})]) ? [] : ['ports']
- name: differs_startupProbe
  expression: >-
    variables.sidecar.?startupProbe.orValue(dyn(null)) == dyn({'timeoutSeconds': dyn(1), 'periodSeconds': dyn(1), 'successThreshold': dyn(1), 'failureThreshold': dyn(30), 'httpGet': dyn({'scheme': dyn('HTTP'), 'path': dyn('/readyz'), 'port': dyn(variables.adminPort)}), 'initialDelaySeconds': dyn(1)}) ? [] : ['startupProbe']
- name: differs_readinessProbe
  expression: >-
    variables.sidecar.?readinessProbe.orValue(dyn(null)) == dyn({'timeoutSeconds': dyn(1), 'periodSeconds': dyn(5), 'successThreshold': dyn(1), 'failureThreshold': dyn(3), 'httpGet': dyn({'scheme': dyn('HTTP'), 'path': dyn('/readyz'), 'port': dyn(variables.adminPort)})}) ? [] : ['readinessProbe']
- name: differs_livenessProbe
  expression: >-
    variables.sidecar.?livenessProbe.orValue(dyn(null)) == dyn({'timeoutSeconds': dyn(5), 'periodSeconds': dyn(10), 'successThreshold': dyn(1), 'failureThreshold': dyn(6), 'httpGet': dyn({'scheme': dyn('HTTP'), 'path': dyn('/healthz'), 'port': dyn(variables.adminPort)})}) ? [] : ['livenessProbe']
- name: differs_lifecycle
  expression: >-
    variables.sidecar.?lifecycle.orValue(dyn(null)) == dyn({'preStop': dyn({'exec': dyn({'command': dyn([dyn('/bin/bash'), dyn('-c'), dyn('exec 3<>/dev/tcp/127.0.0.1/$0 && printf \'GET /prestop?pause=%s HTTP/1.0\\r\\n\\r\\n\' $1 >&3 && read -r line <&3 && [[ $line == *\' 200 \'* ]]'), dyn(string(variables.adminPort)), dyn(variables.pause)])})})}) ? [] : ['lifecycle']
- name: differs_securityContext
  expression: >-
    variables.sidecar.?securityContext.orValue(dyn(null)) == dyn({'runAsNonRoot': dyn(true), 'runAsUser': dyn(65532), 'runAsGroup': dyn(65532), 'allowPrivilegeEscalation': dyn(false), 'capabilities': dyn({'drop': dyn([dyn('ALL')])}), 'readOnlyRootFilesystem': dyn(true), 'seccompProfile': dyn({'type': dyn('RuntimeDefault')})}) ? [] : ['securityContext']
- name: differs_volumeMounts
  expression: >-
    variables.sidecar.?volumeMounts.orValue([]).filter(e, !(e.mountPath in variables.allowedMounts || e.mountPath.startsWith('/var/run/secrets/') && !e.mountPath.contains('..'))) == (dyn([dyn({'name': dyn('sidegate-config'), 'mountPath': dyn('/etc/sidegate/config'), 'readOnly': dyn(true)}), dyn({'name': dyn('sidegate-no-token'), 'mountPath': dyn('/var/run/secrets/kubernetes.io/serviceaccount'), 'readOnly': dyn(true)})] + variables.sidecar.?volumeMounts.orValue([]).filter(m, m.name.startsWith('sidegate-secret-')).map(entry, dyn({'name': dyn('sidegate-secret-' + entry.name.replace('sidegate-secret-', '')), 'mountPath': dyn('/etc/sidegate/secrets/' + entry.mountPath.replace('/etc/sidegate/secrets/', '')), 'readOnly': dyn(true)})) + (variables.queueVolume != '' ? [dyn({'name': dyn(variables.queueVolume), 'mountPath': dyn('/var/lib/sidegate')})] : []))).filter(e, !(e.mountPath in variables.allowedMounts || e.mountPath.startsWith('/var/run/secrets/') && !e.mountPath.contains('..'))) ? [] : ['volumeMounts'] + variables.sidecar.?volumeMounts.orValue([]).filter(e, !(e.mountPath in variables.allowedMounts || e.mountPath.startsWith('/var/run/secrets/') && !e.mountPath.contains('..'))).map(e, 'volumeMounts ' + e.mountPath)
- name: differs_terminationMessagePath
  expression: >-
    variables.sidecar.?terminationMessagePath.orValue('') in ['', '/dev/termination-log'] ? [] : ['terminationMessagePath']
- name: differs_volumes
  expression: >-
    object.spec.?volumes.orValue([]).filter(v, (v.name == 'sidegate-config' && !has(v.configMap)) || (v.name.startsWith('sidegate-secret-') && !has(v.secret))).map(v, 'volume ' + v.name)
- name: differences
  expression: >-
    size(variables.sidecars) == 0 ? [] : variables.unknownFields + variables.differs_restartPolicy + variables.differs_args + variables.differs_env + variables.differs_ports + variables.differs_startupProbe + variables.differs_readinessProbe + variables.differs_livenessProbe + variables.differs_lifecycle + variables.differs_securityContext + variables.differs_volumeMounts + variables.differs_terminationMessagePath + variables.differs_volumes
- name: shared
  expression: >-
    size(variables.sidecars) == 0 ? [] : (object.spec.?hostNetwork.orValue(false) ? ['hostNetwork'] : []) + (object.spec.?hostPID.orValue(false) ? ['hostPID'] : []) + (object.spec.?shareProcessNamespace.orValue(false) ? ['shareProcessNamespace'] : [])
{{- end -}}

{{- define "sidegate.sidecarValidations" -}}
- expression: >-
    size(variables.shared) == 0
  messageExpression: >-
    variables.pod + ' has ' + variables.shared.join(', ') + ': true and a sidecar. With hostNetwork, clients can bypass the sidecar on the node; with hostPID and shareProcessNamespace, other containers can read the secrets in the memory of the sidecar, or end it and use its port. Remove the field.'
  reason: Forbidden
- expression: >-
    size(variables.sidecars) == 0 || variables.isInit || object.spec.?restartPolicy.orValue('Always') == 'Always'
  messageExpression: >-
    variables.pod + ' has the restartPolicy ' + object.spec.?restartPolicy.orValue('') + ' and a sidecar that is a plain container: it is not restarted after it ends, and the app is then open on its own port. Use a native sidecar (sidegate.dev/sidecar: native), or restartPolicy: Always.'
  reason: Forbidden
- expression: >-
    size(variables.sidecars) == 0 || !object.spec.?ephemeralContainers.orValue([]).exists(e, e.?targetContainerName.orValue('') == 'sidegate')
  messageExpression: >-
    variables.pod + ' has an ephemeral container in the process namespace of its sidecar, which could read its secrets or end it. Target another container.'
  reason: Forbidden
- expression: >-
    !(variables.initContainers + object.spec.containers).exists(c, c.name != 'sidegate' && c.?ports.orValue([]).exists(p, p.?name.orValue('') == 'sidegate'))
  messageExpression: >-
    variables.pod + ' has a port named sidegate on another container than the sidecar: a Service with the targetPort sidegate would send unverified requests to it. Rename the port.'
  reason: Forbidden
{{- if not .Values.admission.insecureAllowOtherSidecars }}
- expression: >-
    size(variables.differences) == 0
  messageExpression: >-
    variables.pod + ' has a container `sidegate` that is not the one that sidegate {{ .Chart.AppVersion }} injects: it differs in ' + variables.differences.join(', ') + '. The name `sidegate` is reserved: let the injector or the library chart add the container. If another webhook adds environment variables or mounts, list them in admission.allowedEnv and admission.allowedMounts.'
  reason: Forbidden
{{- end }}
{{- end -}}

{{/* True for an update that adds an ephemeral container to the sidecar's process namespace. */}}
{{- define "sidegate.policyTargeted" -}}
object.spec.?ephemeralContainers.orValue([]).exists(e, e.?targetContainerName.orValue('') == 'sidegate') && !oldObject.spec.?ephemeralContainers.orValue([]).exists(e, e.?targetContainerName.orValue('') == 'sidegate')
{{- end -}}
