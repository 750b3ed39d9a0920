import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/simulation/**/*.test.ts'],
    testTimeout: 600_000,
    // The processes that the tests start need both cores.
    fileParallelism: false,
    maxConcurrency: 2,
  },
});
