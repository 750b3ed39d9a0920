import { createHmac } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type OutgoingHttpHeaders, request as openRequest } from 'node:http';
import { networkInterfaces } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../src/core/clock.ts';
import { holdResponses } from '../support/app.ts';
import { type Answer, send, sendRaw } from '../support/client.ts';
import { makeDelivery, SECRET } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { type RedisServer, startRedis } from '../support/redis.ts';
import { run } from '../support/run.ts';

const TOKEN = '0123456789abcdef0123456789abcdef';
const OTHER_TOKEN = 'fedcba9876543210fedcba9876543210';
const OTHER_SECRET = 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD';
const HUB_SECRET = "It's a Secret to Everybody";
const WITH_TOKEN = { address: '127.0.0.1:0', token: { secret: { file: 'token' } } };
const HOUR = 3_600_000;
const FORGET = '/routes/billing/forget';

const app = useApp();
let gate: TestGate;

afterEach(() => gate.stop());

async function start(sections: Sections = {}): Promise<void> {
  gate = await startGate({ routes: [toRoute(app.port)], ...sections }, undefined, {
    token: `${TOKEN}\n`,
    hub: HUB_SECRET,
  });
}

const ask = (path: string, options: { method?: string; headers?: OutgoingHttpHeaders; body?: string } = {}): Promise<Answer> =>
  send(gate.adminPort, { method: 'GET', path, ...options });

const forget = (id: string, headers: OutgoingHttpHeaders = {}): Promise<Answer> =>
  ask(FORGET, { method: 'POST', headers: { 'Content-Type': 'application/json', ...headers }, body: JSON.stringify({ id }) });

interface JournalAnswer {
  readonly size: number;
  readonly recorded: number;
  readonly entries: readonly Record<string, unknown>[];
}
const journal = async (query = ''): Promise<JournalAnswer> => JSON.parse((await ask(`/journal${query}`)).text) as JournalAnswer;

