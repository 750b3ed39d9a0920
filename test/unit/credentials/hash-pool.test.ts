import { readdirSync, readFileSync } from 'node:fs';
import { getPriority } from 'node:os';
import { afterEach, expect, test } from 'vitest';
import { HashPool } from '../../../src/credentials/hash-pool.ts';
import { makeHash } from '../../../src/credentials/password-make.ts';

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

test.runIf(process.platform === 'linux')('leaves the core to the event loop where both want it', async () => {
  pool = new HashPool({ threads: 2, queue: 0 });
  const own = getPriority();
  const hash = { algorithm: 'bcrypt', text: await makeHash('open sesame', { algorithm: 'bcrypt', cost: 4 }) } as const;
  const check = (password: string): Promise<unknown> =>
    pool.check({ hashes: [hash], decoys: [], password: Buffer.from(password) });
  expect(await Promise.all([check('open sesame'), check('wrong')])).toEqual([0, -1]);
  expect(readNiceValues().filter((nice) => nice === own + 10)).toHaveLength(2);
  expect(getPriority()).toBe(own);
});
