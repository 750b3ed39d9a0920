import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/models/**/*.test.ts'],
    testTimeout: 180_000,
    hookTimeout: 30_000,
    // The model checker is a process of its own: at most two at once, as on two cores.
    fileParallelism: false,
    maxConcurrency: 2,
  },
});
