import { describe, expect, test } from 'vitest';
import { EndpointCipher } from '../../../../src/provider/endpoints/endpoint-record.ts';
import { StoredRegistry } from '../../../../src/provider/endpoints/stored-registry.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { DEFAULTS, toConfigEndpoint, toRecord } from '../../../support/provider/endpoints.ts';
import { MemoryEndpointStore } from '../../../support/provider/memory-queue.ts';

const NOW = 1_800_000_000_000;

async function open(store = new MemoryEndpointStore(), clock = new FakeClock(), heapBytes = 1e9) {
  const unreadable: string[] = [];
  const hidden: string[] = [];
  const failures: unknown[] = [];
  const registry = new StoredRegistry({
    store,
    clock,
    defaults: DEFAULTS,
    cipher: new EndpointCipher([]),
    heapBytes,
    onChanged: () => undefined,
    onFatal: (error) => void failures.push(error),
    logger: {
      info: () => undefined,
      warn: (event, fields) => void (event === 'endpoint_hidden' && hidden.push(String(fields?.['endpoint']))),
      error: (_, fields) => void unreadable.push(String(fields?.['endpoint'] ?? fields?.['error'])),
    },
  });
  await registry.open();
  return { registry, store, clock, unreadable, failures, hidden };
}

const event = (type: string, tenant?: string, data: Record<string, unknown> = {}) => ({ type, tenant, data });
const names = (targets: readonly { endpoint: string }[]): string[] => targets.map(({ endpoint }) => endpoint).toSorted();

describe('routing', () => {
  test('selects by type and tenant, each endpoint once', async () => {
    const { registry } = await open();
    await registry.create('all', toRecord({ allTenants: true }));
    await registry.create('paid', toRecord({ allTenants: true, events: ['invoice.paid', 'invoice.*', '*'] }));
    await registry.create('t1', toRecord({ tenant: 't1', events: ['invoice.paid'] }));
    await registry.create('t2', toRecord({ tenant: 't2' }));
    await registry.create('none', toRecord());
    await registry.create('other', toRecord({ events: ['user.*'] }));
    expect(names(registry.route(event('invoice.paid')))).toEqual(['all', 'none', 'paid']);
    expect(names(registry.route(event('invoice.paid', 't1')))).toEqual(['all', 'paid', 't1']);
    expect(names(registry.route(event('invoice.paid', 't2')))).toEqual(['all', 'paid', 't2']);
    expect(names(registry.route(event('invoice.paid', 't3')))).toEqual(['all', 'paid']);
    expect(names(registry.route(event('user.created', 't1')))).toEqual(['all', 'paid']);
    expect(names(registry.route(event('user.created')))).toEqual(['all', 'none', 'other', 'paid']);
  });

  test('follows changed settings, and forgets removed endpoints', async () => {
    const { registry } = await open();
    await registry.create('a', toRecord({ events: ['x'], tenant: 'c' }));
    expect(names(registry.route(event('x', 'c')))).toEqual(['a']);
    await registry.update('a', (record) => ({ ...record, settings: { ...record.settings, events: ['y.*'] } }));
    expect(registry.route(event('x', 'c'))).toEqual([]);
    expect(names(registry.route(event('y.z', 'c')))).toEqual(['a']);
    expect(await registry.remove('a')).toBe('changed');
    expect(registry.route(event('y.z', 'c'))).toEqual([]);
    expect(await registry.remove('a')).toBe('not_found');
  });

  test('sends operational events to operational endpoints of the tenant only', async () => {
    const { registry } = await open();
    await registry.create('ops', toRecord({ operational: true, events: ['endpoint.*'], allTenants: true }));
    await registry.create('ops-t1', toRecord({ operational: true, tenant: 't1' }));
    await registry.create('all', toRecord({ allTenants: true }));
    expect(names(registry.route(event('endpoint.disabled')))).toEqual(['all']);
    expect(names(registry.routeOperational('endpoint.disabled', 't1'))).toEqual(['ops', 'ops-t1']);
    expect(names(registry.routeOperational('endpoint.disabled', 't2'))).toEqual(['ops']);
    expect(names(registry.routeOperational('endpoint.disabled', undefined))).toEqual(['ops']);
    expect(registry.routeOperational('message.exhausted', 't2')).toEqual([]);
  });

  test('keeps the order of events with the same value, and has none without a usable value', async () => {
    const { registry } = await open();
    await registry.create('a', toRecord({ orderBy: '$.data.customer' }));
    const keyOf = (customer: unknown) => registry.route(event('x', undefined, { customer }))[0]?.orderKey;
    const usable = ['c1', 7, true, '', 'x'.repeat(100_000), 'c1\u0000'];
    // A digest: the store holds no value of a payload, and text that PostgreSQL cannot store is a key as well.
    for (const value of usable) expect(keyOf(value)).toMatch(/^[\w-]{22}$/);
    expect(new Set(usable.map(keyOf)).size).toBe(usable.length);
    expect(keyOf('7')).toBe(keyOf(7));
    expect([keyOf(undefined), keyOf(null), keyOf({}), keyOf(['c1'])]).toEqual([undefined, undefined, undefined, undefined]);
    await registry.create('b', toRecord({ orderBy: '$.data.customer' }));
    expect(registry.match('b', event('x', undefined, { customer: 'c1' }))?.orderKey).not.toBe(keyOf('c1'));
  });

  test('selects among 10,000 endpoints without looking at each of them for each event', async () => {
    const { registry } = await open();
    const endpoints = Array.from({ length: 10_000 }, (_, i) =>
      toConfigEndpoint(`e${i}`, i % 2 === 0 ? { tenant: `t${i}` } : { allTenants: true, events: [`kind${i}.*`, `kind${i}`] }),
    );
    registry.replaceConfig(endpoints, DEFAULTS);
    const costs = Array.from({ length: 5 }, () => {
      const before = process.cpuUsage();
      for (let i = 0; i < 2_000; i++) registry.route(event(`kind${i % 500}.x`, `t${i}`));
      return process.cpuUsage(before).user / 2_000;
    });
    // In microseconds, of the round that other processes disturb least; looking at each endpoint takes more than 1,000.
    expect(Math.min(...costs)).toBeLessThan(600);
    expect(names(registry.route(event('kind4001.x', 't4000')))).toEqual(['e4000', 'e4001']);
  });
});

