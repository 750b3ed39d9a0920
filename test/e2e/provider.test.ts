/** The sending side as a part of the gate: from the app's event to the app of the receiver, over real sockets, files and processes. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { afterEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { type Clock, systemClock } from '../../src/core/clock.ts';
import { SECRET, signV1 } from '../support/deliveries.ts';
import { makeFolder, useApp } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { startPostgres } from '../support/postgres.ts';
import { startGateProcess } from '../support/process.ts';
import { call, listDeliveries, postEvent } from '../support/provider/client.ts';
import { makeEntry } from '../support/users.ts';

const OTHER_SECRET = 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD';
const app = useApp();
let gate: TestGate | undefined;

afterEach(async () => {
  await gate?.stop();
  gate = undefined;
});

/** The section, with a queue in a folder of its own and one endpoint: the app. */
function toProvider(over: Sections = {}, endpoint: Sections = {}): Sections {
  return {
    address: '127.0.0.1:0',
    queue: { sqlite: { path: join(makeFolder(), 'queue.db'), allowVolatile: true } },
    egress: { allowHttp: true, allowPrivate: ['127.0.0.0/8'] },
    endpoints: [{ name: 'acme', url: `http://127.0.0.1:${app.port}/hooks`, secret: { file: 'secret' }, ...endpoint }],
    ...over,
  };
}

async function start(provider: Sections, sections: Sections = {}, clock?: Clock): Promise<TestGate> {
  gate = await startGate({ provider, ...sections }, clock);
  return gate;
}

describe('a gate with a provider and without routes', () => {
  test('delivers an event signed, with the ID and the bytes of the envelope', async () => {
    const { providerPort, port } = await start(toProvider());
    const id = await postEvent(providerPort);
    const [request] = await until(() => app.received.length > 0 && app.received);
    expect(port).toBe(0);
    expect(JSON.parse(String(request?.body))).toEqual({
      type: 'invoice.paid',
      id,
      created: expect.any(Number),
      data: { amount: 4200 },
    });
    expect(request?.headers['webhook-id']).toBe(id);
    expect(request?.headers['webhook-signature']).toBe(
      signV1(id, String(request?.headers['webhook-timestamp']), request?.body ?? Buffer.alloc(0)),
    );
  });

  test('counts the attempt by the name of the endpoint', async () => {
    const { providerPort, metric } = await start(toProvider());
    await postEvent(providerPort);
    await until(async () => (await metric('sidegate_provider_deliveries_total{endpoint="acme",result="delivered"}')) === 1);
    expect(await metric('sidegate_provider_attempts_total{endpoint="acme",outcome="delivered"}')).toBe(1);
    expect(await metric('sidegate_provider_events_total{result="stored"}')).toBe(1);
  });

  test('shows each attempt in the journal, without body, URL and secret', async () => {
    app.handler = (_request, response) => response.writeHead(app.received.length === 1 ? 503 : 200).end('words of the endpoint');
    const { providerPort, adminPort } = await start(toProvider({ schedule: ['50ms'] }));
    const id = await postEvent(providerPort);
    const ask = async (query = ''): Promise<{ status: number; text: string }> => {
      const response = await fetch(`http://127.0.0.1:${adminPort}/journal/attempts${query}`);
      return { status: response.status, text: await response.text() };
    };
    const { text } = await until(async () => {
      const answer = await ask();
      return answer.text.includes('"delivered"') && answer;
    });
    const attempt = { at: expect.any(String), endpoint: 'acme', event: id, durationMs: expect.any(Number) };
    expect(JSON.parse(text)).toEqual({
      size: 1_000,
      recorded: 2,
      entries: [
        { ...attempt, attempt: 2, outcome: 'delivered', status: 200, next: 'none' },
        {
          ...attempt,
          attempt: 1,
          outcome: 'server_error',
          status: 503,
          detail: 'responded 503',
          next: 'retry',
          retryAt: expect.any(String),
        },
      ],
    });
    for (const secret of ['words', 'amount', '/hooks', SECRET]) expect(text).not.toContain(secret);
    expect(JSON.parse((await ask(`?event=${id}&endpoint=acme&outcome=server_error&limit=1`)).text).entries).toHaveLength(1);
    expect(JSON.parse((await ask('?endpoint=other')).text).entries).toEqual([]);
    expect(await ask('?route=acme')).toEqual({
      status: 400,
      text: 'unknown filter route; the filters are endpoint, event, outcome, limit\n',
    });
  });

  test('shows no attempt if the journal is off', async () => {
    const { providerPort, adminPort } = await start(toProvider(), { journal: { size: 0 } });
    await postEvent(providerPort);
    await until(() => app.received.length > 0);
    const response = await fetch(`http://127.0.0.1:${adminPort}/journal/attempts`);
    expect([response.status, await response.text()]).toEqual([404, 'the journal is disabled: journal.size is 0\n']);
  });

  test('sends the same bytes again after a failure, signed at the time of the attempt', async () => {
    app.handler = (_request, response) => response.writeHead(app.received.length === 1 ? 500 : 200).end();
    const { providerPort } = await start(toProvider({ schedule: ['50ms'] }));
    const id = await postEvent(providerPort);
    const [first, second] = await until(() => app.received.length === 2 && app.received);
    expect(second?.body.equals(first?.body ?? Buffer.alloc(0))).toBe(true);
    expect(second?.headers['webhook-id']).toBe(id);
    const [delivery] = await until(async () => {
      const found = await listDeliveries(providerPort, '?state=delivered');
      return found.length > 0 && found;
    });
    expect(delivery).toMatchObject({ event: id, attempts: 2 });
  });

  test('keeps a queue across a restart', async () => {
    app.handler = (_request, response) => response.writeHead(503).end();
    const provider = toProvider({ schedule: ['100ms', '100ms', '1h'] });
    const first = await start(provider);
    const id = await postEvent(first.providerPort);
    await until(() => app.received.length > 0);
    await first.stop();
    app.handler = (_request, response) => response.end();
    const second = await start(provider);
    const [delivery] = await until(async () => {
      const found = await listDeliveries(second.providerPort, '?state=delivered');
      return found.length > 0 && found;
    });
    expect(delivery).toMatchObject({ event: id });
  });
});

