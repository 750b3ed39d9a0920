import type { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { HeaderFields } from '../../../../src/core/headers.ts';
import { findUnsound } from '../../../../src/gateway/server/head-check.ts';

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