describe('endpoints of the config', () => {
  test('keep their state in the store, over reloads and restarts', async () => {
    const { registry, store } = await open();
    registry.replaceConfig([toConfigEndpoint('acme')], DEFAULTS);
    expect(await registry.disable('acme', 'failing', NOW, toConfigEndpoint('acme', { url: 'https://old.example' }))).toBe(false);
    expect(await registry.disable('acme', 'failing', NOW, registry.get('acme'))).toBe(true);
    expect(await registry.disable('acme', 'gone', NOW + 1)).toBe(false);
    expect(registry.route(event('x'))).toEqual([{ endpoint: 'acme', isSkipped: true }]);
    const restarted = await open(store);
    restarted.registry.replaceConfig([toConfigEndpoint('acme', { url: 'https://new.example' })], DEFAULTS);
    expect(restarted.registry.get('acme')).toMatchObject({
      url: 'https://new.example',
      disabled: { at: NOW, reason: 'failing' },
      enabledAt: 0,
    });
    expect(await restarted.registry.enable('acme', NOW + 5)).toBe(true);
    expect(await restarted.registry.enable('acme', NOW + 6)).toBe(false);
    expect(restarted.registry.get('acme')).toMatchObject({ disabled: undefined, enabledAt: NOW + 5 });
    restarted.registry.replaceConfig([], DEFAULTS);
    expect(restarted.registry.list()).toEqual([]);
    expect(await restarted.registry.disable('acme', 'manual', NOW)).toBe(false);
  });

  test('hide stored ones with the same ID, which cannot be changed meanwhile', async () => {
    const { registry } = await open();
    await registry.create('acme', toRecord({ url: 'https://stored.example' }));
    registry.replaceConfig([toConfigEndpoint('acme')], DEFAULTS);
    expect(registry.list().map(({ url }) => url)).toEqual(['https://config.example/hooks']);
    expect(await registry.update('acme', (record) => record)).toBe('not_found');
    expect(await registry.create('acme', toRecord())).toBe(false);
    registry.replaceConfig([], DEFAULTS);
    expect(registry.get('acme')?.url).toBe('https://stored.example');
  });

  test('hide stored ones, which are reported, can be removed, and then do not come back', async () => {
    const { registry, hidden } = await open();
    await registry.create('acme', toRecord());
    await registry.create('other', toRecord());
    registry.replaceConfig([toConfigEndpoint('acme')], DEFAULTS);
    expect(hidden).toEqual(['acme']);
    expect(await registry.remove('acme')).toBe('changed');
    expect(registry.get('acme')?.url).toBe('https://config.example/hooks');
    expect(await registry.remove('acme')).toBe('not_found');
    registry.replaceConfig([], DEFAULTS);
    expect(registry.list().map(({ id }) => id)).toEqual(['other']);
  });
});

