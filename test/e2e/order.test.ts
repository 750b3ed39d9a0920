import { afterEach, describe, expect, test } from 'vitest';
import { type Answer, send } from '../support/client.ts';
import { type Delivery, makeDelivery } from '../support/deliveries.ts';
import { useApp, useRedis } from '../support/fixtures.ts';
import { type Sections, startGate, toRoute, until } from '../support/gate.ts';
import { type GateProcess, startGateProcess } from '../support/process.ts';
import { startRedis } from '../support/redis.ts';

const app = useApp();
const redis = useRedis();
const stops: (() => Promise<unknown>)[] = [];
let counter = 0;

afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});

const ORDER = { key: '$.data.id', version: '$.data.version' };

function toSections(order: Sections = {}, over: Parameters<typeof toRoute>[1] = {}): Sections {
  return { routes: [toRoute(app.port, { ...over, webhook: { order: { ...ORDER, ...order }, ...over.webhook } })] };
}

/** Ports that lead to the same ids and versions. */
interface OrderSetup {
  readonly first: number;
  readonly second: number;
  readonly processes: readonly GateProcess[];
  metric(series: string): Promise<number>;
}

async function startInMemory(sections: Sections): Promise<OrderSetup> {
  const gate = await startGate(sections);
  stops.push(gate.stop);
  return { first: gate.port, second: gate.port, processes: [], metric: gate.metric };
}

async function startReplicas(sections: Sections): Promise<OrderSetup> {
  const store = { redis: { url: `redis://127.0.0.1:${redis.port}` } };
  const processes = await Promise.all([1, 2].map(() => startGateProcess({ store, ...sections })));
  stops.push(async () => {
    for (const { child } of processes) child.kill('SIGKILL');
    await Promise.all(processes.map(({ exit }) => exit));
  });
  const [first, second] = processes as [GateProcess, GateProcess];
  const readMetric = async ({ adminPort }: GateProcess, series: string): Promise<number> => {
    const text = await (await fetch(`http://127.0.0.1:${adminPort}/metrics`)).text();
    const line = text.split('\n').find((each) => each.startsWith(`${series} `));
    return line === undefined ? 0 : Number(line.slice(series.length + 1));
  };
  return {
    first: first.port,
    second: second.port,
    processes,
    metric: async (series) => (await readMetric(first, series)) + (await readMetric(second, series)),
  };
}

/** A resource that no other test has. */
function makeResource(): (version: unknown, type?: string) => Delivery {
  const id = `res_${++counter}`;
  return (version, type = 'thing.updated') => makeDelivery({ body: JSON.stringify({ type, data: { id, version } }) });
}

/** What reached the app, in order. */
function versionsAtApp(): unknown[] {
  return app.received.map(({ body }) => (JSON.parse(body.toString()) as { data: { version: unknown } }).data.version);
}

const toVerdict = ({ status, code, text }: Answer): unknown[] => [status, code ?? text];

/** The app keeps requests until `finish`, which answers the oldest of them. */
function holdApp(): { arrived: (count: number) => Promise<unknown>; finish: (status?: number) => void } {
  const open: ((status: number) => void)[] = [];
  app.handler = (_request, response) => void open.push((status) => response.writeHead(status).end('handled'));
  return {
    arrived: (count) => until(() => app.received.length >= count),
    finish: (status = 200) => open.shift()?.(status),
  };
}

