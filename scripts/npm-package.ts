/** Packs the npm package and installs it as a user would, but without a registry. */
import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { basename, join } from 'node:path';

const ROOT = join(import.meta.dirname, '..');

/** Packs a folder of the project into `destination`, and returns the tarball's path. */
export function packNpm(what: string, destination: string, args: readonly string[] = []): string {
  const all = ['pack', '--json', ...args, '--pack-destination', destination, what];
  const printed = execFileSync('npm', all, { cwd: ROOT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  const [packed] = Object.values(JSON.parse(printed) as { filename: string }[]);
  return join(destination, basename(packed?.filename ?? ''));
}

/** Installs a tarball globally below `prefix`, and returns the folder of the package. */
export function installNpm(tarball: string, prefix: string): string {
  // The native bcrypt of this machine is packed from node_modules, so that nothing is asked of a registry.
  const native = readdirSync(join(ROOT, 'node_modules', '@node-rs')).map((name) =>
    packNpm(`./node_modules/@node-rs/${name}`, prefix, ['--ignore-scripts']),
  );
  const args = ['install', '--global', '--offline', '--prefix', prefix, '--cache', join(prefix, 'npm-cache')];
  execFileSync('npm', [...args, tarball, ...native], { cwd: prefix, stdio: ['ignore', 'ignore', 'pipe'] });
  return join(prefix, 'lib', 'node_modules', '@sidegate', 'sidegate');
}
