/** Bundles the sidecar, the tools and the worker that hashes passwords, for scripts/build.ts and for tests that run what the image runs. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type BuildOptions, build, type Plugin, type TransformOptions, transform } from 'esbuild';

const root = fileURLToPath(new URL('..', import.meta.url));

/** The version in package.json. */
export const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string };

/** What `bundle` writes: `sidegate.cjs` is the entry point, which loads the others when it needs them. */
export const BUNDLES = ['sidegate.cjs', 'sidegate-tools.cjs', 'password-worker.cjs'] as const;

/** The innermost one in a path. */
const PACKAGE_FOLDER = /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/;

/** Given by whoever builds without the repository at hand, as in an image; else asked of git. */
function readRevision(): string {
  const given = process.env['SIDEGATE_REVISION'];
  if (given !== undefined && given !== '') return given;
  const { status, stdout } = spawnSync('git', ['rev-parse', 'HEAD'], { cwd: root, encoding: 'utf8' });
  return status === 0 ? stdout.trim() : 'unknown';
}

/** The sidecar never loads the tools, so they are a file of their own. */
const TOOLS_APART: Plugin = {
  name: 'tools-apart',
  setup: (setUp) => setUp.onResolve({ filter: /^\.\/tools\.ts$/ }, () => ({ path: './sidegate-tools.cjs', external: true })),
};

/** Loaded on first use. Of a start without TLS and Redis, HTTP/2 would take 10 MiB of memory, and ioredis 11 MiB of garbage. */
const LAZY = /^(?:ioredis|(?:node:)?(?:child_process|http2|https|tls|zlib))$/;
/** Loaded by dependencies for options that we never set: exemplars, gathering the metrics of other processes, pino's transports. */
const NEVER_USED = /^(?:@opentelemetry\/api|thread-stream|\.\/lib\/(?:cluster|pushgateway|worker))$/;

const LAZY_DEPENDENCIES: Plugin = {
  name: 'lazy-dependencies',
  setup(setUp) {
    setUp.onResolve({ filter: NEVER_USED }, ({ path }) => ({ path, namespace: 'never-used' }));
    setUp.onLoad({ filter: /./, namespace: 'never-used' }, () => ({ contents: 'module.exports = {};' }));
    setUp.onResolve({ filter: LAZY }, ({ path, namespace }) => (namespace === 'lazy' ? undefined : { path, namespace: 'lazy' }));
    setUp.onLoad({ filter: LAZY, namespace: 'lazy' }, ({ path }) => ({ contents: toLazyModule(path), resolveDir: root }));
  },
};

/** A module with the same exports, which loads `name` when one of them is read. */
function toLazyModule(name: string): string {
  const exported = Object.keys(createRequire(import.meta.url)(name) as object).filter((key) => /^\w+$/.test(key));
  const getters = exported.map((key) => `get ${key}() { return load().${key}; }`);
  return `let loaded; const load = () => (loaded ??= require('${name}')); module.exports = { ${getters.join(', ')} };`;
}

/**
 * Shortens names, but no name of a top-level function or class of our own: a stack trace in the log still says where. `keepNames` of
 * esbuild sets each name at run time instead, which costs 6 MiB of memory.
 */
const SHORT_NAMES: Plugin = {
  name: 'short-names',
  setup: (setUp) =>
    setUp.onLoad({ filter: /\.(?:[cm]?js|ts)$/ }, async ({ path }) => {
      const source = readFileSync(path, 'utf8');
      const options: TransformOptions = { minifyIdentifiers: true };
      // Without a format, esbuild leaves the top level as it is.
      if (path.endsWith('.ts')) options.loader = 'ts';
      else options.format = /^(?:import|export)\b/m.test(source) ? 'esm' : 'cjs';
      return { contents: (await transform(source, options)).code };
    }),
};

/**
 * CommonJS, because an ECMAScript module that imports `node:http` reads every property of it. Node loads its fetch client (undici)
 * when `http.WebSocket` is read: 15 MiB of memory and 40 ms at each start, for nothing that is used (bench/RESULTS-footprint.md).
 */
const SHARED: BuildOptions = {
  external: ['@node-rs/bcrypt'],
  bundle: true,
  platform: 'node',
  format: 'cjs',
  target: 'node22',
  banner: { js: '"use strict";const __moduleUrl=require("node:url").pathToFileURL(__filename).href;' },
  legalComments: 'eof',
  logLevel: 'warning',
};

/**
 * Writes `BUNDLES` into `outdir`; readable ones say where each part comes from, for bench/profile.ts. Returns the folders of the packages
 * that they contain, as package-lock.json names them: `node_modules/ioredis`.
 */
export async function bundle(outdir: string, { isReadable = false } = {}): Promise<string[]> {
  const define = {
    SIDEGATE_VERSION: JSON.stringify(version),
    SIDEGATE_REVISION: JSON.stringify(readRevision()),
    'import.meta.url': '__moduleUrl',
  };
  const entries = [
    ['cli/main.ts', 'sidegate'],
    ['cli/tools.ts', 'sidegate-tools'],
    ['auth/passwords/password-worker.ts', 'password-worker'],
  ] as const;
  const { metafile } = await build({
    ...SHARED,
    absWorkingDir: root,
    metafile: true,
    minifySyntax: !isReadable,
    minifyWhitespace: !isReadable,
    entryPoints: entries.map(([source, out]) => ({ in: join(root, 'src', source), out })),
    outdir,
    outExtension: { '.js': '.cjs' },
    define,
    plugins: [TOOLS_APART, LAZY_DEPENDENCIES, ...(isReadable ? [] : [SHORT_NAMES])],
  });
  const files = Object.values(metafile.outputs).flatMap(({ inputs }) =>
    Object.entries(inputs).flatMap(([file, { bytesInOutput }]) => (bytesInOutput > 0 ? [file] : [])),
  );
  return [...new Set(files.flatMap((file) => PACKAGE_FOLDER.exec(file)?.[0] ?? []))].toSorted();
}
