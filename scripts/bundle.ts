/** Bundles the sidecar, the tools, the console's page and the workers, for scripts/build.ts and for tests that run the same bundles as the image. */
import { spawnSync } from 'node:child_process';
import { globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type BuildOptions, build, type Metafile, type Plugin, type TransformOptions, transform } from 'esbuild';

const root = fileURLToPath(new URL('..', import.meta.url));

/** The version in package.json. */
export const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string };

/** The entry points of the bundles, below src/. `sidegate.cjs` is the first one, which loads the others when it needs them. */
const ENTRIES = {
  sidegate: 'cli/main.ts',
  'sidegate-tools': 'cli/tools.ts',
  'sidegate-provider': 'provider/runtime/provider.ts',
  'sidegate-console': 'admin/console/console.ts',
  'sidegate-bodies': 'gateway/pipeline/body-recorders.ts',
  'sidegate-explain': 'diagnostics/explain/background.ts',
  'sidegate-redis': '../node_modules/ioredis/built/index.js',
  'sidegate-postgres': '../node_modules/pg/lib/index.js',
  'sidegate-jwt': 'verify/schemes/jwt/jwt.ts',
  'password-worker': 'users/password-worker.ts',
  'queue-worker': 'provider/queue/sqlite/queue-worker.ts',
} as const;

/** The innermost package in a path. */
const PACKAGE_FOLDER = /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/;

/** From the environment if the build has no repository, as in an image; otherwise from git. */
function readRevision(): string {
  const given = process.env['SIDEGATE_REVISION'];
  if (given !== undefined && given !== '') return given;
  const { status, stdout } = spawnSync('git', ['rev-parse', 'HEAD'], { cwd: root, encoding: 'utf8' });
  return status === 0 ? stdout.trim() : 'unknown';
}

/** Loads the code for tokens with the first scheme that has a token. The import is not dynamic, because a scheme is compiled at once. */
const JWT: Plugin = {
  name: 'jwt',
  setup(setUp) {
    setUp.onResolve({ filter: /\/jwt\/jwt\.ts$/ }, ({ kind }) =>
      kind === 'entry-point' ? undefined : { path: 'jwt', namespace: 'jwt' },
    );
    setUp.onResolve({ filter: /^\.\/sidegate-jwt\.cjs$/, namespace: 'jwt' }, ({ path }) => ({ path, external: true }));
    setUp.onLoad({ filter: /^jwt$/, namespace: 'jwt' }, () => ({
      contents: "module.exports = { get compileJwt() { return require('./sidegate-jwt.cjs').compileJwt; } };",
    }));
  },
};

/** Loaded on first use. At a start without TLS and Redis, HTTP/2 would use 10 MiB of memory, and ioredis would leave 11 MiB of garbage. */
const LAZY = /^(?:ioredis|pg|(?:node:)?(?:child_process|http2|https|tls|zlib))$/;
/**
 * Dependencies load these for options that sidegate never sets: exemplars, metrics of other processes, pino's transports,
 * pg's bindings to libpq, its sockets of Cloudflare and its password files.
 */
const NEVER_USED =
  /^(?:@opentelemetry\/api|thread-stream|pg-cloudflare|pgpass|\.\/native|\.\/lib\/(?:cluster|pushgateway|worker))$/;

const SEPARATE = [
  [/^ioredis$/, './sidegate-redis.cjs'],
  [/^pg$/, './sidegate-postgres.cjs'],
] as const;

const LAZY_DEPENDENCIES: Plugin = {
  name: 'lazy-dependencies',
  setup(setUp) {
    // In separate files: the sidecar and the sending side share the one, and without Redis or an outbox nothing reads them.
    for (const [name, file] of SEPARATE)
      setUp.onResolve({ filter: name }, ({ namespace }) => (namespace === 'lazy' ? { path: file, external: true } : undefined));
    setUp.onResolve({ filter: NEVER_USED }, ({ path }) => ({ path, namespace: 'never-used' }));
    setUp.onLoad({ filter: /./, namespace: 'never-used' }, () => ({ contents: 'module.exports = {};' }));
    setUp.onResolve({ filter: LAZY }, ({ path, namespace }) => (namespace === 'lazy' ? undefined : { path, namespace: 'lazy' }));
    setUp.onLoad({ filter: LAZY, namespace: 'lazy' }, ({ path }) => ({ contents: toLazyModule(path), resolveDir: root }));
  },
};

