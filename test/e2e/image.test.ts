import { execFileSync, spawn } from 'node:child_process';
import { chmodSync, copyFileSync, cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { IMAGE_NODE_VERSION } from '../../scripts/image-node.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { send } from '../support/client.ts';
import { makeDelivery, SECRET } from '../support/deliveries.ts';

const ROOT = resolve(import.meta.dirname, '..', '..');
const dockerfile = readFileSync(join(ROOT, 'Dockerfile'), 'utf8');
const folder = mkdtempSync(join(tmpdir(), 'sidegate-image-'));
let app: TestApp;

beforeAll(async () => {
  execFileSync(process.execPath, [join(ROOT, 'scripts', 'build.ts')], { cwd: ROOT, stdio: 'ignore' });
  for (const name of ['sidegate.mjs', 'password-worker.mjs']) copyFileSync(join(ROOT, 'dist', name), join(folder, name));
  cpSync(join(ROOT, 'node_modules', '@node-rs'), join(folder, 'node_modules', '@node-rs'), { recursive: true });
  app = await startApp();
});
afterAll(async () => {
  await app.close();
  rmSync(folder, { recursive: true });
});

describe('the image', () => {
  test('copies only what exists', () => {
    const sources = [...dockerfile.matchAll(/^COPY (?!--from)(.+) \S+$/gm)].flatMap((match) => (match[1] ?? '').split(' '));
    expect(sources.length).toBeGreaterThan(5);
    for (const source of sources) expect(existsSync(join(ROOT, source)), source).toBe(true);
  });

  test('pins one base image by its digest, for every stage', () => {
    const bases = [...dockerfile.matchAll(/^FROM (\S+)/gm)].map(([, base]) => base);
    expect(bases.length).toBe(2);
    expect(new Set(bases).size).toBe(1);
    expect(bases[0]).toMatch(/^node:\d+-trixie-slim@sha256:[0-9a-f]{64}$/);
  });

  test('runs the Node version that the tests and benchmarks of the image install', () => {
    const [, major] = /^FROM node:(\d+)-/m.exec(dockerfile) ?? [];
    expect(IMAGE_NODE_VERSION).toMatch(/^\d+\.\d+\.\d+$/);
    expect(IMAGE_NODE_VERSION.split('.')[0]).toBe(major);
  });

  test('bounds the heap by the memory there is, by a flag this Node knows', () => {
    const [, flag = ''] = /ENTRYPOINT \["node", "(--[^"]+)"/.exec(dockerfile) ?? [];
    const limit = (...flags: string[]): number =>
      Number(execFileSync(process.execPath, [...flags, '-p', 'v8.getHeapStatistics().heap_size_limit'], { encoding: 'utf8' }));
    expect(flag).toMatch(/^--max-old-space-size-percentage=\d\d$/);
    expect(limit(flag)).toBeGreaterThan(limit(flag.replace(/\d\d$/, '10')) * 3);
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
    for (const name of ['sidegate.mjs', 'password-worker.mjs', 'secret', 'users', 'gate.yaml'])
      chmodSync(join(folder, name), 0o444);
    chmodSync(folder, 0o555);
    const child = spawn(
      join(folder, 'node'),
      ['--max-old-space-size-percentage=50', 'sidegate.mjs', 'run', '--config', 'gate.yaml'],
      { cwd: folder, uid: 65532, gid: 65532, env: {}, stdio: ['ignore', 'pipe', 'inherit'] },
    );
    const port = await new Promise<number>((done, fail) => {
      let text = '';
      child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
        const line = text.split('\n').find((each) => each.includes('"listening"'));
        if (line !== undefined) done(Number((JSON.parse(line) as { port: number }).port));
      });
      child.once('exit', (code) => fail(new Error(`ended with ${code}`)));
    });
    expect((await send(port, makeDelivery())).text).toBe('handled');
    const headers = { Authorization: 'Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==' };
    expect((await send(port, { method: 'GET', path: '/admin', headers })).text).toBe('handled');
    const ended = new Promise((done) => child.once('exit', done));
    child.kill('SIGTERM');
    expect(await ended).toBe(0);
    chmodSync(folder, 0o755);
  });
});