describe('stored endpoints', () => {
  test('are read back with all settings and secrets, and follow changed defaults', async () => {
    const { registry, store } = await open();
    const record = toRecord({ headers: { 'X-A': 'b' }, rateLimit: 0.5, orderBy: '$.data.id', timeout: 3_000 });
    await registry.create('a', {
      ...record,
      keys: [...record.keys, { ...record.keys[0], version: 'v1', expiresAt: 9 } as never],
    });
    const { registry: other } = await open(store);
    expect(other.get('a')).toEqual(registry.get('a'));
    expect(other.get('a')?.keys.map(({ secret }) => secret.expose().toString('hex'))).toEqual(['07'.repeat(24), '07'.repeat(24)]);
    expect(other.get('a')).toMatchObject({ timeout: 3_000, connectTimeout: 3_000, concurrency: 4 });
    other.replaceConfig([], { ...DEFAULTS, concurrency: 9 });
    expect(other.get('a')?.concurrency).toBe(9);
  });

  test('that cannot be read are reported and do not exist, and the others stay', async () => {
    const store = new MemoryEndpointStore();
    for (const [id, json] of [
      ['a', '{"v":2}'],
      ['b', 'no JSON'],
      ['c', '[]'],
      ['config:d', '{}'],
    ] as const)
      store.stored.set(id, { id, version: 1, json });
    const { registry, unreadable } = await open(store);
    await registry.create('e', toRecord());
    expect(unreadable).toEqual(['a', 'b', 'c', 'd']);
    expect(registry.list().map(({ id }) => id)).toEqual(['e']);
    expect(await registry.create('a', toRecord())).toBe(false);
  });
});