test('retries follow a schedule that was changed with a restart', async () => {
  app.handler = (_request, response) => response.writeHead(503).end();
  const provider = toProvider({ schedule: ['1h'] });
  const first = await start(provider);
  const id = await postEvent(first.providerPort);
  await until(async () => (await listDeliveries(first.providerPort, '?state=waiting'))[0]?.['attempts'] === 1);
  await first.stop();
  app.handler = (_request, response) => response.end();
  const second = await start({ ...provider, schedule: ['100ms'] });
  expect(await until(async () => (await listDeliveries(second.providerPort, '?state=delivered'))[0])).toMatchObject({
    event: id,
  });
});

describe('an endpoint of the API', () => {
  test.each([
    ['a retry waits', 1],
    ['an attempt runs', 0],
  ])('that is deleted while %s frees its ID, and the next one with this ID gets only later events', async (_, attempts) => {
    let answer = (): unknown => undefined;
    app.handler = (request, response) => {
      if (request.url === '/new') response.end();
      else if (attempts === 1) response.writeHead(500).end();
      else answer = () => response.writeHead(500).end();
    };
    const { providerPort } = await start(toProvider({ endpoints: [], schedule: ['1h'] }));
    const create = (path: string) => {
      const url = `http://127.0.0.1:${app.port}${path}`;
      return call(providerPort, 'POST', '/v1/endpoints', { id: 'tenant-1', url, events: ['invoice.*'] });
    };
    expect((await create('/old')).status).toBe(201);
    const before = await postEvent(providerPort);
    await until(async () => {
      const [delivery] = await listDeliveries(providerPort, '?state=waiting');
      return app.received.length === 1 && delivery?.['attempts'] === attempts;
    });
    expect((await call(providerPort, 'DELETE', '/v1/endpoints/tenant-1')).status).toBe(204);
    expect((await create('/new')).status).toBe(201);
    answer();
    const after = await postEvent(providerPort);
    await until(async () => (await listDeliveries(providerPort, '?state=delivered')).length === 1);
    expect(app.received.map(({ url, headers }) => [url, headers['webhook-id']])).toEqual([
      ['/old', before],
      ['/new', after],
    ]);
    expect(await listDeliveries(providerPort, '?state=skipped')).toMatchObject([{ event: before }]);
  });
});

