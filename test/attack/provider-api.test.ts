import { connect, type Socket } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { sendRaw, toRequestText, toStatuses } from '../support/client.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { until } from '../support/gate.ts';
import { startApi, type TestApi } from '../support/provider/api.ts';

const TOKEN = '0123456789abcdef0123456789abcdef';
const HEAD = ['POST /v1/events HTTP/1.1', 'Host: 127.0.0.1', 'Content-Type: application/json'];
const EVENT = '{"type":"a","data":{}}';

let api: TestApi;
const sockets: Socket[] = [];

afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
  api.stop();
});

const post = (body: string | Buffer, headers = {}) => api.request('POST', '/v1/events', body as string, headers);

/** Opens a connection, writes, and leaves it open. */
function hold(text: string): Promise<{ socket: Socket; read: () => string }> {
  return new Promise((resolve) => {
    let received = '';
    const socket = connect(api.port, '127.0.0.1', () => socket.write(text, () => resolve({ socket, read: () => received })));
    socket.setEncoding('latin1');
    socket.on('data', (chunk: string) => {
      received += chunk;
    });
    socket.on('error', () => undefined);
    sockets.push(socket);
  });
}

describe('web pages', () => {
  test.each([
    ['a form', { 'Content-Type': 'text/plain' }, 415],
    ['a form with fields', { 'Content-Type': 'application/x-www-form-urlencoded' }, 415],
    ['no type', { 'Content-Type': '' }, 415],
    ['JSON in a vendor type', { 'Content-Type': 'application/json+x' }, 415],
    ['a compressed body', { 'Content-Encoding': 'gzip' }, 415],
    ['an origin', { Origin: 'https://evil.example' }, 403],
    ['the origin null', { Origin: 'null' }, 403],
    ['fetch metadata', { 'Sec-Fetch-Site': 'cross-site' }, 403],
    ['fetch metadata of a sibling', { 'Sec-Fetch-Site': 'same-site' }, 403],
    ['a host name (DNS rebinding)', { Host: 'evil.example' }, 403],
  ])('cannot post an event: %s', async (_, headers, status) => {
    api = await startApi();
    expect((await post(EVENT, headers)).status).toBe(status);
    expect([api.queue.events.size, api.reported.rejected]).toEqual([0, [status === 415 ? 'invalid' : 'unauthorized']]);
  });

  test.each(['disable', 'rotate-secret', 'test'])('cannot act on an endpoint without a body: %s', async (action) => {
    api = await startApi();
    const { status } = await api.request('POST', `/v1/endpoints/acme/${action}`, undefined, { Origin: 'http://localhost:3000' });
    expect([status, api.registry.get('acme')?.disabled, api.queue.events.size]).toEqual([403, undefined, 0]);
  });

  test('get no approval of a preflight', async () => {
    api = await startApi({ token: TOKEN });
    const headers = {
      Origin: 'https://evil.example',
      'Access-Control-Request-Method': 'DELETE',
      Authorization: `Bearer ${TOKEN}`,
    };
    const { status, headers: fields } = await api.request('OPTIONS', '/v1/endpoints/acme', undefined, headers);
    expect([status, Object.keys(fields).filter((name) => name.startsWith('access-control'))]).toEqual([405, []]);
  });
});

describe('the token', () => {
  test('is required for everything except the OpenAPI document', async () => {
    api = await startApi({ token: TOKEN });
    const without = await post(EVENT);
    expect([without.status, without.json.code, without.headers['www-authenticate']]).toEqual([
      401,
      'unauthorized',
      'Bearer realm="sidegate-provider"',
    ]);
    expect((await post(EVENT, { Authorization: 'Bearer wrong' })).headers['www-authenticate']).toContain('invalid_token');
    expect((await post(EVENT, { Authorization: `Bearer ${TOKEN}`, Host: 'gate.example' })).status).toBe(202);
    expect((await api.request('GET', '/none')).status).toBe(401);
    expect((await api.request('TRACE', '/v1/events')).status).toBe(401);
    expect((await api.request('GET', '/openapi.json')).status).toBe(200);
    api.api.replaceToken(undefined);
    expect((await post(EVENT)).status).toBe(202);
  });
});

