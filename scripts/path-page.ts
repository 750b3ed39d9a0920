/** Measures how web frameworks interpret spellings of a path, and writes docs/path-interpretation.md. `test/prepare/prepare-test.ts oracles` installs the frameworks. */
import { writeFileSync } from 'node:fs';
import { FRAMEWORKS, type FrameworkResponse, startFramework } from '../test/support/frameworks/framework.ts';
import { SHOWN_TARGETS } from '../test/support/frameworks/targets.ts';
import { toTable, withBlocks } from './markdown.ts';

const PAGE = 'docs/path-interpretation.md';
const LETTERS = { admin: '**A**', account: '**C**', billing: '**H**', open: 'o' } as const;

function toCell({ status, served }: FrameworkResponse): string {
  if (served !== undefined) return LETTERS[served.handler];
  return status === 0 ? 'closed' : String(status);
}

const columns: { readonly title: string; readonly cells: readonly string[] }[] = [];
for (const framework of FRAMEWORKS) {
  if (!framework.isAvailable()) {
    console.log(`${framework.title} is not installed: its column is missing`);
    continue;
  }
  const running = await startFramework(framework);
  const cells: string[] = [];
  for (const target of SHOWN_TARGETS) cells.push(toCell(await running.ask(target)));
  columns.push({ title: `${framework.title} ${running.version}`, cells });
  await running.stop();
}

const rows = SHOWN_TARGETS.map((target, i) => [`\`${target}\``, ...columns.map(({ cells }) => cells[i] ?? '')]);
const measured = (): string => toTable(['target', ...columns.map(({ title }) => title)], rows);
writeFileSync(PAGE, withBlocks(PAGE, { measured }, 'docs:paths')());
console.log(`${PAGE}: ${columns.length} frameworks`);
