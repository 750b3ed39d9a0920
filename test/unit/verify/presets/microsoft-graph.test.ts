import { describe, expect, test, vi } from 'vitest';
import type { EventIdentity } from '../../../../src/core/event.ts';
import { parseJsonListPath, readJsonList } from '../../../../src/core/json-path.ts';
import { Secret } from '../../../../src/core/secret.ts';
import { findPreset } from '../../../../src/verify/presets/catalogue.ts';
import { ALGORITHMS } from '../../../../src/verify/schemes/algorithms.ts';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import type { SchemeDescription } from '../../../../src/verify/schemes/description.ts';
import type { VerifyKey } from '../../../../src/verify/schemes/scheme.ts';
import { fc } from '../../../support/property.ts';

const scheme = compileScheme(findPreset('microsoft-graph') as SchemeDescription);
const HEAD = { id: undefined, timestampText: undefined, timestamp: undefined, signatures: [] };
const NEW = 'secretClientState-2';
const OLD = 'secretClientState-1';

function toKey(name: string, text: string): VerifyKey {
  const parsed = scheme.parseKey(name, new Secret(Buffer.from(text)), undefined);
  if ('problem' in parsed) throw new Error(parsed.problem);
  return parsed.key;
}

const KEYS = [toKey('new', NEW), toKey('old', OLD)];
/** As in the documentation of change notifications. */
const toItem = (clientState: unknown, id?: unknown): object => ({
  ...(id === undefined ? {} : { id }),
  subscriptionId: '7f105c7d-2dc5-4530-97cd-4e7ae6534c07',
  subscriptionExpirationDateTime: '2016-03-20T11:00:00.0000000Z',
  clientState,
  changeType: 'created',
  resource: "users/{user@example.com}/messages('{id}')",
});
const toMessage = (content: unknown) => ({
  method: 'POST',
  url: '',
  body: Buffer.isBuffer(content) ? content : Buffer.from(typeof content === 'string' ? content : JSON.stringify(content)),
});
const verify = (content: unknown): string | undefined => scheme.verify(HEAD, toMessage(content), KEYS)?.name;

describe('the clientState of a notification', () => {
  test('verifies it with any key, each item separately', () => {
    expect(verify({ value: [toItem(NEW)] })).toBe('new');
    expect(verify({ value: [toItem(OLD)] })).toBe('old');
    expect(verify({ value: [toItem(OLD), toItem(NEW)] })).toBe('old');
  });

  test.each([
    ['wrong', { value: [toItem('secretClientState-3')] }],
    ['missing in one item', { value: [toItem(NEW), toItem(undefined)] }],
    ['wrong in the last item', { value: [toItem(NEW), toItem(OLD), toItem(`${NEW}x`)] }],
    ['empty', { value: [toItem('')] }],
    ['no text', { value: [toItem([NEW])] }],
    ['beside the items', { value: [], clientState: NEW }],
    ['in no list', { value: toItem(NEW) }],
    ['inherited', '{"value":[{"__proto__":{"clientState":"secretClientState-2"}}]}'],
    ['in an item that is not an object', { value: [toItem(NEW), NEW] }],
    ['in no JSON', `${JSON.stringify({ value: [toItem(NEW)] })},`],
    ['in bytes that are not UTF-8', Buffer.concat([Buffer.from(JSON.stringify({ value: [toItem(NEW)] })), Buffer.from([0xff])])],
    ['nowhere', ''],
  ])('is rejected if it is %s', (_title, content) => {
    expect(verify(content)).toBeUndefined();
  });

  test('is not searched for in JSON that is larger than any batch, which is not parsed', () => {
    const spy = vi.spyOn(JSON, 'parse');
    try {
      for (const text of ['['.repeat(1 << 20), `{"value":[${'{},'.repeat(25_000)}{}]}`, `{"value":[${'0,'.repeat(500_000)}0]}`])
        expect(verify(text)).toBeUndefined();
      expect(spy).not.toHaveBeenCalled();
    } finally {
      spy.mockRestore();
    }
  });

  test.each([
    ['['.repeat(1 << 20), 'it has more than 64 levels'],
    [`{"value":[${'{},'.repeat(25_000)}{}]}`, 'it has more than 25000 values'],
  ])('is rejected in JSON that is too large, with the limit: %.20s', (text, limit) => {
    expect(scheme.readBody?.(HEAD, Buffer.from(text), { allowDotInId: false })).toMatchObject({
      code: 'malformed_signature',
      detail: `the body cannot be read as JSON: ${limit}`,
    });
    expect(scheme.readBody?.(HEAD, toMessage({ value: [] }).body, { allowDotInId: false })).toBe(HEAD);
  });

  test('verifies a batch of 1,000 with encrypted content', () => {
    const encrypted = {
      data: 'x',
      dataKey: 'x',
      dataSignature: 'x',
      encryptionCertificateId: 'x',
      encryptionCertificateThumbprint: 'x',
    };
    const resourceData = { '@odata.type': '#x', '@odata.id': 'x', '@odata.etag': 'x', id: 'x' };
    const item = { ...toItem(NEW, 'x'), tenantId: 'x', resourceData, encryptedContent: encrypted };
    expect(verify({ value: Array(1_000).fill(item), validationTokens: ['x'] })).toBe('new');
  });

  test('is compared up to the first item that no key matches, with every key', () => {
    const { checker } = ALGORITHMS.token;
    let compared = 0;
    const spy = vi.spyOn(ALGORITHMS.token, 'checker').mockImplementation((key, chunks) => {
      const check = checker(key, chunks);
      return (text) => {
        compared++;
        return check(text);
      };
    });
    const count = (states: readonly string[]): [string | undefined, number] => {
      compared = 0;
      return [verify({ value: states.map((clientState) => ({ clientState })) }), compared];
    };
    try {
      expect(count(Array<string>(1_000).fill('a'))).toEqual([undefined, KEYS.length]);
      expect(count([NEW, OLD, 'a', NEW])).toEqual([undefined, 3 * KEYS.length]);
      expect(count(Array<string>(49_000).fill('a'))).toEqual([undefined, 0]);
    } finally {
      spy.mockRestore();
    }
  });

  test('verifies up to 1,000 items, and no more', () => {
    const toValue = (length: number) => ({ value: Array.from({ length }, () => ({ clientState: OLD })) });
    expect([verify(toValue(1_000)), verify(toValue(1_001))]).toEqual(['old', undefined]);
  });

  test('is the only proof; the head needs none', () => {
    expect(scheme.headerNames).toEqual([]);
    expect(() => scheme.sign({ id: '', timestamp: 0, body: Buffer.from('') }, new Secret(Buffer.from(NEW)), undefined)).toThrow(
      'put the secret into the body at $.value[*].clientState',
    );
  });

  test('verifies an event only if every item has one of the keys', () => {
    const state = fc.constantFrom(NEW, OLD, '', 'x', undefined);
    fc.assert(
      fc.property(fc.array(state, { maxLength: 5 }), (states) => {
        const isProven = states.length > 0 && states.every((each) => each === NEW || each === OLD);
        return (verify({ value: states.map((each) => toItem(each)) }) !== undefined) === isProven;
      }),
    );
  });
});