describe('JSON', () => {
  const data = (text: string) => `{"type":"a","data":${text}}`;
  test.each([
    ['a repeated member', '{"type":"a","type":"b","data":{}}'],
    ['a repeated member in another spelling', '{"type":"a","data":{},"d\\u0061ta":{"x":1}}'],
    ['a repeated member in the data', data('{"a":{"b":1,"b":2}}')],
    ['bad UTF-8', Buffer.concat([Buffer.from('{"type":"a","data":{"a":"'), Buffer.from([0xc3, 0x28]), Buffer.from('"}}')])],
    ['UTF-16', Buffer.from(EVENT, 'utf16le')],
    ['a byte order mark', `\ufeff${EVENT}`],
    ['an unpaired surrogate', data('{"a":"\\ud800"}')],
    ['100,000 levels', data(`{"a":${'['.repeat(100_000)}${']'.repeat(100_000)}}`)],
    ['65 levels', data(`{"a":${'['.repeat(63)}${']'.repeat(63)}}`)],
    ['200,000 values', data(`{"a":[${'1,'.repeat(120_000)}1]}`)],
    ['a comment', '{"type":"a",/* x */"data":{}}'],
    ['a trailing comma', '{"type":"a","data":{},}'],
    ['NaN', data('{"a":NaN}')],
    ['a second value', `${EVENT} {}`],
    ['a control character', data('{"a":"\u0001"}')],
    ['nothing', ''],
  ])('with %s is rejected with 400', async (_, body) => {
    api = await startApi();
    const { status, json } = await post(body);
    expect([status, json.code]).toEqual([400, 'invalid_json']);
    expect(api.queue.events.size).toBe(0);
  });

  test('with 10,000 members, __proto__ and constructor is delivered unchanged', async () => {
    api = await startApi();
    const members = Array.from({ length: 10_000 }, (_, i) => `"k${i}":${i}`).join(',');
    const text = `{"__proto__":{"isAdmin":true},"constructor":{"prototype":{"x":1}},"toString":"x",${members}}`;
    const { status, json } = await post(`{"data":${text},"type":"invoice.paid"}`);
    expect([status, json.endpoints]).toEqual([202, 1]);
    expect(api.queue.events.get(json.id)?.body.toString()).toContain(`"data":${text}}`);
    expect(({} as { isAdmin?: boolean }).isAdmin).toBeUndefined();
    expect((await post('{"__proto__":{},"type":"a","data":{}}')).json).toMatchObject({ status: 422, field: '__proto__' });
  });

  test('with thousands of unknown members gets a short response', async () => {
    api = await startApi();
    const members = Array.from({ length: 5_000 }, (_, i) => `"${'k'.repeat(20)}${i}":1`).join(',');
    const { status, text } = await post(`{"type":"a","data":{},${members}}`);
    expect(status).toBe(422);
    expect(text.length).toBeLessThan(5_000);
  });
});

