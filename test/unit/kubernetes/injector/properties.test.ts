import { applyPatch, type Operation } from 'rfc6902';
import { describe, expect, test } from 'vitest';
import { injectPod } from '../../../../src/kubernetes/injector/inject.ts';
import { toSidecarDefaults } from '../../../../src/kubernetes/injector/injector-config.ts';
import type { InjectContext } from '../../../../src/kubernetes/injector/outcome.ts';
import type { PatchOperation } from '../../../../src/kubernetes/injector/patch.ts';
import { respondToReview } from '../../../../src/kubernetes/injector/review.ts';
import { SETTINGS } from '../../../../src/kubernetes/injector/settings.ts';
import { fc } from '../../../support/property.ts';

const toContext = (minor: number): InjectContext => ({
  defaults: { ...toSidecarDefaults('sidegate:1.0.0'), imagePullSecrets: ['team'] },
  version: '1.0.0',
  kube: { major: 1, minor },
  namespace: 'default',
});

/** Mostly this, and now and then something else. */
const mostly = (usual: fc.Arbitrary<unknown>, rare: fc.Arbitrary<unknown>) =>
  fc.oneof({ weight: 12, arbitrary: usual }, { weight: 1, arbitrary: rare });
const port = mostly(
  fc.constantFrom<unknown>(80, 8080, 3000, '8080'),
  fc.constantFrom<unknown>(8480, 8481, 8482, 'http', 'metrics', -1, 0.5, null, ''),
);
const handler = fc.record(
  {
    httpGet: fc.record(
      {
        port,
        path: fc.constantFrom<unknown>('/', 'x', '/$(A)', '/é b', 7),
        scheme: fc.constantFrom('HTTP', 'HTTPS', 'http'),
        host: fc.constantFrom('', 'h'),
      },
      { requiredKeys: ['port'] },
    ),
    tcpSocket: fc.record({ port }),
    grpc: fc.record({ port }),
    novelty: fc.jsonValue(),
  },
  { requiredKeys: [] },
);
const container = fc.record(
  {
    name: mostly(fc.constantFrom('web', 'other', 'third'), fc.constantFrom<unknown>('sidegate', 4)),
    ports: fc.array(
      fc.record(
        {
          containerPort: mostly(fc.constantFrom(80, 8080, 3000), port),
          name: mostly(
            fc.constantFrom('http', 'metrics', 'http-app', 'a-very-long-one'),
            fc.constantFrom<unknown>('sidegate', 1),
          ),
          protocol: fc.constantFrom('TCP', 'UDP'),
          hostPort: fc.constantFrom(0, 80),
        },
        { requiredKeys: ['containerPort'] },
      ),
      { maxLength: 3 },
    ),
    env: fc.array(
      fc.record(
        { name: fc.constantFrom('PORT', 'HOST', 'A'), value: fc.string(), valueFrom: fc.constant({}) },
        { requiredKeys: ['name'] },
      ),
      { maxLength: 3 },
    ),
    restartPolicy: fc.constantFrom('Always', 'Never'),
    livenessProbe: handler,
    readinessProbe: handler,
    startupProbe: handler,
    lifecycle: fc.record({ postStart: handler, preStop: handler, stopSignal: fc.string() }, { requiredKeys: [] }),
    novelty: fc.jsonValue(),
  },
  { requiredKeys: ['name'] },
);
const annotations = fc
  .tuple(
    fc.dictionary(
      fc.constantFrom(...Object.values(SETTINGS).map(({ name }) => `sidegate.dev/${name}`), 'sidegate.dev/x', 'other'),
      fc.constantFrom('8080', 'http', 'native', 'web', '5s', 'a,b', '1', '64Mi', 'x y'),
      { maxKeys: 1 },
    ),
    fc.constantFrom('service', 'rename', 'same-port', 'same-port:HOST', 'env', 'env:A'),
    fc.constantFrom('auto', 'native', 'container'),
  )
  .map(([some, interception, sidecar]) => ({
    'sidegate.dev/config': 'gate',
    'sidegate.dev/interception': interception,
    'sidegate.dev/sidecar': sidecar,
    ...some,
  }));
/** Pods as people and other injectors might write them, many of them wrong in some way. */
const pod = fc.record({
  metadata: fc.record(
    { labels: fc.constant({ 'sidegate.dev/inject': 'true' }), annotations, novelty: fc.jsonValue() },
    { requiredKeys: ['labels', 'annotations'] },
  ),
  spec: fc.record(
    {
      containers: fc.oneof(
        { weight: 3, arbitrary: fc.array(container, { minLength: 1, maxLength: 1 }) },
        { weight: 1, arbitrary: fc.array(container, { maxLength: 3 }) },
      ),
      initContainers: fc.oneof(fc.array(container, { maxLength: 2 }), fc.constant(null)),
      volumes: fc.oneof(
        fc.array(fc.record({ name: mostly(fc.constant('data'), fc.constant('sidegate-config')) }), { maxLength: 1 }),
        fc.constantFrom(null, null, {}),
      ),
      imagePullSecrets: fc.array(fc.record({ name: fc.constantFrom('team', 'a') }), { maxLength: 2 }),
      terminationGracePeriodSeconds: fc.constantFrom<unknown>(0, 30, 600, '30', null),
      resources: fc.constantFrom<unknown>(
        {},
        { requests: { cpu: '20m', memory: 1 } },
        { limits: { memory: '1Gi' } },
        { limits: 1 },
        [],
      ),
      restartPolicy: fc.constantFrom('Always', 'Never'),
      novelty: fc.jsonValue(),
    },
    { requiredKeys: ['containers'] },
  ),
});
const minor = fc.constantFrom(28, 29, 32, 33, 36);