describe('a raised rate limit', () => {
  /** One attempt in a thousand seconds. */
  const SLOW = { rateLimit: 0.001 };
  const postTwo = async (port: number): Promise<void> => {
    for (let i = 0; i < 2; i++) await postEvent(port);
    await until(async () => (await listDeliveries(port, '?state=delivered')).length === 1);
  };

  test('of an endpoint of the API takes effect at once', async () => {
    const { providerPort } = await start(toProvider({ endpoints: [] }));
    const endpoint = { id: 'slow', url: `http://127.0.0.1:${app.port}/`, events: ['invoice.*'], ...SLOW };
    expect((await call(providerPort, 'POST', '/v1/endpoints', endpoint)).status).toBe(201);
    await postTwo(providerPort);
    expect((await call(providerPort, 'PATCH', '/v1/endpoints/slow', { rateLimit: 100 })).status).toBe(200);
    await until(() => app.received.length === 2);
  });

  test('of an endpoint of the config takes effect with the reload', async () => {
    const provider = toProvider({}, SLOW);
    const { writeConfig, gate: running, providerPort } = await start(provider);
    await postTwo(providerPort);
    const [endpoint] = provider['endpoints'] as [Sections];
    const { rateLimit: _, ...unlimited } = endpoint;
    writeConfig({ provider: { ...provider, endpoints: [unlimited] } });
    await running.reload();
    await until(() => app.received.length === 2);
  });
});

