import type { IncomingMessage } from 'node:http';
import { describe, expect, test } from 'vitest';
import { AdminAccess, findTokenProblem } from '../../../src/admin/access.ts';
import { Secret } from '../../../src/core/secret.ts';

const toSecret = (text: string): Secret => new Secret(Buffer.from(text));
const TOKEN = '0123456789abcdef0123456789abcdef';

/** As node:http gives a request, as far as it is looked at. */
function toRequest(peer: string | undefined, hosts: readonly string[], authorization?: string): IncomingMessage {
  return {
    socket: { remoteAddress: peer },
    headers: { authorization },
    headersDistinct: { host: hosts },
  } as unknown as IncomingMessage;
}

describe('without a token', () => {
  const access = new AdminAccess(undefined);

  test.each([
    ['127.0.0.1', '127.0.0.1:9090'],
    ['127.8.9.1', 'localhost:9090'],
    ['::1', '[::1]:9090'],
    ['::1', 'LOCALHOST'],
    ['::ffff:127.0.0.1', '10.1.2.3:9090'],
    ['127.0.0.1', '[fd00::1]'],
  ])('answers %s that asks for %s', (peer, host) => {
    expect(access.judge(toRequest(peer, [host]))).toBeUndefined();
  });

  test.each([
    ['10.1.2.3', ['127.0.0.1']],
    ['::ffff:10.1.2.3', ['127.0.0.1']],
    ['fd00::1', ['[::1]']],
    ['', ['127.0.0.1']],
    [undefined, ['127.0.0.1']],
    ['127.0.0.1.evil.example', ['127.0.0.1']],
  ])('does not answer %s, whatever Host it names', (peer, hosts) => {
    const denial = access.judge(toRequest(peer, hosts));
    expect([denial?.reason, denial?.answer.status]).toEqual(['not_loopback', 403]);
  });

  test.each([
    [['evil.example']],
    [['evil.example:9090']],
    [['127.0.0.1.evil.example']],
    [['localhost.evil.example']],
    [['localhost@evil.example']],
    [['[evil.example]:9090']],
    [['127.0.0.1:9090:1']],
    [['0x7f.1']],
    [['']],
    [[]],
    [['127.0.0.1', 'evil.example']],
  ])('does not answer a browser here whose page has its own name lead here: %j', (hosts) => {
    const denial = access.judge(toRequest('127.0.0.1', hosts));
    expect([denial?.reason, denial?.answer.status]).toEqual(['foreign_host', 403]);
  });
});

describe('with a token', () => {
  const access = new AdminAccess(toSecret(TOKEN));

  test.each([
    ['from anywhere', '203.0.113.9', ['gate.example'], `Bearer ${TOKEN}`],
    ['with the scheme in other letters', '127.0.0.1', ['127.0.0.1'], `bEARER  ${TOKEN}`],
  ])('answers whoever has it: %s', (_, peer, hosts, authorization) => {
    expect(access.judge(toRequest(peer, hosts, authorization))).toBeUndefined();
  });

  test.each([
    ['no_token', undefined, 'Bearer realm="sidegate-admin"'],
    ['wrong_token', '', 'Bearer realm="sidegate-admin", error="invalid_token"'],
    ['wrong_token', TOKEN, 'Bearer realm="sidegate-admin", error="invalid_token"'],
    ['wrong_token', 'Bearer', 'Bearer realm="sidegate-admin", error="invalid_token"'],
    ['wrong_token', `Bearer ${TOKEN.slice(1)}`, 'Bearer realm="sidegate-admin", error="invalid_token"'],
    ['wrong_token', `Bearer ${TOKEN}x`, 'Bearer realm="sidegate-admin", error="invalid_token"'],
    ['wrong_token', `Bearer ${TOKEN} x`, 'Bearer realm="sidegate-admin", error="invalid_token"'],
    ['wrong_token', `Basic ${TOKEN}`, 'Bearer realm="sidegate-admin", error="invalid_token"'],
  ])('refuses even a caller on this machine as %s: %s', (reason, authorization, challenge) => {
    const denial = access.judge(toRequest('127.0.0.1', ['127.0.0.1'], authorization));
    expect([denial?.reason, denial?.answer.status]).toEqual([reason, 401]);
    expect(denial?.answer.headers).toEqual({ 'WWW-Authenticate': challenge });
    expect(JSON.stringify(denial)).not.toContain(TOKEN);
  });

  test('takes over a rotated one, and knows the old one no more', () => {
    const rotated = new AdminAccess(toSecret(TOKEN));
    rotated.replace(toSecret('f'.repeat(32)));
    expect(rotated.judge(toRequest('127.0.0.1', ['a'], `Bearer ${TOKEN}`))?.reason).toBe('wrong_token');
    expect(rotated.judge(toRequest('127.0.0.1', ['a'], `Bearer ${'f'.repeat(32)}`))).toBeUndefined();
  });
});

test.each([
  ['short-token', 'the token has 11 bytes; 16 are the least'],
  ['has a space in its middle', 'the token has characters that no client can send (RFC 6750 §2.1)'],
  ['has=an-equals-sign-inside', 'the token has characters that no client can send (RFC 6750 §2.1)'],
  ['with-ümlaut-and-more', 'the token has characters that no client can send (RFC 6750 §2.1)'],
])('finds a token that is too weak, or that nobody could send: %s', (text, problem) => {
  expect(findTokenProblem(toSecret(text))?.problem).toBe(problem);
});

test.each([TOKEN, 'QUJDREVGR0hJSktMTU5PUA==', 'a-._~+/b-._~+/cdef'])('finds nothing wrong with %s', (text) => {
  expect(findTokenProblem(toSecret(text))).toBeUndefined();
});
