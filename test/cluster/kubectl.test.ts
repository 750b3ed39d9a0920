/** Commands that connect through the real kubectl, to API servers of the tests' own. */
import { type ChildProcessWithoutNullStreams, spawn, spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { stringify } from 'yaml';
import { closeAtExit } from '../../src/cli/shutdown.ts';
import { systemClock } from '../../src/core/clock.ts';
import { CONTENT, METADATA_ONLY_OBJECT, toKubePath } from '../../src/kubernetes/client/client.ts';
import { connectCluster } from '../../src/kubernetes/client/cluster.ts';
import { answerJson, startApiServer, toStatus } from '../support/api-server.ts';
import { makeAuthority } from '../support/certificates.ts';
import { toKubeconfig } from '../support/cluster/kubeconfig.ts';
import { findTool } from '../support/cluster/program.ts';
import { makeFolder, startServer, useApiServer } from '../support/fixtures.ts';
import { until } from '../support/gate.ts';
import { recordIo } from '../support/io.ts';
import { LAUNCHER } from '../support/process.ts';

const TOKEN = 'token-that-nobody-may-see';
/** Node loads it before the injector. */
const FAULT = pathToFileURL(join(import.meta.dirname, '..', 'support', 'escaping-error.ts')).href;
const VERSION = { major: '1', minor: '34' };

let folder: string;
let env: NodeJS.ProcessEnv;
/** The folder of temporary files, which must be empty at the end. */
let temporary: string;

const api = useApiServer(({ url }, response) => {
  if (url.startsWith('/version')) answerJson(response, 200, VERSION);
  else if (url.startsWith('/garbage/version')) response.writeHead(200, { 'Content-Type': 'text/html' }).end('<html>');
  else if (url.startsWith('/gateway/version')) response.writeHead(502, { 'Content-Type': 'text/plain' }).end('bad gateway');
  else if (url.startsWith('/denied/version')) answerJson(response, 403, toStatus(403, 'Forbidden', 'no'));
  else answerJson(response, 200, { metadata: {}, items: [] });
});

beforeEach(() => {
  folder = makeFolder();
  temporary = join(folder, 'tmp');
  mkdirSync(temporary);
  symlinkSync(findTool('kubectl-v1.37.1'), join(folder, 'kubectl'));
  env = { PATH: `${folder}:${process.env['PATH']}`, TMPDIR: temporary, HOME: folder };
});

/** Writes a kubeconfig whose user has `user` instead of a token. */
function writeKubeconfig(server: string, user?: object): string {
  const text = toKubeconfig({ server, ca: api.ca, token: TOKEN }, 'shop');
  const file = join(folder, 'kubeconfig');
  writeFileSync(
    file,
    user === undefined ? text : text.replace(/users:[^]*?(?=\w+:$)/m, stringify({ users: [{ name: 'user', user }] })),
  );
  return file;
}

function start(command: string, ...args: readonly string[]): ChildProcessWithoutNullStreams {
  const child = spawn(process.execPath, [LAUNCHER, command, ...args], { env });
  onTestFinished(() => void child.kill('SIGKILL'));
  return child;
}

/** `exit` does not wait for a plugin that keeps the output open. */
async function toEnd(
  child: ChildProcessWithoutNullStreams,
  event: 'close' | 'exit' = 'close',
): Promise<{ end: unknown; stdout: string; stderr: string }> {
  const printed = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const)
    child[name].setEncoding('utf8').on('data', (text: string) => {
      printed[name] += text;
    });
  const end = await new Promise((resolve) => child.once(event, (code, signal) => resolve(code ?? signal)));
  expect(printed.stdout + printed.stderr).not.toContain(TOKEN);
  return { end, ...printed };
}

/** The credentials of a user who does not log in for 5 seconds. */
const LATE = { exec: { apiVersion: 'client.authentication.k8s.io/v1', interactiveMode: 'Never', command: 'sleep', args: ['5'] } };

const doctor = (...args: readonly string[]) => toEnd(start('doctor', ...args));