describe.each([
  ['in memory', startInMemory],
  ['by two replicas on one Redis', startReplicas],
] as const)('%s', (_where, start) => {
  test('an older event after a newer one gets 200 stale without the app, and its repetition is a duplicate', async () => {
    const { first, second, metric } = await start(toSections());
    const resource = makeResource();
    expect(toVerdict(await send(first, resource(2)))).toEqual([200, 'handled']);
    // The place is freed off the sender's critical path, so the next may have to wait for a moment.
    const older = resource(1);
    expect(toVerdict(await send(second, older))).toEqual([200, 'stale']);
    await until(async () => ((await send(first, older)).code === 'duplicate' ? true : undefined));
    expect(toVerdict(await send(first, resource(2)))).toEqual([200, 'handled']);
    expect(toVerdict(await send(second, resource(3)))).toEqual([200, 'handled']);
    expect(versionsAtApp()).toEqual([2, 2, 3]);
    expect(await metric('sidegate_order_operations_total{outcome="stale"}')).toBe(1);
    expect(await metric('sidegate_order_operations_total{outcome="entered"}')).toBe(3);
    expect(
      await metric('sidegate_auth_decisions_total{route="billing",scheme="standard-webhooks",decision="allow",reason="stale"}'),
    ).toBe(1);
  });

  test('a creation that arrives after the deletion of its resource does not restore it', async () => {
    const { first, second } = await start(toSections({ version: '$.data.version' }));
    const resource = makeResource();
    expect((await send(first, resource('2026-11-21T10:00:00.2Z', 'thing.deleted'))).text).toBe('handled');
    expect((await send(second, resource('2026-11-21T10:00:00.15Z', 'thing.created'))).code).toBe('stale');
    expect(versionsAtApp()).toEqual(['2026-11-21T10:00:00.2Z']);
  });

  test('two concurrent versions end with the newer one if the older reaches the app first', async () => {
    const { first, second } = await start(toSections());
    const resource = makeResource();
    const { arrived, finish } = holdApp();
    const older = send(first, resource(1));
    await arrived(1);
    const newer = send(second, resource(2));
    finish();
    expect((await older).text).toBe('handled');
    await arrived(2);
    finish();
    expect((await newer).text).toBe('handled');
    expect(versionsAtApp()).toEqual([1, 2]);
  });

  test('two concurrent versions end with the newer one if the newer reaches the app first', async () => {
    const { first, second } = await start(toSections());
    const resource = makeResource();
    const { arrived, finish } = holdApp();
    const newer = send(first, resource(2));
    await arrived(1);
    const older = send(second, resource(1));
    finish();
    expect((await newer).text).toBe('handled');
    expect((await older).code).toBe('stale');
    expect(versionsAtApp()).toEqual([2]);
  });

  test('the older one is forwarded when the app fails the newer, and then the retry of the newer', async () => {
    const { first, second } = await start(toSections());
    const resource = makeResource();
    const { arrived, finish } = holdApp();
    const delivery = resource(2);
    const newer = send(first, delivery);
    await arrived(1);
    const older = send(second, resource(1));
    finish(500);
    expect((await newer).status).toBe(500);
    await arrived(2);
    finish();
    expect((await older).text).toBe('handled');
    app.handler = (_request, response) => response.end('handled');
    expect((await send(first, delivery)).text).toBe('handled');
    expect(versionsAtApp()).toEqual([2, 1, 2]);
  });

  test('one that waits too long gets 503, and its retry is forwarded', async () => {
    const { first, second, metric } = await start(toSections({ maxWait: '100ms' }));
    const resource = makeResource();
    const { arrived, finish } = holdApp();
    const older = send(first, resource(1));
    await arrived(1);
    const delivery = resource(2);
    const early = await send(second, delivery);
    expect([...toVerdict(early), early.headers['retry-after']]).toEqual([503, 'in_progress', '10']);
    finish();
    await older;
    app.handler = (_request, response) => response.end('handled');
    await until(async () => ((await send(second, delivery)).text === 'handled' ? true : undefined));
    expect(versionsAtApp()).toEqual([1, 2]);
    expect(await metric('sidegate_order_operations_total{outcome="busy"}')).toBeGreaterThanOrEqual(1);
  });

  test('a hundred concurrent versions of five resources in any order end with the newest, and none goes back', {
    timeout: 60_000,
  }, async () => {
    const { first, second } = await start(
      toSections({ maxWait: '30s', lease: '60s' }, { webhook: { dedup: { lease: '120s' } } }),
    );
    const resources = Array.from({ length: 5 }, makeResource);
    const versions = Array.from({ length: 20 }, (_, i) => (i * 7) % 20);
    let inside = 0;
    app.handler = (_request, response) => {
      inside++;
      setImmediate(() => {
        inside--;
        response.end('handled');
      });
    };
    const deliveries = versions.flatMap((version) => resources.map((resource) => resource(version)));
    const answers = await Promise.all(deliveries.map((delivery, i) => send(i % 2 === 0 ? first : second, delivery)));
    expect(new Set(answers.map(({ code, text }) => code ?? text))).toEqual(new Set(['handled', 'stale']));
    expect(inside).toBe(0);
    const seen = new Map<string, number[]>();
    for (const { body } of app.received) {
      const { data } = JSON.parse(body.toString()) as { data: { id: string; version: number } };
      seen.set(data.id, [...(seen.get(data.id) ?? []), data.version]);
    }
    expect(seen.size).toBe(5);
    for (const order of seen.values()) {
      expect(order).toEqual([...order].sort((a, b) => a - b));
      expect(order.at(-1)).toBe(19);
    }
  });

  test('an older event is forwarded if the route allows it, marked as stale, which no sender can set', async () => {
    const { first, second } = await start(toSections({ onStale: 'forward' }));
    const resource = makeResource();
    const forged = resource(2);
    await send(first, { ...forged, headers: { ...forged.headers, 'Sidegate-Stale': 'true', sidegate_stale: 'true' } });
    await until(async () => {
      expect((await send(second, resource(1))).text).toBe('handled');
      return app.received.at(-1)?.headers['sidegate-stale'] === 'true';
    });
    expect(app.received[0]?.headers['sidegate-stale']).toBeUndefined();
    expect(app.received[0]?.headers['sidegate_stale']).toBeUndefined();
    await send(first, resource(3));
    expect(app.received.at(-1)?.headers['sidegate-stale']).toBeUndefined();
  });

  test('without dedup the order is kept, and the same version is forwarded again', async () => {
    const { first, second } = await start(toSections({}, { webhook: { dedup: 'off' } }));
    const resource = makeResource();
    const delivery = resource(2);
    expect((await send(first, delivery)).text).toBe('handled');
    expect((await send(second, delivery)).text).toBe('handled');
    expect((await send(first, resource(1))).code).toBe('stale');
  });
});