/** Returns a module with the same exports, which loads `name` when one of them is read. */
function toLazyModule(name: string): string {
  const exported = Object.keys(createRequire(import.meta.url)(name) as object).filter((key) => /^\w+$/.test(key));
  const getters = exported.map((key) => `get ${key}() { return load().${key}; }`);
  // A CommonJS package that is a bundle is its default export.
  const whole = SEPARATE.some(([separate]) => separate.test(name)) ? '.default' : '';
  return `let loaded; const load = () => (loaded ??= require('${name}')${whole}); module.exports = { ${getters.join(', ')} };`;
}

/**
 * Shortens names, except those of sidegate's own top-level functions and classes, so that stack traces in the log stay useful. `keepNames`
 * of esbuild would set each name at run time, which costs 6 MiB of memory.
 */
const SHORT_NAMES: Plugin = {
  name: 'short-names',
  setup: (setUp) =>
    setUp.onLoad({ filter: /\.(?:[cm]?js|ts)$/ }, async ({ path }) => {
      const source = readFileSync(path, 'utf8');
      const options: TransformOptions = { minifyIdentifiers: true };
      // Without a format, esbuild does not change the top level.
      if (path.endsWith('.ts')) options.loader = 'ts';
      else options.format = /^(?:import|export)\b/m.test(source) ? 'esm' : 'cjs';
      return { contents: (await transform(source, options)).code };
    }),
};

/**
 * CommonJS, because an ECMAScript module that imports `node:http` reads every property of it. Node loads its fetch client (undici)
 * when `http.WebSocket` is read: 15 MiB of memory and 40 ms at each start, for code that is never used (bench/RESULTS-footprint.md).
 */
const COMMON_JS: TransformOptions = {
  format: 'cjs',
  platform: 'node',
  target: 'node22',
  minifySyntax: true,
  minifyWhitespace: true,
  supported: { 'dynamic-import': false },
  banner: '"use strict";const __moduleUrl=require("node:url").pathToFileURL(__filename).href;',
  legalComments: 'eof',
};

/** The console's page, for browsers that get updates, and for the gate, which renders it for others. */
const PAGE = {
  absWorkingDir: root,
  metafile: true,
  bundle: true,
  minify: true,
  format: 'esm',
  target: 'es2024',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'none',
  logLevel: 'warning',
} as const satisfies BuildOptions;

/** Writes the files of the console's page into `outdir`, and what renders it in the gate; returns what they contain. */
export async function bundlePage(outdir: string): Promise<Metafile['outputs']> {
  const toEntry = (file: string, out: string) => ({ in: join(root, 'src', 'admin', 'page', file), out });
  const files = [toEntry('main.tsx', 'console-page'), toEntry('page.css', 'console-page')];
  const page = await build({ ...PAGE, outdir, entryPoints: files });
  const node = { format: 'cjs', platform: 'node', target: 'node22', outExtension: { '.js': '.cjs' } } as const;
  const render = await build({ ...PAGE, ...node, outdir, entryPoints: [toEntry('render.tsx', 'console-render')] });
  return { ...page.metafile.outputs, ...render.metafile.outputs };
}

/** The part of the library that its entry point is: scripts/build.ts and a test check that it stays small. */
export const LIBRARY = 'verify.js';
const LIBRARY_FOLDER = join(root, 'src', 'library');
/** The files that WebCrypto takes the place of, and the parts of schemes that the library does not have. */
const LIBRARY_FILES: readonly (readonly [RegExp, string])[] = [
  [/^node:/, 'node.ts'],
  [/\/core\/hmac\.ts$/, 'hmac.ts'],
  [/^\.\/(?:sign|sign-anywhere|token)\.ts$/, 'absent.ts'],
];
/** Fields of presets and refusals for docs, logs and connections, which the library does not have, and the titles of presets. */
const UNUSED_FIELDS = [
  [/\/verify\/presets\/[^/]+\.ts$/, 'title|docs|key|jwksUrl|schedule|waitsSeconds'],
  [/\/core\/refusal\.ts$/, 'proxyError|logLevel|close'],
] as const;
const TEXT = String.raw`(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|true|[\d.]+)`;
const TITLE = new RegExp(String.raw`(?<=\bsender\(\s*'[^'\n]+',\s*)${TEXT}`, 'g');

