import crypto, { createHmac } from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { HashPool } from '../../../src/users/hash-pool.ts';
import { type LivePassword, parseHtpasswd, UserSet } from '../../../src/users/user-set.ts';
import { type CacheOutcome, type CountAttempt, PasswordVerifier, VerifiedCache } from '../../../src/users/verifier.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { makeEntry } from '../../support/users.ts';

const pools: HashPool[] = [];
afterAll(() => Promise.all(pools.map((pool) => pool.close())));
const FREE: CountAttempt = { keys: ['k'], take: async () => ({ kind: 'taken', refund: async () => undefined }) };
const BANNED: CountAttempt = { keys: ['k'], take: async () => ({ kind: 'banned', left: 7 }) };
const HOME = '192.0.2.1';
const toSource = (name: string, text: string, notAfter?: number) => ({
  name,
  notAfter,
  entries: parseHtpasswd(text, { allowPlainText: false }).entries,
});
const of = (user: string, password: string) => ({ user, password: Buffer.from(password) });

function start(sources = [toSource('one', makeEntry('ann', 'x'))], cache = { ttl: 1_000, maxEntries: 2 }) {
  const clock = new FakeClock();
  const pool = new HashPool({ threads: 1, queue: 1 });
  pools.push(pool);
  const outcomes: CacheOutcome[] = [];
  const verifier = new PasswordVerifier(new UserSet(sources), {
    realm: 'r',
    pool,
    clock,
    cache,
    onCache: (outcome) => void outcomes.push(outcome),
  });
  return { clock, pool, verifier, outcomes };
}

describe('a correct password', () => {
  test('is cached for its time, and no longer', async () => {
    const { verifier, clock } = start();
    expect(verifier.recall(of('ann', 'x'), HOME)).toBeUndefined();
    expect(await verifier.verify(of('ann', 'x'), HOME, FREE)).toMatchObject({ source: 'one' });
    await clock.advance(999);
    expect(verifier.recall(of('ann', 'x'), HOME)).toMatchObject({ source: 'one' });
    expect(verifier.recall(of('ann', 'y'), HOME)).toBeUndefined();
    expect(verifier.recall(of('annx', ''), HOME)).toBeUndefined();
    await clock.advance(1);
    expect(verifier.recall(of('ann', 'x'), HOME)).toBeUndefined();
  });

  test('is removed from the cache if its hash changes, even to one of the same password', async () => {
    const { verifier } = start();
    await verifier.verify(of('ann', 'x'), HOME, FREE);
    verifier.replace(new UserSet([toSource('one', makeEntry('ann', 'x'))]));
    expect(verifier.recall(of('ann', 'x'), HOME)).toBeUndefined();
    verifier.replace(new UserSet([]));
    expect(await verifier.verify(of('ann', 'x'), HOME, FREE)).toBeUndefined();
  });

  test('is not accepted for another user, even with the same hash and a character moved from the name to the password', async () => {
    const entry = makeEntry('ab', 'c');
    const { verifier } = start([toSource('one', `${entry}\na${entry.slice(2)}`)]);
    await verifier.verify(of('ab', 'c'), HOME, FREE);
    expect(verifier.recall(of('ab', 'c'), HOME)).toBeDefined();
    for (const other of [of('a', 'bc'), of('a', 'c'), of('ab', '')]) expect(verifier.recall(other, HOME)).toBeUndefined();
  });

  test('may contain any bytes, and is distinguished from all others', async () => {
    const { verifier } = start([toSource('one', makeEntry('ann', 'é\u{1f511}'))]);
    await verifier.verify(of('ann', 'é\u{1f511}'), HOME, FREE);
    expect(verifier.recall(of('ann', 'é\u{1f511}'), HOME)).toBeDefined();
    for (const other of ['Ã©\u{1f511}', 'é', 'è\u{1f511}']) expect(verifier.recall(of('ann', other), HOME)).toBeUndefined();
  });

  test('replaces the least recently used one in a full cache', async () => {
    const text = ['a', 'b', 'c'].map((user) => makeEntry(user, 'x')).join('\n');
    const { verifier } = start([toSource('one', text)]);
    await verifier.verify(of('a', 'x'), HOME, FREE);
    await verifier.verify(of('b', 'x'), HOME, FREE);
    verifier.recall(of('a', 'x'), HOME);
    await verifier.verify(of('c', 'x'), HOME, FREE);
    expect(['a', 'b', 'c'].map((user) => verifier.recall(of(user, 'x'), HOME) !== undefined)).toEqual([true, false, true]);
  });

  test('is hashed each time if the cache is disabled', async () => {
    const { verifier } = start(undefined, { ttl: 0, maxEntries: 10 });
    await verifier.verify(of('ann', 'x'), HOME, FREE);
    expect(verifier.recall(of('ann', 'x'), HOME)).toBeUndefined();
  });

  test('of a user who is removed during the check is rejected', async () => {
    const { verifier } = start();
    const result = verifier.verify(of('ann', 'x'), HOME, FREE);
    verifier.replace(new UserSet([]));
    expect(await result).toBeUndefined();
  });
});

