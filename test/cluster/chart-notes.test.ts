import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import type { ChartInput } from '../../chart/values.ts';
import { CHART, pick, renderChart } from '../support/chart.ts';
import { useFolder } from '../support/fixtures.ts';

const chart = join(useFolder(), 'sidegate');

// `helm template` leaves the notes out, and `helm install` knows one version of Kubernetes: they become an object of a copy.
beforeAll(() => {
  cpSync(CHART, chart, { recursive: true });
  const notes = readFileSync(join(CHART, 'templates', 'NOTES.txt'), 'utf8');
  const object = 'kind: Notes\nmetadata: { name: notes }\ntext: {{ include "notes" . | toJson }}\n';
  writeFileSync(join(chart, 'templates', 'notes.yaml'), `{{ define "notes" }}${notes}{{ end }}\n${object}`);
});

async function renderNotes(kubeVersion: string, sidecar: ChartInput['sidecar'] = {}): Promise<string> {
  return renderAll({ sidecar }, kubeVersion);
}

async function renderAll(values: ChartInput, kubeVersion = '1.36.3'): Promise<string> {
  return String(pick(await renderChart(values, { chart, kubeVersion }), 'Notes')['text']);
}

test('point a Service to the sidecar by port name if that works, else by port number', async () => {
  expect(await renderNotes('1.33.0')).toContain('targetPort: sidegate\n');
  expect(await renderNotes('1.33.0')).toMatch(
    /4\. Wait until the rollout of your app is complete[^]*rollout status[^]*Then set the targetPort/,
  );
  expect(await renderNotes('1.33.0')).toContain('so that a pod without the sidecar gets no traffic');
  expect(await renderNotes('1.32.9')).toContain('targetPort: 8480\n');
  expect(await renderNotes('1.32.9')).not.toContain('gets no traffic');
  expect(await renderNotes('1.32.9', { port: 9480 })).toContain('targetPort: 9480\n');
  expect(await renderNotes('1.32.9', { mode: 'container' })).toContain('targetPort: sidegate\n');
});

test.each([
  ['rename', 'the sidecar takes the port name'],
  ['same-port', 'have your app listen on 127.0.0.1'],
  ['same-port:BIND', 'as its variable BIND says'],
  ['env', 'as its variable PORT says'],
  ['env:WEB_PORT', 'as its variable WEB_PORT says'],
])('say what is left to do with interception %s', async (interception, sentence) => {
  const notes = await renderNotes('1.36.3', { interception });
  expect(notes).toContain('\n4. Leave your app');
  expect(notes).toContain(sentence);
  expect(notes).not.toContain('targetPort');
});

test('name the Deployment of the sending side, and what to do after a change of a config that is not part of the release', async () => {
  const config = { provider: { queue: { postgres: { url: { env: 'QUEUE_URL' } } } } };
  const notes = await renderAll({ deliver: { enabled: true, config } });
  expect(notes).toContain('kubectl -n sidegate-system rollout status deployment/sidegate-deliver');
  expect(notes).not.toMatch(/rollout restart|only one pod/);
  const other = await renderAll({ deliver: { enabled: true, existingSecret: 'gate', namespace: 'shop', replicas: 1 } });
  expect(other).toContain('kubectl -n shop rollout restart deployment/sidegate-deliver');
  expect(other).toContain('NOTE: there is only one pod that delivers.');
  expect(await renderAll({})).not.toContain('deliver');
});

test('say that a chart from a checkout has an image that may not be published', async () => {
  const note = 'NOTE: this chart is from a checkout';
  expect(await renderAll({})).toContain(note);
  expect(await renderAll({ image: { repository: 'registry.example/sidegate' } })).not.toContain(note);
});

test('warn of nothing where nothing is switched off', async () => {
  expect(await renderAll({})).not.toContain('WARNING');
});

test.each<[string, ChartInput['admission']]>([
  ['WARNING: admission.protect=false.', { protect: false, failurePolicy: 'Fail' }],
  ['WARNING: admission.protectActions does not deny', { protectActions: ['Audit'] }],
  ['WARNING: admission.enforce=false.', { enforce: false }],
  ['WARNING: admission.enforceActions does not deny', { enforceActions: ['Audit'] }],
  ['WARNING: admission.allowedImages has "*"', { allowedImages: ['*'] }],
  ['WARNING: admission.insecureAllowOtherSidecars=true.', { insecureAllowOtherSidecars: true }],
  ['NOTE: admission.failurePolicy=Fail.', { failurePolicy: 'Fail' }],
  ['labeled pods are denied there', { namespaceSelector: { matchLabels: { team: 'a' } } }],
  ['NOTE: there is no self-test', { namespaceSelector: { matchLabels: { team: 'a' } } }],
  [
    'in other namespaces labeled pods start without their sidecar',
    { namespaceSelector: { matchLabels: { team: 'a' } }, protect: false, failurePolicy: 'Fail' },
  ],
])('warn about a setting that disables protection: %s', async (sentence, admission) => {
  expect(await renderAll({ admission })).toContain(sentence);
});
