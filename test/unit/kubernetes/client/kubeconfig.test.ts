import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { beforeEach, describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { systemClock } from '../../../../src/core/clock.ts';
import { SidegateError } from '../../../../src/core/errors.ts';
import { KubeClient } from '../../../../src/kubernetes/client/client.ts';
import { findCluster } from '../../../../src/kubernetes/client/kubeconfig.ts';
import type { KubeconfigOptions } from '../../../../src/kubernetes/client/kubeconfig-schema.ts';
import { answerJson, toStatus } from '../../../support/api-server.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { makeFolder, useApiServer } from '../../../support/fixtures.ts';

const SECRET = 'c2VjcmV0LXRoYXQtbm9ib2R5LW1heS1zZWU';
const server = useApiServer(({ headers }, response) => {
  if (headers.authorization === 'Bearer refused') answerJson(response, 401, toStatus(401, 'Unauthorized', 'Unauthorized'));
  else answerJson(response, 200, {});
});
let folder: string;
let told: string[];

beforeEach(() => {
  folder = makeFolder();
  told = [];
});

type Fields = Record<string, unknown>;
const toBase64 = (text: string): string => Buffer.from(text).toString('base64');

function write(name: string, text: string | object): string {
  const file = join(folder, name);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, typeof text === 'string' ? text : stringify(text));
  return file;
}

/** A kubeconfig with one of each, all called `name`. */
function toConfig(
  user: Fields,
  { cluster = {}, context = {}, name = 'one' }: { cluster?: Fields; context?: Fields; name?: string } = {},
) {
  const authority = 'insecure-skip-tls-verify' in cluster ? {} : { 'certificate-authority-data': toBase64(server.ca) };
  return {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': name,
    clusters: [{ name, cluster: { server: server.url.href, ...authority, ...cluster } }],
    users: [{ name, user }],
    contexts: [{ name, context: { cluster: name, user: name, ...context } }],
  };
}

const find = (options: Partial<KubeconfigOptions>) =>
  findCluster({ env: {}, clock: systemClock, onMessage: (text) => void told.push(text), ...options });

/** Finds the cluster and asks it something; what it saw of us. */
async function ask(options: Partial<KubeconfigOptions>, times = 1) {
  const { access } = await find(options);
  const client = new KubeClient(access, systemClock);
  try {
    for (let i = 0; i < times; i++) await client.request('GET', '/x');
  } finally {
    client.close();
  }
  return server.asked.at(-1);
}

async function troubleOf(promise: Promise<unknown>): Promise<string> {
  const thrown = await promise.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (!(thrown instanceof Error)) throw new Error('nothing was thrown');
  expect(thrown.message).not.toContain(SECRET);
  return thrown.message;
}

