/**
 * Builds dist/: the sidecar's bundle, the tools that it does not contain, the thread that checks passwords, and the config's JSON Schema.
 * Their only dependency is the native bcrypt, which is loaded when a config uses passwords.
 */
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { BUNDLES, bundle, version } from './bundle.ts';

const outdir = fileURLToPath(new URL('../dist', import.meta.url));

await bundle(outdir);

// Runs them from an empty folder: a bundle that still imports from node_modules fails here instead of in the image.
const folder = mkdtempSync(join(tmpdir(), 'sidegate-build-'));
try {
  for (const name of BUNDLES) copyFileSync(join(outdir, name), join(folder, name));
  const run = (...args: readonly string[]): string =>
    execFileSync(process.execPath, [join(folder, 'sidegate.cjs'), ...args], { cwd: folder, encoding: 'utf8' });
  const shown = run('--version').trim();
  if (shown !== version) throw new Error(`the bundle says it is ${shown}, package.json says ${version}`);
  run('check', '--help');
  writeFileSync(join(outdir, 'config.schema.json'), run('schema'));
} finally {
  rmSync(folder, { recursive: true });
}
const sizes = BUNDLES.map((name) => `${name} ${Math.round(statSync(join(outdir, name)).size / 1024)} KiB`);
console.log(`dist/: ${sizes.join(', ')}; sidegate ${version}`);