test('two passwords are valid during a change, and each reports its source', async () => {
  const { verifier, clock } = start([]);
  const until = clock.now() + 5_000;
  verifier.replace(new UserSet([toSource('old', makeEntry('ann', 'x'), until), toSource('new', makeEntry('ann', 'y'))]));
  expect(await verifier.verify(of('ann', 'x'), HOME, FREE)).toMatchObject({ source: 'old' });
  expect(await verifier.verify(of('ann', 'y'), HOME, FREE)).toMatchObject({ source: 'new' });
  await clock.advance(5_000);
  expect(await verifier.verify(of('ann', 'x'), HOME, FREE)).toBeUndefined();
  expect(verifier.recall(of('ann', 'x'), HOME)).toBeUndefined();
  expect(await verifier.verify(of('ann', 'y'), HOME, FREE)).toMatchObject({ source: 'new' });
});

test('rejects more checks than fit into the threads and the queue', async () => {
  const { verifier } = start();
  const results = await Promise.all(['a', 'b', 'c', 'd'].map((password) => verifier.verify(of('ann', password), HOME, FREE)));
  expect(results).toEqual([undefined, undefined, { notChecked: 'busy' }, { notChecked: 'busy' }]);
});

test('an attempt is counted before the hash, once for all concurrent requests with the same password, and refunded if it did not fail', async () => {
  const { verifier, outcomes } = start();
  const log: string[] = [];
  const take: CountAttempt['take'] = async () => {
    log.push('take');
    return { kind: 'taken', refund: async () => void log.push('refund') };
  };
  await Promise.all([
    verifier.verify(of('ann', 'x'), HOME, { keys: [], take }),
    verifier.verify(of('ann', 'x'), HOME, { keys: [], take }),
  ]);
  expect([log, outcomes.sort()]).toEqual([
    ['take', 'refund'],
    ['joined', 'miss'],
  ]);
  await verifier.verify(of('ann', 'wrong'), HOME, { keys: [], take });
  expect(log).toEqual(['take', 'refund', 'take']);
  expect(await verifier.verify(of('ann', 'other'), HOME, BANNED)).toEqual({ notChecked: 'banned', left: 7 });
});

test('a banned attempt waits for checks of its keys only, and at most five seconds', async () => {
  const { verifier, clock } = start([toSource('one', `${makeEntry('ann', 'x')}\n${makeEntry('bob', 'x')}`)]);
  let running: (() => void) | undefined;
  const held = verifier.verify(of('ann', 'x'), HOME, {
    keys: ['client', 'ann'],
    take: async () => ({ kind: 'taken', refund: () => new Promise((resolve) => (running = () => resolve(undefined))) }),
  });
  await expect.poll(() => running).toBeDefined();
  const toBanned = (...keys: readonly string[]): CountAttempt => ({ ...BANNED, keys });
  expect(await verifier.verify(of('bob', '1'), HOME, toBanned('bob'))).toMatchObject({ notChecked: 'banned' });
  let result: unknown;
  const waits = verifier.verify(of('bob', '2'), HOME, toBanned('bob', 'client')).then((given) => {
    result = given;
  });
  await clock.advance(4_999);
  expect(result).toBeUndefined();
  await clock.advance(1);
  await waits;
  expect(result).toMatchObject({ notChecked: 'banned' });
  const again = verifier.verify(of('bob', '3'), HOME, toBanned('client'));
  running?.();
  expect(await held).toMatchObject({ source: 'one' });
  expect(await again).toMatchObject({ notChecked: 'banned' });
  expect(clock.timers).toBe(0);
});

