import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.ts';
import { makeAuthority } from '../support/certificates.ts';
import { startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { FLAG, FRAME, openFrames, toBlock, toFrame } from '../support/h2-frames.ts';

const folder = mkdtempSync(join(tmpdir(), 'sidegate-recorded-'));
let app: TestApp;
let gate: TestGate;
let ca: string;

beforeAll(async () => {
  app = await startApp();
  const authority = makeAuthority(folder, 'ca');
  ca = authority.ca;
  const pair = authority.issue('local', 'DNS:localhost');
  const files = { 'tls.crt': readFileSync(pair.cert, 'utf8'), 'tls.key': readFileSync(pair.key, 'utf8') };
  const listen = { address: '127.0.0.1:0', tls: { certFile: 'tls.crt', keyFile: 'tls.key' } };
  gate = await startGate({ listen, routes: [toRoute(app.port)] }, undefined, files);
});
afterAll(async () => {
  await gate.stop();
  await app.close();
  rmSync(folder, { recursive: true });
});

test('rejects a method of 14,000 characters, and logs 32 of them', async () => {
  const client = await openFrames(gate.port, ca);
  const fields = [
    [':method', 'M'.repeat(14_000)],
    [':scheme', 'https'],
    [':authority', 'localhost'],
    [':path', '/hooks/billing'],
  ] as const;
  client.socket.write(toFrame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, 1, toBlock(fields)));
  const line = await until(() => gate.log().find(({ code }) => code === 'malformed_request'));
  client.socket.destroy();
  expect(line).toMatchObject({ method: `${'M'.repeat(32)}…`, reason: 'malformed', detail: 'a method of 14000 bytes' });
  const journal = await (await fetch(`http://127.0.0.1:${gate.adminPort}/journal`)).text();
  expect(journal).toContain(`${'M'.repeat(32)}…`);
  expect(journal.length).toBeLessThan(2_000);
});
