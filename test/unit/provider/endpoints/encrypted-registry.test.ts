import { describe, expect, test } from 'vitest';
import { Secret } from '../../../../src/core/secret.ts';
import { EndpointCipher } from '../../../../src/provider/endpoints/endpoint-record.ts';
import { StoredRegistry } from '../../../../src/provider/endpoints/stored-registry.ts';
import { InboxRegistry } from '../../../../src/provider/inbox/inbox-registry.ts';
import type { LogFields } from '../../../../src/telemetry/log/logger.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { DEFAULTS, toConfigEndpoint, toRecord } from '../../../support/provider/endpoints.ts';
import { MemoryEndpointStore } from '../../../support/provider/memory-queue.ts';

const [A, B, C] = [1, 2, 3].map((byte) => Buffer.alloc(32, byte)) as [Buffer, Buffer, Buffer];
const idOf = (key: Buffer): string => new EndpointCipher([key]).keyId;
const RECORD = toRecord({ headers: { Authorization: 'Bearer hidden', 'X-B': 'b-value' } });
const NEW_KEY = { version: 'v1' as const, secret: new Secret(Buffer.alloc(24, 9)) };

function create(keys: readonly Buffer[], store = new MemoryEndpointStore(), clock = new FakeClock()) {
  const reports: Readonly<Record<string, unknown>>[] = [];
  const log = (event: string, { hint: _, ...fields }: LogFields = {}): void => {
    if (event === 'endpoint_unreadable') throw new Error(`${fields['endpoint']} cannot be read`);
    reports.push({ event, ...fields });
  };
  const registry = new StoredRegistry({
    store,
    clock,
    defaults: DEFAULTS,
    cipher: new EndpointCipher(keys),
    onChanged: () => undefined,
    onFatal: (error) => {
      throw error;
    },
    logger: { info: log, warn: log, error: log },
  });
  return { registry, store, clock, reports };
}

async function open(keys: readonly Buffer[], store?: MemoryEndpointStore) {
  const scene = create(keys, store);
  await scene.registry.open();
  await scene.clock.advance(0);
  return scene;
}

/** A store with the endpoints `e0`, `e1`, … */
async function fill(keys: readonly Buffer[], count = 1): Promise<MemoryEndpointStore> {
  const { registry, store } = await open(keys);
  for (let i = 0; i < count; i++) await registry.create(`e${i}`, RECORD);
  registry.close();
  return store;
}

// biome-ignore lint/suspicious/noExplicitAny: the tests change members of the stored JSON
type Json = any;
function read(store: MemoryEndpointStore, id = 'e0'): Json {
  return JSON.parse(store.stored.get(id)?.json ?? '');
}
/** Writes to the store as an attacker would. */
function alter(store: MemoryEndpointStore, change: (json: Json) => object, id = 'e0'): void {
  const version = (store.stored.get(id)?.version ?? 0) + 1;
  const json = read(store, id);
  store.stored.set(id, { id, version, json: JSON.stringify({ ...json, ...change(json) }) });
}
const keysIn = (store: MemoryEndpointStore): string[] => [
  ...new Set([...store.stored.values()].flatMap(({ json }) => [...json.matchAll(/"key":"(\w+)"/g)].map(([, key = '']) => key))),
];

