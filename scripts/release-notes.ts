/**
 * `node scripts/release-notes.ts v0.1.0` prints the notes of a release: the section of its version in CHANGELOG.md. It fails if the tag,
 * package.json, package-lock.json and the charts do not have the same version.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';

const ROOT = join(import.meta.dirname, '..');
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');

interface Manifest {
  readonly version: string;
  readonly repository: { readonly url: string };
}

/** The address of the repository, without `.git`. */
export function readRepository(): string {
  const { repository } = JSON.parse(read('package.json')) as Manifest;
  return repository.url.replace(/^git\+/, '').replace(/\.git$/, '');
}

/** The section of a version, with links that work outside the repository. Throws if it is missing or empty. */
export function toNotes(changelog: string, version: string, repository: string): string {
  const [, section] = changelog.split(`\n## [${version}]`);
  const [, body = ''] = /^[^\n]*\n([\s\S]*?)(?=\n## |$(?![\s\S]))/.exec(section ?? '') ?? [];
  if (body.trim() === '')
    throw new Error(`CHANGELOG.md: the section "## [${version}]" is missing or empty; move the entries there`);
  return `${body.trim().replaceAll(/\]\((?!https?:|#)/g, `](${repository}/blob/v${version}/`)}\n`;
}

/** The version that each file states. */
export function readVersions(): Readonly<Record<string, string>> {
  const lock = JSON.parse(read('package-lock.json')) as Manifest & { readonly packages: Readonly<Record<string, Manifest>> };
  const charts = ['chart/sidegate/Chart.yaml', 'chart/sidegate-lib/Chart.yaml'].flatMap((file) => {
    const { version, appVersion } = parse(read(file)) as { version: string; appVersion: string };
    return [
      [`version of ${file}`, version],
      [`appVersion of ${file}`, appVersion],
    ];
  });
  return {
    'package.json': (JSON.parse(read('package.json')) as Manifest).version,
    'package-lock.json': lock.version,
    'packages of package-lock.json': lock.packages['']?.version ?? 'none',
    ...Object.fromEntries(charts),
  };
}

/** Throws with every file whose version is not that of the tag. */
export function checkVersions(tag: string, versions: Readonly<Record<string, string>> = readVersions()): void {
  const others = Object.entries(versions).filter(([, version]) => tag !== `v${version}`);
  if (others.length === 0) return;
  const list = others.map(([place, version]) => `${place} has ${version}`).join('; ');
  throw new Error(`the tag is ${tag}, but ${list}: set the same version everywhere`);
}

/** Checks the versions, and returns the notes. */
export function readNotes(tag: string): string {
  checkVersions(tag);
  return toNotes(read('CHANGELOG.md'), tag.slice(1), readRepository());
}

if (import.meta.main) {
  try {
    process.stdout.write(readNotes(process.argv[2] ?? ''));
  } catch (thrown) {
    console.error((thrown as Error).message);
    process.exitCode = 1;
  }
}