describe('bodies', () => {
  test.each([
    ['declares', [...HEAD, 'Content-Length: 99999999999'], ''],
    ['sends in chunks', [...HEAD, 'Transfer-Encoding: chunked'], `40000\r\n${'x'.repeat(262_144)}\r\n`.repeat(3)],
  ])('get 413 if a client %s too much, and the connection is closed', async (_, lines, body) => {
    api = await startApi();
    const text = await sendRaw(api.port, toRequestText(lines, body));
    expect(toStatuses(text)).toEqual([413]);
    expect(text).toContain('Connection: close');
    expect(api.reported.rejected).toEqual(['too_large']);
  });

  test('may arrive byte by byte', async () => {
    api = await startApi();
    const body = '{"type":"a","id":"tiny","data":{"a":"xxxxxxxxxxxxxxxxxxxx"}}'.padEnd(1_000, ' ');
    const chunks = [...body].map((sign) => `1\r\n${sign}\r\n`).join('');
    const text = await sendRaw(
      api.port,
      toRequestText([...HEAD, 'Connection: close', 'Transfer-Encoding: chunked'], `${chunks}0\r\n\r\n`),
    );
    expect(toStatuses(text)).toEqual([202]);
    expect(api.queue.events.has('tiny')).toBe(true);
  });

  test('that stop arriving get 408', async () => {
    const clock = new FakeClock();
    api = await startApi({ clock });
    const { socket, read } = await hold(toRequestText([...HEAD, 'Content-Length: 100'], '{"type":'));
    const closed = new Promise((resolve) => socket.on('close', resolve));
    await until(async () => {
      await clock.advance(12_000);
      return read().length > 0;
    });
    expect(toStatuses(read())).toEqual([408]);
    expect(read()).toContain('application/problem+json');
    await clock.advance(2_000);
    await closed;
  });

  test('that are cut off store nothing', async () => {
    api = await startApi();
    const { socket } = await hold(toRequestText([...HEAD, 'Content-Length: 100'], EVENT));
    socket.destroy();
    expect((await post(EVENT)).status).toBe(202);
    await until(() => api.reported.requests.length === 2);
    expect(api.queue.events.size).toBe(1);
  });

  test('of many stalled clients do not block small events, and large ones get 503', async () => {
    api = await startApi();
    const lines = [...HEAD, 'Content-Length: 250000'];
    await Promise.all(Array.from({ length: 200 }, () => hold(toRequestText(lines, 'x'.repeat(100_000)))));
    expect((await post(EVENT)).status).toBe(202);
    const busy = sockets.length;
    expect(busy).toBe(200);
    await until(() => api.reported.rejected.includes('busy'));
    expect(new Set(api.reported.rejected)).toEqual(new Set(['busy']));
  });

  test('of 256 KiB from 100 clients at once are all accepted, or rejected with Retry-After', async () => {
    api = await startApi();
    const body = JSON.stringify({ type: 'a', data: { a: 'x'.repeat(260_000) } });
    const answers = await Promise.all(Array.from({ length: 100 }, () => post(body)));
    for (const { status, headers } of answers)
      expect([status, headers['retry-after']]).toEqual(status === 202 ? [202, undefined] : [503, '1']);
    expect(answers.filter(({ status }) => status === 202).length).toBe(api.queue.events.size);
    expect(api.queue.events.size).toBeGreaterThan(10);
  });

  test('are not read from a client that waits for 100 (Continue) and would be rejected', async () => {
    api = await startApi();
    const large = await sendRaw(api.port, toRequestText([...HEAD, 'Expect: 100-continue', 'Content-Length: 9999999']));
    expect(toStatuses(large)).toEqual([413]);
    const odd = await sendRaw(api.port, toRequestText([...HEAD, 'Expect: a-miracle', 'Content-Length: 2'], '{}'));
    expect(toStatuses(odd)).toEqual([417]);
    const malformed = await sendRaw(api.port, toRequestText([...HEAD, 'Expect: a-miracle'], '2'));
    expect(toStatuses(malformed)).toEqual([417]);
    const { read } = await hold(toRequestText([...HEAD, 'Expect: 100-continue', `Content-Length: ${EVENT.length}`]));
    await until(() => read().includes('100 Continue'));
    sockets[0]?.write(EVENT);
    await until(() => toStatuses(read()).includes(202));
  });
});

