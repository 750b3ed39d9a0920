import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { closeAtExit } from '../../../../src/cli/shutdown.ts';
import { systemClock } from '../../../../src/core/clock.ts';
import { connectCluster } from '../../../../src/kubernetes/client/cluster.ts';
import { FakeClock, settle } from '../../../support/fake-clock.ts';
import { makeFolder } from '../../../support/fixtures.ts';
import { recordIo } from '../../../support/io.ts';

// The tests of test/cluster run the real kubectl; these have none.

let folder: string;
beforeEach(() => {
  folder = makeFolder();
});

const connect = (options: { kubeconfig?: string; context?: string }, env = {}, clock = systemClock) =>
  connectCluster({ ...options, clock, io: recordIo({ env: { PATH: folder, HOME: folder, ...env } }).io, closeAtExit });

function writeProgram(text: string, mode = 0o755): void {
  writeFileSync(join(folder, 'kubectl'), `#!/bin/sh\n${text}\n`, { mode });
}

test('says what to do without kubectl', async () => {
  await expect(connect({})).rejects.toThrow(
    'kubectl is not in PATH: install kubectl, or run this command in the cluster, in a pod with a service account',
  );
  writeProgram('', 0o644);
  await expect(connect({})).rejects.toThrow(/^kubectl cannot be started \(EACCES\): install kubectl, or/);
});

test('uses the service account in a pod, unless a kubeconfig is chosen', async () => {
  const pod = { KUBERNETES_SERVICE_HOST: '192.0.2.1', KUBERNETES_SERVICE_PORT: '443/x' };
  await expect(connect({}, pod)).rejects.toThrow(/do not form a valid address/);
  await expect(connect({}, { ...pod, KUBECONFIG: '', HOME: undefined })).rejects.toThrow(/do not form a valid address/);
  const kubectl = /kubectl is not in PATH/;
  const kubeconfig = join(folder, 'a');
  writeFileSync(kubeconfig, '');
  await expect(connect({ kubeconfig }, pod)).rejects.toThrow(kubectl);
  await expect(connect({ context: 'a' }, pod)).rejects.toThrow(kubectl);
  await expect(connect({}, { ...pod, KUBECONFIG: `missing:${kubeconfig}` })).rejects.toThrow(kubectl);
  mkdirSync(join(folder, '.kube'));
  writeFileSync(join(folder, '.kube', 'config'), '');
  await expect(connect({}, pod)).rejects.toThrow(kubectl);
});

test('names a kubeconfig that does not exist', async () => {
  const [missing, other] = [join(folder, 'missing'), join(folder, 'other')];
  await expect(connect({ kubeconfig: missing })).rejects.toThrow(`the kubeconfig ${missing} does not exist`);
  await expect(connect({}, { KUBECONFIG: `${missing}:${other}` })).rejects.toThrow(
    `none of the files in KUBECONFIG exists: ${missing}, ${other}`,
  );
});

test('ends a kubectl that does not respond', async () => {
  writeProgram('exec /bin/sleep 100');
  const clock = new FakeClock();
  const failure = expect(connect({}, {}, clock)).rejects.toThrow('kubectl did not respond within 30 s');
  while (clock.timers === 0) await settle();
  await clock.advance(30_000);
  await failure;
});

test('ends a kubectl that never serves, shows its question, and reports how it ended', async () => {
  writeProgram('[ "$1" = config ] && echo shop && echo name && exit 0; echo "Username:"; exec /bin/sleep 100');
  const { io, stderr } = recordIo({ env: { PATH: folder } });
  const clock = new FakeClock();
  const failure = expect(connectCluster({ clock, io, closeAtExit })).rejects.toThrow('kubectl did not respond within 120 s');
  while (!stderr().includes('Username:')) await settle();
  await clock.advance(120_000);
  await failure;
  writeProgram('[ "$1" = config ] && exit 0; kill -9 $$');
  await expect(connect({})).rejects.toThrow('kubectl ended with SIGKILL; see its message above');
});
