/** Builds the console's page once for each run of the tests in a browser. */
import { resolve } from 'node:path';
import { bundlePage } from '../../scripts/bundle.ts';

export async function setup(): Promise<void> {
  await bundlePage(resolve(import.meta.dirname, '..', '..', 'dist'));
}
