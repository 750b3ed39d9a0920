/** Installs the Node version that the image runs, for tests and benchmarks, from the npm package `node` into `.cache`. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';

/** The major is the one of the Dockerfile's base image; a test compares them. */
export const IMAGE_NODE_VERSION = '26.10.0';

const FOLDER = join(import.meta.dirname, '..', '.cache', 'node26');
const BIN = join(FOLDER, 'node_modules', '.bin');
const SHELL = join(FOLDER, 'shell');
/** npm puts the project's `node_modules/.bin` first, where the `node` of devDependencies is; this shell puts `BIN` before it. */
const SHELL_SCRIPT = '#!/bin/sh\nPATH="$(dirname "$0")/node_modules/.bin:$PATH" exec /bin/sh "$@"\n';

/** The path of the `node` program, installed unless it is there. Throws if npm fails or the program does not start. */
export function installImageNode(): string {
  const node = join(BIN, 'node');
  mkdirSync(FOLDER, { recursive: true });
  writeFileSync(SHELL, SHELL_SCRIPT, { mode: 0o755 });
  if (readVersion(node) === `v${IMAGE_NODE_VERSION}`) return node;
  const manifest = { private: true, allowScripts: { node: true }, dependencies: { node: IMAGE_NODE_VERSION } };
  writeFileSync(join(FOLDER, 'package.json'), JSON.stringify(manifest));
  execFileSync('npm', ['install', '--prefix', FOLDER, '--no-package-lock'], { stdio: ['ignore', 'ignore', 'inherit'] });
  if (readVersion(node) === undefined) throw new Error(`${node} does not start: run apt-get install libatomic1`);
  return node;
}

/** The environment in which `node`, `npm` and `npx`, and all that they start, run on the image's Node. */
export function toImageNodeEnv(env: NodeJS.ProcessEnv = process.env): NodeJS.ProcessEnv {
  return { ...env, PATH: `${BIN}${delimiter}${env['PATH'] ?? ''}`, npm_config_script_shell: SHELL };
}

function readVersion(node: string): string | undefined {
  const { status, stdout } = spawnSync(node, ['--version'], { encoding: 'utf8' });
  return status === 0 ? stdout.trim() : undefined;
}
