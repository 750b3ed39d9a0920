import type { IncomingMessage } from 'node:http';
import { describe, expect, test } from 'vitest';
import { AdminAccess, authorizeLoopback } from '../../../src/admin/router.ts';
import { Secret } from '../../../src/core/secret.ts';

const toSecret = (text: string): Secret => new Secret(Buffer.from(text));
const TOKEN = '0123456789abcdef0123456789abcdef';

/** The fields of a node:http request that are read. */
function toRequest(
  peer: string | undefined,
  hosts: readonly string[],
  authorization?: string,
  localAddress = '127.0.0.1',
): IncomingMessage {
  return {
    socket: { remoteAddress: peer, localAddress },
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
  ])('authorizes a request from %s with Host %s', (peer, host) => {
    expect(access.authorize(toRequest(peer, [host]))).toBeUndefined();
  });

  test.each([
    ['10.1.2.3', ['127.0.0.1']],
    ['::ffff:10.1.2.3', ['127.0.0.1']],
    ['fd00::1', ['[::1]']],
    ['', ['127.0.0.1']],
    [undefined, ['127.0.0.1']],
    ['127.0.0.1.evil.example', ['127.0.0.1']],
  ])('rejects a request from %s, whatever its Host is', (peer, hosts) => {
    const denial = access.authorize(toRequest(peer, hosts));
    expect([denial?.reason, denial?.response.status]).toEqual(['not_loopback', 403]);
  });

  test.each([
    ['127.0.0.6', '10.1.2.3'],
    ['::ffff:127.0.0.6', '::ffff:10.1.2.3'],
    ['::1', 'fd00::1'],
    ['127.0.0.1', ''],
  ])('rejects what a mesh forwards from %s to %s, for callers of the pod, too', (peer, own) => {
    const request = toRequest(peer, ['127.0.0.1'], undefined, own);
    expect([access.authorize(request)?.reason, authorizeLoopback(request)?.reason]).toEqual(['not_loopback', 'not_loopback']);
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
    [['0.0.0.0:9090']],
    [['[::]:9090']],
    [['[::ffff:127.0.0.1]:9090']],
    [['[::ffff:7f00:1]:9090']],
    [['[0:0:0:0:0:ffff:7f00:1]:9090']],
    [['']],
    [[]],
    [['127.0.0.1', 'evil.example']],
  ])('rejects a browser on this machine whose page uses DNS rebinding: %j', (hosts) => {
    const denial = access.authorize(toRequest('127.0.0.1', hosts));
    expect([denial?.reason, denial?.response.status]).toEqual(['foreign_host', 403]);
  });
});

describe('with a token', () => {
  const access = new AdminAccess(toSecret(TOKEN));

  test.each([
    ['from anywhere', '203.0.113.9', ['gate.example'], `Bearer ${TOKEN}`],
    ['with the scheme in another case', '127.0.0.1', ['127.0.0.1'], `bEARER  ${TOKEN}`],
  ])('authorizes a request with the token: %s', (_, peer, hosts, authorization) => {
    expect(access.authorize(toRequest(peer, hosts, authorization))).toBeUndefined();
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
  ])('rejects even a client on this machine as %s: %s', (reason, authorization, challenge) => {
    const denial = access.authorize(toRequest('127.0.0.1', ['127.0.0.1'], authorization));
    expect([denial?.reason, denial?.response.status]).toEqual([reason, 401]);
    expect(denial?.response.headers).toEqual({ 'WWW-Authenticate': challenge });
    expect(JSON.stringify(denial)).not.toContain(TOKEN);
  });

  test('accepts a rotated token, and rejects the old one', () => {
    const rotated = new AdminAccess(toSecret(TOKEN));
    rotated.replace(toSecret('f'.repeat(32)));
    expect(rotated.authorize(toRequest('127.0.0.1', ['a'], `Bearer ${TOKEN}`))?.reason).toBe('wrong_token');
    expect(rotated.authorize(toRequest('127.0.0.1', ['a'], `Bearer ${'f'.repeat(32)}`))).toBeUndefined();
  });
});
