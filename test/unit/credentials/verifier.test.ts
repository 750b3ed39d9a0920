import { afterAll, describe, expect, test } from 'vitest';
import { HashPool } from '../../../src/credentials/hash-pool.ts';
import { UserSet } from '../../../src/credentials/user-set.ts';
import { parseHtpasswd } from '../../../src/credentials/users.ts';
import { type AttemptBudget, type CacheOutcome, Verifier } from '../../../src/credentials/verifier.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { makeEntry } from '../../support/users.ts';

const pools: HashPool[] = [];
afterAll(() => Promise.all(pools.map((pool) => pool.close())));
const FREE: AttemptBudget = { take: async () => 0, refund: async () => undefined };
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
  const verifier = new Verifier(new UserSet(sources), { pool, clock, cache, onCache: (outcome) => void outcomes.push(outcome) });
  return { clock, pool, verifier, outcomes };
}

describe('a password that fitted', () => {
  test('is remembered for its time, and no longer', async () => {
    const { verifier, clock } = start();
    expect(verifier.recall(of('ann', 'x'))).toBeUndefined();
    expect(await verifier.verify(of('ann', 'x'), FREE)).toMatchObject({ source: 'one' });
    await clock.advance(999);
    expect(verifier.recall(of('ann', 'x'))).toMatchObject({ source: 'one' });
    expect(verifier.recall(of('ann', 'y'))).toBeUndefined();
    expect(verifier.recall(of('annx', ''))).toBeUndefined();
    await clock.advance(1);
    expect(verifier.recall(of('ann', 'x'))).toBeUndefined();
  });

  test('is forgotten where its hash is another, even of the same password', async () => {
    const { verifier } = start();
    await verifier.verify(of('ann', 'x'), FREE);
    verifier.replace(new UserSet([toSource('one', makeEntry('ann', 'x'))]));
    expect(verifier.recall(of('ann', 'x'))).toBeUndefined();
    verifier.replace(new UserSet([]));
    expect(await verifier.verify(of('ann', 'x'), FREE)).toBeUndefined();
  });

  test("is no other user's, even where their hash is the same and a character moves from the name to the password", async () => {
    const entry = makeEntry('ab', 'c');
    const { verifier } = start([toSource('one', `${entry}\na${entry.slice(2)}`)]);
    await verifier.verify(of('ab', 'c'), FREE);
    expect(verifier.recall(of('ab', 'c'))).toBeDefined();
    for (const other of [of('a', 'bc'), of('a', 'c'), of('ab', '')]) expect(verifier.recall(other)).toBeUndefined();
  });

  test('may be of any bytes, and is told from all others', async () => {
    const { verifier } = start([toSource('one', makeEntry('ann', 'é\u{1f511}'))]);
    await verifier.verify(of('ann', 'é\u{1f511}'), FREE);
    expect(verifier.recall(of('ann', 'é\u{1f511}'))).toBeDefined();
    for (const other of ['Ã©\u{1f511}', 'é', 'è\u{1f511}']) expect(verifier.recall(of('ann', other))).toBeUndefined();
  });

  test('makes room for others: the one that was used longest ago goes', async () => {
    const text = ['a', 'b', 'c'].map((user) => makeEntry(user, 'x')).join('\n');
    const { verifier } = start([toSource('one', text)]);
    await verifier.verify(of('a', 'x'), FREE);
    await verifier.verify(of('b', 'x'), FREE);
    verifier.recall(of('a', 'x'));
    await verifier.verify(of('c', 'x'), FREE);
    expect(['a', 'b', 'c'].map((user) => verifier.recall(of(user, 'x')) !== undefined)).toEqual([true, false, true]);
  });

  test('is hashed each time where nothing is to be remembered', async () => {
    const { verifier } = start(undefined, { ttl: 0, maxEntries: 10 });
    await verifier.verify(of('ann', 'x'), FREE);
    expect(verifier.recall(of('ann', 'x'))).toBeUndefined();
  });

  test('of a user who is removed while it is checked lets nobody in', async () => {
    const { verifier } = start();
    const result = verifier.verify(of('ann', 'x'), FREE);
    verifier.replace(new UserSet([]));
    expect(await result).toBeUndefined();
  });
});

