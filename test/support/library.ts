/** The library `@sidegate/sidegate/verify` as a worker runs it: its bundles, in a context that has Web APIs and nothing of Node. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createContext, runInContext } from 'node:vm';
import { build } from 'esbuild';
import { bundleLibrary, LIBRARY } from '../../scripts/bundle.ts';
import type { CancelTimer, Clock } from '../../src/core/clock.ts';
import type * as Library from '../../src/library/verifier.ts';

/** What a worker has, besides ECMAScript. */
const WEB = {
  Request,
  Response,
  Headers,
  URL,
  URLSearchParams,
  ReadableStream,
  TextEncoder,
  TextDecoder,
  crypto,
  atob,
  btoa,
  performance,
  setTimeout,
  clearTimeout,
};

/** A module with the exports of the library. */
export type LibraryModule = Pick<typeof Library, 'createVerifier' | 'memoryStore' | 'VerifierError'>;

/** Builds the library into a folder, then bundles it as an app does, and runs that. `clock`: what the worker has in place of the time. */
export async function loadInWorker(clock?: Clock): Promise<LibraryModule> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-library-'));
  try {
    await bundleLibrary(folder);
    const { outputFiles } = await build({
      stdin: { contents: `export * from './${LIBRARY}';`, resolveDir: folder },
      bundle: true,
      format: 'iife',
      globalName: 'library',
      write: false,
      platform: 'neutral',
      outfile: join(folder, 'app.js'),
    });
    return run(outputFiles[0]?.text ?? '', clock === undefined ? {} : toTime(clock));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The timers of a worker, and its clock. */
function toTime(clock: Clock): object {
  return {
    performance: { now: () => clock.monotonic() },
    setTimeout: (action: (given: unknown) => void, delay: number, given: unknown) => clock.after(delay, () => action(given)),
    clearTimeout: (cancel: CancelTimer) => cancel(),
  };
}

function run(code: string, time: object): LibraryModule {
  const context = createContext({ ...WEB, ...time });
  runInContext(code, context);
  return runInContext('library', context) as LibraryModule;
}
