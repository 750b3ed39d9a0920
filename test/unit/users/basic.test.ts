import { describe, expect, test } from 'vitest';
import { readBasic, toBasicChallenge } from '../../../src/users/basic.ts';
import { fc } from '../../support/property.ts';

const STRICT = { latin1: false };
const encode = (text: string | Buffer): string => Buffer.from(text as string).toString('base64');
const read = (pair: string | Buffer, options = STRICT) => readBasic(`Basic ${encode(pair)}`, options);

describe("RFC 7617's own examples", () => {
  test('Aladdin', () => {
    expect(readBasic('Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==', STRICT)).toEqual({
      user: 'Aladdin',
      password: Buffer.from('open sesame'),
    });
  });
  test('the pound sign in UTF-8', () => {
    expect(readBasic('Basic dGVzdDoxMjPCow==', STRICT)).toEqual({ user: 'test', password: Buffer.from('123£') });
  });
});

describe('credentials', () => {
  test.each([
    ['no field', undefined, 'missing'],
    ['another scheme', 'Bearer abc', 'other_scheme'],
    ['a scheme that only starts alike', 'Basically QTpi', 'other_scheme'],
    ['nothing', '', 'other_scheme'],
    ['the scheme alone', 'Basic', 'malformed'],
    ['a TAB after the scheme', 'Basic\tQTpi', 'malformed'],
    ['no padding', 'Basic QTpiYw', 'malformed'],
    ['junk behind the padding', 'Basic QTpi!!', 'malformed'],
    ['text behind the token', 'Basic QTpi junk', 'malformed'],
    ['a list', 'Basic QTpi, Basic QTpi', 'malformed'],
    ['a character that is not of base64', 'Basic QT*pi', 'malformed'],
    ['unused bits that are not zero', 'Basic QTpiYx==', 'malformed'],
    ["URL-safe base64's alphabet", 'Basic Pz8_Og==', 'malformed'],
    ['a quoted token', 'Basic "QTpi"', 'malformed'],
  ])('that are %s are rejected', (_, value, problem) => {
    expect(readBasic(value, STRICT)).toBe(problem);
  });

  test.each(['basic', 'BASIC', 'bAsIc'])('may write the scheme as %s', (scheme) => {
    expect(readBasic(`${scheme}   QTpi`, STRICT)).toEqual({ user: 'A', password: Buffer.from('b') });
  });

  test.each([
    ['no colon', 'ab', 'malformed'],
    ['NUL and junk behind the password', 'u:p\0junk', 'malformed'],
    ['a line break', 'u\r\nX: y:p', 'malformed'],
    ['DEL', 'u:p\u007f', 'malformed'],
    ['bytes that are not UTF-8', Buffer.from([0x75, 0x3a, 0xa3]), 'charset'],
    ['an overlong form', Buffer.from([0x75, 0x3a, 0xc0, 0xaf]), 'charset'],
    ['a lone surrogate', Buffer.from([0x75, 0x3a, 0xed, 0xa0, 0x80]), 'charset'],
    ['more than anyone types', `u:${'p'.repeat(1_100)}`, 'too_long'],
  ])('with %s are rejected', (_, pair, problem) => {
    expect(read(pair)).toBe(problem);
  });

  test.each([
    ['', ':', ''],
    ['', ':p', 'p'],
    ['u', 'u:', ''],
    ['u', 'u:p:q', 'p:q'],
    ['u', 'u::', ':'],
    [' u ', ' u : p ', ' p '],
  ])('of user %j are split at the first colon of %j', (user, pair, password) => {
    expect(read(pair)).toEqual({ user, password: Buffer.from(password) });
  });

  test('are equal in every Unicode normalization form', () => {
    expect(read('Ame\u0301lie:pass\u0301')).toEqual(read('Am\u00e9lie:pas\u015b'));
  });

  test('keep a byte order mark, because it is part of the password', () => {
    expect(read('u:\ufeffp')).toEqual({ user: 'u', password: Buffer.from('\ufeffp') });
  });

  test('are read as Latin-1 only if that is allowed and they are not UTF-8', () => {
    const latin1 = Buffer.from('test:123£', 'latin1');
    expect(read(latin1, { latin1: true })).toEqual({ user: 'test', password: Buffer.from('123£') });
    expect(read('test:123£', { latin1: true })).toEqual({ user: 'test', password: Buffer.from('123£') });
  });

  test('of any text without control characters are decoded unchanged', () => {
    const part = fc.string({ unit: 'grapheme', maxLength: 40 }).filter((text) => !/\p{Cc}/u.test(text));
    fc.assert(
      fc.property(part, part, (user, password) => {
        const name = user.replaceAll(':', '');
        expect(read(`${name}:${password}`)).toEqual({
          user: name.normalize('NFC'),
          password: Buffer.from(password.normalize('NFC')),
        });
      }),
    );
  });

  test('never throw for any input', () => {
    fc.assert(fc.property(fc.string({ unit: 'binary' }), (value) => void readBasic(value, STRICT)));
    fc.assert(fc.property(fc.uint8Array(), (bytes) => void read(Buffer.from(bytes))));
  });
});

test('a challenge quotes its realm', () => {
  expect(toBasicChallenge('a "b" \\ c')).toBe('Basic realm="a \\"b\\" \\\\ c", charset="UTF-8"');
});