/** Neither a socket nor a process. */
async function expectNothingLeft(): Promise<void> {
  expect(readdirSync(temporary)).toEqual([]);
  // It was killed, but the kernel can still be at it.
  await until(() => findKubectl().length === 0);
}

/** The processes of the test that runs. */
function findKubectl(): number[] {
  const isOwn = (name: string): boolean => {
    try {
      const line = readFileSync(`/proc/${name}/cmdline`, 'utf8');
      return line.startsWith('kubectl\0') && line.includes(folder);
    } catch {
      return false;
    }
  };
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && isOwn(name))
    .map(Number);
}

/** The socket of the kubectl that runs. */
async function findSocket(): Promise<string> {
  return until(() => {
    const [name] = readdirSync(temporary);
    const path = name === undefined ? undefined : join(temporary, name, 'api.sock');
    return path !== undefined && existsSync(path) ? path : undefined;
  });
}

test('examines the context and the namespace of the kubeconfig, and leaves nothing behind', async () => {
  const { end, stdout, stderr } = await doctor('--kubeconfig', writeKubeconfig(api.url.href));
  expect([end, stderr]).toEqual([0, '']);
  expect(stdout).toMatch(/^test, namespace shop\n/);
  expect(api.asked.every(({ headers }) => headers.authorization === `Bearer ${TOKEN}`)).toBe(true);
  await expectNothingLeft();
});

test('uses a kubeconfig of KUBECONFIG and of the home directory, also in a pod', async () => {
  Object.assign(env, { KUBERNETES_SERVICE_HOST: '192.0.2.1', KUBERNETES_SERVICE_PORT: '443' });
  env['KUBECONFIG'] = `/absent:${writeKubeconfig(api.url.href)}`;
  expect((await doctor()).end).toBe(0);
  delete env['KUBECONFIG'];
  mkdirSync(join(folder, '.kube'));
  writeFileSync(join(folder, '.kube', 'config'), readFileSync(join(folder, 'kubeconfig')));
  expect((await doctor()).end).toBe(0);
});

test.each([
  ['no kubeconfig', () => []],
  ['another context', () => ['--kubeconfig', writeKubeconfig(api.url.href), '--context', 'other']],
  [
    'a file that is not YAML',
    () => {
      writeFileSync(join(folder, 'broken'), 'a: [');
      return ['--kubeconfig', join(folder, 'broken')];
    },
  ],
])('shows why kubectl rejects %s', async (_, toArguments) => {
  const { end, stdout, stderr } = await doctor(...toArguments());
  expect([end, stdout]).toEqual([2, '']);
  expect(stderr).toMatch(/^error: .+\nsidegate: kubectl ended with the exit code 1; see its message above\n$/);
  await expectNothingLeft();
});

test.each([
  ['the kubeconfig /absent does not exist', '/elsewhere', ['--kubeconfig', '/absent']],
  ['the kubeconfig /absent does not exist', '/absent', []],
  ['none of the files in KUBECONFIG exists: /absent, /elsewhere', '/absent:/elsewhere', []],
])('says %s', async (text, files, kubeconfig) => {
  env['KUBECONFIG'] = files;
  expect(await doctor(...kubeconfig)).toEqual({ end: 2, stdout: '', stderr: `sidegate: ${text}\n` });
  await expectNothingLeft();
});

test.each([
  [
    'does not exist',
    () => 'https://127.0.0.1:1',
    /GET \/version: kubectl: dial tcp 127\.0\.0\.1:1: connect: connection refused\n$/,
  ],
  ['is not JSON', () => `${api.url.href}garbage`, /sidegate: GET \/version: the response is not JSON\n$/],
  ['is that of a load balancer', () => `${api.url.href}gateway`, /GET \/version: the response was 502, without a message/],
])('reports a server whose response %s', async (_, toServer, text) => {
  const { end, stderr } = await doctor('--kubeconfig', writeKubeconfig(toServer()));
  expect(end).toBe(2);
  expect(stderr).toMatch(text);
  await expectNothingLeft();
});

