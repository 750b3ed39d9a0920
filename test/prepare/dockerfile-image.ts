/**
 * Builds the image of the Dockerfile for the tests, with buildah. No registry is needed: a base image of Debian packages and the same Node
 * takes the place of the pinned one. All is cached in the user's cache: after a change of code, only the last layers are built.
 */
import { execFile, execFileSync, spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { type Image, toArchive, toBlob, toLayer } from '../support/node/oci.ts';
import { readFile, readTree } from '../support/node/tar.ts';
import { toBinFolder } from './cluster-tools.ts';
import { IMAGE_NODE_VERSION, installImageNode } from './image-node.ts';

/** Program → Debian and Ubuntu package. */
export const IMAGE_PROGRAMS: Readonly<Record<string, string>> = { buildah: 'buildah', mmdebstrap: 'mmdebstrap' };

const ROOT = resolve(import.meta.dirname, '..', '..');
const FOLDER = join(dirname(toBinFolder()), 'images');
const STORAGE = join(FOLDER, 'storage');
const BASE = 'localhost/sidegate-base';
const SUITE = 'trixie';
/** As in Debian's images: no manual pages, no translations, and of the documentation only the licenses. */
const MMDEBSTRAP = [
  '--variant=minbase',
  '--include=ca-certificates,libatomic1',
  ...['man', 'locale', 'info', 'doc'].map((name) => `--dpkgopt=path-exclude=/usr/share/${name}/*`),
  '--dpkgopt=path-include=/usr/share/doc/*/copyright',
];
/** The CAs of this machine: its package mirrors may have certificates of a private one. */
const CERTIFICATES = '/etc/ssl/certs/ca-certificates.crt';
/** Images of earlier states of the code. */
const MAX_KEPT = 3;
/** Each change of code adds some images of build steps; beyond this, all are removed, and the next build starts from the base image. */
const MAX_STEPS = 300;

const execute = promisify(execFile);

/** Whether the programs are installed, and the base image is in the cache. */
export function canBuildDockerfileImage(): boolean {
  return findHindrance() === undefined && existsSync(toBaseMark());
}

/** Returns the folder with the image of the code as it is now: `manifest.json` and its blobs, uncompressed. */
export async function buildDockerfileImage(): Promise<string> {
  const image = join(FOLDER, `sidegate-${hashInputs()}`);
  if (!existsSync(image))
    await useBuildah(async (buildah) => {
      // Another process may have built it meanwhile.
      if (!existsSync(image)) await build(buildah, image);
    });
  return image;
}

/** Runs a program as the user of the image, in its files, which are read-only. */
const IN_IMAGE = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec chroot --userspec 65532:65532 "$0" "$@"';

/** Writes the files of an image into the folder `root`. */
export function extractImage({ layers }: Image, root: string): void {
  for (const { bytes } of layers) execFileSync('tar', ['--extract', '--directory', root], { input: bytes });
  chmodSync(root, 0o755);
}

/** The program and arguments that run a command of an extracted image; needs root. */
export function toImageCommand(root: string, command: readonly string[]): [string, string[]] {
  return ['unshare', ['--mount', '--propagation', 'private', 'sh', '-c', IN_IMAGE, root, ...command]];
}

/** Builds base image and image, unless they are in the cache. Returns the reason of a failure, in one line. */
export async function prepareDockerfileImage(): Promise<string | undefined> {
  const hindrance = findHindrance();
  if (hindrance !== undefined) return hindrance;
  try {
    if (!existsSync(toBaseMark())) await useBuildah(buildBase);
    await buildDockerfileImage();
    return undefined;
  } catch (thrown) {
    const { message, stderr = '' } = thrown as Error & { stderr?: string };
    return (stderr.trim().split('\n').at(-1) || message).slice(0, 500);
  }
}

function findHindrance(): string | undefined {
  if (process.getuid?.() !== 0) return 'only root can run buildah here';
  const missing = Object.keys(IMAGE_PROGRAMS).filter((each) => spawnSync('sh', ['-c', `command -v ${each}`]).status !== 0);
  return missing.length === 0 ? undefined : `run apt-get install ${missing.map((each) => IMAGE_PROGRAMS[each]).join(' ')}`;
}

type Buildah = (...args: readonly string[]) => Promise<string>;

/** Runs buildah in a mount namespace, so that no mount is left if it is killed. One process at a time, as each removes what others left behind. */
async function useBuildah<T>(action: (buildah: Buildah) => Promise<T>): Promise<T> {
  mkdirSync(STORAGE, { recursive: true });
  // The lock ends with its holder, and the holder with this process.
  const holder = spawn('flock', [join(FOLDER, 'lock'), 'sh', '-c', 'echo locked; exec cat'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const released = once(holder, 'close');
  await Promise.race([once(holder.stdout, 'data'), released]);
  try {
    return await runBuildah(action);
  } finally {
    holder.stdin.end();
    await released;
  }
}

async function runBuildah<T>(action: (buildah: Buildah) => Promise<T>): Promise<T> {
  const run = mkdtempSync(join(tmpdir(), 'sidegate-buildah-'));
  const options = ['--root', STORAGE, '--runroot', run, '--storage-driver', 'overlay'];
  try {
    return await action(async (command, ...args) => {
      const inside = ['--mount', '--propagation', 'private', '--', 'buildah', ...options, command ?? '', ...args];
      const { stdout } = await execute('unshare', inside, { cwd: ROOT, maxBuffer: 64 * 2 ** 20 });
      return stdout;
    });
  } finally {
    rmSync(run, { recursive: true, force: true });
  }
}

/** Like node:*-trixie-slim: the packages of Debian's image, Node, and the npm of this machine. */
async function buildBase(buildah: Buildah): Promise<void> {
  console.log('building the base image of the tests, once: about 2 min');
  const folder = mkdtempSync(join(FOLDER, 'base-'));
  try {
    const debian = join(folder, 'debian.tar');
    await execute('mmdebstrap', [...MMDEBSTRAP, SUITE, debian]);
    const node = realpathSync(installImageNode());
    const license = join(dirname(node), '..', 'node_modules', `node-linux-${process.arch}`, 'LICENSE');
    const npm = realpathSync(execFileSync('sh', ['-c', 'command -v npm'], { encoding: 'utf8' }).trim());
    const layer = toLayer([
      readFile(node, 'usr/local/bin/node'),
      readFile(license, 'usr/local/LICENSE'),
      ...readTree(join(dirname(npm), '..'), 'usr/local/lib/node_modules/npm'),
      { kind: 'link', path: 'usr/local/bin/npm', target: '../lib/node_modules/npm/bin/npm-cli.js' },
    ]);
    const config = { Env: ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'] };
    const archive = toArchive([{ name: `${BASE}:latest`, config, layers: [toBlob(readFileSync(debian)), layer] }]);
    writeFileSync(join(folder, 'base.tar'), Buffer.concat(archive));
    const id = (await buildah('pull', '--quiet', `oci-archive:${join(folder, 'base.tar')}`)).trim();
    await buildah('tag', id, BASE);
    writeFileSync(toBaseMark(), '');
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** A file that exists if the storage contains the base image of this Node. */
function toBaseMark(): string {
  const key = createHash('sha256')
    .update(JSON.stringify([IMAGE_NODE_VERSION, SUITE, MMDEBSTRAP]))
    .digest('hex');
  return join(FOLDER, `base-${key.slice(0, 16)}.built`);
}

async function build(buildah: Buildah, image: string): Promise<void> {
  const folder = mkdtempSync(join(FOLDER, 'build-'));
  try {
    const file = join(folder, 'Dockerfile');
    writeFileSync(file, readFileSync(join(ROOT, 'Dockerfile'), 'utf8').replaceAll(/^FROM node:\S+/gm, `FROM ${BASE}`));
    writeFileSync(join(folder, 'npmrc'), `cafile=${CERTIFICATES}\ncache=/npm-cache\nprefer-offline=true\n`);
    const npm = join(homedir(), '.npm');
    mkdirSync(npm, { recursive: true });
    const volumes = [
      `${CERTIFICATES}:${CERTIFICATES}:ro`,
      `${join(folder, 'npmrc')}:/usr/local/etc/npmrc:ro`,
      `${npm}:/npm-cache`,
    ];
    const tag = `localhost/${image.slice(FOLDER.length + 1)}`;
    await makeRoom(buildah);
    const options = ['--isolation', 'chroot', '--network', 'host', '--pull-never', '--layers', '--quiet'];
    await buildah('bud', ...options, ...volumes.flatMap((each) => ['--volume', each]), '--file', file, '--tag', tag, ROOT);
    const target = join(folder, 'image');
    await buildah('push', '--quiet', '--disable-compression', '--format', 'oci', tag, `dir:${target}`);
    removeOldest();
    renameSync(target, image);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Removes containers of builds that were killed, and all cached steps if there are many. */
async function makeRoom(buildah: Buildah): Promise<void> {
  await buildah('rm', '--all');
  const ids = (await buildah('images', '--all', '--quiet', '--no-trunc')).trim().split('\n');
  if (ids.length <= MAX_STEPS) return;
  const [base = ''] = (await buildah('images', '--quiet', '--no-trunc', BASE)).trim().split('\n');
  await buildah('rmi', '--force', ...new Set(ids.filter((id) => id !== base)));
}

function removeOldest(): void {
  const images = readdirSync(FOLDER).filter((name) => name.startsWith('sidegate-'));
  const byAge = images.map((name) => join(FOLDER, name)).sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs);
  for (const path of byAge.slice(MAX_KEPT - 1)) rmSync(path, { recursive: true, force: true });
}

/** Of all that the Dockerfile copies, and of what it runs on. */
function hashInputs(): string {
  const dockerfile = readFileSync(join(ROOT, 'Dockerfile'), 'utf8');
  const hash = createHash('sha256').update(toBaseMark()).update(dockerfile);
  const sources = [...dockerfile.matchAll(/^COPY (?!--from)(.+) \S+$/gm)].flatMap(([, words = '']) => words.split(' '));
  for (const source of sources)
    for (const entry of statSync(join(ROOT, source)).isDirectory()
      ? readTree(join(ROOT, source), source)
      : [readFile(join(ROOT, source), source)]) {
      hash.update(`\0${entry.path}\0`);
      if (entry.kind === 'file') hash.update(entry.bytes);
    }
  return hash.digest('hex').slice(0, 16);
}
