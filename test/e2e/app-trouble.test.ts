import { Agent } from 'node:http';
import type { Socket } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { holdResponses, startApp } from '../support/app.ts';
import { send, sendRaw, toRequestText, toStatuses } from '../support/client.ts';
import { type Delivery, makeDelivery } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { findFreePort } from '../support/free-port.ts';
import { startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { startScriptApp } from '../support/script-app.ts';

const app = useApp();
const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function start(port: number, over: Parameters<typeof toRoute>[1] = {}): Promise<TestGate> {
  const gate = await startGate({ routes: [toRoute(port, over)] });
  closers.push(() => gate.stop());
  return gate;
}

/** The port of an app that runs a script at each packet. */
async function startScript(script: (socket: Socket) => void): Promise<number> {
  const { port, close } = await startScriptApp((socket) => socket.on('data', () => script(socket)));
  closers.push(close);
  return port;
}

function toLines({ headers, body }: Delivery, ...more: string[]): string[] {
  return [
    'POST /hooks/billing HTTP/1.1',
    'Host: a',
    'Connection: close',
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    `Content-Length: ${body.length}`,
    ...more,
  ];
}

describe('an app', () => {
  test('that is down leads to 503 with Retry-After and a closed connection, and the retry is forwarded', async () => {
    const port = await findFreePort();
    const gate = await start(port);
    const delivery = makeDelivery();
    const answer = await send(gate.port, { ...delivery, agent: new Agent({ keepAlive: true }) });
    expect(answer).toMatchObject({ status: 503, code: 'upstream_away', headers: { 'retry-after': '5', connection: 'close' } });
    expect(gate.log().at(-1)).toMatchObject({
      code: 'upstream_away',
      detail: `127.0.0.1:${port}: the connection failed (ECONNREFUSED)`,
    });
    const late = await startApp(port);
    closers.push(() => late.close());
    expect((await send(gate.port, delivery)).text).toBe('handled');
    expect(await gate.metric('sidegate_upstream_errors_total{route="billing",kind="connect"}')).toBe(1);
  });

  test('that is too slow leads to 504, and the event stays claimed until the lease ends', async () => {
    app.handler = () => undefined;
    const gate = await start(app.port, { route: { timeout: '200ms' }, webhook: { dedup: { inProgress: 'reject' } } });
    const delivery = makeDelivery();
    expect(await send(gate.port, delivery)).toMatchObject({ status: 504, code: 'upstream_timeout' });
    expect(await send(gate.port, delivery)).toMatchObject({ status: 503, code: 'in_progress' });
    expect(await gate.metric('sidegate_dedup_operations_total{outcome="held"}')).toBe(1);
  });

  test('that dies before it responds leads to 502, and the claim is held', async () => {
    const gate = await start(await startScript((socket) => socket.destroy()));
    expect(await send(gate.port, makeDelivery())).toMatchObject({ status: 502, code: 'upstream_unreachable' });
    expect(await gate.metric('sidegate_dedup_operations_total{outcome="held"}')).toBe(1);
  });

  test('that sends an invalid response leads to 502', async () => {
    const gate = await start(
      await startScript((socket) => socket.write('HTTP/1.1 200 OK\r\nX: a\nb\r\nContent-Length: 0\r\n\r\n')),
    );
    expect(await send(gate.port, makeDelivery())).toMatchObject({ status: 502, code: 'upstream_invalid_response' });
  });

  test.each([
    ['of a known length', 'Content-Length: 10', 'hal'],
    ['chunked', 'Transfer-Encoding: chunked', '3\r\nhal\r\n'],
  ])('that dies during a response %s never looks like a clean end', async (_title, framing, part) => {
    const gate = await start(await startScript((socket) => socket.end(`HTTP/1.1 200 OK\r\n${framing}\r\n\r\n${part}`)));
    await expect(send(gate.port, makeDelivery())).rejects.toThrow(/aborted|hang up|ECONNRESET/);
    expect(await gate.metric('sidegate_dedup_operations_total{outcome="confirmed"}')).toBe(1);
    expect(gate.log().at(-1)).toMatchObject({ msg: 'request', level: 'error', reason: 'upstream_reset', status: 200 });
  });

  test('that sends more than one response cannot poison the next one', async () => {
    const gate = await start(
      await startScript((socket) =>
        socket.write('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngoodHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison'),
      ),
    );
    for (let i = 0; i < 5; i++) expect((await send(gate.port, makeDelivery())).text).toBe('good');
  });

  test.each([301, 302, 400, 404, 410, 429, 500, 503])(
    'that responds with %i has its response passed on, and gets the event again',
    async (status) => {
      const gate = await start(app.port);
      const delivery = makeDelivery();
      app.handler = (_request, response) => response.writeHead(status, { Location: '/x', 'Retry-After': '7' }).end('no');
      const answer = await send(gate.port, delivery);
      expect([answer.status, answer.text, answer.headers['retry-after']]).toEqual([status, 'no', '7']);
      await send(gate.port, delivery);
      expect(app.received).toHaveLength(2);
    },
  );

  test('finishes its work when the sender disconnects, and the retry is a duplicate', async () => {
    const gate = await start(app.port);
    const delivery = makeDelivery();
    const finish = holdResponses(app, 'done');
    const controller = new AbortController();
    const left = fetch(`http://127.0.0.1:${gate.port}/hooks/billing`, {
      method: 'POST',
      headers: delivery.headers,
      body: new Uint8Array(delivery.body),
      signal: controller.signal,
    });
    await until(() => app.received.length === 1);
    controller.abort();
    await expect(left).rejects.toThrow();
    await until(async () => (await gate.metric('sidegate_connections')) === 0);
    finish();
    await until(async () => (await gate.metric('sidegate_dedup_operations_total{outcome="confirmed"}')) === 1);
    expect((await send(gate.port, delivery)).code).toBe('duplicate');
  });
});

describe('a response of the app', () => {
  test('loses only hop-by-hop fields and those that could disable the sender', async () => {
    const gate = await start(app.port);
    app.handler = (_request, response) => {
      response.writeHead(200, [
        'Webhook-Delivery',
        'disable',
        'X-Slack-No-Retry',
        '1',
        'x_slack_no_retry',
        '1',
        'Connection',
        'X-Hop',
        'X-Hop',
        '1',
        'Keep-Alive',
        'timeout=9',
        'Set-Cookie',
        'a=1',
        'Set-Cookie',
        'b=2',
        'X-Stay',
        '1',
      ]);
      response.end('ok');
    };
    const { rawHeaders } = await send(gate.port, makeDelivery());
    const names = rawHeaders.filter((_, i) => i % 2 === 0).map((name) => name.toLowerCase());
    expect(names).not.toEqual(expect.arrayContaining(['webhook-delivery']));
    for (const name of ['webhook-delivery', 'x-slack-no-retry', 'x_slack_no_retry', 'x-hop']) expect(names).not.toContain(name);
    expect(names.filter((name) => name === 'set-cookie')).toHaveLength(2);
    expect(names).toContain('x-stay');
    expect(rawHeaders.join()).not.toContain('timeout=9');
  });

  test('keeps a field that could disable the sender if the route allows it', async () => {
    const gate = await start(app.port, { route: { allowResponseHeaders: ['Webhook-Delivery'] } });
    app.handler = (_request, response) => response.writeHead(200, { 'Webhook-Delivery': 'disable' }).end();
    expect((await send(gate.port, makeDelivery())).headers['webhook-delivery']).toBe('disable');
  });

  test('has no body with 204, 304 and HEAD', async () => {
    const gate = await start(app.port, {
      match: { path: '/hooks/billing', methods: ['POST', 'HEAD'] },
      webhook: { dedup: 'off' },
    });
    for (const status of [204, 304]) {
      app.handler = (_request, response) => response.writeHead(status).end();
      const answer = await send(gate.port, makeDelivery());
      expect([answer.status, answer.body.length]).toEqual([status, 0]);
    }
    app.handler = (_request, response) => response.writeHead(200, { 'Content-Length': '5' }).end();
    const text = await sendRaw(
      gate.port,
      toRequestText(toLines(makeDelivery({ body: '' })).map((line) => line.replace('POST', 'HEAD'))),
    );
    expect(text).toMatch(/^HTTP\/1\.1 200 OK\r\nContent-Length: 5\r\n/);
    expect(text.endsWith('\r\n\r\n')).toBe(true);
  });

  test('includes early hints, and trailers for senders that accept them', async () => {
    const gate = await start(app.port);
    app.handler = (_request, response) => {
      response.writeEarlyHints({ link: '</style.css>; rel=preload' });
      response.writeHead(200, { Trailer: 'X-Sum' });
      response.write('a');
      response.addTrailers({ 'X-Sum': '1', 'Content-Length': '99' });
      response.end();
    };
    const delivery = makeDelivery();
    const text = await sendRaw(gate.port, toRequestText(toLines(delivery, 'TE: trailers'), delivery.body.toString()));
    expect(toStatuses(text)).toEqual([103, 200]);
    expect(text).toMatch(/0\r\nX-Sum: 1\r\n\r\n$/);
    const other = makeDelivery();
    expect(await sendRaw(gate.port, toRequestText(toLines(other), other.body.toString()))).toMatch(/0\r\n\r\n$/);
  });

  test('of many megabytes arrives completely', async () => {
    const gate = await start(app.port);
    const content = Buffer.alloc(20_000_000, 'z');
    app.handler = (_request, response) => response.end(content);
    expect((await send(gate.port, makeDelivery())).body.equals(content)).toBe(true);
  });
});

test.each(['POST', 'PUT'])('a webhook by %s on a dead connection is sent again only if the route allows it', async (method) => {
  let requests = 0;
  const script = (socket: Socket): void => {
    requests++;
    if (requests % 2 === 1) socket.write('HTTP/1.1 200 OK\r\nKeep-Alive: timeout=60\r\nContent-Length: 2\r\n\r\nok');
    else socket.destroy();
  };
  const match = { path: '/hooks/billing', methods: ['POST', 'PUT'] };
  const deliver = (port: number) => send(port, { ...makeDelivery(), method });
  const careful = await start(await startScript(script), { route: { match } });
  expect((await deliver(careful.port)).status).toBe(200);
  expect((await deliver(careful.port)).status).toBe(502);
  expect(requests).toBe(2);
  requests = 0;
  const eager = await start(await startScript(script), { route: { match, resend: 'always' } });
  expect((await deliver(eager.port)).status).toBe(200);
  expect((await deliver(eager.port)).status).toBe(200);
  expect(requests).toBe(3);
});
