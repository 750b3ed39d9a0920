import { readdirSync, readFileSync } from 'node:fs';
import { getPriority } from 'node:os';
import { afterEach, expect, test } from 'vitest';
import { HashPool } from '../../../../src/auth/passwords/hash-pool.ts';
import { makeHash } from '../../../../src/auth/passwords/password-make.ts';
import { until } from '../../../support/gate.ts';

const HIGHEST_NICE = 19;
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
    pool.check({ hashes: [hash], decoys: [], password: Buffer.from(password) });
  expect(await Promise.all([check('open sesame'), check('wrong')])).toEqual([0, -1]);
  expect(readNiceValues().filter((nice) => nice === Math.min(own + 10, HIGHEST_NICE))).toHaveLength(2);
  expect(getPriority()).toBe(own);
});

test('has no more threads than it was resized to, and finishes its queue', async () => {
  pool = new HashPool({ threads: 4, queue: 10 });
  const hash = { algorithm: 'bcrypt', text: await makeHash('open sesame', { algorithm: 'bcrypt', cost: 4 }) } as const;
  const check = (): Promise<unknown> => pool.check({ hashes: [hash], decoys: [], password: Buffer.from('open sesame') });
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