test('reports a server that does not speak TLS, and one with a certificate of another CA', async () => {
  const garbage = createServer((socket) => socket.on('error', () => undefined).end('garbage\r\n\r\n'));
  const plain = await doctor('--kubeconfig', writeKubeconfig(`https://127.0.0.1:${await startServer(garbage)}`));
  expect(plain).toMatchObject({ end: 2, stderr: expect.stringMatching(/sidegate: GET \/version: kubectl: tls: /) });
  const other = await startApiServer(() => undefined);
  onTestFinished(() => other.stop());
  const untrusted = await doctor('--kubeconfig', writeKubeconfig(other.url.href));
  expect(untrusted.stderr).toMatch(/sidegate: GET \/version: kubectl: tls: failed to verify certificate/);
  expect(other.asked).toEqual([]);
});

test('runs the credential plugin of a user, and shows its messages', async () => {
  const plugin = join(folder, 'plugin');
  const credential = { apiVersion: 'client.authentication.k8s.io/v1', kind: 'ExecCredential', status: { token: TOKEN } };
  writeFileSync(plugin, `#!/bin/sh\necho 'open this page' >&2\necho '${JSON.stringify(credential)}'\n`);
  chmodSync(plugin, 0o755);
  const exec = { apiVersion: 'client.authentication.k8s.io/v1', interactiveMode: 'IfAvailable', command: plugin };
  const { end, stderr } = await doctor('--kubeconfig', writeKubeconfig(api.url.href, { exec }));
  expect([end, stderr]).toEqual([0, 'open this page\n']);
  const missing = await doctor('--kubeconfig', writeKubeconfig(api.url.href, { exec: { ...exec, command: 'no-such-plugin' } }));
  expect(missing.end).toBe(2);
  expect(missing.stderr).toMatch(
    /sidegate: GET \/version: kubectl: getting credentials: exec: executable no-such-plugin not found\n$/,
  );
});

test('does not wait for a user without credentials if there is no terminal', async () => {
  const { end, stderr } = await doctor('--kubeconfig', writeKubeconfig(api.url.href, {}));
  expect(end).toBe(2);
  // The prompt and the error of kubectl come through two pipes.
  expect(stderr).toContain('Please enter Username: ');
  expect(stderr).toContain('sidegate: kubectl ended with the exit code 1');
});

test.each(['SIGINT', 'SIGTERM', 'SIGHUP'] as const)('ends kubectl after %s', async (signal) => {
  const child = start('doctor', '--kubeconfig', writeKubeconfig(api.url.href, LATE));
  await findSocket();
  child.kill(signal);
  expect((await toEnd(child, 'exit')).end).toBe(signal);
  await expectNothingLeft();
});

test('lets only its own user reach the socket', async () => {
  chmodSync(folder, 0o755);
  chmodSync(temporary, 0o777);
  const child = start('doctor', '--kubeconfig', writeKubeconfig(api.url.href, LATE));
  const socket = await findSocket();
  expect([statSync(join(socket, '..')).mode & 0o777, statSync(socket).mode & 0o777]).toEqual([0o700, 0o700]);
  if (process.getuid?.() === 0) {
    const nobody = { uid: 65_534, gid: 65_534 };
    expect(spawnSync('/bin/ls', [temporary], nobody).status).toBe(0);
    expect(spawnSync('/bin/ls', [socket], nobody).status).not.toBe(0);
  }
  child.kill('SIGTERM');
  await toEnd(child, 'exit');
});

test('uses a shorter path if that of the temporary folder is too long for a socket', async () => {
  env['TMPDIR'] = join(temporary, 'x'.repeat(100));
  mkdirSync(env['TMPDIR']);
  expect((await doctor('--kubeconfig', writeKubeconfig(api.url.href))).end).toBe(0);
  expect(readdirSync(env['TMPDIR'])).toEqual([]);
  await until(() => findKubectl().length === 0);
});

test('reports a folder of temporary files that does not exist', async () => {
  env['TMPDIR'] = '/absent';
  const { end, stderr } = await doctor('--kubeconfig', writeKubeconfig(api.url.href));
  expect([end, stderr]).toEqual([2, 'sidegate: cannot create a folder in /absent for the socket of kubectl (ENOENT)\n']);
});

