/** Installs Node versions for tests and benchmarks, from the npm package `node` into `.cache`. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';

/** The major version must equal that of the Dockerfile's base image; a test compares them. */
export const IMAGE_NODE_VERSION = '26.10.0';

/** The oldest version that the npm package supports (bin/sidegate.cjs), and one that it must reject. */
export const PACKAGE_NODE_VERSIONS = { oldest: '22.15.0', tooOld: '20.20.2' } as const;

const CACHE = join(import.meta.dirname, '..', '..', '.cache');
const IMAGE_BIN = toBin(toFolder(IMAGE_NODE_VERSION));
const SHELL = join(toFolder(IMAGE_NODE_VERSION), 'shell');
/** npm puts the project's `node_modules/.bin` first in PATH, which contains the `node` of devDependencies; this shell puts `IMAGE_BIN` before it. */
const SHELL_SCRIPT = '#!/bin/sh\nPATH="$(dirname "$0")/node_modules/.bin:$PATH" exec /bin/sh "$@"\n';

/** Returns the path of the `node` program, and installs it if necessary. Throws if npm fails or the program does not start. */
export function installImageNode(): string {
  const node = installNode(IMAGE_NODE_VERSION);
  writeFileSync(SHELL, SHELL_SCRIPT, { mode: 0o755 });
  return node;
}

/** The same for any version; each major version has a separate folder. */
export function installNode(version: string): string {
  const folder = toFolder(version);
  const node = join(toBin(folder), 'node');
  mkdirSync(folder, { recursive: true });
  if (readVersion(node) === `v${version}`) return node;
  const manifest = { private: true, allowScripts: { node: true }, dependencies: { node: version } };
  writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest));
  execFileSync('npm', ['install', '--prefix', folder, '--no-package-lock'], { stdio: ['ignore', 'ignore', 'inherit'] });
  if (readVersion(node) === undefined) throw new Error(`${node} does not start: run apt-get install libatomic1`);
  return node;
}

/** Returns the program of an installed version, or undefined. */
export function findNode(version: string): string | undefined {
  const node = join(toBin(toFolder(version)), 'node');
  return readVersion(node) === `v${version}` ? node : undefined;
}

/** The environment in which `node`, `npm` and `npx`, and the programs that they start, use the image's Node. */
export function toImageNodeEnv(env: NodeJS.ProcessEnv = process.env): NodeJS.ProcessEnv {
  return { ...env, PATH: `${IMAGE_BIN}${delimiter}${env['PATH'] ?? ''}`, npm_config_script_shell: SHELL };
}

function toFolder(version: string): string {
  return join(CACHE, `node${version.split('.')[0]}`);
}

function toBin(folder: string): string {
  return join(folder, 'node_modules', '.bin');
}

function readVersion(node: string): string | undefined {
  const { status, stdout } = spawnSync(node, ['--version'], { encoding: 'utf8' });
  return status === 0 ? stdout.trim() : undefined;
}
