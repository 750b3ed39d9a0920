/** An injector under a memory limit, as the chart runs it, with an API server of the test's own. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { answerJson, startApiServer, toStatus } from './api-server.ts';
import { makeAuthority } from './certificates.ts';
import { until } from './gate.ts';
import { type CgroupProcess, collectLines, startInCgroup, toImageCommand } from './memory-cgroup.ts';

/** A running one. */
export interface CgroupInjector extends CgroupProcess {
  readonly port: number;
  readonly adminPort: number;
}

const POD = {
  metadata: { name: 'web', labels: { 'sidegate.dev/inject': 'true' }, annotations: { 'sidegate.dev/config': 'gate' } },
  spec: { containers: [{ name: 'app', image: 'app:1', ports: [{ containerPort: 3000 }] }] },
};

/** A review of a pod, with `padding` bytes of annotation. */
export function toReview(padding = 0): string {
  const { metadata } = POD;
  const annotations = { ...metadata.annotations, padding: 'x'.repeat(padding) };
  return toReviewOf({ ...POD, metadata: { ...metadata, annotations } });
}

function toReviewOf(object: object): string {
  const kind = { group: '', version: 'v1', kind: 'Pod' };
  const request = { uid: 'u-1', kind, operation: 'CREATE', namespace: 'shop', object };
  return JSON.stringify({ apiVersion: 'admission.k8s.io/v1', kind: 'AdmissionReview', request });
}

/** A review of a pod with a probe whose path has so many characters, which take six bytes each in a URL. */
export function toProbeReview(characters: number): string {
  const annotations = { ...POD.metadata.annotations, 'sidegate.dev/interception': 'same-port' };
  const livenessProbe = { httpGet: { port: 3000, path: `/${'é'.repeat(characters)}` } };
  return toReviewOf({
    metadata: { ...POD.metadata, annotations },
    spec: { containers: POD.spec.containers.map((container) => ({ ...container, livenessProbe })) },
  });
}

/** A review of a pod with so many mounts, in a container with a name of so many characters. */
export function toMountsReview(mounts: number, characters: number): string {
  const volumeMounts = Array.from({ length: mounts }, (_, index) => ({ name: `sidegate-secret-${index}` }));
  return toReviewOf({
    ...POD,
    spec: { containers: [{ ...POD.spec.containers[0], name: 'x'.repeat(characters), volumeMounts }] },
  });
}

/** A review with so many values as the bound counts them (commas and openings): objects in objects with numeric keys, which take the most memory. */
export function toNestedReview(values: number): string {
  const nested = Array.from({ length: Math.floor(values / 3) }, (_, index) => `{"${index}":{}}`);
  return toReview().replace('"uid"', `"nested":[${nested.join(',')}],"uid"`);
}

/** Mounts the files of a service account where a pod has them, for this process alone. */
const AS_IN_A_POD = `
place=/run/secrets/kubernetes.io/serviceaccount
mount -t tmpfs none /run && mkdir -p $place && cp "$0/token" "$0/ca.crt" "$0/namespace" $place && exec "$@"`;

/** Starts it in a cgroup of `mebibytes`. */
export async function startInjectorInCgroup(mebibytes: number): Promise<CgroupInjector> {
  const api = await startApiServer(({ url }, response) => {
    if (url === '/version') answerJson(response, 200, { major: '1', minor: '34' });
    else answerJson(response, 403, toStatus(403, 'Forbidden', 'not allowed'));
  });
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-injector-'));
  const pair = makeAuthority(folder, 'root').issue('server', 'DNS:injector.gate.svc');
  mkdirSync(join(folder, 'tls'));
  writeFileSync(join(folder, 'tls', 'tls.crt'), readFileSync(pair.cert));
  writeFileSync(join(folder, 'tls', 'tls.key'), readFileSync(pair.key));
  const server = { address: '127.0.0.1:0', adminAddress: '127.0.0.1:0', certificate: { directory: join(folder, 'tls') } };
  writeFileSync(join(folder, 'injector.yaml'), stringify({ sidecar: { image: 'registry.example/sidegate:1' }, server }));
  for (const [name, text] of Object.entries({ namespace: 'shop', token: 't', 'ca.crt': api.ca }))
    writeFileSync(join(folder, name), text);
  const command = await toImageCommand('inject-server', '--config', join(folder, 'injector.yaml'));
  const service = { KUBERNETES_SERVICE_HOST: api.url.hostname, KUBERNETES_SERVICE_PORT: api.url.port };
  const running = startInCgroup(mebibytes, ['unshare', '--mount', 'sh', '-c', AS_IN_A_POD, folder, ...command], service);
  const lines = collectLines(running.child);
  const find = (name: string): Record<string, unknown> | undefined => lines().find(({ msg }) => msg === name);
  const listening = await until(() => {
    if (!running.isAlive()) throw new Error('the injector ended before it listened');
    return find('certificate_loaded') && find('listening');
  });
  return {
    ...running,
    port: Number(listening['port']),
    adminPort: Number(listening['adminPort']),
    async stop() {
      await running.stop();
      await api.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** The status of one small review, from an address of its own; 0 where no answer came. */
export function sendSmallReview(port: number): Promise<number> {
  const options = { host: '127.0.0.1', port, localAddress: '127.0.0.2', rejectUnauthorized: false, agent: false } as const;
  const headers = { 'Content-Type': 'application/json' };
  return new Promise((resolve) => {
    const outgoing = request({ ...options, method: 'POST', path: '/inject?timeout=5s', headers }, (incoming) => {
      incoming.resume();
      resolve(incoming.statusCode ?? 0);
    });
    outgoing.on('error', () => resolve(0));
    outgoing.end(toReview());
  });
}