test('passes on every method, path and header that the commands use', async () => {
  const { client, ...names } = await connect(`${api.url.href}k8s/clusters/c-1/`);
  expect(names).toEqual({ namespace: 'shop', name: 'test' });
  const metrics = toKubePath('/api/v1', 'namespaces', 'shop', 'pods', 'web-1:8481', 'proxy', 'metrics');
  const execution = toKubePath('/api/v1', 'namespaces', 'pods', 'configmaps', 'execution');
  expect(await client.readPod('shop', 'web-1:8481', 'metrics')).toContain('items');
  await client.request('POST', toKubePath('/apis/events.k8s.io/v1', 'namespaces', 'shop', 'events'), { body: { a: 1 } });
  await client.request('PATCH', execution, { body: { a: 'ü' }, contentType: CONTENT.apply, query: { fieldManager: 'sidegate' } });
  await client.list(toKubePath('/api/v1', 'secrets'), { labelSelector: 'a=b,c' }, { accept: METADATA_ONLY_OBJECT });
  const asked = api.asked.slice(-4);
  expect(asked.map(({ method, url }) => `${method} ${url}`)).toEqual([
    `GET /k8s/clusters/c-1${metrics}`,
    'POST /k8s/clusters/c-1/apis/events.k8s.io/v1/namespaces/shop/events',
    `PATCH /k8s/clusters/c-1${execution}?fieldManager=sidegate`,
    'GET /k8s/clusters/c-1/api/v1/secrets?labelSelector=a%3Db%2Cc&limit=500',
  ]);
  expect(asked[2]).toMatchObject({ body: '{"a":"ü"}', headers: { 'content-type': CONTENT.apply } });
  expect(asked[3]?.headers).toMatchObject({ accept: METADATA_ONLY_OBJECT, authorization: `Bearer ${TOKEN}`, host: api.url.host });
});

test('reports that kubectl ended meanwhile', async () => {
  const { client } = await connect(api.url.href);
  for (const pid of findKubectl()) process.kill(pid, 'SIGKILL');
  await until(() => findKubectl().length === 0);
  await expect(client.request('GET', toKubePath('/x'))).rejects.toThrow(/^kubectl: /);
});

test('an unhandled exception drains the injector, which ends kubectl and exits 1', async () => {
  const pair = makeAuthority(folder, 'root').issue('server', 'DNS:injector.gate.svc');
  mkdirSync(join(folder, 'tls'));
  writeFileSync(join(folder, 'tls', 'tls.crt'), readFileSync(pair.cert));
  writeFileSync(join(folder, 'tls', 'tls.key'), readFileSync(pair.key));
  const server = {
    address: '127.0.0.1:0',
    adminAddress: '127.0.0.1:0',
    shutdown: { grace: '0ms', drain: '2s' },
    certificate: { directory: join(folder, 'tls') },
  };
  writeFileSync(join(folder, 'injector.yaml'), stringify({ sidecar: { image: 'registry.example/sidegate:1' }, server }));
  env['NODE_OPTIONS'] = `--import=${FAULT}`;
  const child = start('inject-server', '--config', join(folder, 'injector.yaml'), '--kubeconfig', writeKubeconfig(api.url.href));
  let text = '';
  child.stdout.on('data', (chunk: Buffer) => {
    text += chunk;
  });
  const ended = toEnd(child);
  await until(() => text.includes('"listening"'));
  expect(findKubectl()).toHaveLength(1);
  child.kill('SIGUSR2');
  const { end, stdout } = await ended;
  expect(end).toBe(1);
  expect(stdout).toContain('"escaped_error"');
  expect(stdout).toContain('"stopped"');
  await expectNothingLeft();
});

/** In this process, where the folder of temporary files is that of the test run. */
async function connect(server: string): ReturnType<typeof connectCluster> {
  const { io } = recordIo({ env });
  const cluster = await connectCluster({ kubeconfig: writeKubeconfig(server), clock: systemClock, io, closeAtExit });
  onTestFinished(() => cluster.client.close());
  return cluster;
}
