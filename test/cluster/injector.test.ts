import { X509Certificate } from 'node:crypto';
import { Agent, request } from 'node:https';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { createCa, toSecretData } from '../../src/kubernetes/certificates/ca.ts';
import { readCertificates } from '../../src/kubernetes/certificates/certificate.ts';
import { type Cluster, useCluster } from '../support/cluster/cluster.ts';
import {
  type InjectorInstallation,
  type InjectorVariant,
  installInjector,
  type Lives,
  type Replica,
  type RotationProgram,
} from '../support/cluster/injector.ts';
import type { Answer, Kube } from '../support/cluster/kube-request.ts';
import { makePod } from '../support/cluster/pods.ts';
import { until } from '../support/gate.ts';

const USUAL: Lives = { checkInterval: '500ms', overlap: '1s' };
/** Announced after 24 s, signing after 27 s, its predecessor gone after 39 s; servers are renewed every 6 s, 3 s before they expire. */
const SHORT: Lives = { caLifetime: '36s', serverLifetime: '9s', overlap: '3s', checkInterval: '500ms' };
const METADATA = { labels: { 'sidegate.dev/inject': 'true' }, annotations: { 'sidegate.dev/config': 'gate' } };
const GATE = `routes:
  - name: orders
    match: { path: /hooks }
    upstream: http://127.0.0.1:8080
    webhook: { keys: [{ name: a, secret: { file: ../secrets/orders/key } }] }
`;

let cluster: Cluster;
let installation: InjectorInstallation | undefined;

beforeAll(async () => {
  cluster = await useCluster('1.36');
});
afterEach(async () => {
  await installation?.stop();
  installation = undefined;
  await cluster?.cleanUp();
});
afterAll(() => cluster?.cleanUp());

async function install(lives: Lives, replicas: number, variant: InjectorVariant = {}): Promise<InjectorInstallation> {
  installation = await installInjector(cluster, lives, variant);
  const { start, startController } = installation;
  startController();
  const started = await Promise.all(Array.from({ length: replicas }, () => start()));
  await until(async () => (await Promise.all(started.map((replica) => replica.isReady()))).every(Boolean));
  // The API server takes the configuration from a watch of its own.
  const namespace = await toApps(installation);
  await until(async () => (await create(namespace, { isDryRun: true })).status === 201);
  return installation;
}

async function toApps({ namespace }: InjectorInstallation): Promise<string> {
  const apps = await cluster.createNamespace({ 'injected-by': namespace });
  await cluster.create(
    { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'gate' }, data: { 'gate.yaml': GATE } },
    { namespace: apps },
  );
  return apps;
}

let count = 0;
function create(namespace: string, { isDryRun = false, metadata = METADATA as Kube } = {}): Promise<Answer> {
  return cluster.create(makePod(`pod-${count++}`, { metadata }), { namespace, isDryRun });
}

const isInjected = ({ status, body }: Answer): boolean => status === 201 && body.spec.initContainers?.[0]?.name === 'sidegate';

async function readBundle({ webhook }: InjectorInstallation): Promise<X509Certificate[]> {
  const { webhooks } = await cluster.ok('GET', webhook);
  const { caBundle = '' } = webhooks.find(({ name }: Kube) => name === 'inject.sidegate.dev').clientConfig;
  return readCertificates(Buffer.from(caBundle, 'base64').toString());
}

async function readAuthority({ secret }: InjectorInstallation): Promise<X509Certificate> {
  return new X509Certificate(Buffer.from((await cluster.ok('GET', secret)).data['ca.crt'], 'base64'));
}

const toSteps = (controllers: readonly RotationProgram[]): unknown[] =>
  controllers.flatMap(({ log }) => log().flatMap(({ msg, step }) => (msg === 'ca_rotated' ? [step] : [])));

interface Load {
  readonly failures: string[];
  readonly admitted: () => number;
  stop(): Promise<void>;
}

