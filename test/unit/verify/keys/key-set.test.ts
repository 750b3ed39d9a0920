import { generateKeyPairSync, type JsonWebKey } from 'node:crypto';
import { expect, test } from 'vitest';
import { RemoteFailure, toFreshness } from '../../../../src/verify/keys/https-get.ts';
import { RemoteKeySet } from '../../../../src/verify/keys/key-set.ts';
import { FakeClock, settle } from '../../../support/fake-clock.ts';

const HOUR = 3_600_000;
const KEY = generateKeyPairSync('ed25519').publicKey.export({ format: 'jwk' });

function start(first: unknown = { keys: [KEY] }, freshFor?: number) {
  const clock = new FakeClock();
  let answer: unknown = first;
  let asked = 0;
  const keys: (readonly JsonWebKey[] | undefined)[] = [];
  const problems: string[] = [];
  const set = new RemoteKeySet(
    { url: new URL('https://keys.example/jwks.json'), refresh: HOUR, keepFor: 24 * HOUR },
    async () => {
      asked++;
      if (answer instanceof Error) throw answer;
      return { body: Buffer.from(typeof answer === 'string' ? answer : JSON.stringify(answer)), freshFor };
    },
    clock,
    { onKeys: (found) => void keys.push(found), onFailure: (message) => void problems.push(message) },
  );
  const advance = (duration: number): Promise<void> => clock.advance(duration);
  const reply = (next: unknown): void => {
    answer = next;
  };
  return { set, keys, problems, advance, asked: () => asked, answer: reply };
}

test('fetches at once, and then at the interval of the response', async () => {
  const { keys, advance, asked } = start();
  await settle();
  expect(keys).toEqual([[KEY]]);
  await advance(HOUR - 1);
  expect(asked()).toBe(1);
  await advance(1);
  expect(asked()).toBe(2);
});

test('keeps its keys while they cannot be fetched, retries with increasing delays, and drops them after a day', async () => {
  const { keys, problems, advance, asked, answer } = start();
  await settle();
  answer(new RemoteFailure('keys.example: answered 500'));
  await advance(HOUR);
  expect(asked()).toBe(2);
  await advance(5_000);
  expect(asked()).toBe(3);
  await advance(5_000);
  expect(asked()).toBe(3);
  await advance(5_000);
  expect(asked()).toBe(4);
  await advance(24 * HOUR);
  expect(keys).toEqual([[KEY], undefined]);
  expect(new Set(problems)).toEqual(new Set(['keys.example: answered 500']));
  answer({ keys: [KEY] });
  await advance(HOUR);
  expect(keys).toEqual([[KEY], undefined, [KEY]]);
});

test.each([
  ['no JSON', '<html>', 'the response is not JSON'],
  ['no key set', '[]', 'the response is not a JWK Set with keys'],
  ['null', 'null', 'the response is not a JWK Set with keys'],
  ['a set without keys', { keys: [] }, 'the response is not a JWK Set with keys'],
  ['too many keys', { keys: Array(21).fill(KEY) }, 'more than 20 keys'],
])('treats %s as a failure, which leaves the keys unchanged', async (_title, wrong, message) => {
  const { keys, problems, advance, answer } = start();
  await settle();
  answer(wrong);
  await advance(HOUR);
  expect([keys, problems]).toEqual([[[KEY]], [`keys.example: ${message}`]]);
});

test('fetches early if no key matches, at most once a minute, whatever untrusted clients send', async () => {
  const { set, advance, asked } = start();
  await settle();
  await advance(60_000);
  for (let i = 0; i < 5; i++) expect(set.refreshEarly()).toBe(true);
  await settle();
  expect(asked()).toBe(2);
  await advance(10_000);
  for (let i = 0; i < 5; i++) expect(set.refreshEarly()).toBe(false);
  await settle();
  expect(asked()).toBe(2);
  // Newer keys may exist by then, also if nobody asks again.
  await advance(50_000);
  expect(asked()).toBe(3);
  await advance(HOUR - 1);
  expect(asked()).toBe(3);
});

test('keeps the age of its keys when its settings change', async () => {
  const { set, keys, advance, asked, answer } = start();
  await settle();
  const url = new URL('https://keys.example/jwks.json');
  await advance(HOUR / 2);
  answer(new RemoteFailure('keys.example: ECONNREFUSED'));
  set.configure({ url, refresh: HOUR, keepFor: 48 * HOUR });
  await advance(HOUR / 2 - 1);
  expect(asked()).toBe(1);
  await advance(1);
  expect(asked()).toBe(2);
  await advance(47 * HOUR - 1);
  expect(keys).toEqual([[KEY]]);
  await advance(1);
  expect(keys).toEqual([[KEY], undefined]);
});

test('fetches at once if its new times are over, and keeps the keys until then', async () => {
  const { set, keys, advance, asked, answer } = start();
  await settle();
  await advance(HOUR / 2);
  const url = new URL('https://keys.example/jwks.json');
  set.configure({ url, refresh: HOUR, keepFor: HOUR / 4 });
  await settle();
  expect([asked(), keys]).toEqual([2, [[KEY], [KEY]]]);
  await advance(HOUR / 10);
  answer(new RemoteFailure('keys.example: ECONNREFUSED'));
  set.configure({ url, refresh: HOUR, keepFor: HOUR / 20 });
  await settle();
  await advance(60_000);
  expect(keys).toEqual([[KEY], [KEY], undefined]);
});

test('reports nothing once it is closed', async () => {
  const { set, keys, advance, asked } = start();
  set.close();
  await settle();
  await advance(2 * HOUR);
  expect([asked(), keys]).toEqual([1, []]);
});

test.each([
  ['its cache lifetime', 30 * 60_000, 30 * 60_000],
  ['five minutes, if it may not be cached', 0, 5 * 60_000],
  ['keepFor, if the server says longer', 72 * HOUR, 24 * HOUR],
])('drops the keys of an unreachable sender after %s', async (_title, freshFor, lifetime) => {
  const { keys, advance, answer } = start({ keys: [KEY] }, freshFor);
  await settle();
  answer(new RemoteFailure('keys.example: ECONNREFUSED'));
  await advance(lifetime - 1);
  expect(keys).toEqual([[KEY]]);
  await advance(1);
  expect(keys).toEqual([[KEY], undefined]);
});

test('fetches keys with a short cache lifetime again before they end', async () => {
  const { keys, advance, asked } = start({ keys: [KEY] }, 10 * 60_000);
  await settle();
  await advance(30 * 60_000);
  expect(asked()).toBe(7);
  expect(keys).not.toContain(undefined);
});

test.each([
  [{ 'cache-control': 'public, max-age=600' }, 600_000],
  [{ 'cache-control': 'MAX-AGE="600"', age: '100' }, 500_000],
  [{ 'cache-control': 'max-age=600, max-age=60' }, 60_000],
  [{ 'cache-control': 'max-age=10', age: '100' }, 0],
  [{ 'cache-control': 'no-store' }, 0],
  [{ 'cache-control': 'max-age=600, no-cache' }, 0],
  [{ 'cache-control': 'max-age=-1' }, undefined],
  [{ 'cache-control': `max-age=${'9'.repeat(30)}` }, undefined],
  [{}, undefined],
])('reads the freshness of %j as %s', (headers, freshness) => {
  expect(toFreshness(headers)).toBe(freshness);
});
