import { readdirSync, readFileSync } from 'node:fs';
import { getPriority } from 'node:os';
import { afterEach, describe, expect, test } from 'vitest';
import { type HashOwner, HashPool } from '../../../src/users/hash-pool.ts';
import { makeHash } from '../../../src/users/password-hash.ts';
import { until } from '../../support/gate.ts';

const HIGHEST_NICE = 19;
const OWNER: HashOwner = { realm: 'r', network: '192.0.2.1', isKnown: false };
let pool: HashPool;
afterEach(() => pool.close());

/** The nice value of every thread of this process. */
function readNiceValues(): number[] {
  return readdirSync('/proc/self/task').map((thread) => {
    const text = readFileSync(`/proc/self/task/${thread}/stat`, 'utf8');
    // Behind the name, which may hold anything, nice is the 17th field (proc_pid_stat(5)).
    return Number(text.slice(text.lastIndexOf(')') + 2).split(' ')[16]);
  });
}

/** On Linux; at the highest nice value the threads cannot have a higher one. */
const canTell = process.platform === 'linux' && getPriority() < HIGHEST_NICE;

test.runIf(canTell)('leaves the core to the event loop if both need it', async () => {
  pool = new HashPool({ threads: 2, queue: 0 });
  const own = getPriority();
  const hash = { algorithm: 'bcrypt', text: await makeHash('open sesame', { algorithm: 'bcrypt', cost: 4 }) } as const;
  const check = (password: string): Promise<unknown> =>
    pool.check({ hashes: [hash], decoys: [], password: Buffer.from(password) }, OWNER);
  expect(await Promise.all([check('open sesame'), check('wrong')])).toEqual([0, -1]);
  expect(readNiceValues().filter((nice) => nice === Math.min(own + 10, HIGHEST_NICE))).toHaveLength(2);
  expect(getPriority()).toBe(own);
});

test('has no more threads than it was resized to, and finishes its queue', async () => {
  pool = new HashPool({ threads: 4, queue: 10 });
  const hash = { algorithm: 'bcrypt', text: await makeHash('open sesame', { algorithm: 'bcrypt', cost: 4 }) } as const;
  const job = { hashes: [hash], decoys: [], password: Buffer.from('open sesame') };
  const check = (): Promise<unknown> => pool.check(job, OWNER);
  const threads = (): number => readdirSync('/proc/self/task').length;
  const before = threads();
  const checks = Array.from({ length: 8 }, check);
  pool.resize(1);
  expect(await Promise.all(checks)).toEqual(Array(8).fill(0));
  await until(() => threads() === before + 1);
  const one = Promise.all([check(), check()]);
  pool.resize(2);
  expect(await one).toEqual([0, 0]);
  expect(await check()).toBe(0);
  pool.resize(1);
  await until(() => threads() === before + 1);
});

describe('one thread', () => {
  const NO_HASH = { hashes: [], decoys: [], password: Buffer.from('x') };
  /** Runs the jobs, of which the first occupies the thread; returns the names of the others in the order of their ends. */
  const run = async (queue: number, jobs: readonly (Partial<HashOwner> & { readonly name: string })[]) => {
    pool = new HashPool({ threads: 1, queue });
    const [ended, busy]: [string[], string[]] = [[], []];
    const first = pool.check(NO_HASH, OWNER);
    const others = jobs.map(async ({ name, ...owner }) => {
      const result = await pool.check(NO_HASH, { ...OWNER, ...owner });
      (result === 'busy' ? busy : ended).push(name);
    });
    await Promise.all([first, ...others]);
    return { ended, busy: busy.sort() };
  };
  const guesses = (network: (index: number) => string, count = 4, realm = 'r') =>
    Array.from({ length: count }, (_, index) => ({ name: `g${index}`, network: network(index), realm }));
  const ofOneSite = (index: number): string => `2001:db8:0:${index}`;

  test('takes the jobs of a realm, a site and a network in turns', async () => {
    const bob = { name: 'bob', network: '192.0.2.9' };
    const neighbor = { name: 'neighbor', network: '2001:db8:0:3' };
    const egress = { name: 'egress', realm: 'egress' };
    const first = guesses(() => ofOneSite(0));
    expect((await run(64, [...first, bob, neighbor, egress])).ended).toEqual([
      'g0',
      'egress',
      'bob',
      'neighbor',
      'g1',
      'g2',
      'g3',
    ]);
  });

  test.each([
    ['one network', () => '2001:db8:0:1'],
    ['networks of one /48', ofOneSite],
    ['several IPv4 addresses', (index: number) => `198.51.100.${index % 2}`],
  ])('displaces the newest job of %s from a full queue', async (_, network) => {
    const bob = { name: 'bob', network: '192.0.2.9' };
    const { ended, busy } = await run(4, [...guesses(network), bob]);
    expect([ended.length, ended.includes('bob'), busy]).toEqual([4, true, ['g3']]);
  });

  test('displaces a job of the realm that has most, also if each of its networks has one', async () => {
    const egress = { name: 'egress', realm: 'egress' };
    const { busy } = await run(4, [...guesses((index) => `198.51.100.${index}`), egress]);
    expect(busy).toEqual(['g3']);
  });

  test('displaces no job if the owner has as many as any other, or would then', async () => {
    const { ended, busy } = await run(4, [
      ...guesses((index) => `198.51.100.${index % 2}`),
      { name: 'g4', network: '198.51.100.0' },
    ]);
    expect([ended.length, busy]).toEqual([4, ['g4']]);
    await pool.close();
    const all = guesses((index) => `198.51.100.${index}`, 5);
    expect((await run(4, all)).busy).toEqual(['g4']);
  });

  test('takes known passwords first, without a limit, but not more than three in succession', async () => {
    const known = Array.from({ length: 5 }, (_, index) => ({ name: `k${index}`, isKnown: true }));
    const { ended, busy } = await run(2, [...guesses(ofOneSite, 2), ...known]);
    expect(ended).toEqual(['k0', 'k1', 'k2', 'g0', 'k3', 'k4', 'g1']);
    expect(busy).toEqual([]);
  });
});
