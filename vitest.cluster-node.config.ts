import { defineConfig } from 'vitest/config';
import cluster from './vitest.cluster.config.ts';

/** The tests that share the real node. They mostly wait for it, so they run beside the others. */
export default defineConfig({
  test: { ...cluster.test, include: ['test/cluster/node/**/*.test.ts'], exclude: [] },
});
