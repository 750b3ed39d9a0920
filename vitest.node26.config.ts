import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';

/** End-to-end tests of what a request passes through; commands and pages behave the same on every Node version. */
const DATA_PATH = [
  'basic',
  'client-certificates',
  'drain',
  'gate',
  'http2',
  'limits',
  'passing-through',
  'provider',
  'proxy',
  'sender',
  'sqlite-queue',
  'streaming',
  'tls',
  'upgrade',
];

export default defineConfig({
  test: {
    include: ['test/{attack,contract,node26,unit}/**/*.test.ts', `test/e2e/{${DATA_PATH.join(',')}}.test.ts`],
    // The store is SQLite or Redis, whatever Node runs the queue; the e2e tests use it.
    exclude: ['test/contract/delivery-queue*.test.ts'],
    // Vitest's default is one worker on two cores, which leaves them half idle: tests mostly wait.
    maxWorkers: Math.max(2, availableParallelism() - 1),
    testTimeout: 20_000,
    hookTimeout: 30_000,
  },
});
