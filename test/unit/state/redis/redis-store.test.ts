import { describe, expect, test } from 'vitest';
import { formatAddress, OutageRecord, toCause } from '../../../../src/state/redis/redis-store.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const NODE = { host: '10.0.0.7', port: 6379 };

describe('the cause of an outage', () => {
  test.each([
    [{ message: '', code: 'ECONNREFUSED' }, 'connection refused'],
    [{ message: 'connect ECONNREFUSED 127.0.0.1:6379' }, 'connection refused'],
    [{ message: 'connect ETIMEDOUT' }, 'connecting timed out'],
    [{ message: 'getaddrinfo ENOTFOUND redis' }, 'the host name does not resolve'],
    [{ message: 'Command timed out' }, 'no reply in time'],
    [{ message: "Stream isn't writeable and enableOfflineQueue options is false" }, 'not connected'],
    [{ message: 'Reached the max retries per request limit (which is 0).' }, 'not connected'],
    [{ message: 'Connection is closed.' }, 'not connected'],
    [{ message: 'All sentinels are unreachable. Retrying from scratch after 10ms.' }, 'no Sentinel replies'],
    [{ message: 'Failed to refresh slots cache.' }, 'no node of the Cluster replies'],
    [
      { message: 'Failed to refresh slots cache.', lastNodeError: new Error('NOAUTH Authentication required.') },
      'Redis replied: NOAUTH Authentication required.',
    ],
    [
      { message: 'Failed to refresh slots cache.', lastNodeError: new Error('Connection is closed.') },
      'no node of the Cluster replies',
    ],
    [
      { message: 'All sentinels are unreachable. Retrying from scratch after 10ms. Last error: NOPERM no permission' },
      'Redis replied: NOPERM no permission',
    ],
    [
      { message: 'All sentinels are unreachable. Retrying from scratch after 10ms. Last error: Connection is closed.' },
      'no Sentinel replies',
    ],
    [{ message: 'WRONGPASS invalid username-password pair' }, 'Redis replied: WRONGPASS invalid username-password pair'],
    [
      { message: 'self-signed certificate', code: 'DEPTH_ZERO_SELF_SIGNED_CERT' },
      'the connection failed (DEPTH_ZERO_SELF_SIGNED_CERT)',
    ],
    [{}, 'not connected'],
  ])('is reported without messages of the library: %j', (error, cause) => {
    expect(toCause(error)).toBe(cause);
  });
});

test('the address names every form of Redis, and no password', () => {
  expect(formatAddress({ kind: 'standalone', node: { host: '::1', port: 6379 } })).toBe('[::1]:6379');
  expect(formatAddress({ kind: 'sentinel', name: 'main', nodes: [NODE] })).toBe('10.0.0.7:6379 (Sentinel of main)');
  expect(formatAddress({ kind: 'cluster', nodes: [NODE, NODE] })).toBe('10.0.0.7:6379, 10.0.0.7:6379 (Cluster)');
});

test('an outage keeps its start and the last specific cause until it ends', async () => {
  const clock = new FakeClock();
  const record = new OutageRecord({ kind: 'standalone', node: NODE }, clock);
  const start = clock.now();
  expect(record.fail({ code: 'ECONNREFUSED' })).toMatchObject({ since: start, address: '10.0.0.7:6379' });
  await clock.advance(5_000);
  record.fail({ code: 'EPIPE' });
  const later = record.fail({ message: "Stream isn't writeable" });
  expect(later.since).toBe(start);
  expect(later.message).toBe(`Redis at 10.0.0.7:6379 is down since ${new Date(start).toISOString()}: connection refused`);
  record.end();
  expect(record.fail({ message: 'Connection is closed.' })).toMatchObject({
    since: start + 5_000,
    message: expect.stringMatching(/: not connected$/),
  });
});
