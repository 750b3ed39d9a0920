import { expect, test } from 'vitest';
import { HeaderFields } from '../../../../src/core/head.ts';
import { acknowledge } from '../../../../src/core/refusal.ts';
import { toDetails } from '../../../../src/gateway/pipeline/record.ts';
import { makeAdmitted } from '../../../support/admitted.ts';

const { head } = makeAdmitted();
const toHeaders = (...raw: string[]): string =>
  toDetails({ info: head, head: { ...head, headers: new HeaderFields(raw) } }).headers;

test('keeps the values of headers that are neither credentials nor signatures, and only the names of all others', () => {
  const shown = toHeaders(
    ...['Host', 'a.example', 'Content-Type', 'application/json', 'Webhook-Id', 'msg_1', 'Webhook-Timestamp', '1700000000'],
    ...['Webhook-Signature', 'v1,marked', 'Authorization', 'Bearer marked', 'Cookie', 'marked', 'X-Api-Key', 'marked'],
    ...['Stripe-Signature', 't=1,v1=marked', 'X-Gitlab-Token', 'marked', 'Telegram-Token', 'marked'],
  );
  expect(shown.split('\n')).toEqual([
    'host\ta.example',
    'content-type\tapplication/json',
    'webhook-id\tmsg_1',
    'webhook-timestamp\t1700000000',
    'webhook-signature',
    'authorization',
    'cookie',
    'x-api-key',
    'stripe-signature',
    'x-gitlab-token',
    'telegram-token',
  ]);
});

test('cuts long names, long values, and many headers', () => {
  const shown = toHeaders('User-Agent', 'u'.repeat(10_000), 'N'.repeat(5_000), 'x');
  expect(shown).toBe(`user-agent\t${'u'.repeat(256)}...\n${'n'.repeat(64)}...`);
  expect(toHeaders(...Array<string>(200).fill('Via')).split('\n')).toHaveLength(64);
  expect(toHeaders(...Array.from({ length: 60 }, () => ['Via', 'v'.repeat(200)]).flat())).toHaveLength(4_096 + 3);
});

test('keeps the path without its query, and at most 1,024 characters of it', () => {
  const toPath = (path: string, query: string) =>
    toDetails({ info: head, head: { ...head, target: { raw: `${path}?${query}`, path, query, ambiguities: [] } } });
  expect(toPath('/hooks', 'token=marked')).toMatchObject({ path: '/hooks' });
  expect(toPath(`/${'x'.repeat(5_000)}`, '')).toMatchObject({ path: `/${'x'.repeat(1_023)}...` });
});

test('keeps the signed time of a verified event, whether its ID was claimed, and the size of the response', () => {
  const claim = { confirm: () => undefined, release: () => undefined, hold: () => undefined };
  const event = { id: 'a', timestamp: 7, keyName: 'k', body: Buffer.alloc(0) };
  const admitted = makeAdmitted({ claimed: { claim, event } });
  const outcome = { kind: 'responded', status: 200, contentBytes: 12, upstreamMs: 1 } as const;
  expect(toDetails({ info: head, head, event, admitted, outcome })).toMatchObject({
    signedAt: 7,
    isClaimed: true,
    bytesOut: 12,
  });
  const refusal = acknowledge({ state: 'handled', isSameEvent: true, reason: 'duplicate' });
  expect(toDetails({ info: head, head, event, refusal })).toMatchObject({
    signedAt: 7,
    isClaimed: false,
  });
});

test('keeps nothing of a head that was rejected', () => {
  expect(toDetails({ info: head })).toMatchObject({ path: undefined, headers: '' });
});
