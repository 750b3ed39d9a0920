import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { readUserSource } from '../../../../src/config/sources/secrets.ts';
import { useFolder } from '../../../support/fixtures.ts';

const folder = useFolder();

test('a folder of users has one in each file; hidden names and what is no file are skipped', async () => {
  const map = join(folder, 'map');
  mkdirSync(join(map, '..data'), { recursive: true });
  mkdirSync(join(map, 'lost+found'));
  writeFileSync(join(map, '..data', 'alice'), 'hash-a\n');
  symlinkSync(join('..data', 'alice'), join(map, 'alice'));
  writeFileSync(join(map, 'bob'), 'hash-b\n');
  writeFileSync(join(map, '.bob.swp'), Buffer.from([0xff, 0xfe]));
  expect(await readUserSource({ mapDir: map })).toMatchObject({
    hashes: new Map([
      ['alice', 'hash-a'],
      ['bob', 'hash-b'],
    ]),
  });
  writeFileSync(join(map, 'carol'), Buffer.from([0xff, 0xfe]));
  expect(await readUserSource({ mapDir: map })).toMatchObject({ problem: expect.stringMatching(/carol is not UTF-8$/) });
});
