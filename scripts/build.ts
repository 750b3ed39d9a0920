/**
 * Builds dist/: the sidecar's bundle, the tools that it does not contain, the thread that checks passwords, the config's JSON Schema, the man
 * page, and the library with its types. The only dependency of these bundles is the native bcrypt, which is loaded when a config uses passwords.
 */
import { execFileSync } from 'node:child_process';
import { copyFileSync, globSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { bundle, bundleLibrary, version } from './bundle.ts';
import { renderLibraryTypes } from './library-types.ts';
import { renderManPage } from './man-page.ts';

const outdir = fileURLToPath(new URL('../dist', import.meta.url));

await bundle(outdir);
// The names of its parts change with their content.
for (const old of globSync(join(outdir, 'verify*.js'))) rmSync(old);
await bundleLibrary(outdir);
writeFileSync(join(outdir, 'verify.d.ts'), renderLibraryTypes());
writeFileSync(join(outdir, 'sidegate.1'), renderManPage(version));

// Runs them from an empty folder: a bundle that still imports from node_modules fails here instead of in the image.
const folder = mkdtempSync(join(tmpdir(), 'sidegate-build-'));
const bundles = globSync('*.cjs', { cwd: outdir });
try {
  for (const name of bundles) copyFileSync(join(outdir, name), join(folder, name));
  const run = (...args: readonly string[]): string =>
    execFileSync(process.execPath, [join(folder, 'sidegate.cjs'), ...args], { cwd: folder, encoding: 'utf8' });
  const shown = run('--version').trim();
  if (shown !== version) throw new Error(`the bundle says it is ${shown}, package.json says ${version}`);
  run('check', '--help');
  writeFileSync(join(outdir, 'config.schema.json'), run('schema'));
} finally {
  rmSync(folder, { recursive: true });
}
const size = bundles.reduce((sum, name) => sum + statSync(join(outdir, name)).size, 0);
console.log(`dist/: ${bundles.length} files of ${Math.round(size / 1024)} KiB; sidegate ${version}`);
