import { describe, expect, test } from 'vitest';
import {
  forgetEvent,
  toContentFingerprint,
  toDigestKey,
  toKey,
  toResourceKey,
} from '../../../../../src/gateway/pipeline/gates/dedup.ts';
import { createMemorySeenIds } from '../../../../../src/state/memory.ts';
import { type SeenIds, StoreUnavailable } from '../../../../../src/state/seen-ids.ts';
import { FakeClock } from '../../../../support/fake-clock.ts';

const DIGEST = 'abcdefghijklmnopqrstuv';
const open = (): SeenIds => createMemorySeenIds(new FakeClock(), { maxIds: 10 });
const claim = async (store: SeenIds, key: string): Promise<string> =>
  (await store.claim({ key, token: 't', fingerprint: DIGEST, leaseMs: 1_000 })).state;

describe('keys', () => {
  test('contain the route, and a plain ID never equals a hashed one or a digest', () => {
    const long = 'x'.repeat(65);
    const keys = [
      toKey('a', 'x'),
      toKey('b', 'x'),
      toKey('a', long),
      toKey('a', `h:${long}`.slice(0, 64)),
      toKey('a', `d:${DIGEST}`),
      toDigestKey('a', DIGEST),
    ];
    expect(new Set(keys).size).toBe(keys.length);
    expect(toKey('a', 'evt_1')).toBe('a:i:evt_1');
    for (const key of keys) expect(key.length).toBeLessThan(120);
  });
});

test('keys of every form count for their route in the memory store', async () => {
  const store = createMemorySeenIds(new FakeClock(), { maxIds: 4 });
  for (const key of [toKey('a', 'b:i:1'), toKey('a', 'ö'), toDigestKey('a', DIGEST)]) await claim(store, key);
  await expect(claim(store, toResourceKey('a', '1', 'x'))).rejects.toThrow('3 of 4 IDs');
  expect(await claim(store, toResourceKey('b', '1', 'x'))).toBe('new');
});

test('a fingerprint of content differs with one bit and with the length, and fits into an entry of the store', () => {
  const content = Buffer.alloc(100_000, 'a');
  const others = [0, 50_000, 99_999].map((at) => Buffer.from(content.with(at, 'b'.charCodeAt(0))));
  const all = [content, ...others, content.subarray(1), Buffer.alloc(0), Buffer.alloc(1), Buffer.alloc(2)];
  const fingerprints = all.map(toContentFingerprint);
  expect(new Set(fingerprints).size).toBe(all.length);
  expect(toContentFingerprint(Buffer.from(content))).toBe(fingerprints[0]);
  for (const fingerprint of fingerprints) expect(fingerprint).toMatch(/^[a-z0-9-]{3,16}$/);
});

describe('forgetting an event', () => {
  test('clears its ID and the digest recorded with it, and nothing else', async () => {
    const store = open();
    const keys = [toKey('a', 'x'), toDigestKey('a', DIGEST)];
    const others = [toKey('b', 'x'), toKey('a', 'y')];
    for (const key of [...keys, ...others]) await store.confirm(key, 't', DIGEST, 1_000);
    expect(await forgetEvent(store, 'a', 'x')).toBe('handled');
    for (const key of keys) expect(await claim(store, key)).toBe('new');
    for (const key of others) expect(await claim(store, key)).toBe('handled');
  });

  test('reports that it was in progress, or unknown', async () => {
    const store = open();
    await claim(store, toKey('a', 'x'));
    expect(await forgetEvent(store, 'a', 'x')).toBe('in-progress');
    expect(await forgetEvent(store, 'a', 'x')).toBe('absent');
  });

  test('clears an event that only has a digest', async () => {
    const store = open();
    await store.confirm(toDigestKey('a', DIGEST), 't', DIGEST, 1_000);
    expect(await forgetEvent(store, 'a', `sha256-${DIGEST}`)).toBe('handled');
    expect(await claim(store, toDigestKey('a', DIGEST))).toBe('new');
  });

  test('that stops half-way reports how to finish it, and can be finished', async () => {
    const store = open();
    for (const key of [toKey('a', 'x'), toDigestKey('a', DIGEST)]) await store.confirm(key, 't', DIGEST, 1_000);
    const failing: Pick<SeenIds, 'forget'> = {
      forget: async (key) => {
        if (key === toDigestKey('a', DIGEST)) throw new StoreUnavailable('timeout', 'Redis did not answer in time');
        return store.forget(key);
      },
    };
    const failure = await forgetEvent(failing as SeenIds, 'a', 'x').catch((thrown: unknown) => thrown as StoreUnavailable);
    expect(failure).toBeInstanceOf(StoreUnavailable);
    expect(failure).toMatchObject({
      failure: 'timeout',
      message: `Redis did not answer in time; the id was cleared, but not the digest of its content: forget the id sha256-${DIGEST} as well`,
    });
    expect(await forgetEvent(store, 'a', `sha256-${DIGEST}`)).toBe('handled');
  });

  test('fails like the store if nothing was done yet', async () => {
    const store = open();
    await store.close();
    await expect(forgetEvent(store, 'a', 'x')).rejects.toThrow(StoreUnavailable);
  });
});
