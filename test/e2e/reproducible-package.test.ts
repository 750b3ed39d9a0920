import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { listBundled } from '../../scripts/sbom.ts';
import { useFolder } from '../support/fixtures.ts';

const ROOT = resolve(import.meta.dirname, '..', '..');
const SOURCES = ['bin', 'scripts', 'src', 'package.json', 'package-lock.json', 'tsconfig.json', 'README.md', 'LICENSE'];
const folder = useFolder();
const copies = [join(folder, 'a'), join(folder, 'deeper', 'and with a space', 'b')] as const;
/** What may differ between two machines. */
const WORLDS = [
  { umask: '022', env: { TZ: 'UTC', LANG: 'C' } },
  { umask: '002', env: { TZ: 'Asia/Tokyo', LANG: 'de_DE.UTF-8' } },
] as const;

/** A copy of the sources and of all packages in the bundles; the build finds its tools through links. */
function copyTree(target: string, bundled: readonly string[]): void {
  for (const each of SOURCES) cpSync(join(ROOT, each), join(target, each), { recursive: true });
  for (const each of [...bundled, 'node_modules/@node-rs']) cpSync(join(ROOT, each), join(target, each), { recursive: true });
  const link = (path: string): void => {
    mkdirSync(dirname(join(target, path)), { recursive: true });
    if (!existsSync(join(target, path))) symlinkSync(join(ROOT, path), join(target, path));
    else if (/\/@[^/]+$/.test(path)) for (const name of readdirSync(join(ROOT, path))) link(join(path, name));
  };
  for (const name of readdirSync(join(ROOT, 'node_modules'))) link(join('node_modules', name));
}

/** Builds and packs as for a release, and returns the tarball's path. */
function pack(tree: string, { umask, env }: (typeof WORLDS)[number]): string {
  const script = `umask ${umask} && npm pack --silent`;
  // The copies are not git repositories.
  const all = { ...process.env, ...env, SIDEGATE_REVISION: '0123abc' };
  const printed = execFileSync('sh', ['-c', script], {
    cwd: tree,
    env: all,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  return join(tree, printed.trim().split('\n').at(-1) ?? '');
}

const digest = (file: string): string => createHash('sha512').update(readFileSync(file)).digest('hex');
const listDist = (tree: string): Record<string, string> =>
  Object.fromEntries(readdirSync(join(tree, 'dist')).map((name) => [name, digest(join(tree, 'dist', name))]));

describe('two builds of the same sources in different folders', () => {
  let tarballs: readonly string[] = [];

  beforeAll(async () => {
    const bundled = await listBundled();
    for (const tree of copies) copyTree(tree, bundled);
    tarballs = copies.map((tree, index) => pack(tree, WORLDS[index] ?? WORLDS[0]));
  }, 240_000);

  test('write the same files, and npm packs the same tarball', () => {
    const [first, second] = copies.map(listDist);
    expect(Object.keys(first ?? {}).length).toBeGreaterThan(12);
    expect(second).toEqual(first);
    const [one = '', other = ''] = tarballs;
    expect(statSync(one).size).toBeGreaterThan(500_000);
    expect(digest(other)).toBe(digest(one));
  });

  test("make the same layers of the image, by the Dockerfile's own command", () => {
    const [, command = ''] =
      /^RUN (find dist node_modules\/@node-rs(?:.+\\\n)*.+)$/m.exec(readFileSync(join(ROOT, 'Dockerfile'), 'utf8')) ?? [];
    expect(command).toMatch(/touch .+chmod /s);
    // Owners are those of the machine: a build stage runs as root.
    const archive = 'tar --create --sort=name --owner=0 --group=0 --numeric-owner dist node_modules/@node-rs';
    const env = { ...process.env, SOURCE_DATE_EPOCH: '1700000000' };
    const layers = copies.map((cwd) => execFileSync('sh', ['-c', `${command} && ${archive}`], { cwd, env, maxBuffer: 2 ** 28 }));
    const [first, second] = layers.map((bytes) => createHash('sha256').update(bytes).digest('hex'));
    expect(layers[0]?.length).toBeGreaterThan(3_000_000);
    expect(second).toBe(first);
  });

  test('write neither their folder nor the folder of the tools into a file', () => {
    for (const name of readdirSync(join(copies[0], 'dist'))) {
      const text = readFileSync(join(copies[0], 'dist', name), 'utf8');
      for (const path of [...copies, ROOT]) expect(text.includes(path), name).toBe(false);
    }
  });
});
