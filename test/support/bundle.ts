/** The bundles that users run, built once for each run of the tests: their processes start with half the CPU time that the sources need. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { bundle, bundlePage } from '../../scripts/bundle.ts';

const ROOT = resolve(import.meta.dirname, '..', '..');
const CACHE = join(ROOT, '.cache');
/** Where a run's workers find its bundle. */
const VARIABLE = 'SIDEGATE_TEST_BUNDLE';

/** The bundle's entry point, in a run of a suite that has one. */
export const runBundle = process.env[VARIABLE];
let built: Promise<string> | undefined = runBundle === undefined ? undefined : Promise.resolve(runBundle);

/** Before a run of the tests. The main process of the run removes the bundle when it exits. A gate from the sources has its page in dist/. */
export async function setup(): Promise<void> {
  await bundlePage(join(ROOT, 'dist'));
  process.env[VARIABLE] = await provideBundle();
}

/** The bundle of this source tree. */
export function provideBundle(): Promise<string> {
  built ??= buildBundle();
  return built;
}

async function buildBundle(): Promise<string> {
  mkdirSync(CACHE, { recursive: true });
  const folder = mkdtempSync(join(CACHE, 'bundle-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  await bundle(folder);
  return join(folder, 'sidegate.cjs');
}
