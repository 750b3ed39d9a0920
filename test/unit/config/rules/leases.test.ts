import { describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { parseConfig } from '../../../../src/config/load/load.ts';
import { formatProblem } from '../../../../src/core/problem.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const ORDER = { key: '$.id', version: '$.v' };

/** What is said about leases. */
function findProblems(over: { webhook?: object; route?: object; limits?: object; queue?: object }): string[] {
  const config = {
    listen: { address: '127.0.0.1:0' },
    ...(over.limits && { limits: over.limits }),
    ...(over.webhook && 'ack' in over.webhook ? { provider: over.queue ? { queue: over.queue } : {} } : {}),
    routes: [
      {
        name: 'a',
        match: { path: '/a' },
        upstream: 'http://127.0.0.1:3000',
        timeout: '1s',
        connectTimeout: '500ms',
        ...over.route,
        webhook: { keys: [{ name: 'k', secret: { file: 's' } }], ...over.webhook },
      },
    ],
  };
  const { problems } = parseConfig('gate.yaml', stringify(config), new FakeClock());
  return problems.map(formatProblem).filter((text) => text.includes('.lease'));
}

describe('the lease', () => {
  test.each([
    ['of an ID', { dedup: { lease: '1600ms', maxWait: '1s' } }, 'set more than 1600ms: timeout + connectTimeout + 100ms'],
    [
      'of an ID that waits for its turn',
      { dedup: { lease: '3600ms', maxWait: '1s' }, order: { ...ORDER, maxWait: '2s' } },
      'set more than 3600ms: timeout + connectTimeout + order.maxWait + 100ms',
    ],
    [
      'of a resource',
      { order: { ...ORDER, lease: '1600ms', maxWait: '1s' } },
      'set more than 1600ms: timeout + connectTimeout + 100ms',
    ],
  ])('%s must last while the app works', (_title, webhook, hint) => {
    const [first = ''] = findProblems({ webhook });
    expect(first).toContain('error');
    expect(first).toContain(hint);
  });

  const QUEUED = 'timeout + connectTimeout + limits.queueTimeout + timeout (for a free connection)';
  test.each([
    ['the queue and the pool', {}, '3s', 7_600, QUEUED],
    ['a first attempt', { resend: 'always' }, '7601ms', 8_600, `${QUEUED} + timeout (of a first attempt)`],
  ])('should cover %s: with less, deliveries that waited get 503', (_title, route, lease, needed, names) => {
    const [first = ''] = findProblems({ webhook: { dedup: { lease, maxWait: '1s' } }, route });
    expect(first).toContain('warning');
    expect(first).toContain(`set more than ${needed}ms: ${names} + 100ms`);
    expect(findProblems({ webhook: { dedup: { lease: `${needed + 1}ms`, maxWait: '1s' } }, route })).toEqual([]);
  });

  test('need not cover the time of the app if deliveries are stored', () => {
    expect(findProblems({ webhook: { ack: 'onAccept', dedup: { lease: '6s' } }, route: { timeout: '60s' } })).toEqual([]);
  });

  test('must last until the queue in PostgreSQL has stored a delivery', () => {
    const needed = 3_100;
    const queue = { postgres: { url: { env: 'QUEUE_URL' }, statementTimeout: '3s' } };
    const find = (lease: number): string[] =>
      findProblems({ webhook: { ack: 'onAccept', dedup: { lease: `${lease}ms`, maxWait: '1s' } }, queue });
    expect(find(needed)[0]).toContain('the lease can end before the delivery is stored, so a retry would run concurrently');
    expect(find(needed)[0]).toContain(`set more than ${needed}ms: provider.queue.postgres.statementTimeout + 100ms`);
    expect(find(needed + 1)[0]).toContain(`set more than ${needed + 5_000}ms`);
    expect(find(needed + 5_001)).toEqual([]);
  });

  test('of the defaults covers everything', () => {
    expect(
      findProblems({ webhook: { order: ORDER }, route: { timeout: '15s', connectTimeout: '1s', resend: 'always' } }),
    ).toEqual([]);
  });
});
