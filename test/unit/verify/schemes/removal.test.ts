/** The signature is removed from a body or URL as senders do that sign what they had before they added it. */
import { describe, expect, test } from 'vitest';
import { compileRemoval, removeParameter } from '../../../../src/verify/schemes/removal.ts';

const signature = { header: '', encoding: 'hex', forms: [] } as const;

describe('a member of a JSON body', () => {
  const remove = compileRemoval({ ...signature, json: '$.data.sig' });
  const of = (body: string): string | undefined => remove(Buffer.from(body))?.toString();

  test.each([
    ['{"data":{"a":1,"sig":"x"}}', '{"data":{"a":1}}'],
    ['{"data":{"sig":"x","a":1}}', '{"data":{"a":1}}'],
    ['{"data":{"a":1,"sig":"x","b":2}}', '{"data":{"a":1,"b":2}}'],
    ['{"data":{"sig":"x"}}', '{"data":{}}'],
    ['{ "data" : { "a" : 1 , "sig" : "x" } , "sig" : 1 }', '{ "data" : { "a" : 1  } , "sig" : 1 }'],
    ['{"data":{"a":"}{\\"sig\\":1,","sig":"\\"},{","b":[{"sig":2}]}}', '{"data":{"a":"}{\\"sig\\":1,","b":[{"sig":2}]}}'],
    ['{"data":{"a":1,"s\\u0069g":"x"}}', '{"data":{"a":1}}'],
  ])('%s becomes %s', (body, rest) => {
    expect(of(body)).toBe(rest);
  });

  test.each(['{"data":{"a":1}}', '{"data":[{"sig":1}]}', '{"sig":1}', '[]'])('is missing in %s', (body) => {
    expect(of(body)).toBeUndefined();
  });

  test('can be in an item of a list', () => {
    const first = compileRemoval({ ...signature, json: '$.items[1].sig' });
    expect(first(Buffer.from('{"items":[{"sig":1},{"sig":2,"a":3}]}'))?.toString()).toBe('{"items":[{"sig":1},{"a":3}]}');
    expect(first(Buffer.from('{"items":[{"sig":1}]}'))).toBeUndefined();
  });
});

describe('a field of a form', () => {
  const remove = compileRemoval({ ...signature, form: 'sig' });
  const of = (body: string): string | undefined => remove(Buffer.from(body))?.toString();

  test.each([
    ['a=1&sig=x', 'a=1'],
    ['sig=x&a=1', 'a=1'],
    ['a=1&sig=x&b=%20', 'a=1&b=%20'],
    ['sig=x', ''],
    ['sig', ''],
    ['a=1&s%69g=x', 'a=1'],
    ['a=1&&sig=x', 'a=1&'],
  ])('%s becomes %s', (body, rest) => {
    expect(of(body)).toBe(rest);
  });

  test.each([
    'a=1',
    'sig=x&sig=y',
    'sig=x&SIG=y',
    'sig=x;a=1',
    '--b\r\nContent-Disposition: form-data; name="sig"\r\n\r\nx\r\n--b--',
  ])('cannot be removed from %j', (body) => {
    expect(of(body)).toBeUndefined();
  });
});

test('a parameter is removed from a URL, with the question mark if it is the only one', () => {
  expect(removeParameter('https://a.example/b?x=1&sig=2', 'sig')).toBe('https://a.example/b?x=1');
  expect(removeParameter('https://a.example/b?sig=2', 'sig')).toBe('https://a.example/b');
  expect(removeParameter('/b?sig=2&x=1', 'sig')).toBe('/b?x=1');
  for (const url of ['/b', '/b?x=1', '/b?sig=1&sig=2']) expect(removeParameter(url, 'sig')).toBeUndefined();
});