describe('the id of notifications', () => {
  const idOf = (content: unknown) => {
    const { openContent: _, ...identity } = scheme.identify(HEAD, toMessage(content)) as EventIdentity;
    return identity;
  };

  test('is the ID of a single one, and a digest of several', () => {
    expect(idOf({ value: [toItem(NEW, 'lsgTZMr9KwAAA')] })).toEqual({ id: 'lsgTZMr9KwAAA', timestamp: undefined });
    const both = idOf({ value: [toItem(NEW, 'a'), toItem(NEW, 'b')] });
    expect(both).toEqual({ id: expect.stringMatching(/^sha256-[\w-]{22}$/), timestamp: undefined });
    expect(idOf({ value: [toItem(OLD, 'a'), toItem(NEW, 'b')] })).toEqual(both);
    expect(idOf({ value: [toItem(NEW, 'a'), toItem(NEW, 'c')] })).not.toEqual(both);
    expect(idOf({ value: [toItem(NEW, 'a b'), toItem(NEW, 'c')] })).toEqual({ id: undefined, timestamp: undefined });
  });

  test('is undefined if one has none, so that the others do not stand for all', () => {
    expect(idOf({ value: [toItem(NEW)] })).toEqual({ id: undefined, timestamp: undefined });
    expect(idOf({ value: [toItem(NEW, 'a'), toItem(NEW)] })).toEqual({ id: undefined, timestamp: undefined });
  });
});

test('a path reads a list with one [*], and nothing else', () => {
  const read = (text: string, value: unknown) => {
    const path = parseJsonListPath(text);
    return path === undefined ? 'no path' : readJsonList(path, value);
  };
  expect(read('$.a[*].b', { a: [{ b: 1 }, {}] })).toEqual([1, undefined]);
  expect(read('$.a[*].b', { a: [] })).toBeUndefined();
  expect(read('$.a[*].b', { a: { b: 1 } })).toBeUndefined();
  expect(read('$[*].b', [{ b: 1 }, { b: 2 }])).toEqual([1, 2]);
  expect(read('$[*].b', { a: [] })).toBeUndefined();
  for (const text of ['$.a.b', '$.a[*]', '$.a[*].b[*].c', '$.a[*]b']) expect(read(text, {})).toBe('no path');
});
