import { describe, expect, test } from 'vitest';
import { ConfigChecks, createAdvice, Lookups } from '../../../../src/kubernetes/admission/advice.ts';
import { ClusterVersion } from '../../../../src/kubernetes/admission/injector.ts';
import type { AdvisedPod } from '../../../../src/kubernetes/admission/reviewer.ts';
import { KubeError } from '../../../../src/kubernetes/client/error.ts';
import { createLogger } from '../../../../src/telemetry/log/logger.ts';
import { FakeClock, settle } from '../../../support/fake-clock.ts';

const GATE = (more = ''): string => `${more}
routes:
  - name: orders
    match: { path: /hooks }
    webhook: { keys: [{ name: a, secret: { file: ../secrets/orders/key } }] }
`;
const QUEUE = (file: string): string => GATE(`provider: { queue: { sqlite: { path: ${file} } } }`);
const OWNER = { apiVersion: 'apps/v1', kind: 'ReplicaSet', name: 'web', uid: '1' };
const POD: AdvisedPod = {
  request: { uid: 'u', namespace: 'shop', name: 'web-…', isDryRun: false, owner: OWNER },
  configMap: 'gate',
  queueVolume: undefined,
  overrides: { upstream: 'http://127.0.0.1:3000' },
};
const NEVER = new Promise<never>(() => undefined);
const refuse = (status: number, reason: string) => Promise.reject(new KubeError(status, reason, reason));

const toKeys = (count: number): string => Array.from({ length: count }, (_, i) => `k${i}: 1`).join('\n');

type Answers = Readonly<Record<string, () => Promise<unknown>>>;
const toConfigMap = (text: string): Answers => ({ configmaps: async () => ({ data: { 'gate.yaml': text } }) });
const toReplicas = (replicas: number): Answers => ({ replicasets: async () => ({ spec: { replicas } }) });

function start(answers: Answers) {
  const clock = new FakeClock();
  const outcomes: string[] = [];
  const asked: string[] = [];
  const kube = {
    request<T>(_method: string, path: string): Promise<T> {
      asked.push(path);
      const [, answer] = Object.entries(answers).find(([part]) => path.includes(part)) ?? [];
      return (answer?.() ?? refuse(403, 'Forbidden')) as Promise<T>;
    },
  };
  const lookups = new Lookups(kube, clock, (outcome) => outcomes.push(outcome));
  const advise = createAdvice({ lookups, clock, onLate: () => outcomes.push('late') });
  return { clock, kube, advise, outcomes, asked };
}

