/**
 * `npm run release:dry -- [ARTIFACT…]` makes what a release publishes (notes, npm, charts, image) in a temporary folder, uses each artifact
 * as a user would, and prints one line for each. Nothing is published and nothing is left behind, except dist/ and the cache of the image.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { parse, parseAllDocuments } from 'yaml';
import { buildDockerfileImage, extractImage, prepareDockerfileImage, toImageCommand } from '../test/prepare/dockerfile-image.ts';
import { readImage } from '../test/support/node/oci.ts';
import { version } from './bundle.ts';
import { findHelm, packageCharts } from './package-charts.ts';
import { readNotes } from './release-notes.ts';
import type { Bom } from './sbom.ts';

const ROOT = join(import.meta.dirname, '..');
/** A digest for the chart of a dry run, which no registry has. */
const SAMPLE_IMAGE = `ghcr.io/sidegate/sidegate@sha256:${'0123456789abcdef'.repeat(4)}`;
const CONFIG = `routes:
  - name: billing
    match: { path: /hooks/billing }
    upstream: http://127.0.0.1:3000
    webhook: { keys: [{ name: current, secret: { file: secret } }] }
`;

/** Makes and checks one artifact in an empty folder, and returns what it found. Throws with what is wrong and how to fix it. */
const ARTIFACTS: Readonly<Record<string, (folder: string) => string | Promise<string>>> = {
  notes: () => `the section of ${version} in CHANGELOG.md, ${readNotes(`v${version}`).split('\n').length - 1} lines`,
  npm: checkNpm,
  charts: checkCharts,
  image: checkImage,
};

function checkNpm(folder: string): string {
  const tarball = packNpm('.', folder);
  return `${basename(tarball)}, ${toKibibytes(tarball)}: ${checkInstalled(installNpm(tarball, folder), version)}`;
}

