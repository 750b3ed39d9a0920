import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, copyFileSync, cpSync, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { connect } from 'node:http2';
import { basename, dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { beforeAll, describe, expect, test } from 'vitest';
import { IMAGE_NODE_VERSION } from '../prepare/image-node.ts';
import { provideBundle } from '../support/bundle.ts';
import { makeAuthority } from '../support/certificates.ts';
import { send } from '../support/client.ts';
import { makeDelivery, SECRET } from '../support/deliveries.ts';
import { useApp, useFolder } from '../support/fixtures.ts';
import { until } from '../support/gate.ts';
import { readImageFlags } from '../support/image-flags.ts';
import { readListeningPort } from '../support/listening-port.ts';
import { countRows, createOutboxDatabase, insertEvents } from '../support/outbox.ts';
import { startPostgres } from '../support/postgres.ts';
import { startRedis } from '../support/redis.ts';

const ROOT = resolve(import.meta.dirname, '..', '..');
const dockerfile = readFileSync(join(ROOT, 'Dockerfile'), 'utf8');
const folder = useFolder();
const app = useApp();

beforeAll(async () => {
  cpSync(dirname(await provideBundle()), folder, { recursive: true });
  cpSync(join(ROOT, 'node_modules', '@node-rs'), join(folder, 'node_modules', '@node-rs'), { recursive: true });
});

describe('the image', () => {
  test('copies only what exists', () => {
    const sources = [...dockerfile.matchAll(/^COPY (?!--from)(.+) \S+$/gm)].flatMap((match) => (match[1] ?? '').split(' '));
    expect(sources.length).toBeGreaterThan(5);
    for (const source of sources) expect(existsSync(join(ROOT, source)), source).toBe(true);
  });

  test('contains every bundle, and the native bcrypt', () => {
    expect(dockerfile).toContain('COPY --from=build /build/dist/*.cjs /build/dist/console-page.* /opt/sidegate/\n');
    expect(dockerfile).toContain(
      'COPY --from=build /build/dist/sidegate.cdx.json /build/dist/THIRD-PARTY-LICENSES.txt /opt/sidegate/\n',
    );
    expect(dockerfile).toContain('/build/node_modules/@node-rs /opt/sidegate/node_modules/@node-rs');
  });

  test("starts with 1.28 MiB of code, without Node's fetch client, HTTP/2 and TLS, which need 25 MiB, if no config needs more", async () => {
    const watch = join(folder, 'watch.cjs');
    const found = '{ modules: process.moduleLoadList, files: Object.keys(require.cache) }';
    writeFileSync(watch, `process.on('SIGUSR2', () => process.stderr.write(JSON.stringify(${found}) + '\\n'));`);
    writeFileSync(join(folder, 'plain-secret'), SECRET);
    writeFileSync(
      join(folder, 'plain.yaml'),
      `listen: { address: "127.0.0.1:0" }\nadmin: { address: "127.0.0.1:0" }\nroutes:\n  - name: a\n    match: { path: /hooks/billing }\n    upstream: http://127.0.0.1:${app.port}\n    webhook: { keys: [{ name: k, secret: { file: plain-secret } }] }\n`,
    );
    const child = spawn(process.execPath, ['--require', watch, 'sidegate.cjs', 'run', '--config', 'plain.yaml'], { cwd: folder });
    const ended = new Promise((done) => child.once('exit', done));
    await readListeningPort(child.stdout);
    child.kill('SIGUSR2');
    const [loaded = ''] = await once(createInterface(child.stderr), 'line');
    child.kill('SIGKILL');
    await ended;
    const { modules, files } = JSON.parse(loaded) as { modules: string[]; files: string[] };
    expect(files.reduce((size, file) => size + statSync(file).size, 0)).toBeLessThanOrEqual(1.28 * 2 ** 20);
    expect(files.filter((file) => /^sidegate-/.test(basename(file)))).toEqual([]);
    expect(modules).toContain('NativeModule _http_server');
    for (const name of ['internal/deps/undici/undici', 'http2', 'tls', 'https'])
      expect(modules).not.toContain(`NativeModule ${name}`);
  });

  test('loads TLS, HTTP/2 and the Redis client when a config needs them', async () => {
    const redis = await startRedis();
    const pair = makeAuthority(folder, 'ca').issue('local', 'DNS:localhost,IP:127.0.0.1');
    writeFileSync(join(folder, 'plain-secret'), SECRET);
    writeFileSync(
      join(folder, 'all.yaml'),
      `listen: { address: "127.0.0.1:0", tls: { certFile: ${pair.cert}, keyFile: ${pair.key} } }\nadmin: { address: "127.0.0.1:0" }\nstore: { redis: { url: "redis://127.0.0.1:${redis.port}" } }\nroutes:\n  - name: a\n    match: { path: /hooks/billing }\n    upstream: http://127.0.0.1:${app.port}\n    webhook: { keys: [{ name: k, secret: { file: plain-secret } }] }\n`,
    );
    const child = spawn(process.execPath, ['sidegate.cjs', 'run', '--config', 'all.yaml'], { cwd: folder });
    const session = connect(`https://127.0.0.1:${await readListeningPort(child.stdout)}`, { rejectUnauthorized: false });
    const delivery = makeDelivery();
    const post = async (): Promise<string> => {
      const stream = session.request({ ':method': 'POST', ':path': '/hooks/billing', ...delivery.headers });
      return await text(stream.end(delivery.body));
    };
    try {
      expect(await post()).toBe('handled');
      expect(await post()).toContain('"code":"duplicate"');
    } finally {
      session.destroy();
      child.kill('SIGKILL');
      await redis.stop();
    }
  });

  test('loads the PostgreSQL client when a config has an outbox, and takes events from it over TLS', async () => {
    const ca = makeAuthority(folder, 'database-ca');
    const server = await startPostgres({ tls: ca.issue('database', 'DNS:localhost') });
    const database = createOutboxDatabase(server);
    insertEvents(server, database, 1);
    const search = `?sslmode=verify-full&sslrootcert=${ca.ca}`;
    writeFileSync(
      join(folder, 'outbox-url'),
      server.url({ role: 'sidegate', database, search }).replace('127.0.0.1', 'localhost'),
    );
    writeFileSync(join(folder, 'plain-secret'), SECRET);
    writeFileSync(
      join(folder, 'outbox.yaml'),
      `listen: { address: "127.0.0.1:0" }\nadmin: { address: "127.0.0.1:0" }\nprovider:\n  address: "127.0.0.1:0"\n  queue: { sqlite: { path: ${folder}/outbox.db, allowVolatile: true } }\n  outbox: { postgres: { url: { file: outbox-url } } }\n  egress: { allowHttp: true, allowPrivate: [127.0.0.0/8] }\n  endpoints: [{ name: a, url: "http://127.0.0.1:${app.port}/", secret: { file: plain-secret } }]\n`,
    );
    const child = spawn(process.execPath, [...readImageFlags(), 'sidegate.cjs', 'run', '--config', 'outbox.yaml'], {
      cwd: folder,
    });
    try {
      const [request] = await until(() => app.received.length > 0 && app.received);
      expect(request?.headers['webhook-id']).toBe('e1');
      await until(() => countRows(server, database) === 0);
    } finally {
      child.kill('SIGKILL');
      await server.stop();
    }
  });

  test('loads the analysis of rejections for the first one, which recognizes the keys and refusals of the gate', async () => {
    writeFileSync(join(folder, 'plain-secret'), SECRET);
    writeFileSync(
      join(folder, 'explain.yaml'),
      `listen: { address: "127.0.0.1:0" }\nadmin: { address: "127.0.0.1:0" }\nroutes:\n  - name: a\n    match: { path: /hooks/billing }\n    upstream: http://127.0.0.1:${app.port}\n    webhook: { scheme: github, keys: [{ name: k, secret: { file: plain-secret } }] }\n`,
    );
    const child = spawn(process.execPath, ['sidegate.cjs', 'run', '--config', 'explain.yaml'], { cwd: folder });
    const explained: string[] = [];
    createInterface(child.stdout).on('line', (line) => {
      if (line.includes('"signature_explained"')) explained.push((JSON.parse(line) as { text: string }).text);
    });
    try {
      const port = await readListeningPort(child.stdout);
      const signature = createHmac('sha256', SECRET).update('{}').digest('base64');
      const json = { 'content-type': 'application/json' };
      const wrong = { 'x-hub-signature-256': `sha256=${'0'.repeat(64)}`, 'x-wc-webhook-signature': signature };
      for (const headers of [{ ...json, ...wrong }, json])
        expect(await send(port, { headers, body: '{}' })).toMatchObject({ status: 401 });
      await expect.poll(() => explained.length).toBe(2);
      expect(explained[0]).toContain('it matches with scheme: woocommerce');
      expect(explained[1]).toContain('X-Hub-Signature-256 is missing');
    } finally {
      child.kill('SIGKILL');
    }
  });

  test('pins one base image by its digest for the stages that build, and starts from nothing in the last one', () => {
    const bases = [...dockerfile.matchAll(/^FROM (\S+)/gm)].map(([, base]) => base);
    expect(bases.pop()).toBe('scratch');
    expect(bases.length).toBe(2);
    expect(new Set(bases).size).toBe(1);
    expect(bases[0]).toMatch(/^node:\d+-trixie-slim@sha256:[0-9a-f]{64}$/);
  });

  test('runs the Node version that the tests and benchmarks of the image install', () => {
    const [, major] = /^FROM node:(\d+)-/m.exec(dockerfile) ?? [];
    expect(IMAGE_NODE_VERSION).toMatch(/^\d+\.\d+\.\d+$/);
    expect(IMAGE_NODE_VERSION.split('.')[0]).toBe(major);
  });

  test('limits the heap to the available memory, with a flag that this Node supports', () => {
    const [, flag = ''] = /ENTRYPOINT \["node", "(--[^"]+)"/.exec(dockerfile) ?? [];
    const limit = (...flags: string[]): number =>
      Number(execFileSync(process.execPath, [...flags, '-p', 'v8.getHeapStatistics().heap_size_limit'], { encoding: 'utf8' }));
    expect(flag).toMatch(/^--max-old-space-size-percentage=\d\d$/);
    expect(limit(flag)).toBeGreaterThan(limit(flag.replace(/\d\d$/, '10')) * 3);
  });

  test('is denied child processes, also in threads, and a debugger', () => {
    const script = join(folder, 'denied.cjs');
    const attempt = `(() => { try { require('node:child_process').spawnSync(process.execPath, ['-v']); return 'spawned'; } catch ({ code }) { return code; } })()`;
    writeFileSync(
      script,
      `const { Worker } = require('node:worker_threads');
      console.log(${attempt});
      try { require('node:inspector').open(0); console.log('open'); } catch ({ code }) { console.log(code); }
      new Worker(${JSON.stringify(`require('node:worker_threads').parentPort.postMessage(${attempt});`)}, { eval: true })
        .on('message', (code) => console.log(code)).on('error', ({ code }) => console.log(code));`,
    );
    const run = (flags: readonly string[]): string[] =>
      execFileSync(process.execPath, [...flags, script], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
        .trim()
        .split('\n');
    expect(run(readImageFlags())).toEqual(['ERR_ACCESS_DENIED', 'ERR_ACCESS_DENIED', 'ERR_ACCESS_DENIED']);
  });

  test('starts without a warning about the permissions that it needs', () => {
    const { status, stderr } = spawnSync(process.execPath, [...readImageFlags(), join(folder, 'sidegate.cjs'), '--version'], {
      encoding: 'utf8',
    });
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  });

  test.skipIf(process.getuid?.() !== 0)('serves as user 65532 from a read-only folder, with an empty environment', async () => {
    writeFileSync(join(folder, 'secret'), SECRET);
    const users = execFileSync('htpasswd', ['-nbB', '-C', '5', 'Aladdin', 'open sesame'], { encoding: 'utf8' });
    writeFileSync(join(folder, 'users'), users.trim());
    writeFileSync(
      join(folder, 'gate.yaml'),
      `listen: { address: "127.0.0.1:0" }\nadmin: { address: "127.0.0.1:0" }\nshutdown: { grace: 0ms }\nroutes:\n  - name: a\n    match: { path: /hooks/billing }\n    upstream: http://127.0.0.1:${app.port}\n    webhook: { keys: [{ name: k, secret: { file: secret } }] }\n  - name: b\n    match: { pathPrefix: /admin }\n    upstream: http://127.0.0.1:${app.port}\n    basic: { realm: admin, users: { file: users }, requireTls: false }\n`,
    );
    copyFileSync(process.execPath, join(folder, 'node'));
    for (const entry of readdirSync(folder, { withFileTypes: true }))
      if (entry.isFile() && entry.name !== 'node') chmodSync(join(folder, entry.name), 0o444);
    chmodSync(folder, 0o555);
    const child = spawn(join(folder, 'node'), [...readImageFlags(), 'sidegate.cjs', 'run', '--config', 'gate.yaml'], {
      cwd: folder,
      uid: 65532,
      gid: 65532,
      env: {},
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const port = await readListeningPort(child.stdout);
    expect((await send(port, makeDelivery())).text).toBe('handled');
    const headers = { Authorization: 'Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==' };
    expect((await send(port, { method: 'GET', path: '/admin', headers })).text).toBe('handled');
    const ended = new Promise((done) => child.once('exit', done));
    child.kill('SIGTERM');
    expect(await ended).toBe(0);
    chmodSync(folder, 0o755);
  });
});
