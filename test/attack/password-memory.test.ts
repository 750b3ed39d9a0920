import { writeFileSync } from 'node:fs';
import { Agent } from 'node:http';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { makeHash } from '../../src/users/password-hash.ts';
import { type Answer, send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { type Sections, startGate, toRoute, until } from '../support/gate.ts';
import { type CgroupGate, NO_CGROUPS, startGateInCgroup } from '../support/memory-cgroup.ts';
import { toBasic } from '../support/users.ts';

const GUESSERS = 40;
const LASTS_MS = 10_000;
/** Of the 16 cores of a large node. */
const THREADS = 15;

const app = useApp();
let users: string;
beforeAll(async () => {
  users = `ann:${await makeHash('right', { algorithm: 'argon2id' })}`;
});

const toBasicRoute = (): Sections => ({
  name: 'admin',
  match: { pathPrefix: '/admin' },
  upstream: `http://127.0.0.1:${app.port}`,
  basic: { realm: 'r', users: { file: 'users' }, requireTls: false },
});
const start = (mebibytes: number): Promise<CgroupGate> =>
  startGateInCgroup(
    mebibytes,
    {
      listen: { address: '127.0.0.1:0', trustedProxies: ['127.0.0.1'] },
      limits: { passwordThreads: THREADS },
      routes: [toRoute(app.port), toBasicRoute()],
    },
    { users },
  );

test('a hash that needs more memory than the container has is a config error, not an OOM kill', async () => {
  const large = `eve:$argon2id$v=19$m=262144,t=1,p=1$${'A'.repeat(22)}$${'A'.repeat(43)}`;
  const toSections = (passwordMemory?: string): Sections => ({
    routes: [toBasicRoute()],
    ...(passwordMemory === undefined ? undefined : { limits: { passwordMemory } }),
  });
  await expect(startGate(toSections('64Mi'), undefined, { users: `${users}\n${large}` })).rejects.toThrow(
    /users:2: the password of eve is stored as argon2id m=262144 t=1 p=1, which needs 256 MiB; password hashing may use 48 MiB/,
  );
  const gate = await startGate(toSections('64Mi'), undefined, { users });
  writeFileSync(join(gate.folder, 'users'), `${users}\n${large}`);
  await until(() => gate.logText().includes('users_reloaded'));
  const statusOf = async (user: string, password: string): Promise<number> =>
    (await send(gate.port, { method: 'GET', path: '/admin', headers: toBasic(user, password) })).status;
  expect([await statusOf('ann', 'right'), await statusOf('eve', 'any')]).toEqual([200, 401]);
  expect(await gate.metric('sidegate_users_rejected{realm="r"}')).toBe(1);
  await gate.stop();
});

describe.skipIf(NO_CGROUPS !== undefined).each([96, 128, 192])('in %d MiB', (mebibytes) => {
  test(`survives ${GUESSERS} clients that guess argon2id passwords for 10 s, and still handles logins and deliveries`, async () => {
    const gate = await start(mebibytes);
    const agent = new Agent({ keepAlive: true });
    let guesses = 0;
    const ask = (user: string, password: string, from: string): Promise<Answer> =>
      send(gate.port, { method: 'GET', path: '/admin', headers: { ...toBasic(user, password), 'X-Forwarded-For': from }, agent });
    try {
      const endsAt = performance.now() + LASTS_MS;
      const guess = async (): Promise<void> => {
        while (performance.now() < endsAt && gate.isAlive()) {
          const number = guesses++;
          const from = `10.${number >> 16}.${(number >> 8) & 255}.${number & 255}`;
          await ask(`user-${number}`, `guess ${number}`, from).catch(() => undefined);
        }
      };
      const storm = Promise.all(Array.from({ length: GUESSERS }, guess));
      const deliveries = [];
      for (let i = 0; i < 20; i++) deliveries.push((await send(gate.port, makeDelivery({ id: `d-${i}` }))).status);
      await until(async () => (await ask('ann', 'right', '192.0.2.1')).status === 200);
      await storm;
      expect([gate.oomKills(), gate.isAlive()]).toEqual([0, true]);
      expect(new Set(deliveries)).toEqual(new Set([200]));
    } finally {
      agent.destroy();
      await gate.stop();
    }
  }, 60_000);
});
