import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: ['test/cluster/**', 'test/chaos/**', 'test/browser/**'],
    testTimeout: 20_000,
    hookTimeout: 30_000,
  },
});