describe('advice', () => {
  test.each([
    ['nothing on what is right', { ...toConfigMap(GATE()), ...toReplicas(1) }, []],
    ['nothing on what may not be read', {}, []],
    ['nothing on what fails', { configmaps: () => refuse(500, 'InternalError') }, []],
    ['a ConfigMap that is missing', { configmaps: () => refuse(404, 'NotFound') }, [/^the ConfigMap gate/]],
    ['a ConfigMap without the key', { configmaps: async () => ({ data: { other: '' } }) }, [/^ConfigMap gate has no gate\.yaml/]],
    ['that an empty config is none', toConfigMap(''), [/the file is empty$/]],
    [
      'no more on what is too long to be judged',
      toConfigMap(GATE(`#${'x'.repeat(32_768)}`)),
      [/has 32\d{3} characters; configs with more/],
    ],
    ['few of very many mistakes', toConfigMap(`routes: [${'{a: b},'.repeat(2_000)}]`), [/missing: .* \(and at least 19 more\)$/]],
    ['few of very many unknown keys', toConfigMap(GATE(toKeys(2_000))), [/unknown key "k0" \(and at least 19 more\)$/]],
    ['the first of very many mistakes in YAML', toConfigMap('}'.repeat(2_000)), [/line 1, this \} closes nothing$/]],
    [
      'a config with mistakes',
      toConfigMap(GATE('lisen: {}')),
      [/the config in ConfigMap gate: line 1, lisen: unknown key "lisen"/],
    ],
    [
      'variables that the sidecar does not have',
      toConfigMap(
        GATE('store: { redis: { url: "redis://redis:6379", passwordEnv: PASSWORD } }').replace(
          'file: ../secrets/orders/key',
          'env: ORDERS',
        ),
      ),
      [
        /^ConfigMap gate: \S+ is (?:ORDERS|PASSWORD) \(and 1 more\), but the sidecar has no such variable: write (?:file|passwordFile): \.\.\/secrets\/NAME\/KEY/,
      ],
    ],
    [
      'one variable by its place',
      toConfigMap(GATE().replace('file: ../secrets/orders/key', 'env: ORDERS')),
      [/^ConfigMap gate: routes\.0\.webhook\.keys\.0\.secret\.env is ORDERS, but.*: write file: .* to sidegate\.dev\/secrets$/],
    ],
    [
      'replicas that share nothing',
      { ...toConfigMap(GATE()), ...toReplicas(2) },
      [/^ReplicaSet web has 2 replicas.*route orders/],
    ],
    [
      'no replicas where dedup is off',
      { ...toConfigMap(GATE().replace('webhook: {', 'webhook: { dedup: off,')), ...toReplicas(2) },
      [],
    ],
    [
      'no replicas that share a store',
      { ...toConfigMap(GATE('store: { redis: { url: "redis://redis:6379" } }')), ...toReplicas(2) },
      [],
    ],
  ] as const)('includes %s', async (_, answers, expected) => {
    const { advise } = start(answers);
    expect(await advise(POD)).toEqual(expected.map((pattern) => expect.stringMatching(pattern)));
  });

  test.each([
    ['nothing on a queue on its volume', QUEUE('/var/lib/sidegate/a/queue.db'), 1, []],
    [
      'nothing on a queue in PostgreSQL',
      GATE(
        'provider: { queue: { postgres: { url: { file: ../secrets/postgres/url } } } }\nstore: { redis: { url: "redis://redis:6379" } }',
      ),
      2,
      [],
    ],
    [
      'a queue in the default file',
      GATE('provider: {}'),
      1,
      [/^the sidecar does not start, because the queue of ConfigMap gate is in \.\//],
    ],
    [
      'a queue beside its volume',
      QUEUE('/var/lib/sidegate/../queue.db'),
      1,
      [/is in \/var\/lib\/sidegate\/\.\.\/queue\.db, on no volume/],
    ],
    [
      'replicas with a queue each',
      QUEUE('/var/lib/sidegate/queue.db').replace('webhook: {', 'webhook: { dedup: off,'),
      3,
      [/^ReplicaSet web has 3 replicas, but its gate has no provider\.queue\.postgres: each has its own queue/],
    ],
  ] as const)('gives %s', async (_, config, replicas, expected) => {
    const { advise } = start({ ...toConfigMap(config), ...toReplicas(replicas) });
    expect(await advise({ ...POD, queueVolume: 'queue' })).toEqual(expected.map((pattern) => expect.stringMatching(pattern)));
  });

  test('gives a warning about a queue without a volume that the API server does not truncate', async () => {
    const { advise } = start(toConfigMap(QUEUE(`/data/${'q'.repeat(900)}.db`)));
    const [warning = '', ...others] = await advise(POD);
    expect(warning).toMatch(
      /^the sidecar does not start, because the queue of ConfigMap gate is in \/data\/q+, on no volume: set /,
    );
    expect(`sidegate: ${warning}`.length).toBeLessThanOrEqual(256);
    expect(others).toEqual([]);
  });

  test('is not waited for longer than 300 ms', async () => {
    const { advise, clock, outcomes } = start({ configmaps: () => NEVER });
    const advice = advise(POD);
    await clock.advance(299);
    expect(outcomes).not.toContain('late');
    await clock.advance(1);
    expect(await advice).toEqual([]);
    expect(outcomes).toContain('late');
    expect(clock.timers).toBe(0);
  });

  test('checks a ConfigMap once, until it changes', async () => {
    let resourceVersion = '1';
    let text = GATE('lisen: {}');
    const configmaps = async () => ({ metadata: { uid: 'c', resourceVersion }, data: { 'gate.yaml': text } });
    const { advise, clock } = start({ configmaps });
    expect(await advise(POD)).toEqual([expect.stringMatching(/"lisen"/)]);
    // No API server does that: it shows that nobody looks.
    text = GATE();
    await clock.advance(5_000);
    expect(await advise(POD)).toEqual([expect.stringMatching(/"lisen"/)]);
    expect(await advise({ ...POD, overrides: {} })).toEqual([expect.stringMatching(/upstream/)]);
    resourceVersion = '2';
    await clock.advance(5_000);
    expect(await advise(POD)).toEqual([]);
  });

  test('leaves four fifths of the time to reviews', () => {
    const clock = new FakeClock();
    let elapsed = 0;
    const slow = Object.assign(Object.create(clock) as FakeClock, {
      now: () => clock.now(),
      monotonic: () => {
        elapsed += 200;
        return elapsed;
      },
    });
    const checks = new ConfigChecks(slow);
    const isJudged = (gate: string): boolean =>
      checks.check('gate', { edition: gate, replicas: undefined, gate, gateLength: 1 }, {}) !== undefined;
    // Each look at this clock takes 200 ms. The first is let off: it takes what all of them need.
    expect([isJudged('a'), isJudged('b')]).toEqual([true, true]);
    expect([isJudged('c'), isJudged('c'), isJudged('c'), isJudged('b')]).toEqual([false, false, false, true]);
    expect(isJudged('c')).toBe(true);
  });

  test('is looked up once in five seconds, whatever the number of pods', async () => {
    const { advise, clock, asked } = start({ ...toConfigMap(GATE()), ...toReplicas(1) });
    for (let i = 0; i < 20; i++) await advise(POD);
    expect(asked).toHaveLength(2);
    await clock.advance(5_000);
    await advise(POD);
    expect(asked).toHaveLength(4);
  });

  test('requests no other path, even with crafted names', async () => {
    const { advise, asked } = start({});
    for (const configMap of ['../secrets/a', 'a?b', 'a/b', '', 'ä'])
      expect(await advise({ ...POD, configMap, request: { ...POD.request, owner: undefined } })).toEqual([]);
    const namespace = '../../nodes';
    expect(await advise({ ...POD, request: { ...POD.request, namespace } })).toEqual([]);
    expect(asked).toEqual([]);
    await advise({ ...POD, request: { ...POD.request, owner: { ...OWNER, kind: 'constructor' } } });
    expect(asked).toEqual(['/api/v1/namespaces/shop/configmaps/gate']);
  });

  test('sends at most 16 concurrent requests', async () => {
    const { advise, clock, asked } = start({ configmaps: () => NEVER });
    for (let i = 0; i < 40; i++) void advise({ ...POD, configMap: `gate-${i}`, request: { ...POD.request, owner: undefined } });
    await settle();
    expect(asked).toHaveLength(16);
    await clock.advance(300);
  });
});