describe('the journal', () => {
  test('shows forwarded and rejected requests, newest first, like the log', async () => {
    await start();
    const delivery = makeDelivery();
    await send(gate.port, delivery);
    await send(gate.port, delivery);
    await send(gate.port, makeDelivery({ secret: OTHER_SECRET }));
    await send(gate.port, { path: '/elsewhere' });
    const { size, recorded, entries } = await journal();
    expect([size, recorded]).toEqual([1_000, 4]);
    expect(entries.map(({ route, code, reason, status }) => [route, code, reason, status])).toEqual([
      [null, 'route_not_found', 'route_not_found', 404],
      ['billing', 'signature_mismatch', 'bad_signature', 401],
      ['billing', 'duplicate', 'duplicate', 200],
      ['billing', 'forwarded', 'ok', 200],
    ]);
    expect(entries[3]).toMatchObject({ key: 'current', webhookId: delivery.id, client: '127.0.0.1', method: 'POST' });
    expect(Date.parse(String(entries[3]?.['at']))).toBeGreaterThan(Date.now() - 60_000);
    const logged = gate.log().filter(({ msg }) => msg === 'request');
    expect(entries.map(({ requestId, durationMs }) => [requestId, durationMs])).toEqual(
      logged.map(({ requestId, durationMs }) => [requestId, durationMs]).reverse(),
    );
    // In milliseconds, to the microsecond.
    const times = logged.flatMap(({ durationMs, upstreamMs = 0 }) => [String(durationMs), String(upstreamMs)]);
    expect(times).toEqual(times.map(() => expect.stringMatching(/^\d+(?:\.\d{1,3})?$/)));
  });

  test('shows no secrets, bodies or values of unverified headers', async () => {
    await start({ admin: WITH_TOKEN });
    const marked = makeDelivery({ body: '{"card":"marked-body"}' });
    await send(gate.port, { ...marked, headers: { ...marked.headers, 'X-Note': 'marked-header', Cookie: 'marked-cookie' } });
    const forged = makeDelivery({ id: 'marked-unverified-id', secret: OTHER_SECRET });
    await send(gate.port, { ...forged, headers: { ...forged.headers, Authorization: 'Basic bWFya2VkOm1hcmtlZA==' } });
    await send(gate.port, { ...makeDelivery(), path: '/hooks/billing?marked-query' });
    const { text } = await ask('/journal', { headers: { Authorization: `Bearer ${TOKEN}` } });
    expect((JSON.parse(text) as JournalAnswer).entries).toHaveLength(3);
    for (const hidden of ['marked', 'bWFya2Vk', marked.headers['Webhook-Signature'] ?? '', SECRET.slice(6), TOKEN])
      expect(text).not.toContain(hidden);
  });

  test('filters by the query, and reports which filters exist', async () => {
    await start({ journal: { size: 3 } });
    for (const path of ['/hooks/billing', '/elsewhere', '/hooks/billing', '/elsewhere'])
      await send(gate.port, { ...makeDelivery(), path });
    expect(await journal()).toMatchObject({ size: 3, recorded: 4, entries: { length: 3 } });
    expect((await journal('?route=billing')).entries.map(({ route }) => route)).toEqual(['billing']);
    expect((await journal('?route=_unmatched&limit=1')).entries.map(({ code }) => code)).toEqual(['route_not_found']);
    expect((await journal('?code=forwarded')).entries).toHaveLength(1);
    const [{ requestId } = {}] = (await journal('?reason=ok')).entries;
    expect((await journal(`?requestId=${requestId}`)).entries).toHaveLength(1);
    for (const [query, problem] of [
      ['limit=0', 'limit must be an integer from 1 to 3'],
      ['limit=4', 'limit must be an integer from 1 to 3'],
      ['limit=x', 'limit must be an integer from 1 to 3'],
      ['code=forwardd', 'unknown code forwardd; the codes are route_not_found'],
      ['codes=forwarded', 'unknown filter codes; the filters are route, code'],
      ['route=a&route=b', 'the filter route is repeated'],
    ] as const) {
      const answer = await ask(`/journal?${query}`);
      expect([answer.status, answer.text]).toEqual([400, expect.stringContaining(problem)]);
    }
  });

  test('does not exist if it is disabled', async () => {
    await start({ journal: { size: 0 } });
    await send(gate.port, makeDelivery());
    expect(await ask('/journal')).toMatchObject({ status: 404, text: 'the journal is disabled: journal.size is 0\n' });
  });

  test('also shows the decisions of the forward proxy and the forward-auth endpoint', async () => {
    const user = { realm: 'egress', users: { file: 'token' } };
    gate = await startGate(
      {
        proxy: { address: '127.0.0.1:0', requireTls: false, basic: user },
        authz: { address: '127.0.0.1:0' },
        routes: [toRoute(app.port)],
      },
      undefined,
      { token: 'user:$2y$10$EixZaYVK1fsbw1ZfbX3OXePaWxn96p36WQoeG6Lruj3vjPGga31lW\n' },
    );
    await sendRaw(gate.proxyPort, 'CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\nConnection: close\r\n\r\n');
    await send(gate.authzPort, { method: 'GET', path: '/', headers: { Connection: 'close' } });
    const { entries } = await journal();
    expect(entries.map(({ route, port, code }) => [route, port, code])).toEqual([
      [null, 'authz', 'original_request_unclear'],
      ['_proxy', undefined, 'proxy_credentials_required'],
    ]);
  });
});