describe('which files', () => {
  test('prefers the given file to all others', async () => {
    const env = { KUBECONFIG: write('b', toConfig({ token: 'b' })), HOME: folder };
    expect((await ask({ file: write('a', toConfig({ token: 'a' })), env }))?.headers.authorization).toBe('Bearer a');
    expect((await ask({ env }))?.headers.authorization).toBe('Bearer b');
  });

  test('uses ~/.kube/config if no other is named', async () => {
    write('.kube/config', toConfig({ token: 'home' }, { context: { namespace: 'shop' } }));
    expect((await ask({ env: { HOME: folder } }))?.headers.authorization).toBe('Bearer home');
    expect(await find({ env: { HOME: folder } })).toMatchObject({ namespace: 'shop', name: 'one' });
  });

  test('merges the files of KUBECONFIG: the first definition wins, and missing files are skipped', async () => {
    const first = write('first', {
      'current-context': 'two',
      users: [{ name: 'two', user: { token: 'by-first' } }],
      clusters: null,
    });
    const second = write('second', toConfig({ token: 'by-second' }, { name: 'two' }));
    const KUBECONFIG = `${join(folder, 'absent')}::${first}:${second}:${write('third', toConfig({ token: 'one' }))}`;
    expect((await ask({ env: { KUBECONFIG } }))?.headers.authorization).toBe('Bearer by-first');
    expect((await ask({ env: { KUBECONFIG }, context: 'one' }))?.headers.authorization).toBe('Bearer one');
  });

  test('falls back to the cluster that it runs in', async () => {
    const env = { KUBERNETES_SERVICE_HOST: '10.0.0.1', KUBERNETES_SERVICE_PORT: '443' };
    expect(await troubleOf(find({ env }))).toMatch(/serviceaccount.* does not exist/);
    expect(await troubleOf(find({ env, context: 'one' }))).toMatch(/^kubeconfig: no kubeconfig found.*: pass --kubeconfig FILE$/);
  });

  test.each([
    ['absent', () => find({ file: join(folder, 'absent') }), /absent: error the file does not exist/],
    [
      'none at all',
      () => find({ env: { HOME: folder } }),
      /no kubeconfig found \(.*\.kube\/config\): pass --kubeconfig FILE; in a pod, sidegate uses KUBERNETES_SERVICE_HOST, .*automountServiceAccountToken/,
    ],
    ['no YAML', () => find({ file: write('x', `users: [{ token: ${SECRET}`) }), /x:\d+:\d+: error/],
    [
      'another type',
      () => find({ file: write('x', { users: [{ name: 'a', user: { token: [SECRET] } }] }) }),
      /x:\d+:\d+: error users\.0\.user\.token: .*expected string/,
    ],
    ['unknown context', () => find({ file: write('x', toConfig({})), context: 'onee' }), /no context onee; did you mean one\?/],
    [
      'no context',
      () => find({ file: write('x', { ...toConfig({}), 'current-context': '' }) }),
      /no current-context: pass --context; available: one/,
    ],
    [
      'unknown cluster',
      () => find({ file: write('x', toConfig({}, { context: { cluster: 'production' } })) }),
      /no cluster of the context one, production; available: one/,
    ],
    [
      'unknown user',
      () => find({ file: write('x', toConfig({}, { context: { user: 'operator' } })) }),
      /no user of the context one, operator/,
    ],
  ])('reports what is wrong with a file: %s', async (_, start, text) => {
    expect(await troubleOf(start())).toMatch(text);
  });
});

describe('the cluster', () => {
  test('can have its CA in a file beside the kubeconfig', async () => {
    write('sub/ca.crt', server.ca);
    const cluster = { 'certificate-authority': 'ca.crt', 'certificate-authority-data': undefined };
    expect(await ask({ file: write('sub/config', toConfig({ token: 'a' }, { cluster })) })).toBeDefined();
  });

  test('is trusted without verification if the kubeconfig says so', async () => {
    const cluster = { 'insecure-skip-tls-verify': true };
    expect(await ask({ file: write('config', toConfig({ token: 'a' }, { cluster })) })).toBeDefined();
  });

  test('can have another name in its certificate', async () => {
    const config = (name: string) => write('config', toConfig({}, { cluster: { 'tls-server-name': name } }));
    expect(await ask({ file: config('localhost') })).toBeDefined();
    expect(await troubleOf(ask({ file: config('elsewhere') }))).toMatch(/its certificate is for other names/);
  });

  test.each([
    ['no server', { server: undefined }, /server must be a URL/],
    ['plain http afar', { server: 'http://203.0.113.1:8080' }, /uses http \(203\.0\.113\.1:8080\)/],
    [
      'both a CA and no verification',
      { 'insecure-skip-tls-verify': true, 'certificate-authority-data': 'eA==' },
      /remove one of them/,
    ],
    [
      'a missing CA',
      { 'certificate-authority-data': undefined, 'certificate-authority': 'none.crt' },
      /certificate-authority .*none\.crt does not exist/,
    ],
    [
      'a SOCKS proxy',
      { 'proxy-url': `socks5://user:${SECRET}@127.0.0.1:1080` },
      /proxy-url has the scheme socks5, which is not supported/,
    ],
    ['a proxy that is no URL', { 'proxy-url': `:${SECRET}` }, /proxy-url must be a URL/],
  ])('is rejected with %s', async (_, cluster, text) => {
    expect(await troubleOf(find({ file: write('config', toConfig({}, { cluster })) }))).toMatch(text);
  });

  test('is reached through the proxy of the environment, except on loopback', async () => {
    const afar = { server: 'https://203.0.113.1:6443' };
    const env = { HTTPS_PROXY: 'http://127.0.0.1:3128', no_proxy: '.internal' };
    const file = write('config', toConfig({}, { cluster: afar }));
    expect((await find({ file, env })).access.proxyEnv).toEqual({ HTTPS_PROXY: 'http://127.0.0.1:3128/', NO_PROXY: '.internal' });
    expect((await find({ file: write('config', toConfig({})), env })).access.proxyEnv).toBeUndefined();
  });
});

