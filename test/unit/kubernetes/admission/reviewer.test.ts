import { describe, expect, test } from 'vitest';
import { createInjectorMetrics } from '../../../../src/kubernetes/admission/injector-metrics.ts';
import { ADMISSIONS, createReviewer, parseBounded, toMaxValues } from '../../../../src/kubernetes/admission/reviewer.ts';
import { toSidecarDefaults } from '../../../../src/kubernetes/injector/injector-config.ts';
import { createLogger } from '../../../../src/telemetry/log/logger.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { measureHeap } from '../../../support/heap.ts';

const toReview = (more: object): Buffer => {
  const annotations = { 'sidegate.dev/config': 'gate' };
  const metadata = { name: 'web', labels: { 'sidegate.dev/inject': 'true' }, annotations };
  const object = { metadata, spec: { containers: [{ name: 'app', image: 'app:1', ports: [{ containerPort: 3000 }] }] }, ...more };
  const kind = { group: '', version: 'v1', kind: 'Pod' };
  const request = { uid: 'u-1', kind, operation: 'CREATE', namespace: 'shop', object };
  return Buffer.from(JSON.stringify({ apiVersion: 'admission.k8s.io/v1', kind: 'AdmissionReview', request }));
};

function start(advise: () => Promise<readonly string[]>) {
  return createReviewer({
    clock: new FakeClock(),
    logger: createLogger({ level: 'error', version: '1', destination: { write: () => undefined } }),
    metrics: createInjectorMetrics({ version: '1', revision: undefined, processMetrics: false, admissions: ADMISSIONS }),
    defaults: toSidecarDefaults('sidegate:1'),
    version: '1',
    kube: () => ({ major: 1, minor: 34 }),
    excludedNamespaces: [],
    advise,
    sendEvent: () => undefined,
  });
}

describe('a parsed review', () => {
  test.each([
    ['too many values', `[${'{},'.repeat(1_000_000)}{}]`],
    ['nesting that is too deep', `${'['.repeat(65)}${']'.repeat(65)}`],
    ['nesting that never ends', '['.repeat(4_000_000)],
    ['a string that never ends', `{"a":"${'['.repeat(100)}`],
    ['bytes that are not UTF-8', Buffer.from([0x22, 0xff, 0x22])],
  ])('is undefined, before it takes memory, for %s', (_, text) => {
    expect(parseBounded(Buffer.from(text))).toBeUndefined();
  });

  test('may contain brackets in strings', () => {
    const value = { 'a\\"[[{{': `${'[{,'.repeat(200_000)}\\"`, b: [[{ c: '"' }]] };
    expect(parseBounded(Buffer.from(JSON.stringify(value)))).toEqual(value);
  });

  test('is freed before anything is awaited', async () => {
    let proceed: () => void = () => undefined;
    const waited = new Promise<readonly string[]>((resolve) => {
      proceed = () => resolve([]);
    });
    const reviewer = start(() => waited);
    const replies = [reviewer(toReview({}), true)];
    const content = toReview({ status: Array.from({ length: 40_000 }, (_, i) => ({ [`k${i}`]: [i] })) });
    const before = measureHeap();
    for (let i = 0; i < 8; i++) replies.push(reviewer(content, true));
    const kept = measureHeap() - before;
    proceed();
    expect((await Promise.all(replies)).map(({ status }) => status)).toEqual(replies.map(() => 200));
    expect(kept).toBeLessThan(20_000_000);
  });
});

test('the values of a review fit into half of the heap, whatever they are', () => {
  expect([64, 128, 1_024].map((mebibytes) => toMaxValues(mebibytes * 1_048_576))).toEqual([167_772, 335_544, 393_216]);
});
