import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/oracles/**/*.test.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // The senders' libraries write to the console what they refuse.
    silent: 'passed-only',
  },
});
