import { describe, expect, onTestFinished, test } from 'vitest';
import { send } from '../support/client.ts';
import { makeDelivery, signV1, unixNow } from '../support/deliveries.ts';
import { useApp, useGate } from '../support/fixtures.ts';
import { startGate, toRoute } from '../support/gate.ts';

const app = useApp();

const gate = useGate(() => startGate({ routes: [toRoute(app.port)] }));

describe('a valid delivery', () => {
  test('reaches the app byte for byte, and gets the response of the app', async () => {
    app.handler = (_request, response) => response.writeHead(202, { 'X-App': 'yes' }).end('thanks');
    const body = Buffer.from([0x7b, 0xff, 0x7d, 0x00, 0xef, 0xbb, 0xbf]);
    const delivery = makeDelivery({ body });
    const answer = await send(gate.port, delivery);
    expect(answer.status).toBe(202);
    expect(answer.text).toBe('thanks');
    expect(answer.headers['x-app']).toBe('yes');
    expect(app.received).toHaveLength(1);
    expect(app.received[0]?.body).toEqual(body);
  });

  test('has the route, key and request ID in its headers to the app', async () => {
    await send(gate.port, makeDelivery());
    const headers = app.received[0]?.headers;
    expect(headers).toMatchObject({
      'sidegate-route': 'billing',
      'sidegate-key': 'current',
      via: '1.1 sidegate',
      'x-forwarded-for': '127.0.0.1',
      'x-forwarded-proto': 'http',
    });
    expect(headers?.['sidegate-request-id']).toMatch(/^[0-9a-f-]{36}$/);
  });

  test('is answered as a duplicate the second time, without reaching the app', async () => {
    const delivery = makeDelivery();
    expect((await send(gate.port, delivery)).status).toBe(200);
    const again = await send(gate.port, delivery);
    expect([again.status, again.code]).toEqual([200, 'duplicate']);
    expect(app.received).toHaveLength(1);
  });

  test('with other bytes under the same ID is a duplicate, and counted', async () => {
    const first = makeDelivery();
    await send(gate.port, first);
    const before = await gate.metric('sidegate_dedup_operations_total{outcome="id_reused"}');
    expect((await send(gate.port, makeDelivery({ id: first.id, body: '{"other":1}' }))).code).toBe('duplicate');
    expect(await gate.metric('sidegate_dedup_operations_total{outcome="id_reused"}')).toBe(before + 1);
    expect(gate.log().at(-1)).toMatchObject({ level: 'warn', status: 200, code: 'duplicate', reason: 'id_reused' });
  });

  test('is forwarded again after the app responded with 500', async () => {
    const delivery = makeDelivery();
    app.handler = (_request, response) => response.writeHead(500).end();
    expect((await send(gate.port, delivery)).status).toBe(500);
    app.handler = (_request, response) => response.end('handled');
    expect((await send(gate.port, delivery)).text).toBe('handled');
    expect(app.received).toHaveLength(2);
  });

  test('that arrives while the first is in progress waits, and is a duplicate once the app succeeded', async () => {
    const delivery = makeDelivery();
    let finish: () => void = () => undefined;
    app.handler = (_request, response) => {
      finish = () => response.end('slow');
      void send(gate.port, delivery).then((answer) => results.push(answer.code ?? answer.text));
      setImmediate(() => finish());
    };
    const results: string[] = [];
    expect((await send(gate.port, delivery)).text).toBe('slow');
    await expect.poll(() => results).toEqual(['duplicate']);
    expect(app.received).toHaveLength(1);
  });

  test('that waits takes over when the first one failed', async () => {
    const delivery = makeDelivery();
    const second: Promise<string>[] = [];
    app.handler = (_request, response) => {
      if (second.length > 0) return void response.end('second run');
      second.push(send(gate.port, delivery).then((answer) => answer.text));
      void gate.metric('sidegate_dedup_operations_total{outcome="in_progress"}').then(() => response.writeHead(503).end());
    };
    expect((await send(gate.port, delivery)).status).toBe(503);
    expect(await second[0]).toBe('second run');
  });
});

