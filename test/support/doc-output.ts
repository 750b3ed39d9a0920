/** Compares what a page shows with what its commands print. */
import { expect } from 'vitest';

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