describe('a reload', () => {
  test('signs with a replaced secret, and with the previous one', async () => {
    const endpoint = { previousSecret: { file: 'old' }, secret: { file: 'secret' } };
    gate = await startGate({ provider: toProvider({}, endpoint) }, undefined, { old: SECRET });
    const { folder, providerPort, logText } = gate;
    writeFileSync(join(folder, 'secret'), OTHER_SECRET);
    await until(() => logText().includes('provider_reloaded'));
    const id = await postEvent(providerPort);
    const [request] = await until(() => app.received.length > 0 && app.received);
    const { body = Buffer.alloc(0), headers = {} } = request ?? {};
    const timestamp = String(headers['webhook-timestamp']);
    expect(headers['webhook-signature']).toBe(
      [OTHER_SECRET, SECRET].map((secret) => signV1(id, timestamp, body, secret)).join(' '),
    );
  });

  test('keeps the secrets in use if a new one is not valid, and reports it without its text', async () => {
    const { folder, providerPort, logText } = await start(toProvider());
    writeFileSync(join(folder, 'secret'), 'whsec_short');
    await until(() => logText().includes('provider_reload_failed'));
    await postEvent(providerPort);
    await until(() => app.received.length === 1);
    expect(logText()).not.toContain('whsec_short');
  });

  test('adds an endpoint', async () => {
    const provider = toProvider({ endpoints: [] });
    const { file: _, writeConfig, gate: running, providerPort } = await start(provider);
    writeConfig({ provider: { ...provider, endpoints: toProvider()['endpoints'] } });
    await running.reload();
    await postEvent(providerPort);
    await until(() => app.received.length === 1);
  });

  test('applies a new default schedule to what waits, one endpoint after the other', async () => {
    app.handler = (_request, response) => response.writeHead(503).end();
    const [endpoint] = toProvider()['endpoints'] as [Sections];
    const endpoints = Array.from({ length: 20 }, (_, i) => ({ ...endpoint, name: `acme-${i}` }));
    const provider = toProvider({ endpoints, schedule: ['1h'] });
    const { writeConfig, gate: running, providerPort } = await start(provider);
    const wait = (attempts: number) => async () => {
      const found = await listDeliveries(providerPort, '?state=waiting&limit=100');
      return found.filter((delivery) => delivery['attempts'] === attempts).length === endpoints.length;
    };
    await postEvent(providerPort);
    await until(wait(1));
    const posted = vi.spyOn(Worker.prototype, 'postMessage');
    onTestFinished(() => posted.mockRestore());
    writeConfig({ provider: { ...provider, schedule: ['100ms', '2h'] } });
    await running.reload();
    await until(wait(2));
    const counts = posted.mock.calls.map(([{ operations = '' }]) => operations.split('"rescheduleStep"').length - 1);
    expect(Math.max(...counts)).toBe(1);
  });

  test('applies a new default schedule to the other endpoints if it cannot be applied to one', async () => {
    app.handler = (_request, response) => response.writeHead(503).end();
    const [endpoint] = toProvider()['endpoints'] as [Sections];
    const provider = toProvider({ endpoints: ['a', 'b', 'c'].map((name) => ({ ...endpoint, name })), schedule: ['1h'] });
    const { writeConfig, gate: running, providerPort, logText } = await start(provider);
    await postEvent(providerPort);
    await until(() => app.received.length === 3);
    const { postMessage } = Worker.prototype;
    const posted = vi.spyOn(Worker.prototype, 'postMessage').mockImplementation(function (this: Worker, message, ...others) {
      const operations = message.operations?.replace(/("endpoint":"b","delays":)[^\]]*\]/, '$1{}');
      postMessage.call(this, operations === undefined ? message : { ...message, operations }, ...others);
    });
    onTestFinished(() => posted.mockRestore());
    writeConfig({ provider: { ...provider, schedule: ['100ms', '2h'] } });
    await running.reload();
    await until(() => app.received.length === 5);
    expect(logText()).toMatch(/"endpoint":"b".*"provider_failed"/);
  });

  test('that removes an endpoint cancels what waits for it after a minute, unless a later config has it again', async () => {
    app.handler = (_request, response) => response.writeHead(500).end();
    const graces: (() => void)[] = [];
    const clock: Clock = {
      ...systemClock,
      after: (delay, action) => {
        if (delay !== 60_000) return systemClock.after(delay, action);
        graces.push(action);
        return () => undefined;
      },
    };
    const provider = toProvider({ schedule: ['10h'] });
    const { writeConfig, gate: running, providerPort } = await start(provider, {}, clock);
    await postEvent(providerPort);
    await until(() => app.received.length === 1);
    const reload = async (endpoints: unknown): Promise<void> => {
      writeConfig({ provider: { ...provider, endpoints } });
      await running.reload();
    };
    await reload([]);
    await reload(provider['endpoints']);
    for (const end of graces.splice(0)) end();
    expect(await listDeliveries(providerPort, '?state=waiting')).toHaveLength(1);
    await reload([]);
    for (const end of graces.splice(0)) end();
    await until(async () => (await listDeliveries(providerPort, '?state=skipped')).length === 1);
  });

  test('that gives the ID of an endpoint of the API to another receiver cancels what waits, and that one can be deleted', async () => {
    app.handler = (_request, response) => response.writeHead(500).end();
    const provider = toProvider({ endpoints: [], schedule: ['10h'] });
    const { writeConfig, gate: running, providerPort } = await start(provider);
    const url = `http://127.0.0.1:${app.port}`;
    const endpoint = { id: 'acme', url: `${url}/stored`, events: ['invoice.*'] };
    expect((await call(providerPort, 'POST', '/v1/endpoints', endpoint)).status).toBe(201);
    await postEvent(providerPort);
    await until(() => app.received.length === 1);
    const configured = { name: 'acme', url: `${url}/config`, secret: { file: 'secret' }, events: ['invoice.*'] };
    writeConfig({ provider: { ...provider, endpoints: [configured] } });
    await running.reload();
    await until(async () => (await listDeliveries(providerPort, '?state=skipped')).length === 1);
    await postEvent(providerPort);
    await until(() => app.received.length === 2);
    expect((await call(providerPort, 'DELETE', '/v1/endpoints/acme')).status).toBe(204);
    expect((await call(providerPort, 'DELETE', '/v1/endpoints/acme')).status).toBe(409);
    expect(await listDeliveries(providerPort, '?state=waiting')).toHaveLength(1);
    expect(app.received.map(({ url: path }) => path)).toEqual(['/stored', '/config']);
  });

  test.each([
    ['the queue', { queue: { sqlite: { path: 'other.db', allowVolatile: true } } }, 'provider.queue'],
    ['the egress rules', { egress: { allowHttp: true } }, 'provider.egress'],
  ])('rejects a change of %s', async (_title, over, path) => {
    const provider = toProvider({ endpoints: [] });
    const { writeConfig, gate: running, logText } = await start(provider);
    writeConfig({ provider: { ...provider, ...over } });
    await running.reload();
    expect(logText()).toContain(`changing ${path} requires a restart`);
  });

  test('rejects CAs of endpoints that OpenSSL would ignore', async () => {
    const egress = { allowHttp: true, caFile: 'ca' };
    const provider = toProvider({ endpoints: [], egress });
    await expect(startGate({ provider }, undefined, { ca: SECRET })).rejects.toThrow(
      /provider.egress.caFile: .* contains no certificate/,
    );
  });

  test('rejects a config without the passwords of the API, which would stay in force', async () => {
    const provider = toProvider({ endpoints: [] });
    const basic = { realm: 'ops', users: { file: 'users' } };
    const address = provider['address'] as string;
    gate = await startGate({ provider: { ...provider, address, basic } }, undefined, { users: makeEntry('ops', 'secret') });
    gate.writeConfig({ provider });
    await gate.gate.reload();
    expect(gate.logText()).toContain('changing provider.basic requires a restart');
  });
});