describe('a network', () => {
  const AWAY = '192.0.2.2';

  test('cannot use a cached login of another network without an attempt left', async () => {
    const { verifier, outcomes } = start();
    await verifier.verify(of('ann', 'x'), HOME, FREE);
    expect(verifier.recall(of('ann', 'x'), AWAY)).toBeUndefined();
    expect(await verifier.verify(of('ann', 'x'), AWAY, BANNED)).toEqual({ notChecked: 'banned', left: 7 });
    expect(await verifier.verify(of('ann', 'x'), AWAY, FREE)).toMatchObject({ source: 'one' });
    expect(outcomes).toEqual(['miss', 'hit']);
    expect(verifier.recall(of('ann', 'x'), AWAY)).toBeDefined();
  });

  test('needs a separate attempt for a concurrent request of another network, and shares the hash', async () => {
    const { verifier, outcomes } = start();
    let taken = 0;
    const take: CountAttempt['take'] = async () => {
      taken++;
      return { kind: 'taken', refund: async () => undefined };
    };
    const results = await Promise.all(
      [HOME, AWAY].map((network) => verifier.verify(of('ann', 'wrong'), network, { keys: [], take })),
    );
    expect([results, taken, outcomes.sort()]).toEqual([[undefined, undefined], 2, ['joined', 'miss']]);
  });

  test('needs no attempt for a login within the last hour, and a hash once the cache entry expired', async () => {
    const { verifier, clock, outcomes } = start();
    await verifier.verify(of('ann', 'x'), HOME, FREE);
    for (let minutes = 0; minutes < 120; minutes += 59) {
      await clock.advance(59 * 60_000);
      expect(verifier.recall(of('ann', 'x'), HOME)).toBeUndefined();
      expect(await verifier.verify(of('ann', 'x'), HOME, BANNED)).toMatchObject({ source: 'one' });
    }
    expect(outcomes).toEqual(['miss', 'miss', 'miss', 'miss']);
    await clock.advance(60 * 60_000);
    expect(await verifier.verify(of('ann', 'x'), HOME, BANNED)).toMatchObject({ notChecked: 'banned' });
  });

  test('is never rejected for a full queue if it sends a password of the last hour', async () => {
    const { verifier, clock } = start();
    await verifier.verify(of('ann', 'x'), HOME, FREE);
    await clock.advance(1_000);
    const guesses = ['a', 'b', 'c'].map((password) => verifier.verify(of('ann', password), AWAY, FREE));
    expect(await guesses[2]).toEqual({ notChecked: 'busy' });
    // Not by joining the hash that a new login waits for.
    const joined = verifier.verify(of('ann', 'x'), '192.0.2.3', FREE);
    expect(await verifier.verify(of('ann', 'x'), HOME, FREE)).toMatchObject({ source: 'one' });
    expect(await Promise.all([joined, ...guesses.slice(0, 2)])).toHaveLength(3);
  });

  test('loses the exception when the password changes, or after 100 wrong ones while it is banned', async () => {
    const { verifier } = start();
    await verifier.verify(of('ann', 'x'), HOME, FREE);
    for (let i = 0; i < 99; i++) await verifier.verify(of('ann', `guess ${i}`), HOME, BANNED);
    expect(verifier.recall(of('ann', 'x'), HOME)).toBeDefined();
    await verifier.verify(of('ann', 'guess'), HOME, BANNED);
    expect(verifier.recall(of('ann', 'x'), HOME)).toBeUndefined();
    await verifier.verify(of('ann', 'x'), HOME, FREE);
    verifier.replace(new UserSet([toSource('one', makeEntry('ann', 'x'))]));
    expect(await verifier.verify(of('ann', 'x'), HOME, BANNED)).toMatchObject({ notChecked: 'banned' });
  });
});

