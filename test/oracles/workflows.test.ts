import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { ACTIONLINT, toBinFolder } from '../prepare/cluster-tools.ts';
import { makeFolder } from '../support/fixtures.ts';

const PROGRAM = join(toBinFolder(), ACTIONLINT.name);
const FOLDER = resolve(import.meta.dirname, '..', '..', '.github', 'workflows');

test.skipIf(!existsSync(PROGRAM))('actionlint finds nothing in the workflows', () => {
  const files = readdirSync(FOLDER).map((name) => join(FOLDER, name));
  expect(files.length).toBeGreaterThan(5);
  expect(execFileSync(PROGRAM, files, { encoding: 'utf8' })).toBe('');
});

test.skipIf(!existsSync(PROGRAM))('actionlint finds an expression that untrusted clients control', () => {
  const file = join(makeFolder(), 'bad.yml');
  const step = `      - run: echo "\${{ github.event.pull_request.title }}"\n`;
  writeFileSync(file, `on: pull_request\njobs:\n  a:\n    runs-on: ubuntu-24.04\n    steps:\n${step}`);
  const { status, stdout } = spawnSync(PROGRAM, [file], { encoding: 'utf8' });
  expect(status).toBe(1);
  expect(stdout).toContain('potentially untrusted');
});