test('an observed route forwards an older event, and reports what the response would have been', async () => {
  const { first, metric } = await startInMemory(toSections({}, { route: { mode: 'observe' } }));
  const resource = makeResource();
  await send(first, resource(2));
  expect((await send(first, resource(1))).text).toBe('handled');
  expect(versionsAtApp()).toEqual([2, 1]);
  const series = 'sidegate_auth_decisions_total{route="billing",scheme="standard-webhooks",decision="observe",reason="stale"}';
  expect(await metric(series)).toBe(1);
});

test('an event without a resource passes, counted as unordered', async () => {
  const { first, metric } = await startInMemory(toSections());
  expect((await send(first, makeDelivery({ body: '{"data":{}}' }))).text).toBe('handled');
  expect(await metric('sidegate_order_operations_total{outcome="unordered"}')).toBe(1);
});

test('a replica that dies with an event in progress blocks its resource until the lease ends, and no longer', async () => {
  const { first, second, processes } = await startReplicas(
    toSections({ lease: '3s', maxWait: '50ms' }, { route: { timeout: '1s' } }),
  );
  const resource = makeResource();
  let isWithApp = false;
  app.handler = () => {
    isWithApp = true;
  };
  const lost = send(first, resource(5)).catch(() => 'lost');
  await until(() => isWithApp);
  processes[0]?.child.kill('SIGKILL');
  expect(await lost).toBe('lost');
  app.handler = (_request, response) => response.end('handled');
  const delivery = resource(6);
  expect(toVerdict(await send(second, delivery))).toEqual([503, 'in_progress']);
  const late = await until(async () => {
    const answer = await send(second, delivery);
    return answer.code === 'in_progress' ? undefined : answer;
  });
  expect(late.text).toBe('handled');
  await until(async () => ((await send(second, resource(4))).code === 'stale' ? true : undefined));
});

test('while Redis is down events are rejected, or pass if the route allows it and are recorded when it is back', async () => {
  const own = await startRedis();
  stops.push(own.stop);
  const store = { redis: { url: `redis://127.0.0.1:${own.port}`, commandTimeout: '300ms' } };
  const webhook = { dedup: 'off' };
  const routes = [
    toRoute(app.port, { webhook: { ...webhook, order: ORDER } }),
    toRoute(app.port, {
      route: { name: 'open' },
      match: { path: '/hooks/open' },
      webhook: { ...webhook, order: { ...ORDER, onStoreError: 'forward' } },
    }),
  ];
  const gate = await startGate({ store, routes });
  stops.push(gate.stop);
  const resource = makeResource();
  await own.kill();
  const answer = await send(gate.port, resource(1));
  expect([...toVerdict(answer), answer.headers['retry-after']]).toEqual([503, 'store_unavailable', '5']);
  expect((await send(gate.port, { ...resource(2), path: '/hooks/open' })).text).toBe('handled');
  expect(await gate.metric('sidegate_order_operations_total{outcome="bypassed"}')).toBe(1);
  expect(gate.logText()).toContain('"reason":"order_unavailable"');
  await own.restart();
  await until(async () => ((await send(gate.port, { ...resource(1), path: '/hooks/open' })).code === 'stale' ? true : undefined));
});