describe('with a key', () => {
  test('stores neither secrets nor header values in plain text, and reads them back', async () => {
    const store = await fill([A]);
    const json = store.stored.get('e0')?.json ?? '';
    for (const secret of ['hidden', 'b-value', Buffer.alloc(24, 7).toString('base64')]) expect(json).not.toContain(secret);
    expect(Object.keys(read(store).headers)).toEqual(['Authorization', 'X-B']);
    const { registry } = await open([A], store);
    expect(registry.get('e0')?.headers).toEqual(Object.entries(RECORD.settings.headers));
    expect(registry.get('e0')?.keys[0]?.secret.expose()).toEqual(Buffer.alloc(24, 7));
    expect(registry.find('e0')?.version).toBe(store.stored.get('e0')?.version);
  });

  test('encrypts what was stored in plain text, once', async () => {
    const store = await fill([], 3);
    const puts = store.puts;
    const { registry, reports } = await open([A], store);
    await expect.poll(() => reports).toEqual([{ event: 'endpoint_secrets_encrypted', key: idOf(A), count: 3, unusedKeys: [] }]);
    expect(JSON.stringify([...store.stored.values()])).not.toContain('hidden');
    expect(store.puts - puts).toBe(3);
    expect(registry.find('e0')?.record.updatedAt).toBe(1);
  });

  test('stores an endpoint that the config hides, too', async () => {
    const store = await fill([]);
    const { registry, reports } = create([A], store);
    registry.replaceConfig([toConfigEndpoint('e0')], DEFAULTS);
    await registry.open();
    await expect.poll(() => reports.map(({ event }) => event)).toEqual(['endpoint_hidden', 'endpoint_secrets_encrypted']);
    expect(keysIn(store)).toEqual([idOf(A)]);
  });
});

test('without a key, says how many endpoints are in plain text', async () => {
  const { reports } = await open([], await fill([], 2));
  expect(reports).toEqual([{ event: 'endpoint_secrets_plain', count: 2 }]);
  expect((await open([])).reports).toEqual([]);
});

describe('a rotation', () => {
  test('encrypts everything with the new first key at the start, and says that the old key can go', async () => {
    const store = await fill([A], 40);
    const { registry, reports } = await open([B, A], store);
    await expect
      .poll(() => reports)
      .toEqual([{ event: 'endpoint_secrets_encrypted', key: idOf(B), count: 40, unusedKeys: [idOf(A)] }]);
    expect(keysIn(store)).toEqual([idOf(B)]);
    registry.close();
    const next = await open([B], store);
    expect(next.registry.get('e39')?.headers).toHaveLength(2);
  });

  test('by a reload does the same, also if the old key is replaced in place', async () => {
    for (const keys of [[B, A], [B]]) {
      const store = await fill([A], 5);
      const { registry, reports } = await open([A], store);
      registry.replaceCipher(new EndpointCipher(keys));
      await expect.poll(() => reports.at(-1)).toMatchObject({ event: 'endpoint_secrets_encrypted', key: idOf(B), count: 5 });
      expect(keysIn(store)).toEqual([idOf(B)]);
      expect(registry.list()).toHaveLength(5);
      registry.close();
    }
  });

  test('changes nothing for the same keys, and reads with any order', async () => {
    const store = await fill([A]);
    const { version } = store.stored.get('e0') ?? {};
    const { registry, reports } = await open([A, B], store);
    registry.replaceCipher(new EndpointCipher([A, B]));
    registry.replaceCipher(new EndpointCipher([A, B]));
    await expect.poll(() => reports).toHaveLength(1);
    expect([reports[0], registry.find('e0')?.version]).toEqual([
      { event: 'endpoint_secrets_encrypted', key: idOf(A), count: 0, unusedKeys: [idOf(B)] },
      version,
    ]);
  });

  test('by two replicas at once loses no change that is made meanwhile', async () => {
    const store = await fill([A], 30);
    const first = create([B, A], store);
    const second = create([B, A], new MemoryEndpointStore(store));
    await Promise.all([first.registry.open(), second.registry.open()]);
    const changes = Array.from({ length: 30 }, (_, i) =>
      first.registry.update(`e${i}`, (record) => ({ ...record, settings: { ...record.settings, headers: { 'X-New': `${i}` } } })),
    );
    expect(new Set(await Promise.all(changes))).toEqual(new Set(['changed']));
    await expect.poll(() => [first.reports.length, second.reports.length]).toEqual([1, 1]);
    const { registry } = await open([B], store);
    expect(registry.list().map(({ headers }) => headers)).toEqual(registry.list().map(({ id }) => [['X-New', id.slice(1)]]));
    // Each endpoint was stored by one replica, besides its change.
    expect(
      first.reports
        .concat(second.reports)
        .reduce((sum, report) => sum + (typeof report['count'] === 'number' ? report['count'] : 0), 0),
    ).toBeLessThanOrEqual(30);
  });

  test('never lets replicas with keys in another order work against each other without end', async () => {
    const store = await fill([A], 20);
    const first = create([A, B], store);
    const other = new MemoryEndpointStore(store);
    const second = create([B, A], other);
    await Promise.all([first.registry.open(), second.registry.open()]);
    await first.clock.advance(1_000);
    await second.clock.advance(1_000);
    await expect.poll(() => second.reports.length + first.reports.length).toBeGreaterThan(0);
    const versions = (): number[] => [...store.stored.values()].map(({ version }) => version);
    const before = versions();
    await first.clock.advance(60_000);
    await second.clock.advance(60_000);
    expect(versions()).toEqual(before);
    expect(store.puts + other.puts).toBeLessThan(20 * 5);
    expect([first.registry.list().length, second.registry.list().length]).toEqual([20, 20]);
    first.registry.close();
    // The old replica is gone.
    await second.clock.advance(600_000);
    await expect.poll(() => keysIn(store)).toEqual([idOf(B)]);
  });

  test('goes on at the next time after an outage of the store', async () => {
    const store = await fill([A], 3);
    const { registry, clock, reports } = create([B, A], store);
    await registry.open();
    store.failure = new Error('down');
    await clock.advance(0);
    await clock.advance(600_000);
    await expect.poll(() => reports.at(-1)).toMatchObject({ event: 'endpoint_secrets_encrypted', key: idOf(B) });
    registry.close();
    expect(clock.timers).toBe(0);
  });
});

