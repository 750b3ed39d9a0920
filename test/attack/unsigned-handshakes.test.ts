/** Attacks through handshakes that authenticate nothing: reflection, smuggling, floods, and attempts to plant a key. */
import { createHmac } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { send, sendRaw, toRequestText } from '../support/client.ts';
import { useApp } from '../support/fixtures.ts';
import { startGate, type TestGate } from '../support/gate.ts';

const SECRET = 'a-key-of-sixteen-bytes-and-more';
const LINKEDIN_SECRET = 'another-key-of-sixteen-bytes';
const TYPES = ['asana', 'dropbox', 'linkedin', 'monday', 'notion', 'nylas', 'okta', 'ringcentral', 'statsig', 'trello'] as const;
const app = useApp();
let gate: TestGate;

beforeAll(async () => {
  const routes = TYPES.map((type) => ({
    name: type,
    match: { path: `/${type}` },
    upstream: `http://127.0.0.1:${app.port}`,
    webhook: {
      scheme: 'custom',
      custom: { signature: { header: 'X-Signature' }, signed: ['body'] },
      // The handshake of LinkedIn signs what a client asks for, so no other route may have its key.
      keys: [{ name: 'current', secret: { file: type === 'linkedin' ? 'linkedin' : 'secret' } }],
      handshake: { type },
    },
  }));
  gate = await startGate({ routes }, undefined, { secret: SECRET, linkedin: LINKEDIN_SECRET });
});
afterAll(async () => {
  expect(app.received).toEqual([]);
  await gate.stop();
});

/** What a browser, a log or a proxy could misunderstand. */
const HOSTILE = [
  '<script>alert(1)</script>',
  'a%0d%0aSet-Cookie:%20a=b',
  'a\tb',
  '%00',
  '%ff',
  '%F0%9F%92%A9',
  '"};alert(1)//',
  'x'.repeat(300),
  'x'.repeat(7_000),
  '%25%30%64',
];

describe.each(['dropbox', 'nylas', 'linkedin'])('%s', (type) => {
  const name = type === 'linkedin' ? 'challengeCode' : 'challenge';

  test.each(HOSTILE)('reflects nothing that is rendered or splits a response: %s', async (value) => {
    const raw = await sendRaw(
      gate.port,
      toRequestText([`GET /${type}?${name}=${value.replaceAll(/[^!-~]/g, '%09')} HTTP/1.1`, 'Host: a', 'Connection: close']),
    );
    expect(raw).toMatch(/^HTTP\/1\.1 (?:200|400|403|405|414) /);
    expect(raw).not.toMatch(/set-cookie/i);
    if (!raw.startsWith('HTTP/1.1 200')) return expect(raw).not.toContain('<script>');
    expect(raw).toMatch(/content-type: (?:text\/plain|application\/json)\r\n/i);
    expect(raw).toMatch(/x-content-type-options: nosniff\r\n/i);
    expect(raw.length).toBeLessThan(1_500);
  });

  test('answers no GET with a repeated, additional or oddly encoded parameter', async () => {
    for (const query of [`${name}=a&${name}=b`, `${name}=a&b=c`, `${name}[]=a`, `${name}%00=a`, `=${name}`, `${name}`])
      expect((await send(gate.port, { method: 'GET', path: `/${type}?${query}` })).status, query).not.toBe(200);
  });
});

test.each([
  ['asana', 'X-Hook-Secret'],
  ['ringcentral', 'Validation-Token'],
  ['okta', 'X-Okta-Verification-Challenge'],
])('%s returns no header that delimits, folds or is repeated', async (type, field) => {
  const method = type === 'okta' ? 'GET' : 'POST';
  for (const lines of [
    [`${field}: a`, `${field}: a`],
    [`${field}: ${'x'.repeat(300)}`],
    [`${field}: a b`],
    [`${field}:`],
    [`${field}: \u00e9`],
    [`${field}: a\r\n b`],
  ]) {
    const raw = await sendRaw(
      gate.port,
      toRequestText([`${method} /${type} HTTP/1.1`, 'Host: a', 'Content-Length: 0', 'Connection: close', ...lines]),
    );
    expect(raw, lines.join()).toMatch(/^HTTP\/1\.1 (?:400|403) /);
  }
});

test('a body that hides behind a handshake is not read as one, whatever its framing says', async () => {
  const head = ['POST /asana HTTP/1.1', 'Host: a', 'Content-Type: application/json', 'X-Hook-Secret: abc', 'Connection: close'];
  for (const [lines, body] of [
    [['Transfer-Encoding: chunked'], '2\r\n{}\r\n0\r\n\r\n'],
    [['Content-Length: 2', 'Transfer-Encoding: chunked'], '0\r\n\r\n'],
    [['Content-Length: 13'], '{"events":[]}'],
    [['Content-Length: 5'], '{}   '],
  ] as const) {
    const raw = await sendRaw(gate.port, toRequestText([...head, ...lines], body));
    expect(raw).not.toMatch(/^HTTP\/1\.1 200/);
    expect(raw).not.toMatch(/x-hook-secret/i);
  }
});

test('a flood of offered tokens keeps the latest few, and none verifies a delivery', async () => {
  const token = (i: number): string => `secret_${'a'.repeat(30)}${String(i).padStart(4, '0')}`;
  const offer = (i: number): Promise<unknown> =>
    send(gate.port, {
      path: '/notion',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ verification_token: token(i) }),
    });
  for (let i = 0; i < 200; i += 20) await Promise.all(Array.from({ length: 20 }, (_, k) => offer(i + k)));
  const { tokens } = (await (await fetch(`http://127.0.0.1:${gate.adminPort}/handshakes`)).json()) as { tokens: unknown[] };
  expect(tokens).toHaveLength(5);
  const body = '{"id":"1"}';
  for (let i = 0; i < 200; i += 50) {
    const signature = createHmac('sha256', token(i)).update(body).digest('hex');
    const headers = { 'Content-Type': 'application/json', 'X-Signature': signature };
    expect((await send(gate.port, { path: '/notion', headers, body })).code).toBe('signature_mismatch');
  }
  expect(gate.logText()).not.toContain('secret_aaa');
});

test('deeply nested, huge and malformed challenges are rejected quickly', async () => {
  const headers = { 'Content-Type': 'application/json' };
  for (const [path, start, end] of [
    ['/monday', '{"challenge":', '}'],
    ['/statsig', '{"data":{"event":"url_verification","verification_code":', '}}'],
  ] as const)
    for (const body of [
      `${start}${'['.repeat(400)}${']'.repeat(400)}${end}`,
      `${start}"${'x'.repeat(900)}"${end}`,
      `${start}"a",${start.slice(start.lastIndexOf(',') + 1).replace('{', '')}"b c"${end}`,
      `${start}"\\ud800"${end}`,
      `{"__proto__":${start}"a"${end}}`,
      `\ufeff${start}"a"${end}`,
      `${start}1e400${end}`,
    ])
      expect((await send(gate.port, { path, headers, body })).status, body).not.toBe(200);
});
