/** The library `@sidegate/sidegate/verify` as a worker runs it: its bundles, in a context that has Web APIs and nothing of Node. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createContext, runInContext } from 'node:vm';
import { build } from 'esbuild';
import { bundleLibrary, LIBRARY } from '../../scripts/bundle.ts';
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

/** Builds the library into a folder, then bundles it as an app does, and runs that. */
export async function loadInWorker(): Promise<LibraryModule> {
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
    return run(outputFiles[0]?.text ?? '');
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function run(code: string): LibraryModule {
  const context = createContext({ ...WEB });
  runInContext(code, context);
  return runInContext('library', context) as LibraryModule;
}