describe('a key that is missing', () => {
  test.each([[[]], [[B]]])('prevents the start, with its ID and the endpoints: keys %#', async (keys) => {
    const { registry, reports, store } = create(keys, await fill([A], 12));
    const before = [...store.stored.values()];
    await expect(registry.open()).rejects.toMatchObject({
      kind: 'user',
      code: 'encryption_key_missing',
      message: `provider.encryption.keys lacks a key that secrets of endpoints are encrypted with: key ${idOf(A)} of e0, e1, e10, e11, e2, e3, e4, e5, e6, e7 and 2 more. Add the key again; if it is lost, add its ID to provider.encryption.lostKeys`,
    });
    registry.close();
    expect(reports).toEqual([]);
    expect([...store.stored.values()]).toEqual(before);
  });

  test('at run time, lets events of the endpoint wait until the key is there', async () => {
    const { registry, store, clock, reports } = await open([A]);
    const other = await open([B], new MemoryEndpointStore(store));
    await other.registry.create('new', RECORD);
    await clock.advance(1_000);
    await clock.advance(0);
    expect(reports.at(-1)).toEqual({ event: 'encryption_key_missing', key: idOf(B), count: 1, endpoints: ['new'] });
    expect(registry.route({ type: 'x', data: {} })).toEqual([{ endpoint: 'new' }]);
    expect([registry.get('new'), registry.list(), registry.isElsewhere('new')]).toEqual([undefined, [], true]);
    // Lanes ask this one: without it, they would skip the deliveries of an unknown endpoint after 15 minutes.
    const lanes = new InboxRegistry(registry, false);
    expect([lanes.isElsewhere('new'), lanes.isElsewhere('other'), lanes.isElsewhere('inbox:billing')]).toEqual([
      true,
      false,
      false,
    ]);
    expect(await registry.create('new', RECORD)).toBe(false);
    expect(await registry.update('new', (record) => record)).toBe('not_found');
    registry.replaceCipher(new EndpointCipher([A, B]));
    expect([registry.get('new')?.headers.length, registry.isElsewhere('new')]).toEqual([2, false]);
  });

  test('that is listed as lost resets its endpoints and only those: new secret, no header values, disabled', async () => {
    const { registry: other, store } = await open([B]);
    await other.create('safe', RECORD);
    other.close();
    for (const [id, stored] of (await fill([A], 2)).stored) store.stored.set(id, stored);
    const before = new Map(store.stored);
    const lost = { lostKeys: [idOf(A)], createKey: () => NEW_KEY };
    const withoutSafe = create([C], store);
    await expect(withoutSafe.registry.open(lost)).rejects.toThrow(`key ${idOf(B)} of safe.`);
    withoutSafe.registry.close();
    expect(store.stored).toEqual(before);
    const { registry, reports } = create([B], store);
    await registry.open(lost);
    expect(reports.slice(0, 2)).toEqual(['e0', 'e1'].map((endpoint) => ({ event: 'endpoint_secrets_reset', endpoint })));
    expect(registry.get('safe')).toMatchObject({ disabled: undefined, headers: Object.entries(RECORD.settings.headers) });
    expect(registry.get('e0')).toMatchObject({ url: RECORD.settings.url, headers: [], disabled: { reason: 'manual' } });
    expect(registry.get('e0')?.keys).toEqual([NEW_KEY]);
    registry.close();
    const next = await open([B], store);
    expect(next.registry.list()).toEqual(registry.list());
  });
});

