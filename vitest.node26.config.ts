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
  'proxy',
  'streaming',
  'tls',
  'upgrade',
];

export default defineConfig({
  test: {
    include: ['test/{attack,contract,node26,unit}/**/*.test.ts', `test/e2e/{${DATA_PATH.join(',')}}.test.ts`],
    testTimeout: 20_000,
    hookTimeout: 30_000,
  },
});