/** Pods by way of the API server, which keeps its connections, and reviews on connections of their own, verified by what the webhook configuration holds at that moment. */
function startLoad(installed: InjectorInstallation, namespace: string): Load {
  const failures: string[] = [];
  let admitted = 0;
  let isOver = false;
  const run = async (once: () => Promise<string | undefined>): Promise<void> => {
    while (!isOver) {
      const failure = await once().catch((thrown: unknown) => String(thrown));
      if (failure === undefined) admitted++;
      else failures.push(failure);
    }
  };
  const byApiServer = async (): Promise<string | undefined> => {
    const answer = await create(namespace, { isDryRun: true });
    return isInjected(answer) ? undefined : `${answer.status} ${answer.body?.message ?? 'not injected'}`;
  };
  const byItself = async (): Promise<string | undefined> => {
    const bundle = await readBundle(installed);
    const status = await review(installed, bundle.map((each) => each.toString()).join(''));
    return status === 200 ? undefined : `review: ${status}`;
  };
  const workers = [run(byApiServer), run(byApiServer), run(byItself), run(byItself)];
  return {
    failures,
    admitted: () => admitted,
    async stop() {
      isOver = true;
      await Promise.all(workers);
    },
  };
}

/** A review as the API server sends it, on a connection of its own. */
function review({ service }: InjectorInstallation, ca: string): Promise<number> {
  const pod = makePod('direct', { metadata: METADATA });
  const asked = {
    uid: 'a',
    kind: { group: '', version: 'v1', kind: 'Pod' },
    operation: 'CREATE',
    namespace: 'b',
    dryRun: true,
    object: pod,
  };
  const content = JSON.stringify({ apiVersion: 'admission.k8s.io/v1', kind: 'AdmissionReview', request: asked });
  return new Promise((done, fail) => {
    const options = {
      host: service.host,
      port: service.port,
      path: '/inject?timeout=5s',
      method: 'POST',
      servername: service.name,
      ca,
      agent: new Agent({ keepAlive: false }),
      headers: { 'Content-Type': 'application/json' },
    };
    const outgoing = request(options, (response) => {
      response.resume();
      response.once('end', () => done(response.statusCode ?? 0));
    });
    outgoing.once('error', fail);
    outgoing.end(content);
  });
}

describe('two rotation controllers that start at once', () => {
  test('agree on one CA, which the webhook configuration contains, and two replicas serve one certificate of it', async () => {
    installation = await installInjector(cluster, USUAL, { clientAuth: 'optional' });
    installation.startController();
    installation.startController();
    const { start, replicas, controllers } = installation;
    await Promise.all([start(), start()]);
    await until(async () => (await Promise.all(replicas.map((replica) => replica.isReady()))).every(Boolean));
    // A replica can be ready a moment before the log line of the controller is read here.
    const findIssued = (): readonly Record<string, unknown>[] =>
      controllers.flatMap(({ log }) => log().filter(({ msg }) => msg === 'certificate_issued'));
    await until(() => findIssued().length > 0);
    expect(toSteps(controllers)).toEqual(['created']);
    const authority = await readAuthority(installation);
    expect((await readBundle(installation)).map(({ serialNumber }) => serialNumber)).toEqual([authority.serialNumber]);
    const issued = findIssued();
    expect(issued).toEqual([expect.objectContaining({ issuer: authority.subject.replace('CN=', '') })]);
    for (const { log } of replicas) {
      const loaded = await until(() => log().find(({ msg }) => msg === 'certificate_loaded'));
      expect(loaded).toMatchObject({ serial: issued[0]?.['serial'] });
    }
    for (let i = 0; i < 4; i++) expect(await review(installation, authority.toString())).toBe(200);
  });
});

