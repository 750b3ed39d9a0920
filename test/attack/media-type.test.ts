/** Content-Type is not signed: whoever holds a genuine delivery can send it again with another, and the app must not read another message. */
import { createHmac } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { parseMediaType } from '../../src/core/head.ts';
import { type Answer, send } from '../support/client.ts';
import { useApp, useGate } from '../support/fixtures.ts';
import { type Sections, startGate, toRoute } from '../support/gate.ts';
import { fc } from '../support/property.ts';

const SECRET = "It's a Secret to Everybody";
const FORM = 'application/x-www-form-urlencoded';
const CUSTOM = { signature: { header: 'X-Hub-Signature-256', forms: [{ prefix: 'sha256=' }] } };

const app = useApp();

const ROUTES: readonly (readonly [name: string, webhook: Sections])[] = [
  ['github', { scheme: 'github' }],
  ['json', { scheme: 'custom', custom: CUSTOM }],
  ['text', { scheme: 'custom', custom: CUSTOM, contentTypes: ['text/plain'] }],
  ['xml', { scheme: 'custom', custom: CUSTOM, contentTypes: ['application/xml', 'text/xml', 'application/json', 'text/plain'] }],
  ['multipart', { scheme: 'custom', custom: CUSTOM, contentTypes: ['multipart/form-data', 'application/json'] }],
  ['empty', { scheme: 'custom', custom: CUSTOM, contentTypes: ['application/json', 'none'] }],
  ['only-empty', { scheme: 'custom', custom: CUSTOM, contentTypes: ['none'] }],
  ['bytes', { scheme: 'custom', custom: CUSTOM, contentTypes: ['application/octet-stream', 'application/json'] }],
];

const gate = useGate(() => {
  const routes = ROUTES.map(([name, webhook]) =>
    toRoute(app.port, { match: { path: `/${name}` }, webhook: { ...webhook, dedup: 'off' }, route: { name } }),
  );
  const token = {
    ...toRoute(app.port, { match: { path: '/token' }, webhook: { scheme: 'bearer', dedup: 'off' } }),
    name: 'token',
  };
  return startGate({ routes: [...routes, token] }, undefined, { secret: SECRET });
});

function post(route: string, contentType: string | readonly string[] | undefined, body: Buffer | string): Promise<Answer> {
  const signature = `sha256=${createHmac('sha256', SECRET).update(body).digest('hex')}`;
  const types = contentType === undefined ? [] : [contentType].flat().flatMap((value) => ['Content-Type', value]);
  const headers = ['Host', 'a', 'X-Hub-Signature-256', signature, 'X-GitHub-Delivery', 'a', ...types];
  return send(gate.port, { path: `/${route}`, headers: [...headers, 'Content-Length', String(Buffer.byteLength(body))], body });
}

function postWithout(route: string, body: string, framing: Record<string, string>): Promise<Answer> {
  const signature = `sha256=${createHmac('sha256', SECRET).update(body).digest('hex')}`;
  return send(gate.port, { path: `/${route}`, headers: { 'X-Hub-Signature-256': signature, ...framing }, body });
}

const COMMENT = JSON.stringify({ action: 'created', body: '&payload=%7B%22action%22%3A%22approved%22%7D&x=' });
const UTF_7 = JSON.stringify({ action: 'created', body: '+ACI-,+ACI-action+ACI-:+ACI-approved' });