describe('the user', () => {
  test('has a token, or none', async () => {
    expect((await ask({ file: write('config', toConfig({ token: 'abc\n' })) }))?.headers.authorization).toBe('Bearer abc');
    expect((await ask({ file: write('config', toConfig({})) }))?.headers.authorization).toBeUndefined();
    const anonymous = toConfig({}, { context: { user: undefined } });
    expect((await ask({ file: write('config', anonymous) }))?.headers.authorization).toBeUndefined();
  });

  test('can have a token in a file, which has precedence and is read each time', async () => {
    const file = write('config', toConfig({ tokenFile: 'token', token: 'stale' }));
    write('token', 'from-file\n');
    const client = new KubeClient((await find({ file })).access, systemClock);
    await client.request('GET', '/x');
    write('token', 'renewed\n');
    await client.request('GET', '/x');
    client.close();
    expect(server.asked.map(({ headers }) => headers.authorization)).toEqual(['Bearer from-file', 'Bearer renewed']);
  });

  test('has a client certificate, as data or in files', async () => {
    const { cert, key } = server.authority.issue('alice', 'DNS:alice');
    const inFiles = { 'client-certificate': cert, 'client-key': key };
    expect((await ask({ file: write('a', toConfig(inFiles)) }))?.clientName).toBe('alice');
    const inside = {
      'client-certificate-data': readFileSync(cert, 'base64'),
      'client-key-data': readFileSync(key, 'base64'),
    };
    expect((await ask({ file: write('b', toConfig({ ...inside, 'client-key': 'absent' })) }))?.clientName).toBe('alice');
  });

  test('can impersonate another user', async () => {
    const user = {
      token: 'a',
      as: 'bob',
      'as-uid': '7',
      'as-groups': ['x', 'y'],
      'as-user-extra': { 'example.com/team': ['red'] },
    };
    expect((await ask({ file: write('config', toConfig(user)) }))?.headers).toMatchObject({
      'impersonate-user': 'bob',
      'impersonate-uid': '7',
      'impersonate-group': 'x, y',
      'impersonate-extra-example.com%2fteam': 'red',
    });
  });

  test.each([
    ['a password', { username: 'admin', password: SECRET }, /name and password, which API servers have not accepted since 1\.19/],
    [
      'an auth-provider',
      { 'auth-provider': { name: 'gcp', config: { 'access-token': SECRET } } },
      /auth-provider gcp, which is not supported.*gke-gcloud-auth-plugin/,
    ],
    ['a key without certificate', { 'client-key-data': SECRET }, /has a client-key but no client-certificate/],
    ['a missing token file', { tokenFile: 'absent' }, /tokenFile .*absent does not exist/],
    [
      'an old plugin',
      { exec: { command: 'x', apiVersion: 'client.authentication.k8s.io/v1alpha1' } },
      /plugin x uses .*v1alpha1, which kubectl removed in 1\.24/,
    ],
    [
      'a plugin that wants a terminal',
      { exec: { command: 'x', apiVersion: 'client.authentication.k8s.io/v1', interactiveMode: 'Always' } },
      /plugin x requires a terminal/,
    ],
  ])('is rejected with %s', async (_, user, text) => {
    expect(await troubleOf(ask({ file: write('config', toConfig(user)) }))).toMatch(text);
  });
});