describe('the power of the injector', () => {
  test('is split: the process that pods can reach can neither read the key of the CA nor change the webhook', async () => {
    const installed = await install(USUAL, 1);
    const status = async (token: string, method: string, path: string, body?: object): Promise<number> => {
      const contentType = 'application/strategic-merge-patch+json';
      return (await cluster.request(method, path, body, { token, ...(method === 'PATCH' && { contentType }) })).status;
    };
    const patch = { metadata: { annotations: { tampered: 'true' } } };
    const injector = await installed.token('injector');
    expect(await status(injector, 'GET', installed.serverSecret)).toBe(200);
    expect(await status(injector, 'GET', installed.secret)).toBe(403);
    for (const path of [installed.webhook, installed.secret, installed.serverSecret])
      expect(await status(injector, 'PATCH', path, patch), path).toBe(403);
    const rotation = await installed.token('rotation');
    expect(await status(rotation, 'GET', installed.secret)).toBe(200);
    // Only its own by name, and nothing else of the cluster.
    for (const path of ['/api/v1/secrets', '/api/v1/namespaces/default/configmaps/kube-root-ca.crt', '/api/v1/nodes'])
      expect(await status(rotation, 'GET', path), path).toBe(403);
    const other = installed.webhook.replace(/[^/]+$/, 'another');
    expect(await status(rotation, 'PATCH', other, patch)).toBe(403);
  });

  test('is also split after an upgrade: the CA of an injector 0.1.0 is adopted, and stays trusted', async () => {
    installation = await installInjector(cluster, USUAL);
    const before = createCa(Date.now(), 86_400_000 * 365);
    const secret = await cluster.ok('GET', installation.secret);
    await cluster.ok('PUT', installation.secret, { ...secret, data: toSecretData({ current: before }) });
    installation.startController();
    await installation.start();
    await until(async () => (await installation?.replicas[0]?.isReady()) === true);
    expect(toSteps(installation.controllers)).toEqual([]);
    expect((await readBundle(installation)).map(({ serialNumber }) => serialNumber)).toEqual([before.certificate.serialNumber]);
    const namespace = await toApps(installation);
    await until(async () => isInjected(await create(namespace, { isDryRun: true })));
  });
});

describe('a caller', () => {
  test('that is not the API server gets no response, while the API server does, with its client certificate', async () => {
    const installed = await install(USUAL, 1);
    const namespace = await toApps(installed);
    await expect(review(installed, (await readAuthority(installed)).toString())).rejects.toThrow();
    expect(isInjected(await create(namespace, { isDryRun: true }))).toBe(true);
  });
});

