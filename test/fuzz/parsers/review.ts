/** Reviews of pods that the API server sends to the injector. */
import { applyPatch, type Operation } from 'rfc6902';
import { createInjectorMetrics } from '../../../src/kubernetes/admission/injector-metrics.ts';
import { ADMISSIONS, createReviewer } from '../../../src/kubernetes/admission/reviewer.ts';
import { toSidecarDefaults } from '../../../src/kubernetes/injector/injector-config.ts';
import { createLogger } from '../../../src/telemetry/log/logger.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import type { Target } from '../guided.ts';
import { expectEqual } from './expect-equal.ts';

const MAX_MESSAGE = 2_048;
const review = createReviewer({
  clock: new FakeClock(),
  logger: createLogger({ level: 'error', version: '1', destination: { write: () => undefined } }),
  metrics: createInjectorMetrics({ version: '1', revision: undefined, processMetrics: false, admissions: ADMISSIONS }),
  defaults: toSidecarDefaults('sidegate:1'),
  version: '1',
  kube: () => ({ major: 1, minor: 34 }),
  excludedNamespaces: ['kube-system'],
  advise: async () => [],
  sendEvent: () => undefined,
});

function toSeed(annotations: object, pod: object): Buffer {
  const metadata = { generateName: 'web-', labels: { 'sidegate.dev/inject': 'true' }, annotations };
  const kind = { group: '', version: 'v1', kind: 'Pod' };
  const request = { uid: 'u-1', kind, operation: 'CREATE', namespace: 'shop', dryRun: false, object: { metadata, spec: pod } };
  return Buffer.from(JSON.stringify({ apiVersion: 'admission.k8s.io/v1', kind: 'AdmissionReview', request }));
}

const APP = { name: 'app', image: 'app:1', ports: [{ containerPort: 3_000, name: 'http' }] };
const PROBED = { ...APP, readinessProbe: { httpGet: { path: '/ready', port: 'http' } }, env: [{ name: 'PORT', value: '3000' }] };

/** Each review gets a status of its own, and a patch that applies to its pod. */
export const REVIEW: Target = {
  name: 'review',
  seeds: [
    toSeed({ 'sidegate.dev/config': 'gate' }, { containers: [APP] }),
    toSeed(
      { 'sidegate.dev/config': 'gate', 'sidegate.dev/interception': 'same-port', 'sidegate.dev/secrets': 'a,b' },
      { containers: [PROBED, { name: 'log', image: 'l:1' }], initContainers: [{ name: 'init', image: 'i:1' }], volumes: [] },
    ),
    toSeed({ 'sidegate.dev/config': 'gate', 'sidegate.dev/interception': 'rename' }, { hostNetwork: true, containers: [PROBED] }),
    toSeed({}, { containers: [] }),
  ],
  pieces: [
    ...[
      '{',
      '}',
      '[',
      ']',
      ',',
      ':',
      'null',
      'true',
      '0',
      '-1',
      '""',
      '"x"',
      '{}',
      '[]',
      '1e999',
      '"\\ud800"',
      '"__proto__":{}',
      '"kind":"Pod"',
    ],
    ...['"uid":"u"', '"namespace":"kube-system"', '"sidegate.dev/app-container":"app"', '"sidegate.dev/interception":"service"'],
    ...[
      '"sidegate.dev/interception":"env"',
      '"sidegate.dev/config":""',
      '"sidegate.dev/injected":"true"',
      '"sidegate.dev/secrets":"a"',
    ],
    ...[
      '"containerPort":8480',
      '"hostPort":80',
      '"restartPolicy":"Always"',
      '"name":"sidegate"',
      '"httpGet":{"port":3000}',
      '"tcpSocket":null',
    ],
    ...[
      '"shareProcessNamespace":true',
      '"securityContext":{"runAsUser":0}',
      '"env":[{"name":"PORT","value":"$(X)"}]',
      '"~1"',
      '"a/b~c":1',
    ],
  ],
  maxBytes: 4_096,
  async check(input) {
    const { status, text } = await review(input, true);
    if (status !== 200) {
      // 413: nested deeper than strict JSON allows.
      if (![400, 403, 413].includes(status) || text === '' || /\n\s+at /.test(text)) throw new Error(`${status} ${text}`);
      return;
    }
    const asked = JSON.parse(input.toString()) as { readonly request: { readonly uid: string; readonly object: object } };
    const { response } = JSON.parse(text) as { readonly response: Record<string, unknown> };
    expectEqual('the uid', response['uid'], asked.request.uid);
    if (response['allowed'] === false) {
      const { message = '', code } = response['status'] as { readonly message?: string; readonly code: number };
      if (message === '' || message.length > MAX_MESSAGE || (code !== 400 && code !== 403))
        throw new Error(`denied with ${code} ${message}`);
    }
    if (response['patch'] === undefined) return;
    const patch = JSON.parse(Buffer.from(String(response['patch']), 'base64').toString()) as Operation[];
    const failures = applyPatch(asked.request.object, patch).filter((error) => error !== null);
    expectEqual('failures of the patch', failures.map(String), []);
  },
};
