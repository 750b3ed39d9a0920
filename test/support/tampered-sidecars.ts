/** Pods whose container `sidegate` is not the gate, though they bear every mark of an injected pod: attacks on the policies, the injector and the doctor. */

// biome-ignore lint/suspicious/noExplicitAny: tests reach deep into objects that they have just written
type Json = any;

/** One attack: what it is, what it does to an injected pod, and what a message names. */
export interface TamperedSidecar {
  readonly what: string;
  readonly tamper: (sidecar: Json, pod: Json) => void;
  readonly named: string;
}

const attack = (what: string, named: string, tamper: TamperedSidecar['tamper']): TamperedSidecar => ({ what, named, tamper });
const set = (field: string, value: unknown, named = field): TamperedSidecar =>
  attack(`${field} ${JSON.stringify(value).slice(0, 60)}`, named, (sidecar) => {
    sidecar[field] = value;
  });
const variable = (name: string, value: string): TamperedSidecar =>
  attack(`the variable ${name}`, `env ${name}`, (sidecar) => {
    sidecar.env = [...(sidecar.env ?? []), { name, value }];
  });
const mount = (what: string, mountPath: string, more: Json = {}): TamperedSidecar =>
  attack(what, `volumeMounts ${mountPath}`, (sidecar, pod) => {
    pod.spec.volumes = [...(pod.spec.volumes ?? []), { name: 'mine', configMap: { name: 'mine' } }];
    sidecar.volumeMounts = [...sidecar.volumeMounts, { name: 'mine', mountPath, ...more }];
  });
const argument = (what: string, change: (args: string[]) => string[]): TamperedSidecar =>
  attack(what, 'args', (sidecar) => {
    sidecar.args = change(sidecar.args);
  });
/** The app, which is the first container that is not the sidecar. */
const app = (what: string, named: string, over: Json): TamperedSidecar =>
  attack(what, named, (_sidecar, pod) => {
    Object.assign(
      pod.spec.containers.find((each: Json) => each.name !== 'sidegate'),
      over,
    );
  });
/** The sidecar beside the app instead of before it. */
const plain = (sidecar: Json, pod: Json, interception: string): void => {
  pod.metadata.annotations = { ...pod.metadata.annotations, 'sidegate.dev/interception': interception };
  pod.spec.initContainers = pod.spec.initContainers.filter((each: Json) => each !== sidecar);
  delete sidecar.restartPolicy;
  pod.spec.containers.push(sidecar);
};
/** The sidecar has a volume for its queue, and the app another one. */
const queue = (what: string, source: Json, other: Json, over: Json): TamperedSidecar =>
  attack(what, 'a volume of the sidecar in', (sidecar, pod) => {
    pod.spec.volumes.push({ name: 'queue', ...source }, { name: 'again', ...other });
    sidecar.volumeMounts.push({ name: 'queue', mountPath: '/var/lib/sidegate' });
    Object.assign(
      pod.spec.containers.find((each: Json) => each.name !== 'sidegate'),
      over,
    );
  });