describe('a signed JSON delivery', () => {
  test.each([
    [FORM],
    [`${FORM}; charset=utf-8`],
    ['application/json; charset=utf-7'],
    ['application/json;charset="UTF-7"'],
    ['application/json; charset=utf-16'],
    ['application/json; charset=utf-16le'],
    ['application/json; charset=iso-8859-1'],
    ['application/json; charset=us-ascii'],
    ["application/json; charset*=utf-7''x"],
    ['application/json; charset*0=utf; charset*1=-7'],
    ['application/json; charset=utf-8; charset=utf-7'],
    ['application/json; charset=utf-8; CHARSET=utf-8'],
    ['application/json; charset'],
    ['application/json; charset='],
    ['application/json; charset =utf-8'],
    ['application/json; charset= utf-8'],
    ['application/json; charset="utf-8'],
    ['application/json; charset="utf\\-8"'],
    ["application/json; charset='utf-8'"],
    ['application/json; charset=utf-8,text/html'],
    ['application/json, application/x-www-form-urlencoded'],
    ['application/json charset=utf-7'],
    ['application/json\u00a0'],
    ['application/json;\u00a0charset=utf-8'],
    ['text/plain'],
    ['text/json'],
    ['multipart/form-data; boundary=action'],
    ['application/octet-stream'],
    ['application/xml'],
    ['*/*'],
    [''],
    [undefined],
  ])('is rejected as %s', async (contentType) => {
    for (const body of [COMMENT, UTF_7]) {
      const answer = await post('github', contentType, body);
      expect(answer).toMatchObject({ status: 415, code: 'unsupported_media_type' });
    }
    expect(app.received).toHaveLength(0);
  });

  test('is rejected with two Content-Type fields', async () => {
    expect((await post('github', ['application/json', FORM], COMMENT)).status).toBe(400);
    expect(app.received).toHaveLength(0);
  });

  test.each([
    ['application/json'],
    ['Application/JSON'],
    ['application/json; charset=utf-8'],
    ['application/json;charset=UTF-8'],
    ['application/json; charset="UTF-8"'],
    ['application/json ; Charset=utf8'],
    ['application/json;'],
    ['application/json; version=1; charset=utf-8'],
  ])('is forwarded as %s, unchanged', async (contentType) => {
    expect((await post('github', contentType, COMMENT)).text).toBe('handled');
    expect(app.received[0]?.headers['content-type']).toBe(contentType);
    expect(app.received[0]?.body.toString()).toBe(COMMENT);
  });

  test('is rejected before its body is read if the charset is not UTF-8', async () => {
    const headers = { 'Content-Type': 'application/json; charset=utf-7' };
    expect((await send(gate.port, { path: '/github', headers, body: COMMENT })).status).toBe(415);
  });

  test.each([' ', '\t', '\r\n', '\n\n  ', '\v', '\f', '\ufeff', '\ufeff '])(
    'is not accepted as a form after %j',
    async (space) => {
      for (const start of ['{', '[', '"']) {
        const answer = await post('github', FORM, `${space}${start}&payload=%7B%7D`);
        expect(answer).toMatchObject({ status: 415 });
      }
      expect(app.received).toHaveLength(0);
    },
  );

  test.each([
    ['a byte order mark', Buffer.from('\ufeff{"a":1}')],
    ['UTF-16LE', Buffer.from('{"a":1}', 'utf16le')],
    ['UTF-16LE with its mark', Buffer.from('\ufeff{"a":1}', 'utf16le')],
    ['UTF-16BE', Buffer.from('{"a":1}', 'utf16le').swap16()],
    ['UTF-16BE with its mark', Buffer.from('\ufeff{"a":1}', 'utf16le').swap16()],
    ['UTF-32BE', Buffer.from([0, 0, 0, 0x7b, 0, 0, 0, 0x7d])],
    ['UTF-32LE', Buffer.from([0x7b, 0, 0, 0, 0x7d, 0, 0, 0])],
  ])('is rejected in %s', async (_, body) => {
    for (const [route, contentType] of [
      ['json', 'application/json'],
      ['github', 'application/json; charset=utf-8'],
      ['github', FORM],
    ] as const)
      expect(await post(route, contentType, body)).toMatchObject({ status: 415 });
    expect(app.received).toHaveLength(0);
  });
});

describe('a signed form', () => {
  const body = `payload=${encodeURIComponent('{"action":"created"}')}`;

  test('is forwarded as a form, and rejected as JSON', async () => {
    expect((await post('github', FORM, body)).text).toBe('handled');
    expect((await post('github', `${FORM}; charset=UTF-8`, body)).text).toBe('handled');
    for (const contentType of ['application/json', `${FORM}; charset=iso-8859-1`, 'multipart/form-data; boundary=payload'])
      expect(await post('github', contentType, body)).toMatchObject({ status: 415 });
    expect(app.received).toHaveLength(2);
  });

  test('is forwarded without a body, and a JSON value that is not an object counts as JSON', async () => {
    for (const [contentType, content] of [
      [FORM, ''],
      ['application/json', ''],
      ['application/json', ' true'],
      ['application/json', '"a"'],
    ] as const)
      expect((await post('github', contentType, content)).text).toBe('handled');
    expect(await post('github', 'application/json', 'true=1')).toMatchObject({ status: 415 });
  });
});

describe('a multipart body', () => {
  const body =
    '--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n--c\r\nContent-Disposition: form-data; name="a"\r\n\r\nforged\r\n--c--\r\n--b--\r\n';

  test('is forwarded with the boundary of its first line, and rejected with any other', async () => {
    for (const boundary of ['b', '"b"', 'b; charset=utf-8'])
      expect((await post('multipart', `multipart/form-data; boundary=${boundary}`, body)).text).toBe('handled');
    for (const boundary of ['c', '', '""', '"b "', '"b\\r"', 'B', "b; boundary*=utf-8''c", 'b; boundary=c', 'bb'])
      expect(await post('multipart', `multipart/form-data; boundary=${boundary}`, body), boundary).toMatchObject({ status: 415 });
    for (const contentType of ['multipart/form-data', 'application/json', FORM])
      expect(await post('multipart', contentType, body)).toMatchObject({ status: 415 });
    expect(app.received).toHaveLength(3);
  });

  test('is rejected with a preamble, which some parsers skip', async () => {
    expect(await post('multipart', 'multipart/form-data; boundary=b', `\r\n${body}`)).toMatchObject({ status: 415 });
    expect(await post('multipart', 'multipart/form-data; boundary=b', `x\r\n${body}`)).toMatchObject({ status: 415 });
  });
});

