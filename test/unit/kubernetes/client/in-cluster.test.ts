import { unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../../../src/core/clock.ts';
import { KubeClient, toKubePath } from '../../../../src/kubernetes/client/client.ts';
import { readInCluster } from '../../../../src/kubernetes/client/cluster.ts';
import { answerJson, startApiServer } from '../../../support/api-server.ts';
import { makeFolder } from '../../../support/fixtures.ts';

let folder: string;
const write = (name: string, text: string): void => writeFileSync(join(folder, name), text);

beforeEach(() => {
  folder = makeFolder();
  write('namespace', 'shop');
  write('token', 'first\n');
  write('ca.crt', 'none');
});

const ENV = { KUBERNETES_SERVICE_HOST: '10.96.0.1', KUBERNETES_SERVICE_PORT: '443' };

test.each([
  ['10.96.0.1', '443', 'https://10.96.0.1/'],
  ['fd00:10:96::1', '6443', 'https://[fd00:10:96::1]:6443/'],
  ['kubernetes.default.svc', '443', 'https://kubernetes.default.svc/'],
])('reaches %s port %s at %s', async (host, port, url) => {
  const entry = await readInCluster({ KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port }, folder);
  expect([entry?.access.server.href, entry?.namespace, entry?.name]).toEqual([url, 'shop', 'in-cluster']);
});

test('finds no cluster without the variables that every pod has', async () => {
  expect(await readInCluster({}, folder)).toBeUndefined();
  expect(await readInCluster({ ...ENV, KUBERNETES_SERVICE_HOST: '' }, folder)).toBeUndefined();
});

test('reads the token and the CA before each request, because the kubelet replaces them', async () => {
  const server = await startApiServer((_, response) => answerJson(response, 200, {}));
  const env = { KUBERNETES_SERVICE_HOST: '127.0.0.1', KUBERNETES_SERVICE_PORT: server.url.port };
  const entry = await readInCluster(env, folder);
  if (entry === undefined) throw new Error('no cluster');
  const client = new KubeClient(entry.access, systemClock);
  await expect(client.request('GET', toKubePath('/x'))).rejects.toThrow('127.0.0.1');
  write('ca.crt', server.ca);
  await client.request('GET', toKubePath('/x'));
  write('token', 'second');
  await client.request('GET', toKubePath('/x'));
  client.close();
  await server.stop();
  expect(server.asked.map(({ headers }) => headers.authorization)).toEqual(['Bearer first', 'Bearer second']);
});

test('reports which file is missing or empty, and what the pod needs', async () => {
  const entry = await readInCluster(ENV, folder);
  unlinkSync(join(folder, 'token'));
  await expect(entry?.access.token()).rejects.toThrow(/token does not exist.*automountServiceAccountToken/);
  write('token', '\n');
  await expect(entry?.access.token()).rejects.toThrow(/token is empty/);
  unlinkSync(join(folder, 'ca.crt'));
  await expect(readInCluster(ENV, folder)).rejects.toThrow(/ca\.crt does not exist/);
});

test('reports variables that are not a valid address', async () => {
  for (const wrong of [
    { KUBERNETES_SERVICE_PORT: '443/x' },
    { KUBERNETES_SERVICE_PORT: '99999' },
    { KUBERNETES_SERVICE_HOST: 'a b' },
  ])
    await expect(readInCluster({ ...ENV, ...wrong }, folder)).rejects.toThrow(/do not form a valid address/);
});

test('uses the namespace default if none is mounted', async () => {
  unlinkSync(join(folder, 'namespace'));
  expect((await readInCluster(ENV, folder))?.namespace).toBe('default');
});
