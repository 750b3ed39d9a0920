import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { makeAuthority, readPair } from '../support/certificates.ts';
import { send } from '../support/client.ts';
import { type CollectedSpan, type Collector, startCollector } from '../support/collector.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { makeFolder, useApp } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { startGateProcess } from '../support/process.ts';
import { exchangeRaw, PROXY_AUTH, startProxyGate } from '../support/proxy.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const SPAN = '00f067aa0ba902b7';
const CONTEXT = { traceparent: `00-${TRACE}-${SPAN}-01`, tracestate: 'rojo=1' };

const app = useApp();
let collector: Collector;
let gate: TestGate | undefined;
beforeEach(async () => {
  collector = await startCollector();
});
afterEach(async () => {
  await gate?.stop();
  gate = undefined;
  await collector.close();
});

const toTracing = (over: Sections = {}, otlp: Sections = {}): Sections => ({
  otlp: { url: collector.url, interval: '20ms', ...otlp },
  ...over,
});
const start = async (
  route: Sections = {},
  tracing: Sections = toTracing(),
  files: Record<string, string> = {},
): Promise<TestGate> => {
  gate = await startGate({ routes: [toRoute(app.port, { route })], tracing }, undefined, files);
  return gate;
};
const deliver = ({ port }: Pick<TestGate, 'port'>, headers: Record<string, string> = {}) => {
  const delivery = makeDelivery();
  return send(port, { ...delivery, headers: { ...delivery.headers, ...headers } });
};
const spansOf = (count: number): Promise<readonly CollectedSpan[]> =>
  until(() => (collector.spans.length >= count ? collector.spans : undefined));
const toServer = (spans: readonly CollectedSpan[]) => spans.find(({ kind }) => kind === 'SERVER') as CollectedSpan;
const toClient = (spans: readonly CollectedSpan[]) => spans.find(({ kind }) => kind === 'CLIENT') as CollectedSpan;

describe('a forwarded request', () => {
  test('has two spans, the second of which is the parent of the app', async () => {
    const { id } = makeDelivery();
    const running = await start();
    expect((await deliver(running)).status).toBe(200);
    const spans = await spansOf(2);
    const [server, client] = [toServer(spans), toClient(spans)];
    expect(app.received[0]?.headers['traceparent']).toBe(`00-${client.traceId}-${client.spanId}-03`);
    expect(client).toMatchObject({ traceId: server.traceId, parentSpanId: server.spanId, flags: 0x103, links: [] });
    expect(server).not.toHaveProperty('parentSpanId');
    expect(server.name).toBe('POST /hooks/billing');
    expect(server.attributes).toEqual({
      'http.request.method': 'POST',
      'http.route': '/hooks/billing',
      'http.response.status_code': 200,
      'url.scheme': 'http',
      'server.address': '127.0.0.1',
      'server.port': running.port,
      'sidegate.route': 'billing',
      'sidegate.decision': 'allow',
      'sidegate.reason': 'ok',
      'sidegate.request_id': app.received[0]?.headers['sidegate-request-id'],
    });
    expect(client.name).toBe('POST');
    expect(client.attributes).toEqual({
      'http.request.method': 'POST',
      'http.response.status_code': 200,
      'server.address': '127.0.0.1',
      'server.port': app.port,
    });
    expect([server.isError, client.isError]).toEqual([false, false]);
    expect(server.start <= client.start && client.start <= client.end && client.end <= server.end).toBe(true);
    expect(server.resource).toMatchObject({ 'service.name': 'sidegate', 'service.version': 'test' });
    const line = await until(() => running.log().find(({ msg }) => msg === 'request'));
    expect(line).toMatchObject({ trace_id: server.traceId, span_id: server.spanId });
    expect(collector.exports[0]?.text).not.toContain(id);
  });

  test('is linked to the trace of a verified third party', async () => {
    await deliver(await start(), CONTEXT);
    const server = toServer(await spansOf(2));
    expect(server.traceId).not.toBe(TRACE);
    expect(server).not.toHaveProperty('parentSpanId');
    expect(server.links).toEqual([{ traceId: TRACE, spanId: SPAN, traceState: 'rojo=1' }]);
    expect(app.received[0]?.headers['tracestate']).toBeUndefined();
  });

  test('continues the trace of a trusted caller, and so does the app', async () => {
    await deliver(await start({ trace: { trust: 'always' } }), CONTEXT);
    const spans = await spansOf(2);
    expect(toServer(spans)).toMatchObject({ traceId: TRACE, parentSpanId: SPAN, flags: 0x301, traceState: 'rojo=1', links: [] });
    expect(toClient(spans)).toMatchObject({ traceId: TRACE, parentSpanId: toServer(spans).spanId });
    expect(app.received[0]?.headers).toMatchObject({
      traceparent: `00-${TRACE}-${toClient(spans).spanId}-01`,
      tracestate: 'rojo=1',
    });
  });

  test('is not exported if its trusted caller does not record it', async () => {
    const running = await start({ trace: { trust: 'always' } });
    await deliver(running, { traceparent: `00-${TRACE}-${SPAN}-00` });
    expect(app.received[0]?.headers['traceparent']).toBe(`00-${TRACE}-${SPAN}-00`);
    await running.stop();
    gate = undefined;
    expect(collector.connections()).toBe(0);
  });

  test('is an error by its status if the app failed', async () => {
    app.handler = (_request, response) => response.writeHead(503).end();
    await deliver(await start());
    const spans = await spansOf(2);
    for (const span of spans) expect(span).toMatchObject({ isError: true, attributes: { 'error.type': '503' } });
    expect(toServer(spans).attributes).toMatchObject({ 'sidegate.decision': 'allow', 'sidegate.reason': 'ok' });
  });

  test('is an error by its reason if the app could not be reached', async () => {
    await deliver(await start({ upstream: 'http://127.0.0.1:1' }));
    const spans = await spansOf(2);
    expect(toServer(spans)).toMatchObject({
      isError: true,
      attributes: { 'error.type': 'upstream_connect', 'http.response.status_code': 503, 'sidegate.decision': 'allow' },
    });
    expect(toClient(spans)).toMatchObject({ isError: true, attributes: { 'error.type': 'connect' } });
  });

  test('is not an error of the gate if the app responds with 404, only of the request to it', async () => {
    app.handler = (_request, response) => response.writeHead(404).end();
    await deliver(await start());
    const spans = await spansOf(2);
    expect(toServer(spans)).toMatchObject({ isError: false });
    expect(toServer(spans).attributes).not.toHaveProperty('error.type');
    expect(toClient(spans)).toMatchObject({ isError: true, attributes: { 'error.type': '404' } });
  });
});

