/** An example of the repository, as a reader runs it: a copy of its folder, and the commands of its page. */
import { globSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { onTestFinished } from 'vitest';
import { readBlocks } from './doc-blocks.ts';
import { runBlocks } from './doc-output.ts';
import { DocSession, type DocSessionOptions } from './doc-session.ts';

/** The folder of all examples. */
export const EXAMPLES = resolve(import.meta.dirname, '..', '..', 'examples');

/** The files of an example, except its page; paths are relative to its folder. */
export function listExampleFiles(name: string): string[] {
  const files = globSync('**/*.{cjs,go,mjs,mod,py,yaml}', { cwd: join(EXAMPLES, name) });
  return files.filter((file) => !file.includes('node_modules')).sort();
}

export const readExample = (name: string, file: string): string => readFileSync(join(EXAMPLES, name, file), 'utf8');

/** Copies an example, runs the commands of its page, and leaves the app and sidegate running until the test ends. */
export async function runExample(name: string, options: DocSessionOptions = {}): Promise<DocSession> {
  const session = new DocSession(options);
  onTestFinished(() => session.close());
  const blocks = readBlocks(`examples/${name}/README.md`, join(EXAMPLES, name, 'README.md'));
  const files = listExampleFiles(name).map((file) => ({ file, text: readExample(name, file) }));
  await session.prepare([...files, ...blocks].map(({ text }) => text));
  for (const file of files) session.write(file);
  await runBlocks(session, blocks);
  return session;
}