test('two passwords are good while one is changed for the other, and each tells its source', async () => {
  const { verifier, clock } = start([]);
  const until = clock.now() + 5_000;
  verifier.replace(new UserSet([toSource('old', makeEntry('ann', 'x'), until), toSource('new', makeEntry('ann', 'y'))]));
  expect(await verifier.verify(of('ann', 'x'), FREE)).toMatchObject({ source: 'old' });
  expect(await verifier.verify(of('ann', 'y'), FREE)).toMatchObject({ source: 'new' });
  await clock.advance(5_000);
  expect(await verifier.verify(of('ann', 'x'), FREE)).toBeUndefined();
  expect(verifier.recall(of('ann', 'x'))).toBeUndefined();
  expect(await verifier.verify(of('ann', 'y'), FREE)).toMatchObject({ source: 'new' });
});

test('more checks than threads and line are not made', async () => {
  const { verifier } = start();
  const results = await Promise.all(['a', 'b', 'c', 'd'].map((password) => verifier.verify(of('ann', password), FREE)));
  expect(results).toEqual([undefined, undefined, { notChecked: 'busy' }, { notChecked: 'busy' }]);
});

test('an attempt is paid for before the hash, once for all who send the same, and given back where it did not fail', async () => {
  const { verifier, outcomes } = start();
  const log: string[] = [];
  const budget: AttemptBudget = {
    take: async () => {
      log.push('take');
      return 0;
    },
    refund: async () => void log.push('refund'),
  };
  await Promise.all([verifier.verify(of('ann', 'x'), budget), verifier.verify(of('ann', 'x'), budget)]);
  expect([log, outcomes.sort()]).toEqual([
    ['take', 'refund'],
    ['joined', 'miss'],
  ]);
  await verifier.verify(of('ann', 'wrong'), budget);
  expect(log).toEqual(['take', 'refund', 'take']);
  const banned: AttemptBudget = { take: async () => 7, refund: async () => undefined };
  expect(await verifier.verify(of('ann', 'x'), banned)).toEqual({ notChecked: 'banned', left: 7 });
});

describe('a refusal costs the same for everybody', () => {
  const kinds = (hashes: readonly { text: string }[]): string[] => hashes.map(({ text }) => text.slice(0, 7)).sort();
  const text = [makeEntry('fast', 'x', ['-s']), makeEntry('slow', 'x'), makeEntry('slower', 'x', ['-B', '-C', '5'])].join('\n');

  test('whoever it is: one hash of each kind that any user has', () => {
    const set = new UserSet([toSource('one', text)]);
    const all = ['fast', 'slow', 'slower', 'nobody'].map((user) => {
      const own = set.find(user, 0);
      return kinds([...own.map(({ hash }) => hash), ...set.toDecoys(own)]);
    });
    expect(all[3]).toHaveLength(3);
    for (const one of all) expect(one).toEqual(all[3]);
  });

  test('as many as the user has who has most', () => {
    const twice = [makeEntry('two', 'x'), makeEntry('two', 'y'), makeEntry('one', 'x')].join('\n');
    const set = new UserSet([toSource('one', twice)]);
    expect(set.toDecoys(set.find('nobody', 0))).toHaveLength(2);
    expect(set.toDecoys(set.find('one', 0))).toHaveLength(1);
    expect(set.toDecoys(set.find('two', 0))).toHaveLength(0);
  });
});

describe('a pool', () => {
  test('that is closed rejects, and what is in line with it', async () => {
    const { pool } = start();
    const job = { hashes: [], decoys: [], password: Buffer.from('x') };
    expect(await pool.check(job)).toBe(-1);
    await pool.close();
    await expect(pool.check(job)).rejects.toThrow('closed');
    expect(pool.pending).toBe(0);
  });

  test('goes on with another thread where one died', async () => {
    const { pool } = start();
    const bad = { hashes: [{ algorithm: 'bcrypt', text: 'no hash at all' } as const], decoys: [], password: Buffer.from('x') };
    const good = { hashes: [], decoys: [], password: Buffer.from('x') };
    const [first, second] = await Promise.allSettled([pool.check(bad), pool.check(good)]);
    expect([first.status, second]).toEqual([expect.any(String), { status: 'fulfilled', value: -1 }]);
  });
});
