import { describe, expect, test } from 'vitest';
import { toSidecarDefaults } from '../../../../src/kubernetes/injector/injector-config.ts';
import type { InjectContext } from '../../../../src/kubernetes/injector/outcome.ts';
import { respondToReview } from '../../../../src/kubernetes/injector/review.ts';

const toContext = (namespace: string): InjectContext => ({
  defaults: toSidecarDefaults('sidegate:1.0.0'),
  version: '1.0.0',
  kube: { major: 1, minor: 34 },
  namespace,
});

const POD = {
  metadata: {
    generateName: 'web-',
    labels: { 'sidegate.dev/inject': 'true' },
    annotations: { 'sidegate.dev/config': 'web-gate' } as Record<string, string>,
    ownerReferences: [
      { apiVersion: 'v1', kind: 'Node', name: 'other', uid: '1' },
      { apiVersion: 'apps/v1', kind: 'ReplicaSet', name: 'web-5d', uid: '2', controller: true },
    ],
  },
  spec: { containers: [{ name: 'web', ports: [{ containerPort: 8080 }] }] },
};
const review = (object: unknown, more: object = {}): object => ({
  apiVersion: 'admission.k8s.io/v1',
  kind: 'AdmissionReview',
  request: {
    uid: 'u1',
    kind: { group: '', version: 'v1', kind: 'Pod' },
    operation: 'CREATE',
    namespace: 'shop',
    object,
    ...more,
  },
});
const answer = (asked: unknown) => respondToReview(asked, toContext).response as { response: Record<string, unknown> };

