/** Routes that are selected by the presence of a header: on HTTP/1.1 and HTTP/2, and by the forward-auth endpoint. */
import { readFileSync } from 'node:fs';
import { type ClientHttp2Session, connect, type OutgoingHttpHeaders } from 'node:http2';
import { afterEach, describe, expect, test } from 'vitest';
import { toTlsFiles } from '../support/certificates.ts';
import { type Answer, send, sendRaw, toRequestText } from '../support/client.ts';
import { useApp, useAuthority } from '../support/fixtures.ts';
import { startGate, type TestGate } from '../support/gate.ts';

const authority = useAuthority();
const pair = authority.issue('local', 'DNS:localhost,IP:127.0.0.1');
const app = useApp();
let gate: TestGate;
let session: ClientHttp2Session | undefined;

afterEach(async () => {
  session?.destroy();
  session = undefined;
  app.received.length = 0;
  await gate.stop();
});

const toRoutes = () => {
  const upstream = `http://127.0.0.1:${app.port}`;
  const open = { upstream, allow: 'anyone' };
  return [
    { name: 'without', match: { path: '/hooks/asana' }, ...open },
    { name: 'with', match: { path: '/hooks/asana', headers: ['X-Hook-Secret'] }, ...open },
    { name: 'only-with', match: { path: '/only', headers: ['X-Hook-Secret'] }, ...open },
    { name: 'only-without', match: { path: '/none', withoutHeaders: ['X-Hook-Secret'] }, ...open },
    { name: 'root', match: { pathPrefix: '/wide' }, ...open },
  ];
};

interface Case {
  readonly path: string;
  readonly headers: readonly string[];
  /** The route, or the code of the refusal. */
  readonly expected: string;
}

const CASES: readonly Case[] = [
  { path: '/hooks/asana', headers: [], expected: 'without' },
  { path: '/hooks/asana', headers: ['x-hook-secret', 'abc'], expected: 'with' },
  { path: '/hooks/asana', headers: ['x-hook-secret', ''], expected: 'with' },
  { path: '/hooks/asana', headers: ['x-hook-secret', 'a', 'x-hook-secret', 'b'], expected: 'with' },
  { path: '/hooks/asana', headers: ['x_hook_secret', 'abc'], expected: 'ambiguous_target' },
  { path: '/hooks/asana', headers: ['x-hook-secret', 'abc', 'x.hook.secret', 'abc'], expected: 'ambiguous_target' },
  { path: '/only', headers: [], expected: 'route_not_found' },
  { path: '/only', headers: ['x-hook-secret', 'abc'], expected: 'only-with' },
  { path: '/none', headers: ['x-hook-secret', 'abc'], expected: 'route_not_found' },
  { path: '/none', headers: [], expected: 'only-without' },
];

test.each(CASES)('HTTP/1.1: $path with $headers gets $expected', async ({ path, headers, expected }) => {
  gate = await startGate({ routes: toRoutes() });
  const answer = await send(gate.port, {
    method: 'POST',
    path,
    headers: ['Host', 'localhost', 'Content-Length', '0', ...headers],
  });
  expect(answer.code ?? app.received[0]?.headers['sidegate-route']).toBe(expected);
});

test.each(CASES)('HTTP/2: $path with $headers gets $expected', async ({ path, headers, expected }) => {
  const listen = { address: '127.0.0.1:0', tls: { certFile: 'tls.crt', keyFile: 'tls.key', http2: true } };
  gate = await startGate({ listen, routes: toRoutes() }, undefined, toTlsFiles(pair));
  const { status, code } = await sendHttp2({ ':path': path, ':method': 'POST', ...toObject(headers) });
  expect(code ?? app.received[0]?.headers['sidegate-route']).toBe(expected);
  expect(status).toBe({ route_not_found: 404, ambiguous_target: 400 }[expected] ?? 200);
});

test.each(CASES)('forward-auth: $path with $headers gets $expected', async ({ path, headers, expected }) => {
  gate = await startGate({ authz: { address: '127.0.0.1:0' }, routes: toRoutes() });
  const original = {
    'X-Forwarded-Method': 'POST',
    'X-Forwarded-Proto': 'https',
    'X-Forwarded-Host': 'app.example',
    'X-Forwarded-Uri': path,
    'X-Forwarded-For': '203.0.113.7',
  };
  const answer = await send(gate.authzPort, {
    method: 'GET',
    path: '/',
    headers: ['Host', 'localhost', ...Object.entries(original).flat(), ...headers],
  });
  expect(answer.headers['sidegate-refusal'] ?? answer.headers['sidegate-route']).toBe(expected);
});

describe('a request that matches no route because of a header', () => {
  test('gets the same response as an unknown path', async () => {
    gate = await startGate({ routes: toRoutes() });
    const toBytes = ({ status, rawHeaders, text }: Answer): unknown => {
      const isVarying = (name: string | undefined): boolean => name === 'Date' || name === 'Sidegate-Request-Id';
      return [status, rawHeaders.filter((_, i) => !isVarying(rawHeaders[i - (i % 2)])), text.replaceAll(/[0-9a-f-]{36}/g, '')];
    };
    expect(toBytes(await send(gate.port, { path: '/only' }))).toEqual(toBytes(await send(gate.port, { path: '/unknown' })));
    await gate.stop();
    const details = gate.log().flatMap(({ code, detail }) => (code === 'route_not_found' ? [detail] : []));
    expect(details).toEqual(['no route of this path matches the headers', undefined]);
  });
});

test('a header that Connection names, which no app would see, selects no route', async () => {
  gate = await startGate({ routes: toRoutes() });
  const text = toRequestText([
    'POST /hooks/asana HTTP/1.1',
    'Host: a',
    'X-Hook-Secret: a',
    'Connection: close, x-hook-SECRET',
    'Content-Length: 0',
  ]);
  expect(await sendRaw(gate.port, text)).toMatch(/^HTTP\/1\.1 400 /);
  expect(app.received).toEqual([]);
});

function toObject(headers: readonly string[]): OutgoingHttpHeaders {
  const found: Record<string, string[]> = {};
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i] ?? '';
    found[name] = [...(found[name] ?? []), headers[i + 1] ?? ''];
  }
  return found;
}

function sendHttp2(headers: OutgoingHttpHeaders): Promise<{ status: number; code: string | undefined }> {
  session = connect(`https://localhost:${gate.port}`, { ca: readFileSync(authority.ca) });
  const stream = session.request(headers);
  return new Promise((resolve, reject) => {
    let status = 0;
    let text = '';
    stream.on('response', (head) => {
      status = head[':status'] ?? 0;
    });
    stream.setEncoding('utf8');
    stream.on('data', (chunk: string) => {
      text += chunk;
    });
    stream.on('error', reject);
    stream.on('end', () => {
      resolve({ status, code: status === 200 ? undefined : (JSON.parse(text) as { code: string }).code });
    });
    stream.end();
  });
}