describe('an authorized caller', () => {
  const PROTECTED = [
    ['GET', '/journal'],
    ['GET', '/keys'],
    ['POST', FORGET],
  ] as const;

  test('is only one with the token, if a token is set', async () => {
    await start({ admin: WITH_TOKEN });
    for (const [method, path] of PROTECTED) {
      const none = await ask(path, { method });
      expect([none.status, none.headers['www-authenticate']]).toEqual([401, 'Bearer realm="sidegate-admin"']);
      const wrong = await ask(path, { method, headers: { Authorization: `Bearer ${OTHER_TOKEN}` } });
      expect([wrong.status, wrong.headers['www-authenticate']]).toEqual([
        401,
        'Bearer realm="sidegate-admin", error="invalid_token"',
      ]);
      expect((await ask(path, { method, headers: { Authorization: `Bearer ${TOKEN}` } })).status).not.toBe(401);
    }
    for (const path of ['/metrics', '/healthz', '/readyz', '/identity/jwks.json']) expect((await ask(path)).status).toBe(200);
    expect(await gate.metric('sidegate_admin_denied_total{reason="no_token"}')).toBe(3);
    expect(await gate.metric('sidegate_admin_denied_total{reason="wrong_token"}')).toBe(3);
    expect(gate.logText()).not.toContain(TOKEN);
  });

  test('needs the rotated token as soon as its file changes; a broken file keeps the previous one', async () => {
    await start({ admin: WITH_TOKEN });
    const status = async (token: string): Promise<number> =>
      (await ask('/keys', { headers: { Authorization: `Bearer ${token}` } })).status;
    expect(await status(TOKEN)).toBe(200);
    writeFileSync(join(gate.folder, 'token'), 'short');
    await until(() => gate.log().some(({ msg }) => msg === 'admin_token_reload_failed'));
    expect(await status(TOKEN)).toBe(200);
    writeFileSync(join(gate.folder, 'token'), OTHER_TOKEN);
    await until(() => gate.log().some(({ msg }) => msg === 'admin_token_reloaded'));
    expect([await status(OTHER_TOKEN), await status(TOKEN)]).toEqual([200, 401]);
    expect(gate.logText()).not.toContain('short');
  });

  test('needs the token that was rotated together with a change of the config', async () => {
    await start({ admin: WITH_TOKEN });
    writeFileSync(join(gate.folder, 'token'), OTHER_TOKEN);
    await gate.gate.reload();
    const status = async (token: string): Promise<number> =>
      (await ask('/keys', { headers: { Authorization: `Bearer ${token}` } })).status;
    expect([await status(OTHER_TOKEN), await status(TOKEN)]).toEqual([200, 401]);
  });

  test('is one on this machine if no token is set, at any address of the port', async (context) => {
    const outside = Object.values(networkInterfaces())
      .flatMap((addresses) => addresses ?? [])
      .find(({ family, internal }) => family === 'IPv4' && !internal)?.address;
    if (outside === undefined) return context.skip('this machine has no address but loopback');
    await start({ admin: { address: '0.0.0.0:0' } });
    const askBy = (host: string, path: string): Promise<{ status: number; text: string }> =>
      new Promise((done, fail) => {
        const outgoing = openRequest({ host, port: gate.adminPort, path, agent: false }, (incoming) => {
          let text = '';
          incoming.setEncoding('utf8').on('data', (chunk: string) => {
            text += chunk;
          });
          incoming.on('end', () => done({ status: incoming.statusCode ?? 0, text }));
        });
        outgoing.on('error', fail);
        outgoing.end();
      });
    // Called by its own address, a machine calls from that address: it looks like any other on the network.
    expect((await askBy(outside, '/healthz')).status).toBe(200);
    expect(await askBy(outside, '/journal')).toEqual({
      status: 403,
      text: 'only requests from this machine are accepted: use kubectl exec or port-forward, or set admin.token\n',
    });
    expect((await askBy('127.0.0.1', '/journal')).status).toBe(200);
    expect(await gate.metric('sidegate_admin_denied_total{reason="not_loopback"}')).toBe(1);
  });

  test('is not a web page whose host name resolves to this machine', async () => {
    await start();
    for (const [method, path] of PROTECTED) {
      const answer = await ask(path, { method, headers: { Host: 'rebound.example:9090' } });
      expect([answer.status, answer.headers['access-control-allow-origin']]).toEqual([403, undefined]);
    }
    const twice = await sendRaw(
      gate.adminPort,
      'GET /journal HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: rebound.example\r\nConnection: close\r\n\r\n',
    );
    expect(twice).toMatch(/^HTTP\/1\.1 40[03] /);
    expect((await ask('/healthz', { headers: { Host: 'rebound.example' } })).status).toBe(200);
  });
});