describe('an endpoint whose stored values were altered', () => {
  const flip = (value: { data: string }): object => {
    const bytes = Buffer.from(value.data, 'base64');
    bytes[20] = (bytes[20] ?? 0) ^ 1;
    return { ...value, data: bytes.toString('base64') };
  };
  const header = (json: Json, value: unknown) => ({ headers: { ...json.headers, 'X-B': value } });
  const current = (json: Json, over: object) => ({ keys: [{ ...json.keys[0], ...over }, json.keys[1]] });
  test.each<[string, (json: Json, other: Json) => object]>([
    ['secrets of another endpoint', (_, other) => ({ keys: other.keys })],
    ['a header of another endpoint', (json, other) => header(json, other.headers['X-B'])],
    ['the value of another header', (json) => header(json, json.headers.Authorization)],
    ['a header as a secret', (json) => current(json, { secret: json.headers['X-B'] })],
    ['a secret as a header', (json) => header(json, json.keys[0].secret)],
    ['another URL', () => ({ url: 'https://evil.example' })],
    ['an old secret that never expires', ({ keys }) => ({ keys: [keys[0], { ...keys[1], expiresAt: undefined }] })],
    ['secrets in another order', (json) => ({ keys: json.keys.toReversed() })],
    ['another signature', (json) => current(json, { version: 'v1a' })],
    ['a flipped bit', (json) => current(json, { secret: flip(json.keys[0].secret) })],
    ['a truncated value', (json) => header(json, { ...json.headers['X-B'], data: json.headers['X-B'].data.slice(0, 8) })],
    ['no data', (json) => header(json, { ...json.headers['X-B'], data: '' })],
    ['the ID of another key', (json) => header(json, { ...json.headers['X-B'], key: idOf(B) })],
  ])('is not served: %s', async (_, change) => {
    const { registry, store } = await open([A]);
    const keys = [...RECORD.keys, { ...NEW_KEY, expiresAt: 2_000_000_000_000 }];
    for (const id of ['e0', 'other']) await registry.create(id, { ...RECORD, keys });
    registry.close();
    const other = read(store, 'other');
    alter(store, (json) => change(json, other));
    const next = await open([A, B], store);
    expect(next.reports[0]).toEqual({ event: 'endpoint_secrets_altered', endpoint: 'e0' });
    expect(next.registry.list().map(({ id }) => id)).toEqual(['other']);
    expect(next.registry.route({ type: 'x', data: {} })).toHaveLength(2);
    expect(next.registry.isElsewhere('e0')).toBe(true);
    expect(await next.registry.remove('e0', 9)).toBe('version_mismatch');
    expect(await next.registry.remove('e0')).toBe('changed');
    expect(await next.registry.create('e0', RECORD)).toBe(true);
  });

  test('is reported and waits, if it happens at run time', async () => {
    const { registry, store, reports } = await open([A], await fill([A]));
    alter(store, () => ({ url: 'https://evil.example' }));
    await registry.reload();
    expect(reports).toEqual([{ event: 'endpoint_secrets_altered', endpoint: 'e0' }]);
    expect(registry.get('e0')).toBeUndefined();
  });
});
