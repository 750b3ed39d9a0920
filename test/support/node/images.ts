/** The images of the node, made of files of this machine: nothing is downloaded. */
import { execFileSync } from 'node:child_process';
import { readFileSync, realpathSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { bundle } from '../../../scripts/bundle.ts';
import { installImageNode } from '../../../scripts/image-node.ts';
import { type Image, type ImageConfig, type Layer, toLayer } from './oci.ts';
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

/** All of them. The layers with the libraries and with Node are the same in two of them, and change only with this machine. */
export async function buildImages(folder: string): Promise<Image[]> {
  const node = realpathSync(installImageNode());
  const base = toLayer(listBase(node));
  const runtime = toLayer([{ kind: 'folder', path: 'usr/local/bin' }, readFile(node, 'usr/local/bin/node')]);
  await bundle(join(folder, 'dist'));
  const dockerfile = readFileSync(join(ROOT, 'Dockerfile'), 'utf8');
  const app = readFile(join(ROOT, 'test', 'support', 'cluster', 'app-image.ts'), 'app/app.ts');
  return [
    toPauseImage(),
    {
      name: `${SIDEGATE_IMAGE.repository}:${SIDEGATE_IMAGE.tag}`,
      config: readConfig(dockerfile),
      layers: [base, runtime, toLayer(listProgram(dockerfile, folder))],
    },
    { name: APP_IMAGE, config: { Entrypoint: ['node', '/app/app.ts'], Env: [PATH] }, layers: [base, runtime, toLayer([app])] },
    toRedisImage(),
  ];
}

const PATH = 'PATH=/usr/local/bin:/usr/bin:/bin';

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
    Env: [PATH, ...find('ENV').split(' ')],
  };
}

function toLastStage(dockerfile: string): string {
  return dockerfile.slice(dockerfile.lastIndexOf('\nFROM '));
}
