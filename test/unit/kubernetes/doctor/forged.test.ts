import { describe, expect, test } from 'vitest';
import { diagnose } from '../../../../src/kubernetes/doctor/diagnose.ts';
import { toJson } from '../../../../src/kubernetes/doctor/report-json.ts';
import { toText } from '../../../../src/kubernetes/doctor/report-text.ts';
import {
  CURRENT,
  type Json,
  makeBare,
  makeDeployment,
  makeFacts,
  makeNetworkPolicy,
  makePod,
  makeService,
  makeTemplate,
  type Over,
  OWNER,
} from '../../../support/doctor.ts';
import { TAMPERED } from '../../../support/tampered-sidecars.ts';

const SUBJECT = { context: 'prod', namespace: 'shop' };
const sidecarOf = (pod: Json): Json => [...(pod.spec.initContainers ?? []), ...pod.spec.containers].find(isSidecar);
const isSidecar = ({ name }: Json): boolean => name === 'sidegate';

function examine(over: Over) {
  const report = diagnose(makeFacts(over));
  const web = report.workloads.find(({ name }) => name === 'web');
  return { report, state: web?.state, pods: web?.pods, codes: (web?.findings ?? []).map(({ code }) => code), web };
}

function examinePod(change: (sidecar: Json, pod: Json) => void, template = makeTemplate()) {
  const pod: Json = makePod('web-1-a', template, OWNER);
  change(sidecarOf(pod), pod);
  return examine({ ...makeDeployment(template), pods: [pod] });
}

describe('a container with the name of the sidecar and the marks of an injected pod', () => {
  test.each(TAMPERED.map(({ what, tamper, named }) => [what, tamper, named] as const))(
    'leaves its workload unprotected with %s',
    (_what, tamper, named) => {
      const { report, state, pods, codes } = examinePod(tamper);
      expect([state, pods?.protected]).toEqual(['unprotected', 0]);
      expect(codes).toContain('sidecar-differs');
      for (const text of [toText(report, SUBJECT, false), toJson(report, SUBJECT)]) {
        expect(text).toContain('is not the one that sidegate injects');
        expect(text).toContain(named);
      }
    },
  );

  test('leaves its workload unprotected with an image that the chart does not allow', () => {
    const { state, web } = examinePod((sidecar) => {
      sidecar.image = 'busybox:1';
    });
    expect(state).toBe('unprotected');
    expect(web?.findings[0]?.message).toContain('it differs in image busybox:1');
  });

  test('counts as a stale sidecar with another tag of an allowed image', () => {
    const pod: Json = makePod('web-1-a', makeTemplate(), OWNER);
    const rules = { ...CURRENT.rules, allowedImages: ['sidegate:1.1.0'] };
    const { state, codes } = examine({ pods: [pod], current: { ...CURRENT, rules } });
    expect([state, codes]).toEqual(['protected', ['image-stale']]);
    sidecarOf(pod).image = 'sidegate:5000/evil:1.1.0';
    expect(examine({ pods: [pod], current: { ...CURRENT, rules } }).state).toBe('unprotected');
  });

  test('counts as the sidecar with an older tag of its image, and with additions that the chart allows other webhooks', () => {
    const pod: Json = makePod('web-1-a', makeTemplate(), OWNER);
    sidecarOf(pod).image = 'sidegate:0.9.0';
    sidecarOf(pod).env = [{ name: 'AWS_REGION', value: 'x' }];
    const rules = { ...CURRENT.rules, allowedEnv: ['AWS_REGION'] };
    expect(examine({ pods: [pod], current: { ...CURRENT, rules } }).state).toBe('protected');
  });
});

describe('a sidecar whose ports another container could take first', () => {
  const plain = makeTemplate({ annotations: { 'sidegate.dev/sidecar': 'container' } });
  const restart = (restartCount: number | undefined) => (_sidecar: Json, pod: Json) => {
    Object.assign(pod.status.initContainerStatuses[0], { restartCount });
  };
  test.each([
    ['is a plain container', () => undefined, plain, 'it is a plain container'],
    ['restarted', restart(2), undefined, 'it restarted 2 times'],
    ['may have restarted', restart(undefined), undefined, 'it restarted an unknown number of times'],
  ])('leaves its workload injected although it responded, if it %s', (_what, change, template, race) => {
    const { state, pods, codes, web } = examinePod(change, template);
    expect([state, pods?.protected, codes]).toEqual(['injected', 0, ['gate-not-proven']]);
    expect(web?.findings[0]?.message).toContain(race);
  });
});