test('a login of the user gives no further guesses while the network is banned', async () => {
  const { verifier } = start(undefined, { ttl: 0, maxEntries: 2 });
  await verifier.verify(of('ann', 'x'), HOME, FREE);
  for (let i = 0; i < 60; i++) await verifier.verify(of('ann', `guess ${i}`), HOME, BANNED);
  expect(await verifier.verify(of('ann', 'x'), HOME, BANNED)).toMatchObject({ source: 'one' });
  for (let i = 0; i < 40; i++) await verifier.verify(of('ann', `more ${i}`), HOME, BANNED);
  expect(await verifier.verify(of('ann', 'x'), HOME, BANNED)).toMatchObject({ notChecked: 'banned' });
});

describe('a connection that outlives its request', () => {
  const open = async (sources: Parameters<typeof start>[0]) => {
    const { verifier, clock } = start(sources);
    const password = (await verifier.verify(of('ann', 'x'), HOME, FREE)) as LivePassword;
    const ended: string[] = [];
    const watch = (name: string): (() => void) => verifier.onRevoked('ann', password, () => void ended.push(name));
    return { verifier, clock, ended, watch };
  };

  test('ends when its user is removed or its hash changes, but not when another user is removed', async () => {
    const [ann, bob] = [makeEntry('ann', 'x'), makeEntry('bob', 'x')];
    const { verifier, ended, watch } = await open([
      toSource(
        'one',
        `${ann}
${bob}`,
      ),
    ]);
    watch('tunnel');
    watch('over')();
    verifier.replace(new UserSet([toSource('one', ann)]));
    expect(ended).toEqual([]);
    verifier.replace(new UserSet([toSource('one', bob)]));
    expect(ended).toEqual(['tunnel']);
    watch('late');
    verifier.replace(new UserSet([]));
    expect(ended).toEqual(['tunnel', 'late']);
  });

  test('ends when its password expires', async () => {
    const later = new FakeClock().now() + 3_000_000_000;
    const { clock, ended, watch } = await open([toSource('one', makeEntry('ann', 'x'), later)]);
    watch('tunnel');
    await clock.advance(2_999_999_999);
    expect(ended).toEqual([]);
    await clock.advance(1);
    expect(ended).toEqual(['tunnel']);
  });
});

describe('a cache', () => {
  const clock = new FakeClock();
  const fill = (cache: VerifiedCache, network: string, user: string): void => {
    const digest = cache.toDigest(of(user, 'x'), network);
    cache.add(network, user, digest, 'hash');
  };
  const has = (cache: VerifiedCache, network: string, user: string): boolean =>
    cache.find(network, user, cache.toDigest(of(user, 'x'), network)) !== undefined;

  test('that is full keeps the entry of one client when another adds thousands', () => {
    const cache = new VerifiedCache({ ttl: 1_000, maxEntries: 100 }, clock);
    fill(cache, HOME, 'ann');
    for (let i = 0; i < 5_000; i++) fill(cache, '192.0.2.66', `user ${i}`);
    expect([has(cache, HOME, 'ann'), cache.size]).toEqual([true, 100]);
  });

  test('with size 0 holds nothing, not even while it adds an entry', () => {
    const cache = new VerifiedCache({ ttl: 1_000, maxEntries: 0 }, clock);
    fill(cache, HOME, 'ann');
    fill(cache, HOME, 'ann');
    expect([has(cache, HOME, 'ann'), cache.size]).toEqual([false, 0]);
  });

  test('that shrinks drops the least recently used entries', () => {
    const cache = new VerifiedCache({ ttl: 1_000, maxEntries: 100 }, clock);
    for (const user of ['a', 'b', 'c']) fill(cache, HOME, user);
    has(cache, HOME, 'a');
    cache.configure({ ttl: 1_000, maxEntries: 2 });
    expect(['a', 'b', 'c'].map((user) => has(cache, HOME, user))).toEqual([true, false, true]);
    cache.configure({ ttl: 1_000, maxEntries: 0 });
    fill(cache, HOME, 'd');
    expect(cache.size).toBe(0);
  });
});

