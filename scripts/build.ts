/**
 * Bundles the gate into dist/sidegate.mjs, with the thread that checks passwords beside it. Only that thread needs a package: the
 * native bcrypt, which is not loaded before a route asks for passwords.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = fileURLToPath(new URL('..', import.meta.url));
const outdir = join(root, 'dist');
const outfile = join(outdir, 'sidegate.mjs');
const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string };

/** Given by whoever builds without the repository at hand, as in an image; else asked of git. */
function readRevision(): string {
  const given = process.env['SIDEGATE_REVISION'];
  if (given !== undefined && given !== '') return given;
  const { status, stdout } = spawnSync('git', ['rev-parse', 'HEAD'], { cwd: root, encoding: 'utf8' });
  return status === 0 ? stdout.trim() : 'unknown';
}

await build({
  entryPoints: [
    { in: join(root, 'src', 'cli', 'main.ts'), out: 'sidegate' },
    { in: join(root, 'src', 'credentials', 'password-worker.ts'), out: 'password-worker' },
  ],
  outdir,
  outExtension: { '.js': '.mjs' },
  external: ['@node-rs/bcrypt'],
  bundle: true,
  platform: 'node',
  format: 'esm',
  target: 'node24',
  define: { SIDEGATE_VERSION: JSON.stringify(version), SIDEGATE_REVISION: JSON.stringify(readRevision()) },
  // ioredis and pino are CommonJS and call require for Node's own modules.
  banner: {
    js: "import { createRequire as __createRequire } from 'node:module'; const require = __createRequire(import.meta.url);",
  },
  legalComments: 'eof',
  logLevel: 'warning',
});

// Run it alone, from an empty folder: a bundle that still reaches for node_modules fails here and not in the image.
const folder = mkdtempSync(join(tmpdir(), 'sidegate-build-'));
try {
  const copy = join(folder, 'sidegate.mjs');
  copyFileSync(outfile, copy);
  const shown = execFileSync(process.execPath, [copy, '--version'], { cwd: folder, encoding: 'utf8' }).trim();
  if (shown !== version) throw new Error(`the bundle says it is ${shown}, package.json says ${version}`);
} finally {
  rmSync(folder, { recursive: true });
}
console.log(`dist/sidegate.mjs ${Math.round(statSync(outfile).size / 1024)} KiB, sidegate ${version}`);
