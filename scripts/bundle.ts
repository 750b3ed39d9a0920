/** Bundles the program and the worker that hashes passwords, for scripts/build.ts and for tests that run what the image runs. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = fileURLToPath(new URL('..', import.meta.url));

/** The version in package.json. */
export const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string };

/** Given by whoever builds without the repository at hand, as in an image; else asked of git. */
function readRevision(): string {
  const given = process.env['SIDEGATE_REVISION'];
  if (given !== undefined && given !== '') return given;
  const { status, stdout } = spawnSync('git', ['rev-parse', 'HEAD'], { cwd: root, encoding: 'utf8' });
  return status === 0 ? stdout.trim() : 'unknown';
}

/** Writes `sidegate.mjs` and `password-worker.mjs` into `outdir`. */
export async function bundle(outdir: string): Promise<void> {
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
}
