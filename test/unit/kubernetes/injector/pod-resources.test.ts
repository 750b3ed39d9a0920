import { applyPatch, type Operation } from 'rfc6902';
import { describe, expect, test } from 'vitest';
import { injectPod } from '../../../../src/kubernetes/injector/inject.ts';
import { toSidecarDefaults } from '../../../../src/kubernetes/injector/injector-config.ts';
import { addQuantities } from '../../../../src/kubernetes/injector/kubernetes-values.ts';
import { type Json, makeTemplate } from '../../../support/doctor.ts';

const CONTEXT = {
  defaults: toSidecarDefaults('sidegate:1.0.0'),
  version: '1.0.0',
  kube: { major: 1, minor: 36 },
  namespace: 'default',
};

function injectWith(resources: Json, annotations: Json = {}): Json {
  const pod = makeTemplate({ spec: { resources }, annotations });
  const injection = injectPod(pod, CONTEXT);
  if (injection.outcome !== 'injected') return injection;
  applyPatch(pod, structuredClone(injection.patch) as Operation[]);
  return pod.spec.resources;
}

describe("the pod's own resources", () => {
  test.each<[string, Json, Json]>([
    ['its requests', { requests: { cpu: '20m', memory: '64Mi' } }, { requests: { cpu: '70m', memory: '160Mi' } }],
    [
      'its limits, by the CPU request without a CPU limit',
      { limits: { cpu: '1', memory: 2e8 } },
      { limits: { cpu: '1050m', memory: '401326592' } },
    ],
    [
      'no other resource',
      { requests: { cpu: 0.5, 'hugepages-2Mi': '4Mi' } },
      { requests: { cpu: '550m', 'hugepages-2Mi': '4Mi' } },
    ],
    ['nothing if they are empty', {}, {}],
  ])('are raised by those of the sidecar: %s', (_what, resources, expected) => {
    expect(injectWith(resources)).toEqual(expected);
  });

  test('are raised by what the annotations set', () => {
    const annotations = { 'sidegate.dev/cpu-limit': '2', 'sidegate.dev/memory-limit': '1Gi' };
    expect(injectWith({ limits: { cpu: '500m', memory: '1Gi' } }, annotations)).toEqual({
      limits: { cpu: '2500m', memory: '2048Mi' },
    });
  });

  test('that are not a quantity are named', () => {
    expect(injectWith({ requests: { cpu: 'much' } })).toMatchObject({
      outcome: 'denied',
      reason: 'malformed',
      message: 'not a valid pod: spec.resources.requests.cpu is not a quantity',
    });
  });
});

describe('the QoS class', () => {
  const fixed = { requests: { cpu: '1', memory: '1024Mi' }, limits: { cpu: '1000m', memory: '1Gi' } };
  const same = { 'sidegate.dev/cpu-limit': '50m', 'sidegate.dev/memory-limit': '96Mi' };
  const warning = expect.stringMatching(/^the sidecar changes the QoS class of the pod from Guaranteed to Burstable: set/);

  test.each<[string, Json, Json, Json, readonly unknown[]]>([
    ['a pod that was Guaranteed', fixed, undefined, {}, [warning]],
    ['a pod whose requests default to its limits', { limits: fixed.limits }, undefined, {}, [warning]],
    [
      'a pod whose equal requests and limits have different units',
      { requests: { cpu: '1', memory: '1Ti' }, limits: { cpu: '1e0', memory: '1024Gi' } },
      undefined,
      {},
      [warning],
    ],
    ['a pod that was Guaranteed as a whole', {}, fixed, {}, [warning]],
    ['a pod and a sidecar that are Guaranteed', fixed, undefined, same, []],
    ['a whole pod that stays Guaranteed', {}, fixed, { 'sidegate.dev/memory-limit': '96Mi' }, []],
    ['a pod without a limit', { requests: fixed.requests }, undefined, {}, []],
    ['a pod with a lower request', { ...fixed, requests: { cpu: '10m', memory: '1Gi' } }, undefined, {}, []],
  ])('of %s has the warnings that belong to it', (_which, container, resources, annotations, expected) => {
    const pod = makeTemplate({ spec: { ...(resources === undefined ? {} : { resources }) }, annotations });
    for (const each of pod.spec.containers) each.resources = container;
    const injection = injectPod(pod, CONTEXT);
    const { warnings } = injection as { warnings: readonly string[] };
    expect(warnings).toEqual(expected);
    for (const each of warnings) expect(`sidegate: ${each}`.length).toBeLessThanOrEqual(256);
  });
});

test.each([
  ['64Mi', '96Mi', '160Mi'],
  ['1Ki', '1Mi', '1049600'],
  ['1.5Gi', '512Mi', '2048Mi'],
  ['1e3', '0', '1000'],
  ['1E', '1k', '1000000000000001000'],
  ['100m', '1', '2'],
  ['.5M', '1', '500001'],
  ['7Ei', '1Mi', '7696581394433Mi'],
])('%s and %s of memory are %s', (one, other, sum) => {
  expect(addQuantities(one, other, 'memory')).toBe(sum);
});

test.each([
  ['1', '50m', '1050m'],
  ['0.0001', '1m', '2m'],
  ['100u', '1m', '2m'],
  ['1n', '0', '1m'],
  ['2k', '1', '2001000m'],
])('%s and %s of CPU are %s', (one, other, sum) => {
  expect(addQuantities(one, other, 'cpu')).toBe(sum);
});

test.each(['', '.', 'x', '1 Mi', '1mi', '-1', '1Mi5', '1e', '1e999', '1'.repeat(40)])('%j is no quantity', (text) => {
  expect(addQuantities(text, '1', 'cpu')).toBeUndefined();
});
