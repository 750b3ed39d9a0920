import type { Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import { HeaderFields, toFoldedName } from '../../../../src/core/head.ts';
import { findForbiddenConnectionToken, findUnsound } from '../../../../src/http/server/strict-server.ts';

const LIMITS = { maxHeaderFields: 3, maxTarget: 10 };

/** What is wrong with the head, and the limits that it hits. */
function check(url: string, fields: readonly string[]): { readonly refusal: unknown; readonly hits: readonly string[] } {
  const hits: string[] = [];
  const headers = new HeaderFields(['Host', 'gate.test', ...fields.flatMap((name) => [name, 'x'])]);
  const head = { method: 'GET', url, headers, hasValidVersion: true, isOld: false, socket: {} as Socket };
  return { refusal: findUnsound(head, LIMITS, (limit) => hits.push(limit)), hits };
}

test('accepts a head within its limits', () => {
  expect(check('/123456789', ['A', 'B'])).toEqual({ refusal: undefined, hits: [] });
});

test.each([
  ['header fields', '/', ['A', 'B', 'C'], 'header_too_large', 'header_fields', '4 header fields'],
  ['bytes of the target', '/1234567890', [], 'target_too_long', 'target', '11 bytes'],
])('rejects one with more %s, and counts the limit', (_name, url, fields, code, limit, detail) => {
  expect(check(url, fields)).toMatchObject({ refusal: { code, reason: code, detail }, hits: [limit] });
});

describe('a Connection option', () => {
  const find = (...lines: string[]): string | undefined =>
    findForbiddenConnectionToken(new HeaderFields(lines.flatMap((line) => ['Connection', line])));

  test.each([
    ...['host', 'content-length', 'content-type', 'Content-Encoding', 'transfer-encoding', 'authorization', 'cookie', 'via'],
    ...['webhook-id', 'Webhook_Signature', 'svix-id', 'SIDEGATE-ROUTE', 'x-forwarded-for', 'X_Real_IP', 'forwarded'],
  ])('is forbidden: %s', (token) => {
    expect(find(token)).toBe(toFoldedName(token));
    expect(find('keep-alive', `close,\t${token} , x`)).toBe(toFoldedName(token));
  });

  test.each(['a b', '"x"', 'x;y=1', 'é'])('is forbidden if it is not a token: %s', (token) => {
    expect(find(token)).toBe('an invalid token');
  });

  test.each(['keep-alive', 'close', 'Keep-Alive', '', ',,', 'Upgrade, HTTP2-Settings', 'TE', 'X-Hop', 'connection'])(
    'is allowed: %s',
    (line) => {
      expect(find(line)).toBeUndefined();
    },
  );

  test('is one of at most 64, in all lines', () => {
    expect(find('a,'.repeat(63), 'keep-alive')).toBeUndefined();
    for (const lines of [['a,'.repeat(64)], ['a,'.repeat(63), 'b'], [','.repeat(8_000)], Array.from({ length: 65 }, () => 'a')])
      expect(find(...lines)).toBe('more than 64 options');
  });

  test('is absent without Connection', () => {
    expect(find()).toBeUndefined();
  });
});