describe('framing', () => {
  test.each([
    ['both lengths', [...HEAD, 'Content-Length: 3', 'Transfer-Encoding: chunked'], '0\r\n\r\n'],
    ['two hosts', [...HEAD, 'Host: other', 'Content-Length: 0'], ''],
    ['no host', ['GET /v1/endpoints HTTP/1.1'], ''],
    ['no request', ['nonsense'], ''],
    ['a length that is no number', [...HEAD, 'Content-Length: 1x'], 'x'],
    ['a header line that is folded', [...HEAD, 'X: a', ' b: c', 'Content-Length: 0'], ''],
    ['a NUL in the path', ['GET /v1/events/%00 HTTP/1.1', 'Host: 127.0.0.1', 'Connection: close'], ''],
    ['dot segments', ['GET /v1/../openapi.json HTTP/1.1', 'Host: 127.0.0.1', 'Connection: close'], ''],
  ])('with %s gets 400', async (_, lines, body) => {
    api = await startApi();
    expect(toStatuses(await sendRaw(api.port, toRequestText(lines, body)))).toEqual([400]);
    expect(api.queue.events.size).toBe(0);
  });

  test('keeps pipelined requests apart, and responds in order', async () => {
    api = await startApi();
    const request = (id: string, more: string[] = []) => {
      const body = `{"type":"a","id":"${id}","data":{}}`;
      return toRequestText([...HEAD, ...more, `Content-Length: ${body.length}`], body);
    };
    const get = toRequestText(['GET /v1/events/p1 HTTP/1.1', 'Host: 127.0.0.1']);
    const text = await sendRaw(api.port, `${request('p1')}${get}${request('p2')}${request('p3', ['Connection: close'])}`);
    // Each is handled after the one before it, so the second sees the event of the first.
    expect(toStatuses(text)).toEqual([202, 200, 202, 202]);
    expect([...api.queue.events.keys()]).toEqual(['p1', 'p2', 'p3']);
  });

  test('does not take the unread body of a rejected request for the next request', async () => {
    api = await startApi();
    const inner = toRequestText([...HEAD, `Content-Length: ${EVENT.length}`], EVENT);
    const outer = toRequestText(['POST /none HTTP/1.1', 'Host: 127.0.0.1', `Content-Length: ${inner.length}`], inner);
    const last = toRequestText(['GET /v1/endpoints HTTP/1.1', 'Host: 127.0.0.1', 'Connection: close']);
    expect(toStatuses(await sendRaw(api.port, `${outer}${last}`))).toEqual([404, 200]);
    expect(api.queue.events.size).toBe(0);
  });
});

test('responds to every method and path with a problem that says what is allowed', async () => {
  api = await startApi();
  const put = await api.request('PUT', '/v1/events', {});
  expect([put.status, put.headers['allow'], put.json.code]).toEqual([405, 'POST, GET, HEAD', 'method_not_allowed']);
  expect((await api.request('POST', '/openapi.json')).headers['allow']).toBe('GET, HEAD');
  const head = await api.request('HEAD', '/v1/endpoints');
  expect([head.status, head.text, Number(head.headers['content-length']) > 0]).toEqual([200, '', true]);
  for (const path of [
    '/',
    '/v1',
    '/v1/events/',
    '/V1/events',
    '/v1/events:BATCH',
    '/v1/endpoints/acme/',
    '/v1/endpoints/acme/nothing',
  ])
    expect([path, (await api.request('GET', path)).json?.code]).toEqual([path, 'not_found']);
  expect((await api.request('GET', `/v1/${'x'.repeat(9_000)}`)).status).toBe(414);
  expect((await api.request('GET', '/v1/events/x?a=1')).json.field).toBe('a');
  expect((await api.request('GET', '/v1/endpoints', '{}', { 'Content-Length': 2 })).status).toBe(400);
  expect((await api.request('GET', '/v1/endpoints', undefined, { 'X-Large': 'x'.repeat(20_000) })).status).toBe(431);
});

test('finishes what it accepted when it drains, and then accepts no more', async () => {
  api = await startApi();
  let store = (): void => undefined;
  api.queue.gate = new Promise((resolve) => {
    store = resolve;
  });
  const pending = post(EVENT);
  await until(() => api.queue.appends === 1);
  let isDrained = false;
  const drained = api.api.drain().then(() => {
    isDrained = true;
  });
  await expect(post(EVENT)).rejects.toThrow('ECONNREFUSED');
  expect(isDrained).toBe(false);
  store();
  const { status, headers } = await pending;
  expect([status, headers['connection']]).toEqual([202, 'close']);
  await drained;
});
