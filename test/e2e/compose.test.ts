/** All Compose files: those of the docs and the examples, and the one of `sidegate init`. */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { runCommand } from '../support/cli.ts';
import { readBlocks } from '../support/doc-blocks.ts';
import { useFolder } from '../support/fixtures.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const folder = useFolder();
const PAGES = globSync(['*.md', '{docs,examples,quickstart}/**/*.md'], { cwd: ROOT });

async function readComposeFiles(): Promise<ReadonlyMap<string, string>> {
  await runCommand(['init', folder, '--sender', 'github', '--deploy', 'compose']);
  const blocks = PAGES.flatMap((page) => readBlocks(page, join(ROOT, page)));
  return new Map([
    ...blocks.filter(({ text }) => /^services:/m.test(text)).map(({ page, line, text }) => [`${page}:${line}`, text] as const),
    ...globSync('{docs,examples,quickstart}/**/{,docker-}compose*.{yaml,yml}', { cwd: ROOT }).map(
      (file) => [file, readFileSync(join(ROOT, file), 'utf8')] as const,
    ),
    ['sidegate init', readFileSync(join(folder, 'compose.yaml'), 'utf8')] as const,
  ]);
}

/** Docker binds the inode of a file: after an editor replaced it on the host, the container has the old one. */
test('mount the config and its secrets with their folder, so that a saved change takes effect', async () => {
  const files = await readComposeFiles();
  expect([...files.keys()].map((file) => file.replace(/:\d+$/, '')).sort()).toEqual(
    expect.arrayContaining(['docs/tutorials/vm.md', 'examples/compose/compose.yaml', 'sidegate init']),
  );
  const mounts = [...files].flatMap(([file, text]) => {
    const services = Object.values(parse(text).services as Record<string, Record<string, unknown>>);
    return services
      .filter(({ image }) => image === 'sidegate')
      .map(({ volumes, configs, secrets }) => [file, { volumes, configs, secrets }]);
  });
  const wholeFolder = { volumes: ['./sidegate:/etc/sidegate:ro'], configs: undefined, secrets: undefined };
  expect(mounts).toEqual([...files.keys()].map((file) => [file, wholeFolder]));
});

test('are the only way in which pages mount the config: no command mounts the file alone', () => {
  const alone = PAGES.filter((page) =>
    /gate\.yaml:\/|(?:dst|target|destination)=\S*gate\.yaml/.test(readFileSync(join(ROOT, page), 'utf8')),
  );
  expect(alone).toEqual([]);
});
