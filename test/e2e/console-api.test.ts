import { writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { toWords } from '../../src/diagnostics/captured/curl.ts';
import { holdResponses } from '../support/app.ts';
import { runCommand } from '../support/cli.ts';
import { type Answer, send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { makeFolder, useApp } from '../support/fixtures.ts';
import { startGate, type TestGate, toRoute, until } from '../support/gate.ts';

const OTHER_SECRET = `whsec_${Buffer.alloc(24, 7).toString('base64')}`;
const app = useApp();
let gate: TestGate;
beforeEach(async () => {
  gate = await startGate({ routes: [toRoute(app.port, { webhook: { capture: 'failures' } })] });
});
afterEach(() => gate.stop());

const ask = (path: string, headers: Record<string, string> = {}, method = 'GET'): Promise<Answer> =>
  send(gate.adminPort, { method, path: `/api/v1${path}`, headers });
// biome-ignore lint/suspicious/noExplicitAny: the tests read members of many different bodies
const read = async (path: string): Promise<any> => JSON.parse((await ask(path)).text);

describe('the list of recent deliveries', () => {
  test('shows each request with its stages, newest first, and the stage that stopped it', async () => {
    const delivery = makeDelivery();
    await send(gate.port, delivery);
    await send(gate.port, delivery);
    await send(gate.port, makeDelivery({ secret: OTHER_SECRET }));
    await send(gate.port, makeDelivery({ timestamp: Math.floor(Date.now() / 1_000) - 3_600 }));
    await send(gate.port, { ...makeDelivery(), headers: { 'Content-Type': 'application/json' } });
    await send(gate.port, { ...makeDelivery(), path: '/elsewhere?token=marked' });
    const { data, cursor } = await read('/deliveries');
    const rows = data.map(({ outcome, stoppedBy, status, stages }: Record<string, unknown>) => [
      outcome,
      stoppedBy,
      status,
      (stages as { name: string; result: string }[]).map(({ name, result }) => `${name} ${result}`).join(', '),
    ]);
    expect(rows).toEqual([
      ['rejected', 'route', 404, 'arrived passed, route stopped, app not_reached'],
      [
        'rejected',
        'signature',
        401,
        'arrived passed, route passed, timestamp skipped, signature stopped, dedup not_reached, app not_reached',
      ],
      [
        'rejected',
        'timestamp',
        401,
        'arrived passed, route passed, timestamp stopped, signature not_reached, dedup not_reached, app not_reached',
      ],
      [
        'rejected',
        'signature',
        401,
        'arrived passed, route passed, timestamp passed, signature stopped, dedup not_reached, app not_reached',
      ],
      [
        'answered',
        'dedup',
        200,
        'arrived passed, route passed, timestamp passed, signature passed, dedup answered, app not_reached',
      ],
      ['forwarded', null, 200, 'arrived passed, route passed, timestamp passed, signature passed, dedup passed, app passed'],
    ]);
    expect(cursor).toBeNull();
    expect(data[0]).toMatchObject({ path: '/elsewhere', route: null, reason: 'route_not_found', event: null });
    expect(data[2]).toMatchObject({ skewMs: expect.toSatisfy((ms: number) => ms >= 3_600_000 && ms < 3_700_000) });
    expect(data[5]).toMatchObject({
      event: delivery.id,
      key: 'current',
      path: '/hooks/billing',
      client: '127.0.0.1',
      bytesIn: delivery.body.length,
    });
  });

  test('filters by route, outcome, ID and time, and returns pages', async () => {
    const delivery = makeDelivery();
    for (let i = 0; i < 5; i++) await send(gate.port, i === 0 ? delivery : makeDelivery());
    await send(gate.port, { ...makeDelivery(), path: '/elsewhere' });
    const ids = async (query: string): Promise<string[]> =>
      (await read(`/deliveries?${query}`)).data.map(({ id }: { id: string }) => id);
    const all = await ids('');
    expect(all).toHaveLength(6);
    expect(await ids('route=_unmatched')).toEqual(all.slice(0, 1));
    expect(await ids('route=billing')).toEqual(all.slice(1));
    expect(await ids('outcome=rejected&outcome=failed')).toEqual(all.slice(0, 1));
    expect(await ids(`id=${delivery.id}`)).toEqual(all.slice(5));
    expect(await ids(`id=${all[2]}`)).toEqual([all[2]]);
    expect(await ids('from=2099-01-01T00:00:00Z')).toEqual([]);
    expect(await ids('to=2020-01-01T00:00:00Z')).toEqual([]);
    const pages: string[] = [];
    for (let cursor: string | null = ''; cursor !== null; ) {
      const page: { data: { id: string }[]; cursor: string | null } = await read(
        `/deliveries?limit=4${cursor === '' ? '' : `&cursor=${cursor}`}`,
      );
      pages.push(...page.data.map(({ id }) => id));
      cursor = page.cursor;
    }
    expect(pages).toEqual(all);
    expect(await ids('status=404')).toEqual(all.slice(0, 1));
    expect(await ids('status=2xx&reason=ok&client=127.0.0.1')).toEqual(all.slice(1));
    expect([await ids('client=127.0.0.2'), await ids('type=push'), await ids('last=0s')]).toEqual([[], [], []]);
    expect(await ids('last=15m')).toEqual(all);
    for (const wrong of ['status=4x', 'last=soon', 'limit=0', 'cursor=x', 'outcome=x', 'rout=a', 'from=yesterday'])
      expect([wrong, (await ask(`/deliveries?${wrong}`)).status]).toEqual([wrong, 422]);
  });
});

test('shows the time that a client claims to have signed, and that no key verified it', async () => {
  await gate.stop();
  const trial = { match: { path: '/hooks/trial' }, route: { name: 'trial', mode: 'observe' } };
  gate = await startGate({ routes: [toRoute(app.port), toRoute(app.port, trial)] });
  const forged = (skew: number) => makeDelivery({ secret: OTHER_SECRET, timestamp: Math.floor(Date.now() / 1_000) + skew });
  await send(gate.port, forged(-60));
  await send(gate.port, { ...forged(60), path: '/hooks/trial' });
  await send(gate.port, makeDelivery());
  const { data } = await read('/deliveries');
  const toTimestamp = ({ stages }: { stages: { name: string }[] }) => stages.find(({ name }) => name === 'timestamp');
  expect(toTimestamp(data[0])).toEqual({ name: 'timestamp', result: 'passed', detail: expect.stringMatching(/^[01] s old$/) });
  expect(toTimestamp(data[1])).toMatchObject({
    result: 'passed',
    detail: expect.stringMatching(/^(?:59|60) s ahead, not verified$/),
  });
  expect(toTimestamp(data[2])).toMatchObject({ result: 'passed', detail: expect.stringMatching(/^6[01] s old, not verified$/) });
  expect(data[2]).toMatchObject({ key: null, skewMs: expect.toSatisfy((ms: number) => ms >= 60_000 && ms < 62_000) });
  // Any client could fill the histogram.
  const { routes } = await read('/overview');
  const counts = (index: number) =>
    routes[index].recent.skew.reduce((sum: number, { count }: { count: number }) => sum + count, 0);
  expect([counts(0), counts(1)]).toEqual([1, 0]);
});

describe('the detail of a delivery', () => {
  test('shows headers without secrets, the finding of the analysis, and commands', async () => {
    const delivery = makeDelivery({ secret: OTHER_SECRET });
    await send(gate.port, { ...delivery, headers: { ...delivery.headers, 'X-Note': 'marked', 'User-Agent': "it's" } });
    await until(() => gate.logText().includes('signature_explained'));
    const { data } = await read('/deliveries');
    const detail = await read(`/deliveries/${data[0].id}`);
    expect(detail).toMatchObject({ ...data[0], port: 'data', isUnchecked: false });
    expect(detail.findings.length).toBeGreaterThan(0);
    const headers = Object.fromEntries(detail.headers.map(({ name, value }: { name: string; value: string }) => [name, value]));
    expect(headers).toMatchObject({ 'x-note': null, 'webhook-signature': null, 'webhook-id': delivery.id, 'user-agent': "it's" });
    expect(detail.commands.repeat).toBe(
      "sidegate send --config gate.yaml --route 'billing' 'http://localhost:8080/hooks/billing' body",
    );
    expect(detail.commands.explain).toBe(
      `curl 'http://127.0.0.1:${gate.adminPort}/captures/${data[0].id}' | sidegate explain --config gate.yaml --route 'billing' -`,
    );
    expect(JSON.stringify(detail)).not.toContain('marked');
  });

  test('has a command that repeats the request: with the same ID if the app failed, and by curl if nothing signed it', async () => {
    app.handler = (_request, response) => response.writeHead(500).end();
    const delivery = makeDelivery();
    await send(gate.port, delivery);
    await send(gate.port, { method: 'GET', path: '/elsewhere', headers: { 'User-Agent': "it's" } });
    const [byCurl, bySend] = await Promise.all(
      (await read('/deliveries')).data.map(async ({ id }: { id: string }) => (await read(`/deliveries/${id}`)).commands.repeat),
    );
    expect(byCurl).toContain(`--header 'user-agent: it'\\''s'`);
    app.handler = (_request, response) => response.end();
    const folder = makeFolder();
    writeFileSync(join(folder, 'body'), delivery.body);
    const words = toWords(bySend.replace('gate.yaml', gate.file).replace('localhost:8080', `127.0.0.1:${gate.port}`));
    expect(await runCommand([...words.slice(1, -1), join(folder, 'body')])).toMatchObject({ code: 0 });
    expect((await read(`/deliveries?id=${delivery.id}`)).data.map(({ outcome }: { outcome: string }) => outcome)).toEqual([
      'forwarded',
      'failed',
    ]);
  });

  test('is 404 for a request that the journal does not have, or for another path', async () => {
    expect((await ask('/deliveries/00000000-0000-4000-8000-000000000000')).status).toBe(404);
    expect((await ask('/deliveries/x')).status).toBe(404);
    expect(await ask('/deliveries', {}, 'DELETE')).toMatchObject({ status: 405, headers: { allow: 'GET, HEAD' } });
  });
});

describe('the overview', () => {
  test('shows counts, times, skew and keys per route, the config and the store', async () => {
    await send(gate.port, makeDelivery());
    await send(gate.port, makeDelivery({ secret: OTHER_SECRET }));
    await send(gate.port, { ...makeDelivery(), path: '/elsewhere' });
    gate.writeConfig({ routes: 7 });
    await gate.gate.reload();
    const overview = await read('/overview');
    expect(overview).toMatchObject({
      store: { kind: 'memory', isUp: true },
      journal: { size: 1_000, kept: 3, recorded: 3 },
      unmatched: 1,
      config: { hash: expect.any(String), lastReload: { isSuccessful: false, problems: [expect.stringContaining('routes')] } },
    });
    const [route] = overview.routes;
    expect(route).toMatchObject({
      name: 'billing',
      mode: 'enforce',
      sinceStart: { accepted: 1, rejected: { bad_signature: 1 }, observed: {} },
      lastMinutes: { requests: 2, failed: 0, rejected: 1 },
      lastAt: expect.any(String),
      recent: { requests: 2, outcomes: { forwarded: 1, rejected: 1 }, rejected: { bad_signature: 1 } },
      keys: [{ name: 'current', matches: 1, lastUsed: expect.any(String) }],
    });
    expect(route.recent.appMs.p99).toBeGreaterThan(0);
    expect(route.recent.overheadMs.p50).toBeGreaterThan(0);
    expect(route.recent.skew.reduce((sum: number, { count }: { count: number }) => sum + count, 0)).toBe(1);
    expect(route.recent.perSecond).toBeGreaterThan(0);
  });
});

test('a request that was accepted and gets no slot for the app failed, in the list and in the overview', async () => {
  await gate.stop();
  gate = await startGate({
    limits: { maxInFlight: 1, maxInFlightPerClient: 1, maxQueued: 0 },
    routes: [toRoute(app.port)],
  });
  const release = holdResponses(app);
  const first = send(gate.port, makeDelivery());
  await until(() => app.received.length === 1);
  expect((await send(gate.port, makeDelivery())).status).toBe(503);
  const { data } = await read('/deliveries?outcome=failed');
  expect(data.map(({ status, stoppedBy }: Record<string, unknown>) => [status, stoppedBy])).toEqual([[503, 'app']]);
  expect((await read('/overview')).routes[0].lastMinutes).toMatchObject({ failed: 1, rejected: 0 });
  release();
  expect((await first).status).toBe(200);
});

/** Opens the stream; `text` is what arrived so far. */
async function openStream(
  headers: Record<string, string> = {},
  query = '',
): Promise<{ status: number; text: () => string; close(): void }> {
  const outgoing = request({
    host: '127.0.0.1',
    port: gate.adminPort,
    path: `/api/v1/deliveries/stream${query}`,
    headers,
    agent: false,
  });
  onTestFinished(() => void outgoing.destroy());
  return new Promise((resolve, reject) => {
    outgoing.on('error', reject);
    outgoing.on('response', (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => {
        text += chunk;
      });
      response.on('error', () => undefined);
      resolve({ status: response.statusCode ?? 0, text: () => text, close: () => outgoing.destroy() });
    });
    outgoing.end();
  });
}

describe('the stream', () => {
  test('sends each request as an event once it has finished, and continues after Last-Event-ID', async () => {
    const stream = await openStream();
    await send(gate.port, makeDelivery());
    await until(() => stream.text().includes('data: {"id"'));
    const [, id = ''] = /^id: (\S+)$/m.exec(stream.text()) ?? [];
    stream.close();
    const missed = makeDelivery();
    await send(gate.port, missed);
    const again = await openStream({ 'Last-Event-ID': id });
    await until(() => again.text().includes(missed.id));
    expect(again.text().match(/^id: /gm)).toHaveLength(1);
    const other = await openStream({ 'Last-Event-ID': '00000000-7' });
    await until(() => other.text().includes('event: reset'));
  });

  test('sends only what its filters select', async () => {
    const stream = await openStream({}, '?outcome=rejected');
    await send(gate.port, makeDelivery());
    await send(gate.port, { ...makeDelivery(), path: '/elsewhere' });
    await until(() => stream.text().includes('data: {"id"'));
    expect(stream.text().match(/^id: /gm)).toHaveLength(1);
  });

  test('has at most 8 clients, so that probes always get a connection', async () => {
    const streams = await Promise.all(Array.from({ length: 8 }, () => openStream()));
    expect(streams.map(({ status }) => status)).toEqual(Array(8).fill(200));
    expect((await ask('/deliveries/stream')).status).toBe(503);
    expect((await fetch(`http://127.0.0.1:${gate.adminPort}/healthz`)).status).toBe(200);
    streams[0]?.close();
    await until(async () => {
      const stream = await openStream();
      stream.close();
      return stream.status === 200;
    });
  });
});
