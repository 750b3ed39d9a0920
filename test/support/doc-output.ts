/** Runs the commands of a page, and compares what they print with what the page shows. */
import { expect } from 'vitest';
import { type Block, place } from './doc-blocks.ts';
import type { DocSession } from './doc-session.ts';

/** Runs the blocks in their order, except those that are marked with a reason. */
export async function runBlocks(session: DocSession, blocks: readonly Block[]): Promise<void> {
  let output = '';
  for (const block of blocks) {
    if (block.directive.kind === 'not-run') output = '';
    else if (block.file !== undefined) session.write(block);
    else if (block.language === 'sh') output = await runBlock(session, block);
    else if (block.language === 'text') expectOutput(session.localize(block.text), output, place(block));
  }
}

async function runBlock(session: DocSession, block: Block): Promise<string> {
  const { directive } = block;
  if (directive.kind === 'background') return (await session.start(block, directive.until)).output;
  const { code, output } = await session.run(block);
  expect(code, `${place(block)} printed ${output}`).toBe(directive.kind === 'exits' ? directive.code : 0);
  return output;
}

/** Each line of the page is printed, in this order; `…` stands for any text. */
export function expectOutput(shown: string, output: string, where: string): void {
  const missing = findMissingLine(shown, output);
  expect(missing, `${where}: "${missing}" is not in: ${output}`).toBeUndefined();
}

/** The first line of the page that is not printed after the lines before it. */
export function findMissingLine(shown: string, output: string): string | undefined {
  let rest = output;
  for (const line of shown.split('\n').filter((each) => each.trim() !== '' && each.trim() !== '…')) {
    const pattern = line.trim().split('…').map(escapePattern).join('.*');
    const match = new RegExp(pattern).exec(rest);
    if (match === null) return line;
    rest = rest.slice(match.index + match[0].length);
  }
  return undefined;
}

function escapePattern(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|]/g, '\\$&').replaceAll(/ +/g, ' +');
}