describe('the version of the cluster', () => {
  const toNode = (kubeletVersion: string): object => ({ status: { nodeInfo: { kubeletVersion } } });
  const begin = (answers: Answers) => {
    const { clock, kube } = start(answers);
    const logger = createLogger({ level: 'error', version: '1', destination: { write: () => undefined } });
    return { clock, version: new ClusterVersion(kube, clock, logger) };
  };
  const server = async (): Promise<object> => ({ major: '1', minor: '34+' });

  test('is that of the oldest kubelet if it is older, across all pages', async () => {
    let page = 0;
    const pages = [
      { items: [toNode('v1.34.2'), toNode('v1.33.1-gke.100')], metadata: { continue: 'more' } },
      { items: [toNode('v1.31.9'), toNode('none'), {}] },
    ];
    const { version } = begin({ '/version': server, nodes: async () => pages[page++] });
    await version.start();
    expect(version.oldest).toEqual({ major: 1, minor: 31 });
    version.close();
  });

  test('is that of the API server if nodes cannot be listed', async () => {
    const { version } = begin({ '/version': server });
    await version.start();
    expect([version.oldest, version.notReadyBecause()]).toEqual([{ major: 1, minor: 34 }, undefined]);
    version.close();
  });

  test('is waited for, and requested again', async () => {
    let isUp = false;
    const { clock, version } = begin({ '/version': () => (isUp ? server() : refuse(0, 'Unreachable')) });
    await version.start();
    expect(version.notReadyBecause()).toMatch(/cannot be read: Unreachable/);
    expect(() => version.oldest).toThrow();
    isUp = true;
    await clock.advance(5_000);
    expect(version.notReadyBecause()).toBeUndefined();
    version.close();
    expect(clock.timers).toBe(0);
  });
});