describe('a pod around its sidecar', () => {
  test.each([
    ['shareProcessNamespace', { shareProcessNamespace: true }],
    ['hostPID', { hostPID: true }],
    ['an ephemeral container that targets it', { ephemeralContainers: [{ name: 'debug', targetContainerName: 'sidegate' }] }],
  ])('makes its workload bypassable with %s', (_what, spec) => {
    const { state, codes } = examinePod((_sidecar, pod) => Object.assign(pod.spec, spec));
    expect([state, codes]).toEqual(['bypassed', ['processes-shared']]);
  });

  test('leaves its workload unprotected if a plain container does not restart', () => {
    const template = makeTemplate({ annotations: { 'sidegate.dev/sidecar': 'container' } });
    const { state, codes } = examinePod((_sidecar, pod) => {
      pod.spec.restartPolicy = 'Never';
    }, template);
    expect([state, codes]).toEqual(['unprotected', ['sidecar-ends']]);
  });
});

describe('a Service', () => {
  const decoy = makeTemplate({
    annotations: { 'sidegate.dev/app-container': 'decoy', 'sidegate.dev/app-port': '9999' },
    spec: {
      containers: [
        { name: 'web', image: 'web:1', ports: [{ name: 'http', containerPort: 8080 }] },
        { name: 'decoy', image: 'pause:1', ports: [{ containerPort: 9999 }] },
      ],
    },
  });

  test.each([
    ['by number', 8080],
    ['by name', 'http'],
  ])('that targets the app %s makes a workload with a decoy in its annotation bypassable', (_how, targetPort) => {
    const services = [makeService({ ports: [{ port: 80, targetPort }] })];
    const { state, web } = examine({ ...makeDeployment(decoy), pods: [makePod('a', decoy, OWNER)], services });
    expect(state).toBe('bypassed');
    expect(web?.findings.find(({ code }) => code === 'port-beside')?.message).toContain('targets port 8080 of the pod');
  });

  test('is not the only bypass with a decoy: a NetworkPolicy that admits all clients to the app is reported', () => {
    const networkPolicies = [makeNetworkPolicy([{ ports: [{ port: 8480 }, { port: 8481 }, { port: 8080 }] }])];
    const { codes, web } = examine({ ...makeDeployment(decoy), pods: [makePod('a', decoy, OWNER)], networkPolicies });
    expect(codes).toEqual(['network-policy-wide']);
    expect(web?.findings[0]?.message).toContain('port 8080 of the container web');
  });

  test('that only targets the sidecar leaves the workload protected, whatever other containers declare', () => {
    expect(examine({ ...makeDeployment(decoy), pods: [makePod('a', decoy, OWNER)] }).state).toBe('protected');
  });

  const stranger = (spec: Json = {}): Json =>
    makeBare('canary', {
      metadata: { labels: { app: 'web' } },
      spec: { containers: [{ name: 'x', image: 'x:1', ports: [{ name: 'sidegate', containerPort: 8080 }] }], ...spec },
    });
  const beside = (pod: Json, service: Json = {}): Over => ({
    pods: [makePod('web-1-a', makeTemplate(), OWNER), pod],
    services: [makeService(service)],
  });

  test.each([
    ['by the name of its port', stranger(), {}],
    ['by number', stranger({ containers: [{ name: 'x' }] }), { ports: [{ port: 80, targetPort: 8480 }] }],
    ['headless', stranger({ containers: [{ name: 'x' }] }), { clusterIP: 'None' }],
    [
      'that is being deleted',
      { ...stranger(), metadata: { ...stranger().metadata, deletionTimestamp: '2026-01-01T00:00:00Z' } },
      {},
    ],
  ])('that also selects a pod without the sidecar makes the workload bypassable: %s', (_how, pod, service) => {
    const { state, web } = examine(beside(pod, service));
    expect(state).toBe('bypassed');
    expect(web?.findings.find(({ code }) => code === 'service-shared')?.message).toBe(
      'Service web also selects canary, which has no sidecar: some of its requests are not verified',
    );
  });

  test('that also selects a pod with a forged sidecar makes the workload bypassable', () => {
    const forged: Json = makePod('canary');
    sidecarOf(forged).command = ['sleep', 'infinity'];
    expect(examine(beside(forged)).codes).toContain('service-shared');
  });

  test.each([
    ['declares no such port', stranger({ containers: [{ name: 'x' }] })],
    ['has ended', { ...stranger(), status: { phase: 'Succeeded' } }],
    ['is in another namespace', { ...stranger(), metadata: { ...stranger().metadata, namespace: 'other' } }],
    ['has other labels', { ...stranger(), metadata: { ...stranger().metadata, labels: { app: 'other' } } }],
  ])('leaves the workload protected if the pod without the sidecar %s', (_why, pod) => {
    expect(examine(beside(pod)).state).toBe('protected');
  });
});