describe('a pod that is created through the API server', () => {
  test('gets the sidecar and a warning about it; without the label it stays unchanged', async () => {
    const namespace = await toApps(await install(USUAL, 1));
    const answer = await create(namespace);
    expect(isInjected(answer)).toBe(true);
    expect(answer.warnings).toEqual([expect.stringMatching(/^sidegate: native sidecar on port 8480 in front of app/)]);
    const plain = await create(namespace, { metadata: {} });
    expect([plain.status, plain.body.spec.initContainers]).toEqual([201, undefined]);
  });

  test('gets a sidecar without the token of its ServiceAccount, which its app keeps', async () => {
    const namespace = await toApps(await install(USUAL, 1));
    const pod = makePod('with-token', { metadata: METADATA });
    const { body } = await cluster.create({ ...pod, spec: { ...pod.spec, automountServiceAccountToken: true } }, { namespace });
    const folder = '/var/run/secrets/kubernetes.io/serviceaccount';
    const toMounts = (container: Kube): unknown[] =>
      container.volumeMounts.filter(({ mountPath }: Kube) => mountPath === folder).map(({ name }: Kube) => name);
    const [sidecar] = body.spec.initContainers;
    expect(toMounts(sidecar)).toEqual(['sidegate-no-token']);
    expect(toMounts(body.spec.containers[0])).toEqual([expect.stringMatching(/^kube-api-access-/)]);
    expect(body.spec.volumes.find(({ name }: Kube) => name === 'sidegate-no-token')).toEqual({
      name: 'sidegate-no-token',
      emptyDir: { sizeLimit: '1Mi' },
    });
  });

  test('is denied with a clear message if its settings are wrong', async () => {
    const namespace = await toApps(await install(USUAL, 1));
    const annotations = { ...METADATA.annotations, 'sidegate.dev/intercepton': 'service' };
    const { status, body } = await create(namespace, { metadata: { ...METADATA, annotations } });
    expect([status, body.message]).toEqual([400, expect.stringContaining('sidegate.dev/interception')]);
    const replica = installation?.replicas[0] as Replica;
    expect(await replica.metric('sidegate_injector_admissions_total{result="denied",reason="invalid_setting"}')).toBe(1);
  });

  test('gets a warning if its ConfigMap is missing or wrong', async () => {
    const namespace = await toApps(await install(USUAL, 1));
    const toMetadata = (name: string): Kube => ({ ...METADATA, annotations: { 'sidegate.dev/config': name } });
    const missing = await create(namespace, { metadata: toMetadata('nowhere') });
    expect(isInjected(missing)).toBe(true);
    expect(missing.warnings).toContain(
      'sidegate: the ConfigMap nowhere does not exist: the pod does not start before it is created',
    );
    const wrong = {
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name: 'wrong' },
      data: { 'gate.yaml': GATE.replace('webhook', 'wehbook') },
    };
    await cluster.create(wrong, { namespace });
    const { warnings } = await create(namespace, { metadata: toMetadata('wrong') });
    expect(warnings[1]).toMatch(
      /^sidegate: the sidecar does not start with the config in ConfigMap wrong: line 5, routes\.0\.wehbook: unknown key/,
    );
  });

  test('of a Deployment leaves Events on its ReplicaSet, with a warning if replicas share no store', async () => {
    const installed = await install(USUAL, 1);
    const namespace = await toApps(installed);
    const { kind: _kind, apiVersion: _version, metadata: _metadata, ...pod } = makePod('x');
    const labels = { ...METADATA.labels, app: 'web' };
    const template = { ...pod, metadata: { ...METADATA, labels } };
    const spec = { replicas: 3, selector: { matchLabels: { app: 'web' } }, template };
    await cluster.create({ apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'web' }, spec }, { namespace });
    const events = await until(async () => {
      const { items } = await cluster.ok('GET', `/apis/events.k8s.io/v1/namespaces/${namespace}/events`);
      const ours = items.filter(({ reportingController }: Kube) => reportingController === 'sidegate.dev/injector');
      return ours.length >= 2 ? (ours as Kube[]) : undefined;
    });
    const [replicaSet] = (await cluster.ok('GET', `/apis/apps/v1/namespaces/${namespace}/replicasets`)).items;
    for (const { regarding } of events)
      expect(regarding).toMatchObject({ kind: 'ReplicaSet', name: replicaSet.metadata.name, uid: replicaSet.metadata.uid });
    // Three pods, and one Event of each kind.
    expect(events.map(({ type, reason }) => [type, reason]).sort()).toEqual([
      ['Normal', 'SidegateInjected'],
      ['Warning', 'SidegateWarning'],
    ]);
    expect(events.find(({ type }) => type === 'Warning').note).toMatch(/has 3 replicas, but its gate has no store\.redis/);
    const replica = installed.replicas[0] as Replica;
    await until(async () => (await replica.metric('sidegate_injector_events_total{outcome="repeated"}')) === 4);
  });

  test('leaves no Event in a dry run, and a failed Event has no effect', async () => {
    const installed = await install(USUAL, 1);
    const namespace = await toApps(installed);
    expect(isInjected(await create(namespace, { isDryRun: true }))).toBe(true);
    expect(isInjected(await create(namespace))).toBe(true);
    const replica = installed.replicas[0] as Replica;
    await until(async () => (await replica.metric('sidegate_injector_events_total{outcome="sent"}')) === 1);
    const { items } = await cluster.ok('GET', `/apis/events.k8s.io/v1/namespaces/${namespace}/events`);
    expect(items).toHaveLength(1);
  });
});

