import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp, useGate } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, until } from '../support/gate.ts';
import { exchangeRaw, PROXY_AUTH, startProxyGate } from '../support/proxy.ts';
import { makeEntry, toBasic } from '../support/users.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const SPAN = '00f067aa0ba902b7';
const TRACEPARENT = `00-${TRACE}-${SPAN}-01`;
const CONTEXT = { traceparent: TRACEPARENT, tracestate: 'rojo=1' };
const OTHERS = { baggage: 'user=eve', b3: `${TRACE}-${SPAN}-1`, 'X-B3-Sampled': '1', 'x-datadog-sampling-priority': '2' };
const OWN = /^00-(?<trace>[0-9a-f]{32})-(?<span>[0-9a-f]{16})-03$/;

const TRUSTS = ['none', 'verified', 'always'] as const;
type Trust = (typeof TRUSTS)[number];

/** A route for each trust and each way in. */
function toRoutes(port: number): Sections[] {
  const upstream = `http://127.0.0.1:${port}`;
  return TRUSTS.flatMap((trust) => [
    {
      name: `hook-${trust}`,
      match: { path: `/hook/${trust}` },
      upstream,
      trace: { trust },
      webhook: { keys: [{ name: 'current', secret: { file: 'secret' } }] },
    },
    {
      name: `watched-${trust}`,
      match: { path: `/watched/${trust}` },
      mode: 'observe',
      upstream,
      trace: { trust },
      webhook: { keys: [{ name: 'current', secret: { file: 'secret' } }] },
    },
    { name: `open-${trust}`, match: { path: `/open/${trust}` }, upstream, trace: { trust }, allow: 'anyone' },
    {
      name: `user-${trust}`,
      match: { path: `/user/${trust}` },
      upstream,
      trace: { trust },
      basic: { realm: 'r', users: { file: 'users' }, requireTls: false },
    },
  ]);
}

/** How a request comes in, and whether a gate vouches for it. */
const WAYS = [
  ['a signed delivery', 'hook', true],
  ['a user with a password', 'user', true],
  ['an untrusted client on an open route', 'open', false],
  ['an untrusted client on an observed route', 'watched', false],
] as const;
type Way = (typeof WAYS)[number][1];

const app = useApp();

function sendBy(gate: TestGate, way: Way, trust: Trust, headers: Record<string, string>) {
  const path = `/${way}/${trust}`;
  if (way === 'user')
    return send(gate.port, { method: 'GET', path, headers: { ...toBasic('Aladdin', 'open sesame'), ...headers } });
  if (way === 'hook') {
    const delivery = makeDelivery();
    return send(gate.port, { ...delivery, path, headers: { ...delivery.headers, ...headers } });
  }
  return send(gate.port, { method: 'POST', path, headers: { 'Content-Type': 'application/json', ...headers }, body: '{}' });
}

/** What the app was told of any trace. */
function toldApp(): Record<string, unknown> {
  const { headers = {} } = app.received.at(-1) ?? {};
  const names = ['traceparent', 'tracestate', ...Object.keys(OTHERS).map((name) => name.toLowerCase())];
  return Object.fromEntries(names.flatMap((name) => (headers[name] === undefined ? [] : [[name, headers[name]]])));
}

/** The log line of the last request that reached the app. */
function lineOf(gate: TestGate): Promise<Record<string, unknown>> {
  const id = app.received.at(-1)?.headers['sidegate-request-id'];
  return until(() => gate.log().find(({ requestId, msg }) => requestId === id && msg === 'request'));
}

const lowerOthers = Object.fromEntries(Object.entries(OTHERS).map(([name, value]) => [name.toLowerCase(), value]));
const cases = WAYS.flatMap(([title, way, isVerified]) => TRUSTS.map((trust) => [title, trust, way, isVerified] as const));

describe('a gate without tracing', () => {
  const gate = useGate(() =>
    startGate({ routes: toRoutes(app.port) }, undefined, { users: makeEntry('Aladdin', 'open sesame') }),
  );

  test.each(cases)('passes on the trace of %s with trust %s only if that is always', async (_, trust, way) => {
    expect((await sendBy(gate, way, trust, { ...CONTEXT, ...OTHERS })).status).toBe(200);
    expect(toldApp()).toEqual(trust === 'always' ? { ...CONTEXT, ...lowerOthers } : {});
    const line = await lineOf(gate);
    expect(line?.['trace_id']).toBe(trust === 'always' ? TRACE : undefined);
    expect(line?.['span_id']).toBe(trust === 'always' ? SPAN : undefined);
  });

  test('starts no trace', async () => {
    await sendBy(gate, 'hook', 'always', {});
    expect(toldApp()).toEqual({});
    expect(await lineOf(gate)).not.toHaveProperty('trace_id');
  });

  test('drops an invalid traceparent, and its tracestate', async () => {
    await sendBy(gate, 'hook', 'always', { traceparent: TRACEPARENT.toUpperCase(), tracestate: 'a=1' });
    expect(toldApp()).toEqual({});
  });
});

