import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    // The other tests check texts, which do not depend on the Node version.
    include: ['test/{attack,contract,e2e,node26,unit}/**/*.test.ts'],
    testTimeout: 20_000,
    hookTimeout: 30_000,
  },
});
