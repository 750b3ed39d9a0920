/** The images of the node. That of sidegate is built from the Dockerfile, or made of files of this machine where that is not possible. */
import { execFileSync } from 'node:child_process';
import { readFileSync, realpathSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { bundle } from '../../../scripts/bundle.ts';
import { writeNotices } from '../../../scripts/sbom.ts';
import { buildDockerfileImage, canBuildDockerfileImage } from '../../prepare/dockerfile-image.ts';
import { installImageNode } from '../../prepare/image-node.ts';
import { type Image, type ImageConfig, type Layer, readImage, toLayer } from './oci.ts';
import { APP_IMAGE, PAUSE_IMAGE, REDIS_IMAGE, SIDEGATE_IMAGE } from './settings.ts';
import { type Entry, readFile, readTree } from './tar.ts';

const ROOT = resolve(import.meta.dirname, '..', '..', '..');
const BUSYBOX = '/bin/busybox';
const REDIS = '/usr/bin/redis-server';
/** `wait` ends as soon as a signal arrives; the shell would handle it only after `sleep`. */
const PAUSE = 'trap "exit 0" TERM INT; while :; do sleep 3600 & wait $!; done';
/** Programs of the image beside Node: the sidecar's preStop hook runs in Bash. */
const PROGRAMS = ['/bin/bash'];
const ADDONS = join('node_modules', '@node-rs');
const CERTIFICATES = '/etc/ssl/certs/ca-certificates.crt';

const PATH = 'PATH=/usr/local/bin:/usr/bin:/bin';
const SIDEGATE = `${SIDEGATE_IMAGE.repository}:${SIDEGATE_IMAGE.tag}`;

/** All of them. The first layer of two of them is the same: Node with its libraries, which does not depend on the code. */
export async function buildImages(folder: string): Promise<Image[]> {
  const sidegate = canBuildDockerfileImage() ? readImage(await buildDockerfileImage(), SIDEGATE) : await assemble(folder);
  const app = toLayer([readFile(join(ROOT, 'test', 'support', 'cluster', 'app-image.ts'), 'app/app.ts')]);
  const layers = [...sidegate.layers.slice(0, 1), app];
  const config = { Entrypoint: ['node', '/app/app.ts'], Env: [PATH] };
  return [toPauseImage(), sidegate, { name: APP_IMAGE, config, layers }, toRedisImage()];
}

/** What the last stage of the Dockerfile describes, with the programs and libraries of this machine. */
async function assemble(folder: string): Promise<Image> {
  const base = toLayer(listBase(realpathSync(installImageNode())));
  const dist = join(folder, 'dist');
  await writeNotices(dist, await bundle(dist));
  const dockerfile = readFileSync(join(ROOT, 'Dockerfile'), 'utf8');
  return { name: SIDEGATE, config: readConfig(dockerfile), layers: [base, toLayer(listProgram(dockerfile, folder))] };
}

function toPauseImage(): Image {
  const shell = readFile(BUSYBOX, 'bin/busybox');
  const layer: Layer = toLayer([
    shell,
    ...['sh', 'sleep'].map((name): Entry => ({ kind: 'link', path: `bin/${name}`, target: 'busybox' })),
  ]);
  return { name: PAUSE_IMAGE, config: { User: '65535', Entrypoint: ['/bin/sh', '-c', PAUSE] }, layers: [layer] };
}

function toRedisImage(): Image {
  const layer = toLayer([REDIS, ...listLibraries(REDIS)].map((path) => readFile(path, path.slice(1))));
  const options = ['--save', '', '--appendonly', 'no', '--protected-mode', 'no'];
  return { name: REDIS_IMAGE, config: { User: '65532', Entrypoint: [REDIS, ...options] }, layers: [layer] };
}

/** The folders, libraries and files that Node, its native addons and Bash need. */
function listBase(node: string): Entry[] {
  const addons = readTree(join(ROOT, ADDONS), ADDONS).filter(({ path }) => path.endsWith('.node'));
  const programs = [node, ...PROGRAMS, ...addons.map(({ path }) => join(ROOT, path))];
  const libraries = [...new Set(programs.flatMap(listLibraries))].sort();
  const folder = (path: string, mode = 0o755): Entry => ({ kind: 'folder', path, mode });
  const text = (path: string, content: string): Entry => ({ kind: 'file', path, bytes: Buffer.from(content) });
  return [
    folder('tmp', 0o1777),
    folder('etc'),
    text('etc/passwd', 'root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n'),
    text('etc/group', 'root:x:0:\nnonroot:x:65532:\n'),
    readFile(CERTIFICATES, CERTIFICATES.slice(1)),
    ...[...PROGRAMS, ...libraries].map((path) => readFile(path, path.slice(1))),
    folder('usr/local/bin'),
    readFile(node, 'usr/local/bin/node'),
  ];
}

/** The paths of a program's shared libraries, among them the loader, as ldd lists them. */
function listLibraries(program: string): string[] {
  const lines = execFileSync('ldd', [program], { encoding: 'utf8' }).split('\n');
  return lines.flatMap((line) => /(?:=> )?(\/\S+) \(0x/.exec(line)?.[1] ?? []);
}

/** What the Dockerfile's last stage copies from the build, with the bundles of the code as it is now. */
function listProgram(dockerfile: string, folder: string): Entry[] {
  return [...toLastStage(dockerfile).matchAll(/^COPY --from=build (.+)$/gm)].flatMap(([, words = '']) => {
    const paths = words.split(' ');
    const target = (paths.pop() ?? '').slice(1);
    return paths.flatMap((path) => {
      const source = path.replace('/build/', '');
      if (source.startsWith('dist/')) return [readFile(join(folder, source), join(target, basename(source)))];
      return [{ kind: 'folder', path: dirname(target) } as const, ...readTree(join(ROOT, source), target)];
    });
  });
}

function readConfig(dockerfile: string): ImageConfig {
  const stage = toLastStage(dockerfile);
  const find = (word: string): string => new RegExp(`^${word} (.+)$`, 'm').exec(stage)?.[1] ?? '';
  return {
    User: find('USER'),
    Entrypoint: JSON.parse(find('ENTRYPOINT')),
    Cmd: JSON.parse(find('CMD')),
    Env: find('ENV').split(' '),
  };
}

function toLastStage(dockerfile: string): string {
  return dockerfile.slice(dockerfile.lastIndexOf('\nFROM '));
}