describe('the admin port', () => {
  test('lists its endpoints and their methods', async () => {
    await start();
    const unknown = await ask('/none');
    expect([unknown.status, unknown.text]).toEqual([
      404,
      'not found; the endpoints are /metrics, /healthz, /readyz, /identity/jwks.json, /prestop, /journal, /journal/attempts, /keys, /captures, /captures/*, /handshakes, /routes/*/forget\n',
    ]);
    for (const [method, path, allow] of [
      ['GET', FORGET, 'POST'],
      ['DELETE', FORGET, 'POST'],
      ['POST', '/journal', 'GET, HEAD'],
      ['POST', '/metrics', 'GET, HEAD'],
    ] as const) {
      const answer = await ask(path, { method });
      expect([answer.status, answer.headers.allow]).toEqual([405, allow]);
    }
    const head = await ask('/journal', { method: 'HEAD' });
    expect([head.status, head.body.length, head.headers['content-type']]).toEqual([200, 0, 'application/json']);
    for (const path of ['/routes/billing/forget/', '/routes//forget', '/journal/', '//journal', '/JOURNAL'])
      expect((await ask(path, { method: 'POST' })).status).toBe(404);
  });

  test('does not start with a token that is too short, missing, or in the config itself', async () => {
    await start();
    const begin = (token: unknown): Promise<TestGate> =>
      startGate({ admin: { address: '127.0.0.1:0', token }, routes: [toRoute(app.port)] }, undefined, { weak: 'hunter2' });
    await expect(begin({ secret: { file: 'weak' } })).rejects.toThrow('the token has 7 bytes; it needs at least 16');
    await expect(begin({ secret: { file: 'none' } })).rejects.toThrow('does not exist');
    await expect(begin({ secret: 'hunter2-hunter2-hunter2' })).rejects.toThrow('secrets cannot be written in the config itself');
  });
});

test('the curl commands of docs/admin.md work unchanged', async () => {
  // A capture that is piped into `sidegate explain` is tested where there is one (captures.test.ts).
  const lines = (readFileSync(resolve('docs/admin.md'), 'utf8').match(/^curl .*$/gm) ?? []).filter((line) => !line.includes('|'));
  expect(lines).toHaveLength(4);
  const runLines = async (wanted: readonly string[]): Promise<void> => {
    for (const line of wanted) {
      const command = line.replaceAll('127.0.0.1:9090', `127.0.0.1:${gate.adminPort}`);
      const { code, stdout, stderr } = await run('bash', [
        '-c',
        `cd ${gate.folder} && ${command} --fail-with-body --silent --show-error`,
      ]);
      expect([code, stderr], command).toEqual([0, '']);
      expect(() => JSON.parse(stdout) as unknown, stdout).not.toThrow();
    }
  };
  await start();
  await runLines(lines.filter((line) => !line.includes('Bearer')));
  await gate.stop();
  await start({ admin: WITH_TOKEN });
  await runLines(lines.filter((line) => line.includes('Bearer')));
});