function apply<T>(to: T, patch: readonly PatchOperation[]): T {
  const copy = structuredClone(to);
  expect(applyPatch(copy, structuredClone(patch) as Operation[]).filter((error) => error !== null)).toEqual([]);
  return copy;
}

/** Where two values differ, as JSON pointers without the numbers of list items. */
function differences(a: unknown, b: unknown, path = ''): string[] {
  if (JSON.stringify(a) === JSON.stringify(b)) return [];
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return [path];
  const keys = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...keys].flatMap((key) =>
    differences(
      (a as Record<string, unknown>)[key],
      (b as Record<string, unknown>)[key],
      `${path}/${Array.isArray(a) ? '*' : key}`,
    ),
  );
}

const CHANGED =
  /^\/(?:metadata\/(?:labels\/sidegate\.dev\/injected|annotations\/sidegate\.dev\/status)|spec\/(?:initContainers|volumes|imagePullSecrets|terminationGracePeriodSeconds|resources\/(?:requests|limits)\/(?:cpu|memory))|spec\/(?:volumes|imagePullSecrets)\/\*|spec\/(?:containers|initContainers)\/\*(?:\/(?:lifecycle|lifecycle\/preStop|env|env\/\*|env\/\*\/value|ports\/\*\/name|(?:livenessProbe|readinessProbe|startupProbe|lifecycle\/postStart|lifecycle\/preStop)\/(?:tcpSocket|httpGet|(?:httpGet|tcpSocket|grpc)\/(?:port|path|scheme))))?)$/;

test('an invalid port is not accepted as the port of the app', () => {
  const make = (containerPort: number) => ({
    metadata: { labels: { 'sidegate.dev/inject': 'true' }, annotations: { 'sidegate.dev/config': 'gate' } },
    spec: { containers: [{ name: 'web', ports: [{ containerPort }] }] },
  });
  for (const number of [-1, 0, 65_536]) expect(injectPod(make(number), toContext(36)).outcome).toBe('denied');
  for (const number of [1, 65_535]) expect(injectPod(make(number), toContext(36)).outcome).toBe('injected');
});

describe('for any pod,', () => {
  test('nothing throws, and the result is an outcome', () => {
    const anything = fc.oneof(fc.jsonValue(), fc.record({ metadata: fc.jsonValue(), spec: fc.jsonValue() }), pod);
    fc.assert(
      fc.property(anything, (value) => {
        expect(['injected', 'skipped', 'denied']).toContain(injectPod(value, toContext(34)).outcome);
        const review = {
          apiVersion: 'admission.k8s.io/v1',
          kind: 'AdmissionReview',
          request: { uid: 'u', kind: { group: '', version: 'v1', kind: 'Pod' }, operation: 'CREATE', object: value },
        };
        expect(() => respondToReview(review, () => toContext(34))).not.toThrow();
        expect(() => respondToReview(value, () => toContext(34))).not.toThrow();
      }),
      { numRuns: 500 },
    );
  });

  test('the patch applies, changes only what belongs to the injector, and a second run changes nothing', () => {
    let injected = 0;
    fc.assert(
      fc.property(pod, minor, (value, at) => {
        const before = JSON.stringify(value);
        const injection = injectPod(value, toContext(at));
        expect(JSON.stringify(value)).toBe(before);
        if (injection.outcome !== 'injected') return;
        injected++;
        const after = apply(value, injection.patch);
        expect(injectPod(after, toContext(at))).toMatchObject({ outcome: 'skipped', reason: 'already_injected' });
        const sidecarless = structuredClone(after) as { spec: { initContainers?: unknown[]; containers: unknown[] } };
        const isOther = (each: unknown): boolean => (each as { name: unknown }).name !== 'sidegate';
        sidecarless.spec.containers = sidecarless.spec.containers.filter(isOther);
        if (Array.isArray(sidecarless.spec.initContainers))
          sidecarless.spec.initContainers = sidecarless.spec.initContainers.filter(isOther);
        for (const { op, path } of injection.patch) {
          // A new variable comes first.
          const [, index] = /^\/spec\/containers\/([0-9]+)\/env\/0$/.exec(op === 'add' ? path : '') ?? [];
          if (index !== undefined) (sidecarless.spec.containers[Number(index)] as { env: unknown[] }).env.shift();
        }
        for (const difference of differences(value, sidecarless)) expect(difference).toMatch(CHANGED);
      }),
      { numRuns: 2500 },
    );
    expect(injected).toBeGreaterThan(100);
  });

  test('accepts containers of a mesh that other injectors put before it afterwards, if the cluster allows their names', () => {
    let injected = 0;
    fc.assert(
      fc.property(pod, (value) => {
        const injection = injectPod(value, toContext(36));
        if (injection.outcome !== 'injected') return;
        injected++;
        const after = apply(value, injection.patch) as { spec: { initContainers?: object[] | null; containers: object[] } };
        const mesh = { name: 'mesh', restartPolicy: 'Always', image: 'mesh:1' };
        after.spec.initContainers = [mesh, ...(after.spec.initContainers ?? [])];
        after.spec.containers = [{ name: 'agent', image: 'agent:1' }, ...after.spec.containers];
        const context = toContext(36);
        const defaults = { ...context.defaults, allowedInitContainers: ['mesh'] };
        expect(injectPod(after, { ...context, defaults })).toMatchObject({ outcome: 'skipped', reason: 'already_injected' });
        const isNative = after.spec.initContainers.some((each) => 'name' in each && each.name === 'sidegate');
        if (isNative) expect(injectPod(after, context)).toMatchObject({ outcome: 'denied', reason: 'sidecar_damaged' });
      }),
      { numRuns: 300 },
    );
    expect(injected).toBeGreaterThan(0);
  });
});