describe('under load', () => {
  test('certificates and CAs are rotated, and the old CA is removed, without a failed admission', async () => {
    const installed = await install(SHORT, 2, { clientAuth: 'optional' });
    const first = await readAuthority(installed);
    const load = startLoad(installed, await toApps(installed));
    await until(() => load.failures.length > 0 || toSteps(installed.controllers).includes('retired'));
    await load.stop();
    expect(load.failures).toEqual([]);
    expect(load.admitted()).toBeGreaterThan(50);
    expect(toSteps(installed.controllers).slice(0, 4)).toEqual(
      expect.arrayContaining(['created', 'announced', 'switched', 'retired']),
    );
    const bundle = await readBundle(installed);
    expect(bundle.map(({ serialNumber }) => serialNumber)).not.toContain(first.serialNumber);
    for (const replica of installed.replicas)
      expect(await replica.metric('sidegate_injector_certificate_rotations_total{step="server_loaded"}')).toBeGreaterThan(3);
  });

  test('an emptied Secret forces a rotation in which both CAs are trusted, without a failed admission', async () => {
    const installed = await install(USUAL, 2, { clientAuth: 'optional' });
    const first = await readAuthority(installed);
    const load = startLoad(installed, await toApps(installed));
    const secret = await cluster.ok('GET', installed.secret);
    await cluster.ok('PUT', installed.secret, { ...secret, data: {} });
    const isServedByNew = ({ log }: Replica): boolean => log().filter(({ msg }) => msg === 'certificate_loaded').length === 2;
    await until(() => load.failures.length > 0 || installed.replicas.every(isServedByNew));
    await load.stop();
    expect(load.failures).toEqual([]);
    const serials = (await readBundle(installed)).map(({ serialNumber }) => serialNumber);
    expect(serials).toEqual([(await readAuthority(installed)).serialNumber, first.serialNumber]);
    expect(serials[0]).not.toBe(first.serialNumber);
  });

  test('a stopped replica loses none of its reviews', async () => {
    const installed = await install(USUAL, 2, { clientAuth: 'optional' });
    const load = startLoad(installed, await toApps(installed));
    const enough = load.admitted() + 20;
    await until(() => load.failures.length > 0 || load.admitted() > enough);
    const [leaving] = installed.replicas as [Replica];
    leaving.program.child.kill('SIGTERM');
    await until(() => load.failures.length > 0 || leaving.program.ended() !== undefined);
    await load.stop();
    expect(load.failures).toEqual([]);
    expect(leaving.program.ended()).toBe(0);
    expect(leaving.log().at(-1)).toMatchObject({ msg: 'stopped', complete: true });
  });
});

describe('a caBundle', () => {
  const foreign = Buffer.from(createCa(Date.now(), 60_000).certificate.toString()).toString('base64');

  test('that was changed is restored, by the name of the webhook, without changing others', async () => {
    const installed = await install(USUAL, 1);
    const [authority] = await readBundle(installed);
    const before = await cluster.ok('GET', installed.webhook);
    const overwrite = { webhooks: [{ name: 'inject.sidegate.dev', clientConfig: { caBundle: foreign } }] };
    await cluster.ok('PATCH', installed.webhook, overwrite, { contentType: 'application/strategic-merge-patch+json' });
    await until(async () => (await readBundle(installed))[0]?.serialNumber === authority?.serialNumber);
    const after = await cluster.ok('GET', installed.webhook);
    expect(after.webhooks).toEqual(before.webhooks);
    const namespace = await toApps(installed);
    await until(async () => isInjected(await create(namespace, { isDryRun: true })));
  });

  test('that is correct is not written again', async () => {
    const installed = await install(USUAL, 2);
    const { metadata } = await cluster.ok('GET', installed.webhook);
    const [replica] = installed.replicas as [Replica];
    const checks = 'sidegate_injector_certificate_checks_total{result="success"}';
    const enough = (await replica.metric(checks)) + 6;
    await until(async () => (await replica.metric(checks)) >= enough);
    expect((await cluster.ok('GET', installed.webhook)).metadata.resourceVersion).toBe(metadata.resourceVersion);
  });
});
