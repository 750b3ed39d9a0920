/** Markdown that scripts write: tables, and marked blocks of pages that are otherwise written by hand, so that docs and code always agree. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '..');

export function toTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |\n`).join('');
}

/** Returns a renderer of the page with its blocks rendered; `blocks`: renderers by the name in the marks; `script`: what writes them. */
export function withBlocks(page: string, blocks: Readonly<Record<string, () => string>>, script = 'docs'): () => string {
  return () => {
    let text = readFileSync(join(ROOT, page), 'utf8');
    for (const [name, render] of Object.entries(blocks)) {
      const [begin, end] = [`<!-- ${name}: written by \`npm run ${script}\` -->\n`, `<!-- /${name} -->\n`];
      const [before, rest = ''] = text.split(begin);
      const after = rest.split(end)[1];
      if (after === undefined) throw new Error(`${page} has no ${begin.trim()} … ${end.trim()}`);
      text = `${before}${begin}\n${render()}\n${end}${after}`;
    }
    return text;
  };
}
