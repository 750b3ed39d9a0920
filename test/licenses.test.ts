import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ALLOWED_LICENSES, formatLicenses, readLicenses } from '../scripts/licenses.ts';
import { createBom, listBundled } from '../scripts/sbom.ts';
import { makeFolder } from './support/fixtures.ts';

const ROOT = join(import.meta.dirname, '..');

/** A package in a folder; returns the folder above it. */
function makePackage(license: string | undefined, files: Readonly<Record<string, string>>): string {
  const root = makeFolder();
  mkdirSync(join(root, 'node_modules', 'some'), { recursive: true });
  const write = (name: string, text: string): void => writeFileSync(join(root, 'node_modules', 'some', name), text);
  write('package.json', JSON.stringify({ name: 'some', version: '1.0.0', license }));
  for (const [name, text] of Object.entries(files)) write(name, text);
  return root;
}

test('every installed or bundled package has an allowed license, and every bundled one its text', async () => {
  const bundled = await listBundled();
  const licenses = readLicenses(ROOT, bundled);
  expect(licenses.length).toBe(bundled.length);
  expect(licenses.map(({ name }) => name)).toEqual(expect.arrayContaining(['ioredis', 'preact', 'zod']));
  for (const { text, name } of licenses) expect(text.length, name).toBeGreaterThan(400);
  for (const { name, licenses: listed = [] } of (await createBom(bundled)).components) {
    expect(listed.length, name).toBeGreaterThan(0);
    for (const { license } of listed) expect(ALLOWED_LICENSES, name).toContain(license?.id);
  }
}, 60_000);

test('writes name, version, license and all texts, in an order that does not depend on the folders', () => {
  const root = makePackage('MIT', { 'LICENSE.md': 'The text\r\nof it\r\n', NOTICE: 'A notice', 'readme.md': 'no' });
  const [some] = readLicenses(root, ['node_modules/some']);
  expect(some).toEqual({ name: 'some', version: '1.0.0', license: 'MIT', text: 'The text\nof it\n\nA notice' });
  const all = ['b', 'a'].map((name) => ({ name, version: '2.0.0', license: 'ISC', text: `text of ${name}` }));
  const text = formatLicenses(all);
  expect(text).toBe(formatLicenses(all.toReversed()));
  expect(text.indexOf('a 2.0.0 (ISC)')).toBeLessThan(text.indexOf('text of a'));
  expect(text.indexOf('text of a')).toBeLessThan(text.indexOf('b 2.0.0 (ISC)'));
});

test.each(['GPL-3.0-only', 'MIT AND AGPL-3.0-only', undefined])('rejects the license %s', (license) => {
  const root = makePackage(license, { LICENSE: 'text' });
  expect(() => readLicenses(root, ['node_modules/some'])).toThrow(/some@1\.0\.0: .+ is not in ALLOWED_LICENSES/);
});

test('finds the text of a license at the end of a README', () => {
  const root = makePackage('MIT', { 'README.md': '# some\n\nMIT\n\n## License\n\nCopyright (c) someone\n\nPermission\n' });
  expect(readLicenses(root, ['node_modules/some'])[0]?.text).toBe('Copyright (c) someone\n\nPermission');
});

test.each([{}, { 'README.md': '## License\n\nMIT\n' }, { LICENSE: ' \n' }])(
  'rejects a package without the text of its license',
  (files) => {
    const root = makePackage('MIT', files);
    expect(() => readLicenses(root, ['node_modules/some'])).toThrow('contains no text of its license');
  },
);
