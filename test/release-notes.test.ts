import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { checkVersions, readNotes, readVersions, toNotes } from '../scripts/release-notes.ts';

const CHANGELOG = `# Changelog

## [Unreleased]

- later

## [1.2.0] - 2026-01-01

### Added

- This, see [docs/a.md](docs/a.md), [the web](https://a.example) and [below](#policy).

## [1.1.0]

## [1.0.0]

- the first
`;
const { version } = JSON.parse(readFileSync(join(import.meta.dirname, '..', 'package.json'), 'utf8')) as { version: string };

test('are the section of the version, with links to the files of its tag', () => {
  const notes = toNotes(CHANGELOG, '1.2.0', 'https://github.com/a/b');
  expect(notes).toBe(
    '### Added\n\n- This, see [docs/a.md](https://github.com/a/b/blob/v1.2.0/docs/a.md), [the web](https://a.example) and [below](#policy).\n',
  );
  expect(toNotes(CHANGELOG, '1.0.0', 'https://github.com/a/b')).toBe('- the first\n');
});

test.each(['1.1.0', '2.0.0', '1x2.0'])('are missing for %s', (wanted) => {
  expect(() => toNotes(CHANGELOG, wanted, '')).toThrow(`CHANGELOG.md: the section "## [${wanted}]" is missing or empty`);
});

test('exist for the version that all files of the project state', () => {
  expect(readNotes(`v${version}`).length).toBeGreaterThan(100);
  expect(Object.keys(readVersions()).length).toBe(7);
});

test('are refused for a tag of another version, with every file that differs', () => {
  const versions = { 'package.json': '1.2.0', 'chart/sidegate/Chart.yaml': '1.1.0' };
  expect(() => checkVersions('v1.2.0', versions)).toThrow(
    'the tag is v1.2.0, but chart/sidegate/Chart.yaml has 1.1.0: set the same version everywhere',
  );
  expect(() => checkVersions('1.2.0', { 'package.json': '1.2.0' })).toThrow('the tag is 1.2.0');
});
