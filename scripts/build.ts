/**
 * Bundles the gate into dist/sidegate.mjs, with the thread that checks passwords beside it. Only that thread needs a package: the
 * native bcrypt, which is not loaded before a route asks for passwords.
 */
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { bundle, version } from './bundle.ts';

const outdir = fileURLToPath(new URL('../dist', import.meta.url));
const outfile = join(outdir, 'sidegate.mjs');

await bundle(outdir);

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
