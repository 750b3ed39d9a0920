import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { pick, type Rendered, renderChart } from '../support/chart.ts';
import { makeFolder } from '../support/fixtures.ts';
import { findFreePort } from '../support/free-port.ts';
import { LAUNCHER } from '../support/process.ts';
import { run } from '../support/run.ts';

interface Container {
  readonly name: string;
  readonly args: readonly string[];
  readonly restartPolicy?: string;
}

interface Pod {
  readonly spec: { readonly initContainers: readonly Container[]; readonly containers: readonly Container[] };
}

const isOfTest = ({ metadata }: Rendered): boolean => metadata.name === 'sidegate-self-test';

test('the pod of helm test is injected, and passes when its command lines run as processes', async () => {
  const objects = (await renderChart({}, { tests: true })).filter(isOfTest);
  const [pod, config, secret] = [pick(objects, 'Pod'), pick(objects, 'ConfigMap'), pick(objects, 'Secret')];
  const folder = makeFolder();
  const write = (directory: string, files: unknown): void => {
    mkdirSync(join(folder, directory), { recursive: true });
    for (const [name, text] of Object.entries(files as Record<string, string>))
      writeFileSync(join(folder, directory, name), text);
  };
  write('config', config['data']);
  const data = Object.entries(secret['data'] as Record<string, string>);
  const secrets = Object.fromEntries(data.map(([key, text]) => [key, Buffer.from(text, 'base64').toString()]));
  write(`secrets/${secret.metadata.name}`, secrets);
  write('self-test', secrets);
  write('.', { 'pod.yaml': stringify(pod) });

  const injected = await run(process.execPath, [LAUNCHER, 'inject', '-f', join(folder, 'pod.yaml'), '--kube-version', '1.36']);
  expect(injected.code, injected.stderr).toBe(0);
  const { initContainers, containers } = (parse(injected.stdout) as Pod).spec;
  expect(initContainers.map(({ name, restartPolicy }) => [name, restartPolicy])).toEqual([['sidegate', 'Always']]);

  // The pod's ports and paths, as this machine has them.
  const ports = new Map<string, number>();
  for (const port of ['8480', '8481', '8080']) ports.set(port, await findFreePort());
  const toHere = (arg: string): string =>
    arg.replace('/etc/sidegate', folder).replace(/\b(?:8480|8481|8080)\b/, (port) => String(ports.get(port)));
  const gate: ChildProcess = spawn(process.execPath, [LAUNCHER, ...(initContainers[0]?.args ?? []).map(toHere)], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  onTestFinished(() => void gate.kill('SIGKILL'));
  const ended = await run(process.execPath, [LAUNCHER, ...(containers[0]?.args ?? []).map(toHere)]);
  expect(ended.stdout + ended.stderr).toContain('all 4 as expected');
  expect(ended.code).toBe(0);
  const exited = new Promise((resolve) => gate.once('exit', resolve));
  gate.kill('SIGTERM');
  expect(await exited).toBe(0);
});

test('no test is rendered if a sidecar would outlive it, or if it is disabled', async () => {
  const old = { admission: { protect: false, enforce: false, failurePolicy: 'Fail' } } as const;
  const objects = await renderChart(old, { kubeVersion: '1.28.0', tests: true });
  pick(objects, 'Deployment', 'sidegate-injector');
  expect(objects.filter(isOfTest)).toEqual([]);
  expect((await renderChart({ selfTest: { enabled: false } }, { tests: true })).filter(isOfTest)).toEqual([]);
});

test('no test is rendered where pods may get no sidecar, unless the values name a namespace', async () => {
  const isOfTestOrJob = ({ metadata: { name } }: Rendered): boolean => ['sidegate-self-test', 'sidegate-ready'].includes(name);
  const admission = { namespaceSelector: { matchLabels: { team: 'a' } } };
  expect((await renderChart({ admission }, { tests: true })).filter(isOfTestOrJob)).toEqual([]);
  const ofTest = (await renderChart({ admission, selfTest: { namespace: 'team-a' } }, { tests: true })).filter(isOfTestOrJob);
  expect(ofTest.map(({ kind }) => kind).sort()).toEqual(['ConfigMap', 'Job', 'Pod', 'Secret']);
  expect(new Set(ofTest.map(({ metadata }) => metadata.namespace))).toEqual(new Set(['team-a']));
});