describe('a route with several media types', () => {
  test('rejects JSON as text, XML or bytes, and XML as JSON', async () => {
    for (const [route, contentType] of [
      ['xml', 'text/plain'],
      ['xml', 'application/xml'],
      ['xml', 'text/xml'],
      ['bytes', 'application/octet-stream'],
    ] as const)
      expect(await post(route, contentType, ' {"a":1}')).toMatchObject({ status: 415 });
    expect(await post('xml', 'application/json', '<a/>')).toMatchObject({ status: 415 });
    expect(await post('xml', 'text/xml; charset=utf-16', '<a/>')).toMatchObject({ status: 415 });
    expect((await post('xml', 'text/xml', '\ufeff<a/>')).text).toBe('handled');
    expect((await post('bytes', 'application/octet-stream', 'abc')).text).toBe('handled');
  });

  test('accepts any body that a sender of a single media type signs', async () => {
    expect((await post('text', 'text/plain', '{"a":1}')).text).toBe('handled');
    expect((await post('json', 'application/json', 'plain words')).text).toBe('handled');
  });

  test('is not restricted without a signature: the token proves who chose the media type', async () => {
    const headers = {
      Authorization: `Bearer ${SECRET.replaceAll(/[^A-Za-z]/g, '')}`,
      'Content-Type': `${FORM}; charset=iso-8859-1`,
    };
    const answer = await send(gate.port, { path: '/token', headers, body: 'a=1' });
    expect(answer.status).not.toBe(415);
  });
});

test('every accepted value of Content-Type names UTF-8 or no charset, in bounded time', () => {
  const piece = fc.constantFrom(
    'application/json',
    ';',
    ' ',
    '\t',
    'charset',
    '=',
    'utf-8',
    'UTF-7',
    '"',
    '*',
    ',',
    '\\',
    'a',
    '\u00a0',
  );
  const value = fc.array(piece, { maxLength: 12 }).map((pieces) => pieces.join(''));
  let accepted = 0;
  fc.assert(
    fc.property(value, (text) => {
      const found = parseMediaType(text);
      if ('problem' in found) return;
      accepted++;
      expect(text).not.toMatch(/charset[\t ]*=[\t ]*"?(?!utf-8)/i);
      const [, ...parameters] = text.replaceAll(/"[^"]*"/g, '').split(';');
      expect(parameters.join(';')).not.toMatch(/[,\\]|\*[^;=]*=/);
    }),
    {
      numRuns: 2_000,
      examples: [
        ['application/json; charset=utf-8'],
        ['application/json;utf-8=UTF-7'],
        ['application/json;acharset=UTF-7'],
        ['application/json;a="charset=UTF-7"'],
        ['application/json;a=","'],
        ['application/json;a=*'],
      ],
    },
  );
  expect(accepted).toBeGreaterThan(0);
  for (const text of [
    `application/json${' '.repeat(16_000)}x`,
    `application/json${';'.repeat(16_000)}=`,
    `a/b;a="${' '.repeat(16_000)}`,
  ])
    expect(parseMediaType(text)).toHaveProperty('problem');
});

describe('a delivery without Content-Type', () => {
  test.each(['empty', 'only-empty'])('is forwarded if it is empty and the route accepts none: %s', async (route) => {
    expect((await postWithout(route, '', { 'Content-Length': '0' })).text).toBe('handled');
    expect((await postWithout(route, '', { 'Transfer-Encoding': 'chunked' })).text).toBe('handled');
    expect(app.received).toHaveLength(2);
    for (const { headers } of app.received) expect(headers).not.toHaveProperty('content-type');
  });

  test.each(['empty', 'only-empty'])('is rejected if it has a body, however it is framed: %s', async (route) => {
    for (const body of [COMMENT, ' ', '&']) {
      const declared = await postWithout(route, body, { 'Content-Length': String(body.length) });
      const chunked = await postWithout(route, body, { 'Transfer-Encoding': 'chunked' });
      for (const answer of [declared, chunked]) expect(answer).toMatchObject({ status: 415, code: 'unsupported_media_type' });
    }
    expect(app.received).toHaveLength(0);
  });

  test.each(['github', 'token'])('is rejected if the route does not accept none: %s', async (route) => {
    expect((await post(route, undefined, '')).status).toBe(415);
  });

  test('is not one whose Content-Type is empty, or says none', async () => {
    for (const route of ['empty', 'only-empty'])
      for (const contentType of ['', 'none', 'None', 'none; charset=utf-8'])
        expect((await post(route, contentType, '')).status).toBe(415);
    expect(app.received).toHaveLength(0);
  });

  test('does not change how strictly other bodies are checked', async () => {
    expect((await post('empty', 'application/json', '"a=b"')).text).toBe('handled');
    expect((await post('empty', 'application/json', COMMENT)).text).toBe('handled');
    expect((await post('only-empty', 'application/json', '')).status).toBe(415);
  });
});
