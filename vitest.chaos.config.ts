import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/chaos/**/*.test.ts'],
    testTimeout: 3_600_000,
    hookTimeout: 60_000,
    // The tests mostly wait, for leases and pauses.
    maxWorkers: 3,
  },
});
