import { expect, test } from 'vitest';
import { toAttemptLimits } from '../../../../src/http/client/client-handshakes.ts';

const MIB = 1024 * 1024;
const DEFAULT = { maxConnections: 512, maxConcurrency: 64 };

test.each([
  ['without a limit, as configured', DEFAULT, undefined, 1, [512, 64]],
  ['with enough memory, as configured', DEFAULT, 256, 1, [512, 64]],
  ['with 96 MiB', DEFAULT, 96, 1, [160, 64]],
  ['with 96 MiB for two workers', DEFAULT, 96, 2, [16, 8]],
  ['with 192 MiB for four workers', DEFAULT, 192, 4, [40, 20]],
  ['as configured, though slow endpoints have few', { maxConnections: 100, maxConcurrency: 90 }, 96, 1, [100, 90]],
  ['with fewer than the fast ones would have', { maxConnections: 1_024, maxConcurrency: 512 }, 128, 1, [288, 144]],
  ['with no memory at all, two', DEFAULT, 48, 1, [2, 1]],
])('attempts %s: half of them at least are for slow endpoints', (_, config, limit, workers, [maxConnections, maxConcurrency]) => {
  const memory = { limit: limit === undefined ? undefined : limit * MIB, workers };
  expect(toAttemptLimits(config, memory)).toEqual({ maxConnections, maxConcurrency });
});
