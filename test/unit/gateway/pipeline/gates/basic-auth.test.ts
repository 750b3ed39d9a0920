import { hostname } from 'node:os';
import { expect, test } from 'vitest';
import { HeaderFields } from '../../../../../src/core/head.ts';
import type { ParsedHead } from '../../../../../src/core/request.ts';
import { createBasicAuthGate, toAttemptKey } from '../../../../../src/gateway/pipeline/gates/basic-auth.ts';
import { createMemoryAttempts } from '../../../../../src/users/attempts.ts';
import type { CountAttempt, PasswordVerifier } from '../../../../../src/users/verifier.ts';
import { FakeClock } from '../../../../support/fake-clock.ts';
import { toBasic } from '../../../../support/users.ts';

const RULE = { failures: 1, per: 60_000, ban: 60_000, by: ['client'] } as const;

/** A gate before a realm that knows nobody, and where every check is a wrong guess. */
function open(): { clock: FakeClock; check: (authorization?: string) => unknown } {
  const clock = new FakeClock();
  const verifier = {
    isAvailable: true,
    recall: () => undefined,
    verify: async (_credentials: unknown, _network: string, count: CountAttempt) => {
      const attempt = await count.take();
      return attempt.kind === 'taken' ? undefined : { notChecked: 'banned', left: attempt.left };
    },
  } as unknown as PasswordVerifier;
  const gate = createBasicAuthGate(
    { realm: 'admin', as: 'origin', requireTls: false, latin1: false, limit: RULE },
    { clock, verifier: () => verifier, attempts: createMemoryAttempts(clock, 10), onUsed: () => undefined },
  );
  const toHead = (authorization: string): ParsedHead =>
    ({
      client: { address: '192.0.2.7', peer: '192.0.2.7', viaTrustedProxy: false, scheme: 'http' },
      headers: new HeaderFields(authorization === '' ? [] : ['Authorization', authorization]),
    }) as unknown as ParsedHead;
  return { clock, check: (authorization = toBasic('Aladdin', 'guess').Authorization) => gate.check(toHead(authorization)) };
}

test.each([
  ['127.0.0.1', false],
  ['127.9.9.9', false],
  ['::1', false],
  ['::ffff:127.0.0.1', false],
  ['192.0.2.7', true],
  ['2001:db8::1', true],
])('counts failures of %s for all machines: %s', (client, isShared) => {
  expect(toAttemptKey('admin', { client }).includes(`:${hostname()}:`)).toBe(!isShared);
});

const toCredentials = (bytes: string): string => `Basic ${Buffer.from(bytes, 'latin1').toString('base64')}`;

test.each([
  ['no credentials', '', 'no_credentials'],
  ['those of another scheme', 'Bearer abc', 'no_credentials'],
  ['no base64', 'Basic %%', 'malformed_credentials'],
  ['bytes that are not UTF-8', toCredentials('ann:\xff'), 'malformed_credentials'],
  ['a long password', toCredentials(`ann:${'x'.repeat(100_000)}`), 'malformed_credentials'],
])('operators learn that a client sent %s, the client does not', async (_name, authorization, reason) => {
  expect(await open().check(authorization)).toMatchObject({ code: 'credentials_required', reason });
});

test('a banned client waits 100 ms for the response', async () => {
  const { clock, check } = open();
  expect(await check()).toMatchObject({ code: 'credentials_required' });
  let verdict: unknown;
  const judged = Promise.resolve(check()).then((given) => {
    verdict = given;
  });
  await clock.advance(0);
  await clock.advance(99);
  expect(verdict).toBeUndefined();
  await clock.advance(1);
  await judged;
  expect(verdict).toMatchObject({ code: 'too_many_attempts', reason: 'banned', retryAfterSeconds: 60 });
});

test('beyond a thousand waiting clients the response is immediate', async () => {
  const { clock, check } = open();
  await check();
  const waiting = Array.from({ length: 1_000 }, () => Promise.resolve(check()));
  await clock.advance(0);
  expect(await check()).toMatchObject({ code: 'too_many_attempts' });
  await clock.advance(100);
  await Promise.all(waiting);
});