describe('a rejected request', () => {
  test('has a separate span without an error, whatever its trace headers, and contains none of its data', async () => {
    const running = await start();
    const answer = await send(running.port, {
      method: 'POST',
      path: '/hooks/billing',
      headers: {
        ...CONTEXT,
        'Content-Type': 'application/json',
        'Webhook-Id': 'canary-id',
        'Webhook-Timestamp': String(Math.floor(Date.now() / 1_000)),
        'Webhook-Signature': 'v1,Y2FuYXJ5LXNpZ25hdHVyZQAAAAAAAAAAAAAAAAAAAAA=',
        Authorization: 'Basic Y2FuYXJ5OmNhbmFyeQ==',
        Cookie: 'canary=1',
        'User-Agent': 'canary',
      },
      body: '{"canary":1}',
    });
    expect(answer.status).toBe(401);
    const [span] = await spansOf(1);
    expect(span).toMatchObject({
      kind: 'SERVER',
      isError: false,
      links: [],
      attributes: { 'http.response.status_code': 401, 'sidegate.decision': 'deny', 'sidegate.reason': 'bad_signature' },
    });
    expect(span?.traceId).not.toBe(TRACE);
    await running.stop();
    gate = undefined;
    expect(collector.spans).toHaveLength(1);
    for (const { text } of collector.exports) {
      expect(text).not.toMatch(/canary|Y2FuYXJ5/);
      expect(text).not.toContain(TRACE);
    }
  });

  test('is named by its method if no route matched, and never by an invented method', async () => {
    const { port } = await start();
    await send(port, { method: 'GET', path: '/secret-path?sig=canary' });
    await send(port, { method: 'BREW', path: '/secret-path' });
    const spans = await spansOf(2);
    expect(spans.map(({ name }) => name)).toEqual(['GET', 'HTTP']);
    expect(spans.map(({ attributes }) => attributes['http.request.method'])).toEqual(['GET', '_OTHER']);
    for (const { attributes } of spans) {
      expect(attributes).not.toHaveProperty('http.route');
      expect(attributes).not.toHaveProperty('sidegate.route');
    }
    expect(collector.exports.map(({ text }) => text).join('')).not.toMatch(/secret-path|canary|BREW/);
  });

  test('is linked to its caller if all are trusted, in a new trace', async () => {
    const { port } = await start({ trace: { trust: 'always' } });
    const headers = { ...CONTEXT, 'Content-Type': 'application/json' };
    expect((await send(port, { method: 'POST', headers, body: '{}' })).status).toBe(401);
    const [span] = await spansOf(1);
    expect(span?.traceId).not.toBe(TRACE);
    expect(span?.links).toEqual([{ traceId: TRACE, spanId: SPAN, traceState: 'rojo=1' }]);
  });
});