/** Packs a folder of the project into `destination`, and returns the tarball's path. */
export function packNpm(what: string, destination: string, args: readonly string[] = []): string {
  const all = ['pack', '--json', ...args, '--pack-destination', destination, what];
  const printed = execFileSync('npm', all, { cwd: ROOT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  const [packed] = Object.values(JSON.parse(printed) as { filename: string }[]);
  return join(destination, basename(packed?.filename ?? ''));
}

/** Installs a tarball globally below `prefix` as a user would, but without a registry. Returns the folder of the package. */
export function installNpm(tarball: string, prefix: string): string {
  // The native bcrypt of this machine is packed from node_modules, so that nothing is asked of a registry.
  const native = readdirSync(join(ROOT, 'node_modules', '@node-rs')).map((name) =>
    packNpm(`./node_modules/@node-rs/${name}`, prefix, ['--ignore-scripts']),
  );
  const args = ['install', '--global', '--offline', '--prefix', prefix, '--cache', join(prefix, 'npm-cache')];
  execFileSync('npm', [...args, tarball, ...native], { cwd: prefix, stdio: ['ignore', 'ignore', 'pipe'] });
  return join(prefix, 'lib', 'node_modules', '@sidegate', 'sidegate');
}

/** Checks an installed package: its version, a small config, the bill of materials and the licenses. */
export function checkInstalled(folder: string, expected: string): string {
  const run = (...args: readonly string[]): string =>
    execFileSync(process.execPath, [join(folder, 'bin', 'sidegate.cjs'), ...args], { cwd: place, encoding: 'utf8' });
  const place = mkdtempSync(join(tmpdir(), 'sidegate-installed-'));
  try {
    expectVersion('sidegate --version', run('--version').trim(), expected);
    writeFileSync(join(place, 'gate.yaml'), CONFIG);
    writeFileSync(join(place, 'secret'), `whsec_${Buffer.alloc(32, 1).toString('base64')}`);
    run('check', '--config', 'gate.yaml');
    return `installs, checks a config, ${countShipped(join(folder, 'dist'), expected)} packages in its bill of materials`;
  } finally {
    rmSync(place, { recursive: true });
  }
}

/** The number of packages in the bill of materials; the licenses must be next to it. */
function countShipped(folder: string, expected: string): number {
  const { metadata, components } = JSON.parse(readFileSync(join(folder, 'sidegate.cdx.json'), 'utf8')) as Bom;
  expectVersion('sidegate.cdx.json', metadata.component.version, expected);
  const licenses = join(folder, 'THIRD-PARTY-LICENSES.txt');
  if (!existsSync(licenses))
    throw new Error(`${licenses} is missing: scripts/sbom.ts writes it, and the package or image must contain it`);
  return components.length;
}

function checkCharts(folder: string): string {
  const files = packageCharts({ destination: folder, image: SAMPLE_IMAGE });
  for (const file of files) {
    execFileSync('tar', ['--extract', '--gzip', '--file', file, '--directory', folder]);
    const unpacked = join(folder, basename(file).replace(/-\d.*$/, ''), 'Chart.yaml');
    const chart = parse(readFileSync(unpacked, 'utf8')) as { version: string; appVersion: string };
    expectVersion(`version in ${basename(file)}`, chart.version, version);
    expectVersion(`appVersion in ${basename(file)}`, chart.appVersion, version);
  }
  const images = readImages(execFileSync(findHelm(), ['template', 'sidegate', files[0] ?? ''], { encoding: 'utf8' }));
  const other = images.find((image) => image !== SAMPLE_IMAGE);
  if (images.length === 0 || other !== undefined)
    throw new Error(`${files[0]} runs ${other ?? 'no image'}, expected ${SAMPLE_IMAGE}: see sidegate.image in _helpers.tpl`);
  return `${files.map((file) => basename(file)).join(', ')}: version ${version}, ${images.length} containers by the digest of the release`;
}

/** The images of all containers in rendered objects. */
function readImages(text: string): string[] {
  const images: string[] = [];
  for (const document of parseAllDocuments(text))
    JSON.stringify(document.toJS(), (key, value: unknown) => {
      if (key === 'image' && typeof value === 'string') images.push(value);
      return value;
    });
  return images;
}

async function checkImage(folder: string): Promise<string> {
  const hindrance = await prepareDockerfileImage();
  if (hindrance !== undefined) throw new Error(`the image cannot be built here: ${hindrance}`);
  const image = readImage(await buildDockerfileImage(), 'sidegate');
  extractImage(image, folder);
  const [program, args] = toImageCommand(folder, [...(image.config.Entrypoint ?? []), '--version']);
  const env = { PATH: `/usr/local/bin:/usr/bin:/usr/sbin:/bin` };
  expectVersion('the entrypoint with --version', execFileSync(program, args, { env, encoding: 'utf8' }).trim(), version);
  const packages = countShipped(join(folder, 'opt', 'sidegate'), version);
  const bytes = image.layers.reduce((sum, layer) => sum + layer.bytes.length, 0);
  return `${Math.round(bytes / 1e6)} MB for ${process.arch}: starts as ${image.config.User}, ${packages} packages in its bill of materials`;
}

function expectVersion(place: string, actual: string, expected: string): void {
  if (actual !== expected) throw new Error(`${place} printed ${actual}, expected ${expected}: build it again from this version`);
}

function toKibibytes(file: string): string {
  return `${Math.round(statSync(file).size / 1024)} KiB`;
}

async function main(names: readonly string[]): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-release-'));
  try {
    for (const name of names.length > 0 ? names : Object.keys(ARTIFACTS)) {
      mkdirSync(join(folder, name));
      try {
        const check = ARTIFACTS[name];
        if (check === undefined) throw new Error(`no such artifact; name some of ${Object.keys(ARTIFACTS).join(', ')}`);
        console.log(`${name}: ${await check(join(folder, name))}`);
      } catch (thrown) {
        console.error(`${name}: failed: ${(thrown as Error).message.trim()}`);
        process.exitCode = 1;
      }
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

if (import.meta.main) await main(process.argv.slice(2));