describe('a credential plugin', () => {
  const V1 = 'client.authentication.k8s.io/v1';
  const toCredential = (status: Fields, apiVersion = V1): string =>
    JSON.stringify({ apiVersion, kind: 'ExecCredential', status });

  /** A shell script in the place of aws, gke-gcloud-auth-plugin and kubelogin. */
  function plugin(script: string, fields: Fields = {}): string {
    chmodSync(write('plugin', `#!/bin/sh\necho run >> ${join(folder, 'runs')}\n${script}\n`), 0o755);
    const exec = { command: './plugin', apiVersion: V1, interactiveMode: 'IfAvailable', ...fields };
    return write(
      'config',
      toConfig(
        { exec },
        { cluster: { extensions: [{ name: 'client.authentication.k8s.io/exec', extension: { audience: 'x' } }] } },
      ),
    );
  }
  const runs = (): number => readFileSync(join(folder, 'runs'), 'utf8').split('\n').length - 1;

  test.each([V1, 'client.authentication.k8s.io/v1beta1'])(
    'provides a token through %s, and runs once while it is valid',
    async (apiVersion) => {
      const file = plugin(`echo '${toCredential({ token: 'by-plugin' }, apiVersion)}'`, { apiVersion });
      expect((await ask({ file }, 3))?.headers.authorization).toBe('Bearer by-plugin');
      expect(runs()).toBe(1);
    },
  );

  test('provides a client certificate', async () => {
    const { cert, key } = server.authority.issue('carol', 'DNS:carol');
    const status = { clientCertificateData: readFileSync(cert, 'utf8'), clientKeyData: readFileSync(key, 'utf8') };
    write('answer', toCredential(status));
    expect((await ask({ file: plugin(`cat ${join(folder, 'answer')}`) }))?.clientName).toBe('carol');
  });

  test('runs again when its token has expired', async () => {
    const clock = new FakeClock(Date.parse('2026-01-01T00:00:00Z'));
    const file = plugin(`echo '${toCredential({ token: 't', expirationTimestamp: '2026-01-01T00:10:00Z' })}'`);
    const { access } = await find({ file, clock });
    await Promise.all([access.credentials(), access.credentials()]);
    await clock.advance(599_000);
    await access.credentials();
    expect(runs()).toBe(1);
    await clock.advance(1_000);
    expect(await access.credentials()).toEqual({ token: 't' });
    expect(runs()).toBe(2);
  });

  test('runs again when its token is rejected', async () => {
    const file = plugin(
      `[ $(wc -l < ${join(folder, 'runs')}) = 1 ] && t=refused || t=good\necho '${toCredential({ token: 'T' })}' | sed s/T\\"/$t\\"/`,
    );
    expect((await ask({ file }))?.headers.authorization).toBe('Bearer good');
    expect(runs()).toBe(2);
  });

  test('gets its arguments, the environment and the exec info', async () => {
    const file = plugin(
      `echo "$1|$FROM_KUBECONFIG|$FROM_SHELL|$PATH" > ${join(folder, 'seen')}\nprintf %s "$KUBERNETES_EXEC_INFO" > ${join(folder, 'info')}\necho '${toCredential({ token: 't' })}'`,
      { args: ['get-token'], env: [{ name: 'FROM_KUBECONFIG', value: '1' }], provideClusterInfo: true },
    );
    await ask({ file, env: { FROM_SHELL: '2', PATH: '/usr/bin:/bin' } });
    expect(readFileSync(join(folder, 'seen'), 'utf8')).toBe('get-token|1|2|/usr/bin:/bin\n');
    expect(JSON.parse(readFileSync(join(folder, 'info'), 'utf8'))).toEqual({
      apiVersion: V1,
      kind: 'ExecCredential',
      spec: {
        interactive: false,
        cluster: { server: server.url.href, 'certificate-authority-data': toBase64(server.ca), config: { audience: 'x' } },
      },
    });
  });

  test('gets no cluster information unless it requests it', async () => {
    await ask({
      file: plugin(`printf %s "$KUBERNETES_EXEC_INFO" > ${join(folder, 'info')}\necho '${toCredential({ token: 't' })}'`),
    });
    expect(JSON.parse(readFileSync(join(folder, 'info'), 'utf8'))).toEqual({
      apiVersion: V1,
      kind: 'ExecCredential',
      spec: { interactive: false },
    });
  });

  test('has its messages passed on, and its exit reported', async () => {
    expect(await troubleOf(ask({ file: plugin('echo "log in first" >&2; exit 3') }))).toMatch(
      /^the credential plugin \.\/plugin ended with exit code 3$/,
    );
    expect(told.join('')).toBe('log in first\n');
  });

  test.each([
    ['no JSON', `echo ${SECRET}`, /printed no valid ExecCredential \(invalid: the whole output\)/],
    ['no token', `echo '${toCredential({})}'`, /returned neither a token nor a certificate/],
    ['half a pair', `echo '${toCredential({ clientKeyData: SECRET })}'`, /a key without a certificate/],
    ['a number for a token', `echo '${toCredential({ token: 1 })}'`, /\(invalid: status\.token\)/],
    [
      'another version',
      `echo '${toCredential({ token: SECRET }, 'client.authentication.k8s.io/v1beta1')}'`,
      /printed another apiVersion/,
    ],
    ['no time', `echo '${toCredential({ token: SECRET, expirationTimestamp: 'soon' })}'`, /invalid expirationTimestamp/],
    ['too much', 'head -c 1100000 /dev/zero', /printed more than 1048576 bytes/],
    ['a signal', 'kill -9 $$', /ended with SIGKILL/],
  ])('is rejected for %s, without showing its output', async (_, script, text) => {
    expect(await troubleOf(ask({ file: plugin(script) }))).toMatch(text);
  });

  test('is ended with all its child processes if it produces nothing', async () => {
    const clock = new FakeClock();
    const file = plugin(`echo $$ > ${join(folder, 'pid')}; exec sleep 600`);
    const { access } = await find({ file, clock });
    const trouble = troubleOf(access.credentials());
    let pid = '';
    while (pid === '') pid = await new Promise((done) => setImmediate(() => done(readIfThere(join(folder, 'pid')))));
    await clock.advance(60_000);
    expect(await trouble).toMatch(/did not finish within 60 s/);
    while (isAlive(Number(pid))) await new Promise((done) => setImmediate(done));
  });

  test('is named if it is not installed, with its install hint', async () => {
    const config = (fields: Fields) => ({
      file: write('config', toConfig({ exec: { command: 'no-such-plugin', apiVersion: V1, ...fields } })),
    });
    expect(await troubleOf(ask(config({})))).toBe(
      'the credential plugin no-such-plugin is not installed; install it, or add its directory to PATH',
    );
    expect(await troubleOf(ask(config({ installHint: 'See https://x.example\n' })))).toMatch(
      /is not installed: See https:\/\/x\.example$/,
    );
  });

  test('fails as an error of its user', async () => {
    const { access } = await find({ file: plugin('exit 1') });
    await expect(access.credentials()).rejects.toBeInstanceOf(SidegateError);
  });
});

function readIfThere(file: string): string {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch {
    return '';
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