describe.each(['memory', 'Redis'])('forgetting an id in %s', (kind) => {
  let redis: RedisServer | undefined;
  beforeAll(async () => {
    if (kind === 'Redis') redis = await startRedis();
  });
  afterAll(() => redis?.stop());

  const begin = async (webhook: Sections = {}): Promise<void> => {
    const store = redis === undefined ? {} : { store: { redis: { url: `redis://127.0.0.1:${redis.port}` } } };
    await start({ routes: [toRoute(app.port, { webhook })], ...store });
    if (redis !== undefined) await until(() => gate.log().some(({ msg }) => msg === 'store_up'));
  };

  test('forwards its next valid delivery, once, and records it in log and metrics', async () => {
    await begin();
    const delivery = makeDelivery();
    const states = async (): Promise<string | undefined> => {
      const { code, text } = await send(gate.port, makeDelivery({ id: delivery.id }));
      return code ?? text;
    };
    expect([await states(), await states()]).toEqual(['handled', 'duplicate']);
    const answer = await forget(delivery.id);
    expect([answer.status, answer.headers['content-type'], JSON.parse(answer.text)]).toEqual([
      200,
      'application/json',
      { was: 'handled' },
    ]);
    expect((await send(gate.port, makeDelivery({ id: delivery.id, secret: OTHER_SECRET }))).code).toBe('signature_mismatch');
    expect([await states(), await states()]).toEqual(['handled', 'duplicate']);
    expect(app.received).toHaveLength(2);
    expect(gate.log().filter(({ msg }) => msg === 'id_forgotten')).toMatchObject([
      { level: 'info', route: 'billing', id: delivery.id, was: 'handled', by: '127.0.0.1' },
    ]);
    expect(await gate.metric('sidegate_forgotten_ids_total{was="handled"}')).toBe(1);
  });

  test('reports that it is unknown', async () => {
    await begin();
    expect(JSON.parse((await forget('evt_none')).text)).toEqual({ was: 'absent' });
  });

  test('that is in progress is reported; the success of the app still counts', async () => {
    await begin();
    const delivery = makeDelivery();
    const finish = holdResponses(app, 'slow');
    const first = send(gate.port, delivery);
    await until(() => app.received.length === 1);
    expect(JSON.parse((await forget(delivery.id)).text)).toEqual({ was: 'in-progress' });
    finish();
    await first;
    await until(async () => (await gate.metric('sidegate_dedup_operations_total{outcome="confirmed"}')) === 1);
    expect((await send(gate.port, delivery)).code).toBe('duplicate');
  });

  test('that is not signed also forgets its content, and forwards it once', async () => {
    await begin({ scheme: 'github', keys: [{ name: 'hub', secret: { file: 'hub' } }] });
    const body = '{"ref":"refs/heads/main"}';
    const push = async (id?: string): Promise<string | undefined> => {
      const headers = {
        'Content-Type': 'application/json',
        'X-Hub-Signature-256': `sha256=${createHmac('sha256', HUB_SECRET).update(body).digest('hex')}`,
        ...(id === undefined ? undefined : { 'X-GitHub-Delivery': id }),
      };
      const { code, text } = await send(gate.port, { headers, body });
      return code ?? text;
    };
    expect([await push('first'), await push('first'), await push('second')]).toEqual(['handled', 'duplicate', 'event_conflict']);
    expect(JSON.parse((await forget('first')).text)).toEqual({ was: 'handled' });
    expect([await push('first'), await push('first'), await push('second')]).toEqual(['handled', 'duplicate', 'event_conflict']);

    // A sender that redelivers under an id of its own: the verdict says what to forget.
    const [replay] = (await journal('?reason=replayed_under_new_id&limit=1')).entries;
    const digestId = /forget the id (sha256-[\w-]+)/.exec(String(replay?.['detail']))?.[1] ?? '';
    expect(JSON.parse((await forget('second')).text)).toEqual({ was: 'absent' });
    expect(JSON.parse((await forget(digestId)).text)).toEqual({ was: 'handled' });
    expect([await push('second'), await push('second'), await push('third')]).toEqual(['handled', 'duplicate', 'event_conflict']);

    // A sender that gives no id at all is shown by the same one.
    expect(JSON.parse((await forget(digestId)).text)).toEqual({ was: 'handled' });
    expect([await push(), await push()]).toEqual(['handled', 'duplicate']);
    expect((await journal('?limit=1')).entries[0]).toMatchObject({ webhookId: digestId });
    expect(JSON.parse((await forget(digestId)).text)).toEqual({ was: 'handled' });
    expect(await push()).toBe('handled');
  });

  test('works with any length and spelling of the ID', async () => {
    await begin();
    for (const id of ['x'.repeat(200), 'a:b', '%2e%2e', '"quoted"']) {
      await send(gate.port, makeDelivery({ id }));
      expect(JSON.parse((await forget(id)).text)).toEqual({ was: 'handled' });
      expect((await send(gate.port, makeDelivery({ id }))).text).toBe('handled');
    }
  });
});