describe('a gate that takes part in traces without a collector', () => {
  let gate: TestGate;
  beforeAll(async () => {
    const users = makeEntry('Aladdin', 'open sesame');
    gate = await startGate({ routes: toRoutes(app.port), tracing: {}, authz: { address: '127.0.0.1:0' } }, undefined, { users });
  });
  afterAll(() => gate.stop());

  test.each(cases)(
    '%s with trust %s: continues its trace only if that is always, else starts a new one',
    async (_, trust, way) => {
      await sendBy(gate, way, trust, { ...CONTEXT, ...OTHERS });
      const told = toldApp();
      const line = await lineOf(gate);
      if (trust === 'always') {
        expect(told).toEqual({ ...CONTEXT, ...lowerOthers });
        expect(line).toMatchObject({ trace_id: TRACE, span_id: SPAN });
        return;
      }
      expect(Object.keys(told)).toEqual(['traceparent']);
      const { trace, span } = OWN.exec(String(told['traceparent']))?.groups ?? {};
      expect(trace).not.toBe(TRACE);
      expect(line).toMatchObject({ trace_id: trace, span_id: span });
    },
  );

  test('starts a trace if a caller sends none, with any trust', async () => {
    for (const trust of TRUSTS) {
      await sendBy(gate, 'hook', trust, { tracestate: 'a=1' });
      expect(Object.keys(toldApp())).toEqual(['traceparent']);
      expect(toldApp()['traceparent']).toMatch(OWN);
    }
  });

  test('records the new trace of a rejected request only in the log and the journal', async () => {
    for (const trust of TRUSTS) {
      const delivery = makeDelivery();
      const headers = { ...delivery.headers, ...CONTEXT, 'Webhook-Signature': 'v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=' };
      const answer = await send(gate.port, { ...delivery, path: `/hook/${trust}`, headers });
      expect([answer.status, answer.code]).toEqual([401, 'signature_mismatch']);
      expect(Object.keys(answer.headers).filter((name) => name.startsWith('trace'))).toEqual([]);
      const line = gate.log().find(({ requestId }) => answer.text.includes(String(requestId)));
      expect(line?.['trace_id']).toMatch(/^[0-9a-f]{32}$/);
      expect(line?.['trace_id']).not.toBe(TRACE);
      const journal = await (await fetch(`http://127.0.0.1:${gate.adminPort}/journal?limit=1`)).text();
      expect(journal).toContain(String(line?.['trace_id']));
    }
    expect(app.received).toHaveLength(0);
  });

  test('trusts a duplicate like any verified delivery', async () => {
    const delivery = makeDelivery();
    const request = { ...delivery, path: '/hook/always', headers: { ...delivery.headers, ...CONTEXT } };
    await send(gate.port, request);
    expect((await send(gate.port, request)).code).toBe('duplicate');
    const line = await until(() => gate.log().find(({ code }) => code === 'duplicate'));
    expect(line['trace_id']).toBe(TRACE);
  });

  test('rejects a Connection option that would remove the trace', async () => {
    const answer = await sendBy(gate, 'open', 'always', { ...CONTEXT, Connection: 'traceparent' });
    expect(answer.status).toBe(400);
  });

  test('responds to an auth request with the trace that the app should continue', async () => {
    const ask = (trust: Trust, more: Record<string, string> = {}) =>
      send(gate.authzPort, {
        method: 'GET',
        path: '/',
        headers: {
          'X-Forwarded-Method': 'GET',
          'X-Forwarded-Proto': 'http',
          'X-Forwarded-Host': 'app.example',
          'X-Forwarded-Uri': `/user/${trust}`,
          'X-Forwarded-For': '203.0.113.9',
          ...CONTEXT,
          ...toBasic('Aladdin', 'open sesame'),
          ...more,
        },
      });
    const own = await ask('verified');
    expect(own.status).toBe(200);
    expect(own.headers['traceparent']).toMatch(OWN);
    expect(own.headers['traceparent']).not.toContain(TRACE);
    expect(own.headers['tracestate']).toBeUndefined();
    const line = await until(() => gate.log().find(({ port }) => port === 'authz'));
    expect(line['trace_id']).toBe(String(own.headers['traceparent']).slice(3, 35));
    expect((await ask('always')).headers).toMatchObject(CONTEXT);
    const refused = await ask('always', toBasic('Aladdin', 'wrong'));
    expect([refused.status, refused.headers['traceparent']]).toEqual([401, undefined]);
  });
});

describe('the forward proxy', () => {
  const ask = async (proxy: Sections, sections: Sections, headers: Record<string, string>) => {
    const allow = [`127.0.0.1:${app.port}`];
    const gate = await startProxyGate({ allow, proxy, sections });
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    const url = `http://127.0.0.1:${app.port}/x`;
    const text = await exchangeRaw(
      gate.proxyPort,
      `GET ${url} HTTP/1.1\r\nHost: 127.0.0.1:${app.port}\r\n${PROXY_AUTH}${lines.join('')}Connection: close\r\n\r\n`,
    );
    expect(text).toMatch(/^HTTP\/1\.1 200 /);
    await gate.stop();
    return toldApp();
  };

  test('passes on the traces of its clients by default, because they are trusted', async () => {
    expect(await ask({}, {}, { ...CONTEXT, ...OTHERS })).toEqual({ ...CONTEXT, ...lowerOthers });
  });

  test('sends no trace to destinations if the config says so', async () => {
    expect(await ask({ trace: { trust: 'none' } }, {}, { ...CONTEXT, ...OTHERS })).toEqual({});
  });

  test('starts a trace if tracing is enabled and its client sends none', async () => {
    expect((await ask({}, { tracing: {} }, {}))['traceparent']).toMatch(OWN);
  });
});