describe('a rejection costs the same for everyone:', () => {
  const kinds = (hashes: readonly { text: string }[]): string[] => hashes.map(({ text }) => text.slice(0, 7)).sort();
  const text = [makeEntry('fast', 'x', ['-s']), makeEntry('slow', 'x'), makeEntry('slower', 'x', ['-B', '-C', '5'])].join('\n');

  test('one hash of each kind that any user has', () => {
    const set = new UserSet([toSource('one', text)]);
    const all = ['fast', 'slow', 'slower', 'nobody'].map((user) => {
      const own = set.find(user, 0);
      return kinds([...own.map(({ hash }) => hash), ...set.toDecoys(own)]);
    });
    expect(all[3]).toHaveLength(3);
    for (const one of all) expect(one).toEqual(all[3]);
  });

  test('as many hashes as the user with the most', () => {
    const twice = [makeEntry('two', 'x'), makeEntry('two', 'y'), makeEntry('one', 'x')].join('\n');
    const set = new UserSet([toSource('one', twice)]);
    expect(set.toDecoys(set.find('nobody', 0))).toHaveLength(2);
    expect(set.toDecoys(set.find('one', 0))).toHaveLength(1);
    expect(set.toDecoys(set.find('two', 0))).toHaveLength(0);
  });
});

describe('a pool', () => {
  test('that is closed rejects new and queued checks', async () => {
    const { pool } = start();
    const owner = { realm: 'r', network: HOME, isKnown: false };
    const job = { hashes: [], decoys: [], password: Buffer.from('x') };
    expect(await pool.check(job, owner)).toBe(-1);
    await pool.close();
    await expect(pool.check(job, owner)).rejects.toThrow('closed');
    expect(pool.pending).toBe(0);
  });

  test('replaces a thread that died', async () => {
    const { pool } = start();
    const bad = { hashes: [{ algorithm: 'bcrypt', text: 'no hash at all' } as const], decoys: [], password: Buffer.from('x') };
    const owner = { realm: 'r', network: HOME, isKnown: false };
    const good = { hashes: [], decoys: [], password: Buffer.from('x') };
    const [first, second] = await Promise.allSettled([pool.check(bad, owner), pool.check(good, owner)]);
    expect([first.status, second]).toEqual([expect.any(String), { status: 'fulfilled', value: -1 }]);
  });
});

describe('VerifiedCache', () => {
  /** Makes a cache, and returns its key too, which leaves it by no other way than the call that makes it. */
  function makeCache(): { readonly cache: VerifiedCache; readonly key: Buffer } {
    const made = vi.spyOn(crypto, 'randomBytes');
    syncBuiltinESMExports();
    const cache = new VerifiedCache({ ttl: 1_000, maxEntries: 2 }, new FakeClock());
    const [result] = made.mock.results;
    made.mockRestore();
    syncBuiltinESMExports();
    return { cache, key: result?.value as unknown as Buffer };
  }

  test('identifies credentials by their HMAC-SHA-256 (RFC 2104), each field after its length', () => {
    const { cache, key } = makeCache();
    const expected = createHmac('sha256', key).update('9:192.0.2.15:4:anné', 'utf8').update('p\xe4ss', 'latin1').digest('base64');
    for (let i = 0; i < 2; i++)
      expect(cache.toDigest({ user: 'anné', password: Buffer.from('p\xe4ss', 'latin1') }, '192.0.2.1')).toBe(expected);
  });

  test('distinguishes users whose names differ only in characters outside latin1', () => {
    const cache = new VerifiedCache({ ttl: 1_000, maxEntries: 2 }, new FakeClock());
    const [one, other] = ['\u0141', '\u0241'].map((user) => cache.toDigest({ user, password: Buffer.from('p') }, '192.0.2.1'));
    expect(one).not.toBe(other);
  });
});
