import { describe, expect, test } from 'vitest';
import { toSidecarDefaults } from '../../../src/config/injector-config.ts';
import { injectPod } from '../../../src/injector/inject.ts';
import type { InjectContext } from '../../../src/injector/outcome.ts';

const CONTEXT: InjectContext = {
  defaults: toSidecarDefaults('sidegate:1.0.0'),
  version: '1.0.0',
  kube: { major: 1, minor: 34 },
  namespace: 'default',
};

const pod = (annotations: object = {}, spec: object = {}): object => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: {
    name: 'web',
    labels: { 'sidegate.dev/inject': 'true' },
    annotations: { 'sidegate.dev/config': 'web-gate', ...annotations },
  },
  spec: { containers: [{ name: 'web', image: 'web', ports: [{ name: 'http', containerPort: 8080 }] }], ...spec },
});

describe('the injector', () => {
  test('injects a labelled pod', () => {
    const injection = injectPod(pod(), CONTEXT);
    expect(injection).toMatchObject({ outcome: 'injected', takeover: 'service' });
  });
});
