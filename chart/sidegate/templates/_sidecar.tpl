{{/*
Written from src/kubernetes/injector (`npm run docs`): what a container `sidegate` must contain. Every field is compared with what the injector
creates, and unknown fields are denied. Values that differ between pods are read from the pod, each only in its form, and then compared at every
place that the injector writes them to: arguments, ports, probes, mounts, volumes and annotations.
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
- name: allowedInitContainers
  expression: >-
    {{ default list .Values.admission.allowedInitContainers | toJson }}
- name: annotations
  expression: >-
    object.metadata.?annotations.orValue({})
- name: volumes
  expression: >-
    object.spec.?volumes.orValue([])
- name: addedVolumes
  expression: >-
    variables.volumes.filter(v, v.?projected.hasValue() || v.?secret.hasValue() || v.?configMap.hasValue()).map(v, v.name)
- name: others
  expression: >-
    (variables.initContainers + object.spec.containers).filter(c, c.name != 'sidegate')
- name: lasting
  expression: >-
    (variables.initContainers.filter(c, c.?restartPolicy.orValue('') == 'Always') + object.spec.containers).filter(c, c.name != 'sidegate')
- name: args
  expression: >-
    variables.sidecar.?args.orValue([])
- name: ports
  expression: >-
    variables.sidecar.?ports.orValue([])
- name: port
  expression: >-
    size(variables.ports) > 0 ? variables.ports[0].?containerPort.orValue(0) : 0
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
- name: statusText
  expression: >-
    variables.annotations[?'sidegate.dev/status'].orValue('')
- name: interceptionText
  expression: >-
    variables.annotations[?'sidegate.dev/interception'].orValue('')
- name: interceptionMode
  expression: >-
    variables.interceptionText != '' ? variables.interceptionText.split(':')[0] : variables.isOnPodAddresses ? 'same-port' : variables.statusText.matches(r'^\{"version":"[0-9A-Za-z][0-9A-Za-z.+-]{0,63}","takeover":"(?:rename)","sidecar":"(?:native|container)","hash":"[0-9a-z]{1,64}"\}$') ? 'rename' : variables.statusText.matches(r'^\{"version":"[0-9A-Za-z][0-9A-Za-z.+-]{0,63}","takeover":"(?:env)","sidecar":"(?:native|container)","hash":"[0-9a-z]{1,64}"\}$') ? 'env' : 'service'
- name: takesAppPort
  expression: >-
    variables.interceptionMode in ['same-port', 'env']
- name: declaring
  expression: >-
    object.spec.containers.filter(c, c.name != 'sidegate' && c.?ports.orValue([]).filter(p, p.?protocol.orValue('TCP') == 'TCP').exists(p, p.containerPort == variables.port)).map(c, c.name)
- name: portApp
  expression: >-
    variables.takesAppPort && size(variables.declaring) > 0 ? [variables.declaring[0]] : []
- name: portNameText
  expression: >-
    size(variables.ports) > 0 ? variables.ports[0].?name.orValue('') : ''
- name: portName
  expression: >-
    variables.interceptionMode != 'rename' ? 'sidegate' : variables.portNameText.matches(r'^(?:(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])|[a-z0-9-]{0,14}[a-z][a-z0-9-]{0,14})$') ? variables.portNameText : ''
- name: configs
  expression: >-
    variables.volumes.filter(v, v.name == 'sidegate-config').map(v, v.?configMap.?name.orValue(''))
- name: config
  expression: >-
    size(variables.configs) > 0 && variables.configs[0].matches(r'^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*$') && size(variables.configs[0]) <= 253 ? variables.configs[0] : ''
- name: secretMounts
  expression: >-
    variables.sidecar.?volumeMounts.orValue([]).filter(m, m.name.startsWith('sidegate-secret-'))
- name: secrets
  expression: >-
    variables.secretMounts.map(entry, (entry.mountPath.startsWith('/etc/sidegate/secrets/') && entry.mountPath.substring(22).matches(r'^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*$') && size(entry.mountPath.substring(22)) <= 253 ? entry.mountPath.substring(22) : ''))
- name: secretNames
  expression: >-
    variables.annotations[?'sidegate.dev/secrets'].orValue('').split(',').map(n, n.trim())
- name: queueMounts
  expression: >-
    variables.sidecar.?volumeMounts.orValue([]).filter(m, m.mountPath == '/var/lib/sidegate')
- name: queueVolume
  expression: >-
    size(variables.queueMounts) > 0 && variables.queueMounts[0].name.matches(r'^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$') && !(variables.queueMounts[0].name in ['sidegate-config', 'sidegate-no-token'] || variables.queueMounts[0].name.startsWith('sidegate-secret-')) ? variables.queueMounts[0].name : ''
- name: queues
  expression: >-
    variables.volumes.filter(q, q.name == variables.queueVolume)
- name: queueVolumes
  expression: >-
    variables.queueVolume == '' ? [] : [variables.queueVolume] + variables.volumes.filter(v, variables.queues.exists(q, q.?persistentVolumeClaim.?claimName.orValue('') != '' && v.?persistentVolumeClaim.?claimName.orValue('') == q.?persistentVolumeClaim.?claimName.orValue('') || has(q.ephemeral) && v.?persistentVolumeClaim.?claimName.orValue('').endsWith('-' + q.name) || has(v.ephemeral) && q.?persistentVolumeClaim.?claimName.orValue('').endsWith('-' + v.name))).map(v, v.name)
- name: namedProbes
  expression: >-
    !variables.isOnPodAddresses ? [] : variables.lasting.filter(c, c.?livenessProbe.?httpGet.?path.orValue('').startsWith('/app-health/' + c.name + '/livez?') && dyn(c.livenessProbe.httpGet.port) == dyn(variables.adminPort) && c.livenessProbe.httpGet.path.substring(size('/app-health/' + c.name + '/livez?')).matches(r'^(?:tcp|https?)://127[.]0[.]0[.]1:(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])(?:/[!-~]*)?$') && c.livenessProbe.httpGet.path.substring(size('/app-health/' + c.name + '/livez?')).split('/')[2] != '127.0.0.1:' + string(variables.adminPort)).map(c, c.name + '/livez=' + (size(c.livenessProbe.httpGet.?httpHeaders.orValue([])) == 0 ? c.livenessProbe.httpGet.path.substring(size('/app-health/' + c.name + '/livez?')) : '{"url":' + '"' + c.livenessProbe.httpGet.path.substring(size('/app-health/' + c.name + '/livez?')).replace('\\', '\\\\').replace('"', '\\"') + '"' + ',"headers":[' + c.livenessProbe.httpGet.?httpHeaders.orValue([]).map(h, '{"name":' + '"' + h.name.replace('\\', '\\\\').replace('"', '\\"') + '"' + ',"value":' + '"' + h.?value.orValue('').replace('\\', '\\\\').replace('"', '\\"') + '"' + '}').join(',') + ']}').replace('$', '$$')) + variables.lasting.filter(c, c.?readinessProbe.?httpGet.?path.orValue('').startsWith('/app-health/' + c.name + '/readyz?') && dyn(c.readinessProbe.httpGet.port) == dyn(variables.adminPort) && c.readinessProbe.httpGet.path.substring(size('/app-health/' + c.name + '/readyz?')).matches(r'^(?:tcp|https?)://127[.]0[.]0[.]1:(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])(?:/[!-~]*)?$') && c.readinessProbe.httpGet.path.substring(size('/app-health/' + c.name + '/readyz?')).split('/')[2] != '127.0.0.1:' + string(variables.adminPort)).map(c, c.name + '/readyz=' + (size(c.readinessProbe.httpGet.?httpHeaders.orValue([])) == 0 ? c.readinessProbe.httpGet.path.substring(size('/app-health/' + c.name + '/readyz?')) : '{"url":' + '"' + c.readinessProbe.httpGet.path.substring(size('/app-health/' + c.name + '/readyz?')).replace('\\', '\\\\').replace('"', '\\"') + '"' + ',"headers":[' + c.readinessProbe.httpGet.?httpHeaders.orValue([]).map(h, '{"name":' + '"' + h.name.replace('\\', '\\\\').replace('"', '\\"') + '"' + ',"value":' + '"' + h.?value.orValue('').replace('\\', '\\\\').replace('"', '\\"') + '"' + '}').join(',') + ']}').replace('$', '$$')) + variables.lasting.filter(c, c.?startupProbe.?httpGet.?path.orValue('').startsWith('/app-health/' + c.name + '/startupz?') && dyn(c.startupProbe.httpGet.port) == dyn(variables.adminPort) && c.startupProbe.httpGet.path.substring(size('/app-health/' + c.name + '/startupz?')).matches(r'^(?:tcp|https?)://127[.]0[.]0[.]1:(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])(?:/[!-~]*)?$') && c.startupProbe.httpGet.path.substring(size('/app-health/' + c.name + '/startupz?')).split('/')[2] != '127.0.0.1:' + string(variables.adminPort)).map(c, c.name + '/startupz=' + (size(c.startupProbe.httpGet.?httpHeaders.orValue([])) == 0 ? c.startupProbe.httpGet.path.substring(size('/app-health/' + c.name + '/startupz?')) : '{"url":' + '"' + c.startupProbe.httpGet.path.substring(size('/app-health/' + c.name + '/startupz?')).replace('\\', '\\\\').replace('"', '\\"') + '"' + ',"headers":[' + c.startupProbe.httpGet.?httpHeaders.orValue([]).map(h, '{"name":' + '"' + h.name.replace('\\', '\\\\').replace('"', '\\"') + '"' + ',"value":' + '"' + h.?value.orValue('').replace('\\', '\\\\').replace('"', '\\"') + '"' + '}').join(',') + ']}').replace('$', '$$'))
- name: ownProbes
  expression: >-
    variables.args.filter(a, a.startsWith('--app-probe=')).map(a, a.substring(12))
- name: appProbes
  expression: >-
    size(variables.ownProbes) == size(variables.namedProbes) && variables.namedProbes.all(p, p in variables.ownProbes) ? variables.ownProbes : variables.namedProbes
- name: pause
  expression: >-
    !variables.isInit && string(variables.sidecar.?lifecycle.?preStop.?exec.?command[?4].orValue('')).matches(r'^(?:[0-9]|[1-9][0-9]|[1-5][0-9]{2}|600)$') ? string(variables.sidecar.?lifecycle.?preStop.?exec.?command[?4].orValue('')) : '0'
- name: unknownFields
  expression: >-
    variables.sidecar.filter(k, !(k in ['name', 'image', 'imagePullPolicy', 'restartPolicy', 'args', 'env', 'ports', 'startupProbe', 'readinessProbe', 'livenessProbe', 'lifecycle', 'resources', 'securityContext', 'terminationMessagePolicy', 'volumeMounts', 'terminationMessagePath', 'resizePolicy']))
- name: differs_restartPolicy
  expression: >-
    (variables.isInit ? variables.sidecar.?restartPolicy.orValue(dyn(null)) == dyn('Always') : !variables.sidecar.?restartPolicy.hasValue()) ? [] : ['restartPolicy']
- name: differs_args
  expression: >-
    variables.sidecar.?args.orValue(dyn(null)) == dyn([dyn('run'), dyn('--config'), dyn('/etc/sidegate/config/gate.yaml'), dyn('--listen')] + (!variables.isOnPodAddresses ? [dyn(':' + string(variables.port))] : []) + (variables.isOnPodAddresses ? [dyn('$(SIDEGATE_POD_IPS):' + string(variables.port))] : []) + [dyn('--admin'), dyn(':' + string(variables.adminPort)), dyn('--upstream'), dyn('http://127.0.0.1:' + variables.appPort)] + variables.appProbes.map(entry, dyn('--app-probe=' + entry))) ? [] : ['args']
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
    variables.sidecar.?livenessProbe.orValue(dyn(null)) == dyn({'timeoutSeconds': dyn(5), 'periodSeconds': dyn(10), 'successThreshold': dyn(1), 'failureThreshold': dyn(6), 'httpGet': dyn({'scheme': dyn('HTTP'), 'path': dyn('/healthz'), 'port': dyn(variables.adminPort)})}) ? [] : [variables.sidecar.?livenessProbe.?httpGet.?path.orValue('') == '/app-health/sidegate/livez' ? 'livenessProbe (rewritten by a mesh; with Istio, set sidecar.istio.io/rewriteAppHTTPProbers: "false" on the pod)' : 'livenessProbe']
- name: differs_lifecycle
  expression: >-
    variables.sidecar.?lifecycle.orValue(dyn(null)) == dyn({'preStop': dyn({'exec': dyn({'command': dyn([dyn('/bin/bash'), dyn('-c'), dyn('exec 3<>/dev/tcp/127.0.0.1/$0 && printf \'GET /prestop?pause=%s HTTP/1.0\\r\\n\\r\\n\' $1 >&3 && read -r line <&3 && [[ $line == *\' 200 \'* ]]'), dyn(string(variables.adminPort)), dyn(variables.pause)])})})}) ? [] : ['lifecycle']
- name: differs_securityContext
  expression: >-
    variables.sidecar.?securityContext.orValue(dyn(null)) == dyn({'runAsNonRoot': dyn(true), 'runAsUser': dyn(64480), 'runAsGroup': dyn(65532), 'allowPrivilegeEscalation': dyn(false), 'capabilities': dyn({'drop': dyn([dyn('ALL')])}), 'readOnlyRootFilesystem': dyn(true), 'seccompProfile': dyn({'type': dyn('RuntimeDefault')})}) ? [] : ['securityContext']
- name: differs_volumeMounts
  expression: >-
    variables.sidecar.?volumeMounts.orValue([]).filter(e, !((e.all(k, k in ['name', 'mountPath', 'readOnly']) && (e.mountPath in variables.allowedMounts || e.mountPath.matches(r'^/var/run/secrets(?:/[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}){1,8}$') && !e.mountPath.matches(r'^/var/run/secrets/kubernetes[.]io(?:/|$)'))) && e.name in variables.addedVolumes)) == (dyn([dyn({'name': dyn('sidegate-config'), 'mountPath': dyn('/etc/sidegate/config'), 'readOnly': dyn(true)}), dyn({'name': dyn('sidegate-no-token'), 'mountPath': dyn('/var/run/secrets/kubernetes.io/serviceaccount'), 'readOnly': dyn(true)})] + variables.secretMounts.map(entry, dyn({'name': dyn('sidegate-secret-' + (entry.name.startsWith('sidegate-secret-') && entry.name.substring(16).matches(r'^[1-9][0-9]{0,3}$') ? entry.name.substring(16) : '')), 'mountPath': dyn('/etc/sidegate/secrets/' + (entry.mountPath.startsWith('/etc/sidegate/secrets/') && entry.mountPath.substring(22).matches(r'^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*$') && size(entry.mountPath.substring(22)) <= 253 ? entry.mountPath.substring(22) : '')), 'readOnly': dyn(true)})) + (variables.queueVolume != '' ? [dyn({'name': dyn(variables.queueVolume), 'mountPath': dyn('/var/lib/sidegate')})] : []))).filter(e, !((e.all(k, k in ['name', 'mountPath', 'readOnly']) && (e.mountPath in variables.allowedMounts || e.mountPath.matches(r'^/var/run/secrets(?:/[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}){1,8}$') && !e.mountPath.matches(r'^/var/run/secrets/kubernetes[.]io(?:/|$)'))) && e.name in variables.addedVolumes)) ? [] : ['volumeMounts'] + variables.sidecar.?volumeMounts.orValue([]).filter(e, !((e.all(k, k in ['name', 'mountPath', 'readOnly']) && (e.mountPath in variables.allowedMounts || e.mountPath.matches(r'^/var/run/secrets(?:/[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}){1,8}$') && !e.mountPath.matches(r'^/var/run/secrets/kubernetes[.]io(?:/|$)'))) && e.name in variables.addedVolumes)).map(e, 'volumeMounts ' + e.mountPath + ((e.all(k, k in ['name', 'mountPath', 'readOnly']) && (e.mountPath in variables.allowedMounts || e.mountPath.matches(r'^/var/run/secrets(?:/[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}){1,8}$') && !e.mountPath.matches(r'^/var/run/secrets/kubernetes[.]io(?:/|$)'))) ? ' (its volume must be a Secret, a ConfigMap or projected)' : ''))
- name: differs_terminationMessagePath
  expression: >-
    variables.sidecar.?terminationMessagePath.orValue('') in ['', '/dev/termination-log'] ? [] : ['terminationMessagePath']
- name: differs_volumes
  expression: >-
    dyn(variables.volumes).filter(v, (v.name in ['sidegate-config', 'sidegate-no-token'] || v.name.startsWith('sidegate-secret-'))) == dyn([dyn({'name': dyn('sidegate-config'), 'configMap': dyn({'defaultMode': dyn(420), 'name': dyn(variables.config)})}), dyn({'name': dyn('sidegate-no-token'), 'emptyDir': dyn({'sizeLimit': dyn('1Mi')})})] + variables.secretMounts.map(entry, dyn({'name': dyn('sidegate-secret-' + (entry.name.startsWith('sidegate-secret-') && entry.name.substring(16).matches(r'^[1-9][0-9]{0,3}$') ? entry.name.substring(16) : '')), 'secret': dyn({'defaultMode': dyn(420), 'secretName': dyn((entry.mountPath.startsWith('/etc/sidegate/secrets/') && entry.mountPath.substring(22).matches(r'^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*$') && size(entry.mountPath.substring(22)) <= 253 ? entry.mountPath.substring(22) : ''))})}))) ? [] : ['volumes'] + dyn(variables.volumes).filter(v, (v.name in ['sidegate-config', 'sidegate-no-token'] || v.name.startsWith('sidegate-secret-'))).map(v, 'volume ' + v.name)
- name: differs_nested
  expression: >-
    variables.sidecar.?volumeMounts.orValue([]).filter(e, size(variables.sidecar.?volumeMounts.orValue([]).filter(o, (e.mountPath + '/').startsWith(o.mountPath + '/'))) > 1).map(e, 'volumeMounts ' + e.mountPath)
- name: differs_queue
  expression: >-
    variables.volumes.filter(v, v.name == variables.queueVolume && !(has(v.persistentVolumeClaim) || has(v.emptyDir) || has(v.ephemeral))).map(v, 'volume ' + v.name)
- name: differs_resources
  expression: >-
    variables.sidecar.?resources.orValue({}).all(k, k in ['requests', 'limits'] && variables.sidecar.resources[k].all(n, n in ['cpu', 'memory', 'ephemeral-storage'])) ? [] : ['resources']
- name: differs_resizePolicy
  expression: >-
    variables.sidecar.?resizePolicy.orValue([]).all(r, r.?restartPolicy.orValue('') == 'NotRequired') ? [] : ['resizePolicy']
- name: differs_number
  expression: >-
    size(variables.sidecars) > 1 ? ['several containers of the name'] : []
- name: differs_forms
  expression: >-
    (variables.annotations[?'sidegate.dev/config'].orValue('web-gate').matches(r'^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*$') && size(variables.annotations[?'sidegate.dev/config'].orValue('web-gate')) <= 253 ? [] : ['annotation sidegate.dev/config']) + (variables.annotations[?'sidegate.dev/secrets'].orValue('stripe-webhook, web-users').matches(r'^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*(?: *, *[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*)*$') ? [] : ['annotation sidegate.dev/secrets']) + (variables.annotations[?'sidegate.dev/queue-volume'].orValue('queue').matches(r'^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$') ? [] : ['annotation sidegate.dev/queue-volume']) + (variables.annotations[?'sidegate.dev/interception'].orValue('same-port:HOST').matches(r'^(?:service|rename|(?:same-port|env)(?::[A-Za-z_][A-Za-z0-9_]{0,127})?)$') ? [] : ['annotation sidegate.dev/interception']) + (variables.annotations[?'sidegate.dev/app-container'].orValue('web').matches(r'^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$') ? [] : ['annotation sidegate.dev/app-container']) + (variables.annotations[?'sidegate.dev/app-port'].orValue('http').matches(r'^(?:(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])|[a-z0-9-]{0,14}[a-z][a-z0-9-]{0,14})$') ? [] : ['annotation sidegate.dev/app-port']) + (variables.annotations[?'sidegate.dev/port'].orValue('8480').matches(r'^(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$') ? [] : ['annotation sidegate.dev/port']) + (variables.annotations[?'sidegate.dev/admin-port'].orValue('8481').matches(r'^(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$') ? [] : ['annotation sidegate.dev/admin-port']) + (variables.annotations[?'sidegate.dev/sidecar'].orValue('native').matches(r'^(?:auto|native|container)$') ? [] : ['annotation sidegate.dev/sidecar']) + (variables.annotations[?'sidegate.dev/image'].orValue('registry.example/sidegate:1.0.0').matches(r'^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}$') ? [] : ['annotation sidegate.dev/image']) + (variables.annotations[?'sidegate.dev/image-pull-secrets'].orValue('registry-login').matches(r'^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*(?: *, *[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*)*$') ? [] : ['annotation sidegate.dev/image-pull-secrets']) + (variables.annotations[?'sidegate.dev/cpu-request'].orValue('100m').matches(r'^(?:[1-9][0-9]{0,5}m|[1-9][0-9]{0,3}(?:\.[0-9]{1,3})?|0\.(?:[1-9][0-9]{0,2}|0[1-9][0-9]?|00[1-9]))$') ? [] : ['annotation sidegate.dev/cpu-request']) + (variables.annotations[?'sidegate.dev/memory-request'].orValue('128Mi').matches(r'^[1-9][0-9]{0,5}(?:Mi|Gi|M|G)$') ? [] : ['annotation sidegate.dev/memory-request']) + (variables.annotations[?'sidegate.dev/cpu-limit'].orValue('1').matches(r'^(?:[1-9][0-9]{0,5}m|[1-9][0-9]{0,3}(?:\.[0-9]{1,3})?|0\.(?:[1-9][0-9]{0,2}|0[1-9][0-9]?|00[1-9]))$') ? [] : ['annotation sidegate.dev/cpu-limit']) + (variables.annotations[?'sidegate.dev/memory-limit'].orValue('256Mi').matches(r'^[1-9][0-9]{0,5}(?:Mi|Gi|M|G)$') ? [] : ['annotation sidegate.dev/memory-limit']) + (variables.annotations[?'sidegate.dev/pre-stop'].orValue('10s').matches(r'^(?:(?:[0-9]|[1-9][0-9]|[1-5][0-9]{2}|600)s|(?:[1-9]|10)m)$') ? [] : ['annotation sidegate.dev/pre-stop'])
- name: differs_settings
  expression: >-
    (variables.annotations[?'sidegate.dev/config'].orValue(string(variables.config)) == string(variables.config) ? [] : ['annotation sidegate.dev/config']) + (variables.annotations[?'sidegate.dev/queue-volume'].orValue(string(variables.queueVolume)) == string(variables.queueVolume) ? [] : ['annotation sidegate.dev/queue-volume']) + (variables.annotations[?'sidegate.dev/port'].orValue(string(variables.port)) == string(variables.port) ? [] : ['annotation sidegate.dev/port']) + (variables.annotations[?'sidegate.dev/admin-port'].orValue(string(variables.adminPort)) == string(variables.adminPort) ? [] : ['annotation sidegate.dev/admin-port']) + (!('sidegate.dev/secrets' in variables.annotations) || variables.secretNames.all(n, n in variables.secrets) && variables.secrets.all(s, s in variables.secretNames) ? [] : ['annotation sidegate.dev/secrets']) + (variables.annotations[?'sidegate.dev/sidecar'].orValue('auto') in ['auto', variables.isInit ? 'native' : 'container'] ? [] : ['annotation sidegate.dev/sidecar']) + (variables.annotations[?'sidegate.dev/app-port'].orValue('') == '' || (variables.interceptionMode == 'rename' && !variables.annotations[?'sidegate.dev/app-port'].orValue('').matches(r'^(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$') ? variables.annotations[?'sidegate.dev/app-port'].orValue('') == variables.portName : variables.annotations[?'sidegate.dev/app-port'].orValue('') == (variables.interceptionMode == 'env' ? string(variables.port) : variables.appPort) || object.spec.containers.exists(c, c.name != 'sidegate' && c.?ports.orValue([]).filter(p, p.?protocol.orValue('TCP') == 'TCP').exists(p, p.?name.orValue('') == variables.annotations[?'sidegate.dev/app-port'].orValue('') && string(p.containerPort) == (variables.interceptionMode == 'env' ? string(variables.port) : variables.appPort)))) ? [] : ['annotation sidegate.dev/app-port']) + ((variables.interceptionMode == 'same-port') == variables.isOnPodAddresses ? [] : ['annotation sidegate.dev/interception'])
- name: differs_order
  expression: >-
    !variables.isInit ? [] : variables.initContainers.filter(c, variables.initContainers.map(c, c.name).indexOf(c.name) < variables.initContainers.map(c, c.name).indexOf('sidegate') && !(c.name in variables.allowedInitContainers)).map(c, c.name + ' before sidegate')
- name: differs_plain
  expression: >-
    variables.isInit || !(variables.isOnPodAddresses || variables.takesAppPort) ? [] : ['interception mode ' + variables.interceptionMode + ' of a plain container']
- name: differs_numbers
  expression: >-
    variables.adminPort != variables.port && string(variables.adminPort) != variables.appPort && (string(variables.port) == variables.appPort) == variables.isOnPodAddresses ? [] : ['the numbers of the ports']
- name: differs_portNames
  expression: >-
    variables.others.filter(c, c.?ports.orValue([]).exists(p, p.?name.orValue('') in (['sidegate', 'sidegate-admin'] + [variables.portName]))).map(c, 'a port name of ' + c.name)
- name: differs_adminPort
  expression: >-
    variables.others.filter(c, c.?ports.orValue([]).filter(p, p.?protocol.orValue('TCP') == 'TCP').exists(p, p.containerPort == variables.adminPort)).map(c, 'port ' + string(variables.adminPort) + ' of ' + c.name)
- name: differs_dataPort
  expression: >-
    variables.others.filter(c, c.?ports.orValue([]).filter(p, p.?protocol.orValue('TCP') == 'TCP').exists(p, p.containerPort == variables.port)).filter(c, !(c.name in variables.portApp)).map(c, 'port ' + string(variables.port) + ' of ' + c.name)
- name: differs_user
  expression: >-
    variables.others.filter(c, c.?securityContext.?runAsUser.orValue(object.spec.?securityContext.?runAsUser.orValue(-1)) == 64480).map(c, 'runAsUser 64480 of ' + c.name)
- name: differs_mounts
  expression: >-
    variables.others.filter(c, c.?volumeMounts.orValue([]).exists(m, ((m.name in ['sidegate-config', 'sidegate-no-token'] || m.name.startsWith('sidegate-secret-')) || m.name in variables.queueVolumes)) || c.?volumeDevices.orValue([]).exists(m, ((m.name in ['sidegate-config', 'sidegate-no-token'] || m.name.startsWith('sidegate-secret-')) || m.name in variables.queueVolumes))).map(c, 'a volume of the sidecar in ' + c.name)
- name: differences
  expression: >-
    size(variables.sidecars) == 0 ? [] : variables.unknownFields + variables.differs_restartPolicy + variables.differs_args + variables.differs_env + variables.differs_ports + variables.differs_startupProbe + variables.differs_readinessProbe + variables.differs_livenessProbe + variables.differs_lifecycle + variables.differs_securityContext + variables.differs_volumeMounts + variables.differs_terminationMessagePath + variables.differs_volumes + variables.differs_nested + variables.differs_queue + variables.differs_resources + variables.differs_resizePolicy + variables.differs_number + variables.differs_forms + variables.differs_settings + variables.differs_order + variables.differs_plain + variables.differs_numbers + variables.differs_portNames + variables.differs_adminPort + variables.differs_dataPort + variables.differs_user + variables.differs_mounts
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
    size(variables.sidecars) == 0 || !object.spec.?ephemeralContainers.orValue([]).exists(e, e.?targetContainerName.orValue('') == 'sidegate' || e.?securityContext.?runAsUser.orValue(object.spec.?securityContext.?runAsUser.orValue(-1)) == 64480 || e.?volumeMounts.orValue([]).exists(m, (m.name in ['sidegate-config', 'sidegate-no-token'] || m.name.startsWith('sidegate-secret-')) || m.name in variables.queueVolumes) || e.?volumeDevices.orValue([]).exists(m, (m.name in ['sidegate-config', 'sidegate-no-token'] || m.name.startsWith('sidegate-secret-')) || m.name in variables.queueVolumes))
  messageExpression: >-
    variables.pod + ' has an ephemeral container in the process namespace of its sidecar, or with its user or volumes, which could read its secrets, end it or take its connections. Target another container, and remove runAsUser: 64480 and mounts of the volumes of the sidecar and its queue.'
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

{{/* True for an update that adds an ephemeral container which reaches the sidecar. */}}
{{- define "sidegate.policyTargeted" -}}
(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c, c.name == 'sidegate' && size(object.spec.?ephemeralContainers.orValue([]).filter(e, e.?targetContainerName.orValue('') == 'sidegate' || e.?securityContext.?runAsUser.orValue(object.spec.?securityContext.?runAsUser.orValue(-1)) == 64480 || e.?volumeMounts.orValue([]).exists(m, (m.name in ['sidegate-config', 'sidegate-no-token'] || m.name.startsWith('sidegate-secret-')) || c.?volumeMounts.orValue([]).exists(q, q.mountPath == '/var/lib/sidegate' && (q.name == m.name || object.spec.?volumes.orValue([]).exists(v, v.name == m.name && (has(v.persistentVolumeClaim) || has(v.ephemeral)))))) || e.?volumeDevices.orValue([]).exists(m, (m.name in ['sidegate-config', 'sidegate-no-token'] || m.name.startsWith('sidegate-secret-')) || c.?volumeMounts.orValue([]).exists(q, q.mountPath == '/var/lib/sidegate' && (q.name == m.name || object.spec.?volumes.orValue([]).exists(v, v.name == m.name && (has(v.persistentVolumeClaim) || has(v.ephemeral)))))))) > size(oldObject.spec.?ephemeralContainers.orValue([]).filter(e, e.?targetContainerName.orValue('') == 'sidegate' || e.?securityContext.?runAsUser.orValue(object.spec.?securityContext.?runAsUser.orValue(-1)) == 64480 || e.?volumeMounts.orValue([]).exists(m, (m.name in ['sidegate-config', 'sidegate-no-token'] || m.name.startsWith('sidegate-secret-')) || c.?volumeMounts.orValue([]).exists(q, q.mountPath == '/var/lib/sidegate' && (q.name == m.name || object.spec.?volumes.orValue([]).exists(v, v.name == m.name && (has(v.persistentVolumeClaim) || has(v.ephemeral)))))) || e.?volumeDevices.orValue([]).exists(m, (m.name in ['sidegate-config', 'sidegate-no-token'] || m.name.startsWith('sidegate-secret-')) || c.?volumeMounts.orValue([]).exists(q, q.mountPath == '/var/lib/sidegate' && (q.name == m.name || object.spec.?volumes.orValue([]).exists(v, v.name == m.name && (has(v.persistentVolumeClaim) || has(v.ephemeral)))))))))
{{- end -}}