describe('a request to forget', () => {
  test('is rejected with the reason: content, type, size, route', async () => {
    await start({
      routes: [
        toRoute(app.port),
        { ...toRoute(app.port, { match: { path: '/loose' }, webhook: { dedup: 'off' } }), name: 'loose' },
        { name: 'open', match: { path: '/open' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' },
      ],
    });
    const json = { 'Content-Type': 'application/json; charset=utf-8' };
    const post = (headers: OutgoingHttpHeaders, body: string, path = FORGET): Promise<Answer> =>
      ask(path, { method: 'POST', headers, body });
    for (const body of ['', '{', 'null', '[]', '"x"', '{}', '{"id":""}', '{"id":1}', '{"id":"x","all":true}', '{"Id":"x"}'])
      expect(await post(json, body), body).toMatchObject({ status: 400, text: expect.stringContaining('send {"id"') });
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'application/jsonp', 'multipart/form-data'])
      expect((await post({ 'Content-Type': type }, '{"id":"x"}')).status).toBe(415);
    expect((await post({}, '{"id":"x"}')).status).toBe(415);
    expect((await post({ ...json, 'Content-Encoding': 'gzip' }, '{"id":"x"}')).status).toBe(415);
    expect(await post(json, '{"id":"x"}', '/routes/none/forget')).toMatchObject({
      status: 404,
      text: 'no route has this name; routes that remember IDs: billing\n',
    });
    for (const name of ['loose', 'open'])
      expect(await post(json, '{"id":"x"}', `/routes/${name}/forget`)).toMatchObject({
        status: 409,
        text: `route ${name} does not remember IDs: it has no webhook section, or dedup: off; routes that remember IDs: billing\n`,
      });
    expect(gate.log().filter(({ msg }) => msg === 'id_forgotten')).toEqual([]);
  });

  test('is rejected if it is too large, declared or not, without reading the rest', async () => {
    await start();
    const large = JSON.stringify({ id: 'x'.repeat(70_000) });
    const json = { 'Content-Type': 'application/json' };
    expect((await ask(FORGET, { method: 'POST', headers: json, body: large })).status).toBe(413);
    const head = `POST ${FORGET} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n`;
    const declared = await sendRaw(gate.adminPort, `${head}Content-Length: 999999999\r\n\r\n`);
    expect(declared).toMatch(/^HTTP\/1\.1 413 [\s\S]*Connection: close/i);
    const chunk = `8000\r\n${'x'.repeat(0x8000)}\r\n`;
    const endless = await sendRaw(gate.adminPort, `${head}Transfer-Encoding: chunked\r\n\r\n`, chunk, chunk, chunk);
    expect(endless).toMatch(/^HTTP\/1\.1 413 [\s\S]*Connection: close/i);
  });

  test('is rejected with 503 while the store is unreachable, and logged', async () => {
    const redis = await startRedis();
    await start({ store: { redis: { url: `redis://127.0.0.1:${redis.port}` } } });
    await until(() => gate.log().some(({ msg }) => msg === 'store_up'));
    await redis.stop();
    await until(() => gate.log().some(({ msg }) => msg === 'store_down'));
    const answer = await forget('x');
    expect([answer.status, answer.headers['retry-after']]).toEqual([503, '5']);
    expect(answer.text).toContain('the store could not delete the ID: ');
    expect(gate.log().find(({ msg }) => msg === 'id_forgotten')).toMatchObject({ level: 'warn', was: 'unknown', id: 'x' });
  });
});