describe('changes by other replicas', () => {
  test('arrive, also removals and an endpoint that was created again', async () => {
    const first = await open();
    const second = await open(new MemoryEndpointStore(first.store));
    await first.registry.create('a', toRecord({ url: 'https://one.example' }));
    await second.registry.reload();
    expect(second.registry.get('a')?.url).toBe('https://one.example');
    await first.registry.remove('a');
    await first.registry.create('a', toRecord({ url: 'https://two.example' }));
    await second.registry.reload();
    expect(second.registry.get('a')?.url).toBe('https://two.example');
    await first.registry.remove('a');
    await second.registry.reload();
    expect(second.registry.get('a')).toBeUndefined();
  });

  test('are merged: of 50 concurrent changes by two replicas none is lost', async () => {
    const first = await open();
    await first.registry.create('a', toRecord());
    const second = await open(new MemoryEndpointStore(first.store));
    const add = (registry: StoredRegistry, name: string) =>
      registry.update('a', (record) => ({
        ...record,
        settings: { ...record.settings, events: [...record.settings.events, name] },
      }));
    for (let round = 0; round < 25; round++)
      await Promise.all([add(first.registry, `x${round}`), add(second.registry, `y${round}`)]);
    await first.registry.reload();
    await second.registry.reload();
    expect(first.registry.get('a')?.events).toHaveLength(50);
    expect(second.registry.get('a')?.events).toEqual(first.registry.get('a')?.events);
  });

  test('are refused if they require a version that is no longer current', async () => {
    const { registry } = await open();
    await registry.create('a', toRecord());
    const first = registry.find('a')?.version;
    expect(await registry.update('a', (record) => record, first)).toBe('changed');
    expect(await registry.update('a', (record) => record, first)).toBe('version_mismatch');
    expect(await registry.remove('a', first)).toBe('version_mismatch');
    expect(await registry.remove('a', registry.find('a')?.version)).toBe('changed');
  });

  test('of an endpoint that was removed and created again do not apply to the new one', async () => {
    const first = await open();
    await first.registry.create('a', toRecord({ url: 'https://one.example', tenant: 'one' }));
    const second = await open(new MemoryEndpointStore(first.store));
    const old = second.registry.find('a')?.version;
    await first.registry.remove('a');
    await first.registry.create('a', toRecord({ url: 'https://two.example', tenant: 'two' }));
    expect(await first.registry.update('a', (record) => record, old)).toBe('version_mismatch');
    expect(await first.registry.remove('a', old)).toBe('version_mismatch');
    // It has not noticed yet.
    await second.registry.update('a', (record) => ({ ...record, updatedAt: 7 }));
    for (const { registry } of [first, second]) {
      await registry.reload();
      expect(registry.get('a')).toMatchObject({ url: 'https://two.example', tenant: 'two' });
    }
  });

  test('are not removed with a version that another replica has just changed', async () => {
    const first = await open();
    await first.registry.create('a', toRecord());
    const second = await open(new MemoryEndpointStore(first.store));
    const before = second.registry.find('a')?.version;
    await first.registry.update('a', (record) => ({ ...record, updatedAt: 7 }));
    expect(await second.registry.remove('a', before)).toBe('version_mismatch');
    expect(second.registry.find('a')?.record.updatedAt).toBe(7);
    await first.registry.remove('a');
    expect(await second.registry.remove('a', second.registry.find('a')?.version)).toBe('not_found');
  });

  test('are only disabled once when two replicas notice at the same time', async () => {
    const first = await open();
    const second = await open(new MemoryEndpointStore(first.store));
    for (const { registry } of [first, second]) registry.replaceConfig([toConfigEndpoint('acme')], DEFAULTS);
    const results = await Promise.all([first, second].map(({ registry }) => registry.disable('acme', 'failing', NOW)));
    expect(results.toSorted()).toEqual([false, true]);
  });

  test('that come in a burst are read together', async () => {
    const first = await open();
    const second = await open(new MemoryEndpointStore(first.store));
    for (let i = 0; i < 50; i++) await first.registry.create(`e${i}`, toRecord());
    await second.clock.advance(1_000);
    await second.clock.advance(0);
    expect([second.registry.list().length, second.store.lists]).toEqual([50, 2]);
    expect(second.registry.list()).toEqual(first.registry.list());
  });

  test('are read again after an outage of the store', async () => {
    const first = await open();
    const second = await open(new MemoryEndpointStore(first.store));
    second.store.failure = new Error('down');
    await first.registry.create('a', toRecord());
    await second.clock.advance(4_000);
    expect(second.registry.get('a')).toBeUndefined();
    await second.clock.advance(2_000);
    await second.clock.advance(0);
    expect(second.registry.get('a')).toBeDefined();
    second.registry.close();
    expect(second.clock.timers).toBe(0);
  });

  test('are read in pages, also while endpoints are added, and what was read counts although a later page fails', async () => {
    const first = await open();
    for (let i = 0; i < 5; i++) await first.registry.create(`e${i}`, toRecord());
    const store = new MemoryEndpointStore(first.store);
    store.pageSize = 2;
    const list = store.list.bind(store);
    let isFailing = true;
    store.list = async (after) => {
      if (after === 'e1') await first.registry.create('a', toRecord());
      if (after !== undefined && after >= 'e1' && isFailing) throw new Error('down');
      return list(after);
    };
    await expect(open(store)).rejects.toThrow('down');
    isFailing = false;
    const { registry, clock } = await open(store);
    const ids = () => registry.list().map(({ id }) => id);
    expect(ids()).toEqual(['a', 'e0', 'e1', 'e2', 'e3', 'e4']);
    isFailing = true;
    await first.registry.remove('e0');
    await first.registry.create('e00', toRecord());
    await first.registry.create('e9', toRecord());
    await clock.advance(1_000);
    expect(ids()).toEqual(['a', 'e0', 'e00', 'e1', 'e2', 'e3', 'e4']);
    isFailing = false;
    await clock.advance(6_000);
    await clock.advance(0);
    expect(ids()).toEqual(['a', 'e00', 'e1', 'e2', 'e3', 'e4', 'e9']);
    expect(names(registry.route(event('x')))).toEqual(ids());
  });

  test('that use more than the heap has are not read at the start, and the error says how to go on', async () => {
    const first = await open();
    const size = 2_048 + 3 * 300;
    const text =
      /^the queue stores more endpoints of the API than the heap of 0 MiB can hold, which is full with \d+. Raise the memory limit/;
    for (let i = 0; i < 60; i++) await first.registry.create(`e${i}`, toRecord());
    const store = new MemoryEndpointStore(first.store);
    store.pageSize = 10;
    const failed = open(store, undefined, 30 * size);
    await expect(failed).rejects.toMatchObject({
      kind: 'user',
      code: 'endpoints_too_large',
      message: expect.stringMatching(text),
    });
  });

  test('that use more than the heap has, as another replica with more memory created them, end a running process, which routes nothing more', async () => {
    const first = await open();
    for (let i = 10; i < 40; i++) await first.registry.create(`e${i}`, toRecord());
    const { registry, clock, failures } = await open(new MemoryEndpointStore(first.store), undefined, 100 * (2_048 + 3 * 300));
    expect(registry.route(event('x'))).toHaveLength(30);
    for (let i = 40; i < 99; i++) await first.registry.create(`e${i}`, toRecord());
    for (let i = 0; i < 3; i++) await clock.advance(5_000);
    expect(failures).toMatchObject([{ code: 'endpoints_too_large', message: expect.stringContaining('Raise the memory limit') }]);
    expect(registry.list().length).toBeLessThan(60);
    expect(() => registry.route(event('x'))).toThrow(expect.objectContaining({ kind: 'system', code: 'queue_unavailable' }));
    expect(first.failures).toEqual([]);
  });

  test('never undo a change of this replica that the list does not contain yet', async () => {
    const { registry, store } = await open();
    await Promise.all([registry.create('a', toRecord()), registry.reload()]);
    expect(registry.get('a')).toBeDefined();
    expect(store.lists).toBe(2);
    await registry.create('b', toRecord());
    await Promise.all([registry.remove('b'), registry.update('a', (record) => ({ ...record, updatedAt: 7 })), registry.reload()]);
    expect([registry.get('b'), registry.find('a')?.record.updatedAt]).toEqual([undefined, 7]);
    await registry.reload();
    expect([registry.get('b'), registry.find('a')?.record.updatedAt]).toEqual([undefined, 7]);
  });
});

