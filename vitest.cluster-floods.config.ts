import { defineConfig } from 'vitest/config';
import cluster from './vitest.cluster.config.ts';

/** Floods of pods on the real node. They take all of the CPUs, so nothing else runs meanwhile. */
export default defineConfig({
  test: { ...cluster.test, include: ['test/cluster/floods/**/*.test.ts'], exclude: [] },
});
