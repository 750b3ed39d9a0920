/** The licenses of the packages in the bundles. They demand that their text accompanies every copy, also a minified one. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** SPDX identifiers of licenses that ask for attribution at most. */
export const ALLOWED_LICENSES: ReadonlySet<string> = new Set([
  '0BSD',
  'Apache-2.0',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'BlueOak-1.0.0',
  'CC0-1.0',
  'ISC',
  'MIT',
  'Python-2.0',
  'Unlicense',
]);

/** A package with its license. */
export interface LicensedPackage {
  readonly name: string;
  readonly version: string;
  /** As in its package.json: an SPDX expression. */
  readonly license: string;
  /** All its license, copyright and notice files. */
  readonly text: string;
}

const LICENSE_FILE = /^(?:licen[cs]e|copying|copyright|notice)/i;

/** Reads the licenses of packages by their folders below `root`. Throws if one is not allowed, or has no text. */
export function readLicenses(root: string, folders: readonly string[]): LicensedPackage[] {
  return folders.map((folder) => {
    const path = join(root, folder);
    const manifest = JSON.parse(readFileSync(join(path, 'package.json'), 'utf8')) as Partial<LicensedPackage>;
    const { name = folder, version = '', license = 'no license' } = manifest;
    if (!ALLOWED_LICENSES.has(license)) throw new Error(`${name}@${version}: ${license} is not in ALLOWED_LICENSES`);
    const files = readdirSync(path, { withFileTypes: true }).filter((file) => file.isFile() && LICENSE_FILE.test(file.name));
    const texts = files.map((file) => readFileSync(join(path, file.name), 'utf8').replaceAll('\r\n', '\n').trim());
    const text = texts.filter((each) => each !== '').join('\n\n') || readLicenseSection(path);
    if (text === '') throw new Error(`${name}@${version}: ${folder} contains no text of its license`);
    return { name, version, license, text };
  });
}

/** Some packages have the text only at the end of their README. Returns an empty text if there is none. */
function readLicenseSection(path: string): string {
  const readme = readdirSync(path).find((name) => /^readme\.md$/i.test(name));
  const text = readme === undefined ? '' : readFileSync(join(path, readme), 'utf8').replaceAll('\r\n', '\n');
  return /^#+ *licen[cs]e *\n([^#]*copyright[^#]*)$/im.exec(text)?.[1]?.trim() ?? '';
}

/** One file with all texts, ordered by name. */
export function formatLicenses(packages: readonly LicensedPackage[]): string {
  const line = '-'.repeat(80);
  const sections = packages
    .toSorted((a, b) => (`${a.name}@${a.version}` < `${b.name}@${b.version}` ? -1 : 1))
    .map(({ name, version, license, text }) => `${line}\n${name} ${version} (${license})\n${line}\n\n${text}\n`);
  return `sidegate's bundles contain these packages. sidegate's license is in LICENSE.\n\n${sections.join('\n')}`;
}
