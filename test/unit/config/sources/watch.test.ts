import { mkdirSync, renameSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { type Fingerprints, toFingerprints, type Watch, watchFiles } from '../../../../src/config/sources/watch.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { makeFolder } from '../../../support/fixtures.ts';
import { until } from '../../../support/gate.ts';

const POLL_MS = 30_000;
const OTHER_FILE_MS = 5_000;
let watch: Watch | undefined;
afterEach(() => {
  watch?.close();
  watch = undefined;
});

async function start(...names: string[]) {
  const folder = makeFolder();
  const files = names.map((name) => join(folder, name));
  const clock = new FakeClock();
  const changes: string[][] = [];
  const problems: string[] = [];
  const open = async (known?: Fingerprints): Promise<void> => {
    watch = await watchFiles(known ?? (await toFingerprints(files)), clock, {
      onChange: (changed) => void changes.push(changed.map((file) => file.slice(folder.length + 1))),
      onFailure: (message) => void problems.push(message),
    });
  };
  /** Lets the system tell of an event, and the debounce pass; true once `count` changes were told. */
  const seen = (count: number): Promise<unknown> =>
    until(async () => {
      await clock.advance(250);
      return changes.length >= count;
    });
  return { folder, files, clock, changes, problems, open, seen };
}

describe('a watched file', () => {
  test('has changed if its content has, however it was written', async () => {
    const { folder, open, seen, changes } = await start('a', 'b');
    writeFileSync(join(folder, 'a'), '1');
    writeFileSync(join(folder, 'b'), '1');
    await open();
    writeFileSync(join(folder, 'a'), '2');
    await seen(1);
    writeFileSync(join(folder, 'new'), '3');
    renameSync(join(folder, 'new'), join(folder, 'b'));
    await seen(2);
    unlinkSync(join(folder, 'a'));
    await seen(3);
    writeFileSync(join(folder, 'a'), '2');
    await seen(4);
    expect(changes).toEqual([['a'], ['b'], ['a'], ['a']]);
  });

  test('is reported without delay if its path is not in the shortest form', async () => {
    const { folder, clock, open, seen, changes } = await start('a');
    const file = `${folder}/.//a`;
    writeFileSync(file, '1');
    await open(await toFingerprints([file]));
    const before = clock.timers;
    writeFileSync(file, '2');
    await until(() => clock.timers > before);
    await clock.advance(250);
    expect(clock.timers).toBe(before);
    await seen(1);
    expect(changes).toEqual([['.//a']]);
  });

  test('is reported while another file of its directory changes constantly', async () => {
    const { folder, files, clock, changes, open } = await start('a');
    writeFileSync(files[0] as string, '1');
    await open();
    writeFileSync(files[0] as string, '2');
    let left = 50;
    await until(async () => {
      // More often than the debounce lasts, and for less than the poll takes.
      writeFileSync(join(folder, 'log'), String(left--));
      await clock.advance(100);
      return changes.length > 0 || left === 0;
    });
    expect(changes).toEqual([['a']]);
  });

  test('is not read again each time another file of its directory is written, only every 5 s, as a link may lead to that one', async () => {
    const { folder, files, clock, changes, open } = await start('a');
    const target = join(folder, 'target');
    writeFileSync(target, '1');
    symlinkSync('target', files[0] as string);
    await open();
    const before = clock.timers;
    writeFileSync(target, '2');
    await until(() => clock.timers > before);
    await clock.advance(OTHER_FILE_MS - 1);
    expect([clock.timers, changes]).toEqual([before + 1, []]);
    await clock.advance(1);
    await until(() => changes.length > 0);
    expect(changes).toEqual([['a']]);
  });

  test('is reported again at the next check on request, unless it is gone', async () => {
    const { folder, files, clock, changes, open } = await start('a', 'b');
    writeFileSync(join(folder, 'a'), '1');
    await open();
    watch?.recheck([...files, join(folder, 'unknown')]);
    await clock.advance(POLL_MS);
    await until(() => changes.length > 0);
    await clock.advance(POLL_MS);
    expect(changes).toEqual([['a']]);
  });

  test('is reported after each swap by the kubelet', async () => {
    const { folder, open, seen, changes } = await start('secret');
    const swap = (version: number): void => {
      mkdirSync(join(folder, `..v${version}`));
      writeFileSync(join(folder, `..v${version}`, 'secret'), `secret ${version}`);
      symlinkSync(`..v${version}`, join(folder, '..data_tmp'));
      renameSync(join(folder, '..data_tmp'), join(folder, '..data'));
      if (version > 1) rmSync(join(folder, `..v${version - 1}`), { recursive: true });
    };
    swap(1);
    symlinkSync('..data/secret', join(folder, 'secret'));
    await open();
    for (let version = 2; version <= 4; version++) {
      swap(version);
      await seen(version - 1);
    }
    expect(changes).toEqual([['secret'], ['secret'], ['secret']]);
  });

  test('has not changed if the same content was written again', async () => {
    const { folder, clock, open, seen, changes } = await start('a', 'b');
    writeFileSync(join(folder, 'a'), '1');
    await open();
    writeFileSync(join(folder, 'a'), '1');
    await clock.advance(POLL_MS);
    writeFileSync(join(folder, 'b'), '1');
    await seen(1);
    expect(changes).toEqual([['b']]);
  });
});

test('a change between reading and watching is reported at once', async () => {
  const { folder, files, open, changes } = await start('a', 'b', 'c');
  for (const name of ['a', 'b', 'c']) writeFileSync(join(folder, name), '1');
  const known = await toFingerprints(files);
  writeFileSync(join(folder, 'a'), '2');
  unlinkSync(join(folder, 'c'));
  await open(known);
  expect(changes).toEqual([['a', 'c']]);
});

test('a missing directory is reported, and found by polling once it exists', async () => {
  const { folder, clock, open, changes, problems } = await start('later/file');
  await open();
  expect(problems).toEqual([expect.stringContaining('cannot be watched (ENOENT); it is polled every 30 s')]);
  mkdirSync(join(folder, 'later'));
  writeFileSync(join(folder, 'later', 'file'), '1');
  await until(async () => {
    await clock.advance(POLL_MS);
    return changes.length > 0;
  });
  expect(changes).toEqual([['later/file']]);
});

test('a directory is watched by its files, also with entries that are none, or cannot be read', async () => {
  const { folder, open, seen, changes } = await start();
  mkdirSync(join(folder, 'users', 'lost+found'), { recursive: true });
  mkdirSync(join(folder, 'users', '.git'));
  symlinkSync('nowhere', join(folder, 'users', 'dangling'));
  for (const name of ['alice', 'bob']) writeFileSync(join(folder, 'users', name), name);
  await open(await toFingerprints([join(folder, 'users', '/')]));
  unlinkSync(join(folder, 'users', 'bob'));
  await seen(1);
  rmSync(join(folder, 'users', 'lost+found'), { recursive: true });
  await seen(2);
  expect(changes).toEqual([['users/'], ['users/']]);
});

test('a closed watch reports nothing and leaves no timer', async () => {
  const { folder, clock, open, changes } = await start('a');
  await open();
  watch?.close();
  writeFileSync(join(folder, 'a'), '1');
  await clock.advance(POLL_MS);
  expect([changes, clock.timers]).toEqual([[], 0]);
});
