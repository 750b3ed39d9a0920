import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: [
      'test/cluster/**',
      'test/browser/**',
      'test/fuzz/**',
      'test/oracles/**',
      'test/node26/**',
      'test/memory/**',
      'test/chaos/**',
      'test/models/**',
      'test/simulation/**',
    ],
    testTimeout: 20_000,
    hookTimeout: 30_000,
    // Vitest's default is one worker on two cores, which leaves them half idle: tests mostly wait.
    maxWorkers: Math.max(2, availableParallelism() - 1),
    coverage: { provider: 'v8', include: ['src/**'], reporter: ['text-summary', 'text'] },
  },
});
