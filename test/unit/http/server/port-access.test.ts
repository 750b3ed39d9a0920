import { expect, test } from 'vitest';
import { Secret } from '../../../../src/core/secret.ts';
import { findTokenProblem } from '../../../../src/http/server/port-access.ts';

const toSecret = (text: string): Secret => new Secret(Buffer.from(text));
const TOKEN = '0123456789abcdef0123456789abcdef';

test.each([
  ['short-token', 'the token has 11 bytes; it needs at least 16'],
  ['has a space in its middle', 'the token contains characters that a client cannot send (RFC 6750 §2.1)'],
  ['has=an-equals-sign-inside', 'the token contains characters that a client cannot send (RFC 6750 §2.1)'],
  ['with-ümlaut-and-more', 'the token contains characters that a client cannot send (RFC 6750 §2.1)'],
])('reports a token that is too short or cannot be sent: %s', (text, problem) => {
  expect(findTokenProblem(toSecret(text))?.problem).toBe(problem);
});

test.each([TOKEN, 'QUJDREVGR0hJSktMTU5PUA==', 'a-._~+/b-._~+/cdef'])('accepts the token %s', (text) => {
  expect(findTokenProblem(toSecret(text))).toBeUndefined();
});