describe('the keys', () => {
  const KEYS = [
    { name: 'next', secret: { file: 'next' }, notBefore: '2027-02-01T00:00:00Z' },
    { name: 'current', secret: { file: 'current' } },
    { name: 'old', secret: { file: 'secret' }, notAfter: '2027-01-20T08:00:00Z' },
    { name: 'gone', secret: { file: 'gone' }, notAfter: '2026-12-01T00:00:00Z' },
  ];
  const FILES = { next: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaAA', current: OTHER_SECRET, gone: OTHER_SECRET };
  const keysOf = async (): Promise<Record<string, Record<string, unknown>>> => {
    const { routes } = JSON.parse((await ask('/keys')).text) as { routes: { route: string; keys: { name: string }[] }[] };
    expect(routes.map(({ route }) => route)).toEqual(['billing']);
    return Object.fromEntries((routes[0]?.keys ?? []).map((key) => [key.name, key]));
  };

  test('show what each was used for, when, and what to do', async () => {
    // Days go by, and none of the gate's timers with them.
    let now = Date.parse('2027-01-15T08:00:00Z');
    const clock: Clock = { ...systemClock, now: () => now };
    gate = await startGate({ routes: [toRoute(app.port, { webhook: { keys: KEYS } })] }, clock, FILES);
    const deliver = async (secret: string): Promise<number> => {
      const delivery = makeDelivery({ secret, timestamp: Math.floor(clock.now() / 1000) });
      return (await send(gate.port, delivery)).status;
    };
    expect([await deliver(SECRET), await deliver(SECRET), await deliver(FILES.next)]).toEqual([200, 200, 401]);
    now += HOUR;
    expect(await deliver(OTHER_SECRET)).toBe(200);
    expect(await keysOf()).toEqual({
      next: {
        name: 'next',
        notBefore: '2027-02-01T00:00:00.000Z',
        notAfter: null,
        watchedSince: '2027-01-15T08:00:00.000Z',
        matches: 0,
        lastUsed: null,
        isUsable: false,
        advice: 'becomes valid in 16 d',
      },
      current: {
        name: 'current',
        notBefore: null,
        notAfter: null,
        watchedSince: '2027-01-15T08:00:00.000Z',
        matches: 1,
        lastUsed: '2027-01-15T09:00:00.000Z',
        isUsable: true,
        advice: 'last used 0 s ago',
      },
      old: {
        name: 'old',
        notBefore: null,
        notAfter: '2027-01-20T08:00:00.000Z',
        watchedSince: '2027-01-15T08:00:00.000Z',
        matches: 2,
        lastUsed: '2027-01-15T08:00:00.000Z',
        isUsable: true,
        advice: 'last used 1 h ago: keep it until it is unused for 3 d, because senders may retry for that long; expires in 4 d',
      },
      gone: {
        name: 'gone',
        notBefore: null,
        notAfter: '2026-12-01T00:00:00.000Z',
        watchedSince: '2027-01-15T08:00:00.000Z',
        matches: 0,
        lastUsed: null,
        isUsable: false,
        advice: 'expired 45 d ago: remove it',
      },
    });
    expect(await gate.metric('sidegate_key_matches_total{route="billing",key="old"}')).toBe(2);
    expect(gate.log().filter(({ msg }) => msg === 'key_match_by_old_key')).toMatchObject([
      { route: 'billing', key: 'old', first: 'current', neededAt: '2027-01-15T08:00:00.000Z', matches: 1 },
    ]);

    now += 3 * 24 * HOUR;
    expect((await keysOf())['old']?.['advice']).toBe(
      'last used 3 d ago, and a newer key has been used: remove it; expires in 1 d',
    );
    now += 20 * 24 * HOUR;
    expect(await deliver(FILES.next)).toBe(200);
    expect(await deliver(SECRET)).toBe(401);
    expect((await keysOf())['next']).toMatchObject({ isUsable: true, matches: 1, advice: 'last used 0 s ago' });
  });

  test.each([
    ['the file of a secret changes', () => until(() => gate.log().some(({ msg }) => msg === 'secret_reloaded'))],
    ['it changes together with the config', () => gate.gate.reload()],
  ])('are updated when %s, and keep their counts across a reload of the config', async (_what, change) => {
    const keys = [
      { name: 'current', secret: { file: 'current' } },
      { name: 'old', secret: { file: 'mount/old' } },
    ];
    gate = await startGate({ routes: [toRoute(app.port)] }, undefined, FILES);
    mkdirSync(join(gate.folder, 'mount'));
    writeFileSync(join(gate.folder, 'mount', 'old'), SECRET);
    gate.writeConfig({ routes: [toRoute(app.port, { webhook: { keys } })] });
    await until(() => gate.log().some(({ msg }) => msg === 'config_reloaded'));
    await send(gate.port, makeDelivery());
    await send(gate.port, makeDelivery({ secret: OTHER_SECRET }));
    const before = await keysOf();
    expect(before['old']).toMatchObject({ matches: 1, advice: expect.stringMatching(/^last used \d s ago: keep it/) });

    writeFileSync(join(gate.folder, 'mount', 'old'), FILES.next);
    await change();
    const after = await keysOf();
    expect(after['old']).toMatchObject({ matches: 1, lastUsed: before['old']?.['lastUsed'] });
    expect(after['old']?.['advice']).toMatch(/^not used in the \d s since it was loaded/);
    expect(after['current']?.['watchedSince']).toBe(before['current']?.['watchedSince']);

    rmSync(join(gate.folder, 'mount', 'old'));
    await until(async () => (await keysOf())['old']?.['isUsable'] === false);
    expect((await keysOf())['old']?.['advice']).toBe('its secret cannot be read: deliveries that match no other key get 503');
  });

  test('are shown for routes with keys', async () => {
    await start({ routes: [{ name: 'open', match: { path: '/' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' }] });
    expect(JSON.parse((await ask('/keys')).text)).toEqual({ routes: [] });
  });
});
