import { afterEach, expect, test } from 'vitest';
import { send } from '../support/client.ts';
import { LOGIN, startConsoleGate } from '../support/console.ts';
import { useApp } from '../support/fixtures.ts';
import { type TestGate, toRoute } from '../support/gate.ts';
import { toBasic } from '../support/users.ts';

const app = useApp();
let gate: TestGate;
afterEach(() => gate.stop());

const start = (): Promise<TestGate> =>
  startConsoleGate(app.port, {
    routes: [
      toRoute(app.port),
      {
        name: 'users',
        match: { pathPrefix: '/users' },
        upstream: `http://127.0.0.1:${app.port}`,
        basic: { realm: 'users', users: { file: 'operators' }, requireTls: false, limit: { failures: 3 } },
      },
    ],
  });
const visit = async (headers: Record<string, string>): Promise<number> =>
  (await send(gate.port, { method: 'GET', path: '/users/a', headers })).status;
// biome-ignore lint/suspicious/noExplicitAny: the tests read members of many different bodies
const list = async (): Promise<any[]> =>
  JSON.parse((await send(gate.adminPort, { method: 'GET', path: '/api/v1/logins' })).text).data;
const release = async (body: object, headers: Record<string, string> = LOGIN) => {
  const type = { 'Content-Type': 'application/json' };
  const { status, text } = await send(gate.adminPort, {
    method: 'POST',
    path: '/api/v1/logins/release',
    headers: { ...headers, ...type },
    body: JSON.stringify(body),
  });
  return [status, JSON.parse(text).hadFailures ?? JSON.parse(text).code];
};

test('lists the clients that fail and their bans, and releases one for a user who logs in', async () => {
  gate = await start();
  expect(await list()).toEqual([]);
  for (const password of ['a', 'b']) expect(await visit(toBasic('guessed-name', password))).toBe(401);
  expect(await list()).toEqual([
    { realm: 'users', client: '127.0.0.1', failures: 2, lastAt: expect.any(String), routes: ['users'], bannedForMs: null },
  ]);
  expect(await visit(toBasic('guessed-name', 'c'))).toBe(401);
  expect(await visit(LOGIN)).toBe(429);
  expect(await list()).toMatchObject([
    { failures: 4, bannedForMs: expect.toSatisfy((ms: number) => ms > 290_000 && ms <= 300_000) },
  ]);
  expect(await release({ realm: 'users', client: '127.0.0.1' }, {})).toEqual([401, 'unauthorized']);
  expect(await release({ realm: 'users', client: '127.0.0.1' })).toEqual([200, true]);
  expect(await release({ realm: 'users', client: '127.0.0.1' })).toEqual([200, false]);
  expect(await visit(LOGIN)).toBe(200);
  expect(gate.log().filter(({ msg }) => msg === 'ban_lifted')).toMatchObject([
    { realm: 'users', of: 'client' },
    { realm: 'users', of: 'client' },
  ]);
  expect(gate.logText()).not.toContain('guessed-name');
});

test('releases a user whose name was guessed, and rejects what does not exist', async () => {
  gate = await start();
  for (const password of ['a', 'b', 'c']) await visit(toBasic('operator', password));
  expect(await release({ realm: 'users', client: '127.0.0.1' })).toEqual([200, true]);
  expect(await visit(LOGIN)).toBe(429);
  expect(await release({ realm: 'users', user: 'operator' })).toEqual([200, true]);
  expect(await visit(LOGIN)).toBe(200);
  for (const body of [
    { realm: 'none', user: 'operator' },
    { realm: 'users' },
    { realm: 'users', client: 'x' },
    { realm: 'users', client: '::1', user: 'a' },
  ])
    expect((await release(body))[0]).toBe(422);
});
