import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/cluster/**/*.test.ts'],
    exclude: ['test/cluster/node/**', 'test/cluster/floods/**'],
    globalSetup: ['test/support/cluster/global-setup.ts'],
    testTimeout: 120_000,
    hookTimeout: 240_000,
    fileParallelism: false,
  },
});