test('lists endpoints sorted by ID, after any changes', async () => {
  const { registry } = await open();
  const expected = new Set<string>();
  for (let i = 0; i < 200; i++) {
    const id = `e${(i * 37) % 61}`;
    if (expected.has(id)) {
      expected.delete(id);
      await registry.remove(id);
    } else {
      expected.add(id);
      await registry.create(id, toRecord());
    }
    if (i % 50 === 0) registry.replaceConfig([toConfigEndpoint(`c${i}`)], DEFAULTS);
  }
  expect(registry.list().map(({ id }) => id)).toEqual([...expected, 'c150'].toSorted());
});

describe('catching up', () => {
  test('reads the store if another replica changed the endpoint or its state, and only then', async () => {
    const one = await open();
    const two = await open(new MemoryEndpointStore(one.store));
    two.registry.replaceConfig([toConfigEndpoint('named')], DEFAULTS);
    one.registry.replaceConfig([toConfigEndpoint('named')], DEFAULTS);
    await one.registry.create('a', toRecord());
    expect(two.registry.get('a')).toBeUndefined();
    await two.registry.catchUp('a');
    expect(two.registry.get('a')).toBeDefined();
    const { lists } = two.store;
    await two.registry.catchUp('a');
    await two.registry.catchUp('named', 0);
    expect(two.store.lists).toBe(lists);
    await one.registry.disable('named', 'manual', NOW);
    await two.registry.catchUp('named', await one.store.readVersion('named'));
    expect(two.registry.get('named')?.disabled).toBeDefined();
    await one.registry.remove('a');
    await two.registry.catchUp('a', 0);
    expect(two.registry.get('a')).toBeUndefined();
  });

  test('waits for one read that begins later, however often others ask meanwhile', async () => {
    const { registry, store } = await open();
    const { lists } = store;
    let isOver = false;
    const waiting = registry.reload().then(() => {
      isOver = true;
    });
    const others: Promise<void>[] = [];
    while (!isOver && others.length < 100) {
      others.push(registry.reload());
      await new Promise((resolve) => setImmediate(resolve));
    }
    await waiting;
    expect(others.length).toBeLessThan(20);
    await Promise.all(others);
    expect(store.lists - lists).toBeLessThan(5);
  });
});

test('counts endpoints while they are written, and no longer if that fails', async () => {
  const { registry, store } = await open(undefined, undefined, 100_000);
  const fill = (): Promise<boolean>[] => {
    const written: Promise<boolean>[] = [];
    const ids = Array.from({ length: 30 }, (_, i) => `e${i}`);
    for (const id of ids) if (registry.findFull(id, toRecord()) === undefined) written.push(registry.create(id, toRecord()));
    return written;
  };
  store.failure = new Error('no store');
  const failed = fill();
  expect((await Promise.allSettled(failed))[0]?.status).toBe('rejected');
  await registry.remove('e1');
  expect(failed.length).toBeLessThan(30);
  expect(await registry.create('e0', toRecord({ events: ['a'] }))).toBe(true);
  const rest = fill();
  expect(rest.length).toBeLessThan(failed.length);
  await Promise.all(rest);
  expect(registry.findFull('e29', toRecord())).toBe('heap');
});