describe('an invalid delivery', () => {
  const cases: [string, (delivery: ReturnType<typeof makeDelivery>) => Record<string, string>, number, string][] = [
    ['without a signature', ({ headers }) => omit(headers, 'Webhook-Signature'), 401, 'missing_signature'],
    ['without an id', ({ headers }) => omit(headers, 'Webhook-Id'), 401, 'missing_signature'],
    ['without a timestamp', ({ headers }) => omit(headers, 'Webhook-Timestamp'), 401, 'missing_signature'],
    ['with `v1,` alone', ({ headers }) => ({ ...headers, 'Webhook-Signature': 'v1,' }), 401, 'malformed_signature'],
    [
      'with junk behind the timestamp',
      ({ headers }) => ({ ...headers, 'Webhook-Timestamp': `${unixNow()}junk` }),
      401,
      'malformed_signature',
    ],
    ['with a dot in the id', ({ headers }) => ({ ...headers, 'Webhook-Id': 'a.b' }), 401, 'malformed_signature'],
    [
      'signed with another key',
      ({ headers, id, body }) => ({
        ...headers,
        'Webhook-Signature': signV1(id, unixNow(), body, 'whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'),
      }),
      401,
      'signature_mismatch',
    ],
  ];
  test.each(cases)('is rejected: %s', async (_title, toHeaders, status, code) => {
    const delivery = makeDelivery();
    const answer = await send(gate.port, { headers: toHeaders(delivery), body: delivery.body });
    expect([answer.status, answer.code]).toEqual([status, code]);
    expect(answer.headers['www-authenticate']).toBe('Webhook-Signature realm="billing"');
    expect(app.received).toHaveLength(0);
  });

  test('is rejected 305 s old and 305 s ahead, with the same code', async () => {
    for (const timestamp of [unixNow() - 305, unixNow() + 305]) {
      const answer = await send(gate.port, makeDelivery({ timestamp }));
      expect([answer.status, answer.code]).toEqual([401, 'timestamp_outside_tolerance']);
    }
    expect(app.received).toHaveLength(0);
  });

  test('is rejected with a repeated security header', async () => {
    const { headers, body } = makeDelivery();
    for (const name of ['Webhook-Id', 'Webhook-Timestamp', 'Webhook-Signature']) {
      const raw = [
        ...Object.entries(headers).flat(),
        name,
        headers[name] ?? '',
        'Content-Length',
        String(body.length),
        'Host',
        'x',
      ];
      expect((await send(gate.port, { headers: raw, body })).code).toBe('malformed_signature');
    }
  });

  test('does not use up the ID of a valid one', async () => {
    const delivery = makeDelivery();
    const forged = {
      ...delivery.headers,
      'Webhook-Signature': signV1(delivery.id, unixNow(), delivery.body, 'whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'),
    };
    expect((await send(gate.port, { headers: forged, body: delivery.body })).code).toBe('signature_mismatch');
    expect((await send(gate.port, delivery)).text).toBe('handled');
  });
});

describe('a request that the route does not accept', () => {
  test('is rejected with 404 without a route, and with 405 and Allow for another method', async () => {
    expect(await send(gate.port, { path: '/elsewhere' })).toMatchObject({ status: 404, code: 'route_not_found' });
    const answer = await send(gate.port, { method: 'GET' });
    expect(answer).toMatchObject({ status: 405, code: 'method_not_allowed' });
    expect(answer.headers.allow).toBe('POST');
  });

  test('is rejected with 405 and no body for HEAD', async () => {
    const answer = await send(gate.port, { method: 'HEAD' });
    expect([answer.status, answer.body.length]).toEqual([405, 0]);
    expect(answer.headers['content-type']).toBe('application/problem+json');
  });

  test('is rejected with 415 for another media type, none, or a content coding', async () => {
    const { headers, body } = makeDelivery();
    for (const over of [{ 'Content-Type': 'text/plain' }, { 'Content-Encoding': 'gzip' }]) {
      expect(await send(gate.port, { headers: { ...headers, ...over }, body })).toMatchObject({
        status: 415,
        code: 'unsupported_media_type',
      });
    }
    const answer = await send(gate.port, { headers: omit(headers, 'Content-Type'), body });
    expect([answer.status, answer.headers.accept]).toEqual([415, 'application/json']);
    const none = await startGate({ routes: [toRoute(app.port, { webhook: { contentTypes: ['none'] } })] });
    onTestFinished(() => void none.stop());
    const other = await send(none.port, { headers, body });
    expect([other.status, other.headers.accept]).toEqual([415, undefined]);
  });

  test('is rejected with 400 if it has an unsigned query', async () => {
    expect(await send(gate.port, { ...makeDelivery(), path: '/hooks/billing?x=1' })).toMatchObject({
      status: 400,
      code: 'malformed_request',
    });
  });

  test('is rejected with 413 if its declared or actual body is too large', async () => {
    const delivery = makeDelivery({ body: Buffer.alloc(1_048_577, 0x20) });
    expect(await send(gate.port, delivery)).toMatchObject({ status: 413, code: 'body_too_large' });
    const chunked = { ...delivery.headers, 'Transfer-Encoding': 'chunked' };
    expect(await send(gate.port, { headers: chunked, body: delivery.body })).toMatchObject({
      status: 413,
      code: 'body_too_large',
    });
    expect(app.received).toHaveLength(0);
  });

  test('may have a body of exactly the maximum size', async () => {
    expect((await send(gate.port, makeDelivery({ body: Buffer.alloc(1_048_576, 0x20) }))).text).toBe('handled');
  });
});

describe('every response of the gate itself', () => {
  test('is problem details with the request ID of the log line', async () => {
    const answer = await send(gate.port, { path: '/elsewhere' });
    const { type, title, status, code, requestId, ...rest } = JSON.parse(answer.text);
    expect({ type, title, status, code }).toEqual({
      type: 'urn:sidegate:refusal:route_not_found',
      title: 'Route not found',
      status: 404,
      code: 'route_not_found',
    });
    expect(rest).toEqual({});
    expect(answer.headers['cache-control']).toBe('no-store');
    expect(gate.log().find((line) => line['requestId'] === requestId)).toMatchObject({
      msg: 'request',
      code: 'route_not_found',
      status: 404,
    });
  });
});

function omit(headers: Record<string, string>, name: string): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).filter(([key]) => key !== name));
}
