import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { Secret } from '../../../../src/core/secret.ts';
import {
  EndpointCipher,
  PLAIN,
  parseEncryptionKey,
  type StoredValue,
  type ValuePlace,
} from '../../../../src/provider/endpoints/endpoint-record.ts';

const KEYS = [1, 2].map((byte) => Buffer.alloc(32, byte)) as [Buffer, Buffer];
const PLACE: ValuePlace = ['ep', 'https://a.example', 'headers', 'X-A'];
const cipher = new EndpointCipher([KEYS[0]]);

function encrypt(text: string, place = PLACE, by = cipher): Exclude<StoredValue, string> {
  const value = by.encrypt(text, place);
  if (typeof value === 'string') throw new Error('it is plain text');
  return value;
}

test.each(['', 'v', 'Bearer tok', 'ü€', 'x'.repeat(4_096)])('decrypts what it encrypted: %j', (text) => {
  const value = encrypt(text);
  expect(value).toEqual({ v: 1, key: cipher.keyId, data: expect.any(String) });
  expect(cipher.decrypt(value, PLACE)).toBe(text);
});

test('has a fresh nonce for each value', () => {
  const nonces = Array.from({ length: 1_000 }, () => encrypt('v').data.slice(0, 16));
  expect(new Set(nonces).size).toBe(1_000);
});

test('names the key by the beginning of its digest', () => {
  expect(cipher.keyId).toBe(createHash('sha256').update(KEYS[0]).digest('hex').slice(0, 12));
  expect([cipher.has(cipher.keyId), cipher.has(PLAIN), cipher.has('other')]).toEqual([true, true, false]);
});

test('does not decrypt a value of another endpoint, URL or field, nor one whose place only reads the same', () => {
  const value = encrypt('v');
  for (const place of [
    ['other', 'https://a.example', 'headers', 'X-A'],
    ['ep', 'https://evil.example', 'headers', 'X-A'],
    ['ep', 'https://a.example', 'headers', 'X-B'],
    ['ep', 'https://a.example', 'headersX-A'],
    ['ep","https://a.example', 'headers', 'X-A'],
  ] as const)
    expect([place, cipher.decrypt(value, place)]).toEqual([place, undefined]);
});

test('does not decrypt a value with any bit flipped, or shortened to any length', () => {
  const value = encrypt('secret');
  const bytes = Buffer.from(value.data, 'base64');
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const changed = Buffer.from(bytes);
    changed[bit >> 3] = (changed[bit >> 3] ?? 0) ^ (1 << (bit & 7));
    expect(cipher.decrypt({ ...value, data: changed.toString('base64') }, PLACE)).toBeUndefined();
  }
  for (let length = 0; length < bytes.length; length++)
    expect(cipher.decrypt({ ...value, data: bytes.subarray(0, length).toString('base64') }, PLACE)).toBeUndefined();
});

test('decrypts with every key in any order, and encrypts with the first', () => {
  const old = encrypt('v');
  const both = new EndpointCipher([KEYS[1], KEYS[0]]);
  expect(both.decrypt(old, PLACE)).toBe('v');
  expect(encrypt('v', PLACE, both).key).toBe(new EndpointCipher([KEYS[1]]).keyId);
  expect(new EndpointCipher([KEYS[1]]).decrypt(old, PLACE)).toBeUndefined();
  // Under the name of a key that did not encrypt it.
  expect(both.decrypt({ ...old, key: both.keyId }, PLACE)).toBeUndefined();
});

test('without keys, stores plain text and reads only that', () => {
  const plain = new EndpointCipher([]);
  expect([plain.keyId, plain.encrypt('v', PLACE), plain.decrypt('v', PLACE)]).toEqual([PLAIN, 'v', 'v']);
  expect(plain.decrypt(encrypt('v'), PLACE)).toBeUndefined();
  expect(cipher.decrypt('v', PLACE)).toBe('v');
});

test('accepts exactly 32 bytes in base64 as a key', () => {
  const parse = (text: string) => parseEncryptionKey(new Secret(Buffer.from(text)));
  expect(parse(KEYS[0].toString('base64'))).toEqual({ key: KEYS[0] });
  for (const text of [
    'x',
    KEYS[0].toString('hex'),
    KEYS[0].toString('base64').slice(0, -1),
    Buffer.alloc(31, 1).toString('base64'),
    Buffer.alloc(33, 1).toString('base64'),
    `${KEYS[0].toString('base64')}\n${KEYS[1].toString('base64')}`,
    KEYS[0].toString('base64').replace('B', '-'),
  ])
    expect(parse(text)).toEqual({
      problem: 'the key is not 32 bytes in base64',
      hint: 'create one with `openssl rand -base64 32`',
    });
});