describe('a route with ack: onAccept', () => {
  const toInbox = (over: Sections = {}): Sections => ({
    routes: [toRoute(app.port, { webhook: { ack: 'onAccept' } })],
    provider: toProvider({ endpoints: [], schedule: ['50ms', '50ms', '50ms'], ...over }),
  });
  const post = async (port: number, id: string): Promise<Response> => {
    const body = Buffer.from(JSON.stringify({ type: 'invoice.paid', id, created: 1, data: {} }));
    const timestamp = Math.floor(Date.now() / 1_000);
    return fetch(`http://127.0.0.1:${port}/hooks/billing`, {
      method: 'POST',
      headers: {
        'Content-Type': 'application/json',
        'Webhook-Id': id,
        'Webhook-Timestamp': String(timestamp),
        'Webhook-Signature': signV1(id, timestamp, body),
      },
      body: new Uint8Array(body),
    });
  };

  test('answers 202, and the app gets the request as the gate would have forwarded it', async () => {
    gate = await startGate(toInbox());
    const response = await post(gate.port, 'msg_1');
    expect([response.status, await response.text()]).toEqual([202, '']);
    const [request] = await until(() => app.received.length > 0 && app.received);
    expect(request).toMatchObject({ method: 'POST', url: '/hooks/billing' });
    expect(request?.headers).toMatchObject({
      'webhook-id': 'msg_1',
      'sidegate-route': 'billing',
      'sidegate-key': 'current',
      host: `127.0.0.1:${gate.port}`,
    });
  });

  test('repeats what the app failed to handle, and answers repetitions of the sender with 200', async () => {
    app.handler = (_request, response) => response.writeHead(app.received.length < 3 ? 500 : 200).end();
    gate = await startGate(toInbox());
    expect((await post(gate.port, 'msg_2')).status).toBe(202);
    await until(() => app.received.length === 3);
    expect((await post(gate.port, 'msg_2')).status).toBe(200);
    expect(app.received).toHaveLength(3);
  });

  test('lists a delivery that the app never handled as dead, and delivers it after a retry', async () => {
    app.handler = (_request, response) => response.writeHead(422).end();
    gate = await startGate(toInbox());
    const { providerPort } = gate;
    await post(gate.port, 'msg_3');
    const [dead] = await until(async () => {
      const found = await listDeliveries(providerPort, '?state=dead');
      return found.length > 0 && found;
    });
    expect(dead).toMatchObject({ endpoint: 'inbox:billing', attempts: 4 });
    app.handler = (_request, response) => response.end();
    const retried = await call(providerPort, 'POST', `/v1/deliveries/${String(dead?.['id'])}/retry`);
    expect(retried.status).toBe(202);
    await until(async () => (await listDeliveries(providerPort, '?state=delivered')).length > 0);
  });

  test('keeps apart what a route received and what the app sends: neither can be retried to the other side', async () => {
    const route = (name: string) =>
      toRoute(app.port, {
        match: { path: `/hooks/${name}` },
        webhook: { ack: 'onAccept' },
        route: { name },
      });
    const { endpoints } = toProvider({}, { secret: { file: 'own' } });
    const sections = { ...toInbox({ endpoints }), routes: [route('billing'), route('other')] };
    gate = await startGate(sections, undefined, { own: OTHER_SECRET });
    const { providerPort } = gate;
    await post(gate.port, 'msg_8');
    const sent = await postEvent(providerPort);
    await until(() => app.received.length === 2);
    const [received] = await listDeliveries(providerPort, '?endpoint=inbox:billing');
    const event = String(received?.['event']);
    for (const id of [`${event}~acme`, `${event}~inbox:other`, `${sent}~inbox:billing`]) {
      const { status, headers, body } = await call(providerPort, 'POST', `/v1/deliveries/${id}/retry`);
      expect([id, status, headers.get('content-type'), body['code']]).toEqual([id, 409, 'application/problem+json', 'conflict']);
      expect(body['detail']).toBe(
        'an event that a webhook route received can only be repeated for the app of that route, and this app gets no other events',
      );
    }
    for (const id of [`${event}~inbox:billing`, `${sent}~acme`])
      expect((await call(providerPort, 'POST', `/v1/deliveries/${id}/retry`)).status).toBe(202);
    await until(() => app.received.length === 4);
  });

  test('delivers a dead delivery if the sender repeats it after its ID was forgotten', async () => {
    app.handler = (_request, response) => response.writeHead(422).end();
    gate = await startGate(toInbox({ schedule: [] }));
    const { providerPort, adminPort } = gate;
    await post(gate.port, 'msg_7');
    await until(async () => (await listDeliveries(providerPort, '?state=dead')).length > 0);
    app.handler = (_request, response) => response.end();
    expect((await call(adminPort, 'POST', '/routes/billing/forget', { id: 'msg_7' })).status).toBe(200);
    expect((await post(gate.port, 'msg_7')).status).toBe(202);
    await until(async () => (await listDeliveries(providerPort, '?state=delivered')).length > 0);
  });

  test('counts a status although the response never ends, and goes on with the next delivery', async () => {
    app.handler = (_request, response) => void response.writeHead(200).write('x');
    gate = await startGate({
      ...toInbox({ concurrency: 1 }),
      routes: [toRoute(app.port, { webhook: { ack: 'onAccept' }, route: { timeout: '200ms' } })],
    });
    const { port, providerPort } = gate;
    for (const id of ['msg_8', 'msg_9']) expect((await post(port, id)).status).toBe(202);
    await until(async () => (await listDeliveries(providerPort, '?state=delivered')).length === 2);
    expect(app.received).toHaveLength(2);
  });

  test('answers 503 with Retry-After if the queue is full, and accepts the retry once there is room', async () => {
    app.handler = () => undefined;
    gate = await startGate(toInbox({ queue: { ...((toInbox()['provider'] as Sections)['queue'] as Sections), maxEvents: 1 } }));
    expect((await post(gate.port, 'msg_4')).status).toBe(202);
    const full = await post(gate.port, 'msg_5');
    expect(full.status).toBe(503);
    expect(Number(full.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(await gate.metric('sidegate_in_flight_requests')).toBe(0);
  });

  test('stores nothing that is not verified', async () => {
    gate = await startGate(toInbox());
    const response = await fetch(`http://127.0.0.1:${gate.port}/hooks/billing`, {
      method: 'POST',
      headers: {
        'Content-Type': 'application/json',
        'Webhook-Id': 'msg_6',
        'Webhook-Timestamp': String(Math.floor(Date.now() / 1_000)),
        'Webhook-Signature': 'v1,aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=',
      },
      body: '{}',
    });
    expect(response.status).toBe(401);
    expect(await listDeliveries(gate.providerPort)).toEqual([]);
  });
});

describe('a process that is killed', () => {
  test('delivers every accepted event after it is started again', { timeout: 60_000 }, async () => {
    const provider = toProvider({ schedule: ['200ms', '200ms', '1s', '5s'] });
    const accepted = new Set<string>();
    for (let round = 0; round < 3; round++) {
      const running = await startGateProcess({ provider });
      const posting = Array.from({ length: 8 }, async () => {
        for (let i = 0; i < 40; i++) accepted.add(await postEvent(running.providerPort));
      });
      const enough = round * 320 + 100;
      await until(() => accepted.size >= enough);
      running.child.kill('SIGKILL');
      await Promise.allSettled(posting);
      await running.exit;
    }
    const last = await startGateProcess({ provider });
    onTestFinished(() => void last.child.kill('SIGKILL'));
    const toReceived = (): Set<string> => new Set(app.received.map(({ headers }) => String(headers['webhook-id'])));
    await until(() => [...accepted].every((id) => toReceived().has(id)));
    expect(accepted.size).toBeGreaterThan(300);
  });
});

describe('a gate with a provider, without routes and with --listen', () => {
  test('holds its data port, which an app of its pod could take, and rejects each request there', async () => {
    const { port, child } = await startGateProcess({ provider: toProvider() }, ['--listen', '127.0.0.1:0']);
    onTestFinished(() => void child.kill('SIGKILL'));
    expect(port).not.toBe(0);
    const response = await fetch(`http://127.0.0.1:${port}/hooks`, { method: 'POST', body: '{}' });
    expect([response.status, await response.json()]).toEqual([404, expect.objectContaining({ code: 'route_not_found' })]);
    // A process of an earlier test that was killed may have had attempts on their way.
    expect(app.received.map(({ body }) => body.toString())).not.toContain('{}');
  });
});

describe('replicas with different roles', () => {
  test('one accepts, and sidegate deliver sends', { timeout: 60_000 }, async () => {
    const server = await startPostgres({ config: ['fsync = on'] });
    onTestFinished(() => server.stop());
    const file = join(makeFolder(), 'url');
    writeFileSync(file, server.url());
    const provider = toProvider({ queue: { postgres: { url: { file } } }, roles: ['accept'] });
    const accepting = await start(provider);
    const id = await postEvent(accepting.providerPort);
    expect(await listDeliveries(accepting.providerPort, '?state=waiting')).toHaveLength(1);
    const delivering = await startGateProcess({ provider: { ...provider, roles: ['accept', 'deliver'] } }, [], {}, 'deliver');
    onTestFinished(() => void delivering.child.kill('SIGKILL'));
    // A process of an earlier test that was killed may have had attempts on their way.
    await until(() => app.received.some(({ headers }) => headers['webhook-id'] === id));
    expect([delivering.port, delivering.providerPort]).toEqual([0, 0]);
    // The alerts find pods that deliver by this metric.
    expect(await accepting.metrics()).not.toContain('sidegate_provider_attempts_in_flight{');
  });
});

describe('config', () => {
  test.each<[string, Sections, string]>([
    ['an address of the network without a token', { address: '0.0.0.0:0' }, 'anyone who reaches this address could send events'],
    ['both engines', { queue: { sqlite: {}, postgres: { url: { env: 'QUEUE_URL' } } } }, 'the queue is configured twice'],
    ['a queue in Redis', { queue: { redis: {} } }, 'set postgres for several replicas'],
    ['one role with a file', { roles: ['deliver'] }, 'processes with different roles share a queue, and this one is in a file'],
    [
      'two endpoints with one name',
      {
        endpoints: [1, 2].map(() => ({ name: 'acme', url: 'https://acme.example/', secret: { file: 'secret' } })),
      },
      'another endpoint is named "acme"',
    ],
    ['more young attempts than connections', { maxConcurrency: 100, maxConnections: 10 }, 'it is below maxConcurrency'],
    ['an endpoint on http', { egress: {} }, 'provider.endpoints.0.url'],
    [
      'a header that the sender writes',
      { endpoints: [{ name: 'a', url: 'https://a.example/', secret: { file: 'secret' }, headers: { 'Webhook-Id': 'x' } }] },
      'provider.endpoints.0.headers',
    ],
    ['a missing secret', { endpoints: [{ name: 'a', url: 'https://a.example/', secret: { file: 'none' } }] }, 'does not exist'],
  ])('rejects %s', async (_title, over, message) => {
    await expect(startGate({ provider: toProvider(over) })).rejects.toThrow(message);
  });

  test('rejects ack: onAccept without a provider', async () => {
    const routes = [toRoute(app.port, { webhook: { ack: 'onAccept' } })];
    await expect(startGate({ routes })).rejects.toThrow('there is no queue to store deliveries in');
  });

  test('rejects ack: onAccept in a process that does not deliver', async () => {
    const routes = [toRoute(app.port, { webhook: { ack: 'onAccept' } })];
    const provider = { roles: ['accept'], queue: { postgres: { url: { env: 'QUEUE_URL' } } } };
    await expect(startGate({ routes, provider })).rejects.toThrow('add the role deliver');
  });

  test('rejects a config without routes, proxy and provider', async () => {
    await expect(startGate({})).rejects.toThrow('add at least one route');
  });
});