/** The library runs without Node. The texts of its presets stay in the docs. */
const WITHOUT_NODE: Plugin = {
  name: 'without-node',
  setup(setUp) {
    for (const [filter, file] of LIBRARY_FILES)
      setUp.onResolve({ filter }, ({ importer }) =>
        importer.startsWith(LIBRARY_FOLDER) && file !== 'node.ts' ? undefined : { path: join(LIBRARY_FOLDER, 'web', file) },
      );
    for (const [filter, names] of UNUSED_FIELDS) {
      const field = new RegExp(String.raw`(?<=[{,\n]\s*)(?:${names}): ${TEXT}(?:,\s*|(?=\s*\}))`, 'g');
      const strip = (path: string): string => readFileSync(path, 'utf8').replaceAll(field, '').replaceAll(TITLE, "''");
      setUp.onLoad({ filter }, ({ path }) => ({ contents: strip(path), loader: 'ts' }));
    }
  },
};

/** Writes the library into `outdir`: `LIBRARY`, and what it loads when a verifier needs it. */
export async function bundleLibrary(outdir: string): Promise<Metafile> {
  const { metafile } = await build({
    absWorkingDir: root,
    bundle: true,
    minify: true,
    splitting: true,
    format: 'esm',
    target: 'es2022',
    platform: 'neutral',
    legalComments: 'none',
    logLevel: 'warning',
    metafile: true,
    entryPoints: [{ in: join(LIBRARY_FOLDER, 'verifier.ts'), out: 'verify' }],
    chunkNames: 'verify-[name]-[hash]',
    inject: [join(LIBRARY_FOLDER, 'web', 'buffer.ts')],
    outdir,
    plugins: [WITHOUT_NODE],
  });
  return metafile;
}

/**
 * Writes the bundles and the console's page into `outdir`. The bundles share their code: each module is in one file, so a process has each
 * class once, and `instanceof` holds for what another bundle made. Returns the folders of the packages that they contain, as in
 * package-lock.json: `node_modules/ioredis`.
 */
export async function bundle(outdir: string): Promise<string[]> {
  const { metafile, outputFiles } = await build({
    absWorkingDir: root,
    metafile: true,
    write: false,
    bundle: true,
    external: ['@node-rs/bcrypt'],
    platform: 'node',
    // esbuild shares code between bundles only in this format.
    format: 'esm',
    splitting: true,
    target: 'node22',
    minifySyntax: true,
    minifyWhitespace: true,
    legalComments: 'eof',
    logLevel: 'warning',
    entryPoints: Object.entries(ENTRIES).map(([out, source]) => ({ in: join(root, 'src', source), out })),
    chunkNames: 'part-[hash]',
    outdir,
    outExtension: { '.js': '.cjs' },
    define: {
      SIDEGATE_VERSION: JSON.stringify(version),
      SIDEGATE_REVISION: JSON.stringify(readRevision()),
      'import.meta.url': '__moduleUrl',
    },
    plugins: [JWT, LAZY_DEPENDENCIES, SHORT_NAMES],
  });
  const copied = Object.values(metafile.outputs)
    .flatMap(({ inputs }) => Object.keys(inputs))
    .find((name, i, all) => all.indexOf(name) < i);
  if (copied !== undefined) throw new Error(`${copied} is in two bundles: each would have its own classes`);
  mkdirSync(outdir, { recursive: true });
  // The names of the parts change with their content.
  for (const old of globSync(join(outdir, '*.cjs'))) rmSync(old);
  for (const { path, text } of outputFiles) writeFileSync(path, (await transform(text, COMMON_JS)).code);
  const page = await bundlePage(outdir);
  const files = [...Object.values(metafile.outputs), ...Object.values(page)].flatMap(({ inputs }) =>
    Object.entries(inputs).flatMap(([file, { bytesInOutput }]) => (bytesInOutput > 0 ? [file] : [])),
  );
  return [...new Set(files.flatMap((file) => PACKAGE_FOLDER.exec(file)?.[0] ?? []))].toSorted();
}