const claim = (claimName: string): Json => ({ persistentVolumeClaim: { claimName } });
const ephemeral = {
  ephemeral: { volumeClaimTemplate: { spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Gi' } } } } },
};
const mountAgain = { volumeMounts: [{ name: 'again', mountPath: '/a' }] };
const exec = { exec: { command: ['sh', '-c', 'kill 1'] } };

/** Each is denied by the policies and the injector, and found by the doctor. */
export const TAMPERED: readonly TamperedSidecar[] = [
  set('command', ['sleep', 'infinity']),
  set('args', ['sleep', 'infinity']),
  set('workingDir', '/tmp'),
  set('envFrom', [{ configMapRef: { name: 'mine' } }]),
  set('stdin', true),
  set('tty', true),
  set('terminationMessagePath', '/opt/sidegate/sidegate.cjs'),
  set('securityContext', { runAsUser: 0 }),
  set('lifecycle', { postStart: exec }),
  set('startupProbe', exec),
  set('readinessProbe', exec),
  set('livenessProbe', { tcpSocket: { port: 8080 } }),
  variable('NODE_OPTIONS', '--import=data:text/javascript,0'),
  variable('LD_PRELOAD', '/tmp/evil.so'),
  variable('SSL_CERT_FILE', '/tmp/ca.pem'),
  variable('ANYTHING', 'x'),
  mount('a mount over the program', '/opt/sidegate'),
  mount('a mount of one file of the program', '/opt/sidegate/sidegate.cjs', { subPath: 'sidegate.cjs' }),
  mount('a mount that leaves the folder of tokens', '/var/run/secrets/../../../opt/sidegate'),
  mount('a part of a volume for the queue', '/var/lib/sidegate', { subPath: 'a' }),
  mount('a mount below the folder of the queue', '/var/lib/sidegate/a'),
  argument('another config', (args) => args.map((arg) => arg.replace('gate.yaml', 'open.yaml'))),
  argument('one more argument', (args) => [...args, '--help']),
  argument('an app probe first', (args) => ['--app-probe=web/livez=http://127.0.0.1:1/', ...args]),
  argument('an upstream elsewhere', (args) => args.map((arg) => arg.replace('127.0.0.1', '10.0.0.1'))),
  argument('a listener on the loopback', (args) => args.map((arg) => (arg === ':8480' ? '127.0.0.1:8480' : arg))),
  attack('its port name on the port of the app', 'args', (sidecar) => {
    sidecar.ports[0].containerPort = 8080;
  }),
  attack('a hostPort', 'ports', (sidecar) => {
    sidecar.ports[0].hostPort = 8480;
  }),
  attack('a capability', 'securityContext', (sidecar) => {
    sidecar.securityContext.capabilities.add = ['NET_BIND_SERVICE'];
  }),
  attack('a user of its own', 'securityContext', (sidecar) => {
    Object.assign(sidecar.securityContext, { runAsUser: 0, runAsNonRoot: false });
  }),
  attack('the escalation of privileges', 'securityContext', (sidecar) => {
    sidecar.securityContext.allowPrivilegeEscalation = true;
  }),
  attack('a root file system that can be written', 'securityContext', (sidecar) => {
    delete sidecar.securityContext.readOnlyRootFilesystem;
  }),
  attack('a config that the app can write', 'volume sidegate-config', (_sidecar, pod) => {
    pod.spec.volumes = pod.spec.volumes.map((volume: Json) =>
      volume.name === 'sidegate-config' ? { name: 'sidegate-config', emptyDir: {} } : volume,
    );
  }),
  attack(
    'a Secret over the program, by a path that leads up',
    'volumeMounts /etc/sidegate/secrets/../../../opt/sidegate',
    (sidecar, pod) => {
      pod.spec.volumes.push({ name: 'sidegate-secret-9', secret: { secretName: 'evil' } });
      const mountPath = '/etc/sidegate/secrets/../../../opt/sidegate';
      sidecar.volumeMounts.push({ name: 'sidegate-secret-9', mountPath, readOnly: true });
    },
  ),
  attack('another config, by a path that leads up', 'volumeMounts /etc/sidegate/secrets/../config', (sidecar, pod) => {
    pod.spec.volumes.push({ name: 'sidegate-secret-9', secret: { secretName: 'evil' } });
    sidecar.volumeMounts.push({ name: 'sidegate-secret-9', mountPath: '/etc/sidegate/secrets/../config', readOnly: true });
  }),
  attack('a Secret of another name', 'volume sidegate-secret-1', (_sidecar, pod) => {
    pod.spec.volumes.find((each: Json) => each.name === 'sidegate-secret-1').secret.secretName = 'evil';
  }),
  attack('a token that is not hidden', 'volumeMounts', (sidecar) => {
    sidecar.volumeMounts.splice(1, 1);
  }),
  attack('a path of the node over the token', 'volume sidegate-no-token', (_sidecar, pod) => {
    const index = pod.spec.volumes.findIndex((each: Json) => each.name === 'sidegate-no-token');
    pod.spec.volumes[index] = { name: 'sidegate-no-token', hostPath: { path: '/' } };
  }),
  mount('a mount below the hidden token', '/var/run/secrets/kubernetes.io/serviceaccount/x'),
  mount('a mount over the folder of the hidden token', '/var/run/secrets/kubernetes.io'),
  mount('a part of a volume among the tokens', '/var/run/secrets/x', { subPath: 'a' }),
  ...[{ persistentVolumeClaim: { claimName: 'a' } }, { emptyDir: {} }, { hostPath: { path: '/' } }].map((source) =>
    attack(`a ${Object.keys(source)[0]} among the tokens`, 'volumeMounts /var/run/secrets/x', (sidecar, pod) => {
      pod.spec.volumes.push({ name: 'mine', ...source });
      sidecar.volumeMounts.push({ name: 'mine', mountPath: '/var/run/secrets/x', readOnly: true });
    }),
  ),
  attack('a Secret over the program, by a link in a volume above it', 'volumeMounts /var/run/secrets/a', (sidecar, pod) => {
    pod.spec.volumes.push({ name: 'links', persistentVolumeClaim: { claimName: 'links' } });
    pod.spec.volumes.push({ name: 'evil', secret: { secretName: 'evil' } });
    sidecar.volumeMounts.push({ name: 'links', mountPath: '/var/run/secrets/a', readOnly: true });
    sidecar.volumeMounts.push({ name: 'evil', mountPath: '/var/run/secrets/a/b', readOnly: true });
  }),
  attack('a Secret in another', 'volumeMounts /var/run/secrets/a/b', (sidecar, pod) => {
    pod.spec.volumes.push({ name: 'evil', secret: { secretName: 'evil' } });
    sidecar.volumeMounts.push({ name: 'evil', mountPath: '/var/run/secrets/a/b', readOnly: true });
    sidecar.volumeMounts.push({ name: 'evil', mountPath: '/var/run/secrets/a', readOnly: true });
  }),
  attack('a container before it', 'first before sidegate', (_sidecar, pod) => {
    pod.spec.initContainers.unshift({ name: 'first', image: 'a:1', restartPolicy: 'Always' });
  }),
  attack('a probe that the pod does not have', 'args', (sidecar) => {
    sidecar.args.push('--app-probe=app/livez=http://127.0.0.1:8080/admin/delete?x=1');
  }),
  attack('a device', 'resources', (sidecar, pod) => {
    pod.spec.resourceClaims = [{ name: 'gpu', resourceClaimName: 'gpu' }];
    sidecar.resources.claims = [{ name: 'gpu' }];
  }),
  ...[
    ['a device of a plug-in', 'example.com/device', '1'],
    ['huge pages', 'hugepages-2Mi', '2Mi'],
  ].map(([what = '', name = '', amount]) =>
    attack(what, 'resources', (sidecar) => {
      for (const field of ['requests', 'limits']) sidecar.resources[field][name] = amount;
    }),
  ),
  set('resizePolicy', [{ resourceName: 'cpu', restartPolicy: 'RestartContainer' }]),
  ...[8480, 8481].map((port) =>
    attack(`an upstream that is its own port ${port}`, 'the numbers of the ports', (sidecar) => {
      sidecar.args = sidecar.args.map((arg: string) => arg.replace('127.0.0.1:8080', `127.0.0.1:${port}`));
    }),
  ),
  attack('a plain container in the place of the app', 'interception mode env of a plain container', (sidecar, pod) =>
    plain(sidecar, pod, 'env'),
  ),
  attack('a plain container on the addresses of the pod', 'interception mode same-port of a plain container', (sidecar, pod) => {
    plain(sidecar, pod, 'same-port');
    sidecar.args = sidecar.args.map((arg: string) => (arg === ':8480' ? '$(SIDEGATE_POD_IPS):8080' : arg));
    sidecar.ports[0].containerPort = 8080;
    sidecar.env = [{ name: 'SIDEGATE_POD_IPS', valueFrom: { fieldRef: { fieldPath: 'status.podIPs' } } }];
  }),
  ...[8480, 8481].flatMap((containerPort) =>
    [{}, { restartPolicy: 'Always' }].map((more) =>
      attack(
        `its port ${containerPort} in an init container ${JSON.stringify(more)}`,
        `port ${containerPort} of`,
        (_sidecar, pod) => {
          pod.spec.initContainers.push({ name: 'second', image: 'a:1', ports: [{ containerPort }], ...more });
        },
      ),
    ),
  ),
  queue('its queue in the app under another name', claim('queue'), claim('queue'), mountAgain),
  queue('its queue in the app as a device', claim('queue'), claim('queue'), {
    volumeDevices: [{ name: 'again', devicePath: '/dev/a' }],
  }),
  queue('the claim of its ephemeral queue in the app', ephemeral, claim('web-queue'), mountAgain),
  queue('an ephemeral volume of the app as its queue', claim('web-again'), ephemeral, mountAgain),
  attack('a path of the node as its queue', 'volume queue', (sidecar, pod) => {
    pod.spec.volumes.push({ name: 'queue', hostPath: { path: '/' } });
    sidecar.volumeMounts.push({ name: 'queue', mountPath: '/var/lib/sidegate' });
  }),
  app('its admin port on the app', 'port 8481 of', { ports: [{ containerPort: 8481 }] }),
  app('its data port on the app', 'port 8480 of', { ports: [{ containerPort: 8480 }] }),
  app('the name of its admin port on the app', 'a port name of', { ports: [{ name: 'sidegate-admin', containerPort: 9000 }] }),
  app('its user in the app', 'runAsUser 64480 of', { securityContext: { runAsUser: 64_480 } }),
  attack('its user in the pod', 'runAsUser 64480 of', (_sidecar, pod) => {
    pod.spec.securityContext = { runAsUser: 64_480 };
  }),
  app('one of its volumes in the app', 'a volume of the sidecar in', {
    volumeMounts: [{ name: 'sidegate-no-token', mountPath: '/a' }],
  }),
  attack('a config in a sub-path', 'volumeMounts /etc/sidegate/config', (sidecar) => {
    sidecar.volumeMounts[0].subPath = 'other';
  }),
];