describe('an admission review', () => {
  test('is denied if its settings would create thousands of volumes', () => {
    const secrets = Array.from({ length: 4_000 }, (_, i) => `s${i}`).join(',');
    const annotations = { ...POD.metadata.annotations, 'sidegate.dev/secrets': secrets };
    const { response } = answer(review({ ...POD, metadata: { ...POD.metadata, annotations } }));
    expect(response['status']).toMatchObject({
      message: expect.stringMatching(/^the annotations sidegate\.dev\/… have \d+ characters in total; the maximum is 8192$/),
    });
  });

  test('is denied in one message of bounded length, whatever the pod repeats', () => {
    const ports = Array.from({ length: 5_000 }, (_, i) => ({ name: `p${i}`, containerPort: 3_000 + i }));
    const { response } = answer(review({ ...POD, spec: { containers: [{ name: 'web', ports }] } }));
    expect((response['status'] as { message: string }).message).toMatch(/^.{1,2047}…$/u);
  });

  const withProbes = (httpGet: object, containers = 1): object => {
    const probes = { livenessProbe: { httpGet: { port: 8080, ...httpGet } } };
    const web = { name: 'web', ports: [{ containerPort: 8080 }], ...probes };
    const others = Array.from({ length: containers - 1 }, (_, i) => ({ name: `other${i}`, ...probes }));
    const annotations = {
      ...POD.metadata.annotations,
      'sidegate.dev/interception': 'same-port',
      'sidegate.dev/app-container': 'web',
    };
    return { metadata: { ...POD.metadata, annotations }, spec: { containers: [web, ...others] } };
  };

  test.each([
    ['a path', { path: `/${'é'.repeat(4_096)}` }],
    ['the value of a header', { httpHeaders: [{ name: 'A', value: 'x'.repeat(4_096) }] }],
    ['the name of a header', { httpHeaders: [{ name: 'A'.repeat(4_096), value: 'x' }] }],
    ['thousands of headers', { httpHeaders: Array.from({ length: 4_000 }, () => ({ name: '', value: '' })) }],
  ])('is denied if %s of a probe is too long for the arguments of the sidecar', (_what, httpGet) => {
    const { response } = answer(review(withProbes(httpGet)));
    expect(response['status']).toMatchObject({
      message: expect.stringMatching(
        /^the container web \(livez\) has a path and headers of \d+ characters; the maximum is 4096: use a shorter path/,
      ),
    });
  });

  test('is denied if its probes are too long in total, and accepted below that, with a patch of bounded size', () => {
    const httpGet = { path: `/${'€'.repeat(4_000)}` };
    expect(answer(review(withProbes(httpGet, 9))).response['status']).toMatchObject({
      message: expect.stringMatching(
        /^the probes of the pod have paths and headers of \d+ characters in total; the maximum is 32768/,
      ),
    });
    const { response } = answer(review(withProbes(httpGet, 8)));
    expect(response['allowed']).toBe(true);
    expect(String(response['patch']).length).toBeLessThan(1_048_576);
  });

  test.each([
    ['a container', { containers: [{ name: 'x'.repeat(254), ports: [{ containerPort: 80 }] }] }],
    ['an init container', { containers: POD.spec.containers, initContainers: [{ name: 'x'.repeat(254) }] }],
    ['a port', { containers: [{ name: 'web', ports: [{ containerPort: 80, name: 'x'.repeat(254) }] }] }],
    ['a volume', { ...POD.spec, volumes: [{ name: 'x'.repeat(254) }] }],
    ['a mount', { containers: [{ ...POD.spec.containers[0], volumeMounts: [{ name: 'x'.repeat(254) }] }] }],
  ])('is denied if the name of %s is longer than any that is valid', (_what, spec) => {
    expect(answer(review({ ...POD, spec })).response['status']).toMatchObject({
      message: 'not a valid pod: the name of a container, port, volume or mount has more than 253 characters: shorten it',
    });
  });

  test('is denied if it has hundreds of containers', () => {
    const containers = Array.from({ length: 129 }, (_, i) => ({ name: `c${i}` }));
    expect(answer(review({ ...POD, spec: { containers } })).response['status']).toMatchObject({
      message: 'the pod has 129 containers; the maximum is 128: remove some',
    });
  });

  test('does not keep names that are longer than any that is valid for Events and logs', () => {
    const name = 'x'.repeat(254);
    const metadata = { ...POD.metadata, name, ownerReferences: [{ apiVersion: 'v1', kind: name, name, uid: name }] };
    expect(respondToReview(review({ ...POD, metadata }), toContext).request).toMatchObject({
      name: 'web-…',
      owner: { kind: '', name: '', uid: '' },
    });
  });

  test('gets its UID, a patch in base64 and a warning that describes the change', () => {
    const { response } = answer(review(POD));
    expect(response).toMatchObject({ uid: 'u1', allowed: true, patchType: 'JSONPatch' });
    const patch = JSON.parse(Buffer.from(String(response['patch']), 'base64').toString()) as { path: string }[];
    expect(patch.map(({ path }) => path)).toContain('/spec/initContainers');
    expect(response['warnings']).toEqual([
      'sidegate: native sidecar on port 8480 in front of web on port 8080 (interception mode service)',
    ]);
  });

  test('names its subject: the controller, the namespace, and whether it is a dry run', () => {
    const { request } = respondToReview(review(POD, { dryRun: true }), toContext);
    expect(request).toEqual({
      uid: 'u1',
      namespace: 'shop',
      name: 'web-…',
      isDryRun: true,
      owner: { apiVersion: 'apps/v1', kind: 'ReplicaSet', name: 'web-5d', uid: '2' },
    });
  });

  test('is denied with 400 for an error of the author, and with 403 for a forbidden pod', () => {
    const wrong = { ...POD, metadata: { ...POD.metadata, annotations: { 'sidegate.dev/confg': 'x' } } };
    expect(answer(review(wrong)).response).toMatchObject({
      allowed: false,
      status: { code: 400, message: expect.stringContaining('did you mean sidegate.dev/config?') },
    });
    const host = { ...POD, spec: { ...POD.spec, hostNetwork: true } };
    expect(answer(review(host)).response).toMatchObject({
      uid: 'u1',
      allowed: false,
      status: { code: 403, message: expect.stringContaining('hostNetwork') },
    });
  });

  test('allows everything that is not the creation of a pod', () => {
    for (const more of [
      { operation: 'UPDATE' },
      { subResource: 'ephemeralcontainers' },
      { kind: { group: 'apps', version: 'v1', kind: 'ReplicaSet' } },
    ])
      expect(answer(review(POD, more)).response).toEqual({ uid: 'u1', allowed: true });
  });

  test.each([
    undefined,
    null,
    'text',
    [],
    {},
    { request: null },
    { apiVersion: 'admission.k8s.io/v1beta1', kind: 'AdmissionReview', request: { uid: 'x' } },
  ])('denies %j, which is not a review', (asked) => {
    expect(answer(asked).response).toMatchObject({ allowed: false, status: { code: 400 } });
  });

  test('truncates warnings to 256 characters', () => {
    const name = 'w'.repeat(63);
    const [container] = POD.spec.containers;
    const lifecycle = { preStop: { exec: { command: ['true'] } } };
    const many = { ...POD, spec: { containers: [{ ...container, name, lifecycle }], hostname: 'x' } };
    const { response } = answer(review(many));
    for (const warning of response['warnings'] as string[]) expect(warning.length).toBeLessThanOrEqual(256);
    expect(response['warnings']).toHaveLength(2);
  });
});
