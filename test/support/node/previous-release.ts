/** The release before the working tree, from the repository's history: its chart and its program, for tests of upgrades. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, symlinkSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { run } from '../run.ts';
import { buildImages } from './images.ts';
import { type Image, toLayer } from './oci.ts';
import { SIDEGATE_IMAGE } from './settings.ts';
import { readFile } from './tar.ts';

const ROOT = resolve(import.meta.dirname, '..', '..', '..');
/** The form of the sidecar, which the injector, the policies and the sidecar itself must agree on. */
const SHAPE = 'chart/sidegate/templates/_sidecar.tpl';
/** The packages of a release. */
const LOCK = 'package-lock.json';
/** Where the Dockerfile puts the bundles. */
const PROGRAM = 'opt/sidegate';

/** A release that can be installed. */
export interface PreviousRelease {
  /** The folder of its chart. */
  readonly chart: string;
  readonly image: Image;
}

/** The tag of its image. */
export const PREVIOUS_TAG = 'previous';

/**
 * The newest tag before this commit; without a tag, the commit before the last change of the sidecar's form. Undefined if the repository
 * has no history, as a shallow clone.
 */
export const PREVIOUS_COMMIT: string | undefined = findPreviousCommit();

function findPreviousCommit(): string | undefined {
  const tag = git('describe', '--tags', '--match', 'v*', '--abbrev=0', 'HEAD^');
  if (tag !== undefined) return tag;
  const change = git('log', '-1', '--format=%H', '--', SHAPE);
  return change === undefined ? undefined : git('rev-parse', '--verify', `${change}^`);
}

/** What git prints; undefined if that is nothing. */
function git(...args: readonly string[]): string | undefined {
  const { status, stdout } = spawnSync('git', args, { cwd: ROOT, encoding: 'utf8' });
  return status === 0 && stdout.trim() !== '' ? stdout.trim() : undefined;
}

/** Builds it below a folder, with its own packages. */
export async function buildPreviousRelease(commit: string, folder: string): Promise<PreviousRelease> {
  const source = join(folder, 'source');
  mkdirSync(source);
  await expectSuccess('sh', ['-c', 'git -C "$1" archive "$2" | tar -x -C "$3"', 'sh', ROOT, commit, source]);
  if (git('diff', '--name-only', commit, '--', LOCK) === undefined)
    symlinkSync(join(ROOT, 'node_modules'), join(source, 'node_modules'));
  else {
    // npm's settings may be in the environment, or in the home of the user.
    const env = process.env as Readonly<Record<string, string>>;
    await expectSuccess('npm', ['ci', '--ignore-scripts', '--prefer-offline', '--prefix', source], env);
  }
  const dist = join(source, 'dist');
  const script = pathToFileURL(join(source, 'scripts', 'bundle.ts')).href;
  const build = `const { bundle } = await import(${JSON.stringify(script)}); await bundle(${JSON.stringify(dist)});`;
  await expectSuccess(process.execPath, ['--input-type=module', '-e', build], { SIDEGATE_REVISION: commit });
  const current = (await buildImages(folder)).find(({ name }) => name.startsWith(`${SIDEGATE_IMAGE.repository}:`));
  if (current === undefined) throw new Error(`no image is called ${SIDEGATE_IMAGE.repository}`);
  // The last layer replaces the files of the layer below.
  const program = toLayer(readdirSync(dist).map((name) => readFile(join(dist, name), join(PROGRAM, name))));
  const name = `${SIDEGATE_IMAGE.repository}:${PREVIOUS_TAG}`;
  return { chart: join(source, 'chart', 'sidegate'), image: { ...current, name, layers: [...current.layers, program] } };
}

async function expectSuccess(...[command, args, env]: Parameters<typeof run>): Promise<void> {
  const { code, stderr } = await run(command, args, env);
  if (code !== 0) throw new Error(`${command} ${args.join(' ')}: ${stderr}`);
}