test('untrusted clients that request sampling change nothing', async () => {
  const running = await start({}, toTracing({ sampleRatio: 0 }));
  for (let i = 0; i < 50; i++) {
    const headers = { ...CONTEXT, 'Content-Type': 'application/json' };
    expect((await send(running.port, { method: 'POST', headers, body: '{}' })).status).toBe(401);
  }
  expect((await deliver(running, CONTEXT)).status).toBe(200);
  expect(app.received[0]?.headers['traceparent']).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-02$/);
  await running.stop();
  gate = undefined;
  expect(collector.connections()).toBe(0);
});

describe('OpenTelemetry’s environment variables', () => {
  const run = async (tracing: Sections) => {
    const env = { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, OTEL_RESOURCE_ATTRIBUTES: 'k8s.pod.name=billing-1' };
    const running = await startGateProcess({ routes: [toRoute(app.port)], tracing }, [], env);
    expect((await deliver(running)).status).toBe(200);
    running.child.kill('SIGTERM');
    expect(await running.exit).toBe(0);
  };

  test('enable nothing: no socket is opened, and the trace is still passed on', async () => {
    await run({});
    expect(collector.connections()).toBe(0);
    expect(app.received[0]?.headers['traceparent']).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-03$/);
  });

  test('supply settings that the config omits', async () => {
    await run({ otlp: {} });
    expect(collector.exports[0]?.path).toBe('/v1/traces');
    expect(toServer(collector.spans).resource).toMatchObject({ 'service.name': 'sidegate', 'k8s.pod.name': 'billing-1' });
  });
});

describe('a collector', () => {
  test('that is down causes a log line and a count, and delays no request', async () => {
    const { url } = collector;
    await collector.close();
    const running = await start({}, toTracing({}, { url }));
    for (let i = 0; i < 5; i++) expect((await deliver(running)).status).toBe(200);
    const line = await until(() => running.log().find(({ msg }) => msg === 'tracing_export_failed'));
    expect(line).toMatchObject({ level: 'warn', message: `${new URL(url).host}: the connection failed (ECONNREFUSED)` });
    await running.stop();
    gate = undefined;
    expect(running.log().filter(({ msg }) => msg === 'tracing_export_failed')).toHaveLength(1);
  });

  test('that never responds delays neither a request nor the shutdown', async () => {
    collector.answer = () => undefined;
    const running = await start();
    expect((await deliver(running)).status).toBe(200);
    await until(() => collector.exports.length === 1);
    expect((await deliver(running)).status).toBe(200);
    expect(await running.stop()).toBe(true);
    gate = undefined;
  });

  test('gets the remaining spans when the gate stops', async () => {
    const running = await start({}, toTracing({}, { interval: '1h' }));
    await deliver(running);
    expect(collector.connections()).toBe(0);
    await running.stop();
    gate = undefined;
    expect(collector.spans).toHaveLength(2);
  });

  test('has its exports counted', async () => {
    const running = await start();
    await deliver(running);
    await until(async () => (await running.metric('sidegate_trace_spans_total{outcome="exported"}')) === 2);
    for (const outcome of ['dropped', 'rejected', 'failed'])
      expect(await running.metrics()).toContain(`sidegate_trace_spans_total{outcome="${outcome}"} 0`);
  });

  test('is reached over https, with the CAs and the header of the config', async () => {
    const authority = makeAuthority(makeFolder(), 'authority');
    const safe = await startCollector(readPair(authority.issue('collector', 'IP:127.0.0.1')));
    const otlp = { url: safe.url, caFile: 'ca.pem', headers: { Authorization: { file: 'token' } } };
    const running = await start({}, toTracing({}, otlp), {
      'ca.pem': readFileSync(authority.ca, 'utf8'),
      token: 'Bearer canary-token\n',
    });
    await deliver(running);
    await until(() => safe.spans.length === 2);
    expect(safe.exports[0]).toMatchObject({ path: '/v1/traces', headers: { authorization: 'Bearer canary-token' } });
    expect(running.logText() + (await running.metrics())).not.toContain('canary-token');
    await running.stop();
    gate = undefined;
    await safe.close();
  });

  test('gets the spans of the forward proxy, with its destination', async () => {
    const allow = [`127.0.0.1:${app.port}`];
    gate = await startProxyGate({ allow, sections: { tracing: toTracing() } });
    await exchangeRaw(
      gate.proxyPort,
      `GET http://127.0.0.1:${app.port}/x HTTP/1.1\r\nHost: 127.0.0.1:${app.port}\r\n${PROXY_AUTH}traceparent: ${CONTEXT.traceparent}\r\nConnection: close\r\n\r\n`,
    );
    const spans = await spansOf(2);
    expect(toServer(spans)).toMatchObject({
      name: 'GET',
      traceId: TRACE,
      parentSpanId: SPAN,
      attributes: { 'sidegate.route': '_proxy' },
    });
    expect(toClient(spans)).toMatchObject({ attributes: { 'server.address': '127.0.0.1', 'server.port': app.port } });
    expect(app.received[0]?.headers['traceparent']).toBe(`00-${TRACE}-${toClient(spans).spanId}-01`);
  });
});
